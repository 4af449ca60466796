//! [`Conduit`]: the server's side of the messages that carry the streams of a client binding.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use core::task::{Poll, Waker};
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use super::flow::{Flow, Left};
use super::remote::CHECK_EVERY;
use super::{HEADER_BYTES, MessageHeader, Record, RecordKind, Token, read_message, result_header};
use crate::call::caller::{Calls, source_of_thread};
use crate::call::deferred::{Cancels, Owed};
use crate::call::in_flight::count_stream;
use crate::call::pending::{Bells, Rings, park};
use crate::call::request::Refusal;
use crate::call::serve;
use crate::call::{Answered, Reply, Request};
use crate::error::{CallError, Executed, Kind};
use crate::limits;
use crate::sync::{Mutex, Rank};
use crate::sys::PerProcess;

/// The interval at which a conduit that waits for a message checks whether the session or connection of its
/// messages still exists.
const SOURCE_LOOK: Duration = Duration::from_secs(1);

/// The conduits of this process.
struct Conduits(Mutex<HashMap<Token, Arc<Conduit>>>);

impl Default for Conduits {
    fn default() -> Self {
        Self(Mutex::ranked(Rank::Conduits, HashMap::new()))
    }
}

/// A conduit at the server. It exists while it has streams, while it holds a call, and while the client has
/// open streams.
pub(super) struct Conduit {
    token: Token,
    /// The number of threads that use the conduit now. Meanwhile the conduit stays in [`Conduits`].
    users: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of the next message. While the client has no open streams, the next message may also have a
    /// larger number. A server that forgot the conduit does not know how many messages it took before, and
    /// the first message that it takes afterwards may be a late one.
    next: u64,
    /// A message that arrived before the message with the number `next`.
    early: Option<Early>,
    /// The number of the next result.
    results: u64,
    /// The call that is answered when there is something to send.
    held: Option<Held>,
    flows: HashMap<u32, Arc<Flow>>,
    /// Whether the conduit had a stream that is [unattended](Flow::unattended): its user does not notice by
    /// itself that the client has gone.
    has_unattended: bool,
    /// The streams that have something to send.
    listed: VecDeque<Arc<Flow>>,
    /// The numbers of the streams that the server must report as ended, because no procedure has opened them.
    unopened: Vec<u32>,
    /// Whether the client has open streams, as its last message says.
    is_open: bool,
    /// If only a message of the client can continue the streams: the number of the message, and since when
    /// the conduit waits for it. [`expects_message`](Self::expects_message) sets this field.
    left_at: Option<(u64, Instant)>,
    /// The session or connection of the last message, if `has_unattended` was true when the message arrived.
    source: Option<Arc<dyn Calls>>,
    /// Why the conduit has ended. `None` before its end.
    broken: Option<CallError>,
}

/// The largest number of streams in [`State::unopened`].
const UNOPENED_MAX: usize = 4096;

struct Early {
    header: MessageHeader,
    message: Vec<u8>,
    held: Held,
}

/// A call that is answered later.
struct Held {
    to: HeldBy,
    /// The number of bytes that the result of the call may have.
    room: usize,
}

enum HeldBy {
    Source(Box<dyn Owed>),
    /// The path of the call cannot defer the call, so a thread waits.
    Thread(Arc<ThreadWait>),
}

type Outcome = Result<Vec<u8>, Refusal>;

/// The wait of a thread for the outcome of a held call.
#[derive(Default)]
struct ThreadWait(Mutex<(Option<Outcome>, Option<Waker>)>);

