//! [`StreamService`]: the protocol of another RPC system, as the server's end of connections uses it. The
//! functions are called directly: each protocol has compiled connections of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use super::callers::Callers;
use super::serving::ReplyBuffer;
use crate::call::Refusal;
use crate::serving::procedure::Serving;

/// The protocol of another RPC system, and what all its connections share.
pub(crate) trait StreamService: Send + Sync + Sized + 'static {
    /// What each connection remembers.
    type Session: Default + Send + Sync;
    /// Puts the messages of a connection together.
    type Input: StreamInput;
    /// A call that is to be run. If the value is dropped, the call counts as failed.
    type Call;

    /// Whether a server runs one call of a connection at a time, because its clients expect the replies in the
    /// order of the calls.
    const IS_ORDERED: bool;

    /// Returns the input of a new connection. The largest message of an export has `message_bytes_max` bytes.
    fn input(message_bytes_max: usize) -> Self::Input;

    /// Decides what to do with a message that has arrived. Puts the answer into `reply`, if there is one.
    fn take(
        self: &Arc<Self>,
        source: Source<'_, Self::Session>,
        message: &MessageOf<Self>,
        serving: &mut Serving,
        reply: &mut ReplyBuffer,
    ) -> Received<Self::Call>;

    /// Runs a call on the message with which it has arrived, and puts the reply into `reply`.
    fn run(
        call: Self::Call,
        message: &MessageOf<Self>,
        serving: &mut Serving,
        reply: &mut ReplyBuffer,
    ) -> Reply;

    /// Answers a call that was not executed.
    fn refused(call: Self::Call, refusal: &Refusal, reply: &mut ReplyBuffer) -> Reply;

    /// Passes the bytes of a reply to `send`, in as many pieces as the protocol needs. Returns `None` if the
    /// reply is too long, or if `send` returns `None`.
    fn send(
        session: &Self::Session,
        reply: &mut ReplyBuffer,
        send: impl FnMut(&[u8]) -> Option<()>,
    ) -> Option<()>;
}

/// What the connections of a service receive.
pub(crate) type MessageOf<S> = <<S as StreamService>::Input as StreamInput>::Message;

/// Puts the messages of a connection together.
pub(crate) trait StreamInput: Send {
    type Message: Send;
    type Broken;

    /// Takes received bytes from the front of `bytes`, up to the end of a message. Returns `None` if more bytes
    /// are needed.
    ///
    /// # Errors
    /// If the bytes cannot be read. The connection is of no use any more.
    fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Self::Message>, Self::Broken>;

    /// Returns the number of bytes of the message that has arrived in part.
    fn len(&mut self) -> usize;

    /// Returns the most memory in bytes that the message uses after `more` further bytes.
    fn memory_after(&mut self, more: usize) -> usize;
}

/// Where a message comes from.
pub(crate) struct Source<'a, S> {
    pub(crate) from: SocketAddr,
    /// The number of the connection, or zero.
    pub(crate) connection: u64,
    pub(crate) callers: &'a Callers,
    pub(crate) session: &'a S,
}

/// What a message asks of the server.
pub(crate) enum Received<C> {
    Nothing,
    /// The bytes are no message of the protocol. A connection ends.
    Foreign,
    /// To send the reply in the buffer.
    Answered,
    /// The same, but the message was no call: the client has introduced itself.
    Greeted,
    /// To send the reply in the buffer, and then to close the connection.
    Last,
    /// To run a call.
    Call(C),
}

/// What becomes of the reply in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// There is none.
    Nothing,
    /// The connection with this number gets it.
    To(u64),
    /// The call has failed, and the protocol can say so only by the end of the connection.
    Close,
}
