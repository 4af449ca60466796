//! `Swap` and `Block` convert plain data to the other byte order while the data is copied.
//!
//! The conversion is part of the copy. Some processors can reorder the bytes in registers, between load and
//! store (`sys/copy.rs`). On other processors, or if values must be checked, the bytes are fetched into a
//! private buffer that stays in the first-level cache. They are converted there, and then written from there.

use core::marker::PhantomData;

use super::plain::{swap_2, swap_4, swap_8, swap_16};
use super::window::BounceBuffer;
use super::{Plain, Space, Window};
use crate::sys::{LANE_BYTES, Shuffles};

/// Converts plain values of one type to the other byte order. This struct has no type parameter, because it
/// holds only the size of a unit and a function.
#[derive(Debug)]
pub struct Swap {
    /// The number of bytes that are converted as a unit. A unit is a number, or a value that consists of
    /// numbers of different sizes.
    unit: usize,
    /// Whether each unit is one number.
    is_number: bool,
    /// Converts a whole number of units in place.
    all: fn(&mut [u8]),
}

impl Swap {
    /// Returns how values of `T` are converted. Returns `None` if they are the same in both byte orders.
    #[inline]
    pub const fn of<T: Plain>() -> Option<&'static Self> {
        SwapOf::<T>::SWAP
    }

    /// Returns the size of a unit in bytes. A block has a whole number of units.
    #[inline]
    pub(super) const fn unit_bytes(&self) -> usize {
        self.unit
    }

    /// Converts a small number of whole units in place.
    #[inline]
    pub(super) fn units(&self, bytes: &mut [u8]) {
        (self.all)(bytes);
    }

    /// Converts whole units in place.
    pub(super) fn in_place(&self, bytes: &mut [u8]) {
        let mut done = 0;
        if let Some(shuffles) = self.shuffles(bytes.len()) {
            // All shuffles together cover a whole number of units.
            let whole = bytes.len() - bytes.len() % shuffles.bytes();
            let space = Space::of_mut(&mut bytes[..whole]);
            done = space.copy_shuffled(space.window(), &shuffles, 0, false);
        }
        (self.all)(&mut bytes[done..]);
    }

    /// Returns the shuffles that convert units in registers. Returns `None` if the processor cannot shuffle
    /// these units, or if there are too few bytes to make shuffles worthwhile.
    fn shuffles(&self, bytes: usize) -> Option<Shuffles> {
        const WORTH: usize = 512;
        match self.is_number {
            _ if bytes < WORTH => None,
            true => Shuffles::reversing(self.unit).cloned(),
            false => Shuffles::of(self.unit, self.all),
        }
    }
}

struct SwapOf<T>(PhantomData<T>);

impl<T: Plain> SwapOf<T> {
    /// Converts value by value, for types that consist of numbers of different sizes.
    const MIXED: Swap = Swap {
        unit: size_of::<T>(),
        is_number: false,
        all: |bytes| bytes.chunks_exact_mut(size_of::<T>()).for_each(T::swap),
    };
    const SWAP: Option<&'static Swap> = match T::UNIT {
        1 => None,
        2 => Some(&Swap { unit: 2, is_number: true, all: swap_2 }),
        4 => Some(&Swap { unit: 4, is_number: true, all: swap_4 }),
        8 => Some(&Swap { unit: 8, is_number: true, all: swap_8 }),
        16 => Some(&Swap { unit: 16, is_number: true, all: swap_16 }),
        0 => Some(&Self::MIXED),
        _ => panic!("the unit of a plain type is 0, 1, 2, 4, 8 or 16"),
    };
}

/// A block of a call: the memory of the block's values, and how these values are converted.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    window: Window<'a>,
    swap: Option<&'static Swap>,
}

impl<'a> Block<'a> {
    /// Makes a block of the values in `window`. When the values are copied, they are converted as `swap`
    /// defines.
    #[inline]
    pub const fn new(window: Window<'a>, swap: Option<&'static Swap>) -> Self {
        Self { window, swap }
    }

    /// Returns a block without values.
    #[inline]
    pub const fn empty() -> Self {
        Self::new(Window::empty(), None)
    }

