//! The client's end of a socket to one server of another RPC system. Many calls can be in flight on the
//! socket. One of the waiting callers is the leader: it receives for all callers
//! ([`leader`](crate::path::leader)). The [`Dialect`] is the protocol.
//!
//! A binding has one socket: a connected UDP socket, or a TCP connection. Arguments are sent from the frame
//! of their call, and results are received into it. A reply has the number of its call. The number of a call
//! that has ended is not known any more, so a late reply or a duplicate is dropped.

mod ask;
mod call;
mod dialect;
mod output;
mod pending;
mod slots;

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io::{self, ErrorKind};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

pub(in crate::path) use self::call::{ForeignPath, not_there};
pub(in crate::path) use self::dialect::{
    Arrived, Dialect, Ended as LinkEnd, Message, Number, Piece, Results, Step,
};
use self::output::Output;
use self::pending::Arming;
use self::slots::{Ended, Outcome, Slot, State, Waiting};
use crate::call::{Answer, Frames, PathKind, Wait, block_cost};
use crate::device::tcp::{Stream, WaitFor};
use crate::device::udp::Udp;
use crate::device::{Socket, Until};
use crate::error::{CallError, Kind, Phase};
use crate::limits;
use crate::path::bind::system;
use crate::path::foreign::moment;
use crate::path::leader::{Leader, Leadership};
use crate::path::options::BindOptions;
use crate::path::rings::Rings;
use crate::path::tidying::Tidying;
use crate::protocol::exchange::time::Moment;
use crate::protocol::onc::xids::Refused;
use crate::sync::{Mutex, Rank};
use crate::value::{Space, Window};

/// The size in bytes of the memory into which messages are received.
const INPUT_BYTES: usize = 64 << 10;

/// The parts of a datagram of at most this size are first copied together, because sending one part costs
/// less than sending several.
const JOINED_BYTES_MAX: usize = 512;

const CLOSED_PORT: &str = "no program listens at the port of the server";

/// The number of polls of the socket between two readings of the clock.
const LOOKS: u32 = 16;

/// The socket of a link.
pub(in crate::path) enum Wire {
    Udp(Socket),
    Tcp(Stream),
}

impl Wire {
    /// Opens a UDP socket to a server.
    ///
    /// # Errors
    /// If the system refuses.
    pub(in crate::path) fn datagrams(to: SocketAddr) -> Result<Self, CallError> {
        let udp = Udp::connected(to).map_err(system("opening a UDP socket"))?;
        let socket = Socket::Udp(udp);
        // Messages may be larger than the packets of the network.
        socket.allow_fragmentation().map_err(system("allowing fragmentation"))?;
        Ok(Self::Udp(socket))
    }
}

/// Returns the frames of a binding, for messages of at most `bytes` bytes.
///
/// # Errors
/// If there is no memory for them.
pub(in crate::path) fn frames_of(options: &BindOptions, bytes: usize) -> Result<Frames, CallError> {
    Frames::private(options.room_for(bytes), options.astacks, bytes)
        .map_err(system("cannot allocate frames"))
}

/// A socket to one server, and the calls in flight on it.
pub(in crate::path) struct Link<D: Dialect> {
    wire: Wire,
    kind: PathKind,
    dialect: D,
    frames: Arc<Frames>,
    slots: Box<[Mutex<Slot<D>>]>,
    /// Which frames have memory of large messages. Only connections carry large messages.
    tidying: Tidying,
    calls: Mutex<D::Calls>,
    /// The messages that wait to be sent on a connection. Over datagrams, each message is sent at once.
    output: Mutex<Output>,
    /// Whether messages wait until the socket accepts more. The keeper reads this while it holds its own
    /// lock.
    is_stuck: AtomicBool,
    leadership: Leadership<Input<D>>,
    arming: Arc<Arming>,
    has_ended: AtomicBool,
    /// Why the link has ended, once it has.
    end: OnceLock<LinkEnd<D::Failure>>,
    /// Whether an earlier datagram may still be in the network: a call was retransmitted or given up. A later
    /// report that the port is closed may concern such a datagram.
    has_strays: AtomicBool,
}

