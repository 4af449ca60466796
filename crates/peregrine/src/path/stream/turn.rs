//! `Turn`: whose turn it is to send on a connection. A lock that one waits for until a moment.

use core::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::sys;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and somebody sleeps until it is not.
const WANTED: u32 = 2;

#[derive(Debug, Default)]
pub(super) struct Turn(AtomicU32);

/// The turn; passed on when dropped.
#[derive(Debug)]
pub(super) struct Held<'a>(&'a Turn);

impl Turn {
    /// The turn, if it is nobody's.
    #[inline]
    pub(super) fn try_take(&self) -> Option<Held<'_>> {
        // SYNC: turn, released in `drop`.
        let order = Ordering::SeqCst;
        let taken = self.0.compare_exchange(FREE, TAKEN, order, order);
        taken.is_ok().then(|| Held(self))
    }

    /// Waits for the turn until `deadline`; `None` if it did not come.
    #[inline]
    pub(super) fn take(&self, deadline: Option<Instant>) -> Option<Held<'_>> {
        self.try_take().or_else(|| self.take_slowly(deadline))
    }

    #[cold]
    fn take_slowly(&self, deadline: Option<Instant>) -> Option<Held<'_>> {
        // Whoever has slept leaves it wanted: others may sleep too.
        while self.0.swap(WANTED, Ordering::Acquire) != FREE {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            sys::futex_wait(&self.0, WANTED, left);
        }
        Some(Held(self))
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        // SYNC: turn, acquired where it is taken; in one order with what those say who take it.
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
    fn one_at_a_time_has_the_turn() {
        let (turn, sum) = (Turn::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let _held = turn.take(None).unwrap();
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
    fn a_deadline_ends_the_wait() {
        let turn = Turn::default();
        let held = turn.take(None).unwrap();
        assert!(turn.try_take().is_none());
        let moment = Instant::now() + Duration::from_millis(10);
        assert!(turn.take(Some(moment)).is_none());
        assert!(Instant::now() >= moment);
        drop(held);
        assert!(turn.take(Some(moment)).is_some(), "what is free is had without waiting");
    }
}
