//! What is done where a connection takes no more: wait, for as long as nobody suffers; or leave it unsaid.

use core::sync::atomic::Ordering;
use std::io;
use std::time::Instant;

use super::{Host, Incoming};
use crate::device::tcp::For;
use crate::limits;
use crate::path::stream::sending::Full;

/// What the socket does not take at once is not said.
pub(super) struct Never;

impl Full for Never {
    fn wait(&self) -> io::Result<()> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// A client that does not read its replies.
pub(super) struct Unread<'a> {
    pub(super) incoming: &'a Incoming,
    pub(super) host: &'a dyn Host,
}

impl Full for Unread<'_> {
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
