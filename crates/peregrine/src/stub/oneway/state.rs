//! The state of the one-way calls of a binding: what is queued, what has its turn, and what has failed.
//!
//! Entries of the queue have their turn one after the other. The turn is first `Free`, then `Batch`, `Place`,
//! `NoFrame` or `Elsewhere`, and then `Free` again.

use core::task::Waker;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::binding::Bound;
use crate::call::batch::{self, CallRecord, HEADER_BYTES, RecordKind};
use crate::call::{FrameGuard, PathKind, Wait};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::limits;
use crate::value::{Block, Window, align_up};

/// The largest number of bytes of a batch. With this limit, the client can fill one batch while the server
/// runs another.
const BATCH_BYTES: usize = 128 << 10;
/// The initial capacity in bytes of the memory of a batch.
const FIRST_BYTES: usize = 4 << 10;
/// How many calls are queued before the client looks whether the batch under way has ended. The first number
/// is for the local path, where the client only looks at memory. The second number is for other paths, where
/// each look makes a system call.
const LOOK_EVERY: [u32; 2] = [8, 64];

pub(super) struct State {
    /// What waits for its turn, oldest first.
    pub(super) queue: VecDeque<Entry>,
    pub(super) turn: Turn,
    /// The number of bytes of records that are queued or under way.
    pub(super) bytes: usize,
    /// The number of calls that were made.
    pub(super) made: u64,
    /// All calls up to this number have ended.
    pub(super) ended: u64,
    /// The number of batches that were sent.
    pub(super) sent: u64,
    /// The value of `sent` when the timer was set. `None`: the timer is not set.
    pub(super) timer: Option<u64>,
    pub(super) failures: Failures,
    /// The wakers to wake when a turn ends.
    pub(super) waiters: Vec<Waker>,
    /// The wakers to wake when the state is released.
    pub(super) woken: Vec<Waker>,
    /// How callers wait on the path of the last batch.
    pub(super) wait: Wait,
    /// Memory for the result of a batch.
    pub(super) results: Vec<u8>,
    /// Memory for records that is not used now.
    pub(super) spare: Vec<u8>,
    /// A server that has no batches.
    pub(super) batchless: Weak<Bound>,
}

/// What waits for its turn.
pub(super) enum Entry {
    Batch(Chunk),
    /// A call that is made *in place*: its caller makes an ordinary call when the entry has its turn.
    Place(Place),
}

/// The number of a call that is made in place, counted over all calls of the binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(pub(super) u64);

/// Which calls have their turn.
pub(super) enum Turn {
    Free,
    /// A batch was sent in this frame.
    Batch(Chunk, u32),
    /// A caller makes its call in place, as an ordinary call.
    Place(Place),
    /// A batch waits for a frame.
    NoFrame,
    /// A separate thread deals with a batch.
    Elsewhere,
}

/// The records of a batch.
pub(super) struct Chunk {
    pub(super) bound: Arc<Bound>,
    records: Vec<u8>,
    /// The offset of the first record whose call has not ended. To a server of another RPC system the calls
    /// are sent one by one, and each call that ends increases this offset.
    begin: usize,
    /// The offset at which the next record is appended.
    end: usize,
    /// The number of bytes that fit the batch.
    room: usize,
    pub(super) calls: u32,
    /// The number of the batch's last call, counted over all calls of the binding.
    pub(super) upto: u64,
    look_every: u32,
    /// The time at which the first call with a deadline was appended. The times in the records count from
    /// this moment.
    timed: Option<Instant>,
    /// Whether the batch was sent before, to a server that has ended.
    pub(super) again: bool,
}

/// A call that is to be appended.
pub(super) struct Appended<'a, 'b> {
    pub(super) bound: &'a Bound,
    /// The number of the procedure at the server, and its number at the client.
    pub(super) procedures: [u32; 2],
    pub(super) head: Window<'a>,
    pub(super) ins: &'a [Block<'b>],
    pub(super) deadline: Option<Instant>,
}

