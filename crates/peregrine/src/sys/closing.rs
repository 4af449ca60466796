//! Closing what may take for ever to close, in threads that may be lost.
//!
//! A Unix socket in whose queue a peer left descriptors closes the last copies of those, in the
//! thread that closes the socket. Such a close can wait for as long as the peer likes: a TCP socket
//! that lingers, a file of a file system in user space. So a socket with descriptors in its queue
//! is closed by one of a few threads that do nothing else. When all of them wait, sockets queue up
//! here, and servers let nobody new in until the queue is short again ([`is_congested`]): those who
//! are bound are served meanwhile.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use super::PerProcess;
use crate::sync::{Mutex, MutexGuard};

/// Threads of a process that may be lost.
const CLOSERS_MAX: usize = 16;

#[derive(Default)]
struct Closing {
    queue: VecDeque<OwnedFd>,
    threads: usize,
}

fn closing() -> MutexGuard<'static, Closing> {
    // A forked child has none of the threads, and the parent closes its own.
    static CLOSING: PerProcess<Mutex<Closing>> = PerProcess::new();
    CLOSING.own().lock()
}

/// Closes a descriptor in a thread that may be lost.
pub(super) fn close_elsewhere(file: OwnedFd) {
    let mut closing = closing();
    closing.queue.push_back(file);
    if closing.threads < CLOSERS_MAX {
        let thread = std::thread::Builder::new().name("peregrine-closer".into());
        // Without a thread it waits for the next one that starts.
        closing.threads += usize::from(thread.spawn(run).is_ok());
    }
}

/// Whether so many sockets wait to be closed.
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

    /// The closing of a descriptor by a thread waits until the peer is dropped.
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
    fn nobody_is_let_in_while_256_descriptors_wait_to_be_closed() {
        // As `limits.rs` has it, which is not for this room.
        const MOST: usize = 256;
        assert_eq!(CLOSERS_MAX, 16);
        let until = Instant::now() + Duration::from_secs(30);
        let (slow, peers): (Vec<_>, Vec<_>) = (0..CLOSERS_MAX).map(|_| slow_to_close()).unzip();
        slow.into_iter().for_each(close_elsewhere);
        // Each thread has taken one, and waits.
        while is_congested(1) {
            assert!(Instant::now() < until, "the threads do not take them");
            std::thread::yield_now();
        }
        for waiting in 0..MOST {
            assert!(!is_congested(MOST), "{waiting} wait");
            close_elsewhere(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        }
        assert!(is_congested(MOST));
        drop(peers);
        while is_congested(1) {
            assert!(Instant::now() < until, "they are never closed");
            std::thread::yield_now();
        }
    }
}
