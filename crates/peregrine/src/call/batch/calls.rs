//! The calls of a batch: how a thread runs one of them, and keeps the record of its result.

use core::cell::RefCell;
use core::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::counts::{Batched, Timing};
use super::lanes::malformed;
use super::{CallRecord, HEADER_BYTES, ResultRecord, after};
use crate::call::request::Refusal;
use crate::call::serve::{finish, refuse};
use crate::call::{Answer, Ran, Reply, Request, Serve, caller};
use crate::value::{Space, Window, bytes_of_blocks};

/// If a batch has at most this number of records, the server measures the time of each of its calls.
const MEASURED_MAX: usize = 16;

thread_local! {
    /// The memory in which a thread builds the results of calls in batches.
    static SCRATCH: RefCell<Vec<u128>> = const { RefCell::new(Vec::new()) };
    /// The memory in which a thread collects the records of a batch's results.
    static BATCH: RefCell<Batch> = RefCell::default();
}

/// The results of a batch that runs.
#[derive(Default)]
pub(super) struct Batch {
    /// The records of results.
    pub(super) results: Vec<u8>,
    /// The offsets of the blocks of one result.
    blocks: Vec<u32>,
    /// How many bytes the result of a call may have.
    pub(super) room: usize,
    pub(super) slowest: Option<(u32, u32)>,
    /// The calls that have ended.
    pub(super) ended: Batched,
}

impl Batch {
    /// The largest number of bytes of memory that a thread keeps for results.
    pub(super) const KEPT_MAX: usize = 64 << 10;

    pub(super) fn begin(room: usize) -> Self {
        // The batch is taken out of `BATCH`, because a procedure may call a server in this process. That
        // server may run another batch on this thread.
        Self { room, ..BATCH.take() }
    }

    /// Keeps the memory for the next batch of this thread.
    pub(super) fn end(mut self) {
        self.slowest = None;
        self.results.clear();
        self.ended.clear();
        if self.results.capacity() <= Self::KEPT_MAX {
            BATCH.set(self);
        }
    }

