//! How long a server waits for a client that does not read its replies.

use std::io;
use std::time::Instant;

use crate::device::tcp::{Stream, WaitFor};
use crate::limits;

/// Waits until the socket of a connection has space. The wait is limited to one of the two times in
/// [`limits::UNREAD_TIME`]. The shorter limit applies if `is_hurried` returns true: other connections wait
/// for a thread, or the server is stopping. Otherwise the longer limit applies.
///
/// # Errors
/// If the time has passed, or `is_closed` returns true.
#[cold]
pub(in crate::path) fn wait_for_reader(
    stream: &Stream,
    is_closed: impl Fn() -> bool,
    is_hurried: impl Fn() -> bool,
) -> io::Result<()> {
    let [short, long] = limits::UNREAD_TIME;
    let begun = Instant::now();
    loop {
        if is_closed() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let look = Instant::now() + short;
        if stream.wait(WaitFor::Writable, Some(look))?.writable {
            return Ok(());
        }
        if is_hurried() || begun.elapsed() >= long {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}
