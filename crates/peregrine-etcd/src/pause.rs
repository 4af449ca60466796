//! Pauses between attempts: each longer than the one before, and random, so that the clients of a cluster
//! that comes back do not all come at once.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

/// The lengths of the pauses.
pub(crate) struct Pause {
    first: Duration,
    longest: Duration,
    current: Duration,
}

impl Pause {
    /// The first pause is at most `first`, and none is longer than `longest`.
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, current: first }
    }

    /// Begins with the first pause again.
    pub(crate) const fn reset(&mut self) {
        self.current = self.first;
    }

    /// Returns the next pause: at least a half of a length that doubles each time, and at most this length.
    pub(crate) fn next(&mut self) -> Duration {
        let length = self.current;
        self.current = (length * 2).min(self.longest);
        length / 2 + random_part(length / 2)
    }
}

/// Returns a random time that is shorter than `length`.
pub(crate) fn random_part(length: Duration) -> Duration {
    length.mul_f64((random() >> 11) as f64 / (1u64 << 53) as f64)
}

/// Returns a random number.
pub(crate) fn random() -> u64 {
    // `RandomState` has other keys for each value.
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_random_and_bounded() {
        let (first, longest) = (Duration::from_millis(200), Duration::from_secs(5));
        let mut pause = Pause::new(first, longest);
        for _ in 0..2 {
            let mut length = first;
            for _ in 0..100 {
                let next = pause.next();
                assert!(next >= length / 2 && next <= length, "{next:?} of {length:?}");
                length = (length * 2).min(longest);
            }
            assert_eq!(length, longest);
            assert_ne!(pause.next(), pause.next());
            pause.reset();
        }
    }

    #[test]
    fn clients_that_begin_together_are_spread_over_the_pause() {
        let length = Duration::from_secs(1);
        let pauses: Vec<_> = (0..1000).map(|_| Pause::new(length, length).next()).collect();
        // Each tenth of the second half of a pause gets 100 of 1000 clients on average. The probability that
        // one gets none is below 10^-45.
        for tenth in 0..10 {
            let from = length / 2 + length * tenth / 20;
            let within = |one: &&Duration| (from..from + length / 20).contains(*one);
            assert!(pauses.iter().filter(within).count() > 0, "none after {from:?}");
        }
    }
}
