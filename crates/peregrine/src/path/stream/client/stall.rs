//! A caller whose server takes no more bytes waits, until its deadline.

use std::io;
use std::time::Instant;

use super::Connection;
use super::keep_alive::Watch;
use crate::device::tcp::For;
use crate::path::stream::peer::sending::OnStall;
use crate::protocol::stream::keep_alive::EXAMINE_EVERY;

/// A caller whose server takes no more bytes.
pub(super) struct CallerStall<'a> {
    pub(super) connection: &'a Connection,
    pub(super) deadline: Option<Instant>,
}

impl OnStall for CallerStall<'_> {
    #[cold]
    fn wait(&self) -> io::Result<()> {
        let Self { connection, deadline } = *self;
        let (mut what, mut watch) = (For::Either, Watch::default());
        loop {
            if connection.has_ended() {
                return Err(io::Error::other("the connection has ended"));
            }
            let examine = Instant::now() + EXAMINE_EVERY;
            let until = deadline.map_or(examine, |deadline| deadline.min(examine));
            let ready = connection.stream.wait(what, Some(until))?;
            if ready.writable {
                return Ok(());
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if !ready.readable {
                watch.look(connection);
                continue;
            }
            // The server may take nothing because no thread takes its replies. If another thread
            // receives, that one does.
            if !connection.listen() {
                what = For::Writable;
            }
        }
    }
}
