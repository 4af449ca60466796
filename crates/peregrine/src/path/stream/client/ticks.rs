//! What the keeper does for a connection at certain times. At the deadlines of pending calls, it rings their
//! bells. While calls are pending, it examines whether the server is still alive. It also releases memory
//! that large messages have used.
//!
//! All of this shares one timer. While calls are pending, the timer expires every 200 ms in any case. So a
//! call whose deadline is after the next expiry falls asleep without setting the timer.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::time::Instant;

use super::Connection;
use super::keep_alive::Watch;
use super::turns::full_fence;
use crate::growing::Growing;
use crate::path::stream::peer::{moment_of, now, time_of};
use crate::protocol::stream::keep_alive::EXAMINE_EVERY;
use crate::sync::Mutex;

/// A time that never comes. Times are in nanoseconds.
const NEVER: u64 = u64::MAX;

/// The interval between two passes that look for unused memory. A pass releases memory that the previous pass
/// already found unused.
const TIDY: Duration = Duration::from_secs(1);

/// The times at which the keeper has something to do for a connection.
pub(super) struct Ticks {
    /// When the timer expires.
    next: AtomicU64,
    /// When unused memory is released next.
    tidy: AtomicU64,
    /// The deadline of each frame's call, if the call sleeps.
    deadlines: Growing<AtomicU64>,
    /// The keep-alive state of the pending calls.
    watch: Mutex<Watch>,
}

impl Ticks {
    pub(super) fn new(count: u32) -> Self {
        Self {
            next: AtomicU64::new(NEVER),
            tidy: AtomicU64::new(NEVER),
            deadlines: Growing::new(count, |_| AtomicU64::new(NEVER)),
            watch: Mutex::default(),
        }
    }

    /// Forgets the deadline of a call that has ended.
    pub(super) fn forget(&self, frame: u32) {
        self.deadlines[frame as usize].store(NEVER, Ordering::Relaxed);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(NEVER)
}

impl Connection {
    /// Makes the keeper ring the bell of a call at its deadline.
    pub(super) fn remind_of(&self, frame: u32, deadline: Instant) {
        let at = nanoseconds(time_of(deadline));
        self.ticks.deadlines[frame as usize].store(at, Ordering::SeqCst);
        self.remind_by(at);
    }

    /// Makes the keeper examine the connection from now on, as long as calls are pending.
    pub(super) fn examine_soon(&self) {
        self.remind_by(nanoseconds(now() + EXAMINE_EVERY));
    }

    /// Makes the keeper look for unused memory from now on.
    #[cold]
    pub(crate) fn tidy_soon(&self) {
        let at = nanoseconds(now() + TIDY);
        self.ticks.tidy.store(at, Ordering::SeqCst);
        self.remind_by(at);
    }

    /// Makes the timer expire at the time `at`, unless it expires earlier.
    fn remind_by(&self, at: u64) {
        // SYNC: ticks. This thread has stored what there is to do, and now reads when the timer expires. The
        // keeper stores that the timer does not expire, and then reads what there is to do. So either this
        // thread sets the timer, or the keeper sees what there is to do.
        full_fence();
        if at < self.ticks.next.load(Ordering::SeqCst)
            && at < self.ticks.next.fetch_min(at, Ordering::SeqCst)
            && let (Some(watch), Some(at)) = (self.watch.get(), moment_of(Duration::from_nanos(at)))
        {
            watch.remind_by(at);
        }
    }

    /// Does what is due. The keeper calls this function when the timer expires.
    pub(crate) fn tick(&self) {
        self.ticks.next.store(NEVER, Ordering::SeqCst);
        // SYNC: ticks, the other half is in `remind_by`.
        full_fence();
        if self.has_ended() {
            return;
        }
        let is_pending = self.frames.pending() > 0;
        if is_pending {
            self.examine();
        } else {
            *self.ticks.watch.lock() = Watch::default();
        }
        let now = nanoseconds(now());
        let examine = if is_pending { now + nanoseconds(EXAMINE_EVERY) } else { NEVER };
        let next = examine.min(self.tidy_if_due(now)).min(self.ring_late(now));
        if next < self.ticks.next.fetch_min(next, Ordering::SeqCst)
            && let (Some(watch), Some(at)) =
                (self.watch.get(), moment_of(Duration::from_nanos(next)))
        {
            watch.remind_by_without_waking(at);
        }
    }

    /// Examines whether the server is still alive.
    fn examine(&self) {
        // The keep-alive state is taken out of its lock, so that no lock is held while a probe is sent. Only
        // the keeper's thread uses this state.
        let mut watch = core::mem::take(&mut *self.ticks.watch.lock());
        watch.look(self);
        *self.ticks.watch.lock() = watch;
    }

    /// Releases unused memory if this is due. Returns the time at which it is due next.
    fn tidy_if_due(&self, now: u64) -> u64 {
        let at = self.ticks.tidy.load(Ordering::SeqCst);
        if at > now {
            return at;
        }
        let next = if self.tidying.tidy(&self.frames) { now + nanoseconds(TIDY) } else { NEVER };
        // If another thread has set another time meanwhile, that thread has set the timer, too.
        let (order, failed) = (Ordering::SeqCst, Ordering::SeqCst);
        match self.ticks.tidy.compare_exchange(at, next, order, failed) {
            Ok(_) => next,
            Err(other) => other,
        }
    }

    /// Rings the bells of the calls whose deadlines have passed. Returns the earliest of the other deadlines.
    fn ring_late(&self, now: u64) -> u64 {
        let mut next = NEVER;
        for frame in 0..self.frames.active() {
            let deadline = &self.ticks.deadlines[frame as usize];
            let at = deadline.load(Ordering::SeqCst);
            if at > now {
                next = next.min(at);
            } else if deadline
                .compare_exchange(at, NEVER, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
            {
                self.frames.bell(frame).ring();
            }
        }
        next
    }
}
