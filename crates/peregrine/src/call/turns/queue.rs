//! `Queue`: the callers that wait for a frame, in the order of their coming, and the lock around them.
//!
//! **No function here takes a function.** The lock does not leave this file, so nothing that a path
//! does, such as `is_released`, can run while a thread holds it. A path's `is_released` may receive from the
//! network, wake other callers and use the pool.

use core::ops::DerefMut;
use std::collections::VecDeque;
use std::sync::Arc;

use super::slots::{EMPTY, FREE, INACTIVE, Slots, TAKEN};
use super::{LOOK, Machine, NOTHING, Waiter, Word};
use crate::call::OnExhausted;

/// A caller that joins a queue shorter than this looks for all that wait. Nobody is woken for that,
/// and few callers in front of it are served before the duty must go to another.
const SHORT_QUEUE: usize = 32;

/// A lock around the queue.
pub(in crate::call) trait Lock<M: Machine> {
    fn new(state: State<M>) -> Self;
    fn lock(&self) -> impl DerefMut<Target = State<M>>;
}

/// What only the holder of the lock changes.
pub(in crate::call) struct State<M: Machine> {
    /// How many frames stay in use when nothing happens.
    base: u32,
    /// The caller that waits longest comes first. Tickets increase.
    waiting: VecDeque<Waiting<M>>,
    next_ticket: u64,
    /// The ticket of the one caller that looks for frames on behalf of all. While somebody waits,
    /// it is the ticket of one who waits.
    looks: u64,
    /// How often somebody was told to look.
    appointed: u32,
}

struct Waiting<M: Machine> {
    ticket: u64,
    waiter: Arc<Waiter<M>>,
}

/// What a caller gets that asked for a frame.
pub(super) enum Joined<M: Machine> {
    Taken(u32),
    /// It waits, and perhaps is the one that looks on behalf of all.
    Waits {
        ticket: u64,
        waiter: Arc<Waiter<M>>,
        looks: bool,
    },
}

/// Callers that have been told something, and are woken without the lock.
#[must_use]
pub(super) struct Told<M: Machine>([Option<Arc<Waiter<M>>>; 2]);

impl<M: Machine> Told<M> {
    const NOBODY: Self = Self([None, None]);

    pub(super) fn wake(self) {
        self.0.into_iter().flatten().for_each(|waiter| waiter.given.wake());
    }
}

pub(super) struct Queue<M: Machine>(M::Lock);

impl<M: Machine> State<M> {
    /// Opens the gate if nobody waits, and leaves it closed otherwise.
    fn settle(&self, slots: &Slots<M>) {
        slots.open.store(if self.waiting.is_empty() { slots.active() } else { 0 });
    }

    /// Makes one more frame active, if there is one.
    fn activate(&self, slots: &Slots<M>, state: u32) -> Option<u32> {
        let index = slots.active();
        slots.slot(index)?.state.store(state);
        slots.active.store(index + 1);
        self.settle(slots);
        Some(index)
    }

    /// Gives a frame that is `TAKEN` to the caller that waits longest, if one waits.
    fn give(&mut self, slots: &Slots<M>, index: u32) -> Told<M> {
        let Some(Waiting { ticket, waiter }) = self.waiting.pop_front() else {
            return Told::NOBODY;
        };
        // SYNC: frame, seen in `Waiter::frame`.
        waiter.given.store(index + 1);
        let looks = if self.looks == ticket { self.appoint_last() } else { None };
        self.settle(slots);
        Told([Some(waiter), looks])
    }

    /// Makes the caller that came last the one that looks: it leaves the queue last, too.
    fn appoint_last(&mut self) -> Option<Arc<Waiter<M>>> {
        self.appoint(self.waiting.len().checked_sub(1)?)
    }

    fn appoint(&mut self, at: usize) -> Option<Arc<Waiter<M>>> {
        let Waiting { ticket, waiter } = self.waiting.get(at)?;
        self.looks = *ticket;
        self.appointed = self.appointed.wrapping_add(1);
        waiter.given.store(LOOK | self.appointed);
        Some(Arc::clone(waiter))
    }

