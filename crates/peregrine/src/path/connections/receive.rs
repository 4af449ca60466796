//! How a thread waits for the bytes of a connection, and how a stopping server discards the last bytes.

use std::io;
use std::time::{Duration, Instant};

use crate::call::{Wait, block_cost};
use crate::counters::Counting;
use crate::device::tcp::{Stream, WaitFor};
use crate::limits;

/// How long a thread waits for the next message before it leaves the connection to the keeper. This is also
/// the receive timeout of the socket.
pub(in crate::path) const IDLE: Duration = limits::STALL_TIME;

/// The outcome of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::path) enum Got {
    /// This number of bytes arrived.
    Bytes(usize),
    /// Nothing arrived in time.
    Nothing,
    Closed,
}

/// Receives at least one byte, unless none arrives in time. `how` is `None` if the thread does not wait.
pub(in crate::path) fn receive(
    stream: &Stream,
    into: &mut [u8],
    how: Option<Wait>,
    counting: &mut Counting,
) -> Got {
    let until = match how {
        Some(Wait::Block) => None,
        Some(Wait::Adaptive) => Some(Instant::now() + block_cost()),
        Some(Wait::Spin) => Some(Instant::now() + IDLE),
        None => Some(Instant::now()),
    };
    let how = how.unwrap_or(Wait::Spin);
    loop {
        let blocks = match until {
            None => true,
            Some(until) => Instant::now() >= until && how == Wait::Adaptive,
        };
        match stream.receive(into, blocks) {
            Ok(0) => return Got::Closed,
            Ok(bytes) => {
                if blocks {
                    counting.slept()
                } else {
                    counting.found()
                }
                return Got::Bytes(bytes);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Got::Closed,
            Err(_) if blocks => return Got::Nothing,
            Err(_) if until.is_some_and(|until| Instant::now() >= until) => {
                if how == Wait::Spin {
                    return Got::Nothing;
                }
            }
            Err(_) => {
                counting.looked();
                std::thread::yield_now();
            }
        }
    }
}

/// Receives and discards bytes until the client has closed the connection, or the time `until` has come. A
/// stopping server calls this function after its last reply. If the server closed a socket with unread
/// bytes, the kernel would reset the connection, and the client could lose the last replies.
pub(in crate::path) fn hear_out(stream: &Stream, until: Instant) {
    let mut chunk = [0; 4096];
    while Instant::now() < until {
        match stream.wait(WaitFor::Readable, Some(until)) {
            Ok(ready) if ready.readable => match stream.receive(&mut chunk, false) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            },
            _ => return,
        }
    }
}
