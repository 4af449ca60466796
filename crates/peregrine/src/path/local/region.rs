//! The region of a session: the memory that client and server share, and where its A-stacks (call frames)
//! are.
//!
//! The A-stacks belong to the pair of processes and not to a binding: all bindings between the two processes
//! share them, as in LRPC. Each A-stack has space for the largest message in each direction. The memory is
//! sparse: pages that were never touched cost nothing. Pages that a large message has touched are given back
//! to the kernel when no large message has followed for a while.
//!
//! The table has the offsets in bytes within an A-stack. One half of an A-stack is for the call, the other
//! half is for the reply. A null call moves only the first cache line of each half between the processors.
//!
//! | at | bytes | written by | what |
//! |---|---|---|---|
//! | 0 | 4 | client (to post), server (to wait) | call word |
//! | 4 | 28 | client | binding, procedure, head bytes, copied bytes, total bytes, processor, call flags |
//! | 32 | n + 2 MiB | client | the message of the call |
//! | R | 4 | server (to post), client (to wait) | reply word |
//! | R+4 | 28 | server | answer, processor, offset of the head, head bytes, reserved |
//! | R+32 | n + 2 MiB | server | the message of the reply |
//! | T | 4 | server | taken word: the call word of the last call that the server took |
//! | P | 4 | client | progress of the call: bytes of a large call that are written so far |
//! | P+4 | 4 | client | given-up word: the call word of the last call that the client gave up |
//! | Q | 4 | server | progress of the reply: bytes of a large reply that are written so far |
//!
//! `n` is the size in bytes of the largest message. R, T, P and Q are multiples of 128. No two of them share
//! a cache line. They do not share a pair of lines either, because processors prefetch lines in pairs.
//!
//! A small message begins at the start of its space. Each large message of one direction begins after the
//! previous one, within the first 2 MiB of its space ([`slots`]).

pub(crate) mod chunks;
pub(crate) mod header;
pub(crate) mod slots;
pub(crate) mod word;

use std::io;

use self::slots::ROTATION_BYTES;
use crate::call::{FrameLayout, frames_that_fit, is_short};
use crate::limits;

/// The size in bytes of the header of a call or a reply, including its word.
pub(crate) const HEADER_BYTES: usize = 32;
/// The number of reserved bytes before the first A-stack.
const FIRST: usize = 4096;
/// The size in bytes of a pair of cache lines.
const LINES: usize = 128;

/// The number and the size of the A-stacks of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionLayout {
    pub(crate) count: u32,
    /// The size in bytes of the largest message, in each direction: a multiple of 16.
    pub(crate) bytes: usize,
    /// The size in bytes of a header and the space of its message, rounded up to a pair of cache lines.
    half: usize,
}

impl RegionLayout {
    /// Returns the layout if it is within the limits. This process or its peer may have proposed the layout.
    pub(crate) fn checked(count: u32, bytes: usize) -> Option<Self> {
        let in_bounds = (1..=limits::ASTACKS_MAX).contains(&count)
            && (limits::MESSAGE_BYTES_MIN..=limits::MESSAGE_BYTES_MAX).contains(&bytes)
            && bytes.is_multiple_of(16);
        if !in_bounds {
            return None;
        }
        // The sum is computed after the check of `bytes`: a sum with an unchecked number from the peer may
        // overflow.
        let half = (bytes + ROTATION_BYTES + HEADER_BYTES).next_multiple_of(LINES);
        let layout = Self { count, bytes, half };
        (layout.region_bytes() <= limits::REGION_BYTES_MAX).then_some(layout)
    }

    /// Returns the layout with `count` A-stacks, or with fewer if the limits do not allow `count` A-stacks.
    pub(crate) fn at_most(count: u32, bytes: usize) -> Option<Self> {
        Self::checked(frames_that_fit(count, bytes), bytes)
    }

    /// Maps the memory of the layout with `map`. If the process has too little address space, tries again
    /// with fewer A-stacks. The offsets of the remaining A-stacks stay the same.
    pub(crate) fn mapped<T>(
        mut self,
        map: impl Fn(Self) -> io::Result<T>,
    ) -> io::Result<(Self, T)> {
        loop {
            match map(self) {
                Ok(mapped) => return Ok((self, mapped)),
                Err(error) if self.count <= limits::ASTACKS_SPARING || !is_short(&error) => {
                    return Err(error);
                }
                Err(_) => self.count = (self.count / 2).max(limits::ASTACKS_SPARING),
            }
        }
    }

    const fn stride(self) -> usize {
        2 * self.half + 3 * LINES
    }

    /// Returns the size of the region in bytes.
    pub(crate) const fn region_bytes(self) -> usize {
        (FIRST + self.stride() * self.count as usize).next_multiple_of(4096)
    }

