//! `Reader` takes values from a head that a peer wrote. The head of a message is the part with its small
//! values. Each byte is fetched once.

use core::marker::PhantomData;

use super::{Native, Plain, Representation, Swap, Window};
use crate::limits;

/// Why received bytes are not valid values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invalid {
    /// The message ends before the value does.
    Short,
    /// Bytes are left after the last value.
    Long,
    /// Bits that are not a value of the type: a `bool` of 2, a surrogate `char`, an unknown variant.
    Bits,
    /// Text that is not UTF-8.
    Utf8,
    /// A block of the wrong length or alignment.
    Block,
    /// More elements than the interface's `max_len`, or than fit the buffer of the other side.
    TooLong,
    /// Structures that are nested deeper than [`limits::DEPTH_MAX`](crate::limits::DEPTH_MAX).
    TooDeep,
    /// A linked list with more nodes than [`limits::LIST_NODES_MAX`](crate::limits::LIST_NODES_MAX). A
    /// type with a field that is declared `#[list]` may have more nodes.
    LongList,
    /// A key of a map, or a member of a set, that occurs twice.
    Duplicate,
    /// The sender stopped in the middle of a message, or sent it too slowly.
    Stopped,
}

impl core::fmt::Display for Invalid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Short => "the message ends before its last value",
            Self::Long => "the message has bytes after its last value",
            Self::Bits => "bits that are not a value of the declared type",
            Self::Utf8 => "text that is not UTF-8",
            Self::Block => "a buffer of the wrong length or alignment",
            Self::TooLong => "more elements than the interface allows",
            Self::TooDeep => return super::writer::too_deep(f),
            Self::LongList => return super::list::too_long(f),
            Self::Duplicate => "a key of a map, or a member of a set, that occurs twice",
            Self::Stopped => {
                "the sender stopped in the middle of the message, or sent it too slowly"
            }
        })
    }
}

impl std::error::Error for Invalid {}

/// A cursor over a received head. Values are aligned as in memory, relative to the start of the head.
#[derive(Debug)]
pub struct Reader<'a, R: Representation = Native> {
    head: Window<'a>,
    at: usize,
    depth: u32,
    /// The number of bytes of stack for the values that are being taken, summed over all levels of nesting.
    nested: usize,
    /// The number of elements without bytes that were taken, in all sequences of the head together.
    empty: usize,
    /// The number of taken values that need memory of their own, even if they have no bytes in the head.
    made: usize,
    representation: PhantomData<R>,
}

impl<'a> Reader<'a> {
    /// Makes a reader at the start of `head`. The values have the native representation.
    #[inline]
    pub const fn new(head: Window<'a>) -> Self {
        Self::represented(head)
    }
}

impl<'a, R: Representation> Reader<'a, R> {
    /// Makes a reader at the start of `head`. The values have the representation `R`.
    #[inline]
    pub const fn represented(head: Window<'a>) -> Self {
        Self { head, at: 0, depth: 0, nested: 0, empty: 0, made: 0, representation: PhantomData }
    }

    /// Returns the number of bytes that have not been taken.
    #[inline]
    pub const fn remaining(&self) -> usize {
        self.head.len() - self.at
    }

