//! `Plain` types are copied without encoding. This module also has the casts between bytes and values that
//! these types allow.

#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use core::num::NonZero;

use super::{Invalid, OutBlock, Space, Swap, Window};
use crate::sys::Shuffles;

/// A type with a fixed layout and without padding. It is copied as one block.
///
/// Derive this trait: `#[derive(Plain)]` proves by constant assertions that there is no padding and that all
/// fields are plain.
///
/// # Safety
/// The type must be `repr(C)`, `repr(transparent)` or primitive. It must have no padding byte, no pointer and
/// no interior mutability, and an alignment of at most 16. If `ANY_BITS` is true, every bit pattern must be a
/// value. Otherwise `valid` must return true only for bit patterns that are values.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not plain: it cannot be copied as one block",
    label = "needs a fixed layout without padding or pointers",
    note = "derive `peregrine::Plain` on it, or use `Vec<{Self}>` by value instead of a buffer"
)]
pub unsafe trait Plain: Copy + Send + Sync + 'static {
    /// Whether every bit pattern is a value of the type. This is true for integers, but not for `bool`.
    const ANY_BITS: bool;

    /// The length in bytes of the numbers in the type: 1, 2, 4, 8 or 16. Zero if the lengths differ.
    const UNIT: usize;

    /// Returns whether these `size_of::<Self>()` bytes are a value of the type.
    fn valid(bytes: &[u8]) -> bool;

    /// Converts every number in these `size_of::<Self>()` bytes to the other byte order.
    fn swap(bytes: &mut [u8]);
}

/// Returns the [`UNIT`](Plain::UNIT) of a type whose fields have these units.
#[doc(hidden)]
pub const fn common_unit(units: &[usize]) -> usize {
    let mut i = 1;
    while i < units.len() {
        if units[i] != units[0] {
            return 0;
        }
        i += 1;
    }
    units[0]
}

/// Returns the bytes of a slice of plain values.
#[inline]
pub fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: Plain types have no padding, so all size_of_val bytes are initialised.
    unsafe { core::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Returns a block in which a result may store values of `T`. Invalid values are never stored.
#[inline]
pub fn bytes_of_mut<T: Plain>(values: &mut [T]) -> OutBlock<'_> {
    OutBlock::over::<T>(space_of(values))
}

/// Returns aligned memory as bytes. It is used as an E-stack, the private memory for the arguments of a call.
#[inline]
pub(crate) fn bytes_of_blocks(blocks: &mut [u128]) -> &mut [u8] {
    let bytes = size_of_val(blocks);
    // SAFETY: integers have no padding and no invalid bits, and the slice is the only borrow.
    unsafe { core::slice::from_raw_parts_mut(blocks.as_mut_ptr().cast(), bytes) }
}

/// Returns the memory of a slice. The memory must only be written with whole valid values.
#[inline]
pub(super) fn space_of<T: Plain>(values: &mut [T]) -> Space<'_> {
    let bytes = size_of_val(values);
    // SAFETY: the memory is initialised, and borrowed exclusively for the lifetime of `values`.
    unsafe { Space::new(values.as_mut_ptr().cast(), bytes) }
}

/// Returns a private block as values. The block must be aligned and contain a whole number of valid values.
#[inline]
pub fn plain_slice<T: Plain>(block: &[u8]) -> Result<&[T], Invalid> {
    let count = check::<T>(block)?;
    // SAFETY: `check` has checked the alignment, that there is a whole number of values, and that each is
    // valid.
    Ok(unsafe { core::slice::from_raw_parts(block.as_ptr().cast(), count) })
}

/// Returns a private block as values that can be changed. The block must be as for [`plain_slice`].
#[inline]
pub fn plain_mut<T: Plain>(block: &mut [u8]) -> Result<&mut [T], Invalid> {
    let count = check::<T>(block)?;
    // SAFETY: `check` has checked the alignment, that there is a whole number of values, and that each is
    // valid. `T` has no padding, so the block stays initialised.
    Ok(unsafe { core::slice::from_raw_parts_mut(block.as_mut_ptr().cast(), count) })
}

/// Writes numbers to `bytes`, the highest byte of each number first. `bytes` has exactly their length.
#[inline]
pub(crate) fn put_big_endian<T: Plain>(values: &[T], bytes: &mut [u8]) {
    let (start, length) = (bytes.as_mut_ptr().cast(), bytes.len());
    // SAFETY: `bytes` is borrowed exclusively, and `reverse_numbers` only writes initialised bytes.
    let to = unsafe { core::slice::from_raw_parts_mut(start, length) };
    reverse_numbers::<T>(bytes_of(values), to);
}

