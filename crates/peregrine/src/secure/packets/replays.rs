//! Remembers the numbers of packets, so that a packet that was recorded is not taken again.

use core::sync::atomic::{AtomicU64, Ordering};

/// The numbers of one entry.
const BLOCK: u64 = 16;
const ENTRIES: usize = 64;

/// Which packets were taken. A packet is refused if it was taken before, or if it is older than packets that
/// took its place: at least the last 1,024 numbers are remembered, and more if few packets are checked.
///
/// Each entry is one word, so that no lock is needed: 16 bits for the numbers of a block, and above them the
/// number of the block. Entry `b % 64` has block `b`.
#[derive(Debug)]
pub(super) struct Replays([AtomicU64; ENTRIES]);

impl Replays {
    pub(super) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; ENTRIES])
    }

    /// Returns whether the packet with this number may be taken, and remembers the number. Of two threads
    /// with the same number, one gets `true`.
    pub(super) fn is_new(&self, number: u64) -> bool {
        let (block, bit) = (number / BLOCK, 1 << (number % BLOCK));
        let entry = &self.0[block as usize % ENTRIES];
        let mark = |old: u64| {
            let known = old >> BLOCK;
            match known.cmp(&block) {
                core::cmp::Ordering::Less => Some(block << BLOCK | bit),
                core::cmp::Ordering::Equal if old & bit == 0 => Some(old | bit),
                _ => None,
            }
        };
        // SYNC: no other memory is published by this word.
        entry.fetch_update(Ordering::Relaxed, Ordering::Relaxed, mark).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_number_is_new_twice(numbers in proptest::collection::vec(0..3000u64, 1..400)) {
            let (replays, mut taken) = (Replays::new(), std::collections::BTreeSet::new());
            let mut largest = 0;
            for number in numbers {
                let is_new = replays.is_new(number);
                let is_recent = number + 1024 - BLOCK > largest;
                prop_assert!(!is_new || !taken.contains(&number));
                prop_assert!(is_new || taken.contains(&number) || !is_recent);
                largest = largest.max(number);
                if is_new {
                    taken.insert(number);
                }
            }
        }
    }

    #[test]
    fn one_of_two_threads_takes_a_number() {
        let replays = Replays::new();
        let take = || (0..1024).filter(|number| replays.is_new(*number)).count();
        let taken: usize = std::thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(take));
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(taken, 1024);
    }
}