/// The memory into which the leader receives, and the state of receiving.
struct Input<D: Dialect> {
    bytes: Box<[u8]>,
    assembler: D::Assembler,
    rings: Rings,
}

/// What a caller must do next.
enum Progress<D: Dialect> {
    Take(Ended<D>),
    /// The caller waits until this moment, or without a time limit.
    Wait(Option<Moment>),
}

impl<D: Dialect> Link<D> {
    /// Makes a link from a connected socket.
    pub(in crate::path) fn new(
        wire: Wire,
        kind: PathKind,
        dialect: D,
        calls: D::Calls,
        frames: Frames,
    ) -> Arc<Self> {
        let count = frames.layout().count;
        let input = Input {
            bytes: vec![0; INPUT_BYTES].into(),
            assembler: dialect.assembler(frames.layout().bytes),
            rings: Rings::new(),
        };
        let arming = Arc::new(Arming::default());
        let slot = |_| Mutex::ranked(Rank::Activity, Slot::default());
        Arc::new(Self {
            wire,
            kind,
            dialect,
            slots: (0..count).map(slot).collect(),
            tidying: Tidying::new(count),
            calls: Mutex::new(calls),
            output: Mutex::ranked(Rank::Output, Output::default()),
            is_stuck: AtomicBool::new(false),
            leadership: Leadership::new(count, input, Arc::clone(&arming) as _),
            arming,
            frames: Arc::new(frames),
            has_ended: AtomicBool::new(false),
            end: OnceLock::new(),
            has_strays: AtomicBool::new(false),
        })
    }

    pub(in crate::path) const fn dialect(&self) -> &D {
        &self.dialect
    }

    pub(in crate::path) const fn frames(&self) -> &Arc<Frames> {
        &self.frames
    }

    /// Returns whether the link has ended, for example because the server has closed the connection or its
    /// port.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Returns the largest number of bytes that the arguments of a call may have.
    fn arguments_max(&self) -> usize {
        let most = self.frames.layout().bytes;
        match self.wire {
            Wire::Udp(_) => most.min(self.dialect.datagram_arguments_max()),
            Wire::Tcp(_) => most.min(self.dialect.arguments_max()),
        }
    }

    fn slot(&self, frame: u32) -> &Mutex<Slot<D>> {
        &self.slots[frame as usize]
    }

    // Sending.

    /// Begins the call of a frame, whose call space has `bytes` bytes of arguments. Sends the call, or as
    /// much of it as a connection accepts. `left` is how long the caller waits for the reply. If `may_wait`
    /// is false, does not wait for space in the send buffer of a socket for datagrams.
    ///
    /// # Errors
    /// If the call was not sent.
    fn begin(
        &self,
        frame: u32,
        procedure: u32,
        bytes: usize,
        left: Option<Duration>,
        may_wait: bool,
    ) -> Result<(), CallError> {
        self.note_size(frame, bytes);
        let message = {
            let mut slot = self.slot(frame).lock();
            // Messages are sent in the order of their numbers. So the number is given and the message is
            // queued under one lock.
            let mut output = matches!(self.wire, Wire::Tcp(_)).then(|| self.output.lock());
            // SYNC: foreign-end. The thread that ends the link sets the flag, then takes the lock to remove
            // the messages, and then fails the calls in flight. So the call of this thread fails, or this
            // thread sees the flag.
            if output.is_some() && self.has_ended() {
                return Err(self.unsent());
            }
            let mut calls = self.calls.lock();
            let number = self.dialect.add(&mut calls, frame, procedure)?;
            let message = Message { frame, number, procedure, bytes };
            let exchange = match output.as_mut() {
                Some(output) => {
                    output.push(message);
                    None
                }
                None => {
                    let arguments = self.arguments(&message);
                    let send = &mut |parts: [&[u8]; 2]| self.send_now(&parts.map(Window::from));
                    let begun = self.dialect.begin(&mut calls, &message, arguments, left, send);
                    Some(begun.inspect_err(|_| D::forget(&mut calls, number))?)
                }
            };
            slot.state = State::Waits(Waiting { message, exchange });
            message
        };
        let Wire::Udp(socket) = &self.wire else {
            self.flush();
            return Ok(());
        };
        // SYNC: foreign-end, as above. Over datagrams there are no messages to remove.
        if self.has_ended() {
            self.forget(frame);
            return Err(self.unsent());
        }
        let sent = self.send_datagram(socket, &message, may_wait).map_err(|error| {
            if error.kind() == ErrorKind::ConnectionRefused {
                self.end(D::disconnected(CLOSED_PORT.to_owned()));
                self.wake_all();
                return self.unsent();
            }
            CallError::system(Phase::Call, "sending the call", error)
        });
        if sent.is_err() {
            self.forget(frame);
        }
        sent
    }

