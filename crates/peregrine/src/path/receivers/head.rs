//! [`HeadWord`]: which receiving thread is the head of its socket.

use std::sync::atomic::{AtomicU64, Ordering};

/// Which thread is the head, and whether this thread runs a procedure. Both are in one word. When the head
/// returns from a procedure, a deputy may be about to replace it. The word decides which of the two threads
/// is the head then.
#[derive(Debug, Default)]
pub(super) struct HeadWord(AtomicU64);

/// The value of a [`HeadWord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeadState {
    /// The number of the thread that is the head, or zero if there is no head.
    pub(super) head: u32,
    /// A count that is odd while the head runs a procedure. The count is raised when the head begins a
    /// procedure. It is raised again when the procedure ends, or when a deputy replaces the head.
    pub(super) count: u32,
}

impl HeadWord {
    #[inline]
    pub(super) fn read(&self) -> HeadState {
        let word = self.0.load(Ordering::SeqCst);
        HeadState { head: (word >> 32) as u32, count: word as u32 }
    }

    /// Changes the word from one value to another. Returns false if the word does not have the value `from`
    /// now.
    #[inline]
    pub(super) fn change(&self, from: HeadState, to: HeadState) -> bool {
        let word = |state: HeadState| u64::from(state.head) << 32 | u64::from(state.count);
        let order = Ordering::SeqCst;
        self.0.compare_exchange(word(from), word(to), order, order).is_ok()
    }
}

impl HeadState {
    pub(super) const fn next(self) -> Self {
        Self { head: self.head, count: self.count.wrapping_add(1) }
    }

    pub(super) const fn is_away(self) -> bool {
        self.count % 2 == 1
    }
}
