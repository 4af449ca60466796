//! The client's end of a TCP connection, which can have many calls in flight. One of the waiting callers is
//! the *leader*: the leader receives for all callers, and wakes the callers whose replies it has received.
//!
//! Each call in flight uses a *frame*: memory for the call message and for the reply message. The number of a
//! frame is also the index of the call's slot, which holds the state of the call.

mod ask;
mod call;
mod input;
mod keep_alive;
mod outbox;
mod pending;
mod stall;
mod ticks;
mod turns;

pub(crate) use ask::ask_alone;
pub(crate) use call::StreamPath;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use self::input::Input;
use self::keep_alive::Watch;
use self::outbox::{Outbox, OutputGuard};
use self::stall::CallerStall;
use self::ticks::Ticks;
use self::turns::{FOLLOWER, SLEEPER, Turns, Word as _};
use super::peer::send_lock::SendLock;
use super::peer::sending::Sending;
use crate::call::{FrameLayout, Frames, OnExhausted, Wait, block_cost, sparse_memory};
use crate::device::tcp::{Stream, WaitFor};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::keeper::WatchHandle;
use crate::limits;
use crate::path::tidying::Tidying;
use crate::protocol::stream::client_end::{
    ASLEEP, Arrived, CallSlot, ClientEnd, DONE, EndReason, IDLE, LEADS, SENDING, SendFailure,
    Unsent, Violation, WAITING, Wakes,
};
use crate::protocol::stream::keep_alive::EXAMINE_EVERY;
use crate::protocol::stream::{self as wire, HEADER_BYTES, Header};
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys;
use crate::value::{Space, Window, align_up};

/// The number of bytes to receive together with a header. Most message bodies are not longer.
const GUESS: usize = 16 << 10;

/// After this many successive polls that receive nothing, a thread examines the connection.
const POLLS: u32 = 1 << 12;

/// The terms of a connection. The first binding on the connection determines them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// The largest number of calls in flight.
    pub(crate) count: u32,
    /// The number of bytes of the largest message.
    pub(crate) bytes: usize,
}

/// A connection to one server, and the calls in flight on it.
pub(crate) struct Connection {
    stream: Stream,
    pub(crate) frames: Arc<Frames>,
    end: ClientEnd,
    tidying: Tidying,
    /// The received bytes. The thread that holds this lock is the leader.
    input: Mutex<Input>,
    output: SendLock,
    /// The messages of pending calls that are not sent completely.
    outbox: Outbox,
    /// The number of threads and calls that need a receiving thread, and whether the keeper watches for
    /// bytes: see `turns.rs`.
    turns: AtomicU32,
    /// When the keeper examines the connection.
    ticks: Ticks,
    /// The keeper's watch of the connection.
    watch: OnceLock<WatchHandle>,
    bindings: Mutex<Bindings>,
}

/// The bindings of a connection. Each has a flag that is set when the server withdraws the export.
#[derive(Default)]
struct Bindings {
    /// The flag of each binding: whether its export was withdrawn.
    flags: HashMap<u32, Arc<AtomicBool>>,
    /// The numbers of bindings that the server revoked before this process added them.
    early: Vec<u32>,
}

/// The text for [`Connection::not_sent`] if the connection ended before any byte of the call was sent.
const NOTHING: &str = "nothing";

/// Why a wait ended.
enum Event {
    Done,
    Ended,
    Late,
}

impl Connection {
    /// Creates a connection from a socket on which the first binding has been made.
    pub(crate) fn new(stream: Stream, grant: Grant, active: u32) -> io::Result<Self> {
        // This timeout interrupts a long wait, so that the caller can check whether the server is still
        // alive.
        stream.set_receive_timeout(EXAMINE_EVERY)?;
        let bytes = align_up(grant.bytes);
        let stride = 2 * bytes;
        let (memory, count) = sparse_memory(stride, grant.count.clamp(1, limits::ASTACKS_MAX))?;
        let layout = FrameLayout { count, first: 0, stride, call_at: 0, reply_at: bytes, bytes };
        Ok(Self {
            stream,
            frames: Arc::new(Frames::new(Arc::new(memory), layout, active)),
            end: ClientEnd::new(count, bytes),
            tidying: Tidying::new(count),
            input: Mutex::ranked(Rank::Receive, Input::new()),
            output: SendLock::default(),
            outbox: Outbox::new(count),
            turns: AtomicU32::new(0),
            ticks: Ticks::new(count),
            watch: OnceLock::new(),
            bindings: Mutex::default(),
        })
    }

