//! `FramePool`: the state of each call frame (A-stack), and the queue of callers when no frame is free.
//!
//! The state of a frame determines what may happen to it:
//!
//! | from | to | by | when |
//! |---|---|---|---|
//! | `FREE`, `UNUSED`, `EMPTY` | `TAKEN` | caller | it begins a call, or is first in the queue |
//! | `TAKEN` | `FREE` | caller | its call has ended |
//! | `TAKEN` | `CAPTURED` | caller | it gave up, and the server may still use the frame |
//! | `CAPTURED` | `TAKEN` | caller, keeper | the server may have released it; if not, `CAPTURED` again |
//! | `FREE` | `UNUSED` | keeper | [`FramePool::shrink`] marks it |
//! | `UNUSED` | `TAKEN`, `EMPTY` | keeper | the next `shrink` finds the mark, and releases the memory |
//! | `EMPTY` | `INACTIVE` | keeper | the frame is the last active one |
//! | `INACTIVE` | `TAKEN`, `FREE` | caller, binder | more frames are needed |
//!
//! The keeper is a background thread of the process. A binder is a thread that binds a client.
//!
//! The fast path takes only `FREE` frames, so the mark `UNUSED` costs the fast path nothing.
//!
//! A caller that finds no frame joins a queue under a lock and closes the *gate*: `open`, the number of
//! frames that the fast path may try, becomes 0. Later callers then join the end of the queue. A caller that
//! returns a frame hands the frame over to the first caller in the queue, and wakes only that caller. Only a
//! caller that began to take a frame before the gate was closed can overtake the queue. Threads and futures
//! wait in one order.
//!
//! No event announces that the server has released a captured frame: a caller must ask its path. Each caller
//! asks its path before it waits. While callers wait, one of them asks on behalf of all, every few
//! milliseconds. If each of them asked, ten thousand callers would keep the processors busy. A released
//! frame goes, like any returned frame, to the caller that has waited longest. No lock is held while a path
//! is asked: see [`queue`].
//!
//! A queue is slow: a frame that is handed over stays unused until its next holder has been woken. A queue
//! that has formed also persists (a convoy): a caller that returns a frame and begins another call finds the
//! gate closed and joins the end. Therefore a caller checks a few times before it joins, and yields the
//! processor in between. In this time a short call usually ends, and the queue is served. With these checks,
//! eight threads that share five frames make several times as many null calls as without them.
//!
//! # Why no frame is lost while callers wait
//!
//! Returning a frame is a store of `FREE` and then a load of `open`, with no fence between them: a processor
//! may execute the load first. Closing the gate is a store of 0 to `open`, a barrier on every processor that
//! runs a thread of this process (`membarrier`), and then a check of all frames. For each thread that
//! returns a frame, the barrier is executed
//!
//! * before the thread's load. The load then sees the gate closed, so the thread takes the lock and finds
//!   the waiting callers; or
//! * after the thread's load, and therefore after its store. The thread that closed the gate then finds the
//!   frame free.
//!
//! While the gate is closed, callers that join the queue need no further barrier. Under the lock, the gate
//! is opened and closed, callers join and leave the queue, and frames are handed over. So a caller that
//! leaves the queue knows whether it was given a frame before, and hands that frame on.
//!
//! Without `membarrier` a third case exists: the load sees the gate open, and the check does not see the
//! store, because the store is not visible yet. Therefore the caller that checks for captured frames also
//! checks for free ones. In this case a frame is handed over late, but it is handed over.

mod queue;
mod slots;

use core::ops::DerefMut;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use core::task::Waker;
use core::time::Duration;
use std::sync::Arc;

use self::queue::{Joined, Lock, Queue, State};
use self::slots::{CAPTURED, EMPTY, FREE, Slots, TAKEN, UNUSED};
use super::OnExhausted;
use crate::sync::Mutex;
use crate::sys;

