//! The client's end of a connection: calls go out as they come; whoever waits may hold the *receive
//! turn*, reads for all, and wakes those whose replies it read.

mod ask;
mod call;
mod input;
mod patience;
mod silence;
mod slot;

pub(crate) use ask::ask_alone;
pub(crate) use call::StreamPath;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use self::input::{Current, Input};
use self::patience::Patience;
use self::silence::{LOOK, Vigil};
use self::slot::{ASLEEP, CAPTURED, DONE, IDLE, INDEX_BITS, POKED, SENDING, Slot, WAITING};
use super::sending::Sending;
use super::turn::Turn;
use crate::call::{FrameLayout, Frames, Growing, OnExhausted, Wait, block_cost, sparse_memory};
use crate::device::tcp::{For, Stream};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::limits;
use crate::protocol::stream::{self as wire, HEADER_BYTES, Header};
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys;
use crate::value::{Space, Window, align_up};

/// Bytes that are received with a header, in the hope that they belong to it.
const GUESS: usize = 16 << 10;

/// Looks in vain after which who does not sleep thinks of the time.
const LOOKS: u32 = 1 << 12;

/// What the server granted when the connection was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// Calls in flight at one time.
    pub(crate) count: u32,
    /// Bytes of the largest message.
    pub(crate) bytes: usize,
}

/// A connection to one server, with its calls in flight.
pub(crate) struct Connection {
    stream: Stream,
    pub(crate) frames: Arc<Frames>,
    slots: Growing<Slot>,
    /// What has been received; who has the lock has the receive turn.
    input: Mutex<Input>,
    output: Turn,
    /// Whether the server was not told yet of calls that were given up.
    unsaid: AtomicBool,
    /// Callers who wait without the turn.
    waiting: AtomicU32,
    ended: AtomicBool,
    end: OnceLock<End>,
    bindings: Mutex<Bindings>,
    /// Whether memory was used that is to be given back, and whether the keeper sees to it.
    untidy: AtomicBool,
    tidies: AtomicBool,
}

/// Why there are no calls any more.
#[derive(Debug)]
struct End {
    kind: Kind,
    /// Whether calls that were not answered may have run.
    executed: Executed,
    text: String,
}

/// Which bindings are to be told that their export was withdrawn.
#[derive(Default)]
struct Bindings {
    told: HashMap<u32, Arc<AtomicBool>>,
    /// Numbers that were revoked before whoever binds could say that they are its own.
    early: Vec<u32>,
}

/// Why a wait has ended.
enum Event {
    Done,
    Ended,
    Late,
}

impl Connection {
    /// A connection whose first binding has been made.
    pub(crate) fn new(stream: Stream, grant: Grant, active: u32) -> io::Result<Self> {
        // Who waits for longer looks whether there still is a server.
        stream.patience(LOOK)?;
        let bytes = align_up(grant.bytes);
        let stride = 2 * bytes;
        let (memory, count) = sparse_memory(stride, grant.count.clamp(1, limits::ASTACKS_MAX))?;
        let layout = FrameLayout { count, first: 0, stride, call_at: 0, reply_at: bytes, bytes };
        let slot = |_| Slot {
            word: AtomicU32::new(IDLE),
            number: AtomicU32::new(0),
            unsaid: AtomicBool::new(false),
            reply: Default::default(),
            large: AtomicU32::new(0),
        };
        Ok(Self {
            stream,
            frames: Arc::new(Frames::new(Arc::new(memory), layout, active)),
            slots: Growing::new(count, slot),
            input: Mutex::ranked(Rank::Receive, Input::new()),
            output: Turn::default(),
            unsaid: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            end: OnceLock::new(),
            bindings: Mutex::default(),
            untidy: AtomicBool::new(false),
            tidies: AtomicBool::new(false),
        })
    }

    /// Bytes of the largest message.
    pub(crate) fn message_bytes(&self) -> usize {
        self.frames.layout().bytes
    }

    pub(crate) const fn stream(&self) -> &Stream {
        &self.stream
    }

    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Notes a new binding; what tells that it was revoked.
    pub(crate) fn add(&self, binding: u32) -> Arc<AtomicBool> {
        let mut bindings = self.bindings();
        let revoked = Arc::new(AtomicBool::new(bindings.early.contains(&binding)));
        bindings.told.insert(binding, Arc::clone(&revoked));
        revoked
    }

