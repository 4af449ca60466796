//! The region of a session: where its A-stacks lie in the memory that client and server share.
//!
//! The A-stacks belong to the two processes, not to a binding: all bindings between them share
//! them, pairwise as in LRPC. Each is as large as the largest message that it may be asked to hold,
//! and the memory is sparse: what was never touched costs nothing, and what one large message
//! touched is given back when nobody has needed it for a while.
//!
//! Offsets within an A-stack; a null call moves the first line of each half and nothing else:
//!
//! | at | bytes | written by | what |
//! |---|---|---|---|
//! | 0 | 4 | client (waits: server) | call word |
//! | 4 | 28 | client | binding, procedure, head bytes, copied bytes, total bytes, processor, extensions |
//! | 32 | n | client | the message of the call |
//! | R | 4 | server (waits: client) | reply word |
//! | R+4 | 28 | server | answer, processor, head's place, head bytes, reserved |
//! | R+32 | n | server | the message of the reply |
//! | T | 4 | server | the call word of the last call that was *taken*, read when a caller wonders |
//! | P | 4 | client | bytes of a large message that are in place, while it is still being written |
//!
//! R, T and P are the next multiples of 128, so that no line is shared, not even by prefetchers
//! that take them in pairs.

use crate::call::FrameLayout;
use crate::limits;

/// Bytes of a line's header, word included.
pub(super) const HEADER_BYTES: usize = 32;
/// Bytes before the first A-stack, reserved.
const FIRST: usize = 4096;
const LINES: usize = 128;

/// The header of a call line behind its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallHeader {
    pub(super) binding: u32,
    pub(super) procedure: u32,
    pub(super) head_bytes: u32,
    pub(super) copied: u32,
    pub(super) total: u32,
    pub(super) cpu: u32,
    /// Bytes of extensions, behind the message at a multiple of 16; and [`ARRIVING`].
    pub(super) extensions: u32,
}

impl CallHeader {
    /// As it lies in memory.
    #[inline]
    pub(super) const fn words(self) -> [u32; 7] {
        let Self { binding, procedure, head_bytes, copied, total, cpu, extensions } = self;
        [binding, procedure, head_bytes, copied, total, cpu, extensions]
    }

    #[inline]
    pub(super) const fn of(words: [u32; 7]) -> Self {
        let [binding, procedure, head_bytes, copied, total, cpu, extensions] = words;
        Self { binding, procedure, head_bytes, copied, total, cpu, extensions }
    }
}

/// The header of a reply line behind its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyHeader {
    pub(super) answer: u32,
    pub(super) cpu: u32,
    pub(super) head_at: u32,
    pub(super) head_bytes: u32,
}

impl ReplyHeader {
    #[inline]
    pub(super) const fn words(self) -> [u32; 4] {
        [self.answer, self.cpu, self.head_at, self.head_bytes]
    }

    #[inline]
    pub(super) const fn of(words: [u32; 4]) -> Self {
        let [answer, cpu, head_at, head_bytes] = words;
        Self { answer, cpu, head_at, head_bytes }
    }
}

/// The bit of the word of extensions that says that the message is still being written.
pub(super) const ARRIVING: u32 = 1 << 31;

/// How many A-stacks of which size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionLayout {
    pub(crate) count: u32,
    /// Bytes of a message each way, a multiple of 16.
    pub(crate) bytes: usize,
    /// Bytes of a line's header and message, rounded up.
    half: usize,
}

impl RegionLayout {
    /// A layout within the bounds, as asked for by this side or announced by the other.
    pub(crate) fn checked(count: u32, bytes: usize) -> Option<Self> {
        let in_bounds = (1..=limits::ASTACKS_MAX).contains(&count)
            && (limits::MESSAGE_BYTES_MIN..=limits::MESSAGE_BYTES_MAX).contains(&bytes)
            && bytes.is_multiple_of(16);
        if !in_bounds {
            return None;
        }
        // Only now: what a peer announces may be too large for any sum.
        let half = (bytes + HEADER_BYTES).next_multiple_of(LINES);
        let layout = Self { count, bytes, half };
        (layout.region_bytes() <= limits::REGION_BYTES_MAX).then_some(layout)
    }

    /// As many A-stacks of that size as the bounds allow, `count` at most.
    pub(crate) fn at_most(count: u32, bytes: usize) -> Option<Self> {
        let one = Self::checked(1, bytes)?;
        let room = (limits::REGION_BYTES_MAX - FIRST - 4096) / one.stride();
        Self::checked(count.min(u32::try_from(room).unwrap_or(u32::MAX)), bytes)
    }

    const fn stride(self) -> usize {
        2 * self.half + 2 * LINES
    }

    /// Bytes of the whole region.
    pub(crate) const fn region_bytes(self) -> usize {
        (FIRST + self.stride() * self.count as usize).next_multiple_of(4096)
    }

    /// Where the client finds its frames.
    pub(super) const fn frames(self) -> FrameLayout {
        FrameLayout {
            count: self.count,
            first: FIRST,
            stride: self.stride(),
            call_at: HEADER_BYTES,
            reply_at: self.half + HEADER_BYTES,
            bytes: self.bytes,
        }
    }

    /// Byte of the call word of an A-stack.
    #[inline]
    pub(super) const fn call_word(self, index: u32) -> usize {
        FIRST + self.stride() * index as usize
    }

    /// Byte of the reply word of an A-stack.
    #[inline]
    pub(super) const fn reply_word(self, index: u32) -> usize {
        self.call_word(index) + self.half
    }

    /// Where an A-stack ends.
    pub(super) const fn end_of(self, index: u32) -> usize {
        self.call_word(index) + self.stride()
    }

    /// Byte of the word that tells how much of a message is in place.
    #[inline]
    pub(super) const fn progress_word(self, index: u32) -> usize {
        self.taken_word(index) + LINES
    }

    /// Byte of the word that tells which call was taken.
    #[inline]
    pub(super) const fn taken_word(self, index: u32) -> usize {
        self.call_word(index) + 2 * self.half
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_everything_is_inside() {
        for (count, bytes) in [(1, 4096), (8, 16 << 10), (1024, 4096), (3, 1_048_592)] {
            let layout = RegionLayout::checked(count, bytes).unwrap();
            for index in 0..count {
                let (call, reply) = (layout.call_word(index), layout.reply_word(index));
                let taken = layout.taken_word(index);
                assert!(call + HEADER_BYTES + bytes <= reply);
                assert!(reply + HEADER_BYTES + bytes <= taken);
                assert_eq!((call % 128, reply % 128, taken % 128), (0, 0, 0));
                assert_eq!(layout.progress_word(index), taken + 128);
                let end = if index + 1 == count {
                    layout.region_bytes()
                } else {
                    layout.call_word(index + 1)
                };
                assert!(layout.progress_word(index) + 4 <= end);
            }
            let frames = layout.frames();
            assert_eq!(frames.first + frames.call_at, layout.call_word(0) + HEADER_BYTES);
            assert_eq!(frames.first + frames.reply_at, layout.reply_word(0) + HEADER_BYTES);
        }
    }

    #[test]
    fn as_many_as_there_is_room_for() {
        assert_eq!(RegionLayout::at_most(64, 1 << 20).unwrap().count, 64);
        let large = RegionLayout::at_most(64, 1 << 30).unwrap();
        assert!((1..4).contains(&large.count));
        assert!(RegionLayout::at_most(64, (1 << 30) + 16).is_none());
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