impl ThreadWait {
    fn end(&self, outcome: Outcome) {
        let mut state = self.0.lock();
        state.0 = Some(outcome);
        let waker = state.1.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Waits for the outcome. Calls `check` from time to time.
    fn wait(&self, check: impl Fn()) -> Outcome {
        park(Some(CHECK_EVERY), |context| {
            check();
            let mut state = self.0.lock();
            state.1 = Some(context.waker().clone());
            state.0.take().map_or(Poll::Pending, Poll::Ready)
        })
    }
}

impl Held {
    fn end(self, outcome: Outcome) {
        match (self.to, outcome) {
            (HeldBy::Thread(wait), outcome) => wait.end(outcome),
            (HeldBy::Source(owed), Ok(result)) => {
                owed.answer(Answered::ok(&(), vec![(result, self.room)], |_| Ok(())));
            }
            (HeldBy::Source(owed), Err(refusal)) => owed.answer(refusal.into()),
        }
    }
}

/// What is to be done after the lock of a conduit is released.
#[derive(Default)]
struct Afterwards {
    woken: Vec<Waker>,
    ended: Vec<(Held, Outcome)>,
}

impl Afterwards {
    fn run(self) {
        self.woken.into_iter().for_each(Waker::wake);
        self.ended.into_iter().for_each(|(held, outcome)| held.end(outcome));
    }
}

/// A conduit in use. While this value exists, the conduit stays in [`Conduits`].
struct InUse(Arc<Conduit>);

impl Drop for InUse {
    fn drop(&mut self) {
        let waits = self.0.state.lock().expects_message();
        if waits {
            self.0.expect_message();
        }
        self.0.users.fetch_sub(1, Ordering::SeqCst);
        Conduits::of_process().forget(&self.0);
    }
}

impl Conduits {
    fn of_process() -> &'static Self {
        static CONDUITS: PerProcess<Conduits> = PerProcess::new();
        CONDUITS.own()
    }

    /// Returns the conduit with a token. Makes the conduit if it does not exist.
    fn conduit(&self, token: Token) -> InUse {
        let new = || Arc::new(Conduit { token, users: AtomicUsize::new(0), state: new_state() });
        let mut conduits = self.0.lock();
        let conduit = Arc::clone(conduits.entry(token).or_insert_with(new));
        conduit.users.fetch_add(1, Ordering::SeqCst);
        InUse(conduit)
    }

    /// Forgets a conduit, if it carries nothing and no thread uses it.
    fn forget(&self, conduit: &Arc<Conduit>) {
        let mut conduits = self.0.lock();
        let is_idle = |known: &Arc<Conduit>| {
            Arc::ptr_eq(known, conduit)
                && known.users.load(Ordering::SeqCst) == 0
                && known.state.lock().is_idle()
        };
        if conduits.get(&conduit.token).is_some_and(is_idle) {
            let conduit = conduits.remove(&conduit.token);
            drop(conduits);
            drop(conduit);
        }
    }
}

fn new_state() -> Mutex<State> {
    Mutex::ranked(Rank::Conduit, State::default())
}

#[cold]
fn malformed() -> Refusal {
    Refusal::new(Kind::BadArguments, "the message of the streams is malformed")
}

/// Serves a call of the procedure [`STREAMS`](super::STREAMS).
///
/// # Errors
/// If the message is malformed.
#[cold]
pub(crate) fn serve_streams(request: &mut Request<'_>, reply: &mut Reply<'_>) -> serve::Served {
    reply.expect(1);
    let message = request.slice::<u8>(usize::MAX)?;
    let mut filled = 0;
    let mut into = request.out::<u8>(reply, &mut filled, usize::MAX)?;
    request.finish()?;
    let (token, header) = read_message(&message).ok_or_else(malformed)?;
    let room = into.capacity();
    if room < 2 * HEADER_BYTES {
        return Err(malformed());
    }
    let conduit = Conduits::of_process().conduit(token);
    let outcome = match conduit.serve(header, &message, room)? {
        Served::Now(result) => Ok(result),
        Served::Held(None) => {
            reply.defer();
            return Ok(());
        }
        Served::Held(Some(wait)) => conduit.wait(&wait),
    };
    into.put(&outcome?).map_err(|_| malformed())?;
    reply.filled(0, filled)?;
    reply.ok(&(), |_| Ok(()))
}

/// How a message was served.
enum Served {
    /// The call has this result.
    Now(Vec<u8>),
    /// The call is held. If its path cannot defer the call, the thread waits.
    Held(Option<Arc<ThreadWait>>),
}

