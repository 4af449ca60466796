//! What a server keeps for its callers over datagrams: frames for results, and how many bytes all of it
//! may be.
//!
//! A thread puts a result together in a frame that stays its own. A small result is copied from there
//! into a box of its record: there are only so many records, so nothing need be counted. A large one
//! takes the frame with it, and what was touched of that is counted until it is acknowledged.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::io;

use crate::limits;
use crate::protocol::exchange::header::HEADER_BYTES;
use crate::protocol::exchange::time::{MILLISECOND, Moment};
use crate::sync::Mutex;
use crate::sys::Memory;
use crate::value::Space;

/// Groups that hosts fall into.
const GROUPS: usize = 1024;
/// Bytes of a box: a result that fits one packet on Ethernet, behind room for its header.
pub(super) const BOX_BYTES: usize = 1536;
/// Boxes that are kept for the next results.
const BOXES_SPARE: usize = 64;
const PAGE: usize = 4096;

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitReached {
    /// A group of hosts has had its share.
    Group,
    /// All of them together have all there is.
    Total,
}

/// Bytes that callers make the server hold, all of them and each group of hosts.
pub(super) struct MemoryBudget {
    most: usize,
    share: usize,
    all: AtomicUsize,
    groups: Box<[AtomicUsize]>,
    /// For how long each group's have not gone on although somebody waits, and the same of all.
    stalls: Box<[StallCounter]>,
    stalls_of_all: StallCounter,
}

/// Counts spans of time in which somebody was heard of that waits for room, since what takes the room
/// went on last. Time in which nothing is heard does not count: a network that was cut for a while
/// keeps both from going on.
#[derive(Default)]
struct StallCounter(AtomicU64);

impl StallCounter {
    /// Nanoseconds of a span, and how many of them are enough.
    const SPAN: u64 = 100 * MILLISECOND;
    const ENOUGH: u64 = 12;

    #[inline]
    fn note_progress(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    fn note_waiting(&self, now: Moment) {
        // The span counted last, and below it how many.
        let span = (now.0 / Self::SPAN) << 8;
        let one_more = |counted: u64| {
            let count = counted & 0xff;
            (counted & !0xff != span && count < Self::ENOUGH).then_some(span | (count + 1))
        };
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
    }

    fn is_stalled(&self) -> bool {
        self.0.load(Ordering::Relaxed) & 0xff >= Self::ENOUGH
    }
}

impl MemoryBudget {
    pub(super) fn new(most: usize, share: usize) -> Self {
        let groups = (0..GROUPS).map(|_| AtomicUsize::new(0)).collect();
        let stalls = (0..GROUPS).map(|_| StallCounter::default()).collect();
        let (all, stalls_of_all) = (AtomicUsize::new(0), StallCounter::default());
        Self { most, share, all, groups, stalls, stalls_of_all }
    }

    /// What a group holds goes on: pieces come, or something is given back.
    #[inline]
    pub(super) fn note_progress(&self, group: u16) {
        self.stalls[usize::from(group) % GROUPS].note_progress();
        self.stalls_of_all.note_progress();
    }

    /// Whose going on it is that room for so many bytes more waits for.
    fn waited_for(&self, group: u16, bytes: usize) -> &StallCounter {
        let held = self.of(group).load(Ordering::Relaxed);
        if held > 0 && held + bytes.max(1) > self.share {
            &self.stalls[usize::from(group) % GROUPS]
        } else {
            &self.stalls_of_all
        }
    }

    /// A caller was heard of that waits for room for so many bytes.
    pub(super) fn note_waiting(&self, group: u16, bytes: usize, now: Moment) {
        self.waited_for(group, bytes).note_waiting(now);
    }

    /// Whether it has waited for long enough: what takes the room does not go on.
    pub(super) fn is_stalled(&self, group: u16, bytes: usize) -> bool {
        self.waited_for(group, bytes).is_stalled()
    }

    fn of(&self, group: u16) -> &AtomicUsize {
        &self.groups[usize::from(group) % GROUPS]
    }

    /// Whether a group may not hold more, or all of them together may not.
    #[inline]
    pub(super) fn is_full(&self, group: u16) -> bool {
        self.all.load(Ordering::Relaxed) >= self.most
            || self.of(group).load(Ordering::Relaxed) >= self.share
    }

