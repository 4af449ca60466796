//! Counts the threads that still hold the service of a socket.

use std::time::Duration;

use crate::sync::{Condvar, Mutex};

/// The threads that have not released the service. A socket is closed when the last of them has released it.
/// Without this count, a server that has just stopped could still occupy its port.
#[derive(Default)]
pub(super) struct Living {
    threads: Mutex<u32>,
    ended: Condvar,
}

impl Living {
    /// Counts a thread that is about to start.
    pub(super) fn begin(&self) {
        *self.threads.lock() += 1;
    }

    /// Notes that a thread has released the service, or has not started.
    pub(super) fn end(&self) {
        *self.threads.lock() -= 1;
        self.ended.notify_all();
    }

    /// Waits until no thread has the service. Returns false if the time `limit` passes before that.
    pub(super) fn wait(&self, limit: Duration) -> bool {
        let any = |threads: &mut u32| *threads > 0;
        let (threads, _) = self.ended.wait_timeout_while(self.threads.lock(), limit, any);
        *threads == 0
    }
}
