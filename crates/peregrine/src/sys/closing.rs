//! Closes descriptors whose close may block for ever, in threads that do nothing else.
//!
//! If a peer left descriptors in the queue of a Unix socket, the thread that closes the socket also closes
//! the last copies of those descriptors. Such a close can block for as long as the peer wants: on a TCP
//! socket that lingers, or on a file of a file system in user space. Therefore a socket with descriptors in
//! its queue is closed by one of a few threads that do nothing else. When all of these threads block, sockets
//! are queued here. Servers then accept no new client until the queue is short again ([`is_congested`]);
//! clients that are already bound are still served.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use super::PerProcess;
use crate::sync::{Mutex, MutexGuard};

/// The largest number of closing threads in a process.
const CLOSERS_MAX: usize = 16;

#[derive(Default)]
struct Closing {
    queue: VecDeque<OwnedFd>,
    threads: usize,
}

fn closing() -> MutexGuard<'static, Closing> {
    // A forked child has no closing threads, and its parent closes the sockets in the parent's queue.
    static CLOSING: PerProcess<Mutex<Closing>> = PerProcess::new();
    CLOSING.own().lock()
}

/// Hands a descriptor over to a closing thread, because the close may block for ever.
pub(super) fn close_elsewhere(file: OwnedFd) {
    let mut closing = closing();
    closing.queue.push_back(file);
    if closing.threads < CLOSERS_MAX {
        let thread = std::thread::Builder::new().name("peregrine-closer".into());
        // If no thread can be started, the descriptor waits until a later thread takes it.
        closing.threads += usize::from(thread.spawn(run).is_ok());
    }
}

/// Returns whether at least `most` sockets are waiting to be closed.
pub(crate) fn is_congested(most: usize) -> bool {
    closing().queue.len() >= most
}

fn run() {
    loop {
        let mut closing = closing();
        let Some(file) = closing.queue.pop_front() else {
            closing.threads -= 1;
            return;
        };
        drop(closing);
        drop(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::net::sockopt;
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    /// Returns a socket whose close blocks until the returned peer is dropped.
    fn slow_to_close() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        sockopt::set_socket_linger(&stream, Some(Duration::from_secs(60))).unwrap();
        stream.set_nonblocking(true).unwrap();
        while stream.write(&[0; 1 << 16]).is_ok() {}
        stream.set_nonblocking(false).unwrap();
        (stream.into(), peer)
    }

    #[test]
    fn closing_is_congested_while_256_descriptors_wait() {
        // The real limit is in `limits.rs`, which this module does not use.
        const MOST: usize = 256;
        assert_eq!(CLOSERS_MAX, 16);
        let until = Instant::now() + Duration::from_secs(30);
        let (slow, peers): (Vec<_>, Vec<_>) = (0..CLOSERS_MAX).map(|_| slow_to_close()).unzip();
        slow.into_iter().for_each(close_elsewhere);
        // Wait until each thread has taken one socket and blocks.
        while is_congested(1) {
            assert!(Instant::now() < until, "the closing threads take no sockets");
            std::thread::yield_now();
        }
        for waiting in 0..MOST {
            assert!(!is_congested(MOST), "{waiting} descriptors wait");
            close_elsewhere(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        }
        assert!(is_congested(MOST));
        drop(peers);
        while is_congested(1) {
            assert!(Instant::now() < until, "the sockets are never closed");
            std::thread::yield_now();
        }
    }
}
