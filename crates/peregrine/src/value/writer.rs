//! `Writer` appends values to the head of a message, directly in the memory of the message. The head is the
//! part with the small values.

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use super::{Block, Head, Native, Plain, Representation, Space, Swap, Window, bytes_of};

/// Why a value cannot be appended to a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// The value does not fit the rest of the head.
    Full,
    /// More elements than a count can express, or than the interface allows.
    TooLong,
    /// Structures that are nested deeper than [`limits::DEPTH_MAX`](crate::limits::DEPTH_MAX).
    TooDeep,
    /// A linked list with more nodes than [`limits::LIST_NODES_MAX`](crate::limits::LIST_NODES_MAX). A
    /// type with a field that is declared `#[list]` may have more nodes.
    LongList,
    /// A value of the variant for all other numbers (`#[foreign(default)]`) whose number is that of another
    /// variant. See [`derive@crate::foreign::Foreign`].
    Case,
}

impl core::fmt::Display for Overflow {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Full => "the values do not fit the message",
            Self::TooLong => "more elements than the interface allows",
            Self::TooDeep => return too_deep(f),
            Self::LongList => return super::list::too_long(f),
            Self::Case => "the variant for all other numbers has the number of another variant",
        })
    }
}

/// Writes that structures nest too deeply, and what the limit is.
pub(super) fn too_deep(f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
    let most = crate::limits::DEPTH_MAX;
    write!(
        f,
        "structures nested too deeply: at most {most} levels of `Vec`, `Option`, `Result` and `Box`"
    )
}

impl std::error::Error for Overflow {}

/// A cursor that appends values to a head. Padding is written as zeros.
///
/// A `Writer` consists of a [`Head`] and a representation of values.
#[derive(Debug)]
pub struct Writer<'a, R: Representation = Native> {
    head: Head<'a>,
    representation: PhantomData<R>,
}

impl<'a> Writer<'a> {
    /// Makes a writer at the start of `space`. It writes values in the native representation.
    #[inline]
    pub const fn new(space: Space<'a>) -> Self {
        Self::represented(space)
    }
}

impl<'a, R: Representation> Deref for Writer<'a, R> {
    type Target = Head<'a>;
    #[inline]
    fn deref(&self) -> &Head<'a> {
        &self.head
    }
}

impl<'a, R: Representation> DerefMut for Writer<'a, R> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Head<'a> {
        &mut self.head
    }
}

impl<'a, R: Representation> Writer<'a, R> {
    /// Makes a writer at the start of `space`. It writes values in the representation `R`.
    #[inline]
    pub const fn represented(space: Space<'a>) -> Self {
        Self { head: Head::new(space), representation: PhantomData }
    }

    /// Appends one plain value at its natural alignment.
    #[inline(always)]
    pub fn plain<T: Plain>(&mut self, value: &T) -> Result<(), Overflow> {
        if self.head.append_first::<T, R>(value) {
            return Ok(());
        }
        if R::SWAPPED {
            self.plain_all(core::slice::from_ref(value))
        } else {
            self.head.plain(value)
        }
    }

    /// Appends a count of elements or bytes.
    #[inline]
    pub fn count(&mut self, count: usize) -> Result<(), Overflow> {
        self.plain(&u32::try_from(count).map_err(|_| Overflow::TooLong)?)
    }

    /// Appends plain values one after the other.
    #[inline]
    pub fn plain_all<T: Plain>(&mut self, values: &[T]) -> Result<(), Overflow> {
        // An empty sequence has no padding before it.
        if size_of_val(values) == 0 {
            return Ok(());
        }
        let bytes = bytes_of(values);
        if R::SWAPPED {
            let block = Block::new(Window::from(bytes), Swap::of::<T>());
            return self.head.block(align_of::<T>(), &block);
        }
        self.head.bytes(align_of::<T>(), bytes)
    }

    /// Appends bytes at a multiple of `align`. Converts them as `swap` defines.
    #[inline]
    pub(crate) fn bytes(
        &mut self,
        align: usize,
        bytes: &[u8],
        swap: Option<&'static Swap>,
    ) -> Result<(), Overflow> {
        match swap {
            None => self.head.bytes(align, bytes),
            Some(_) => self.head.block(align, &Block::new(Window::from(bytes), swap)),
        }
    }

    /// Converts a block and appends it at a multiple of `align`.
    #[inline]
    pub(crate) fn block(&mut self, align: usize, block: &Block<'_>) -> Result<(), Overflow> {
        self.head.block(align, block)
    }

    /// Appends the bytes in a window at a multiple of `align`, without conversion.
    #[inline]
    pub(crate) fn window(&mut self, align: usize, window: Window<'_>) -> Result<(), Overflow> {
        self.head.window(align, window)
    }

    /// Appends zeros up to a multiple of `align`.
    #[inline]
    pub(crate) fn align_to(&mut self, align: usize) -> Result<(), Overflow> {
        self.head.align(align)
    }

    /// Runs `inner` at a nesting that is one level deeper. Fails if structures nest too deeply.
    #[inline]
    pub fn deeper(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<(), Overflow>,
    ) -> Result<(), Overflow> {
        self.head.deepen()?;
        let done = inner(self);
        self.head.rise();
        done
    }
}
