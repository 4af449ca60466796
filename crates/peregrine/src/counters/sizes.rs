//! Histograms of how many bytes the arguments and the results of calls had. They have a bucket for each power
//! of two, one of which is divided where a message no longer fits one packet.

use core::ops::RangeInclusive;

use crate::limits::ONE_PACKET_BYTES;

/// The bucket with the largest sizes that fit one packet.
const LAST_OF_ONE_PACKET: usize = bits(ONE_PACKET_BYTES as u64);
/// The number of buckets. The last one also has all larger sizes.
pub(crate) const SIZE_BUCKETS: usize = 34;

const fn bits(bytes: u64) -> usize {
    (u64::BITS - bytes.leading_zeros()) as usize
}

/// Returns the number of the bucket of a size in bytes.
#[inline]
pub(crate) const fn size_bucket(bytes: u64) -> usize {
    let bucket = bits(bytes) + (bytes > ONE_PACKET_BYTES as u64) as usize;
    if bucket < SIZE_BUCKETS { bucket } else { SIZE_BUCKETS - 1 }
}

/// Returns the largest size of a bucket.
const fn largest(bucket: usize) -> u64 {
    if bucket == LAST_OF_ONE_PACKET {
        return ONE_PACKET_BYTES as u64;
    }
    if bucket >= SIZE_BUCKETS - 1 {
        return u64::MAX;
    }
    let bits = if bucket > LAST_OF_ONE_PACKET { bucket - 1 } else { bucket };
    (1 << bits) - 1
}

/// How many bytes the arguments, or the results, of calls had.
///
/// ```
/// use peregrine::counters::Sizes;
///
/// let none = Sizes::default();
/// assert_eq!((none.calls(), none.in_one_packet(), none.percentile(0.5)), (0, 0, None));
/// assert_eq!(none.buckets().map(|(bytes, _)| *bytes.end()).take(4).collect::<Vec<_>>(), [0, 1, 3, 7]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct Sizes {
    /// The number of calls in each bucket, up to the last bucket that is not empty.
    pub(super) counts: Vec<u64>,
}

impl Sizes {
    pub(super) fn of(counts: &[u64]) -> Self {
        let used = counts.iter().rposition(|count| *count != 0).map_or(0, |last| last + 1);
        Self { counts: counts[..used].to_vec() }
    }

    /// Returns the number of calls.
    pub fn calls(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the number of calls whose bytes fit one packet of an ordinary network
    /// ([`ONE_PACKET_BYTES`]), on whichever path they came.
    pub fn in_one_packet(&self) -> u64 {
        let counts = self.counts.iter().take(LAST_OF_ONE_PACKET + 1);
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the buckets: the sizes in bytes of each, and its number of calls.
    pub fn buckets(&self) -> impl Iterator<Item = (RangeInclusive<u64>, u64)> + '_ {
        (0..SIZE_BUCKETS).map(|bucket| {
            let from = bucket.checked_sub(1).map_or(0, |before| largest(before) + 1);
            (from..=largest(bucket), self.counts.get(bucket).copied().unwrap_or(0))
        })
    }

    /// Returns a number of bytes that the fraction `part` of all calls did not exceed: the largest size of the
    /// bucket. Returns `None` if there were no calls.
    pub fn percentile(&self, part: f64) -> Option<u64> {
        let all = self.calls();
        let rank = ((all as f64 * part.clamp(0.0, 1.0)).ceil() as u64).clamp(1, all.max(1));
        let mut below = 0u64;
        let found = self.counts.iter().position(|count| {
            below = below.saturating_add(*count);
            below >= rank
        });
        found.map(largest)
    }

    /// Returns the sizes of the calls since the moment of `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.counts.iter().copied().chain(core::iter::repeat(0));
        let counts = self.counts.iter().zip(before);
        Self { counts: counts.map(|(now, before)| now.saturating_sub(before)).collect() }
    }

    /// Adds the counts of other sizes.
    pub(super) fn add(&mut self, other: &Self) {
        let longer = self.counts.len().max(other.counts.len());
        self.counts.resize(longer, 0);
        for (sum, more) in self.counts.iter_mut().zip(&other.counts) {
            *sum = sum.saturating_add(*more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_is_in_its_bucket_and_one_bound_is_that_of_a_packet() {
        let none = Sizes::default();
        let ranges: Vec<_> = none.buckets().map(|(range, _)| range).collect();
        assert_eq!(ranges.len(), SIZE_BUCKETS);
        let packet = ONE_PACKET_BYTES as u64;
        let powers = (0..40).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits]);
        for bytes in powers.chain([packet, packet + 1, u64::MAX]) {
            let bucket = size_bucket(bytes);
            assert!(ranges[bucket].contains(&bytes), "{bytes} in {:?}", ranges[bucket]);
        }
        assert_ne!(size_bucket(packet), size_bucket(packet + 1));
        for pair in ranges.windows(2) {
            assert_eq!(pair[0].end() + 1, *pair[1].start());
        }
    }

    #[test]
    fn sizes_are_added_up_and_compared() {
        let of = |sizes: &[u64]| {
            let mut counts = [0; SIZE_BUCKETS];
            sizes.iter().for_each(|bytes| counts[size_bucket(*bytes)] += 1);
            Sizes::of(&counts)
        };
        let few = of(&[0, 100, 1408]);
        let mut all = of(&[0, 100, 1408, 1409, 70_000]);
        assert_eq!((all.calls(), all.in_one_packet()), (5, 3));
        assert_eq!(all.since(&few), of(&[1409, 70_000]));
        assert_eq!(
            [0.2, 0.4, 0.6, 0.8, 1.0].map(|part| all.percentile(part).unwrap()),
            [0, 127, 1408, 2047, 131_071]
        );
        all.add(&few);
        assert_eq!((all.calls(), all.in_one_packet()), (8, 6));
        // Further buckets, which only a hostile server sends, count as the last one.
        let hostile = Sizes { counts: vec![u64::MAX; SIZE_BUCKETS + 9] };
        assert_eq!(hostile.percentile(1.0), Some(0));
        assert_eq!((hostile.calls(), hostile.in_one_packet()), (u64::MAX, u64::MAX));
    }
}
