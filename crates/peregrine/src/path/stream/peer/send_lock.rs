//! The lock for sending on a connection. A thread can wait for the lock until a deadline.

use core::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::sys;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// A thread holds the lock, and other threads may sleep until it is free.
const WANTED: u32 = 2;

#[derive(Debug, Default)]
pub(in crate::path::stream) struct SendLock(AtomicU32);

/// A held lock. Dropping this value releases the lock.
#[derive(Debug)]
pub(in crate::path::stream) struct SendGuard<'a>(&'a SendLock);

impl SendLock {
    /// Takes the lock if it is free.
    #[inline]
    pub(in crate::path::stream) fn try_take(&self) -> Option<SendGuard<'_>> {
        // SYNC: send lock, released in `drop`.
        let order = Ordering::SeqCst;
        let taken = self.0.compare_exchange(FREE, TAKEN, order, order);
        taken.is_ok().then(|| SendGuard(self))
    }

    /// Takes the lock. Returns `None` if the lock did not become free by the deadline.
    #[inline]
    pub(in crate::path::stream) fn take(&self, deadline: Option<Instant>) -> Option<SendGuard<'_>> {
        self.try_take().or_else(|| self.take_slowly(deadline))
    }

    #[cold]
    fn take_slowly(&self, deadline: Option<Instant>) -> Option<SendGuard<'_>> {
        // A thread that has slept leaves the state at `WANTED`, because other threads may still sleep.
        while self.0.swap(WANTED, Ordering::Acquire) != FREE {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            sys::futex_wait(&self.0, WANTED, left);
        }
        Some(SendGuard(self))
    }
}

impl Drop for SendGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SYNC: send lock, acquired in `try_take` and `take_slowly`. The swap is sequentially consistent, so
        // that it is ordered with cancellations. A thread notes a cancellation before it tries to take the
        // lock.
        if self.0.0.swap(FREE, Ordering::SeqCst) == WANTED {
            sys::futex_wake_one(&self.0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    #[test]
    fn one_thread_at_a_time_holds_the_lock() {
        let (lock, sum) = (SendLock::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let _held = lock.take(None).unwrap();
                        let now = sum.load(Ordering::Relaxed);
                        std::hint::spin_loop();
                        sum.store(now + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 8000);
    }

    #[test]
    fn deadline_ends_the_wait() {
        let lock = SendLock::default();
        let held = lock.take(None).unwrap();
        assert!(lock.try_take().is_none());
        let moment = Instant::now() + Duration::from_millis(10);
        assert!(lock.take(Some(moment)).is_none());
        assert!(Instant::now() >= moment);
        drop(held);
        assert!(lock.take(Some(moment)).is_some(), "a free lock is taken without waiting");
    }
}
