//! The server's end of a TCP connection. One thread at a time receives from a connection. The thread runs
//! each call in the memory into which it received the call. If a procedure takes long, another thread
//! receives meanwhile. While no thread receives, the *keeper*, the background thread of the process, watches
//! the connection.

mod connections;
mod deferred;
mod gathered;
mod host;
mod reading;
mod stall;
mod unsent;
mod worker;

pub(crate) use connections::Connections;
pub(crate) use host::{BindTerms, Host};
pub(crate) use worker::StreamWorker;

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::deferred::DeferredCalls;
use self::gathered::Gathered;
use self::reading::{Kept, ReadOutcome};
use self::stall::{NoStall, ReplyStall};
use self::unsent::{SENDS_MAX, Unsent};
use super::peer::send_lock::SendLock;
use super::peer::sending::Sending;
use crate::call::accounted;
use crate::call::streams::STREAMS;
use crate::call::{Answer, Placed, Ran, Refusal, execute_in_place, extensions, refuse};
use crate::device::tcp::Stream;
use crate::error::Kind;
use crate::limits;
use crate::path::connections::intake::{Intake, Reservation};
use crate::path::connections::receive::IDLE;
use crate::path::connections::threads::Attended;
use crate::path::connections::turn::{Attendant, Mark, Turn};
use crate::path::security::{SecureConnection, ServerSecurity};
use crate::protocol::description;
use crate::protocol::stream::server_end::{Calls, Next};
use crate::protocol::stream::{
    self as wire, BindGrant, BindRequest, HEADER_BYTES, Header, Refused, Unreadable,
};
use crate::serving::binding_table::{BindingCache, BindingRow, BindingTable};
use crate::serving::procedure::{IncomingCall, Serving};
use crate::steps;
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys::Memory;
use crate::value::{Space, Window, align_up};

/// The number of bytes to receive while the size of the next message is unknown. The number is small, because
/// received bytes of later messages are copied if another thread continues to receive.
const READ_AHEAD: usize = 16 << 10;
/// A call that is expected to take at least this time is long. If bytes of later messages have already
/// arrived, another thread handles these bytes while a long call runs.
const LONG: Duration = Duration::from_micros(50);
/// A call that is expected to take at least this time is very long. While a very long call runs, another
/// thread may receive, even if no bytes of later messages have arrived.
const VERY_LONG: Duration = Duration::from_millis(1);

/// The server's end of a connection.
pub(crate) struct AcceptedConnection {
    stream: Stream,
    /// Which thread receives.
    turn: Turn,
    /// How many of the next calls are expected to take long, because a recent call took long.
    suspected: AtomicU32,
    kept: Mutex<Kept>,
    rows: Mutex<BindingTable>,
    output: SendLock,
    /// The calls that have arrived and have no reply yet.
    calls: Mutex<Calls>,
    deferred: DeferredCalls,
    unsent: Unsent,
    bound: AtomicBool,
    closed: AtomicBool,
    /// Whether neither a thread nor the keeper waits for bytes, because there is no memory for the message
    /// that arrives.
    held: AtomicBool,
    /// The number of this connection, unique in this process.
    number: u64,
    /// The intake. It reserves memory for messages, and bounds the memory of calls that have not begun to
    /// run.
    intake: Arc<Intake>,
    /// The client's host. `intake` counts reserved memory for each host.
    host: IpAddr,
    /// TLS on this connection. `None`: it is not encrypted.
    secure: Option<SecureConnection>,
}

/// A call that has arrived and has no reply yet. Dropping this value notes that the call has its reply, or
/// that the thread of the call has panicked.
struct Unanswered<'a> {
    incoming: &'a AcceptedConnection,
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

/// The permit to run a procedure. Dropping this value gives the permit back when the procedure has ended, or
/// when its thread panics.
struct Permit<'a>(&'a dyn Host);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.end_procedure();
    }
}

