//! Ends calls without a result, and decides whether such a call may have been executed.

use super::{
    ClientEnd, DropReason, Executed, FailureReason, Flags, Handled, Header, MILLISECOND, Moment,
    NEVER, Outcome, PendingControl, State,
};

/// After this number of consecutive ICMP refusals, the client concludes that the machine runs no server.
const UNREACHABLE_MAX: u8 = 3;
/// After a hint that the server is gone, the client waits for its answer this long in addition to two round
/// trips, in nanoseconds.
const HINT_PATIENCE: u64 = 5 * MILLISECOND;

/// Refusals without a proof that the server sent them, such as ICMP errors.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unproven {
    /// The number of consecutive refusals.
    pub(super) count: u8,
    /// The serial of the packet that was refused last.
    serial: u16,
    /// Whether they are only hints, because the server proves its packets.
    only_hints: bool,
}

impl ClientEnd {
    /// Handles a refusal by the server. The server does not know the handle, so it executes no later packet
    /// that has this handle.
    ///
    /// If nothing of the call was sent, the call was not executed. Otherwise this is certain only under three
    /// conditions:
    ///
    /// - The server has not reported that it has the whole call.
    /// - The refusal comes from the table that granted the handle.
    /// - The generation of the handle's place has not changed since the grant.
    ///
    /// The generation counts the results that the server has discarded at this place. When the server forgets
    /// the record of an executed call, it raises the generation, unless the client has the result or has
    /// cancelled the call. If the server refused only because of the client's address, the refusal proves
    /// nothing.
    pub(super) fn handle_refusal(&mut self, header: &Header) -> Handled {
        if header.sequence != self.sequence {
            return Handled::Dropped(DropReason::Late);
        }
        let elsewhere = header.flags.has(Flags::ELSEWHERE);
        let is_sending = matches!(self.state, State::Sending { .. });
        let same = header.table() == self.terms.table && header.generation() == self.generation;
        let executed =
            if is_sending && same && !elsewhere { Executed::No } else { Executed::Maybe };
        self.fail(
            executed,
            if elsewhere { FailureReason::AddressChanged } else { FailureReason::Refused },
        );
        Handled::Nothing
    }

    /// Ends the call that is in progress, if there is one, and closes the handle.
    pub(super) fn fail(&mut self, executed: Executed, why: FailureReason) {
        if self.is_in_progress() {
            let executed = if self.sent { executed } else { Executed::No };
            self.outcome = Some(Outcome::Failed { executed, why });
        }
        self.state = State::Closed;
        // If the server is alive but hard to reach, the goodbye cancels the call on the server.
        self.pending = if matches!(why, FailureReason::Dead) {
            PendingControl::Bye
        } else {
            PendingControl::Nothing
        };
        self.due = NEVER;
    }

    /// Treats refusals without a proof as hints, because the server proves its packets. A hint ends no call:
    /// it only shortens the wait for the answer to the current question.
    pub(crate) fn take_refusals_as_hints(&mut self) {
        self.unreachable.only_hints = true;
    }

    /// Notes a refusal without a proof that the server sent it: an ICMP error of its machine, or a packet in
    /// clear from a server that proves its packets.
    pub(crate) fn note_unreachable(&mut self, now: Moment) {
        if !self.is_in_progress() && !matches!(self.state, State::Cancelling) {
            return;
        }
        if self.unreachable.only_hints {
            // The question is unanswered if the answer does not arrive soon, and counts like a question after
            // which the client has waited for the longest interval. An answer that is on its way arrives
            // before.
            let patience = 2 * self.rtt.expected_answer() + HINT_PATIENCE;
            self.interval = self.rtt.probe_interval_max();
            self.due = self.due.min(now.after(patience));
            return;
        }
        let Unproven { count, serial, .. } = self.unreachable;
        if count == 0 || serial != self.serial {
            (self.unreachable.count, self.unreachable.serial) = (count + 1, self.serial);
        }
        if self.unreachable.count >= UNREACHABLE_MAX {
            // The server may have executed the call before the server process ended.
            self.fail(Executed::Maybe, FailureReason::Unreachable);
        }
    }

    /// Ends the call. The driver, the code that sends and receives the packets, knows that no packet can
    /// arrive on this handle any more.
    pub(crate) fn fail_unreachable(&mut self) {
        self.fail(Executed::Maybe, FailureReason::Unreachable);
    }

    /// Cancels the call. The call ends at once. The handle is captured: no other call can use it until the
    /// server has released the cancelled call.
    ///
    /// The handle is also captured if only a probe was sent. If the handle were free, each of several calls
    /// with short time limits would begin to probe anew. Then no call would discover that the server is
    /// silent.
    pub(crate) fn cancel(&mut self, now: Moment) {
        if !self.is_in_progress() {
            return;
        }
        if !self.sent && !matches!(self.state, State::Probing { .. }) {
            // No packet has contained the number of this call, so the next call uses the same number.
            let (executed, why) = (Executed::No, FailureReason::Cancelled);
            self.outcome = Some(Outcome::Failed { executed, why });
            self.sequence = self.sequence.wrapping_sub(1);
            self.state = State::AckPending;
            self.due = NEVER;
            return;
        }
        self.cancel_because(now, FailureReason::Cancelled);
    }

    pub(super) fn cancel_because(&mut self, now: Moment, why: FailureReason) {
        let executed = if self.sent { Executed::Maybe } else { Executed::No };
        self.outcome = Some(Outcome::Failed { executed, why });
        self.state = State::Cancelling;
        self.unanswered = 0;
        self.calm = self.rtt.probe_interval_max();
        self.ask_again(now, PendingControl::Cancel);
    }

    /// Closes the handle, and sends a goodbye to the server. If a call is in progress, it fails, and the
    /// server cancels it. The client no longer waits for the release of a cancelled call.
    pub(crate) fn close(&mut self) {
        if self.is_closed() {
            return;
        }
        self.fail(Executed::Maybe, FailureReason::Cancelled);
        self.pending = PendingControl::Bye;
    }
}
