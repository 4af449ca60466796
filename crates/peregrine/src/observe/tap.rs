//! The tap of an export: programs that capture the calls of the export.
//!
//! A binding has a second server stub, made on demand, with one layer that makes a [`Record`] of each call.
//! Calls go to this stub only while the tap of the export is on. So an export without captures pays one load
//! of a flag for each call. Each program that captures has a [`Feed`]: a bounded queue of records. The threads
//! that serve calls add records to the queues, and never wait for a program that captures: a full queue counts
//! what it leaves out.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use super::layer::{Layer, LayerCall, LayerEnd, LayerRefusal, LayerSide};
use super::layers::Layers;
use super::record::{FAILED, Record};
use super::server::Layered;
use crate::call::Serve;
use crate::limits;
use crate::sync::{Condvar, Mutex};

/// Which calls a program captures, and how much of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The number of the only captured procedure. `None`: all procedures.
    pub(crate) procedure: Option<u32>,
    /// Whether only calls without a result are captured.
    pub(crate) failed_only: bool,
    /// The number of bytes of the arguments that are captured of each call.
    pub(crate) bytes: u32,
}

impl Wanted {
    fn has(&self, procedure: u32) -> bool {
        self.procedure.is_none_or(|only| only == procedure)
    }
}

/// The tap of an export. It is off until a program captures.
#[derive(Default)]
pub(crate) struct Tap {
    is_on: AtomicBool,
    feeds: Arc<Feeds>,
}

/// The programs that capture the calls of an export.
#[derive(Default)]
struct Feeds(Mutex<Arc<[Arc<Feed>]>>);

/// The tap of an export, and the stub that captures the calls of one binding. Bindings of an export may have
/// different stubs, so each has its own.
pub(crate) struct TapStub {
    tap: Arc<Tap>,
    /// Made for the first captured call.
    stub: OnceLock<Box<Layered<Arc<dyn Serve>>>>,
}

impl TapStub {
    pub(crate) const fn new(tap: Arc<Tap>) -> Self {
        Self { tap, stub: OnceLock::new() }
    }

    /// Returns the stub that serves a call now: the stub that captures if the tap is on, and `plain`
    /// otherwise. `plain` is always the same stub.
    #[inline]
    pub(crate) fn of<'a>(&'a self, plain: &'a Arc<dyn Serve>) -> &'a dyn Serve {
        if self.tap.is_on.load(Ordering::Relaxed) { self.capturing(plain) } else { &**plain }
    }

    #[cold]
    fn capturing(&self, plain: &Arc<dyn Serve>) -> &dyn Serve {
        let stub: &Layered<_> = self.stub.get_or_init(|| {
            let mut layers = Layers::none();
            layers.add(Captures(Arc::clone(&self.tap.feeds)));
            let observed = layers.observe(plain.interface(), "");
            Box::new(Layered::tap(Arc::clone(plain), observed))
        });
        stub
    }
}

impl Tap {
    /// Adds a program that captures.
    pub(crate) fn attach(&self, feed: &Arc<Feed>) {
        let mut feeds = self.feeds.0.lock();
        *feeds = feeds.iter().chain([feed]).map(Arc::clone).collect();
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Removes a program that captured. Without such programs, the tap is off.
    pub(crate) fn detach(&self, feed: &Arc<Feed>) {
        let mut feeds = self.feeds.0.lock();
        *feeds = feeds.iter().filter(|one| !Arc::ptr_eq(one, feed)).map(Arc::clone).collect();
        self.is_on.store(!feeds.is_empty(), Ordering::Relaxed);
    }
}

/// The layer that makes records.
struct Captures(Arc<Feeds>);

impl Captures {
    fn feeds(&self) -> Arc<[Arc<Feed>]> {
        Arc::clone(&self.0.0.lock())
    }
}

impl Layer for Captures {
    /// The record of the call. `None`: no program captures the call.
    type State = Option<Box<Record>>;

    fn begin(&self, call: &mut LayerCall<'_>) -> Result<Self::State, LayerRefusal> {
        debug_assert_eq!(call.side, LayerSide::Server);
        let feeds = self.feeds();
        let wanted = feeds.iter().map(|feed| &feed.wanted).filter(|one| one.has(call.procedure));
        let most = wanted.map(|wanted| wanted.bytes).max();
        Ok(most.map(|most| Box::new(Record::begin(call, most as usize))))
    }