impl InUse {
    /// Serves a message. `room` is the number of bytes that the result may have.
    fn serve(&self, header: MessageHeader, message: &[u8], room: usize) -> Result<Served, Refusal> {
        let mut afterwards = Afterwards::default();
        let mut state = self.0.state.lock();
        state.check()?;
        if state.has_unattended {
            state.source = source_of_thread().map(|(source, _)| source);
        }
        let is_next = state.is_next(header);
        if state.was_overtaken(header) {
            let taken = state.take_records(message, &mut afterwards);
            // The client handles results in the order of their numbers, so it handles this result before
            // results that were made earlier. The records of a stream must arrive in order, so this result
            // contains no records of open streams.
            let mut result = Vec::from(result_header(header.number));
            state.collect_unopened(room, &mut result);
            drop(state);
            afterwards.run();
            taken.ok_or_else(malformed)?;
            return Ok(Served::Now(result));
        }
        if is_next {
            state.take(header, message, &mut afterwards)?;
            // At most one call is held, so the call that was held before is answered.
            state.answer_held(true, &mut afterwards);
            if !header.is_open || state.has_records() || state.early.is_some() {
                let result = state.collect(room);
                state.go_on(&mut afterwards);
                drop(state);
                afterwards.run();
                return Ok(Served::Now(result));
            }
        }
        drop(state);
        afterwards.run();
        let (to, wait) = self.defer();
        let held = Held { to, room };
        let mut afterwards = Afterwards::default();
        let mut state = self.0.state.lock();
        if is_next {
            state.hold(held, &mut afterwards);
        } else if state.is_next(header) {
            // The message before this one has arrived meanwhile.
            state.admit(header, message, held, &mut afterwards);
        } else if state.may_be_early(header) {
            state.early = Some(Early { header, message: message.to_vec(), held });
        } else {
            afterwards.ended.push((held, Err(malformed())));
        }
        drop(state);
        afterwards.run();
        Ok(Served::Held(wait))
    }

    /// Defers the call that this thread runs.
    fn defer(&self) -> (HeldBy, Option<Arc<ThreadWait>>) {
        let cancels: Arc<dyn Cancels> = Arc::clone(&self.0) as _;
        match source_of_thread().and_then(|(calls, call)| calls.defer(call, cancels)) {
            Some(mut owed) => {
                owed.leave_uncounted(false);
                (HeldBy::Source(owed), None)
            }
            None => {
                let wait = Arc::new(ThreadWait::default());
                (HeldBy::Thread(Arc::clone(&wait)), Some(wait))
            }
        }
    }

    /// Waits for the outcome of a call that its path cannot defer.
    fn wait(&self, wait: &ThreadWait) -> Outcome {
        wait.wait(|| {
            if source_of_thread().is_some_and(|(calls, call)| calls.is_given_up(call)) {
                Arc::clone(&self.0).cancel();
            }
        })
    }
}

impl Conduit {
    /// Adds a stream.
    ///
    /// # Errors
    /// If the conduit has a stream with the same number, or has ended.
    pub(super) fn open(token: Token, flow: &Arc<Flow>) -> Result<Arc<Self>, Refusal> {
        let in_use = Conduits::of_process().conduit(token);
        let conduit = Arc::clone(&in_use.0);
        let mut state = conduit.state.lock();
        state.check()?;
        if state.flows.contains_key(&flow.number) {
            let text = "the call has a stream that is open already";
            return Err(Refusal::new(Kind::BadArguments, text));
        }
        state.flows.insert(flow.number, Arc::clone(flow));
        state.has_unattended |= flow.is_left();
        drop(state);
        drop(in_use);
        count_stream(flow);
        Ok(conduit)
    }

    /// Notes that a stream has records to send. If a call is held, answers the call with these records.
    /// `is_last` is true if the procedure no longer needs the stream.
    pub(super) fn list(self: &Arc<Self>, flow: &Arc<Flow>, is_last: bool) {
        let mut afterwards = Afterwards::default();
        let mut state = self.state.lock();
        if state.broken.is_none() {
            state.listed.push_back(Arc::clone(flow));
            state.answer_held(false, &mut afterwards);
        }
        // After the held call was answered, only the next message shows that the client still exists.
        let waits = (is_last || state.has_unattended) && state.expects_message();
        let is_idle = state.is_idle();
        drop(state);
        afterwards.run();
        if waits {
            self.expect_message();
        } else if is_idle {
            Conduits::of_process().forget(self);
        }
    }

