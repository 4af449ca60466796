//! `Input` takes values from received bytes.

use core::marker::PhantomData;

use super::{Bounded, Cells, Foreign, Invalid, System};
use crate::limits;

/// A cursor over received bytes.
///
/// ```
/// use peregrine::foreign::{Courier, Foreign as _, Input, Invalid};
///
/// let mut input = Input::<Courier>::new(&[0, 3, b'a', b'b', b'c', 0, 0xff, 0xff]);
/// assert_eq!(input.text(5)?, "abc");
/// assert_eq!(i16::take(&mut input)?, -1);
/// input.finish()?;
/// # Ok::<(), Invalid>(())
/// ```
#[derive(Debug)]
pub struct Input<'a, R: Cells> {
    /// The bytes that have not been taken.
    rest: &'a [u8],
    depth: u32,
    /// The number of bytes of stack for the values that are being taken, summed over all levels of nesting.
    nested: usize,
    /// The number of elements without bytes that were taken, in all sequences together.
    empty: usize,
    representation: PhantomData<R>,
}

/// The elements of a sequence that was taken.
#[derive(Debug)]
pub enum Elements<'a, T> {
    /// A part of the received bytes.
    Borrowed(&'a [T]),
    /// Converted elements.
    Owned(Vec<T>),
}

impl<T> core::ops::Deref for Elements<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Self::Borrowed(elements) => elements,
            Self::Owned(elements) => elements,
        }
    }
}

