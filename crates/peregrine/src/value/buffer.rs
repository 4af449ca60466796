//! Buffers that the caller provides. The result fills an `Out`. A `Lent` is not copied for the procedure.
//!
//! In the RPC systems Peregrine (1991) and Firefly, a pointer argument is declared *in*, *out* or *in-out*.
//! So no data is sent in a direction in which it is not needed. In LRPC, an argument can be marked as one
//! that need not be copied before the procedure sees it. This library has a type for each of these kinds of
//! arguments.

#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ptr::NonNull;
use std::fs::File;
use std::io::{self, Read, Write};

use super::swap::CopyMethod;
use super::window::BounceBuffer;
use super::{Arriving, Block, Departing, Invalid, Plain, Space, Swap, Window, bytes_of};
use crate::sys;

/// The size in bytes of the buffer on the stack through which bytes are copied where a private copy is
/// needed.
const CHUNK_BYTES: usize = 4096;
/// Parts of a block may be copied before the result is complete. If the block has at least this number of
/// bytes, these parts are not copied again at the end. A smaller block that needs no conversion is copied as
/// a whole at the end.
const MUCH_BYTES: usize = 4096;
/// The largest number of bytes that one system call writes to a file, or reads from a file into a space.
const FILE_BYTES: usize = 256 << 10;

/// A buffer of the caller that the result fills. None of its contents is sent with the call.
///
/// Make an `Out` from a slice or a vector, make the call, and read [`Out::filled`]. Only filled elements are
/// sent back. A vector offers its whole capacity. It is cleared first, and ends with as many elements as the
/// procedure filled. If the call fails, the contents are unspecified.
///
/// The procedure gets no slice, because the memory may belong to another process. Instead, the procedure
/// appends values with [`put`](Self::put).
///
/// ```
/// use peregrine::Out;
///
/// fn primes(mut into: Out<'_, u32>) {
///     into.put(&[2, 3, 5]).unwrap();
/// }
///
/// let mut buffer = [0; 8];
/// let mut out = Out::from(&mut buffer[..]);
/// primes(out.by_ref());
/// assert_eq!(out.filled(), 3);
/// assert_eq!(buffer[..3], [2, 3, 5]);
/// ```
#[derive(Debug)]
pub struct Out<'a, T> {
    place: Place<'a, T>,
    filled: Count<'a>,
}

// SAFETY: an `Out` is the only access to its memory within this process, and only `&mut self` methods write.
unsafe impl<T: Plain> Send for Out<'_, T> {}
// SAFETY: the `&self` methods of an `Out` only return lengths.
unsafe impl<T: Plain> Sync for Out<'_, T> {}

#[derive(Debug)]
enum Place<'a, T> {
    Slice(&'a mut [T]),
    Vec(&'a mut Vec<T>),
    Space(Departing<'a>),
}

#[derive(Debug)]
enum Count<'a> {
    Own(usize),
    Lender(&'a mut usize),
}

impl Count<'_> {
    const fn get(&self) -> usize {
        match self {
            Self::Own(count) => *count,
            Self::Lender(count) => **count,
        }
    }

    const fn set(&mut self, to: usize) {
        match self {
            Self::Own(count) => *count = to,
            Self::Lender(count) => **count = to,
        }
    }
}

/// The error if values do not fit the buffer. None of the values was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// The number of elements that still fit.
    pub remaining: usize,
}

impl core::fmt::Display for Full {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "the caller's buffer has room for {} more elements only", self.remaining)
    }
}

impl std::error::Error for Full {}

impl<'a, T: Plain> From<&'a mut [T]> for Out<'a, T> {
    fn from(slice: &'a mut [T]) -> Self {
        Self { place: Place::Slice(slice), filled: Count::Own(0) }
    }
}

impl<'a, T: Plain, const N: usize> From<&'a mut [T; N]> for Out<'a, T> {
    fn from(array: &'a mut [T; N]) -> Self {
        Self::from(&mut array[..])
    }
}

impl<'a, T: Plain> From<&'a mut Vec<T>> for Out<'a, T> {
    /// Clears the vector, and offers its capacity to the result.
    fn from(vec: &'a mut Vec<T>) -> Self {
        vec.clear();
        Self { place: Place::Vec(vec), filled: Count::Own(0) }
    }
}

