//! Implements `Foreign` for numbers and `bool`.

use super::input::cell_at;
use super::output::{put_cell, put_padded};
use super::{Cells, Courier, Foreign, Input, Invalid, Output, Overflow, Xdr};
use crate::value::{big_endian_array, big_endian_numbers, put_big_endian};

/// Implements `put` and `take` of a type of fixed size by its methods `put_at` and `take_at`.
macro_rules! fixed {
    ($representation:ty) => {
        const FIXED: bool = true;

        #[inline]
        fn put(&self, to: &mut Output<'_, $representation>) -> Result<(), Overflow> {
            to.fixed(self)
        }

        #[inline]
        fn take(from: &mut Input<'_, $representation>) -> Result<Self, Invalid> {
            from.fixed()
        }
    };
}
pub(super) use fixed;

/// Implements `Foreign` for numbers whose form is their bytes, the highest first. Arrays and sequences of
/// them are converted with the processor's shuffle instruction.
macro_rules! numbers {
    ($($type:ty: [$($generics:tt)*] $representation:ty;)*) => {$(
        impl<$($generics)*> Foreign<$representation> for $type {
            const LEAST: usize = size_of::<$type>();
            const ANY_CELLS: bool = true;
            fixed!($representation);

            #[inline(always)]
            fn put_at(&self, cells: &mut [u8]) {
                cells.copy_from_slice(&self.to_be_bytes());
            }

            #[inline(always)]
            fn take_at(cells: &[u8]) -> Result<Self, Invalid> {
                let bytes = cells.try_into().map_err(|_| Invalid::Short)?;
                Ok(Self::from_be_bytes(bytes))
            }

            #[inline(always)]
            fn array_of_cells<const N: usize>(cells: &[u8]) -> [Self; N] {
                big_endian_array(cells)
            }

            #[inline]
            fn put_all_at(values: &[Self], cells: &mut [u8]) {
                put_big_endian(values, cells);
            }

            #[inline]
            fn take_all_at(_: usize, cells: &[u8]) -> Result<Vec<Self>, Invalid> {
                Ok(big_endian_numbers(cells))
            }
        }
    )*};
}
numbers! {
    i32: [R: Cells] R;
    u32: [R: Cells] R;
    i64: [] Xdr;
    u64: [] Xdr;
    f32: [] Xdr;
    f64: [] Xdr;
    i16: [] Courier;
    u16: [] Courier;
}

/// Implements `Foreign` for numbers that XDR widens to a cell. Numbers that do not fit the type are refused
/// on arrival.
macro_rules! widened {
    ($($type:ty as $wide:ty $({ $($more:tt)* })?,)*) => {$(
        impl Foreign<Xdr> for $type {
            const LEAST: usize = Xdr::CELL;
            fixed!(Xdr);

            #[inline(always)]
            fn put_at(&self, cells: &mut [u8]) {
                put_cell::<Xdr>(<$wide>::from(*self) as u32, cells);
            }

            #[inline(always)]
            fn take_at(cells: &[u8]) -> Result<Self, Invalid> {
                Self::try_from(cell_at::<Xdr>(cells) as $wide).map_err(|_| Invalid::Bits)
            }

            $($($more)*)?
        }
    )*};
}
widened! {
    i16 as i32,
    u16 as u32,
    i8 as i32,
    u8 as u32 {
        // Arrays and sequences of bytes are `opaque`.
        const PACKED: bool = true;

        #[inline]
        fn put_all_at(values: &[Self], cells: &mut [u8]) {
            put_padded(values, cells);
        }

        #[inline]
        fn take_all_at(count: usize, cells: &[u8]) -> Result<Vec<Self>, Invalid> {
            Ok(cells[..count].to_vec())
        }

        #[inline]
        fn unconverted(bytes: &[u8]) -> Option<&[Self]> {
            Some(bytes)
        }

        #[inline]
        fn take_array_at<const N: usize>(cells: &[u8]) -> Result<[Self; N], Invalid> {
            cells.first_chunk().copied().ok_or(Invalid::Short)
        }
    },
}

/// One cell: 0 or 1. Other numbers are refused on arrival.
impl<R: Cells> Foreign<R> for bool {
    const LEAST: usize = R::CELL;
    fixed!(R);

    #[inline(always)]
    fn put_at(&self, cells: &mut [u8]) {
        put_cell::<R>(u32::from(*self), cells);
    }

    #[inline(always)]
    fn take_at(cells: &[u8]) -> Result<Self, Invalid> {
        match cell_at::<R>(cells) {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Invalid::Bits),
        }
    }
}
