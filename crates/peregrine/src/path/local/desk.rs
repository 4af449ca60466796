//! The words of a desk: how a thread that attends to A-stacks is reached by threads that want it.
//!
//! | word | written by | meaning |
//! |---|---|---|
//! | `current` | the thread | the A-stack whose call it runs, by key; zero while it looks around |
//! | `changed` | others | the desk's set of A-stacks is another one: look there before the next call |
//! | `hungry` | others | something that the thread may take waits in the pool's queue, or the pool stops |
//! | `up` | both | the thread is neither asleep nor about to be |
//! | `bell` | others | each change ends the thread's sleep |
//!
//! Two questions are answered here, and checked in every interleaving by a model (see the tests):
//!
//! * Who takes a call that is posted at an A-stack of this desk, while another thread takes the A-stack
//!   away? Exactly one of both: see [`Words::begins`] and [`Words::runs_another`].
//! * Does a thread that falls asleep miss something that came into the queue? It looks into the queue and
//!   [lies down](Words::lie_down) under the queue's lock, and a thread that put something there
//!   [rings](Words::ring), under the same lock, for a thread that is not up.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence};

use crate::sys;

/// An atomic word, so that a model checker can bring its own.
pub(crate) trait Word<T>: Default {
    /// Relaxed.
    fn peek(&self) -> T;
    /// Sequentially consistent.
    fn load(&self) -> T;
    /// Release.
    fn release(&self, value: T);
    /// Sequentially consistent.
    fn store(&self, value: T);
}

/// A word on which a thread sleeps.
pub(crate) trait Bell: Default {
    fn heard(&self) -> u32;
    /// Changes the word and wakes the thread that sleeps on it.
    fn ring(&self);
}

/// What the words are made of.
pub(crate) trait Machine {
    type Key: Word<u64>;
    type Flag: Word<bool>;
    type Bell: Bell;
    /// Keeps the compiler from exchanging what stands before and after it.
    fn keep_order();
    /// The same for every other processor, and what they have in store. Returns false if the machine has
    /// no such barrier.
    fn barrier() -> bool;
}

/// This machine.
#[derive(Debug)]
pub(crate) enum Hardware {}

macro_rules! word {
    ($atomic:ty, $value:ty) => {
        impl Word<$value> for $atomic {
            #[inline(always)]
            fn peek(&self) -> $value {
                self.load(Ordering::Relaxed)
            }
            #[inline(always)]
            fn load(&self) -> $value {
                self.load(Ordering::SeqCst)
            }
            #[inline(always)]
            fn release(&self, value: $value) {
                self.store(value, Ordering::Release);
            }
            #[inline(always)]
            fn store(&self, value: $value) {
                self.store(value, Ordering::SeqCst);
            }
        }
    };
}
word!(AtomicBool, bool);
word!(AtomicU64, u64);

impl Bell for AtomicU32 {
    fn heard(&self) -> u32 {
        self.load(Ordering::SeqCst)
    }
    fn ring(&self) {
        self.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(self);
    }
}

impl Machine for Hardware {
    type Key = AtomicU64;
    type Flag = AtomicBool;
    type Bell = AtomicU32;
    #[inline(always)]
    fn keep_order() {
        compiler_fence(Ordering::SeqCst);
    }
    fn barrier() -> bool {
        sys::membarrier()
    }
}

/// The words of a desk.
pub(crate) struct Words<M: Machine = Hardware> {
    current: M::Key,
    changed: M::Flag,
    hungry: M::Flag,
    up: M::Flag,
    bell: M::Bell,
}

impl<M: Machine> Default for Words<M> {
    /// Those of a thread that is about to sit down.
    fn default() -> Self {
        let up = M::Flag::default();
        up.store(true);
        Self {
            current: Default::default(),
            changed: Default::default(),
            hungry: Default::default(),
            up,
            bell: Default::default(),
        }
    }
}

