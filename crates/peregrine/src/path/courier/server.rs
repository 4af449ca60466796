//! The protocol of Courier at the server's end of connections: what happens to a message between its arrival
//! and its reply.
//!
//! A client does not bind. With the messages of the standard, each call names a program, a version and a
//! procedure. In Cooper's form, the client first names a program, and the server looks for the program once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::call::{Calls, ForeignAnswer, PathKind, Refusal};
use crate::interface::System;
use crate::path::ConnectionTerms;
use crate::path::courier::wire::answers::{
    HEADER_BYTES_MAX, foreign_call, put_answer, put_rejection, rejection_of, rejection_of_missing,
};
use crate::path::foreign::callers::{Caller, CallerRow};
use crate::path::foreign::connections::ForeignConnections;
use crate::path::foreign::exported::{Missing, exported, exported_as};
use crate::path::foreign::service::{Received, Reply, Source, StreamInput, StreamService};
use crate::path::foreign::serving::{
    ArrivedCall, FRAMING_BYTES, NeverGivenUp, ReplyBuffer, Served, row_of, serve,
};
use crate::protocol::courier::arrival::{Arrival, Arrivals, Broken, Form};
use crate::protocol::courier::cooper::{self, Request, STARTED, refusal, reply_header};
use crate::protocol::courier::frames::END_REPLY_FRAME;
use crate::protocol::courier::message::{self, CALL_BYTES, NoCall, Rejection, Versions};
use crate::protocol::courier::stream::Framing;
use crate::protocol::onc::record;
use crate::serving::ServerCore;
use crate::serving::export::Export;
use crate::serving::procedure::Serving;

/// The text with which Cooper's server refuses an unknown program.
const UNKNOWN_PROGRAM: &str = "Unknown Courier program.";

/// What all connections of a server share.
pub(crate) struct Desk {
    core: Arc<ServerCore>,
    /// Reports for each call that it is not cancelled, because a client cannot cancel a call.
    calls: Arc<NeverGivenUp>,
}

/// The state of one connection.
#[derive(Default)]
pub(crate) struct Session {
    /// How the end of each message is marked. Not set in Cooper's form, which has no messages.
    framing: OnceLock<Framing>,
    /// Whether the client has announced that it sends no more data. The server then sends only its answer to
    /// this announcement, without framing.
    has_ended: AtomicBool,
    /// The program that the client has started. Set only in Cooper's form.
    program: OnceLock<Arc<CallerRow>>,
}

/// A call that is to be run.
pub(crate) struct AcceptedCall {
    desk: Arc<Desk>,
    row: Arc<CallerRow>,
    /// The number of the connection at which the call has arrived.
    connection: u64,
    /// In Cooper's form, the transaction number is 0.
    header: message::Call,
    answers: Answers,
}

/// How a call is answered.
#[derive(Clone, Copy)]
enum Answers {
    /// With a message that repeats the transaction number.
    Message,
    /// In Cooper's form, in which a procedure without results has no reply.
    Cooper { has_results: bool },
}

impl Desk {
    /// Decides what to do with a message of the standard.
    fn message(
        self: &Arc<Self>,
        source: &Source<'_, Session>,
        message: &[u8],
        serving: &mut Serving,
        reply: &mut ReplyBuffer,
    ) -> Received<AcceptedCall> {
        let header = match message::Call::parse(message) {
            Ok((header, _)) => header,
            Err(NoCall::Ignore(_)) => return Received::Foreign,
            Err(NoCall::Reject(rejected)) => {
                reply.put(&rejected.to_vec());
                return Received::Last;
            }
        };
        let (program, version) = (header.program, header.version.into());
        let find = |exports: &[_]| exported(exports, System::Courier, program, version);
        match self.row(source, (program, version), find) {
            Ok(row) => Received::Call(AcceptedCall {
                desk: Arc::clone(self),
                row,
                connection: source.connection,
                header,
                answers: Answers::Message,
            }),
            Err(missing) => {
                serving.counting.refused(None);
                put_rejection(reply, header.transaction, rejection_of_missing(missing));
                Received::Answered
            }
        }
    }

