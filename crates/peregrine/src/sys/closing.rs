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
use std::sync::PoisonError;

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
    CLOSING.own().lock().unwrap_or_else(PoisonError::into_inner)
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
