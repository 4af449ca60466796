//! One-way calls at a server. They run strictly one after the other, and their batch is answered when all of
//! them have ended.
//!
//! A blocking server runs one-way calls on the thread that has received the batch. An async server copies the
//! batch. If a procedure does not end at its first poll, the [`Sequence`] keeps the rest of the calls. When
//! the procedure has ended, an executor continues with the rest.

use core::future::poll_fn;
use core::ops::Range;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use std::time::Instant;

use super::calls::{append, record_at, refuse_one, run_one, with_scratch};
use super::counts::{Account, Batched};
use super::{CallRecord, HEADER_BYTES, RecordKind, ResultHeader, ResultRecord, after};
use crate::call::caller::{Calls, Ending, InBatch, ending_of_thread, source_of_thread, undeferred};
use crate::call::deferred::{Cancels, Owed, ThreadWait, continue_later};
use crate::call::in_flight::OneWayInFlight;
use crate::call::request::Refusal;
use crate::call::serve::{EStack, write_later};
use crate::call::{Answer, Answered, Ran, Reply, Serve};
use crate::sync::Mutex;
use crate::value::Window;

/// The number of bytes that the result of a one-way call may have. Only an error has bytes.
const RESULT_BYTES: usize = 8 << 10;

/// The header of the result of a batch, and its records.
type Results = (ResultHeader, Vec<u8>);

/// Returns whether a batch has one-way calls. Its first record that is not skipped decides.
pub(super) fn is_oneway(records: &[u8]) -> bool {
    let mut at = HEADER_BYTES;
    while let Some(record) = CallRecord::at(records, at) {
        match record.kind {
            RecordKind::Skip => at = after(at, record.total as usize),
            kind => return kind == RecordKind::OneWay,
        }
    }
    false
}

/// Runs the calls of a batch. `room` is the number of bytes that the result may have. Returns `None` if the
/// batch is deferred, or its result is in `reply` already.
///
/// # Errors
/// Fails if a record is malformed. The calls before this record have run.
pub(super) fn serve(
    serve: &dyn Serve,
    records: &mut [u8],
    room: usize,
    reply: &mut Reply<'_>,
) -> Result<Option<Results>, Refusal> {
    let room = room - HEADER_BYTES;
    let in_flight = OneWayInFlight::begin(count(records));
    let results = match (serve.is_async(), serve.shared()) {
        (false, _) => run_all(serve, records, room),
        (true, None) => undeferred(|| run_all(serve, records, room)),
        (true, Some(shared)) => match Sequence::run(shared, records, room, in_flight)? {
            Ended::Now(results) => results,
            Ended::Later(sequence) => {
                sequence.defer(reply)?;
                return Ok(None);
            }
        },
    };
    results.map(Some).ok_or_else(bad_record)
}

#[cold]
fn bad_record() -> Refusal {
    Refusal::bad_result("a record of the batch is malformed".into())
}

/// Returns the record at an offset, and where its message is. Returns `None` if the record is malformed, or
/// if a batch of one-way calls must not have records of its kind.
fn oneway_at(records: &[u8], at: usize) -> Option<(CallRecord, Range<usize>)> {
    let has_place = |kind| matches!(kind, RecordKind::OneWay | RecordKind::Skip);
    record_at(records, at).filter(|(record, _)| has_place(record.kind))
}

/// Returns the number of calls of a batch before the first malformed record.
fn count(records: &[u8]) -> u64 {
    let (mut at, mut calls) = (HEADER_BYTES, 0);
    while at < records.len()
        && let Some((record, _)) = oneway_at(records, at)
    {
        at = after(at, record.total as usize);
        calls += u64::from(record.kind == RecordKind::OneWay);
    }
    calls
}