/// The operations that the protocol needs from the machine, so that a model checker can replace them.
pub(super) trait Machine: Sized + 'static {
    type Word: Word;
    type Lock: Lock<Self>;
    /// How many times a caller checks for a free frame before it waits for one.
    const LOOKS: u32;
    /// Yields the processor between two checks.
    fn offer_processor();
    /// Keeps the compiler from moving a store after a later load. The processor keeps the order only if
    /// [`Machine::barrier`] is executed between the two.
    fn keep_order();
    /// Executes a barrier on every processor that runs a thread of this process.
    fn barrier();
    /// Returns the word that this thread waits on.
    fn waiter() -> Arc<Waiter<Self>>;
    /// Returns a time in microseconds. The value wraps around.
    fn clock() -> u32;
}

/// An atomic word of the protocol. A thread can sleep on it until another thread wakes it.
pub(super) trait Word {
    fn new(value: u32) -> Self;
    /// Loads the value with `Relaxed` ordering.
    fn peek(&self) -> u32;
    /// Loads the value with `Acquire` ordering.
    fn load(&self) -> u32;
    /// Stores the value with `Release` ordering.
    fn store(&self, value: u32);
    /// Replaces the value `from` by `to`, with `Acquire` ordering. Returns false if the word held another
    /// value.
    fn exchange(&self, from: u32, to: u32) -> bool;
    /// Sleeps if the word holds `value`: until woken, until a spurious wake-up, or for at most `limit`.
    /// [`Duration::MAX`] means no limit.
    fn sleep(&self, value: u32, limit: Duration);
    /// Wakes the thread that sleeps on the word.
    fn wake(&self);
}

/// A thread in the queue. Each thread has its own word, so that a wake-up wakes only this thread.
pub(super) struct Waiter<M: Machine> {
    /// The last message to this thread: the number of the frame that it was given, plus 1, or the request to
    /// [check](LOOK). Written under the queue's lock. After a frame was given, no further message is written.
    given: M::Word,
}

const NOTHING: u32 = 0;
/// The bit of a message that makes the thread check for frames on behalf of all waiting callers. The other
/// bits are then a counter, so that a thread that is about to sleep notices each new message.
const LOOK: u32 = 1 << 31;

impl<M: Machine> Waiter<M> {
    fn new() -> Self {
        Self { given: M::Word::new(NOTHING) }
    }

    /// Returns the frame in a message, if there is one.
    // SYNC: frame, given in `State::give`.
    fn frame(told: u32) -> Option<u32> {
        if told & LOOK == 0 { told.checked_sub(1) } else { None }
    }
}

/// The frames of a session, by number, and the callers that wait for a frame.
pub(super) struct FramePool<M: Machine = Linux> {
    slots: Slots<M>,
    queue: Box<PaddedQueue<M>>,
}

/// The queue, on other cache lines than those that the fast path reads.
#[repr(align(128))]
struct PaddedQueue<M: Machine> {
    inner: Queue<M>,
    /// The time, by [`Machine::clock`], at which a waiting caller last checked for frames on behalf of all
    /// waiting callers.
    looked: M::Word,
}

/// How a caller waits for a frame.
pub(super) struct WaitPolicy<'a> {
    /// Returns the time that is left: zero if the caller must give up, [`Duration::MAX`] without limit.
    pub(super) left: &'a dyn Fn() -> Duration,
    /// The longest interval between two checks whether the server has released frames. No event announces such
    /// a release.
    pub(super) look_every: Duration,
}

impl<M: Machine> FramePool<M> {
    /// Makes `count` frames. The first `active` frames are active.
    pub(super) fn new(count: u32, active: u32) -> Self {
        let queue = PaddedQueue { inner: Queue::new(active), looked: M::Word::new(M::clock()) };
        Self { slots: Slots::new(count, active), queue: Box::new(queue) }
    }

    /// Takes the frame that `hint` selects, if no caller waits and the frame is `FREE`.
    #[inline]
    pub(super) fn take(&self, hint: u32) -> Option<u32> {
        let open = self.slots.open.peek();
        let index = if hint < open { hint } else { hint.checked_rem(open)? };
        // SYNC: frame, returned in `give_back_as`. The last holder's writes are visible here.
        self.slots.at(index).state.exchange(FREE, TAKEN).then_some(index)
    }

