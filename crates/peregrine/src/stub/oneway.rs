//! [`OneWay`]: the one-way calls of a binding, which all clones of the binding share.
//!
//! A one-way call appends a record to a batch (`call/batch.rs` has the format), and returns. One batch is
//! under way at a time, so that calls run in order on every path. A call of an idle binding is sent at once.
//! Calls that are made while a batch is under way share the next batch. The next batch is sent when the
//! client notices that the batch under way has ended. Some later calls look for this end, and so do `flush`
//! and a timer. If calls are still queued and no batch was sent since the timer was set, the timer arms the
//! bell of the batch under way. As long as the caller goes on making calls, batches are sent, and no bell is
//! needed.
//!
//! Servers of other RPC systems have no batches. The calls of a batch are then sent one after the other, each
//! when the one before has ended.
//!
//! A call that does not fit a batch, or whose path has no batches, is *made in place*, as an ordinary call.
//! It waits for its turn in the same queue. Failures are noted, and the next call of the binding returns them
//! as an error.

mod client;
mod elsewhere;
mod sleeper;
mod state;

pub use client::{
    InPlace, Queued, after_oneway, after_oneway_async, call_oneway, call_oneway_async,
};
pub use client::{Ordered, flush, flush_async};
pub(super) use client::{in_place, in_place_async};

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Wake;
use std::time::Instant;

use self::state::{
    Appended, Chunk, Entry, Place, Size, State, Turn, frame_of, is_over_datagrams, room,
};
use super::compiled::{Returned, does_not_fit, forked};
use super::lane::{batch_call, give_up};
use super::looking::{Looked, Looking, spin};
use crate::binding::{Bound, Home};
use crate::call::batch::{BATCH, CallRecord, HEADER_BYTES, ResultHeader, ResultRecord};
use crate::call::pending::{Bells, Rings};
use crate::call::{self, Answer, Begun, Call, CallTerms, DeadlineBell, FrameGuard};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::interface::InterfaceRef;
use crate::limits;
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys::ForkMark;
use crate::value::{Block, Native, Out, Window, Writer};

/// The largest number of bytes of the result of a batch. The result reports the first failure in the batch.
const RESULT_BYTES: usize = 4 << 10;
/// How long calls stay queued if the caller makes no further call.
const SEND_AFTER: Duration = Duration::from_millis(1);

/// The one-way calls of a binding.
pub(crate) struct OneWay {
    this: Weak<Self>,
    interface: InterfaceRef,
    home: OnceLock<Weak<Home>>,
    mark: Option<ForkMark>,
    /// Whether all calls have ended, and all failures were reported.
    is_idle: AtomicBool,
    state: Mutex<State>,
    /// Set when a bell rings. If another thread uses the state at that time, that thread handles the ring
    /// when it releases the state.
    rung: AtomicBool,
}

/// What happens to a call that is to be queued.
#[derive(Debug)]
enum Taken {
    Queued,
    /// Too many bytes are queued or under way.
    Full,
    /// The binding was bound again meanwhile, so the caller must try again.
    Again,
    /// The call does not fit a batch.
    InPlace,
    /// The call is not made. The caller gets this error, which reports the failures of earlier calls.
    Told(CallError),
}

/// The state of a caller that waits.
#[derive(Default)]
struct Waiting {
    looking: Looking,
    bell: Option<Arc<DeadlineBell>>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(bell) = &self.bell {
            bell.silence();
        }
    }
}

