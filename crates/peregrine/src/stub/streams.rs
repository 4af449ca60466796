//! [`ClientConduit`]: the client's side of the messages that carry the streams of a binding
//! (`call/streams.rs` has the format).
//!
//! The conduit keeps two frames of the binding while calls with streams are under way. With one frame, the
//! client has a message outstanding, which the server holds until it has something to send. With the other
//! frame, the client sends what it has.
//!
//! Each future that is polled takes the results that have arrived, for all streams. When a future sleeps, the
//! bells of the outstanding messages wake the conduit, which takes the results and wakes the futures of the
//! streams.

mod callback;
mod drive;
mod kept;

use callback::OfClient;

pub use callback::CallbackDrive;
pub use drive::{SinkDrive, SourceDrive, Streams};

use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Poll, Waker};
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::task::Wake;
use std::time::Instant;

use super::awaited::{no_thread, take};
use super::compiled::{Returned, does_not_fit};
use super::lane::give_up;
use crate::binding::Bound;
use crate::call::chain::WaitingInside;
use crate::call::pending::{block_on, park, unblock};
use crate::call::streams::{
    CallbackEnds, Flow, HEADER_BYTES, Left, Record, STREAMS, Token, message_header, result_number,
};
use crate::call::{self, Answer, Begun, Call, CallTerms, FrameGuard, Reserved, inside};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::limits;
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys;
use crate::value::{Block, Native, Out, OutBlock, Representation, Swapped, Window, Writer};

/// The largest number of items that one stream moves in a row. Then the other streams and the call have their
/// turn.
const TURN: usize = 1024;
/// A thread that waits until no message is outstanding looks this often, even if nothing wakes it.
const CLOSE_LOOK: Duration = Duration::from_secs(1);
/// The number of frames of a conduit.
const FRAMES: usize = 2;
/// The number of frames that a conduit and one call with streams need.
pub(crate) const STREAM_FRAMES: u32 = FRAMES as u32 + 1;
/// The size in bytes of the largest message. A larger message would only delay its first items.
const MESSAGE_BYTES: usize = limits::STREAM_WINDOW;

/// The conduit of a binding.
pub(crate) struct ClientConduit {
    bound: Weak<Bound>,
    this: Weak<Self>,
    token: Token,
    state: Mutex<State>,
    /// Streams that have something to send. Threads that must not wait for the lock of `state` add streams
    /// here.
    later: Mutex<Vec<Arc<Flow>>>,
    /// Set when a bell rings. If another thread uses the state at that time, that thread handles the ring
    /// when it releases the state.
    rung: AtomicBool,
    /// How many bytes a message or a result may have.
    room: usize,
    /// The callbacks that outlive their calls.
    kept: kept::Kept,
}

#[derive(Default)]
struct State {
    /// Keeps frames active for the conduit, in addition to the frames that the program has requested for its
    /// calls.
    reserved: Option<Reserved>,
    /// The frames that have no message.
    frames: Vec<u32>,
    outstanding: Vec<Outstanding>,
    /// The number of the next message.
    next: u64,
    /// The number of the next result.
    next_result: u64,
    /// A result that has arrived before the result `next_result`, and its number.
    early: Option<(u64, Vec<u8>)>,
    /// The number of calls with streams that are under way.
    users: usize,
    /// Whether the last message told the server that no stream is open. True before the first message.
    is_closed: bool,
    /// The number of the next stream.
    stream: u32,
    flows: HashMap<u32, Arc<Flow>>,
    /// The streams that have something to send.
    listed: VecDeque<Arc<Flow>>,
    /// Whether the bells of the outstanding messages are armed.
    armed: bool,
    /// The wakers to wake after the lock of this state is released.
    woken: Vec<Waker>,
    /// Wakes the thread that waits until no message is outstanding.
    closing: Option<Waker>,
    /// Memory for results that is not used now.
    spare: Vec<Vec<u8>>,
    /// Memory for a message.
    message: Vec<u8>,
    /// Why the conduit carries nothing more.
    broken: Option<CallError>,
}