/// Runs the calls of a batch on this thread. Returns `None` if a record is malformed.
fn run_all(serve: &dyn Serve, records: &mut [u8], room: usize) -> Option<Results> {
    let (scope, end) = (InBatch::enter(None), BatchEnd::of_thread());
    let (mut failures, mut blocks) = (Failures::default(), Vec::new());
    let mut at = HEADER_BYTES;
    let complete = with_scratch(RESULT_BYTES, |space| {
        while at < records.len() {
            let (record, message) = oneway_at(records, at)?;
            at = after(at, record.total as usize);
            if record.kind == RecordKind::Skip {
                continue;
            }
            let ran = match end.reason() {
                Some(refusal) => refuse_one(serve, &record, space, &refusal),
                None if scope.begin(record.number, record.left) => {
                    run_one(serve, &record, &mut records[message], space, &mut blocks)
                }
                None => refuse_one(serve, &record, space, &Refusal::late()),
            };
            failures.note((record.number, record.total), &ran, space.window());
        }
        Some(())
    });
    if let Some((calls, call)) = &end.source {
        calls.with_account(*call, &mut |account| account.count(&failures.ended));
    }
    complete?;
    Some(failures.results(room))
}

/// What can end a batch early: its server stops, its export is withdrawn, or its caller gives up.
struct BatchEnd {
    ending: Option<Ending>,
    source: Option<(Arc<dyn Calls>, u64)>,
}

impl BatchEnd {
    /// Returns what can end the batch that this thread runs.
    fn of_thread() -> Self {
        Self { ending: ending_of_thread(), source: source_of_thread() }
    }

    fn reason(&self) -> Option<Refusal> {
        use core::sync::atomic::Ordering::Relaxed;
        if let Some(Ending { stopping, withdrawn }) = &self.ending {
            if stopping.load(Relaxed) {
                return Some(Refusal::stopping());
            }
            if withdrawn.load(Relaxed) {
                let text = "the export was withdrawn before the call began";
                return Some(Refusal::new(crate::error::Kind::Withdrawn, text));
            }
        }
        let (calls, call) = self.source.as_ref()?;
        calls.is_given_up(*call).then(Refusal::given_up)
    }
}

/// The calls of a batch that have failed.
#[derive(Default)]
struct Failures {
    /// How many calls have failed, and how many of the failed calls were not executed.
    counts: [u32; 2],
    /// The record of the first failed call.
    first: Vec<u8>,
    /// All calls of the batch that have ended, for the counters of the server.
    ended: Batched,
}

impl Failures {
    /// Notes how a call has ended: its number, the size of its message, and its result.
    fn note(&mut self, (number, bytes): (u64, u32), ran: &Ran, space: Window<'_>) {
        self.ended.add(ran, bytes, None);
        if matches!(ran.answer, Answer::Ok | Answer::Deferred) {
            return;
        }
        if self.counts[0] == 0 {
            append(&mut self.first, number, ran, space, &[]);
        }
        self.counts[0] += 1;
        self.counts[1] += u32::from(ran.answer == Answer::NotExecuted);
    }

    /// Returns the result of the batch. `room` is the number of bytes that the records may have.
    fn results(mut self, room: usize) -> Results {
        if self.first.len() > room
            && let Some(first) = ResultRecord::at(&self.first, 0)
        {
            let bare = ResultRecord { head_at: 0, head_bytes: 0, total: 0, ..first };
            self.first = bare.to_bytes().to_vec();
        }
        (ResultHeader { failed: self.counts, ..ResultHeader::default() }, self.first)
    }
}

/// The one-way calls of a batch at an async server.
struct Sequence {
    serve: Arc<dyn Serve>,
    end: BatchEnd,
    arrived: Instant,
    room: usize,
    /// The account of the client.
    account: Option<Arc<dyn Account>>,
    state: Mutex<State>,
}

struct State {
    /// The records. `None` while a thread runs one of them.
    records: Option<Records>,
    /// The call that was deferred and has not ended.
    deferred: Option<Arc<dyn Cancels>>,
    /// The size of the message of the call that began last.
    bytes: u32,
    failures: Failures,
    /// Counts the calls as in flight. `None` after all of them have ended.
    in_flight: Option<OneWayInFlight>,
    /// Why no further call begins, if the batch was cancelled.
    cancelled: Option<Refusal>,
    /// The results. `None` before all calls have ended. The inner `None`: a record is malformed.
    results: Option<Option<Results>>,
    /// The duty to answer the batch. `None` until the batch is deferred.
    owed: Option<Box<dyn Owed>>,
    /// The waker of the executor that continues with the next call.
    waker: Option<Waker>,
}

