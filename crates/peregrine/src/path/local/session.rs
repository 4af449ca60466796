//! `Session`: the client's private knowledge of whether the server still lives.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::io;

use super::handshake::Request;
use crate::error::{CallError, Executed, Kind};
use crate::sys::{Process, Seqpacket};

const ALIVE: u32 = 0;
const ENDED: u32 = 1;
const CLOSED: u32 = 2;
const WITHDRAWN: u32 = 3;

/// The socket, the server's process, and how the session ended.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) socket: Seqpacket,
    pub(crate) process: Process,
    /// The truth of which the words in the region are hints.
    state: AtomicU32,
}

impl Session {
    pub(crate) const fn new(socket: Seqpacket, process: Process) -> Self {
        Self { socket, process, state: AtomicU32::new(ALIVE) }
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

    /// The socket was closed. A process that ends closes its sockets a moment before its handle
    /// tells so; with the handle one is certain that it runs nothing any more.
    pub(crate) fn close(&self) {
        const MOMENT: Duration = Duration::from_millis(20);
        let mut ended = self.process.ended();
        let until = std::time::Instant::now() + MOMENT;
        while !ended && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_micros(200));
            ended = self.process.ended();
        }
        let state = if ended { ENDED } else { CLOSED };
        let _ = self.state.compare_exchange(ALIVE, state, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Why a call failed whose session has ended; `taken` tells whether the server had taken it.
    #[cold]
    pub(super) fn failure(&self, taken: bool) -> CallError {
        let pid = self.process.pid;
        let (kind, certain, text) = match self.state.load(Ordering::Acquire) {
            ENDED => (Kind::ServerGone, true, format!("process {pid} has ended")),
            WITHDRAWN => (Kind::Withdrawn, true, format!("process {pid} stopped serving it")),
            CLOSED => (Kind::ServerGone, false, format!("process {pid} closed the session")),
            _ => (Kind::BadResult, false, format!("process {pid} wrote a word that means nothing")),
        };
        let executed = if certain && !taken { Executed::No } else { Executed::Maybe };
        CallError::new(kind, executed, text)
    }

    /// Tells the server that a call is posted where nobody looks.
    #[cold]
    pub(super) fn ring(&self, astack: u32) {
        let message = Request::Ring(astack).to_bytes();
        while self.is_alive() {
            match self.socket.send(&message, None) {
                // The server has more rings to read than its socket holds: it is alive but slow.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_micros(100));
                }
                // A closed session is the keeper's to notice.
                _ => return,
            }
        }
    }
}
