//! Values in the representations of other RPC systems: XDR, which ONC RPC (Sun RPC) uses, and Courier.
//!
//! A type has a form in a representation if it implements [`Foreign`]. The type parameter of this trait is
//! the representation: [`Xdr`] (RFC 4506) or [`Courier`] (Xerox's standard XSIS 038112). Derive
//! [`Foreign`](derive@Foreign) for your own types. They then have a form in each representation in which all
//! of their fields have one.
//!
//! ```
//! use peregrine::foreign::{ByteString, Foreign, Xdr, from_bytes, to_bytes};
//!
//! #[derive(Debug, PartialEq, Foreign)]
//! struct Entry {
//!     id: u32,
//!     #[foreign(max = 255)]
//!     name: ByteString,
//!     kind: Kind,
//! }
//!
//! /// An enumeration: the numbers are those of the variants.
//! #[derive(Debug, PartialEq, Foreign)]
//! enum Kind {
//!     File = 1,
//!     Directory = 2,
//! }
//!
//! let entry = Entry { id: 7, name: "etc".into(), kind: Kind::Directory };
//! let bytes = to_bytes::<Xdr>(&entry).unwrap();
//! assert_eq!(bytes, [0, 0, 0, 7, 0, 0, 0, 3, b'e', b't', b'c', 0, 0, 0, 0, 2]);
//! assert_eq!(from_bytes::<Xdr, Entry>(&bytes), Ok(entry));
//! ```
//!
//! Each representation is a sequence of big-endian *cells*: of 4 bytes in XDR, and of 2 bytes in Courier.
//! `docs/FOREIGN.md` in the repository defines every byte.

mod bounded;
mod byte_string;
mod cases;
mod input;
mod numbers;
mod output;
mod program;
mod structured;

pub use bounded::Bounded;
pub use byte_string::ByteString;
pub use cases::Reports;
#[doc(hidden)]
pub use cases::{CaseNumber, Cases, case, check_case, error_number, is_one_of};
pub use input::Input;
#[doc(hidden)]
pub use input::{Elements, cell_at};
pub use output::Output;
#[doc(hidden)]
pub use output::put_cell;
pub use peregrine_macros::Foreign;
pub use program::{Ends, Fails, Program};
#[doc(hidden)]
pub use structured::{cells_of, cells_of_mut};

pub use crate::interface::System;
#[doc(hidden)]
pub use crate::value::{FreesInALoop, Nodes};
pub use crate::value::{Invalid, Overflow};

/// A representation that consists of big-endian cells: [`Xdr`] or [`Courier`].
pub trait Cells: sealed::Sealed + Copy + core::fmt::Debug + 'static {
    /// The name of the representation.
    const NAME: &'static str;
    /// The RPC system that uses the representation.
    const SYSTEM: System;
    /// The size of a cell in bytes. Every value has a whole number of cells.
    const CELL: usize;
    /// The largest count of bytes or elements.
    const COUNT_MAX: usize;
    /// The smallest number of a variant.
    const CASE_MIN: i64;
    /// The largest number of a variant.
    const CASE_MAX: i64;
}

/// The representation of ONC RPC: RFC 4506. Cells have 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xdr;

/// The representation of Courier: Xerox's standard XSIS 038112. Cells have 2 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Courier;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Xdr {}
    impl Sealed for super::Courier {}
}

impl Cells for Xdr {
    const NAME: &'static str = "XDR";
    const SYSTEM: System = System::Onc;
    const CELL: usize = 4;
    const COUNT_MAX: usize = u32::MAX as usize;
    // The number of a variant of a union is an `int` or an `unsigned int`.
    const CASE_MIN: i64 = i32::MIN as i64;
    const CASE_MAX: i64 = u32::MAX as i64;
}

impl Cells for Courier {
    const NAME: &'static str = "Courier";
    const SYSTEM: System = System::Courier;
    const CELL: usize = 2;
    const COUNT_MAX: usize = u16::MAX as usize;
    const CASE_MIN: i64 = 0;
    const CASE_MAX: i64 = u16::MAX as i64;
}

