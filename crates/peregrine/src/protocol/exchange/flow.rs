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
/// How many positions a round trip a window grows that is as friendly as Reno's with this `BETA`. RFC 9438
/// changes to 1 at the window of the last loss. Linux does not, and we share links with it.
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
/// A share of no more positions is not spread either. After a long outage the smoothed round trip may be
/// far too long; paced by it, a small share would take minutes, and nothing would correct the estimate.
const UNPACED: u32 = 8;
/// A sender that comes late, or has waited for an answer, makes up at once for this part of a round trip,
/// within these bounds; for the rest it only sends at its pace.
const LATE_PART: u64 = 16;
const LATE_MIN: u64 = MILLISECOND;
const LATE_MAX: u64 = 5 * MILLISECOND;
/// Once losses have shown how much the path takes, a message begins with this part of a handle's share,
/// so that it does not fill a queue at once that others use as well.
const FIRST_PART: u32 = 4;
/// The shortest round trip is that of the last two spans of this time, or of this many round trips if
/// those are longer: a path that has become longer is known as such after that.
const SPAN_TIME: u64 = 2 * SECOND;
const SPAN_ROUND_TRIPS: u64 = 8;
/// A receiver takes its credits once in this time.
const CREDIT_TIME: u64 = 10 * MILLISECOND;

/// How positions are spread over a round trip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Nanoseconds between two positions; zero if they need not be spread.
    pub(crate) interval: u64,
    /// Nanoseconds that a sender which comes late makes up for at once.
    pub(crate) late: u64,
    /// Positions with which a message begins at once.
    pub(crate) first: u32,
}

/// Lends the flow of a peer for a moment to a handle that needs it.
pub(crate) trait FlowAccess {
    fn with_flow<R>(&self, with: impl FnOnce(&mut Flow) -> R) -> R;
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
    /// The smoothed round trip, in nanoseconds; zero if none was measured.
    smoothed: u64,
    /// The shortest round trip of this span and of the one before, `u64::MAX` if none was measured in
    /// it, and when this span began.
    shortest: u64,
    shortest_before: u64,
    span_began: Moment,
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
        let (smoothed, shortest) = match round_trip {
            Some(first) => (first, first),
            None => (0, u64::MAX),
        };
        Self {
            window: WINDOW_FIRST as f64,
            threshold: f64::INFINITY,
            before: 0.0,
            friendly: 0.0,
            epoch: None,
            back_after: 0.0,
            reductions: 0,
            smoothed,
            shortest,
            shortest_before: u64::MAX,
            span_began: Moment(0),
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
        ((self.window / sharing) as u32).min(self.credit_limit(credits)).max(WINDOW_MIN)
    }

    /// Positions that a receiver takes: so many within [`CREDIT_TIME`], and what was sent is spread over
    /// a round trip.
    fn credit_limit(&self, credits: u16) -> u32 {
        let times = (self.round_trip_min() / CREDIT_TIME).clamp(1, 1000) as u32;
        (u32::from(credits) * times).min(WINDOW_MAX)
    }

    /// The shortest round trip that was measured lately, in nanoseconds.
    fn round_trip_min(&self) -> u64 {
        match self.shortest.min(self.shortest_before) {
            u64::MAX => self.smoothed,
            shortest => shortest,
        }
    }

    fn next_round(&mut self, now: Moment) {
        // Zero is what a handle begins with.
        self.round = self.round.checked_add(1).unwrap_or(1);
        self.began = now;
        self.active = core::mem::take(&mut self.counted).max(1);
        let span = SPAN_TIME.max(SPAN_ROUND_TRIPS * self.smoothed);
        if now.since(self.span_began) > span {
            // Without use for long, the span before this one is too old as well.
            let old = now.since(self.span_began) > 2 * span;
            let last = core::mem::replace(&mut self.shortest, u64::MAX);
            self.shortest_before = if old { u64::MAX } else { last };
            self.span_began = now;
        }
        if self.answer != u64::MAX {
            self.detect_queueing();
            self.answer_before = core::mem::replace(&mut self.answer, u64::MAX);
        }
    }

    /// Ends slow start when queues begin to fill, before they overflow.
    fn detect_queueing(&mut self) {
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

    /// How the positions of a handle with that share are spread over the round trip.
    pub(crate) fn pace(&self, share: u32) -> Pace {
        let growing = self.window < self.threshold;
        let late = (self.smoothed / LATE_PART).clamp(LATE_MIN, LATE_MAX);
        let first = if growing { WINDOW_FIRST } else { (share / FIRST_PART).min(WINDOW_FIRST) };
        if self.smoothed < PACED_MIN || share <= UNPACED {
            return Pace { interval: 0, late, first };
        }
        // Faster than answers come, so that the window and not the pace is the limit.
        let quarters = if growing { 8 } else { 5 };
        Pace { interval: self.smoothed * 4 / quarters / u64::from(share.max(1)), late, first }
    }

    /// A packet was answered after so many nanoseconds.
    pub(crate) fn sample(&mut self, nanoseconds: u64) {
        let sample = nanoseconds.clamp(1, 10 * SECOND);
        if self.smoothed == 0 || sample < self.round_trip_min() / 2 {
            // The first one, or the path has become shorter.
            self.smoothed = sample;
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
        let seconds = (now.since(epoch) + self.round_trip_min()) as f64 / SECOND as f64;
        let cubic = C.mul_add((seconds - self.back_after).powi(3), self.before);
        self.friendly += ALPHA * more / self.window;
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
impl FlowAccess for core::cell::RefCell<Flow> {
    fn with_flow<R>(&self, with: impl FnOnce(&mut Flow) -> R) -> R {
        with(&mut self.borrow_mut())
    }
}

/// A path of which nothing is ever known, for tests of what does not depend on it.
#[cfg(test)]
pub(crate) struct NoFlow;

#[cfg(test)]
impl FlowAccess for NoFlow {
    fn with_flow<R>(&self, with: impl FnOnce(&mut Flow) -> R) -> R {
        with(&mut Flow::new(None))
    }
}

#[cfg(test)]
mod tests;
