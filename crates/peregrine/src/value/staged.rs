//! `Staged`: a space whose first bytes are written last, all at once.
//!
//! The first bytes of a message share a cache line with the word at which the other side looks
//! all the time. Whoever writes that line in several goes loses it to the looker in between, and
//! waits each time for it to come back. So what belongs there is gathered in private memory, and
//! goes over together with the header and the word.

use super::swap::How;
use super::{Piece, Plain, Representation, Space, bytes_of};

/// Bytes that are gathered: a cache line less the local path's header.
pub(crate) const FIRST_BYTES: usize = 32;

#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
struct First([u8; FIRST_BYTES]);

/// Memory of a message in the making.
#[derive(Debug)]
pub struct Staged<'a> {
    first: First,
    /// How many of the gathered bytes were written.
    end: usize,
    space: Space<'a>,
}

impl<'a> Staged<'a> {
    /// Nothing is written yet; the gathered bytes are zero.
    #[inline]
    pub const fn new(space: Space<'a>) -> Self {
        Self { first: First([0; FIRST_BYTES]), end: 0, space }
    }

    /// The space behind it. What is written to its first 32 bytes directly is overwritten by
    /// [`Staged::flush`].
    #[inline]
    pub const fn space(&self) -> Space<'a> {
        self.space
    }

    /// Goes on in another space, as if all of it had been written there: its first `written` bytes
    /// go along. `None` if there is no room for them.
    #[cold]
    pub(super) fn move_to(&mut self, space: Space<'a>, written: usize) -> Option<()> {
        let rest = written.saturating_sub(FIRST_BYTES);
        let from = self.space.window().part(written - rest, rest)?;
        space.part(written - rest, rest)?.copy_from(from);
        self.space = space;
        Some(())
    }

    /// Gathers a plain value, if it lies within the first bytes; the caller knows that the space
    /// has room for it. What was skipped since the last value is zero.
    #[inline(always)]
    pub(super) fn gather<T: Plain, R: Representation>(&mut self, at: usize, value: &T) -> bool {
        let bytes = bytes_of(core::slice::from_ref(value));
        let Some(place) = self.first.0.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len()))
        else {
            return false;
        };
        place.copy_from_slice(bytes);
        if R::SWAPPED {
            T::swap(place);
        }
        self.end = self.end.max(at + bytes.len());
        true
    }

    /// Zeroes what was gathered from byte `at` on.
    pub(super) fn forget_from(&mut self, at: usize) {
        if at < self.end {
            self.first.0[at..].fill(0);
            self.end = at;
        }
    }

    /// Writes bytes at `at`; `None` if there is no room.
    #[inline]
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Option<()> {
        if at >= FIRST_BYTES {
            return self.space.write(at, bytes);
        }
        let place = self.space.part(at, bytes.len())?;
        let here = bytes.len().min(FIRST_BYTES - at);
        let (first, rest) = bytes.split_at(here);
        self.first.0[at..at + here].copy_from_slice(first);
        self.end = self.end.max(at + here);
        if rest.is_empty() { Some(()) } else { place.write(here, rest) }
    }

    /// Writes a plain value at `at`; `None` if there is no room.
    #[inline]
    pub fn write_plain<T: Plain>(&mut self, at: usize, value: &T) -> Option<()> {
        let bytes = bytes_of(core::slice::from_ref(value));
        let end = at.checked_add(bytes.len())?;
        if end <= FIRST_BYTES && end <= self.space.window().len() {
            self.first.0[at..end].copy_from_slice(bytes);
            self.end = self.end.max(end);
            return Some(());
        }
        self.write(at, bytes)
    }

    /// Copies a block to `at`; `None` if there is no room.
    #[inline]
    pub fn copy(&mut self, at: usize, block: super::Window<'_>) -> Option<()> {
        let place = self.space.part(at, block.len())?;
        if at >= FIRST_BYTES {
            place.copy_from(block);
            return Some(());
        }
        let here = block.len().min(FIRST_BYTES - at);
        block.part(0, here)?.read(0, &mut self.first.0[at..at + here])?;
        self.end = self.end.max(at + here);
        if here < block.len() {
            place.part(here, block.len() - here)?.copy_from(block.part(here, block.len() - here)?);
        }
        Some(())
    }

    /// Copies a piece of a block to `at`, as it travels; `None` if there is no room.
    #[cold]
    #[inline(never)]
    pub fn put(&mut self, at: usize, piece: Piece<'_>) -> Option<()> {
        let place = self.space.part(at, piece.len())?;
        let here = piece.len().min(FIRST_BYTES.saturating_sub(at));
        if here > 0 {
            let first = Space::of_mut(&mut self.first.0[at..at + here]);
            piece.part(0, here)?.copy_to(first, How::Short);
            self.end = self.end.max(at + here);
        }
        let rest = piece.len() - here;
        piece.part(here, rest)?.copy_to(place.part(here, rest)?, How::Lines);
        Some(())
    }

    /// Writes zeros; `None` if there is no room.
    #[inline]
    pub fn zero(&mut self, at: usize, bytes: usize) -> Option<()> {
        if bytes == 0 {
            return Some(());
        }
        if at >= FIRST_BYTES {
            return self.space.zero(at, bytes);
        }
        let place = self.space.part(at, bytes)?;
        let here = bytes.min(FIRST_BYTES - at);
        // Padding: what was not written yet is zero already.
        if at < self.end {
            self.first.0[at..at + here].fill(0);
        }
        self.end = self.end.max(at + here);
        if here == bytes { Some(()) } else { place.zero(here, bytes - here) }
    }

    /// Writes what was gathered to its place.
    #[inline]
    pub fn flush(&self) {
        self.space.write_words(&self.first.0, self.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Window;

    /// Staged and plain writing must leave the same bytes, wherever the border is crossed.
    #[test]
    fn it_writes_what_plain_writing_would() {
        let bytes: Vec<u8> = (1..=40).collect();
        for at in 0..48 {
            for length in 0..=40 {
                let (mut plain, mut staged) = ([0u8; 96], [0u8; 96]);
                plain[at..at + length].copy_from_slice(&bytes[..length]);
                for how in 0..2 {
                    staged.fill(0);
                    let mut space = Staged::new(Space::of_mut(&mut staged));
                    let block = Window::from(&bytes[..length]);
                    let written = if how == 0 {
                        space.write(at, &bytes[..length])
                    } else {
                        space.copy(at, block)
                    };
                    written.unwrap();
                    space.flush();
                    assert_eq!(plain, staged, "{length} bytes at {at}, {how}");
                }
                let mut space = Staged::new(Space::of_mut(&mut staged));
                space.write(at, &bytes[..length]).unwrap();
                space.zero(at, length).unwrap();
                space.flush();
                assert_eq!(staged, [0; 96]);
            }
        }
    }

    #[test]
    fn nothing_is_written_outside() {
        let mut memory = [0u8; 40];
        let mut space = Staged::new(Space::of_mut(&mut memory));
        assert!(space.write(30, &[1; 11]).is_none());
        assert!(space.write(41, &[]).is_none());
        assert!(space.write_plain(36, &1u64).is_none());
        assert!(space.copy(39, Window::from(&[1u8; 2][..])).is_none());
        assert!(space.zero(20, 21).is_none());
        // What is gathered is written in words, but not beyond a space that has no whole one left.
        let mut memory = [0xaa; 40];
        let mut space = Staged::new(Space::of_mut(&mut memory).part(0, 30).unwrap());
        space.write(0, &[1; 29]).unwrap();
        space.flush();
        assert_eq!((memory[28], &memory[30..]), (1, &[0xaa; 10][..]));
        let mut short = [0u8; 8];
        let mut space = Staged::new(Space::of_mut(&mut short));
        assert!(space.write_plain(4, &1u64).is_none());
        space.write_plain(4, &7u32).unwrap();
        space.flush();
        assert_eq!(short[4], 7);
    }
}
