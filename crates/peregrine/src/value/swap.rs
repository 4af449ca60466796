//! `Swap`, `Block`, `Piece`: plain data that is turned to the other byte order while it is copied.
//!
//! Conversion is no pass of its own. Where the processor can, bytes are put in order between being
//! fetched and being written (`window.rs`); elsewhere, and where values must be looked at, they are
//! fetched into a private chunk that stays in the first cache, turned there, and written from there.

use core::marker::PhantomData;

use super::plain::{swap_2, swap_4, swap_8, swap_16};
use super::window::{Chunk, Masks};
use super::{Plain, Space, Window};

/// How plain values of a type are turned to the other byte order; the type itself is not known any more.
#[derive(Debug)]
pub struct Swap {
    /// Bytes that are turned on their own: of a number, or of a value of different numbers.
    unit: usize,
    /// Turns a whole number of them in place.
    all: fn(&mut [u8]),
}

impl Swap {
    /// How values of `T` are turned; `None` if they look the same in both orders.
    #[inline]
    pub const fn of<T: Plain>() -> Option<&'static Self> {
        Of::<T>::SWAP
    }

    /// Bytes that are turned on their own: a block has a whole number of them.
    #[inline]
    pub(super) const fn unit_bytes(&self) -> usize {
        self.unit
    }

    /// Turns whole units in place.
    pub(super) fn turn(&self, bytes: &mut [u8]) {
        let mut done = 0;
        if let Some(masks) = self.masks(bytes.len()) {
            // As often as the masks are whole units.
            let whole = bytes.len() - bytes.len() % masks.bytes();
            let space = Space::of_mut(&mut bytes[..whole]);
            done = space.copy_turned(space.window(), &masks, 0, false);
        }
        (self.all)(&mut bytes[done..]);
    }

    /// The masks by which lanes are turned, if it is worth it for so many bytes.
    fn masks(&self, bytes: usize) -> Option<Masks> {
        const WORTH: usize = 512;
        if bytes < WORTH { None } else { Masks::of(self.unit, self.all) }
    }
}

struct Of<T>(PhantomData<T>);

impl<T: Plain> Of<T> {
    /// Different numbers, value by value.
    const MIXED: Swap = Swap {
        unit: size_of::<T>(),
        all: |bytes| bytes.chunks_exact_mut(size_of::<T>()).for_each(T::swap),
    };
    const SWAP: Option<&'static Swap> = match T::UNIT {
        1 => None,
        2 => Some(&Swap { unit: 2, all: swap_2 }),
        4 => Some(&Swap { unit: 4, all: swap_4 }),
        8 => Some(&Swap { unit: 8, all: swap_8 }),
        16 => Some(&Swap { unit: 16, all: swap_16 }),
        0 => Some(&Self::MIXED),
        _ => panic!("the unit of a plain type is 0, 1, 2, 4, 8 or 16"),
    };
}

/// A block of a call: where its values lie, and how they travel.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    window: Window<'a>,
    swap: Option<&'static Swap>,
}

impl<'a> Block<'a> {
    /// Whole values that lie in `window`; turned on their way if `swap` says how.
    #[inline]
    pub const fn new(window: Window<'a>, swap: Option<&'static Swap>) -> Self {
        Self { window, swap }
    }

    /// A block of no bytes.
    #[inline]
    pub const fn empty() -> Self {
        Self::new(Window::empty(), None)
    }

    /// How many bytes travel.
    #[inline]
    pub const fn len(&self) -> usize {
        self.window.len()
    }

    /// Whether none do.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.window.is_empty()
    }

    /// Where it lies, if it travels as it lies.
    #[inline]
    pub const fn straight(&self) -> Option<Window<'a>> {
        match self.swap {
            None => Some(self.window),
            Some(_) => None,
        }
    }

    /// All of it.
    #[inline]
    pub const fn whole(&self) -> Piece<'a> {
        Piece { block: *self, at: 0, bytes: self.len() }
    }

    /// The part of `bytes` bytes that begins at `at`, wherever its values begin and end.
    #[inline]
    pub fn part(&self, at: usize, bytes: usize) -> Option<Piece<'a>> {
        self.whole().part(at, bytes)
    }
}

impl<'a> From<Window<'a>> for Block<'a> {
    #[inline]
    fn from(window: Window<'a>) -> Self {
        Self::new(window, None)
    }
}

/// A part of a block as it travels; it may begin or end in the middle of a value.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    block: Block<'a>,
    at: usize,
    bytes: usize,
}

impl<'a> Piece<'a> {
    /// How many bytes there are.
    #[inline]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The part of `bytes` bytes that begins at `at`.
    #[inline]
    pub fn part(&self, at: usize, bytes: usize) -> Option<Self> {
        if at > self.bytes || bytes > self.bytes - at {
            return None;
        }
        Some(Self { at: self.at + at, bytes, ..*self })
    }

    /// Copies it to `to`, which is as long.
    #[inline]
    pub(crate) fn copy_to(&self, to: Space<'_>, how: How) {
        let Some(swap) = self.block.swap else {
            let from = self.block.window.part(self.at, self.bytes).unwrap_or(Window::empty());
            return match how {
                How::Short => to.copy_from(from),
                How::Lines => to.copy_lines(from),
                How::Past => to.copy_past(from),
            };
        };
        self.copy_turned(to, swap, how == How::Past);
    }

