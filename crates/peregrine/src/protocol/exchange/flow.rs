//! Congestion control. A flow limits the number of positions in flight to a peer, for all handles to that
//! peer together. A position is the index of a piece of a message in the order of sending. Each packet
//! carries one piece.
//!
//! The window follows CUBIC (RFC 9438), like the window of the kernel's TCP. If a flow and a TCP connection
//! lose packets at the same queue, they therefore take about the same share of the link. The window begins
//! with slow start. Slow start ends when round trips become longer (RFC 9406) or a packet is lost. The window
//! decays while nothing is sent (RFC 2861).
//!
//! Messages of one packet are sent without congestion control.

use super::time::{MILLISECOND, Moment, SECOND};

/// The initial window on an unknown path, in positions. It is large enough to send the largest call of the
/// Peregrine paper (1991), which has 48,000 bytes, in one blast.
pub(crate) const WINDOW_FIRST: u32 = 48;
pub(crate) const WINDOW_MIN: u32 = 2;
/// The largest window. The order of two serials is known only if they are less than 32,768 apart. Half of
/// this range is for the window, and the other half for retransmissions.
pub(crate) const WINDOW_MAX: u32 = 16_384;

/// The factor by which a loss reduces the window.
const BETA: f64 = 0.7;
/// The constant `C` of CUBIC: the speed of the window's growth, in positions per second cubed.
const C: f64 = 0.4;
/// The growth in positions per round trip that makes a window with this [`BETA`] as aggressive as the window
/// of Reno. RFC 9438 raises the growth to 1 once the window has the size that it had at the last loss. This
/// flow does not raise it, because Linux does not, and Linux connections share links with this flow.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Slow start ends if the round trip becomes longer by an eighth, but at least by this time, in nanoseconds.
const LONGER_MIN: u64 = 4 * MILLISECOND;
/// If the round trip becomes longer by this time, in nanoseconds, slow start ends in any case.
const LONGER_MAX: u64 = 16 * MILLISECOND;
/// The number of round trips in which the window grows at a quarter of its usual pace before slow start ends.
/// The growth does not stop at once, because one longer round trip may have been chance.
const CAUTIOUS_ROUNDS: u8 = 5;
/// An idle period lasts this long, or two round trips if these are longer. For each idle period in which the
/// window is not used, the window is halved.
const IDLE: u64 = 200 * MILLISECOND;
/// If the round trip is shorter than this time, positions are not paced, because timers are too coarse.
const PACED_MIN: u64 = 2 * MILLISECOND;
/// If a sender may have at most this number of positions in flight, it is not paced. After a long outage, the
/// smoothed round trip may be far too long. If a few positions were paced by this estimate, they would take
/// minutes, and no answer would correct the estimate in the meantime.
const UNPACED: u32 = 8;
/// The round trip divided by this number is the largest delay that a sender makes good at once. A sender may
/// be late because it waited for an answer. It then sends at once the positions that became due within this
/// time, and after that it keeps its pace.
const LATE_PART: u64 = 16;
/// The largest delay that a sender makes good at once is at least this time, in nanoseconds.
const LATE_MIN: u64 = MILLISECOND;
/// The largest delay that a sender makes good at once is at most this time, in nanoseconds.
const LATE_MAX: u64 = 5 * MILLISECOND;
/// After slow start, the first burst of a message is the handle's share of the window divided by this number,
/// but at most [`WINDOW_FIRST`] positions. So the burst does not fill a queue that other senders use. During
/// slow start, the first burst is [`WINDOW_FIRST`] positions.
const FIRST_PART: u32 = 4;
/// The length of a span of time. The flow keeps the shortest round trip of the current span, and that of the
/// previous span. It uses the shorter of the two. So the flow notices after two spans if the path has become
/// longer.
const SPAN_TIME: u64 = 2 * SECOND;
/// The length of a span as a number of round trips. The longer of this length and [`SPAN_TIME`] applies.
const SPAN_ROUND_TRIPS: u64 = 8;
/// The time in which a receiver can process as many positions as it grants in credits.
const CREDIT_TIME: u64 = 10 * MILLISECOND;

/// The pace at which a handle sends its positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Nanoseconds between two positions. Zero if they are not paced.
    pub(crate) interval: u64,
    /// The largest delay in nanoseconds that a late sender makes good at once.
    pub(crate) late: u64,
    /// The number of positions at the start of a message that are sent at once.
    pub(crate) first: u32,
}

/// Gives a handle access to the flow of its peer.
pub(crate) trait FlowAccess {
    fn with_flow<R>(&self, with: impl FnOnce(&mut Flow) -> R) -> R;
}

/// The state of the path to a peer, and the window that all handles to this peer share.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    window: f64,
    /// The window at which slow start ends.
    threshold: f64,
    /// The window near which growth is slow: the window before the last loss, or less (see
    /// [`reduce`](Self::reduce)).
    before: f64,
    /// The window that Reno would have now if it had begun at `epoch`.
    friendly: f64,
    /// When the window began to grow after the last loss.
    epoch: Option<Moment>,
    /// The number of seconds after `epoch` until the window has the size `before`.
    back_after: f64,
    /// The number of reductions of the window. A handle remembers this number, so that it notices reductions
    /// that other handles caused.
    reductions: u16,
    /// The smoothed round trip, in nanoseconds. Zero if none was measured.
    smoothed: u64,
    /// The shortest round trip of the current span. `u64::MAX` if none was measured.
    shortest: u64,
    /// The shortest round trip of the previous span. `u64::MAX` if none was measured.
    shortest_before: u64,
    /// When the current span began.
    span_began: Moment,
    /// When a position was last sent or acknowledged. Each time the window is halved for an idle period, the
    /// length of that period is added to this time.
    used: Moment,
    /// The number of the current round. A round lasts as long as a round trip, and at least [`CREDIT_TIME`].
    round: u16,
    /// When the current round began.
    began: Moment,
    /// The shortest round trip of the current round.
    answer: u64,
    /// The shortest round trip of the previous round.
    answer_before: u64,
    /// The number of handles that have used the flow in the current round.
    counted: u16,
    /// The number of handles that used the flow in the previous round.
    active: u16,
    /// The number of remaining rounds of cautious growth.
    cautious: u8,
    /// The round trip, in nanoseconds, at which cautious growth began. If a later round trip is shorter,
    /// cautious growth ends, and slow start continues at its usual pace.
    usual: u64,
}

