//! `Queue`: the callers that wait for a call frame, in order of arrival, and the lock that protects the
//! callers.
//!
//! A caller is a thread or a future. Each gets a ticket when it begins to wait, and a frame goes to the
//! caller with the lowest ticket. A frame for a thread is *given*: the thread has the frame when it wakes. A
//! frame for a future is *offered*: the future is woken, and has the frame when it is polled. The program may
//! leave the future unpolled for a long time, for example while it waits for another future. So if other
//! callers wait, an offer is withdrawn after a while, and the next caller gets the frame. The future keeps
//! its ticket, and is first again when it is polled.
//!
//! **No function of this file takes a function as an argument.** The lock does not leave this file, so no
//! code of a path, such as `is_released`, can run while a thread holds the lock. A path's `is_released` may
//! receive from the network, wake other callers and use the pool.

use core::ops::DerefMut;
use core::task::Waker;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use super::slots::{EMPTY, FREE, INACTIVE, Slots, TAKEN};
use super::{LOOK, Machine, NOTHING, Waiter, Word};
use crate::call::OnExhausted;

/// If fewer callers than this number wait, a caller that joins the queue becomes the one that checks for
/// frames. No thread needs to be woken for this change. The caller keeps the duty to check at most until the
/// few callers before it have been served.
const SHORT_QUEUE: usize = 32;

/// The lock of the queue.
pub(in crate::call) trait Lock<M: Machine> {
    fn new(state: State<M>) -> Self;
    fn lock(&self) -> impl DerefMut<Target = State<M>>;
}

/// The state of the queue. Only the holder of the lock reads and changes this state.
pub(in crate::call) struct State<M: Machine> {
    /// The number of frames that stay active even if no calls are made.
    base: u32,
    /// The number of frames that are active in addition, to make up for calls that hold frames for long.
    reserved: u32,
    /// The threads that wait for a frame, in order of arrival. Each ticket is higher than the previous one.
    waiting: VecDeque<Waiting<M>>,
    /// The futures that wait for a frame, in order of arrival. Each ticket is higher than the previous one.
    /// The waker is `None` if the future was woken, and was not polled since.
    futures: VecDeque<(u64, Option<Waker>)>,
    /// The frames that are offered to futures, in the order of the offers.
    offers: VecDeque<Offer>,
    next_ticket: u64,
    /// The ticket of the caller that checks for frames on behalf of all waiting callers. While callers wait,
    /// it is the ticket of one of them.
    looks: u64,
    /// The number of times that a caller was asked to check.
    appointed: u32,
    /// How many frames were given to waiting callers since `since`.
    given: u32,
    /// The time, by [`Machine::clock`], since which `given` counts.
    since: u32,
    /// How many frames may still be activated for waiting callers.
    growth: u32,
}

struct Waiting<M: Machine> {
    ticket: u64,
    /// Whether a frame may be activated for the caller.
    may_grow: bool,
    waiter: Arc<Waiter<M>>,
}

/// A frame that a future has, but does not know of until it is polled.
struct Offer {
    ticket: u64,
    index: u32,
    /// The time, by [`Machine::clock`], at which the frame was offered.
    since: u32,
}

/// The outcome of asking for a frame.
pub(super) enum Joined<M: Machine> {
    Taken(u32),
    /// The caller waits. If `looks` is true, this caller checks for frames on behalf of all waiting callers.
    Waits {
        ticket: u64,
        waiter: Arc<Waiter<M>>,
        looks: bool,
    },
}

/// The threads that were given a frame or the duty to check, and the future that was offered a frame. All of
/// them must be woken after the lock is released.
#[must_use]
pub(super) struct Wakeups<M: Machine>([Option<Arc<Waiter<M>>>; 2], Option<Waker>);

impl<M: Machine> Wakeups<M> {
    const NONE: Self = Self([None, None], None);

    pub(super) fn wake(self) {
        self.0.into_iter().flatten().for_each(|waiter| waiter.given.wake());
        if let Some(future) = self.1 {
            future.wake();
        }
    }
}

pub(super) struct Queue<M: Machine>(M::Lock);

impl<M: Machine> State<M> {
    /// Returns whether a caller waits.
    fn is_awaited(&self) -> bool {
        !self.waiting.is_empty() || !self.futures.is_empty()
    }

    /// Opens the gate (`slots.open`) if no caller waits. Otherwise leaves the gate closed.
    fn settle(&self, slots: &Slots<M>) {
        slots.open.store(if self.is_awaited() { 0 } else { slots.active() });
    }

    /// Closes the gate for a caller that is about to wait, and looks once more for a free frame.
    fn close(&self, slots: &Slots<M>, hint: u32) -> Option<u32> {
        if self.is_awaited() {
            return None;
        }
        slots.open.store(0);
        M::barrier();
        let taken = slots.take_free(hint, slots.active());
        if taken.is_some() {
            self.settle(slots);
        }
        taken
    }