    /// Returns the number, the positions and the sizes of the client's frames in the region.
    pub(crate) const fn frames(self) -> FrameLayout {
        FrameLayout {
            count: self.count,
            first: FIRST,
            stride: self.stride(),
            call_at: HEADER_BYTES,
            reply_at: self.half + HEADER_BYTES,
            bytes: self.space_bytes(),
        }
    }

    /// Returns the size in bytes of the space for a message of either direction. The largest message fits
    /// into the space at every slot.
    pub(crate) const fn space_bytes(self) -> usize {
        self.bytes + ROTATION_BYTES
    }

    /// Returns the offset of the call word of an A-stack.
    #[inline]
    pub(crate) const fn call_word(self, index: u32) -> usize {
        FIRST + self.stride() * index as usize
    }

    /// Returns the offset of the reply word of an A-stack.
    #[inline]
    pub(crate) const fn reply_word(self, index: u32) -> usize {
        self.call_word(index) + self.half
    }

    /// Returns the offset in the region at which an A-stack ends.
    pub(crate) const fn end_of(self, index: u32) -> usize {
        self.call_word(index) + self.stride()
    }

    /// Returns the offset of the word that holds the progress of a large call: the number of its bytes that
    /// the client has written.
    #[inline]
    pub(crate) const fn progress_word(self, index: u32) -> usize {
        self.taken_word(index) + LINES
    }

    /// Returns the offset of the word that names the last call that the client gave up.
    #[inline]
    pub(crate) const fn given_up_word(self, index: u32) -> usize {
        self.progress_word(index) + size_of::<u32>()
    }

    /// Returns the offset of the word that holds the progress of a large reply: the number of its bytes that
    /// the server has written.
    #[inline]
    pub(crate) const fn reply_progress_word(self, index: u32) -> usize {
        self.taken_word(index) + 2 * LINES
    }

    /// Returns the offset of the word that names the last call that the server took.
    #[inline]
    pub(crate) const fn taken_word(self, index: u32) -> usize {
        self.call_word(index) + 2 * self.half
    }
}

#[cfg(test)]
mod tests {
    use super::header::CallFlags;
    use super::*;

    #[test]
    fn parts_of_a_region_do_not_overlap() {
        for (count, bytes) in [(1, 4096), (8, 16 << 10), (1024, 4096), (3, 1_048_592)] {
            let layout = RegionLayout::checked(count, bytes).unwrap();
            for index in 0..count {
                let (call, reply) = (layout.call_word(index), layout.reply_word(index));
                let taken = layout.taken_word(index);
                let last = CallFlags::of(u32::MAX);
                assert!(call + HEADER_BYTES + last.call_offset() + bytes <= reply);
                assert!(reply + HEADER_BYTES + last.reply_offset() + bytes <= taken);
                assert_eq!((call % 128, reply % 128, taken % 128), (0, 0, 0));
                assert_eq!(layout.progress_word(index), taken + 128);
                assert_eq!(layout.given_up_word(index), taken + 132);
                assert_eq!(layout.reply_progress_word(index), taken + 256);
                let end = if index + 1 == count {
                    layout.region_bytes()
                } else {
                    layout.call_word(index + 1)
                };
                assert!(layout.reply_progress_word(index) + 4 <= end);
            }
            let frames = layout.frames();
            assert_eq!(frames.first + frames.call_at, layout.call_word(0) + HEADER_BYTES);
            assert_eq!(frames.first + frames.reply_at, layout.reply_word(0) + HEADER_BYTES);
        }
    }

    #[test]
    fn at_most_returns_as_many_astacks_as_fit() {
        assert_eq!(RegionLayout::at_most(64, 1 << 20).unwrap().count, 64);
        assert!(RegionLayout::at_most(64, (1 << 30) + 16).is_none());
        for bytes in [4096, 1 << 20, 5_000_000, (64 << 20) + 16, 333 << 20, 1 << 30] {
            let most = RegionLayout::at_most(u32::MAX, bytes).unwrap();
            assert!(RegionLayout::checked(most.count + 1, bytes).is_none(), "{bytes} bytes");
        }
    }

    #[test]
    fn layouts_out_of_bounds_are_refused() {
        assert!(RegionLayout::checked(0, 4096).is_none());
        assert!(RegionLayout::checked(1025, 4096).is_none());
        assert!(RegionLayout::checked(1, 16).is_none());
        assert!(RegionLayout::checked(1, 4100).is_none());
        assert!(RegionLayout::checked(1024, 1 << 30).is_none());
        for bytes in [usize::MAX, usize::MAX - 15, usize::MAX - 159] {
            assert!(RegionLayout::checked(1, bytes).is_none());
            assert!(RegionLayout::at_most(1, bytes).is_none());
        }
    }
}
