//! `Patience`: a caller whose server takes nothing more waits, until its deadline.

use std::io;
use std::time::Instant;

use super::Connection;
use super::silence::{LOOK, Vigil};
use crate::device::tcp::For;
use crate::path::stream::sending::Full;

/// A caller whose server takes nothing more.
pub(super) struct Patience<'a> {
    pub(super) connection: &'a Connection,
    pub(super) deadline: Option<Instant>,
}

impl Full for Patience<'_> {
    #[cold]
    fn wait(&self) -> io::Result<()> {
        let Self { connection, deadline } = *self;
        let (mut what, mut vigil) = (For::Either, Vigil::default());
        loop {
            if connection.has_ended() {
                return Err(io::Error::other("the connection has ended"));
            }
            let now = Instant::now();
            let look = now + LOOK;
            let until = deadline.map_or(look, |deadline| deadline.min(look));
            let ready = connection.stream.wait(what, Some(until))?;
            if ready.writable {
                return Ok(());
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if !ready.readable {
                vigil.look(connection);
                continue;
            }
            // The server may take nothing because nobody takes its replies. Whoever else has the
            // receive turn does.
            if !connection.listen() {
                what = For::Writable;
            }
        }
    }
}
