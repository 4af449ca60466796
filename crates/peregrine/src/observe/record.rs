//! [`Record`]: what a server sends of one call to a program that captures its calls.

use core::fmt::Write as _;

use super::layer::{LayerCall, LayerOutcome};
use crate::call::Caller;
#[cfg(feature = "secure")]
use crate::call::CallerIdentity;
use crate::error::{Executed, Kind};
use crate::interface::System;
use crate::limits;
use crate::value::Window;

/// The arguments of a call as the server received them, before its stub takes them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message<'a> {
    /// A message of Peregrine: the head, the copied blocks, and the number of bytes of the lent blocks.
    Native { head: Window<'a>, blocks: &'a [u8], lent: usize },
    /// The arguments in the representation of another system.
    Foreign { system: System, arguments: &'a [u8] },
}

/// A call that has ended. It is sent as this structure, so its fields are a wire format: see
/// `docs/PROTOCOL.md`, part 2.
#[derive(Clone, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub(crate) struct Record {
    /// The time at which the call began, in nanoseconds since the Unix epoch.
    pub(crate) begun_ns: u64,
    pub(crate) took_ns: u64,
    pub(crate) procedure: u32,
    /// The caller's process, user and group, as [`Caller`] returns them.
    pub(crate) process: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// 0: the procedure returned `Ok`. 1: it returned its own error. 2: the call failed.
    pub(crate) outcome: u32,
    /// The [`Kind`] of a failed call, as a number.
    pub(crate) kind: u32,
    /// 1 if the procedure of a failed call may have run.
    pub(crate) executed: u32,
    /// The representation of the arguments. 0: a message of Peregrine. 1: XDR. 2: Courier.
    pub(crate) representation: u32,
    /// The size in bytes of all arguments as they were sent.
    pub(crate) argument_bytes: u64,
    pub(crate) lent_bytes: u64,
    pub(crate) result_bytes: u64,
    /// The sizes in bytes of the whole head and of all copied blocks. What follows may be cut.
    pub(crate) head_bytes: u64,
    pub(crate) block_bytes: u64,
    pub(crate) path: String,
    /// The address of the caller on a network, or an empty text.
    pub(crate) from: String,
    /// The caller's proven identity, or an empty text.
    pub(crate) identity: String,
    /// Why a failed call failed.
    pub(crate) text: String,
    pub(crate) head: Vec<u8>,
    pub(crate) blocks: Vec<u8>,
}

/// The value of [`Record::outcome`] for a result.
pub(crate) const RETURNED: u32 = 0;
/// The value of [`Record::outcome`] for the procedure's own error.
pub(crate) const RETURNED_ERROR: u32 = 1;
/// The value of [`Record::outcome`] for a call that failed.
pub(crate) const FAILED: u32 = 2;

/// The largest number of bytes of each text of a record.
const TEXT_BYTES: usize = 512;

/// Returns the beginning of a text, with at most [`TEXT_BYTES`] bytes.
fn brief(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES)].to_owned()
}

/// Returns the network address of a caller, or an empty text.
fn address(caller: &Caller) -> String {
    if let Some(from) = caller.from() {
        return from.to_string();
    }
    let mut text = String::new();
    for (index, byte) in caller.hardware().into_iter().flatten().enumerate() {
        let gap = if index > 0 { ":" } else { "" };
        // Writing to a text does not fail.
        let _ = write!(text, "{gap}{byte:02x}");
    }
    text
}

/// Returns who the client of an encrypted connection is, or an empty text.
fn identity(caller: &Caller) -> String {
    #[cfg(feature = "secure")]
    if let Some(CallerIdentity::Peer(peer)) = caller.identity() {
        return peer.to_string();
    }
    let _ = caller;
    String::new()
}

impl Record {
    /// Returns the record of a call that begins, with at most `most` bytes of its arguments.
    pub(super) fn begin(call: &LayerCall<'_>, most: usize) -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let mut record = Self {
            begun_ns: since.map_or(0, |since| since.as_nanos() as u64),
            procedure: call.procedure,
            path: call.path.to_string(),
            argument_bytes: call.argument_bytes as u64,
            ..Self::default()
        };
        if let Some(caller) = &call.caller {
            (record.process, record.user) = (caller.process(), caller.user());
            record.group = caller.group();
            record.from = address(caller);
            record.identity = brief(&identity(caller));
        }
        record.copy(call.message, most.min(limits::CAPTURE_BYTES_MAX));
        record
    }

    /// Copies the beginning of the arguments.
    fn copy(&mut self, message: Option<Message<'_>>, most: usize) {
        match message {
            None => {}
            Some(Message::Native { head, blocks, lent }) => {
                self.lent_bytes = lent as u64;
                self.head_bytes = head.len() as u64;
                self.block_bytes = blocks.len() as u64;
                let head = head.range(0, head.len().min(most));
                self.head = vec![0; head.len()];
                // Both parts have the same length, so reading does not fail.
                let _ = head.read(0, &mut self.head);
                self.blocks = blocks[..blocks.len().min(most - self.head.len())].to_vec();
            }
            Some(Message::Foreign { system, arguments }) => {
                self.representation = match system {
                    System::Onc => 1,
                    System::Courier => 2,
                };
                self.head_bytes = arguments.len() as u64;
                self.head = arguments[..arguments.len().min(most)].to_vec();
            }
        }
    }

    /// Notes how the call has ended.
    pub(super) fn end(&mut self, outcome: LayerOutcome<'_>) {
        match outcome {
            LayerOutcome::Returned => self.outcome = RETURNED,
            LayerOutcome::ReturnedError => self.outcome = RETURNED_ERROR,
            LayerOutcome::Failed { kind, executed, text } => {
                self.outcome = FAILED;
                self.kind = kind as u32;
                self.executed = u32::from(executed == Executed::Maybe);
                self.text = brief(text);
            }
        }
    }

    /// Returns how the call has ended. A kind that this version does not know becomes [`Kind::Relayed`].
    pub(crate) fn outcome(&self) -> LayerOutcome<'_> {
        match self.outcome {
            RETURNED => LayerOutcome::Returned,
            RETURNED_ERROR => LayerOutcome::ReturnedError,
            _ => LayerOutcome::Failed {
                kind: Kind::from_number(self.kind).unwrap_or(Kind::Relayed),
                executed: if self.executed == 0 { Executed::No } else { Executed::Maybe },
                text: &self.text,
            },
        }
    }

    /// Returns the number of bytes of memory that the record occupies.
    pub(super) fn bytes(&self) -> usize {
        let texts = [&self.path, &self.from, &self.identity, &self.text];
        let texts: usize = texts.iter().map(|text| text.len()).sum();
        size_of::<Self>() + texts + self.head.len() + self.blocks.len()
    }
}