    #[track_caller]
    fn bindings(&self) -> MutexGuard<'_, Bindings> {
        self.bindings.lock()
    }

    /// The receive turn, if nobody has it.
    #[inline]
    #[track_caller]
    fn try_turn(&self) -> Option<MutexGuard<'_, Input>> {
        self.input.try_lock()
    }

    fn slot(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }

    fn reply_space(&self, index: u32) -> Space<'_> {
        let layout = self.frames.layout();
        let at = layout.first + layout.stride * index as usize + layout.reply_at;
        self.frames.memory().space().range(at, layout.bytes)
    }

    // Sending.

    /// Begins a call in a frame; its number.
    #[inline]
    fn begin(&self, index: u32) -> u32 {
        let slot = self.slot(index);
        let used = (slot.number.load(Ordering::Relaxed) >> INDEX_BITS) + 1;
        // Number 0 is nobody's.
        let used = if used >> (32 - INDEX_BITS) == 0 { used } else { 1 };
        let number = used << INDEX_BITS | index;
        // SYNC: given up, in `say_unsaid`: who finds this number does not find what was said of the last.
        slot.unsaid.store(false, Ordering::Relaxed);
        slot.number.store(number, Ordering::Release);
        slot.word.store(SENDING, Ordering::Release);
        number
    }

    /// Sends a message that `write` puts together. If it fails nothing was sent, unless the error
    /// says that the call may have executed; then the connection has ended.
    #[inline]
    fn send<'a>(
        &'a self,
        deadline: Option<Instant>,
        write: impl FnOnce(&mut Sending<'a, Patience<'a>>) -> io::Result<()>,
    ) -> Result<(), CallError> {
        let Some(turn) = self.output.take(deadline) else {
            let text = "other threads were still sending on the connection";
            return Err(CallError::not_executed(Kind::TimedOut, Phase::Call, text));
        };
        if self.has_ended() {
            return Err(self.not_sent());
        }
        // From here on the server may run the call.
        let mut sending = Sending::new(&self.stream, Patience { connection: self, deadline });
        let sent = write(&mut sending).and_then(|()| sending.end());
        let sent = sent.map_err(|error| self.failed_to_send(&error, sending.begun));
        // SYNC: unsaid. Who has something to be said says so, then tries the turn; we let it go, then
        // look whether there is something.
        drop(turn);
        if self.unsaid.load(Ordering::SeqCst) {
            self.say_unsaid();
        }
        sent
    }

    /// Tells the server that a call was given up; if others are sending now, the last of them does.
    #[cold]
    fn abandon(&self, index: u32) {
        self.slot(index).unsaid.store(true, Ordering::Relaxed);
        self.unsaid.store(true, Ordering::SeqCst);
        self.say_unsaid();
    }

    #[cold]
    fn say_unsaid(&self) {
        while self.unsaid.load(Ordering::SeqCst) && !self.has_ended() {
            let Some(_turn) = self.output.try_take() else { return };
            self.unsaid.store(false, Ordering::SeqCst);
            for slot in self.slots.iter() {
                let number = slot.number.load(Ordering::Acquire);
                if !slot.unsaid.swap(false, Ordering::AcqRel) {
                    continue;
                }
                let header = Header::new(wire::Kind::Abandon, number).to_bytes();
                // Not to wait for a server that takes nothing.
                let now = Patience { connection: self, deadline: Some(Instant::now()) };
                let mut sending = Sending::new(&self.stream, now);
                let sent = sending.part(Window::from(&header[..])).and_then(|()| sending.end());
                if let Err(error) = sent {
                    let _ = self.failed_to_send(&error, sending.begun);
                    // Behind what is sent next, unless the reply has come by then.
                    slot.unsaid.store(slot.awaits(number), Ordering::Release);
                    return self.unsaid.store(true, Ordering::SeqCst);
                }
            }
        }
    }

    #[cold]
    fn failed_to_send(&self, error: &io::Error, begun: bool) -> CallError {
        // The deadline; the system's own is an error of the connection.
        let late = error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none();
        if late && !begun {
            let text = "the server does not read from the connection";
            return CallError::not_executed(Kind::TimedOut, Phase::Call, text);
        }
        let why = match late {
            // The rest of the message can come no more, and so nothing behind it can.
            true => "a call reached its deadline when only a part of it was sent".to_owned(),
            false => format!("sending failed: {error}"),
        };
        self.end(Kind::ServerGone, Executed::Maybe, why);
        if !begun {
            return self.not_sent();
        }
        match late {
            true => {
                let text = "the server took only a part of the call";
                CallError::new(Kind::TimedOut, Executed::Maybe, text)
            }
            false => self.unanswered(),
        }
    }

    /// A call that came when the connection had ended.
    #[cold]
    fn not_sent(&self) -> CallError {
        let (kind, text) =
            self.end.get().map_or((Kind::ServerGone, ""), |end| (end.kind, &end.text));
        let text = format!("the connection has ended, and nothing was sent: {text}");
        CallError::not_executed(kind, Phase::Call, text)
    }

    /// A call that was sent and will not be answered.
    #[cold]
    fn unanswered(&self) -> CallError {
        match self.end.get() {
            Some(End { kind, executed, text }) => CallError::new(*kind, *executed, text.clone()),
            None => CallError::new(Kind::ServerGone, Executed::Maybe, "the connection has ended"),
        }
    }

    /// Ends the connection, for the first reason that is given; everybody inside is told.
    #[cold]
    fn end(&self, kind: Kind, executed: Executed, text: impl Into<String>) {
        if self.end.set(End { kind, executed, text: text.into() }).is_err() {
            return;
        }
        self.ended.store(true, Ordering::SeqCst);
        // Who receives comes back.
        self.stream.end();
        for slot in self.slots.iter() {
            // SYNC: end. Who goes to sleep says so first and then looks whether it has ended.
            fence(Ordering::SeqCst);
            if slot.moves(ASLEEP, WAITING) {
                sys::futex_wake(&slot.word);
            }
        }
    }

    // Receiving.

    /// Waits for the reply to a call that was sent.
    #[inline]
    fn wait(&self, index: u32, wait: Wait, deadline: Option<Instant>) -> Event {
        let slot = self.slot(index);
        // Unless the reply was quicker.
        slot.moves(SENDING, WAITING);
        let event = match self.try_turn() {
            Some(mut input) => self.receive_until(&mut input, index, wait, deadline),
            None => self.wait_among_others(index, wait, deadline),
        };
        self.pass_on();
        event
    }

    /// Others receive: waits until one of them brings the reply, or passes the turn on.
    #[cold]
    fn wait_among_others(&self, index: u32, wait: Wait, deadline: Option<Instant>) -> Event {
        struct Waits<'a>(&'a AtomicU32);
        impl Drop for Waits<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let slot = self.slot(index);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // SYNC: receive turn. We say that we wait, then look whether the turn is free; who lets it
        // go does that first, and then looks whether anybody waits: one of us sees the other.
        fence(Ordering::SeqCst);
        let waits = Waits(&self.waiting);
        let spin_until = match wait {
            Wait::Adaptive => Some(Instant::now() + block_cost()),
            _ => None,
        };
        loop {
            if slot.is_done() {
                return Event::Done;
            }
            if self.has_ended() {
                return Event::Ended;
            }
            slot.moves(POKED, WAITING);
            if let Some(mut input) = self.try_turn() {
                drop(waits);
                return self.receive_until(&mut input, index, wait, deadline);
            }
            let now = (deadline.is_some() || spin_until.is_some()).then(Instant::now);
            if now.zip(deadline).is_some_and(|(now, deadline)| now >= deadline) {
                return Event::Late;
            }
            let spins =
                wait == Wait::Spin || now.zip(spin_until).is_some_and(|(now, until)| now < until);
            if spins {
                std::thread::yield_now();
            } else if slot.moves(WAITING, ASLEEP) {
                fence(Ordering::SeqCst);
                if !self.has_ended() {
                    let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
                    sys::futex_wait(&slot.word, ASLEEP, left);
                }
                slot.moves(ASLEEP, WAITING);
            }
        }
    }

    /// Whoever leaves sees to it that somebody receives, if anybody waits.
    #[inline]
    fn pass_on(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.poke();
        }
    }

    #[cold]
    fn poke(&self) {
        for slot in self.slots.iter().take(self.frames.active() as usize) {
            if slot.moves(WAITING, POKED) {
                return;
            }
            if slot.moves(ASLEEP, POKED) {
                sys::futex_wake(&slot.word);
                return;
            }
        }
    }

    /// Receives for all until the reply to one's own call has come.
    #[inline]
    fn receive_until(
        &self,
        input: &mut Input,
        index: u32,
        wait: Wait,
        deadline: Option<Instant>,
    ) -> Event {
        let slot = self.slot(index);
        let (mut spin_until, mut vigil, mut looks) = (None, Vigil::default(), 0_u32);
        loop {
            if slot.is_done() {
                return Event::Done;
            }
            if self.has_ended() {
                return Event::Ended;
            }
            let now = (deadline.is_some() || wait == Wait::Adaptive).then(Instant::now);
            if now.zip(deadline).is_some_and(|(now, deadline)| now >= deadline) {
                return Event::Late;
            }
            let blocks = match (wait, now) {
                (Wait::Block, _) => true,
                (Wait::Adaptive, Some(now)) => {
                    now >= *spin_until.get_or_insert_with(|| now + block_cost())
                }
                _ => false,
            };
            // With a deadline one waits for something to receive, and not in receiving.
            if let (true, true, Some(deadline), Some(now)) = (blocks, input.is_dry(), deadline, now)
            {
                let until = Some(deadline.min(now + LOOK));
                if !self.stream.wait(For::Readable, until).is_ok_and(|ready| ready.readable) {
                    vigil.look(self);
                    continue;
                }
            }
            match self.step(input, Some(index), blocks && deadline.is_none()) {
                Ok(()) => {
                    spin_until = None;
                    vigil.heard();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    looks = looks.wrapping_add(1);
                    if blocks && deadline.is_none() || looks.is_multiple_of(LOOKS) {
                        vigil.look(self);
                    } else {
                        std::thread::yield_now();
                    }
                }
                Err(error) => self.lost(&error),
            }
        }
    }

    /// Receives what is there, for whomever it is; not all of it if that is very much, for a server may
    /// send without a pause, and the thread that receives has other work.
    fn drain(&self, input: &mut Input) {
        const STEPS_MAX: usize = 256;
        for _ in 0..STEPS_MAX {
            if self.has_ended() {
                return;
            }
            match self.step(input, None, false) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => self.lost(&error),
            }
        }
    }

    /// As [`drain`](Self::drain), if nobody receives; whether nobody did.
    pub(crate) fn listen(&self) -> bool {
        let Some(mut input) = self.try_turn() else { return false };
        self.drain(&mut input);
        drop(input);
        self.pass_on();
        true
    }

    #[cold]
    fn lost(&self, error: &io::Error) {
        let (kind, text) = match error.kind() {
            io::ErrorKind::Interrupted => return,
            io::ErrorKind::UnexpectedEof => {
                (Kind::ServerGone, "the server closed the connection".to_owned())
            }
            io::ErrorKind::InvalidData => (Kind::ProtocolMismatch, error.to_string()),
            _ => (Kind::ServerGone, format!("receiving failed: {error}")),
        };
        self.end(kind, Executed::Maybe, text);
    }

    /// Receives once. `own` is the frame into which the next reply will go, if that is guessed.
    #[inline]
    fn step(&self, input: &mut Input, own: Option<u32>, wait: bool) -> io::Result<()> {
        if input.current.is_none() {
            if input.got > 0 || !input.is_dry() {
                input.more_header(&self.stream, wait)?;
            } else {
                self.header_and_guess(input, own, wait)?;
            }
        } else {
            self.more_body(input, wait)?;
        }
        match &input.current {
            Some(current) if current.done == current.header.rest() => {
                let current = input.current.take();
                current.map_or(Ok(()), |current| self.complete(&current))
            }
            Some(_) => Ok(()),
            None if input.got == HEADER_BYTES => {
                input.current = Some(self.begin_message(&input.header)?);
                input.got = 0;
                self.step_of_nothing(input)
            }
            None => Ok(()),
        }
    }

    /// A message without a body is complete with its header.
    fn step_of_nothing(&self, input: &mut Input) -> io::Result<()> {
        match input.current.take_if(|current| current.header.rest() == 0) {
            Some(current) => self.complete(&current),
            None => Ok(()),
        }
    }

    /// Nothing of the next message is there: receives its header, and with it what follows, at the
    /// place where it should be.
    #[inline]
    fn header_and_guess(&self, input: &mut Input, own: Option<u32>, wait: bool) -> io::Result<()> {
        let space = own.map_or(Space::none(), |own| self.reply_space(own));
        let space = space.range(0, space.len().min(GUESS));
        let came = self.stream.receive_two(&mut input.header, space, wait)?;
        if came == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        input.got = came.min(HEADER_BYTES);
        if input.got < HEADER_BYTES {
            return Ok(());
        }
        let mut current = self.begin_message(&input.header)?;
        input.got = 0;
        let came = came - HEADER_BYTES;
        current.done = came.min(current.header.rest());
        if let Some(frame) = current.frame.filter(|frame| Some(*frame) != own) {
            // A wrong guess costs a move.
            self.put(frame, 0, space.range(0, current.done).window());
        }
        input.keep(space.range(current.done, came - current.done).window());
        input.current = Some(current);
        Ok(())
    }

    /// More of the body of the message that has begun.
    fn more_body(&self, input: &mut Input, wait: bool) -> io::Result<()> {
        let Some(mut current) = input.current.take() else { return Ok(()) };
        let left = current.header.rest() - current.done;
        let ahead = input.take_ahead(left);
        let received = if ahead.is_empty() {
            let space = current.frame.map_or(Space::none(), |frame| self.reply_space(frame));
            let place = space.range(current.done, left);
            self.stream.receive_two(&mut [], place, wait)
        } else {
            current.frame.inspect(|frame| self.put(*frame, current.done, Window::from(ahead)));
            Ok(ahead.len())
        };
        let received = match received {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            received => received,
        };
        if let Ok(bytes) = received {
            current.done += bytes;
        }
        input.current = Some(current);
        received.map(drop)
    }

    fn put(&self, frame: u32, at: usize, bytes: Window<'_>) {
        if let Some(place) = self.reply_space(frame).part(at, bytes.len()) {
            place.copy_from(bytes);
        }
    }

    /// Looks at a header: to whom its message goes.
    #[inline]
    fn begin_message(&self, header: &[u8; HEADER_BYTES]) -> io::Result<Current> {
        let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
        let header = Header::from_bytes(header).map_err(|error| wrong(error.to_string()))?;
        let frame = match header.kind {
            wire::Kind::Revoked | wire::Kind::Goodbye => None,
            // To the whole connection: it ends, and why does not matter to those inside.
            wire::Kind::Refused if header.number == 0 => {
                return Err(wrong("the server refuses the connection".into()));
            }
            wire::Kind::Bound
            | wire::Kind::Refused
            | wire::Kind::Description
            | wire::Kind::Reply => {
                let index = header.number & ((1 << INDEX_BITS) - 1);
                let slot = self.slots.get(index as usize);
                let awaited = slot.filter(|slot| slot.awaits(header.number));
                if awaited.is_none() {
                    return Err(wrong(format!(
                        "the server answered call {}, which nobody waits for",
                        header.number
                    )));
                }
                Some(index)
            }
            kind => {
                return Err(wrong(format!(
                    "the server sent a message that only clients send: {kind:?}"
                )));
            }
        };
        let room = if frame.is_some() { self.message_bytes() } else { 0 };
        if header.body as usize > room || header.extensions > 0 {
            return Err(wrong(format!("a message of {} bytes", header.body)));
        }
        Ok(Current { header, frame, done: 0 })
    }

    /// A whole message is there.
    #[inline]
    fn complete(&self, current: &Current) -> io::Result<()> {
        let header = &current.header;
        match (current.frame, header.kind) {
            (Some(index), _) => self.slot(index).fill(header),
            (None, wire::Kind::Revoked) => self.revoke(header.binding),
            (None, _) => {
                let text = "the server has stopped";
                self.end(Kind::Withdrawn, Executed::No, text);
            }
        }
        Ok(())
    }

    #[cold]
    fn revoke(&self, binding: u32) {
        /// Numbers that are kept for those who bind.
        const EARLY_MAX: usize = 256;
        let mut bindings = self.bindings();
        match bindings.told.remove(&binding) {
            Some(revoked) => revoked.store(true, Ordering::Release),
            None if bindings.early.len() < EARLY_MAX => bindings.early.push(binding),
            None => {}
        }
    }

    // Questions that are no calls.

    /// Asks the server something, and waits for the answer: its header and its body.
    pub(crate) fn ask(
        &self,
        kind: wire::Kind,
        body: &[u8],
        until: Instant,
    ) -> Result<(Header, Vec<u8>), CallError> {
        let is_released = |frame| self.is_released(frame);
        let Some(frame) = self.frames.take(|| Some(until), is_released, OnExhausted::More) else {
            let text = "no A-stack became free in time";
            return Err(CallError::not_executed(Kind::TimedOut, Phase::Bind, text));
        };
        let index = frame.index();
        let header = Header { body: body.len() as u32, ..Header::new(kind, self.begin(index)) };
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
            // Nothing was called: it may be asked again.
            let captured = error.executed() == Executed::Maybe;
            let error = error.not_executed_after_all(Phase::Bind);
            if captured {
                frame.capture();
            } else {
                self.slot(index).word.store(IDLE, Ordering::Release);
            }
            return Err(error);
        }
        let header = self.slot(index).question(kind);
        let mut answer = vec![0; (header.body as usize).min(limits::HANDSHAKE_BYTES_MAX)];
        let _ = frame.reply_space().read(0, &mut answer);
        self.slot(index).word.store(IDLE, Ordering::Release);
        Ok((header, answer))
    }

    /// Says something that needs no answer, if it can be said at once.
    fn tell(&self, header: Header) {
        let header = header.to_bytes();
        // Not to wait for others who send, or for a server that takes nothing.
        let now = Some(Instant::now());
        let _ = self.send(now, |sending| sending.part(Window::from(&header[..])));
    }

    /// Whether the reply to a call that was given up has come, or never will.
    fn is_released(&self, frame: u32) -> bool {
        let slot = self.slot(frame);
        if !slot.is_done() && !self.has_ended() {
            self.listen();
        }
        self.has_ended() || slot.moves(DONE, IDLE) || slot.word.load(Ordering::Acquire) == IDLE
    }

    /// A large message has been taken from its frame.
    #[cold]
    fn used(&self) {
        self.untidy.store(true, Ordering::Relaxed);
    }

    /// Whether memory is to be given back when it is not used any more, and nobody sees to that yet.
    #[inline]
    pub(crate) fn begins_to_tidy(&self) -> bool {
        self.untidy.load(Ordering::Relaxed)
            && self.untidy.swap(false, Ordering::Relaxed)
            && !self.tidies.swap(true, Ordering::Relaxed)
    }

    /// Gives memory back that nobody has used since the last time; whether some is left.
    pub(crate) fn tidy(&self) -> bool {
        let layout = *self.frames.layout();
        self.frames.each_free(&|index| {
            let slot = self.slot(index);
            let large = slot.large.load(Ordering::Relaxed);
            slot.large.store(large.saturating_sub(1), Ordering::Relaxed);
            if large == 1 {
                let reply_at = layout.first + layout.stride * index as usize + layout.reply_at;
                let end = reply_at + layout.bytes;
                self.frames.memory().release(reply_at + limits::ASTACK_BYTES_KEPT, end);
            }
        });
        let left = self.slots.iter().any(|slot| slot.large.load(Ordering::Relaxed) > 0);
        self.tidies.store(left, Ordering::Relaxed);
        left
    }

    /// Whether replies are still to come for which nobody waits.
    pub(crate) fn owes_replies(&self) -> bool {
        self.slots.iter().any(|slot| slot.word.load(Ordering::Relaxed) == CAPTURED)
    }
}
