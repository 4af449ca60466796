//! The client's end of a socket to one server of ONC RPC, which can have many calls in flight. One of the
//! waiting callers is the leader: it receives for all callers ([`leader`](crate::path::leader)).
//!
//! A binding has one socket: a connected UDP socket, or a TCP connection. Arguments are sent from the frame of
//! their call, and results are received into it. Replies find their calls by the numbers of the calls (xids),
//! so a late reply or a duplicate finds no call.

mod ask;
mod call;
mod header;
mod output;
mod pending;
mod slots;

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io::{self, ErrorKind};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

pub(super) use self::call::OncPath;
pub(super) use self::header::Header;
use self::output::Output;
use self::pending::Arming;
use self::slots::{Ended, Message, Outcome, Slot, State, Waiting};
use crate::call::{Frames, Wait, block_cost};
use crate::device::tcp::{Stream, WaitFor};
use crate::device::{BYTES_MAX, Socket, Until};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::limits;
use crate::path::foreign::moment;
use crate::path::leader::{Leader, Leadership};
use crate::path::rings::Rings;
use crate::path::tidying::Tidying;
use crate::protocol::exchange::client_end::Executed as Ran;
use crate::protocol::exchange::time::Moment;
use crate::protocol::onc::client::{CALL_TIME, DatagramCall, Pace, Step};
use crate::protocol::onc::failure::Failure;
use crate::protocol::onc::message::{REPLY_BYTES_MAX, replied_to};
use crate::protocol::onc::record::Assembler;
use crate::protocol::onc::xids::{Refused, Waiters};
use crate::sync::{Mutex, Rank};
use crate::sys;
use crate::value::{Space, Window};

/// The size in bytes of the memory into which messages are received.
const INPUT_BYTES: usize = 64 << 10;

/// A datagram of at most this size is sent from one part of memory, which costs less than several parts.
const JOINED_BYTES_MAX: usize = 512;

/// The number of polls of the socket between two looks at the clock.
const LOOKS: u32 = 16;

/// The socket of a link.
pub(super) enum Wire {
    Udp(Socket),
    Tcp(Stream),
}

/// A socket to one server, and the calls in flight on it.
pub(super) struct Link {
    wire: Wire,
    header: Header,
    frames: Arc<Frames>,
    slots: Box<[Mutex<Slot>]>,
    /// The memory of large messages, which only connections carry.
    tidying: Tidying,
    calls: Mutex<Calls>,
    /// The messages for a connection. Over datagrams, each message is sent at once.
    output: Mutex<Output>,
    /// Whether messages wait until the socket accepts more. The keeper reads this while it holds its own lock.
    is_stuck: AtomicBool,
    leadership: Leadership<Input>,
    arming: Arc<Arming>,
    has_ended: AtomicBool,
    /// Why the socket is of no use any more.
    end_reason: OnceLock<String>,
    /// Whether a datagram was sent of which nothing is known any more. A later report that a port is closed may
    /// concern this datagram.
    has_strays: AtomicBool,
}

/// The numbers of the calls in flight, each with its frame, and what was measured of the server.
struct Calls {
    waiters: Waiters<u32>,
    pace: Pace,
}

/// What the leader receives into.
struct Input {
    bytes: Box<[u8]>,
    assembler: Assembler,
    rings: Rings,
}

/// What a caller does next.
enum Progress {
    Take(Ended),
    /// Waits until this moment, or without end.
    Wait(Option<Moment>),
}

