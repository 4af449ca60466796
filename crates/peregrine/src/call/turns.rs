//! `Turns`: who has which frame, and whose turn it is next while none is free.
//!
//! A frame's state says who may use it:
//!
//! | from | to | by | when |
//! |---|---|---|---|
//! | `FREE`, `UNUSED`, `EMPTY` | `TAKEN` | caller | it calls, or stands first in the queue |
//! | `TAKEN` | `FREE` | caller | its call is done |
//! | `TAKEN` | `CAPTURED` | caller | it gave up, and the server perhaps did not |
//! | `CAPTURED` | `TAKEN` | caller, keeper | it looks whether the server has let go; if not, `CAPTURED` again |
//! | `FREE` | `UNUSED` | keeper | [`Turns::shrink`] marks it |
//! | `UNUSED` | `TAKEN`, `EMPTY` | keeper | the mark was still there at the next `shrink`: no memory any more |
//! | `EMPTY` | `INACTIVE` | keeper | it is the last of the active ones |
//! | `INACTIVE` | `TAKEN`, `FREE` | caller, binder | more are needed |
//!
//! Only `FREE` is taken without a look at other frames, so that marking costs such calls nothing.
//!
//! Who finds no frame stands in a queue under a lock, and the *gate* is closed: `open`, the number
//! of frames that the fast path may try, becomes 0. Who comes from then on goes to the queue's end,
//! and who gives a frame back hands it to the first in the queue, who alone is woken. Overtaking
//! can only who had begun to take a frame before the gate was closed.
//!
//! Captured frames come back without a notice: a caller must ask its path whether the server has let
//! go of them. A caller asks before it waits, and one of those that wait asks on behalf of all, every
//! few milliseconds. If each of them asked, ten thousand callers would keep both processors busy with
//! that alone. A frame that is let go is given back as any is, to the caller that waits longest. No
//! lock is held meanwhile: see [`queue`].
//!
//! A queue is slow: each frame in it waits for its next holder to be woken, and who gives one back
//! finds the gate closed and joins the end, so that a queue which formed once stays (a convoy).
//! Therefore nobody joins it who has not looked a few times, offering the processor in between: by
//! then a short call has ended, and those who waited have been served. So eight threads make several
//! times as many null calls through five frames.
//!
//! # Why no frame is lost on those who wait
//!
//! Giving back is a store of `FREE` and then a load of `open`, with nothing in between: a
//! processor may do the load first. Closing is a store of 0 to `open`, a barrier on every
//! processor that runs a thread of ours (`membarrier`), and then a look at all frames. For each
//! thread that gives back, the barrier falls
//!
//! * before its load, which then sees the gate closed: the thread comes for the lock and finds
//!   who waits; or
//! * after its load, thus after its store too: whoever closed the gate finds the frame free.
//!
//! While the gate is closed nobody who joins the queue needs another barrier. The gate is closed
//! and opened, the queue joined and left, and a frame handed over, under the lock: so one who
//! leaves the queue knows for certain whether a frame came first, and hands that one on.
//!
//! A kernel without `membarrier` leaves a third case: the load sees the gate open, and the look
//! does not see the store, which is on its way. Therefore the caller that looks for captured frames
//! looks for free ones, too: in this case a frame comes late, but it comes.

mod queue;
mod slots;

use core::ops::DerefMut;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use core::time::Duration;
use std::sync::Arc;

use self::queue::{Joined, Lock, Queue, State};
use self::slots::{CAPTURED, EMPTY, FREE, Slots, TAKEN, UNUSED};
use super::OnExhausted;
use crate::sync::Mutex;
use crate::sys;

/// What the protocol asks of the machine, so that a model checker can bring its own.
pub(super) trait Machine: Sized + 'static {
    type Word: Word;
    type Lock: Lock<Self>;
    /// Looks for a free frame before one waits for it.
    const LOOKS: u32;
    /// Lets others run, between two looks.
    fn offer_processor();
    /// Keeps a store before a later load as far as the program goes. On the processor it is kept
    /// only where [`Machine::barrier`] falls between the two.
    fn keep_order();
    /// A barrier on every processor that runs a thread of this process.
    fn barrier();
    /// What this thread waits with.
    fn waiter() -> Arc<Waiter<Self>>;
    /// Microseconds since some moment; after the largest number comes 0.
    fn clock() -> u32;
}

