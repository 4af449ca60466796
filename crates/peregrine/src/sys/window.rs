//! `Window` and `Space` give access to memory that a peer may write. Their accessors only copy.
//!
//! No reference to such memory ever exists. A `&T` promises that nothing writes to the value, but a peer may
//! write at any time. A window fetches each byte at most once into private memory, and only the private copy
//! is examined. This is argument copy E of the LRPC paper. The Peregrine system of 1991 remaps pages instead.
//! On current machines, remapping costs a hundred times as much as copying a packet.

#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ptr;

use super::copy::{self, LANE_BYTES, Shuffles};

/// A range of memory that may be shared with a peer. Lengths and offsets are in bytes.
///
/// If a range is not inside the window, accessors return `None`, except [`range`](Self::range), which panics.
///
/// The copies are not atomic, so a window cannot be sent to another thread:
///
/// ```compile_fail
/// let mut bytes = [0; 64];
/// let space = peregrine::value::Space::of_mut(&mut bytes);
/// std::thread::scope(|scope| {
///     scope.spawn(move || space.write(0, &[1; 64]));
///     space.window().read(0, &mut [0; 64]);
/// });
/// ```
///
/// A window has the layout of the kernel's `iovec`, so the kernel accepts a list of windows as a list of
/// `iovec`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Window<'a> {
    base: *mut u8,
    bytes: usize,
    memory: PhantomData<&'a ()>,
}

impl<'a> Window<'a> {
    /// Returns an empty window.
    #[inline]
    pub const fn empty() -> Self {
        Self { base: ptr::dangling_mut::<u128>().cast(), bytes: 0, memory: PhantomData }
    }

    /// Returns a window on private memory.
    #[inline]
    pub const fn of(memory: &'a [u8]) -> Self {
        Self { base: memory.as_ptr().cast_mut(), bytes: memory.len(), memory: PhantomData }
    }

    /// Returns the number of bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether the length is 0.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the part of `bytes` bytes that begins at `at`, or `None` if that part is not inside the
    /// window.
    #[inline]
    pub fn part(&self, at: usize, bytes: usize) -> Option<Self> {
        if at > self.bytes || bytes > self.bytes - at {
            return None;
        }
        // SAFETY: `at` is at most the length, so the sum is inside or one past the end.
        let base = unsafe { self.base.add(at) };
        Some(Self { base, bytes, memory: PhantomData })
    }

    /// Returns the part of `bytes` bytes that begins at `at`, for a part that is known to be inside the
    /// window.
    ///
    /// # Panics
    /// Panics if the part is not inside the window. A range that a peer names must be checked before this
    /// call.
    #[inline]
    #[track_caller]
    pub fn range(&self, at: usize, bytes: usize) -> Self {
        match self.part(at, bytes) {
            Some(part) => part,
            None => out_of_range(at, bytes, self.bytes),
        }
    }

    /// Copies bytes from `at` on until `private` is full. Each byte is fetched once. Returns `None`, and
    /// copies nothing, if the window has too few bytes.
    #[inline]
    pub fn read(&self, at: usize, private: &mut [u8]) -> Option<()> {
        let part = self.part(at, private.len())?;
        // SAFETY: `part` has private.len() bytes. Private memory never overlaps shared memory.
        unsafe { fetch(part.base, private.as_mut_ptr(), private.len()) };
        Some(())
    }

    /// Returns the address of the first byte, for the kernel to read. Rust code must not dereference it.
    #[inline]
    pub const fn as_ptr(&self) -> *const u8 {
        self.base
    }
}

/// A window through which the memory may also be written.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Space<'a>(Window<'a>);

impl<'a> Space<'a> {
    /// Makes a space of the `bytes` bytes at `base`.
    ///
    /// # Safety
    /// During all of `'a`, the memory must stay mapped for reading and writing, and no Rust reference
    /// to it may exist.
    #[inline]
    pub const unsafe fn new(base: *mut u8, bytes: usize) -> Self {
        Self(Window { base, bytes, memory: PhantomData })
    }

    /// Makes a space of private memory, for transports that share no memory.
    #[inline]
    pub const fn of_mut(memory: &'a mut [u8]) -> Self {
        Self(Window { base: memory.as_mut_ptr(), bytes: memory.len(), memory: PhantomData })
    }

