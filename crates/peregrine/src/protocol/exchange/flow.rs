//! How much may be on its way to a peer, and how fast: the congestion control of all handles that lead
//! to it together.
//!
//! The window follows CUBIC (RFC 9438), as that of the kernel's TCP does: both lose packets to the same
//! queues and take about the same share of a link. It begins with slow start, which ends when round trips
//! become longer (RFC 9406) or a packet is lost, and it decays while nothing is sent (RFC 2861).
//!
//! A message of one packet never asks for any of this.

use super::time::{MILLISECOND, Moment, SECOND};

/// Positions in flight before anything is known of the path: the 48,000 bytes of Peregrine's largest call
/// go in one blast.
pub(crate) const WINDOW_FIRST: u32 = 48;
pub(crate) const WINDOW_MIN: u32 = 2;
/// Positions in flight at most: half of the serials that can be told apart, less what is sent again.
pub(crate) const WINDOW_MAX: u32 = 16_384;

/// What is left of the window after a loss, and how fast it comes back, in positions per second cubed.
const BETA: f64 = 0.7;
const C: f64 = 0.4;
/// How many positions a round trip a window grows that is as friendly as Reno's with this `BETA`.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Slow start is over if a round trip takes longer than the one before by an eighth, within these bounds.
const LONGER_MIN: u64 = 4 * MILLISECOND;
const LONGER_MAX: u64 = 16 * MILLISECOND;
/// For so many round trips it goes on at a quarter of the pace, for the delay may have been chance.
const CAUTIOUS_ROUNDS: u8 = 5;
/// The window halves for each of these times, or round trips if they are longer, without use.
const IDLE: u64 = 200 * MILLISECOND;
/// On paths with a shorter round trip answers alone set the pace: a timer would be too coarse.
const PACED_MIN: u64 = 2 * MILLISECOND;
/// A receiver takes its credits once in this time.
const CREDIT_TIME: u64 = 10 * MILLISECOND;

/// Lends the flow of a peer for a moment to a handle that needs it.
pub(crate) trait Lend {
    fn lend<R>(&self, with: impl FnOnce(&mut Flow) -> R) -> R;
}

/// What is known of the path to a peer, and the window that its handles share.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    window: f64,
    /// Below it is slow start.
    threshold: f64,
    /// The window before the last loss, and that which Reno would have.
    before: f64,
    friendly: f64,
    /// When the window began to grow after the last loss, and after how many seconds it is what it was.
    epoch: Option<Moment>,
    back_after: f64,
    /// Counts losses; handles compare it.
    reductions: u16,
    /// The smoothed and the shortest round trip, in nanoseconds; zero if none was measured.
    smoothed: u64,
    shortest: u64,
    /// When something was sent or acknowledged last.
    used: Moment,
    /// The round trip under way: its number, when it began, the shortest answer of it and of the one
    /// before, and the handles that were active in it and in the one before.
    round: u16,
    began: Moment,
    answer: u64,
    answer_before: u64,
    counted: u16,
    active: u16,
    /// Rounds of cautious growth that are left, and the answer that would end them.
    cautious: u8,
    usual: u64,
}

impl Flow {
    /// Nothing is known but perhaps a first round trip, in nanoseconds.
    pub(crate) const fn new(round_trip: Option<u64>) -> Self {
        let first = match round_trip {
            Some(first) => first,
            None => 0,
        };
        Self {
            window: WINDOW_FIRST as f64,
            threshold: f64::INFINITY,
            before: 0.0,
            friendly: 0.0,
            epoch: None,
            back_after: 0.0,
            reductions: 0,
            smoothed: first,
            shortest: first,
            used: Moment(0),
            round: 0,
            began: Moment(0),
            answer: u64::MAX,
            answer_before: u64::MAX,
            counted: 0,
            active: 1,
            cautious: 0,
            usual: 0,
        }
    }

    /// How many times a loss made the window smaller.
    pub(crate) const fn reductions(&self) -> u16 {
        self.reductions
    }

    /// Positions that a handle may have in flight whose peer has so many credits. `seen` is the round in
    /// which the handle asked last: those that asked in a round share the window.
    pub(crate) fn share(&mut self, now: Moment, credits: u16, seen: &mut u16) -> u32 {
        self.decay(now);
        self.used = now;
        if now.since(self.began) > self.smoothed.max(CREDIT_TIME) {
            self.next_round(now);
        }
        if *seen != self.round {
            *seen = self.round;
            self.counted = self.counted.saturating_add(1);
        }
        let sharing = f64::from(self.active.max(self.counted).max(1));
        ((self.window / sharing) as u32).min(self.allowed(credits)).max(WINDOW_MIN)
    }

    /// Positions that a receiver takes: so many within [`CREDIT_TIME`], and what was sent is spread over
    /// a round trip.
    fn allowed(&self, credits: u16) -> u32 {
        let times = (self.shortest / CREDIT_TIME).clamp(1, 1000) as u32;
        (u32::from(credits) * times).min(WINDOW_MAX)
    }

