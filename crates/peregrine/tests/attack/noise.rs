//! Random numbers that can be repeated, and the values that hurt most.

/// A generator of Marsaglia's (xorshift, multiplied): small, and the same everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % if end == 0 { 1 } else { end }
    }

    /// True once in `times`.
    pub(crate) const fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// A 32-bit number of which some are more harmful than others: small ones, powers of two and
    /// their neighbours, those near `about`, and anything.
    pub(crate) fn word(&mut self, about: u32) -> u32 {
        match self.below(6) {
            0 => self.below(17) as u32,
            1 => (1u32 << self.below(32)).wrapping_add(self.below(3) as u32).wrapping_sub(1),
            2 => about.wrapping_add(self.below(3) as u32).wrapping_sub(1),
            3 => u32::MAX - self.below(17) as u32,
            4 => about,
            _ => self.next() as u32,
        }
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}