/// A message that has no result yet.
struct Outstanding {
    frame: u32,
    results: Vec<u8>,
}

/// A call with streams, which keeps the conduit open.
pub(super) struct OpenConduit<'a> {
    pub(super) conduit: Arc<ClientConduit>,
    bound: &'a Bound,
    /// Makes one more frame active for the call. While the call waits for an item, the caller may need
    /// another frame for a call that produces the item. `None` for kept callbacks.
    _reserved: Option<Reserved>,
}

impl Drop for OpenConduit<'_> {
    fn drop(&mut self) {
        // A forked child must not use the lock: if a thread of its parent held it during the fork, it is
        // never released in the child.
        if self.bound.mark.wiped() {
            return;
        }
        self.conduit.with(self.bound, |conduit, state| {
            state.users -= 1;
            if state.users == 0 {
                conduit.turn(self.bound, state);
                // No future looks for outstanding results any more, so the bells are needed.
                state.armed = true;
                conduit.arm(self.bound, state);
            }
        });
    }
}

impl OpenConduit<'_> {
    /// Takes the results that have arrived, and sends what is to be sent. If only this call uses the conduit,
    /// no bell needs to ring, because the future of the call looks.
    pub(super) fn awake(&self) {
        self.conduit.with(self.bound, |conduit, state| {
            if state.users == 1 {
                state.armed = false;
            }
            conduit.turn(self.bound, state);
        });
    }

    /// Takes the results that have arrived, and sends what is to be sent.
    pub(super) fn look(&self) {
        self.conduit.look(self.bound);
    }

    /// Makes the bells of the outstanding messages wake the futures of the streams.
    pub(super) fn sleep(&self) {
        self.conduit.sleep(self.bound);
    }

    /// Returns the processor on which the server runs, if this is known.
    pub(super) fn server_cpu(&self) -> Option<u32> {
        self.conduit.with(self.bound, |_, state| {
            let message = state.outstanding.last()?;
            self.bound.path.server_cpu(message.frame)
        })
    }
}

impl core::fmt::Debug for OpenConduit<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OpenConduit").finish_non_exhaustive()
    }
}

impl ClientConduit {
    /// Returns the conduit of a binding.
    ///
    /// # Errors
    /// If the system has no random bytes for the token, which other clients must not know.
    pub(crate) fn new(bound: &Arc<Bound>) -> Result<Arc<Self>, CallError> {
        let token = sys::random().map_err(|error| {
            CallError::system(Phase::Call, "cannot get random bytes for streams", error)
        })?;
        // The head of a message fits 64 bytes, and so does the table of a result.
        let room = bound.path.message_bytes().saturating_sub(64).min(MESSAGE_BYTES) & !15;
        let state = State { is_closed: true, ..State::default() };
        let state = Mutex::ranked(Rank::Lane, state);
        Ok(Arc::new_cyclic(|this| Self {
            bound: Arc::downgrade(bound),
            this: Weak::clone(this),
            token,
            state,
            later: Mutex::default(),
            rung: AtomicBool::new(false),
            room,
            kept: kept::Kept::default(),
        }))
    }

    /// Returns whether the conduit can carry streams.
    pub(crate) fn is_usable(&self, bound: &Bound) -> bool {
        self.with(bound, |_, state| state.broken.is_none())
    }

    /// Gives up the messages that are under way, because the binding is dropped: no call has open streams.
    pub(crate) fn close(&self, bound: &Bound) {
        // Every thread that uses the state holds the binding, which is dropped here. So no thread uses the
        // state. This thread may hold the lock of another conduit, so it must not wait for this lock.
        let Some(mut state) = self.state.try_lock() else { return };
        let outstanding = core::mem::take(&mut state.outstanding);
        drop(state);
        for Outstanding { frame, .. } in outstanding {
            bound.frames.count_pending(false);
            give_up(bound, frame, STREAMS);
        }
    }