    /// Returns the bytes that have not been taken. They are not converted.
    pub(crate) fn rest(&self) -> Window<'a> {
        self.head.range(self.at, self.remaining())
    }

    /// Takes one plain value at its natural alignment.
    #[inline(always)]
    pub fn plain<T: Plain>(&mut self) -> Result<T, Invalid> {
        let at = self.at.next_multiple_of(align_of::<T>());
        match self.head.read_represented::<T, R>(at) {
            Some(value) => {
                self.at = at + size_of::<T>();
                Ok(value)
            }
            None => Err(self.why_not::<T>(at)),
        }
    }

    #[cold]
    fn why_not<T: Plain>(&self, at: usize) -> Invalid {
        let there = self.head.part(at, size_of::<T>()).is_some();
        if there { Invalid::Bits } else { Invalid::Short }
    }

    /// Takes a count of elements or bytes.
    #[inline]
    pub fn count(&mut self) -> Result<usize, Invalid> {
        self.plain::<u32>().map(|count| count as usize)
    }

    /// Takes `N` consecutive plain values at once. This is possible because an array of plain values is
    /// plain.
    #[inline(always)]
    pub fn plain_array<T: Plain, const N: usize>(&mut self) -> Result<[T; N], Invalid> {
        // An empty array has no padding before it.
        let bytes = size_of::<[T; N]>();
        let at = if bytes == 0 { self.at } else { self.at.next_multiple_of(align_of::<T>()) };
        let taken = self.head.read_large::<[T; N], R>(at);
        if taken.is_ok() {
            self.at = at + bytes;
        }
        taken
    }

    /// Takes `count` consecutive plain values.
    pub fn plain_vec<T: Plain>(&mut self, count: usize) -> Result<Vec<T>, Invalid> {
        let bytes = count.checked_mul(size_of::<T>()).ok_or(Invalid::Short)?;
        let at = if bytes == 0 { self.at } else { self.at.next_multiple_of(align_of::<T>()) };
        let block = self.head.part(at, bytes).ok_or(Invalid::Short)?;
        let values = if T::ANY_BITS {
            let mut values = Vec::with_capacity(count);
            let swap = if R::SWAPPED { Swap::of::<T>() } else { None };
            super::buffer::fill_vec(&mut values, block, swap);
            values
        } else {
            let value = |i| block.read_represented::<T, R>(i * size_of::<T>()).ok_or(Invalid::Bits);
            (0..count).map(value).collect::<Result<_, _>>()?
        };
        self.at = at + bytes;
        Ok(values)
    }

    /// Takes `count` bytes at a multiple of `align`, and replaces the contents of `bytes` by them. Converts
    /// them as `swap` defines.
    pub(crate) fn bytes(
        &mut self,
        align: usize,
        count: usize,
        swap: Option<&'static Swap>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Invalid> {
        let at = if count == 0 { self.at } else { self.at.next_multiple_of(align) };
        let block = self.head.part(at, count).ok_or(Invalid::Short)?;
        bytes.clear();
        bytes.reserve(count);
        super::buffer::fill_vec(bytes, block, swap);
        self.at = at + count;
        Ok(())
    }

    /// Takes `count` bytes at a multiple of `align`, without conversion.
    #[inline]
    pub(crate) fn window(&mut self, align: usize, count: usize) -> Result<Window<'a>, Invalid> {
        let at = if count == 0 { self.at } else { self.at.next_multiple_of(align) };
        let window = self.head.part(at, count).ok_or(Invalid::Short)?;
        self.at = at + count;
        Ok(window)
    }

    /// Counts an element without bytes. The number of such elements in a head is limited, because in
    /// sequences of sequences a few bytes could claim a huge number of them.
    pub(super) const fn empty(&mut self) -> Result<(), Invalid> {
        if self.empty >= limits::EMPTY_VALUES_MAX {
            return Err(Invalid::TooLong);
        }
        self.empty += 1;
        Ok(())
    }

    /// Counts a value that needs memory of its own. The number of such values is limited to four for each
    /// byte of the head, plus the limit for elements without bytes.
    #[inline]
    pub(crate) fn makes_one(&mut self) -> Result<(), Invalid> {
        self.made += 1;
        if self.made > limits::EMPTY_VALUES_MAX + 4 * self.head.len() {
            return Err(Invalid::TooLong);
        }
        Ok(())
    }

    /// Runs `inner` at a nesting that is one level deeper. Fails if structures nest too deeply.
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

    /// Checks that all bytes have been taken.
    #[inline]
    pub const fn finish(&self) -> Result<(), Invalid> {
        if self.remaining() == 0 { Ok(()) } else { Err(Invalid::Long) }
    }
}
