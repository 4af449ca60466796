//! The protocol of ONC RPC at the client's end of a socket ([`Link`](crate::path::foreign::client::Link)).

mod header;

use core::time::Duration;
use std::borrow::Cow;

pub(super) use self::header::Header;
use crate::call::Answer;
use crate::device::BYTES_MAX;
use crate::error::{CallError, Kind};
use crate::limits;
use crate::path::foreign::client::{
    Arrived, Dialect, ForeignPath, Link, LinkEnd, Message, Number, Piece, Results, Step, full,
};
use crate::path::foreign::{moment, nanoseconds};
use crate::protocol::exchange::time::Moment;
use crate::protocol::onc::client::{self, CALL_TIME, DatagramCall, Pace};
use crate::protocol::onc::failure::Failure;
use crate::protocol::onc::message::{REPLY_BYTES_MAX, Reply, replied_to};
use crate::protocol::onc::record::{Assembler, FRAGMENT_BYTES_MAX};
use crate::protocol::onc::xids::Waiters;
use crate::value::Window;

/// A socket to one server of ONC RPC.
pub(super) type OncLink = Link<Onc>;
/// The path of one binding.
pub(super) type OncPath = ForeignPath<Onc>;

/// The protocol of one binding, with the header of its calls.
pub(super) struct Onc(Header);

/// The numbers of the calls in flight, each with its frame, and what was measured about the server.
pub(super) struct Calls {
    waiters: Waiters<u32>,
    pace: Pace,
}

impl Calls {
    /// Returns an empty set of calls for `count` frames. `start` is the number of the first call.
    pub(super) fn new(start: u32, count: u32) -> Self {
        Self { waiters: Waiters::new(start, count as usize), pace: Pace::default() }
    }
}

impl Onc {
    pub(super) const fn new(header: Header) -> Self {
        Self(header)
    }
}

impl Dialect for Onc {
    type Failure = Failure;
    type Calls = Calls;
    type Exchange = DatagramCall;
    type Assembler = Assembler;

    const TIMED_OUT: Failure = Failure::TimedOut;
    const DISCONNECTED: Failure = Failure::Disconnected;

    /// Procedure 0 of every program does nothing.
    fn ping(&self) -> Option<u32> {
        Some(0)
    }

    fn is_well(_: Failure) -> bool {
        false
    }

    fn add(&self, calls: &mut Calls, frame: u32, _: u32) -> Result<Number, CallError> {
        calls.waiters.add(moment(), frame).map(Number::Of).map_err(full)
    }

    fn forget(calls: &mut Calls, number: Number) {
        if let Number::Of(xid) = number {
            calls.waiters.remove(xid);
        }
    }

    fn take_back(calls: &mut Calls, number: Number) {
        Self::forget(calls, number);
    }

    fn drain(calls: &mut Calls) -> Vec<(u32, u32)> {
        calls.waiters.drain().collect()
    }

    fn datagram_arguments_max(&self) -> usize {
        BYTES_MAX - self.0.len()
    }

    fn arguments_max(&self) -> usize {
        FRAGMENT_BYTES_MAX - self.0.len()
    }

