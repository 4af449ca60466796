//! `Arrival`: how long a server's thread waits for a message that the client is still writing.
//!
//! The thread looks at the word that tells how much is in place. A client that writes at the speed
//! of memory keeps it waiting for microseconds. A client that stops, or sends a byte now and then,
//! must not: so each message has one budget of waiting time, which progress does not renew
//! ([`budget`]). A session that used one up is not waited for at all for a while, and of all the
//! threads of a server only a few may wait at a time ([`Waits`]).
//!
//! When the budget is used up before the procedure has begun, the call is dropped, and the client
//! posts it again once all of it is in place. A procedure that reads a lent buffer has begun: its
//! reading fails. So the budget of a lent buffer is larger, and a procedure begins on a buffer that
//! is still arriving only if the session may be waited for.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::Arc;

use crate::limits;
use crate::sys;
use crate::value::Arrives;

/// Looks before the client is thought not to be running: 50 to 100 us. Also the looks at one message
/// that are not timed.
const LOOKS: u32 = 2000;
/// Looks between two readings of the clock.
const LOOKS_TIMED: u32 = 32;
/// How long a waiting thread offers its processor before it sleeps between two looks.
const OFFERS: Duration = Duration::from_millis(1);
/// A session that used a budget up is not waited for until this many times as long has passed.
const PENALTY: u32 = 100;

/// Waiting time that one message may cost a thread, or a procedure that it is lent to.
fn budget(bytes: usize, lent: bool) -> u64 {
    let stall = if lent { limits::LENT_STALL_TIME } else { limits::STALL_TIME };
    let moved = bytes as u64 * 1_000_000_000 / limits::ARRIVAL_BYTES_PER_SECOND;
    stall.as_nanos() as u64 + moved
}

/// The threads of a server that wait for messages, for more than a moment, and procedures that read
/// a buffer which is still arriving. Bounded, so that most threads never wait.
#[derive(Debug)]
pub(crate) struct Waits {
    now: AtomicUsize,
    most: usize,
}

impl Waits {
    /// An eighth of a server's threads may wait, and one at least.
    pub(crate) fn of(threads: usize) -> Arc<Self> {
        Arc::new(Self { now: AtomicUsize::new(0), most: (threads / 8).max(1) })
    }

