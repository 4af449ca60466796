//! A set of positions within a span of 1024: what came beyond the first hole, or what is missing.

use super::header::BITMAP_BYTES_MAX;

/// How far positions of one set may be apart: what fits the bitmap of one packet.
pub(crate) const SPAN: u32 = BITMAP_BYTES_MAX as u32 * 8;
const WORDS: usize = SPAN as usize / 64;

/// Positions `base..base + SPAN` of a base that its user knows, as bits of a ring.
///
/// A user moves its base on only over positions that it has removed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Positions([u64; WORDS]);

impl Positions {
    #[inline]
    const fn bit(position: u32) -> (usize, u64) {
        ((position % SPAN / 64) as usize, 1 << (position % 64))
    }

    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }

    #[inline]
    pub(crate) fn has(&self, position: u32) -> bool {
        let (at, bit) = Self::bit(position);
        self.0[at] & bit != 0
    }

    #[inline]
    pub(crate) fn insert(&mut self, position: u32) {
        let (at, bit) = Self::bit(position);
        self.0[at] |= bit;
    }

    #[inline]
    pub(crate) fn remove(&mut self, position: u32) {
        let (at, bit) = Self::bit(position);
        self.0[at] &= !bit;
    }

    /// The first position of `from..to` that is in the set.
    pub(crate) fn first(&self, from: u32, to: u32) -> Option<u32> {
        let mut position = from;
        while position < to {
            let (at, _) = Self::bit(position);
            let rest = self.0[at] >> (position % 64);
            if rest != 0 {
                let found = position + rest.trailing_zeros();
                return (found < to).then_some(found);
            }
            position += 64 - position % 64;
        }
        None
    }

    /// Writes which of `from..to` are in the set, bit i of byte j for `from + 8 j + i`; returns how
    /// many bytes that takes.
    pub(crate) fn write(&self, from: u32, to: u32, out: &mut [u8; BITMAP_BYTES_MAX]) -> usize {
        let bytes = ((to - from).div_ceil(8) as usize).min(BITMAP_BYTES_MAX);
        out[..bytes].fill(0);
        let mut at = from;
        while let Some(position) = self.first(at, to) {
            let bit = position - from;
            out[bit as usize / 8] |= 1 << (bit % 8);
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
        fn it_is_a_set(
            base in 0..100_000u32,
            steps in proptest::collection::vec((0..SPAN, any::<bool>()), 0..300),
        ) {
            let (mut positions, mut model) = (Positions::default(), BTreeSet::new());
            for (offset, insert) in steps {
                if insert {
                    positions.insert(base + offset);
                    model.insert(base + offset);
                } else {
                    positions.remove(base + offset);
                    model.remove(&(base + offset));
                }
                prop_assert_eq!(positions.has(base + offset), insert);
                prop_assert_eq!(positions.first(base, base + SPAN), model.first().copied());
            }
            let mut bitmap = [0xff; BITMAP_BYTES_MAX];
            let bytes = positions.write(base, base + SPAN, &mut bitmap);
            prop_assert_eq!(bytes, BITMAP_BYTES_MAX);
            for offset in 0..SPAN {
                let bit = bitmap[offset as usize / 8] >> (offset % 8) & 1 == 1;
                prop_assert_eq!(bit, model.contains(&(base + offset)));
            }
        }
    }

    #[test]
    fn a_bitmap_is_as_long_as_it_must_be() {
        let (mut positions, mut out) = (Positions::default(), [0; BITMAP_BYTES_MAX]);
        positions.insert(1030);
        assert_eq!(positions.write(1024, 1031, &mut out), 1);
        assert_eq!(out[0], 0b100_0000);
        assert_eq!(positions.write(1020, 1031, &mut out), 2);
        assert_eq!(out[..2], [0, 0b100]);
        assert_eq!(positions.write(1031, 1031, &mut out), 0);
        positions.clear();
        assert_eq!(positions.first(1024, 1024 + SPAN), None);
    }
}
