//! Lanes at a server: the calls that arrived in batches, and have no result yet.
//!
//! A lane exists while it has calls without a result. During this time it holds a batch, or its client is
//! about to send a batch. If the client goes, the held batch is cancelled like any deferred call, and the
//! lane ends.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use super::calls::{
    Batch, append, count, record_at, refuse_one, run_one, take_records, timing, with_scratch,
};
use super::counts::{Account, Batched, Timing};
use super::{CallRecord, HEADER_BYTES, RecordKind, ResultHeader, Token, after, oneway, running};
use crate::call::caller::{Calls, InBatch, source_of_thread};
use crate::call::deferred::{Cancels, Owed};
use crate::call::pending::{Bells, Rings};
use crate::call::request::Refusal;
use crate::call::serve::{Served, write_later};
use crate::call::{Answered, Reply, Request, Serve};
use crate::error::Kind;
use crate::limits;
use crate::sync::{Mutex, Rank};
use crate::sys::PerProcess;
use crate::value::Space;

/// A lane keeps at most this number of cancellations that arrived before their calls were deferred.
const EARLY_MAX: usize = 256;

/// The lanes of this process that have calls without a result.
struct Lanes {
    lanes: Mutex<HashMap<Token, Arc<Lane>>>,
}

impl Default for Lanes {
    fn default() -> Self {
        Self { lanes: Mutex::ranked(Rank::Lanes, HashMap::new()) }
    }
}

/// The calls of one lane.
struct Lane {
    token: Token,
    /// The number of threads that run a batch of the lane.
    users: AtomicUsize,
    /// Whether [`State::early`] may have calls.
    has_early: AtomicBool,
    state: Mutex<State>,
}

/// A lane of which a thread runs a batch. While this value exists, the lane is not forgotten.
struct InUse(Arc<Lane>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::SeqCst);
        Lanes::of_process().forget(&self.0);
    }
}

#[derive(Default)]
struct State {
    /// The deferred calls, by their numbers.
    pending: HashMap<u64, Arc<dyn Cancels>>,
    /// The numbers of the deferred calls that were cancelled.
    cancelled: HashSet<u64>,
    /// The numbers of calls whose cancellations arrived before the calls were deferred. A batch with a
    /// cancellation can overtake the batch with the call. If a cancellation arrives after the end of its
    /// call, the number stays here.
    early: VecDeque<u64>,
    /// How many bytes the result of a call may have.
    room: usize,
    /// The records of results that were not sent yet.
    ready: Vec<u8>,
    /// The calls that have ended since the server's counters were last updated.
    ended: Batched,
    /// The account of the client that sent the last batch.
    account: Option<Arc<dyn Account>>,
    held: Option<Held>,
    /// Whether the client has gone.
    closed: bool,
}

/// A batch that is answered when there is a result.
struct Held {
    owed: Box<dyn Owed>,
    /// How many bytes the result of the batch may have.
    room: usize,
}

/// A batch that a thread runs now. The batch is the source ([`Calls`]) of its calls.
struct RunningBatch {
    lane: Arc<Lane>,
    account: Option<Arc<dyn Account>>,
    /// The call that the thread runs.
    call: Mutex<RunningCall>,
}

#[derive(Clone, Copy, Default)]
struct RunningCall {
    /// The size in bytes of the call's message.
    bytes: u32,
    timing: Option<Timing>,
}

/// The duty to answer a deferred call of a lane.
struct OwedResult {
    lane: Arc<Lane>,
    number: u64,
    room: usize,
    call: RunningCall,
    /// The account that counts the call as deferred until this value is dropped.
    account: Option<Arc<dyn Account>>,
}

impl Drop for OwedResult {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.release(self.call.bytes as usize);
        }
    }
}

