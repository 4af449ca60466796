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
//! does not see the store, which is on its way. Also captured frames come back without a notice.
//! Therefore nobody in the queue sleeps long without a look at all frames, on behalf of whoever
//! is first: in these cases a frame comes late, but it comes.

use core::ops::DerefMut;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::Short;
use crate::sys;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const CAPTURED: u32 = 2;
const UNUSED: u32 = 3;
const EMPTY: u32 = 4;
const INACTIVE: u32 = 5;

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
    /// Sleeps while it holds `value`: until woken, for `limit` at most, or for no reason.
    fn sleep(&self, value: u32, limit: Duration);
    /// Wakes who sleeps on it.
    fn wake(&self);
}

/// A lock around the queue.
pub(super) trait Lock<M: Machine> {
    fn new(queue: Queue<M>) -> Self;
    fn lock(&self) -> impl DerefMut<Target = Queue<M>>;
}

/// What is changed under the lock alone: who waits, and how many frames are in use.
pub(super) struct Queue<M: Machine> {
    /// The first so many frames are in use, the others `INACTIVE`.
    active: u32,
    /// So many stay in use when nothing happens.
    base: u32,
    /// The longest waiter first.
    waiting: VecDeque<Arc<Waiter<M>>>,
}

/// A thread in the queue; it has its own word, so that it alone is woken.
pub(super) struct Waiter<M: Machine> {
    /// The number of the frame that it was given, counted from 1.
    given: M::Word,
}

const NOTHING: u32 = 0;

impl<M: Machine> Waiter<M> {
    fn new() -> Self {
        Self { given: M::Word::new(NOTHING) }
    }

    /// The frame that this thread was given.
    // SYNC: frame, given in `Turns::pass_on` and `Turns::serve`.
    fn frame(&self) -> Option<u32> {
        self.given.load().checked_sub(1)
    }
}

/// A line of its own: threads on different frames do not disturb each other.
#[repr(align(128))]
struct Slot<W> {
    state: W,
    /// Where the frame begins in the memory.
    start: usize,
}

impl<W: Word> Slot<W> {
    /// Takes the frame if it is free, used lately or not.
    fn seize(&self) -> bool {
        loop {
            let seen = self.state.peek();
            if !matches!(seen, FREE | UNUSED | EMPTY) {
                return false;
            }
            // SYNC: frame, given back in `Turns::give_back_as`.
            if self.state.exchange(seen, TAKEN) {
                return true;
            }
        }
    }

    /// Takes the frame if the server has let go of it.
    fn recover(&self, index: u32, let_go: &dyn Fn(u32) -> bool) -> bool {
        // First ours, then asked for: what `let_go` notes belongs to the frame's holder.
        if self.state.peek() != CAPTURED || !self.state.exchange(CAPTURED, TAKEN) {
            return false;
        }
        let free = let_go(index);
        if !free {
            self.state.store(CAPTURED);
        }
        free
    }
}

/// The frames of a session, by number, and the callers that wait for one.
pub(super) struct Turns<M: Machine = Linux> {
    /// The gate: all frames that are in use, or 0 while somebody waits.
    open: M::Word,
    slots: Box<[Slot<M::Word>]>,
    queue: Box<Apart<M::Lock>>,
}

/// Away from what calls read that find a frame.
#[repr(align(128))]
struct Apart<T>(T);

impl<M: Machine> Turns<M> {
    /// A frame for each start, the first `active` of them in use.
    pub(super) fn new(starts: impl Iterator<Item = usize>, active: u32) -> Self {
        let state = |index| M::Word::new(if index < active { FREE } else { INACTIVE });
        let slots = (0..).zip(starts).map(|(i, start)| Slot { state: state(i), start }).collect();
        let queue = Queue { active, base: active, waiting: VecDeque::new() };
        Self { open: M::Word::new(active), slots, queue: Box::new(Apart(M::Lock::new(queue))) }
    }

    fn queue(&self) -> impl DerefMut<Target = Queue<M>> {
        self.queue.0.lock()
    }

    /// Where a frame begins.
    #[inline]
    pub(super) fn start(&self, index: u32) -> usize {
        self.slots[index as usize].start
    }

    /// Takes the frame at `hint`, if nobody waits and it was used lately.
    #[inline]
    pub(super) fn take(&self, hint: u32) -> Option<u32> {
        let open = self.open.peek();
        let index = if hint < open { hint } else { hint.checked_rem(open)? };
        // SYNC: frame, given back in `give_back_as`: what the last holder wrote is ours to see.
        self.slots[index as usize].state.exchange(FREE, TAKEN).then_some(index)
    }

