//! `Slots`: the state of each frame, and how many of them callers may take.

use super::{Machine, Word};

pub(super) const FREE: u32 = 0;
pub(super) const TAKEN: u32 = 1;
pub(super) const CAPTURED: u32 = 2;
pub(super) const UNUSED: u32 = 3;
pub(super) const EMPTY: u32 = 4;
pub(super) const INACTIVE: u32 = 5;

/// A line of its own: threads on different frames do not disturb each other.
#[repr(align(128))]
pub(super) struct Slot<W> {
    pub(super) state: W,
    /// Where the frame begins in the memory.
    pub(super) start: usize,
}

/// The frames of a session, by number.
pub(super) struct Slots<M: Machine> {
    /// The gate: all frames that are in use, or 0 while somebody waits.
    pub(super) open: M::Word,
    /// The first so many frames are in use, the others `INACTIVE`. Changed under the queue's lock,
    /// read without it.
    pub(super) active: M::Word,
    slots: Box<[Slot<M::Word>]>,
}

impl<M: Machine> Slots<M> {
    pub(super) fn new(starts: impl Iterator<Item = usize>, active: u32) -> Self {
        let state = |index| M::Word::new(if index < active { FREE } else { INACTIVE });
        let slots = (0..).zip(starts).map(|(i, start)| Slot { state: state(i), start }).collect();
        Self { open: M::Word::new(active), active: M::Word::new(active), slots }
    }

    /// How many there are.
    pub(super) const fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(super) fn active(&self) -> u32 {
        self.active.load()
    }

    pub(super) fn slot(&self, index: u32) -> Option<&Slot<M::Word>> {
        self.slots.get(index as usize)
    }

    #[inline(always)]
    pub(super) fn at(&self, index: u32) -> &Slot<M::Word> {
        &self.slots[index as usize]
    }

    /// Takes the frame if it is free, used lately or not.
    pub(super) fn seize(&self, index: u32) -> bool {
        let state = &self.at(index).state;
        loop {
            let seen = state.peek();
            if !matches!(seen, FREE | UNUSED | EMPTY) {
                return false;
            }
            // SYNC: frame, given back in `Turns::give_back_as`.
            if state.exchange(seen, TAKEN) {
                return true;
            }
        }
    }

    /// Takes the first free frame from `hint` on, round the active ones.
    pub(super) fn take_free(&self, hint: u32, active: u32) -> Option<u32> {
        let first = hint % active;
        (first..active).chain(0..first).find(|index| self.seize(*index))
    }

    /// Takes a captured frame if the server has let go of it.
    ///
    /// The caller holds no lock of the pool: see [`Queue`](super::queue::Queue).
    pub(super) fn recover(&self, index: u32, is_released: &dyn Fn(u32) -> bool) -> bool {
        /// The frame is captured still, unless it was found to be let go: also if `is_released` panics.
        struct Asks<'a, W: Word>(&'a W);
        impl<W: Word> Drop for Asks<'_, W> {
            fn drop(&mut self) {
                self.0.store(CAPTURED);
            }
        }
        let state = &self.at(index).state;
        // First ours, then asked for: what `is_released` notes belongs to the frame's holder.
        if state.peek() != CAPTURED || !state.exchange(CAPTURED, TAKEN) {
            return false;
        }
        let asks = Asks(state);
        let free = is_released(index);
        if free {
            core::mem::forget(asks);
        }
        free
    }

    /// Takes the first captured frame of which the server has let go.
    pub(super) fn recover_any(
        &self,
        active: u32,
        is_released: &dyn Fn(u32) -> bool,
    ) -> Option<u32> {
        (0..active).find(|index| self.recover(*index, is_released))
    }
}