    /// Ends the conduit after a while if the client sends no message. Nothing else would show that the client
    /// has gone.
    fn expect_message(self: &Arc<Self>) {
        let rings: Arc<dyn Rings> = Arc::clone(self) as _;
        let source = self.state.lock().source.is_some();
        let until = Instant::now() + if source { SOURCE_LOOK } else { limits::LANE_TIME };
        let _ = Bells::of_process().watch(&rings, 0, Some(until), false);
    }

    /// Breaks all streams.
    fn end(self: &Arc<Self>, refusal: &Refusal) {
        let mut afterwards = Afterwards::default();
        let mut state = self.state.lock();
        // The text names two causes, because which of them this process learns first depends on the path.
        let text = "the client has gone, or the server stops";
        let error = CallError::new(Kind::Stopped, Executed::Maybe, text);
        for flow in state.flows.values() {
            afterwards.woken.extend(flow.break_off(&error));
        }
        state.flows.clear();
        state.listed.clear();
        state.unopened.clear();
        let held = state.held.take().into_iter().chain(state.early.take().map(|early| early.held));
        afterwards.ended.extend(held.map(|held| (held, Err(refusal.clone()))));
        state.broken = Some(error);
        state.is_open = false;
        drop(state);
        afterwards.run();
        Conduits::of_process().forget(self);
    }
}

impl State {
    fn is_idle(&self) -> bool {
        let is_quiet = self.held.is_none() && self.early.is_none();
        !self.is_open && self.flows.is_empty() && is_quiet
    }

    /// Returns whether there is something to send.
    fn has_records(&self) -> bool {
        !self.listed.is_empty() || !self.unopened.is_empty()
    }

    /// Returns whether a message is the next one. If the client had no open streams before the message, and
    /// has told the conduit so, any message with a larger number is the next one.
    fn is_next(&mut self, header: MessageHeader) -> bool {
        if header.is_first && !self.is_open && header.number > self.next {
            let unanswered = self.next - self.results;
            (self.next, self.results) = (header.number, header.number - unanswered);
        }
        self.next == header.number
    }

    /// Returns whether a message may wait for the one before it.
    fn may_be_early(&self, header: MessageHeader) -> bool {
        let is_after_next = header.number == self.next + 1;
        self.early.is_none() && (is_after_next || !self.is_open && header.number > self.next)
    }

    /// Returns whether a message was overtaken by a later one while the client had no open streams.
    fn was_overtaken(&self, header: MessageHeader) -> bool {
        header.is_first && !header.is_open && header.number < self.next
    }

    /// Returns whether nothing here notices that the client has gone: no call is held, and each stream is
    /// closed or has a user that does not notice ([`Flow::unattended`]).
    fn is_left(&self) -> bool {
        self.held.is_none()
            && self.early.is_none()
            && self.flows.values().all(|flow| flow.is_left())
    }

    /// Returns whether only a message of the client can continue the streams. If so, notes the number of this
    /// message and the time in `left_at`, unless `left_at` has the number already.
    fn expects_message(&mut self) -> bool {
        let expects = self.is_left() && (self.is_open || self.has_records());
        let next = expects.then_some(self.next);
        let before = self.left_at.filter(|(known, _)| Some(*known) == next);
        self.left_at = before.or_else(|| next.map(|next| (next, Instant::now())));
        expects
    }

    /// Refuses messages of a conduit that has ended.
    fn check(&self) -> Result<(), Refusal> {
        match &self.broken {
            Some(error) => Err(Refusal::new(error.kind(), error.to_string())),
            None => Ok(()),
        }
    }

    /// Takes the records of the next message.
    fn take(
        &mut self,
        header: MessageHeader,
        message: &[u8],
        afterwards: &mut Afterwards,
    ) -> Result<(), Refusal> {
        let taken = self.take_records(message, afterwards);
        self.next = header.number + 1;
        self.is_open = header.is_open;
        taken.ok_or_else(malformed)
    }

    /// Takes the records of a message. Returns `None` if it is malformed.
    fn take_records(&mut self, message: &[u8], afterwards: &mut Afterwards) -> Option<()> {
        Record::all(message, |record, bytes| {
            // A record of a stream that has ended here may still arrive.
            match self.flows.get(&record.stream) {
                Some(flow) => afterwards.woken.extend(flow.take(&record, bytes)),
                // The client asks about a stream whose call has ended. If the procedure never opened the
                // stream, the server reports now that the stream has ended. If the procedure opened the
                // stream, the server has reported this before.
                None if record.kind == RecordKind::Ask => {
                    if self.unopened.len() == UNOPENED_MAX {
                        return None;
                    }
                    self.unopened.push(record.stream);
                }
                None => {}
            }
            if record.kind.is_last() {
                self.flows.remove(&record.stream);
            }
            Some(())
        })
    }

