//! `Session`: the client's private knowledge of whether the server still lives.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::time::Instant;

use crate::error::{CallError, Executed, Kind};
use crate::path::local::connect::handshake::Request;
use crate::sync::Mutex;
use crate::sys::{Process, Seqpacket};

const ALIVE: u32 = 0;
const ENDED: u32 = 1;
const CLOSED: u32 = 2;
const WITHDRAWN: u32 = 3;
const SPOILED: u32 = 4;

/// The socket, the server's process, and how the session ended.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) socket: Seqpacket,
    pub(crate) process: Process,
    /// The truth of which the words in the region are hints.
    state: AtomicU32,
    /// Bindings that have gone, and of which the server has not been told yet.
    unsaid: Mutex<Vec<u32>>,
    /// The process whose session it is: a forked child has the socket too, and nothing to say.
    owner: u32,
}

impl Session {
    pub(crate) fn new(socket: Seqpacket, process: Process) -> Self {
        let (state, unsaid) = (AtomicU32::new(ALIVE), Mutex::default());
        Self { socket, process, state, unsaid, owner: std::process::id() }
    }

    /// Whether nothing is known of an end.
    #[inline]
    pub(crate) fn is_alive(&self) -> bool {
        self.state.load(Ordering::Acquire) == ALIVE
    }

    /// The server said goodbye: it takes no call any more.
    pub(crate) fn withdraw(&self) {
        let _ = self.state.compare_exchange(ALIVE, WITHDRAWN, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The socket was closed, or the process has ended. With the process's handle one is certain
    /// that it runs nothing any more.
    pub(crate) fn close(&self) {
        let state = if self.process.ended() { ENDED } else { CLOSED };
        let _ = self.state.compare_exchange(ALIVE, state, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// A word was found that neither side writes there: somebody else writes to the region, and a
    /// reply may have been written over. Whoever waits for one gives up.
    #[cold]
    pub(crate) fn spoil(&self) {
        let _ = self.state.compare_exchange(ALIVE, SPOILED, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Why a call is refused that was not even posted: the session had ended before it began.
    #[cold]
    pub(crate) fn refusal(&self) -> CallError {
        let error = self.failure(false);
        let spoiled = self.state.load(Ordering::Acquire) == SPOILED;
        let kind = if spoiled { Kind::ServerGone } else { error.kind() };
        CallError::new(kind, Executed::No, error.detail())
    }

    /// Why a call failed whose session has ended; `taken` tells whether the server had taken it.
    #[cold]
    pub(crate) fn failure(&self, taken: bool) -> CallError {
        let pid = self.process.pid;
        let (kind, certain, text) = match self.state.load(Ordering::Acquire) {
            ENDED => (Kind::ServerGone, true, format!("process {pid} has ended")),
            WITHDRAWN => (Kind::Withdrawn, true, format!("process {pid} stopped serving it")),
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

    /// Tells the server that a binding is not used any more.
    pub(crate) fn unbind(&self, binding: u32) {
        if self.owner != std::process::id() {
            return;
        }
        let mut unsaid = self.unsaid.lock();
        unsaid.push(binding);
        // What the socket does not hold now is said when the next one goes; all of it ends with
        // the session.
        while let Some(binding) = unsaid.last() {
            if self.socket.send(&Request::Unbind(*binding).to_bytes(), None).is_err() {
                break;
            }
            unsaid.pop();
        }
    }

    /// Tells the server that a call is posted where nobody looks.
    #[cold]
    pub(crate) fn ring(&self, astack: u32, deadline: Option<Instant>) {
        let message = Request::Ring(astack).to_bytes();
        while self.is_alive() && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            match self.socket.send(&message, None).map_err(|error| error.raw_os_error()) {
                // The server has more rings to read than its socket holds, or the kernel is short
                // of memory: both pass.
                Err(Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM)) => {
                    std::thread::sleep(Duration::from_micros(100));
                }
                // A closed session is the keeper's to notice.
                _ => return,
            }
        }
    }
}
