//! The state of a [`Lane`](super::Lane): its calls, and the records that wait to be sent.

use core::task::Waker;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use super::relief::Relief;
use super::{ALONE, ALONE_FIRST, MEASURED_WITHIN, OUTSTANDING_MAX, SLOW_IN_A_ROW, SLOW_US};
use crate::call::batch::{self, CallRecord, HEADER_BYTES, RecordKind, ResultHeader, ResultRecord};
use crate::error::CallError;
use crate::limits;

/// The largest number of chunks whose memory is kept. Many more than 1,000 small calls fit these chunks.
const SPARE_MAX: usize = 8 * OUTSTANDING_MAX;

/// The calls of a lane, the batches that have no result yet, and what is known of the server.
pub(super) struct State {
    pub(super) slots: Vec<Slot>,
    pub(super) free: Vec<u32>,
    /// The records that were not sent yet. Each chunk fits a batch, and has space for the batch's header.
    pub(super) queue: VecDeque<Chunk>,
    /// The number of chunks that were removed from the front of the queue.
    pub(super) gone: u64,
    pub(super) outstanding: Vec<Batch>,
    /// The number of calls that were sent and have no result.
    pub(super) sent: usize,
    /// The number of calls without a result, whether they were sent or not.
    pub(super) pending: usize,
    pub(super) looker: Option<u32>,
    /// The slots of calls whose futures sleep. A call may have ended after its slot was added. Each slot is
    /// here at most once. One of these futures may become the *looker*: the future that looks for the results
    /// of all calls.
    pub(super) sleepers: VecDeque<u32>,
    /// Whether the looker has looked since the last check.
    pub(super) looked: bool,
    /// Whether a timer is set that checks the looker.
    pub(super) is_checked: bool,
    /// Whether the bells of the outstanding batches are armed.
    pub(super) armed: bool,
    pub(super) is_async: bool,
    /// Whether the server has answered a batch. Before this answer, the client does not know whether the
    /// server has batches, so it sends an empty batch first.
    pub(super) known: bool,
    /// Whether the server has no batches.
    pub(super) unsupported: bool,
    /// True while a ring of a bell is handled; false while the future of a call uses the state.
    pub(super) is_ring: bool,
    /// Whether a thread prepares a frame.
    pub(super) preparing: bool,
    pub(super) speeds: BTreeMap<u32, Speed>,
    /// The procedures that were slow when they were measured last.
    slow: BTreeMap<u32, Slow>,
    /// The procedure that is measured now, and when the measured call was sent.
    pub(super) measuring: Option<(u32, Instant)>,
    /// The time at which the queue was first found to be blocked: it has calls, but the largest number of
    /// batches is outstanding. `None` again when a batch is answered.
    pub(super) full_since: Option<Instant>,
    /// How many of the outstanding batches ask the server to relieve a thread.
    pub(super) reliefs: usize,
    pub(super) relief: Relief,
    /// Whether the outstanding batches have had no answer for so long that further calls are made alone.
    pub(super) stuck: bool,
    /// The number of calls that had no result at the server when the server answered the last batch.
    pub(super) last_pending: Option<u32>,
    /// The wakers to wake when the state is released.
    pub(super) woken: Vec<Waker>,
    /// Unused memory for wakers.
    pub(super) spare_woken: Vec<Waker>,
    /// Unused memory for the results of batches.
    pub(super) spare: Vec<Vec<u8>>,
    /// Unused memory for the records of batches. Each vector has the space for the header of a batch.
    spare_records: Vec<Vec<u8>>,
    /// Unused memory for the calls of batches.
    spare_calls: Vec<Vec<u32>>,
}

#[derive(Default)]
pub(super) struct Chunk {
    pub(super) records: Vec<u8>,
    /// The calls that have a record in `records`.
    pub(super) calls: Vec<u32>,
    /// If the chunk has only one call, and this call is measured: the procedure of the call.
    pub(super) measured: Option<u32>,
    /// The time at which the first call with a deadline was queued. The times in the records count from this
    /// moment.
    timed: Option<Instant>,
}

