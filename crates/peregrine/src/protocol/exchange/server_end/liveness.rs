//! Checks a call whose procedure runs: whether its client is still alive, and whether the call is cancelled.

use super::{ASK_EVERY, MILLISECOND, Moment, PendingAnswer, QUIET_MAX, ServerEnd, State};

/// If the client is silent for this time during a call, the server asks whether the client is alive. A client
/// of this release sends its next probe 400 ms after each answer. So on a path with short round trips, the
/// server never asks such a client.
const QUIET: u64 = 500 * MILLISECOND;
/// The number of unanswered questions after which the server presumes a client dead. This happens 2.5 seconds
/// after the client's last packet: [`QUIET_MAX`], and one [`ASK_EVERY`] for each question. If the first
/// question was already sent after [`QUIET`], the wait after the last question is longer by the difference
/// between `QUIET_MAX` and `QUIET`. The client then has two seconds to answer the first question.
const ASKS_MAX: u8 = 5;

impl ServerEnd {
    /// Checks whether the client of a running procedure is alive, and may prepare a question to the client.
    /// Returns when to check again, or `None` if this call needs no further check.
    ///
    /// A client that answers no question is presumed dead, and its call is cancelled. The result is kept like
    /// any other result, because perhaps the client was only halted.
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

    /// Returns whether the running procedure is cancelled. It is cancelled if its client has cancelled the
    /// call, has sent a goodbye, or was presumed dead.
    pub(crate) const fn is_cancelled(&self) -> bool {
        match self.state {
            State::Cancelled | State::Closing => true,
            State::Executing => self.lost,
            _ => false,
        }
    }

    /// Returns whether the call that has this number is running and cancelled.
    pub(crate) const fn is_call_cancelled(&self, sequence: u32) -> bool {
        self.is_cancelled() && self.sequence == sequence
    }

    /// Returns whether the client was presumed dead during the record's call. Returns false if the call no
    /// longer runs and its result is no longer kept.
    pub(crate) const fn is_caller_lost(&self) -> bool {
        self.lost && matches!(self.state, State::Executing | State::Replied(_))
    }

    /// Returns the length in bytes of the message of the running call, without its extensions.
    pub(crate) fn running_bytes(&self) -> u32 {
        self.shape.total.saturating_sub(self.shape.extension.into())
    }
}