    /// Takes any frame: a free or released one, a new one, or one that is handed over after a wait.
    #[cold]
    pub(super) fn take_slowly(
        &self,
        hint: u32,
        policy: &WaitPolicy<'_>,
        is_released: &dyn Fn(u32) -> bool,
        on_exhausted: OnExhausted,
    ) -> Option<u32> {
        let looks = if on_exhausted == OnExhausted::More { 1 } else { M::LOOKS };
        for look in 0..looks {
            if look > 0 {
                M::offer_processor();
            }
            let open = self.slots.open.peek();
            if open == 0 {
                continue;
            }
            let taken = self.slots.take_free(hint, open);
            // Asking a path may need a system call per frame, so only the first round asks.
            let taken = taken.or_else(|| match look {
                0 => self.slots.recover_any(open, is_released),
                _ => None,
            });
            if taken.is_some() {
                return taken;
            }
        }
        if self.slots.open.peek() == 0 && self.until_look(policy.look_every / 8).is_zero() {
            // The frames that `look` finds go to the callers that already wait. `until_look` limits how often
            // all callers together call `look`.
            self.look(policy.look_every, is_released);
        }
        match self.queue.inner.join(&self.slots, hint, on_exhausted) {
            Joined::Taken(index) => Some(index),
            Joined::Waits { ticket, waiter, looks } => {
                QueuePlace { pool: self, waiter, ticket, looks }.wait(policy, is_released)
            }
        }
    }

    /// Takes a free or released frame, or a new one unless `on_exhausted` is [`OnExhausted::Wait`]. Does not
    /// wait.
    #[cold]
    pub(super) fn try_take(
        &self,
        hint: u32,
        is_released: &dyn Fn(u32) -> bool,
        on_exhausted: OnExhausted,
    ) -> Option<u32> {
        let open = self.slots.open.peek();
        if open == 0 {
            return None;
        }
        let taken = self.slots.take_free(hint, open);
        let taken = taken.or_else(|| self.slots.recover_any(open, is_released));
        let more = on_exhausted != OnExhausted::Wait;
        taken.or_else(|| if more { self.queue.inner.activate_taken(&self.slots) } else { None })
    }

    /// Takes a frame for a future: a free or released one, or a new one unless `on_exhausted` is
    /// [`OnExhausted::Wait`]. If no frame can be taken, makes the future wait, as [`Queue::join_future`]
    /// does.
    #[cold]
    pub(super) fn take_for_future(
        &self,
        hint: u32,
        is_released: &dyn Fn(u32) -> bool,
        on_exhausted: OnExhausted,
        ticket: Option<u64>,
        waker: &Waker,
    ) -> Result<u32, u64> {
        let open = self.slots.open.peek();
        if ticket.is_some() {
            // This future already waits, and a frame may be offered to it. So it takes no other frame here.
            // Released frames go to the caller that waits longest.
            self.reclaim(is_released);
        } else if open > 0 {
            let taken = self.slots.take_free(hint, open);
            let taken = taken.or_else(|| self.slots.recover_any(open, is_released));
            if let Some(index) = taken {
                return Ok(index);
            }
        }
        let more = on_exhausted != OnExhausted::Wait;
        self.queue.inner.join_future(&self.slots, hint, more, ticket, waker)
    }

    /// Wakes the future that waits longest, which then asks its path for released frames. Returns whether
    /// other futures wait.
    pub(super) fn wake_future(&self, look_every: Duration) -> bool {
        self.withdraw(look_every);
        let (next, others) = self.queue.inner.next_future();
        next.wake();
        others
    }

    /// Ends the wait of a future that gives up.
    pub(super) fn leave_future(&self, ticket: u64) {
        if let Some(index) = self.queue.inner.leave_future(&self.slots, ticket) {
            self.give_back(index);
        }
    }

    /// Returns a frame to the pool: to the first caller in the queue if there is one.
    #[inline]
    pub(super) fn give_back(&self, index: u32) {
        self.give_back_as(index, FREE);
    }

    #[inline]
    fn give_back_as(&self, index: u32, state: u32) {
        // SYNC: frame, taken in `take` and `Slots::seize`.
        self.slots.at(index).state.store(state);
        M::keep_order();
        if self.slots.open.peek() == 0 {
            self.pass_on(index);
        }
    }