/// A word to hand something over with, and to sleep on.
pub(super) trait Word {
    fn new(value: u32) -> Self;
    /// Relaxed.
    fn peek(&self) -> u32;
    /// Acquire.
    fn load(&self) -> u32;
    /// Release.
    fn store(&self, value: u32);
    /// Acquire; whether it was exchanged.
    fn exchange(&self, from: u32, to: u32) -> bool;
    /// Sleeps while it holds `value`: until woken, for `limit` at most, or for no reason. There is no
    /// limit if that is [`Duration::MAX`].
    fn sleep(&self, value: u32, limit: Duration);
    /// Wakes who sleeps on it.
    fn wake(&self);
}

/// A thread in the queue; it has its own word, so that it alone is woken.
pub(super) struct Waiter<M: Machine> {
    /// What it was told last: the number of the frame that it was given, counted from 1, or that it
    /// is to [look](LOOK). Written under the queue's lock, and by nobody once it was given a frame.
    given: M::Word,
}

const NOTHING: u32 = 0;
/// From now on it looks for frames on behalf of all. With this bit stands a number that differs from
/// time to time, so that one who is about to sleep sees that it was told again.
const LOOK: u32 = 1 << 31;

impl<M: Machine> Waiter<M> {
    fn new() -> Self {
        Self { given: M::Word::new(NOTHING) }
    }

    /// The frame that this thread was given.
    // SYNC: frame, given in `State::give`.
    fn frame(told: u32) -> Option<u32> {
        if told & LOOK == 0 { told.checked_sub(1) } else { None }
    }
}

/// The frames of a session, by number, and the callers that wait for one.
pub(super) struct Turns<M: Machine = Linux> {
    slots: Slots<M>,
    queue: Box<Apart<M>>,
}

/// Away from what calls read that find a frame.
#[repr(align(128))]
struct Apart<M: Machine> {
    inner: Queue<M>,
    /// When somebody last looked for frames on behalf of those that wait, by [`Machine::clock`].
    looked: M::Word,
}

/// How a caller waits.
pub(super) struct Patience<'a> {
    /// How much time it has left: nothing once it must give up, [`Duration::MAX`] if it never must.
    pub(super) left: &'a dyn Fn() -> Duration,
    /// The longest time without a look at frames that come back without a notice.
    pub(super) look_every: Duration,
}

impl<M: Machine> Turns<M> {
    /// A frame for each start, the first `active` of them in use.
    pub(super) fn new(starts: impl Iterator<Item = usize>, active: u32) -> Self {
        let queue = Apart { inner: Queue::new(active), looked: M::Word::new(M::clock()) };
        Self { slots: Slots::new(starts, active), queue: Box::new(queue) }
    }

    /// Where a frame begins.
    #[inline]
    pub(super) fn start(&self, index: u32) -> usize {
        self.slots.at(index).start
    }

    /// Takes the frame at `hint`, if nobody waits and it was used lately.
    #[inline]
    pub(super) fn take(&self, hint: u32) -> Option<u32> {
        let open = self.slots.open.peek();
        let index = if hint < open { hint } else { hint.checked_rem(open)? };
        // SYNC: frame, given back in `give_back_as`: what the last holder wrote is ours to see.
        self.slots.at(index).state.exchange(FREE, TAKEN).then_some(index)
    }

