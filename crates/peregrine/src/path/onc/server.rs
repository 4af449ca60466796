//! The server's half of ONC RPC: what happens to a message between its arrival and its reply. It is the same
//! over UDP ([`datagrams`]) and over TCP.
//!
//! A client does not bind. Each of its messages names a program, a version and a procedure, and carries the
//! caller's credential. So the server looks up the export for each call, and keeps a row for each caller.

mod datagrams;

use std::sync::Arc;

pub(crate) use self::datagrams::OncDatagrams;
use crate::call::{Calls, Claimed, ForeignCall, PathKind, Refusal};
use crate::error::Kind;
use crate::interface::System;
use crate::path::ConnectionTerms;
use crate::path::foreign::callers::{Caller, CallerRow};
use crate::path::foreign::connections::ForeignConnections;
use crate::path::foreign::exported::{Missing, exported};
use crate::path::foreign::moment;
use crate::path::foreign::service::{self, Received, Source, StreamInput, StreamService};
use crate::path::foreign::serving::{
    ArrivedCall, FRAMING_BYTES, NeverGivenUp, ReplyBuffer, Served, row_of, serve,
};
use crate::protocol::onc::message::{
    AuthReason, AuthSys, CALL_BYTES_MAX, Call, Denial, Flavour, NoCall, Outcome, REPLY_BYTES_MAX,
    Reply, Versions,
};
use crate::protocol::onc::record::{Assembler, Broken, marker, memory_after};
use crate::protocol::onc::replies::{Bounds, Peer, Replies, Ticket, Verdict};
use crate::serving::ServerCore;
use crate::serving::procedure::Serving;
use crate::sync::{Mutex, MutexGuard};
use crate::sys;

/// The number of bytes of the header of a reply with results and an empty verifier.
const SUCCESS_BYTES: usize = 24;

/// The state that all calls of one UDP socket share, or that all calls over TCP share.
pub(crate) struct Desk {
    core: Arc<ServerCore>,
    path: PathKind,
    /// The calls that have run or run now, with their replies. Retransmissions get these replies.
    replies: Mutex<Replies>,
    /// Reports for each call that its client has not given it up, because a client cannot cancel a call.
    /// The end of a connection does not prove that the client has given up its calls: the client may
    /// connect again and retransmit them.
    calls: Arc<NeverGivenUp>,
}

/// A call that is to be run. If this value is dropped, the call counts as failed.
pub(crate) struct AcceptedCall {
    desk: Arc<Desk>,
    row: Arc<CallerRow>,
    /// The number of the connection at which the call has arrived.
    connection: u64,
    xid: u32,
    /// The program and its version.
    program: (u32, u32),
    procedure: u32,
    /// The offset of the arguments in the message.
    arguments_at: usize,
    /// `None` after the call has ended.
    ticket: Option<Ticket>,
}

/// Puts a reply without results into a buffer.
fn put_reply(to: &mut ReplyBuffer, reply: &Reply<'_>) {
    let mut bytes = [0; REPLY_BYTES_MAX];
    let length = reply.emit(&mut bytes).unwrap_or(0);
    to.put(&bytes[..length]);
}

