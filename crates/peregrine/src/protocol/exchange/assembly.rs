//! The receiving end of a message. It records which positions have arrived, and reports the missing ones. A
//! position is the index of a piece in the order of sending.

use super::header::BITMAP_BYTES_MAX;
use super::message::Fragments;
use super::positions::{PositionSet, SPAN};

/// What the arrival of a piece means for its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceArrival {
    /// The position was missing.
    New,
    /// The position had arrived before.
    Duplicate,
    /// The position is further ahead than the sender may send.
    OutOfWindow,
}

/// The record of which positions of a message have arrived.
///
/// The positions that arrived after the first missing one are in a [`PositionSet`], which the owner passes to
/// each function. The assembly does not contain the set, because each side of the exchange needs only one
/// set: at any time a side either sends or receives a message. A message of one packet needs no assembly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assembly {
    fragments: Fragments,
    /// All positions below this one have arrived.
    next: u32,
    /// No position from this one on has arrived.
    end: u32,
    /// The number of positions that have arrived.
    came: u32,
}

impl Assembly {
    /// Makes the assembly of a message of which nothing has arrived. Empties `beyond`, the set of positions
    /// that arrive after the first missing one.
    pub(crate) fn new(fragments: Fragments, beyond: &mut PositionSet) -> Self {
        beyond.release();
        beyond.clear();
        Self { fragments, next: 0, end: 0, came: 0 }
    }

    #[inline]
    pub(crate) const fn fragments(&self) -> &Fragments {
        &self.fragments
    }

    /// Returns the first missing position.
    pub(crate) const fn next(&self) -> u32 {
        self.next
    }

    /// Returns the number of positions that have arrived.
    pub(crate) const fn received_count(&self) -> u32 {
        self.came
    }

    #[inline]
    pub(crate) const fn is_whole(&self) -> bool {
        self.next == self.fragments.count()
    }

    /// Returns whether a later position has arrived although an earlier one is missing.
    #[inline]
    pub(crate) const fn has_holes(&self) -> bool {
        self.end > self.next
    }

    /// Returns whether the last position of the message has arrived.
    #[inline]
    pub(crate) const fn has_last(&self) -> bool {
        self.end == self.fragments.count()
    }

    /// Notes the arrival of a position.
    #[inline]
    pub(crate) fn receive(&mut self, position: u32, beyond: &mut PositionSet) -> PieceArrival {
        debug_assert!(position < self.fragments.count());
        if position == self.next {
            self.next += 1;
            self.came += 1;
            if self.end > self.next {
                self.advance(beyond);
            } else {
                self.end = self.next;
            }
            return PieceArrival::New;
        }
        if position < self.next {
            return PieceArrival::Duplicate;
        }
        if position - self.next >= SPAN {
            return PieceArrival::OutOfWindow;
        }
        if beyond.has(self.next, position) {
            return PieceArrival::Duplicate;
        }
        beyond.insert(self.next, position);
        self.came += 1;
        self.end = self.end.max(position + 1);
        PieceArrival::New
    }

    /// Advances `next` over positions that have already arrived.
    fn advance(&mut self, beyond: &mut PositionSet) {
        while self.next < self.end && beyond.has(self.next, self.next) {
            beyond.remove(self.next, self.next);
            self.next += 1;
        }
    }

    /// Writes the bitmap of the positions that arrived after the first missing one. Returns the first missing
    /// position, and the length of the bitmap in bytes. The length is zero if there are no holes.
    pub(crate) fn report(
        &self,
        beyond: &PositionSet,
        bitmap: &mut [u8; BITMAP_BYTES_MAX],
    ) -> (u32, usize) {
        (self.next, beyond.write(self.next, self.end, bitmap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_arrive_in_any_order_and_repeatedly() {
        let beyond = &mut PositionSet::default();
        let mut assembly = Assembly::new(Fragments::new(5 * 1024, 1024), beyond);
        assert_eq!(assembly.receive(4, beyond), PieceArrival::New);
        assert!(assembly.has_holes() && assembly.has_last());
        assert_eq!(assembly.receive(4, beyond), PieceArrival::Duplicate);
        assert_eq!(assembly.receive(0, beyond), PieceArrival::New);
        assert_eq!(assembly.receive(2, beyond), PieceArrival::New);
        let mut bitmap = [0; BITMAP_BYTES_MAX];
        assert_eq!(assembly.report(beyond, &mut bitmap), (1, 1));
        assert_eq!(bitmap[0], 0b1010);
        assert_eq!(assembly.receive(1, beyond), PieceArrival::New);
        assert_eq!(assembly.receive(0, beyond), PieceArrival::Duplicate);
        assert!(!assembly.is_whole());
        assert_eq!(assembly.receive(3, beyond), PieceArrival::New);
        assert!(assembly.is_whole() && !assembly.has_holes());
        assert_eq!(assembly.report(beyond, &mut bitmap), (5, 0));
    }

    #[test]
    fn positions_beyond_the_window_are_rejected() {
        let beyond = &mut PositionSet::default();
        let mut assembly = Assembly::new(Fragments::new(40_000 * 1040, 1040), beyond);
        assert_eq!(assembly.receive(1023, beyond), PieceArrival::New);
        assert_eq!(assembly.receive(SPAN, beyond), PieceArrival::OutOfWindow);
        assert_eq!(assembly.receive(SPAN - 1, beyond), PieceArrival::New);
        assert_eq!(assembly.receive(0, beyond), PieceArrival::New);
        assert_eq!(assembly.receive(SPAN, beyond), PieceArrival::New);
        assert_eq!(assembly.receive(1023, beyond), PieceArrival::Duplicate);
        let mut bitmap = [0; BITMAP_BYTES_MAX];
        assert_eq!(assembly.report(beyond, &mut bitmap), (1, BITMAP_BYTES_MAX));
        assert_eq!(assembly.received_count(), 4);
    }
}
