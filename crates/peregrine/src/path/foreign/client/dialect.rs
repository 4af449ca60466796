//! [`Dialect`]: the protocol of another RPC system, as the client's end of a socket uses it. The link is
//! compiled once for each protocol, so that it calls these functions directly.

use core::fmt::Debug;
use core::ops::Range;
use core::time::Duration;
use std::borrow::Cow;

use crate::call::Answer;
use crate::error::CallError;
use crate::protocol::exchange::time::Moment;
use crate::value::Window;

/// The largest number of bytes at the start of a [`Piece`] that differ between calls.
const NUMBERS_BYTES_MAX: usize = 32;

/// The protocol of another RPC system.
pub(in crate::path) trait Dialect: Sized + Send + Sync + 'static {
    /// Why a call failed.
    type Failure: Copy + Debug + Send + Sync;
    /// The numbers of the calls in flight, each with its frame, and what was measured about the server.
    type Calls: Send;
    /// The state of a call over datagrams: its timers, and what has arrived of its reply.
    type Exchange: Send;
    /// Assembles messages from the bytes of a connection.
    type Assembler: Send;

    /// No reply arrived in time.
    const TIMED_OUT: Self::Failure;
    /// The connection ended before the reply arrived.
    const DISCONNECTED: Self::Failure;

    /// Returns the [`Ended`] value of a link whose connection has ended for this reason.
    fn disconnected(reason: String) -> Ended<Self::Failure> {
        Ended { failure: Self::DISCONNECTED, reason }
    }

    // Calls.

    /// Returns the number of the procedure by which the library asks whether the server answers. Returns
    /// `None` if the protocol has no such call.
    fn ping(&self) -> Option<u32>;

    /// Returns whether a ping that fails in this way shows that the server answers and has the program.
    fn is_well(failure: Self::Failure) -> bool;

    /// Adds a call, and returns its number.
    ///
    /// # Errors
    /// If there are too many calls.
    fn add(&self, calls: &mut Self::Calls, frame: u32, procedure: u32)
    -> Result<Number, CallError>;

    /// Forgets a call, of which some part may have been sent. A reply may still arrive.
    fn forget(calls: &mut Self::Calls, number: Number);

    /// Forgets a call of which no part was sent. Later calls may have been added since.
    fn take_back(calls: &mut Self::Calls, number: Number);

    /// Removes all calls. For each call whose caller still waits for the reply, returns its number and frame.
    fn drain(calls: &mut Self::Calls) -> Vec<(u32, u32)>;

    // Sending.

    /// Returns the largest number of bytes of arguments over datagrams.
    fn datagram_arguments_max(&self) -> usize;

    /// Returns the largest number of bytes of arguments on a connection.
    fn arguments_max(&self) -> usize;

    /// Returns a call as one datagram. Returns `None` if [`begin`](Self::begin), [`step`](Self::step) and
    /// [`receive`](Self::receive) send the datagrams of a call.
    fn datagram(&self, message: &Message) -> Option<Piece<'_>>;

    /// Returns a piece of a call on a connection. The first piece has the index 0. `is_first` is true for the
    /// first message of the connection. Returns `None` if the message is too long.
    fn piece(&self, message: &Message, is_first: bool, index: usize) -> Option<Piece<'_>>;

    // Calls over datagrams. A datagram that `send` cannot send at once counts as lost in the network.

    /// Begins a call. `left` is how long the caller waits. If [`datagram`](Self::datagram) returns a datagram
    /// for the call, the link sends it afterwards.
    ///
    /// # Errors
    /// If the call cannot be sent.
    fn begin(
        &self,
        calls: &mut Self::Calls,
        message: &Message,
        arguments: Window<'_>,
        left: Option<Duration>,
        send: &mut dyn FnMut([&[u8]; 2]),
    ) -> Result<Self::Exchange, CallError>;

    /// Does what is [due](Self::due), and returns what the caller must do now.
    fn step(
        &self,
        calls: &mut Self::Calls,
        exchange: &mut Self::Exchange,
        send: &mut dyn FnMut([&[u8]; 2]),
    ) -> Step<Self::Failure>;

    /// Returns when [`step`](Self::step) must be called, if no datagram arrives before.
    fn due(exchange: &Self::Exchange) -> Moment;

    /// Returns how often the whole call was sent.
    fn transmissions(exchange: &Self::Exchange) -> u32;

    /// Returns whether each datagram of the call was sent only once, and the server has not answered the
    /// last datagram. If so, and if the last datagram reaches a closed port, the call was not executed.
    fn is_unanswered(exchange: &Self::Exchange) -> bool;

    // Receiving.

    /// Returns the assembler of a new connection, for results of at most `results_max` bytes.
    fn assembler(&self, results_max: usize) -> Self::Assembler;

    /// Returns whether no part of the next message has arrived.
    fn is_between_messages(&self, assembler: &Self::Assembler) -> bool;

    /// Takes received bytes from the front of `bytes`, up to the end of a message. Returns `None` if more
    /// bytes are needed.
    ///
    /// # Errors
    /// If the bytes cannot be read.
    fn take(
        &self,
        assembler: &mut Self::Assembler,
        bytes: &mut &[u8],
    ) -> Result<Option<Arrived>, Ended<Self::Failure>>;

    /// Gives the memory of a message back to the assembler, for the next message.
    fn reuse(assembler: &mut Self::Assembler, message: Vec<u8>);

    /// Returns the number and the frame of the call to which a message belongs, if a caller waits for its
    /// reply.
    ///
    /// # Errors
    /// If the message ends the link.
    fn find(
        &self,
        calls: &mut Self::Calls,
        message: &[u8],
    ) -> Result<Option<(u32, u32)>, Ended<Self::Failure>>;

    /// Reads a message that [`find`](Self::find) has found to belong to a call. Returns `None` if the message
    /// does not complete the reply. Otherwise the call is forgotten. `exchange` is the state of a call over
    /// datagrams.
    fn receive<'m>(
        &self,
        calls: &mut Self::Calls,
        number: u32,
        exchange: Option<&mut Self::Exchange>,
        message: &'m [u8],
        send: &mut dyn FnMut([&[u8]; 2]),
    ) -> Option<Result<Results<'m>, Self::Failure>>;

    // Failures.

    /// Returns the error of a call that has failed. `transmissions` is 0 if some part of the call was never
    /// sent. `reason` is why the link has ended.
    fn error_of(
        &self,
        failure: Self::Failure,
        transmissions: u32,
        reason: Option<&str>,
    ) -> CallError;
}