/// Reads the numbers whose bytes are `bytes`, the highest byte of each number first. `bytes` has exactly
/// their length. The result is not in an `Option`, because then a large array would be copied once more.
#[inline(always)]
pub(crate) fn big_endian_array<T: Plain, const N: usize>(bytes: &[u8]) -> [T; N] {
    let mut values = MaybeUninit::<[T; N]>::uninit();
    let (start, length) = (values.as_mut_ptr().cast(), size_of::<[T; N]>());
    // SAFETY: these are the bytes of `values`, which is borrowed exclusively.
    let to = unsafe { core::slice::from_raw_parts_mut(start, length) };
    reverse_numbers::<T>(bytes, to);
    // SAFETY: all bytes have been written. Every bit pattern is a number.
    unsafe { values.assume_init() }
}

/// Reads all whole numbers in `bytes`, the highest byte of each number first.
#[inline]
pub(crate) fn big_endian_numbers<T: Plain>(bytes: &[u8]) -> Vec<T> {
    let count = bytes.len() / size_of::<T>();
    let mut values = Vec::with_capacity(count);
    let (start, length) = (values.spare_capacity_mut().as_mut_ptr(), count * size_of::<T>());
    // SAFETY: the capacity has at least these bytes, and is borrowed exclusively.
    let to = unsafe { core::slice::from_raw_parts_mut(start.cast(), length) };
    reverse_numbers::<T>(&bytes[..length], to);
    // SAFETY: the bytes of `count` numbers have been written. Every bit pattern is a number.
    unsafe { values.set_len(count) };
    values
}

/// Copies numbers between this machine's byte order and the order with the highest byte first. Initialises
/// all bytes of `to`, which has the length of `from`.
#[inline]
fn reverse_numbers<T: Plain>(from: &[u8], to: &mut [MaybeUninit<u8>]) {
    const { assert!(T::ANY_BITS && T::UNIT == size_of::<T>(), "a type of numbers") };
    assert_eq!(from.len(), to.len(), "the bytes of the same numbers");
    let (start, bytes) = (to.as_mut_ptr().cast::<u8>(), to.len());
    let swap = if cfg!(target_endian = "little") { Swap::of::<T>() } else { None };
    let mut done = 0;
    if let Some(shuffles) = swap.and_then(|_| Shuffles::reversing(T::UNIT)) {
        // SAFETY: the memory is borrowed exclusively for as long as the space exists.
        let space = unsafe { Space::new(start, bytes) };
        done = space.copy_shuffled(Window::of(from), shuffles, 0, false);
    }
    let rest = bytes - done;
    // SAFETY: `done` is at most `bytes`, the length of `from`.
    let from = unsafe { from.as_ptr().add(done) };
    // SAFETY: `done` is at most `bytes`, the length of `to`.
    let start = unsafe { start.add(done) };
    // SAFETY: `rest` bytes follow both places, and `to` is borrowed exclusively.
    unsafe { core::ptr::copy_nonoverlapping(from, start, rest) };
    if let Some(swap) = swap {
        // SAFETY: the bytes have just been written, and are borrowed exclusively.
        swap.units(unsafe { core::slice::from_raw_parts_mut(start, rest) });
    }
}

#[inline]
fn check<T: Plain>(block: &[u8]) -> Result<usize, Invalid> {
    let size = size_of::<T>();
    if size == 0
        || !block.len().is_multiple_of(size)
        || block.as_ptr().align_offset(align_of::<T>()) != 0
    {
        return Err(Invalid::Block);
    }
    if !T::ANY_BITS && !block.chunks_exact(size).all(T::valid) {
        return Err(Invalid::Bits);
    }
    Ok(block.len() / size)
}

macro_rules! any_bits {
    ($($type:ty)*) => {$(
        // SAFETY: a primitive number has no padding, and every bit pattern is a value.
        unsafe impl Plain for $type {
            const ANY_BITS: bool = true;
            const UNIT: usize = size_of::<Self>();
            #[inline]
            fn valid(_: &[u8]) -> bool {
                true
            }
            #[inline]
            fn swap(bytes: &mut [u8]) {
                bytes.reverse();
            }
        }
    )*};
}
any_bits!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

// SAFETY: a `bool` is one byte, and only 0 and 1 are values.
unsafe impl Plain for bool {
    const ANY_BITS: Self = false;
    const UNIT: usize = 1;
    #[inline]
    fn valid(bytes: &[u8]) -> bool {
        bytes[0] <= 1
    }
    #[inline]
    fn swap(_: &mut [u8]) {}
}

