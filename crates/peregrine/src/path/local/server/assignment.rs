//! `AssignmentWord`: which worker thread polls an A-stack (call frame). The word is private to the server. If
//! no worker polls an A-stack, the client rings: it sends a message that a call is posted.
//!
//! | from | to | by | when |
//! |---|---|---|---|
//! | `UNASSIGNED` | `QUEUED` | keeper | the client rang |
//! | `QUEUED` | `WORKER + n` | worker | worker `n` took the A-stack from the pool's queue |
//! | `QUEUED` | `UNASSIGNED` | any thread | the waiting call was refused, or the session has ended |
//! | `WORKER + n` | `QUEUED` | worker, keeper | the worker returned the A-stack, or another thread took it |
//! | `WORKER + n` | `UNASSIGNED` | worker | the worker stopped polling: the client rings for its next call |
//! | `WORKER + n` | `DEFERRED` | worker | the call on the A-stack is deferred, so its word must not change |
//! | `DEFERRED` | `UNASSIGNED`, `QUEUED` | any thread | the reply was sent; `QUEUED` if a call is posted |
//!
//! `AssignmentWord` is generic over the atomic word, so that a model checker can use its own word
//! (`handle/model.rs`).

use crate::path::local::region::word::{self, Atomic, Look};

/// No worker polls the A-stack, and the client has not rung.
const UNASSIGNED: u32 = 0;
/// The A-stack is in the pool's queue.
const QUEUED: u32 = 1;
/// No worker polls the A-stack: the call there is deferred, and any thread may send the reply.
const DEFERRED: u32 = u32::MAX;
/// The word is `WORKER + n` while worker `n` polls the A-stack.
const WORKER: u32 = 2;

/// Which worker polls an A-stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Assignment {
    /// No worker polls the A-stack, so the client rings for the next call.
    Unassigned,
    /// No worker polls the A-stack yet. The A-stack is in the pool's queue.
    Queued,
    /// The worker with this number polls the A-stack.
    Worker(u32),
    /// No worker polls the A-stack. The call on it is deferred.
    Deferred,
}

/// What the server must do because the client rang for an A-stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingAction {
    /// Put the A-stack into the queue. Only the thread that gets this result does so.
    Enqueue,
    /// Look for a free worker: the A-stack is in the queue already.
    FindWorker,
    /// Take the A-stack away from the worker with this number, which has not taken the call.
    Reassign(u32),
    /// The server need not do anything.
    Nothing,
}

/// The word that identifies the worker which polls an A-stack. Its initial value is `UNASSIGNED`.
#[derive(Default)]
pub(super) struct AssignmentWord<W>(W);

impl<W: Atomic> AssignmentWord<W> {
    pub(super) fn get(&self) -> Assignment {
        match self.0.load() {
            UNASSIGNED => Assignment::Unassigned,
            QUEUED => Assignment::Queued,
            DEFERRED => Assignment::Deferred,
            worker => Assignment::Worker(worker - WORKER),
        }
    }

    /// Sets the assignment, regardless of its previous value.
    pub(super) fn set(&self, to: Assignment) {
        self.0.store(match to {
            Assignment::Unassigned => UNASSIGNED,
            Assignment::Queued => QUEUED,
            Assignment::Deferred => DEFERRED,
            Assignment::Worker(number) => WORKER + number,
        });
    }

    /// Handles a ring for the A-stack. `call` is the call word of the A-stack. `last` is the value that this
    /// word had for the call that was taken last.
    pub(super) fn on_ring(&self, call: &impl Atomic, last: u32) -> RingAction {
        match self.get() {
            Assignment::Unassigned if self.0.exchange(UNASSIGNED, QUEUED) => RingAction::Enqueue,
            Assignment::Queued => RingAction::FindWorker,
            Assignment::Worker(number) if is_posted(call, last) => RingAction::Reassign(number),
            _ => RingAction::Nothing,
        }
    }

    /// Ends the assignment, so that the client rings for its next call. Returns false, and keeps the
    /// assignment, if a call was posted meanwhile and its ring has not put the A-stack into the queue.
    pub(super) fn clear(&self, call: &impl Atomic, last: u32) -> bool {
        let before = self.0.load();
        let Some(value) = without_call(call, last) else { return false };
        // This store comes before the change of the call word, because the client may ring as soon as the
        // call word has changed.
        self.0.store(UNASSIGNED);
        if word::mark_away(call, value) {
            return true;
        }
        // A call was posted. If its ring has put the A-stack into the queue already, another worker takes the
        // A-stack from there.
        !self.0.exchange(UNASSIGNED, before)
    }
}

/// Returns the value of a call word, or `None` if a new call is posted there.
fn without_call(call: &impl Atomic, last: u32) -> Option<u32> {
    match word::look(call, last) {
        Look::Posted(_) => None,
        Look::Nothing(value) => Some(value),
        // Only reply words are marked as dead, but a client may write any value to its call words. A thread
        // can sleep on any value that is not a call, and can mark the word as away.
        Look::Dead => Some(word::DEAD),
    }
}

/// Returns whether a call is posted that no thread has taken.
pub(super) fn is_posted(call: &impl Atomic, last: u32) -> bool {
    without_call(call, last).is_none()
}

/// Marks in the call word that a thread sleeps on the word. Returns false if a call was posted.
pub(super) fn mark_asleep(call: &impl Atomic, last: u32) -> bool {
    without_call(call, last).is_some_and(|value| word::mark_asleep(call, value))
}

/// Marks in the call word that a thread polls the word: a thread that was just assigned, or that has slept.
pub(super) fn mark_polled(call: &impl Atomic) {
    word::mark_present(call);
    word::mark_awake(call);
}