    /// Runs `with` on the state, releases the state, and then wakes the wakers in `woken`.
    fn with<T>(&self, bound: &Bound, with: impl FnOnce(&Self, &mut State) -> T) -> T {
        let mut state = self.state.lock();
        let done = with(self, &mut state);
        self.leave(bound, state);
        done
    }

    /// Releases the state, and wakes the wakers in `woken`. Handles the rings that came while the state was
    /// in use.
    fn leave<'a>(&'a self, bound: &Bound, mut state: MutexGuard<'a, State>) {
        loop {
            let mut woken = core::mem::take(&mut state.woken);
            drop(state);
            woken.drain(..).for_each(Waker::wake);
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

    /// Opens the conduit for a call: makes sure that the conduit has its frames.
    ///
    /// # Errors
    /// If the binding has too few frames, or none becomes free before `deadline`.
    pub(super) async fn open<'a>(
        self: &Arc<Self>,
        bound: &'a Bound,
        deadline: Option<Instant>,
    ) -> Result<OpenConduit<'a>, CallError> {
        let reserved = self.with(bound, |_, state| {
            if state.reserved.is_none() {
                state.reserved = Some(bound.frames.reserve(FRAMES as u32)?);
            }
            let reserved = bound.frames.reserve(1)?;
            state.users += 1;
            Some(reserved)
        });
        let reserved = reserved.ok_or_else(|| few_frames(bound.frames.layout().count))?;
        let open = OpenConduit { conduit: Arc::clone(self), bound, _reserved: Some(reserved) };
        loop {
            let owned = self.with(bound, |conduit, state| {
                conduit.turn(bound, state);
                state.frames.len() + state.outstanding.len()
            });
            if owned >= FRAMES {
                return Ok(open);
            }
            let frame = take(bound, deadline).await?;
            let index = frame.index();
            if !bound.path.is_prepared(index) {
                let bound = self.bound.upgrade().ok_or_else(gone)?;
                let prepare = move || bound.path.prepare(index, deadline);
                let prepared = unblock(prepare).await.unwrap_or_else(|error| Err(no_thread(error)));
                if let Err(error) = prepared {
                    if error.executed() == Executed::Maybe || bound_captures(self, index) {
                        frame.capture();
                    }
                    return Err(error);
                }
            }
            self.with(bound, |_, state| {
                // Another call may have added the last frame meanwhile.
                if state.frames.len() + state.outstanding.len() < FRAMES {
                    state.frames.push(frame.keep());
                }
            });
        }
    }

    /// Adds a stream. `flow` makes the client's end from the number of the stream and the largest size of a
    /// record.
    fn add(&self, bound: &Bound, flow: impl FnOnce(u32, usize) -> Flow) -> Arc<Flow> {
        self.with(bound, |conduit, state| {
            state.stream = state.stream.wrapping_add(1);
            let flow = Arc::new(flow(state.stream, conduit.room - HEADER_BYTES));
            match &state.broken {
                None => drop(state.flows.insert(state.stream, Arc::clone(&flow))),
                Some(error) => drop(flow.break_off(error)),
            }
            flow
        })
    }

    /// Adds the two streams of a callback.
    fn add_callback(self: &Arc<Self>, bound: &Arc<Bound>) -> CallbackEnds {
        let carrier = OfClient { conduit: Arc::clone(self), _bound: Arc::clone(bound) };
        self.with(bound, |conduit, state| {
            let number = state.stream.wrapping_add(1);
            state.stream = number.wrapping_add(1);
            let room = conduit.room - HEADER_BYTES;
            let ends = CallbackEnds::of_caller(number, room, Arc::new(carrier));
            for flow in [&ends.incoming, &ends.outgoing] {
                match &state.broken {
                    None => drop(state.flows.insert(flow.number, Arc::clone(flow))),
                    Some(error) => drop(flow.break_off(error)),
                }
            }
            ends
        })
    }

    /// Notes that a stream has something to send.
    fn list(&self, bound: &Bound, flow: &Arc<Flow>) {
        self.with(bound, |_, state| state.list(flow));
    }

    /// Notes that a stream has something to send, without waiting for the state. A [ring](Self::wake) must
    /// follow.
    fn list_later(&self, flow: &Arc<Flow>) {
        self.later.lock().push(Arc::clone(flow));
    }

    /// Takes the results that have arrived, and sends what is to be sent.
    fn look(&self, bound: &Bound) {
        self.with(bound, |conduit, state| conduit.turn(bound, state));
    }

    /// If no call uses the conduit, waits until the server has answered all messages. The last message says
    /// which streams have ended. Waits for at most [`limits::LANE_TIME`].
    fn wait_until_closed(&self, bound: &Bound) {
        let until = Instant::now() + limits::LANE_TIME;
        park(Some(CLOSE_LOOK), |context| {
            self.with(bound, |conduit, state| {
                conduit.on_ring(bound, state);
                let is_closed = state.users > 0 || state.outstanding.is_empty();
                if is_closed || state.broken.is_some() || Instant::now() >= until {
                    return Poll::Ready(());
                }
                state.closing = Some(context.waker().clone());
                Poll::Pending
            })
        });
    }

    /// Makes the bells of the outstanding messages wake the conduit. Takes the results that have arrived.
    fn sleep(&self, bound: &Bound) {
        self.with(bound, |conduit, state| {
            state.armed = true;
            conduit.on_ring(bound, state);
        });
    }

    /// Sends what is to be sent. Used before the caller's own code runs, because that code may wait. If no
    /// frame is free, arms the bells, and a later ring sends the rest.
    fn send_before_waiting(&self, bound: &Bound) {
        self.with(bound, |conduit, state| {
            conduit.turn(bound, state);
            if !state.listed.is_empty() && !state.armed {
                state.armed = true;
                conduit.arm(bound, state);
            }
        });
    }

    // The functions below need the locked state.

    /// Handles a ring: takes the results, and arms the bells again.
    fn on_ring(&self, bound: &Bound, state: &mut State) {
        self.turn(bound, state);
        // If no frame was free for some streams, the next ring sends their records.
        state.armed |= !state.listed.is_empty();
        if state.armed {
            self.arm(bound, state);
        }
    }

    fn arm(&self, bound: &Bound, state: &mut State) {
        let Some(conduit) = self.this.upgrade() else { return };
        if state.outstanding.is_empty() {
            state.armed = false;
            return;
        }
        let waker = Waker::from(conduit);
        for message in &state.outstanding {
            bound.frames.bell(message.frame).set(&waker);
            bound.path.arm(message.frame, None);
        }
    }

    fn turn(&self, bound: &Bound, state: &mut State) {
        self.receive(bound, state);
        for flow in self.later.lock().drain(..) {
            state.list(&flow);
        }
        // The server answers a message at once only if it has records to send, and credit bounds these
        // records. So this loop ends.
        while state.broken.is_none() && state.has_message() {
            let Some(frame) = state.frames.pop() else { break };
            let frame = bound.frames.kept(frame);
            if bound.is_swapped_server() {
                self.send::<Swapped>(bound, state, frame);
            } else {
                self.send::<Native>(bound, state, frame);
            }
        }
        if state.users == 0 && state.outstanding.is_empty() {
            state.woken.extend(state.closing.take());
            for frame in state.frames.drain(..) {
                drop(bound.frames.kept(frame));
            }
            (state.spare, state.message) = (Vec::new(), Vec::new());
        }
    }

    fn receive(&self, bound: &Bound, state: &mut State) {
        let mut at = 0;
        while at < state.outstanding.len() {
            let message = &mut state.outstanding[at];
            let frame = bound.frames.kept(message.frame);
            let mut out = Out::from(&mut message.results[..]);
            let polled = {
                let mut outs = [out.block_of(self.room)];
                let mut head = Writer::new(frame.call_space());
                bound.path.poll(&mut message_call(&frame, &mut head, &[], &mut outs))
            };
            let filled = out.filled();
            match polled {
                None => {
                    frame.keep();
                    at += 1;
                }
                Some(result) => {
                    bound.frames.bell(message.frame).clear();
                    bound.frames.count_pending(false);
                    let message = state.outstanding.swap_remove(at);
                    self.returned(bound, state, frame, message.results, filled, result);
                }
            }
        }
    }

    /// Sends a message.
    fn send<R: Representation>(&self, bound: &Bound, state: &mut State, frame: FrameGuard<'_>) {
        let is_first = core::mem::replace(&mut state.is_closed, state.users == 0);
        let header = message_header(self.token, state.next, state.users > 0, is_first);
        let mut message = core::mem::take(&mut state.message);
        message.clear();
        message.extend_from_slice(&header);
        state.next += 1;
        state.collect(self.room, &mut message);
        let mut results = state.spare.pop().unwrap_or_default();
        if results.len() < self.room {
            results = vec![0; self.room];
        }
        let mut head = Writer::<'_, R>::represented(frame.call_space());
        let counts = head.count(message.len()).and_then(|()| head.count(self.room));
        let mut out = Out::from(&mut results[..]);
        let begun = counts.map_err(does_not_fit).and_then(|()| {
            let mut outs = [out.block_of(self.room)];
            let records = [Block::from(Window::from(&message[..]))];
            bound.path.begin(&mut message_call(&frame, &mut head, &records, &mut outs))
        });
        let filled = out.filled();
        state.message = message;
        match begun {
            Ok(Begun::Pending) => {
                let frame = frame.keep();
                bound.frames.count_pending(true);
                state.outstanding.push(Outstanding { frame, results });
                if state.armed
                    && let Some(conduit) = self.this.upgrade()
                {
                    bound.frames.bell(frame).set(&Waker::from(conduit));
                    bound.path.arm(frame, None);
                }
            }
            Ok(Begun::Ended(returned)) => {
                self.returned(bound, state, frame, results, filled, Ok(returned));
            }
            Err(error) => self.returned(bound, state, frame, results, filled, Err(error)),
        }
    }

    /// Handles the outcome of the call that carried a message.
    fn returned(
        &self,
        bound: &Bound,
        state: &mut State,
        frame: FrameGuard<'_>,
        results: Vec<u8>,
        filled: usize,
        result: Result<call::Returned, CallError>,
    ) {
        let read = result.and_then(|returned| {
            if returned.answer == Answer::Ok {
                return Ok(());
            }
            Err(if bound.is_swapped_server() {
                Returned::<Swapped>::of(&frame, returned)?.refused()
            } else {
                Returned::<Native>::of(&frame, returned)?.refused()
            })
        });
        match read {
            Ok(()) => {
                state.frames.push(frame.keep());
                if state.take_result(&results[..filled]).is_none() {
                    let text = "the records of the streams are malformed";
                    state.break_off(&CallError::bad_result(text));
                }
                state.spare.push(results);
            }
            Err(error) => {
                if error.executed() == Executed::Maybe || bound.path.captures(frame.index()) {
                    frame.capture();
                } else {
                    state.frames.push(frame.keep());
                }
                state.break_off(&error.may_have_executed());
            }
        }
    }
}

