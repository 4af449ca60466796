//! `Swap`, `Block`, `Piece`: plain data that is turned to the other byte order while it is copied.
//!
//! Conversion is no pass of its own: what is copied anyway is read into a private chunk that stays in
//! the first cache, turned there, and written from there.

use core::marker::PhantomData;

use super::plain::{swap_2, swap_4, swap_8, swap_16};
use super::window::Chunk;
use super::{Plain, Window};

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

    /// Turns whole units in place.
    #[inline]
    pub(super) fn turn(&self, bytes: &mut [u8]) {
        (self.all)(bytes);
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

    /// Hands over the bytes as they travel: those that travel as they lie at once, others chunk by
    /// chunk. `take` is told where in the piece a chunk begins.
    #[inline]
    pub(crate) fn each(&self, mut take: impl FnMut(usize, Window<'_>)) {
        match self.block.swap {
            None => {
                if let Some(all) = self.block.window.part(self.at, self.bytes) {
                    take(0, all);
                }
            }
            Some(swap) => self.each_turned(swap, &mut take),
        }
    }

    #[cold]
    fn each_turned(&self, swap: &Swap, take: &mut dyn FnMut(usize, Window<'_>)) {
        let mut chunk = Chunk::new();
        let most = Chunk::whole(swap.unit);
        let (mut at, end) = (self.at, self.at + self.bytes);
        while at < end {
            // Whole units, of which those at the borders may be needed in part.
            let first = at - at % swap.unit;
            let stop = end.min(first + most);
            let bytes = (stop - first).next_multiple_of(swap.unit);
            let Some(turned) = chunk.fetch(self.block.window, first, bytes) else { return };
            swap.turn(turned);
            take(at - self.at, Window::from(&turned[at - first..stop - first]));
            at = stop;
        }
    }
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
        let mut bytes = Vec::new();
        piece.each(|at, chunk| {
            assert_eq!(at, bytes.len());
            bytes.resize(at + chunk.len(), 0);
            chunk.read(0, &mut bytes[at..]).unwrap();
        });
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
