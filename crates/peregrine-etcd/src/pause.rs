//! Pauses between attempts: each longer than the one before, and random, so that the clients of a cluster that
//! comes back do not all come at once.

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

    /// Returns the next pause: a random part of a length that doubles each time.
    pub(crate) fn next(&mut self) -> Duration {
        let length = self.current;
        self.current = (length * 2).min(self.longest);
        // `RandomState` has other keys for each value.
        let random = RandomState::new().build_hasher().finish();
        length.mul_f64((random >> 11) as f64 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_random_and_bounded() {
        let (first, longest) = (Duration::from_millis(50), Duration::from_secs(5));
        let mut pause = Pause::new(first, longest);
        assert!(pause.next() <= first);
        let later: Vec<_> = (0..100).map(|_| pause.next()).collect();
        assert!(later.iter().all(|one| *one <= longest));
        assert!(later.iter().any(|one| *one > first));
        assert_ne!(later[50], later[51]);
        pause.reset();
        assert!(pause.next() <= first);
    }
}