impl<'a, T: Plain> Out<'a, T> {
    /// Wraps the buffer of a caller in another process. The number of filled elements is stored in `filled`.
    /// Nothing else in this process may access the space, because the `Out` may be used on another thread.
    #[inline]
    pub(crate) fn of_space(space: impl Into<Departing<'a>>, filled: &'a mut usize) -> Self {
        *filled = 0;
        Self { place: Place::Space(space.into()), filled: Count::Lender(filled) }
    }

    /// Returns the number of elements that fit the buffer, including the filled ones.
    #[inline]
    pub fn capacity(&self) -> usize {
        const {
            assert!(
                size_of::<T>() > 0,
                "the elements of a buffer must not be of size 0: their number cannot be computed \
                 from its bytes"
            );
        };
        match &self.place {
            Place::Slice(slice) => slice.len(),
            Place::Vec(vec) => vec.capacity(),
            Place::Space(space) => space.len() / size_of::<T>(),
        }
    }

    /// Returns the number of elements that are filled. After a call, these are the elements that the
    /// procedure filled.
    #[inline]
    pub const fn filled(&self) -> usize {
        self.filled.get()
    }

    /// Returns the number of elements that can still be appended.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.capacity() - self.filled()
    }

    /// Borrows the buffer for a call, so that [`filled`](Self::filled) can be read after the call.
    #[inline]
    pub fn by_ref(&mut self) -> Out<'_, T> {
        let place = match &mut self.place {
            Place::Slice(slice) => Place::Slice(slice),
            Place::Vec(vec) => Place::Vec(vec),
            Place::Space(space) => Place::Space(*space),
        };
        let filled = match &mut self.filled {
            Count::Own(count) => count,
            Count::Lender(count) => count,
        };
        Out { place, filled: Count::Lender(filled) }
    }

    /// Appends all of `values`. If they do not fit, appends none of them.
    ///
    /// # Errors
    /// [`Full`] if the values do not fit.
    #[inline]
    pub fn put(&mut self, values: &[T]) -> Result<(), Full> {
        let (filled, remaining) = (self.filled(), self.remaining());
        if values.len() > remaining {
            return Err(Full { remaining });
        }
        match &mut self.place {
            Place::Slice(slice) => {
                slice[filled..filled + values.len()].copy_from_slice(values);
            }
            Place::Vec(vec) => vec.extend_from_slice(values),
            Place::Space(space) => {
                let written = space.write(filled * size_of::<T>(), bytes_of(values));
                debug_assert!(written.is_some(), "capacity was checked");
            }
        }
        self.filled.set(filled + values.len());
        Ok(())
    }

    /// Overwrites the element `index`, or appends it if `index` equals the number of filled elements.
    ///
    /// # Errors
    /// [`Full`] if the value does not fit.
    ///
    /// # Panics
    /// Panics if `index` is greater than the number of filled elements, because the elements in between would
    /// be undefined.
    pub fn set(&mut self, index: usize, value: T) -> Result<(), Full> {
        let filled = self.filled();
        assert!(
            index <= filled,
            "cannot set element {index} of an `Out` with {filled} filled elements"
        );
        if index == filled {
            return self.put(&[value]);
        }
        match &mut self.place {
            Place::Slice(slice) => slice[index] = value,
            Place::Vec(vec) => vec[index] = value,
            Place::Space(space) => {
                // The caller may already have copied the old value of this element.
                space.changed();
                let written = space.space().write_plain(index * size_of::<T>(), &value);
                debug_assert!(written.is_some(), "the index was checked");
            }
        }
        Ok(())
    }

    /// Empties the buffer, and borrows all of it for a call that fills it. The call stores the number of
    /// filled elements.
    #[doc(hidden)]
    #[inline]
    pub fn block(&mut self) -> OutBlock<'_> {
        self.block_of(self.capacity())
    }

    /// Empties the buffer, and borrows at most `capacity` elements of it for a call that fills it.
    #[doc(hidden)]
    #[inline]
    pub fn block_of(&mut self, capacity: usize) -> OutBlock<'_> {
        let bytes = capacity.min(self.capacity()) * size_of::<T>();
        self.filled.set(0);
        let filled = match &mut self.filled {
            Count::Own(count) => count,
            Count::Lender(count) => &mut **count,
        };
        let (space, grow) = match &mut self.place {
            Place::Slice(slice) => (super::plain::space_of(slice), None),
            Place::Vec(vec) => {
                vec.clear();
                let base = vec.as_mut_ptr().cast();
                // SAFETY: the memory is the vector's own buffer, borrowed for as long as the block lives. It
                // is only written, and only with whole valid values (OutBlock::fill).
                let space = unsafe { Space::new(base, vec.capacity() * size_of::<T>()) };
                (space, Some(Grow { vec: NonNull::from(&mut **vec).cast(), to: grow_to::<T> }))
            }
            Place::Space(space) => {
                space.changed();
                (space.space(), None)
            }
        };
        let space = space.range(0, bytes);
        OutBlock { space, filled: Some(filled), grow, ..OutBlock::over::<T>(Space::none()) }
    }
}

