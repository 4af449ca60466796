//! Lets a caller wait while its socket is full. The wait lasts until the deadline of the call at most.

use std::io;
use std::time::Instant;

use super::Connection;
use super::keep_alive::Watch;
use crate::device::tcp::WaitFor;
use crate::path::stream::peer::sending::OnStall;
use crate::protocol::stream::keep_alive::EXAMINE_EVERY;

/// A caller that waits until the socket has space for more bytes.
pub(super) struct CallerStall<'a> {
    pub(super) connection: &'a Connection,
    pub(super) deadline: Option<Instant>,
}

impl OnStall for CallerStall<'_> {
    #[cold]
    fn wait(&self) -> io::Result<()> {
        let Self { connection, deadline } = *self;
        let (mut what, mut watch) = (WaitFor::Either, Watch::default());
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
            // The server may have stopped reading because no thread of this client receives its replies. So
            // this thread receives them, unless another thread is the leader and receives them already.
            if !connection.listen() {
                what = WaitFor::Writable;
            }
        }
    }
}