/// A representation that has optional values (`T *name;` in XDR).
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no optional values",
    label = "`Option` has no form in `{Self}`",
    note = "use an enum with `#[foreign(case = N)]` on its variants"
)]
pub trait Optional: Cells {}

impl Optional for Xdr {}

/// A type that has a form in the representation `R`.
///
/// | Rust | XDR | Courier |
/// |---|---|---|
/// | `bool` | `bool` | `BOOLEAN` |
/// | `i32`, `u32` | `int`, `unsigned int` | `LONG INTEGER`, `LONG CARDINAL` |
/// | `i64`, `u64` | `hyper`, `unsigned hyper` | |
/// | `i16`, `u16` | `short`, `unsigned short` | `INTEGER`, `CARDINAL` |
/// | `i8`, `u8` | `char`, `unsigned char` | |
/// | `f32`, `f64` | `float`, `double` | |
/// | `[u8; N]`, `Vec<u8>` | `opaque[N]`, `opaque<>` | |
/// | other `[T; N]` | `T x[N]` | `ARRAY N OF T` |
/// | other `Vec<T>` | `T x<>` | `SEQUENCE OF T` |
/// | `String` (UTF-8), [`ByteString`] | `string<>` | `STRING` |
/// | `Option<T>` | `T *x` | |
/// | struct, tuple | `struct` | `RECORD` |
/// | enum without fields | `enum` | enumeration |
/// | enum with fields | `union` | `CHOICE` |
/// | `Box<T>` | `T` | `T` |
/// | `()` | `void` | `RECORD []` |
///
/// [`derive@Foreign`] implements this trait for structs and enums.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no form in `{R}`",
    label = "has no form in `{R}`",
    note = "derive `peregrine::foreign::Foreign` on your own types",
    note = "Courier has no numbers of 8 or 64 bits, no floating point numbers and no optional values"
)]
pub trait Foreign<R: Cells>: Sized {
    /// The smallest number of bytes that a value takes.
    const LEAST: usize;

    /// Whether every value takes exactly [`LEAST`](Self::LEAST) bytes. If so, the methods whose names end
    /// with `_at` are used, which access memory of the right length.
    #[doc(hidden)]
    const FIXED: bool = false;

    /// Whether arrays and sequences of this type have no padding between their elements, which are bytes.
    #[doc(hidden)]
    const PACKED: bool = false;

    /// Whether the size is fixed, and every content of the cells is a valid value, as for numbers. If so,
    /// stubs take arguments by [`of_cells`](Self::of_cells).
    #[doc(hidden)]
    const ANY_CELLS: bool = false;

