//! The server's end of a connection: one thread at a time reads from it, and runs what it reads where
//! it was received; while a procedure takes long, another thread reads on.

mod connections;
mod gathered;
mod host;
mod intake;
mod reading;
mod stall;
mod threads;
mod worker;

pub(crate) use connections::{Connections, Terms as ConnectionTerms};
pub(crate) use host::{Host, Terms};
pub(crate) use intake::{Intake, Resume};
pub(crate) use worker::StreamWorker;

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::gathered::Gathered;
use self::intake::Reservation;
use self::reading::{Got, Kept};
use self::stall::{NoStall, ReplyStall};
use super::peer::send_lock::SendLock;
use super::peer::sending::Sending;
use crate::call::{Answer, Placed, Ran, Refusal, execute_in_place, extensions, refuse};
use crate::device::tcp::{For, Stream};
use crate::error::Kind;
use crate::limits;
use crate::protocol::description;
use crate::protocol::stream::server_end::{Calls, Next};
use crate::protocol::stream::{
    self as wire, Bind, Bound, HEADER_BYTES, Header, Refused, Unreadable,
};
use crate::serving::binding_table::{BindingCache, BindingRow, BindingTable};
use crate::serving::procedure::{IncomingCall, Serving};
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys::Memory;
use crate::value::{Space, Window, align_up};

/// Bytes that are received when the next message is not known; what of them belongs to later messages
/// is moved if another thread reads on.
const READ_AHEAD: usize = 16 << 10;
/// How long a thread waits for the next message before the keeper watches the connection.
const IDLE: Duration = limits::STALL_TIME;
/// A procedure that took so long is thought to do so again: if more is there already, another
/// thread sees to it.
const LONG: Duration = Duration::from_micros(50);
/// The same if nothing more is there yet.
const VERY_LONG: Duration = Duration::from_millis(1);

// Who reads: the low bits of a word whose others count, so that nobody takes one call for another.
/// The keeper watches it.
const PARKED: u64 = 0;
/// It waits for a thread.
const QUEUED: u64 = 1;
/// A thread reads.
const READING: u64 = 2;
/// A thread runs a procedure and means to read on.
const RUNNING: u64 = 3;
const WHO: u64 = 3;
const ONE: u64 = 4;

/// A connection, seen from the server.
pub(crate) struct Incoming {
    stream: Stream,
    reader: AtomicU64,
    /// What the keeper last saw there.
    seen: AtomicU64,
    /// Calls that are thought to be long because one was found to be.
    suspected: AtomicU32,
    kept: Mutex<Kept>,
    rows: Mutex<BindingTable>,
    output: SendLock,
    /// The calls that have arrived and have no reply yet.
    calls: Mutex<Calls>,
    bound: AtomicBool,
    closed: AtomicBool,
    /// It is parked, and not watched, because there is no memory for more of its message.
    held: AtomicBool,
    /// Differs from that of every other connection of this process.
    number: u64,
    /// Where it reserves memory for its messages, and in whose name.
    intake: Arc<Intake>,
    host: IpAddr,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attended {
    /// Somebody else sees to it.
    Left,
    /// It is to be forgotten.
    Ended,
}

/// A call that has come, until it is answered or its thread panics.
struct Unanswered<'a> {
    incoming: &'a Incoming,
    host: &'a dyn Host,
    number: u32,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if self.incoming.calls().end(self.number) {
            self.host.captured(0, 1);
        }
        self.host.answered();
    }
}

