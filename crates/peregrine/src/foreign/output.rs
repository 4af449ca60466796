//! `Output` appends values to the memory of a caller, or only counts their bytes.

use core::marker::PhantomData;

use super::{Cells, Foreign, Overflow, structured};
use crate::limits;

/// A cursor that appends values to memory, or counts the bytes of values. It allocates nothing.
///
/// ```
/// use peregrine::foreign::{Foreign as _, Output, Overflow, Xdr};
///
/// let mut memory = [0xff; 12];
/// let mut output = Output::<Xdr>::new(&mut memory);
/// 1u32.put(&mut output)?;
/// output.text("a")?;
/// assert_eq!(output.len(), 12);
/// # Ok::<(), Overflow>(())
/// ```
#[derive(Debug)]
pub struct Output<'a, R: Cells> {
    /// The memory that has not been written.
    rest: &'a mut [u8],
    /// The length in bytes of the memory that the caller passed to `new`.
    given: usize,
    /// The number of bytes that were counted and not written.
    counted: usize,
    /// The largest value of `counted`. Zero if the values are written.
    countable: usize,
    depth: u32,
    representation: PhantomData<R>,
}

impl<'a, R: Cells> Output<'a, R> {
    /// Makes an output that writes values to `memory`, from its first byte on.
    #[inline]
    pub const fn new(memory: &'a mut [u8]) -> Self {
        let given = memory.len();
        Self {
            rest: memory,
            given,
            counted: 0,
            countable: 0,
            depth: 0,
            representation: PhantomData,
        }
    }

    /// Makes an output that only counts the bytes of values, up to `most` bytes.
    #[inline]
    pub const fn counting(most: usize) -> Self {
        Self {
            rest: &mut [],
            given: 0,
            counted: 0,
            countable: most,
            depth: 0,
            representation: PhantomData,
        }
    }

    /// Returns the number of bytes that were written or counted.
    #[inline]
    pub const fn len(&self) -> usize {
        self.given - self.rest.len() + self.counted
    }

    /// Returns whether nothing was written or counted.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends one cell. In Courier, `cell` is at most 65,535.
    ///
    /// # Errors
    /// [`Overflow::Full`] if the memory is too short.
    #[inline]
    pub fn cell(&mut self, cell: u32) -> Result<(), Overflow> {
        if let Some(memory) = self.claim(R::CELL)? {
            put_cell::<R>(cell, memory);
        }
        Ok(())
    }

    /// Appends a count of bytes or elements.
    ///
    /// # Errors
    /// If the count is too large for the representation, or if the memory is too short.
    #[inline]
    pub fn count(&mut self, count: usize) -> Result<(), Overflow> {
        if count > R::COUNT_MAX {
            return Err(Overflow::TooLong);
        }
        self.cell(count as u32)
    }

    /// Appends bytes without a count, and zeros up to the end of the last cell.
    ///
    /// # Errors
    /// [`Overflow::Full`] if the memory is too short.
    #[inline]
    pub fn opaque(&mut self, bytes: &[u8]) -> Result<(), Overflow> {
        let padded = bytes.len().checked_next_multiple_of(R::CELL).ok_or(Overflow::Full)?;
        if let Some(memory) = self.claim(padded)? {
            put_padded(bytes, memory);
        }
        Ok(())
    }

    /// Appends a byte string: the count, the bytes, and zeros up to the end of the last cell.
    ///
    /// # Errors
    /// If there are too many bytes for the representation, or if the memory is too short.
    #[inline]
    pub fn byte_string(&mut self, bytes: &[u8]) -> Result<(), Overflow> {
        self.count(bytes.len())?;
        self.opaque(bytes)
    }

    /// Appends a text: a byte string with the text's UTF-8.
    ///
    /// # Errors
    /// As for [`byte_string`](Self::byte_string).
    #[inline]
    pub fn text(&mut self, text: &str) -> Result<(), Overflow> {
        self.byte_string(text.as_bytes())
    }

    /// Appends a sequence: the number of elements, and the elements.
    ///
    /// # Errors
    /// If there are too many elements for the representation, or if an element cannot be appended.
    #[inline]
    pub fn sequence<T: Foreign<R>>(&mut self, values: &[T]) -> Result<(), Overflow> {
        self.count(values.len())?;
        self.deeper(|to| structured::put_all(values, to))
    }

    /// Runs `inner` at a nesting that is one level deeper. Without a limit, a deep structure would overflow
    /// the stack.
    ///
    /// # Errors
    /// [`Overflow::TooDeep`] beyond [`DEPTH_MAX`](crate::limits::DEPTH_MAX) levels, and the error of `inner`.
    #[inline]
    pub fn deeper(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<(), Overflow>,
    ) -> Result<(), Overflow> {
        if self.depth >= limits::DEPTH_MAX {
            return Err(Overflow::TooDeep);
        }
        self.depth += 1;
        let done = inner(self);
        self.depth -= 1;
        done
    }

    /// Appends a value of fixed size.
    #[doc(hidden)]
    #[inline]
    pub fn fixed<T: Foreign<R>>(&mut self, value: &T) -> Result<(), Overflow> {
        if let Some(memory) = self.claim(T::LEAST)? {
            value.put_at(memory);
        }
        Ok(())
    }

    /// Returns the next `bytes` bytes of the memory, which the caller then writes. Returns `None` if the
    /// output only counts.
    #[inline(always)]
    pub(super) fn claim(&mut self, bytes: usize) -> Result<Option<&'a mut [u8]>, Overflow> {
        match self.rest.split_off_mut(..bytes) {
            Some(memory) => Ok(Some(memory)),
            None => self.only_count(bytes),
        }
    }

    #[cold]
    fn only_count(&mut self, bytes: usize) -> Result<Option<&'a mut [u8]>, Overflow> {
        match self.counted.checked_add(bytes) {
            Some(counted) if counted <= self.countable => {
                self.counted = counted;
                Ok(None)
            }
            _ => Err(Overflow::Full),
        }
    }
}

/// Writes one cell. `memory` has the size of a cell.
#[doc(hidden)]
#[inline(always)]
pub fn put_cell<R: Cells>(cell: u32, memory: &mut [u8]) {
    memory.copy_from_slice(&cell.to_be_bytes()[4 - R::CELL..]);
}

/// Writes bytes, and zeros after them until `memory` is full.
#[inline]
pub(super) fn put_padded(bytes: &[u8], memory: &mut [u8]) {
    let (own, padding) = memory.split_at_mut(bytes.len());
    own.copy_from_slice(bytes);
    padding.fill(0);
}
