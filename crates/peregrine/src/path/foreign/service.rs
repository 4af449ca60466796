//! [`StreamService`]: the protocol of another RPC system, as the server's end of connections uses it. The
//! code of connections is compiled once for each protocol, so that it calls these functions directly.

use std::net::SocketAddr;
use std::sync::Arc;

use super::callers::Callers;
use super::serving::ReplyBuffer;
use crate::call::Refusal;
use crate::serving::procedure::Serving;

/// The protocol of another RPC system, and what all its connections share.
pub(crate) trait StreamService: Send + Sync + Sized + 'static {
    /// The state of each connection.
    type Session: Default + Send + Sync;
    /// Assembles messages from the bytes of a connection.
    type Input: StreamInput;
    /// A call that is to be run. If the value is dropped, the call counts as failed.
    type Call;

    /// Whether a server runs one call of a connection at a time, because its clients expect the replies in
    /// the order of the calls.
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

    /// Runs a call, and puts the reply into `reply`. `message` is the message that contains the call.
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

/// The type of the messages that the connections of a service receive.
pub(crate) type MessageOf<S> = <<S as StreamService>::Input as StreamInput>::Message;

/// Assembles messages from the bytes of a connection.
pub(crate) trait StreamInput: Send {
    type Message: Send;
    type Broken;

    /// Takes received bytes from the front of `bytes`, up to the end of a message. Returns `None` if more
    /// bytes are needed.
    ///
    /// # Errors
    /// If the bytes cannot be read. The connection must then be closed.
    fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Self::Message>, Self::Broken>;

    /// Returns how many bytes of an incomplete message have arrived.
    fn len(&mut self) -> usize;

    /// Returns the largest number of bytes of memory that the message uses after `more` further bytes have
    /// arrived.
    fn memory_after(&mut self, more: usize) -> usize;
}

/// Where a message comes from.
pub(crate) struct Source<'a, S> {
    pub(crate) from: SocketAddr,
    /// The number of the connection, or zero over datagrams.
    pub(crate) connection: u64,
    pub(crate) callers: &'a Callers,
    pub(crate) session: &'a S,
}

/// What the server must do with a message.
pub(crate) enum Received<C> {
    Nothing,
    /// The bytes are no message of the protocol. The server closes the connection, if there is one.
    Foreign,
    /// The server sends the reply in the buffer.
    Answered,
    /// As `Answered`, but the message contains no call: it only begins the communication.
    Greeted,
    /// The server sends the reply in the buffer, and then closes the connection.
    Last,
    /// The server runs a call.
    Call(C),
}

/// What the server must do with the reply in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// There is no reply.
    Nothing,
    /// The server sends the reply on the connection with this number.
    To(u64),
    /// The call has failed. The protocol has no reply for this, so the server closes the connection.
    Close,
}
