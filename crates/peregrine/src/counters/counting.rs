//! `Counting`: what a thread that serves calls has of its own, to count with.
//!
//! A thread writes to its own lines only, with plain stores. Of short calls one in 64 is timed, at random,
//! and stands for those before it; of calls that take [`LONG`], or come after a sleep, each is.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use super::histogram::{BUCKETS, bucket_of};
use super::layout::{GROUP, histogram_at, lane, thread, thread_at};
use super::page::{Page, SHARED, Tally};
use crate::call::Answer;
use crate::sys;

/// Calls that take so many nanoseconds are all timed: that costs less than a hundredth of it.
const LONG: u64 = 4_000;
/// Of shorter ones, one in half as many is timed.
const SELDOM: u64 = 128;

/// What a thread serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadKind {
    Local = 1,
    Stream = 2,
    Datagram = 3,
}

/// What a thread counts with.
pub(crate) struct Counting {
    page: Arc<Page>,
    /// Its row, which only it writes to; or the one that many write to.
    thread: usize,
    kind: ThreadKind,
    /// Groups of bindings, and exports, that its row tells of.
    groups: u64,
    exports: u64,
    /// Calls that are not timed before the next one that is, and for how many that one stands.
    skip: u32,
    weight: u32,
    random: u64,
    /// It has looked for a call and found none.
    looked: bool,
    /// What its row says of the call that it runs.
    runs: u64,
}

impl Counting {
    /// For this thread, which is about to serve calls.
    pub(crate) fn new(page: &Arc<Page>, kind: ThreadKind) -> Self {
        let number = page.take_thread(kind);
        let random = sys::boot_ns() | 1;
        let page = Arc::clone(page);
        // What a thread before it has told of stays told.
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
            // Nobody else writes here.
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

    /// A call is about to run; when, if it is to be timed.
    #[inline]
    pub(crate) fn begin(&mut self, tally: &Tally) -> Option<u64> {
        let group = 1 << (tally.row as usize / GROUP);
        if self.groups & group == 0 {
            self.groups |= group;
            self.tell(thread::BINDINGS, group);
        }
        self.runs(tally, u64::from(tally.row) + 1);
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        Some(sys::boot_ns())
    }

    /// The thread runs a call of the binding, or, of 0, none any more. Before the result is posted this
    /// is all that is written: to a line which is always at hand, for it is the same for all bindings.
    #[inline]
    fn runs(&mut self, tally: &Tally, binding: u64) {
        if self.thread == SHARED {
            let more = if binding == 0 { 1u64.wrapping_neg() } else { 1 };
            let lane = self.page.lane(SHARED, tally.row);
            lane[lane::RUNS].fetch_add(more, Ordering::Release);
        } else {
            self.runs = ((self.runs >> 32).wrapping_add(1) << 32) | binding;
            // SYNC: runs, in `reading::lane`. Who sees that a call runs no more sees it counted.
            self.page
                .word(thread_at(self.thread), thread::RUNS)
                .store(self.runs, Ordering::Release);
        }
    }

    /// How long a call took whose result is made just now, if it is timed: what [`end`](Self::end) is
    /// to be told.
    #[inline]
    pub(crate) fn took(begun: Option<u64>) -> Option<u64> {
        begun.map(|begun| sys::boot_ns().saturating_sub(begun))
    }

    /// The call has ended, with messages of so many bytes each way.
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

    /// Counts what is no result; whether the call did not run after all.
    #[cold]
    fn is_nothing(&mut self, tally: &Tally, answer: Answer) -> bool {
        let lane = self.page.lane(self.thread, tally.row);
        match answer {
            Answer::Ok => false,
            Answer::Err | Answer::MayHaveExecuted => {
                self.add(&lane[lane::FAILED], 1);
                false
            }
            // Its arguments were none, or it will be posted again.
            Answer::NotExecuted | Answer::PostAgain => {
                self.add(&lane[lane::REFUSED], u64::from(answer == Answer::NotExecuted));
                true
            }
        }
    }

    /// A call took so long, and stands for others.
    #[cold]
    fn timed(&mut self, tally: &Tally, ns: u64) {
        let bit = 1 << tally.export;
        if self.exports & bit == 0 {
            self.exports |= bit;
            self.tell(thread::EXPORTS, bit);
        }
        let at = histogram_at(self.thread, tally.export as usize);
        let buckets: &[AtomicU64; BUCKETS] = self.page.memory().longs(at);
        self.add(&buckets[bucket_of(ns)], self.weight.into());
        if ns >= LONG {
            return self.time_next();
        }
        // Not every 64th, which of calls that take turns would always be the same.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.skip = (self.random % SELDOM) as u32;
        self.weight = self.skip + 1;
    }

    /// The next call is timed, and stands for itself.
    fn time_next(&mut self) {
        (self.skip, self.weight) = (0, 1);
    }

    /// A call was not run.
    #[cold]
    pub(crate) fn refused(&mut self, tally: Option<&Tally>) {
        match tally {
            Some(tally) => {
                let group = 1 << (tally.row as usize / GROUP);
                if self.groups & group == 0 {
                    self.groups |= group;
                    self.tell(thread::BINDINGS, group);
                }
                self.add(&self.page.lane(self.thread, tally.row)[lane::REFUSED], 1);
            }
            None => self.add_here(thread::STRANGE, 1),
        }
    }

    /// A look has found no call.
    #[inline]
    pub(crate) const fn looked(&mut self) {
        self.looked = true;
    }

    /// A call was found: if it was looked for in vain before, that was a wait.
    #[inline]
    pub(crate) fn found(&mut self) {
        if core::mem::take(&mut self.looked) {
            self.add_here(thread::SPUN, 1);
        }
    }

    /// A wait for a call went on asleep.
    #[cold]
    pub(crate) fn slept(&mut self) {
        self.looked = false;
        self.add_here(thread::SLEPT, 1);
        self.time_next();
    }

    /// So many packets of results were sent again.
    #[inline]
    pub(crate) fn resent(&self, packets: u64) {
        if packets > 0 {
            self.add_here(thread::RESENT, packets);
        }
    }

    /// A packet came again.
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