#[cold]
fn few_frames(count: u32) -> CallError {
    let options = "(`BindOptions::astacks`, `ExportOptions::astacks_max`)";
    let text = match count {
        // A fourth A-stack must stay free for calls without streams.
        0..=STREAM_FRAMES => format!("a call with streams needs four A-stacks {options}"),
        _ => format!("other calls with streams use all but one of {count} A-stacks {options}"),
    };
    CallError::not_executed(Kind::Exhausted, Phase::Call, text)
}

/// Returns whether a frame must not be used again after its preparation has failed.
fn bound_captures(conduit: &ClientConduit, frame: u32) -> bool {
    conduit.bound.upgrade().is_some_and(|bound| bound.path.captures(frame))
}

#[cold]
fn gone() -> CallError {
    CallError::not_executed(Kind::ServerGone, Phase::Call, "the binding was bound again")
}

/// Makes the call that carries a message.
fn message_call<'a, 'f, 'o>(
    frame: &'a FrameGuard<'f>,
    head: &'a mut crate::value::Head<'f>,
    ins: &'a [Block<'a>],
    outs: &'a mut [OutBlock<'o>],
) -> Call<'a, 'f, 'o> {
    Call { procedure: STREAMS, frame, head, ins, lent: &[], outs, terms: CallTerms::None }
}