    fn datagram(&self, message: &Message) -> Option<Piece<'_>> {
        let numbers = self.0.datagram(message.number.of_reply(), message.procedure);
        Some(Piece::new(0..message.bytes, true).with(numbers).with_fixed(self.0.auth()))
    }

    fn piece(&self, message: &Message, _: bool, _: usize) -> Option<Piece<'_>> {
        let start = self.0.record(message.number.of_reply(), message.procedure, message.bytes)?;
        Some(Piece::new(0..message.bytes, true).with(start).with_fixed(self.0.auth()))
    }

    fn begin(
        &self,
        calls: &mut Calls,
        message: &Message,
        _: Window<'_>,
        left: Option<Duration>,
        _: &mut dyn FnMut([&[u8]; 2]),
    ) -> Result<DatagramCall, CallError> {
        let time = left.map_or(CALL_TIME, nanoseconds);
        Ok(DatagramCall::begin(message.number.of_reply(), moment(), time, &calls.pace))
    }

    fn step(
        &self,
        _: &mut Calls,
        call: &mut DatagramCall,
        _: &mut dyn FnMut([&[u8]; 2]),
    ) -> Step<Failure> {
        match call.step(moment()) {
            client::Step::Wait(_) => Step::Wait,
            client::Step::Retransmit => Step::Retransmit,
            client::Step::GiveUp(failure) => Step::GiveUp(failure),
        }
    }

    fn due(call: &DatagramCall) -> Moment {
        call.due()
    }

    fn transmissions(call: &DatagramCall) -> u32 {
        call.transmissions()
    }

    fn is_unanswered(_: &DatagramCall) -> bool {
        true
    }

    fn assembler(&self, results_max: usize) -> Assembler {
        Assembler::new(results_max + REPLY_BYTES_MAX)
    }

    fn is_between_messages(&self, assembler: &Assembler) -> bool {
        assembler.is_between_records()
    }

    fn take(
        &self,
        assembler: &mut Assembler,
        bytes: &mut &[u8],
    ) -> Result<Option<Arrived>, LinkEnd<Failure>> {
        let taken = assembler.take(bytes);
        let taken = taken.map_err(|broken| Self::disconnected(broken.to_string()))?;
        Ok(taken.map(Arrived::Message))
    }

    fn reuse(assembler: &mut Assembler, message: Vec<u8>) {
        assembler.reuse(message, limits::ESTACK_BYTES_KEPT);
    }

    fn find(
        &self,
        calls: &mut Calls,
        message: &[u8],
    ) -> Result<Option<(u32, u32)>, LinkEnd<Failure>> {
        let Some(xid) = replied_to(message) else { return Ok(None) };
        Ok(calls.waiters.find(xid).map(|frame| (xid, *frame)))
    }

    fn receive<'m>(
        &self,
        calls: &mut Calls,
        xid: u32,
        call: Option<&mut DatagramCall>,
        message: &'m [u8],
        _: &mut dyn FnMut([&[u8]; 2]),
    ) -> Option<Result<Results<'m>, Failure>> {
        let reply = match call {
            Some(call) => Ok(call.receive(moment(), message, &mut calls.pace)?),
            // On a stream, no other reply to this call follows. So even a reply that cannot be read ends
            // the call.
            None => Reply::parse(message).map_err(Failure::BadReply),
        };
        calls.waiters.remove(xid);
        Some(reply.and_then(|(reply, at)| match Failure::of(&reply.answer) {
            Some(failure) => Err(failure),
            None => Ok(Results { answer: Answer::Ok, bytes: Cow::Borrowed(&message[at..]) }),
        }))
    }

    #[cold]
    fn error_of(&self, failure: Failure, transmissions: u32, reason: Option<&str>) -> CallError {
        let kind = match failure {
            Failure::ProgramUnavailable => Kind::Withdrawn,
            Failure::ProgramMismatch(_) => Kind::InterfaceMismatch,
            Failure::ProcedureUnavailable => Kind::NoSuchProcedure,
            Failure::GarbageArguments => Kind::BadArguments,
            Failure::SystemError => Kind::Relayed,
            Failure::RpcMismatch(_) => Kind::ProtocolMismatch,
            Failure::Auth(_) => Kind::Denied,
            Failure::BadReply(_) => Kind::BadResult,
            Failure::TimedOut => Kind::TimedOut,
            Failure::Disconnected => Kind::ServerGone,
        };
        let text = match (failure, reason) {
            (Failure::Disconnected, Some(reason)) => reason.to_owned(),
            _ => failure.to_string(),
        };
        CallError::new(kind, failure.executed(transmissions).into(), text)
    }
}