impl Lanes {
    fn of_process() -> &'static Self {
        static LANES: PerProcess<Lanes> = PerProcess::new();
        LANES.own()
    }

    /// Returns the lane with a token. Makes the lane if it does not exist.
    fn lane(&self, token: Token) -> InUse {
        let new = || {
            let (users, has_early) = (AtomicUsize::new(0), AtomicBool::new(false));
            Arc::new(Lane { token, users, has_early, state: Mutex::default() })
        };
        let mut lanes = self.lanes.lock();
        let lane = Arc::clone(lanes.entry(token).or_insert_with(new));
        lane.users.fetch_add(1, Ordering::SeqCst);
        InUse(lane)
    }

    /// Forgets a lane, if it has no calls and no thread runs a batch of it.
    fn forget(&self, lane: &Arc<Lane>) {
        let mut lanes = self.lanes.lock();
        let is_idle = |known: &Arc<Lane>| {
            Arc::ptr_eq(known, lane) && known.users.load(Ordering::SeqCst) == 0 && known.is_idle()
        };
        if lanes.get(&lane.token).is_some_and(is_idle) {
            let lane = lanes.remove(&lane.token);
            drop(lanes);
            drop(lane);
        }
    }
}

/// Runs a batch, which has arrived as a call of the procedure [`BATCH`](super::BATCH). `serve` serves its
/// calls.
///
/// # Errors
/// Fails if the batch is malformed. The calls before a malformed record have run, but none of their results
/// is sent.
pub(crate) fn serve_batch(
    serve: &dyn Serve,
    request: &mut Request<'_>,
    reply: &mut Reply<'_>,
) -> Served {
    reply.expect(1);
    let mut records = request.slice::<u8>(usize::MAX)?;
    let mut filled = 0;
    let mut into = request.out::<u8>(reply, &mut filled, usize::MAX)?;
    request.finish()?;
    let token = *records.first_chunk::<16>().ok_or_else(malformed)?;
    let room = into.capacity();
    if room < 2 * HEADER_BYTES || records.len() < HEADER_BYTES {
        return Err(malformed());
    }
    if oneway::is_oneway(&records) {
        let Some((header, results)) = oneway::serve(serve, &mut records, room, reply)? else {
            return Ok(());
        };
        let put = into.put(&header.to_bytes()).and_then(|()| into.put(&results));
        put.map_err(|_| malformed())?;
        reply.filled(0, filled)?;
        return reply.ok(&(), |_| Ok(()));
    }
    let mut batch = Batch::begin(room - 2 * HEADER_BYTES);
    let sent = match serve.is_async() {
        false => {
            let complete = running::run(&mut batch, serve, token, &mut records);
            if let Some((calls, call)) = source_of_thread() {
                calls.with_account(call, &mut |account| account.count(&batch.ended));
            }
            let header = ResultHeader { slowest: batch.slowest, ..ResultHeader::default() };
            complete.then(|| (header, core::mem::take(&mut batch.results)))
        }
        true => {
            match Lanes::of_process().lane(token).serve(serve, &mut batch, &mut records, room) {
                Some(sent) => sent,
                None => {
                    reply.defer();
                    return Ok(());
                }
            }
        }
    };
    // The calls before the malformed record have run, so this refusal says that calls may have been executed.
    let text = || Refusal::bad_result("a record of the batch is malformed".into());
    let (header, results) = sent.ok_or_else(text)?;
    let put = into.put(&header.to_bytes()).and_then(|()| into.put(&results));
    put.map_err(|_| malformed())?;
    batch.results = results;
    batch.end();
    reply.filled(0, filled)?;
    reply.ok(&(), |_| Ok(()))
}

#[cold]
pub(super) fn malformed() -> Refusal {
    Refusal::new(Kind::BadArguments, "the batch is malformed")
}

/// Adds calls to the counters of the server, if a server counts them.
fn count_all(account: Option<&dyn Account>, ended: &Batched) {
    if let Some(account) = account {
        account.count(ended);
    }
}

impl State {
    /// Returns the number of calls without a result, plus 1 if there are results that were not sent.
    fn left(&self) -> u32 {
        self.pending.len() as u32 + u32::from(!self.ready.is_empty())
    }