impl State {
    /// Returns whether there is a reason to send a message.
    fn has_message(&self) -> bool {
        if self.early.is_some() {
            // A result has overtaken another one. No message is sent until the overtaken result arrives, so
            // that `early` needs to hold only one result.
            return false;
        }
        if self.users == 0 {
            // Until the server learns that no stream is open, it keeps the conduit, and may hold a message.
            return !self.listed.is_empty() || !self.is_closed;
        }
        !self.listed.is_empty() || self.outstanding.is_empty()
    }

    fn list(&mut self, flow: &Arc<Flow>) {
        if self.broken.is_none() {
            self.listed.push_back(Arc::clone(flow));
        }
    }

    /// Appends the records that are to be sent, as far as the message fits `room` bytes.
    fn collect(&mut self, room: usize, message: &mut Vec<u8>) {
        // Each stream gets its turn: a stream with more records than fit goes to the end of the list.
        for _ in 0..self.listed.len() {
            let Some(flow) = self.listed.pop_front() else { break };
            match flow.collect(room - message.len(), message) {
                Left::Records => self.listed.push_back(flow),
                Left::Nothing => {}
                Left::Over => drop(self.flows.remove(&flow.number)),
            }
        }
    }

    /// Takes a result, and then the result that has overtaken it, if there is one. Returns `None` if one of
    /// them is malformed.
    fn take_result(&mut self, result: &[u8]) -> Option<()> {
        let number = result_number(result)?;
        if number != self.next_result {
            if number != self.next_result + 1 || self.early.is_some() {
                return None;
            }
            self.early = Some((number, result.to_vec()));
            return Some(());
        }
        self.next_result += 1;
        let Self { flows, woken, .. } = self;
        Record::all(result, |record, bytes| {
            // A record may still arrive for a stream that has ended on the client's side.
            if let Some(flow) = flows.get(&record.stream) {
                woken.extend(flow.take(&record, bytes));
            }
            if record.kind.is_last() {
                flows.remove(&record.stream);
            }
            Some(())
        })?;
        match self.early.take() {
            Some((_, result)) => self.take_result(&result),
            None => Some(()),
        }
    }

