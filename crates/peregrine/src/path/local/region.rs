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
//! | 4 | 28 | client | binding, procedure, head bytes, copied bytes, total bytes, processor, manner |
//! | 32 | n + 2 MiB | client | the message of the call |
//! | R | 4 | server (waits: client) | reply word |
//! | R+4 | 28 | server | answer, processor, head's place, head bytes, reserved |
//! | R+32 | n + 2 MiB | server | the message of the reply |
//! | T | 4 | server | the call word of the last call that was *taken*, read when a caller wonders |
//! | P | 4 | client | bytes of a large call that are in place, while it is still being written |
//! | P+4 | 4 | client | the call word of a call that it gave up, looked at by who wonders |
//! | Q | 4 | server | the same of a large reply |
//!
//! R, T, P and Q are the next multiples of 128, so that no line is shared, not even by prefetchers
//! that take them in pairs.
//!
//! A small message begins where its space does. A large one begins where the one before it in the
//! same direction ended, on and on through the 2 MiB, and then from the start again: what is written
//! there was last used 2 MiB ago, and the other processor's nearest cache has let go of it. Written
//! at the same place as the one before, each line would first have to be fetched from there.

pub(crate) mod chunks;
pub(crate) mod word;

use core::sync::atomic::{AtomicU32, Ordering};

use crate::call::{FrameLayout, frames_that_fit};
use crate::limits;

/// Bytes of a line's header, word included.
pub(crate) const HEADER_BYTES: usize = 32;
/// Bytes before the first A-stack, reserved.
const FIRST: usize = 4096;
const LINES: usize = 128;

/// The header of a call line behind its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallHeader {
    pub(crate) binding: u32,
    pub(crate) procedure: u32,
    pub(crate) head_bytes: u32,
    pub(crate) copied: u32,
    pub(crate) total: u32,
    pub(crate) cpu: u32,
    pub(crate) manner: Manner,
}

impl CallHeader {
    /// As it lies in memory.
    #[inline]
    pub(crate) const fn words(self) -> [u32; 7] {
        let Self { binding, procedure, head_bytes, copied, total, cpu, manner } = self;
        [binding, procedure, head_bytes, copied, total, cpu, manner.0]
    }

    #[inline]
    pub(crate) const fn of(words: [u32; 7]) -> Self {
        let [binding, procedure, head_bytes, copied, total, cpu, manner] = words;
        Self { binding, procedure, head_bytes, copied, total, cpu, manner: Manner(manner) }
    }
}

/// The header of a reply line behind its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyHeader {
    pub(crate) answer: u32,
    pub(crate) cpu: u32,
    pub(crate) head_at: u32,
    pub(crate) head_bytes: u32,
}

impl ReplyHeader {
    #[inline]
    pub(crate) const fn words(self) -> [u32; 4] {
        [self.answer, self.cpu, self.head_at, self.head_bytes]
    }

    #[inline]
    pub(crate) const fn of(words: [u32; 4]) -> Self {
        let [answer, cpu, head_at, head_bytes] = words;
        Self { answer, cpu, head_at, head_bytes }
    }
}

/// Bytes from one place where a large message may begin to the next, and bytes beyond which a message
/// is large: two pages.
pub(crate) const PLACE_BYTES: usize = 8 << 10;
/// Places; all of them lie within the room that each half has beside its largest message, so that
/// any message fits at any of them. Twice what a processor's own cache holds today.
const PLACES: u32 = 256;
const ROOM: usize = PLACE_BYTES * PLACES as usize;

/// What is unusual about a call, in the last word of its header: nothing about most. Whatever the
/// bits, there is such a place.
///
/// | bits | what |
/// |---|---|
/// | 0 to 14 | bytes of extensions, behind the message at a multiple of 16 |
/// | 15 | the message is *arriving*: it is still being written |
/// | 16 to 23 | place of the message |
/// | 24 to 31 | place of the reply; if it is not the first, the caller follows the reply as it is written |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner(u32);

impl Manner {
    const EXTENSIONS: u32 = 0x7fff;
    const ARRIVING: u32 = 0x8000;

    /// A small call from no procedure and without a limit, with a small reply.
    pub(crate) const PLAIN: Self = Self(0);

