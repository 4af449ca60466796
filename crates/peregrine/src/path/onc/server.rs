//! The server's half of ONC RPC: what happens to a message between its arrival and its reply. It is the same
//! over UDP ([`datagrams`]) and over TCP ([`connections`]).
//!
//! A client does not bind. Each of its messages names a program, a version and a procedure, and carries the
//! caller's credential. So the server looks for the export with each call, and keeps a row for each caller.

mod callers;
mod connection;
mod connections;
mod datagrams;
mod programs;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use self::callers::{CallerRow, Callers};
pub(crate) use self::connections::OncConnections;
pub(crate) use self::datagrams::OncDatagrams;
use self::programs::{Missing, exported};
use crate::call::{Answer, Calls, ForeignAnswer, ForeignCall, PathKind, Ran, Refusal};
use crate::error::{Executed, Kind};
use crate::interface::System;
use crate::protocol::exchange::time::Moment;
use crate::protocol::onc::message::{
    AuthReason, AuthSys, Call, Denial, Flavour, NoCall, Outcome, REPLY_BYTES_MAX, Reply,
};
use crate::protocol::onc::record::{MARKER_BYTES, marker};
use crate::protocol::onc::replies::{Bounds, Peer, Replies, Ticket, Verdict};
use crate::serving::ServerCore;
use crate::serving::procedure::{IncomingCall, Serving};
use crate::sync::{Mutex, MutexGuard};
use crate::sys;
use crate::value::Window;

/// The number of bytes of the header of a reply with results and an empty verifier.
const SUCCESS_BYTES: usize = 24;
/// The place of the results in a [`ReplyBuffer`].
const RESULTS_AT: usize = MARKER_BYTES + SUCCESS_BYTES;
/// A buffer that is larger than this number of bytes is released after the reply was sent.
const BUFFER_BYTES_KEPT: usize = 64 << 10;

/// What all calls of one UDP socket share, or all calls over TCP.
struct Desk {
    core: Arc<ServerCore>,
    path: PathKind,
    /// The callers of this socket. Over TCP, each connection has its own.
    replies: Mutex<Replies>,
    calls: Arc<NeverGivenUp>,
}

/// The source of all calls of ONC RPC. A client cannot cancel a call. The end of its connection is no proof
/// that it has given up, because it may connect again and send the same call.
struct NeverGivenUp;

impl Calls for NeverGivenUp {
    fn is_given_up(&self, _: u64) -> bool {
        false
    }
}

/// What a message asks of the server.
enum Received {
    /// Nothing. Over a stream, the connection ends if `is_foreign`: its bytes are no calls.
    Nothing { is_foreign: bool },
    /// To send the reply in the buffer.
    Answered,
    /// To run a call.
    Call(AcceptedCall),
}

/// A call that is to be run. If this value is dropped, the call counts as failed.
struct AcceptedCall {
    desk: Arc<Desk>,
    row: Arc<CallerRow>,
    /// The number of the connection at which the call has arrived.
    connection: u64,
    xid: u32,
    procedure: u32,
    /// The offset of the arguments in the message.
    arguments_at: usize,
    /// `None` after the call has ended.
    ticket: Option<Ticket>,
}

/// Where a message comes from.
#[derive(Clone, Copy)]
struct Source<'a> {
    peer: Peer,
    from: SocketAddr,
    /// The number of the connection, or zero.
    connection: u64,
    callers: &'a Callers,
}

/// The memory in which a thread makes replies: the marker of a record, and the message.
#[derive(Default)]
struct ReplyBuffer(Vec<u8>);

impl ReplyBuffer {
    /// Returns the message.
    fn message(&self) -> &[u8] {
        self.0.get(MARKER_BYTES..).unwrap_or_default()
    }

    /// Returns the message as a record. Returns `None` if it is too long.
    fn record(&mut self) -> Option<&[u8]> {
        let marker = marker(self.message().len())?;
        self.0.first_chunk_mut().map(|place| *place = marker)?;
        Some(&self.0)
    }

    /// Releases memory that a large reply needed.
    fn trim(&mut self) {
        if self.0.capacity() > BUFFER_BYTES_KEPT {
            self.0 = Vec::new();
        }
    }

    /// Puts a message into the buffer.
    fn put(&mut self, message: &[u8]) {
        self.0.clear();
        self.0.extend([0; MARKER_BYTES]);
        self.0.extend(message);
    }

    /// Puts a reply without results into the buffer.
    fn put_reply(&mut self, reply: &Reply<'_>) {
        let mut bytes = [0; REPLY_BYTES_MAX];
        let length = reply.emit(&mut bytes).unwrap_or(0);
        self.put(&bytes[..length]);
    }

