//! `Counting`: the part of the counters that one thread writes.
//!
//! A thread writes only to its own cache lines, with plain stores. Of short calls, about one in 64 is timed,
//! chosen at random. The time of a timed call also counts for the calls that were not timed. A call is always
//! timed if the thread slept before it, or if the previous timed call took [`LONG`] or longer.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use super::histogram::{BUCKETS, bucket_of};
use super::layout::{GROUP, histogram_at, lane, thread, thread_at};
use super::page::{Page, SHARED, Tally};
use crate::call::{Answer, Batched};
use crate::sys;

/// A time in nanoseconds. If a timed call takes at least this time, the next call is timed, too. Timing adds
/// less than a hundredth to the time of such a call.
const LONG: u64 = 4_000;
/// The largest distance between two timed calls, in calls, if calls are shorter than [`LONG`]. The average
/// distance is half of it.
const SELDOM: u64 = 128;

/// The kind of a counted thread: the path whose calls the thread serves. The numbers are the values of
/// [`thread::KIND`]. Readers do not count threads with other numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadKind {
    Local = 1,
    /// TCP, also of ONC RPC.
    Stream = 2,
    /// UDP and raw Ethernet, also UDP of ONC RPC.
    Datagram = 3,
}

impl ThreadKind {
    /// Returns the place of this kind in lists of all kinds.
    pub(crate) const fn index(self) -> usize {
        self as usize - 1
    }
}

/// The counters of one thread.
pub(crate) struct Counting {
    page: Arc<Page>,
    /// The number of the thread's row in the shared pages. Only this thread writes to the row, unless it is
    /// the row [`SHARED`].
    thread: usize,
    kind: ThreadKind,
    /// A bit for each group of bindings for which the row has counts.
    groups: u64,
    /// A bit for each export for which the row has a histogram.
    exports: u64,
    /// The number of calls to skip before the next timed call.
    skip: u32,
    /// The number of calls for which the next timed call counts.
    weight: u32,
    /// The state of the random number generator.
    random: u64,
    /// Whether the thread has polled without finding a call.
    looked: bool,
    /// The value of the word [`thread::RUNS`] of the row.
    runs: u64,
}

impl Counting {
    /// Returns the counters of this thread, which is about to serve calls.
    pub(crate) fn new(page: &Arc<Page>, kind: ThreadKind) -> Self {
        let number = page.take_thread(kind);
        let random = sys::boot_ns() | 1;
        let page = Arc::clone(page);
        // An earlier thread may have used this row. The row still has the earlier thread's counts.
        let word = |index| page.word(thread_at(number), index).load(Ordering::Relaxed);
        let (groups, exports) = (word(thread::BINDINGS), word(thread::EXPORTS));
        let (skip, weight, looked) = (0, 1, false);
        let runs = word(thread::RUNS);
        Self { page, thread: number, kind, groups, exports, skip, weight, random, looked, runs }
    }

    #[inline]
    fn add(&self, word: &AtomicU64, more: u64) {
        if self.thread == SHARED {
            word.fetch_add(more, Ordering::Relaxed);
        } else {
            // No other thread writes this word.
            word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        }
    }

    #[inline]
    fn add_here(&self, index: usize, more: u64) {
        self.add(self.page.word(thread_at(self.thread), index), more);
    }

    #[cold]
    fn tell(&self, index: usize, bits: u64) {
        self.page.word(thread_at(self.thread), index).fetch_or(bits, Ordering::Relaxed);
    }

    /// Shows readers that this thread's row has counts for the binding of `tally`.
    #[inline(always)]
    fn show(&mut self, tally: &Tally) {
        let group = 1 << (tally.row as usize / GROUP);
        if self.groups & group == 0 {
            self.groups |= group;
            self.tell(thread::BINDINGS, group);
        }
    }

    /// Notes that a call begins. Returns the time, if the call is timed.
    #[inline(always)]
    pub(crate) fn begin(&mut self, tally: &Tally) -> Option<u64> {
        self.show(tally);
        self.runs(tally, u64::from(tally.row) + 1);
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        Some(sys::boot_ns())
    }

    /// Notes which call the thread runs, in the word [`thread::RUNS`]. `binding` is the row of the call's
    /// binding plus one, or 0 if the call has ended. At the beginning of most calls, the thread writes no
    /// other counter. The word is the same for all bindings, so its cache line stays in the cache.
    #[inline]
    fn runs(&mut self, tally: &Tally, binding: u64) {
        if self.thread == SHARED {
            let more = if binding == 0 { 1u64.wrapping_neg() } else { 1 };
            let lane = self.page.lane(SHARED, tally.row);
            lane[lane::RUNS].fetch_add(more, Ordering::Release);
        } else {
            self.runs = ((self.runs >> 32).wrapping_add(1) << 32) | binding;
            // SYNC: runs, in `reading::counted`. A reader that sees that the call does not run any more also
            // sees its counts.
            self.page
                .word(thread_at(self.thread), thread::RUNS)
                .store(self.runs, Ordering::Release);
        }
    }

    /// Returns how long a timed call took. Call this when the result is complete, and pass the time to
    /// [`end`](Self::end).
    #[inline]
    pub(crate) fn took(begun: Option<u64>) -> Option<u64> {
        begun.map(|begun| sys::boot_ns().saturating_sub(begun))
    }

