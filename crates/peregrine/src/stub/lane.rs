//! [`Lane`]: the small calls of a binding that share batches (`call/batch.rs` has the format).
//!
//! A call appends its record to a queue, and is *queued*. When a batch can be sent, the oldest records are
//! sent in it, and their calls are *sent*. The reply to a batch may have results of calls from any batch.
//! While sent calls have no result, at least one batch is outstanding. If no other batch is outstanding, the
//! client sends an empty batch, which the server holds until there is a result.
//!
//! One of the waiting futures, the *looker*, looks for the results of all calls, for as long as the binding's
//! [`Wait`](crate::Wait) says. Then the looker arms the bells of the outstanding batches, and sleeps as the
//! other futures do. A bell wakes the lane itself. The lane takes the results, and wakes the futures of the
//! calls that have one.
//!
//! The owner of the looker may set it aside, and then nothing polls the looker. So while other futures sleep
//! and rely on the looker, a timer checks that it looks. If it does not, the lane arms the bells itself.

mod relief;
mod state;

pub(super) use state::{Company, Ended, Failure, ResultBytes, Role, Ticket};

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::task::Waker;
use core::time::Duration;
use std::sync::{Arc, Weak};
use std::task::Wake;
use std::time::Instant;

use self::state::{Batch, Chunk, Phase, Slot, Speed, State};
use super::compiled::{Returned, does_not_fit};
use crate::binding::Bound;
use crate::call::batch::{BATCH, CallRecord, HEADER_BYTES, RecordKind, Token};
use crate::call::extensions::no_time_left;
use crate::call::pending::{Bells, Rings};
use crate::call::{self, Answer, Begun, Call, CallTerms, FrameGuard, PathKind};
use crate::error::{CallError, Executed, Kind};
use crate::limits;
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys;
use crate::value::{Block, Native, Out, Window, Writer, align_up};

/// A call shares a batch only if its message has at most this number of bytes. Its out buffers together may
/// also have at most this number of bytes. For a larger message, one more copy costs more than a separate
/// message.
const RECORD_BYTES: usize = 2048;
/// The largest number of bytes of records in a batch. With this limit, the server can begin with one batch
/// while the client writes the next one.
const BATCH_BYTES: usize = 16 << 10;
/// The largest number of outstanding batches: while the server holds one, the client can send another.
const OUTSTANDING_MAX: usize = 2;
/// A procedure that takes longer than this at the server is slow: it delays the later calls of its batch too
/// much.
const SLOW_US: u32 = 100;
/// The number of slow measurements in a row after which a procedure counts as slow.
const SLOW_IN_A_ROW: u32 = 3;
/// The largest number of calls of a slow procedure that are made alone, before a call of the procedure is
/// measured again.
const ALONE: u32 = 1000;
/// How many calls are made alone after their procedure was first found to be slow. The number grows to
/// [`ALONE`].
const ALONE_FIRST: u32 = 16;
/// The longest time that other calls wait for the result of a measured call. After this time, the measurement
/// counts as slow.
const MEASURED_WITHIN: Duration = Duration::from_millis(1);
/// If [`OUTSTANDING_MAX`] batches are outstanding for this time while calls wait, the waiting calls are made
/// alone, because the procedures of the batches may wait until these calls run. The time is longer than most
/// round trips.
const STUCK: Duration = Duration::from_millis(100);
/// The time after which the lane tries again to send a batch that it could not send.
const RETRY: Duration = Duration::from_millis(1);
/// How often a looker is checked while other futures rely on it.
const CHECK_LOOKER: Duration = Duration::from_millis(1);
/// The number of the timer after which the lane tries again to send. The timers for the deadlines of calls
/// have smaller numbers than the lane's own three timers.
const RETRY_TIMER: u32 = u32::MAX;
/// The number of the lane's timer for the check of the looker.
const LOOKER_TIMER: u32 = u32::MAX - 1;
/// The number of the timer after which the lane asks the server to relieve a thread.
const RELIEF_TIMER: u32 = u32::MAX - 2;

/// The calls of a binding that share batches.
pub(crate) struct Lane {
    bound: Weak<Bound>,
    this: Weak<Self>,
    token: Token,
    state: Mutex<State>,
    /// Set when a bell rings. If another thread uses the state at that time, that thread handles the ring
    /// when it releases the state.
    rung: AtomicBool,
    /// How many bytes the records of a batch may have, and how many the result of a batch may have.
    room: [usize; 2],
}

