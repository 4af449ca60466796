//! `Slots`: the state of each call frame, and the number of frames that callers may take.

use super::{Machine, Word};
use crate::growing::Growing;

pub(super) const FREE: u32 = 0;
pub(super) const TAKEN: u32 = 1;
pub(super) const CAPTURED: u32 = 2;
pub(super) const UNUSED: u32 = 3;
pub(super) const EMPTY: u32 = 4;
pub(super) const INACTIVE: u32 = 5;

/// The state of one frame, on a separate cache line, so that threads with different frames do not slow each
/// other down.
#[repr(align(128))]
pub(super) struct Slot<W> {
    pub(super) state: W,
}

/// The frames of a session, by number.
pub(super) struct Slots<M: Machine> {
    /// The gate: the number of active frames, or 0 while callers wait.
    pub(super) open: M::Word,
    /// The number of active frames. All other frames are `INACTIVE`. The number is changed under the queue's
    /// lock, and read without the lock.
    pub(super) active: M::Word,
    slots: Growing<Slot<M::Word>>,
}

impl<M: Machine> Slots<M> {
    pub(super) fn new(count: u32, active: u32) -> Self {
        let state = move |index| M::Word::new(if index < active { FREE } else { INACTIVE });
        let slots = Growing::new(count, move |i| Slot { state: state(i) });
        Self { open: M::Word::new(active), active: M::Word::new(active), slots }
    }

    /// Returns the number of frames, including inactive ones.
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

    /// Returns how many active frames callers have, or are captured.
    #[inline]
    pub(super) fn in_use(&self) -> u32 {
        let in_use = |slot: &Slot<M::Word>| matches!(slot.state.peek(), TAKEN | CAPTURED);
        self.slots.count_of(self.active() as usize, in_use) as u32
    }

    /// Takes the frame if it is free, whether it was used recently or not.
    pub(super) fn seize(&self, index: u32) -> bool {
        let state = &self.at(index).state;
        loop {
            let seen = state.peek();
            if !matches!(seen, FREE | UNUSED | EMPTY) {
                return false;
            }
            // SYNC: frame, returned in `FramePool::give_back_as`.
            if state.exchange(seen, TAKEN) {
                return true;
            }
        }
    }

    /// Takes the first free frame from `hint` on, wrapping around at `active`.
    pub(super) fn take_free(&self, hint: u32, active: u32) -> Option<u32> {
        let first = hint % active;
        (first..active).chain(0..first).find(|index| self.seize(*index))
    }

    /// Takes a captured frame if the server has released it.
    ///
    /// The caller must hold no lock of the pool: see [`Queue`](super::queue::Queue).
    pub(super) fn recover(&self, index: u32, is_released: &dyn Fn(u32) -> bool) -> bool {
        /// The drop of this guard marks the frame as captured again. The guard is dropped if the server has
        /// not released the frame, and if `is_released` panics.
        struct Asks<'a, W: Word>(&'a W);
        impl<W: Word> Drop for Asks<'_, W> {
            fn drop(&mut self) {
                self.0.store(CAPTURED);
            }
        }
        let state = &self.at(index).state;
        // The frame is taken before `is_released` is called, because only the holder of a frame may change
        // what `is_released` records about the frame.
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

    /// Takes the first captured frame that the server has released.
    pub(super) fn recover_any(
        &self,
        active: u32,
        is_released: &dyn Fn(u32) -> bool,
    ) -> Option<u32> {
        (0..active).find(|index| self.recover(*index, is_released))
    }
}
