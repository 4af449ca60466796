//! The receiving end of a message: which positions came, and what to say of the others.

use super::header::BITMAP_BYTES_MAX;
use super::message::Fragments;
use super::positions::{PositionSet, SPAN};

/// What a position means to an assembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceArrival {
    /// It was missing.
    New,
    /// It was there already.
    Duplicate,
    /// Further ahead than a sender may be that knows what we have.
    OutOfWindow,
}

/// What of a message is here.
///
/// What came beyond the first hole stands in [`Positions`] that the owner keeps and lends, because a
/// side sends or receives at one time, and its record is to be small. A message of one packet needs
/// no assembly at all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assembly {
    fragments: Fragments,
    /// All positions below are here.
    next: u32,
    /// No position from here on is.
    end: u32,
    /// How many are here.
    came: u32,
}

impl Assembly {
    /// Nothing of it is here yet.
    pub(crate) fn new(fragments: Fragments, beyond: &mut PositionSet) -> Self {
        beyond.release();
        beyond.clear();
        Self { fragments, next: 0, end: 0, came: 0 }
    }

    #[inline]
    pub(crate) const fn fragments(&self) -> &Fragments {
        &self.fragments
    }

    /// All positions below are here.
    pub(crate) const fn next(&self) -> u32 {
        self.next
    }

    /// How many positions are here.
    pub(crate) const fn received_count(&self) -> u32 {
        self.came
    }

    #[inline]
    pub(crate) const fn is_whole(&self) -> bool {
        self.next == self.fragments.count()
    }

    /// Whether positions are missing before some that came.
    #[inline]
    pub(crate) const fn has_holes(&self) -> bool {
        self.end > self.next
    }

    /// Whether the last position, the end of the blast, is here.
    #[inline]
    pub(crate) const fn has_last(&self) -> bool {
        self.end == self.fragments.count()
    }

    /// A position comes.
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

    /// Moves on over what came early.
    fn advance(&mut self, beyond: &mut PositionSet) {
        while self.next < self.end && beyond.has(self.next, self.next) {
            beyond.remove(self.next, self.next);
            self.next += 1;
        }
    }

    /// What to say of it: the first position that is missing, and the bytes of a bitmap of those
    /// that are here beyond it, none if there are no holes.
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
    fn positions_come_in_any_order_and_again() {
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
    fn what_is_too_far_ahead_is_not_taken() {
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