    /// Notes that a call has ended. Its message had `bytes_in` bytes, and its result has `bytes_out` bytes.
    #[inline]
    pub(crate) fn end(
        &mut self,
        tally: &Tally,
        took: Option<u64>,
        answer: Answer,
        bytes_in: u64,
        bytes_out: u64,
    ) {
        if answer != Answer::Ok && self.is_nothing(tally, answer) {
            return self.runs(tally, 0);
        }
        let lane = self.page.lane(self.thread, tally.row);
        self.add(&lane[lane::ENDED], 1);
        self.add(&lane[lane::IN], bytes_in);
        self.add(&lane[lane::OUT], bytes_out);
        self.runs(tally, 0);
        if let Some(ns) = took {
            self.timed(tally, ns);
        }
    }

    /// Counts the reply to a deferred call, which took `took` nanoseconds. Does not change the word
    /// [`thread::RUNS`], because this thread does not run the call.
    pub(crate) fn end_deferred(
        &mut self,
        tally: &Tally,
        took: u64,
        answer: Answer,
        bytes_in: u64,
        bytes_out: u64,
    ) {
        self.show(tally);
        if answer != Answer::Ok && self.is_nothing(tally, answer) {
            return;
        }
        let lane = self.page.lane(self.thread, tally.row);
        self.add(&lane[lane::ENDED], 1);
        self.add(&lane[lane::IN], bytes_in);
        self.add(&lane[lane::OUT], bytes_out);
        self.time_next();
        self.timed(tally, took);
    }

    /// Counts calls that ended in a batch. Does not change the word [`thread::RUNS`], because only the
    /// call that carried the batch counts as running.
    pub(crate) fn end_batched(&mut self, tally: &Tally, batched: &Batched) {
        let Batched { ended, failed, refused, bytes_in, bytes_out, times } = batched;
        self.show(tally);
        let lane = self.page.lane(self.thread, tally.row);
        let counts = [
            (lane::ENDED, ended),
            (lane::FAILED, failed),
            (lane::REFUSED, refused),
            (lane::IN, bytes_in),
            (lane::OUT, bytes_out),
        ];
        counts.into_iter().for_each(|(word, more)| self.add(&lane[word], *more));
        times.iter().for_each(|(ns, calls)| self.add_time(tally, *ns, *calls));
    }

    /// Notes that this thread no longer runs a call. This thread does not count the call now: the reply is
    /// counted later, or the call carried a batch.
    #[cold]
    pub(crate) fn leave(&mut self, tally: &Tally) {
        self.runs(tally, 0);
    }

    /// Counts an answer other than [`Answer::Ok`]. Returns true if the call does not count as ended.
    #[cold]
    fn is_nothing(&mut self, tally: &Tally, answer: Answer) -> bool {
        let lane = self.page.lane(self.thread, tally.row);
        match answer {
            Answer::Ok => false,
            Answer::Err | Answer::MayHaveExecuted => {
                self.add(&lane[lane::FAILED], 1);
                false
            }
            // The call was refused, the client will post the call again, or the reply is counted later.
            Answer::NotExecuted | Answer::PostAgain | Answer::Deferred => {
                self.add(&lane[lane::REFUSED], u64::from(answer == Answer::NotExecuted));
                true
            }
        }
    }

    /// Adds the time of a timed call to the histogram `weight` times: once for this call, and once for each
    /// call before it that was skipped.
    #[cold]
    fn timed(&mut self, tally: &Tally, ns: u64) {
        self.add_time(tally, ns, self.weight);
        if ns >= LONG {
            return self.time_next();
        }
        // The interval is random. With a fixed interval, the timed calls could always be of the same
        // procedure.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.skip = (self.random % SELDOM) as u32;
        self.weight = self.skip + 1;
    }

    /// Adds a time to the histogram `calls` times.
    fn add_time(&mut self, tally: &Tally, ns: u64, calls: u32) {
        let bit = 1 << tally.export;
        if self.exports & bit == 0 {
            self.exports |= bit;
            self.tell(thread::EXPORTS, bit);
        }
        let at = histogram_at(self.thread, tally.export as usize);
        let buckets: &[AtomicU64; BUCKETS] = self.page.memory().longs(at);
        self.add(&buckets[bucket_of(ns)], calls.into());
    }

    /// Requests that the next call is timed. The time of that call counts for that call only.
    fn time_next(&mut self) {
        (self.skip, self.weight) = (0, 1);
    }

    /// Counts a call that was not executed. `tally` is `None` if the call's binding does not exist.
    #[cold]
    pub(crate) fn refused(&mut self, tally: Option<&Tally>) {
        match tally {
            Some(tally) => {
                self.show(tally);
                self.add(&self.page.lane(self.thread, tally.row)[lane::REFUSED], 1);
            }
            None => self.add_here(thread::STRANGE, 1),
        }
    }

    /// Notes that polling has found no call.
    #[inline]
    pub(crate) const fn looked(&mut self) {
        self.looked = true;
    }

    /// Notes that a call was found. If earlier polls found no call, the thread has waited, and this wait is
    /// counted.
    #[inline]
    pub(crate) fn found(&mut self) {
        if core::mem::take(&mut self.looked) {
            self.add_here(thread::SPUN, 1);
        }
    }

    /// Notes that the thread slept while it waited for a call.
    #[cold]
    pub(crate) fn slept(&mut self) {
        self.looked = false;
        self.add_here(thread::SLEPT, 1);
        self.time_next();
    }

    /// Counts packets of results that were retransmitted.
    #[inline]
    pub(crate) fn resent(&self, packets: u64) {
        if packets > 0 {
            self.add_here(thread::RESENT, packets);
        }
    }

    /// Counts a duplicate packet.
    #[cold]
    pub(crate) fn came_again(&self) {
        self.add_here(thread::AGAIN, 1);
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        if self.page.memory().is_ours() {
            self.page.leave_thread(self.thread, self.kind);
        }
    }
}
