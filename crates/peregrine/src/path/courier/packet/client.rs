//! The protocol of packet Courier at the client's end of a socket
//! ([`Link`](crate::path::foreign::client::Link)).

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use crate::error::CallError;
use crate::path::courier::wire::errors::{self, answer_of};
use crate::path::courier::wire::payload::{HEADER_BYTES, payload_header};
use crate::path::courier::wire::program::is_well;
use crate::path::foreign::client::{
    Arrived, Dialect, ForeignPath, Link, LinkEnd, Message, Number, Piece, Results, Step, full,
};
use crate::path::foreign::{moment, nanoseconds};
use crate::protocol::courier::failure::Failure;
use crate::protocol::courier::message::Call;
use crate::protocol::courier::packet::{
    PARTS_PROGRAM, PARTS_VERSION, PAYLOAD_MAX, PIECE, WHOLE_PAYLOAD_MAX,
};
use crate::protocol::courier::packet_client::{self as packets, Association, Form, PacketCall};
use crate::protocol::exchange::time::Moment;
use crate::protocol::onc::xids::Waiters;
use crate::protocol::retransmission::CALL_TIME;
use crate::value::Window;

/// A socket to one server of packet Courier.
pub(super) type PacketLink = Link<Packets>;
/// The path of one binding.
pub(super) type PacketPath = ForeignPath<Packets>;

/// The procedure number that marks the client's question whether the server supports calls in parts. The
/// procedures of programs have smaller numbers.
pub(super) const ASK_FOR_PARTS: u32 = u32::MAX;

/// The protocol of one binding, and the program that it calls.
pub(super) struct Packets {
    program: u32,
    version: u16,
    /// The number of a procedure that the program does not have.
    ping: Option<u16>,
    /// Whether the server supports calls in parts. The client learns this when it binds.
    knows_parts: AtomicBool,
}

/// The calls in flight, and what the client has learnt about the server.
pub(super) struct Calls {
    waiters: Waiters<Waiter>,
    server: Association,
    /// The payload buffers of calls that have ended. Later calls use them again.
    spare: Vec<Vec<u8>>,
}

struct Waiter {
    frame: u32,
    asks_for_parts: bool,
}

impl Calls {
    /// Returns an empty set of calls for `count` frames. `start` and `conversation` are random numbers.
    pub(super) fn new([start, conversation]: [u32; 2], count: u32) -> Self {
        let waiters = Waiters::new(start, count as usize);
        Self { waiters, server: Association::new(conversation), spare: Vec::new() }
    }
}

impl Packets {
    pub(super) const fn new(program: u32, version: u16, ping: Option<u16>) -> Self {
        Self { program, version, ping, knows_parts: AtomicBool::new(false) }
    }

    /// Returns whether calls are sent in parts.
    pub(super) fn knows_parts(&self) -> bool {
        self.knows_parts.load(Ordering::Relaxed)
    }

    fn header(&self, id: u32, procedure: u32) -> Call {
        let transaction = id as u16;
        let Self { program, version, .. } = *self;
        match u16::try_from(procedure) {
            Ok(procedure) => Call { transaction, program, version, procedure },
            Err(_) => {
                let (program, version) = (PARTS_PROGRAM, PARTS_VERSION);
                Call { transaction, program, version, procedure: 0 }
            }
        }
    }
}

impl Dialect for Packets {
    type Failure = Failure;
    type Calls = Calls;
    type Exchange = PacketCall;
    /// Without a connection, nothing is assembled from a stream.
    type Assembler = ();

    const TIMED_OUT: Failure = Failure::TimedOut;
    const DISCONNECTED: Failure = Failure::Disconnected;

    fn ping(&self) -> Option<u32> {
        self.ping.map(u32::from)
    }

    fn is_well(failure: Failure) -> bool {
        is_well(failure)
    }

    fn add(&self, calls: &mut Calls, frame: u32, procedure: u32) -> Result<Number, CallError> {
        let waiter = Waiter { frame, asks_for_parts: procedure == ASK_FOR_PARTS };
        calls.waiters.add(moment(), waiter).map(Number::Of).map_err(full)
    }

    fn forget(calls: &mut Calls, number: Number) {
        if let Number::Of(id) = number {
            calls.waiters.remove(id);
        }
    }