impl<'a, R: Cells> Input<'a, R> {
    /// Makes an input that begins at the first byte of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, depth: 0, nested: 0, empty: 0, representation: PhantomData }
    }

    /// Returns the bytes that have not been taken.
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Checks that all bytes have been taken.
    ///
    /// # Errors
    /// [`Invalid::Long`] if bytes are left.
    #[inline]
    pub const fn finish(&self) -> Result<(), Invalid> {
        if self.rest.is_empty() { Ok(()) } else { Err(Invalid::Long) }
    }

    /// Checks that all bytes of results have been taken. Cells after results of ONC RPC are ignored, because
    /// some servers send more than their interface file says, and other clients ignore these cells.
    ///
    /// # Errors
    /// [`Invalid::Long`] if other bytes are left.
    pub(crate) fn finish_results(&self) -> Result<(), Invalid> {
        match R::SYSTEM {
            System::Onc if self.rest.len().is_multiple_of(R::CELL) => Ok(()),
            _ => self.finish(),
        }
    }

    /// Takes one cell.
    ///
    /// # Errors
    /// [`Invalid::Short`] if fewer bytes are left than a cell has.
    #[inline]
    pub fn cell(&mut self) -> Result<u32, Invalid> {
        self.claim(R::CELL).map(cell_at::<R>)
    }

    /// Takes a count of bytes or elements.
    ///
    /// # Errors
    /// [`Invalid::TooLong`] if the count is larger than `most`, and [`Invalid::Short`] if fewer bytes are
    /// left than a cell has.
    #[inline]
    pub fn count(&mut self, most: usize) -> Result<usize, Invalid> {
        let count = self.cell()? as usize;
        if count > most { Err(Invalid::TooLong) } else { Ok(count) }
    }

    /// Takes bytes without a count, and skips the padding after them.
    ///
    /// # Errors
    /// If there are too few bytes.
    #[inline]
    pub fn opaque(&mut self, bytes: usize) -> Result<&'a [u8], Invalid> {
        let padded = bytes.checked_next_multiple_of(R::CELL).ok_or(Invalid::Short)?;
        Ok(&self.claim(padded)?[..bytes])
    }

    /// Takes a byte string of at most `most` bytes.
    ///
    /// # Errors
    /// If there are too few bytes, or if the byte string is longer than `most`.
    #[inline]
    pub fn byte_string(&mut self, most: usize) -> Result<&'a [u8], Invalid> {
        let bytes = self.count(most)?;
        self.opaque(bytes)
    }

    /// Takes a text of at most `most` bytes.
    ///
    /// # Errors
    /// As for [`byte_string`](Self::byte_string). [`Invalid::Utf8`] if the bytes are not UTF-8.
    #[inline]
    pub fn text(&mut self, most: usize) -> Result<&'a str, Invalid> {
        core::str::from_utf8(self.byte_string(most)?).map_err(|_| Invalid::Utf8)
    }

    /// Runs `inner` at a nesting that is one level deeper. Without a limit, a peer could overflow the stack.
    ///
    /// # Errors
    /// [`Invalid::TooDeep`] beyond [`DEPTH_MAX`](crate::limits::DEPTH_MAX) levels, and the error of `inner`.
    #[inline]
    pub fn deeper<T>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<T, Invalid>,
    ) -> Result<T, Invalid> {
        self.deeper_by(size_of::<T>(), inner)
    }

    /// Runs `inner` at a nesting that is one level deeper, for values that need `bytes` bytes of stack.
    #[inline]
    pub(super) fn deeper_by<T>(
        &mut self,
        bytes: usize,
        inner: impl FnOnce(&mut Self) -> Result<T, Invalid>,
    ) -> Result<T, Invalid> {
        if self.depth >= limits::DEPTH_MAX || self.nested >= limits::DEPTH_BYTES_MAX {
            return Err(Invalid::TooDeep);
        }
        self.depth += 1;
        self.nested += bytes;
        let value = inner(self);
        self.nested -= bytes;
        self.depth -= 1;
        value
    }

    /// Counts an element without bytes. The number of such elements is limited, because a few bytes could
    /// claim a huge number of them.
    pub(super) const fn empty(&mut self) -> Result<(), Invalid> {
        if self.empty >= limits::EMPTY_VALUES_MAX {
            return Err(Invalid::TooLong);
        }
        self.empty += 1;
        Ok(())
    }

    /// Takes a value of fixed size.
    #[doc(hidden)]
    #[inline]
    pub fn fixed<T: Foreign<R>>(&mut self) -> Result<T, Invalid> {
        T::take_at(self.claim(T::LEAST)?)
    }

    /// Takes a sequence of at most `most` elements. Borrows elements that need no conversion.
    ///
    /// # Errors
    /// As for [`Bounded::take_at_most`] of [`Vec`].
    #[doc(hidden)]
    #[inline]
    pub fn elements<T: Foreign<R>>(&mut self, most: usize) -> Result<Elements<'a, T>, Invalid> {
        if T::PACKED {
            let mut ahead = Self { ..*self };
            let bytes = ahead.byte_string(most)?;
            if let Some(elements) = T::unconverted(bytes) {
                *self = ahead;
                return Ok(Elements::Borrowed(elements));
            }
        }
        Vec::take_at_most(most, self).map(Elements::Owned)
    }

    /// Takes the cells of a value if every content of these cells is a valid `T`. The caller then reads the
    /// value by [`Foreign::of_cells`]. Otherwise takes nothing, and returns `None`.
    #[doc(hidden)]
    #[inline(always)]
    pub fn cells_of<T: Foreign<R>>(&mut self) -> Result<Option<&'a [u8]>, Invalid> {
        if T::ANY_CELLS { self.claim(T::LEAST).map(Some) } else { Ok(None) }
    }

    /// Takes the next `bytes` bytes.
    #[inline(always)]
    pub(super) fn claim(&mut self, bytes: usize) -> Result<&'a [u8], Invalid> {
        self.rest.split_off(..bytes).ok_or(Invalid::Short)
    }
}

/// Reads one cell. `bytes` has the size of a cell.
#[doc(hidden)]
#[inline(always)]
pub fn cell_at<R: Cells>(bytes: &[u8]) -> u32 {
    let mut cell = [0; 4];
    cell[4 - R::CELL..].copy_from_slice(bytes);
    u32::from_be_bytes(cell)
}
