//! The parts that the client and the server both use: sending, the lock for sending, and the clock.

use core::time::Duration;
use std::sync::OnceLock;
use std::time::Instant;

pub(super) mod send_lock;
pub(super) mod sending;

/// Returns the moment from which this process measures times.
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// Returns the time since a fixed moment of this process. The protocol measures all times in this way.
pub(super) fn now() -> Duration {
    start().elapsed()
}

/// Returns the time from the fixed moment of [`now`] to `moment`, or 0 if `moment` is earlier.
pub(super) fn time_of(moment: Instant) -> Duration {
    moment.saturating_duration_since(start())
}

/// Returns the moment that is `time` after the fixed moment of [`now`]. Returns `None` if that moment is
/// beyond the range of the clock.
pub(super) fn moment_of(time: Duration) -> Option<Instant> {
    start().checked_add(time)
}
