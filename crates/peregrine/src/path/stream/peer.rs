//! The parts that both ends of a connection use: sending, the lock for sending, and the time.

use core::time::Duration;
use std::sync::OnceLock;
use std::time::Instant;

pub(super) mod send_lock;
pub(super) mod sending;

/// Returns the time since a fixed moment, as the protocol measures it.
pub(super) fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