    fn begin(&self) -> bool {
        let more = |now: usize| (now < self.most).then_some(now + 1);
        self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn end(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How a session's messages have arrived so far.
#[derive(Debug)]
pub(super) struct Patience {
    waits: Arc<Waits>,
    /// Whether a thread waits for one of its messages, for more than a moment.
    waited_for: AtomicBool,
    /// Until when no thread waits for it; zero if it never used a budget up.
    lost_until_ns: AtomicU64,
    /// Returns the time in nanoseconds, by which all waiting is measured.
    clock: fn() -> u64,
}

impl Patience {
    pub(super) const fn new(waits: Arc<Waits>) -> Self {
        Self::by(sys::boot_ns, waits)
    }

    const fn by(clock: fn() -> u64, waits: Arc<Waits>) -> Self {
        let (waited_for, lost_until_ns) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { waits, waited_for, lost_until_ns, clock }
    }

    /// Whether the session used a budget up lately.
    fn is_lost(&self) -> bool {
        let until = self.lost_until_ns.load(Ordering::Relaxed);
        until != 0 && (self.clock)() < until
    }

    fn lose(&self, waited_ns: u64) {
        let until = (self.clock)().saturating_add(waited_ns.saturating_mul(PENALTY.into()));
        self.lost_until_ns.fetch_max(until, Ordering::Relaxed);
    }
}

/// A message that the client is still writing.
pub(super) struct Arrival<'a> {
    patience: &'a Patience,
    /// How many bytes of it are in place, as the client says.
    progress: &'a AtomicU32,
    /// Whether its session has ended.
    closed: &'a AtomicBool,
    total: usize,
    /// Looks that found nothing, and nanoseconds of looking that were timed. Several threads of a
    /// procedure may read one lent buffer.
    looks: AtomicU32,
    waited_ns: AtomicU64,
    /// Whether a procedure runs that reads the rest of it, and is one of those that [`Waits`] counts.
    lent: AtomicBool,
}

impl<'a> Arrival<'a> {
    pub(super) const fn new(
        patience: &'a Patience,
        progress: &'a AtomicU32,
        closed: &'a AtomicBool,
        total: usize,
    ) -> Self {
        let (looks, waited_ns) = (AtomicU32::new(0), AtomicU64::new(0));
        let lent = AtomicBool::new(false);
        Self { patience, progress, closed, total, looks, waited_ns, lent }
    }

    /// How many bytes there are, if there are more than `bytes`.
    #[inline]
    fn more_than(&self, bytes: usize) -> Option<usize> {
        // SYNC: arrival, in the client's `Stream::tell`.
        let there = self.progress.load(Ordering::Acquire) as usize;
        (there > bytes).then_some(there)
    }

    /// Looks for a moment, and waits then, if the client and the session may be waited for.
    #[cold]
    fn look(&self, bytes: usize) -> Option<usize> {
        let clock = self.patience.clock;
        let lent = self.lent.load(Ordering::Relaxed);
        let budget = budget(self.total, lent);
        let before = self.waited_ns.load(Ordering::Relaxed);
        if before >= budget {
            return None;
        }
        let looked = self.looks.load(Ordering::Relaxed);
        let mut begun = (looked >= LOOKS).then(clock);
        let mut found = None;
        for look in 1..=LOOKS {
            spin_loop();
            found = self.more_than(bytes);
            if found.is_some() {
                self.looks.store(looked.saturating_add(look).min(LOOKS), Ordering::Relaxed);
                break;
            }
        }
        if found.is_none() {
            self.looks.store(LOOKS, Ordering::Relaxed);
            let begun = *begun.get_or_insert_with(clock);
            found = self.wait_longer(bytes, begun, budget - before, lent);
        }
        if let Some(begun) = begun {
            self.waited_ns.fetch_add(clock().saturating_sub(begun), Ordering::Relaxed);
        }
        found
    }

    /// The client does not write: it may not be running.
    fn wait_longer(&self, bytes: usize, begun: u64, left: u64, lent: bool) -> Option<usize> {
        let Patience { waits, waited_for, clock, .. } = self.patience;
        // A procedure was counted when it began.
        if !lent {
            if self.patience.is_lost() || waited_for.swap(true, Ordering::AcqRel) {
                return None;
            }
            if !waits.begin() {
                waited_for.store(false, Ordering::Release);
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
            if waited >= left {
                self.patience.lose(waited);
                break None;
            }
            if waited < OFFERS.as_nanos() as u64 {
                // The client may want this very processor.
                std::thread::yield_now();
                (0..LOOKS_TIMED).for_each(|_| spin_loop());
            } else {
                std::thread::sleep(Duration::from_micros(50));
            }
        };
        if !lent {
            waits.end();
            waited_for.store(false, Ordering::Release);
        }
        found
    }
}

impl Arrives for Arrival<'_> {
    #[inline]
    fn wait(&self, bytes: usize) -> Option<usize> {
        self.more_than(bytes).or_else(|| self.look(bytes))
    }

    /// Where the session may not be waited for, all of it must be there before the procedure begins.
    #[cold]
    fn lend(&self) -> bool {
        let Some(last) = self.total.checked_sub(1) else { return true };
        if self.more_than(last).is_some() {
            return true;
        }
        if !self.patience.is_lost() && self.patience.waits.begin() {
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
            self.patience.waits.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// What each reading of the clock adds to it.
    const TICK_NS: u64 = 100_000;

    thread_local! {
        /// The time, and how often the clock was read.
        static NOW_NS: Cell<u64> = const { Cell::new(1) };
        /// The word that a trickling client advances, if there is one.
        static TRICKLE: Cell<Option<&'static AtomicU32>> = const { Cell::new(None) };
    }

    fn now_ns() -> u64 {
        NOW_NS.get()
    }

    /// A clock that only its readers advance. Each fourth reading brings a byte of the trickle.
    fn clock() -> u64 {
        let now = NOW_NS.get() + TICK_NS;
        NOW_NS.set(now);
        if let Some(progress) = TRICKLE.get().filter(|_| (now / TICK_NS).is_multiple_of(4)) {
            progress.fetch_add(1, Ordering::Release);
        }
        now
    }

    /// A word that tells of progress; tests keep it for as long as the program runs.
    fn progress() -> &'static AtomicU32 {
        Box::leak(Box::default())
    }

    /// Does the work while a client trickles; what it returns, and how long it took by the clock.
    fn trickled<R>(progress: &'static AtomicU32, work: impl FnOnce() -> R) -> (R, Duration) {
        let begun = now_ns();
        TRICKLE.set(Some(progress));
        let result = work();
        TRICKLE.set(None);
        (result, Duration::from_nanos(now_ns() - begun))
    }

    /// Reads it in small steps; how far that went.
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
        let (waits, closed) = (Waits::of(8), AtomicBool::new(false));
        let patience = Patience::by(clock, waits);
        let progress = progress();
        let arrival = Arrival::new(&patience, progress, &closed, 1000);
        let (there, took) = trickled(progress, || read(&arrival));
        // A byte comes at least every millisecond, so that no wait alone uses the budget up.
        assert!((10..100).contains(&there), "{there} bytes in {took:?}");
        assert!(took < limits::STALL_TIME * 2, "{there} bytes in {took:?}");
        assert!(patience.is_lost());
        // From now on the session is looked for, and not waited for.
        let begun = now_ns();
        let late = Arrival::new(&patience, progress, &closed, 1000);
        assert_eq!(late.wait(999), None);
        assert!(!late.lend(), "a procedure begins on what may never come");
        assert!(Duration::from_nanos(now_ns() - begun) < limits::STALL_TIME);
        // What is there needs no patience.
        progress.store(1000, Ordering::Relaxed);
        assert!(late.lend());
        assert_eq!(late.wait(999), Some(1000));
    }

    #[test]
    fn a_lent_buffer_has_one_budget_for_all_reads() {
        let (waits, closed) = (Waits::of(8), AtomicBool::new(false));
        let patience = Patience::by(clock, Arc::clone(&waits));
        let progress = progress();
        let arrival = Arrival::new(&patience, progress, &closed, 10_000);
        assert!(arrival.lend());
        // No other procedure, and no thread, of this server waits meanwhile.
        let other = Patience::by(clock, Arc::clone(&waits));
        let second = Arrival::new(&other, progress, &closed, 10_000);
        assert!(!second.lend());
        let (there, took) = trickled(progress, || read(&arrival));
        assert!((100..1000).contains(&there), "{there} bytes in {took:?}");
        let least = limits::LENT_STALL_TIME;
        assert!(took >= least && took < 2 * least, "{took:?}");
        drop(arrival);
        assert!(second.lend(), "it is counted no more");
    }

    #[test]
    fn the_end_of_the_session_ends_the_waiting() {
        let (waits, closed) = (Waits::of(8), AtomicBool::new(true));
        let patience = Patience::new(waits);
        let progress = AtomicU32::new(0);
        let arrival = Arrival::new(&patience, &progress, &closed, TOTAL);
        assert!(arrival.lend());
        assert_eq!(arrival.wait(0), None);
        assert!(!patience.is_lost(), "nobody used anything up");
    }

    #[test]
    fn an_eighth_of_the_threads_may_wait() {
        for (threads, most) in [(1, 1), (8, 1), (64, 8), (1000, 125)] {
            let waits = Waits::of(threads);
            assert!((0..most).all(|_| waits.begin()), "{threads}");
            assert!(!waits.begin(), "{threads}");
            waits.end();
            assert!(waits.begin() && !waits.begin(), "{threads}");
        }
    }

    #[test]
    fn a_session_is_not_waited_for_until_a_hundred_times_as_long_has_passed() {
        let patience = Patience::by(now_ns, Waits::of(8));
        let (progress, closed) = (AtomicU32::new(0), AtomicBool::new(false));
        patience.lose(limits::STALL_TIME.as_nanos() as u64);
        let begun = now_ns();
        for passed in [0, 1, 50, 99] {
            NOW_NS.set(begun + passed * limits::STALL_TIME.as_nanos() as u64);
            let arrival = Arrival::new(&patience, &progress, &closed, TOTAL);
            assert!(!arrival.lend(), "{passed} times as long has passed");
        }
        NOW_NS.set(begun + 100 * limits::STALL_TIME.as_nanos() as u64);
        let arrival = Arrival::new(&patience, &progress, &closed, TOTAL);
        assert!(arrival.lend(), "it may be waited for again");
    }

    #[test]
    fn large_messages_have_time_to_move() {
        assert_eq!(budget(0, false), limits::STALL_TIME.as_nanos() as u64);
        let second = limits::ARRIVAL_BYTES_PER_SECOND as usize;
        assert_eq!(budget(second, true), limits::LENT_STALL_TIME.as_nanos() as u64 + 1_000_000_000);
        assert!(budget(limits::MESSAGE_BYTES_MAX, false) < 10_000_000_000);
    }
}
