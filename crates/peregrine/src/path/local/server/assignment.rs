//! `Attention`: which thread attends to an A-stack. Only the server has this word.
//!
//! | from | to | by | when |
//! |---|---|---|---|
//! | `IDLE` | `QUEUED` | keeper | the client rang |
//! | `QUEUED` | `ATTENDED + n` | thread | it took the A-stack from the pool's queue to its desk `n` |
//! | `ATTENDED + n` | `QUEUED` | thread, keeper | it gave the A-stack away, or was relieved of it |
//! | `ATTENDED + n` | `IDLE` | thread | it left the A-stack to the next ring |
//!
//! The words are generic, so that a model checker can bring its own (`desk/model.rs`).

use crate::path::local::region::word::{self, Atomic, Look};

/// No thread attends to the A-stack, and none was asked for.
const IDLE: u32 = 0;
/// It waits in the pool's queue.
const QUEUED: u32 = 1;
/// The thread at desk `n` attends to it, if it is this plus `n`.
const ATTENDED: u32 = 2;

/// Who attends to an A-stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attendance {
    /// Nobody: a call rings.
    Idle,
    /// A thread has been asked for.
    Queued,
    /// The thread at this desk.
    At(u32),
}

/// What the server has to do for a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Put the A-stack into the queue. No other thread does.
    Enqueue,
    /// See whether a thread is free: the A-stack is in the queue already.
    Again,
    /// Relieve the thread at this desk, which has not taken the call.
    Relieve(u32),
    /// Nothing.
    Nothing,
}

/// The word that says which thread attends to an A-stack: none at first.
#[derive(Default)]
pub(super) struct Attention<W>(W);

impl<W: Atomic> Attention<W> {
    pub(super) fn by(&self) -> Attendance {
        match self.0.load() {
            IDLE => Attendance::Idle,
            QUEUED => Attendance::Queued,
            desk => Attendance::At(desk - ATTENDED),
        }
    }

    /// Notes who attends to it, whoever did before.
    pub(super) fn note(&self, by: Attendance) {
        self.0.store(match by {
            Attendance::Idle => IDLE,
            Attendance::Queued => QUEUED,
            Attendance::At(desk) => ATTENDED + desk,
        });
    }

    /// The client rings for its A-stack, where `seen` is the call that was taken last.
    pub(super) fn ring(&self, call: &impl Atomic, seen: u32) -> Asked {
        match self.by() {
            Attendance::Idle if self.0.exchange(IDLE, QUEUED) => Asked::Enqueue,
            Attendance::Queued => Asked::Again,
            Attendance::At(desk) if is_posted(call, seen) => Asked::Relieve(desk),
            _ => Asked::Nothing,
        }
    }

    /// Leaves an A-stack to the next ring; false if a call has come meanwhile: then it is still
    /// whose it was.
    pub(super) fn leave(&self, call: &impl Atomic, seen: u32) -> bool {
        let before = self.0.load();
        let Some(value) = quiet(call, seen) else { return false };
        // Before the word says so: a ring may come at once.
        self.0.store(IDLE);
        if word::leave(call, value) {
            return true;
        }
        // If it is in the queue already, whoever takes it from there attends to it.
        !self.0.exchange(IDLE, before)
    }
}

/// The call word as it is, while no call is posted there.
fn quiet(call: &impl Atomic, seen: u32) -> Option<u32> {
    match word::look(call, seen) {
        Look::Posted(_) => None,
        Look::Nothing(value) => Some(value),
        // Nobody buries a call word. A client that scribbles may write what it likes there: if
        // it is no call, one can sleep on it and leave it like anything else.
        Look::Dead => Some(word::DEAD),
    }
}

/// Whether a call is posted there that nobody has taken yet.
pub(super) fn is_posted(call: &impl Atomic, seen: u32) -> bool {
    quiet(call, seen).is_none()
}

/// The word says from now on that a thread sleeps on it; false if a call has come.
pub(super) fn doze(call: &impl Atomic, seen: u32) -> bool {
    quiet(call, seen).is_some_and(|value| word::fall_asleep(call, value))
}

/// The thread has come to look at it, or looks again.
pub(super) fn watch(call: &impl Atomic) {
    word::come(call);
    word::rouse(call);
}
