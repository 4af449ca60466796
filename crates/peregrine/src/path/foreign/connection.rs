//! One TCP connection of a server: a thread receives messages from it, and runs the calls in them. If a
//! procedure takes long, another thread receives, so that the call does not delay other calls of its client.
//! If the protocol requires replies in the order of the calls, no other thread receives while a procedure
//! runs.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;

use super::callers::Callers;
use super::connections::ForeignConnections;
use super::service::{MessageOf, Received, Reply, Source, StreamInput, StreamService};
use super::serving::ReplyBuffer;
use crate::call::{EStack, Refusal};
use crate::counters::Counting;
use crate::device::tcp::Stream;
use crate::keeper::{Next, Watched};
use crate::limits;
use crate::path::connections::intake::{Reservation, Resume};
use crate::path::connections::receive::{Got, receive};
use crate::path::connections::stall::wait_for_reader;
use crate::path::connections::threads::{Attend, Attended, ConnectionThreads, Work};
use crate::path::connections::turn::{Attendant, Turn};
use crate::path::connections::watching::{LOOK, LOOK_MAX, Watching, next_of_stalled};
use crate::protocol::stream::server_end::MessageTimer;
use crate::serving::procedure::Serving;
use crate::sync::{Mutex, MutexGuard, Rank};

/// The number of bytes to receive at a time.
const CHUNK: usize = 16 << 10;
/// An incomplete message that uses at most this many bytes of memory needs no reservation. The limit of the
/// number of connections bounds the memory of such messages.
const UNRESERVED: usize = 2 * CHUNK;

/// A connection of a server.
pub(in crate::path) struct ForeignConnection<S: StreamService> {
    pub(super) key: u64,
    pub(super) host: IpAddr,
    from: SocketAddr,
    stream: Stream,
    turn: Turn,
    kept: Mutex<Kept<S::Input>>,
    session: S::Session,
    /// Held while a reply is sent.
    output: Mutex<()>,
    pub(super) callers: Callers,
    closed: AtomicBool,
    /// Whether a call has arrived.
    has_called: AtomicBool,
    /// Whether the connection is parked but not watched, because there is no memory for its message.
    held: AtomicBool,
    /// Whether the connection waits until memory for its message is free.
    waits: AtomicBool,
    since: Instant,
    pub(super) watching: Watching,
    connections: Weak<ForeignConnections<S>>,
    threads: Arc<ConnectionThreads<Self>>,
}

/// What has arrived and is not handled yet. The next thread that receives continues with it.
struct Kept<I> {
    input: I,
    /// Bytes that follow a message whose call runs.
    unread: Vec<u8>,
    /// The memory that is reserved for the incomplete message.
    reserved: Option<Reservation>,
    /// Measures how much longer the client may take to send the rest of the message.
    timer: MessageTimer,
}

/// A message, and the memory that was reserved for it.
struct ArrivedMessage<M> {
    message: M,
    reserved: Option<Reservation>,
}

/// The state of a thread that attends to connections.
pub(in crate::path) struct ForeignWorker {
    serving: Serving,
    /// The memory into which the thread receives.
    input: EStack,
    reply: ReplyBuffer,
}

/// A call that has arrived and has no reply yet.
struct Unanswered<'a, S: StreamService>(&'a ConnectionThreads<ForeignConnection<S>>);

impl<S: StreamService> Drop for Unanswered<'_, S> {
    fn drop(&mut self) {
        self.0.answered();
    }
}

/// The permit to run a procedure.
struct Permit<'a, S: StreamService>(&'a ConnectionThreads<ForeignConnection<S>>);

impl<S: StreamService> Drop for Permit<'_, S> {
    fn drop(&mut self) {
        self.0.admission.end();
    }
}

