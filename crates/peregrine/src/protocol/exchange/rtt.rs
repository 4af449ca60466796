//! How long an answer takes: the estimate that timers are made of (Jacobson's, as TCP has it).

use super::time::{MILLISECOND, SECOND};

/// Without an answer for less than this nothing is asked: a thread may not run for so long.
pub(crate) const WAIT_MIN: u64 = 5 * MILLISECOND;
/// An unanswered question is repeated after at most this, unless answers take longer.
pub(crate) const WAIT_MAX: u64 = 200 * MILLISECOND;
/// However long answers take, no answer is waited for longer.
const WAIT_LONGEST: u64 = 3 * SECOND;
/// Packets that overtook each other are that far apart at most, as far as we wait for it.
const ALLOWANCE_MAX: u64 = 50 * MILLISECOND;
/// An answer may take longer than the smoothed round trip by at least this part of it.
const ANSWER_MARGIN: u64 = 16;

/// A server that was heard of within this is not asked whether it is still there.
const FRESH_MIN: u64 = 10 * MILLISECOND;
/// The same in round trips, so that the question costs little beside the pause before it.
const FRESH_ROUND_TRIPS: u64 = 32;

/// Smoothed round-trip time and its variation, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    smoothed: u64,
    variation: u64,
    /// The shortest [`wait`](Self::wait).
    least: u64,
}

impl Rtt {
    /// With the first round trip as the estimate.
    pub(crate) fn new(first: u64) -> Self {
        let first = first.min(10 * SECOND);
        Self { smoothed: first, variation: first / 2, least: WAIT_MIN }
    }

    /// Sets how long to wait at least, if that is longer than [`WAIT_MIN`]; it may exceed [`WAIT_LONGEST`].
    pub(crate) fn set_wait_min(&mut self, nanoseconds: u64) {
        self.least = nanoseconds.clamp(WAIT_MIN, 10 * SECOND);
    }

    /// A packet was answered after so many nanoseconds.
    #[inline]
    pub(crate) fn sample(&mut self, nanoseconds: u64) {
        let sample = nanoseconds.min(10 * SECOND);
        let difference = self.smoothed.abs_diff(sample);
        self.variation = self.variation - self.variation / 4 + difference / 4;
        self.smoothed = self.smoothed - self.smoothed / 8 + sample / 8;
    }

    /// How long to wait for an answer before asking.
    #[inline]
    pub(crate) fn wait(&self) -> u64 {
        self.estimate().max(self.least)
    }

    /// How long after a question without an answer the next one comes, at most. Ten of them are waited
    /// for before a server is taken for dead, so each need not allow for as much variation as the first.
    #[inline]
    pub(crate) fn probe_interval_max(&self) -> u64 {
        (self.smoothed + 2 * self.variation).clamp(WAIT_MAX, WAIT_LONGEST)
    }

    /// How long an answer takes, as a rule: an unanswered question is not repeated before that. Where
    /// answers always take as long, the estimate alone allows for nothing.
    pub(crate) fn expected_answer(&self) -> u64 {
        let margin = (2 * self.variation).max(self.smoothed / ANSWER_MARGIN);
        (self.smoothed + margin).min(WAIT_LONGEST)
    }

    #[inline]
    fn estimate(&self) -> u64 {
        (self.smoothed + 4 * self.variation).clamp(WAIT_MIN, WAIT_LONGEST)
    }

    /// How long after an answer the server need not be asked whether it is still there.
    #[inline]
    pub(crate) fn trusted_for(&self) -> u64 {
        (self.smoothed * FRESH_ROUND_TRIPS).max(FRESH_MIN)
    }

    /// How long to wait for a packet that was perhaps only overtaken.
    pub(crate) fn reorder_allowance(&self) -> u64 {
        (self.smoothed / 4).min(ALLOWANCE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_and_is_bounded() {
        let mut rtt = Rtt::new(40 * MILLISECOND);
        assert_eq!(rtt.wait(), 120 * MILLISECOND);
        for _ in 0..100 {
            rtt.sample(40 * MILLISECOND);
        }
        assert!(rtt.wait() < 45 * MILLISECOND, "{rtt:?}");
        assert!(rtt.reorder_allowance().abs_diff(10 * MILLISECOND) < MILLISECOND);
        for _ in 0..100 {
            rtt.sample(50_000);
        }
        assert_eq!((rtt.wait(), rtt.probe_interval_max()), (WAIT_MIN, WAIT_MAX));
        for _ in 0..100 {
            rtt.sample(800 * MILLISECOND);
        }
        assert!((750..850).contains(&(rtt.probe_interval_max() / MILLISECOND)), "{rtt:?}");
        rtt.sample(u64::MAX);
        assert_eq!(rtt.wait(), WAIT_LONGEST);
        assert_eq!(rtt.reorder_allowance(), ALLOWANCE_MAX);
        let mut patient = Rtt::new(50_000);
        patient.set_wait_min(SECOND);
        assert_eq!((patient.wait(), patient.probe_interval_max()), (SECOND, WAIT_MAX));
        patient.set_wait_min(0);
        assert_eq!(patient.wait(), WAIT_MIN);
    }
}
