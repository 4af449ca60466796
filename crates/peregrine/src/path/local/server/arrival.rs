//! `Arrival`: how long a thread waits for a message that the client is still writing.
//!
//! The thread polls the word that holds how many bytes the client has written. If the client writes at
//! the speed of memory, the thread waits for microseconds. If the client stops, or writes single bytes at
//! long intervals, the thread must not wait for long. Each message therefore has one budget of waiting time,
//! which progress does not renew ([`budget`]). When a session has used up a budget, no thread waits for the
//! session during a penalty time. Only a few threads of a server may wait at the same time
//! ([`StallPermits`]).
//!
//! If the budget is used up before the procedure begins, the server asks the client to post the call again
//! when the whole message is written. If a procedure already reads a lent buffer, the read fails, so
//! the budget of a lent buffer is larger. A procedure may begin to read a buffer that is still arriving only
//! if the session has no penalty and a permit is left.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::Arc;

use crate::limits;
use crate::sys;
use crate::value::Arrives;

/// If this number of polls finds no further byte, the client's thread is probably not running. The polls take
/// 50 to 100 us. For each message, the time of the first `POLLS` polls is not measured.
const POLLS: u32 = 2000;
/// The number of spin hints between two polls, while the waiting thread yields its processor.
const POLLS_TIMED: u32 = 32;
/// The duration of the first part of a wait, in which the thread yields its processor between two polls. In
/// the rest of the wait, the thread sleeps between two polls.
const YIELD_FOR: Duration = Duration::from_millis(1);
/// The duration of the penalty for using up a budget, as a multiple of the total time of all waits for the
/// message.
const PENALTY: u32 = 100;

/// Returns the longest time in nanoseconds for which a thread waits for one message. `lent` is true if a
/// procedure reads the message while it is arriving.
fn budget(bytes: usize, lent: bool) -> u64 {
    let stall = if lent { limits::LENT_STALL_TIME } else { limits::STALL_TIME };
    let moved = bytes as u64 * 1_000_000_000 / limits::ARRIVAL_BYTES_PER_SECOND;
    stall.as_nanos() as u64 + moved
}

/// Permits for threads that wait longer than [`POLLS`] polls for a message, and for procedures that read an
/// arriving buffer. The number of permits is bounded, so that most threads of a server never wait.
#[derive(Debug)]
pub(crate) struct StallPermits {
    taken: AtomicUsize,
    most: usize,
}

impl StallPermits {
    /// Makes permits for an eighth of a server's threads, at least one.
    pub(crate) fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self { taken: AtomicUsize::new(0), most: (threads / 8).max(1) })
    }

    fn take(&self) -> bool {
        let more = |taken: usize| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The record of how a session has made threads wait for its messages.
#[derive(Debug)]
pub(super) struct Stalls {
    permits: Arc<StallPermits>,
    /// Whether a thread waits longer than [`POLLS`] polls for a message of the session.
    has_waiter: AtomicBool,
    /// The end of the last penalty, or zero if there was none.
    penalty_until_ns: AtomicU64,
    /// Returns the time in nanoseconds. All waits are measured by this clock.
    clock: fn() -> u64,
}

impl Stalls {
    pub(super) const fn new(permits: Arc<StallPermits>) -> Self {
        Self::with_clock(sys::boot_ns, permits)
    }

    const fn with_clock(clock: fn() -> u64, permits: Arc<StallPermits>) -> Self {
        let (has_waiter, penalty_until_ns) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { permits, has_waiter, penalty_until_ns, clock }
    }

    /// Returns whether the session has a penalty because it has used up a budget.
    fn is_penalized(&self) -> bool {
        let until = self.penalty_until_ns.load(Ordering::Relaxed);
        until != 0 && (self.clock)() < until
    }

    fn penalize(&self, waited_ns: u64) {
        let until = (self.clock)().saturating_add(waited_ns.saturating_mul(PENALTY.into()));
        self.penalty_until_ns.fetch_max(until, Ordering::Relaxed);
    }
}

/// A message that the client is still writing.
pub(super) struct Arrival<'a> {
    stalls: &'a Stalls,
    /// The word in which the client announces how many bytes it has written.
    progress: &'a AtomicU32,
    /// Whether the session has ended.
    closed: &'a AtomicBool,
    total: usize,
    /// The number of polls so far, up to [`POLLS`]. The field is atomic, because several threads of a
    /// procedure may read one lent buffer.
    polls: AtomicU32,
    /// The total measured time in nanoseconds that threads have waited for the message.
    waited_ns: AtomicU64,
    /// Whether a procedure reads the rest of the message. If so, the message holds one of the
    /// [`StallPermits`].
    lent: AtomicBool,
}

