//! `Head` is a cursor over the head of a message that is being written, in either representation. The head is
//! the part of the message with its small values.
//!
//! The first bytes of a message share a cache line with the word that the peer polls. If that line were
//! written in several steps, the peer's processor would fetch the line in between. Each further step would
//! then wait until the line comes back. Therefore the first bytes are collected in private memory. They are
//! written at the end, together with the message header and the polled word.

use super::swap::CopyMethod;
use super::{Block, Overflow, Plain, Representation, Space, Window, bytes_of};

/// The number of bytes at the start of a message that are collected and written last. It is the size of a
/// cache line without the header of the local path.
pub(crate) const FIRST_BYTES: usize = 32;

#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
struct FirstLine([u8; FIRST_BYTES]);

/// A head that is being written. A [`Writer`](super::Writer) contains a `Head`. A path uses only this part of
/// a writer: the head's length, its space, and `flush`.
///
/// The first 32 bytes of the space are written last. The message is complete after [`Head::flush`].
#[derive(Debug)]
pub struct Head<'a> {
    /// The first bytes of the space, collected in private memory. [`flush`](Self::flush) writes them to the
    /// space.
    first: FirstLine,
    /// The number of bytes of `first` that have been written.
    first_end: usize,
    space: Space<'a>,
    /// The offset of the head in the space. Values are aligned relative to this offset.
    start: usize,
    at: usize,
    end: usize,
    depth: u32,
}

impl<'a> Head<'a> {
    /// Begins a head at the start of `space`.
    #[inline]
    pub(super) const fn new(space: Space<'a>) -> Self {
        let end = space.window().len();
        let first = FirstLine([0; FIRST_BYTES]);
        Self { first, first_end: 0, space, start: 0, at: 0, end, depth: 0 }
    }

    /// Begins another head in the same space, between the offsets `start` and `end`.
    #[inline]
    pub(crate) fn restart(&mut self, start: usize, end: usize) {
        (self.start, self.at, self.end) = (start, start, end.min(self.space().window().len()));
        self.depth = 0;
        if start < self.first_end {
            self.first.0[start..].fill(0);
            self.first_end = start;
        }
    }

    /// Continues a head that begins at the offset `start` and ends at `at`, both beyond the first 32 bytes of
    /// the space.
    #[inline]
    pub(crate) fn resume(&mut self, start: usize, at: usize) {
        debug_assert!(FIRST_BYTES <= start && start <= at);
        (self.start, self.at) = (start, at);
    }

    /// Continues in another space, `space`. Copies the bytes that have been written before to the new space.
    /// Offsets do not change. Returns `None` if these bytes do not fit.
    #[cold]
    pub(crate) fn move_to(&mut self, space: Space<'a>) -> Option<()> {
        self.end = space.window().len();
        let rest = self.at.saturating_sub(FIRST_BYTES);
        let from = self.space.window().part(self.at - rest, rest)?;
        space.part(self.at - rest, rest)?.copy_from(from);
        self.space = space;
        Some(())
    }

    /// Returns the number of bytes that have been written.
    #[inline]
    pub const fn len(&self) -> usize {
        self.at - self.start
    }

