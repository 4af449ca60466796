//! How a server is stopped: through a handle or by signals, and how long it waits for running procedures.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::keeper::{Next, Watched};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::sys;

/// A handle through which any thread can stop a server.
#[derive(Clone)]
pub struct StopHandle(Arc<Stop>);

impl StopHandle {
    pub(crate) fn new(stop: &Arc<Stop>) -> Self {
        Self(Arc::clone(stop))
    }

    /// Requests the server to stop, and returns at once.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// The request to stop a server.
#[derive(Default)]
pub(crate) struct Stop {
    state: Mutex<StopState>,
    changed: Condvar,
}

/// Whether the server was requested to stop, and how.
#[derive(Default)]
struct StopState {
    stops: bool,
    /// The number of received signals. The first requests an orderly stop, the second an immediate stop.
    signals: u64,
}

impl Stop {
    fn state(&self) -> MutexGuard<'_, StopState> {
        self.state.lock()
    }

    fn stop(&self) {
        self.state().stops = true;
        self.changed.notify_all();
    }

    fn signalled(&self, signals: u64) {
        let mut state = self.state();
        (state.stops, state.signals) = (true, state.signals.saturating_add(signals));
        drop(state);
        self.changed.notify_all();
    }

    /// Returns whether the server stops without waiting for running procedures.
    fn is_urgent(&self) -> bool {
        self.state().signals >= 2
    }

    /// Waits for a request to stop. Returns whether a signal was the reason.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.state();
        while !state.stops {
            state = self.changed.wait(state);
        }
        state.signals > 0
    }
}

/// The time for which a stopping server waits for running procedures.
pub(crate) struct Drain {
    begun: Instant,
    limit: Duration,
    stop: Arc<Stop>,
}

impl Drain {
    /// The longest time for which a waiting thread sleeps before it checks again for an immediate stop.
    const SLICE: Duration = Duration::from_millis(20);

    pub(crate) fn new(limit: Duration, stop: Arc<Stop>) -> Self {
        Self { begun: Instant::now(), limit, stop }
    }

    /// Returns a drain whose time has already passed.
    #[cfg(test)]
    pub(crate) fn over() -> Self {
        Self::new(Duration::ZERO, Arc::default())
    }

    /// Returns how long to sleep before the next call of this function. Returns `None` if the time has
    /// passed, or if an immediate stop was requested.
    pub(crate) fn next_wait(&self) -> Option<Duration> {
        let left = self.limit.saturating_sub(self.begun.elapsed());
        let over = left.is_zero() || self.stop.is_urgent();
        (!over).then(|| left.min(Self::SLICE))
    }
}

/// Receives the signals that stop a server.
pub(crate) struct Signals {
    event: BorrowedFd<'static>,
    stop: Arc<Stop>,
}

impl Signals {
    /// Catches SIGINT and SIGTERM. From now on, these signals do not end the process.
    pub(crate) fn new(stop: Arc<Stop>) -> io::Result<Self> {
        Ok(Self { event: sys::on_stop_signals()?, stop })
    }
}

impl Watched for Signals {
    fn fd(&self) -> BorrowedFd<'_> {
        self.event
    }

    fn ready(self: Arc<Self>) -> Next {
        // The read consumes the signals, so that they do not stop a later server. The read returns the number
        // of signals since the last read.
        let mut count = [0; 8];
        if rustix::io::read(self.event, &mut count).is_ok() {
            self.stop.signalled(u64::from_ne_bytes(count));
        }
        Next::Sleep
    }
}

impl core::fmt::Debug for StopHandle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("StopHandle")
    }
}