    /// Returns whether the future with `ticket` comes before all other callers that wait.
    fn is_first(&self, ticket: u64) -> bool {
        self.waiting.front().is_none_or(|first| ticket < first.ticket)
            && self.futures.front().is_none_or(|(first, _)| ticket <= *first)
    }

    /// Activates one more frame, and gives the frame the state `state`. Returns `None` if all frames are
    /// active.
    fn activate(&self, slots: &Slots<M>, state: u32) -> Option<u32> {
        let index = slots.active();
        slots.slot(index)?.state.store(state);
        slots.active.store(index + 1);
        self.settle(slots);
        Some(index)
    }

    /// Returns the number of frames that stay active even if no calls are made. The returned number may be
    /// higher than the number of all frames.
    const fn kept(&self) -> u32 {
        self.base + self.reserved
    }

    /// Activates frames until [`kept`](Self::kept) frames are active, or all frames.
    fn activate_kept(&self, slots: &Slots<M>) {
        while slots.active() < self.kept() && self.activate(slots, FREE).is_some() {}
    }

    /// Gives or offers a frame that is `TAKEN` to the caller that waits longest. At least one caller must be
    /// waiting.
    fn give(&mut self, slots: &Slots<M>, index: u32) -> Wakeups<M> {
        let thread = self.waiting.front().map_or(u64::MAX, |first| first.ticket);
        if self.futures.front().is_none_or(|(future, _)| thread < *future) {
            return self.give_to_thread(slots, index);
        }
        let Some((ticket, waker)) = self.futures.pop_front() else { return Wakeups::NONE };
        self.offers.push_back(Offer { ticket, index, since: M::clock() });
        self.given = self.given.wrapping_add(1);
        self.settle(slots);
        Wakeups([None, None], waker)
    }

    /// Gives a frame that is `TAKEN` to the thread that waits longest.
    fn give_to_thread(&mut self, slots: &Slots<M>, index: u32) -> Wakeups<M> {
        let Some(Waiting { ticket, waiter, .. }) = self.waiting.pop_front() else {
            return Wakeups::NONE;
        };
        self.given = self.given.wrapping_add(1);
        // SYNC: frame, seen in `Waiter::frame`.
        waiter.given.store(index + 1);
        let looks = if self.looks == ticket { self.appoint_last() } else { None };
        self.settle(slots);
        Wakeups([Some(waiter), looks], None)
    }

    /// Makes the last caller in the queue the one that checks, because that caller leaves the queue last.
    fn appoint_last(&mut self) -> Option<Arc<Waiter<M>>> {
        self.appoint(self.waiting.len().checked_sub(1)?)
    }

    fn appoint(&mut self, at: usize) -> Option<Arc<Waiter<M>>> {
        let Waiting { ticket, waiter, .. } = self.waiting.get(at)?;
        self.looks = *ticket;
        self.appointed = self.appointed.wrapping_add(1);
        waiter.given.store(LOOK | self.appointed);
        Some(Arc::clone(waiter))
    }

    fn find(&self, ticket: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&ticket, |waiting| waiting.ticket).ok()
    }

    fn find_offer(&self, ticket: u64) -> Option<usize> {
        self.offers.iter().position(|offer| offer.ticket == ticket)
    }

    fn find_future(&self, ticket: u64) -> Option<usize> {
        self.futures.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()
    }
}

impl<M: Machine> Queue<M> {
    pub(super) fn new(base: u32) -> Self {
        let waiting = VecDeque::new();
        Self(M::Lock::new(State {
            base,
            reserved: 0,
            waiting,
            futures: VecDeque::new(),
            offers: VecDeque::new(),
            next_ticket: 0,
            looks: 0,
            appointed: 0,
            given: 0,
            since: 0,
            growth: 0,
        }))
    }

    /// Takes a free frame or a new one, or begins to wait.
    pub(super) fn join(&self, slots: &Slots<M>, hint: u32, on_exhausted: OnExhausted) -> Joined<M> {
        let mut state = self.0.lock();
        // A frame may have become free since the last check. One more check is cheaper than closing the gate,
        // because closing needs a barrier on every processor.
        if !state.is_awaited()
            && let Some(index) = slots.take_free(hint, slots.active())
        {
            return Joined::Taken(index);
        }
        if on_exhausted == OnExhausted::More
            && let Some(index) = state.activate(slots, TAKEN)
        {
            return Joined::Taken(index);
        }
        if let Some(index) = state.close(slots, hint) {
            return Joined::Taken(index);
        }
        if state.waiting.is_empty() {
            (state.given, state.since) = (0, M::clock());
        }
        let (ticket, waiter) = (state.next_ticket, M::waiter());
        waiter.given.store(NOTHING);
        let looks = state.waiting.len() < SHORT_QUEUE;
        state.next_ticket += 1;
        if looks {
            // The caller that had the duty to check notices the change after its next check.
            state.looks = ticket;
        }
        let may_grow = on_exhausted == OnExhausted::Adaptive;
        state.waiting.push_back(Waiting { ticket, may_grow, waiter: Arc::clone(&waiter) });
        Joined::Waits { ticket, waiter, looks }
    }