    /// Takes any frame: one that is free or let go, a new one, or that for which it waits.
    #[cold]
    pub(super) fn take_slowly(
        &self,
        hint: u32,
        patience: &Patience<'_>,
        is_released: &dyn Fn(u32) -> bool,
        short: OnExhausted,
    ) -> Option<u32> {
        let looks = if short == OnExhausted::Wait { M::LOOKS } else { 1 };
        for look in 0..looks {
            if look > 0 {
                M::offer_processor();
            }
            let open = self.slots.open.peek();
            if open == 0 {
                continue;
            }
            let taken = self.slots.take_free(hint, open);
            // Asking a path may take a system call for each frame: once is enough.
            let taken = taken.or_else(|| match look {
                0 => self.slots.recover_any(open, is_released),
                _ => None,
            });
            if taken.is_some() {
                return taken;
            }
        }
        if self.slots.open.peek() == 0 && self.until_look(patience.look_every / 8).is_zero() {
            // Others wait: what is found is theirs. All callers together do this now and then.
            self.look(is_released);
        }
        match self.queue.inner.join(&self.slots, hint, short) {
            Joined::Taken(index) => Some(index),
            Joined::Waits { ticket, waiter, looks } => {
                Place { turns: self, waiter, ticket, looks }.wait(patience, is_released)
            }
        }
    }

    /// Gives a frame back, to the first in the queue if there is one.
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

    /// The gate is closed: who waits longest gets the frame.
    #[cold]
    fn pass_on(&self, index: u32) {
        self.queue.inner.hand_over(&self.slots, index).wake();
    }

    /// How long until somebody is to look again.
    fn until_look(&self, look_every: Duration) -> Duration {
        let since = M::clock().wrapping_sub(self.queue.looked.peek());
        look_every.saturating_sub(Duration::from_micros(since.into()))
    }

    /// Looks for frames that came back without a notice, on behalf of those that wait.
    fn look(&self, is_released: &dyn Fn(u32) -> bool) {
        self.queue.looked.store(M::clock());
        self.hand_over_free();
        self.reclaim(is_released);
    }

    fn hand_over_free(&self) {
        while let Some(told) = self.queue.inner.hand_over_free(&self.slots) {
            told.wake();
        }
    }

    /// Leaves a frame to the server: it comes back, without a notice, when `is_released` says so.
    pub(super) fn capture(&self, index: u32) {
        self.slots.at(index).state.store(CAPTURED);
    }

    /// How many frames are in use.
    pub(super) fn active(&self) -> u32 {
        self.slots.active()
    }

    /// Makes at least so many frames active, for good; no more than there are.
    pub(super) fn at_least(&self, count: u32) {
        self.queue.inner.at_least(&self.slots, count);
        self.hand_over_free();
    }

    /// Does something with each frame that is free, while nobody else has it.
    pub(super) fn each_free(&self, todo: &dyn Fn(u32)) {
        for index in 0..self.active() {
            if self.slots.at(index).state.exchange(FREE, TAKEN) {
                todo(index);
                self.give_back(index);
            }
        }
    }

    /// Takes back captured frames of which the server has let go, for callers who need no other
    /// frame do not look at them.
    pub(super) fn reclaim(&self, is_released: &dyn Fn(u32) -> bool) {
        for index in 0..self.active() {
            if self.slots.recover(index, is_released) {
                self.give_back(index);
            }
        }
    }

    /// Gives back the memory of frames above the base that were free at the last time and have
    /// not been used since, and puts the last ones out of use.
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

    /// How many callers wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.queue.inner.waiting()
    }
}

/// A place in the queue. Who leaves it without a frame, by a panic too, hands on what was given.
struct Place<'a, M: Machine> {
    turns: &'a Turns<M>,
    waiter: Arc<Waiter<M>>,
    ticket: u64,
    /// Whether it looks for frames on behalf of all.
    looks: bool,
}

impl<M: Machine> Place<'_, M> {
    fn wait(mut self, patience: &Patience<'_>, is_released: &dyn Fn(u32) -> bool) -> Option<u32> {
        let mut seen = NOTHING;
        loop {
            // Asked first: what comes too late is of more use to the next one.
            let mut left = (patience.left)();
            if left.is_zero() {
                return None;
            }
            let told = self.waiter.given.load();
            if let Some(index) = Waiter::<M>::frame(told) {
                // It has left the queue with that.
                self.ticket = GONE;
                return Some(index);
            }
            self.looks |= told != seen;
            seen = told;
            if self.looks {
                left = left.min(self.turns.until_look(patience.look_every));
            }
            if left.is_zero() {
                self.turns.look(is_released);
                self.looks = self.turns.queue.inner.pass_look(self.ticket);
            } else {
                self.waiter.given.sleep(seen, left);
            }
        }
    }
}