    /// Takes the records that fit the result of a batch. The result may have at most `room` bytes, including
    /// its header. At least one record fits.
    fn take_ready(&mut self, room: usize) -> Vec<u8> {
        take_records(&mut self.ready, room - HEADER_BYTES)
    }
}

impl Held {
    /// Answers the batch with the records `results`.
    fn answer(self, pending: u32, results: &[u8]) {
        let header = ResultHeader { is_async: true, pending, ..ResultHeader::default() };
        let batch = [&header.to_bytes(), results].concat();
        self.owed.answer(Answered::ok(&(), vec![(batch, self.room)], |_| Ok(())));
    }
}

impl InUse {
    /// Runs the records one after the other. `source` may defer their calls. Returns false if a record is
    /// malformed.
    fn run(
        batch: &mut Batch,
        serve: &dyn Serve,
        records: &mut [u8],
        source: &Arc<RunningBatch>,
    ) -> bool {
        let scope = InBatch::enter(Some(Arc::clone(source) as Arc<dyn Calls>));
        let count = count(records);
        let mut at = HEADER_BYTES;
        while at < records.len() {
            let Some((record, message)) = record_at(records, at) else { return false };
            let CallRecord { number, total, .. } = record;
            match record.kind {
                RecordKind::Skip => {}
                RecordKind::OneWay => return false,
                RecordKind::Cancel => source.lane.cancel_one(number),
                RecordKind::Call => {
                    let timing = timing(&record, count);
                    *source.call.lock() = RunningCall { bytes: total, timing };
                    let in_time = scope.begin(number, record.left);
                    let message = &mut records[message];
                    let run = |space: Space<'_>, blocks: &mut Vec<u32>| match in_time {
                        true => run_one(serve, &record, message, space, blocks),
                        false => refuse_one(serve, &record, space, &Refusal::late()),
                    };
                    batch.call(&record, (count, timing), run, |results, ran, space, blocks| {
                        append(results, number, ran, space, blocks);
                    });
                    source.lane.cancel_early(number);
                }
            }
            at = after(at, total as usize);
        }
        true
    }

    /// Runs a batch, and returns the header and the records of its result. Returns the outer `None` if the
    /// batch is held, and the inner `None` if a record is malformed. The result may have at most `room`
    /// bytes.
    fn serve(
        &self,
        serve: &dyn Serve,
        batch: &mut Batch,
        records: &mut [u8],
        room: usize,
    ) -> Option<Option<(ResultHeader, Vec<u8>)>> {
        let lane = &self.0;
        let mut account = None;
        if let Some((calls, call)) = source_of_thread() {
            calls.with_account(call, &mut |one| account = Some(one.keep()));
        }
        let mut state = lane.state.lock();
        (state.room, state.account) = (batch.room, account.clone());
        drop(state);
        let source = RunningBatch { lane: Arc::clone(lane), account, call: Mutex::default() };
        let complete = Self::run(batch, serve, records, &Arc::new(source));
        let mut state = lane.state.lock();
        state.ended.append(&mut batch.ended);
        if state.ready.is_empty() {
            core::mem::swap(&mut state.ready, &mut batch.results);
        } else {
            state.ready.extend_from_slice(&batch.results);
        }
        let waits = !state.pending.is_empty() && state.ready.is_empty();
        if waits && state.held.is_none() && !state.closed {
            drop(state);
            // The batch is held until there is a result.
            if let Some((calls, call)) = source_of_thread() {
                let cancels: Arc<dyn Cancels> = Arc::clone(lane) as _;
                if let Some(mut owed) = calls.defer(call, cancels) {
                    owed.leave_uncounted(true);
                    lane.hold(Held { owed, room });
                    return None;
                }
            }
            state = lane.state.lock();
        }
        let results = state.take_ready(room);
        let pending = state.left();
        // A lane without calls needs no held batch.
        let held = if pending == 0 { state.held.take() } else { None };
        let is_alone = state.held.is_none() && (pending > 0 || !state.early.is_empty());
        lane.count_ended(state);
        lane.expect_batch(is_alone);
        if let Some(held) = held {
            held.answer(0, &[]);
        }
        let slowest = batch.slowest;
        let header = ResultHeader { is_async: true, pending, slowest, ..ResultHeader::default() };
        Some(complete.then_some((header, results)))
    }
}

