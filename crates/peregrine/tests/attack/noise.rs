//! Reproducible random numbers, with a preference for values that are likely to do harm.

/// Marsaglia's generator xorshift64*, which gives the same numbers on every machine.
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

    /// Returns a number below `end`.
    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % if end == 0 { 1 } else { end }
    }

    /// Returns true with a probability of one in `times`.
    pub(crate) const fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// Returns a 32-bit number. Numbers that often cause faults are more frequent: small numbers, powers of
    /// two and their neighbours, and numbers near `about`.
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