impl Lane {
    /// Returns the lane of a binding.
    pub(crate) fn new(bound: &Arc<Bound>) -> Arc<Self> {
        let token = sys::random().unwrap_or_default();
        let message = bound.path.message_bytes();
        // Without random bytes, two clients could have the same token, so this client then sends no batches.
        let unsupported = bound.path.kind() == PathKind::InProcess
            || bound.is_layered()
            || token == Token::default()
            || message < limits::MESSAGE_BYTES_MIN;
        // The head of a batch fits 64 bytes, and so does the table of its result.
        let most = message.saturating_sub(64) & !15;
        let state = State::new(unsupported);
        Arc::new_cyclic(|this| Self {
            bound: Arc::downgrade(bound),
            this: Weak::clone(this),
            token,
            state: Mutex::ranked(Rank::Lane, state),
            rung: AtomicBool::new(false),
            room: [most.min(BATCH_BYTES), most],
        })
    }

    /// Gives up the batches that are under way, because the binding is dropped: no future waits for a call.
    pub(crate) fn close(&self, bound: &Bound) {
        // Every thread that uses the state holds the binding, which is dropped here. So no thread uses the
        // state. This thread may hold the lock of another lane, so it must not wait for this lock.
        let Some(mut state) = self.state.try_lock() else { return };
        let outstanding = core::mem::take(&mut state.outstanding);
        drop(state);
        for batch in outstanding {
            give_up(bound, batch.frame, BATCH);
        }
    }

    /// Runs `with` on the state, releases the state, and then wakes the futures that `with` added to `woken`.
    /// Every user of the state releases it by `leave`, because a thread that rings relies on that.
    fn with<T>(&self, bound: &Bound, with: impl FnOnce(&Self, &mut State) -> T) -> T {
        let mut state = self.state.lock();
        let done = with(self, &mut state);
        self.leave(bound, state);
        done
    }