    fn end(&self, state: Self::State, end: &LayerEnd<'_>) {
        let Some(mut record) = state else { return };
        record.end(end.outcome());
        record.took_ns = u64::try_from(end.took().as_nanos()).unwrap_or(u64::MAX);
        record.result_bytes = end.result_bytes() as u64;
        let record = Arc::new(*record);
        for feed in &*self.feeds() {
            feed.add(&record);
        }
    }
}

/// The records that a program has not received yet: at most [`limits::CAPTURE_RECORDS`], with at most
/// [`limits::CAPTURE_QUEUE_BYTES`].
pub(crate) struct Feed {
    wanted: Wanted,
    state: Mutex<FeedState>,
    changed: Condvar,
}

#[derive(Default)]
struct FeedState {
    records: VecDeque<(u64, Arc<Record>)>,
    bytes: usize,
    /// The number of calls that were added or left out.
    seen: u64,
    left_out: u64,
    is_closed: bool,
}

/// A record that is sent next.
pub(crate) struct Taken {
    /// The number of the call among all calls that were captured or left out, from 0.
    pub(crate) number: u64,
    /// The number of calls that were left out until now.
    pub(crate) left_out: u64,
    pub(crate) record: Arc<Record>,
}

impl Feed {
    pub(crate) fn new(wanted: Wanted) -> Arc<Self> {
        Arc::new(Self { wanted, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Adds the record of a call that has ended, or counts it as left out. Never waits for the program.
    fn add(&self, record: &Arc<Record>) {
        if !self.wanted.has(record.procedure) || self.wanted.failed_only && record.outcome != FAILED
        {
            return;
        }
        let mut state = self.state.lock();
        let number = state.seen;
        state.seen += 1;
        let bytes = state.bytes + record.bytes();
        if state.is_closed
            || state.records.len() >= limits::CAPTURE_RECORDS
            || bytes > limits::CAPTURE_QUEUE_BYTES
        {
            state.left_out += 1;
            return;
        }
        state.bytes = bytes;
        state.records.push_back((number, Arc::clone(record)));
        let is_first = state.records.len() == 1;
        drop(state);
        if is_first {
            self.changed.notify_one();
        }
    }

    /// Waits for the next record. Returns `None` if the feed was closed, and no record is left.
    pub(crate) fn take(&self) -> Option<Taken> {
        let mut state = self.state.lock();
        loop {
            if let Some((number, record)) = state.records.pop_front() {
                state.bytes -= record.bytes();
                return Some(Taken { number, left_out: state.left_out, record });
            }
            if state.is_closed {
                return None;
            }
            state = self.changed.wait(state);
        }
    }

    /// Adds no more records.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Returns whether the feed was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Wanted = Wanted { procedure: None, failed_only: false, bytes: 64 };

    fn record(procedure: u32, outcome: u32, bytes: usize) -> Arc<Record> {
        let head = vec![0; bytes];
        Arc::new(Record { procedure, outcome, head, ..Record::default() })
    }

    #[test]
    fn full_feed_counts_what_it_leaves_out() {
        let feed = Feed::new(ALL);
        let one = record(0, 0, 0);
        for _ in 0..limits::CAPTURE_RECORDS + 3 {
            feed.add(&one);
        }
        let first = feed.take().unwrap();
        assert_eq!((first.number, first.left_out), (0, 3));
        feed.add(&one);
        feed.close();
        let mut last = first;
        let mut taken = 1;
        while let Some(next) = feed.take() {
            (last, taken) = (next, taken + 1);
        }
        assert_eq!(taken, limits::CAPTURE_RECORDS + 1);
        assert_eq!(last.number, limits::CAPTURE_RECORDS as u64 + 3);
        assert_eq!(feed.state.lock().bytes, 0);
    }

    #[test]
    fn bytes_of_a_feed_are_bounded() {
        let feed = Feed::new(ALL);
        let large = record(0, 0, limits::CAPTURE_QUEUE_BYTES / 2);
        for _ in 0..3 {
            feed.add(&large);
        }
        let state = feed.state.lock();
        assert_eq!((state.records.len(), state.left_out), (1, 2));
    }

    #[test]
    fn feed_has_only_what_its_program_wants() {
        let feed = Feed::new(Wanted { procedure: Some(1), failed_only: true, ..ALL });
        for (procedure, outcome) in [(0, FAILED), (1, 0), (1, 1), (1, FAILED)] {
            feed.add(&record(procedure, outcome, 0));
        }
        let state = feed.state.lock();
        assert_eq!((state.records.len(), state.seen), (1, 1));
    }
}