    /// Takes any frame: one that is free or let go, a new one, or that for which it waits. `left`
    /// tells how long it may sleep now, nothing once it must give up.
    #[cold]
    pub(super) fn take_slowly(
        &self,
        hint: u32,
        left: &dyn Fn() -> Duration,
        let_go: &dyn Fn(u32) -> bool,
        short: Short,
    ) -> Option<u32> {
        let looks = if short == Short::Wait { M::LOOKS } else { 1 };
        for look in 0..looks {
            if look > 0 {
                M::offer_processor();
            }
            let open = self.open.peek();
            if open != 0
                && let Some(index) = self.scan(hint, open, let_go)
            {
                return Some(index);
            }
        }
        let mut queue = self.queue();
        // To look once more is cheaper than to stop every processor.
        if queue.waiting.is_empty()
            && let Some(index) = self.scan(hint, queue.active, let_go)
        {
            return Some(index);
        }
        if short == Short::More
            && let Some(index) = self.activate(&mut queue, TAKEN)
        {
            return Some(index);
        }
        if queue.waiting.is_empty() {
            self.open.store(0);
            M::barrier();
            if let Some(index) = self.scan(hint, queue.active, let_go) {
                self.settle(&queue);
                return Some(index);
            }
        }
        let waiter = M::waiter();
        waiter.given.store(NOTHING);
        queue.waiting.push_back(Arc::clone(&waiter));
        drop(queue);
        Place { turns: self, waiter: &waiter }.wait(left, let_go)
    }

    /// Takes the first frame from `hint` on, round the active ones, that is free or let go.
    fn scan(&self, hint: u32, active: u32, let_go: &dyn Fn(u32) -> bool) -> Option<u32> {
        let first = hint % active;
        (first..active).chain(0..first).find(|index| {
            let slot = &self.slots[*index as usize];
            slot.seize() || slot.recover(*index, let_go)
        })
    }

    /// Gives a frame back, to the first in the queue if there is one.
    #[inline]
    pub(super) fn give_back(&self, index: u32) {
        self.give_back_as(index, FREE);
    }

    #[inline]
    fn give_back_as(&self, index: u32, state: u32) {
        // SYNC: frame, taken in `take` and `Slot::seize`.
        self.slots[index as usize].state.store(state);
        M::keep_order();
        if self.open.peek() == 0 {
            self.pass_on(index);
        }
    }

    /// The gate is closed: who waits longest gets the frame.
    #[cold]
    fn pass_on(&self, index: u32) {
        let mut queue = self.queue();
        let Some(first) = queue.waiting.front() else { return };
        // If not, another has it, who comes here in turn.
        if !self.slots[index as usize].seize() {
            return;
        }
        // SYNC: frame, seen in `Waiter::frame`.
        first.given.store(index + 1);
        let first = queue.waiting.pop_front();
        self.settle(&queue);
        drop(queue);
        first.inspect(|first| first.given.wake());
    }

    /// Gives frames that came back without a notice to those who wait, in order.
    fn serve(&self, queue: &mut Queue<M>, let_go: &dyn Fn(u32) -> bool) {
        while let Some(first) = queue.waiting.front()
            && let Some(index) = self.scan(0, queue.active, let_go)
        {
            // SYNC: frame, seen in `Waiter::frame`.
            first.given.store(index + 1);
            first.given.wake();
            queue.waiting.pop_front();
        }
        self.settle(queue);
    }

    /// Opens the gate if nobody waits, and leaves it closed otherwise.
    fn settle(&self, queue: &Queue<M>) {
        self.open.store(if queue.waiting.is_empty() { queue.active } else { 0 });
    }

    /// Leaves a frame to the server: it comes back, without a notice, when `let_go` says so.
    pub(super) fn capture(&self, index: u32) {
        self.slots[index as usize].state.store(CAPTURED);
    }

    /// Makes one more frame active, if there is one.
    fn activate(&self, queue: &mut Queue<M>, state: u32) -> Option<u32> {
        let index = queue.active;
        self.slots.get(index as usize)?.state.store(state);
        queue.active += 1;
        self.settle(queue);
        Some(index)
    }

    /// How many frames are in use.
    pub(super) fn active(&self) -> u32 {
        self.queue().active
    }

    /// Makes at least so many frames active, for good; no more than there are.
    pub(super) fn at_least(&self, count: u32) {
        let mut queue = self.queue();
        queue.base = queue.base.max(count.min(self.slots.len() as u32));
        while queue.active < queue.base && self.activate(&mut queue, FREE).is_some() {}
        self.serve(&mut queue, &|_| false);
    }

