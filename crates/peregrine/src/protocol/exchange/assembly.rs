//! The receiving end of a message: which positions came, and what to say of the others.

use super::header::BITMAP_BYTES_MAX;
use super::message::Cut;
use super::positions::{Positions, SPAN};

/// What a position means to an assembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It was missing.
    New,
    /// It was there already.
    Again,
    /// Further ahead than a sender may be that knows what we have.
    Beyond,
}

/// What of a message is here.
///
/// What came beyond the first hole stands in [`Positions`] that the owner keeps and lends, because a
/// side sends or receives at one time, and its record is to be small. A message of one packet needs
/// no assembly at all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assembly {
    cut: Cut,
    /// All positions below are here.
    next: u32,
    /// No position from here on is.
    end: u32,
    /// How many are here.
    came: u32,
}

impl Assembly {
    /// Nothing of it is here yet.
    pub(crate) fn new(cut: Cut, beyond: &mut Positions) -> Self {
        beyond.release();
        beyond.clear();
        Self { cut, next: 0, end: 0, came: 0 }
    }

    #[inline]
    pub(crate) const fn cut(&self) -> &Cut {
        &self.cut
    }

    /// All positions below are here.
    pub(crate) const fn next(&self) -> u32 {
        self.next
    }

    /// How many positions are here.
    pub(crate) const fn came(&self) -> u32 {
        self.came
    }

    #[inline]
    pub(crate) const fn is_whole(&self) -> bool {
        self.next == self.cut.count()
    }

    /// Whether positions are missing before some that came.
    #[inline]
    pub(crate) const fn has_holes(&self) -> bool {
        self.end > self.next
    }

    /// Whether the last position, the end of the blast, is here.
    #[inline]
    pub(crate) const fn has_last(&self) -> bool {
        self.end == self.cut.count()
    }

    /// A position comes.
    #[inline]
    pub(crate) fn receive(&mut self, position: u32, beyond: &mut Positions) -> Arrival {
        debug_assert!(position < self.cut.count());
        if position == self.next {
            self.next += 1;
            self.came += 1;
            if self.end > self.next {
                self.close_up(beyond);
            } else {
                self.end = self.next;
            }
            return Arrival::New;
        }
        if position < self.next {
            return Arrival::Again;
        }
        if position - self.next >= SPAN {
            return Arrival::Beyond;
        }
        if beyond.has(self.next, position) {
            return Arrival::Again;
        }
        beyond.insert(self.next, position);
        self.came += 1;
        self.end = self.end.max(position + 1);
        Arrival::New
    }

    /// Moves on over what came early.
    fn close_up(&mut self, beyond: &mut Positions) {
        while self.next < self.end && beyond.has(self.next, self.next) {
            beyond.remove(self.next, self.next);
            self.next += 1;
        }
    }

    /// What to say of it: the first position that is missing, and the bytes of a bitmap of those
    /// that are here beyond it, none if there are no holes.
    pub(crate) fn report(
        &self,
        beyond: &Positions,
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
        let beyond = &mut Positions::default();
        let mut assembly = Assembly::new(Cut::new(5 * 1024, 1024), beyond);
        assert_eq!(assembly.receive(4, beyond), Arrival::New);
        assert!(assembly.has_holes() && assembly.has_last());
        assert_eq!(assembly.receive(4, beyond), Arrival::Again);
        assert_eq!(assembly.receive(0, beyond), Arrival::New);
        assert_eq!(assembly.receive(2, beyond), Arrival::New);
        let mut bitmap = [0; BITMAP_BYTES_MAX];
        assert_eq!(assembly.report(beyond, &mut bitmap), (1, 1));
        assert_eq!(bitmap[0], 0b1010);
        assert_eq!(assembly.receive(1, beyond), Arrival::New);
        assert_eq!(assembly.receive(0, beyond), Arrival::Again);
        assert!(!assembly.is_whole());
        assert_eq!(assembly.receive(3, beyond), Arrival::New);
        assert!(assembly.is_whole() && !assembly.has_holes());
        assert_eq!(assembly.report(beyond, &mut bitmap), (5, 0));
    }

    #[test]
    fn what_is_too_far_ahead_is_not_taken() {
        let beyond = &mut Positions::default();
        let mut assembly = Assembly::new(Cut::new(40_000 * 1040, 1040), beyond);
        assert_eq!(assembly.receive(1023, beyond), Arrival::New);
        assert_eq!(assembly.receive(SPAN, beyond), Arrival::Beyond);
        assert_eq!(assembly.receive(SPAN - 1, beyond), Arrival::New);
        assert_eq!(assembly.receive(0, beyond), Arrival::New);
        assert_eq!(assembly.receive(SPAN, beyond), Arrival::New);
        assert_eq!(assembly.receive(1023, beyond), Arrival::Again);
        let mut bitmap = [0; BITMAP_BYTES_MAX];
        assert_eq!(assembly.report(beyond, &mut bitmap), (1, BITMAP_BYTES_MAX));
        assert_eq!(assembly.came(), 4);
    }
}