    /// Runs one call by `run`. Then passes the result to `keep`, with the offsets of its blocks, unless the
    /// call is deferred. `count` is the number of records in the batch.
    pub(super) fn call(
        &mut self,
        record: &CallRecord,
        (count, timing): (usize, Option<Timing>),
        run: impl FnOnce(Space<'_>, &mut Vec<u32>) -> Ran,
        keep: impl FnOnce(&mut Vec<u8>, &Ran, Window<'_>, &[u32]),
    ) {
        let Self { results, blocks, room, .. } = self;
        let ran = with_scratch(*room, |space| {
            let ran = run(space, blocks);
            if ran.answer != Answer::Deferred {
                keep(results, &ran, space.window(), blocks);
            }
            ran
        });
        let time = timing.map(Timing::end);
        self.ended.add(&ran, record.total, time);
        if let Some((ns, _)) = time.filter(|_| count <= MEASURED_MAX) {
            self.measured(record.procedure, ns);
        }
    }

    fn measured(&mut self, procedure: u32, ns: u64) {
        let took = u32::try_from(ns / 1000).unwrap_or(u32::MAX).max(1);
        if self.slowest.is_none_or(|(_, slowest)| took > slowest) {
            self.slowest = Some((procedure, took));
        }
    }
}

/// Begins to time a call of a batch with `count` records. Returns `None` if the call is not to be timed.
pub(super) fn timing(record: &CallRecord, count: usize) -> Option<Timing> {
    match count <= MEASURED_MAX {
        true => Some(Timing::begin()),
        false => Timing::begin_seldom(record.number),
    }
}

/// Returns the record at an offset, and where its message is. Returns `None` if the record is malformed.
pub(super) fn record_at(records: &[u8], at: usize) -> Option<(CallRecord, Range<usize>)> {
    let record = CallRecord::at(records, at)?;
    let CallRecord { head, copied, total, .. } = record;
    let message = at + HEADER_BYTES..at + HEADER_BYTES + total as usize;
    let fits = head <= copied && copied <= total && message.end <= records.len();
    fits.then_some((record, message))
}

/// Returns the number of records in a batch, but at most [`MEASURED_MAX`] + 1.
pub(super) fn count(records: &[u8]) -> usize {
    let (mut at, mut count) = (HEADER_BYTES, 0);
    while count <= MEASURED_MAX
        && let Some(record) = CallRecord::at(records, at)
    {
        count += 1;
        at = after(at, record.total as usize);
    }
    count
}

/// Calls `with` with private memory of `room` bytes.
pub(crate) fn with_scratch<T>(room: usize, with: impl FnOnce(Space<'_>) -> T) -> T {
    // The memory is taken out of `SCRATCH`, because a procedure may call a server in this process. That
    // server may run a batch on this thread.
    let mut memory = SCRATCH.with_borrow_mut(core::mem::take);
    let blocks = room.div_ceil(16);
    if memory.len() < blocks {
        // A new vector is cheaper than a longer one: it copies nothing, and untouched memory has no pages.
        memory = vec![0; blocks];
    }
    let done = with(Space::of_mut(&mut bytes_of_blocks(&mut memory)[..room]));
    SCRATCH.with_borrow_mut(|scratch| *scratch = memory);
    done
}

/// Runs one call of a batch. The answer is [`Answer::Deferred`] if the result of the call comes later.
pub(super) fn run_one(
    serve: &dyn Serve,
    record: &CallRecord,
    message: &mut [u8],
    space: Space<'_>,
    blocks: &mut Vec<u32>,
) -> Ran {
    let mut reply = Reply::noting(space, blocks);
    let (copied, lent) = message.split_at_mut(record.copied as usize);
    let lent = Window::from(&*lent).into();
    let request = Request::new(record.procedure, copied, record.head as usize, lent);
    let served = match request {
        None => Err(malformed()),
        Some(mut request) => {
            let served = catch_unwind(AssertUnwindSafe(|| serve.serve(&mut request, &mut reply)));
            served.unwrap_or_else(|panic| Err(Refusal::panicked(panic)))
        }
    };
    if let Err(refusal) = served {
        reply.refuse(&refusal);
    }
    finish(&reply)
}

/// Refuses one call of a batch.
#[cold]
pub(super) fn refuse_one(
    serve: &dyn Serve,
    record: &CallRecord,
    space: Space<'_>,
    refusal: &Refusal,
) -> Ran {
    if let Some(caller) = caller() {
        serve.refused(record.procedure, record.total as usize, &caller, refusal);
    }
    refuse(space, refusal)
}

/// Appends the record of a result. `blocks` are the offsets of the result's blocks. Only the filled parts of
/// the blocks are copied: the unfilled parts may have bytes of another client's results.
pub(crate) fn append(
    results: &mut Vec<u8>,
    number: u64,
    ran: &Ran,
    space: Window<'_>,
    blocks: &[u32],
) {
    let Ran { answer, head_at, head_bytes, .. } = *ran;
    let blocks = if answer == Answer::Ok { blocks } else { &[] };
    let filled = |index| {
        let filled: [u8; 4] = space.read_plain(4 * index).unwrap_or_default();
        u32::from_le_bytes(filled)
    };
    let ends = blocks.iter().enumerate().map(|(index, at)| at + filled(index));
    let total = ends.max().unwrap_or(0).max(head_at + head_bytes);
    let record = ResultRecord { number, answer: answer as u32, head_at, head_bytes, total };
    results.extend_from_slice(&record.to_bytes());
    let start = results.len();
    results.resize(after(start - HEADER_BYTES, total as usize), 0);
    let mut copy = |at: u32, bytes: u32| {
        let (from, to) = (start + at as usize, start + (at + bytes) as usize);
        let _ = space.read(at as usize, &mut results[from..to]);
    };
    copy(head_at, head_bytes);
    copy(0, 4 * blocks.len() as u32);
    blocks.iter().enumerate().for_each(|(index, at)| copy(*at, filled(index)));
}

/// Removes the first records of `results` that together have at most `room` bytes, and returns them.
pub(super) fn take_records(results: &mut Vec<u8>, room: usize) -> Vec<u8> {
    if results.len() <= room {
        return core::mem::take(results);
    }
    let mut end = 0;
    while let Some(record) = ResultRecord::at(results, end) {
        let next = after(end, record.total as usize);
        if next > room {
            break;
        }
        end = next;
    }
    let rest = results.split_off(end);
    core::mem::replace(results, rest)
}
