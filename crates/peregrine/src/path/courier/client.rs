//! The protocol of Courier at the client's end of a connection ([`Link`]).

use core::convert::Infallible;
use core::time::Duration;
use std::borrow::Cow;

use crate::call::Answer;
use crate::error::CallError;
use crate::limits;
use crate::path::courier::wire::errors::{answer_of, error_of};
use crate::path::courier::wire::program::is_well;
use crate::path::foreign::client::{
    Arrived, Dialect, ForeignPath, Link, LinkEnd, Message, Number, Piece, Results, Step, full,
};
use crate::protocol::courier::arrival::Form;
use crate::protocol::courier::cooper::{self, ClientInput, Response, call_header};
use crate::protocol::courier::failure::Failure;
use crate::protocol::courier::frames::END_REPLY_FRAME;
use crate::protocol::courier::message::{
    CALL_BYTES, Call, REPLY_BYTES_MAX, Reply, VERSIONS_BYTES, Versions,
};
use crate::protocol::courier::outstanding::{Full, Outstanding};
use crate::protocol::courier::stream::{Broken, Event, Framing, Input};
use crate::protocol::courier::words::Unreadable;
use crate::protocol::exchange::time::Moment;
use crate::protocol::onc::record::{FRAGMENT_BYTES_MAX, reuse};
use crate::protocol::onc::xids::Refused;
use crate::value::Window;

/// A connection to one server of Courier.
pub(super) type CourierLink = Link<Courier>;
/// The path of one binding.
pub(super) type CourierPath = ForeignPath<Courier>;

/// The form of the calls of one binding, and the program that they call.
pub(super) enum Courier {
    Messages {
        framing: Framing,
        program: u32,
        version: u16,
        /// The number of a procedure that the program does not have.
        ping: Option<u16>,
    },
    Cooper {
        /// The numbers of the procedures without results. Calls of these procedures have no reply.
        silent: Vec<u32>,
    },
}

/// The calls whose replies have not arrived yet, the oldest first. Each entry is the number of the call's
/// frame, or `None` if the caller has given up the call.
pub(super) struct Calls(Outstanding<Option<u32>>);

impl Calls {
    pub(super) const fn new() -> Self {
        Self(Outstanding::new())
    }
}

/// Assembles messages from the bytes of a connection.
pub(super) enum Assembler {
    Messages(Input),
    Cooper(ClientInput),
}

impl Courier {
    /// Returns the protocol of a binding that sends messages of the standard.
    pub(super) const fn new(
        framing: Framing,
        program: u32,
        version: u16,
        ping: Option<u16>,
    ) -> Self {
        Self::Messages { framing, program, version, ping }
    }

    /// Returns the protocol of a binding in Cooper's form. The procedures in `silent` have no results.
    pub(super) const fn cooper(silent: Vec<u32>) -> Self {
        Self::Cooper { silent }
    }

    pub(super) const fn form(&self) -> Form {
        match self {
            Self::Messages { framing, .. } => Form::Messages(*framing),
            Self::Cooper { .. } => Form::Cooper,
        }
    }

    /// Returns the error with which a link ends because the client cannot read a reply.
    fn unreadable(why: Unreadable, reason: String) -> LinkEnd<Failure> {
        LinkEnd { failure: Failure::BadReply(why), reason }
    }

    fn unexpected() -> LinkEnd<Failure> {
        let reason = "a reply arrived that does not belong to the oldest call".to_owned();
        Self::unreadable(Unreadable::Invalid, reason)
    }
}

impl Dialect for Courier {
    type Failure = Failure;
    type Calls = Calls;
    type Exchange = Infallible;
    type Assembler = Assembler;

    const TIMED_OUT: Failure = Failure::TimedOut;
    const DISCONNECTED: Failure = Failure::Disconnected;

    /// The standard defines no procedure that every program has. So a ping calls a procedure that the
    /// program does not have, and its rejection shows that the server has the program. In Cooper's form
    /// there is no ping, because the server would not answer such a call.
    fn ping(&self) -> Option<u32> {
        match self {
            Self::Messages { ping, .. } => ping.map(u32::from),
            Self::Cooper { .. } => None,
        }
    }

    /// Returns whether the failure of a ping shows that the server has the program.
    fn is_well(failure: Failure) -> bool {
        is_well(failure)
    }

    fn add(
        &self,
        Calls(calls): &mut Calls,
        frame: u32,
        procedure: u32,
    ) -> Result<Number, CallError> {
        if let Self::Cooper { silent } = self
            && silent.contains(&procedure)
        {
            return Ok(Number::NoReply);
        }
        let added = calls.add(Some(frame)).map_err(|Full| full(Refused::Full))?;
        Ok(Number::Of(added.into()))
    }

    fn forget(Calls(calls): &mut Calls, number: Number) {
        // The reply still arrives, in the order of the calls. So the call stays in the list.
        if let Number::Of(transaction) = number
            && let Some(frame) = calls.find(transaction as u16)
        {
            *frame = None;
        }
    }

    fn take_back(Calls(calls): &mut Calls, number: Number) {
        if let Number::Of(transaction) = number {
            calls.take_back(transaction as u16);
        }
    }

    fn drain(Calls(calls): &mut Calls) -> Vec<(u32, u32)> {
        let waiting = |(transaction, frame): (u16, Option<u32>)| Some((transaction.into(), frame?));
        calls.drain().filter_map(waiting).collect()
    }

    fn datagram_arguments_max(&self) -> usize {
        0
    }

    fn arguments_max(&self) -> usize {
        match self {
            Self::Messages { .. } => FRAGMENT_BYTES_MAX - VERSIONS_BYTES - CALL_BYTES,
            Self::Cooper { .. } => cooper::BYTES_MAX,
        }
    }