    /// Prefetches the first cache line for writing. The line then moves over from the other processor's cache
    /// while the caller still computes what to write.
    #[inline(always)]
    pub fn prefetch_write(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which changes no memory and faults at no address.
        unsafe {
            core::arch::asm!("prefetchw [{0}]", in(reg) self.0.base, options(nostack, preserves_flags, readonly));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            core::arch::asm!("prfm pstl1keep, [{0}]", in(reg) self.0.base, options(nostack, preserves_flags, readonly));
        }
    }

    /// Prefetches cache lines for writing, up to the number that a processor can fetch at the same time. The
    /// lines then move to this processor's cache together rather than one by one. The first line is not
    /// prefetched, because the peer may be polling it.
    #[inline]
    pub fn prefetch_write_all(&self) {
        const LINE: usize = 64;
        const LINES: usize = 32;
        let mut at = LINE;
        while at < self.0.bytes + LINE && at < LINES * LINE {
            let line = self.0.base.wrapping_add(at.min(self.0.bytes.saturating_sub(1)));
            Self(Window { base: line, bytes: 0, memory: PhantomData }).prefetch_write();
            at += LINE;
        }
    }

    /// Returns an empty space.
    #[inline]
    pub const fn none() -> Self {
        Self(Window::empty())
    }

    /// Returns a window on the same memory, for reading.
    #[inline]
    pub const fn window(&self) -> Window<'a> {
        self.0
    }

    /// Returns the part of `bytes` bytes that begins at `at`, or `None` if that part is not inside the space.
    #[inline]
    pub fn part(&self, at: usize, bytes: usize) -> Option<Self> {
        self.0.part(at, bytes).map(Self)
    }

    /// Returns the part of `bytes` bytes that begins at `at`, for a part that is known to be inside the
    /// space.
    ///
    /// # Panics
    /// Panics if the part is not inside the space, as [`Window::range`] does.
    #[inline]
    #[track_caller]
    pub fn range(&self, at: usize, bytes: usize) -> Self {
        Self(self.0.range(at, bytes))
    }

    /// Copies `private` to the offset `at` of the space. If `private` does not fit, returns `None` and writes
    /// nothing.
    #[inline]
    pub fn write(&self, at: usize, private: &[u8]) -> Option<()> {
        let part = self.part(at, private.len())?;
        // SAFETY: `part` has private.len() bytes. Private memory never overlaps shared memory.
        unsafe { ptr::copy_nonoverlapping(private.as_ptr(), part.as_mut_ptr(), private.len()) };
        Some(())
    }

    /// Copies `from` to the start of this space. If `from` is longer than the space, copies only the part
    /// that fits.
    #[inline]
    pub(crate) fn copy_from(&self, from: Window<'_>) {
        let bytes = from.bytes.min(self.0.bytes);
        // SAFETY: both ranges have at least `bytes` bytes. They may overlap.
        unsafe { ptr::copy(from.base, self.0.base, bytes) };
    }

    /// Copies as [`Space::copy_from`] does, but faster for many bytes that another processor has just written
    /// or will read next. For long copies, the C library uses a string instruction. That instruction is
    /// optimized for data in memory, and is slower if the cache lines are in another processor's cache.
    #[inline]
    pub(crate) fn copy_cached(&self, from: Window<'_>) {
        let bytes = from.bytes.min(self.0.bytes);
        // SAFETY: both ranges have at least `bytes` bytes.
        unsafe { copy::copy_cached(from.base, self.0.base, bytes) };
    }

    /// Copies as [`Space::copy_cached`] does, but past the caches. Then the cache lines of the destination
    /// need not move from another processor's cache to this one before they are written.
    #[inline]
    pub(crate) fn copy_streaming(&self, from: Window<'_>) {
        let bytes = from.bytes.min(self.0.bytes);
        // SAFETY: both ranges have at least `bytes` bytes.
        unsafe { copy::copy_streaming(from.base, self.0.base, bytes) };
    }

    /// Copies whole lanes of 16 bytes, and shuffles the bytes of each lane. If `streaming` is true, writes
    /// past the caches. `lane` is the number of the first lane. The number of a lane selects its mask in
    /// `shuffles`. Returns the number of bytes copied. An incomplete lane at the end is not copied.
    #[inline]
    pub(crate) fn copy_shuffled(
        &self,
        from: Window<'_>,
        shuffles: &Shuffles,
        lane: usize,
        streaming: bool,
    ) -> usize {
        let bytes = from.bytes.min(self.0.bytes) & !(LANE_BYTES - 1);
        // SAFETY: both ranges have at least `bytes` bytes, and `bytes` is a multiple of LANE_BYTES.
        unsafe { copy::copy_shuffled(from.base, self.0.base, bytes, shuffles, lane, streaming) };
        bytes
    }

    /// Writes the first `bytes` bytes of `line`, or as many of them as fit. May also write up to three of the
    /// bytes that follow them in `line`.
    ///
    /// The function copies word by word, because most values are words. A wider load of words that were just
    /// stored would wait until all of these words have left the store buffer.
    #[inline]
    pub(crate) fn write_words<const N: usize>(&self, line: &[u8; N], bytes: usize) {
        const { assert!(N.is_multiple_of(4)) };
        if self.0.bytes < N {
            let bytes = bytes.min(self.0.bytes).min(N);
            let _ = self.write(0, &line[..bytes]);
            return;
        }
        let (to, from) = (self.0.base.cast::<u32>(), line.as_ptr().cast::<u32>());
        for word in 0..bytes.div_ceil(4).min(N / 4) {
            // SAFETY: word < N / 4, and `line` has N bytes.
            let from = unsafe { from.add(word) };
            // SAFETY: word < N / 4, and the space has at least N bytes.
            let to = unsafe { to.add(word) };
            // SAFETY: four bytes of `line`, at any alignment.
            let value = unsafe { from.read_unaligned() };
            // SAFETY: four bytes of the space.
            unsafe { to.write_unaligned(value) };
        }
    }

    /// Writes `bytes` zeros from `at` on. If they do not fit, returns `None` and writes nothing.
    #[inline]
    pub fn zero(&self, at: usize, bytes: usize) -> Option<()> {
        let part = self.part(at, bytes)?;
        // SAFETY: `part` has `bytes` bytes.
        unsafe { ptr::write_bytes(part.as_mut_ptr(), 0, bytes) };
        Some(())
    }

    /// Returns the address of the first byte, for the kernel to write. Rust code must not dereference it.
    #[inline]
    pub const fn as_mut_ptr(&self) -> *mut u8 {
        self.0.base
    }
}

