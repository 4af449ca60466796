//! The memory that a server keeps for datagram clients, and the limits of this memory.
//!
//! A thread builds a result in a *frame*, which is memory for one result. A small result is copied from the
//! frame into a *box*, a small piece of memory that belongs to the client's record, and sent from the frame.
//! The number of records bounds the number of boxes, so boxes are not charged to a [`MemoryBudget`]. A large
//! result keeps the frame. The touched pages of this frame are charged until the client acknowledges the
//! result.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::io;

use crate::limits;
use crate::protocol::exchange::header::HEADER_BYTES;
use crate::protocol::exchange::time::{MILLISECOND, Moment};
use crate::stats::{self, Copy};
use crate::sync::Mutex;
use crate::sys::Memory;
use crate::value::Space;

/// The number of groups of hosts. Each host belongs to one group, and limits apply to a group.
const GROUPS: usize = 1024;
/// The size of a box in bytes. A box can hold a header, and a result that fits one packet on Ethernet.
pub(super) const BOX_BYTES: usize = 1536;
/// The size in bytes of the largest result that fits a box.
pub(super) const BOXED_MAX: usize = BOX_BYTES - HEADER_BYTES;
/// The number of unused boxes that are kept for later results.
const BOXES_SPARE: usize = 64;
const PAGE: usize = 4096;

/// The limit that prevented a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitReached {
    /// The group of hosts has used its share.
    Group,
    /// All groups together have used the total.
    Total,
}

/// Counts the bytes that are charged to all clients together and to each group of hosts. Also contains the
/// limits of both.
pub(super) struct MemoryBudget {
    most: usize,
    share: usize,
    all: AtomicUsize,
    groups: Box<[AtomicUsize]>,
    /// For each group: a counter of the intervals in which the group made no progress. An interval counts
    /// only if a client of the group waited during it for memory because the group had used its share.
    stalls: Box<[StallCounter]>,
    /// A counter of the intervals in which no group made progress, while a client waited for memory because
    /// all memory was used.
    stalls_of_all: StallCounter,
}

/// Counts the intervals without progress in which a packet of a waiting client arrived. Intervals without
/// such a packet do not count: an interruption of the network stops both the packets of waiting clients and
/// the progress.
#[derive(Default)]
struct StallCounter(AtomicU64);

impl StallCounter {
    /// The length of an interval in nanoseconds.
    const INTERVAL: u64 = 100 * MILLISECOND;
    /// The number of counted intervals that make a stall.
    const ENOUGH: u64 = 12;

