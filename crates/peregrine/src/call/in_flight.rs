//! [`InFlight`]: counts the one-way calls and the streams that a server has in flight.
//!
//! Other calls are not counted here. The calls of a batch are counted together when the batch begins to run.
//! A stream is counted when it is opened. The bytes that streams have buffered are added up when a reader
//! asks.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::caller::source_of_thread;
use super::streams::Flow;
use crate::sync::Mutex;

/// The one-way calls and the streams of a server that are in flight.
#[derive(Default)]
pub(crate) struct InFlight {
    /// The number of one-way calls in batches that have not ended.
    oneway: AtomicU64,
    /// The number of threads that run one of these batches.
    oneway_threads: AtomicU64,
    flows: Mutex<Flows>,
}

/// The ends of streams at a server.
#[derive(Default)]
struct Flows {
    all: Vec<Weak<Flow>>,
    /// The length of `all` at which streams that do not exist any more are removed.
    full: usize,
}

/// The smallest value of [`Flows::full`].
const FULL_MIN: usize = 64;

/// What [`InFlight`] counts, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InFlightNow {
    pub(crate) oneway: u64,
    pub(crate) oneway_threads: u64,
    pub(crate) streams: u64,
    /// The number of bytes of the items that wait at the server: sent items that are in no message yet, and
    /// received items that were not taken.
    pub(crate) stream_bytes: u64,
}

impl InFlight {
    /// Returns the counts of the server whose call this thread runs. Returns `None` if no server counts the
    /// call.
    fn of_thread() -> Option<Arc<Self>> {
        let (calls, call) = source_of_thread()?;
        let mut found = None;
        calls.with_account(call, &mut |account| found = Some(account.in_flight()));
        found
    }

    pub(crate) fn now(&self) -> InFlightNow {
        let flows: Vec<Arc<Flow>> =
            self.flows.lock().all.iter().filter_map(Weak::upgrade).collect();
        InFlightNow {
            oneway: self.oneway.load(Ordering::Relaxed),
            oneway_threads: self.oneway_threads.load(Ordering::Relaxed),
            streams: flows.len() as u64,
            stream_bytes: flows.iter().map(|flow| flow.buffered()).sum(),
        }
    }
}

impl Flows {
    fn add(&mut self, flow: &Arc<Flow>) {
        if self.all.len() >= self.full {
            self.all.retain(|flow| flow.strong_count() > 0);
            self.full = (2 * self.all.len()).max(FULL_MIN);
        }
        self.all.push(Arc::downgrade(flow));
    }
}

/// Counts a stream of the call that this thread runs, for as long as the stream exists.
pub(super) fn count_stream(flow: &Arc<Flow>) {
    if let Some(in_flight) = InFlight::of_thread() {
        in_flight.flows.lock().add(flow);
    }
}

/// The calls of a batch of one-way calls. They are in flight until this value is dropped.
pub(super) struct OneWayInFlight {
    of: Option<Arc<InFlight>>,
    calls: u64,
    on_thread: bool,
}

impl OneWayInFlight {
    /// Counts the calls of a batch that this thread begins to run.
    pub(super) fn begin(calls: u64) -> Self {
        let of = InFlight::of_thread();
        if let Some(of) = &of {
            of.oneway.fetch_add(calls, Ordering::Relaxed);
            of.oneway_threads.fetch_add(1, Ordering::Relaxed);
        }
        Self { of, calls, on_thread: true }
    }

    /// Notes that the thread does not run the batch any more, because the batch is deferred.
    pub(super) fn leave_thread(&mut self) {
        if let Some(of) = &self.of
            && core::mem::take(&mut self.on_thread)
        {
            of.oneway_threads.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for OneWayInFlight {
    fn drop(&mut self) {
        self.leave_thread();
        if let Some(of) = &self.of {
            of.oneway.fetch_sub(self.calls, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_have_ended_occupy_no_memory() {
        let in_flight = InFlight::default();
        let kept = Arc::new(Flow::new(1, 1024, 0, 0, 0));
        in_flight.flows.lock().add(&kept);
        for number in 0..10_000 {
            in_flight.flows.lock().add(&Arc::new(Flow::new(number, 1024, 0, 0, 0)));
            assert!(in_flight.flows.lock().all.len() <= FULL_MIN);
        }
        assert_eq!(in_flight.now().streams, 1);
    }
}