    /// Removes a caller that gives up. Returns false if the caller was given a frame before.
    pub(super) fn leave(&self, slots: &Slots<M>, ticket: u64) -> bool {
        let mut state = self.0.lock();
        let Some(at) = state.find(ticket) else { return false };
        state.waiting.remove(at);
        let looks = if state.looks == ticket { state.appoint_last() } else { None };
        state.settle(slots);
        drop(state);
        Wakeups([looks, None], None).wake();
        true
    }

    /// Hands over a frame that was returned while callers wait. The first caller in the queue gets the frame.
    pub(super) fn hand_over(&self, slots: &Slots<M>, index: u32) -> Wakeups<M> {
        let mut state = self.0.lock();
        // If the frame cannot be taken, another thread has it, and calls this function when it returns the
        // frame.
        if !state.is_awaited() || !slots.seize(index) {
            return Wakeups::NONE;
        }
        state.give(slots, index)
    }

    /// Hands a free frame to the caller that waits longest. Returns `None` if there is no free frame, or no
    /// caller waits.
    pub(super) fn hand_over_free(&self, slots: &Slots<M>) -> Option<Wakeups<M>> {
        let mut state = self.0.lock();
        if !state.is_awaited() {
            return None;
        }
        let index = slots.take_free(0, slots.active())?;
        Some(state.give(slots, index))
    }

    /// Withdraws one offer that is older than `interval`, and hands the frame to the caller that waits
    /// longest. Returns `None` if there is no such offer, or no caller waits.
    pub(super) fn withdraw(&self, slots: &Slots<M>, interval: Duration) -> Option<Wakeups<M>> {
        let mut state = self.0.lock();
        let since = state.offers.front().filter(|_| state.is_awaited())?.since;
        let passed = Duration::from_micros(M::clock().wrapping_sub(since).into());
        if passed < interval {
            return None;
        }
        let Offer { index, .. } = state.offers.pop_front()?;
        Some(state.give(slots, index))
    }

    /// Activates one more frame, which is taken. Returns `None` if all frames are active.
    pub(super) fn activate_taken(&self, slots: &Slots<M>) -> Option<u32> {
        self.0.lock().activate(slots, TAKEN)
    }

    /// Takes a frame for a future: the frame that is offered to the future, a free frame, or a new frame. If
    /// no frame can be taken, the future waits, and the pool wakes `waker` when it offers a frame to the
    /// future. `ticket` is the ticket of a future that has waited before. Returns the frame, or the ticket of
    /// the wait.
    pub(super) fn join_future(
        &self,
        slots: &Slots<M>,
        hint: u32,
        more: bool,
        ticket: Option<u64>,
        waker: &Waker,
    ) -> Result<u32, u64> {
        // A waker is foreign code, so it is cloned before the lock is taken, and dropped after the lock is
        // released.
        let (mut waker, mut _before) = (Some(waker.clone()), None);
        let mut state = self.0.lock();
        let offer = ticket.and_then(|ticket| state.find_offer(ticket));
        if let Some(offer) = offer.and_then(|at| state.offers.remove(at)) {
            return Ok(offer.index);
        }
        let is_first = ticket.map_or(!state.is_awaited(), |ticket| state.is_first(ticket));
        let mut taken = if is_first { slots.take_free(hint, slots.active()) } else { None };
        if more {
            taken = taken.or_else(|| state.activate(slots, TAKEN));
        }
        if let Some(index) = taken.or_else(|| state.close(slots, hint)) {
            let at = ticket.and_then(|ticket| state.find_future(ticket));
            _before = at.and_then(|at| state.futures.remove(at));
            state.settle(slots);
            return Ok(index);
        }
        let ticket = ticket.unwrap_or(state.next_ticket);
        state.next_ticket = state.next_ticket.max(ticket + 1);
        match state.find_future(ticket) {
            Some(at) => core::mem::swap(&mut state.futures[at].1, &mut waker),
            None => {
                let at = state.futures.partition_point(|(other, _)| *other < ticket);
                state.futures.insert(at, (ticket, waker.take()));
            }
        }
        state.settle(slots);
        Err(ticket)
    }