    fn next_round(&mut self, now: Moment) {
        // Zero is what a handle begins with.
        self.round = self.round.checked_add(1).unwrap_or(1);
        self.began = now;
        self.active = core::mem::take(&mut self.counted).max(1);
        if self.answer != u64::MAX {
            self.look_at_delay();
            self.answer_before = core::mem::replace(&mut self.answer, u64::MAX);
        }
    }

    /// Ends slow start when queues begin to fill, before they overflow.
    fn look_at_delay(&mut self) {
        if self.window >= self.threshold || self.answer_before == u64::MAX {
            return;
        }
        if self.cautious > 0 {
            if self.answer < self.usual {
                self.cautious = 0;
            } else {
                self.cautious -= 1;
                if self.cautious == 0 {
                    self.threshold = self.window;
                }
            }
            return;
        }
        let longer = (self.answer_before / 8).clamp(LONGER_MIN, LONGER_MAX);
        if self.answer >= self.answer_before + longer {
            (self.cautious, self.usual) = (CAUTIOUS_ROUNDS, self.answer);
        }
    }

    /// Halves the window for each idle time that has passed, down to that of a path of which nothing is
    /// known, and remembers how large it was.
    fn decay(&mut self, now: Moment) {
        let first = f64::from(WINDOW_FIRST);
        let idle = now.since(self.used) / IDLE.max(2 * self.smoothed);
        if idle == 0 || self.window <= first {
            return;
        }
        self.threshold = self.threshold.max(self.window * 0.75).min(f64::from(WINDOW_MAX));
        self.window = (self.window / f64::from(1 << idle.min(20))).max(first);
        self.epoch = None;
    }

    /// Nanoseconds between two positions of a handle with that share; zero if they need not be spread.
    pub(crate) fn interval(&self, share: u32) -> u64 {
        if self.smoothed < PACED_MIN {
            return 0;
        }
        // Faster than answers come, so that the window and not the pace is the limit.
        let quarters = if self.window < self.threshold { 8 } else { 5 };
        self.smoothed * 4 / quarters / u64::from(share.max(1))
    }

    /// A packet was answered after so many nanoseconds.
    pub(crate) fn sample(&mut self, nanoseconds: u64) {
        let sample = nanoseconds.clamp(1, 10 * SECOND);
        if self.smoothed == 0 {
            (self.smoothed, self.shortest) = (sample, sample);
        }
        self.smoothed = self.smoothed - self.smoothed / 8 + sample / 8;
        self.shortest = self.shortest.min(sample);
        self.answer = self.answer.min(sample);
    }

    /// The peer has so many positions more, and the window was what kept the sender from sending more.
    pub(crate) fn acknowledged(&mut self, now: Moment, positions: u32) {
        self.used = now;
        let more = f64::from(positions);
        if self.window < self.threshold {
            self.window += if self.cautious > 0 { more / 4.0 } else { more };
            if self.window > self.threshold {
                self.window = self.threshold;
            }
        } else {
            self.grow(now, more);
        }
        self.window = self.window.min(f64::from(WINDOW_MAX));
    }

    /// Congestion avoidance: slowly near the window at which a packet was lost, faster away from it.
    fn grow(&mut self, now: Moment, more: f64) {
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                self.before = self.before.max(self.window);
                self.back_after = ((self.before - self.window) / C).cbrt();
                self.friendly = self.window;
                *self.epoch.insert(now)
            }
        };
        let seconds = (now.since(epoch) + self.smoothed) as f64 / SECOND as f64;
        let cubic = C.mul_add((seconds - self.back_after).powi(3), self.before);
        let alpha = if self.friendly < self.before { ALPHA } else { 1.0 };
        self.friendly += alpha * more / self.window;
        if cubic < self.friendly {
            self.window = self.window.max(self.friendly);
        } else {
            let target = cubic.clamp(self.window, 1.5 * self.window);
            self.window += (target - self.window) / self.window * more;
        }
    }

    /// A packet was lost that was sent after the last reduction.
    pub(crate) fn reduce(&mut self) {
        // A flow that comes back to less than before leaves room to others.
        let converges = self.window < self.before;
        self.before = if converges { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (self.window * BETA).max(f64::from(WINDOW_MIN));
        self.threshold = self.window;
        (self.epoch, self.cautious) = (None, 0);
        self.reductions = self.reductions.wrapping_add(1);
    }

    /// The window of all handles together.
    #[cfg(test)]
    #[allow(dead_code)] // the simulator asks
    pub(crate) fn window(&self) -> u32 {
        self.window as u32
    }
}

#[cfg(any(test, fuzzing))]
impl Lend for core::cell::RefCell<Flow> {
    fn lend<R>(&self, with: impl FnOnce(&mut Flow) -> R) -> R {
        with(&mut self.borrow_mut())
    }
}

/// A path of which nothing is ever known, for tests of what does not depend on it.
#[cfg(test)]
pub(crate) struct Unknown;

#[cfg(test)]
impl Lend for Unknown {
    fn lend<R>(&self, with: impl FnOnce(&mut Flow) -> R) -> R {
        with(&mut Flow::new(None))
    }
}