impl Chunk {
    /// Subtracts the time for which the calls were queued from the time that each record has left.
    pub(super) fn depart(&mut self) {
        let Some(since) = self.timed else { return };
        let now = Instant::now();
        self.timed = Some(now);
        let mut at = HEADER_BYTES;
        while let Some(mut record) = CallRecord::at(&self.records, at) {
            if let Some(left) = &mut record.left {
                *left = left.saturating_sub(now.duration_since(since));
                self.records[at..at + HEADER_BYTES].copy_from_slice(&record.to_bytes());
            }
            at = batch::after(at, record.total as usize);
        }
    }
}

/// A batch that has no result yet.
pub(super) struct Batch {
    pub(super) frame: u32,
    pub(super) results: Vec<u8>,
    pub(super) calls: Vec<u32>,
    /// Whether the batch is empty, and no other batch has been outstanding since it was sent.
    pub(super) alone: bool,
    /// Whether the batch asks the server to relieve a thread.
    pub(super) relieves: bool,
}

/// What is known of the time that a procedure takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Speed {
    /// A measurement of the procedure began at this time. The procedure's later calls wait for the measured
    /// call, for a limited time.
    Measured(Instant),
    Fast,
    /// The procedure is slow. The number says how many of its next calls are made alone.
    Slow(u32),
}

/// What is known of a procedure that was slow when it was measured last.
struct Slow {
    /// The number of measurements in a row that have found it slow.
    in_a_row: u32,
    /// How many calls are made alone if it is slow again.
    alone: u32,
}

/// A call of the lane, or free space for one.
#[derive(Default)]
pub(super) struct Slot {
    /// Distinguishes the calls that use the slot one after another.
    pub(super) generation: u32,
    pub(super) phase: Phase,
    pub(super) waker: Option<Waker>,
    /// The result of the call.
    pub(super) result: Vec<u8>,
    /// Whether the call has a timer.
    pub(super) timed: bool,
    /// Whether the slot is in the list of sleepers, perhaps because of an earlier call.
    pub(super) sleeps: bool,
}

#[derive(Default)]
pub(super) enum Phase {
    #[default]
    Free,
    /// The record lies at the offset `at` of the chunk with the number `chunk`.
    Queued {
        chunk: u64,
        at: usize,
    },
    Sent,
    /// The call was sent, and then its caller gave it up.
    Abandoned,
    Done(ResultRecord),
    Failed(Failure),
}

/// Why a call of a lane has no result.
pub(in crate::stub) enum Failure {
    Error(CallError),
    /// The server has no batches. The call was not executed, and can be made alone.
    Unsupported,
    /// The call was not sent, and is made alone: its procedure may be slow, or no batch was answered for
    /// long.
    Alone,
}

/// The result of a call: how it ended, and its bytes.
pub(in crate::stub) type Ended = Result<(ResultRecord, ResultBytes), Failure>;

/// The largest size in bytes of a result that is stored without memory from the heap.
const INLINE_BYTES: usize = 96;

/// The bytes of a result.
#[derive(Debug)]
pub(in crate::stub) enum ResultBytes {
    Inline([u8; INLINE_BYTES], usize),
    Heap(Vec<u8>),
}

impl ResultBytes {
    /// Takes the bytes of a result. A small result is copied, so that the next result can use the memory of
    /// `result`.
    pub(super) fn take(result: &mut Vec<u8>) -> Self {
        if result.len() > INLINE_BYTES {
            return Self::Heap(core::mem::take(result));
        }
        let mut bytes = [0; INLINE_BYTES];
        bytes[..result.len()].copy_from_slice(result);
        Self::Inline(bytes, result.len())
    }

    pub(in crate::stub) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline(bytes, length) => &bytes[..*length],
            Self::Heap(bytes) => bytes,
        }
    }
}

/// Whether a call shares its batch with other calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stub) enum Company {
    /// The call shares its batch with other calls.
    Shared,
    /// The call has a batch for itself: the server measures how long the procedure of the call takes.
    Measured,
}

/// What a future does while its call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stub) enum Role {
    /// The future looks for the results of all calls.
    Looks,
    /// The future sleeps until its waker is woken.
    Sleeps,
}