    /// Takes the waker of the future that waits longest and was not woken since it was polled. Returns
    /// whether there are other such futures.
    pub(super) fn next_future(&self) -> (Wakeups<M>, bool) {
        let mut state = self.0.lock();
        let mut wakers = state.futures.iter_mut().filter(|(_, waker)| waker.is_some());
        let next = wakers.next().and_then(|(_, waker)| waker.take());
        let others = wakers.next().is_some();
        (Wakeups([None, None], next), others)
    }

    /// Removes a future that gives up. A frame that is offered to it goes to the next caller. Returns the
    /// frame if no caller waits.
    pub(super) fn leave_future(&self, slots: &Slots<M>, ticket: u64) -> Option<u32> {
        let mut state = self.0.lock();
        let at = state.find_offer(ticket);
        if let Some(Offer { index, .. }) = at.and_then(|at| state.offers.remove(at)) {
            if !state.is_awaited() {
                return Some(index);
            }
            let next = state.give(slots, index);
            drop(state);
            next.wake();
            return None;
        }
        let at = state.find_future(ticket);
        let removed = at.and_then(|at| state.futures.remove(at));
        state.settle(slots);
        drop(state);
        // A waker is foreign code, so it is dropped after the lock is released.
        drop(removed);
        None
    }

    /// Returns whether no frame was given to a waiting caller for as long as `interval`. If so, more frames
    /// may be activated: as many as are active now ([`grow`](Self::grow)). A check that is late by `interval`
    /// or more proves nothing: the processors are overloaded, and more calls in flight would make that worse.
    pub(super) fn is_stuck(&self, slots: &Slots<M>, interval: Duration) -> bool {
        let mut state = self.0.lock();
        let now = M::clock();
        let passed = Duration::from_micros(now.wrapping_sub(state.since).into());
        if passed < interval {
            return false;
        }
        let is_stuck = core::mem::take(&mut state.given) == 0 && passed < 2 * interval;
        state.since = now;
        state.growth = if is_stuck { slots.active() } else { 0 };
        is_stuck
    }

    /// Activates a frame for the caller that waits longest, if that caller allows it. Returns `None` if no
    /// frame is activated: no caller waits, this caller does not allow it, all frames are active, or enough
    /// frames have been activated for now.
    pub(super) fn grow(&self, slots: &Slots<M>) -> Option<Wakeups<M>> {
        let mut state = self.0.lock();
        let may_grow = state.waiting.front().is_some_and(|first| first.may_grow);
        state.growth = state.growth.checked_sub(1).filter(|_| may_grow)?;
        let index = state.activate(slots, TAKEN)?;
        Some(state.give_to_thread(slots, index))
    }

    /// Passes the duty to check to the next caller, after the caller with `ticket` has checked and still
    /// waits. The binding of the next caller may know of other released frames. Returns true if the caller
    /// with `ticket` keeps the duty.
    pub(super) fn pass_look(&self, ticket: u64) -> bool {
        let mut state = self.0.lock();
        if state.looks != ticket {
            return false;
        }
        let Some(at) = state.find(ticket) else { return false };
        let next = (at + 1) % state.waiting.len();
        if next == at {
            return true;
        }
        let next = state.appoint(next);
        drop(state);
        Wakeups([next, None], None).wake();
        false
    }

    /// Makes at least `count` frames active permanently, or all frames if there are fewer.
    pub(super) fn at_least(&self, slots: &Slots<M>, count: u32) {
        let mut state = self.0.lock();
        state.base = state.base.max(count.min(slots.len()));
        state.activate_kept(slots);
    }

    /// Makes `count` more frames active until they are [unreserved](Self::unreserve). Returns false if all
    /// frames would then be reserved, and none would be left for other calls.
    pub(super) fn reserve(&self, slots: &Slots<M>, count: u32) -> bool {
        let mut state = self.0.lock();
        let is_possible = state.reserved + count < slots.len();
        if is_possible {
            state.reserved += count;
            state.activate_kept(slots);
        }
        is_possible
    }

    /// Ends the reservation of `count` frames.
    pub(super) fn unreserve(&self, count: u32) {
        self.0.lock().reserved -= count;
    }

    /// Returns the number of frames that stay active even if no calls are made.
    pub(super) fn base(&self) -> u32 {
        self.0.lock().kept()
    }

    /// Deactivates the last frames that have no memory and need not stay active.
    pub(super) fn retire(&self, slots: &Slots<M>) {
        let state = self.0.lock();
        while slots.active() > state.kept()
            && let Some(last) = slots.slot(slots.active() - 1)
            && last.state.exchange(EMPTY, INACTIVE)
        {
            slots.active.store(slots.active() - 1);
        }
        state.settle(slots);
    }

    /// Activates one more frame. The frame is free.
    #[cfg(test)]
    pub(super) fn activate_free(&self, slots: &Slots<M>) {
        self.0.lock().activate(slots, FREE);
    }

    /// Returns how many callers wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        let state = self.0.lock();
        state.waiting.len() + state.futures.len()
    }
}