/// What other threads do.
impl<M: Machine> Words<M> {
    /// Returns whether the thread looks around now, and will see what is new in the pool's queue.
    pub(crate) fn looks_around(&self) -> bool {
        self.is_up() && self.current.load() == 0
    }

    /// Returns whether the thread is awake, looking around or running a procedure.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load()
    }

    /// Wakes the thread, if it sleeps.
    pub(crate) fn ring(&self) {
        self.up.store(true);
        self.bell.ring();
    }

    /// Tells the thread whether there is something to take from the pool's queue.
    pub(crate) fn make_hungry(&self, hungry: bool) {
        self.hungry.store(hungry);
    }

    /// Makes the thread look what has changed before it begins another call.
    pub(super) fn change(&self) {
        self.changed.store(true);
    }

    /// Returns the key of the call that the thread runs, or zero.
    pub(super) fn current(&self) -> u64 {
        self.current.load()
    }

    /// Announces a change of the desk's set, whose lock the caller holds. Returns which A-stack's call the
    /// thread runs, if it is another one than `key`: then it begins none of the others before it has seen
    /// the change, and they can be taken away. `None` if it looks around, and will see by itself what is
    /// posted.
    ///
    /// The thread notes which A-stack it serves, then looks whether its set has changed, and only then
    /// takes the call. Here it is the other way round: first the change is announced, then, after a barrier
    /// on every processor, the note is read. If the note names another A-stack, the thread has yet to
    /// write the next one, and sees the announcement after that.
    // SYNC: desk, the other half is in `begins`.
    pub(super) fn runs_another(&self, key: u64) -> Option<u64> {
        self.change();
        if !M::barrier() {
            return None;
        }
        let current = self.current();
        (current != 0 && current != key).then_some(current)
    }
}

/// What the thread itself does.
impl<M: Machine> Words<M> {
    /// Notes that a call of this A-stack begins. Returns false, and notes that none does, if the set of the
    /// desk has changed.
    // SYNC: desk, the other half is in `runs_another`. What was taken before is seen by a thread that sees
    // this, and takes over.
    #[inline(always)]
    pub(super) fn begins(&self, key: u64) -> bool {
        self.current.release(key);
        M::keep_order();
        if self.changed.peek() {
            self.ends();
            return false;
        }
        true
    }

    /// Notes that no call runs.
    #[inline(always)]
    pub(super) fn ends(&self) {
        self.current.release(0);
    }

    /// Returns whether the set of the desk has changed.
    pub(super) fn has_changed(&self) -> bool {
        // SYNC: desk. That the thread serves nothing is noted before this is read.
        M::keep_order();
        self.changed.load()
    }

    /// Notes, under the lock of the set, that the thread sees it as it is now.
    pub(super) fn saw_change(&self) {
        self.changed.store(false);
    }

    /// Returns whether the thread was told that there is something to take from the pool's queue. It asks
    /// after each look.
    #[inline(always)]
    pub(super) fn feels_hungry(&self) -> bool {
        self.hungry.peek()
    }

    /// The same, for a thread that stops looking.
    pub(crate) fn is_hungry(&self) -> bool {
        self.hungry.load()
    }

    /// Notes that the thread is about to sleep, and returns from which ring of the bell on it will not. It
    /// holds the lock of the pool's queue, in which there is nothing for it.
    pub(super) fn lie_down(&self) -> u32 {
        let heard = self.bell.heard();
        self.up.store(false);
        heard
    }

    /// Returns whether the bell has rung since the thread [lay down](Self::lie_down).
    pub(super) fn was_rung(&self, heard: u32) -> bool {
        self.bell.heard() != heard
    }

    /// The word to sleep on, as long as it has the value that `lie_down` returned.
    pub(super) const fn bell(&self) -> &M::Bell {
        &self.bell
    }

    /// Notes that the thread is awake.
    pub(super) fn rise(&self) {
        self.up.store(true);
    }
}

#[cfg(test)]
mod model;