    /// Whether anybody holds something.
    pub(super) fn any(&self) -> bool {
        self.all.load(Ordering::Relaxed) > 0
    }

    /// Whether a group holds more than half of what it may.
    fn is_half_full(&self, group: u16) -> bool {
        self.of(group).load(Ordering::Relaxed) >= self.share / 2
    }

    pub(super) fn add(&self, group: u16, bytes: usize) {
        self.all.fetch_add(bytes, Ordering::Relaxed);
        self.of(group).fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, group: u16, bytes: usize) {
        self.all.fetch_sub(bytes, Ordering::Relaxed);
        self.of(group).fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Adds if neither bound is passed; what a group has alone may be more than its share.
    pub(super) fn reserve(&self, group: u16, bytes: usize) -> bool {
        self.try_reserve(group, bytes).is_ok()
    }

    /// The same, and which bound it is.
    pub(super) fn try_reserve(&self, group: u16, bytes: usize) -> Result<(), LimitReached> {
        let all = self.all.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let held = self.of(group).fetch_add(bytes, Ordering::Relaxed);
        let full = if held > 0 && held + bytes > self.share {
            LimitReached::Group
        } else if all > self.most {
            LimitReached::Total
        } else {
            return Ok(());
        };
        self.subtract(group, bytes);
        Err(full)
    }
}

/// Memory in which a result is put together, behind room for a header.
pub(super) struct ResultFrame {
    memory: Memory,
    /// All pages behind are untouched.
    touched: usize,
}

impl ResultFrame {
    /// For results of so many bytes.
    ///
    /// # Errors
    /// If the kernel has no memory.
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        Ok(Self { memory: Memory::private(HEADER_BYTES + bytes)?, touched: 0 })
    }

    #[inline]
    pub(super) const fn fits(&self, bytes: usize) -> bool {
        self.memory.len() >= HEADER_BYTES + bytes
    }

    /// Where the result is put.
    #[inline]
    pub(super) fn reply(&self, bytes: usize) -> Space<'_> {
        self.memory.space().range(HEADER_BYTES, bytes)
    }

    /// So many bytes of the result's place were written, at most.
    #[inline]
    pub(super) fn touch(&mut self, bytes: usize) {
        self.touched = self.touched.max((HEADER_BYTES + bytes).next_multiple_of(PAGE));
    }

    /// Gives memory back beyond so many bytes.
    #[inline]
    pub(super) fn trim(&mut self, bytes: usize) {
        if self.touched > bytes.next_multiple_of(PAGE) {
            self.memory.release(bytes, self.memory.len().next_multiple_of(PAGE));
            self.touched = bytes.next_multiple_of(PAGE);
        }
    }
}

/// A result that is kept until it is acknowledged.
pub(super) enum RetainedResult {
    Small(Box<[u8; BOX_BYTES]>, u32),
    Large(ResultFrame, u32),
}

impl RetainedResult {
    /// Room for the header and the result, and how long that is.
    #[inline]
    pub(super) fn space(&mut self) -> (Space<'_>, u32) {
        match self {
            Self::Small(small, total) => (Space::of_mut(&mut small[..]), *total),
            Self::Large(frame, total) => (frame.memory.space(), *total),
        }
    }
}

/// Memory that a thread has at hand for results: none is asked of anybody else while calls follow each
/// other.
#[derive(Default)]
pub(super) struct ThreadCache {
    frame: Option<ResultFrame>,
    small: Option<Box<[u8; BOX_BYTES]>>,
}

/// The results of all callers of a socket.
pub(super) struct RetainedResults {
    held: MemoryBudget,
    frames: FreeList<ResultFrame>,
    small: FreeList<Box<[u8; BOX_BYTES]>>,
}

impl RetainedResults {
    pub(super) fn new() -> Self {
        Self {
            held: MemoryBudget::new(limits::RETAINED_BYTES_MAX, limits::RETAINED_BYTES_PER_HOST),
            frames: FreeList::new(limits::SPARE_BYTES_MAX),
            small: FreeList::new(BOXES_SPARE * BOX_BYTES),
        }
    }