impl<'a> Arrival<'a> {
    pub(super) const fn new(
        stalls: &'a Stalls,
        progress: &'a AtomicU32,
        closed: &'a AtomicBool,
        total: usize,
    ) -> Self {
        let (polls, waited_ns) = (AtomicU32::new(0), AtomicU64::new(0));
        let lent = AtomicBool::new(false);
        Self { stalls, progress, closed, total, polls, waited_ns, lent }
    }

    /// Returns the number of bytes that the client has written, if this number is more than `bytes`.
    #[inline]
    fn more_than(&self, bytes: usize) -> Option<usize> {
        // SYNC: arrival, in the client's `ChunkWriter::announce`.
        let there = self.progress.load(Ordering::Acquire) as usize;
        (there > bytes).then_some(there)
    }

    /// Polls at most [`POLLS`] times, until the client has written more than `bytes` bytes. If these polls do
    /// not suffice, waits longer, provided that the session may make threads wait.
    #[cold]
    fn poll(&self, bytes: usize) -> Option<usize> {
        let clock = self.stalls.clock;
        let lent = self.lent.load(Ordering::Relaxed);
        let budget = budget(self.total, lent);
        let before = self.waited_ns.load(Ordering::Relaxed);
        if before >= budget {
            self.stalls.penalize(before);
            return None;
        }
        let polled = self.polls.load(Ordering::Relaxed);
        let mut begun = (polled >= POLLS).then(clock);
        let mut found = None;
        for poll in 1..=POLLS {
            spin_loop();
            found = self.more_than(bytes);
            if found.is_some() {
                self.polls.store(polled.saturating_add(poll).min(POLLS), Ordering::Relaxed);
                break;
            }
        }
        if found.is_none() {
            self.polls.store(POLLS, Ordering::Relaxed);
            let begun = *begun.get_or_insert_with(clock);
            found = self.wait_longer(bytes, begun, before, budget, lent);
        }
        if let Some(begun) = begun {
            self.waited_ns.fetch_add(clock().saturating_sub(begun), Ordering::Relaxed);
        }
        found
    }

    /// Waits for a client that makes no progress. The thread of the client is probably not running. `before`
    /// is the time in nanoseconds that the earlier waits for the message took.
    fn wait_longer(
        &self,
        bytes: usize,
        begun: u64,
        before: u64,
        budget: u64,
        lent: bool,
    ) -> Option<usize> {
        let Stalls { permits, has_waiter, clock, .. } = self.stalls;
        // A procedure that reads a lent buffer got its permit in `lend`, before it began.
        if !lent {
            if self.stalls.is_penalized() || has_waiter.swap(true, Ordering::AcqRel) {
                return None;
            }
            if !permits.take() {
                has_waiter.store(false, Ordering::Release);
                return None;
            }
        }
        let found = loop {
            if let Some(there) = self.more_than(bytes) {
                break Some(there);
            }
            let waited = clock().saturating_sub(begun);
            if self.closed.load(Ordering::Acquire) {
                break None;
            }
            if before + waited >= budget {
                // The budget limits the sum of all waits. If it limited each single wait, a client that
                // writes a byte now and then would never use it up.
                self.stalls.penalize(before + waited);
                break None;
            }
            if waited < YIELD_FOR.as_nanos() as u64 {
                // The client's thread may need this processor.
                std::thread::yield_now();
                (0..POLLS_TIMED).for_each(|_| spin_loop());
            } else {
                std::thread::sleep(Duration::from_micros(50));
            }
        };
        if !lent {
            permits.give_back();
            has_waiter.store(false, Ordering::Release);
        }
        found
    }
}