    /// Hands the frame over to the caller that waits longest, because the gate is closed.
    #[cold]
    fn pass_on(&self, index: u32) {
        self.queue.inner.hand_over(&self.slots, index).wake();
    }

    /// Returns the time that is left until the next check for frames is due.
    fn until_look(&self, look_every: Duration) -> Duration {
        let since = M::clock().wrapping_sub(self.queue.looked.peek());
        look_every.saturating_sub(Duration::from_micros(since.into()))
    }

    /// Checks, on behalf of all waiting callers, for frames whose release no event announced. If no frame was
    /// given to a waiting caller for `look_every`, also activates more frames for the callers that allow it.
    fn look(&self, look_every: Duration, is_released: &dyn Fn(u32) -> bool) {
        self.queue.looked.store(M::clock());
        self.withdraw(look_every);
        self.hand_over_free();
        self.reclaim(is_released);
        if self.queue.inner.is_stuck(&self.slots, look_every) {
            while let Some(told) = self.queue.inner.grow(&self.slots) {
                told.wake();
            }
        }
    }

    /// Hands over frames that were offered to futures which were not polled for `look_every`.
    fn withdraw(&self, look_every: Duration) {
        while let Some(told) = self.queue.inner.withdraw(&self.slots, look_every) {
            told.wake();
        }
    }

    fn hand_over_free(&self) {
        while let Some(told) = self.queue.inner.hand_over_free(&self.slots) {
            told.wake();
        }
    }

    /// Leaves a frame to the server. No event announces that the server releases it: callers must check
    /// `is_released`.
    pub(super) fn capture(&self, index: u32) {
        self.slots.at(index).state.store(CAPTURED);
    }

    /// Returns the number of active frames.
    pub(super) fn active(&self) -> u32 {
        self.slots.active()
    }

    /// Returns how many active frames are taken or captured.
    #[inline]
    pub(super) fn in_use(&self) -> u32 {
        self.slots.in_use()
    }

    /// Makes at least `count` frames active permanently, or all frames if there are fewer.
    pub(super) fn at_least(&self, count: u32) {
        self.queue.inner.at_least(&self.slots, count);
        self.hand_over_free();
    }

    /// Makes `count` more frames active until they are [unreserved](Self::unreserve). Returns false if no
    /// frame would be left for other calls.
    pub(super) fn reserve(&self, count: u32) -> bool {
        let reserved = self.queue.inner.reserve(&self.slots, count);
        self.hand_over_free();
        reserved
    }

    /// Ends the reservation of `count` frames.
    pub(super) fn unreserve(&self, count: u32) {
        self.queue.inner.unreserve(count);
    }

    /// Calls `todo` with each free frame. While `todo` runs, nothing else uses the frame.
    pub(super) fn each_free(&self, todo: &dyn Fn(u32)) {
        for index in 0..self.active() {
            if self.slots.at(index).state.exchange(FREE, TAKEN) {
                todo(index);
                self.give_back(index);
            }
        }
    }

    /// Makes captured frames free again if the server has released them. A caller checks captured frames only
    /// if it finds no other frame.
    pub(super) fn reclaim(&self, is_released: &dyn Fn(u32) -> bool) {
        for index in 0..self.active() {
            if self.slots.recover(index, is_released) {
                self.give_back(index);
            }
        }
    }

    /// Releases the memory of frames that need not stay active, and that have not been used since the
    /// previous call of this function. Then deactivates the last frames if they have no memory.
    pub(super) fn shrink(&self, release: &dyn Fn(u32)) {
        for index in self.queue.inner.base()..self.active() {
            let state = &self.slots.at(index).state;
            if state.exchange(UNUSED, TAKEN) {
                release(index);
                self.give_back_as(index, EMPTY);
            } else {
                state.exchange(FREE, UNUSED);
            }
        }
        self.queue.inner.retire(&self.slots);
    }

    /// Returns how many callers wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.queue.inner.waiting()
    }
}