    /// Whether a group has to acknowledge results before it gets more.
    #[inline]
    pub(super) fn is_full(&self, group: u16) -> bool {
        self.held.is_full(group)
    }

    /// Results of a group go on their way, or are acknowledged.
    #[inline]
    pub(super) fn note_progress(&self, group: u16) {
        self.held.note_progress(group);
    }

    /// A caller was heard of whose call waits for room for its result.
    pub(super) fn note_waiting(&self, group: u16, now: Moment) {
        self.held.note_waiting(group, 0, now);
    }

    /// Whether such calls have waited for long enough: what is kept is not acknowledged.
    pub(super) fn is_stalled(&self, group: u16) -> bool {
        self.held.is_stalled(group, 0)
    }

    /// A frame for a result of at most so many bytes.
    ///
    /// # Errors
    /// If there is no memory.
    #[inline]
    pub(super) fn frame(&self, spare: &mut ThreadCache, bytes: usize) -> io::Result<ResultFrame> {
        let fits = |frame: &ResultFrame| frame.fits(bytes);
        if let Some(frame) = spare.frame.take().filter(fits) {
            return Ok(frame);
        }
        self.frames.take().filter(fits).map_or_else(|| ResultFrame::new(bytes), Ok)
    }

    /// A frame is of no more use now.
    #[inline]
    pub(super) fn recycle(&self, spare: &mut ThreadCache, mut frame: ResultFrame) {
        frame.trim(limits::ESTACK_BYTES_KEPT);
        if spare.frame.is_none() {
            spare.frame = Some(frame);
        } else {
            let bytes = frame.touched.max(PAGE);
            self.frames.put(frame, bytes);
        }
    }

    /// Keeps the first `total` bytes of what was put into a frame.
    #[inline]
    pub(super) fn keep(
        &self,
        spare: &mut ThreadCache,
        group: u16,
        mut frame: ResultFrame,
        total: u32,
    ) -> RetainedResult {
        let all = HEADER_BYTES + total as usize;
        if all > BOX_BYTES {
            // What an earlier, larger result touched is not held for this one.
            let slack = if self.held.is_half_full(group) { 0 } else { limits::ASTACK_BYTES_KEPT };
            if frame.touched > all.next_multiple_of(PAGE) + slack {
                frame.trim(all);
            }
            self.held.add(group, frame.touched);
            self.held.note_progress(group);
            return RetainedResult::Large(frame, total);
        }
        let boxed = spare.small.take().or_else(|| self.small.take());
        let mut boxed = boxed.unwrap_or_else(|| Box::new([0; BOX_BYTES]));
        let result = frame.reply(total as usize).window();
        // Both are as long.
        let _ = result.read(0, &mut boxed[HEADER_BYTES..all]);
        self.recycle(spare, frame);
        RetainedResult::Small(boxed, total)
    }

    /// A result is not needed any more.
    #[inline]
    pub(super) fn release(&self, spare: &mut ThreadCache, group: u16, result: RetainedResult) {
        match result {
            RetainedResult::Small(small, _) if spare.small.is_none() => spare.small = Some(small),
            RetainedResult::Small(small, _) => self.small.put(small, BOX_BYTES),
            RetainedResult::Large(frame, _) => {
                self.held.subtract(group, frame.touched);
                self.held.note_progress(group);
                self.recycle(spare, frame);
            }
        }
    }
}

/// Things that nobody needs now, of so many bytes at most.
pub(super) struct FreeList<T> {
    most: usize,
    things: Mutex<(usize, Vec<(usize, T)>)>,
}

impl<T> FreeList<T> {
    pub(super) const fn new(most: usize) -> Self {
        Self { most, things: Mutex::new((0, Vec::new())) }
    }

    pub(super) fn take(&self) -> Option<T> {
        let mut things = self.things.lock();
        let (bytes, thing) = things.1.pop()?;
        things.0 -= bytes;
        Some(thing)
    }