impl Arrives for Arrival<'_> {
    #[inline]
    fn wait(&self, bytes: usize) -> Option<usize> {
        self.more_than(bytes).or_else(|| self.poll(bytes))
    }

    /// Takes a permit for the waits of the procedure. If the session has a penalty or no permit is left,
    /// waits here for the whole message. Returns whether the procedure may begin.
    #[cold]
    fn lend(&self) -> bool {
        let Some(last) = self.total.checked_sub(1) else { return true };
        if self.more_than(last).is_some() {
            return true;
        }
        if !self.stalls.is_penalized() && self.stalls.permits.take() {
            self.waited_ns.store(0, Ordering::Relaxed);
            self.lent.store(true, Ordering::Relaxed);
            return true;
        }
        self.wait(last).is_some()
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        if *self.lent.get_mut() {
            self.stalls.permits.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// The time in nanoseconds by which each reading advances the test's clock.
    const TICK_NS: u64 = 100_000;

    thread_local! {
        /// The current time of the test's clock, in nanoseconds.
        static NOW_NS: Cell<u64> = const { Cell::new(1) };
        /// The progress word that a slow client advances, if there is such a client.
        static SLOW_CLIENT: Cell<Option<&'static AtomicU32>> = const { Cell::new(None) };
    }

    fn now_ns() -> u64 {
        NOW_NS.get()
    }

    /// Reads the clock, and advances it: time passes only when the clock is read. At each fourth reading the
    /// slow client writes a byte.
    fn clock() -> u64 {
        let now = NOW_NS.get() + TICK_NS;
        NOW_NS.set(now);
        if let Some(progress) = SLOW_CLIENT.get().filter(|_| (now / TICK_NS).is_multiple_of(4)) {
            progress.fetch_add(1, Ordering::Release);
        }
        now
    }

    /// Makes a progress word that is never freed.
    fn progress() -> &'static AtomicU32 {
        Box::leak(Box::default())
    }

    /// Runs `work` while a slow client writes. Returns the result of `work`, and the time that `work` took by
    /// the test's clock.
    fn with_slow_client<R>(
        progress: &'static AtomicU32,
        work: impl FnOnce() -> R,
    ) -> (R, Duration) {
        let begun = now_ns();
        SLOW_CLIENT.set(Some(progress));
        let result = work();
        SLOW_CLIENT.set(None);
        (result, Duration::from_nanos(now_ns() - begun))
    }

    /// Reads the message in small steps. Returns how many bytes were read.
    fn read(arrival: &Arrival<'_>) -> usize {
        let mut there = 0;
        while let Some(more) = arrival.wait(there) {
            there = more;
            if there >= arrival.total {
                break;
            }
        }
        there
    }

    const TOTAL: usize = 100_000_000;

    #[test]
    fn progress_does_not_renew_the_budget() {
        let (permits, closed) = (StallPermits::new(8), AtomicBool::new(false));
        let stalls = Stalls::with_clock(clock, permits);
        let progress = progress();
        let arrival = Arrival::new(&stalls, progress, &closed, 1000);
        let (there, took) = with_slow_client(progress, || read(&arrival));
        // A byte arrives at least every millisecond, so no single wait uses up the budget.
        assert!((10..100).contains(&there), "{there} bytes in {took:?}");
        assert!(took < limits::STALL_TIME * 2, "{there} bytes in {took:?}");
        // The penalty lasts 100 times (`PENALTY`) the total time of all waits, although each single wait was
        // short.
        let ended = now_ns();
        NOW_NS.set(ended + 90 * limits::STALL_TIME.as_nanos() as u64);
        assert!(stalls.is_penalized());
        NOW_NS.set(ended);
        // During the penalty, threads poll for messages of the session, but do not wait.
        let begun = now_ns();
        let late = Arrival::new(&stalls, progress, &closed, 1000);
        assert_eq!(late.wait(999), None);
        assert!(!late.lend(), "the procedure must not begin before the whole message is in place");
        assert!(Duration::from_nanos(now_ns() - begun) < limits::STALL_TIME);
        // A message that is completely written needs no wait.
        progress.store(1000, Ordering::Relaxed);
        assert!(late.lend());
        assert_eq!(late.wait(999), Some(1000));
    }

    #[test]
    fn lent_buffer_has_one_budget_for_all_reads() {
        let (permits, closed) = (StallPermits::new(8), AtomicBool::new(false));
        let stalls = Stalls::with_clock(clock, Arc::clone(&permits));
        let progress = progress();
        let arrival = Arrival::new(&stalls, progress, &closed, 10_000);
        assert!(arrival.lend());
        // The first message holds the only permit of this server.
        let other = Stalls::with_clock(clock, Arc::clone(&permits));
        let second = Arrival::new(&other, progress, &closed, 10_000);
        assert!(!second.lend());
        let (there, took) = with_slow_client(progress, || read(&arrival));
        assert!((100..1000).contains(&there), "{there} bytes in {took:?}");
        let least = limits::LENT_STALL_TIME;
        assert!(took >= least && took < 2 * least, "{took:?}");
        drop(arrival);
        assert!(second.lend(), "the permit was given back");
    }

    #[test]
    fn end_of_the_session_ends_the_wait() {
        let (permits, closed) = (StallPermits::new(8), AtomicBool::new(true));
        let stalls = Stalls::new(permits);
        let progress = AtomicU32::new(0);
        let arrival = Arrival::new(&stalls, &progress, &closed, TOTAL);
        assert!(arrival.lend());
        assert_eq!(arrival.wait(0), None);
        assert!(!stalls.is_penalized(), "no budget was used up");
    }

    #[test]
    fn an_eighth_of_the_threads_may_wait() {
        for (threads, most) in [(1, 1), (8, 1), (64, 8), (1000, 125)] {
            let permits = StallPermits::new(threads);
            assert!((0..most).all(|_| permits.take()), "{threads}");
            assert!(!permits.take(), "{threads}");
            permits.give_back();
            assert!(permits.take() && !permits.take(), "{threads}");
        }
    }

    #[test]
    fn penalty_is_a_hundred_times_the_waited_time() {
        let stalls = Stalls::with_clock(now_ns, StallPermits::new(8));
        let (progress, closed) = (AtomicU32::new(0), AtomicBool::new(false));
        stalls.penalize(limits::STALL_TIME.as_nanos() as u64);
        let begun = now_ns();
        for passed in [0, 1, 50, 99] {
            NOW_NS.set(begun + passed * limits::STALL_TIME.as_nanos() as u64);
            let arrival = Arrival::new(&stalls, &progress, &closed, TOTAL);
            assert!(
                !arrival.lend(),
                "the penalty ended after only {passed} times the waiting time"
            );
        }
        NOW_NS.set(begun + 100 * limits::STALL_TIME.as_nanos() as u64);
        let arrival = Arrival::new(&stalls, &progress, &closed, TOTAL);
        assert!(arrival.lend(), "the penalty is over");
    }

    #[test]
    fn budget_grows_with_the_size_of_the_message() {
        assert_eq!(budget(0, false), limits::STALL_TIME.as_nanos() as u64);
        let second = limits::ARRIVAL_BYTES_PER_SECOND as usize;
        assert_eq!(budget(second, true), limits::LENT_STALL_TIME.as_nanos() as u64 + 1_000_000_000);
        assert!(budget(limits::MESSAGE_BYTES_MAX, false) < 10_000_000_000);
    }
}