impl Lane {
    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        let has_calls = !state.pending.is_empty() || !state.early.is_empty();
        !has_calls && state.ready.is_empty() && state.held.is_none()
    }

    /// Holds a batch. Answers it at once if there is a result already.
    fn hold(self: &Arc<Self>, held: Held) {
        self.expect_batch(false);
        let mut state = self.state.lock();
        let before = state.held.replace(held);
        self.answer_held(state);
        // A client that sends two batches to be held gets an empty answer to the first.
        if let Some(before) = before {
            before.answer(1, &[]);
        }
    }

    /// Answers the held batch if there are results, or if no call is pending.
    fn answer_held(self: &Arc<Self>, mut state: crate::sync::MutexGuard<'_, State>) {
        if state.ready.is_empty() && !state.pending.is_empty() && !state.closed {
            return;
        }
        let Some(held) = state.held.take() else { return };
        let results = state.take_ready(held.room);
        let pending = state.left();
        let is_alone = pending > 0 || !state.early.is_empty();
        self.count_ended(state);
        self.expect_batch(is_alone);
        held.answer(pending, &results);
        Lanes::of_process().forget(self);
    }

    /// Counts the calls that have ended, before their results are sent.
    fn count_ended(&self, mut state: crate::sync::MutexGuard<'_, State>) {
        let (ended, account) = (core::mem::take(&mut state.ended), state.account.clone());
        drop(state);
        count_all(account.as_deref(), &ended);
    }

    /// Sets the timer of the lane if `expects` is true, and otherwise removes the timer. The lane ends if its
    /// client sends no batch within [`limits::LANE_TIME`]. While no batch is held, nothing else shows that
    /// the client has gone.
    fn expect_batch(self: &Arc<Self>, expects: bool) {
        let rings: Arc<dyn Rings> = Arc::clone(self) as _;
        if expects {
            let until = Instant::now() + limits::LANE_TIME;
            let _ = Bells::of_process().watch(&rings, 0, Some(until), false);
        } else {
            Bells::of_process().forget(&rings, 0);
        }
    }

    /// Ends the lane, because its client has gone or the server stops.
    fn end(self: Arc<Self>, end: impl Fn(Arc<dyn Cancels>), refusal: Refusal) {
        let mut state = self.state.lock();
        state.closed = true;
        let pending = core::mem::take(&mut state.pending);
        let held = state.held.take();
        state.ready = Vec::new();
        state.early.clear();
        self.count_ended(state);
        pending.into_values().for_each(end);
        if let Some(held) = held {
            held.owed.answer(refusal.into());
        }
        Lanes::of_process().forget(&self);
    }

    /// Cancels a call of the lane.
    fn cancel_one(&self, number: u64) {
        let mut state = self.state.lock();
        let cancels = state.pending.get(&number).map(Arc::clone);
        if cancels.is_some() {
            state.cancelled.insert(number);
        } else {
            if state.early.len() == EARLY_MAX {
                state.early.pop_front();
            }
            state.early.push_back(number);
            self.has_early.store(true, Ordering::Relaxed);
        }
        drop(state);
        if let Some(cancels) = cancels {
            cancels.cancel();
        }
    }

    /// Cancels a call that this thread has begun, if its cancellation arrived before the call was deferred.
    fn cancel_early(&self, number: u64) {
        // `Relaxed` suffices, because both deferring and cancelling take the lock of the state. If the
        // cancellation came first, this thread sees the flag. If the call was deferred first, `cancel_one`
        // has found the call.
        if !self.has_early.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        let Some(at) = state.early.iter().position(|early| *early == number) else { return };
        state.early.remove(at);
        self.has_early.store(!state.early.is_empty(), Ordering::Relaxed);
        let is_pending = state.pending.contains_key(&number);
        drop(state);
        if is_pending {
            self.cancel_one(number);
        }
    }
}