    /// Returns whether nothing has been written.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.at == self.start
    }

    /// Returns the space in which the head is written. [`Head::flush`] overwrites the first 32 bytes of the
    /// space.
    #[inline]
    pub const fn space(&self) -> Space<'a> {
        self.space
    }

    /// Writes the first bytes of the message, which were kept in private memory, to the space. The message is
    /// then complete.
    #[inline]
    pub fn flush(&self) {
        self.space.write_words(&self.first.0, self.first_end);
    }

    #[inline]
    pub(super) fn align(&mut self, align: usize) -> Result<(), Overflow> {
        let at = self.start + self.len().next_multiple_of(align);
        if at != self.at {
            if at > self.end {
                return Err(Overflow::Full);
            }
            self.zero_at(self.at, at - self.at).ok_or(Overflow::Full)?;
            self.at = at;
        }
        Ok(())
    }

    #[inline]
    fn room(&self, bytes: usize) -> Result<(), Overflow> {
        if bytes > self.end - self.at { Err(Overflow::Full) } else { Ok(()) }
    }

    /// Appends one plain value at its natural alignment, if it fits and ends within the first 32 bytes.
    /// Returns whether the value was appended.
    #[inline(always)]
    pub(super) fn append_first<T: Plain, R: Representation>(&mut self, value: &T) -> bool {
        let at = self.start + self.len().next_multiple_of(align_of::<T>());
        let end = at.saturating_add(size_of::<T>());
        // Most values of most calls are within the first bytes. The padding there is already zero.
        let appended = end <= self.end && self.write_first::<T, R>(at, value);
        if appended {
            self.at = end;
        }
        appended
    }

    #[inline(always)]
    fn write_first<T: Plain, R: Representation>(&mut self, at: usize, value: &T) -> bool {
        let bytes = bytes_of(core::slice::from_ref(value));
        let Some(place) = self.first.0.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len()))
        else {
            return false;
        };
        place.copy_from_slice(bytes);
        if R::SWAPPED {
            T::swap(place);
        }
        self.first_end = self.first_end.max(at + bytes.len());
        true
    }

    /// Appends one plain value at its natural alignment, in the native representation.
    pub(super) fn plain<T: Plain>(&mut self, value: &T) -> Result<(), Overflow> {
        self.align(align_of::<T>())?;
        self.room(size_of::<T>())?;
        self.write_plain_at(self.at, value).ok_or(Overflow::Full)?;
        self.at += size_of::<T>();
        Ok(())
    }

    /// Appends bytes at a multiple of `align`, without conversion.
    #[inline]
    pub(super) fn bytes(&mut self, align: usize, bytes: &[u8]) -> Result<(), Overflow> {
        self.align(align)?;
        self.room(bytes.len())?;
        self.write_at(self.at, bytes).ok_or(Overflow::Full)?;
        self.at += bytes.len();
        Ok(())
    }

    /// Converts a block and appends it at a multiple of `align`.
    #[cold]
    pub(super) fn block(&mut self, align: usize, block: &Block<'_>) -> Result<(), Overflow> {
        self.align(align)?;
        self.room(block.len())?;
        self.convert_to(self.at, block, 0, block.len()).ok_or(Overflow::Full)?;
        self.at += block.len();
        Ok(())
    }

    /// Appends the bytes in a window at a multiple of `align`, without conversion.
    #[inline]
    pub(super) fn window(&mut self, align: usize, window: Window<'_>) -> Result<(), Overflow> {
        self.align(align)?;
        self.room(window.len())?;
        if self.at >= FIRST_BYTES {
            self.space.part(self.at, window.len()).ok_or(Overflow::Full)?.copy_cached(window);
        } else {
            self.copy_to(self.at, window).ok_or(Overflow::Full)?;
        }
        self.at += window.len();
        Ok(())
    }

    /// Enters a nested structure. Fails if structures nest too deeply.
    #[inline]
    pub(super) const fn deepen(&mut self) -> Result<(), Overflow> {
        if self.depth >= crate::limits::DEPTH_MAX {
            return Err(Overflow::TooDeep);
        }
        self.depth += 1;
        Ok(())
    }

    /// Leaves a nested structure.
    #[inline]
    pub(super) const fn rise(&mut self) {
        self.depth -= 1;
    }
}