/// No ticket of a caller that waits.
const GONE: u64 = u64::MAX;

impl<M: Machine> Drop for Place<'_, M> {
    fn drop(&mut self) {
        let Turns { slots, queue, .. } = self.turns;
        if self.ticket != GONE
            && !queue.inner.leave(slots, self.ticket)
            && let Some(index) = Waiter::<M>::frame(self.waiter.given.load())
        {
            self.turns.give_back(index);
        }
    }
}

/// The machine as it is.
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
        // Without one a frame may come late, as said above.
        sys::membarrier();
    }

    fn waiter() -> Arc<Waiter<Self>> {
        // A thread waits for one frame at a time, so that one for all its waits is enough.
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
mod model;

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(10);

    /// Away from other words.
    #[repr(align(128))]
    struct Apart<T>(T);

    fn turns(count: usize, active: u32) -> Turns {
        Turns::new((0..count).map(|index| 64 * index), active)
    }

    /// A caller that finds what is free only when it is handed over.
    fn waits(left: &dyn Fn() -> Duration) -> Patience<'_> {
        Patience { left, look_every: LONG }
    }

    /// How long one may sleep that gives up when everything is over anyway.
    fn patient() -> impl Fn() -> Duration {
        let until = Instant::now() + LONG;
        move || until.saturating_duration_since(Instant::now())
    }

    fn until(condition: impl Fn() -> bool) {
        let patience = patient();
        while !condition() {
            assert!(!patience().is_zero(), "it never came so far");
            thread::yield_now();
        }
    }

    /// What the protocol rests on, with as little as possible around it: without the barrier a
    /// processor does the load before the store, and neither side sees the other.
    #[test]
    fn the_barrier_falls_before_a_load_or_after_a_store() {
        if !sys::membarrier() {
            eprintln!("skipped: the kernel has no membarrier");
            return;
        }
        let [frame, gate] = [(); 2].map(|()| Apart(AtomicU32::new(0)));
        let [came, went] = [(); 2].map(|()| Apart(AtomicU32::new(0)));
        // Both leave together, or else one is done before the other begins.
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
        assert_eq!(neither, 0, "rounds in which neither side saw the other");
    }

    #[test]
    fn what_comes_to_one_who_gives_up_goes_to_the_next() {
        let turns = turns(1, 1);
        assert_eq!(turns.take(0), Some(0));
        thread::scope(|scope| {
            let hasty = scope.spawn(|| {
                let asked = AtomicU32::new(0);
                // Patient when it falls asleep, and late when it is woken.
                let left = || {
                    if asked.fetch_add(1, Ordering::Relaxed) == 0 { LONG } else { Duration::ZERO }
                };
                turns.take_slowly(0, &waits(&left), &|_| false, OnExhausted::Wait)
            });
            until(|| turns.waiting() == 1);
            let next = scope
                .spawn(|| turns.take_slowly(0, &waits(&patient()), &|_| false, OnExhausted::Wait));
            until(|| turns.waiting() == 2);
            turns.give_back(0);
            assert_eq!(hasty.join().unwrap(), None);
            assert_eq!(next.join().unwrap(), Some(0));
        });
        assert_eq!((turns.waiting(), turns.slots.open.peek()), (0, 1));
    }

    #[test]
    fn a_panic_in_the_queue_leaves_it() {
        let turns = turns(1, 1);
        assert_eq!(turns.take(0), Some(0));
        thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let is_released = |_| panic!("nobody can tell");
                let patience = Patience { left: &patient(), look_every: Duration::from_millis(1) };
                turns.take_slowly(0, &patience, &is_released, OnExhausted::Wait)
            });
            until(|| turns.waiting() == 1);
            turns.capture(0);
            panics.join().unwrap_err();
        });
        assert_eq!((turns.waiting(), turns.slots.open.peek()), (0, 1));
    }
}