/// A place in the queue. Dropping it, also by a panic, removes the caller from the queue. A frame that the
/// caller was given and does not use is handed on.
struct QueuePlace<'a, M: Machine> {
    pool: &'a FramePool<M>,
    waiter: Arc<Waiter<M>>,
    ticket: u64,
    /// Whether this caller checks for frames on behalf of all waiting callers.
    looks: bool,
}

impl<M: Machine> QueuePlace<'_, M> {
    fn wait(mut self, policy: &WaitPolicy<'_>, is_released: &dyn Fn(u32) -> bool) -> Option<u32> {
        let mut seen = NOTHING;
        loop {
            // The time limit is checked first. If a caller that must give up has already received a frame, it
            // hands the frame on to the next caller.
            let mut left = (policy.left)();
            if left.is_zero() {
                return None;
            }
            let told = self.waiter.given.load();
            if let Some(index) = Waiter::<M>::frame(told) {
                // The thread that gave the frame has removed this caller from the queue.
                self.ticket = GONE;
                return Some(index);
            }
            self.looks |= told != seen;
            seen = told;
            if self.looks {
                left = left.min(self.pool.until_look(policy.look_every));
            }
            if left.is_zero() {
                self.pool.look(policy.look_every, is_released);
                self.looks = self.pool.queue.inner.pass_look(self.ticket);
            } else {
                self.waiter.given.sleep(seen, left);
            }
        }
    }
}

/// The ticket of a caller that does not wait any more.
const GONE: u64 = u64::MAX;

impl<M: Machine> Drop for QueuePlace<'_, M> {
    fn drop(&mut self) {
        let FramePool { slots, queue, .. } = self.pool;
        if self.ticket != GONE
            && !queue.inner.leave(slots, self.ticket)
            && let Some(index) = Waiter::<M>::frame(self.waiter.given.load())
        {
            self.pool.give_back(index);
        }
    }
}

/// The operations of Linux, for all uses except the model checker.
pub(super) struct Linux;

impl Machine for Linux {
    type Word = AtomicU32;
    type Lock = Mutex<State<Self>>;
    const LOOKS: u32 = 4;

    fn offer_processor() {
        std::thread::yield_now();
    }

    #[inline(always)]
    fn keep_order() {
        compiler_fence(Ordering::SeqCst);
    }

    fn barrier() {
        // If the kernel has no `membarrier`, a frame may be handed over late. See the documentation of this
        // module.
        sys::membarrier();
    }

    fn waiter() -> Arc<Waiter<Self>> {
        // A thread waits for one frame at a time, so one waiter per thread is enough.
        thread_local!(static WAITER: Arc<Waiter<Linux>> = Arc::new(Waiter::new()));
        WAITER.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(Waiter::new()))
    }

    fn clock() -> u32 {
        (sys::boot_ns() / 1000) as u32
    }
}

impl Word for AtomicU32 {
    fn new(value: u32) -> Self {
        Self::new(value)
    }
    #[inline(always)]
    fn peek(&self) -> u32 {
        Self::load(self, Ordering::Relaxed)
    }
    #[inline(always)]
    fn load(&self) -> u32 {
        Self::load(self, Ordering::Acquire)
    }
    #[inline(always)]
    fn store(&self, value: u32) {
        Self::store(self, value, Ordering::Release);
    }
    #[inline(always)]
    fn exchange(&self, from: u32, to: u32) -> bool {
        self.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
    fn sleep(&self, value: u32, limit: Duration) {
        sys::futex_wait(self, value, (limit != Duration::MAX).then_some(limit));
    }
    fn wake(&self) {
        sys::futex_wake(self);
    }
}

impl Lock<Linux> for Mutex<State<Linux>> {
    fn new(state: State<Linux>) -> Self {
        Self::new(state)
    }
    fn lock(&self) -> impl DerefMut<Target = State<Linux>> {
        Self::lock(self)
    }
}

#[cfg(test)]
mod futures;
#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(10);

    /// A value that lies on a separate cache line.
    #[repr(align(128))]
    struct Padded<T>(T);

    fn pool(count: u32, active: u32) -> FramePool {
        FramePool::new(count, active)
    }