impl<S: StreamService> ForeignConnection<S> {
    pub(super) fn new(
        key: u64,
        (stream, from, host): (Stream, SocketAddr, IpAddr),
        message_bytes_max: usize,
        connections: &Arc<ForeignConnections<S>>,
    ) -> Self {
        /// The largest number of rows of callers for one connection. There is a row for each user of the
        /// client's machine and each program that the user calls.
        const CALLERS: usize = 64;
        let kept = Kept {
            input: S::input(message_bytes_max),
            unread: Vec::new(),
            reserved: None,
            timer: MessageTimer::default(),
        };
        Self {
            key,
            host,
            from,
            stream,
            turn: Turn::default(),
            kept: Mutex::ranked(Rank::Received, kept),
            session: S::Session::default(),
            output: Mutex::default(),
            callers: Callers::new(CALLERS, CALLERS),
            closed: AtomicBool::new(false),
            has_called: AtomicBool::new(false),
            held: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            since: Instant::now(),
            watching: Watching::default(),
            connections: Arc::downgrade(connections),
            threads: Arc::clone(connections.threads()),
        }
    }

    pub(super) const fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Ends the connection. Threads that wait for its socket stop waiting.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.stream.end();
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    #[track_caller]
    fn kept(&self) -> MutexGuard<'_, Kept<S::Input>> {
        self.kept.lock()
    }

    fn now(&self) -> Duration {
        self.since.elapsed()
    }

    fn enqueue(self: &Arc<Self>) {
        self.threads.enqueue(Work::Receive(Arc::clone(self)));
    }

    /// Lets another thread receive. The thread that has received so far runs a call that takes long, or waits
    /// for a permit.
    fn hand_on(self: &Arc<Self>) {
        if S::IS_ORDERED || !self.turn.take_from_runner() {
            return;
        }
        if self.kept().unread.is_empty() {
            self.turn.set(Attendant::Keeper);
            self.watching.again();
        } else {
            // The next message may already be in `unread`. If no further bytes arrive, the keeper does not
            // queue the connection. So this thread queues it.
            self.enqueue();
        }
    }

    /// Receives and serves calls, until no bytes have arrived for some time, or until another thread
    /// receives. `input` is the memory into which the thread receives.
    fn serve(
        self: &Arc<Self>,
        input: &mut EStack,
        worker: &mut ForeignWorker,
        connections: &Arc<ForeignConnections<S>>,
    ) -> Attended {
        self.turn.set(Attendant::Reader);
        if !input.reserve(CHUNK) {
            return Attended::Ended;
        }
        let input = &mut input.memory()[..CHUNK];
        let mut bytes = {
            let mut kept = self.kept();
            kept.timer.resume(self.now());
            let unread = core::mem::take(&mut kept.unread);
            input[..unread.len()].copy_from_slice(&unread);
            unread.len()
        };
        loop {
            let mut arrived = &input[..bytes];
            loop {
                match self.next_message(&mut arrived) {
                    Ok(Some(ArrivedMessage { message, reserved })) => {
                        if let Some(attended) =
                            self.message(&message, reserved, worker, connections)
                        {
                            return attended;
                        }
                    }
                    Ok(None) => break,
                    Err(_) => return Attended::Ended,
                }
                self.kept().unread.clear();
                if self.threads.is_hungry() {
                    // Calls may arrive on this connection without a pause. So other connections that wait for
                    // a thread come first.
                    self.kept().unread = arrived.to_vec();
                    self.turn.set(Attendant::Queue);
                    self.enqueue();
                    return Attended::Left;
                }
            }
            if self.is_closed() {
                return Attended::Ended;
            }
            if !self.reserve(connections) {
                return self.hold(connections);
            }
            // A thread does not wait here if other connections need a thread.
            let waits = !self.threads.is_hungry() && !self.threads.admission.is_stopping();
            let how = waits.then_some(self.threads.wait);
            match receive(&self.stream, input, how, &mut worker.serving.counting) {
                Got::Bytes(received) => bytes = received,
                Got::Nothing => return self.park(),
                Got::Closed => return Attended::Ended,
            }
        }
    }

    /// Takes the next message from the bytes that have arrived. Keeps the bytes after the message, for
    /// another thread that may receive while the call runs.
    fn next_message(
        &self,
        arrived: &mut &[u8],
    ) -> Result<Option<ArrivedMessage<MessageOf<S>>>, <S::Input as StreamInput>::Broken> {
        let mut kept = self.kept();
        let Some(message) = kept.input.take(arrived)? else { return Ok(None) };
        kept.timer = MessageTimer::default();
        kept.unread = arrived.to_vec();
        Ok(Some(ArrivedMessage { message, reserved: kept.reserved.take() }))
    }

    /// Reserves memory for the next bytes of the incomplete message. Returns false if no memory is left.
    fn reserve(&self, connections: &ForeignConnections<S>) -> bool {
        let mut kept = self.kept();
        let bytes = kept.input.memory_after(CHUNK);
        let before = kept.reserved.as_ref().map_or(0, Reservation::bytes);
        if bytes <= UNRESERVED.max(before) {
            return true;
        }
        match &mut kept.reserved {
            Some(reserved) => reserved.grow(bytes - before, 0),
            none => {
                *none = connections.intake.reserve(self.host, bytes, 0);
                let is_reserved = none.is_some();
                if is_reserved {
                    kept.timer.begin(self.now());
                }
                is_reserved
            }
        }
    }

    /// Leaves the connection to the keeper.
    fn park(self: &Arc<Self>) -> Attended {
        let patience = self.patience();
        self.turn.set(Attendant::Keeper);
        self.watching.again();
        if let Some(patience) = patience {
            self.watching.remind(patience);
        }
        Attended::Left
    }

    /// Stops receiving from the connection until memory is free again.
    #[cold]
    fn hold(self: &Arc<Self>, connections: &ForeignConnections<S>) -> Attended {
        self.kept().timer.hold(self.now());
        self.turn.set(Attendant::Keeper);
        self.held.store(true, Ordering::Release);
        connections.intake.hold(Arc::clone(self) as Arc<dyn Resume>);
        // If memory was released just before the connection was added to the queue, that release does not
        // resume the connection. So the keeper tries again later.
        self.watching.remind(LOOK_MAX);
        Attended::Left
    }

    fn patience(&self) -> Option<Duration> {
        let mut kept = self.kept();
        let bytes = kept.input.len();
        kept.timer.left(bytes, self.now())
    }

    /// Handles a message. Returns `None` if the thread continues to receive.
    fn message(
        self: &Arc<Self>,
        message: &MessageOf<S>,
        reserved: Option<Reservation>,
        worker: &mut ForeignWorker,
        connections: &Arc<ForeignConnections<S>>,
    ) -> Option<Attended> {
        let ForeignWorker { serving, reply, .. } = &mut *worker;
        let source = Source {
            from: self.from,
            connection: self.key,
            callers: &self.callers,
            session: &self.session,
        };
        let received = connections.service.take(source, message, serving, reply);
        if !matches!(received, Received::Greeted) {
            self.has_called.store(true, Ordering::Relaxed);
        }
        match received {
            Received::Foreign => return Some(Attended::Ended),
            Received::Nothing => {}
            Received::Answered | Received::Greeted => self.send(reply),
            Received::Last => {
                self.send(reply);
                return Some(Attended::Ended);
            }
            Received::Call(call) => {
                let running = self.turn.set(Attendant::Runner);
                self.call(call, message, reserved, worker, connections);
                if !self.turn.goes(running, Attendant::Reader) {
                    // The call took long, and another thread receives.
                    return Some(Attended::Left);
                }
            }
        }
        worker.reply.trim();
        None
    }

    fn call(
        self: &Arc<Self>,
        call: S::Call,
        message: &MessageOf<S>,
        reserved: Option<Reservation>,
        worker: &mut ForeignWorker,
        connections: &ForeignConnections<S>,
    ) {
        let ForeignWorker { serving, reply, .. } = worker;
        self.threads.called();
        let _unanswered = Unanswered(&self.threads);
        let begun = self.threads.begin(false, &mut || {
            self.hand_on();
            match reserved.as_ref().is_none_or(Reservation::may_wait) {
                true => Ok(()),
                false => Err(Refusal::exhausted("waiting calls have used all memory")),
            }
        });
        // The memory of a waiting call counts as reserved until the call begins or is refused.
        drop(reserved);
        let to = match begun {
            Ok(()) => {
                let permit = Permit(&self.threads);
                let to = S::run(call, message, serving, reply);
                drop(permit);
                to
            }
            Err(refusal) => S::refused(call, &refusal, reply),
        };
        match to {
            Reply::Nothing => {}
            Reply::Close => self.close(),
            Reply::To(key) if key == self.key => self.send(reply),
            // The client has connected again, and has retransmitted the call on the new connection.
            Reply::To(key) => {
                if let Some(connection) = connections.connection(key) {
                    connection.send(reply);
                }
            }
        }
    }

    /// Sends a reply. Closes the connection if the client does not read it in time.
    fn send(&self, reply: &mut ReplyBuffer) {
        let _output = self.output.lock();
        if S::send(&self.session, reply, |bytes| self.send_all(bytes)).is_none() {
            self.close();
        }
    }

    /// Sends bytes. Returns `None` if the client does not read them in time.
    fn send_all(&self, mut rest: &[u8]) -> Option<()> {
        let is_hurried = || self.threads.is_hungry() || self.threads.admission.is_stopping();
        while !rest.is_empty() {
            let sent = match self.stream.send_some(rest) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    wait_for_reader(&self.stream, || self.is_closed(), is_hurried).map(|()| 0)
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(0),
                sent => sent,
            };
            rest = &rest[sent.ok()?..];
        }
        Some(())
    }
}

