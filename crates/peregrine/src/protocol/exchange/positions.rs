//! A set of positions within a bounded span. A position is the index of a piece of a message in the order of
//! sending. A receiver keeps the positions that arrived after the first missing one. A sender keeps the
//! missing positions.

/// The length of the range in which the positions of one set must be.
pub(crate) const SPAN: u32 = super::flow::WINDOW_MAX;
/// The length of the range for which the set allocates no memory.
const SPAN_SMALL: u32 = 1024;
const WORDS_SMALL: usize = SPAN_SMALL as usize / 64;
const WORDS: usize = SPAN as usize / 64;

/// A set of positions in `base..base + SPAN`, stored as the bits of a ring. The caller passes the base to
/// each function.
///
/// The caller may advance the base only over positions that are not in the set. The set allocates 2 KiB when
/// a position that is 1,024 or more beyond the base is first inserted. It keeps this memory until it is
/// [released](Self::release).
#[derive(Clone, Debug)]
pub(crate) enum PositionSet {
    Small([u64; WORDS_SMALL]),
    Large(Box<[u64; WORDS]>),
}

impl Default for PositionSet {
    fn default() -> Self {
        Self::Small([0; WORDS_SMALL])
    }
}

impl PositionSet {
    #[inline]
    fn words(&self) -> &[u64] {
        match self {
            Self::Small(words) => words,
            Self::Large(words) => &words[..],
        }
    }

    #[inline]
    fn word(&mut self, position: u32) -> &mut u64 {
        let words = match self {
            Self::Small(words) => &mut words[..],
            Self::Large(words) => &mut words[..],
        };
        let at = position as usize / 64 % words.len();
        &mut words[at]
    }

    pub(crate) fn clear(&mut self) {
        match self {
            Self::Small(words) => words.fill(0),
            Self::Large(words) => words.fill(0),
        }
    }

    /// Frees the memory that the set has allocated. This also empties the set. Does nothing if the set has
    /// allocated no memory.
    pub(crate) fn release(&mut self) {
        if let Self::Large(_) = self {
            *self = Self::default();
        }
    }

    /// Returns the first position that is too far beyond the base for the current memory of the set.
    #[inline]
    fn end(&self, base: u32) -> u32 {
        base.saturating_add(self.words().len() as u32 * 64)
    }

    #[inline]
    pub(crate) fn has(&self, base: u32, position: u32) -> bool {
        let words = self.words();
        let bit = words[position as usize / 64 % words.len()] >> (position % 64);
        position < self.end(base) && bit & 1 == 1
    }

    /// Adds a position, which must be less than [`SPAN`] beyond the base.
    #[inline]
    pub(crate) fn insert(&mut self, base: u32, position: u32) {
        debug_assert!(position >= base && position - base < SPAN);
        if position - base >= SPAN_SMALL
            && let Self::Small(_) = self
        {
            self.enlarge(base);
        }
        *self.word(position) |= 1 << (position % 64);
    }

    #[cold]
    fn enlarge(&mut self, base: u32) {
        let mut large = Self::Large(Box::new([0; WORDS]));
        let mut at = base;
        while let Some(position) = self.first(base, at, base + SPAN_SMALL) {
            *large.word(position) |= 1 << (position % 64);
            at = position + 1;
        }
        *self = large;
    }

    #[inline]
    pub(crate) fn remove(&mut self, base: u32, position: u32) {
        if position < self.end(base) {
            *self.word(position) &= !(1 << (position % 64));
        }
    }

    /// Returns the first position of the set in `from..to`. `from` must not be below the base.
    pub(crate) fn first(&self, base: u32, from: u32, to: u32) -> Option<u32> {
        let (words, to) = (self.words(), to.min(self.end(base)));
        let mut position = from;
        while position < to {
            let rest = words[position as usize / 64 % words.len()] >> (position % 64);
            if rest != 0 {
                let found = position + rest.trailing_zeros();
                return (found < to).then_some(found);
            }
            position += 64 - position % 64;
        }
        None
    }

    /// Writes a bitmap of `base..to`. Bit i of byte j stands for position `base + 8 j + i`. Omits positions
    /// that do not fit into `out`. Returns the length of the bitmap in bytes.
    pub(crate) fn write(&self, base: u32, to: u32, out: &mut [u8]) -> usize {
        let bytes = ((to - base).div_ceil(8) as usize).min(out.len());
        out[..bytes].fill(0);
        let mut at = base;
        while let Some(position) = self.first(base, at, to) {
            let bit = (position - base) as usize;
            let Some(byte) = out[..bytes].get_mut(bit / 8) else { break };
            *byte |= 1 << (bit % 8);
            at = position + 1;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn set_agrees_with_a_model(
            base in 0..100_000u32,
            far in 1..=SPAN,
            steps in proptest::collection::vec((0..SPAN, any::<bool>()), 0..300),
        ) {
            let (mut positions, mut model) = (PositionSet::default(), BTreeSet::new());
            for (offset, insert) in steps {
                let position = base + offset % far;
                if insert {
                    positions.insert(base, position);
                    model.insert(position);
                } else {
                    positions.remove(base, position);
                    model.remove(&position);
                }
                prop_assert_eq!(positions.has(base, position), insert);
                prop_assert_eq!(positions.first(base, base, base + far), model.first().copied());
            }
            let mut bitmap = vec![0xff; SPAN as usize / 8];
            let bytes = positions.write(base, base + far, &mut bitmap);
            prop_assert_eq!(bytes, far.div_ceil(8) as usize);
            for offset in 0..far {
                let bit = bitmap[offset as usize / 8] >> (offset % 8) & 1 == 1;
                prop_assert_eq!(bit, model.contains(&(base + offset)));
            }
        }
    }

    #[test]
    fn bitmap_is_as_short_as_possible_and_bounded() {
        let (mut positions, mut out) = (PositionSet::default(), [0; 4]);
        positions.insert(1020, 1030);
        assert_eq!(positions.write(1020, 1031, &mut out), 2);
        assert_eq!(out[..2], [0, 0b100]);
        assert_eq!(positions.write(1020, 1020, &mut out), 0);
        positions.insert(1020, 9000);
        assert_eq!(positions.write(1020, 9001, &mut out), 4);
        assert_eq!(out, [0, 0b100, 0, 0]);
        positions.clear();
        assert_eq!(positions.first(1020, 1020, 1020 + SPAN), None);
    }
}