impl OneWay {
    /// Returns the one-way calls of a binding to this interface.
    pub(crate) fn new(interface: &InterfaceRef) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            interface: interface.clone(),
            home: OnceLock::new(),
            mark: ForkMark::of_process().ok(),
            is_idle: AtomicBool::new(true),
            state: Mutex::ranked(Rank::Lane, State::new()),
            rung: AtomicBool::new(false),
        })
    }

    /// Sets the binding to which the calls belong.
    pub(crate) fn set_home(&self, home: Weak<Home>) {
        let _ = self.home.set(home);
    }

    /// Sends what is queued, because the last clone of the binding is dropped. Waits until all calls have
    /// ended, for [`limits::ONEWAY_DROP_TIME`] at most.
    pub(crate) fn close(&self) {
        // A forked child must not use the state: if a thread of its parent held the lock during the fork, the
        // lock is never released in the child.
        if self.is_idle.load(Ordering::Relaxed) || self.is_forked() {
            return;
        }
        let until = Instant::now().checked_add(limits::ONEWAY_DROP_TIME);
        let mut waiting = Waiting::default();
        let has_ended = |_: &Self, state: &mut State| (state.ended == state.made).then_some(());
        let ended = sleeper::block_on(until, |context| {
            self.poll(context, &mut waiting, until, false, has_ended)
        });
        if ended.is_err() {
            self.give_up();
        }
    }

    /// Gives up the batch that is under way, and what is queued.
    fn give_up(&self) {
        let mut state = self.state.lock();
        state.queue.clear();
        if let Turn::Batch(chunk, index) = core::mem::replace(&mut state.turn, Turn::Free) {
            let bound = Arc::clone(&chunk.bound);
            give_up(&bound, index, BATCH);
        }
    }

    fn is_forked(&self) -> bool {
        self.mark.is_some_and(ForkMark::wiped)
    }

    /// Returns whether all calls have ended, and all failures were reported.
    #[inline]
    fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed)
    }

    /// Returns how many calls were made.
    ///
    /// # Errors
    /// In a forked child: the calls belong to its parent.
    fn made(&self) -> Result<u64, CallError> {
        if self.is_forked() { Err(forked()) } else { Ok(self.with(|_, state| state.made)) }
    }

    /// If calls have failed and their failures were not reported yet, reports the failures as an error.
    fn told(&self) -> Result<(), CallError> {
        self.with(|_, state| state.failures.tell()).map_or(Ok(()), Err)
    }

    /// Runs `with` on the state, releases the state, and then wakes the wakers in `woken`. While calls may be
    /// pending, every user of the state releases it by `leave`, because a thread that rings relies on that.
    fn with<T>(&self, with: impl FnOnce(&Self, &mut State) -> T) -> T {
        let mut state = self.state.lock();
        let done = with(self, &mut state);
        self.leave(state);
        done
    }

    /// Releases the state, and wakes the wakers in `woken`. Handles the rings that came while the state was
    /// in use.
    #[inline]
    fn leave<'a>(&'a self, state: MutexGuard<'a, State>) {
        self.is_idle.store(state.is_idle(), Ordering::Relaxed);
        let has_woken = !state.woken.is_empty();
        if has_woken {
            return self.leave_slowly(state);
        }
        drop(state);
        // SYNC: rung. This thread releases the state, and then looks at the flag. A thread that rings sets
        // the flag, and then tries to take the state. So at least one of the two handles the ring.
        if self.rung.load(Ordering::SeqCst)
            && let Some(state) = self.state.try_lock()
        {
            self.leave_slowly(state);
        }
    }

    #[cold]
    fn leave_slowly<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        loop {
            if self.rung.swap(false, Ordering::SeqCst) {
                self.on_ring(&mut state);
            }
            self.is_idle.store(state.is_idle(), Ordering::Relaxed);
            let mut woken = core::mem::take(&mut state.woken);
            drop(state);
            woken.drain(..).for_each(Waker::wake);
            // SYNC: rung, as in `leave`.
            if !self.rung.load(Ordering::SeqCst) {
                return;
            }
            let Some(next) = self.state.try_lock() else { return };
            state = next;
        }
    }

    /// Queues a call, or returns why the call is not queued. `share` returns the state of the binding.
    #[inline]
    fn take(&self, call: &Appended<'_, '_>, share: impl FnOnce() -> Arc<Bound>) -> Taken {
        let Some(size) = call.size() else { return Taken::InPlace };
        let mut state = self.state.lock();
        let taken = self.queue(&mut state, call, size, share);
        self.leave(state);
        taken
    }

    #[inline]
    fn queue(
        &self,
        state: &mut State,
        call: &Appended<'_, '_>,
        size: Size,
        share: impl FnOnce() -> Arc<Bound>,
    ) -> Taken {
        if !state.failures.is_empty()
            && let Some(error) = state.failures.tell()
        {
            return Taken::Told(error);
        }
        if state.bytes > 0 && state.bytes + size.record > limits::ONEWAY_BYTES {
            self.turn(state);
            if state.bytes > 0 && state.bytes + size.record > limits::ONEWAY_BYTES {
                return Taken::Full;
            }
        }
        let fits =
            |entry: &Entry| matches!(entry, Entry::Batch(chunk) if chunk.fits(call.bound, size));
        if !state.queue.back().is_some_and(fits)
            && let Some(instead) = Self::open(state, call, size, share)
        {
            return instead;
        }
        let number = state.made + 1;
        let Some(Entry::Batch(chunk)) = state.queue.back_mut() else { return Taken::InPlace };
        let looks = chunk.append(call, size, number);
        state.made = number;
        state.bytes += size.record;
        if looks || matches!(state.turn, Turn::Free) {
            self.turn(state);
        }
        if state.timer.is_none() && !state.queue.is_empty() {
            self.set_timer(state);
        }
        Taken::Queued
    }

    /// Appends a batch to the queue. If the call fits no batch, returns what happens to the call instead.
    fn open(
        state: &mut State,
        call: &Appended<'_, '_>,
        size: Size,
        share: impl FnOnce() -> Arc<Bound>,
    ) -> Option<Taken> {
        let room = room(call.bound).filter(|room| HEADER_BYTES + size.record <= *room);
        let Some(room) = room.filter(|_| !state.is_batchless(call.bound)) else {
            return Some(Taken::InPlace);
        };
        let bound = share();
        if !core::ptr::eq(Arc::as_ptr(&bound), call.bound) {
            return Some(Taken::Again);
        }
        let spare = core::mem::take(&mut state.spare);
        state.queue.push_back(Entry::Batch(Chunk::new(bound, room, spare)));
        None
    }

    /// Appends a call that is made in place to the queue, and returns the call's place there.
    fn place(&self) -> Place {
        self.with(|this, state| {
            state.made += 1;
            let place = Place(state.made);
            state.queue.push_back(Entry::Place(place));
            this.turn(state);
            place
        })
    }

    /// Looks for the end of batches, and asks `ready` for a value. If `ready` returns `None`, makes sure that
    /// the caller is polled again. `is_async` is false if the caller is a thread that waits for nothing else.
    ///
    /// # Errors
    /// If the deadline has passed.
    fn poll<T>(
        &self,
        context: &mut Context<'_>,
        waiting: &mut Waiting,
        deadline: Option<Instant>,
        is_async: bool,
        ready: impl Fn(&Self, &mut State) -> Option<T>,
    ) -> Poll<Result<T, CallError>> {
        let look = || {
            self.with(|this, state| {
                this.turn(state);
                ready(this, state)
            })
        };
        if let Some(found) = look() {
            return Poll::Ready(Ok(found));
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            let text = "earlier one-way calls have not ended";
            return Poll::Ready(Err(CallError::not_executed(Kind::TimedOut, Phase::Call, text)));
        }
        let wait = self.with(|_, state| state.wait);
        let server_cpu = || {
            self.with(|_, state| match &state.turn {
                Turn::Batch(chunk, frame) => chunk.bound.path.server_cpu(*frame),
                _ => None,
            })
        };
        let (looking, waker) = (&mut waiting.looking, context.waker());
        match spin(wait, looking, waker, || !is_async, server_cpu, look) {
            Looked::Found(found) => return Poll::Ready(Ok(found)),
            Looked::Again => return Poll::Pending,
            Looked::Sleep => {}
        }
        if let (true, Some(at)) = (is_async, deadline)
            && !waiting.bell.get_or_insert_default().ring_at(at, context.waker())
        {
            // No other thread can wake this future at the deadline, so the future is polled again at once.
            context.waker().wake_by_ref();
        }
        let found = self.with(|this, state| {
            state.wake_later(context.waker());
            this.turn(state);
            let found = ready(this, state);
            if found.is_none() {
                this.arm(state);
            }
            found
        });
        found.map_or(Poll::Pending, |found| Poll::Ready(Ok(found)))
    }

    // The functions below need the locked state.

    /// Notes the end of the batch that is under way, if it has ended, and gives the next entry its turn.
    fn turn(&self, state: &mut State) {
        self.receive(state);
        while let Turn::Free = state.turn {
            match state.queue.pop_front() {
                None => return,
                Some(Entry::Place(place)) => {
                    state.turn = Turn::Place(place);
                    state.woken.append(&mut state.waiters);
                }
                Some(Entry::Batch(chunk)) => self.send(state, chunk),
            }
        }
    }

    /// Takes the result of the batch that is under way, if the result has arrived.
    fn receive(&self, state: &mut State) {
        let State { turn: Turn::Batch(chunk, index), results, .. } = state else { return };
        let (bound, index) = (&chunk.bound, *index);
        let mut out = Out::from(&mut results[..]);
        let frame = frame_of(bound, index);
        let polled = {
            let mut outs = [out.block_of(RESULT_BYTES)];
            let mut head = Writer::new(frame.call_space());
            bound.path.poll(&mut batch_call(&frame, &mut head, &[], &mut outs))
        };
        frame.keep();
        if let Some(result) = polled {
            let (bound, filled) = (Arc::clone(bound), out.filled());
            bound.frames.bell(index).clear();
            self.returned(state, frame_of(&bound, index), filled, result);
        }
    }

    /// Sends the batch whose turn it is.
    fn send(&self, state: &mut State, mut chunk: Chunk) {
        let late = chunk.depart();
        if let Some(procedure) = late.first() {
            let text = "the deadline passed before the call was sent";
            let error = CallError::not_executed(Kind::TimedOut, Phase::Call, text);
            state.failures.note_error(late.len() as u64, &self.of(*procedure, error));
        }
        if chunk.calls == 0 {
            return state.end_chunk(chunk);
        }
        let bound = Arc::clone(&chunk.bound);
        let is_released = |frame| bound.path.is_released(frame);
        match bound.frames.try_take(&is_released, bound.on_exhausted) {
            None => {
                // No frame is free. The timer tries again, because another call may have given its frame back
                // by then.
                state.queue.push_front(Entry::Batch(chunk));
                state.turn = Turn::NoFrame;
                self.set_timer(state);
            }
            Some(frame) if !bound.path.is_prepared(frame.index()) => {
                state.turn = Turn::Elsewhere;
                self.prepare(state, chunk, frame.keep());
            }
            Some(frame) => self.begin(state, chunk, frame),
        }
    }

    /// Sends a batch in a frame that is prepared.
    fn begin(&self, state: &mut State, chunk: Chunk, frame: FrameGuard<'_>) {
        if state.results.len() < RESULT_BYTES {
            state.results = vec![0; RESULT_BYTES];
        }
        let bound = Arc::clone(&chunk.bound);
        let mut out = Out::from(&mut state.results[..]);
        let begun = match chunk.foreign_call() {
            Some((record, message)) => begin_foreign(&bound, &frame, &record, message),
            None => begin_batch(&bound, &frame, &chunk, &mut out),
        };
        let filled = out.filled();
        state.sent += 1;
        state.wait = bound.path.wait();
        state.turn = Turn::Batch(chunk, frame.index());
        match begun {
            Ok(Begun::Pending) => {
                frame.keep();
                if state.timer.is_none()
                    && matches!(&state.turn, Turn::Batch(chunk, _)
                        if is_over_datagrams(&bound) || chunk.has_more())
                {
                    self.set_timer(state);
                }
            }
            Ok(Begun::Ended(returned)) => self.returned(state, frame, filled, Ok(returned)),
            Err(error) => self.returned(state, frame, filled, Err(error)),
        }
    }

    /// Handles the end of the batch that has its turn.
    fn returned(
        &self,
        state: &mut State,
        frame: FrameGuard<'_>,
        filled: usize,
        result: Result<call::Returned, CallError>,
    ) {
        let Turn::Batch(chunk, index) = core::mem::replace(&mut state.turn, Turn::Free) else {
            return;
        };
        if let Some((record, _)) = chunk.foreign_call() {
            return self.returned_foreign(state, chunk, &record, frame, result);
        }
        let read = result.and_then(|returned| {
            let is_ok = returned.answer == Answer::Ok;
            let mut returned = Returned::<Native>::of(&frame, returned)?;
            if is_ok { Ok(()) } else { Err(returned.refused()) }
        });
        let read = read.and_then(|()| self.read_results(state, filled));
        let captured = match &read {
            Ok(()) => false,
            Err(error) => error.executed() == Executed::Maybe || chunk.bound.path.captures(index),
        };
        if captured {
            frame.capture();
        } else {
            drop(frame);
        }
        match read {
            Ok(()) => state.end_chunk(chunk),
            Err(error) => self.failed(state, chunk, error),
        }
    }

    /// Handles the end of a call to a server of another RPC system. The next call of its chunk is then the
    /// first in the queue.
    #[cold]
    fn returned_foreign(
        &self,
        state: &mut State,
        mut chunk: Chunk,
        record: &CallRecord,
        frame: FrameGuard<'_>,
        result: Result<call::Returned, CallError>,
    ) {
        let own = (record.number >> 32) as u32;
        let may_run = result.as_ref().is_err_and(|error| error.executed() == Executed::Maybe);
        if may_run || result.is_err() && chunk.bound.path.captures(frame.index()) {
            frame.capture();
        } else {
            drop(frame);
        }
        match result {
            Ok(returned) if returned.answer == Answer::Ok => {}
            Ok(_) => state.failures.note(1, 0, || self.own_error(own, None)),
            Err(error) if !may_run && !chunk.again && self.is_repeated(&chunk, &error) => {
                state.turn = Turn::Elsewhere;
                return self.recover(state, chunk, error);
            }
            Err(error) => state.failures.note_error(1, &self.of(own, error)),
        }
        if chunk.ended_first() {
            state.queue.push_front(Entry::Batch(chunk));
        } else {
            state.end_chunk(chunk);
        }
    }

    /// Notes the failures in the result of a batch.
    fn read_results(&self, state: &mut State, filled: usize) -> Result<(), CallError> {
        let State { results, failures, .. } = state;
        let results = results.get(..filled).unwrap_or_default();
        let malformed = || CallError::bad_result("the result of a batch is malformed");
        let header = ResultHeader::of(results).ok_or_else(malformed)?;
        let [failed, not_run] = header.failed;
        if failed == 0 {
            return Ok(());
        }
        let record = ResultRecord::at(results, HEADER_BYTES).ok_or_else(malformed)?;
        let message = results.get(2 * HEADER_BYTES..).unwrap_or_default();
        let text = || self.failure_of(&record, message);
        failures.note(failed.into(), not_run.min(failed).into(), text);
        Ok(())
    }

    /// Returns the text of the failure in a record.
    fn failure_of(&self, record: &ResultRecord, message: &[u8]) -> String {
        let procedure = (record.number >> 32) as u32;
        let answer = Answer::from_number(record.answer);
        if let Some(Answer::Err) = answer {
            let (from, bytes) = (record.head_at as usize, record.head_bytes as usize);
            let error = message.get(from..).and_then(|head| head.get(..bytes));
            let text = self.text_of(procedure, error.unwrap_or_default());
            return self.own_error(procedure, text);
        }
        let answer = answer.unwrap_or(Answer::MayHaveExecuted);
        let refused =
            Returned::<Native>::within(answer, record.head_at, record.head_bytes, message)
                .map(|mut returned| returned.refused());
        let (Ok(error) | Err(error)) = refused;
        self.of(procedure, error).chain()
    }

    /// Returns the text for a failed call whose procedure returned an error. `text` is the text of that
    /// error, if it is known.
    fn own_error(&self, procedure: u32, text: Option<&str>) -> String {
        let name = self.name(procedure);
        match text {
            Some(text) => format!("`{name}` returned an error: {text}"),
            None => format!("`{name}` returned an error"),
        }
    }

    /// If the error that a procedure returned is a `CallError`, returns its text. `bytes` is the encoded
    /// error.
    fn text_of<'e>(&self, procedure: u32, bytes: &'e [u8]) -> Option<&'e str> {
        let described = self.interface.described().ok()?;
        let error = &described.procedures.get(procedure as usize)?.error;
        let (_, text) =
            bytes.split_first_chunk::<4>().filter(|_| described.is_call_error(error))?;
        core::str::from_utf8(text).ok()
    }

    fn name(&self, procedure: u32) -> String {
        self.interface.procedure_name(procedure).unwrap_or_default().to_owned()
    }

    /// Adds the name of a procedure to an error.
    fn of(&self, procedure: u32, error: CallError) -> CallError {
        error.of(self.name(procedure))
    }

    /// Handles the failure of a batch. Either the batch is sent again to another server, or its calls are
    /// made one by one, or its calls have failed.
    fn failed(&self, state: &mut State, chunk: Chunk, error: CallError) {
        if error.executed() == Executed::No && !chunk.again && self.recovers(&chunk, &error) {
            state.turn = Turn::Elsewhere;
            return self.recover(state, chunk, error);
        }
        self.lost(state, chunk, &error);
    }

    /// Notes that the calls of a batch have failed with this error.
    fn lost(&self, state: &mut State, chunk: Chunk, error: &CallError) {
        let first = chunk.calls().next().map_or(0, |(record, _)| (record.number >> 32) as u32);
        let calls = u64::from(chunk.calls);
        state.failures.note_error(calls, &self.of(first, error.copy()));
        state.end_chunk(chunk);
    }

    /// Makes the end of the batch that is under way ring a bell, which then calls [`wake`](Wake::wake).
    fn arm(&self, state: &mut State) {
        let Turn::Batch(chunk, index) = &state.turn else { return };
        let Some(this) = self.this.upgrade() else { return };
        chunk.bound.frames.bell(*index).set(&Waker::from(this));
        chunk.bound.path.arm(*index, None);
    }

    /// Handles a ring of the bell: gives the next entry its turn, and arms the bell again if it is needed.
    fn on_ring(&self, state: &mut State) {
        self.turn(state);
        if state.needs_bell() {
            self.arm(state);
        }
    }

    fn set_timer(&self, state: &mut State) {
        let Some(this) = self.this.upgrade() else { return };
        let rings: Arc<dyn Rings> = this;
        let soon = Some(Instant::now() + SEND_AFTER);
        if Bells::of_process().watch(&rings, 0, soon, false).is_ok() {
            state.timer = Some(state.sent);
        }
    }

    /// Sends the calls that are still queued when the timer rings.
    fn on_timer(&self, state: &mut State) {
        let sent = state.timer.take();
        if let Turn::NoFrame = state.turn {
            state.turn = Turn::Free;
        }
        self.turn(state);
        if state.follows_itself() {
            // The next call of the chunk is sent when the call under way ends. Perhaps the caller makes no
            // further call that would notice this end, so a bell must ring.
            return self.arm(state);
        }
        if state.timer.is_some() || !state.needs_bell() {
            return;
        }
        // If batches were sent since the timer was set, the caller goes on making calls. Its calls look for
        // the end of the batch, so no bell is needed.
        match sent.is_some_and(|sent| sent != state.sent) {
            true => self.set_timer(state),
            false => self.arm(state),
        }
    }
}

