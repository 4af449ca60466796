//! Futexes on words that processes share.

use core::sync::atomic::AtomicU32;
use core::time::Duration;

use rustix::thread::futex;

/// Sleeps while the word holds `value`: until woken, for `timeout` at most, or for no reason.
#[inline]
pub fn futex_wait(word: &AtomicU32, value: u32, timeout: Option<Duration>) {
    let limit = timeout.map(|timeout| rustix::time::Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    // Whatever the reason for coming back, the caller looks at the word again.
    let _ = futex::wait(word, futex::Flags::empty(), value, limit.as_ref());
}

/// Wakes everybody who sleeps on the word; returns how many there were.
#[inline]
pub fn futex_wake(word: &AtomicU32) -> usize {
    futex::wake(word, futex::Flags::empty(), i32::MAX.cast_unsigned()).unwrap_or(0)
}