    /// Does something with each frame that is free, while nobody else has it.
    pub(super) fn each_free(&self, todo: &dyn Fn(u32)) {
        for index in 0..self.active() {
            if self.slots[index as usize].state.exchange(FREE, TAKEN) {
                todo(index);
                self.give_back(index);
            }
        }
    }

    /// Takes back captured frames of which the server has let go, for callers who need no other
    /// frame do not look at them.
    pub(super) fn reclaim(&self, let_go: &dyn Fn(u32) -> bool) {
        for index in 0..self.active() {
            if self.slots[index as usize].recover(index, let_go) {
                self.give_back(index);
            }
        }
    }

    /// Gives back the memory of frames above the base that were free at the last time and have
    /// not been used since, and puts the last ones out of use.
    pub(super) fn shrink(&self, release: &dyn Fn(u32)) {
        let Queue { active, base, .. } = *self.queue();
        for index in base..active {
            let state = &self.slots[index as usize].state;
            if state.exchange(UNUSED, TAKEN) {
                release(index);
                self.give_back_as(index, EMPTY);
            } else {
                state.exchange(FREE, UNUSED);
            }
        }
        let mut queue = self.queue();
        while queue.active > queue.base
            && self.slots[queue.active as usize - 1].state.exchange(EMPTY, INACTIVE)
        {
            queue.active -= 1;
        }
        self.settle(&queue);
    }

    /// How many callers wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.queue().waiting.len()
    }
}

/// A place in the queue. Who leaves it without a frame, by a panic too, hands on what was given.
struct Place<'a, M: Machine> {
    turns: &'a Turns<M>,
    waiter: &'a Arc<Waiter<M>>,
}

impl<M: Machine> Place<'_, M> {
    fn wait(self, left: &dyn Fn() -> Duration, let_go: &dyn Fn(u32) -> bool) -> Option<u32> {
        loop {
            // Asked first: what comes too late is of more use to the next one.
            let left = left();
            if left.is_zero() {
                return None;
            }
            if let Some(index) = self.waiter.frame() {
                core::mem::forget(self);
                return Some(index);
            }
            self.waiter.given.sleep(NOTHING, left);
            if self.waiter.frame().is_none() {
                self.turns.serve(&mut self.turns.queue(), let_go);
            }
        }
    }
}

impl<M: Machine> Drop for Place<'_, M> {
    fn drop(&mut self) {
        let mut queue = self.turns.queue();
        if let Some(index) = self.waiter.frame() {
            drop(queue);
            self.turns.give_back(index);
        } else {
            queue.waiting.retain(|waiter| !Arc::ptr_eq(waiter, self.waiter));
            self.turns.settle(&queue);
        }
    }
}

/// The machine as it is.
pub(super) struct Linux;

impl Machine for Linux {
    type Word = AtomicU32;
    type Lock = Mutex<Queue<Self>>;
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
        sys::futex_wait(self, value, Some(limit));
    }
    fn wake(&self) {
        sys::futex_wake(self);
    }
}

impl Lock<Linux> for Mutex<Queue<Linux>> {
    fn new(queue: Queue<Linux>) -> Self {
        Self::new(queue)
    }
    fn lock(&self) -> impl DerefMut<Target = Queue<Linux>> {
        Self::lock(self).unwrap_or_else(PoisonError::into_inner)
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

    fn turns(count: usize, active: u32) -> Turns {
        Turns::new((0..count).map(|index| 64 * index), active)
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
                turns.take_slowly(0, &left, &|_| false, Short::Wait)
            });
            until(|| turns.waiting() == 1);
            let next = scope.spawn(|| turns.take_slowly(0, &patient(), &|_| false, Short::Wait));
            until(|| turns.waiting() == 2);
            turns.give_back(0);
            assert_eq!(hasty.join().unwrap(), None);
            assert_eq!(next.join().unwrap(), Some(0));
        });
        assert_eq!((turns.waiting(), turns.open.peek()), (0, 1));
    }

    #[test]
    fn a_panic_in_the_queue_leaves_it() {
        let turns = turns(1, 1);
        assert_eq!(turns.take(0), Some(0));
        thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let let_go = |_| panic!("nobody can tell");
                turns.take_slowly(0, &|| Duration::from_millis(1), &let_go, Short::Wait)
            });
            until(|| turns.waiting() == 1);
            turns.capture(0);
            panics.join().unwrap_err();
        });
        assert_eq!((turns.waiting(), turns.open.peek()), (0, 1));
    }
}