/// Sets the length of the `Vec<T>` at `vec`.
///
/// # Safety
/// `vec` must point to a live `Vec<T>` that nothing else accesses, and whose first `count` elements
/// are initialised.
unsafe fn grow_to<T>(vec: NonNull<()>, count: usize) {
    let mut vec = vec.cast::<Vec<T>>();
    // SAFETY: the caller guarantees that the vector is live and that nothing else accesses it.
    let vec = unsafe { vec.as_mut() };
    debug_assert!(count <= vec.capacity());
    // SAFETY: the caller guarantees that this many elements are initialised.
    unsafe { vec.set_len(count) };
}

impl Out<'_, u8> {
    /// Returns whether another process may write the memory.
    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self.place, Place::Space(_))
    }

    /// Returns the filled bytes, so that they can be modified. Returns an empty slice if the memory [is
    /// shared](Self::is_shared).
    pub(crate) fn filled_mut(&mut self) -> &mut [u8] {
        let filled = self.filled();
        match &mut self.place {
            Place::Slice(slice) => slice.get_mut(..filled).unwrap_or(&mut []),
            Place::Vec(vec) => vec.get_mut(..filled).unwrap_or(&mut []),
            Place::Space(_) => &mut [],
        }
    }

    /// Appends bytes from `reader` until the buffer is full or the reader is at its end. Returns the number
    /// of bytes appended.
    ///
    /// # Errors
    /// Those of the reader. Bytes that were read before the error stay filled.
    pub fn fill_from(&mut self, reader: &mut impl Read) -> io::Result<usize> {
        let mut chunk = [0; CHUNK_BYTES];
        let start = self.filled();
        while self.remaining() > 0 {
            let want = self.remaining().min(CHUNK_BYTES);
            match reader.read(&mut chunk[..want]) {
                Ok(0) => break,
                Ok(bytes) => self.put(&chunk[..bytes]).map_err(io::Error::other)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.filled() - start)
    }

    /// Appends bytes of `file`, from byte `offset` of the file on, until the buffer is full or the file ends.
    /// Returns the number of bytes appended. The kernel writes these bytes directly to the buffer.
    ///
    /// # Errors
    /// Those of `pread`. Bytes that were read before the error stay filled.
    pub fn fill_from_file(&mut self, file: &File, offset: u64) -> io::Result<usize> {
        let start = self.filled();
        while self.remaining() > 0 {
            let (filled, at) = (self.filled(), offset + (self.filled() - start) as u64);
            let bytes = match &mut self.place {
                Place::Slice(slice) => sys::pread(file, Space::of_mut(&mut slice[filled..]), at)?,
                Place::Vec(vec) => {
                    let spare = vec.spare_capacity_mut();
                    // SAFETY: the spare capacity belongs to this vector, and the space is only written.
                    let space = unsafe { Space::new(spare.as_mut_ptr().cast(), spare.len()) };
                    let bytes = sys::pread(file, space, at)?;
                    // SAFETY: the kernel has just written this many bytes after the length.
                    unsafe { vec.set_len(filled + bytes) };
                    bytes
                }
                Place::Space(space) => {
                    // The file is read in pieces, so that the caller can copy one piece while the next piece
                    // is read.
                    let bytes = (space.len() - filled).min(FILE_BYTES);
                    let bytes = sys::pread(file, space.space().range(filled, bytes), at)?;
                    space.there(filled + bytes);
                    bytes
                }
            };
            if bytes == 0 {
                break;
            }
            self.filled.set(filled + bytes);
        }
        Ok(self.filled() - start)
    }
}

