//! How the call of a client of another RPC system runs, and where its reply is made.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::callers::{Caller, CallerRow, Callers};
use super::exported::Missing;
use crate::call::{Answer, Calls, Claimed, ForeignAnswer, ForeignCall, PathKind, Ran, Refusal};
use crate::error::Executed;
use crate::interface::System;
use crate::serving::ServerCore;
use crate::serving::export::Export;
use crate::serving::procedure::{IncomingCall, Serving};
use crate::value::Window;

/// The number of bytes that are kept free before the message of a reply. The path writes its framing of the
/// message there.
pub(crate) const FRAMING_BYTES: usize = 4;
/// A buffer that is larger than this number of bytes is released after the reply was sent.
const BUFFER_BYTES_KEPT: usize = 64 << 10;

/// The source of calls that their clients cannot cancel.
pub(crate) struct NeverGivenUp;

impl Calls for NeverGivenUp {
    fn is_given_up(&self, _: u64) -> bool {
        false
    }
}

/// The memory in which a thread makes replies. At least [`FRAMING_BYTES`] bytes are before the message.
#[derive(Default)]
pub(crate) struct ReplyBuffer {
    bytes: Vec<u8>,
    /// The offset of the message in `bytes`.
    at: usize,
}

impl ReplyBuffer {
    /// Returns the message.
    pub(crate) fn message(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Returns the message, together with the [`FRAMING_BYTES`] bytes before it.
    pub(crate) fn framed(&mut self) -> Option<&mut [u8]> {
        self.bytes.get_mut(self.at.checked_sub(FRAMING_BYTES)?..)
    }

    /// Releases memory that a large reply needed.
    pub(crate) fn trim(&mut self) {
        if self.bytes.capacity() > BUFFER_BYTES_KEPT {
            *self = Self::default();
        }
    }

    /// Puts a message into the buffer.
    pub(crate) fn put(&mut self, message: &[u8]) {
        self.begin_results(0).extend(message);
    }

    /// Empties the buffer, and leaves space for a header of at most `header_bytes_max` bytes. The caller
    /// appends the results.
    pub(in crate::path) fn begin_results(&mut self, header_bytes_max: usize) -> &mut Vec<u8> {
        self.at = FRAMING_BYTES + header_bytes_max;
        self.bytes.clear();
        self.bytes.resize(self.at, 0);
        &mut self.bytes
    }

    /// Writes the header of a reply with results, directly before the results. The header must fit into the
    /// space that [`begin_results`](Self::begin_results) has left.
    pub(crate) fn put_header(&mut self, header: &[u8]) {
        let begin = self.at - header.len();
        self.bytes[begin..self.at].copy_from_slice(header);
        self.at = begin;
    }
}

/// A call that has arrived, and the limits of its reply.
pub(crate) struct ArrivedCall<'a> {
    /// The number of the call. Only the source of the call interprets it.
    pub(crate) number: u64,
    pub(crate) call: ForeignCall<'a>,
    /// The largest number of bytes of results that the path can send.
    pub(crate) results_max: usize,
    /// The largest number of bytes of the header of a reply with results.
    pub(crate) header_bytes_max: usize,
}

/// The outcome of a call.
pub(crate) enum Served {
    /// The results are in the buffer. The path adds a header.
    Answered(ForeignAnswer),
    NotExecuted(Refusal),
    /// The procedure may have run, and there are no results.
    Failed,
}

/// Runs a call, and puts its results into `reply`.
pub(crate) fn serve(
    arrived: &ArrivedCall<'_>,
    row: &CallerRow,
    serving: &mut Serving,
    calls: impl FnOnce() -> Arc<dyn Calls>,
    reply: &mut ReplyBuffer,
) -> Served {
    let ArrivedCall { number, ref call, results_max, header_bytes_max } = *arrived;
    let incoming = IncomingCall {
        number,
        bytes: u32::try_from(call.arguments.len()).unwrap_or(u32::MAX),
        extensions: Window::empty(),
        waited: || Duration::ZERO,
        is_given_up: || false,
    };
    let mut guard = match serving.begin(row, incoming, calls) {
        Ok(guard) => guard,
        Err(refusal) => {
            if let Some(procedure) = call.procedure_of(&row.serve.interface()) {
                let bytes = u32::try_from(call.arguments.len()).unwrap_or(u32::MAX);
                row.report_refused(procedure, bytes, &refusal);
            }
            return Served::NotExecuted(refusal);
        }
    };
    let most = results_max.min(row.message_bytes);
    let mut served = Served::Failed;
    let results = reply.begin_results(header_bytes_max);
    let begin = results.len();
    let ran = guard.run_caught(
        |serve| match serve.serve_foreign(call, results) {
            Ok(answer) if may_be(answer, call.system) && results.len() - begin <= most => {
                served = Served::Answered(answer);
                ran(answer.into(), results.len() - begin)
            }
            // The results are too large, or the system has no such kind of answer.
            Ok(_) => ran(Answer::MayHaveExecuted, 0),
            Err(refusal) if refusal.executed == Executed::No => {
                served = Served::NotExecuted(refusal);
                ran(Answer::NotExecuted, 0)
            }
            Err(_) => ran(Answer::MayHaveExecuted, 0),
        },
        |_| ran(Answer::MayHaveExecuted, 0),
    );
    guard.end(ran.answer, ran.head_bytes.into());
    served
}

const fn ran(answer: Answer, bytes: usize) -> Ran {
    Ran { answer, head_at: 0, head_bytes: bytes as u32, block_bytes: 0, is_uncounted: false }
}

/// Returns whether a system has this kind of answer.
const fn may_be(answer: ForeignAnswer, system: System) -> bool {
    matches!((answer, system), (ForeignAnswer::Returned, _) | (_, System::Courier))
}

/// Returns the row of a caller. If the caller has no row, adds a row for the export that `find` returns.
///
/// # Errors
/// If `find` fails, if the server is stopping, or if the export was withdrawn.
pub(crate) fn row_of(
    core: &ServerCore,
    path: PathKind,
    callers: &Callers,
    caller: &Caller<'_>,
    claimed: impl FnOnce() -> Option<Claimed>,
    find: impl FnOnce(&[Arc<Export>]) -> Result<Arc<Export>, Missing>,
) -> Result<Arc<CallerRow>, Missing> {
    if core.stopping.load(Ordering::Relaxed) {
        return Err(Missing::PROGRAM);
    }
    if let Some(row) = callers.get(caller) {
        return Ok(row);
    }
    let export = find(&core.exports.lock())?;
    let row = callers.add(path, caller, claimed(), &export);
    // A withdrawal revokes only the rows that exist. So the export is checked after the row was added.
    if export.is_closed() {
        callers.revoke(export.number);
        return Err(Missing::PROGRAM);
    }
    Ok(row)
}

/// Returns the size in bytes of the largest message that any export takes.
pub(crate) fn message_bytes_max(core: &ServerCore) -> usize {
    let exports = core.exports.lock();
    exports.iter().map(|export| export.message_bytes_max()).max().unwrap_or(0)
}