/// The permit to run a procedure, until it has ended or its thread panics.
struct Permit<'a>(&'a dyn Host);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Incoming {
    /// A connection from a host, or from a group of hosts that count as one.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) fn new(stream: Stream, intake: Arc<Intake>, host: IpAddr) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        stream.patience(IDLE)?;
        Ok(Self {
            stream,
            reader: AtomicU64::new(PARKED),
            seen: AtomicU64::new(PARKED),
            suspected: AtomicU32::new(0),
            kept: Mutex::ranked(Rank::Received, Kept::default()),
            rows: Mutex::ranked(Rank::BindingTable, BindingTable::default()),
            output: SendLock::default(),
            calls: Mutex::default(),
            bound: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            held: AtomicBool::new(false),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            intake,
            host,
        })
    }

    pub(crate) const fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Its bindings.
    #[track_caller]
    pub(crate) fn rows(&self) -> MutexGuard<'_, BindingTable> {
        self.rows.lock()
    }

    #[track_caller]
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock()
    }

    #[track_caller]
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }

    /// Whether anything was ever bound on it.
    pub(crate) fn has_bound(&self) -> bool {
        self.bound.load(Ordering::Relaxed)
    }

    /// Ends it: whoever waits on it comes back.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.stream.end();
    }

    // Who reads.

    fn goes(&self, from: u64, to: u64) -> bool {
        let count = from & !WHO;
        let to = count.wrapping_add(ONE) | to;
        self.reader.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn set(&self, to: u64) {
        let before = self.reader.load(Ordering::Relaxed);
        self.reader.store((before & !WHO).wrapping_add(ONE) | to, Ordering::Release);
    }

    /// The keeper has seen that something has come: whether it is to be queued for a thread.
    pub(crate) fn wakes(&self) -> bool {
        let before = self.reader.load(Ordering::Acquire);
        before & WHO == PARKED && self.goes(before, QUEUED)
    }

    /// The keeper looks now and then whether a thread is still in the same call: then it is not
    /// relied on any more, and another one reads on.
    pub(crate) fn relieve(&self, host: &dyn Host) {
        /// Calls after a long one that may be long as well.
        const SUSPECTED: u32 = 32;
        let now = self.reader.load(Ordering::Acquire);
        let before = self.seen.swap(now, Ordering::Relaxed);
        if now != before || now & WHO != RUNNING {
            return;
        }
        self.suspected.store(SUSPECTED, Ordering::Relaxed);
        self.hand_on(host);
    }

    /// Has others read on, while this thread has a call that does not end soon.
    fn hand_on(&self, host: &dyn Host) {
        let now = self.reader.load(Ordering::Acquire);
        if now & WHO != RUNNING || !self.goes(now, QUEUED) {
            return;
        }
        if self.kept().bytes > 0 {
            // The next call is here already, and nothing more need come.
            host.read_on();
        } else {
            self.set(PARKED);
            host.watch();
        }
    }

    /// Whether the next call is thought to be long because one was found to be lately.
    fn is_suspected(&self) -> bool {
        let left = self.suspected.load(Ordering::Relaxed);
        if left > 0 {
            self.suspected.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// Whether the keeper watches it, and nothing more is to be looked after.
    pub(crate) fn is_parked(&self) -> bool {
        self.reader.load(Ordering::Acquire) & WHO == PARKED
    }

    // A thread's visit.

    /// Reads and serves until nothing comes for a while, or somebody else reads on.
    pub(crate) fn attend(&self, worker: &mut StreamWorker, host: &dyn Host) -> Attended {
        self.set(READING);
        let stalled = self.load(worker);
        loop {
            if self.closed.load(Ordering::Acquire) {
                drop(Self::is_whole(worker));
                return Attended::Ended;
            }
            if worker.unread.skip() {
                worker.move_to_front();
            }
            let StreamWorker { input, unread, rows, serving, .. } = &mut *worker;
            let mut unwanted = None;
            let next = unread.next(input.memory(), |header| {
                unwanted = self.unwanted(header, rows, serving);
                unwanted.is_none()
            });
            let needed = match next {
                Next::More(needed) => needed,
                Next::Message { header, at } => {
                    let reserved = Self::is_whole(worker);
                    match self.serve(header, at, reserved, worker, host) {
                        Some(attended) => return attended,
                        // Other connections first: this one may have calls without end.
                        None if host.is_hungry() => return self.stand_in_line(worker, host),
                        None => continue,
                    }
                }
                Next::Refuse(header) => {
                    drop(Self::is_whole(worker));
                    if let Some(refusal) = unwanted {
                        self.refuse(header.number, &refusal, host);
                    }
                    continue;
                }
                Next::Violated(unreadable) => {
                    drop(Self::is_whole(worker));
                    return self.not_understood(unreadable);
                }
            };
            // A thread that others want does not wait here, and none does for one that stops in the
            // middle of its messages.
            let is_stalled = stalled && worker.unread.is_within_message();
            let leaves = host.is_stopping() || host.is_hungry() || is_stalled;
            match self.receive(worker, needed, !leaves, host) {
                Got::Some => {}
                Got::Closed => {
                    drop(Self::is_whole(worker));
                    return Attended::Ended;
                }
                Got::Nothing => return self.park(worker, host),
                Got::Full => return self.hold(worker, host),
            }
        }
    }

    /// Returns why a call is not taken in, if it is not.
    fn unwanted(
        &self,
        header: &Header,
        rows: &mut BindingCache,
        serving: &mut Serving,
    ) -> Option<Refusal> {
        let row = self.row(header.binding, rows).map(|row| &**row);
        if row.is_some_and(|row| row.admits(header.body)) {
            return None;
        }
        serving.counting.refused(row.map(|row| &row.tally));
        let refusal = BindingRow::refusal(row, header.body);
        // Calls of a binding that was withdrawn do not keep its object alive.
        rows.forget_last();
        Some(refusal)
    }

    /// The row of a binding.
    #[inline]
    fn row<'a>(&self, binding: u32, rows: &'a mut BindingCache) -> Option<&'a Arc<BindingRow>> {
        rows.get(self.number, binding, || self.rows().get(binding))
    }

    /// Serves a message that is there, whole, and the memory that is reserved for it. `None` to read on.
    fn serve(
        &self,
        header: Header,
        at: usize,
        reserved: Option<Reservation>,
        worker: &mut StreamWorker,
        host: &dyn Host,
    ) -> Option<Attended> {
        let at = at + HEADER_BYTES;
        let body = at..at + header.body as usize;
        match header.kind {
            wire::Kind::Call => return self.call(&header, body, reserved, worker, host),
            wire::Kind::Unbind => {
                // Dropped when the rows are not locked any more: it may be the object's last owner.
                let row = self.rows().remove(header.binding);
                drop(row);
            }
            wire::Kind::Abandon => {
                let captured = self.calls().cancel(header.number);
                if captured > 0 {
                    host.captured(captured, 0);
                }
            }
            wire::Kind::Describe => {
                let name = worker.input.memory().get(body);
                let name = name.and_then(|name| core::str::from_utf8(name).ok()).unwrap_or("");
                match host.describe(name) {
                    Ok(said) => {
                        let body = description::to_bytes(&said);
                        self.say(Header::new(wire::Kind::Description, header.number), &body, host);
                    }
                    Err((kind, text)) => self.say_no(header.number, kind, text, host),
                }
            }
            _ => {
                let bind = worker.input.memory().get(body).and_then(Bind::from_bytes);
                match bind {
                    Some(bind) => self.bind(header.number, &bind, host),
                    None => return Some(self.not_understood(Unreadable::Foreign)),
                }
            }
        }
        None
    }

    fn bind(&self, number: u32, bind: &Bind, host: &dyn Host) {
        let (row, Terms { epoch, count_max }) = match host.bind(bind) {
            Ok(bound) => bound,
            Err((kind, text)) => return self.say_no(number, kind, text, host),
        };
        let bytes = row.message_bytes as u64;
        let representation = row.serve.byte_order().number();
        let mut rows = self.rows();
        let added = match rows.len() < limits::BINDINGS_PER_CONNECTION {
            true => rows.add(row),
            false => None,
        };
        drop(rows);
        let Some(binding) = added else {
            let text =
                format!("one connection may have {} bindings", limits::BINDINGS_PER_CONNECTION);
            return self.say_no(number, Kind::Exhausted, text, host);
        };
        if let Err((kind, text)) = host.still_offers(&bind.name) {
            self.rows().remove(binding);
            return self.say_no(number, kind, text, host);
        }
        self.bound.store(true, Ordering::Relaxed);
        let count = bind.count.clamp(1, count_max);
        let bound = Bound { epoch, binding, representation, count, bytes };
        self.say(Header::new(wire::Kind::Bound, number), &bound.to_bytes(), host);
    }

    /// Whether nobody waits any more for a call that has come.
    pub(crate) fn is_given_up(&self, number: u32) -> bool {
        self.closed.load(Ordering::Acquire) || self.calls().is_cancelled(number)
    }

    /// The connection has ended: nobody waits for its calls; how many procedures that captures.
    pub(crate) fn give_up_all(&self) -> usize {
        self.calls().cancel_all()
    }

    /// Calls that have been given up and are not answered.
    pub(crate) fn captured(&self) -> u64 {
        self.calls().cancelled()
    }

    // Calls.

    fn call(
        &self,
        header: &Header,
        body: Range<usize>,
        reserved: Option<Reservation>,
        worker: &mut StreamWorker,
        host: &dyn Host,
    ) -> Option<Attended> {
        let row = Arc::clone(self.row(header.binding, &mut worker.rows)?);
        host.called();
        self.calls().begin(header.number);
        let unanswered = Unanswered { incoming: self, host, number: header.number };
        if worker.unread.cancels(worker.input.memory(), header.number) {
            self.calls().cancel(header.number);
        }
        let reads_on = self.leave_reading(&row, worker, host);
        self.run(&row, header, body, reserved, worker, host);
        drop(unanswered);
        match reads_on {
            None => return Some(Attended::Left),
            Some(running) if self.goes(running, READING) => {}
            // The keeper has found it too long.
            Some(_) => {
                (worker.unread.from, worker.unread.to) = (0, 0);
                return Some(Attended::Left);
            }
        }
        if worker.unread.from == worker.unread.to {
            (worker.unread.from, worker.unread.to) = (0, 0);
        }
        None
    }

    /// A procedure is about to run: who reads meanwhile. `None` if another thread does, in any case;
    /// otherwise the word that says that the keeper may have one do so.
    fn leave_reading(
        &self,
        row: &BindingRow,
        worker: &mut StreamWorker,
        host: &dyn Host,
    ) -> Option<u64> {
        let more = worker.unread.from < worker.unread.to;
        let took = if self.is_suspected() { VERY_LONG } else { row.expected_time() };
        if more {
            let mut kept = self.kept();
            let (from, to) = (worker.unread.from, worker.unread.to);
            if !kept.memory.reserve(to - from) {
                // Nobody can know where the next message begins.
                self.close();
            } else {
                kept.bytes = to - from;
                let there = &worker.input.memory()[from..to];
                kept.memory.memory()[..there.len()].copy_from_slice(there);
            }
            kept.stalled = false;
        } else {
            self.kept().bytes = 0;
        }
        if more && took >= LONG {
            (worker.unread.from, worker.unread.to) = (0, 0);
            self.set(QUEUED);
            host.read_on();
            return None;
        }
        if took >= VERY_LONG {
            self.set(PARKED);
            host.watch();
            return None;
        }
        self.set(RUNNING);
        Some(self.reader.load(Ordering::Relaxed))
    }

    fn run(
        &self,
        row: &BindingRow,
        header: &Header,
        body: Range<usize>,
        reserved: Option<Reservation>,
        worker: &mut StreamWorker,
        host: &dyn Host,
    ) {
        let number = header.number;
        let begins = body.start;
        let behind = |begins| {
            let at = align_up(begins + header.body as usize);
            at..at + header.extensions as usize
        };
        let extensions = Window::from(worker.input.memory().get(behind(begins)).unwrap_or(&[]));
        let came = (!extensions.is_empty()).then(Instant::now);
        let inside = came.is_some() && extensions::is_from_inside(extensions);
        let mut begins = begins;
        let begun = host.begin(inside, &mut || {
            // Behind a call that waits there may stand that it is given up.
            self.hand_on(host);
            if !inside && reserved.as_ref().is_some_and(|reserved| !reserved.may_wait()) {
                let text = "calls that wait have taken all memory for calls of this host";
                return Err(Refusal::new(Kind::Overloaded, text));
            }
            // Another thread reads on.
            begins = worker.keep_only(begins..behind(begins).end);
            Ok(())
        });
        // What it waited with is counted until here.
        drop(reserved);
        let room = |worker: &mut StreamWorker| {
            let room = worker.room(row.message_bytes);
            room.map_err(|_| Refusal::exhausted("no memory for the result"))
        };
        let permit = begun.map(|()| Permit(host));
        let permit = permit.and_then(|permit| room(worker).map(|()| permit));
        let permit = match permit {
            Ok(permit) => permit,
            Err(refusal) => {
                let refusal = worker.serving.refuse(row, refusal);
                return self.refuse(number, &refusal, host);
            }
        };
        let StreamWorker { serving, input, reply, blocks, largest, .. } = worker;
        let Some(reply) = reply.as_ref().map(Memory::space) else { return };
        let reply = reply.range(0, row.message_bytes);
        let (memory, behind) = (input.memory(), behind(begins));
        let (message, rest) = memory.split_at_mut(behind.start.min(memory.len()));
        let body = begins..begins + header.body as usize;
        let call = IncomingCall {
            number: number.into(),
            bytes: header.body,
            extensions: Window::from(rest.get(..behind.len()).unwrap_or(&[])),
            waited: || came.map_or(Duration::ZERO, |came| came.elapsed()),
            is_given_up: || !self.calls().starts(number),
        };
        let mut guard = match serving.begin(row, call, || host.calls()) {
            Ok(guard) => guard,
            Err(refusal) => {
                drop(permit);
                return self.refuse(number, &refusal, host);
            }
        };
        let placed = Placed {
            procedure: header.procedure,
            message: message.get_mut(body).unwrap_or(&mut []),
            head_bytes: header.head as usize,
            copied: header.split as usize,
        };
        let begun = Instant::now();
        let ran = guard.run_caught(
            |serve| execute_in_place(serve, placed, reply, blocks),
            |refusal| refuse(reply, refusal),
        );
        row.record_time(begun.elapsed());
        drop(permit);
        let Ran { answer, head_at, head_bytes, .. } = ran;
        if self.calls().is_cancelled(number) {
            guard.end(answer, 0);
            let text = "its caller has given up";
            let refusal = Refusal::abandoned(text);
            return self.refuse(number, &refusal, host);
        }
        let outs = if answer == Answer::Ok { &**blocks } else { &[] };
        let gathered = Gathered::new(reply, outs, head_at as usize, head_bytes as usize);
        *largest = (*largest).max(gathered.extent);
        guard.end(answer, gathered.body as u64);
        let header = Header {
            body: gathered.body as u32,
            procedure: answer as u32,
            split: gathered.head_at as u32,
            head: head_bytes,
            ..Header::new(wire::Kind::Reply, number)
        };
        let header = header.to_bytes();
        self.send(host, &header, |sending| gathered.write(sending));
    }

    // Answers.

    /// Sends a message; a connection that does not take it is closed.
    fn send<'a>(
        &'a self,
        host: &'a dyn Host,
        header: &'a [u8; HEADER_BYTES],
        write: impl FnOnce(&mut Sending<'a, ReplyStall<'a>>) -> io::Result<()>,
    ) {
        let until = Instant::now() + limits::UNREAD_TIME[1];
        let Some(_lock) = self.output.take(Some(until)) else { return self.close() };
        let mut sending = Sending::new(&self.stream, ReplyStall { incoming: self, host });
        let sent = sending.part(Window::from(&header[..])).and_then(|()| write(&mut sending));
        if sent.and_then(|()| sending.end()).is_err() {
            self.close();
        }
    }

    fn say(&self, header: Header, body: &[u8], host: &dyn Host) {
        let header = Header { body: body.len() as u32, ..header }.to_bytes();
        self.send(host, &header, |sending| sending.part(Window::from(body)));
    }

    fn say_no(&self, number: u32, kind: Kind, text: String, host: &dyn Host) {
        let body = Refused { kind: kind as u32, text }.to_bytes();
        self.say(Header::new(wire::Kind::Refused, number), &body, host);
    }

    /// Answers a call without running it, or without its result.
    #[cold]
    fn refuse(&self, number: u32, refusal: &Refusal, host: &dyn Host) {
        let mut memory = [0; limits::MESSAGE_BYTES_MIN];
        let space = Space::of_mut(&mut memory);
        let Ran { answer, head_at, head_bytes, .. } = refuse(space, refusal);
        let header = Header {
            body: head_at + head_bytes,
            procedure: answer as u32,
            split: head_at,
            head: head_bytes,
            ..Header::new(wire::Kind::Reply, number)
        };
        let header = header.to_bytes();
        let body = space.range(0, (head_at + head_bytes) as usize);
        self.send(host, &header, |sending| sending.part(body.window()));
    }

    /// Says why the connection ends, to a peer of another version; anybody else would not
    /// understand it.
    fn not_understood(&self, unreadable: Unreadable) -> Attended {
        if unreadable != Unreadable::Foreign {
            let kind = Kind::ProtocolMismatch as u32;
            let body = Refused { kind, text: unreadable.to_string() }.to_bytes();
            self.say_now(wire::Kind::Refused, 0, &body);
            self.stream.finish();
        }
        Attended::Ended
    }

    /// Says something that is no answer, if it can be said at once.
    pub(crate) fn say_now(&self, kind: wire::Kind, binding: u32, body: &[u8]) {
        let header = Header { binding, body: body.len() as u32, ..Header::new(kind, 0) };
        let Some(_lock) = self.output.take(Some(Instant::now())) else { return };
        let header = header.to_bytes();
        let mut sending = Sending::new(&self.stream, NoStall);
        let sent = sending.part(Window::from(&header[..]));
        let sent = sent.and_then(|()| sending.part(Window::from(body)));
        let sent = sent.and_then(|()| sending.end());
        if sent.is_err() && sending.begun {
            self.close();
        }
    }

    /// Ends a connection in good order if nothing runs for it any more: what was not answered was
    /// not executed. Otherwise ends it.
    pub(crate) fn farewell(&self) {
        if !self.calls().may_say_goodbye() {
            return self.close();
        }
        self.say_now(wire::Kind::Goodbye, 0, &[]);
        self.stream.finish();
    }

    /// After a farewell: takes in what still comes, so that nothing that was said is lost; returns when
    /// the client has closed.
    pub(crate) fn hear_out(&self, until: Instant) {
        let mut chunk = [0; 4096];
        while Instant::now() < until {
            match self.stream.wait(For::Readable, Some(until)) {
                Ok(ready) if ready.readable => match self.stream.receive(&mut chunk, false) {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                },
                _ => return,
            }
        }
    }
}