/// The records of a batch, and the offset of the next record.
struct Records {
    memory: EStack,
    bytes: usize,
    at: usize,
}

enum Ended {
    /// All calls have ended. `None`: a record is malformed.
    Now(Option<Results>),
    Later(Arc<Sequence>),
}

impl Records {
    fn of(records: &[u8]) -> Result<Self, Refusal> {
        let mut memory = EStack::default();
        if !memory.reserve(records.len()) {
            let kind = crate::error::Kind::Exhausted;
            return Err(Refusal::new(kind, "no memory for the batch"));
        }
        memory.memory()[..records.len()].copy_from_slice(records);
        Ok(Self { memory, bytes: records.len(), at: HEADER_BYTES })
    }

    /// Returns the next call. Returns `None` after the last call, and `Some(None)` if the next record is
    /// malformed.
    fn next(&mut self) -> Option<Option<(CallRecord, &mut [u8])>> {
        let records = &mut self.memory.memory()[..self.bytes];
        while self.at < records.len() {
            let Some((record, message)) = record_at(records, self.at) else { return Some(None) };
            self.at = after(self.at, record.total as usize);
            if record.kind == RecordKind::OneWay {
                return Some(Some((record, &mut records[message])));
            }
        }
        None
    }
}

impl Sequence {
    /// Runs the calls until one is deferred.
    fn run(
        serve: Arc<dyn Serve>,
        records: &[u8],
        room: usize,
        in_flight: OneWayInFlight,
    ) -> Result<Ended, Refusal> {
        let state = State {
            records: Some(Records::of(records)?),
            deferred: None,
            bytes: 0,
            failures: Failures::default(),
            in_flight: Some(in_flight),
            cancelled: None,
            results: None,
            owed: None,
            waker: None,
        };
        let (end, arrived) = (BatchEnd::of_thread(), Instant::now());
        let mut account = None;
        if let Some((calls, call)) = &end.source {
            calls.with_account(*call, &mut |one| account = Some(one.keep()));
        }
        let state = Mutex::new(state);
        let sequence = Arc::new(Self { serve, end, arrived, room, account, state });
        let runs = Arc::clone(&sequence);
        if continue_later(poll_fn(move |context| runs.poll(context))) {
            let results = sequence.state.lock().results.take();
            return Ok(Ended::Now(results.flatten()));
        }
        Ok(Ended::Later(sequence))
    }

    /// Defers the batch, or waits for its end if it cannot be deferred.
    fn defer(self: Arc<Self>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
        let source = source_of_thread();
        let cancels: Arc<dyn Cancels> = Arc::clone(&self) as _;
        let owed =
            source.as_ref().and_then(|(calls, call)| Arc::clone(calls).defer(*call, cancels));
        if let Some(mut owed) = owed {
            owed.leave_uncounted(true);
            reply.defer();
            if let Some(in_flight) = &mut self.state.lock().in_flight {
                in_flight.leave_thread();
            }
            self.owe(owed);
            return Ok(());
        }
        let wait = Arc::new(ThreadWait::default());
        self.owe(Box::new(Arc::clone(&wait)));
        let is_given_up = || source.as_ref().is_some_and(|(calls, call)| calls.is_given_up(*call));
        wait.answer(|| Arc::clone(&self).cancel(), is_given_up).write(reply)
    }

    /// Notes the duty to answer the batch. Answers the batch now if all of its calls have ended.
    fn owe(&self, owed: Box<dyn Owed>) {
        let mut state = self.state.lock();
        state.owed = Some(owed);
        self.answer(state);
    }

    /// Answers the batch if its calls have ended.
    fn answer(&self, mut state: crate::sync::MutexGuard<'_, State>) {
        if state.results.is_none() {
            return;
        }
        let Some(owed) = state.owed.take() else { return };
        let results = state.results.take().flatten();
        drop(state);
        owed.answer(match results {
            Some((header, records)) => {
                let batch = [&header.to_bytes()[..], &records].concat();
                Answered::ok(&(), vec![(batch, self.room + HEADER_BYTES)], |_| Ok(()))
            }
            None => bad_record().into(),
        });
    }