// SAFETY: a `char` has four bytes, and exactly the Unicode scalar values are values.
unsafe impl Plain for char {
    const ANY_BITS: bool = false;
    const UNIT: usize = 4;
    #[inline]
    fn valid(bytes: &[u8]) -> bool {
        let bits = <[u8; 4]>::try_from(bytes).map(u32::from_ne_bytes);
        bits.is_ok_and(|bits| Self::from_u32(bits).is_some())
    }
    #[inline]
    fn swap(bytes: &mut [u8]) {
        bytes.reverse();
    }
}

// SAFETY: an array has no padding between its elements, and the element type has no padding itself.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {
    const ANY_BITS: bool = T::ANY_BITS;
    const UNIT: usize = T::UNIT;
    #[inline]
    fn valid(bytes: &[u8]) -> bool {
        bytes.chunks_exact(size_of::<T>().max(1)).all(T::valid)
    }
    #[inline]
    fn swap(bytes: &mut [u8]) {
        if let Some(swap) = Swap::of::<T>() {
            swap.in_place(bytes);
        }
    }
}

// SAFETY: the documentation of `Uuid` guarantees the layout of `[u8; 16]`, and every bit pattern is a value.
#[cfg(feature = "uuid")]
unsafe impl Plain for uuid::Uuid {
    const ANY_BITS: bool = <[u8; 16]>::ANY_BITS;
    const UNIT: usize = <[u8; 16]>::UNIT;
    #[inline]
    fn valid(_: &[u8]) -> bool {
        true
    }
    #[inline]
    fn swap(_: &mut [u8]) {}
}

#[cfg(feature = "uuid")]
const _: () = assert!(size_of::<uuid::Uuid>() == 16 && align_of::<uuid::Uuid>() == 1);

macro_rules! non_zero {
    ($($type:ty)*) => {$(
        // SAFETY: the type has the layout of its integer. All bits may have any value, but they must not all
        // be zero.
        unsafe impl Plain for NonZero<$type> {
            const ANY_BITS: bool = false;
            const UNIT: usize = size_of::<Self>();
            #[inline]
            fn valid(bytes: &[u8]) -> bool {
                bytes.iter().any(|byte| *byte != 0)
            }
            #[inline]
            fn swap(bytes: &mut [u8]) {
                bytes.reverse();
            }
        }
    )*};
}
non_zero!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128);

/// Defines functions that convert all numbers in a slice to the other byte order. All numbers of a slice have
/// the same length.
macro_rules! swap_many {
    ($($name:ident: $type:ty),*) => {$(
        pub(super) fn $name(bytes: &mut [u8]) {
            for number in bytes.as_chunks_mut::<{ size_of::<$type>() }>().0 {
                *number = <$type>::from_ne_bytes(*number).swap_bytes().to_ne_bytes();
            }
        }
    )*};
}
swap_many!(swap_2: u16, swap_4: u32, swap_8: u64, swap_16: u128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_checked_before_they_become_values() {
        #[repr(align(16))]
        struct Aligned([u8; 16]);
        let mut block = Aligned([1; 16]);
        assert_eq!(plain_slice::<u32>(&block.0), Ok(&[0x0101_0101; 4][..]));
        assert_eq!(plain_slice::<u32>(&block.0[..7]), Err(Invalid::Block));
        assert_eq!(plain_slice::<u32>(&block.0[1..5]), Err(Invalid::Block));
        assert_eq!(plain_slice::<bool>(&block.0), Ok(&[true; 16][..]));
        block.0[9] = 2;
        assert_eq!(plain_slice::<bool>(&block.0), Err(Invalid::Bits));
        assert_eq!(plain_mut::<[bool; 8]>(&mut block.0), Err(Invalid::Bits));
    }

    #[test]
    fn numbers_of_any_count_have_their_highest_byte_first() {
        macro_rules! check {
            ($($type:ty)*) => {$({
                let byte = |i: usize| (i * 37 + 1) as u8;
                let all: [$type; 70] = core::array::from_fn(|value| {
                    <$type>::from_be_bytes(core::array::from_fn(|i| byte(value * size_of::<$type>() + i)))
                });
                let expected: Vec<u8> = (0..size_of_val(&all)).map(byte).collect();
                for count in 0..all.len() {
                    let bytes = count * size_of::<$type>();
                    let mut memory = vec![0xaa; bytes + 2];
                    put_big_endian(&all[..count], &mut memory[1..=bytes]);
                    assert_eq!(memory[1..=bytes], expected[..bytes]);
                    assert_eq!([memory[0], memory[bytes + 1]], [0xaa; 2]);
                    assert_eq!(big_endian_numbers::<$type>(&memory[1..=bytes]), all[..count]);
                }
                assert_eq!(big_endian_array::<$type, 70>(&expected), all);
            })*};
        }
        check!(u16 i32 u64 f64);
    }
}
