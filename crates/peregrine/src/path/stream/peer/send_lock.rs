//! The lock for sending on a connection. A thread can wait for the lock until a deadline.
//!
//! The lock also carries a mark, which shows that messages are queued. The thread that holds the lock, or
//! takes it next, sends these messages. A lock with the mark is not [free](SendLock::try_take). So a thread
//! that knows nothing of the queue cannot send a message between two parts of a queued one.

use core::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::sys;

const FREE: u32 = 0;
/// A thread holds the lock.
const TAKEN: u32 = 1;
/// Threads may be asleep, waiting for the lock.
const WANTED: u32 = 2;
/// Messages are queued.
const QUEUED: u32 = 4;

#[derive(Debug, Default)]
pub(in crate::path::stream) struct SendLock(AtomicU32);

/// A held lock. Dropping this value releases the lock.
#[derive(Debug)]
pub(in crate::path::stream) struct SendGuard<'a>(&'a SendLock);

impl SendLock {
    /// Takes the lock if it is free and no messages are queued.
    #[inline]
    pub(in crate::path::stream) fn try_take(&self) -> Option<SendGuard<'_>> {
        // SYNC: send lock, released in `give_back`.
        let order = Ordering::SeqCst;
        let taken = self.0.compare_exchange(FREE, TAKEN, order, order);
        taken.is_ok().then(|| SendGuard(self))
    }

    /// Takes the lock of a connection that never sets the mark. Returns `None` if the lock did not become
    /// free by the deadline.
    #[inline]
    pub(in crate::path::stream) fn take(&self, deadline: Option<Instant>) -> Option<SendGuard<'_>> {
        self.try_take().or_else(|| self.take_slowly(deadline).map(|(guard, _)| guard))
    }

    /// Takes the lock, and removes the mark. Returns the lock, and whether messages were queued. If so, the
    /// caller must send them. Returns `None` if the lock did not become free by the deadline.
    #[cold]
    pub(in crate::path::stream) fn take_slowly(
        &self,
        deadline: Option<Instant>,
    ) -> Option<(SendGuard<'_>, bool)> {
        // A thread that has slept keeps `WANTED` set when it takes the lock, because other threads may still
        // sleep.
        let mut slept = 0;
        loop {
            let seen = self.0.load(Ordering::Relaxed);
            if seen & TAKEN == 0 {
                if self.exchange(seen, seen & WANTED | TAKEN | slept) {
                    return Some((SendGuard(self), seen & QUEUED != 0));
                }
                continue;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            if seen & WANTED != 0 || self.exchange(seen, seen | WANTED) {
                sys::futex_wait(&self.0, seen | WANTED, left);
                slept = WANTED;
            }
        }
    }

    /// Takes the lock unless another thread holds it, and removes the mark. The caller must send the queued
    /// messages.
    #[cold]
    pub(in crate::path::stream) fn take_idle(&self) -> Option<SendGuard<'_>> {
        let mut seen = self.0.load(Ordering::SeqCst);
        while seen & TAKEN == 0 {
            if self.exchange(seen, seen & WANTED | TAKEN) {
                return Some(SendGuard(self));
            }
            seen = self.0.load(Ordering::SeqCst);
        }
        None
    }

    /// Marks that a message was queued. Returns the lock if this thread must send the queue. Otherwise
    /// another thread sends it: the holder of the lock, the thread that has set the mark before, or the
    /// keeper, which watches for space in the socket.
    #[cold]
    pub(in crate::path::stream) fn request(&self) -> Option<SendGuard<'_>> {
        // SYNC: queue. This thread has queued a message, and now sets the mark. A thread that takes the lock
        // with the mark reads the queue afterwards. A thread that gives the lock back sees the mark.
        let before = self.0.fetch_or(QUEUED, Ordering::SeqCst);
        if before & (TAKEN | QUEUED) != 0 { None } else { self.take_idle() }
    }

    /// Sets the mark. The caller holds the lock, and leaves messages in the queue.
    #[cold]
    pub(in crate::path::stream) fn leave_queued(&self) {
        self.0.fetch_or(QUEUED, Ordering::SeqCst);
    }

    fn exchange(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Gives the lock back in the state `to`. Returns whether messages were queued meanwhile.
    #[inline]
    fn give_back(&self, to: u32) -> bool {
        // SYNC: send lock, acquired in `try_take`, `take_slowly` and `take_idle`. The swap is sequentially
        // consistent because of cancellations. Another thread notes a cancellation, and then tries to take
        // the lock. This thread releases the lock, and its caller then looks for cancellations. So at least
        // one of the two threads sends the cancellation.
        let seen = self.0.swap(to, Ordering::SeqCst);
        seen != TAKEN && self.is_wanted(seen)
    }

    #[cold]
    fn is_wanted(&self, seen: u32) -> bool {
        if seen & WANTED != 0 {
            sys::futex_wake_one(&self.0);
        }
        seen & QUEUED != 0
    }
}

impl SendGuard<'_> {
    /// Releases the lock. Returns whether messages were queued meanwhile: the caller must then
    /// [request](SendLock::request) that they are sent.
    #[inline]
    pub(in crate::path::stream) fn release(self) -> bool {
        let lock = self.0;
        core::mem::forget(self);
        lock.give_back(FREE)
    }

    /// Releases the lock, and marks that messages are queued. A thread that waits for the lock sends them. If
    /// no thread waits, the keeper must send them.
    #[cold]
    pub(in crate::path::stream) fn release_queued(self) {
        let lock = self.0;
        core::mem::forget(self);
        lock.give_back(QUEUED);
    }
}

impl Drop for SendGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.give_back(FREE);
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

    #[test]
    fn lock_with_queued_messages_is_taken_only_by_a_thread_that_sends_them() {
        let lock = SendLock::default();
        let held = lock.try_take().unwrap();
        assert!(lock.request().is_none(), "the holder sends the queue");
        assert!(held.release());
        let requested = lock.request().expect("no other thread sends the queue");
        requested.release_queued();
        assert!(lock.try_take().is_none());
        assert!(lock.request().is_none(), "the keeper sends the queue");
        let (taken, queued) = lock.take_slowly(Some(Instant::now())).unwrap();
        assert!(queued && lock.take_idle().is_none());
        lock.leave_queued();
        assert!(taken.release());
        assert!(!lock.take_idle().unwrap().release());
        assert!(lock.try_take().is_some());
    }

    /// Threads queue messages while other threads take the lock to send their own messages. The test only
    /// counts the messages.
    #[test]
    fn every_queued_message_is_sent() {
        const EACH: u64 = 3000;
        let (lock, queued, sent) = (SendLock::default(), AtomicU64::new(0), AtomicU64::new(0));
        let send = |lock: &SendLock, first: Option<SendGuard<'_>>| {
            let mut held = first;
            while let Some(one) = held {
                sent.fetch_add(queued.swap(0, Ordering::SeqCst), Ordering::SeqCst);
                held = if one.release() { lock.request() } else { None };
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        queued.fetch_add(1, Ordering::SeqCst);
                        send(&lock, lock.request());
                    }
                });
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let held = lock.try_take().or_else(|| Some(lock.take_slowly(None)?.0));
                        send(&lock, held);
                    }
                });
            }
        });
        assert_eq!((sent.into_inner(), queued.into_inner()), (2 * EACH, 0));
        assert!(lock.try_take().is_some());
    }
}
