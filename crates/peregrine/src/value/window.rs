//! Typed access to windows. Plain values are fetched once and checked. A private buffer holds bytes that must
//! be converted.

#![allow(unsafe_code)]

use core::mem::MaybeUninit;

use super::{Invalid, Native, Plain, Representation};
use crate::sys::{Space, Window, fetch};

impl Window<'_> {
    /// Fetches one plain value. Returns `None` if it is not inside the window, or its bits are not a valid
    /// `T`.
    #[inline]
    pub fn read_plain<T: Plain>(&self, at: usize) -> Option<T> {
        self.read_represented::<T, Native>(at)
    }

    /// Fetches one plain value as [`read_plain`](Self::read_plain) does, but in the representation `R`.
    #[inline(always)]
    pub(super) fn read_represented<T: Plain, R: Representation>(&self, at: usize) -> Option<T> {
        let part = self.part(at, size_of::<T>())?;
        let mut private = MaybeUninit::<T>::uninit();
        // SAFETY: `part` and `private` both have size_of::<T>() bytes.
        unsafe { fetch(part.as_ptr(), private.as_mut_ptr().cast(), size_of::<T>()) };
        // SAFETY: all bytes of `private` were just written.
        if !unsafe { convert::<T, R>(&mut private) } {
            return None;
        }
        // SAFETY: all bytes are written, and they are a valid `T`: either every bit pattern is a valid `T`,
        // or `convert` has checked this one.
        Some(unsafe { private.assume_init() })
    }

    /// Fetches one plain value as [`read_represented`](Self::read_represented) does, but returns the reason
    /// for a failure. This function is for large types. If it called another function, the value would be
    /// copied once more.
    #[inline(always)]
    pub(super) fn read_large<T: Plain, R: Representation>(&self, at: usize) -> Result<T, Invalid> {
        let Some(part) = self.part(at, size_of::<T>()) else { return Err(Invalid::Short) };
        let mut private = MaybeUninit::<T>::uninit();
        // SAFETY: `part` and `private` both have size_of::<T>() bytes.
        unsafe { fetch(part.as_ptr(), private.as_mut_ptr().cast(), size_of::<T>()) };
        // SAFETY: all bytes of `private` were just written.
        if !unsafe { convert::<T, R>(&mut private) } {
            return Err(Invalid::Bits);
        }
        // SAFETY: all bytes are written, and they are a valid `T`: either every bit pattern is a valid `T`,
        // or `convert` has checked this one.
        Ok(unsafe { private.assume_init() })
    }
}

impl Space<'_> {
    /// Copies a plain value to the space, at offset `at`. If the value does not fit, returns `None` and
    /// writes nothing.
    #[inline]
    pub fn write_plain<T: Plain>(&self, at: usize, value: &T) -> Option<()> {
        let part = self.part(at, size_of::<T>())?;
        // SAFETY: `part` has size_of::<T>() bytes, a Plain type has no padding, and the write needs no
        // alignment.
        unsafe { part.as_mut_ptr().cast::<T>().write_unaligned(*value) };
        Some(())
    }
}

/// The number of bytes that a [`BounceBuffer`] holds without allocating memory. They fit the first-level
/// cache.
const CHUNK_BYTES: usize = 8192;

/// Private memory into which bytes are copied. They are checked or converted there, and then copied to their
/// destination.
#[repr(align(64))]
pub(super) struct BounceBuffer {
    stack: [MaybeUninit<u8>; CHUNK_BYTES],
    /// For values that are larger than `stack`.
    heap: Vec<u8>,
}

impl BounceBuffer {
    #[inline(always)]
    pub(super) const fn new() -> Self {
        Self { stack: [MaybeUninit::uninit(); CHUNK_BYTES], heap: Vec::new() }
    }

    /// Returns how many bytes to fetch at a time, a multiple of `unit`.
    #[inline]
    pub(super) const fn chunk_bytes(unit: usize) -> usize {
        if unit > CHUNK_BYTES { unit } else { CHUNK_BYTES - CHUNK_BYTES % unit }
    }

    /// Fetches `bytes` bytes of a window, from the offset `at` on. Each byte is fetched once. Returns `None`
    /// if the bytes are not inside the window.
    #[inline]
    pub(super) fn fetch(&mut self, from: Window<'_>, at: usize, bytes: usize) -> Option<&mut [u8]> {
        if bytes > CHUNK_BYTES {
            self.heap.resize(bytes, 0);
            from.read(at, &mut self.heap)?;
            return Some(&mut self.heap);
        }
        let from = from.part(at, bytes)?;
        let start = self.stack.as_mut_ptr().cast::<u8>();
        // SAFETY: both the window and the buffer have `bytes` bytes, and the buffer is private.
        unsafe { fetch(from.as_ptr(), start, bytes) };
        // SAFETY: these bytes were just written, and the slice borrows the buffer.
        Some(unsafe { core::slice::from_raw_parts_mut(start, bytes) })
    }
}

/// Converts fetched bytes to a value, in place. Returns false if the bytes are not a valid value.
///
/// # Safety
/// All bytes of `private` must have been written.
#[inline(always)]
unsafe fn convert<T: Plain, R: Representation>(private: &mut MaybeUninit<T>) -> bool {
    let start = private.as_mut_ptr().cast::<u8>();
    if R::SWAPPED {
        // SAFETY: the caller has written all bytes, and the slice is the only reference to them.
        T::swap(unsafe { core::slice::from_raw_parts_mut(start, size_of::<T>()) });
    }
    if T::ANY_BITS {
        return true;
    }
    // SAFETY: the caller has written all bytes, and nothing else refers to them.
    T::valid(unsafe { core::slice::from_raw_parts(start, size_of::<T>()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_values_outside_are_refused() {
        let mut memory = [7u8; 8];
        let window = Space::of_mut(&mut memory);
        assert!(window.read_plain::<u64>(1).is_none());
        assert_eq!(window.read_plain::<u32>(4), Some(0x0707_0707));
        assert!(window.write_plain(5, &1_u32).is_none());
    }

    #[test]
    fn invalid_bits_never_become_a_value() {
        let mut memory = [2u8, 0, 0, 0, 0xd8, 0, 0, 0];
        let window = Space::of_mut(&mut memory);
        assert_eq!(window.read_plain::<bool>(0), None);
        assert_eq!(window.read_plain::<bool>(1), Some(false));
        window.write_plain(0, &0xd800_u32).unwrap();
        assert_eq!(window.read_plain::<char>(0), None);
    }

    #[test]
    fn bounce_buffer_holds_whole_units_of_any_size() {
        let units =
            [(1, CHUNK_BYTES), (24, CHUNK_BYTES - CHUNK_BYTES % 24), (CHUNK_BYTES, CHUNK_BYTES)];
        for (unit, bytes) in units.into_iter().chain([(CHUNK_BYTES + 1, CHUNK_BYTES + 1)]) {
            assert_eq!(BounceBuffer::chunk_bytes(unit), bytes);
        }
        let source: Vec<u8> = (0..=255).cycle().take(3 * CHUNK_BYTES).collect();
        let window = Window::from(&source[..]);
        let mut buffer = BounceBuffer::new();
        for bytes in [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 5] {
            let fetched = buffer.fetch(window, 7, bytes).unwrap();
            assert!(fetched == &source[7..7 + bytes], "{bytes} bytes");
        }
        assert!(buffer.fetch(window, 7, source.len()).is_none());
        assert!(buffer.fetch(window, source.len(), 1).is_none());
    }
}