    /// Releases the state, and wakes the futures in `woken`. Handles the rings that came while the state was
    /// in use.
    fn leave<'a>(&'a self, bound: &Bound, mut state: MutexGuard<'a, State>) {
        loop {
            if !state.woken.is_empty() {
                let spare = core::mem::take(&mut state.spare_woken);
                let mut woken = core::mem::replace(&mut state.woken, spare);
                drop(state);
                woken.drain(..).for_each(Waker::wake);
                // The memory is used again, unless another thread uses the state now. This thread may hold
                // the lock of another lane, so it must not wait for this lock.
                if let Some(mut state) = self.state.try_lock() {
                    state.spare_woken = woken;
                }
            } else {
                drop(state);
            }
            // SYNC: rung. This thread releases the state, and then looks at the flag. A thread that rings
            // sets the flag, and then tries to take the state. So at least one of the two handles the ring.
            if !self.rung.load(Ordering::SeqCst) {
                return;
            }
            let Some(next) = self.state.try_lock() else { return };
            state = next;
            self.rung.store(false, Ordering::SeqCst);
            self.on_ring(bound, &mut state);
        }
    }

    /// Returns whether a call of the procedure shares its batch with other calls, or has a batch for itself.
    /// `None` if the call must be made alone: without a batch.
    pub(super) fn takes(&self, bound: &Bound, procedure: u32) -> Option<Company> {
        self.with(bound, |_, state| state.takes(procedure))
    }

    /// Queues a call. `head` is the head of its message, and `outs` is the size of its out buffers. Returns
    /// `None` if the call must be made alone, and an error if its deadline has passed.
    pub(super) fn begin(
        &self,
        bound: &Bound,
        (procedure, company): (u32, Company),
        head: Window<'_>,
        [ins, lent]: [&[Block<'_>]; 2],
        outs: usize,
        deadline: Option<Instant>,
    ) -> Option<Result<Ticket, CallError>> {
        let after = |at: usize, block: &Block<'_>| Some(align_up(at) + block.unconverted()?.len());
        let at = ins.iter().try_fold(head.len(), after)?;
        let copied = if lent.is_empty() { at } else { align_up(at) };
        let total = lent.iter().try_fold(at, after)?.max(copied);
        if total > RECORD_BYTES || outs > RECORD_BYTES {
            return None;
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Some(Err(no_time_left()));
        }
        self.with(bound, |lane, state| {
            let index = state.free.pop().unwrap_or_else(|| {
                state.slots.push(Slot::default());
                state.slots.len() as u32 - 1
            });
            let generation = state.slots[index as usize].generation;
            let number = u64::from(generation) << 32 | u64::from(index);
            let record = CallRecord {
                number,
                kind: RecordKind::Call,
                procedure,
                head: head.len() as u32,
                copied: copied as u32,
                total: total as u32,
                left: None,
            };
            let (chunk, at) = state.append(lane.room[0], &record, company, deadline);
            let records = &mut state.queue.back_mut().expect("a chunk was appended to").records;
            write(records, at + HEADER_BYTES, head, ins, lent);
            state.queue.back_mut().expect("as above").calls.push(index);
            state.slots[index as usize].phase = Phase::Queued { chunk, at };
            state.pending += 1;
            Some(Ok(Ticket { index, generation }))
        })
    }

    /// Takes the results that have arrived, and sends the queued calls. Then returns the result of the call
    /// of `ticket`, if it has arrived.
    pub(super) fn look(&self, bound: &Bound, ticket: Ticket) -> Option<Ended> {
        self.with(bound, |lane, state| {
            state.looked = true;
            lane.turn(bound, state);
            lane.take(state, ticket)
        })
    }

    /// Returns the processor on which the server runs, if this is known.
    pub(super) fn server_cpu(&self, bound: &Bound) -> Option<u32> {
        self.with(bound, |_, state| {
            let batch = state.outstanding.first()?;
            bound.path.server_cpu(batch.frame)
        })
    }

    /// Returns the result of a call. If the call has no result yet, returns what the future of the call does
    /// next. `waker` is woken when this future has something to do.
    pub(super) fn wait(&self, bound: &Bound, ticket: Ticket, waker: &Waker) -> Result<Ended, Role> {
        self.with(bound, |lane, state| {
            if let Some(ended) = lane.take(state, ticket) {
                return Ok(ended);
            }
            let role = state.role(ticket.index);
            state.sleep(ticket.index, waker);
            // Only the looker sends queued calls. While the bells are not armed, only the looker finds
            // results.
            let relies_on_looker = !state.armed || !state.queue.is_empty();
            if role == Role::Sleeps && relies_on_looker && !state.is_checked {
                state.is_checked = lane.timer(LOOKER_TIMER, CHECK_LOOKER);
            }
            Err(role)
        })
    }

    /// Makes the looker sleep. From now on, the bells of the outstanding batches wake the lane.
    pub(super) fn sleep(&self, bound: &Bound, ticket: Ticket, waker: &Waker) -> Option<Ended> {
        self.with(bound, |lane, state| {
            if state.looker == Some(ticket.index) {
                state.looker = None;
            }
            state.sleep(ticket.index, waker);
            state.armed = true;
            lane.turn(bound, state);
            lane.arm(bound, state);
            lane.take(state, ticket)
        })
    }

    /// Sets a timer that wakes the future of a call at `deadline`.
    pub(super) fn time(&self, bound: &Bound, ticket: Ticket, deadline: Instant) {
        let is_timed = self.with(bound, |_, state| {
            core::mem::replace(&mut state.slots[ticket.index as usize].timed, true)
        });
        if !is_timed && let Some(lane) = self.this.upgrade() {
            let rings: Arc<dyn Rings> = lane;
            let _ = Bells::of_process().watch(&rings, ticket.index, Some(deadline), false);
        }
    }

    /// Gives up a call. Returns whether the call may have been executed. The result of a call that has ended
    /// is dropped.
    pub(super) fn give_up(&self, bound: &Bound, ticket: Ticket) -> Executed {
        self.with(bound, |lane, state| lane.abandon(bound, state, ticket))
    }

    /// Ends a call whose deadline has passed: takes the results that have arrived, and gives up the call if
    /// it has no result.
    ///
    /// # Errors
    /// If the call has no result. The error says whether the call may have been executed.
    pub(super) fn end_late(&self, bound: &Bound, ticket: Ticket) -> Result<Ended, Executed> {
        self.with(bound, |lane, state| {
            lane.receive(bound, state);
            let ended = lane.take(state, ticket);
            let ended = ended.ok_or_else(|| lane.abandon(bound, state, ticket));
            // The late call is not among the calls that are sent now: `abandon` has removed it.
            lane.turn(bound, state);
            ended
        })
    }

    // The functions below need the locked state.

    /// Gives up a call. Returns whether the call may have been executed.
    fn abandon(&self, bound: &Bound, state: &mut State, ticket: Ticket) -> Executed {
        let slot = &mut state.slots[ticket.index as usize];
        if slot.generation != ticket.generation {
            return Executed::Maybe;
        }
        slot.waker = None;
        let number = u64::from(ticket.generation) << 32 | u64::from(ticket.index);
        let executed = match core::mem::take(&mut slot.phase) {
            Phase::Queued { chunk, at } => {
                state.skip(ticket.index, chunk, at);
                state.pending -= 1;
                self.release(state, ticket.index);
                Executed::No
            }
            Phase::Sent => {
                slot.phase = Phase::Abandoned;
                state.pending -= 1;
                let cancel = CallRecord {
                    number,
                    kind: RecordKind::Cancel,
                    procedure: 0,
                    head: 0,
                    copied: 0,
                    total: 0,
                    left: None,
                };
                state.append(self.room[0], &cancel, Company::Shared, None);
                self.turn(bound, state);
                if !state.queue.is_empty() && !state.armed {
                    // A ring sends the cancellation later, because perhaps no future is left that looks.
                    state.armed = true;
                    self.on_ring(bound, state);
                }
                Executed::Maybe
            }
            phase => {
                slot.phase = phase;
                self.release(state, ticket.index);
                Executed::Maybe
            }
        };
        state.hand_over(ticket.index);
        executed
    }

    /// Takes the result of a call.
    fn take(&self, state: &mut State, ticket: Ticket) -> Option<Ended> {
        let slot = &mut state.slots[ticket.index as usize];
        let ended = match core::mem::take(&mut slot.phase) {
            Phase::Done(record) => Ok((record, ResultBytes::take(&mut slot.result))),
            Phase::Failed(failure) => Err(failure),
            phase => {
                slot.phase = phase;
                return None;
            }
        };
        self.release(state, ticket.index);
        state.hand_over(ticket.index);
        Some(ended)
    }

    /// Frees the slot of a call that has ended.
    fn release(&self, state: &mut State, index: u32) {
        let slot = &mut state.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.phase = Phase::Free;
        slot.waker = None;
        let timed = core::mem::take(&mut slot.timed);
        state.free.push(index);
        if timed && let Some(lane) = self.this.upgrade() {
            let rings: Arc<dyn Rings> = lane;
            Bells::of_process().forget(&rings, index);
        }
    }

    /// Handles a ring: takes the results, and arms the bells again. Any thread of the process may run this.
    fn on_ring(&self, bound: &Bound, state: &mut State) {
        state.is_ring = true;
        self.turn(bound, state);
        state.is_ring = false;
        if state.armed {
            self.arm(bound, state);
        }
    }

    /// Makes the bells of the outstanding batches wake the lane.
    fn arm(&self, bound: &Bound, state: &mut State) {
        if state.pending == 0 && state.outstanding.is_empty() && state.queue.is_empty() {
            state.armed = false;
            return;
        }
        if state.outstanding.is_empty() {
            // No batch is outstanding, so no bell can ring. Either no frame was free for a batch, or the
            // server cannot hold a batch and has answered it at once.
            return self.retry();
        }
        let Some(lane) = self.this.upgrade() else { return };
        let waker = Waker::from(lane);
        for batch in &state.outstanding {
            bound.frames.bell(batch.frame).set(&waker);
            bound.path.arm(batch.frame, None);
        }
        self.time_relief(state);
    }

    /// Takes the results that have arrived, and sends the queued calls.
    fn turn(&self, bound: &Bound, state: &mut State) {
        self.receive(bound, state);
        if !state.known {
            if !state.queue.is_empty() && state.outstanding.is_empty() {
                let chunk = state.chunk();
                let _ = self.send(bound, state, chunk);
            }
            return;
        }
        while state.may_send() && !self.is_measuring(state) {
            let Some(chunk) = state.next_chunk() else { break };
            let measured = chunk.measured.filter(|_| !state.is_async);
            if let Err(chunk) = self.send(bound, state, chunk) {
                state.queue.push_front(chunk);
                state.gone -= 1;
                break;
            }
            if let Some(procedure) = measured
                && matches!(state.speeds.get(&procedure), Some(Speed::Measured(_)))
            {
                state.measuring = Some((procedure, Instant::now()));
            }
        }
        let is_full = state.outstanding.len() - state.reliefs >= OUTSTANDING_MAX;
        if is_full && !state.queue.is_empty() && !state.is_async {
            let now = Instant::now();
            if now.duration_since(*state.full_since.get_or_insert(now)) >= STUCK {
                state.stuck = true;
                state.make_queued_alone();
            } else if state.armed {
                self.timer(RETRY_TIMER, STUCK);
            }
        }
        if state.relief.look() {
            self.relieve(bound, state);
        }
        // The server can return missing results only while a batch is outstanding.
        if state.sent > 0 && state.outstanding.is_empty() && state.queue.is_empty() {
            let chunk = state.chunk();
            let _ = self.send(bound, state, chunk);
        }
    }

    /// Returns whether the queued calls must wait for the result of a measured call.
    fn is_measuring(&self, state: &mut State) -> bool {
        let Some((procedure, since)) = state.measuring else { return false };
        if since.elapsed() < MEASURED_WITHIN {
            if state.armed {
                self.retry();
            }
            return true;
        }
        state.set_speed(procedure, Speed::Slow(0));
        false
    }

    fn receive(&self, bound: &Bound, state: &mut State) {
        let mut at = 0;
        while at < state.outstanding.len() {
            let batch = &mut state.outstanding[at];
            let frame = bound.frames.kept(batch.frame);
            let mut out = Out::from(&mut batch.results[..]);
            let polled = {
                let mut outs = [out.block_of(self.room[1])];
                let mut head = Writer::new(frame.call_space());
                let mut call = batch_call(&frame, &mut head, &[], &mut outs);
                bound.path.poll(&mut call)
            };
            let filled = out.filled();
            match polled {
                None => {
                    frame.keep();
                    at += 1;
                }
                Some(result) => {
                    bound.frames.bell(batch.frame).clear();
                    let batch = state.outstanding.swap_remove(at);
                    if batch.relieves {
                        state.reliefs -= 1;
                    } else {
                        (state.full_since, state.stuck) = (None, false);
                    }
                    self.returned(bound, state, batch, frame, filled, result);
                }
            }
        }
    }

    /// Sends `chunk` as a batch. Returns `chunk` if no frame is free and prepared.
    fn send(&self, bound: &Bound, state: &mut State, chunk: Chunk) -> Result<(), Chunk> {
        self.send_as(bound, state, chunk, false)
    }

    /// As [`send`](Self::send). `relieves` is whether the batch asks the server to relieve a thread.
    fn send_as(
        &self,
        bound: &Bound,
        state: &mut State,
        mut chunk: Chunk,
        relieves: bool,
    ) -> Result<(), Chunk> {
        let is_released = |frame| bound.path.is_released(frame);
        let taken = if state.preparing {
            None
        } else {
            bound.frames.try_take(&is_released, bound.on_exhausted)
        };
        let Some(frame) = taken else {
            if !relieves {
                self.retry();
            }
            return Err(chunk);
        };
        if !bound.path.is_prepared(frame.index()) {
            if state.is_ring {
                // Any thread may handle a ring. If it started a thread that prepares a frame, that thread
                // would inherit its properties, such as the network namespace. So a future is woken instead,
                // and the future starts such a thread.
                drop(frame);
                state.wake_sleepers();
            } else {
                self.prepare(state, frame);
            }
            return Err(chunk);
        }
        chunk.records[..size_of::<Token>()].copy_from_slice(&self.token);
        chunk.depart();
        let mut results = state.spare.pop().unwrap_or_default();
        if results.len() < self.room[1] {
            results = vec![0; self.room[1]];
        }
        let mut head = Writer::new(frame.call_space());
        let counts = head.count(chunk.records.len()).and_then(|()| head.count(self.room[1]));
        let mut out = Out::from(&mut results[..]);
        let begun = match counts.map_err(does_not_fit) {
            Err(error) => Err(error),
            Ok(()) => {
                let mut outs = [out.block_of(self.room[1])];
                let records = [Block::from(Window::from(&chunk.records[..]))];
                let mut call = batch_call(&frame, &mut head, &records, &mut outs);
                bound.path.begin(&mut call)
            }
        };
        let filled = out.filled();
        let alone = chunk.calls.is_empty() && state.outstanding.is_empty();
        // The server may answer an earlier batch before it knows the calls of this one. So its answer to the
        // earlier batch does not show that the server has lost a call.
        state.outstanding.iter_mut().for_each(|batch| batch.alone = false);
        for index in &chunk.calls {
            let slot = &mut state.slots[*index as usize];
            if matches!(slot.phase, Phase::Queued { .. }) {
                slot.phase = Phase::Sent;
                state.sent += 1;
            }
        }
        state.keep_records(core::mem::take(&mut chunk.records));
        let index = frame.index();
        let batch = Batch { frame: index, results, calls: chunk.calls, alone, relieves };
        match begun {
            Ok(Begun::Pending) => {
                frame.keep();
                state.outstanding.push(batch);
                state.reliefs += usize::from(relieves);
                if state.armed
                    && let Some(lane) = self.this.upgrade()
                {
                    bound.frames.bell(index).set(&Waker::from(lane));
                    bound.path.arm(index, None);
                }
            }
            Ok(Begun::Ended(returned)) => {
                self.returned(bound, state, batch, frame, filled, Ok(returned));
            }
            Err(error) => self.returned(bound, state, batch, frame, filled, Err(error)),
        }
        Ok(())
    }

    /// Handles the end of a batch.
    fn returned(
        &self,
        bound: &Bound,
        state: &mut State,
        mut batch: Batch,
        frame: FrameGuard<'_>,
        filled: usize,
        result: Result<call::Returned, CallError>,
    ) {
        let read = result.and_then(|returned| {
            let is_ok = returned.answer == Answer::Ok;
            let mut returned = Returned::<Native>::of(&frame, returned)?;
            if is_ok { Ok(()) } else { Err(returned.refused()) }
        });
        let captured = match &read {
            Ok(()) => false,
            Err(error) => error.executed() == Executed::Maybe || bound.path.captures(frame.index()),
        };
        if captured {
            frame.capture();
        } else {
            drop(frame);
        }
        match read {
            Ok(()) => {
                let results = core::mem::take(&mut batch.results);
                let complete = state.take_results(&results[..filled]);
                state.relief.answered(batch.relieves && filled <= HEADER_BYTES);
                state.known = true;
                state.spare.push(results);
                state.keep_calls(core::mem::take(&mut batch.calls));
                if !complete {
                    state.fail_all(&CallError::bad_result("the results of a batch are malformed"));
                }
                let pending = state.last_pending.take();
                if batch.alone && pending == Some(0) && state.sent > 0 {
                    let text = "the server has lost the call";
                    state.fail_all(&CallError::new(Kind::ServerGone, Executed::Maybe, text));
                }
            }
            Err(error) => {
                let lacks =
                    error.kind() == Kind::NoSuchProcedure && error.executed() == Executed::No;
                state.unsupported |= lacks;
                for index in &batch.calls {
                    state.fail(*index, lacks, &error);
                }
                if lacks {
                    state.fail_queued(None);
                } else if !state.known {
                    state.fail_queued(Some(&error));
                }
                let is_relief_refused = batch.relieves && error.executed() == Executed::No;
                if is_relief_refused {
                    state.relief.answered(true);
                }
                if batch.calls.is_empty() && !lacks && !is_relief_refused {
                    // An empty batch is sent only for the results of earlier calls. These results can no
                    // longer arrive.
                    state.fail_all(&error.copy().may_have_executed());
                }
            }
        }
    }

    /// Prepares a frame on a new thread.
    fn prepare(&self, state: &mut State, frame: FrameGuard<'_>) {
        let index = frame.keep();
        state.preparing = true;
        let lane = Weak::clone(&self.this);
        let prepare = move || {
            let Some(lane) = lane.upgrade() else { return };
            let Some(bound) = lane.bound.upgrade() else { return };
            let deadline = Instant::now() + Duration::from_secs(5);
            let prepared = bound.path.prepare(index, Some(deadline));
            lane.with(&bound, |lane, state| {
                state.preparing = false;
                drop(bound.frames.kept(index));
                if let Err(error) = &prepared {
                    state.fail_queued(Some(error));
                    state.relief.is_due = false;
                }
                lane.on_ring(&bound, state);
            });
        };
        let thread = std::thread::Builder::new().name("peregrine-bind".into()).spawn(prepare);
        if thread.is_err() {
            state.preparing = false;
            self.retry();
        }
    }

    /// Makes the lane try again after [`RETRY`].
    fn retry(&self) {
        self.timer(RETRY_TIMER, RETRY);
    }

    /// Sets one of the lane's timers. Returns false if the timer cannot be set.
    fn timer(&self, timer: u32, after: Duration) -> bool {
        let Some(lane) = self.this.upgrade() else { return false };
        let rings: Arc<dyn Rings> = lane;
        Bells::of_process().watch(&rings, timer, Some(Instant::now() + after), false).is_ok()
    }

    /// Arms the bells if no looker has looked since the last check.
    fn check_looker(&self, bound: &Bound, state: &mut State) {
        state.is_checked = false;
        if state.pending == 0 || state.armed && state.queue.is_empty() {
            return;
        }
        if core::mem::take(&mut state.looked) {
            state.is_checked = self.timer(LOOKER_TIMER, CHECK_LOOKER);
            return;
        }
        // The next future that is polled becomes the looker.
        state.looker = None;
        state.armed = true;
        self.on_ring(bound, state);
    }
}

/// Gives up the pending call of a kept frame.
pub(super) fn give_up(bound: &Bound, frame: u32, procedure: u32) {
    bound.frames.bell(frame).clear();
    let kept = bound.frames.kept(frame);
    let (frame, terms) = (&kept, CallTerms::None);
    let head = &mut *Writer::<Native>::new(frame.call_space());
    let (ins, lent, outs) = (&[], &[], &mut []);
    let error = bound.path.give_up(&mut Call { procedure, frame, head, ins, lent, outs, terms });
    if error.executed() == Executed::Maybe || bound.path.captures(kept.index()) {
        kept.capture();
    }
}

/// Makes the call that carries a batch.
pub(super) fn batch_call<'a, 'f, 'o>(
    frame: &'a FrameGuard<'f>,
    head: &'a mut Writer<'f>,
    ins: &'a [Block<'a>],
    outs: &'a mut [crate::value::OutBlock<'o>],
) -> Call<'a, 'f, 'o> {
    Call { procedure: BATCH, frame, head, ins, lent: &[], outs, terms: CallTerms::None }
}