    fn put_outcome(&mut self, xid: u32, outcome: Outcome) {
        self.put_reply(&Reply::accepted(xid, outcome));
    }

    /// Empties the buffer, and leaves room for the header of a reply with results.
    fn begin_results(&mut self) -> &mut Vec<u8> {
        self.0.clear();
        self.0.resize(RESULTS_AT, 0);
        &mut self.0
    }

    /// Writes the header before the results.
    fn end_results(&mut self, xid: u32) {
        let header = &mut self.0[MARKER_BYTES..RESULTS_AT];
        let written = Reply::accepted(xid, Outcome::Success).emit(header);
        debug_assert_eq!(written, Some(SUCCESS_BYTES));
    }
}

/// Returns the time of the protocol's clock.
fn moment() -> Moment {
    Moment(sys::boot_ns())
}

impl Desk {
    /// # Errors
    /// If the kernel provides no random numbers.
    fn new(core: &Arc<ServerCore>, path: PathKind) -> std::io::Result<Arc<Self>> {
        let replies = Mutex::new(Replies::new(sys::random()?, Bounds::DEFAULT));
        let core = Arc::clone(core);
        Ok(Arc::new(Self { core, path, replies, calls: Arc::new(NeverGivenUp) }))
    }

    fn replies(&self) -> MutexGuard<'_, Replies> {
        self.replies.lock()
    }

    /// Returns the size in bytes of the largest message that any export takes.
    fn message_bytes_max(&self) -> usize {
        let exports = self.core.exports.lock();
        exports.iter().map(|export| export.message_bytes_max()).max().unwrap_or(0)
    }

    /// Decides what to do with a message that has arrived. Puts the answer into `reply`, if there is one.
    fn take(
        self: &Arc<Self>,
        source: Source<'_>,
        message: &[u8],
        serving: &mut Serving,
        reply: &mut ReplyBuffer,
    ) -> Received {
        let (call, arguments_at) = match Call::parse(message) {
            Ok(parsed) => parsed,
            Err(NoCall::Ignore(_)) => return Received::Nothing { is_foreign: true },
            Err(NoCall::Deny(xid, denial)) => {
                reply.put_reply(&Reply::denied(xid, denial));
                return Received::Answered;
            }
        };
        let is_readable = match call.credential.flavour {
            Flavour::NONE => true,
            Flavour::SYS => AuthSys::parse(call.credential.body).is_ok(),
            // Among them RPCSEC_GSS: this server has none of its mechanisms.
            _ => false,
        };
        if !is_readable {
            let denial = Denial::Auth(AuthReason::BAD_CREDENTIAL);
            reply.put_reply(&Reply::denied(call.xid, denial));
            return Received::Answered;
        }
        let row = match self.row(source, &call) {
            Ok(row) => row,
            Err(missing) => {
                serving.counting.refused(None);
                reply.put_outcome(call.xid, missing.outcome());
                return Received::Answered;
            }
        };
        if call.procedure == 0 {
            // Procedure 0 of every program does nothing, so it need not be remembered.
            reply.put_outcome(call.xid, Outcome::Success);
            return Received::Answered;
        }
        let arguments = &message[arguments_at..];
        let mut replies = self.replies();
        let verdict = replies.begin(moment(), source.peer, source.connection, &call, arguments);
        let is_stream = self.path == PathKind::OncTcp;
        match verdict {
            Verdict::Execute(ticket) => {
                drop(replies);
                Received::Call(AcceptedCall {
                    desk: Arc::clone(self),
                    row,
                    connection: source.connection,
                    xid: call.xid,
                    procedure: call.procedure,
                    arguments_at,
                    ticket: Some(ticket),
                })
            }
            Verdict::Replay(message) => {
                reply.put(message);
                Received::Answered
            }
            Verdict::Forgotten | Verdict::Full if is_stream => {
                reply.put_outcome(call.xid, Outcome::SystemError);
                Received::Answered
            }
            Verdict::InProgress | Verdict::Forgotten | Verdict::Full => {
                Received::Nothing { is_foreign: false }
            }
        }
    }

    /// Returns the row of the caller of a call.
    fn row(&self, source: Source<'_>, call: &Call<'_>) -> Result<Arc<CallerRow>, Missing> {
        let Source { from, callers, .. } = source;
        if self.core.stopping.load(Ordering::Relaxed) {
            return Err(Missing::PROGRAM);
        }
        if let Some(row) = callers.get(from, call) {
            return Ok(row);
        }
        let export = exported(&self.core.exports.lock(), call.program, call.version)?;
        let row = callers.add(self.path, from, call, &export);
        // A withdrawal revokes only the rows that exist. So the export is checked after the row was added.
        if export.is_closed() {
            callers.revoke(export.number);
            return Err(Missing::PROGRAM);
        }
        Ok(row)
    }
}

