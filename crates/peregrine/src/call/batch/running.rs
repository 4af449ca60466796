//! The batches that the threads of blocking servers run now.
//!
//! A thread runs the calls of a batch one after the other, and their results are sent together. A call may
//! wait for a later call of its batch, or for something that its client does after an earlier call. Then the
//! batch would never end. So a client whose batch takes long sends a second batch, without records. The
//! thread that receives the second batch *relieves* the first thread: it takes the results that the first
//! thread has. If there are no results, it takes the calls that the first thread has not begun.

use core::cell::RefCell;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::calls::{Batch, append, count, record_at, refuse_one, run_one, take_records, timing};
use super::{Account, CallRecord, HEADER_BYTES, RecordKind, Token, after};
use crate::call::Serve;
use crate::call::caller::{Calls, InBatch, source_of_thread};
use crate::call::request::Refusal;
use crate::sync::{Mutex, Rank};
use crate::sys::{ForkMark, PerProcess};
use crate::value::Space;

/// The largest number of cancellations that are kept for calls that were not begun.
const EARLY_MAX: usize = 256;
/// How long a cancellation is kept for a call that was not begun.
const EARLY_TIME: Duration = Duration::from_secs(1);

/// The threads of this process that run batches.
struct Runners {
    runners: Mutex<Vec<Weak<Runner>>>,
    /// Whether `early` may have entries.
    has_early: AtomicBool,
    /// The cancellations that arrived before their calls were begun. A batch with a cancellation can overtake
    /// the batch with the call. A cancellation that arrives after the end of its call is also here for a
    /// while.
    early: Mutex<VecDeque<Early>>,
}

struct Early {
    token: Token,
    number: u64,
    until: Instant,
}

impl Default for Runners {
    fn default() -> Self {
        Self {
            runners: Mutex::ranked(Rank::Lanes, Vec::new()),
            has_early: AtomicBool::new(false),
            early: Mutex::default(),
        }
    }
}

/// A thread that runs batches, and the batch that it runs now.
struct Runner {
    runners: &'static Runners,
    mark: Option<ForkMark>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The token of the batch's lane. `None` while the thread runs no batch.
    token: Option<Token>,
    /// A copy of the records, if there is more than one.
    records: Vec<u8>,
    /// The offset of the next record, which no thread has begun.
    next: usize,
    /// The offset of the end of the records.
    end: usize,
    /// The records of the results that no other thread has taken.
    results: Vec<u8>,
    /// When the batch arrived.
    arrived: Option<Instant>,
    /// The number of the call that the thread runs.
    running: Option<u64>,
    /// Whether the call `running` was cancelled.
    cancelled: bool,
    /// The source of the call that carries the batch, and the number of that call.
    carrier: Option<(Arc<dyn Calls>, u64)>,
}

thread_local! {
    /// The runner of this thread. `None` while the thread runs a batch. If a procedure of this batch calls a
    /// server in the same process, the thread may run a second batch inside the first, with another runner.
    static RUNNER: RefCell<Option<Arc<Runner>>> = const { RefCell::new(None) };
}

/// What a thread does next.
enum Next {
    Call { record: CallRecord, message: Range<usize>, is_cancelled: bool },
    Cancel(u64),
    End,
    Malformed,
}