    /// Breaks all streams.
    fn break_off(&mut self, error: &CallError) {
        for flow in self.flows.values() {
            self.woken.extend(flow.break_off(error));
        }
        self.flows.clear();
        self.listed.clear();
        self.broken.get_or_insert_with(|| error.copy());
    }
}

impl Wake for ClientConduit {
    fn wake(self: Arc<Self>) {
        let Some(bound) = self.bound.upgrade() else { return };
        // SYNC: rung, in `leave`. This thread may hold other locks, so it does not wait for the state.
        self.rung.store(true, Ordering::SeqCst);
        if let Some(state) = self.state.try_lock() {
            self.leave(&bound, state);
        }
    }
}

impl core::fmt::Debug for ClientConduit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ClientConduit").finish_non_exhaustive()
    }
}

/// Runs a call with streams on this thread.
pub fn wait_for<F: Future>(call: F) -> F::Output {
    // If a procedure makes this call, its thread waits here. A nested call that comes back to this process
    // may then use one more thread.
    let _waits = inside().map(|_| WaitingInside::begin());
    block_on(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If the last result arrives after the last call with streams has ended, no message is outstanding. The
    /// client must then send one more message, which says that no stream is open.
    #[test]
    fn server_learns_that_the_last_stream_has_ended() {
        let open = State::default();
        assert!(!open.is_closed && open.outstanding.is_empty() && open.has_message());
        assert!(!State { is_closed: true, ..open }.has_message());
    }
}
