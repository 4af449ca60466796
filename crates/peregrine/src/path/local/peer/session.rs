//! `Session`: what a client privately knows about the life of a server process.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::time::Instant;

use crate::error::{CallError, Executed, Kind};
use crate::path::local::wire::Request;
use crate::sync::Mutex;
use crate::sys::{Process, Seqpacket};

/// The session has not ended, as far as the client knows.
const ALIVE: u32 = 0;
/// The server's process has ended.
const ENDED: u32 = 1;
/// The server has closed the socket.
const CLOSED: u32 = 2;
/// The server has said goodbye.
const WITHDRAWN: u32 = 3;
/// The region was overwritten.
const CORRUPTED: u32 = 4;

/// The socket, the server's process, and how the session ended.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) socket: Seqpacket,
    pub(crate) process: Process,
    /// One of the constants above. It decides; the words in the region are only hints.
    state: AtomicU32,
    /// Bindings that have ended, and of which the server does not know yet.
    unbound: Mutex<Vec<u32>>,
    /// The process that made the session. A forked child also has the socket, but must not use it.
    owner: u32,
}

impl Session {
    pub(crate) fn new(socket: Seqpacket, process: Process) -> Self {
        let (state, unbound) = (AtomicU32::new(ALIVE), Mutex::default());
        Self { socket, process, state, unbound, owner: std::process::id() }
    }

    /// Returns whether the session has not ended, as far as the client knows.
    #[inline]
    pub(crate) fn is_alive(&self) -> bool {
        self.state.load(Ordering::Acquire) == ALIVE
    }

    fn end(&self, state: u32) {
        let _ = self.state.compare_exchange(ALIVE, state, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Ends the session because the server said goodbye: it takes no more calls.
    pub(crate) fn mark_withdrawn(&self) {
        self.end(WITHDRAWN);
    }

    /// Ends the session because the socket was closed or the process has ended. Only the handle of the
    /// process proves that it runs no call any more.
    pub(crate) fn mark_closed(&self) {
        self.end(if self.process.ended() { ENDED } else { CLOSED });
    }

    /// Ends the session because a word has a value that neither side writes. A stray write to the region
    /// may have overwritten a reply, so all callers give up.
    #[cold]
    pub(crate) fn mark_corrupted(&self) {
        self.end(CORRUPTED);
    }

    /// Returns the error of a call that began after the session had ended. It was not posted.
    #[cold]
    pub(crate) fn refusal(&self) -> CallError {
        let error = self.failure(false);
        let corrupted = self.state.load(Ordering::Acquire) == CORRUPTED;
        let kind = if corrupted { Kind::ServerGone } else { error.kind() };
        CallError::new(kind, Executed::No, error.detail())
    }

    /// Returns the error of a call whose session ended before its reply. `taken` says whether the server
    /// had taken the call.
    #[cold]
    pub(crate) fn failure(&self, taken: bool) -> CallError {
        let pid = self.process.pid;
        let (kind, certain, text) = match self.state.load(Ordering::Acquire) {
            ENDED => (Kind::ServerGone, true, format!("process {pid} has ended")),
            WITHDRAWN => (Kind::Withdrawn, true, format!("process {pid} has stopped serving")),
            CLOSED => (Kind::ServerGone, false, format!("process {pid} closed the session")),
            _ => (
                Kind::BadResult,
                false,
                format!("the memory shared with process {pid} was overwritten by a stray write"),
            ),
        };
        let executed = if certain && !taken { Executed::No } else { Executed::Maybe };
        CallError::new(kind, executed, text)
    }

    /// Tells the server that a binding has ended.
    pub(crate) fn unbind(&self, binding: u32) {
        if self.owner != std::process::id() {
            return;
        }
        let mut unbound = self.unbound.lock();
        unbound.push(binding);
        // What the socket cannot hold now is sent with the next one that ends. The end of the session
        // makes it unnecessary.
        while let Some(binding) = unbound.last() {
            if self.socket.send(&Request::Unbind(*binding).to_bytes(), None).is_err() {
                break;
            }
            unbound.pop();
        }
    }

    /// Tells the server that a call is posted on an A-stack that no thread polls.
    #[cold]
    pub(crate) fn ring(&self, astack: u32, deadline: Option<Instant>) {
        let message = Request::Ring(astack).to_bytes();
        while self.is_alive() && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            match self.socket.send(&message, None).map_err(|error| error.raw_os_error()) {
                // Both pass: the server has not read earlier rings yet, or the kernel is short of memory.
                Err(Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM)) => {
                    std::thread::sleep(Duration::from_micros(100));
                }
                // If the session was closed, the keeper notices.
                _ => return,
            }
        }
    }
}