/// Writes the message of a call to the records of a chunk, at the offset `at`. `records` already has the
/// space.
fn write(records: &mut [u8], at: usize, head: Window<'_>, ins: &[Block<'_>], lent: &[Block<'_>]) {
    let mut copy = |at: usize, from: Window<'_>| {
        let end = at + from.len();
        let _ = from.read(0, &mut records[at..end]);
        end
    };
    let mut end = copy(at, head);
    for block in ins.iter().chain(lent) {
        let from = block.unconverted().unwrap_or(Window::empty());
        // A message begins at a multiple of 16 in its chunk, so `end` has the same alignment in the chunk as
        // in the message.
        end = copy(align_up(end), from);
    }
}

impl Wake for Lane {
    fn wake(self: Arc<Self>) {
        let Some(bound) = self.bound.upgrade() else { return };
        // SYNC: rung, in `leave`. This thread may hold other locks, so it does not wait for the state.
        self.rung.store(true, Ordering::SeqCst);
        if let Some(state) = self.state.try_lock() {
            self.leave(&bound, state);
        }
    }
}

impl Rings for Lane {
    fn word(&self, _: u32) -> Option<(&AtomicU32, u32)> {
        None
    }
    fn examine(&self, _: u32) {}
    /// Handles a timer. `call` is the number of one of the lane's own timers, or the index of the call whose
    /// deadline has come. In the second case the future of the call is woken.
    fn ring(&self, call: u32) {
        let Some(lane) = self.this.upgrade() else { return };
        if call == RETRY_TIMER {
            return lane.wake();
        }
        let Some(bound) = lane.bound.upgrade() else { return };
        lane.with(&bound, |lane, state| {
            if call == LOOKER_TIMER {
                lane.check_looker(&bound, state);
            } else if call == RELIEF_TIMER {
                lane.on_relief_timer(&bound, state);
            } else if let Some(slot) = state.slots.get_mut(call as usize) {
                slot.timed = false;
                let waker = slot.waker.take();
                state.woken.extend(waker);
            }
        });
    }
}

impl core::fmt::Debug for Lane {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Lane").finish_non_exhaustive()
    }
}