impl Flow {
    /// Makes the state of an unknown path. `round_trip` is the first round trip in nanoseconds, if it was
    /// measured.
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

    /// Returns how many times a loss has reduced the window.
    pub(crate) const fn reductions(&self) -> u16 {
        self.reductions
    }

    /// Returns the number of positions that a handle may have in flight. The handles that call this function
    /// in the same round share the window. `credits` is the number of positions that the peer accepts. `seen`
    /// is the number of the last round in which this handle called the function.
    pub(crate) fn share(&mut self, now: Moment, credits: u16, seen: &mut u16) -> u32 {
        self.decay(now);
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

    /// Notes that a handle sends a position. A handle that only asks for its share does not count as using
    /// the window.
    pub(crate) const fn sends(&mut self, now: Moment) {
        self.used = now;
    }

    /// Returns the limit that the receiver's credits set, in positions. The sender spreads positions over the
    /// round trip, and the receiver can process `credits` positions in each [`CREDIT_TIME`]. So the limit is
    /// `credits` multiplied by the number of times that [`CREDIT_TIME`] fits into a round trip.
    fn credit_limit(&self, credits: u16) -> u32 {
        let times = (self.round_trip_min() / CREDIT_TIME).clamp(1, 1000) as u32;
        (u32::from(credits) * times).min(WINDOW_MAX)
    }

    /// Returns the shortest round trip that was measured recently, in nanoseconds.
    fn round_trip_min(&self) -> u64 {
        match self.shortest.min(self.shortest_before) {
            u64::MAX => self.smoothed,
            shortest => shortest,
        }
    }

    fn next_round(&mut self, now: Moment) {
        // Round 0 is reserved for handles that were never counted.
        self.round = self.round.checked_add(1).unwrap_or(1);
        self.began = now;
        self.active = core::mem::take(&mut self.counted).max(1);
        let span = SPAN_TIME.max(SPAN_ROUND_TRIPS * self.smoothed);
        if now.since(self.span_began) > span {
            // After a long pause, the shortest round trip of the current span is too old to be kept as the
            // value of the previous span.
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

    /// Ends slow start when queues begin to fill, so that they do not overflow.
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

    /// Halves the window once for each idle period that has passed, down to the initial window. Raises the
    /// threshold, so that slow start continues up to three quarters of the former window.
    fn decay(&mut self, now: Moment) {
        let first = f64::from(WINDOW_FIRST);
        let period = IDLE.max(2 * self.smoothed);
        let idle = now.since(self.used) / period;
        if idle == 0 || self.window <= first {
            return;
        }
        self.used = self.used.after(idle * period);
        self.threshold = self.threshold.max(self.window * 0.75).min(f64::from(WINDOW_MAX));
        self.window = (self.window / f64::from(1 << idle.min(20))).max(first);
        self.epoch = None;
    }

    /// Returns the pace of a handle that has this share of the window.
    pub(crate) fn pace(&self, share: u32) -> Pace {
        let growing = self.window < self.threshold;
        let late = (self.smoothed / LATE_PART).clamp(LATE_MIN, LATE_MAX);
        let first = if growing { WINDOW_FIRST } else { (share / FIRST_PART).min(WINDOW_FIRST) };
        if self.smoothed < PACED_MIN || share <= UNPACED {
            return Pace { interval: 0, late, first };
        }
        // The pace is higher than the rate of answers, so that the window limits the sender, not the pace.
        let quarters = if growing { 8 } else { 5 };
        Pace { interval: self.smoothed * 4 / quarters / u64::from(share.max(1)), late, first }
    }

    /// Notes that a packet was answered after `nanoseconds`.
    pub(crate) fn sample(&mut self, nanoseconds: u64) {
        let sample = nanoseconds.clamp(1, 10 * SECOND);
        if self.smoothed == 0 || sample < self.round_trip_min() / 2 {
            // This is the first measurement, or the path has become shorter.
            self.smoothed = sample;
        }
        self.smoothed = self.smoothed - self.smoothed / 8 + sample / 8;
        self.shortest = self.shortest.min(sample);
        self.answer = self.answer.min(sample);
    }

    /// Notes that `positions` more positions have arrived, while the window limited the sender.
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

    /// Grows the window in congestion avoidance. The growth is slow near the window at which the last loss
    /// occurred, and faster far from that window.
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

    /// Notes the loss of a packet that was sent after the last reduction.
    pub(crate) fn reduce(&mut self) {
        // A loss while the window is still smaller than `before` shows that another flow uses the link. This
        // flow then aims at a smaller window, to leave capacity to the other flow.
        let converges = self.window < self.before;
        self.before = if converges { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (self.window * BETA).max(f64::from(WINDOW_MIN));
        self.threshold = self.window;
        (self.epoch, self.cautious) = (None, 0);
        self.reductions = self.reductions.wrapping_add(1);
    }

    /// Returns the window of all handles together.
    #[cfg(test)]
    #[allow(dead_code)] // used by the simulator
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

/// A path that keeps no state. Each access gets a new flow. Tests that do not depend on congestion control
/// use this path.
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