impl<S: StreamService> Attend for ForeignConnection<S> {
    type Worker = ForeignWorker;

    fn worker(counting: Counting) -> ForeignWorker {
        let serving = Serving::new(counting);
        ForeignWorker { serving, input: EStack::default(), reply: ReplyBuffer::default() }
    }

    fn forget(worker: &mut ForeignWorker) {
        worker.serving.forget();
    }

    fn attend(self: &Arc<Self>, worker: &mut ForeignWorker) -> Attended {
        match self.connections.upgrade() {
            Some(connections) => {
                let mut input = core::mem::take(&mut worker.input);
                let attended = self.serve(&mut input, worker, &connections);
                worker.input = input;
                attended
            }
            None => Attended::Ended,
        }
    }

    /// Does nothing: no call of another RPC system is deferred.
    fn send_unsent(self: &Arc<Self>) {}

    fn end(&self) {
        self.close();
        self.watching.end();
        self.callers.revoke_all();
        let reserved = self.kept().reserved.take();
        // Releasing memory may resume another connection. So the memory is released after the lock was
        // released.
        drop(reserved);
        if let Some(connections) = self.connections.upgrade() {
            connections.remove(self);
        }
    }
}

impl<S: StreamService> Resume for ForeignConnection<S> {
    fn waits(&self) -> &AtomicBool {
        &self.waits
    }