    fn datagram(&self, message: &Message) -> Option<Piece<'_>> {
        unreachable!("a connection has no datagrams: {message:?}")
    }

    fn piece(&self, message: &Message, is_first: bool, index: usize) -> Option<Piece<'_>> {
        let &Message { number, procedure, bytes, .. } = message;
        let procedure = u16::try_from(procedure).ok()?;
        let &Self::Messages { framing, program, version, .. } = self else {
            return Some(Piece::new(0..bytes, true).with(call_header(procedure, bytes)?));
        };
        let versions = if is_first { VERSIONS_BYTES } else { 0 };
        let header = versions + CALL_BYTES;
        let all = bytes.checked_add(header)?;
        let (before, range) = framing.piece(all, index)?;
        let is_last = range.end == all;
        let Number::Of(transaction) = number else { return None };
        // The subtraction does not overflow: even the first piece is longer than the header.
        let arguments = range.start.saturating_sub(header)..range.end - header;
        let piece = Piece::new(arguments, is_last).with(before);
        if index > 0 {
            return Some(piece);
        }
        let mut numbers = [0; CALL_BYTES];
        let call = Call { transaction: transaction as u16, program, version, procedure };
        call.emit(&mut numbers)?;
        let piece = if is_first { piece.with(Versions::OURS.to_bytes()) } else { piece };
        Some(piece.with(numbers))
    }

    fn begin(
        &self,
        _: &mut Calls,
        message: &Message,
        _: Window<'_>,
        _: Option<Duration>,
        _: &mut dyn FnMut([&[u8]; 2]),
    ) -> Result<Infallible, CallError> {
        unreachable!("a connection has no datagrams: {message:?}")
    }

    fn step(
        &self,
        _: &mut Calls,
        exchange: &mut Infallible,
        _: &mut dyn FnMut([&[u8]; 2]),
    ) -> Step<Failure> {
        match *exchange {}
    }

    fn due(exchange: &Infallible) -> Moment {
        match *exchange {}
    }

    fn transmissions(exchange: &Infallible) -> u32 {
        match *exchange {}
    }

    fn is_unanswered(exchange: &Infallible) -> bool {
        match *exchange {}
    }

    fn assembler(&self, results_max: usize) -> Assembler {
        match self {
            Self::Messages { framing, .. } => {
                Assembler::Messages(Input::new(*framing, results_max + REPLY_BYTES_MAX))
            }
            Self::Cooper { .. } => Assembler::Cooper(ClientInput::started()),
        }
    }

    fn is_between_messages(&self, assembler: &Assembler) -> bool {
        match assembler {
            Assembler::Messages(input) => input.end().is_ok(),
            Assembler::Cooper(input) => input.end().is_ok(),
        }
    }

    fn take(
        &self,
        assembler: &mut Assembler,
        bytes: &mut &[u8],
    ) -> Result<Option<Arrived>, LinkEnd<Failure>> {
        match assembler {
            Assembler::Messages(input) => loop {
                return match input.take(bytes) {
                    Ok(None) => Ok(None),
                    Ok(Some(Event::Message(message))) => Ok(Some(Arrived::Message(message))),
                    Ok(Some(Event::End)) => Ok(Some(Arrived::End(&END_REPLY_FRAME))),
                    // `EndReply` answers the announcement that a side sends no more data. This side never
                    // announces this.
                    Ok(Some(Event::EndReply)) => continue,
                    Err(broken @ Broken::NoCommonVersion(theirs)) => {
                        let failure = Failure::OtherCourier(theirs);
                        Err(LinkEnd { failure, reason: broken.to_string() })
                    }
                    Err(broken) => Err(Self::disconnected(broken.to_string())),
                };
            },
            Assembler::Cooper(input) => match input.take(bytes) {
                Ok(None) => Ok(None),
                Ok(Some(Response::Results(results))) => Ok(Some(Arrived::Message(results))),
                Ok(Some(Response::Started | Response::Refused(_))) => Err(Self::unexpected()),
                Err(broken) => Err(Self::disconnected(broken.to_string())),
            },
        }
    }

    fn reuse(assembler: &mut Assembler, message: Vec<u8>) {
        if let Assembler::Messages(input) = assembler {
            reuse(input.message(), message, limits::ESTACK_BYTES_KEPT);
        }
    }

    fn find(
        &self,
        Calls(calls): &mut Calls,
        message: &[u8],
    ) -> Result<Option<(u32, u32)>, LinkEnd<Failure>> {
        let transaction = match self {
            Self::Messages { .. } => {
                let (reply, _) = Reply::parse(message)
                    .map_err(|why| Self::unreadable(why, Failure::BadReply(why).to_string()))?;
                reply.transaction
            }
            Self::Cooper { .. } => calls.oldest().ok_or_else(Self::unexpected)?,
        };
        let frame = calls.answered(transaction).map_err(|_| Self::unexpected())?;
        Ok(frame.map(|frame| (transaction.into(), frame)))
    }

    fn receive<'m>(
        &self,
        _: &mut Calls,
        _: u32,
        _: Option<&mut Infallible>,
        message: &'m [u8],
        _: &mut dyn FnMut([&[u8]; 2]),
    ) -> Option<Result<Results<'m>, Failure>> {
        let message = Cow::Borrowed(message);
        Some(match self {
            Self::Messages { .. } => answer_of(message),
            Self::Cooper { .. } => Ok(Results { answer: Answer::Ok, bytes: message }),
        })
    }

    fn error_of(&self, failure: Failure, transmissions: u32, reason: Option<&str>) -> CallError {
        error_of(failure, transmissions, reason)
    }
}
