//! Random numbers: for pauses between attempts, and for the choice between servers.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

/// Returns a random number from 0 to 1. It may be 0, and is less than 1.
pub(crate) fn fraction() -> f64 {
    // `RandomState` has other keys for each value.
    let random = RandomState::new().build_hasher().finish();
    (random >> 11) as f64 / (1u64 << 53) as f64
}

/// The lengths of pauses between attempts that fail. Each is longer than the one before, and random, so that
/// the clients of a name server that comes back do not all ask at once.
#[derive(Debug)]
pub(crate) struct Pause {
    current: Duration,
}

impl Pause {
    /// No pause is shorter.
    pub(crate) const SHORTEST: Duration = Duration::from_secs(1);
    /// The random part of the first pause is at most this long.
    const FIRST: Duration = Duration::from_secs(1);
    /// The random part of a pause is at most this long.
    const LONGEST: Duration = Duration::from_secs(30);

    pub(crate) const fn new() -> Self {
        Self { current: Self::FIRST }
    }

    /// Begins with the first pause again.
    pub(crate) const fn reset(&mut self) {
        self.current = Self::FIRST;
    }

    /// Returns the next pause. The limit of its random part doubles each time.
    pub(crate) fn next(&mut self) -> Duration {
        let length = self.current;
        self.current = (length * 2).min(Self::LONGEST);
        Self::SHORTEST + length.mul_f64(fraction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_random_and_bounded() {
        let mut pause = Pause::new();
        assert!(pause.next() <= Pause::SHORTEST + Pause::FIRST);
        let later: Vec<_> = (0..100).map(|_| pause.next()).collect();
        let bounds = Pause::SHORTEST..=Pause::SHORTEST + Pause::LONGEST;
        assert!(later.iter().all(|one| bounds.contains(one)));
        assert!(later.iter().any(|one| *one > Pause::SHORTEST + Pause::FIRST));
        assert_ne!(later[50], later[51]);
        pause.reset();
        assert!(pause.next() <= Pause::SHORTEST + Pause::FIRST);
    }
}