    /// Takes the next message, and holds its call.
    fn admit(
        &mut self,
        header: MessageHeader,
        message: &[u8],
        held: Held,
        afterwards: &mut Afterwards,
    ) {
        match self.check().and_then(|()| self.take(header, message, afterwards)) {
            Ok(()) => self.hold(held, afterwards),
            Err(refusal) => afterwards.ended.push((held, Err(refusal))),
        }
        self.go_on(afterwards);
    }

    /// Takes the message that arrived early, if it is the next one now.
    fn go_on(&mut self, afterwards: &mut Afterwards) {
        let Some(header) = self.early.as_ref().map(|early| early.header) else { return };
        if self.is_next(header)
            && let Some(Early { message, held, .. }) = self.early.take()
        {
            self.admit(header, &message, held, afterwards);
        }
    }

    /// Holds a call. Answers it at once if there is something to send, or the client has no open streams.
    fn hold(&mut self, held: Held, afterwards: &mut Afterwards) {
        // At most one call is held, so the call that was held before is answered.
        self.answer_held(true, afterwards);
        self.held = Some(held);
        self.answer_held(!self.is_open || self.broken.is_some(), afterwards);
    }

    /// Answers the held call if there is something to send, or in any case if `always` is true.
    fn answer_held(&mut self, always: bool, afterwards: &mut Afterwards) {
        if !self.has_records() && !always {
            return;
        }
        if let Some(held) = self.held.take() {
            let result = self.collect(held.room);
            afterwards.ended.push((held, Ok(result)));
        }
    }

    /// Returns a result with the records that are to be sent, as far as they fit `room` bytes.
    fn collect(&mut self, room: usize) -> Vec<u8> {
        let mut result = Vec::from(result_header(self.results));
        self.results += 1;
        self.collect_unopened(room, &mut result);
        // Each listed stream is visited once, so a stream with more records than fit does not hold up the
        // others.
        for _ in 0..self.listed.len() {
            let Some(flow) = self.listed.pop_front() else { break };
            match flow.collect(room - result.len(), &mut result) {
                Left::Records => self.listed.push_back(flow),
                Left::Nothing => {}
                Left::Over => drop(self.flows.remove(&flow.number)),
            }
        }
        result
    }

    /// Appends a record for each stream that no procedure has opened, as far as the records fit `room` bytes.
    /// The record says that the stream has ended.
    fn collect_unopened(&mut self, room: usize, result: &mut Vec<u8>) {
        while result.len() + HEADER_BYTES <= room
            && let Some(stream) = self.unopened.pop()
        {
            result.extend_from_slice(&Record::bare(RecordKind::End, stream).to_bytes());
        }
    }
}

impl Cancels for Conduit {
    fn cancel(self: Arc<Self>) {
        self.end(&Refusal::abandoned("its client has gone"));
    }

    fn stop(self: Arc<Self>) {
        self.end(&Refusal::stopped());
    }
}

impl Rings for Conduit {
    fn word(&self, _: u32) -> Option<(&AtomicU32, u32)> {
        None
    }
    fn examine(&self, _: u32) {}
    fn ring(&self, _: u32) {
        let conduit = Conduits::of_process().0.lock().get(&self.token).map(Arc::clone);
        if let Some(conduit) = conduit {
            let state = conduit.state.lock();
            // If another message has arrived since the timer was set, there is nothing to do: the timer was
            // set again if necessary.
            let waits = state.left_at.filter(|(next, _)| state.is_left() && *next == state.next);
            let Some((_, since)) = waits else { return };
            let is_gone = state.source.as_ref().is_some_and(|source| source.is_gone());
            drop(state);
            if is_gone || since.elapsed() >= limits::LANE_TIME {
                conduit.cancel();
            } else {
                conduit.expect_message();
            }
        }
    }
}

#[cfg(test)]
mod tests;