    /// Returns the number of bytes of the largest message.
    pub(crate) fn message_bytes(&self) -> usize {
        self.frames.layout().bytes
    }

    pub(crate) const fn stream(&self) -> &Stream {
        &self.stream
    }

    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.end.has_ended()
    }

    /// Adds a binding. Returns the flag that is set when the binding is revoked.
    pub(crate) fn add(&self, binding: u32) -> Arc<AtomicBool> {
        let mut bindings = self.bindings();
        let revoked = Arc::new(AtomicBool::new(bindings.early.contains(&binding)));
        bindings.flags.insert(binding, Arc::clone(&revoked));
        revoked
    }

    #[track_caller]
    fn bindings(&self) -> MutexGuard<'_, Bindings> {
        self.bindings.lock()
    }

    /// Makes this thread the leader, unless another thread is the leader.
    #[inline]
    #[track_caller]
    fn try_turn(&self) -> Option<MutexGuard<'_, Input>> {
        self.input.try_lock()
    }

    fn slot(&self, index: u32) -> &CallSlot {
        self.end.slot(index)
    }

    fn call_space(&self, index: u32) -> Space<'_> {
        self.frames.call_space_of(index)
    }

    fn reply_space(&self, index: u32) -> Space<'_> {
        self.frames.reply_space_of(index)
    }

    // Sending.

    /// Sends the message that `write` produces. If this function fails, the server never gets the whole
    /// message, so the server does not execute the call. If a part of the message was sent before the
    /// failure, the connection ends.
    #[inline]
    fn send<'a>(
        &'a self,
        deadline: Option<Instant>,
        write: impl FnOnce(&mut Sending<'a, CallerStall<'a>>) -> io::Result<()>,
    ) -> Result<(), CallError> {
        let lock = match self.output.try_take() {
            Some(lock) => OutputGuard::new(self, lock),
            None => self.take_output(deadline)?,
        };
        if self.has_ended() {
            return Err(self.not_sent(NOTHING));
        }
        // From here on, the server may get the whole message, and may then execute the call.
        let mut sending = Sending::new(&self.stream, CallerStall { connection: self, deadline });
        let sent = write(&mut sending).and_then(|()| sending.end());
        let sent = sent.map_err(|error| self.failed_to_send(&error, sending.begun));
        // SYNC: cancels. A thread that cancels a call notes the cancellation, and then tries to take the
        // lock. This thread releases the lock, and then looks for cancellations. So at least one of the two
        // threads sends the cancellation.
        drop(lock);
        if self.end.has_cancels() {
            self.send_cancels();
        }
        sent
    }

    /// Notifies the server that a call is cancelled. If another thread is sending now, that thread sends the
    /// cancellation later.
    #[cold]
    fn cancel(&self, index: u32) {
        self.end.cancel(index);
        self.send_cancels();
    }

    /// Returns the error of a message that was not sent completely. The caller must hold the lock for
    /// sending.
    #[cold]
    fn failed_to_send(&self, error: &io::Error, begun: bool) -> CallError {
        // A time-out without an error number means that the deadline of the call has passed. A time-out with
        // an error number comes from the system, and means that the connection has failed.
        let is_late = error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none();
        let failure =
            if is_late { SendFailure::Late } else { SendFailure::Failed(error.to_string()) };
        let unsent = self.end.fails_to_send(failure, begun);
        if unsent != Unsent::NotBegun {
            self.wake_all();
        }
        match unsent {
            Unsent::NotBegun => {
                let text = "the server does not read from the connection";
                CallError::not_executed(Kind::TimedOut, Phase::Call, text)
            }
            Unsent::Ended => self.not_sent(NOTHING),
            Unsent::Cut => {
                let text = "the server took only a part of the call";
                CallError::not_executed(Kind::TimedOut, Phase::Call, text)
            }
            Unsent::Broken => self.not_sent("only a part of the call"),
        }
    }

    /// Returns the error of a call that was not sent completely before the connection ended. `sent` says in
    /// words how much of the call was sent.
    #[cold]
    fn not_sent(&self, sent: &str) -> CallError {
        let reason = self.end.end_reason();
        let kind = reason.map_or(Kind::ServerGone, kind_of);
        let text = reason.map(EndReason::to_string).unwrap_or_default();
        let text = format!("the connection has ended, and {sent} was sent: {text}");
        CallError::not_executed(kind, Phase::Call, text)
    }

    /// Returns the error of a call that was sent, but will have no reply. If the server has sent `Goodbye`,
    /// the call was certainly not executed. If the connection ended for any other reason, the call may have
    /// been executed.
    #[cold]
    fn unanswered(&self) -> CallError {
        let Some(reason) = self.end.end_reason() else {
            return CallError::new(Kind::ServerGone, Executed::Maybe, "the connection has ended");
        };
        let executed = if reason.may_have_executed() { Executed::Maybe } else { Executed::No };
        CallError::new(kind_of(reason), executed, reason.to_string())
    }

    /// Ends the connection because the key of the server is not trusted any more.
    #[cold]
    pub(super) fn distrust(&self) {
        self.end(EndReason::Distrusted);
    }

    /// Ends the connection, and wakes all callers.
    #[cold]
    fn end(&self, reason: EndReason) {
        self.end.end(reason);
        self.wake_all();
    }

    /// Wakes all callers because the connection has ended.
    #[cold]
    fn wake_all(&self) {
        // After `stream.end()`, the thread that receives stops waiting.
        self.stream.end();
        for slot in self.end.sleepers() {
            sys::futex_wake(&slot.state);
        }
    }

    // Receiving.

    /// Waits for the reply to a call that was sent.
    #[inline]
    fn wait(&self, index: u32, wait: Wait, deadline: Option<Instant>) -> Event {
        let slot = self.slot(index);
        // This change of state fails if the reply has already arrived.
        slot.moves(SENDING, WAITING);
        let event = match self.try_turn() {
            Some(mut input) => match self.receive_until(&mut input, index, wait, deadline) {
                Some(event) => event,
                None => {
                    self.ring(input);
                    self.wait_among_others(index, wait, deadline)
                }
            },
            None => self.wait_among_others(index, wait, deadline),
        };
        self.pass_on();
        event
    }

    /// Waits while another thread is the leader. The wait ends when the reply arrives. If this thread becomes
    /// the leader, it receives for all callers.
    #[cold]
    fn wait_among_others(&self, index: u32, wait: Wait, deadline: Option<Instant>) -> Event {
        loop {
            let mut input = match self.follow(index, wait, deadline) {
                Ok(input) => input,
                Err(event) => return event,
            };
            match self.receive_until(&mut input, index, wait, deadline) {
                Some(event) => return event,
                None => self.ring(input),
            }
        }
    }

    /// Waits until the reply arrives, or until this thread becomes the leader.
    fn follow(
        &self,
        index: u32,
        wait: Wait,
        deadline: Option<Instant>,
    ) -> Result<MutexGuard<'_, Input>, Event> {
        struct Follows<'a>(&'a AtomicU32);
        impl Drop for Follows<'_> {
            fn drop(&mut self) {
                self.0.sub(FOLLOWER);
            }
        }
        let slot = self.slot(index);
        self.turns.add(FOLLOWER);
        // SYNC: leader. This thread notes that it waits, and then tries to become the leader. A leader gives
        // up the lead, and then looks for threads that wait. So either this thread becomes the leader, or the
        // previous leader sees that this thread waits.
        fence(Ordering::SeqCst);
        let _follows = Follows(&self.turns);
        let spin_until = match wait {
            Wait::Adaptive => Some(Instant::now() + block_cost()),
            _ => None,
        };
        loop {
            if slot.is_done() {
                return Err(Event::Done);
            }
            if self.has_ended() {
                return Err(Event::Ended);
            }
            slot.moves(LEADS, WAITING);
            if let Some(input) = self.try_turn() {
                return Ok(input);
            }
            let now = (deadline.is_some() || spin_until.is_some()).then(Instant::now);
            if now.zip(deadline).is_some_and(|(now, deadline)| now >= deadline) {
                return Err(Event::Late);
            }
            let spins =
                wait == Wait::Spin || now.zip(spin_until).is_some_and(|(now, until)| now < until);
            if spins {
                std::thread::yield_now();
            } else if slot.moves(WAITING, ASLEEP) {
                fence(Ordering::SeqCst);
                if !self.has_ended() {
                    let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
                    sys::futex_wait(&slot.state, ASLEEP, left);
                }
                slot.moves(ASLEEP, WAITING);
            }
        }
    }

    /// Receives for all callers, until the reply to this thread's own call has arrived. Returns `None` if the
    /// thread must first give up the lead to ring the bells of pending calls.
    #[inline]
    fn receive_until(
        &self,
        input: &mut Input,
        index: u32,
        wait: Wait,
        deadline: Option<Instant>,
    ) -> Option<Event> {
        let slot = self.slot(index);
        let (mut spin_until, mut watch, mut looks) = (None, Watch::default(), 0_u32);
        loop {
            if slot.is_done() {
                return Some(Event::Done);
            }
            if self.has_ended() {
                return Some(Event::Ended);
            }
            if !input.rings.is_empty() {
                return None;
            }
            let now = (deadline.is_some() || wait == Wait::Adaptive).then(Instant::now);
            if now.zip(deadline).is_some_and(|(now, deadline)| now >= deadline) {
                return Some(Event::Late);
            }
            let blocks = match (wait, now) {
                (Wait::Block, _) => true,
                (Wait::Adaptive, Some(now)) => {
                    now >= *spin_until.get_or_insert_with(|| now + block_cost())
                }
                _ => false,
            };
            // A blocking receive cannot end at the deadline. So a thread with a deadline first waits until
            // the socket is readable.
            if let (true, true, Some(deadline), Some(now)) = (blocks, input.is_dry(), deadline, now)
            {
                let until = Some(deadline.min(now + EXAMINE_EVERY));
                if !self.stream.wait(WaitFor::Readable, until).is_ok_and(|ready| ready.readable) {
                    watch.look(self);
                    continue;
                }
            }
            match self.step(input, Some(index), blocks && deadline.is_none()) {
                Ok(()) => {
                    spin_until = None;
                    watch.heard();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    looks = looks.wrapping_add(1);
                    if blocks && deadline.is_none() || looks.is_multiple_of(POLLS) {
                        watch.look(self);
                    } else {
                        std::thread::yield_now();
                    }
                }
                Err(error) => self.lost(&error),
            }
        }
    }

    /// Receives the bytes that have arrived, for all callers. The number of steps is bounded, because
    /// otherwise a server that sends without a pause would keep this thread here.
    fn drain(&self, input: &mut Input) {
        const STEPS_MAX: usize = 256;
        for _ in 0..STEPS_MAX {
            if self.has_ended() || input.rings.is_full() {
                return;
            }
            match self.step(input, None, false) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => self.lost(&error),
            }
        }
    }

    /// Becomes the leader, and receives the bytes that have arrived, as [`drain`](Self::drain) does. Returns
    /// false if another thread is the leader.
    pub(crate) fn listen(&self) -> bool {
        let Some(mut input) = self.try_turn() else { return false };
        self.drain(&mut input);
        self.ring(input);
        self.pass_on();
        true
    }

    #[cold]
    fn lost(&self, error: &io::Error) {
        self.end(match error.kind() {
            io::ErrorKind::Interrupted => return,
            io::ErrorKind::UnexpectedEof => EndReason::Closed,
            io::ErrorKind::InvalidData => EndReason::Violated(error.to_string()),
            _ => EndReason::Receiving(error.to_string()),
        });
    }

    /// Receives once. `own` is the frame of the reply for which this thread waits, or `None` if it waits for
    /// none.
    #[inline]
    fn step(&self, input: &mut Input, own: Option<u32>, wait: bool) -> io::Result<()> {
        if let Some(message) = input.assembly.message() {
            let (frame, done, left) = (message.frame, message.done, message.left());
            return self.more_body(input, frame, done, left, wait);
        }
        if !input.is_dry() || !input.assembly.is_between_messages() {
            let bytes = input.more_header(&self.stream, wait)?;
            return self.received(input, bytes);
        }
        self.header_and_guess(input, own, wait)
    }

    /// Receives the header of the next message, of which no byte has arrived yet. Also receives the bytes
    /// after the header. They go into the frame `own`, because they may be the reply to this thread's call.
    /// If `own` is `None`, these bytes are kept as bytes that were received ahead.
    #[inline]
    fn header_and_guess(&self, input: &mut Input, own: Option<u32>, wait: bool) -> io::Result<()> {
        let Some(own) = own else {
            let bytes = input.header_and_ahead(&self.stream, wait)?;
            return self.received(input, bytes);
        };
        let space = self.reply_space(own);
        let space = space.range(0, space.len().min(GUESS));
        let received = self.stream.receive_two(input.assembly.header_place(), space, wait)?;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.received(input, received.min(HEADER_BYTES))?;
        let Some(rest) = received.checked_sub(HEADER_BYTES).filter(|rest| *rest > 0) else {
            return Ok(());
        };
        let (mut body, mut moves) = (0, None);
        if let Some(message) = input.assembly.message() {
            body = rest.min(message.left());
            // The body may belong to a frame other than `own`. In that case, the body is copied to that
            // frame.
            moves = message.frame.filter(|frame| *frame != own);
        }
        if let Some(frame) = moves {
            self.put(frame, 0, space.range(0, body).window());
        }
        input.keep(space.range(body, rest - body).window());
        if body > 0 { self.received(input, body) } else { Ok(()) }
    }

    /// Receives more bytes of the body of a message. `done` bytes of the body have already arrived.
    fn more_body(
        &self,
        input: &mut Input,
        frame: Option<u32>,
        done: usize,
        left: usize,
        wait: bool,
    ) -> io::Result<()> {
        let ahead = input.take_ahead(left);
        let received = if ahead.is_empty() {
            let space = frame.map_or(Space::none(), |frame| self.reply_space(frame));
            self.stream.receive_two(&mut [], space.range(done, left), wait)?
        } else {
            frame.inspect(|frame| self.put(*frame, done, Window::from(ahead)));
            ahead.len()
        };
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.received(input, received)
    }

    fn put(&self, frame: u32, at: usize, bytes: Window<'_>) {
        if let Some(place) = self.reply_space(frame).part(at, bytes.len()) {
            place.copy_from(bytes);
        }
    }

    /// Notes that `bytes` further bytes of the current message have arrived in the memory for that message.
    /// Handles the message if it is complete.
    #[inline]
    fn received(&self, input: &mut Input, bytes: usize) -> io::Result<()> {
        let violated = |violation: Violation| {
            io::Error::new(io::ErrorKind::InvalidData, violation.to_string())
        };
        match input.assembly.add(&self.end, bytes).map_err(violated)? {
            None => {}
            Some(Arrived::Answer { index, body, wakes }) => {
                if body as usize > limits::ASTACK_BYTES_KEPT {
                    self.tidying.note(index);
                }
                match wakes {
                    Wakes::Nothing => {}
                    Wakes::Thread => drop(sys::futex_wake(&self.slot(index).state)),
                    Wakes::Bell => {
                        self.turns.sub(SLEEPER);
                        input.rings.push(index);
                    }
                }
            }
            Some(Arrived::Revoked(binding)) => self.revoke(binding),
            Some(Arrived::Goodbye) => self.wake_all(),
        }
        Ok(())
    }

    #[cold]
    fn revoke(&self, binding: u32) {
        /// How many revoked bindings are remembered until this process adds them.
        const EARLY_MAX: usize = 256;
        let mut bindings = self.bindings();
        match bindings.flags.remove(&binding) {
            Some(revoked) => revoked.store(true, Ordering::Release),
            None if bindings.early.len() < EARLY_MAX => bindings.early.push(binding),
            None => {}
        }
    }

    // Requests that are not calls.

    /// Sends a request, and waits for the answer. Returns the header and the body of the answer.
    pub(crate) fn ask(
        &self,
        kind: wire::MessageKind,
        body: &[u8],
        until: Instant,
    ) -> Result<(Header, Vec<u8>), CallError> {
        let is_released = |frame| self.is_released(frame);
        let Some(frame) = self.frames.take(|| Some(until), is_released, OnExhausted::More) else {
            let text = "no A-stack became free in time";
            return Err(CallError::not_executed(Kind::TimedOut, Phase::Bind, text));
        };
        let index = frame.index();
        let header = Header { body: body.len() as u32, ..Header::new(kind, self.end.begin(index)) };
        let header = header.to_bytes();
        let sent = self.send(Some(until), |sending| {
            sending.part(Window::from(&header[..]))?;
            sending.part(Window::from(body))
        });
        let result = sent.and_then(|()| match self.wait(index, Wait::Adaptive, Some(until)) {
            Event::Done => Ok(()),
            Event::Ended => Err(self.unanswered()),
            Event::Late if self.slot(index).capture() => {
                let text = "the server does not answer";
                Err(CallError::new(Kind::TimedOut, Executed::Maybe, text))
            }
            Event::Late => Ok(()),
        });
        if let Err(error) = result {
            // The request calls no procedure, so the client can safely repeat it.
            let captured = error.executed() == Executed::Maybe;
            let error = error.not_executed_after_all(Phase::Bind);
            if captured {
                frame.capture();
            } else {
                self.slot(index).release();
            }
            return Err(error);
        }
        let header = self.slot(index).answer(kind);
        let mut answer = vec![0; (header.body as usize).min(limits::HANDSHAKE_BYTES_MAX)];
        let _ = frame.reply_space().read(0, &mut answer);
        self.slot(index).release();
        Ok((header, answer))
    }

    /// Sends a notice, but only if this is possible without waiting.
    fn send_notice(&self, header: Header) {
        let header = header.to_bytes();
        let now = Some(Instant::now());
        // With this deadline, `send` waits neither for other threads that send, nor for space in the socket.
        let _ = self.send(now, |sending| sending.part(Window::from(&header[..])));
    }

    /// Returns whether a frame is free again. A frame whose caller gave up is free when the reply has
    /// arrived, or when the connection has ended.
    fn is_released(&self, frame: u32) -> bool {
        let slot = self.slot(frame);
        if !slot.is_done() && !self.has_ended() {
            self.listen();
        }
        if self.outbox.holds(frame) && !self.gives_back(frame) {
            return false;
        }
        self.has_ended() || slot.moves(DONE, IDLE) || slot.state.load(Ordering::Acquire) == IDLE
    }

    /// Notes that the reply of a call was large, so that the keeper later releases the memory of the reply.
    #[cold]
    fn used(&self) {
        self.tidying.used();
    }

    /// Returns whether the keeper must start to release unused memory now.
    #[inline]
    pub(crate) fn begins_to_tidy(&self) -> bool {
        self.tidying.begins()
    }
}

/// Returns the kind of error for the calls of a connection that ended for this reason.
const fn kind_of(reason: &EndReason) -> Kind {
    match reason {
        EndReason::Stopped => Kind::Withdrawn,
        EndReason::Violated(_) => Kind::ProtocolMismatch,
        EndReason::Closed
        | EndReason::Sending(_)
        | EndReason::Receiving(_)
        | EndReason::PartlySent
        | EndReason::Silent(_)
        | EndReason::Distrusted => Kind::ServerGone,
    }
}
