//! `Plain` types are copied without encoding. This module also has the casts that they allow.

#![allow(unsafe_code)]

use core::num::NonZero;

use super::{Invalid, OutBlock, Space, Swap};

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
}