impl Runners {
    fn of_process() -> &'static Self {
        static RUNNERS: PerProcess<Runners> = PerProcess::new();
        RUNNERS.own()
    }

    /// Calls `with` with the state of each thread that runs a batch of a lane, until `with` returns a value.
    fn find<T>(&self, token: Token, mut with: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let runners: Vec<_> = self.runners.lock().iter().filter_map(Weak::upgrade).collect();
        runners.iter().find_map(|runner| {
            let mut state = runner.state.lock();
            if state.token == Some(token) { with(&mut state) } else { None }
        })
    }

    /// Cancels a call, even if no thread has begun the call yet.
    fn cancel(&self, token: Token, number: u64) {
        let until = Instant::now() + EARLY_TIME;
        let mut early = self.early.lock();
        if early.len() == EARLY_MAX {
            early.pop_front();
        }
        early.push_back(Early { token, number, until });
        drop(early);
        // SYNC: early. A thread notes the call that it begins, and then looks at the flag. This thread sets
        // the flag, and then looks at the calls that were begun. So at least one of the two sees the other.
        self.has_early.store(true, Ordering::SeqCst);
        let is_running = self.find(token, |state| {
            let is_it = state.running == Some(number);
            state.cancelled |= is_it;
            is_it.then_some(())
        });
        if is_running.is_some() {
            let _ = self.take_early(token, number);
        }
    }

    /// Returns whether a call was cancelled before it was begun. Forgets the cancellation.
    #[cold]
    fn take_early(&self, token: Token, number: u64) -> bool {
        let mut early = self.early.lock();
        let now = Instant::now();
        let before = early.len();
        early.retain(|early| early.until > now);
        let expired = before - early.len();
        early.retain(|early| (early.token, early.number) != (token, number));
        self.has_early.store(!early.is_empty(), Ordering::SeqCst);
        early.len() + expired < before
    }
}

impl Runner {
    /// Takes the runner of this thread.
    fn of_thread() -> Arc<Self> {
        let known = RUNNER.take();
        let is_own = |runner: &Arc<Self>| runner.mark.is_some_and(|mark| !mark.wiped());
        known.filter(is_own).unwrap_or_else(|| {
            let (runners, mark) = (Runners::of_process(), ForkMark::of_process().ok());
            let runner = Arc::new(Self { runners, mark, state: Mutex::default() });
            let mut all = runners.runners.lock();
            all.retain(|runner| runner.strong_count() > 0);
            all.push(Arc::downgrade(&runner));
            drop(all);
            runner
        })
    }

    /// Begins a batch.
    fn begin(&self, token: Token, records: &[u8], arrived: Instant, copies: bool) {
        let carrier = source_of_thread();
        let mut state = self.state.lock();
        let State { token: known, records: copy, next, end, .. } = &mut *state;
        (*known, *next, *end) = (Some(token), HEADER_BYTES, records.len());
        if copies {
            copy.extend_from_slice(records);
        }
        (state.arrived, state.carrier) = (Some(arrived), carrier);
    }

    /// Ends the batch. Moves the results that no other thread has taken to `results`, which is empty.
    fn end(self: Arc<Self>, results: &mut Vec<u8>) {
        let mut state = self.state.lock();
        // The vectors are exchanged, so that the memory of both is used again.
        core::mem::swap(&mut state.results, results);
        let carrier = state.carrier.take();
        (state.token, state.running) = (None, None);
        state.records.clear();
        let State { records, results, .. } = &mut *state;
        for memory in [records, results] {
            if memory.capacity() > Batch::KEPT_MAX {
                *memory = Vec::new();
            }
        }
        drop(state);
        drop(carrier);
        RUNNER.set(Some(self));
    }

    /// Begins the next record of `records`.
    fn next(&self, token: Token, records: &[u8]) -> Next {
        let mut state = self.state.lock();
        (state.running, state.cancelled) = (None, false);
        loop {
            let at = state.next;
            if at >= state.end {
                return Next::End;
            }
            let Some((record, message)) = record_at(records, at) else { return Next::Malformed };
            let CallRecord { number, kind, .. } = record;
            state.next = after(at, record.total as usize);
            match kind {
                RecordKind::Skip => {}
                RecordKind::OneWay => return Next::Malformed,
                RecordKind::Cancel => return Next::Cancel(number),
                RecordKind::Call => {
                    state.running = Some(number);
                    drop(state);
                    // SYNC: early, in `cancel`.
                    let may_be_early = self.runners.has_early.load(Ordering::SeqCst);
                    let is_cancelled = may_be_early && self.runners.take_early(token, number);
                    return Next::Call { record, message, is_cancelled };
                }
            }
        }
    }
}