impl<'a> core::ops::Deref for Space<'a> {
    type Target = Window<'a>;
    #[inline]
    fn deref(&self) -> &Window<'a> {
        &self.0
    }
}

impl core::fmt::Debug for Space<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Space({} bytes)", self.0.bytes)
    }
}

impl<'a> From<&'a [u8]> for Window<'a> {
    #[inline]
    fn from(memory: &'a [u8]) -> Self {
        Self { base: memory.as_ptr().cast_mut(), bytes: memory.len(), memory: PhantomData }
    }
}

impl core::fmt::Debug for Window<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Window({} bytes)", self.bytes)
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn out_of_range(at: usize, bytes: usize, len: usize) -> ! {
    panic!("{bytes} bytes at {at} of {len}")
}

/// Copies `bytes` bytes from shared to private memory. After the copy, the compiler can neither read the
/// source again nor assume anything about the copied bytes.
///
/// # Safety
/// As for [`ptr::copy_nonoverlapping`], except that a peer may write `from` at the same time.
#[inline(always)]
pub(crate) unsafe fn fetch(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: guaranteed by the caller. If a peer writes at the same time, the copied bytes may have
    // any value, which every reader of the copy allows for. The barrier below keeps the compiler from
    // assuming that source and copy are still equal.
    unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
    // SAFETY: the assembly code is empty. It only makes the compiler assume that the copied bytes may have
    // changed.
    unsafe { core::arch::asm!("/* {0} */", in(reg) to, options(nostack, preserves_flags)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_outside_are_refused() {
        let mut memory = [7u8; 8];
        let window = Space::of_mut(&mut memory);
        assert!(window.part(8, 0).is_some());
        assert!(window.part(8, 1).is_none());
        assert!(window.part(9, 0).is_none());
        assert!(window.part(1, usize::MAX).is_none());
        assert!(window.read(1, &mut [0; 8]).is_none());
        assert!(window.write(7, &[1, 2]).is_none());
        assert!(window.zero(0, 9).is_none());
        assert_eq!(window.range(4, 4).len(), 4);
    }

    #[test]
    #[should_panic(expected = "9 bytes at 0 of 8")]
    fn range_outside_panics() {
        Window::from(&[0; 8][..]).range(0, 9);
    }
}