/// Identifies a call of a lane.
#[derive(Clone, Copy, Debug)]
pub(in crate::stub) struct Ticket {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl Chunk {
    /// Returns whether the server would skip all records.
    fn is_void(&self) -> bool {
        let mut at = HEADER_BYTES;
        while let Some(record) = CallRecord::at(&self.records, at) {
            if record.kind != RecordKind::Skip {
                return false;
            }
            at = batch::after(at, record.total as usize);
        }
        true
    }
}

impl State {
    pub(super) fn new(unsupported: bool) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
            gone: 0,
            outstanding: Vec::new(),
            sent: 0,
            pending: 0,
            looker: None,
            sleepers: VecDeque::new(),
            looked: false,
            is_checked: false,
            armed: false,
            is_async: false,
            known: false,
            unsupported,
            is_ring: false,
            preparing: false,
            speeds: BTreeMap::new(),
            slow: BTreeMap::new(),
            measuring: None,
            full_since: None,
            reliefs: 0,
            relief: Relief::default(),
            stuck: false,
            last_pending: None,
            woken: Vec::new(),
            spare_woken: Vec::new(),
            spare: Vec::new(),
            spare_records: Vec::new(),
            spare_calls: Vec::new(),
        }
    }

    /// Returns whether a call of the procedure shares its batch with other calls, or has a batch for itself.
    /// `None` if the call must be made alone: without a batch.
    pub(super) fn takes(&mut self, procedure: u32) -> Option<Company> {
        if self.unsupported
            || self.stuck
            || self.slots.len() - self.free.len() >= limits::LANE_CALLS_MAX
        {
            return None;
        }
        if self.is_async {
            return Some(Company::Shared);
        }
        match self.speeds.get_mut(&procedure) {
            Some(Speed::Fast) => Some(Company::Shared),
            Some(Speed::Measured(since)) if since.elapsed() < MEASURED_WITHIN => {
                Some(Company::Shared)
            }
            Some(Speed::Slow(left)) if *left > 0 => {
                *left -= 1;
                None
            }
            Some(Speed::Slow(_) | Speed::Measured(_)) | None => {
                self.speeds.insert(procedure, Speed::Measured(Instant::now()));
                Some(Company::Measured)
            }
        }
    }

    /// Returns a chunk without records: only the space for the header of a batch.
    pub(super) fn chunk(&mut self) -> Chunk {
        let records = self.spare_records.pop().unwrap_or_else(|| vec![0; HEADER_BYTES]);
        let calls = self.spare_calls.pop().unwrap_or_default();
        Chunk { records, calls, measured: None, timed: None }
    }

    /// Keeps the memory of records that were sent, for another chunk.
    pub(super) fn keep_records(&mut self, mut records: Vec<u8>) {
        records.truncate(HEADER_BYTES);
        if self.spare_records.len() < SPARE_MAX {
            self.spare_records.push(records);
        }
    }

    /// Keeps the memory of the calls of a batch, for another chunk.
    pub(super) fn keep_calls(&mut self, mut calls: Vec<u32>) {
        calls.clear();
        if self.spare_calls.len() < SPARE_MAX {
            self.spare_calls.push(calls);
        }
    }

    /// Returns whether another batch may be sent now. With a blocking server, a batch that only cancels calls
    /// may always be sent.
    pub(super) fn may_send(&self) -> bool {
        let is_free = self.outstanding.len() - self.reliefs < OUTSTANDING_MAX;
        self.queue.front().is_some_and(|chunk| is_free || chunk.calls.is_empty() && !self.is_async)
    }

    /// Removes the oldest chunk from the queue. Chunks whose calls have all left the queue are not sent.
    pub(super) fn next_chunk(&mut self) -> Option<Chunk> {
        loop {
            let chunk = self.queue.pop_front()?;
            self.gone += 1;
            if !chunk.is_void() {
                return Some(chunk);
            }
            self.keep_records(chunk.records);
            self.keep_calls(chunk.calls);
        }
    }

    /// Appends a record and the space for its message to the queue. A chunk gets at most `room` bytes.
    /// Returns the number of the record's chunk, and the offset of the record in the chunk. The record gets
    /// the time that is left until `deadline`.
    pub(super) fn append(
        &mut self,
        room: usize,
        record: &CallRecord,
        company: Company,
        deadline: Option<Instant>,
    ) -> (u64, usize) {
        let bytes = batch::after(0, record.total as usize);
        let fits = |chunk: &Chunk| chunk.measured.is_none() && chunk.records.len() + bytes <= room;
        if company == Company::Measured || !self.queue.back().is_some_and(fits) {
            let measured = (company == Company::Measured).then_some(record.procedure);
            let chunk = self.chunk();
            self.queue.push_back(Chunk { measured, ..chunk });
        }
        let number = self.gone + self.queue.len() as u64 - 1;
        let Chunk { records, timed, .. } = self.queue.back_mut().expect("a chunk was pushed");
        let left = deadline.map(|deadline| {
            deadline.saturating_duration_since(*timed.get_or_insert_with(Instant::now))
        });
        let at = records.len();
        records.extend_from_slice(&CallRecord { left, ..*record }.to_bytes());
        records.resize(at + bytes, 0);
        (number, at)
    }

    /// Makes the server skip the record of a call that was not sent yet. The chunk of the record does not
    /// name the call any more, because another call may use the slot before the chunk is sent.
    pub(super) fn skip(&mut self, index: u32, chunk: u64, at: usize) {
        let chunk = chunk.checked_sub(self.gone).and_then(|at| self.queue.get_mut(at as usize));
        let Some(chunk) = chunk else { return };
        chunk.calls.retain(|call| *call != index);
        mark_skipped(&mut chunk.records, at);
    }

    /// Returns what the future of a call does next. If there is no looker, this future becomes the looker.
    pub(super) fn role(&mut self, index: u32) -> Role {
        match self.looker {
            Some(looker) if looker != index => Role::Sleeps,
            _ => {
                self.looker = Some(index);
                Role::Looks
            }
        }
    }

    /// Notes that the future of a call sleeps.
    pub(super) fn sleep(&mut self, index: u32, waker: &Waker) {
        let slot = &mut self.slots[index as usize];
        match &mut slot.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        if !core::mem::replace(&mut slot.sleeps, true) {
            self.sleepers.push_back(index);
        }
    }

    /// If the future of the call `index` is the looker, makes the future of another call the looker.
    pub(super) fn hand_over(&mut self, index: u32) {
        if self.looker != Some(index) {
            return;
        }
        self.looker = None;
        while let Some(next) = self.sleepers.pop_front() {
            let slot = &mut self.slots[next as usize];
            slot.sleeps = false;
            if next != index
                && matches!(slot.phase, Phase::Queued { .. } | Phase::Sent)
                && let Some(waker) = slot.waker.take()
            {
                self.looker = Some(next);
                return self.woken.push(waker);
            }
        }
    }

    /// Wakes all futures that sleep. The first one that is polled becomes the looker.
    pub(super) fn wake_sleepers(&mut self) {
        self.looker = None;
        self.armed = false;
        for index in self.sleepers.drain(..) {
            let slot = &mut self.slots[index as usize];
            slot.sleeps = false;
            self.woken.extend(slot.waker.take());
        }
    }

    /// Ends a call.
    pub(super) fn end(&mut self, index: u32, phase: Phase) {
        let slot = &mut self.slots[index as usize];
        match slot.phase {
            Phase::Sent => {
                self.sent -= 1;
                self.pending -= 1;
            }
            Phase::Queued { .. } => self.pending -= 1,
            Phase::Abandoned => {
                self.sent -= 1;
                slot.generation = slot.generation.wrapping_add(1);
                slot.phase = Phase::Free;
                return self.free.push(index);
            }
            Phase::Free | Phase::Done(_) | Phase::Failed(_) => return,
        }
        slot.phase = phase;
        self.woken.extend(slot.waker.take());
    }

    pub(super) fn fail(&mut self, index: u32, unsupported: bool, error: &CallError) {
        let failure = if unsupported { Failure::Unsupported } else { Failure::Error(error.copy()) };
        self.end(index, Phase::Failed(failure));
    }

    /// Fails all calls that were sent.
    pub(super) fn fail_all(&mut self, error: &CallError) {
        for index in 0..self.slots.len() as u32 {
            if matches!(self.slots[index as usize].phase, Phase::Sent | Phase::Abandoned) {
                self.fail(index, false, error);
            }
        }
    }

    /// Stores whether a procedure was found fast or slow. If the procedure may be slow, its queued calls are
    /// made alone.
    pub(super) fn set_speed(&mut self, procedure: u32, mut speed: Speed) {
        if !self.speeds.contains_key(&procedure) {
            // Only a malicious server measures a procedure that was not called.
            return;
        }
        if self.measuring.is_some_and(|(measured, _)| measured == procedure) {
            self.measuring = None;
        }
        // A few measurements may be wrong: the server's thread may have waited for a processor, or other
        // calls may have delayed the measured call. So calls are made alone only after some slow measurements
        // in a row. With each further slow measurement, more calls are made alone.
        if let Speed::Slow(left) = &mut speed {
            let first = Slow { in_a_row: 0, alone: ALONE_FIRST };
            let slow = self.slow.entry(procedure).or_insert(first);
            slow.in_a_row = slow.in_a_row.saturating_add(1);
            if slow.in_a_row >= SLOW_IN_A_ROW {
                *left = slow.alone;
                slow.alone = (slow.alone * 4).min(ALONE);
            } else if self.speeds.get(&procedure) == Some(&Speed::Fast) {
                return;
            }
        } else {
            self.slow.remove(&procedure);
        }
        self.speeds.insert(procedure, speed);
        if speed == Speed::Fast {
            return;
        }
        for chunk in 0..self.queue.len() {
            let mut calls = core::mem::take(&mut self.queue[chunk].calls);
            calls.retain(|index| {
                let Phase::Queued { at, .. } = self.slots[*index as usize].phase else {
                    return true;
                };
                let records = &mut self.queue[chunk].records;
                let record = CallRecord::at(records, at);
                if record.is_none_or(|record| record.procedure != procedure) {
                    return true;
                }
                mark_skipped(records, at);
                self.end(*index, Phase::Failed(Failure::Alone));
                false
            });
            self.queue[chunk].calls = calls;
        }
    }

    /// Removes all calls from the queue, so that they are made alone: without a batch. The procedures of the
    /// outstanding batches may wait for these calls.
    pub(super) fn make_queued_alone(&mut self) {
        let queue = core::mem::take(&mut self.queue);
        self.gone += queue.len() as u64;
        for index in queue.into_iter().flat_map(|chunk| chunk.calls) {
            if matches!(self.slots[index as usize].phase, Phase::Queued { .. }) {
                self.end(index, Phase::Failed(Failure::Alone));
            }
        }
    }

    /// Ends all calls that were not sent. They fail with `error`, or are made alone if `error` is `None`.
    pub(super) fn fail_queued(&mut self, error: Option<&CallError>) {
        let queue = core::mem::take(&mut self.queue);
        self.gone += queue.len() as u64;
        for index in queue.into_iter().flat_map(|chunk| chunk.calls) {
            if matches!(self.slots[index as usize].phase, Phase::Queued { .. }) {
                match error {
                    Some(error) => self.fail(index, false, error),
                    None => self.end(index, Phase::Failed(Failure::Unsupported)),
                }
            }
        }
    }

    /// Takes the results of a batch. Returns false if they are malformed.
    pub(super) fn take_results(&mut self, results: &[u8]) -> bool {
        let Some(header) = ResultHeader::of(results) else { return false };
        self.is_async |= header.is_async;
        self.last_pending = Some(header.pending);
        // An async server defers calls that take long, so all calls can share batches.
        if let Some((procedure, took)) = header.slowest.filter(|_| !self.is_async) {
            let speed = if took > SLOW_US { Speed::Slow(0) } else { Speed::Fast };
            self.set_speed(procedure, speed);
        }
        let mut at = HEADER_BYTES;
        while let Some(record) = ResultRecord::at(results, at) {
            let (start, next) = (at + HEADER_BYTES, batch::after(at, record.total as usize));
            let Some(bytes) = results.get(start..start + record.total as usize) else {
                return false;
            };
            at = next;
            let index = record.number as u32;
            let Some(slot) = self.slots.get_mut(index as usize) else { continue };
            if slot.generation != (record.number >> 32) as u32 {
                continue;
            }
            if matches!(slot.phase, Phase::Sent) {
                slot.result.clear();
                slot.result.extend_from_slice(bytes);
            }
            self.end(index, Phase::Done(record));
        }
        at >= results.len()
    }
}