    fn resume(self: Arc<Self>) {
        if self.held.swap(false, Ordering::AcqRel) && self.turn.wakes() {
            self.watching.note_arrival();
            self.enqueue();
        }
    }
}

impl<S: StreamService> Watched for ForeignConnection<S> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn interest(&self) -> EventFlags {
        EventFlags::IN | EventFlags::RDHUP | EventFlags::ONESHOT
    }

    fn ready(self: Arc<Self>) -> Next {
        if !self.turn.wakes() {
            return Next::Sleep;
        }
        self.watching.note_arrival();
        self.enqueue();
        Next::SleepAndTick(LOOK)
    }

    /// Looks for three problems: a procedure that takes long, a client that has made no call in time, and an
    /// incomplete message that holds memory and arrives too slowly. Also resumes a held connection.
    fn tick(self: Arc<Self>) -> Next {
        if !self.has_called.load(Ordering::Relaxed) {
            let Some(left) = limits::UNBOUND_TIME.checked_sub(self.since.elapsed()) else {
                self.end();
                return Next::Forget;
            };
            if self.turn.is_parked() {
                return Next::SleepAndTick(left);
            }
        }
        if self.held.load(Ordering::Acquire) {
            Arc::clone(&self).resume();
            return Next::SleepAndTick(LOOK_MAX);
        }
        if self.turn.is_long() {
            self.hand_on();
        }
        if !self.turn.is_parked() {
            return self.watching.next_look();
        }
        let is_short =
            || self.connections.upgrade().is_some_and(|connections| connections.intake.is_short());
        next_of_stalled(self.patience(), is_short).unwrap_or_else(|| {
            self.end();
            Next::Forget
        })
    }
}