impl AcceptedConnection {
    /// Creates the server's end of a connection. `host` is the client's host, or a group of hosts that count
    /// as one host. `intake` bounds the memory of calls. `replies` bounds the memory of replies that wait to
    /// be sent.
    ///
    /// # Errors
    /// If the socket's options cannot be set.
    pub(crate) fn new(
        stream: Stream,
        intake: Arc<Intake>,
        replies: Arc<Intake>,
        host: IpAddr,
    ) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        stream.set_receive_timeout(IDLE)?;
        Ok(Self {
            stream,
            turn: Turn::default(),
            suspected: AtomicU32::new(0),
            kept: Mutex::ranked(Rank::Received, Kept::default()),
            rows: Mutex::ranked(Rank::BindingTable, BindingTable::default()),
            output: SendLock::default(),
            calls: Mutex::default(),
            deferred: DeferredCalls::default(),
            unsent: Unsent::new(replies),
            bound: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            held: AtomicBool::new(false),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            intake,
            host,
            secure: None,
        })
    }

    /// Encrypts the connection. No bytes have been sent or received yet.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub(crate) fn secure(&mut self, security: &ServerSecurity) -> io::Result<()> {
        self.secure = Some(security.accept(&mut self.stream)?);
        Ok(())
    }

    /// Returns what encrypts the connection.
    pub(crate) const fn security(&self) -> Option<&SecureConnection> {
        self.secure.as_ref()
    }

    pub(crate) const fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Returns the bindings of the connection.
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

    /// Returns whether a binding was ever made on the connection.
    pub(crate) fn has_bound(&self) -> bool {
        self.bound.load(Ordering::Relaxed)
    }

    /// Ends the connection. Threads that wait for the socket of the connection stop waiting.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.stream.end();
    }

    // Which thread receives.

    /// Notes that bytes have arrived at a parked connection. Returns true if the keeper must now queue the
    /// connection for a thread.
    pub(crate) fn wakes(&self) -> bool {
        self.turn.wakes()
    }

    /// Checks whether a thread still runs the call that it ran at the last check. If so, lets another thread
    /// receive. The keeper calls this function from time to time.
    pub(crate) fn relieve(&self, host: &dyn Host) {
        /// After a call that took long, this many following calls are also expected to take long.
        const SUSPECTED: u32 = 32;
        if !self.turn.is_long() {
            return;
        }
        self.suspected.store(SUSPECTED, Ordering::Relaxed);
        self.hand_on(host);
    }

    /// Lets another thread receive. The thread that has received so far runs a call that takes long, or waits
    /// for a permit.
    fn hand_on(&self, host: &dyn Host) {
        if !self.turn.take_from_runner() {
            return;
        }
        if self.kept().bytes > 0 || self.stream.holds_received() {
            // Bytes of the next call have already arrived. If no further bytes arrive, the keeper would never
            // queue the connection. So this thread queues it.
            host.read_on();
        } else {
            self.turn.set(Attendant::Keeper);
            host.watch();
        }
    }

    /// Returns whether the next call is expected to take long, because a recent call took long.
    fn is_suspected(&self) -> bool {
        let left = self.suspected.load(Ordering::Relaxed);
        if left > 0 {
            self.suspected.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// Returns whether the keeper watches the connection.
    pub(crate) fn is_parked(&self) -> bool {
        self.turn.is_parked()
    }

    // The work of a thread that attends to the connection.

    /// Receives and serves calls, until no bytes have arrived for some time, or until another thread
    /// receives.
    pub(crate) fn attend(&self, worker: &mut StreamWorker, host: &dyn Host) -> Attended {
        self.turn.set(Attendant::Reader);
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
                        // Calls may arrive on this connection without a pause, and this thread would never
                        // leave it. So other connections that wait for a thread come first.
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
            // A thread does not wait here if other connections need a thread, or if this client has stopped
            // sending in the middle of a message.
            let is_stalled = stalled && worker.unread.is_within_message();
            let leaves = host.is_stopping() || host.is_hungry() || is_stalled;
            match self.receive(worker, needed, !leaves, host) {
                ReadOutcome::Some => {}
                ReadOutcome::Closed => {
                    drop(Self::is_whole(worker));
                    return Attended::Ended;
                }
                ReadOutcome::Nothing => return self.park(worker, host),
                ReadOutcome::Full => return self.hold(worker, host),
            }
        }
    }

    /// Decides by the header of a call whether the server receives the rest of the call. Returns `None` if it
    /// does. Returns a refusal if the server refuses the call.
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
        if let Some(row) = row {
            row.report_refused(header.procedure, header.body, &refusal);
        }
        // The cached row of a withdrawn binding would keep the exported object alive.
        rows.forget_last();
        Some(refusal)
    }

    /// Returns the row of a binding. A row is the server's record of one binding.
    #[inline]
    fn row<'a>(&self, binding: u32, rows: &'a mut BindingCache) -> Option<&'a Arc<BindingRow>> {
        rows.get(self.number, binding, || self.rows().get(binding))
    }

    /// Serves a complete message. The header of the message begins at byte `at` of the thread's input.
    /// `reserved` is the memory that is reserved for the message. Returns `None` if the thread continues to
    /// receive.
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
            wire::MessageKind::Call => return self.call(&header, body, reserved, worker, host),
            wire::MessageKind::Unbind => {
                // The row may be the last owner of the exported object. So the row is dropped after the lock
                // is released.
                let row = self.rows().remove(header.binding);
                drop(row);
            }
            wire::MessageKind::Abandon => {
                let captured = self.calls().cancel(header.number);
                if captured > 0 {
                    host.captured(captured, 0);
                }
                self.deferred.cancel(header.number);
            }
            wire::MessageKind::Describe => {
                let name = worker.input.memory().get(body);
                let name = name.and_then(|name| core::str::from_utf8(name).ok()).unwrap_or("");
                match host.describe(name) {
                    Ok(found) => {
                        let body = description::to_bytes(&found);
                        self.send_message(
                            Header::new(wire::MessageKind::Description, header.number),
                            &body,
                            host,
                        );
                    }
                    Err((kind, text)) => self.send_refusal(header.number, kind, text, host),
                }
            }
            _ => {
                let bind = worker.input.memory().get(body).and_then(BindRequest::from_bytes);
                match bind {
                    Some(bind) => self.bind(header.number, &bind, host),
                    None => return Some(self.not_understood(Unreadable::Foreign)),
                }
            }
        }
        None
    }

    fn bind(&self, number: u32, bind: &BindRequest, host: &dyn Host) {
        let (row, BindTerms { epoch, count_max }) = match host.bind(bind) {
            Ok(bound) => bound,
            Err((kind, text)) => return self.send_refusal(number, kind, text, host),
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
            let text = format!(
                "one connection may have at most {} bindings",
                limits::BINDINGS_PER_CONNECTION
            );
            return self.send_refusal(number, Kind::Exhausted, text, host);
        };
        if let Err((kind, text)) = host.still_offers(&bind.name) {
            // The row may be the last owner of the exported object. So it is dropped after the lock is released.
            let row = self.rows().remove(binding);
            drop(row);
            return self.send_refusal(number, kind, text, host);
        }
        self.bound.store(true, Ordering::Relaxed);
        let count = bind.count.clamp(1, count_max);
        let bound = BindGrant { epoch, binding, representation, count, bytes };
        self.send_message(Header::new(wire::MessageKind::Bound, number), &bound.to_bytes(), host);
    }

    /// Returns whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns whether the caller of a call has given up the call.
    pub(crate) fn is_given_up(&self, number: u32) -> bool {
        self.is_closed() || self.calls().is_cancelled(number)
    }

    /// Cancels all calls, because the connection has ended. Returns how many procedures run on a thread
    /// although their callers have now given up.
    pub(crate) fn give_up_all(&self) -> usize {
        let captured = self.calls().cancel_all();
        self.unsent.end();
        self.deferred.cancel_all();
        captured
    }

    /// Returns the number of cancelled calls that have no reply yet.
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
        self.calls().begin(header);
        let unanswered = Unanswered { incoming: self, host, number: header.number };
        if worker.unread.cancels(worker.input.memory(), header.number) {
            self.calls().cancel(header.number);
        }
        let reads_on = self.leave_reading(&row, worker, host);
        self.run(&row, header, body, reserved, worker, unanswered);
        match reads_on {
            None => return Some(Attended::Left),
            Some(running) if self.turn.goes(running, Attendant::Reader) => {}
            // The call took long, and another thread receives already, because the keeper has arranged that.
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

    /// Decides which thread receives while a procedure runs. Returns `None` if another thread receives.
    /// Otherwise returns the mark that the turn gets while the procedure runs. After the procedure, this
    /// thread can receive again if the turn still has this mark. The keeper may have chosen another thread
    /// meanwhile.
    fn leave_reading(
        &self,
        row: &BindingRow,
        worker: &mut StreamWorker,
        host: &dyn Host,
    ) -> Option<Mark> {
        let more = worker.unread.from < worker.unread.to;
        let took = if self.is_suspected() { VERY_LONG } else { row.expected_time() };
        if more {
            let mut kept = self.kept();
            let (from, to) = (worker.unread.from, worker.unread.to);
            if !kept.memory.reserve(to - from) {
                // There is no memory for the bytes of later messages. Without these bytes, the server cannot
                // find the start of the next message. So the connection ends.
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
        if (more || self.stream.holds_received()) && took >= LONG {
            (worker.unread.from, worker.unread.to) = (0, 0);
            self.turn.set(Attendant::Queue);
            host.read_on();
            return None;
        }
        if took >= VERY_LONG {
            self.turn.set(Attendant::Keeper);
            host.watch();
            return None;
        }
        Some(self.turn.set(Attendant::Runner))
    }

    fn run(
        &self,
        row: &BindingRow,
        header: &Header,
        body: Range<usize>,
        reserved: Option<Reservation>,
        worker: &mut StreamWorker,
        unanswered: Unanswered<'_>,
    ) {
        let host = unanswered.host;
        let number = header.number;
        let begins = body.start;
        let extensions_at = |begins| {
            let at = align_up(begins + header.body as usize);
            at..at + header.extensions as usize
        };
        let extensions =
            Window::from(worker.input.memory().get(extensions_at(begins)).unwrap_or(&[]));
        let received = (!extensions.is_empty()).then(Instant::now);
        let inside = header.procedure == STREAMS
            || received.is_some() && extensions::is_from_inside(extensions);
        let mut begins = begins;
        let mut waits = || {
            // The bytes after a waiting call may contain the cancellation of that call. So another thread
            // must receive these bytes.
            self.hand_on(host);
            if !inside && reserved.as_ref().is_some_and(|reserved| !reserved.may_wait()) {
                let text = "waiting calls have used all memory for calls of this host";
                return Err(Refusal::new(Kind::Overloaded, text));
            }
            // Another thread receives from now on. So this thread keeps only the bytes of its call.
            begins = worker.keep_only(begins..extensions_at(begins).end);
            Ok(())
        };
        let begun = match row.is_of_health() {
            true => Ok(None),
            false => host.begin_procedure(inside, &mut waits).map(|()| Some(Permit(host))),
        };
        // Until here, the memory in which the call has waited counts as reserved.
        drop(reserved);
        let room = |worker: &mut StreamWorker| {
            let room = worker.room(row.message_bytes);
            room.map_err(|_| Refusal::exhausted("no memory for the result"))
        };
        let permit = begun.and_then(|permit| room(worker).map(|()| permit));
        let permit = match permit {
            Ok(permit) => permit,
            Err(refusal) => {
                let refusal = worker.serving.refuse(row, refusal);
                row.report_refused(header.procedure, header.body, &refusal);
                return self.refuse(number, &refusal, host);
            }
        };
        let StreamWorker { serving, input, reply, blocks, largest, .. } = worker;
        let Some(reply) = reply.as_ref().map(Memory::space) else { return };
        let reply = reply.range(0, row.message_bytes);
        let (memory, after) = (input.memory(), extensions_at(begins));
        let (message, rest) = memory.split_at_mut(after.start.min(memory.len()));
        let body = begins..begins + header.body as usize;
        let call = IncomingCall {
            number: number.into(),
            bytes: header.body,
            extensions: Window::from(rest.get(..after.len()).unwrap_or(&[])),
            waited: || received.map_or(Duration::ZERO, |received| received.elapsed()),
            is_given_up: || match row.is_of_health() {
                true => !self.calls().starts_to_look(number),
                false => !self.calls().starts(number),
            },
        };
        let mut guard = match serving.begin(row, call, || host.calls()) {
            Ok(guard) => guard,
            Err(refusal) => {
                drop(permit);
                row.report_refused(header.procedure, header.body, &refusal);
                return self.refuse(number, &refusal, host);
            }
        };
        steps::pass_admission();
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
        // If the call is deferred, this is the time of its first poll, because only that poll has occupied
        // this thread.
        row.record_time(begun.elapsed());
        drop(permit);
        let Ran { answer, head_at, head_bytes, .. } = ran;
        if answer == Answer::Deferred {
            guard.defer();
            // The thread that sends the reply notes that the call has its reply. So this thread must not.
            return core::mem::forget(unanswered);
        }
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
        let procedure = header.procedure;
        let header = Header {
            body: gathered.body as u32,
            procedure: answer as u32,
            split: gathered.head_at as u32,
            head: head_bytes,
            ..Header::new(wire::MessageKind::Reply, number)
        };
        let header = header.to_bytes();
        self.send(host, &header, |sending| gathered.write(sending));
        accounted::pass_end_of_call(procedure, &row.caller);
    }

    // Replies.

    /// Sends a message. Closes the connection if the client does not read the message in time.
    fn send<'a>(
        &'a self,
        host: &'a dyn Host,
        header: &'a [u8; HEADER_BYTES],
        write: impl FnOnce(&mut Sending<'a, ReplyStall<'a>>) -> io::Result<()>,
    ) {
        let until = Instant::now() + limits::UNREAD_TIME[1];
        let Some(lock) = self.output.take(Some(until)) else { return self.close() };
        let stall = ReplyStall { incoming: self, host };
        let queue = match self.unsent.is_empty() {
            true => Ok(()),
            false => self.send_queue(&lock, &stall, usize::MAX),
        };
        let mut sending = Sending::new(&self.stream, stall);
        let sent = queue.and_then(|()| sending.part(Window::from(&header[..])));
        let sent = sent.and_then(|()| write(&mut sending)).and_then(|()| sending.end());
        // After the farewell, nothing can be sent, and the connection must stay: if the client sent anything to
        // a closed socket, the answer of the system could reach the client before it has read the goodbye.
        if sent.is_err() && !self.calls().has_ended() {
            self.close();
        }
        // SYNC: unsent replies, the other half is in `send_unsent`.
        drop(lock);
        if !self.unsent.is_empty() {
            self.send_unsent(host);
        }
    }

    fn send_message(&self, header: Header, body: &[u8], host: &dyn Host) {
        let header = Header { body: body.len() as u32, ..header }.to_bytes();
        self.send(host, &header, |sending| sending.part(Window::from(body)));
    }

    fn send_refusal(&self, number: u32, kind: Kind, text: String, host: &dyn Host) {
        let body = Refused { kind: kind as u32, text }.to_bytes();
        self.send_message(Header::new(wire::MessageKind::Refused, number), &body, host);
    }

    /// Sends a refusal as the reply to a call.
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
            ..Header::new(wire::MessageKind::Reply, number)
        };
        let header = header.to_bytes();
        let body = space.range(0, (head_at + head_bytes) as usize);
        self.send(host, &header, |sending| sending.part(body.window()));
    }

    /// Ends a connection on which an unreadable message has arrived. Sends the reason to the client, unless
    /// the message belongs to another protocol. The sender of such a message could not read the reason.
    fn not_understood(&self, unreadable: Unreadable) -> Attended {
        if unreadable != Unreadable::Foreign {
            let kind = Kind::ProtocolMismatch as u32;
            let body = Refused { kind, text: unreadable.to_string() }.to_bytes();
            self.send_now(wire::MessageKind::Refused, 0, &body);
            self.stream.shut_down_sending();
        }
        Attended::Ended
    }

    /// Sends a notice, but only if this is possible without waiting. If the connection may have deferred
    /// calls, the caller must then call [`send_unsent`](Self::send_unsent).
    pub(crate) fn send_now(&self, kind: wire::MessageKind, binding: u32, body: &[u8]) {
        self.notify(kind, binding, body, Instant::now());
    }

    /// Sends a notice as soon as no other thread sends, but does not wait for space in the socket. Returns
    /// false if another thread still sends at the time `until`.
    fn notify(&self, kind: wire::MessageKind, binding: u32, body: &[u8], until: Instant) -> bool {
        let header = Header { binding, body: body.len() as u32, ..Header::new(kind, 0) };
        // SYNC: unsent replies, the other half is in `send_unsent`.
        let Some(lock) = self.output.take(Some(until)) else { return false };
        let is_empty = self.unsent.is_empty();
        if !is_empty && self.send_queue(&lock, &NoStall, SENDS_MAX).is_err() {
            return true;
        }
        let header = header.to_bytes();
        let mut sending = Sending::new(&self.stream, NoStall);
        let sent = sending.part(Window::from(&header[..]));
        let sent = sent.and_then(|()| sending.part(Window::from(body)));
        let sent = sent.and_then(|()| sending.end());
        if sent.is_err() && sending.begun {
            self.close();
        }
        true
    }

    /// Sends `Goodbye` unless a procedure still runs for the connection. The client then knows that calls
    /// without a reply were not executed. If a procedure runs, only closes the connection. Returns false if
    /// another thread still sends on the connection at the time `until`. The caller should then try again.
    pub(crate) fn farewell(&self, until: Instant) -> bool {
        let may_say_goodbye = self.calls().bid_farewell();
        if !may_say_goodbye {
            self.close();
            return true;
        }
        let said = self.notify(wire::MessageKind::Goodbye, 0, &[], until);
        if said {
            self.stream.shut_down_sending();
        }
        said
    }
}