    /// Returns the arguments of a call.
    fn arguments(&self, message: &Message) -> Window<'_> {
        self.frames.call_space_of(message.frame).window().range(0, message.bytes)
    }

    /// Sends a call in one datagram, if the protocol has this form. If `may_wait` is false, a datagram that
    /// the socket does not accept now counts as lost in the network.
    fn send_datagram(&self, socket: &Socket, message: &Message, may_wait: bool) -> io::Result<()> {
        let Some(piece) = self.dialect.datagram(message) else { return Ok(()) };
        let parts = piece.parts(self.arguments(message));
        let mut memory = [0; JOINED_BYTES_MAX];
        let whole = joined(&parts, &mut memory);
        let parts = whole.as_ref().map_or(&parts[..], core::slice::from_ref);
        if may_wait {
            return socket.send(parts, None);
        }
        match socket.send_now(parts) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            sent => sent,
        }
    }

    /// Sends a datagram. If the socket does not accept the datagram now, it counts as lost in the network.
    fn send_now(&self, parts: &[Window<'_>]) {
        let Wire::Udp(socket) = &self.wire else { return };
        let mut memory = [0; JOINED_BYTES_MAX];
        let whole = joined(parts, &mut memory);
        let _ = socket.send_now(whole.as_ref().map_or(parts, core::slice::from_ref));
    }

    /// Sends what the socket of a connection accepts. Ends the link if the connection is broken.
    fn flush(&self) {
        let Wire::Tcp(stream) = &self.wire else { return };
        let mut output = self.output.lock();
        let mut unanswered = Vec::new();
        let flushed = output.flush(stream, &self.dialect, &self.frames, &mut unanswered);
        let is_stuck = !output.is_empty();
        let was_stuck = self.is_stuck.swap(is_stuck, Ordering::SeqCst);
        drop(output);
        self.complete(&unanswered);
        if is_stuck && !was_stuck {
            // The keeper sends the rest if no other thread sends it.
            self.arming.renew();
        }
        if was_stuck {
            self.ring_early();
        }
        if let Err(error) = flushed {
            self.end(D::disconnected(error.to_string()));
            self.wake_all();
        }
    }

    /// Completes calls that get no reply, after their messages were sent. `sent` has the numbers of their
    /// frames.
    fn complete(&self, sent: &[u32]) {
        for frame in sent {
            let mut slot = self.slot(*frame).lock();
            if let State::Waits(call) = &slot.state {
                slot.state = State::Ended(call.ended(Outcome::Results(Answer::Ok, 0)));
            }
            drop(slot);
            if self.leadership.wake(*frame) {
                self.frames.bell(*frame).ring();
            }
        }
    }

    /// Wakes the futures of calls that were answered before their messages were sent completely. These
    /// futures wait until the whole message was sent.
    #[cold]
    fn ring_early(&self) {
        for frame in 0..self.frames.active() {
            if self.has_outcome(frame) && self.leadership.wake(frame) {
                self.frames.bell(frame).ring();
            }
        }
    }

    /// Returns whether the message of a frame, whose call has [begun](Self::begin), is not sent completely.
    fn holds(&self, frame: u32) -> bool {
        self.is_stuck.load(Ordering::SeqCst) && self.output.lock().holds(frame)
    }

    /// Waits until the message of a call was sent. Meanwhile receives replies, because a server may stop
    /// reading calls while its replies are not read. Returns false if the deadline passes.
    fn sends(&self, frame: u32, deadline: Option<Instant>) -> bool {
        let Wire::Tcp(stream) = &self.wire else { return true };
        let mut what = WaitFor::Either;
        while self.holds(frame) {
            let Ok(ready) = stream.wait(what, deadline) else { return true };
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return false;
            }
            if ready.readable {
                match self.leadership.try_lead() {
                    Some(leader) => _ = self.lead(leader, Looks::All),
                    // Another thread receives.
                    None => what = WaitFor::Writable,
                }
            }
            self.flush();
        }
        true
    }

    // Receiving.

    /// Waits for the outcome of a call. Returns `None` if the deadline passes.
    fn wait(&self, frame: u32, wait: Wait, deadline: Option<Instant>) -> Option<Ended<D>> {
        let mut follower = None;
        let spin_until = (wait == Wait::Adaptive).then(|| Instant::now() + block_cost());
        loop {
            let due = match self.progress(frame) {
                Progress::Take(ended) => return Some(ended),
                Progress::Wait(due) => due,
            };
            let now = Instant::now();
            let left = left(due, deadline, now);
            if deadline.is_some_and(|deadline| deadline <= now) {
                return None;
            }
            let blocks = match wait {
                Wait::Spin => false,
                Wait::Block => true,
                Wait::Adaptive => spin_until.is_some_and(|until| now >= until),
            };
            match (self.leadership.try_lead(), &mut follower) {
                (Some(leader), _) => {
                    follower = None;
                    let looks = if blocks { Looks::Wait(left) } else { Looks::Poll };
                    if !self.lead(leader, looks) && !blocks {
                        // The server may need this processor.
                        std::thread::yield_now();
                    }
                }
                // After it becomes a follower, the thread checks its call once more before it waits.
                (None, None) => follower = Some(self.leadership.follow(frame)),
                (None, Some(follower)) => follower.wait(wait, left.unwrap_or(Duration::MAX)),
            }
        }
    }

    /// Returns what the caller of a frame does next. Sends the call again if that is due.
    fn progress(&self, frame: u32) -> Progress<D> {
        let mut slot = self.slot(frame).lock();
        let call = match &mut slot.state {
            State::Ended(ended) => {
                let ended = *ended;
                slot.state = State::Idle;
                return Progress::Take(ended);
            }
            State::Waits(call) => call,
            State::Idle => return Progress::Wait(None),
        };
        let Some(exchange) = &mut call.exchange else { return Progress::Wait(None) };
        let due = D::due(exchange);
        if moment() < due {
            return Progress::Wait(Some(due));
        }
        self.has_strays.store(true, Ordering::Relaxed);
        let send = &mut |parts: [&[u8]; 2]| self.send_now(&parts.map(Window::from));
        let mut calls = self.calls.lock();
        let step = self.dialect.step(&mut calls, exchange, send);
        match step {
            Step::Wait => Progress::Wait(Some(D::due(exchange))),
            Step::GiveUp(failure) => {
                D::forget(&mut calls, call.message.number);
                let ended = call.ended(Outcome::Failed(failure));
                slot.state = State::Idle;
                Progress::Take(ended)
            }
            Step::Retransmit => {
                drop(calls);
                let due = D::due(exchange);
                if let Wire::Udp(socket) = &self.wire {
                    // A retransmission that the socket does not accept counts as lost in the network.
                    let _ = self.send_datagram(socket, &call.message, false);
                }
                Progress::Wait(Some(due))
            }
        }
    }

    /// Receives for all callers, and wakes those whose replies have arrived. Returns whether anything was
    /// received.
    fn lead(&self, mut leader: Leader<'_, Input<D>>, looks: Looks) -> bool {
        let received = self.receive(leader.input(), looks);
        if leader.input().rings.is_empty() {
            drop(leader);
        } else {
            let rings = leader.input().rings.take();
            drop(leader);
            self.ring(&rings);
        }
        if self.has_ended() {
            self.wake_all();
        }
        received
    }

    fn ring(&self, rings: &Rings) {
        for frame in rings.frames() {
            self.frames.bell(frame).ring();
        }
    }

    /// Receives as `looks` says. Returns whether anything was received.
    fn receive(&self, input: &mut Input<D>, looks: Looks) -> bool {
        match looks {
            Looks::Wait(left) => {
                let until = match left {
                    None => Until::Ever,
                    // A timeout of 0 would mean no timeout.
                    Some(Duration::ZERO) => Until::Now,
                    Some(left) => Until::After(left),
                };
                self.receive_once(input, until)
            }
            Looks::Poll => (0..LOOKS).any(|_| self.receive_once(input, Until::Now)),
            Looks::All => {
                let is_full = |input: &Input<D>| input.rings.is_full();
                let received = |_: &u32| !is_full(input) && self.receive_once(input, Until::Now);
                (0..LOOKS).take_while(received).count() > 0
            }
        }
    }

    /// Receives once. Returns whether anything happened: bytes arrived, or the socket reported an error.
    fn receive_once(&self, input: &mut Input<D>, until: Until) -> bool {
        if self.has_ended() {
            return false;
        }
        match &self.wire {
            Wire::Udp(socket) => {
                match socket.receive(&[Space::of_mut(&mut input.bytes)], None, until) {
                    Ok(None) => return false,
                    Ok(Some(arrival)) => {
                        let Input { bytes, rings, .. } = input;
                        if let Err(end) = self.deliver(&bytes[..arrival.bytes], rings) {
                            self.end(end);
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                        self.end(D::disconnected(CLOSED_PORT.to_owned()));
                    }
                    // The network reports a problem that may be temporary. The call is retransmitted when
                    // that is due.
                    Err(_) => {}
                }
                true
            }
            Wire::Tcp(stream) => {
                match receive_bytes(stream, &mut input.bytes, until) {
                    Ok(None) => return false,
                    Ok(Some(bytes)) => {
                        if let Err(end) = self.take_messages(input, bytes) {
                            self.end(end);
                        }
                    }
                    Err(error) => self.end(D::disconnected(error.to_string())),
                }
                true
            }
        }
    }

    /// Delivers the messages that the received bytes complete. `bytes` is the number of received bytes.
    ///
    /// # Errors
    /// If the connection has ended, or its bytes cannot be read.
    fn take_messages(&self, input: &mut Input<D>, bytes: usize) -> Result<(), LinkEnd<D::Failure>> {
        let Input { bytes: memory, assembler, rings } = input;
        if bytes == 0 {
            return Err(D::disconnected(match self.dialect.is_between_messages(assembler) {
                true => "the server has closed the connection".to_owned(),
                false => "the server has closed the connection within a reply".to_owned(),
            }));
        }
        let mut arrived = &memory[..bytes];
        loop {
            match self.dialect.take(assembler, &mut arrived)? {
                None => return Ok(()),
                Some(Arrived::Message(message)) => {
                    self.deliver(&message, rings)?;
                    D::reuse(assembler, message);
                }
                Some(Arrived::End(answer)) => {
                    self.answer_end(answer);
                    let text = "the server has closed the connection";
                    return Err(D::disconnected(text.to_owned()));
                }
            }
        }
    }

    /// Answers a server that has announced that it sends no more data. If a message was sent only in part,
    /// no answer is sent.
    #[cold]
    fn answer_end(&self, answer: &[u8]) {
        if let Wire::Tcp(stream) = &self.wire
            && !self.output.lock().is_within_message()
        {
            // If the socket does not accept the answer, the server notices the end of the connection instead.
            let _ = stream.send_some(answer);
        }
    }

    /// Gives a message to the call to which it replies, if there is one, and wakes the caller.
    ///
    /// # Errors
    /// If the message ends the link.
    fn deliver(&self, message: &[u8], rings: &mut Rings) -> Result<(), LinkEnd<D::Failure>> {
        let found = self.dialect.find(&mut self.calls.lock(), message)?;
        let Some((number, frame)) = found else { return Ok(()) };
        let mut slot = self.slot(frame).lock();
        // Meanwhile the call may have ended, and the frame may have another call.
        let State::Waits(call) = &mut slot.state else { return Ok(()) };
        if call.message.number != Number::Of(number) {
            return Ok(());
        }
        let mut calls = self.calls.lock();
        let send = &mut |parts: [&[u8]; 2]| self.send_now(&parts.map(Window::from));
        let exchange = call.exchange.as_mut();
        let received = self.dialect.receive(&mut calls, number, exchange, message, send);
        drop(calls);
        let outcome = match received {
            None => return Ok(()),
            Some(Err(failure)) => Outcome::Failed(failure),
            Some(Ok(Results { answer, bytes })) => self.place(frame, answer, &bytes),
        };
        slot.state = State::Ended(call.ended(outcome));
        drop(slot);
        if self.leadership.wake(frame) {
            rings.push(frame);
        }
        Ok(())
    }

    /// Copies results to the frame of their call.
    fn place(&self, frame: u32, answer: Answer, results: &[u8]) -> Outcome<D::Failure> {
        match self.frames.reply_space_of(frame).write(0, results) {
            Some(()) => {
                self.note_size(frame, results.len());
                Outcome::Results(answer, results.len() as u32)
            }
            None => Outcome::TooLong(results.len()),
        }
    }

    /// Notes that a frame has a message of `bytes` bytes. The memory of a large message is released some time
    /// after the call.
    fn note_size(&self, frame: u32, bytes: usize) {
        if bytes > limits::ASTACK_BYTES_KEPT {
            self.tidying.note(frame);
            self.tidying.used();
        }
    }

    // The ends of calls and of the link.

    /// Forgets the call of a frame. Returns the call if it had no outcome yet.
    fn forget(&self, frame: u32) -> Option<Waiting<D>> {
        let state = core::mem::take(&mut self.slot(frame).lock().state);
        let State::Waits(call) = state else { return None };
        D::forget(&mut self.calls.lock(), call.message.number);
        Some(call)
    }

    /// Gives up the call of a frame, whose deadline has passed. Returns its error.
    #[cold]
    fn give_up(&self, frame: u32) -> CallError {
        if matches!(self.wire, Wire::Tcp(_)) && self.take_back(frame) {
            let text = "the server does not read from the connection";
            return CallError::not_executed(Kind::TimedOut, Phase::Call, text);
        }
        let call = self.forget(frame);
        self.has_strays.store(true, Ordering::Relaxed);
        let transmissions = call.map_or(1, |call| call.transmissions());
        self.error_of(D::TIMED_OUT, transmissions)
    }

    /// Takes back the call of a frame, if no byte of it was sent.
    fn take_back(&self, frame: u32) -> bool {
        let mut slot = self.slot(frame).lock();
        let mut output = self.output.lock();
        let Some(message) = output.take_back(frame) else { return false };
        D::take_back(&mut self.calls.lock(), message.number);
        drop(output);
        slot.state = State::Idle;
        true
    }

    /// Ends the link. All calls in flight fail. The caller wakes their threads and futures afterwards, by
    /// [`wake_all`](Self::wake_all), when it holds no lock.
    #[cold]
    fn end(&self, end: LinkEnd<D::Failure>) {
        let failure = end.failure;
        if self.end.set(end).is_err() {
            return;
        }
        self.has_ended.store(true, Ordering::SeqCst);
        // SYNC: foreign-end, in `begin`.
        let unsent = self.output.lock().clear();
        let waiting = D::drain(&mut self.calls.lock());
        // A report of a closed port concerns the only call in flight, unless an earlier datagram may still
        // be in the network.
        let is_sole = waiting.len() == 1 && !self.has_strays.load(Ordering::Relaxed);
        let is_refused =
            |call: &Waiting<D>| is_sole && call.exchange.as_ref().is_some_and(D::is_unanswered);
        let with_reply = waiting.into_iter().map(|(number, frame)| (Number::Of(number), frame));
        let without = unsent.iter().map(|frame| (Number::NoReply, *frame));
        for (number, frame) in with_reply.chain(without) {
            let mut slot = self.slot(frame).lock();
            let State::Waits(call) = &slot.state else { continue };
            if call.message.number != number {
                continue;
            }
            let mut ended = call.ended(Outcome::Failed(failure));
            if is_refused(call) || unsent.contains(&frame) {
                ended.transmissions = 0;
            }
            slot.state = State::Ended(ended);
        }
        // This ends the wait of the thread that waits for a message.
        match &self.wire {
            Wire::Udp(socket) => socket.close(),
            Wire::Tcp(stream) => stream.end(),
        }
    }

    /// Wakes all threads and futures, because the link has ended.
    #[cold]
    fn wake_all(&self) {
        for frame in self.leadership.wake_all() {
            self.frames.bell(frame).ring();
        }
    }

    /// Returns the error of a call that was not sent, because the link has ended.
    #[cold]
    fn unsent(&self) -> CallError {
        self.error_of(D::DISCONNECTED, 0)
    }

    /// Returns the error of a failed call.
    #[cold]
    fn error_of(&self, failure: D::Failure, transmissions: u32) -> CallError {
        let reason = self.end.get().map(|end| &*end.reason);
        self.dialect.error_of(failure, transmissions, reason)
    }
}