/// The destination of one block of a result. It is the caller's memory without the type of its values.
///
/// The path that carries the result fills this block. If the type has invalid bit patterns, values are
/// checked before they reach the memory.
#[derive(Debug)]
pub struct OutBlock<'a> {
    space: Space<'a>,
    unit: usize,
    valid: Option<fn(&[u8]) -> bool>,
    /// How values are converted, both when they are sent and when they are received.
    swap: Option<&'static Swap>,
    /// Receives the number of filled elements.
    filled: Option<&'a mut usize>,
    /// The vector that owns the memory, if there is one. `fill` sets the vector's length after it has written
    /// the elements.
    grow: Option<Grow>,
    /// The number of bytes that were copied before the result was complete.
    early: usize,
}

// SAFETY: a block has exclusive access to its memory and to its vector, like the `Out` or the slice from
// which it was made. Their elements are plain, so they may move to another thread.
unsafe impl Send for OutBlock<'_> {}

#[derive(Debug)]
struct Grow {
    vec: NonNull<()>,
    to: unsafe fn(NonNull<()>, usize),
}

impl<'a> OutBlock<'a> {
    /// Makes a block over memory for values of `T`. The memory must be initialised, or must only be written.
    #[inline]
    pub(super) const fn over<T: Plain>(space: Space<'a>) -> Self {
        const {
            assert!(
                size_of::<T>() > 0,
                "the elements of a buffer must not be of size 0: their number cannot be computed \
                 from its bytes"
            );
        };
        let valid: Option<fn(&[u8]) -> bool> = if T::ANY_BITS { None } else { Some(T::valid) };
        Self { space, unit: size_of::<T>(), valid, ..Self::none() }
    }

    /// Makes an empty block. It stands for a slice that is sent in the head of the message.
    #[doc(hidden)]
    #[inline]
    pub const fn none() -> Self {
        Self {
            space: Space::none(),
            unit: 1,
            valid: None,
            swap: None,
            filled: None,
            grow: None,
            early: 0,
        }
    }

    /// Makes a block over memory for bytes. The number of filled bytes is stored in `filled`.
    pub(crate) const fn bytes(space: Space<'a>, filled: &'a mut usize) -> Self {
        Self { space, filled: Some(filled), ..Self::none() }
    }