    #[cold]
    fn copy_turned(&self, to: Space<'_>, swap: &Swap, past: bool) {
        let mut done = 0;
        // Lanes begin where their masks do, in the block.
        let before = self.at.wrapping_neg() % Masks::LANE_BYTES;
        if let Some(masks) = swap.masks(self.bytes)
            && let Some(from) = self.block.window.part(self.at + before, self.bytes - before)
            && let Some(lanes) = to.part(before, from.len())
        {
            self.copy_chunks(0, before, to, swap);
            let lane = (self.at + before) / Masks::LANE_BYTES;
            done = before + lanes.copy_turned(from, &masks, lane, past);
        }
        self.copy_chunks(done, self.bytes, to, swap);
    }

    /// Copies its bytes from `from` up to `end`, chunk by chunk.
    fn copy_chunks(&self, from: usize, end: usize, to: Space<'_>, swap: &Swap) {
        if from == end {
            return;
        }
        let mut chunk = Chunk::new();
        let most = Chunk::whole(swap.unit);
        let (mut at, end) = (self.at + from, self.at + end);
        while at < end {
            // Whole units, of which those at the borders may be needed in part.
            let first = at - at % swap.unit;
            let stop = end.min(first + most);
            let bytes = (stop - first).next_multiple_of(swap.unit);
            let Some(turned) = chunk.fetch(self.block.window, first, bytes) else { return };
            swap.turn(turned);
            if to.write(at - self.at, &turned[at - first..stop - first]).is_none() {
                return;
            }
            at = stop;
        }
    }
}

/// In which way bytes are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// As few are.
    Short,
    /// See [`Space::copy_lines`].
    Lines,
    /// See [`Space::copy_past`].
    Past,
}

impl<'a> From<Window<'a>> for Piece<'a> {
    #[inline]
    fn from(window: Window<'a>) -> Self {
        Block::from(window).whole()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::bytes_of;

    fn gathered(piece: Piece<'_>) -> Vec<u8> {
        let mut bytes = vec![0xaa; piece.len()];
        let how = if piece.len().is_multiple_of(3) { How::Past } else { How::Lines };
        piece.copy_to(Space::of_mut(&mut bytes), how);
        bytes
    }

    fn pieces_are_parts_of_the_whole<T: Plain>(values: &[T], turned: &[u8]) {
        let block = Block::new(Window::from(bytes_of(values)), Swap::of::<T>());
        assert_eq!(gathered(block.whole()), turned);
        let total = block.len();
        for piece in [1, 3, 7, 24, 1000, 8192, 10_000] {
            let mut bytes = Vec::new();
            for at in (0..total).step_by(piece) {
                bytes.extend(gathered(block.part(at, piece.min(total - at)).unwrap()));
            }
            assert_eq!(bytes, turned, "by {piece}");
        }
        assert!(block.part(1, total).is_none() && block.part(total, 0).is_some());
    }

    /// Numbers of three sizes: eight bytes, then two of four, in 24 of which four stay as they are.
    const MIXED: Swap = Swap {
        unit: 24,
        all: |bytes| {
            for value in bytes.as_chunks_mut::<24>().0 {
                value[..8].reverse();
                value[12..16].reverse();
                value[20..].reverse();
            }
        },
    };

    #[test]
    fn values_of_different_numbers_are_turned_wherever_a_piece_begins() {
        let bytes: Vec<u8> = (0..24 * 200).map(|at| (at % 251) as u8).collect();
        let mut turned = bytes.clone();
        (MIXED.all)(&mut turned);
        static STATIC: Swap = MIXED;
        let block = Block::new(Window::from(&bytes[..]), Some(&STATIC));
        for at in [0, 1, 8, 15, 16, 17, 24, 33, 100] {
            for length in [0, 1, 100, 511, 512, 1000, 3000, 4000] {
                let piece = block.part(at, length).unwrap();
                assert!(gathered(piece) == turned[at..at + length], "{length} bytes at {at}");
            }
        }
        for length in [0, 24, 480, 504, 528, 24 * 200] {
            let mut private = bytes[..length].to_vec();
            MIXED.turn(&mut private);
            assert!(private == turned[..length], "{length} bytes");
        }
    }

    #[test]
    fn values_are_turned_wherever_a_piece_begins() {
        let bytes: Vec<u8> = (0..=255).collect();
        pieces_are_parts_of_the_whole(&bytes, &bytes);
        let words: Vec<u16> = (1..9001).collect();
        let turned: Vec<u8> = words.iter().flat_map(|n| n.swap_bytes().to_ne_bytes()).collect();
        pieces_are_parts_of_the_whole(&words, &turned);
        let longs: Vec<[u64; 3]> = (1..2001).map(|n| [n, n << 32, !n]).collect();
        let turned: Vec<u8> =
            longs.iter().flatten().flat_map(|n| n.swap_bytes().to_ne_bytes()).collect();
        pieces_are_parts_of_the_whole(&longs, &turned);
        let huge: Vec<u128> = (1..1001).map(|n| n << 64 | 1).collect();
        let turned: Vec<u8> = huge.iter().flat_map(|n| n.swap_bytes().to_ne_bytes()).collect();
        pieces_are_parts_of_the_whole(&huge, &turned);
    }
}
