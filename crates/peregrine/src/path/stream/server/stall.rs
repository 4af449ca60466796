//! Decides how long a server waits while the socket of a connection is full.

use core::sync::atomic::Ordering;
use std::io;

use super::{AcceptedConnection, Host};
use crate::path::connections::stall::wait_for_reader;
use crate::path::stream::peer::sending::OnStall;

/// Never waits. If the socket has no space for a message, the message is not sent.
pub(super) struct NoStall;

impl OnStall for NoStall {
    fn wait(&self) -> io::Result<()> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// Waits until a client reads its replies. The wait is limited.
pub(super) struct ReplyStall<'a> {
    pub(super) incoming: &'a AcceptedConnection,
    pub(super) host: &'a dyn Host,
}

impl OnStall for ReplyStall<'_> {
    #[cold]
    fn wait(&self) -> io::Result<()> {
        let is_closed = || self.incoming.closed.load(Ordering::Acquire);
        let is_hurried = || self.host.is_hungry() || self.host.is_stopping();
        wait_for_reader(&self.incoming.stream, is_closed, is_hurried)
    }
}