    /// Starts the program with this name, for a client that uses Cooper's form.
    fn activate(
        &self,
        source: &Source<'_, Session>,
        name: &str,
        serving: &mut Serving,
        reply: &mut ReplyBuffer,
    ) -> Received<AcceptedCall> {
        let found = exported_as(&self.core.exports.lock(), System::Courier, name);
        let started = found
            .and_then(|(export, program)| self.row(source, program, |_: &[_]| Ok(export)).ok());
        match started {
            Some(row) => {
                // A connection has only one activation. So no program was set before.
                let _ = source.session.program.set(row);
                reply.put(&STARTED);
                Received::Greeted
            }
            None => {
                serving.counting.refused(None);
                reply.put(&refusal(UNKNOWN_PROGRAM));
                Received::Last
            }
        }
    }

    /// Decides what to do with a call in Cooper's form.
    fn cooper(
        self: &Arc<Self>,
        source: &Source<'_, Session>,
        procedure: u16,
    ) -> Received<AcceptedCall> {
        let Some(row) = source.session.program.get() else { return Received::Foreign };
        let interface = row.serve.interface();
        let called = interface.program(System::Courier).and_then(|program| {
            let (number, version) = (program.number, u16::try_from(program.version).ok()?);
            let header = message::Call { transaction: 0, program: number, version, procedure };
            Some((header, program.index_of(procedure.into())?))
        });
        let Some((header, index)) = called else {
            // Cooper's server ignores calls of procedures that it does not have.
            return Received::Nothing;
        };
        let has_results = interface.has_results(index as usize);
        Received::Call(AcceptedCall {
            desk: Arc::clone(self),
            row: Arc::clone(row),
            connection: source.connection,
            header,
            answers: Answers::Cooper { has_results },
        })
    }

    fn row(
        &self,
        source: &Source<'_, Session>,
        (program, version): (u32, u32),
        find: impl FnOnce(&[Arc<Export>]) -> Result<Arc<Export>, Missing>,
    ) -> Result<Arc<CallerRow>, Missing> {
        let caller = Caller { from: source.from, program, version, flavour: 0, credential: &[] };
        row_of(&self.core, PathKind::CourierTcp, source.callers, &caller, || None, find)
    }
}

impl StreamService for Desk {
    type Session = Session;
    type Input = Arrivals;
    type Call = AcceptedCall;

    /// Replies arrive in the order of the calls: clients may use one transaction number for all calls.
    const IS_ORDERED: bool = true;

    fn input(message_bytes_max: usize) -> Arrivals {
        Arrivals::new(message_bytes_max.saturating_add(CALL_BYTES))
    }

    fn take(
        self: &Arc<Self>,
        source: Source<'_, Session>,
        arrival: &Arrival,
        serving: &mut Serving,
        reply: &mut ReplyBuffer,
    ) -> Received<AcceptedCall> {
        match arrival {
            Arrival::Begins(Form::Cooper) => {
                // The name of the program follows. The server answers the name, so it sends nothing yet.
                reply.put(&[]);
                Received::Greeted
            }
            Arrival::Begins(Form::Messages(framing)) => {
                let _ = source.session.framing.set(*framing);
                reply.put(&Versions::OURS.to_bytes());
                Received::Greeted
            }
            Arrival::Message(message) => self.message(&source, message, serving, reply),
            Arrival::End => {
                source.session.has_ended.store(true, Ordering::Relaxed);
                reply.put(&END_REPLY_FRAME);
                Received::Last
            }
            Arrival::Cooper(Request::Activate(name)) => {
                self.activate(&source, name, serving, reply)
            }
            Arrival::Cooper(Request::Call { procedure, .. }) => self.cooper(&source, *procedure),
        }
    }

