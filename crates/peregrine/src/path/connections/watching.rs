//! [`Watching`]: the keeper's watch of a connection.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::keeper::{Next, Watch};
use crate::sync::{Mutex, MutexGuard, Rank};

/// The shortest interval between two checks by which the keeper finds procedures that take long.
pub(in crate::path) const LOOK: Duration = Duration::from_millis(5);
/// The longest interval between two checks by which the keeper finds procedures that take long.
pub(in crate::path) const LOOK_MAX: Duration = Duration::from_millis(80);

/// The keeper's watch of a connection.
#[derive(Default)]
pub(in crate::path) struct Watching {
    /// `None` after the connection has ended.
    watch: OnceLock<Mutex<Option<Watch>>>,
    /// The number of checks that the keeper has made since bytes last arrived.
    looks: AtomicU64,
}

impl Watching {
    /// Begins to watch.
    pub(in crate::path) fn begin(&self, watch: Watch) {
        let _ = self.watch.set(Mutex::ranked(Rank::ClientWatch, Some(watch)));
    }

    #[track_caller]
    fn watch(&self) -> Option<MutexGuard<'_, Option<Watch>>> {
        Some(self.watch.get()?.lock())
    }

    /// Ends the watch.
    pub(in crate::path) fn end(&self) {
        // Dropping the watch takes a lock of the keeper. So the watch is first taken out of the mutex, and
        // dropped after the mutex is released.
        let watch = self.watch().and_then(|mut watch| watch.take());
        drop(watch);
    }

    /// Schedules a check by the keeper after the time `after`.
    pub(in crate::path) fn remind(&self, after: Duration) {
        if let Some(watch) = self.watch().as_deref().and_then(Option::as_ref) {
            watch.remind(after);
        }
    }

    /// Lets the keeper watch the socket again.
    pub(in crate::path) fn again(&self) {
        if let Some(watch) = self.watch().as_deref().and_then(Option::as_ref) {
            watch.rearm();
        }
    }

    /// Notes that bytes have arrived.
    pub(in crate::path) fn note_arrival(&self) {
        self.looks.store(0, Ordering::Relaxed);
    }

    /// Returns when the keeper must next check whether a procedure takes long.
    pub(in crate::path) fn next_look(&self) -> Next {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed).min(8) as u32;
        Next::SleepAndTick((LOOK * 2u32.pow(looks)).min(LOOK_MAX))
    }
}

/// Returns what the keeper does with a connection from which no bytes arrive. `patience` is how much longer
/// an incomplete message of the connection may take. It is `None` if no incomplete message uses memory.
/// Returns `None` if the connection must end: its message has held memory for too long, and `is_short`
/// returns true because other connections need memory.
pub(in crate::path) fn next_of_stalled(
    patience: Option<Duration>,
    is_short: impl FnOnce() -> bool,
) -> Option<Next> {
    /// How often the keeper checks a message that has held memory for too long, while no other connection
    /// waits for memory.
    const AGAIN: Duration = Duration::from_secs(1);
    match patience {
        None => Some(Next::Sleep),
        Some(left) if !left.is_zero() => Some(Next::SleepAndTick(left)),
        Some(_) => (!is_short()).then_some(Next::SleepAndTick(AGAIN)),
    }
}