    fn find(&self, ticket: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&ticket, |waiting| waiting.ticket).ok()
    }
}

impl<M: Machine> Queue<M> {
    pub(super) fn new(base: u32) -> Self {
        let waiting = VecDeque::new();
        Self(M::Lock::new(State { base, waiting, next_ticket: 0, looks: 0, appointed: 0 }))
    }

    /// Takes a free frame or a new one, or else begins to wait.
    pub(super) fn join(&self, slots: &Slots<M>, hint: u32, short: OnExhausted) -> Joined<M> {
        let mut state = self.0.lock();
        // To look once more is cheaper than to stop every processor.
        if state.waiting.is_empty()
            && let Some(index) = slots.take_free(hint, slots.active())
        {
            return Joined::Taken(index);
        }
        if short == OnExhausted::More
            && let Some(index) = state.activate(slots, TAKEN)
        {
            return Joined::Taken(index);
        }
        if state.waiting.is_empty() {
            slots.open.store(0);
            M::barrier();
            if let Some(index) = slots.take_free(hint, slots.active()) {
                state.settle(slots);
                return Joined::Taken(index);
            }
        }
        let (ticket, waiter) = (state.next_ticket, M::waiter());
        waiter.given.store(NOTHING);
        let looks = state.waiting.len() < SHORT_QUEUE;
        state.next_ticket += 1;
        if looks {
            // Whoever looked before finds out when it is about to look again.
            state.looks = ticket;
        }
        state.waiting.push_back(Waiting { ticket, waiter: Arc::clone(&waiter) });
        Joined::Waits { ticket, waiter, looks }
    }

    /// Removes a caller that waits no longer. False if it was given a frame before.
    pub(super) fn leave(&self, slots: &Slots<M>, ticket: u64) -> bool {
        let mut state = self.0.lock();
        let Some(at) = state.find(ticket) else { return false };
        state.waiting.remove(at);
        let looks = if state.looks == ticket { state.appoint_last() } else { None };
        state.settle(slots);
        drop(state);
        Told([looks, None]).wake();
        true
    }

    /// Gives a frame that was put down while callers waited to the first of them.
    pub(super) fn hand_over(&self, slots: &Slots<M>, index: u32) -> Told<M> {
        let mut state = self.0.lock();
        // If it cannot be taken, another thread has it, and comes here in turn.
        if state.waiting.is_empty() || !slots.seize(index) {
            return Told::NOBODY;
        }
        state.give(slots, index)
    }

    /// Gives a free frame to the caller that waits longest. `None` if there is none, or nobody waits.
    pub(super) fn hand_over_free(&self, slots: &Slots<M>) -> Option<Told<M>> {
        let mut state = self.0.lock();
        if state.waiting.is_empty() {
            return None;
        }
        let index = slots.take_free(0, slots.active())?;
        Some(state.give(slots, index))
    }

    /// A caller has looked on behalf of all, and waits still: lets the next one look. Their bindings
    /// may differ in what they know of frames. True if it is this one's duty still.
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
        Told([next, None]).wake();
        false
    }

    /// Makes at least so many frames active, for good; no more than there are.
    pub(super) fn at_least(&self, slots: &Slots<M>, count: u32) {
        let mut state = self.0.lock();
        state.base = state.base.max(count.min(slots.len()));
        while slots.active() < state.base && state.activate(slots, FREE).is_some() {}
    }

    /// How many frames stay in use when nothing happens.
    pub(super) fn base(&self) -> u32 {
        self.0.lock().base
    }

    /// Puts the last frames out of use, as many as are without memory and above the base.
    pub(super) fn retire(&self, slots: &Slots<M>) {
        let state = self.0.lock();
        while slots.active() > state.base
            && let Some(last) = slots.slot(slots.active() - 1)
            && last.state.exchange(EMPTY, INACTIVE)
        {
            slots.active.store(slots.active() - 1);
        }
        state.settle(slots);
    }

    /// Makes one more frame active that is free.
    #[cfg(test)]
    pub(super) fn activate_free(&self, slots: &Slots<M>) {
        self.0.lock().activate(slots, FREE);
    }

    /// How many callers wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.0.lock().waiting.len()
    }
}
