//! How a call ends without a result, and whether it may have run.

use super::{
    Caller, Dropped, Executed, Flags, Handled, Header, Moment, NEVER, Outcome, Owed, State, Why,
};

/// A server's machine that refused so many of our packets in a row has no server.
const UNREACHABLE_MAX: u8 = 3;

impl Caller {
    /// The server does not know the handle: nothing of it will ever run there any more.
    ///
    /// If nothing of the call was sent, it did not run. Otherwise that is certain only if the table
    /// that granted the handle says so, and its place has not forgotten a result since: a record whose
    /// call ran is forgotten with its result, unless its client has the result or gave the call up.
    pub(super) fn refused(&mut self, header: &Header) -> Handled {
        if header.sequence != self.sequence {
            return Handled::Dropped(Dropped::Late);
        }
        let elsewhere = header.flags.has(Flags::ELSEWHERE);
        let unheard = matches!(self.state, State::Calling { .. });
        let same = header.table() == self.terms.table && header.generation() == self.generation;
        let executed = if unheard && same && !elsewhere { Executed::No } else { Executed::Maybe };
        self.fail(executed, if elsewhere { Why::Elsewhere } else { Why::Refused });
        Handled::Nothing
    }

    /// The call, if one is under way, is over, and with it the handle.
    pub(super) fn fail(&mut self, executed: Executed, why: Why) {
        if self.is_under_way() {
            let executed = if self.sent { executed } else { Executed::No };
            self.outcome = Some(Outcome::Failed { executed, why });
        }
        self.state = State::Gone;
        // A server that is only hard to hear need not run the call to its end.
        self.owed = if matches!(why, Why::Dead) { Owed::Bye } else { Owed::Nothing };
        self.due = NEVER;
    }

    /// The server's machine says that nobody takes our packets there (an ICMP error).
    pub(crate) fn unreachable(&mut self) {
        if !self.is_under_way() && !matches!(self.state, State::Quitting) {
            return;
        }
        let (count, serial) = self.unreachable;
        if count == 0 || serial != self.serial {
            self.unreachable = (count + 1, self.serial);
        }
        if self.unreachable.0 >= UNREACHABLE_MAX {
            // Whoever took an earlier packet may have run the call and ended since.
            self.fail(Executed::Maybe, Why::Unreachable);
        }
    }

    /// The driver knows that nothing can arrive on this handle any more.
    pub(crate) fn cut_off(&mut self) {
        self.fail(Executed::Maybe, Why::Unreachable);
    }

    /// Gives the call up: it ends now. The handle is captured until the server has let go of it.
    ///
    /// This is also so if the server was only asked whether it still knows the handle. Otherwise calls
    /// with short limits would each ask anew, and no number of them would find out that the server is
    /// silent.
    pub(crate) fn quit(&mut self, now: Moment) {
        if !self.is_under_way() {
            return;
        }
        if !self.sent && !matches!(self.state, State::Asking { .. }) {
            // No packet named the call: its number is used again.
            let (executed, why) = (Executed::No, Why::Quit);
            self.outcome = Some(Outcome::Failed { executed, why });
            self.sequence = self.sequence.wrapping_sub(1);
            self.state = State::Owing;
            self.due = NEVER;
            return;
        }
        self.give_up(now, Why::Quit);
    }

    pub(super) fn give_up(&mut self, now: Moment, why: Why) {
        let executed = if self.sent { Executed::Maybe } else { Executed::No };
        self.outcome = Some(Outcome::Failed { executed, why });
        self.state = State::Quitting;
        self.unanswered = 0;
        self.calm = self.rtt.patience();
        self.ask(now, Owed::Quit);
    }

    /// Says that the handle is not needed any more. A call that is under way fails, and the server
    /// cancels it, as it does one that was given up and that it has not let go of.
    pub(crate) fn bye(&mut self) {
        if self.is_gone() {
            return;
        }
        self.fail(Executed::Maybe, Why::Quit);
        self.owed = Owed::Bye;
    }
}