/// Returns the error of a call to which no number can be given.
#[cold]
pub(in crate::path) fn full(refused: Refused) -> CallError {
    let text = match refused {
        Refused::Full => "too many calls wait for replies",
        Refused::TooFast => "the numbers of calls would be repeated too early",
    };
    CallError::not_executed(Kind::Exhausted, Phase::Call, text)
}

/// How the leader receives.
#[derive(Clone, Copy)]
enum Looks {
    /// Sleeps until something arrives, or for this time.
    Wait(Option<Duration>),
    /// Polls a few times, until something arrives.
    Poll,
    /// Takes what has arrived, without waiting.
    All,
}

/// Copies the parts of a short datagram to `memory`, one after the other. Returns `None` if they do not fit.
fn joined<'a>(parts: &[Window<'_>], memory: &'a mut [u8]) -> Option<Window<'a>> {
    let mut length = 0;
    for part in parts {
        part.read(0, memory.get_mut(length..length + part.len())?)?;
        length += part.len();
    }
    Some(Window::from(&memory[..length]))
}

/// Receives bytes of a connection. Returns `None` if no bytes arrived in time, and 0 if the server has closed
/// the connection.
fn receive_bytes(stream: &Stream, into: &mut [u8], until: Until) -> io::Result<Option<usize>> {
    if let Until::After(left) | Until::Precisely(left) = until {
        let ready = stream.wait(WaitFor::Readable, Some(Instant::now() + left))?;
        if !ready.readable {
            return Ok(None);
        }
    }
    match stream.receive(into, matches!(until, Until::Ever)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Returns the time until `due` or `deadline`, whichever is earlier.
fn left(due: Option<Moment>, deadline: Option<Instant>, now: Instant) -> Option<Duration> {
    let due = due.map(|due| Duration::from_nanos(due.since(moment())));
    let deadline = deadline.map(|deadline| deadline.saturating_duration_since(now));
    due.into_iter().chain(deadline).min()
}