/// The sizes in bytes of the message of a call, and of the record that contains the message.
#[derive(Clone, Copy)]
pub(super) struct Size {
    copied: usize,
    /// The number of bytes of the record.
    pub(super) record: usize,
}

impl Appended<'_, '_> {
    /// Returns the size of the message. Returns `None` if a block must be converted.
    #[inline]
    pub(super) fn size(&self) -> Option<Size> {
        let after = |at: usize, block: &Block<'_>| Some(align_up(at) + block.unconverted()?.len());
        let copied = self.ins.iter().try_fold(self.head.len(), after)?;
        Some(Size { copied, record: batch::after(0, copied) })
    }
}

/// Returns the number of bytes that fit a batch to a server, or `None` if the path has no batches.
pub(super) fn room(bound: &Bound) -> Option<usize> {
    let message = bound.path.message_bytes();
    let has_batches =
        bound.path.kind() != PathKind::InProcess && message >= limits::MESSAGE_BYTES_MIN;
    // The head of a batch fits 64 bytes.
    has_batches.then(|| (message.saturating_sub(64) & !15).min(BATCH_BYTES))
}

impl Chunk {
    pub(super) fn new(bound: Arc<Bound>, room: usize, spare: Vec<u8>) -> Self {
        let look_every = LOOK_EVERY[usize::from(bound.path.kind() != PathKind::Local)];
        let mut records = spare;
        if records.len() < FIRST_BYTES {
            records = vec![0; FIRST_BYTES];
        }
        records[..HEADER_BYTES].fill(0);
        Self {
            bound,
            records,
            begin: HEADER_BYTES,
            end: HEADER_BYTES,
            room,
            calls: 0,
            upto: 0,
            look_every,
            timed: None,
            again: false,
        }
    }

    /// Returns whether a record of this size, for this server, fits the batch.
    #[inline]
    pub(super) fn fits(&self, bound: &Bound, size: Size) -> bool {
        core::ptr::eq(Arc::as_ptr(&self.bound), bound) && self.end + size.record <= self.room
    }

    /// Appends the record of a call. Returns whether it is time to look for the end of the batch that is
    /// under way.
    #[inline]
    pub(super) fn append(&mut self, call: &Appended<'_, '_>, size: Size, number: u64) -> bool {
        let at = self.end;
        let end = at + size.record;
        if self.records.len() < end {
            self.grow(end);
        }
        let [procedure, own] = call.procedures;
        let left = call.deadline.map(|deadline| {
            let since = *self.timed.get_or_insert_with(Instant::now);
            deadline.saturating_duration_since(since)
        });
        let record = CallRecord {
            // The server repeats the number in its result. The upper half is the client's number of the
            // procedure, for errors.
            number: u64::from(own) << 32 | number & 0xffff_ffff,
            kind: RecordKind::OneWay,
            procedure,
            head: call.head.len() as u32,
            copied: size.copied as u32,
            total: size.copied as u32,
            left,
        };
        let record_bytes = &mut self.records[at..end];
        if let Some(last) = record_bytes.last_chunk_mut::<16>() {
            *last = [0; 16];
        }
        record_bytes[..HEADER_BYTES].copy_from_slice(&record.to_bytes());
        let message = &mut record_bytes[HEADER_BYTES..];
        let _ = call.head.read(0, &mut message[..call.head.len()]);
        let mut to = call.head.len();
        for block in call.ins {
            let from = block.unconverted().unwrap_or(Window::empty());
            let start = align_up(to);
            message[to..start].fill(0);
            to = start + from.len();
            let _ = from.read(0, &mut message[start..to]);
        }
        self.end = end;
        self.calls += 1;
        self.upto = number;
        self.calls.is_multiple_of(self.look_every)
    }

    #[cold]
    fn grow(&mut self, end: usize) {
        self.records.resize(end.max(2 * self.records.len()).min(self.room).max(end), 0);
    }