    /// Appends the value.
    ///
    /// # Errors
    /// [`Overflow::Full`] if the value does not fit the memory, and other errors if it exceeds a limit.
    fn put(&self, to: &mut Output<'_, R>) -> Result<(), Overflow>;

    /// Takes a value from received bytes.
    ///
    /// # Errors
    /// If the bytes are not a value of this type.
    fn take(from: &mut Input<'_, R>) -> Result<Self, Invalid>;

    /// Writes a value of fixed size. `cells` has [`LEAST`](Self::LEAST) bytes.
    #[doc(hidden)]
    #[inline]
    fn put_at(&self, cells: &mut [u8]) {
        let done = self.put(&mut Output::new(cells));
        debug_assert!(done.is_ok(), "a value of fixed size has another size");
    }

    /// Reads a value of fixed size. `cells` has [`LEAST`](Self::LEAST) bytes.
    #[doc(hidden)]
    #[inline]
    fn take_at(cells: &[u8]) -> Result<Self, Invalid> {
        Self::take(&mut Input::new(cells))
    }

    /// Reads a value of fixed size. Every content of `cells` must be a valid value, as
    /// [`ANY_CELLS`](Self::ANY_CELLS) says. The value is not in a `Result`, because a large array would be
    /// copied several times on its way to the variable of the caller.
    #[doc(hidden)]
    #[inline(always)]
    fn of_cells(cells: &[u8]) -> Self {
        Self::take_at(cells).expect("every content of the cells is a value")
    }

    /// Reads an array of values, each as [`of_cells`](Self::of_cells) does.
    #[doc(hidden)]
    #[inline(always)]
    fn array_of_cells<const N: usize>(cells: &[u8]) -> [Self; N] {
        core::array::from_fn(|i| Self::of_cells(&cells[i * Self::LEAST..][..Self::LEAST]))
    }

    /// Writes elements of fixed size. `cells` has exactly the bytes of these elements.
    #[doc(hidden)]
    #[inline]
    fn put_all_at(values: &[Self], cells: &mut [u8]) {
        structured::put_all_at(values, cells);
    }

    /// Reads elements of fixed size. `cells` has exactly the bytes of `count` elements.
    #[doc(hidden)]
    #[inline]
    fn take_all_at(count: usize, cells: &[u8]) -> Result<Vec<Self>, Invalid> {
        structured::take_all_at(count, cells)
    }

    /// Returns the elements whose bytes are `bytes`, if they need no conversion. Only elements of a
    /// [`PACKED`](Self::PACKED) type need no conversion.
    #[doc(hidden)]
    #[inline]
    fn unconverted(_bytes: &[u8]) -> Option<&[Self]> {
        None
    }

    /// Reads an array of elements of fixed size. `cells` has exactly the bytes of `N` elements.
    #[doc(hidden)]
    #[inline]
    fn take_array_at<const N: usize>(cells: &[u8]) -> Result<[Self; N], Invalid> {
        structured::array(|i| Self::take_at(&cells[i * Self::LEAST..][..Self::LEAST]))
    }
}

/// Returns the bytes of a value.
///
/// # Errors
/// [`Overflow::Full`] if there are more than [`MESSAGE_BYTES_MAX`](crate::limits::MESSAGE_BYTES_MAX) bytes,
/// and other errors if the value exceeds another limit.
///
/// ```
/// use peregrine::foreign::{Courier, Xdr, to_bytes};
///
/// assert_eq!(to_bytes::<Xdr>(&"ab".to_owned()).unwrap(), [0, 0, 0, 2, b'a', b'b', 0, 0]);
/// assert_eq!(to_bytes::<Courier>(&"ab".to_owned()).unwrap(), [0, 2, b'a', b'b']);
/// ```
pub fn to_bytes<R: Cells>(value: &impl Foreign<R>) -> Result<Vec<u8>, Overflow> {
    let mut counted = Output::counting(crate::limits::MESSAGE_BYTES_MAX);
    value.put(&mut counted)?;
    let mut bytes = vec![0; counted.len()];
    value.put(&mut Output::new(&mut bytes))?;
    Ok(bytes)
}

/// Returns the value whose bytes are `bytes`. The memory of the value is bounded by the number of bytes.
///
/// # Errors
/// If the bytes are not a value of type `T`. [`Invalid::Long`] if bytes are left after the value.
///
/// ```
/// use peregrine::foreign::{Invalid, Xdr, from_bytes};
///
/// let bytes = [0, 0, 0, 1, 0, 0, 0, 7];
/// assert_eq!(from_bytes::<Xdr, Option<u32>>(&bytes), Ok(Some(7)));
/// assert_eq!(from_bytes::<Xdr, u32>(&bytes), Err(Invalid::Long));
/// assert_eq!(from_bytes::<Xdr, Vec<u64>>(&bytes), Err(Invalid::Short));
/// ```
pub fn from_bytes<R: Cells, T: Foreign<R>>(bytes: &[u8]) -> Result<T, Invalid> {
    let mut input = Input::new(bytes);
    let value = T::take(&mut input)?;
    input.finish()?;
    Ok(value)
}
