//! [`Turn`]: which thread receives from a connection.

use core::sync::atomic::{AtomicU64, Ordering};

/// The state of a [`Turn`]: what attends to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(in crate::path) enum Attendant {
    /// No thread receives. The keeper watches the connection.
    Keeper = 0,
    /// The connection waits for a thread.
    Queue = 1,
    /// A thread receives.
    Reader = 2,
    /// A thread runs a procedure, and will receive again afterwards.
    Runner = 3,
}

/// The mask of the bits that contain the number of an [`Attendant`].
const WHO: u64 = 3;
/// The number that each change adds to the word. The bits above the mask thus count the changes.
const ONE: u64 = 4;

/// Which thread receives. The low bits of the word contain the [`Attendant`] of the connection. The other
/// bits count the changes of the word. With the count, a thread does not mistake a later call for an earlier
/// one.
#[derive(Debug, Default)]
pub(in crate::path) struct Turn {
    word: AtomicU64,
    /// The value of the word when the keeper last checked it.
    seen: AtomicU64,
}

/// A value of the word of a [`Turn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::path) struct Mark(u64);

impl Mark {
    const fn is(self, who: Attendant) -> bool {
        self.0 & WHO == who as u64
    }

    const fn next(self, who: Attendant) -> u64 {
        (self.0 & !WHO).wrapping_add(ONE) | who as u64
    }
}

impl Turn {
    /// Changes the attendant. Does nothing and returns false if the word has changed since `from` was read.
    pub(in crate::path) fn goes(&self, from: Mark, to: Attendant) -> bool {
        let to = from.next(to);
        self.word.compare_exchange(from.0, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Changes the attendant. Only a thread that has the turn may call this function: it receives from the
    /// connection, or runs a procedure. Returns the new value of the word.
    pub(in crate::path) fn set(&self, to: Attendant) -> Mark {
        let next = Mark(self.word.load(Ordering::Relaxed)).next(to);
        self.word.store(next, Ordering::Release);
        Mark(next)
    }

    /// Notes that bytes have arrived at a connection that the keeper watches. Returns true if the keeper must
    /// now queue the connection for a thread.
    pub(in crate::path) fn wakes(&self) -> bool {
        let before = self.mark();
        before.is(Attendant::Keeper) && self.goes(before, Attendant::Queue)
    }

    /// Returns whether the keeper watches the connection.
    pub(in crate::path) fn is_parked(&self) -> bool {
        self.mark().is(Attendant::Keeper)
    }

    /// Takes the turn from a thread that runs a procedure, so that this thread does not receive again after
    /// the procedure. Returns true if the turn was taken. The caller must then queue or watch the connection.
    pub(in crate::path) fn take_from_runner(&self) -> bool {
        let now = self.mark();
        now.is(Attendant::Runner) && self.goes(now, Attendant::Queue)
    }

    /// Returns whether a thread still runs the procedure that it ran when this function was last called. The
    /// keeper calls this function from time to time.
    pub(in crate::path) fn is_long(&self) -> bool {
        let now = self.mark();
        let before = self.seen.swap(now.0, Ordering::Relaxed);
        now.0 == before && now.is(Attendant::Runner)
    }

    fn mark(&self) -> Mark {
        Mark(self.word.load(Ordering::Acquire))
    }
}