    fn take_back(calls: &mut Calls, number: Number) {
        Self::forget(calls, number);
    }

    fn drain(calls: &mut Calls) -> Vec<(u32, u32)> {
        calls.waiters.drain().map(|(id, waiter)| (id, waiter.frame)).collect()
    }

    fn datagram_arguments_max(&self) -> usize {
        let payload_max = if self.knows_parts() { PAYLOAD_MAX } else { WHOLE_PAYLOAD_MAX };
        payload_max - HEADER_BYTES
    }

    fn arguments_max(&self) -> usize {
        self.datagram_arguments_max()
    }

    /// Returns `None`: a call may need several datagrams.
    fn datagram(&self, _: &Message) -> Option<Piece<'_>> {
        None
    }

    fn piece(&self, _: &Message, _: bool, _: usize) -> Option<Piece<'_>> {
        None
    }

    fn begin(
        &self,
        calls: &mut Calls,
        message: &Message,
        arguments: Window<'_>,
        left: Option<Duration>,
        mut send: &mut dyn FnMut([&[u8]; 2]),
    ) -> Result<PacketCall, CallError> {
        let id = message.number.of_reply();
        let mut payload = calls.spare.pop().unwrap_or_default();
        payload.clear();
        payload.extend(payload_header(&self.header(id, message.procedure)));
        payload.resize(HEADER_BYTES + arguments.len(), 0);
        let written = arguments.read(0, &mut payload[HEADER_BYTES..]);
        debug_assert!(written.is_some(), "the payload has room");
        // A server that supports parts answers the client while a procedure runs. So the client need not give
        // up after a fixed time.
        let (form, time) = match self.knows_parts() {
            true => (Form::Parts(PIECE), u64::MAX),
            false => (Form::Whole, CALL_TIME),
        };
        let time = left.map_or(time, nanoseconds);
        let bytes = payload.len();
        PacketCall::begin(id, payload, form, moment(), time, &calls.server, &mut send).map_err(
            |_| CallError::too_large(bytes, self.datagram_arguments_max() + HEADER_BYTES, None),
        )
    }

    fn step(
        &self,
        calls: &mut Calls,
        call: &mut PacketCall,
        mut send: &mut dyn FnMut([&[u8]; 2]),
    ) -> Step<Failure> {
        match call.step(moment(), &calls.server, &mut send) {
            packets::Step::Wait(_) => Step::Wait,
            packets::Step::GiveUp(failure) => Step::GiveUp(failure),
        }
    }

    fn due(call: &PacketCall) -> Moment {
        call.due()
    }

    fn transmissions(call: &PacketCall) -> u32 {
        call.transmissions()
    }

    fn is_unanswered(call: &PacketCall) -> bool {
        call.is_unanswered()
    }

    fn assembler(&self, _: usize) {}

    fn is_between_messages(&self, (): &()) -> bool {
        true
    }

    fn take(&self, (): &mut (), _: &mut &[u8]) -> Result<Option<Arrived>, LinkEnd<Failure>> {
        Ok(None)
    }

    fn reuse((): &mut (), _: Vec<u8>) {}

    fn find(
        &self,
        calls: &mut Calls,
        message: &[u8],
    ) -> Result<Option<(u32, u32)>, LinkEnd<Failure>> {
        let Some(id) = message.first_chunk().map(|id| u32::from_be_bytes(*id)) else {
            return Ok(None);
        };
        Ok(calls.waiters.find(id).map(|waiter| (id, waiter.frame)))
    }

    fn receive<'m>(
        &self,
        calls: &mut Calls,
        id: u32,
        call: Option<&mut PacketCall>,
        message: &'m [u8],
        mut send: &mut dyn FnMut([&[u8]; 2]),
    ) -> Option<Result<Results<'m>, Failure>> {
        let call = call?;
        let ended = call.receive(moment(), message, &mut calls.server, &mut send)?;
        calls.spare.push(call.take_payload());
        let asked = calls.waiters.remove(id).is_some_and(|waiter| waiter.asks_for_parts);
        let results = ended.and_then(answer_of);
        if asked && results.is_ok() {
            self.knows_parts.store(true, Ordering::Relaxed);
        }
        Some(results)
    }

    fn error_of(&self, failure: Failure, transmissions: u32, reason: Option<&str>) -> CallError {
        errors::error_of(failure, transmissions, reason)
    }
}
