//! `Session`: the client's private record of a session. The record shows whether the session has ended.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::error::{CallError, Executed, Kind};
use crate::path::local::wire::{ClientMessage, ring_bytes};
use crate::sync::Mutex;
use crate::sys::{Process, Seqpacket};

/// The state while the session has not ended, as far as the client knows.
const ALIVE: u32 = 0;
/// The state after the server's process has ended.
const ENDED: u32 = 1;
/// The state after the server has closed the socket.
const CLOSED: u32 = 2;
/// The state after the server has sent `Goodbye`: the server has stopped serving.
const WITHDRAWN: u32 = 3;
/// The state after a stray write has overwritten the region.
const CORRUPTED: u32 = 4;

/// The socket, the server's process, and whether and how the session has ended.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) socket: Seqpacket,
    pub(crate) process: Process,
    /// One of the constants from [`ALIVE`] to [`CORRUPTED`]. Only this state decides whether the session has
    /// ended. The words in the region are hints.
    state: AtomicU32,
    /// The numbers of ended bindings for which the server has not yet received a notice.
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

    /// Ends the session because the server has sent `Goodbye`: the server takes no more calls.
    pub(crate) fn mark_withdrawn(&self) {
        self.end(WITHDRAWN);
    }

    /// Ends the session because the socket was closed or the process has ended. Only the process handle can
    /// prove that the process runs no call any more.
    pub(crate) fn mark_closed(&self) {
        self.end(if self.process.ended() { ENDED } else { CLOSED });
    }

    /// Ends the session because the value of a word shows that a stray write has changed the region. The
    /// stray write may have overwritten a reply, so all callers give up.
    #[cold]
    pub(crate) fn mark_corrupted(&self) {
        self.end(CORRUPTED);
    }

    /// Returns the error of a call that began after the session had ended. The call was not posted.
    #[cold]
    pub(crate) fn refusal(&self) -> CallError {
        let error = self.failure(false);
        let corrupted = self.state.load(Ordering::Acquire) == CORRUPTED;
        let kind = if corrupted { Kind::ServerGone } else { error.kind() };
        CallError::new(kind, Executed::No, error.detail())
    }

    /// Returns the error of a call whose session ended before its reply. `taken` is true if the server had
    /// taken the call.
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

    /// Notifies the server that a binding has ended.
    pub(crate) fn unbind(&self, binding: u32) {
        if self.owner != std::process::id() {
            return;
        }
        let mut unbound = self.unbound.lock();
        unbound.push(binding);
        // If the socket is full, the notice stays in the list until another binding ends. When the session
        // itself ends, no notice is needed.
        while let Some(binding) = unbound.last() {
            if self.socket.send(&ClientMessage::Unbind(*binding).to_bytes(), None).is_err() {
                break;
            }
            unbound.pop();
        }
    }

    /// Notifies the server that a call is posted on an A-stack that no thread polls.
    ///
    /// The message is lost if the socket is full of messages that the server has not read, or if the kernel
    /// is short of memory. The caller therefore sends the message again at growing intervals until the server
    /// has taken the call. If this function sent the message again at once, the processors could be so busy
    /// that the server cannot read. If the socket was closed, the keeper detects that.
    #[cold]
    pub(crate) fn ring(&self, astack: u32) {
        let _ = self.try_ring(astack);
    }

    /// Rings as [`ring`](Self::ring) does. Returns false if the message was lost.
    pub(crate) fn try_ring(&self, astack: u32) -> bool {
        self.socket.send(&ring_bytes(astack), None).is_ok()
    }
}
