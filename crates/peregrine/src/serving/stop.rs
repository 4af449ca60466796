//! Stopping a server: who asks for it, and how long it waits for procedures that run.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::keeper::{Next, Watched};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::sys;

/// Stops a server from anywhere.
#[derive(Clone)]
pub struct StopHandle(Arc<Stop>);

impl StopHandle {
    pub(crate) fn new(stop: &Arc<Stop>) -> Self {
        Self(Arc::clone(stop))
    }

    /// Tells the server to stop; returns at once.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// Whether a server is to stop.
#[derive(Default)]
pub(crate) struct Stop {
    told: Mutex<Asked>,
    changed: Condvar,
}

/// What a server was asked to do.
#[derive(Default)]
struct Asked {
    stops: bool,
    /// Signals that have come: the first asks for an orderly stop, the second for one at once.
    signals: u64,
}

impl Stop {
    fn told(&self) -> MutexGuard<'_, Asked> {
        self.told.lock()
    }

    fn stop(&self) {
        self.told().stops = true;
        self.changed.notify_all();
    }

    fn signalled(&self, signals: u64) {
        let mut told = self.told();
        (told.stops, told.signals) = (true, told.signals.saturating_add(signals));
        drop(told);
        self.changed.notify_all();
    }

    /// Whether running procedures are not to be waited for.
    fn is_urgent(&self) -> bool {
        self.told().signals >= 2
    }

    /// Waits until the server is told to stop. Returns whether a signal was the reason.
    pub(crate) fn wait(&self) -> bool {
        let mut told = self.told();
        while !told.stops {
            told = self.changed.wait(told);
        }
        told.signals > 0
    }
}

/// How long a stopping server waits for procedures that run.
pub(crate) struct Drain {
    begun: Instant,
    limit: Duration,
    stop: Arc<Stop>,
}

impl Drain {
    /// How long a waiter sleeps before it asks again how much time is left.
    const SLICE: Duration = Duration::from_millis(20);

    pub(crate) fn new(limit: Duration, stop: Arc<Stop>) -> Self {
        Self { begun: Instant::now(), limit, stop }
    }

    /// One that waits for nothing.
    #[cfg(test)]
    pub(crate) fn over() -> Self {
        Self::new(Duration::ZERO, Arc::default())
    }

    /// Returns how long to sleep before the next call of this function. `None`: the drain has ended.
    pub(crate) fn next_wait(&self) -> Option<Duration> {
        let left = self.limit.saturating_sub(self.begun.elapsed());
        let over = left.is_zero() || self.stop.is_urgent();
        (!over).then(|| left.min(Self::SLICE))
    }
}

/// The signals that stop a server.
pub(crate) struct Signals {
    event: BorrowedFd<'static>,
    stop: Arc<Stop>,
}

impl Signals {
    /// SIGINT and SIGTERM, which from now on do not end the process.
    pub(crate) fn new(stop: Arc<Stop>) -> io::Result<Self> {
        Ok(Self { event: sys::on_stop_signals()?, stop })
    }
}

impl Watched for Signals {
    fn fd(&self) -> BorrowedFd<'_> {
        self.event
    }

    fn ready(self: Arc<Self>) -> Next {
        // Taken, so that a server which comes later is not stopped by it. Signals that came together
        // are counted in one number.
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
