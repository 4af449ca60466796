//! [`Spares`]: which idle threads of a group are not needed.

use std::time::{Duration, Instant};

use super::admission::LINGER;

/// Finds out how many idle threads of a group are not needed.
///
/// A thread that has been idle for [`LINGER`] ends. But if the idle threads take turns, each of them is woken
/// from time to time, although a few threads would suffice. So the group also notes the smallest number of
/// threads that were idle at one time in a period. That number of threads was never needed in the period, so
/// that number of threads end.
///
/// All functions are called under the lock of the group.
#[derive(Debug)]
pub(crate) struct Spares {
    /// The smallest number of idle threads since the period began.
    fewest: usize,
    began: Instant,
    /// The number of threads that were not needed in the last period, and have not ended yet.
    surplus: usize,
}

impl Default for Spares {
    fn default() -> Self {
        Self { fewest: 0, began: Instant::now(), surplus: 0 }
    }
}

impl Spares {
    /// Notes that only `idle` threads are idle now.
    pub(crate) fn note_idle(&mut self, idle: usize) {
        self.fewest = self.fewest.min(idle);
    }

    /// Returns whether a thread that has nothing to do must end now, instead of becoming idle. `idle` is the
    /// number of other threads that are idle.
    pub(crate) fn must_end(&mut self, idle: usize) -> bool {
        // If no other thread is idle, this period has no surplus of threads, so the clock need not be read.
        self.note_idle(idle);
        idle > 0 && self.must_end_at(idle, Instant::now(), LINGER)
    }

    fn must_end_at(&mut self, idle: usize, now: Instant, period: Duration) -> bool {
        if now.duration_since(self.began) >= period {
            (self.surplus, self.fewest, self.began) = (self.fewest, idle, now);
        }
        self.surplus = self.surplus.min(idle);
        let ends = self.surplus > 0;
        self.surplus -= usize::from(ends);
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(1);

    /// Simulates `threads` threads for 1,000 turns, which take ten periods. In each turn, `busy(turn)` of the
    /// threads work. Returns how many threads are left.
    fn left(mut threads: usize, busy: impl Fn(u32) -> usize) -> usize {
        let start = Instant::now();
        let mut spares = Spares { fewest: 0, began: start, surplus: 0 };
        for turn in 0..1000 {
            let now = start + PERIOD / 100 * turn;
            spares.note_idle(threads.saturating_sub(busy(turn)));
            if spares.must_end_at(threads - 1, now, PERIOD) {
                threads -= 1;
            }
        }
        threads
    }

    #[test]
    fn threads_that_take_turns_end_unless_they_are_needed() {
        assert_eq!(left(20, |_| 1), 1);
        assert_eq!(left(20, |_| 3), 3);
        assert_eq!(left(20, |turn| if turn % 50 == 0 { 12 } else { 1 }), 12);
        assert_eq!(left(20, |_| 20), 20);
    }

    #[test]
    fn last_thread_does_not_end() {
        let mut spares = Spares::default();
        for _ in 0..3 {
            assert!(!spares.must_end(0));
        }
    }
}
