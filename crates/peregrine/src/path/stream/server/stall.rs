//! What a server does when a connection takes no more bytes.

use core::sync::atomic::Ordering;
use std::io;
use std::time::Instant;

use super::{Host, Incoming};
use crate::device::tcp::For;
use crate::limits;
use crate::path::stream::peer::sending::OnStall;

/// Does not wait: a message that the socket does not take at once is not sent.
pub(super) struct NoStall;

impl OnStall for NoStall {
    fn wait(&self) -> io::Result<()> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// Waits for a client that does not read its replies, while no other client suffers.
pub(super) struct ReplyStall<'a> {
    pub(super) incoming: &'a Incoming,
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
            if self.incoming.stream.wait(For::Writable, Some(look))?.writable {
                return Ok(());
            }
            if self.host.is_hungry() || self.host.is_stopping() || begun.elapsed() >= long {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}