    /// Puts a thing of so many bytes there, or drops it if there is no room.
    pub(super) fn put(&self, thing: T, bytes: usize) {
        let mut things = self.things.lock();
        if things.0 + bytes <= self.most {
            things.0 += bytes;
            things.1.push((bytes, thing));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_hosts_and_a_hosts_only_one_may_be_larger() {
        let held = MemoryBudget::new(100, 40);
        assert!(held.reserve(1, 30) && !held.reserve(1, 20) && held.reserve(1, 10));
        assert!(held.is_full(1) && !held.is_full(2));
        assert!(held.reserve(2, 50), "alone it may be more than a share");
        assert!(!held.reserve(2, 1) && !held.reserve(3, 11) && held.reserve(3, 10));
        assert!(held.is_full(4), "all together");
        held.subtract(2, 50);
        assert!(held.reserve(4, 40) && !held.is_full(5));
        assert_eq!(held.all.load(Ordering::Relaxed), 90);
    }

    #[test]
    fn patience_ends_where_nothing_goes_on_although_somebody_waits() {
        let held = MemoryBudget::new(100, 40);
        assert!(held.reserve(1, 40));
        let wait = |group, spans: core::ops::Range<u64>| {
            spans.for_each(|n| {
                held.note_waiting(group, 10, Moment(n * StallCounter::SPAN));
                // More often within one span counts once.
                held.note_waiting(group, 10, Moment(n * StallCounter::SPAN + 1));
            });
            held.is_stalled(group, 10)
        };
        assert!(!wait(1, 1..12) && !held.is_stalled(2, 10));
        held.note_progress(1);
        assert!(!wait(1, 20..31) && wait(1, 31..32));
        assert!(wait(1, 0..0), "it stays so");
        held.note_progress(2);
        assert!(wait(1, 0..0), "others are others");
        held.note_progress(1);
        // Who has room of its own left waits for all of them.
        assert!(held.reserve(3, 40) && !held.reserve(2, 30));
        assert!(!wait(2, 40..51) && wait(2, 51..52));
        held.note_progress(3);
        assert!(!wait(2, 0..0));
    }

    #[test]
    fn a_shelf_has_an_end() {
        let shelf = FreeList::new(10);
        shelf.put('a', 6);
        shelf.put('b', 5);
        shelf.put('c', 4);
        assert_eq!([shelf.take(), shelf.take(), shelf.take()], [Some('c'), Some('a'), None]);
        assert_eq!(shelf.things.lock().0, 0);
    }

    /// What is counted is what is resident.
    #[test]
    fn a_kept_result_holds_what_it_touched_and_not_what_others_did() {
        let (results, mut spare) = (RetainedResults::new(), ThreadCache::default());
        let held = || results.held.all.load(Ordering::Relaxed);
        let put = |spare: &mut ThreadCache, touched: usize, total: u32| {
            let mut frame = results.frame(spare, 1 << 20).expect("memory");
            frame.reply(1 << 20).zero(0, touched).expect("room");
            frame.touch(touched);
            results.keep(spare, 7, frame, total)
        };
        let small = put(&mut spare, 900_000, 1472);
        assert!(matches!(small, RetainedResult::Small(..)) && held() == 0);
        assert_eq!(spare.frame.as_ref().map(|frame| frame.touched), Some(901_120));
        // The same frame for one that is a little too large: it does not hold the rest.
        let large = put(&mut spare, 2000, 1473);
        assert!(matches!(large, RetainedResult::Large(..)) && held() == PAGE);
        let larger = put(&mut spare, 1 << 20, 1 << 20);
        assert_eq!(held(), PAGE + (1 << 20) + PAGE);
        for result in [small, large, larger] {
            results.release(&mut spare, 7, result);
        }
        assert_eq!(held(), 0);
        assert!(spare.small.is_some() && spare.frame.is_some());
    }

    #[test]
    fn what_is_given_back_is_gone() {
        let mut frame = ResultFrame::new(1 << 20).expect("memory");
        let all = frame.reply(1 << 20);
        all.write((1 << 20) - 3, b"end").expect("room");
        all.write(3000, b"near").expect("room");
        frame.touch(1 << 20);
        frame.trim(PAGE);
        let mut bytes = [1; 7];
        frame.reply(1 << 20).window().read((1 << 20) - 3, &mut bytes[..3]).expect("it is there");
        frame.reply(1 << 20).window().read(3000, &mut bytes[3..]).expect("it is there");
        assert_eq!(&bytes, b"\0\0\0near");
        assert_eq!(frame.touched, PAGE);
    }
}
