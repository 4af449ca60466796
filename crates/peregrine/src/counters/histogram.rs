//! Histograms of how long calls took. They have eight buckets for each power of two, so the width of a bucket
//! is at most an eighth of the times in the bucket.

/// The number of bits after the highest bit of a time that select the bucket of the time. The position of the
/// highest bit selects it, too.
const FINE: u32 = 3;
/// All times of more than this number of bits, in nanoseconds, are in the last bucket. 36 bits are 68
/// seconds.
const BITS: u32 = 36;
/// The number of buckets.
pub(super) const BUCKETS: usize = ((BITS - FINE + 1) << FINE) as usize;

/// Returns the number of the bucket of a time in nanoseconds.
#[inline]
pub(super) const fn bucket_of(ns: u64) -> usize {
    if ns < 1 << FINE {
        return ns as usize;
    }
    let high = u64::BITS - 1 - ns.leading_zeros();
    let octave = high - FINE + 1;
    let within = (ns >> (high - FINE)) & ((1 << FINE) - 1);
    let bucket = ((octave << FINE) as u64 + within) as usize;
    if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
}

/// Returns the shortest time of a bucket, and the shortest time of the next bucket.
pub(super) const fn bounds(bucket: usize) -> (u64, u64) {
    (floor(bucket), floor(bucket + 1))
}

const fn floor(bucket: usize) -> u64 {
    let (octave, within) = ((bucket >> FINE) as u32, (bucket & ((1 << FINE) - 1)) as u64);
    if octave == 0 { within } else { (1 << FINE | within) << (octave - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_its_bucket_and_no_bucket_is_wide() {
        let mut last = 0;
        for ns in (0..5000).chain((13..37).flat_map(|bits| (1 << bits) - 1..(1 << bits) + 2)) {
            let bucket = bucket_of(ns);
            assert!(bucket >= last && bucket < BUCKETS, "{ns}");
            last = bucket;
            let (from, to) = bounds(bucket);
            assert!((from..to).contains(&ns) || bucket == BUCKETS - 1, "{ns} in {from}..{to}");
            assert!(to - from == 1 || (to - from) * 8 <= from, "{from}..{to} is wide");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(bounds(BUCKETS - 1).1, 1 << BITS);
    }
}
