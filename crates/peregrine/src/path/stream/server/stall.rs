//! Decides how long a server waits while the socket of a connection is full.

use core::sync::atomic::Ordering;
use std::io;
use std::time::Instant;

use super::{AcceptedConnection, Host};
use crate::device::tcp::WaitFor;
use crate::limits;
use crate::path::stream::peer::sending::OnStall;

/// Never waits. If the socket has no space for a message, the message is not sent.
pub(super) struct NoStall;

impl OnStall for NoStall {
    fn wait(&self) -> io::Result<()> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// Waits until a client reads its replies. The wait is limited to one of the two times in
/// [`limits::UNREAD_TIME`]. The shorter limit applies if other connections wait for a thread, or if the
/// server is stopping. Otherwise the longer limit applies.
pub(super) struct ReplyStall<'a> {
    pub(super) incoming: &'a AcceptedConnection,
    pub(super) host: &'a dyn Host,
}

impl OnStall for ReplyStall<'_> {
    #[cold]
    fn wait(&self) -> io::Result<()> {
        let [short, long] = limits::UNREAD_TIME;
        let begun = Instant::now();
        loop {
            if self.incoming.closed.load(Ordering::Acquire) {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let look = Instant::now() + short;
            if self.incoming.stream.wait(WaitFor::Writable, Some(look))?.writable {
                return Ok(());
            }
            if self.host.is_hungry() || self.host.is_stopping() || begun.elapsed() >= long {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}