    /// Returns the policy of a caller that gets a frame only when one is handed over.
    fn waits(left: &dyn Fn() -> Duration) -> WaitPolicy<'_> {
        WaitPolicy { left, look_every: LONG }
    }

    /// Returns a function that returns the time left until a long limit. Only a failing test reaches the
    /// limit.
    fn patient() -> impl Fn() -> Duration {
        let until = Instant::now() + LONG;
        move || until.saturating_duration_since(Instant::now())
    }

    fn until(condition: impl Fn() -> bool) {
        let policy = patient();
        while !condition() {
            assert!(!policy().is_zero(), "the condition was not reached in time");
            thread::yield_now();
        }
    }

    /// Tests, without a pool, the guarantee on which the protocol is based. Each of two threads stores to one
    /// word and then loads the other word. Without the barrier a processor may execute a thread's load before
    /// its store. Then neither thread sees the store of the other thread.
    #[test]
    fn barrier_is_before_the_load_or_after_the_store() {
        if !sys::membarrier() {
            eprintln!("skipped: the kernel has no membarrier");
            return;
        }
        let [frame, gate] = [(); 2].map(|()| Padded(AtomicU32::new(0)));
        let [came, went] = [(); 2].map(|()| Padded(AtomicU32::new(0)));
        // Each thread waits until the other one has reached the same round.
        let meet = |mine: &AtomicU32, other: &AtomicU32| {
            let round = mine.fetch_add(1, Ordering::SeqCst);
            let mut looks = 0;
            while other.load(Ordering::SeqCst) <= round {
                looks += 1;
                if looks % 1000 == 0 {
                    thread::yield_now();
                }
            }
        };
        let (missed_gate, mut neither) = (AtomicU32::new(0), 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=20_000 {
                    meet(&came.0, &went.0);
                    Word::store(&frame.0, round);
                    Linux::keep_order();
                    missed_gate.store(u32::from(gate.0.peek() != round), Ordering::Relaxed);
                    meet(&came.0, &went.0);
                }
            });
            for round in 1..=20_000 {
                meet(&went.0, &came.0);
                Word::store(&gate.0, round);
                Linux::barrier();
                let missed_frame = frame.0.peek() != round;
                meet(&went.0, &came.0);
                neither += u32::from(missed_frame) & missed_gate.load(Ordering::Relaxed);
            }
        });
        assert_eq!(neither, 0, "in some rounds, neither thread saw the store of the other one");
    }

    #[test]
    fn frame_given_to_a_caller_that_gives_up_goes_to_the_next() {
        let pool = pool(1, 1);
        assert_eq!(pool.take(0), Some(0));
        thread::scope(|scope| {
            let hasty = scope.spawn(|| {
                let asked = AtomicU32::new(0);
                // The limit passes while the caller sleeps.
                let left = || {
                    if asked.fetch_add(1, Ordering::Relaxed) == 0 { LONG } else { Duration::ZERO }
                };
                pool.take_slowly(0, &waits(&left), &|_| false, OnExhausted::Wait)
            });
            until(|| pool.waiting() == 1);
            let next = scope
                .spawn(|| pool.take_slowly(0, &waits(&patient()), &|_| false, OnExhausted::Wait));
            until(|| pool.waiting() == 2);
            pool.give_back(0);
            assert_eq!(hasty.join().unwrap(), None);
            assert_eq!(next.join().unwrap(), Some(0));
        });
        assert_eq!((pool.waiting(), pool.slots.open.peek()), (0, 1));
    }

    #[test]
    fn panic_in_the_queue_leaves_the_queue() {
        let pool = pool(1, 1);
        assert_eq!(pool.take(0), Some(0));
        thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let is_released = |_| panic!("on purpose");
                let policy = WaitPolicy { left: &patient(), look_every: Duration::from_millis(1) };
                pool.take_slowly(0, &policy, &is_released, OnExhausted::Wait)
            });
            until(|| pool.waiting() == 1);
            pool.capture(0);
            panics.join().unwrap_err();
        });
        assert_eq!((pool.waiting(), pool.slots.open.peek()), (0, 1));
    }
}