impl Calls for Runner {
    fn is_given_up(&self, call: u64) -> bool {
        let state = self.state.lock();
        let (is_cancelled, carrier) = (state.cancelled, state.carrier.clone());
        let is_running = state.running == Some(call);
        drop(state);
        is_running && is_cancelled
            || carrier.is_some_and(|(carrier, number)| carrier.is_given_up(number))
    }

    fn is_gone(&self) -> bool {
        let carrier = self.state.lock().carrier.clone();
        carrier.is_some_and(|(carrier, _)| carrier.is_gone())
    }

    fn with_account(&self, _: u64, with: &mut dyn FnMut(&dyn Account)) {
        let carrier = self.state.lock().carrier.clone();
        if let Some((carrier, number)) = carrier {
            carrier.with_account(number, with);
        }
    }
}

/// Runs a batch of a lane. `records` begins with the header of the batch. Appends the results to those of
/// `batch`. Returns false if a record is malformed.
pub(super) fn run(batch: &mut Batch, serve: &dyn Serve, token: Token, records: &mut [u8]) -> bool {
    if records.len() > HEADER_BYTES {
        return run_records(batch, serve, token, records, Instant::now());
    }
    relieve(batch, serve, token)
}

/// Relieves a thread that runs a batch of the lane.
#[cold]
fn relieve(batch: &mut Batch, serve: &dyn Serve, token: Token) -> bool {
    let runners = Runners::of_process();
    // At least one record fits, because no result of a call has more than `batch.room` bytes.
    let room = HEADER_BYTES + batch.room;
    let results = runners.find(token, |state| {
        let results = take_records(&mut state.results, room);
        (!results.is_empty()).then_some(results)
    });
    if let Some(results) = results {
        batch.results.extend_from_slice(&results);
        return true;
    }
    let rest = runners.find(token, |state| {
        // A batch of one record has no copy.
        let rest = state.records.get(state.next..).filter(|rest| !rest.is_empty())?;
        let rest = [&[0; HEADER_BYTES], rest].concat();
        state.next = state.end;
        Some((rest, state.arrived))
    });
    let Some((mut records, arrived)) = rest else { return true };
    run_records(batch, serve, token, &mut records, arrived.unwrap_or_else(Instant::now))
}

fn run_records(
    batch: &mut Batch,
    serve: &dyn Serve,
    token: Token,
    records: &mut [u8],
    arrived: Instant,
) -> bool {
    let count = count(records);
    let runner = Runner::of_thread();
    runner.begin(token, records, arrived, count > 1);
    let scope = InBatch::enter_at(Some(Arc::clone(&runner) as _), arrived);
    let complete = loop {
        let (record, message, is_cancelled) = match runner.next(token, records) {
            Next::Call { record, message, is_cancelled } => (record, message, is_cancelled),
            Next::Cancel(number) => {
                runner.runners.cancel(token, number);
                continue;
            }
            Next::End => break true,
            Next::Malformed => break false,
        };
        let timing = timing(&record, count);
        let in_time = scope.begin(record.number, record.left);
        let message = &mut records[message];
        let run = |space: Space<'_>, blocks: &mut Vec<u32>| match (is_cancelled, in_time) {
            (false, true) => run_one(serve, &record, message, space, blocks),
            (false, false) => refuse_one(serve, &record, space, &Refusal::late()),
            (true, _) => {
                let refusal = Refusal::abandoned("its caller has given up");
                refuse_one(serve, &record, space, &refusal)
            }
        };
        batch.call(&record, (count, timing), run, |_, ran, space, blocks| {
            append(&mut runner.state.lock().results, record.number, ran, space, blocks);
        });
    };
    drop(scope);
    runner.end(&mut batch.results);
    complete
}