impl Calls for RunningBatch {
    fn is_given_up(&self, call: u64) -> bool {
        let state = self.lane.state.lock();
        state.closed || state.cancelled.contains(&call)
    }

    fn defer(self: Arc<Self>, number: u64, cancels: Arc<dyn Cancels>) -> Option<Box<dyn Owed>> {
        let (call, account) = (*self.call.lock(), self.account.clone());
        if account.as_ref().is_some_and(|account| !account.defer(call.bytes as usize)) {
            return None;
        }
        let lane = Arc::clone(&self.lane);
        let mut owed = Box::new(OwedResult { lane, number, room: 0, call, account });
        let mut state = self.lane.state.lock();
        owed.room = state.room;
        if state.closed {
            return None;
        }
        let before = state.pending.insert(number, cancels);
        drop(state);
        drop(before);
        Some(owed)
    }

    fn with_account(&self, _: u64, with: &mut dyn FnMut(&dyn Account)) {
        if let Some(account) = &self.account {
            with(&**account);
        }
    }
}

impl Cancels for Lane {
    fn cancel(self: Arc<Self>) {
        self.end(|call| call.cancel(), Refusal::abandoned("its caller has given up"));
    }

    fn stop(self: Arc<Self>) {
        self.end(|call| call.stop(), Refusal::stopped());
    }
}

impl Rings for Lane {
    fn word(&self, _: u32) -> Option<(&AtomicU32, u32)> {
        None
    }
    fn examine(&self, _: u32) {}
    fn ring(&self, _: u32) {
        let lane = Lanes::of_process().lanes.lock().get(&self.token).map(Arc::clone);
        if let Some(lane) = lane.filter(|lane| lane.state.lock().held.is_none()) {
            lane.cancel();
        }
    }
}

impl Owed for OwedResult {
    fn leave_uncounted(&mut self, _: bool) {}

    fn answer(self: Box<Self>, answered: Answered) {
        let Self { lane, number, room, call, .. } = &*self;
        with_scratch(*room, |space| {
            let mut blocks = Vec::new();
            let ran = write_later(&answered, space, &mut blocks);
            let mut state = lane.state.lock();
            state.ended.add(&ran, call.bytes, call.timing.map(Timing::end));
            state.cancelled.remove(number);
            if state.pending.remove(number).is_some() {
                append(&mut state.ready, *number, &ran, space.window(), &blocks);
                lane.answer_held(state);
            } else {
                lane.count_ended(state);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Cancelled(AtomicBool);

    impl Cancels for Cancelled {
        fn cancel(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// The batch with a cancellation may overtake the batch with the call.
    #[test]
    fn cancellation_that_overtakes_its_call_cancels_the_call() {
        let token = core::array::from_fn(|at| at as u8 ^ 0xa5);
        Lanes::of_process().lane(token).0.cancel_one(7);
        let lane = Arc::clone(&Lanes::of_process().lane(token).0);
        let (account, call) = (None, Mutex::default());
        let batch = Arc::new(RunningBatch { lane: Arc::clone(&lane), account, call });
        let calls = [6, 7].map(|number| {
            let call = Arc::new(Cancelled::default());
            let owed = Arc::clone(&batch).defer(number, Arc::clone(&call) as _);
            lane.cancel_early(number);
            assert!(owed.is_some());
            call.0.load(Ordering::Relaxed)
        });
        assert_eq!(calls, [false, true]);
        assert!(!lane.has_early.load(Ordering::Relaxed));
        (0..2 * EARLY_MAX as u64).for_each(|number| lane.cancel_one(100 + number));
        assert_eq!(lane.state.lock().early.len(), EARLY_MAX);
        lane.end(|_| (), Refusal::stopped());
        assert!(!Lanes::of_process().lanes.lock().contains_key(&token));
    }
}
