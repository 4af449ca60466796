//! Actions that are cheap for a hostile peer and may be expensive for the other side.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::thread::futex;

use super::wire::{LIMIT, Line, Session, describe};

/// Returns a socket with unsent data and with `SO_LINGER`. When the last descriptor of the socket is closed,
/// `close` blocks for `time`. Also returns the other end of the connection, which must stay open until
/// `close` returns.
pub(crate) fn slow_to_close(time: Duration) -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let stream = TcpStream::connect(listener.local_addr().expect("an address")).expect("a stream");
    let (reader, _) = listener.accept().expect("the connection");
    stream.set_nonblocking(true).expect("a socket");
    while std::io::Write::write(&mut &stream, &[0; 1 << 16]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&stream, Some(time)).expect("a socket");
    (stream.into(), reader)
}

/// Sends a request over the new connection `line`. Returns whether the server answers within `limit`.
pub(crate) fn is_answered(line: &Line, limit: Duration) -> bool {
    let _ = line.send(&describe());
    line.answer_within(limit).is_some()
}

/// Waits until the call word of an A-stack (the word that posts a call) says that a thread of the server
/// sleeps on the word. Returns false if the word does not say so within [`LIMIT`].
pub(crate) fn falls_asleep(session: &Session, astack: u32) -> bool {
    let word = session.region.word(session.region.call(astack));
    super::eventually(LIMIT, || word.load(Ordering::Acquire) == 2)
}

/// Moves the threads that sleep on a call word to another futex word. No thread is ever woken on that other
/// word. Returns the number of moved threads.
pub(crate) fn requeue(session: &Session, astack: u32) -> usize {
    let word = session.region.word(session.region.call(astack));
    let elsewhere = session.region.word(64);
    futex::requeue(word, futex::Flags::empty(), 0, i32::MAX as u32, elsewhere).unwrap_or(0)
}

/// Rings for 64 A-stacks: for each, sends the message that asks the server to look for a call. Returns how
/// many rings the socket accepted. A full socket does not matter: the server then already has unread rings.
pub(crate) fn ring_all(session: &Session) -> u64 {
    let rings = (0..64).map(|astack| super::wire::request(super::wire::RING, astack));
    rings.map(|ring| u64::from(session.line.send(&ring).is_ok())).sum()
}

/// Rings continuously until the time `until`. Returns the number of rings.
pub(crate) fn flood(session: &Session, until: Instant) -> u64 {
    let mut rings = 0;
    while Instant::now() < until {
        rings += ring_all(session);
    }
    rings
}