fn put_outcome(to: &mut ReplyBuffer, xid: u32, outcome: Outcome) {
    put_reply(to, &Reply::accepted(xid, outcome));
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

    /// Decides what to do with a message that has arrived. Puts the answer into `reply`, if there is one.
    fn take(
        self: &Arc<Self>,
        source: Source<'_, ()>,
        message: &[u8],
        serving: &mut Serving,
        reply: &mut ReplyBuffer,
    ) -> Received<AcceptedCall> {
        let (call, arguments_at) = match Call::parse(message) {
            Ok(parsed) => parsed,
            Err(NoCall::Ignore(_)) => return Received::Foreign,
            Err(NoCall::Deny(xid, denial)) => {
                put_reply(reply, &Reply::denied(xid, denial));
                return Received::Answered;
            }
        };
        let is_readable = match call.credential.flavour {
            Flavour::NONE => true,
            Flavour::SYS => AuthSys::parse(call.credential.body).is_ok(),
            // One of these flavours is RPCSEC_GSS. This server has none of its mechanisms.
            _ => false,
        };
        if !is_readable {
            let denial = Denial::Auth(AuthReason::BAD_CREDENTIAL);
            put_reply(reply, &Reply::denied(call.xid, denial));
            return Received::Answered;
        }
        let row = match self.row(&source, &call) {
            Ok(row) => row,
            Err(missing) => {
                serving.counting.refused(None);
                put_outcome(reply, call.xid, outcome_of(missing));
                return Received::Answered;
            }
        };
        if call.procedure == 0 {
            // Procedure 0 of every program does nothing. So its calls may run again, and `replies` need not
            // contain them.
            put_outcome(reply, call.xid, Outcome::Success);
            return Received::Answered;
        }
        let arguments = &message[arguments_at..];
        let mut replies = self.replies();
        let is_stream = self.path == PathKind::OncTcp;
        let peer = if is_stream { Peer::stream(source.from) } else { Peer::datagram(source.from) };
        let verdict = replies.begin(moment(), peer, source.connection, &call, arguments);
        match verdict {
            Verdict::Execute(ticket) => {
                drop(replies);
                Received::Call(AcceptedCall {
                    desk: Arc::clone(self),
                    row,
                    connection: source.connection,
                    xid: call.xid,
                    program: (call.program, call.version),
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
                put_outcome(reply, call.xid, Outcome::SystemError);
                Received::Answered
            }
            Verdict::InProgress | Verdict::Forgotten | Verdict::Full => Received::Nothing,
        }
    }

    /// Returns the row of the caller of a call.
    fn row(&self, source: &Source<'_, ()>, call: &Call<'_>) -> Result<Arc<CallerRow>, Missing> {
        let Call { program, version, credential, .. } = *call;
        let is_sys = credential.flavour == Flavour::SYS;
        // The stamp of a credential with user and groups is a number without meaning. So it does not identify
        // the caller.
        let stamp = if is_sys { 4 } else { 0 };
        let body = credential.body.get(stamp..).unwrap_or_default();
        let flavour = credential.flavour.0;
        let caller = Caller { from: source.from, program, version, flavour, credential: body };
        let claimed = || {
            let sys = AuthSys::parse(credential.body).ok().filter(|_| is_sys)?;
            Some(Claimed {
                machine: String::from_utf8_lossy(sys.machine).into_owned(),
                user: sys.user,
                group: sys.group,
                groups: sys.groups.as_slice().to_vec(),
            })
        };
        let find = |exports: &[_]| exported(exports, System::Onc, program, version);
        row_of(&self.core, self.path, source.callers, &caller, claimed, find)
    }
}

/// Returns the answer to a call whose program, or whose version of the program, no export has.
fn outcome_of(missing: Missing) -> Outcome {
    match missing.0 {
        Some((low, high)) => Outcome::ProgramMismatch(Versions { low, high }),
        None => Outcome::ProgramUnavailable,
    }
}

impl AcceptedCall {
    /// Runs the call, and puts the reply into `reply`. `message` is the message that contains the call. A
    /// reply may have at most `room` bytes. Returns the number of the connection that gets the reply. Returns
    /// `None` if there is no reply.
    fn run(
        mut self,
        message: &[u8],
        room: usize,
        serving: &mut Serving,
        reply: &mut ReplyBuffer,
    ) -> Option<u64> {
        let arguments = message.get(self.arguments_at..).unwrap_or_default();
        let ((program, version), procedure) = (self.program, self.procedure);
        let arrived = ArrivedCall {
            number: self.xid.into(),
            call: ForeignCall { system: System::Onc, program, version, procedure, arguments },
            results_max: room.saturating_sub(SUCCESS_BYTES),
            header_bytes_max: SUCCESS_BYTES,
        };
        let calls = || Arc::clone(&self.desk.calls) as Arc<dyn Calls>;
        match serve(&arrived, &self.row, serving, calls, reply) {
            Served::Answered(_) => {
                let mut header = [0; SUCCESS_BYTES];
                let written = Reply::accepted(self.xid, Outcome::Success).emit(&mut header);
                debug_assert_eq!(written, Some(SUCCESS_BYTES));
                reply.put_header(&header);
            }
            Served::NotExecuted(refusal) => return self.refused(&refusal, reply),
            Served::Failed => put_outcome(reply, self.xid, Outcome::SystemError),
        }
        self.end(reply.message())
    }

    /// Answers a call that was not executed. Returns the number of the connection that gets the answer, as
    /// [`run`](Self::run) does. A retransmission of the call may run.
    fn refused(mut self, refusal: &Refusal, reply: &mut ReplyBuffer) -> Option<u64> {
        if let Some(ticket) = self.ticket.take() {
            self.desk.replies().not_executed(ticket);
        }
        let outcome = match refusal.kind {
            Kind::Denied => {
                put_reply(reply, &Reply::denied(self.xid, Denial::Auth(AuthReason::TOO_WEAK)));
                return Some(self.connection);
            }
            Kind::BadArguments | Kind::TooLarge => Outcome::GarbageArguments,
            Kind::NoSuchProcedure => Outcome::ProcedureUnavailable,
            // A call that was passed on, but did not reach the program, is `Kind::Relayed`.
            Kind::InterfaceMismatch | Kind::Withdrawn | Kind::Relayed => {
                Outcome::ProgramUnavailable
            }
            // ONC RPC has no answer with the meaning "try again later". Over datagrams, the client
            // retransmits the call if it gets no answer.
            Kind::Overloaded | Kind::Exhausted if self.desk.path == PathKind::OncUdp => {
                return None;
            }
            _ => Outcome::SystemError,
        };
        put_outcome(reply, self.xid, outcome);
        Some(self.connection)
    }

    /// Notes that the call has ended with this reply. Returns the number of the connection that gets the
    /// reply.
    fn end(&mut self, reply: &[u8]) -> Option<u64> {
        let ticket = self.ticket.take()?;
        Some(self.desk.replies().end(moment(), ticket, reply))
    }
}

impl StreamService for Desk {
    type Session = ();
    type Input = Assembler;
    type Call = AcceptedCall;

    const IS_ORDERED: bool = false;

    fn input(message_bytes_max: usize) -> Assembler {
        Assembler::new(message_bytes_max.saturating_add(CALL_BYTES_MAX))
    }

    fn take(
        self: &Arc<Self>,
        source: Source<'_, ()>,
        message: &Vec<u8>,
        serving: &mut Serving,
        reply: &mut ReplyBuffer,
    ) -> Received<AcceptedCall> {
        Self::take(self, source, message, serving, reply)
    }

    fn run(
        call: AcceptedCall,
        message: &Vec<u8>,
        serving: &mut Serving,
        reply: &mut ReplyBuffer,
    ) -> service::Reply {
        to(call.run(message, usize::MAX, serving, reply))
    }

    fn refused(call: AcceptedCall, refusal: &Refusal, reply: &mut ReplyBuffer) -> service::Reply {
        to(call.refused(refusal, reply))
    }

    fn send(
        (): &(),
        reply: &mut ReplyBuffer,
        mut send: impl FnMut(&[u8]) -> Option<()>,
    ) -> Option<()> {
        let marker: [u8; FRAMING_BYTES] = marker(reply.message().len())?;
        let framed = reply.framed()?;
        framed.first_chunk_mut().map(|place| *place = marker)?;
        send(framed)
    }
}

/// Returns what the server must do with the reply. `connection` is the number of the connection that gets
/// the reply, if any.
fn to(connection: Option<u64>) -> service::Reply {
    connection.map_or(service::Reply::Nothing, service::Reply::To)
}

impl StreamInput for Assembler {
    type Message = Vec<u8>;
    type Broken = Broken;

    fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, Broken> {
        self.take(bytes)
    }

    fn len(&mut self) -> usize {
        self.message().len()
    }

    fn memory_after(&mut self, more: usize) -> usize {
        memory_after(self.message(), more)
    }
}

/// The connections of a server for ONC RPC over TCP.
pub(crate) type OncConnections = ForeignConnections<Desk>;

/// Returns the TCP part of a server.
///
/// # Errors
/// If the kernel provides no random numbers.
pub(crate) fn onc_connections(
    core: &Arc<ServerCore>,
    terms: ConnectionTerms,
) -> std::io::Result<Arc<OncConnections>> {
    let desk = Desk::new(core, PathKind::OncTcp)?;
    Ok(OncConnections::new(core, desk, terms))
}

impl Drop for AcceptedCall {
    fn drop(&mut self) {
        if self.ticket.is_none() {
            return;
        }
        // The thread has panicked. The call may have run, so it must not run again.
        let mut reply = ReplyBuffer::default();
        put_outcome(&mut reply, self.xid, Outcome::SystemError);
        self.end(reply.message());
    }
}
