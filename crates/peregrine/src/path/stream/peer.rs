//! The parts that the client and the server both use: sending, the lock for sending, and the clock.

use core::time::Duration;
use std::sync::OnceLock;
use std::time::Instant;

pub(super) mod send_lock;
pub(super) mod sending;

/// Returns the time since a fixed moment of this process. The protocol measures all times in this way.
pub(super) fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
