//! Estimates the time until an answer arrives. Timers are set from this estimate. The algorithm is
//! Jacobson's, as in TCP.

use super::time::{MILLISECOND, SECOND};

/// The shortest time that the client waits for an answer before it sends a probe. The server's thread may
/// need this long until it is scheduled.
pub(crate) const WAIT_MIN: u64 = 5 * MILLISECOND;
/// The longest time between two probes, unless the estimate is longer.
pub(crate) const WAIT_MAX: u64 = 200 * MILLISECOND;
/// The longest time that the client waits for an answer, even if the estimate is longer.
const WAIT_LONGEST: u64 = 3 * SECOND;
/// The longest wait for late packets.
const ALLOWANCE_MAX: u64 = 50 * MILLISECOND;
/// The margin for late answers is at least the smoothed round-trip time divided by this number.
const ANSWER_MARGIN: u64 = 16;

/// If a packet of the server arrived at most this long before a call, the client begins the call at once. It
/// does not ask first whether the server knows the handle.
const FRESH_MIN: u64 = 10 * MILLISECOND;
/// The same limit as [`FRESH_MIN`], but as a number of round trips. The longer of the two limits applies.
/// Asking takes one round trip, which is short compared with a pause of this length.
const FRESH_ROUND_TRIPS: u64 = 32;

/// The smoothed round-trip time and its variation, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    smoothed: u64,
    variation: u64,
    /// The shortest [`wait`](Self::wait).
    least: u64,
}

impl Rtt {
    /// Makes an estimate from the first round trip.
    pub(crate) fn new(first: u64) -> Self {
        let first = first.min(10 * SECOND);
        Self { smoothed: first, variation: first / 2, least: WAIT_MIN }
    }

    /// Sets the shortest wait, in nanoseconds. The wait is at least [`WAIT_MIN`] and at most ten seconds, so
    /// it may exceed [`WAIT_LONGEST`].
    pub(crate) fn set_wait_min(&mut self, nanoseconds: u64) {
        self.least = nanoseconds.clamp(WAIT_MIN, 10 * SECOND);
    }

    /// Notes that a packet was answered after `nanoseconds`.
    #[inline]
    pub(crate) fn sample(&mut self, nanoseconds: u64) {
        let sample = nanoseconds.min(10 * SECOND);
        let difference = self.smoothed.abs_diff(sample);
        self.variation = self.variation - self.variation / 4 + difference / 4;
        self.smoothed = self.smoothed - self.smoothed / 8 + sample / 8;
    }

    /// Returns how long the client waits for an answer before it sends a probe.
    #[inline]
    pub(crate) fn wait(&self) -> u64 {
        self.estimate().max(self.least)
    }

    /// Returns the longest time between two unanswered probes. A client sends ten probes before it presumes a
    /// server dead, so this interval need not allow for as much variation as the first wait.
    #[inline]
    pub(crate) fn probe_interval_max(&self) -> u64 {
        (self.smoothed + 2 * self.variation).clamp(WAIT_MAX, WAIT_LONGEST)
    }

    /// Returns the usual time until an answer, plus a margin. A probe is not repeated before that time. The
    /// margin is at least a fixed part of the round-trip time, because the variation is zero if all answers
    /// take the same time.
    pub(crate) fn expected_answer(&self) -> u64 {
        let margin = (2 * self.variation).max(self.smoothed / ANSWER_MARGIN);
        (self.smoothed + margin).min(WAIT_LONGEST)
    }

    #[inline]
    fn estimate(&self) -> u64 {
        (self.smoothed + 4 * self.variation).clamp(WAIT_MIN, WAIT_LONGEST)
    }

    /// Returns a time in nanoseconds. If the last packet of the server arrived within this time, the client
    /// begins a call without asking first whether the server knows the handle.
    #[inline]
    pub(crate) fn trusted_for(&self) -> u64 {
        (self.smoothed * FRESH_ROUND_TRIPS).max(FRESH_MIN)
    }

    /// Returns how long to wait for a missing packet that is perhaps only late.
    pub(crate) fn reorder_allowance(&self) -> u64 {
        (self.smoothed / 4).min(ALLOWANCE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_follows_samples_and_is_bounded() {
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
