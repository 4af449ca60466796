//! What a caller asks when nothing comes, and what it concludes.

use super::{Blast, Caller, Cut, Executed, Flags, Moment, Owed, PIECE_MIN, State, Why, message};

/// A server that left so many questions in a row unanswered, each for [`Rtt::patience`], is dead.
const UNANSWERED_MAX: u8 = 10;
/// After so many rounds in which nothing of what was sent arrived, smaller pieces are tried.
const FRUITLESS_MAX: u8 = 3;

impl Caller {
    /// Late packets had their time: what is missing goes out again.
    pub(super) fn send_again(&mut self, now: Moment) {
        let State::Calling { blast, held } = &mut self.state else { return };
        *held = false;
        let fruitless = if blast.had() > self.had { 0 } else { self.fruitless + 1 };
        (self.had, self.fruitless) = (blast.had(), fruitless);
        if self.is_in_vain(self.shape.total) {
            self.had = 0;
            let cut = Cut::new(self.shape.total, self.piece);
            self.state = State::Calling { blast: Blast::anew(cut), held: false };
        } else if self.fruitless > FRUITLESS_MAX + UNANSWERED_MAX {
            // It answers, and yet no data ever gets there.
            return self.fail(Executed::Maybe, Why::Dead);
        }
        self.interval = (self.rtt.wait() << self.fruitless).min(self.rtt.patience());
        self.due = now.after(self.interval);
    }

    /// Asks for what is missing of the result. Once nothing came for long, it also asks where the call
    /// is: the answer to that tells a path that is cut from one that carries no full pieces.
    pub(super) fn ask_for_result(&mut self, now: Moment) {
        let long = self.unanswered > 0;
        self.ask(now, if long { Owed::HaveAndProbe } else { Owed::Have(Flags::PLEASE) });
    }

    /// The server answers, and yet nothing comes of the result that it was asked for.
    pub(super) fn result_is_withheld(&mut self, now: Moment) {
        self.fruitless += 1;
        let total = match self.state {
            State::Receiving { .. } => self.result.total,
            // Not known yet, and perhaps large.
            _ => u32::MAX,
        };
        if self.is_in_vain(total) {
            // The server cuts it anew; what came in larger pieces is not used.
            self.state = State::Replied;
        } else if self.fruitless > FRUITLESS_MAX + UNANSWERED_MAX {
            return self.fail(Executed::Maybe, Why::Dead);
        }
        self.ask(now, Owed::Have(Flags::PLEASE));
    }

    /// Whether nothing gets through although something should: a link on the way no longer carries
    /// full pieces, and smaller ones are tried from here on.
    fn is_in_vain(&mut self, total: u32) -> bool {
        if self.fruitless <= FRUITLESS_MAX || total <= PIECE_MIN {
            return false;
        }
        let Some(piece) = message::smaller(self.piece) else { return false };
        (self.piece, self.fruitless) = (piece, 0);
        true
    }

    /// Asks, or takes the server for dead.
    pub(super) fn ask(&mut self, now: Moment, what: Owed) {
        if self.unanswered >= UNANSWERED_MAX {
            self.fail(Executed::Maybe, Why::Dead);
            return;
        }
        self.owed = what;
        let patience = self.rtt.patience();
        self.interval = match self.state {
            State::Working | State::Quitting => patience,
            _ => (self.interval * 2).min(patience),
        };
        // Quick questions first; only those that had their full time count.
        if self.interval == patience {
            self.unanswered += 1;
        }
        self.due = now.after(self.jittered(self.interval));
    }

    /// Ten percent more or less, so that clients that began together do not go on so, but never less
    /// than an answer takes.
    fn jittered(&mut self, interval: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let jittered = interval / 10 * 9 + self.random % (interval / 5).max(1);
        jittered.max(self.rtt.answer())
    }
}