    #[inline]
    fn note_progress(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    fn note_waiting(&self, now: Moment) {
        // The upper bits contain the number of the last counted interval. The lower 8 bits contain the count.
        let span = (now.0 / Self::INTERVAL) << 8;
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

    /// Notes progress of a group: pieces of a message have arrived, or memory was released.
    #[inline]
    pub(super) fn note_progress(&self, group: u16) {
        self.stalls[usize::from(group) % GROUPS].note_progress();
        self.stalls_of_all.note_progress();
    }

    /// Returns the stall counter that applies to a waiting request of `bytes` bytes. If the request would
    /// exceed the share of the group, this is the counter of the group. Otherwise it is the counter of the
    /// total.
    fn waited_for(&self, group: u16, bytes: usize) -> &StallCounter {
        let held = self.of(group).load(Ordering::Relaxed);
        if held > 0 && held + bytes.max(1) > self.share {
            &self.stalls[usize::from(group) % GROUPS]
        } else {
            &self.stalls_of_all
        }
    }

    /// Notes that a packet arrived from a client that waits for `bytes` bytes.
    pub(super) fn note_waiting(&self, group: u16, bytes: usize, now: Moment) {
        self.waited_for(group, bytes).note_waiting(now);
    }

    /// Returns whether a client that waits for `bytes` bytes must not wait any longer, because there has been
    /// no progress for too long.
    pub(super) fn is_stalled(&self, group: u16, bytes: usize) -> bool {
        self.waited_for(group, bytes).is_stalled()
    }

    fn of(&self, group: u16) -> &AtomicUsize {
        &self.groups[usize::from(group) % GROUPS]
    }

    /// Returns whether the group has used its share, or all groups together have used the total.
    #[inline]
    pub(super) fn is_full(&self, group: u16) -> bool {
        self.all.load(Ordering::Relaxed) >= self.most
            || self.of(group).load(Ordering::Relaxed) >= self.share
    }

    /// Returns whether any bytes are charged.
    pub(super) fn any(&self) -> bool {
        self.all.load(Ordering::Relaxed) > 0
    }

    /// Returns whether a group has used at least half of its share.
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

    /// Charges bytes if this exceeds neither the limit of all groups nor that of the group. Returns whether the
    /// bytes were charged. The limit of the group does not apply while the group has no other bytes charged.
    pub(super) fn reserve(&self, group: u16, bytes: usize) -> bool {
        self.try_reserve(group, bytes).is_ok()
    }

    /// Charges bytes as [`reserve`](Self::reserve) does. If that fails, returns the limit that was reached.
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

/// The memory in which a result is built. This memory includes space for a header before the result.
pub(super) struct ResultFrame {
    memory: Memory,
    /// The offset in bytes from which on no page of the memory was touched.
    touched: usize,
}

impl ResultFrame {
    /// Creates memory for results of at most `bytes` bytes.
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

    /// Returns the memory in which the result is built.
    #[inline]
    pub(super) fn reply(&self, bytes: usize) -> Space<'_> {
        self.memory.space().range(HEADER_BYTES, bytes)
    }

    /// Returns the memory of a header and of the first `bytes` bytes of the result.
    #[inline]
    pub(super) fn packet(&self, bytes: usize) -> Space<'_> {
        self.memory.space().range(0, HEADER_BYTES + bytes)
    }

    /// Notes that at most the first `bytes` bytes of the result's memory were written.
    #[inline]
    pub(super) fn touch(&mut self, bytes: usize) {
        self.touched = self.touched.max((HEADER_BYTES + bytes).next_multiple_of(PAGE));
    }

    /// Releases the pages after the first `bytes` bytes, so that the kernel can reuse them.
    #[inline]
    pub(super) fn trim(&mut self, bytes: usize) {
        if self.touched > bytes.next_multiple_of(PAGE) {
            self.memory.release(bytes, self.memory.len().next_multiple_of(PAGE));
            self.touched = bytes.next_multiple_of(PAGE);
        }
    }
}

/// A result that the server keeps until the client acknowledges it.
pub(super) enum RetainedResult {
    Small(Box<[u8; BOX_BYTES]>, u32),
    Large(ResultFrame, u32),
}

impl RetainedResult {
    /// Returns the memory of the header and the result together, and the length of the result.
    #[inline]
    pub(super) fn space(&mut self) -> (Space<'_>, u32) {
        match self {
            Self::Small(small, total) => (Space::of_mut(&mut small[..]), *total),
            Self::Large(frame, total) => (frame.memory.space(), *total),
        }
    }
}

/// Memory that a thread keeps for its next results. Because of this memory, successive calls need no lock.
#[derive(Default)]
pub(super) struct ThreadCache {
    frame: Option<ResultFrame>,
    small: Option<Box<[u8; BOX_BYTES]>>,
}

/// The retained results of all clients of a socket.
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

    /// Returns whether the clients of a group must acknowledge results before they get further results.
    #[inline]
    pub(super) fn is_full(&self, group: u16) -> bool {
        self.held.is_full(group)
    }

    /// Notes progress of a group: one of its clients has received or acknowledged a part of a result.
    #[inline]
    pub(super) fn note_progress(&self, group: u16) {
        self.held.note_progress(group);
    }

    /// Notes that a packet arrived from a client whose call waits for memory for its result.
    pub(super) fn note_waiting(&self, group: u16, now: Moment) {
        self.held.note_waiting(group, 0, now);
    }

    /// Returns whether calls have waited for too long for memory for their results, because clients do not
    /// acknowledge earlier results.
    pub(super) fn is_stalled(&self, group: u16) -> bool {
        self.held.is_stalled(group, 0)
    }

    /// Returns a frame for a result of at most `bytes` bytes.
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

    /// Takes back a frame that is not used any more.
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

    /// Retains the first `total` bytes of a frame as a result. If the result is small, also returns the frame,
    /// which still contains it: the result can be sent from there.
    #[inline]
    pub(super) fn keep(
        &self,
        spare: &mut ThreadCache,
        group: u16,
        mut frame: ResultFrame,
        total: u32,
    ) -> (RetainedResult, Option<ResultFrame>) {
        let all = HEADER_BYTES + total as usize;
        if all > BOX_BYTES {
            // An earlier, larger result may have touched further pages. These pages are released before the
            // frame is charged. Releasing pages takes a system call. So a few of them may stay, as long as
            // the group has used less than half of its share.
            let slack = if self.held.is_half_full(group) { 0 } else { limits::ASTACK_BYTES_KEPT };
            if frame.touched > all.next_multiple_of(PAGE) + slack {
                frame.trim(all);
            }
            self.held.add(group, frame.touched);
            self.held.note_progress(group);
            return (RetainedResult::Large(frame, total), None);
        }
        let boxed = spare.small.take().or_else(|| self.small.take());
        let mut boxed = boxed.unwrap_or_else(|| Box::new([0; BOX_BYTES]));
        let result = frame.reply(total as usize).window();
        // Source and destination have the same length, so the copy cannot fail.
        let _ = result.read(0, &mut boxed[HEADER_BYTES..all]);
        stats::count(Copy::R, total as usize);
        (RetainedResult::Small(boxed, total), Some(frame))
    }