    /// Runs calls until one is deferred, or all have ended.
    fn poll(self: &Arc<Self>, context: &Context<'_>) -> Poll<()> {
        let scope = InBatch::enter_at(Some(Arc::clone(self) as _), self.arrived);
        loop {
            let end = self.end.reason();
            let mut state = self.state.lock();
            if state.deferred.is_some() {
                state.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            let Some(mut records) = state.records.take() else { return Poll::Ready(()) };
            let refusal = state.cancelled.clone().or(end);
            drop(state);
            let next = match (&refusal, records.next()) {
                (None, Some(Some((record, message)))) => {
                    let in_time = scope.begin(record.number, record.left);
                    self.run_one(&record, message, in_time);
                    true
                }
                (Some(refusal), Some(Some((record, _)))) => {
                    self.refuse_one(&record, refusal);
                    true
                }
                (_, None) => {
                    self.end(true);
                    false
                }
                (_, Some(None)) => {
                    self.end(false);
                    false
                }
            };
            if !next {
                return Poll::Ready(());
            }
            let mut state = self.state.lock();
            state.records = Some(records);
            // The batch may have been cancelled while this thread ran the call.
            let cancels = state.deferred.as_ref().filter(|_| state.cancelled.is_some());
            if let Some(cancels) = cancels.map(Arc::clone) {
                drop(state);
                cancels.cancel();
            }
        }
    }

    /// Runs one call, and notes its end unless it is deferred.
    fn run_one(&self, record: &CallRecord, message: &mut [u8], in_time: bool) {
        self.state.lock().bytes = record.total;
        with_scratch(RESULT_BYTES, |space| {
            let ran = match in_time {
                true => run_one(&*self.serve, record, message, space, &mut Vec::new()),
                false => refuse_one(&*self.serve, record, space, &Refusal::late()),
            };
            let call = (record.number, record.total);
            self.state.lock().failures.note(call, &ran, space.window());
        });
    }

    fn refuse_one(&self, record: &CallRecord, refusal: &Refusal) {
        with_scratch(RESULT_BYTES, |space| {
            let ran = refuse_one(&*self.serve, record, space, refusal);
            let call = (record.number, record.total);
            self.state.lock().failures.note(call, &ran, space.window());
        });
    }

    /// Ends the sequence. `is_complete` is false if a record is malformed.
    fn end(&self, is_complete: bool) {
        let failures = core::mem::take(&mut self.state.lock().failures);
        // Counting takes another lock, so this thread does not hold the lock of the state meanwhile.
        if let Some(account) = &self.account {
            account.count(&failures.ended);
        }
        let results = failures.results(self.room);
        let mut state = self.state.lock();
        state.in_flight = None;
        state.results = Some(is_complete.then_some(results));
        self.answer(state);
    }

    /// Calls `cancel` with the deferred call that has not ended, if there is one. The calls that have not
    /// begun are refused.
    fn cancel_all(self: &Arc<Self>, refusal: Refusal, cancel: impl FnOnce(Arc<dyn Cancels>)) {
        let mut state = self.state.lock();
        state.cancelled.get_or_insert(refusal);
        let deferred = state.deferred.as_ref().map(Arc::clone);
        drop(state);
        if let Some(deferred) = deferred {
            cancel(deferred);
        }
    }
}

impl Calls for Sequence {
    fn is_given_up(&self, _: u64) -> bool {
        self.state.lock().cancelled.is_some()
    }

    fn defer(self: Arc<Self>, call: u64, cancels: Arc<dyn Cancels>) -> Option<Box<dyn Owed>> {
        self.state.lock().deferred = Some(cancels);
        Some(Box::new(OwedResult { sequence: self, number: call }))
    }

    fn with_account(&self, _: u64, with: &mut dyn FnMut(&dyn Account)) {
        if let Some(account) = &self.account {
            with(&**account);
        }
    }
}

impl Cancels for Sequence {
    fn cancel(self: Arc<Self>) {
        self.cancel_all(Refusal::given_up(), |deferred| deferred.cancel());
    }