/// Why a link has ended (`reason`), and how its calls have failed (`failure`).
#[derive(Debug)]
pub(in crate::path) struct Ended<F> {
    pub(in crate::path) failure: F,
    pub(in crate::path) reason: String,
}

/// The number by which a reply names its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::path) enum Number {
    Of(u32),
    /// The call has no reply. It ends when it is sent.
    NoReply,
}

impl Number {
    /// Returns the number of the call, in a protocol in which all calls have replies.
    pub(in crate::path) fn of_reply(self) -> u32 {
        match self {
            Self::Of(number) => number,
            Self::NoReply => 0,
        }
    }
}

/// What is needed to send a call, besides the arguments in its frame.
#[derive(Clone, Copy, Debug)]
pub(in crate::path) struct Message {
    pub(in crate::path) frame: u32,
    pub(in crate::path) number: Number,
    pub(in crate::path) procedure: u32,
    /// The number of bytes of the arguments.
    pub(in crate::path) bytes: usize,
}

/// A piece of a call: bytes of a header, and a part of the arguments.
pub(in crate::path) struct Piece<'a> {
    numbers: [u8; NUMBERS_BYTES_MAX],
    numbers_bytes: usize,
    /// Bytes that are the same in all calls of a binding.
    fixed: &'a [u8],
    arguments: Range<usize>,
    pub(super) is_last: bool,
}

impl<'a> Piece<'a> {
    /// Returns a piece with this part of the arguments. `arguments` is a range of bytes.
    pub(in crate::path) const fn new(arguments: Range<usize>, is_last: bool) -> Self {
        let numbers = [0; NUMBERS_BYTES_MAX];
        Self { numbers, numbers_bytes: 0, fixed: &[], arguments, is_last }
    }

    /// Adds bytes before the arguments. A piece has at most 32 such bytes.
    pub(in crate::path) fn with<const N: usize>(mut self, bytes: [u8; N]) -> Self {
        let end = self.numbers_bytes + N;
        self.numbers[self.numbers_bytes..end].copy_from_slice(&bytes);
        self.numbers_bytes = end;
        self
    }

    /// Adds the bytes that come directly before the arguments, after the bytes of [`with`](Self::with).
    pub(in crate::path) const fn with_fixed(mut self, fixed: &'a [u8]) -> Self {
        self.fixed = fixed;
        self
    }

    /// Returns the parts of the piece, in the order of sending. `arguments` are all arguments of the call.
    pub(super) fn parts<'p>(&'p self, arguments: Window<'p>) -> [Window<'p>; 3] {
        let part = arguments.range(self.arguments.start, self.arguments.len());
        [Window::from(&self.numbers[..self.numbers_bytes]), Window::from(self.fixed), part]
    }
}

/// What the caller of a call over datagrams must do next.
#[derive(Clone, Copy, Debug)]
pub(in crate::path) enum Step<F> {
    /// The caller waits for datagrams until the next step is due.
    Wait,
    /// The caller sends the [datagram](Dialect::datagram) again.
    Retransmit,
    GiveUp(F),
}

/// What has arrived on a connection.
#[derive(Debug)]
pub(in crate::path) enum Arrived {
    Message(Vec<u8>),
    /// The server sends no more data, and expects these bytes as an answer.
    End(&'static [u8]),
}

/// The results in a reply, or the number and the arguments of an error that the procedure has reported.
#[derive(Debug)]
pub(in crate::path) struct Results<'m> {
    pub(in crate::path) answer: Answer,
    pub(in crate::path) bytes: Cow<'m, [u8]>,
}