/// Functions that write at any offset of the space, also outside of the head. They return `None` if the bytes
/// do not fit the space.
impl Head<'_> {
    /// Writes bytes at `at`.
    #[inline]
    pub(crate) fn write_at(&mut self, at: usize, bytes: &[u8]) -> Option<()> {
        if at >= FIRST_BYTES {
            return self.space.write(at, bytes);
        }
        let place = self.space.part(at, bytes.len())?;
        let here = bytes.len().min(FIRST_BYTES - at);
        let (first, rest) = bytes.split_at(here);
        self.first.0[at..at + here].copy_from_slice(first);
        self.first_end = self.first_end.max(at + here);
        if rest.is_empty() { Some(()) } else { place.write(here, rest) }
    }

    /// Writes a plain value at `at`, in the native representation.
    #[inline]
    pub(crate) fn write_plain_at<T: Plain>(&mut self, at: usize, value: &T) -> Option<()> {
        let bytes = bytes_of(core::slice::from_ref(value));
        let end = at.checked_add(bytes.len())?;
        if end <= FIRST_BYTES && end <= self.space.window().len() {
            self.first.0[at..end].copy_from_slice(bytes);
            self.first_end = self.first_end.max(end);
            return Some(());
        }
        self.write_at(at, bytes)
    }

    /// Copies a window to `at`.
    #[inline]
    pub(crate) fn copy_to(&mut self, at: usize, from: Window<'_>) -> Option<()> {
        let place = self.space.part(at, from.len())?;
        if at >= FIRST_BYTES {
            place.copy_from(from);
            return Some(());
        }
        let here = from.len().min(FIRST_BYTES - at);
        from.part(0, here)?.read(0, &mut self.first.0[at..at + here])?;
        self.first_end = self.first_end.max(at + here);
        if here < from.len() {
            place.part(here, from.len() - here)?.copy_from(from.part(here, from.len() - here)?);
        }
        Some(())
    }

    /// Converts `bytes` bytes of a block, from byte `from` of the block on, and copies them to `at`.
    #[cold]
    #[inline(never)]
    pub(crate) fn convert_to(
        &mut self,
        at: usize,
        block: &Block<'_>,
        from: usize,
        bytes: usize,
    ) -> Option<()> {
        let place = self.space.part(at, bytes)?;
        let here = bytes.min(FIRST_BYTES.saturating_sub(at));
        if here > 0 {
            let first = Space::of_mut(&mut self.first.0[at..at + here]);
            block.copy_to(from, first, CopyMethod::Short);
            self.first_end = self.first_end.max(at + here);
        }
        block.copy_to(from + here, place.part(here, bytes - here)?, CopyMethod::Cached);
        Some(())
    }

    /// Writes `bytes` zeros at `at`.
    #[inline]
    pub(crate) fn zero_at(&mut self, at: usize, bytes: usize) -> Option<()> {
        if bytes == 0 {
            return Some(());
        }
        if at >= FIRST_BYTES {
            return self.space.zero(at, bytes);
        }
        let place = self.space.part(at, bytes)?;
        let here = bytes.min(FIRST_BYTES - at);
        // The bytes of `first` from `first_end` on are already zero.
        if at < self.first_end {
            self.first.0[at..at + here].fill(0);
        }
        self.first_end = self.first_end.max(at + here);
        if here == bytes { Some(()) } else { place.zero(here, bytes - here) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first 32 bytes of a head are collected before they are written. The final bytes are the same as if
    /// they had been written directly to memory. This includes values that begin within the first 32 bytes
    /// and end after them.
    #[test]
    fn collected_bytes_equal_those_written_in_place() {
        let bytes: Vec<u8> = (1..=40).collect();
        for at in 0..48 {
            for length in 0..=40 {
                let (mut plain, mut collected) = ([0u8; 96], [0u8; 96]);
                plain[at..at + length].copy_from_slice(&bytes[..length]);
                for how in 0..2 {
                    collected.fill(0);
                    let mut head = Head::new(Space::of_mut(&mut collected));
                    let block = Window::from(&bytes[..length]);
                    let written = if how == 0 {
                        head.write_at(at, &bytes[..length])
                    } else {
                        head.copy_to(at, block)
                    };
                    written.unwrap();
                    head.flush();
                    assert_eq!(plain, collected, "{length} bytes at {at}, {how}");
                }
                let mut head = Head::new(Space::of_mut(&mut collected));
                head.write_at(at, &bytes[..length]).unwrap();
                head.zero_at(at, length).unwrap();
                head.flush();
                assert_eq!(collected, [0; 96]);
            }
        }
    }

    #[test]
    fn nothing_is_written_outside() {
        let mut memory = [0u8; 40];
        let mut head = Head::new(Space::of_mut(&mut memory));
        assert!(head.write_at(30, &[1; 11]).is_none());
        assert!(head.write_at(41, &[]).is_none());
        assert!(head.write_plain_at(36, &1u64).is_none());
        assert!(head.copy_to(39, Window::from(&[1u8; 2][..])).is_none());
        assert!(head.zero_at(20, 21).is_none());
        // This space has 30 bytes. The collected bytes are written word by word, but nothing may be written
        // beyond the space.
        let mut memory = [0xaa; 40];
        let mut head = Head::new(Space::of_mut(&mut memory).part(0, 30).unwrap());
        head.write_at(0, &[1; 29]).unwrap();
        head.flush();
        assert_eq!((memory[28], &memory[30..]), (1, &[0xaa; 10][..]));
        let mut short = [0u8; 8];
        let mut head = Head::new(Space::of_mut(&mut short));
        assert!(head.write_plain_at(4, &1u64).is_none());
        head.write_plain_at(4, &7u32).unwrap();
        head.flush();
        assert_eq!(short[4], 7);
    }
}