impl AcceptedCall {
    /// Runs the call on the message with which it has arrived, and puts the reply into `reply`. A reply may
    /// have at most `room` bytes. Returns the number of the connection that gets the reply. Returns `None` if
    /// there is no reply.
    fn run(
        mut self,
        message: &[u8],
        room: usize,
        serving: &mut Serving,
        reply: &mut ReplyBuffer,
    ) -> Option<u64> {
        let row = Arc::clone(&self.row);
        let arguments = message.get(self.arguments_at..).unwrap_or_default();
        let bytes = u32::try_from(arguments.len()).unwrap_or(u32::MAX);
        let incoming = IncomingCall {
            number: self.xid.into(),
            bytes,
            extensions: Window::empty(),
            waited: || Duration::ZERO,
            is_given_up: || false,
        };
        let calls = || Arc::clone(&self.desk.calls) as Arc<dyn Calls>;
        let mut guard = match serving.begin(&row, incoming, calls) {
            Ok(guard) => guard,
            Err(refusal) => return self.refused(&refusal, reply),
        };
        let call = ForeignCall { system: System::Onc, procedure: self.procedure, arguments };
        let most = room.min(row.message_bytes + SUCCESS_BYTES);
        let mut failed = None;
        let results = reply.begin_results();
        let ran = guard.run_caught(
            |serve| {
                let refusal = match serve.serve_foreign(&call, results) {
                    Ok(ForeignAnswer::Returned) if results.len() - MARKER_BYTES <= most => {
                        return ran(Answer::Ok, results.len() - RESULTS_AT);
                    }
                    Ok(ForeignAnswer::Returned) => Refusal::lost("the results are too large"),
                    Ok(ForeignAnswer::Reported(_)) => Refusal::lost("ONC RPC has no errors"),
                    Err(refusal) => refusal,
                };
                let answer = answer_of(&refusal);
                failed = Some(refusal);
                ran(answer, 0)
            },
            |_| ran(Answer::MayHaveExecuted, 0),
        );
        guard.end(ran.answer, ran.head_bytes.into());
        match (ran.answer, failed) {
            (Answer::Ok, _) => reply.end_results(self.xid),
            (Answer::NotExecuted, Some(refusal)) => return self.refused(&refusal, reply),
            _ => reply.put_outcome(self.xid, Outcome::SystemError),
        }
        self.end(reply.message())
    }

    /// Answers a call that was not executed. Returns the same as [`run`](Self::run). A retransmission of the
    /// call may run.
    fn refused(mut self, refusal: &Refusal, reply: &mut ReplyBuffer) -> Option<u64> {
        if let Some(ticket) = self.ticket.take() {
            self.desk.replies().not_executed(ticket);
        }
        let outcome = match refusal.kind {
            Kind::BadArguments | Kind::TooLarge => Outcome::GarbageArguments,
            Kind::NoSuchProcedure => Outcome::ProcedureUnavailable,
            // The server to which this one would have passed on the call is `Kind::Relayed`.
            Kind::InterfaceMismatch | Kind::Withdrawn | Kind::Relayed => {
                Outcome::ProgramUnavailable
            }
            // ONC RPC has no answer that says: try later. Over datagrams, the client sends the call again if
            // it gets none.
            Kind::Overloaded | Kind::Exhausted if self.desk.path == PathKind::OncUdp => {
                return None;
            }
            _ => Outcome::SystemError,
        };
        reply.put_outcome(self.xid, outcome);
        Some(self.connection)
    }

    /// Notes that the call has ended with this reply.
    fn end(&mut self, reply: &[u8]) -> Option<u64> {
        let ticket = self.ticket.take()?;
        Some(self.desk.replies().end(moment(), ticket, reply))
    }
}

const fn ran(answer: Answer, bytes: usize) -> Ran {
    Ran { answer, head_at: 0, head_bytes: bytes as u32, block_bytes: 0, is_uncounted: false }
}

/// Returns how the counters count a refusal.
fn answer_of(refusal: &Refusal) -> Answer {
    match refusal.executed {
        Executed::No => Answer::NotExecuted,
        _ => Answer::MayHaveExecuted,
    }
}

impl Drop for AcceptedCall {
    fn drop(&mut self) {
        if self.ticket.is_none() {
            return;
        }
        // The thread has panicked. The call may have run, so it must not run again.
        let mut reply = ReplyBuffer::default();
        reply.put_outcome(self.xid, Outcome::SystemError);
        self.end(reply.message());
    }
}