    #[inline]
    pub(crate) const fn is_plain(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn with_extensions(self, bytes: u32) -> Self {
        Self(self.0 | bytes & Self::EXTENSIONS)
    }

    pub(crate) const fn arriving(self) -> Self {
        Self(self.0 | Self::ARRIVING)
    }

    pub(crate) const fn arrived(self) -> Self {
        Self(self.0 & !Self::ARRIVING)
    }

    pub(crate) const fn with_call_at(self, place: u32) -> Self {
        Self(self.0 | place << 16)
    }

    pub(crate) const fn with_reply_at(self, place: u32) -> Self {
        Self(self.0 | place << 24)
    }

    pub(crate) const fn extensions(self) -> usize {
        (self.0 & Self::EXTENSIONS) as usize
    }

    #[inline]
    pub(crate) const fn is_arriving(self) -> bool {
        self.0 & Self::ARRIVING != 0
    }

    /// Bytes from the start of its space to the message.
    pub(crate) const fn call_at(self) -> usize {
        (self.0 >> 16 & 0xff) as usize * PLACE_BYTES
    }

    pub(crate) const fn reply_place(self) -> u32 {
        self.0 >> 24
    }

    /// Bytes from the start of its space to the reply.
    #[inline]
    pub(crate) const fn reply_at(self) -> usize {
        self.reply_place() as usize * PLACE_BYTES
    }
}

/// Where the next large message of one direction begins, zero before there was one.
#[derive(Debug, Default)]
pub(crate) struct Next(AtomicU32);

impl Next {
    #[inline]
    pub(crate) fn place(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// There is a message of so many bytes at a place: the next one begins behind it. The first
    /// place is left to messages that are small.
    pub(crate) fn is_behind(&self, place: u32, bytes: usize) {
        let end = bytes.div_ceil(PLACE_BYTES).saturating_add(place as usize);
        self.0.store(if end < PLACES as usize { end as u32 } else { 1 }, Ordering::Relaxed);
    }

    /// There was no large message, or none for long.
    pub(crate) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

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
        let half = (bytes + ROOM + HEADER_BYTES).next_multiple_of(LINES);
        let layout = Self { count, bytes, half };
        (layout.region_bytes() <= limits::REGION_BYTES_MAX).then_some(layout)
    }

    /// As many A-stacks of that size as the bounds allow, `count` at most.
    pub(crate) fn at_most(count: u32, bytes: usize) -> Option<Self> {
        Self::checked(frames_that_fit(count, bytes), bytes)
    }

    const fn stride(self) -> usize {
        2 * self.half + 3 * LINES
    }

    /// Bytes of the whole region.
    pub(crate) const fn region_bytes(self) -> usize {
        (FIRST + self.stride() * self.count as usize).next_multiple_of(4096)
    }

    /// Where the client finds its frames.
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

    /// Bytes of the space of a message each way: the largest one fits at any place.
    pub(crate) const fn space_bytes(self) -> usize {
        self.bytes + ROOM
    }

    /// Byte of the call word of an A-stack.
    #[inline]
    pub(crate) const fn call_word(self, index: u32) -> usize {
        FIRST + self.stride() * index as usize
    }

    /// Byte of the reply word of an A-stack.
    #[inline]
    pub(crate) const fn reply_word(self, index: u32) -> usize {
        self.call_word(index) + self.half
    }

    /// Where an A-stack ends.
    pub(crate) const fn end_of(self, index: u32) -> usize {
        self.call_word(index) + self.stride()
    }

    /// Byte of the word that tells how much of a call is in place.
    #[inline]
    pub(crate) const fn progress_word(self, index: u32) -> usize {
        self.taken_word(index) + LINES
    }

    /// Byte of the word that tells which call was given up.
    #[inline]
    pub(crate) const fn given_up_word(self, index: u32) -> usize {
        self.progress_word(index) + size_of::<u32>()
    }

    /// Byte of the word that tells how much of a reply is in place.
    #[inline]
    pub(crate) const fn reply_progress_word(self, index: u32) -> usize {
        self.taken_word(index) + 2 * LINES
    }

    /// Byte of the word that tells which call was taken.
    #[inline]
    pub(crate) const fn taken_word(self, index: u32) -> usize {
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
                let last = Manner(u32::MAX);
                assert!(call + HEADER_BYTES + last.call_at() + bytes <= reply);
                assert!(reply + HEADER_BYTES + last.reply_at() + bytes <= taken);
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
    fn as_many_as_there_is_room_for() {
        assert_eq!(RegionLayout::at_most(64, 1 << 20).unwrap().count, 64);
        let large = RegionLayout::at_most(64, 1 << 30).unwrap();
        assert!((1..4).contains(&large.count));
        assert!(RegionLayout::at_most(64, (1 << 30) + 16).is_none());
    }

    #[test]
    fn a_manner_says_what_it_was_told() {
        let manner = Manner::PLAIN.with_extensions(520).arriving();
        let manner = manner.with_call_at(255).with_reply_at(7);
        assert_eq!((manner.extensions(), manner.is_arriving()), (520, true));
        assert_eq!((manner.call_at(), manner.reply_at()), (255 * PLACE_BYTES, 7 * PLACE_BYTES));
        assert_eq!(manner.arrived().extensions(), 520);
        assert!(!manner.arrived().is_arriving() && !manner.is_plain());
        assert!(Manner::PLAIN.is_plain());
    }

    #[test]
    fn places_are_run_through_and_begun_anew() {
        let next = Next::default();
        let mut places = Vec::new();
        for _ in 0..50 {
            let place = next.place().max(1);
            places.push(place);
            next.is_behind(place, 48_016);
        }
        assert_eq!(places[..3], [1, 7, 13]);
        assert_eq!(places[42..45], [253, 1, 7]);
        next.is_behind(1, 1 << 20);
        assert_eq!(next.place(), 129);
        for bytes in [1 << 20, 2 << 20, 1 << 30, usize::MAX] {
            next.is_behind(129, bytes);
            assert_eq!(next.place(), 1, "{bytes}");
        }
        next.forget();
        assert_eq!(next.place(), 0);
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
