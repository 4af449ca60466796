//! Whether the caller of a procedure that runs is still there.

use super::{ASK_EVERY, MILLISECOND, Moment, PendingAnswer, QUIET_MAX, ServerEnd, State};

/// Of a call that runs, nothing was heard for so long: the server asks. A client of this release asks
/// every 400 ms itself, ten percent more or less, so that it is never asked.
const QUIET: u64 = 500 * MILLISECOND;
/// A caller that has left so many questions unanswered is taken for gone, [`QUIET_MAX`] and so many
/// [`ASK_EVERY`] after it was last heard of: 2.5 seconds. If the first question comes after [`QUIET`],
/// the time that remains is added to the wait after the last one: an answer may take two seconds.
const ASKS_MAX: u8 = 5;

impl ServerEnd {
    /// Looks whether the caller of a procedure that runs is still there: perhaps there is a question
    /// to send. When it is to be looked after again; `None` if that is of no use, for this call.
    ///
    /// A caller that leaves its questions unanswered is taken for gone: its call is cancelled. It may
    /// have been halted only: its result is kept like any other's.
    pub(crate) fn check_caller(&mut self, now: Moment) -> Option<Moment> {
        if !matches!(self.state, State::Executing) || self.lost {
            return None;
        }
        let quiet = if self.answers_soon { QUIET_MAX } else { QUIET };
        let asked = u64::from(self.asked_ms) * MILLISECOND;
        let due = self.heard.after(match self.unanswered {
            0 => quiet,
            ASKS_MAX => asked + ASK_EVERY + (QUIET_MAX - quiet),
            _ => asked + ASK_EVERY,
        });
        if now < due {
            return Some(due);
        }
        if self.unanswered == ASKS_MAX {
            self.lost = true;
            return None;
        }
        self.unanswered += 1;
        self.asked_ms = u32::try_from(now.since(self.heard) / MILLISECOND).unwrap_or(u32::MAX);
        if self.pending == PendingAnswer::Nothing {
            self.pending = PendingAnswer::Ask;
        }
        Some(now.after(ASK_EVERY))
    }

    /// Whether nobody waits for the procedure that runs any more, as far as is known: its caller has
    /// given it up, has said goodbye, or is taken for gone.
    pub(crate) const fn is_cancelled(&self) -> bool {
        match self.state {
            State::Cancelled | State::Closing => true,
            State::Executing => self.lost,
            _ => false,
        }
    }

    /// The same of the call of that number.
    pub(crate) const fn is_call_cancelled(&self, sequence: u32) -> bool {
        self.is_cancelled() && self.sequence == sequence
    }

    /// Whether the caller was taken for gone during the record's call, and nobody came for the
    /// result yet if there is one.
    pub(crate) const fn is_caller_lost(&self) -> bool {
        self.lost && matches!(self.state, State::Executing | State::Replied(_))
    }
}