impl Link {
    /// Makes a link from a connected socket.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub(super) fn new(wire: Wire, header: Header, frames: Frames) -> io::Result<Arc<Self>> {
        let count = frames.layout().count;
        let start = u32::from_ne_bytes(sys::random()?);
        let record_bytes = frames.layout().bytes + REPLY_BYTES_MAX;
        let input = Input {
            bytes: vec![0; INPUT_BYTES].into(),
            assembler: Assembler::new(record_bytes),
            rings: Rings::new(),
        };
        let arming = Arc::new(Arming::default());
        let slot = |_| Mutex::ranked(Rank::Activity, Slot::default());
        Ok(Arc::new(Self {
            wire,
            header,
            slots: (0..count).map(slot).collect(),
            tidying: Tidying::new(count),
            calls: Mutex::new(Calls {
                waiters: Waiters::new(start, count as usize),
                pace: Pace::default(),
            }),
            output: Mutex::default(),
            is_stuck: AtomicBool::new(false),
            leadership: Leadership::new(count, input, Arc::clone(&arming) as _),
            arming,
            frames: Arc::new(frames),
            has_ended: AtomicBool::new(false),
            end_reason: OnceLock::new(),
            has_strays: AtomicBool::new(false),
        }))
    }

    pub(super) const fn frames(&self) -> &Arc<Frames> {
        &self.frames
    }

    /// Returns whether the server has closed the connection, or its port.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Returns the largest number of bytes of arguments.
    pub(super) fn arguments_max(&self) -> usize {
        let most = self.frames.layout().bytes;
        match self.wire {
            Wire::Udp(_) => most.min(BYTES_MAX - self.header.len()),
            Wire::Tcp(_) => most,
        }
    }

    fn slot(&self, frame: u32) -> &Mutex<Slot> {
        &self.slots[frame as usize]
    }

    // Sending.

    /// Begins the call of a frame, whose call space has `bytes` bytes of arguments. Sends the call, or as much
    /// of it as a connection accepts. `left` is how long the caller waits for the reply. If `may_wait` is
    /// false, does not wait for space in the send buffer of a socket for datagrams.
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
        let now = moment();
        self.note_size(frame, bytes);
        let message = {
            let mut calls = self.calls.lock();
            let xid = calls.waiters.add(now, frame).map_err(full)?;
            let message = Message { frame, xid, procedure, bytes };
            let datagram = matches!(self.wire, Wire::Udp(_)).then(|| {
                let time = left.map_or(CALL_TIME, nanoseconds);
                DatagramCall::begin(xid, now, time, &calls.pace)
            });
            drop(calls);
            self.slot(frame).lock().state = State::Waits(Waiting { message, datagram });
            message
        };
        // SYNC: onc-end. The thread that ends the link sets the flag, and then fails the calls in flight. So it
        // fails this call, or this thread sees the flag.
        if self.has_ended() {
            self.forget(frame);
            return Err(self.unsent());
        }
        let sent = match &self.wire {
            Wire::Udp(socket) => self.send_datagram(socket, &message, may_wait).map_err(|error| {
                if error.kind() == ErrorKind::ConnectionRefused {
                    self.end(closed_port());
                    self.wake_all();
                    return self.unsent();
                }
                CallError::system(Phase::Call, "sending the call", error)
            }),
            Wire::Tcp(_) => self.send_record(message),
        };
        if sent.is_err() {
            self.forget(frame);
        }
        sent
    }

    /// Sends a datagram. If `may_wait` is false, a datagram that the socket does not accept now is lost like any
    /// other.
    fn send_datagram(&self, socket: &Socket, message: &Message, may_wait: bool) -> io::Result<()> {
        let numbers = self.header.datagram(message.xid, message.procedure);
        let arguments = self.frames.call_space_of(message.frame).window().range(0, message.bytes);
        let parts = [Window::from(&numbers[..]), Window::from(self.header.auth()), arguments];
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

    /// Adds a message to those that wait to be sent, and sends what the socket accepts.
    fn send_record(&self, message: Message) -> Result<(), CallError> {
        let mut output = self.output.lock();
        // SYNC: onc-end. The thread that ends the link sets the flag, and then takes this lock to remove the
        // messages. So it removes this message, or this thread sees the flag.
        if self.has_ended() {
            return Err(self.unsent());
        }
        output.push(message);
        drop(output);
        self.flush();
        Ok(())
    }

    /// Sends what the socket of a connection accepts. Ends the link if the connection is broken.
    fn flush(&self) {
        let Wire::Tcp(stream) = &self.wire else { return };
        let mut output = self.output.lock();
        let flushed = output.flush(stream, &self.header, &self.frames);
        let is_stuck = !output.is_empty();
        let was_stuck = self.is_stuck.swap(is_stuck, Ordering::SeqCst);
        drop(output);
        if is_stuck && !was_stuck {
            // The keeper sends the rest if no thread does.
            self.arming.renew();
        }
        if was_stuck {
            self.ring_early();
        }
        if let Err(error) = flushed {
            self.end(error.to_string());
            self.wake_all();
        }
    }

    /// Wakes the futures of calls that were answered before their messages were sent completely. They wait for
    /// the end of sending.
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

    /// Waits until the message of a call was sent. Meanwhile receives replies, because a server may read no
    /// more calls while its replies are not read. Returns false if the deadline passes.
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
                    Some(leader) => self.lead(leader, Looks::All),
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
    fn wait(&self, frame: u32, wait: Wait, deadline: Option<Instant>) -> Option<Ended> {
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
                    self.lead(leader, if blocks { Looks::Wait(left) } else { Looks::Poll });
                }
                // A follower looks once more before it waits.
                (None, None) => follower = Some(self.leadership.follow(frame)),
                (None, Some(follower)) => follower.wait(wait, left.unwrap_or(Duration::MAX)),
            }
        }
    }

    /// Returns what the caller of a frame does next. Sends the call again if that is due.
    fn progress(&self, frame: u32) -> Progress {
        let mut slot = self.slot(frame).lock();
        let call = match &mut slot.state {
            State::Ended(ended) => {
                let ended = *ended;
                slot.state = State::Idle;
                return Progress::Take(ended);
            }
            State::Waits(Waiting { datagram: None, .. }) | State::Idle => {
                return Progress::Wait(None);
            }
            State::Waits(call) => call,
        };
        let Some(datagram) = &mut call.datagram else { return Progress::Wait(None) };
        match datagram.step(moment()) {
            Step::Wait(until) => Progress::Wait(Some(until)),
            Step::GiveUp(failure) => {
                let ended = call.ended(Outcome::Failed(failure));
                let xid = call.message.xid;
                slot.state = State::Idle;
                drop(slot);
                self.has_strays.store(true, Ordering::Relaxed);
                self.calls.lock().waiters.remove(xid);
                Progress::Take(ended)
            }
            Step::Retransmit => {
                let due = datagram.due();
                self.has_strays.store(true, Ordering::Relaxed);
                let message = call.message;
                if let Wire::Udp(socket) = &self.wire {
                    // A copy that is not sent is lost like any other.
                    let _ = self.send_datagram(socket, &message, false);
                }
                Progress::Wait(Some(due))
            }
        }
    }

    /// Receives for all callers, and then wakes those whose replies have arrived.
    fn lead(&self, mut leader: Leader<'_, Input>, looks: Looks) {
        self.receive(leader.input(), looks);
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
    }

    fn ring(&self, rings: &Rings) {
        for frame in rings.frames() {
            self.frames.bell(*frame).ring();
        }
    }

    fn receive(&self, input: &mut Input, looks: Looks) {
        match looks {
            Looks::Wait(left) => {
                let until = match left {
                    None => Until::Ever,
                    // A timeout of 0 would mean no timeout.
                    Some(Duration::ZERO) => Until::Now,
                    Some(left) => Until::After(left),
                };
                self.receive_once(input, until);
            }
            Looks::Poll => {
                for _ in 0..LOOKS {
                    if self.receive_once(input, Until::Now) {
                        break;
                    }
                }
            }
            Looks::All => {
                for _ in 0..LOOKS {
                    if input.rings.is_full() || !self.receive_once(input, Until::Now) {
                        break;
                    }
                }
            }
        }
    }

    /// Receives once. Returns whether something has arrived.
    fn receive_once(&self, input: &mut Input, until: Until) -> bool {
        if self.has_ended() {
            return false;
        }
        match &self.wire {
            Wire::Udp(socket) => {
                match socket.receive(&[Space::of_mut(&mut input.bytes)], None, until) {
                    Ok(None) => return false,
                    Ok(Some(arrival)) => {
                        let Input { bytes, rings, .. } = input;
                        self.deliver(&bytes[..arrival.bytes], rings);
                    }
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                        self.end(closed_port());
                    }
                    // The network reports a problem that may pass. The call is sent again when that is due.
                    Err(_) => {}
                }
                true
            }
            Wire::Tcp(stream) => {
                match receive_bytes(stream, &mut input.bytes, until) {
                    Ok(None) => return false,
                    Ok(Some(bytes)) => self.take_records(input, bytes),
                    Err(error) => self.end(error.to_string()),
                }
                true
            }
        }
    }

    /// Delivers the records of which the last bytes have arrived.
    fn take_records(&self, input: &mut Input, bytes: usize) {
        let Input { bytes: memory, assembler, rings } = input;
        let mut arrived = &memory[..bytes];
        if bytes == 0 {
            let text = match assembler.is_between_records() {
                true => "the server has closed the connection",
                false => "the server has closed the connection within a reply",
            };
            return self.end(text.to_owned());
        }
        loop {
            match assembler.take(&mut arrived) {
                Ok(None) => return,
                Ok(Some(record)) => {
                    self.deliver(&record, rings);
                    assembler.reuse(record, limits::ESTACK_BYTES_KEPT);
                }
                Err(broken) => return self.end(broken.to_string()),
            }
        }
    }

    /// Gives a message to the call to which it replies, if there is one, and wakes the caller.
    fn deliver(&self, message: &[u8], rings: &mut Rings) {
        let Some(xid) = replied_to(message) else { return };
        let frame = self.calls.lock().waiters.find(xid).copied();
        let Some(frame) = frame else { return };
        let mut slot = self.slot(frame).lock();
        // The call may have ended meanwhile, and the frame may have another call.
        let State::Waits(call) = &mut slot.state else { return };
        let mut calls = self.calls.lock();
        let Some(received) = call.receive(moment(), message, &mut calls.pace) else { return };
        calls.waiters.remove(xid);
        drop(calls);
        let failed = |failure| Outcome::Failed(failure);
        let outcome = match received {
            Err(failure) => failed(failure),
            Ok((reply, at)) => match Failure::of(&reply.answer) {
                Some(failure) => failed(failure),
                None => self.place(frame, &message[at..]),
            },
        };
        slot.state = State::Ended(call.ended(outcome));
        drop(slot);
        if self.leadership.wake(frame) {
            rings.push(frame);
        }
    }

    /// Copies results to their frame.
    fn place(&self, frame: u32, results: &[u8]) -> Outcome {
        match self.frames.reply_space_of(frame).write(0, results) {
            Some(()) => {
                self.note_size(frame, results.len());
                Outcome::Results(results.len() as u32)
            }
            None => Outcome::TooLong(results.len()),
        }
    }

    /// Notes that a frame has a message of `bytes` bytes, whose memory is released some time after the call.
    fn note_size(&self, frame: u32, bytes: usize) {
        if bytes > limits::ASTACK_BYTES_KEPT {
            self.tidying.note(frame);
            self.tidying.used();
        }
    }

    // The ends of calls and of the link.

    /// Forgets the call of a frame. Returns the call if it had no outcome yet.
    fn forget(&self, frame: u32) -> Option<Waiting> {
        let state = core::mem::take(&mut self.slot(frame).lock().state);
        let State::Waits(call) = state else { return None };
        self.calls.lock().waiters.remove(call.message.xid);
        Some(call)
    }

    /// Gives up the call of a frame, whose deadline has passed. Returns its error.
    #[cold]
    fn give_up(&self, frame: u32) -> CallError {
        let call = self.forget(frame);
        self.has_strays.store(true, Ordering::Relaxed);
        if matches!(self.wire, Wire::Tcp(_)) && self.output.lock().take_back(frame) {
            let text = "the server does not read from the connection";
            return CallError::not_executed(Kind::TimedOut, Phase::Call, text);
        }
        let transmissions = call.map_or(1, |call| call.transmissions());
        self.error_of(Failure::TimedOut, transmissions)
    }

    /// Ends the link. All calls in flight fail. The caller wakes their threads and futures afterwards, by
    /// [`wake_all`](Self::wake_all), when it holds no lock.
    #[cold]
    fn end(&self, reason: String) {
        if self.end_reason.set(reason).is_err() {
            return;
        }
        self.has_ended.store(true, Ordering::SeqCst);
        // SYNC: onc-end, in `send_record`.
        let unsent = self.output.lock().clear();
        let waiting: Vec<(u32, u32)> = self.calls.lock().waiters.drain().collect();
        // Without strays, the report of a closed port concerns the only datagram without a reply.
        let is_sole = waiting.len() == 1 && !self.has_strays.load(Ordering::Relaxed);
        let is_refused = matches!(self.wire, Wire::Udp(_)) && is_sole;
        for (xid, frame) in waiting {
            let mut slot = self.slot(frame).lock();
            let State::Waits(call) = &slot.state else { continue };
            if call.message.xid != xid {
                continue;
            }
            let mut ended = call.ended(Outcome::Failed(Failure::Disconnected));
            if is_refused || unsent.contains(&frame) {
                ended.transmissions = 0;
            }
            slot.state = State::Ended(ended);
        }
        // A thread that waits for a message stops waiting.
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
        self.error_of(Failure::Disconnected, 0)
    }

    /// Returns the error of a failed call.
    #[cold]
    fn error_of(&self, failure: Failure, transmissions: u32) -> CallError {
        let kind = match failure {
            Failure::ProgramUnavailable => Kind::Withdrawn,
            Failure::ProgramMismatch(_) => Kind::InterfaceMismatch,
            Failure::ProcedureUnavailable => Kind::NoSuchProcedure,
            Failure::GarbageArguments => Kind::BadArguments,
            Failure::SystemError => Kind::Relayed,
            Failure::RpcMismatch(_) => Kind::ProtocolMismatch,
            Failure::Auth(_) => Kind::Denied,
            Failure::BadReply(_) => Kind::BadResult,
            Failure::TimedOut => Kind::TimedOut,
            Failure::Disconnected => Kind::ServerGone,
        };
        let executed = match failure.executed(transmissions) {
            Ran::No => Executed::No,
            Ran::Maybe => Executed::Maybe,
        };
        let text = match (failure, self.end_reason.get()) {
            (Failure::Disconnected, Some(reason)) => reason.clone(),
            _ => failure.to_string(),
        };
        CallError::new(kind, executed, text)
    }
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

/// Copies the parts of a short datagram to one place. Returns `None` if they do not fit.
fn joined<'a>(parts: &[Window<'_>], memory: &'a mut [u8]) -> Option<Window<'a>> {
    let mut length = 0;
    for part in parts {
        part.read(0, memory.get_mut(length..length + part.len())?)?;
        length += part.len();
    }
    Some(Window::from(&memory[..length]))
}

/// Receives bytes of a connection. Returns `None` if none arrived in time, and 0 bytes at its end.
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

/// Returns the time until the earlier of two moments.
fn left(due: Option<Moment>, deadline: Option<Instant>, now: Instant) -> Option<Duration> {
    let due = due.map(|due| Duration::from_nanos(due.since(moment())));
    let deadline = deadline.map(|deadline| deadline.saturating_duration_since(now));
    due.into_iter().chain(deadline).min()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn closed_port() -> String {
    "no program listens at the port of the server".to_owned()
}

#[cold]
fn full(refused: Refused) -> CallError {
    let text = match refused {
        Refused::Full => "too many calls wait for replies",
        Refused::TooFast => "the numbers of calls would be repeated too early",
    };
    CallError::not_executed(Kind::Exhausted, Phase::Call, text)
}