    fn run(
        call: AcceptedCall,
        arrival: &Arrival,
        serving: &mut Serving,
        reply: &mut ReplyBuffer,
    ) -> Reply {
        let (arguments, results_max) = match (call.answers, arrival) {
            (Answers::Message, Arrival::Message(message)) => {
                (message.get(CALL_BYTES..).unwrap_or_default(), usize::MAX)
            }
            (_, Arrival::Cooper(Request::Call { arguments, .. })) => {
                (&arguments[..], cooper::BYTES_MAX)
            }
            _ => return Reply::Close,
        };
        let arrived = ArrivedCall {
            number: call.header.transaction.into(),
            call: foreign_call(&call.header, arguments),
            results_max,
            header_bytes_max: HEADER_BYTES_MAX,
        };
        let calls = || Arc::clone(&call.desk.calls) as Arc<dyn Calls>;
        match serve(&arrived, &call.row, serving, calls, reply) {
            Served::Answered(answer) => call.answered(answer, reply),
            Served::NotExecuted(refusal) => call.refused(&refusal, reply),
            Served::Failed => call.failed(Rejection::UNSPECIFIED, reply),
        }
    }

    fn refused(call: AcceptedCall, refusal: &Refusal, reply: &mut ReplyBuffer) -> Reply {
        call.refused(refusal, reply)
    }

    fn send(
        session: &Session,
        reply: &mut ReplyBuffer,
        mut send: impl FnMut(&[u8]) -> Option<()>,
    ) -> Option<()> {
        let framing = match session.framing.get() {
            Some(framing) if !session.has_ended.load(Ordering::Relaxed) => *framing,
            _ => return send(reply.message()),
        };
        let bytes = reply.message().len();
        let framed = reply.framed()?;
        for index in 0.. {
            let Some((before, range)) = framing.piece(bytes, index) else {
                return (index > 0).then_some(());
            };
            // The bytes before the first piece are free. The bytes before a later piece overwrite the end of
            // the previous piece, which was already sent.
            let before: [u8; FRAMING_BYTES] = before;
            let piece = &mut framed[range.start..range.end + FRAMING_BYTES];
            *piece.first_chunk_mut()? = before;
            send(piece)?;
        }
        Some(())
    }
}

impl AcceptedCall {
    /// Writes the header of a reply before its results.
    fn answered(&self, answer: ForeignAnswer, reply: &mut ReplyBuffer) -> Reply {
        match (self.answers, answer) {
            (Answers::Message, answer) => put_answer(reply, self.header.transaction, answer),
            (Answers::Cooper { has_results: false }, _) => return Reply::Nothing,
            (Answers::Cooper { .. }, ForeignAnswer::Returned) => {
                let Some(header) = reply_header(reply.message().len()) else { return Reply::Close };
                reply.put_header(&header);
            }
            // Cooper's form has no errors.
            (Answers::Cooper { .. }, ForeignAnswer::Reported(_)) => return Reply::Close,
        }
        Reply::To(self.connection)
    }

    /// Answers a call that was not executed.
    fn refused(&self, refusal: &Refusal, reply: &mut ReplyBuffer) -> Reply {
        self.failed(rejection_of(refusal).unwrap_or(Rejection::UNSPECIFIED), reply)
    }

    fn failed(&self, rejection: Rejection, reply: &mut ReplyBuffer) -> Reply {
        match self.answers {
            Answers::Message => {
                put_rejection(reply, self.header.transaction, rejection);
                Reply::To(self.connection)
            }
            Answers::Cooper { has_results: true } => Reply::Close,
            Answers::Cooper { has_results: false } => Reply::Nothing,
        }
    }
}

impl StreamInput for Arrivals {
    type Message = Arrival;
    type Broken = Broken;

    fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Arrival>, Broken> {
        self.take(bytes)
    }

    fn len(&mut self) -> usize {
        self.message().len()
    }

    fn memory_after(&mut self, more: usize) -> usize {
        record::memory_after(self.message(), more)
    }
}

/// The connections of a server for Courier over TCP.
pub(crate) type CourierConnections = ForeignConnections<Desk>;

/// Returns the TCP part of a server.
pub(crate) fn courier_connections(
    core: &Arc<ServerCore>,
    terms: ConnectionTerms,
) -> Arc<CourierConnections> {
    let desk = Desk { core: Arc::clone(core), calls: Arc::new(NeverGivenUp) };
    CourierConnections::new(core, Arc::new(desk), terms)
}