    /// Returns the bytes of the batch.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.records[..self.end]
    }

    /// Returns the number of bytes of the records.
    pub(super) fn record_bytes(&self) -> usize {
        self.end - HEADER_BYTES
    }

    /// Returns the memory of the records, for another batch.
    pub(super) fn into_memory(self) -> Vec<u8> {
        self.records
    }

    /// Returns the call that is sent next, if the server belongs to another RPC system.
    pub(super) fn foreign_call(&self) -> Option<(CallRecord, &[u8])> {
        self.bound.path.kind().system()?;
        self.calls().next()
    }

    /// Returns whether the server belongs to another RPC system, and further calls follow the call that is
    /// under way.
    pub(super) fn has_more(&self) -> bool {
        self.calls > 1 && self.bound.path.kind().system().is_some()
    }

    /// Notes that the first call has ended. Returns whether further calls follow.
    pub(super) fn ended_first(&mut self) -> bool {
        while let Some(record) = CallRecord::at(&self.records[..self.end], self.begin) {
            self.begin = batch::after(self.begin, record.total as usize);
            if record.kind == RecordKind::OneWay {
                self.calls -= 1;
                break;
            }
        }
        self.calls > 0
    }

    /// Returns the records of the calls that have not ended, with their messages.
    pub(super) fn calls(&self) -> impl Iterator<Item = (CallRecord, &[u8])> {
        let mut at = self.begin;
        core::iter::from_fn(move || {
            let record = CallRecord::at(self.bytes(), at)?;
            let start = at + HEADER_BYTES;
            at = batch::after(at, record.total as usize);
            Some((record, &self.records[start..start + record.total as usize]))
        })
        .filter(|(record, _)| record.kind == RecordKind::OneWay)
    }

    /// Subtracts the time that the calls have waited from the time that each record has left. Makes the
    /// server skip calls whose deadlines have passed. Returns the procedures of the skipped calls, by the
    /// client's numbers.
    pub(super) fn depart(&mut self) -> Vec<u32> {
        let Some(since) = self.timed else { return Vec::new() };
        let now = Instant::now();
        self.timed = Some(now);
        let waited = now.duration_since(since);
        let (mut at, mut late) = (HEADER_BYTES, Vec::new());
        while at < self.end
            && let Some(mut record) = CallRecord::at(&self.records, at)
        {
            if let Some(left) = record.left {
                record.left = Some(left.saturating_sub(waited));
                if left <= waited && record.kind == RecordKind::OneWay {
                    record.kind = RecordKind::Skip;
                    late.push((record.number >> 32) as u32);
                    self.calls -= 1;
                }
                self.records[at..at + HEADER_BYTES].copy_from_slice(&record.to_bytes());
            }
            at = batch::after(at, record.total as usize);
        }
        late
    }
}

/// The failed calls that were not reported to the program yet.
#[derive(Default)]
pub(super) struct Failures {
    failed: u64,
    /// The number of failed calls that were not executed, or may not have been executed.
    not_run: u64,
    /// The number of failed calls that certainly were not executed.
    certain: u64,
    /// The text of the first failure.
    first: String,
}

impl Failures {
    pub(super) const fn is_empty(&self) -> bool {
        self.failed == 0
    }

    /// Notes that `failed` calls have failed. `first` returns the text of the first failure.
    ///
    /// `not_run` is how many of these calls certainly were not executed. The other calls count as executed.
    pub(super) fn note(&mut self, failed: u64, not_run: u64, first: impl FnOnce() -> String) {
        if self.failed == 0 && failed > 0 {
            self.first = first();
        }
        self.failed += failed;
        self.not_run += not_run;
        self.certain += not_run;
    }

    /// Notes calls that have failed with this error.
    pub(super) fn note_error(&mut self, calls: u64, error: &CallError) {
        match error.executed() {
            Executed::No => self.note(calls, calls, || error.chain()),
            Executed::Maybe => self.note(calls, 0, || error.chain()),
        }
        if error.executed() == Executed::Maybe && !error.kind().has_run() {
            self.not_run += calls;
        }
    }