    /// Borrows the block, so that a path can pass it to another path.
    pub(crate) fn reborrowed(&mut self) -> OutBlock<'_> {
        let Self { space, unit, valid, swap, filled, grow, early } = self;
        OutBlock {
            space: *space,
            unit: *unit,
            valid: *valid,
            swap: *swap,
            filled: filled.as_deref_mut(),
            grow: grow.as_ref().map(|Grow { vec, to }| Grow { vec: *vec, to: *to }),
            early: *early,
        }
    }

    /// Sets how the values of this block are converted, and returns the block.
    #[doc(hidden)]
    #[inline]
    pub const fn converted(mut self, swap: Option<&'static Swap>) -> Self {
        self.swap = swap;
        self
    }

    /// Returns the largest number of bytes that fit.
    #[inline]
    pub const fn capacity(&self) -> usize {
        self.space.window().len()
    }

    /// Returns the number of bytes that are filled.
    pub(crate) fn filled_bytes(&self) -> usize {
        // An in-out slice has no count: all of it is filled.
        self.filled.as_deref().map_or(self.capacity(), |filled| filled * self.unit)
    }

    /// Returns the current contents of the block. The call sends them if the block is declared *in-out*.
    #[doc(hidden)]
    #[inline]
    pub const fn contents(&self) -> Block<'a> {
        // The capacity of a vector is not initialised, so it has no contents that could be sent.
        if self.grow.is_some() {
            return Block::empty();
        }
        Block::new(self.space.window(), self.swap)
    }

    /// Copies bytes that have arrived before the result is complete. `from` begins at the start of the block.
    /// Bytes that an earlier call of this function copied are not copied again. Types with invalid bit
    /// patterns are not copied early.
    pub(crate) fn fill_early(&mut self, from: Window<'_>) {
        let mut bytes = from.len().min(self.capacity());
        if self.valid.is_some() || bytes <= self.early {
            return;
        }
        // Only complete values are copied and, if numbers are converted, only complete numbers: a number can
        // be converted only after all of its bytes have arrived. In an interpreted stub, values are single
        // bytes, but numbers may be longer. So the larger of the two sizes counts. It is a multiple of the
        // other size.
        bytes -= bytes % self.unit.max(self.swap.map_or(1, Swap::unit_bytes));
        self.copy_rest(from, bytes);
        self.early = bytes;
    }

    /// Forgets the bytes that were copied early, because those bytes are not valid.
    pub(crate) const fn forget_early(&mut self) {
        self.early = 0;
    }

    /// Copies those of the first `bytes` bytes that were not copied early.
    fn copy_rest(&self, from: Window<'_>, bytes: usize) {
        let (early, rest) = (self.early, bytes.saturating_sub(self.early));
        let to = self.space.range(early.min(bytes), rest);
        Block::new(from, self.swap).copy_to(early.min(bytes), to, CopyMethod::Cached);
    }

    /// Copies `from`, the complete block of the result.
    ///
    /// # Errors
    /// If `from` does not fit the block, is not a whole number of values, or contains invalid values.
    #[inline]
    pub fn fill(&mut self, from: Window<'_>) -> Result<(), Invalid> {
        if from.len() > self.capacity() {
            return Err(Invalid::TooLong);
        }
        // A block without a count of filled elements is an in-out slice, which returns with the length that
        // it had in the call.
        if self.filled.is_none() && from.len() != self.capacity() {
            return Err(Invalid::Block);
        }
        // The block must consist of complete values. In an interpreted stub, values are single bytes. If
        // numbers are converted there, the block must also consist of complete numbers.
        let turned = self.swap.map_or(1, Swap::unit_bytes);
        if !from.len().is_multiple_of(self.unit) || !from.len().is_multiple_of(turned) {
            return Err(Invalid::Block);
        }
        match (self.valid, self.swap) {
            (None, None) if from.len() < MUCH_BYTES => self.space.copy_from(from),
            (None, _) => self.copy_rest(from, from.len()),
            (Some(valid), _) => self.fill_checked(from, valid)?,
        }
        let count = from.len() / self.unit;
        if let Some(filled) = &mut self.filled {
            **filled = count;
        }
        if let Some(Grow { vec, to }) = self.grow {
            // SAFETY: the vector is borrowed for as long as this block lives. Its capacity is the size of the
            // space, and `count` whole valid values were just written.
            unsafe { to(vec, count) };
        }
        Ok(())
    }

    /// Copies values through private memory, where they are converted and checked.
    fn fill_checked(&self, from: Window<'_>, valid: fn(&[u8]) -> bool) -> Result<(), Invalid> {
        let mut buffer = BounceBuffer::new();
        let most = BounceBuffer::chunk_bytes(self.unit);
        let mut at = 0;
        while at < from.len() {
            let bytes = most.min(from.len() - at);
            let private = buffer.fetch(from, at, bytes).ok_or(Invalid::Short)?;
            if let Some(swap) = self.swap {
                swap.in_place(private);
            }
            if !private.chunks_exact(self.unit).all(valid) {
                return Err(Invalid::Bits);
            }
            self.space.write(at, private).ok_or(Invalid::TooLong)?;
            at += bytes;
        }
        Ok(())
    }
}

/// Fills an empty vector with values. Every bit pattern must be a valid value of the type.
pub(super) fn fill_vec<T: Plain>(
    values: &mut Vec<T>,
    from: Window<'_>,
    swap: Option<&'static Swap>,
) {
    debug_assert!(T::ANY_BITS);
    let mut out = Out::from(values);
    let mut to = out.block().converted(swap);
    let part = from.range(0, from.len().min(to.capacity()));
    let filled = to.fill(part);
    debug_assert!(filled.is_ok());
}

/// An *in* buffer that is not copied for the procedure. (LRPC can mark such arguments, too.)
///
/// The caller makes a `Lent` from a slice. The procedure gets accessors that only copy, because the caller
/// may change the memory at any time. So two copies of the same element may differ.
///
/// ```
/// use peregrine::Lent;
///
/// let samples = [1.0f32, 2.0, 4.0];
/// let lent = Lent::from(&samples[..]);
/// let mut two = [0.0; 2];
/// lent.copy_to(1, &mut two).unwrap();
/// assert_eq!(two, [2.0, 4.0]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Lent<'a, T> {
    bytes: Arriving<'a>,
    values: PhantomData<&'a [T]>,
}

