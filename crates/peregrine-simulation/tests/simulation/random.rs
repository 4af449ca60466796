//! The only source of randomness: one number, the seed, determines a whole run.

/// A pseudo-random number generator (xorshift with multiplication). The seed may be any number.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds must produce different runs.
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((mixed ^ (mixed >> 31)) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number in `0..end`, or 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11).checked_rem(end).unwrap_or(0)
    }

    pub(crate) fn range(&mut self, range: core::ops::Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// Returns true with a probability of `in_thousand` thousandths.
    pub(crate) fn chance(&mut self, in_thousand: u32) -> bool {
        self.below(1000) < u64::from(in_thousand)
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        core::array::from_fn(|_| (self.next() >> 32) as u8)
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}
