//! Asks a server with blocking procedures to relieve a thread that runs a batch.
//!
//! Such a thread runs the calls of a batch one after the other. The batch does not end if a call waits for a
//! later call of the batch. It does not end either if a call waits for something that the client does only
//! after it has the result of an earlier call. So if no result arrives for a while, the lane sends an empty
//! batch. The thread of the server that gets the empty batch takes over the calls that the other thread has
//! not begun (`call/batch/running.rs`).

use core::time::Duration;
use std::time::Instant;

use super::state::State;
use super::{Lane, RELIEF_TIMER, RETRY};
use crate::binding::Bound;

/// If a server with blocking procedures sends no result for this time, the lane sends an empty batch: a
/// thread of the server then relieves a thread that runs a batch of the lane.
const FIRST: Duration = Duration::from_millis(10);
/// Each time the server has nothing to relieve, the lane waits twice as long before it asks again, but at
/// most this time.
const MAX: Duration = Duration::from_secs(1);
/// The number of looks for results after which the lane reads the clock once.
const LOOKS: u32 = 256;

/// Determines when the lane next asks the server to relieve a thread that runs a batch.
pub(super) struct Relief {
    /// The number of batches that were answered with results.
    answers: u64,
    /// The value of `answers` that [`Relief::left`] last saw.
    seen: u64,
    /// When `answers` was last found to have changed, or when the server was last asked.
    since: Option<Instant>,
    /// How long the server must have sent no results before the lane asks.
    after: Duration,
    /// Counts the looks for results, because not each of them reads the clock.
    looks: u32,
    /// Whether a timer is set.
    is_timed: bool,
    /// Whether the lane is to ask as soon as a frame is prepared.
    pub(super) is_due: bool,
}

impl Default for Relief {
    fn default() -> Self {
        let after = FIRST;
        Self { answers: 0, seen: 0, since: None, after, looks: 0, is_timed: false, is_due: false }
    }
}

impl Relief {
    /// Returns how long the lane waits until it asks. `None` if it is to ask now.
    fn left(&mut self, now: Instant) -> Option<Duration> {
        if self.seen != self.answers || self.since.is_none() {
            (self.seen, self.since) = (self.answers, Some(now));
        }
        let waited = self.since.map_or(Duration::ZERO, |since| now.duration_since(since));
        self.after.checked_sub(waited).filter(|left| !left.is_zero())
    }

    /// Notes that the lane asks now, or that it cannot ask because no frame is free.
    fn asked(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// Notes that the lane looks for results. Returns whether the lane must check now whether to
    /// ask the server.
    pub(super) fn look(&mut self) -> bool {
        self.looks += 1;
        if self.looks >= LOOKS {
            self.looks = 0;
        }
        self.is_due || self.looks == 0
    }

    /// Notes the answer to a batch. `is_empty` is true if the batch asked for relief and the server had
    /// nothing to relieve.
    pub(super) fn answered(&mut self, is_empty: bool) {
        if is_empty {
            self.after = (self.after * 2).min(MAX);
        } else {
            self.answers += 1;
            self.after = FIRST;
        }
    }
}

impl Lane {
    /// Sets the timer for relief, if a thread of the server may need relief later.
    pub(super) fn time_relief(&self, state: &mut State) {
        if state.sent > 0 && state.known && !state.is_async && !state.relief.is_timed {
            let after = state.relief.left(Instant::now()).unwrap_or(RETRY);
            state.relief.is_timed = self.timer(RELIEF_TIMER, after);
        }
    }

    /// Asks the server to relieve a thread, if the server has sent no results for long.
    #[cold]
    pub(super) fn relieve(&self, bound: &Bound, state: &mut State) {
        if state.sent == 0 || !state.known || state.is_async {
            state.relief.is_due = false;
            return;
        }
        let now = Instant::now();
        if !state.relief.is_due && state.relief.left(now).is_some() {
            return;
        }
        state.relief.asked(now);
        let chunk = state.chunk();
        let sent = self.send_as(bound, state, chunk, true);
        // If no frame is free, the lane asks later. If a frame must be prepared first, the lane asks as soon
        // as the frame is prepared.
        state.relief.is_due = sent.is_err() && (state.preparing || state.is_ring);
    }

    /// Handles the timer for relief.
    pub(super) fn on_relief_timer(&self, bound: &Bound, state: &mut State) {
        state.relief.is_timed = false;
        state.is_ring = true;
        self.relieve(bound, state);
        state.is_ring = false;
        if state.armed {
            self.arm(bound, state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lane_asks_until_there_are_results_and_less_often_if_nothing_is_relieved() {
        let (mut relief, begun) = (Relief::default(), Instant::now());
        assert_eq!(relief.left(begun), Some(FIRST));
        let now = begun + FIRST;
        // A call of `left` does not restart the wait.
        assert_eq!((relief.left(now), relief.left(now)), (None, None));
        relief.asked(now);
        assert_eq!(relief.left(now), Some(FIRST));
        relief.answered(true);
        assert_eq!(relief.left(now), Some(2 * FIRST));
        (0..20).for_each(|_| relief.answered(true));
        assert_eq!(relief.left(now), Some(MAX));
        // After results, the waits begin again with `FIRST`.
        relief.answered(false);
        let now = now + MAX;
        assert_eq!(relief.left(now), Some(FIRST));
    }
}