// SAFETY: a `Lent` only copies from its memory, on any thread. While it lives, only peers write to that
// memory.
unsafe impl<T: Plain> Send for Lent<'_, T> {}
// SAFETY: a shared `Lent` only copies from its memory, to which only peers write while it lives.
unsafe impl<T: Plain> Sync for Lent<'_, T> {}

impl<'a, T: Plain> From<&'a [T]> for Lent<'a, T> {
    #[inline]
    fn from(values: &'a [T]) -> Self {
        Self { bytes: Window::from(bytes_of(values)).into(), values: PhantomData }
    }
}

impl<'a, T: Plain, const N: usize> From<&'a [T; N]> for Lent<'a, T> {
    #[inline]
    fn from(values: &'a [T; N]) -> Self {
        Self::from(&values[..])
    }
}

impl<'a, T: Plain> Lent<'a, T> {
    /// Wraps a buffer of a message. Nothing in this process may write to the buffer, because the `Lent` may
    /// be read on another thread.
    #[inline]
    pub(crate) const fn of_bytes(bytes: Arriving<'a>) -> Self {
        Self { bytes, values: PhantomData }
    }

    /// Waits until the whole buffer has arrived, and returns a window on its memory.
    #[doc(hidden)]
    #[inline]
    pub fn window(&self) -> Result<Window<'a>, Invalid> {
        self.bytes.whole()
    }

    /// Returns the number of elements.
    #[inline]
    pub const fn len(&self) -> usize {
        const {
            assert!(
                size_of::<T>() > 0,
                "the elements of a buffer must not be of size 0: their number cannot be computed \
                 from its bytes"
            );
        };
        self.bytes.len() / size_of::<T>()
    }

    /// Returns whether there are no elements.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies elements from `index` on until `to` is full.
    ///
    /// [`Invalid::Short`] if too few elements follow `index` to fill `to`. [`Invalid::Bits`] if an element is
    /// not a valid `T`. In that case `to` is filled in part. [`Invalid::Stopped`] if the caller stopped in
    /// the middle of a large buffer, which the procedure reads while it is still being sent. All reads of one
    /// call together wait for the caller at most [`LENT_STALL_TIME`](crate::limits::LENT_STALL_TIME) plus the
    /// time that [`ARRIVAL_BYTES_PER_SECOND`](crate::limits::ARRIVAL_BYTES_PER_SECOND) allows for the bytes.
    pub fn copy_to(&self, index: usize, to: &mut [T]) -> Result<(), Invalid> {
        let at = index.checked_mul(size_of::<T>()).ok_or(Invalid::Short)?;
        let part = self.bytes.part(at, size_of_val(to))?;
        super::bytes_of_mut(to).fill(part.whole()?)
    }
}

impl Lent<'_, u8> {
    /// Writes the whole buffer to `writer`.
    ///
    /// # Errors
    /// Those of the writer. [`io::ErrorKind::Other`] with [`Invalid::Stopped`] if the caller stopped in the
    /// middle of a large buffer.
    pub fn write_to(&self, writer: &mut impl Write) -> io::Result<()> {
        let mut chunk = [0; CHUNK_BYTES];
        let mut at = 0;
        while at < self.len() {
            let bytes = (self.len() - at).min(CHUNK_BYTES);
            self.copy_to(at, &mut chunk[..bytes]).map_err(io::Error::other)?;
            writer.write_all(&chunk[..bytes])?;
            at += bytes;
        }
        Ok(())
    }

    /// Writes the whole buffer to `file`, at byte `offset` of the file. The kernel reads the buffer directly.
    ///
    /// # Errors
    /// Those of `pwrite`. [`io::ErrorKind::WriteZero`] if the file accepts no more bytes.
    /// [`io::ErrorKind::Other`] with [`Invalid::Stopped`] if the caller stopped in the middle of a large
    /// buffer.
    pub fn write_to_file(&self, file: &File, offset: u64) -> io::Result<()> {
        let mut at = 0;
        while at < self.len() {
            // The file is written in pieces, because later bytes may still be arriving.
            let bytes = (self.len() - at).min(FILE_BYTES);
            let part = self.bytes.part(at, bytes).and_then(|part| part.whole());
            match sys::pwrite(file, part.map_err(io::Error::other)?, offset + at as u64)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                bytes => at += bytes,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
