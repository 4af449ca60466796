//! [`Budget`]: how many calls a pool may repeat.
//!
//! A pool repeats failed calls at other servers. If all servers fail, repeated calls would multiply the load
//! at the worst time. So a pool may repeat a call for each five calls that it makes, and in addition a few per
//! second, so that a pool with few calls can repeat these.

use core::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::sync::Mutex;

/// How many calls allow one repetition.
const CALLS: u64 = 5;

/// What one repetition costs, in calls. A repetition is counted as a call, too, so it must pay for this count.
const COST: u64 = CALLS + 1;

/// The repetitions that are allowed in each second, however few calls there are.
const PER_SECOND: f64 = 10.0;

/// The largest number of repetitions that a pool saves.
const SAVED_MAX: u64 = 100;

/// How many calls a pool may repeat.
pub(super) struct Budget {
    /// The number of calls that were made, with their repetitions.
    calls: AtomicU64,
    saved: Mutex<Saved>,
}

/// The repetitions that a pool has saved.
struct Saved {
    /// What is saved, in calls. [`COST`] of them allow a repetition.
    credit: f64,
    /// The calls and the moment up to which they were counted.
    calls: u64,
    at: Instant,
}

impl Budget {
    pub(super) fn new(now: Instant) -> Self {
        let saved = Saved { credit: (SAVED_MAX * COST) as f64, calls: 0, at: now };
        Self { calls: AtomicU64::new(0), saved: Mutex::new(saved) }
    }

    /// Counts calls that are made. A repetition counts, too.
    #[cold]
    pub(super) fn made(&self, calls: u64) {
        self.calls.fetch_add(calls, Ordering::Relaxed);
    }

    /// Returns whether a call may be repeated now, and pays for the repetition.
    #[cold]
    pub(super) fn allows(&self, now: Instant) -> bool {
        let cost = COST as f64;
        let mut saved = self.saved.lock();
        let calls = self.calls.load(Ordering::Relaxed).max(saved.calls);
        let seconds = now.saturating_duration_since(saved.at).as_secs_f64();
        let new = (calls - saved.calls) as f64 + seconds * PER_SECOND * cost;
        let credit = (saved.credit + new).min(SAVED_MAX as f64 * cost);
        let allows = credit >= cost;
        let credit = if allows { credit - cost } else { credit };
        *saved = Saved { credit, calls, at: now.max(saved.at) };
        allows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    /// Returns how many repetitions are allowed at this moment.
    fn allowed(budget: &Budget, now: Instant) -> usize {
        (0..1000).take_while(|_| budget.allows(now)).count()
    }

    #[test]
    fn repetitions_are_a_share_of_the_calls() {
        let now = Instant::now();
        let budget = Budget::new(now);
        assert_eq!(allowed(&budget, now), 100, "what is saved at the start");
        assert_eq!(allowed(&budget, now), 0);
        // Each repetition is counted as a call, as the pool does.
        let repeated = |calls: u64| {
            budget.made(calls);
            (0..1000).take_while(|_| budget.allows(now).then(|| budget.made(1)).is_some()).count()
        };
        assert_eq!(repeated(64), 12);
        assert_eq!(repeated(2), 1, "parts of a repetition are kept");
        assert_eq!(repeated(199), 39);
    }

    #[test]
    fn time_allows_a_few_and_what_is_saved_is_bounded() {
        let now = Instant::now();
        let budget = Budget::new(now);
        assert_eq!(allowed(&budget, now), 100);
        assert_eq!(allowed(&budget, now + Duration::from_millis(500)), 5);
        budget.made(1_000_000);
        assert_eq!(allowed(&budget, now + Duration::from_secs(3600)), 100);
        assert!(!budget.allows(now), "an earlier moment counts as none");
    }
}