    /// Releases a result.
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

/// Values that are unused and kept for later use, with at most `most` bytes in total.
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

    /// Adds a value that occupies `bytes` bytes. If the list is full, drops the value.
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
    fn share_is_per_host_and_a_single_message_may_exceed_it() {
        let held = MemoryBudget::new(100, 40);
        assert!(held.reserve(1, 30) && !held.reserve(1, 20) && held.reserve(1, 10));
        assert!(held.is_full(1) && !held.is_full(2));
        assert!(held.reserve(2, 50), "a single message may exceed the share");
        assert!(!held.reserve(2, 1) && !held.reserve(3, 11) && held.reserve(3, 10));
        assert!(held.is_full(4), "the total is used up");
        held.subtract(2, 50);
        assert!(held.reserve(4, 40) && !held.is_full(5));
        assert_eq!(held.all.load(Ordering::Relaxed), 90);
    }

    #[test]
    fn wait_without_progress_becomes_a_stall() {
        let held = MemoryBudget::new(100, 40);
        assert!(held.reserve(1, 40));
        let wait = |group, spans: core::ops::Range<u64>| {
            spans.for_each(|n| {
                held.note_waiting(group, 10, Moment(n * StallCounter::INTERVAL));
                // Several notes within one interval count once.
                held.note_waiting(group, 10, Moment(n * StallCounter::INTERVAL + 1));
            });
            held.is_stalled(group, 10)
        };
        assert!(!wait(1, 1..12) && !held.is_stalled(2, 10));
        held.note_progress(1);
        assert!(!wait(1, 20..31) && wait(1, 31..32));
        assert!(wait(1, 0..0), "a stall lasts until there is progress");
        held.note_progress(2);
        assert!(wait(1, 0..0), "progress of another group does not end the stall");
        held.note_progress(1);
        // Group 2 has used nothing of its share. It waits because the total does not suffice.
        assert!(held.reserve(3, 40) && !held.reserve(2, 30));
        assert!(!wait(2, 40..51) && wait(2, 51..52));
        held.note_progress(3);
        assert!(!wait(2, 0..0));
    }

    #[test]
    fn free_list_is_bounded() {
        let shelf = FreeList::new(10);
        shelf.put('a', 6);
        shelf.put('b', 5);
        shelf.put('c', 4);
        assert_eq!([shelf.take(), shelf.take(), shelf.take()], [Some('c'), Some('a'), None]);
        assert_eq!(shelf.things.lock().0, 0);
    }

    /// A large result is charged for the touched pages of its frame.
    #[test]
    fn retained_result_is_charged_for_its_own_pages() {
        let (results, mut spare) = (RetainedResults::new(), ThreadCache::default());
        let held = || results.held.all.load(Ordering::Relaxed);
        let put = |spare: &mut ThreadCache, touched: usize, total: u32| {
            let mut frame = results.frame(spare, 1 << 20).expect("memory");
            frame.reply(1 << 20).zero(0, touched).expect("room");
            frame.touch(touched);
            let (result, fresh) = results.keep(spare, 7, frame, total);
            assert_eq!(fresh.is_some(), matches!(result, RetainedResult::Small(..)));
            fresh.into_iter().for_each(|frame| results.recycle(spare, frame));
            result
        };
        let small = put(&mut spare, 900_000, 1472);
        assert!(matches!(small, RetainedResult::Small(..)) && held() == 0);
        assert_eq!(spare.frame.as_ref().map(|frame| frame.touched), Some(901_120));
        // This result is slightly too large for a box, and uses the frame of the first result. The rest of
        // the frame is not charged.
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
    fn recycled_frame_is_trimmed() {
        let mut frame = ResultFrame::new(1 << 20).expect("memory");
        let all = frame.reply(1 << 20);
        all.write((1 << 20) - 3, b"end").expect("room");
        all.write(3000, b"near").expect("room");
        frame.touch(1 << 20);
        frame.trim(PAGE);
        let mut bytes = [1; 7];
        frame
            .reply(1 << 20)
            .window()
            .read((1 << 20) - 3, &mut bytes[..3])
            .expect("the range lies in the frame");
        frame
            .reply(1 << 20)
            .window()
            .read(3000, &mut bytes[3..])
            .expect("the range lies in the frame");
        assert_eq!(&bytes, b"\0\0\0near");
        assert_eq!(frame.touched, PAGE);
    }
}