/// Sends a batch in a frame. Its result arrives in `out`.
fn begin_batch<'a>(
    bound: &Bound,
    frame: &FrameGuard<'_>,
    chunk: &'a Chunk,
    out: &mut Out<'a, u8>,
) -> Result<Begun, CallError> {
    let mut head = Writer::new(frame.call_space());
    let counts = head.count(chunk.bytes().len()).and_then(|()| head.count(RESULT_BYTES));
    counts.map_err(does_not_fit)?;
    let mut outs = [out.block_of(RESULT_BYTES)];
    let records = [Block::from(Window::from(chunk.bytes()))];
    bound.path.begin(&mut batch_call(frame, &mut head, &records, &mut outs))
}

/// Sends the call of a record to a server of another RPC system.
#[cold]
fn begin_foreign(
    bound: &Bound,
    frame: &FrameGuard<'_>,
    record: &CallRecord,
    message: &[u8],
) -> Result<Begun, CallError> {
    let mut head = Writer::<Native>::new(frame.call_space());
    head.bytes(1, message, None).map_err(does_not_fit)?;
    let procedure = record.procedure;
    let deadline = record.left.and_then(|left| Instant::now().checked_add(left));
    let terms = CallTerms::until(deadline);
    let (ins, lent, outs) = (&[], &[], &mut []);
    bound.path.begin(&mut Call { procedure, frame, head: &mut head, ins, lent, outs, terms })
}

impl Wake for OneWay {
    fn wake(self: Arc<Self>) {
        // SYNC: rung, in `leave`. This thread may hold other locks, so it does not wait for the state.
        self.rung.store(true, Ordering::SeqCst);
        if let Some(state) = self.state.try_lock() {
            self.leave_slowly(state);
        }
    }
}

impl Rings for OneWay {
    fn word(&self, _: u32) -> Option<(&AtomicU32, u32)> {
        None
    }
    fn examine(&self, _: u32) {}
    fn ring(&self, _: u32) {
        self.with(|this, state| this.on_timer(state));
    }
}

impl core::fmt::Debug for OneWay {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OneWay").finish_non_exhaustive()
    }
}
