//! What a server counts of calls in batches ([`Batched`]), and for whom ([`Account`]).

use std::sync::Arc;

use crate::call::{Answer, InFlight, Ran};
use crate::sys;

/// What a server keeps for each client, to count the calls of the client.
pub(crate) trait Account: Send + Sync {
    /// Counts one more deferred call, whose message has `bytes` bytes. Returns false if the client has too
    /// many deferred calls.
    fn defer(&self, bytes: usize) -> bool;

    /// Counts one deferred call less.
    fn release(&self, bytes: usize);

    /// Adds calls to the counters of the server.
    fn count(&self, batched: &Batched);

    /// Returns the counters of the server's one-way calls and streams.
    fn in_flight(&self) -> Arc<InFlight>;

    /// Returns the account as a value that can be kept after the call.
    fn keep(&self) -> Arc<dyn Account>;
}

/// Calls that arrived in batches and have ended. Each is counted as a call that was made alone.
#[derive(Debug, Default)]
pub(crate) struct Batched {
    /// The number of calls that ran.
    pub(crate) ended: u64,
    /// The number of calls that ran and failed.
    pub(crate) failed: u64,
    /// The number of calls that did not run.
    pub(crate) refused: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// Times of calls in nanoseconds, and for how many calls each time counts.
    pub(crate) times: Vec<(u64, u32)>,
}

impl Batched {
    /// Adds a call that has ended. `bytes` is the size of its message.
    pub(super) fn add(&mut self, ran: &Ran, bytes: u32, time: Option<(u64, u32)>) {
        match ran.answer {
            Answer::NotExecuted => return self.refused += 1,
            Answer::PostAgain | Answer::Deferred => return,
            Answer::Err | Answer::MayHaveExecuted => self.failed += 1,
            Answer::Ok => {}
        }
        self.ended += 1;
        self.bytes_in += u64::from(bytes);
        self.bytes_out += u64::from(ran.head_bytes) + ran.block_bytes as u64;
        self.times.extend(time);
    }

    /// Moves all counts of `more` into this value.
    pub(super) fn append(&mut self, more: &mut Self) {
        let Self { ended, failed, refused, bytes_in, bytes_out, times } = more;
        self.ended += core::mem::take(ended);
        self.failed += core::mem::take(failed);
        self.refused += core::mem::take(refused);
        self.bytes_in += core::mem::take(bytes_in);
        self.bytes_out += core::mem::take(bytes_out);
        self.times.append(times);
    }

    /// Sets all counts to zero. Keeps the memory of the times.
    pub(super) fn clear(&mut self) {
        let mut times = core::mem::take(&mut self.times);
        times.clear();
        *self = Self { times, ..Self::default() };
    }
}

/// A call that is timed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    begun: u64,
    /// The number of calls that this measurement represents. It is more than 1 if only some calls are timed.
    calls: u32,
}

impl Timing {
    /// Begins to time a call. The time counts for this call only.
    pub(super) fn begin() -> Self {
        Self { begun: sys::boot_ns(), calls: 1 }
    }

    /// Begins to time a call, but only about one call in 16. The time counts for 16 calls. `number` is the
    /// number of the call in its lane.
    pub(super) fn begin_seldom(number: u64) -> Option<Self> {
        // With a fixed interval, the timed calls could always be of the same procedure.
        const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
        let is_timed = number.wrapping_mul(GOLDEN_RATIO) >> 60 == 0;
        is_timed.then(|| Self { calls: 16, ..Self::begin() })
    }

    /// Returns the time in nanoseconds that has passed, and for how many calls it counts.
    pub(super) fn end(self) -> (u64, u32) {
        (sys::boot_ns().saturating_sub(self.begun), self.calls)
    }
}