    /// Returns an error that reports the failures, if there are any, and forgets them.
    pub(super) fn tell(&mut self) -> Option<CallError> {
        if self.is_empty() {
            return None;
        }
        let Self { failed, not_run, certain, first } = core::mem::take(self);
        let calls = if failed == 1 { "one-way call" } else { "one-way calls" };
        let text = format!(
            "{failed} earlier {calls} failed, of which {not_run} may not have run; the first failure: {first}"
        );
        let error = CallError::not_executed(Kind::OneWay, Phase::Call, text);
        Some(error.with_oneway([failed, not_run, certain]))
    }
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            turn: Turn::Free,
            bytes: 0,
            made: 0,
            ended: 0,
            sent: 0,
            timer: None,
            failures: Failures::default(),
            waiters: Vec::new(),
            woken: Vec::new(),
            wait: Wait::Block,
            results: Vec::new(),
            spare: Vec::new(),
            batchless: Weak::new(),
        }
    }

    /// Returns whether all calls have ended, and all failures were reported.
    pub(super) fn is_idle(&self) -> bool {
        self.ended == self.made && self.failures.is_empty()
    }

    /// Ends a turn. All calls up to the number `upto` have ended.
    pub(super) fn end_turn(&mut self, upto: u64) {
        self.turn = Turn::Free;
        self.ended = if self.queue.is_empty() { self.made } else { upto };
        self.woken.append(&mut self.waiters);
    }

    /// Ends the turn of a batch.
    pub(super) fn end_chunk(&mut self, chunk: Chunk) {
        self.bytes -= chunk.record_bytes();
        self.end_turn(chunk.upto);
        self.spare = chunk.into_memory();
    }

    /// Ends the turn of a call that is made in place. If the call has not had its turn, removes the call from
    /// the queue. Returns whether the call had its turn.
    pub(super) fn leave_place(&mut self, place: Place) -> bool {
        if matches!(self.turn, Turn::Place(turn) if turn == place) {
            self.end_turn(place.0);
            return true;
        }
        let at =
            self.queue.iter().position(|one| matches!(one, Entry::Place(one) if *one == place));
        if let Some(at) = at {
            self.queue.remove(at);
        }
        if self.queue.is_empty() && matches!(self.turn, Turn::Free) {
            self.end_turn(self.made);
        }
        false
    }

    /// Returns whether a bell is needed for the end of the batch under way: something waits for the end, and
    /// perhaps no call looks for it.
    pub(super) fn needs_bell(&self) -> bool {
        let Turn::Batch(chunk, _) = &self.turn else { return false };
        // Over datagrams, the bell also rings when packets must be retransmitted.
        let waits = !self.queue.is_empty() || !self.waiters.is_empty();
        waits || is_over_datagrams(&chunk.bound) || chunk.has_more()
    }

    /// Returns whether the batch under way has further calls, which are sent one after the other.
    pub(super) fn follows_itself(&self) -> bool {
        matches!(&self.turn, Turn::Batch(chunk, _) if chunk.has_more())
    }

    /// Notes that `waker` is to be woken when a turn ends.
    pub(super) fn wake_later(&mut self, waker: &Waker) {
        if !self.waiters.iter().any(|known| known.will_wake(waker)) {
            self.waiters.push(waker.clone());
        }
    }

    /// Returns whether this server is known to have no batches.
    pub(super) fn is_batchless(&self, bound: &Bound) -> bool {
        core::ptr::eq(self.batchless.as_ptr(), bound)
    }
}

/// Returns whether calls of this binding are sent as packets.
pub(super) fn is_over_datagrams(bound: &Bound) -> bool {
    use PathKind::{CourierUdp, Ethernet, OncUdp, Udp};
    matches!(bound.path.kind(), Udp | Ethernet | CourierUdp | OncUdp)
}

/// Returns the frame of a batch that is under way.
pub(super) fn frame_of(bound: &Bound, frame: u32) -> FrameGuard<'_> {
    bound.frames.kept(frame)
}