/// Makes the server skip the record at an offset.
fn mark_skipped(records: &mut [u8], at: usize) {
    if let Some(kind) = records.get_mut(at + 8..at + 12) {
        kind.copy_from_slice(&(RecordKind::Skip as u32).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    /// Queues a call in the slot `index`, in a chunk of at most `room` bytes.
    fn queue(state: &mut State, index: u32, room: usize) -> (u64, usize) {
        let record = CallRecord {
            number: index.into(),
            kind: RecordKind::Call,
            procedure: 0,
            head: 0,
            copied: 0,
            total: 0,
            left: None,
        };
        let (chunk, at) = state.append(room, &record, Company::Shared, None);
        state.queue.back_mut().expect("a chunk").calls.push(index);
        state.slots[index as usize].phase = Phase::Queued { chunk, at };
        (chunk, at)
    }

    #[test]
    fn chunk_does_not_name_a_call_that_was_given_up() {
        let mut state = State::new(false);
        state.slots.resize_with(2, Slot::default);
        let (chunk, at) = queue(&mut state, 0, 1 << 10);
        queue(&mut state, 1, 1 << 10);
        state.skip(0, chunk, at);
        // The next call in the slot is in the next chunk. It is not sent with the first chunk.
        assert_eq!(queue(&mut state, 0, 0).0, chunk + 1);
        let calls: Vec<_> = state.queue.iter().map(|chunk| chunk.calls.clone()).collect();
        assert_eq!(calls, [vec![1], vec![0]]);
        let kind = CallRecord::at(&state.queue[0].records, at).map(|record| record.kind);
        assert_eq!(kind, Some(RecordKind::Skip));
        // When the last call of the first chunk leaves too, this chunk has no calls, and is not sent.
        state.skip(1, chunk, HEADER_BYTES + HEADER_BYTES);
        assert_eq!(state.next_chunk().map(|chunk| chunk.calls), Some(vec![0]));
        assert_eq!((state.queue.len(), state.gone), (0, 2));
    }

    #[test]
    fn one_slow_measurement_does_not_decide() {
        let mut state = State::new(false);
        let speed = |state: &State| state.speeds[&7];
        state.speeds.insert(7, Speed::Measured(Instant::now()));
        // Before the first fast measurement, the procedure is measured again after each slow one.
        for _ in 1..SLOW_IN_A_ROW {
            state.set_speed(7, Speed::Slow(0));
            assert!(speed(&state) == Speed::Slow(0));
        }
        state.set_speed(7, Speed::Fast);
        // A fast procedure counts as fast until enough slow measurements follow each other.
        for _ in 1..SLOW_IN_A_ROW {
            state.set_speed(7, Speed::Slow(0));
            assert!(speed(&state) == Speed::Fast);
        }
        for alone in [ALONE_FIRST, 4 * ALONE_FIRST] {
            state.set_speed(7, Speed::Slow(0));
            assert!(speed(&state) == Speed::Slow(alone));
        }
        state.set_speed(7, Speed::Fast);
        state.set_speed(7, Speed::Slow(0));
        assert!(speed(&state) == Speed::Fast);
    }

    /// A record that is sent says how much time its call has left at that moment.
    #[test]
    fn time_in_the_queue_is_subtracted() {
        let mut state = State::new(false);
        let record = CallRecord {
            number: 0,
            kind: RecordKind::Call,
            procedure: 0,
            head: 0,
            copied: 0,
            total: 0,
            left: None,
        };
        let second = Duration::from_secs(1);
        let now = Instant::now();
        let until = |seconds| Some(now + seconds * second);
        for deadline in [until(5), None, until(1)] {
            state.append(1 << 10, &record, Company::Shared, deadline);
        }
        let chunk = &mut state.queue[0];
        chunk.timed = chunk.timed.and_then(|timed| timed.checked_sub(2 * second));
        chunk.depart();
        let left =
            |at: usize| CallRecord::at(&chunk.records, (1 + at) * HEADER_BYTES).unwrap().left;
        let first = left(0).unwrap();
        assert!(first > second && first <= 3 * second, "{first:?}");
        assert_eq!((left(1), left(2)), (None, Some(Duration::from_micros(1))));
        // What was subtracted is not subtracted again.
        chunk.depart();
        let again = CallRecord::at(&chunk.records, HEADER_BYTES).unwrap().left.unwrap();
        assert!(again > second, "{again:?}");
    }
}