    /// Returns the length in bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.window.len()
    }

    /// Returns whether the length is 0.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.window.is_empty()
    }

    /// Returns the memory of the values, if they need no conversion.
    #[inline]
    pub const fn unconverted(&self) -> Option<Window<'a>> {
        match self.swap {
            None => Some(self.window),
            Some(_) => None,
        }
    }

    /// Copies and converts bytes, from byte `at` of the block on, until `to` is full. The copied range may
    /// begin and end inside a value.
    ///
    /// # Panics
    /// Panics if the block ends before `to` is full.
    #[inline]
    pub(crate) fn copy_to(&self, at: usize, to: Space<'_>, method: CopyMethod) {
        let Some(swap) = self.swap else {
            let from = self.window.range(at, to.len());
            return match method {
                CopyMethod::Short => to.copy_from(from),
                CopyMethod::Cached => to.copy_cached(from),
                CopyMethod::Streaming => to.copy_streaming(from),
            };
        };
        self.convert_to(at, to, swap, method == CopyMethod::Streaming);
    }

    #[cold]
    fn convert_to(&self, at: usize, to: Space<'_>, swap: &Swap, streaming: bool) {
        let mut done = 0;
        // The pattern of the shuffles begins at the start of the block and repeats. So whole lanes, which are
        // 16 bytes each, are counted from the start of the block.
        let before = at.wrapping_neg() % LANE_BYTES;
        if let Some(shuffles) = swap.shuffles(to.len()) {
            let from = self.window.range(at + before, to.len() - before);
            self.convert_chunks(at, to.range(0, before), swap);
            let lane = (at + before) / LANE_BYTES;
            let lanes = to.range(before, from.len());
            done = before + lanes.copy_shuffled(from, &shuffles, lane, streaming);
        }
        self.convert_chunks(at + done, to.range(done, to.len() - done), swap);
    }

    /// Copies and converts bytes through private memory, from byte `at` of the block on, until `to` is full.
    fn convert_chunks(&self, at: usize, to: Space<'_>, swap: &Swap) {
        if to.is_empty() {
            return;
        }
        let mut buffer = BounceBuffer::new();
        let most = BounceBuffer::chunk_bytes(swap.unit);
        let (start, end) = (at, at + to.len());
        let mut at = at;
        while at < end {
            // Whole units are converted, even if only parts of the first and the last unit are needed.
            let first = at - at % swap.unit;
            let stop = end.min(first + most);
            let bytes = (stop - first).next_multiple_of(swap.unit);
            let Some(units) = buffer.fetch(self.window, first, bytes) else { return };
            swap.in_place(units);
            if to.write(at - start, &units[at - first..stop - first]).is_none() {
                return;
            }
            at = stop;
        }
    }
}

impl<'a> From<Window<'a>> for Block<'a> {
    #[inline]
    fn from(window: Window<'a>) -> Self {
        Self::new(window, None)
    }
}

/// How bytes are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyMethod {
    /// With the C library's copy. It is best for few bytes.
    Short,
    /// Through the caches: see [`Space::copy_cached`].
    Cached,
    /// Past the caches: see [`Space::copy_streaming`].
    Streaming,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::bytes_of;

    fn converted(block: &Block<'_>, at: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0xaa; length];
        let method =
            if length.is_multiple_of(3) { CopyMethod::Streaming } else { CopyMethod::Cached };
        block.copy_to(at, Space::of_mut(&mut bytes), method);
        bytes
    }

    fn assert_parts_equal_the_whole<T: Plain>(values: &[T], swapped: &[u8]) {
        let block = Block::new(Window::from(bytes_of(values)), Swap::of::<T>());
        assert_eq!(converted(&block, 0, block.len()), swapped);
        let total = block.len();
        for piece in [1, 3, 7, 24, 1000, 8192, 10_000] {
            let mut bytes = Vec::new();
            for at in (0..total).step_by(piece) {
                bytes.extend(converted(&block, at, piece.min(total - at)));
            }
            assert_eq!(bytes, swapped, "by {piece}");
        }
        assert!(converted(&block, total, 0).is_empty());
    }

    /// A unit of 24 bytes: one number of eight bytes, two of four bytes, and eight bytes that are not
    /// converted.
    const MIXED: Swap = Swap {
        unit: 24,
        is_number: false,
        all: |bytes| {
            for value in bytes.as_chunks_mut::<24>().0 {
                value[..8].reverse();
                value[12..16].reverse();
                value[20..].reverse();
            }
        },
    };

    #[test]
    fn values_of_different_numbers_are_converted_in_parts_of_any_size() {
        let bytes: Vec<u8> = (0..24 * 200).map(|at| (at % 251) as u8).collect();
        let mut swapped = bytes.clone();
        (MIXED.all)(&mut swapped);
        static STATIC: Swap = MIXED;
        let block = Block::new(Window::from(&bytes[..]), Some(&STATIC));
        for at in [0, 1, 8, 15, 16, 17, 24, 33, 100] {
            for length in [0, 1, 100, 511, 512, 1000, 3000, 4000] {
                let part = converted(&block, at, length);
                assert!(part == swapped[at..at + length], "{length} bytes at {at}");
            }
        }
        for length in [0, 24, 480, 504, 528, 24 * 200] {
            let mut private = bytes[..length].to_vec();
            MIXED.in_place(&mut private);
            assert!(private == swapped[..length], "{length} bytes");
        }
    }

    #[test]
    fn values_are_converted_in_parts_of_any_size() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_parts_equal_the_whole(&bytes, &bytes);
        let words: Vec<u16> = (1..9001).collect();
        let swapped: Vec<u8> = words.iter().flat_map(|n| n.swap_bytes().to_ne_bytes()).collect();
        assert_parts_equal_the_whole(&words, &swapped);
        let longs: Vec<[u64; 3]> = (1..2001).map(|n| [n, n << 32, !n]).collect();
        let swapped: Vec<u8> =
            longs.iter().flatten().flat_map(|n| n.swap_bytes().to_ne_bytes()).collect();
        assert_parts_equal_the_whole(&longs, &swapped);
        let huge: Vec<u128> = (1..1001).map(|n| n << 64 | 1).collect();
        let swapped: Vec<u8> = huge.iter().flat_map(|n| n.swap_bytes().to_ne_bytes()).collect();
        assert_parts_equal_the_whole(&huge, &swapped);
    }
}
