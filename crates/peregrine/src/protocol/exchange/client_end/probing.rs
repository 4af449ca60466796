//! How the client end reacts to silence. It probes, retransmits, tries smaller pieces, and finally presumes
//! the server dead. A piece is the part of a message that one packet carries.

use super::{
    Blast, ClientEnd, Executed, FailureReason, Flags, Fragments, Moment, PIECE_MIN, PendingControl,
    State, message,
};

/// After this number of consecutive unanswered probes, the client presumes the server dead. For the answer to
/// each of these probes, the client waits `Rtt::probe_interval_max`.
const UNANSWERED_MAX: u8 = 10;
/// The largest number of consecutive rounds of retransmission in which no piece arrives. After one more such
/// round, the client tries smaller pieces.
const FRUITLESS_MAX: u8 = 3;

impl ClientEnd {
    /// Continues the count of retransmissions of another handle, which this one replaces.
    pub(crate) const fn with_retransmissions(mut self, before: &Self) -> Self {
        self.retransmissions = before.retransmissions;
        self
    }

    /// Returns how many packets of calls this client has sent again, in all calls. The count wraps around.
    pub(crate) const fn retransmissions(&self) -> u32 {
        self.retransmissions
    }

    /// Sets the shortest silence after which the client sends the first probe of a call.
    pub(crate) fn ask_after(&mut self, nanoseconds: u64) {
        self.rtt.set_wait_min(nanoseconds);
    }

    /// Sets the time at which the last packet of the server arrived. For a new handle, this is the time of
    /// the packet that granted the handle.
    pub(crate) fn set_last_heard(&mut self, now: Moment) {
        self.heard = now;
    }

    /// Retransmits missing positions, after the client has waited for late packets.
    pub(super) fn retransmit_missing(&mut self, now: Moment) {
        let State::Sending { blast, held } = &mut self.state else { return };
        *held = false;
        let fruitless = if blast.had() > self.had { 0 } else { self.fruitless + 1 };
        (self.had, self.fruitless) = (blast.had(), fruitless);
        if self.try_smaller_piece(self.shape.total) {
            self.had = 0;
            let fragments = Fragments::new(self.shape.total, self.piece);
            self.state = State::Sending { blast: Blast::resent(fragments), held: false };
        } else if self.fruitless > FRUITLESS_MAX + UNANSWERED_MAX {
            // The server answers, but none of the retransmitted pieces of the call arrives at the server.
            return self.fail(Executed::Maybe, FailureReason::Dead);
        }
        self.interval = (self.rtt.wait() << self.fruitless).min(self.rtt.probe_interval_max());
        self.due = now.after(self.interval);
    }

    /// Requests the missing pieces of the result. After a longer silence, the client also asks for the state
    /// of the call. If the server answers this question, but no piece arrives, the path is not interrupted.
    /// In that case the path seems to lose all full pieces.
    pub(super) fn request_result(&mut self, now: Moment) {
        let long = self.unanswered > 0;
        self.ask_again(
            now,
            if long {
                PendingControl::ReportAndProbe
            } else {
                PendingControl::Report(Flags::REPORT)
            },
        );
    }

    /// Notes that the server answers, although no piece of the requested result arrives.
    pub(super) fn note_result_withheld(&mut self, now: Moment) {
        self.fruitless += 1;
        let total = match self.state {
            State::Receiving { .. } => self.result.total,
            // The length of the result is not known yet, and may be large.
            _ => u32::MAX,
        };
        if self.try_smaller_piece(total) {
            // The server cuts the result into smaller pieces. Larger pieces that have arrived are
            // discarded.
            self.state = State::Replied;
        } else if self.fruitless > FRUITLESS_MAX + UNANSWERED_MAX {
            return self.fail(Executed::Maybe, FailureReason::Dead);
        }
        self.ask_again(now, PendingControl::Report(Flags::REPORT));
    }

    /// Reduces the size of pieces after enough rounds in which no piece arrived, because a link on the path
    /// may lose all full pieces. Returns whether the size was reduced.
    fn try_smaller_piece(&mut self, total: u32) -> bool {
        if self.fruitless <= FRUITLESS_MAX || total <= PIECE_MIN {
            return false;
        }
        let Some(piece) = message::smaller_piece(self.piece) else { return false };
        (self.piece, self.fruitless) = (piece, 0);
        true
    }

    /// Sends a control packet again. If too many control packets were unanswered, presumes the server dead
    /// instead.
    pub(super) fn ask_again(&mut self, now: Moment, what: PendingControl) {
        if self.unanswered >= UNANSWERED_MAX {
            self.fail(Executed::Maybe, FailureReason::Dead);
            return;
        }
        self.pending = what;
        let patience = self.rtt.probe_interval_max();
        self.interval = match self.state {
            State::Executing | State::Cancelling => patience,
            _ => (self.interval * 2).min(patience),
        };
        // The first intervals are short. A question counts as unanswered only if the longest interval
        // follows it.
        if self.interval == patience {
            self.unanswered += 1;
        }
        self.due = now.after(self.jittered(self.interval));
    }

    /// Changes an interval randomly by up to ten percent, so that clients that began at the same time do not
    /// stay synchronized. The result is at least the usual time until an answer.
    fn jittered(&mut self, interval: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let jittered = interval / 10 * 9 + self.random % (interval / 5).max(1);
        jittered.max(self.rtt.expected_answer())
    }
}
