//! Slots: parts of the space for messages of one direction. Each large message begins at the start of a slot.
//!
//! The space of each direction has 2 MiB more than its largest message needs: 256 slots of 8 KiB. A large
//! message begins at the first slot after the end of the previous message, or at slot 1 if no slot is left.
//! When a slot is used again, about 2 MiB of other slots were used in between. The other processor's nearest
//! cache has therefore evicted the lines of this slot. If each message were written at the same offset, each
//! cache line would first have to be fetched from the other processor.
//!
//! Small messages use slot 0, the start of the space.

use core::sync::atomic::{AtomicU32, Ordering};

/// The size in bytes of a slot: two pages. A message is large if it has more bytes than this.
pub(crate) const SLOT_BYTES: usize = 8 << 10;
/// The number of slots. All slots together are about twice as large as the private cache of a current
/// processor core.
const SLOTS: u32 = 256;
/// The size in bytes of all slots.
pub(crate) const ROTATION_BYTES: usize = SLOT_BYTES * SLOTS as usize;

/// The slot of the next large message of one direction, or 0 initially and after [`reset`](Self::reset).
#[derive(Debug, Default)]
pub(crate) struct NextSlot(AtomicU32);

impl NextSlot {
    #[inline]
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Moves past a message of `bytes` bytes that begins at `slot`. Skips slot 0, which small messages
    /// use.
    pub(crate) fn advance(&self, slot: u32, bytes: usize) {
        let end = bytes.div_ceil(SLOT_BYTES).saturating_add(slot as usize);
        self.0.store(if end < SLOTS as usize { end as u32 } else { 1 }, Ordering::Relaxed);
    }

    /// Forgets the large messages: the last message was small, or the memory was given back.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_in_turn_and_wrap_round() {
        let next = NextSlot::default();
        let mut slots = Vec::new();
        for _ in 0..50 {
            let slot = next.get().max(1);
            slots.push(slot);
            next.advance(slot, 48_016);
        }
        assert_eq!(slots[..3], [1, 7, 13]);
        assert_eq!(slots[42..45], [253, 1, 7]);
        next.advance(1, 1 << 20);
        assert_eq!(next.get(), 129);
        for bytes in [1 << 20, 2 << 20, 1 << 30, usize::MAX] {
            next.advance(129, bytes);
            assert_eq!(next.get(), 1, "{bytes}");
        }
        next.reset();
        assert_eq!(next.get(), 0);
    }
}