    fn stop(self: Arc<Self>) {
        self.cancel_all(Refusal::stopping(), |deferred| deferred.stop());
    }
}

/// The duty to note the end of a deferred call.
struct OwedResult {
    sequence: Arc<Sequence>,
    number: u64,
}

impl Owed for OwedResult {
    fn leave_uncounted(&mut self, _: bool) {}

    fn answer(self: Box<Self>, answered: Answered) {
        let Self { sequence, number } = *self;
        let (waker, is_cancelled) = with_scratch(RESULT_BYTES, |space| {
            let ran = write_later(&answered, space, &mut Vec::new());
            let mut state = sequence.state.lock();
            state.deferred = None;
            let call = (number, state.bytes);
            state.failures.note(call, &ran, space.window());
            (state.waker.take(), state.cancelled.is_some())
        });
        if is_cancelled {
            // No procedure begins any more. So this thread can refuse the remaining calls, and end the
            // sequence.
            let _ = sequence.poll(&Context::from_waker(Waker::noop()));
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};

    use proptest::prelude::*;

    use super::*;
    use crate::call::{Request, Served};
    use crate::interface::InterfaceRef;

    /// A server that counts its calls. Every third call fails.
    #[derive(Default)]
    struct Counts(AtomicU32);

    impl Serve for Counts {
        fn interface(&self) -> InterfaceRef {
            InterfaceRef::none()
        }
        fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
            let number = self.0.fetch_add(1, Ordering::Relaxed);
            let value = request.value::<u32>()?;
            request.finish()?;
            match number % 3 {
                2 => reply.err(&value),
                _ => reply.ok(&(), |_| Ok(())),
            }
        }
    }

    fn batch(calls: u32) -> Vec<u8> {
        let mut records = vec![0; HEADER_BYTES];
        for number in 0..calls {
            let record = CallRecord {
                number: number.into(),
                kind: RecordKind::OneWay,
                procedure: 0,
                head: 4,
                copied: 4,
                total: 4,
                left: None,
            };
            records.extend_from_slice(&record.to_bytes());
            records.extend_from_slice(&[7; 4]);
            records.resize(records.len().next_multiple_of(16), 0);
        }
        records
    }

    #[test]
    fn result_has_the_numbers_and_the_first_failure() {
        let (counts, mut records) = (Counts::default(), batch(10));
        assert!(is_oneway(&records));
        let (header, first) = run_all(&counts, &mut records, 1000).unwrap();
        assert_eq!((header.failed, counts.0.into_inner()), ([3, 0], 10));
        let record = ResultRecord::at(&first, 0).unwrap();
        assert_eq!((record.number, record.answer), (2, Answer::Err as u32));
        // Without space for the error, the record has only a header.
        let (header, first) = run_all(&Counts::default(), &mut batch(3), HEADER_BYTES).unwrap();
        assert_eq!((header.failed, first.len()), ([1, 0], HEADER_BYTES));
    }

    #[test]
    fn other_records_are_refused() {
        let mut records = batch(3);
        let second = HEADER_BYTES + 48;
        records[second + 8] = RecordKind::Call as u8;
        let counts = Counts::default();
        assert!(run_all(&counts, &mut records, 1000).is_none());
        assert_eq!(counts.0.load(Ordering::Relaxed), 1);
        records[HEADER_BYTES + 8] = RecordKind::Skip as u8;
        assert!(!is_oneway(&records));
    }

    proptest! {
        #[test]
        fn damaged_batches_run_no_more_calls_than_they_have_records(
            calls in 0u32..20,
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            end in any::<prop::sample::Index>(),
            room in 32usize..200,
        ) {
            let mut records = batch(calls);
            for (at, byte) in damage {
                let at = at.index(records.len());
                records[at] = byte;
            }
            records.truncate(end.index(records.len() + 1).max(HEADER_BYTES));
            let counts = Counts::default();
            let results = run_all(&counts, &mut records, room);
            prop_assert!(counts.0.into_inner() <= calls);
            if let Some((header, first)) = results {
                prop_assert!(header.failed[0] <= calls && header.failed[1] <= header.failed[0]);
                prop_assert!(first.len() <= room);
            }
        }
    }
}
