//! The server's end of a datagram socket. A client has *handles*, each for a sequence of calls. For each
//! handle, the server has a *record* at a numbered *place* of a table. The server also keeps the memory of
//! calls and results.
//!
//! Any thread may receive any packet. The thread holds the lock of the client's record while the protocol
//! decides what to do. Then the thread runs the call without a lock. The procedure builds its result in the
//! frame of the thread. The record keeps the result until the client acknowledges it.

mod connections;
mod deferred;
mod in_place;
mod liveness;
mod pacing;
mod places;
mod records;
mod replying;
mod retention;
mod sending;
mod sockets;
#[cfg(test)]
mod tests;
mod waiting;

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;

use core::any::Any;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::io;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use self::deferred::{PostponedReply, REPLY_STATES_KEPT};
use self::in_place::{ExpectedPieces, place};
use self::pacing::{Flows, Pacer};
use self::places::DepartedRows;
use self::records::{Inner, Record, Records, call_number};
use self::replying::ReplyState;
use self::retention::{FreeList, MemoryBudget, ResultFrame, RetainedResults, ThreadCache};
use self::sending::UnverifiedHosts;
pub(crate) use self::sockets::Datagrams;
pub use self::sockets::Losses;
use self::waiting::{FairQueue, QueuedCall, WaitingFor};
use super::peer::{BUFFER_BYTES, PeerAddress, moment};
use super::sealed::{SealHost, ServerSeal};
use super::wire::DESCRIBE;
use crate::call::accounted;
use crate::call::deferred::Cancels;
use crate::call::streams::STREAMS;
use crate::call::{
    Answer, Calls, EStack, Identified, Placed, Refusal, execute_in_place, extensions, refuse,
};
use crate::counters::{Counting, Page, ThreadKind};
use crate::device::{Arrival, BYTES_MAX, LinkAddress, Socket, Until, datagrams};
use crate::error::Kind as ErrorKind;
use crate::keeper::Watch;
use crate::limits;
use crate::path::receivers::{ReceiveMode, ReceiveOutcome};
use crate::path::security::ServerSecurity;
use crate::protocol::description as wire_description;
use crate::protocol::exchange::bind::{Cookies, LinkLocation};
use crate::protocol::exchange::client_end::DropReason;
use crate::protocol::exchange::header::{Flags, HEADER_BYTES, Header, PacketKind};
use crate::protocol::exchange::message::Shape;
use crate::protocol::exchange::server_end::{Action, Effect, RecordPhase, ServerEnd};
use crate::protocol::exchange::table::Table;
use crate::protocol::exchange::time::{MILLISECOND, Moment};
use crate::serving::binding_table::BindingRow;
use crate::serving::deferrals::Deferrals;
use crate::serving::procedure::{IncomingCall, Serving};
use crate::steps;
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys::{self, Address};
use crate::value::{Space, Window};

/// Results of at most this many bytes, including the header, are copied before they are sent. So the record
/// is unlocked during the send. The copy costs less than another thread's wait for the lock.
const COPIED: usize = 4096;
/// The shortest time in nanoseconds between two searches for silent clients that hold memory.
const SWEEP: u64 = 100 * MILLISECOND;

/// The functions of the server that its sockets use.
pub(crate) trait ExportHost: Send + Sync {
    /// Creates a row, the server's record of one binding, for a client that binds to a name. `bytes` is the
    /// size of the largest message. `from` is the address of the client, and `identity` its proven identity,
    /// if its packets are sealed.
    ///
    /// # Errors
    /// The reason why the binding is refused.
    fn bind(
        &self,
        name: &str,
        digest: Option<[u8; 16]>,
        bytes: u64,
        from: &Address,
        identity: Option<Identified>,
    ) -> Result<Arc<BindingRow>, (ErrorKind, String)>;

    /// Returns whether the export to which a row belongs was withdrawn.
    fn is_withdrawn(&self, row: &BindingRow) -> bool;

    /// Returns the description of the export to which a row belongs, if the export still exists.
    fn describe(&self, row: &BindingRow) -> Option<crate::interface::Description>;

    /// Returns whether the server refuses calls because it is stopping.
    fn is_stopping(&self) -> bool;

    /// Counts procedures that still run although their clients have cancelled the calls. Adds `more` to the
    /// count, and subtracts `fewer`.
    fn captured(&self, more: usize, fewer: usize);

    /// Runs the work of a service thread. After a panic of the work, runs it again.
    fn outlive(&self, thread: &str, work: &mut dyn FnMut());

    /// Reports that a receiving thread panicked.
    fn report_panic(&self, panic: Box<dyn Any + Send>);
}

/// A socket that serves any number of clients. The socket has a record for each handle of a client.
pub(crate) struct ServerSocket {
    socket: Socket,
    /// The location of this server on a link, if the server also uses raw Ethernet.
    link: Option<LinkLocation>,
    host: Arc<dyn ExportHost>,
    records: Arc<Records>,
    table: Mutex<Table>,
    departed: DepartedRows,
    cookies: Cookies,
    /// The keys of the clients, if all packets are sealed. The socket uses them, too.
    sealed: Option<Arc<ServerSeal>>,
    /// The secret from which the numbers of peers are computed. Without this secret, clients could choose two
    /// addresses that share a number.
    peers: [u8; 16],
    /// A random number that identifies this socket's table of places.
    number: u64,
    /// A random number that identifies this run of the server. Earlier and later servers at this address have
    /// other numbers.
    incarnation: u64,
    /// The size of the receive buffer in bytes.
    buffer: usize,
    /// The budget for the memory of waiting calls, and of calls that consist of several packets.
    calls: MemoryBudget,
    estacks: FreeList<EStack>,
    results: RetainedResults,
    /// Calls that wait for memory for their arguments. Their bytes are still at their clients.
    queued: FairQueue<QueuedCall>,
    /// Calls that wait for memory for their results. Their bytes are already at this server.
    postponed: FairQueue<Work>,
    /// Replies to deferred calls that wait for memory for their results.
    replies: FairQueue<PostponedReply>,
    /// Spare states for threads that complete deferred calls.
    reply_states: FreeList<ReplyState>,
    /// The time at which the server last searched for silent clients.
    swept: AtomicU64,
    /// The number of datagrams that were rejected because they were not valid.
    dropped: AtomicU64,
    /// The number of datagrams that were not sent. Either the send buffer was full, or the rest of the
    /// buffer was reserved for hosts that have proven their address.
    unsent: AtomicU64,
    /// The number of refused calls.
    refused: AtomicU64,
    unverified: UnverifiedHosts,
    /// Whether the keeper, the background thread of the process, checks the clients of running procedures.
    is_checking: AtomicBool,
    /// The watch through which the keeper checks the clients of running procedures.
    watch: OnceLock<Watch>,
    /// The watch through which the keeper checks whether clients are still trusted.
    trust: OnceLock<Watch>,
    page: Arc<Page>,
    flows: Flows,
    pacer: Pacer,
    /// A reference to this socket, for the pacing thread.
    this: Weak<Self>,
}

/// The memory and state of one receiving thread.
pub(crate) struct ReceiverState {
    input: EStack,
    from: Address,
    /// A GRO batch, that is, several datagrams that arrived together, of which some are not handled yet.
    /// The number is the index of the first of these.
    rest: Option<(Arrival, usize)>,
    /// The memory for the pieces of a call that probably arrive next, if the thread can predict these pieces.
    expected: Option<ExpectedPieces>,
    reply: ReplyState,
    serving: Serving,
}

/// A call that is ready to run.
pub(crate) struct Work {
    place: u32,
    sequence: u32,
    /// The time at which the last packet of the call arrived.
    came: Moment,
    group: u16,
    shape: Shape,
    row: Arc<BindingRow>,
    message: CallBytes,
}

impl Work {
    /// Returns the place of the caller's record.
    pub(crate) const fn caller(&self) -> u32 {
        self.place
    }

    /// Returns whether this is a call of the export through which clients ask for the server's health.
    pub(crate) fn is_of_health(&self) -> bool {
        self.row.is_of_health()
    }

    /// Returns the number of bytes of the message, not counting the extensions.
    const fn body(&self) -> u32 {
        self.shape.total.saturating_sub(self.shape.extension as u32)
    }
}

/// The place in memory where the bytes of a call are.
enum CallBytes {
    /// In the input memory of the thread that received the call.
    Received(Range<usize>),
    /// In memory that only this call uses. The second field is the number of bytes that the budget charges
    /// for it.
    Owned(EStack, usize),
}

/// The effect of a datagram on its record.
enum DatagramEffect {
    Nothing,
    Call(Work),
    /// The client does not need its record any more.
    Bye,
    /// The client does not wait any more for the reply to its deferred call.
    GivenUp(Arc<dyn Cancels>),
}

impl ServerSocket {
    /// Creates the server's end of a socket. `link` is the server's location on a link, if it has one.
    /// `incarnation` is a random number. All sockets of one server have the same `incarnation`. With
    /// `security`, the socket accepts only sealed packets.
    ///
    /// # Errors
    /// If setting up the socket fails, or if no random numbers are available.
    pub(crate) fn new(
        socket: Socket,
        link: Option<LinkAddress>,
        incarnation: u64,
        host: Arc<dyn ExportHost>,
        deferrals: Arc<Deferrals>,
        page: Arc<Page>,
        security: Option<ServerSecurity>,
    ) -> io::Result<Arc<Self>> {
        let buffer = socket.size_buffers(BUFFER_BYTES)?;
        let link =
            link.map(|LinkAddress { hardware, endpoint }| LinkLocation { hardware, endpoint });
        let (callers, share) = (limits::CALLERS_MAX, limits::CALLERS_PER_HOST);
        let (cookies, peers) = (Cookies::new(sys::random()?), sys::random()?);
        let number = u64::from_le_bytes(sys::random()?);
        let own = cookies.clone();
        let seal = move |this: &Weak<Self>| {
            security.map(|security| {
                ServerSeal::new(security, own, Weak::clone(this) as Weak<dyn SealHost>)
            })
        };
        Ok(Arc::new_cyclic(|this| {
            let sealed = seal(this);
            Self {
                socket: match &sealed {
                    None => socket,
                    Some(sealed) => socket.sealed(sealed.seal()),
                },
                sealed,
                link,
                host,
                records: Arc::new(Records::new(Weak::clone(this), deferrals)),
                table: Mutex::ranked(Rank::Callers, Table::new(callers as u32, share as u32)),
                departed: DepartedRows::default(),
                cookies,
                peers,
                number,
                incarnation,
                buffer,
                calls: MemoryBudget::new(limits::PARTIAL_BYTES_MAX, limits::PARTIAL_BYTES_PER_HOST),
                estacks: FreeList::new(limits::SPARE_BYTES_MAX),
                results: RetainedResults::new(),
                queued: FairQueue::new(Rank::Leaf),
                postponed: FairQueue::new(Rank::Postponed),
                replies: FairQueue::new(Rank::Postponed),
                reply_states: FreeList::new(REPLY_STATES_KEPT),
                swept: AtomicU64::new(0),
                dropped: AtomicU64::new(0),
                unsent: AtomicU64::new(0),
                refused: AtomicU64::new(0),
                unverified: UnverifiedHosts::new(),
                is_checking: AtomicBool::new(false),
                watch: OnceLock::new(),
                trust: OnceLock::new(),
                page,
                flows: Flows::default(),
                pacer: Pacer::default(),
                this: Weak::clone(this),
            }
        }))
    }

    /// Returns the number of polls between two readings of the clock.
    pub(crate) fn looks(&self) -> u32 {
        self.socket.looks()
    }

    /// Creates the state of a new receiving thread.
    pub(crate) fn receiver(&self) -> io::Result<ReceiverState> {
        let mut input = EStack::default();
        if !input.reserve(BYTES_MAX) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(ReceiverState {
            input,
            from: Address::default(),
            rest: None,
            expected: None,
            reply: ReplyState::new(),
            serving: Serving::new(Counting::new(&self.page, ThreadKind::Datagram)),
        })
    }

    /// Returns three numbers of datagrams: those that did not fit into the receive buffer, those that were
    /// rejected, and those that were not sent.
    pub(crate) fn losses(&self) -> [u64; 3] {
        let overflowed = self.socket.overflowed().unwrap_or(0);
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let forged = self.sealed.as_ref().map_or(0, |sealed| sealed.rejected());
        [overflowed, count(&self.dropped) + forged, count(&self.unsent)]
    }

    /// Ends the pacing thread, and wakes the threads that sleep in the kernel. From then on, no receiving
    /// thread sleeps in the kernel.
    pub(crate) fn close(&self) {
        self.pacer.close();
        self.socket.close();
    }

    /// Revokes all bindings to an export.
    pub(crate) fn revoke(&self, export: u64) {
        for record in self.records.all() {
            if let Some(row) = record.0.lock().row.as_ref().filter(|row| row.export == export) {
                row.revoke();
            }
        }
    }

    /// Revokes all bindings.
    pub(crate) fn revoke_all(&self) {
        for record in self.records.all() {
            if let Some(row) = &record.0.lock().row {
                row.revoke();
            }
        }
    }

    fn record(&self, place: u32) -> Option<&Record> {
        self.records.record(place)
    }

    /// Returns the number that identifies an address at this socket. Clients cannot predict this number.
    fn peer(&self, from: PeerAddress) -> u64 {
        use core::hash::{Hash as _, Hasher as _};
        let mut hasher = siphasher::sip::SipHasher13::new_with_key(&self.peers);
        from.hash(&mut hasher);
        hasher.finish()
    }

    /// Receives and handles datagrams, until one of them is a call that is ready to run. `alone` is true if
    /// no other thread receives.
    fn receive(
        &self,
        receiver: &mut ReceiverState,
        mode: ReceiveMode,
        alone: bool,
    ) -> ReceiveOutcome<Work> {
        if !alone && receiver.expected.is_some() {
            self.release_expected(receiver);
        }
        let until = match mode {
            ReceiveMode::Sleep => Until::Ever,
            ReceiveMode::Poll => Until::Now,
        };
        if receiver.expected.is_some() {
            if mode == ReceiveMode::Poll && !self.socket.may_have_arrived() {
                return ReceiveOutcome::Nothing;
            }
            match self.receive_expected(receiver, until) {
                None => return ReceiveOutcome::Nothing,
                Some(DatagramEffect::Call(work)) => return ReceiveOutcome::Work(work),
                Some(_) if receiver.rest.is_none() => return ReceiveOutcome::Settled,
                Some(_) => {}
            }
        }
        if receiver.rest.is_none() {
            let into = [Space::of_mut(receiver.input.memory())];
            match self.socket.receive(&into, Some(&mut receiver.from), until) {
                Ok(Some(arrival)) => receiver.rest = Some((arrival, 0)),
                // An error concerns only one datagram. So the thread continues to receive.
                Ok(None) | Err(_) => return ReceiveOutcome::Nothing,
            }
        }
        let work = self.take(receiver, alone);
        if self.queued.any() {
            self.give_room(receiver);
        }
        if self.replies.any() {
            self.send_postponed(&mut receiver.reply);
        }
        if self.departed.any() {
            self.drop_departed();
        }
        match work {
            Some(work) => ReceiveOutcome::Work(work),
            None => ReceiveOutcome::Settled,
        }
    }

    /// Handles the datagrams that have arrived, one by one, until a call is ready to run. Most datagrams of a
    /// batch are for one record. So the lock of the record is kept from one datagram to the next.
    fn take(&self, receiver: &mut ReceiverState, alone: bool) -> Option<Work> {
        let (arrival, first) = receiver.rest.take()?;
        let (now, mut peer) = (moment(), None);
        let mut held: Option<(u32, MutexGuard<'_, Inner>)> = None;
        for (number, at) in datagrams(arrival).enumerate().skip(first) {
            if arrival.cut && at.end == arrival.bytes {
                // The last datagram of the batch is truncated.
                break;
            }
            let payload = at.start + HEADER_BYTES..at.end;
            let memory = receiver.input.memory();
            let header = memory.get(at.clone()).and_then(<[u8]>::first_chunk);
            let header = header.and_then(|header| Header::parse(header, payload.len()).ok());
            let Some(header) = header.filter(|header| header.holds(&memory[payload.clone()]))
            else {
                let datagram = memory.get(at).unwrap_or(&[]);
                self.handle_unreadable(now, datagram, &receiver.from);
                continue;
            };
            let place = header.handle.place;
            if header.kind.binds() {
                // `bind` itself locks records. So this thread must not hold the lock of a record here.
                if let Some((_, before)) = held.take() {
                    self.send_pending(
                        before,
                        &mut receiver.reply.output,
                        &receiver.serving.counting,
                    );
                }
                let body = memory[payload].to_vec();
                self.bind(now, &header, &body, &receiver.from);
                continue;
            }
            if held.as_ref().is_none_or(|(locked, _)| *locked != place) {
                if let Some((_, before)) = held.take() {
                    self.send_pending(
                        before,
                        &mut receiver.reply.output,
                        &receiver.serving.counting,
                    );
                }
                let Some(record) = self.record(place) else {
                    let vacant = ServerEnd::vacant(place);
                    self.refuse(&vacant, now, &header, &receiver.from);
                    continue;
                };
                held = Some((place, record.0.lock()));
            }
            let Some((_, inner)) = &mut held else { continue };
            // A packet with the handle of this record, and from the client's last address, needs no further
            // check.
            let known = inner.to == receiver.from && inner.server_end.is_for(&header);
            let from = receiver.from;
            let mut peer = || *peer.get_or_insert_with(|| self.peer(PeerAddress::of(&from)));
            if !known && !inner.server_end.accepts(&header, peer()) {
                self.refuse(&inner.server_end, now, &header, &receiver.from);
                continue;
            }
            if inner.checked && header.kind.carries() && !header.flags.has(Flags::CHECKED) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            match self.handle_known(receiver, inner, now, &header, payload) {
                DatagramEffect::Nothing => {}
                DatagramEffect::Call(work) => {
                    if number + 1 < datagrams(arrival).len() {
                        receiver.rest = Some((arrival, number + 1));
                    }
                    if let Some((_, inner)) = held {
                        self.send_pending(
                            inner,
                            &mut receiver.reply.output,
                            &receiver.serving.counting,
                        );
                    }
                    return Some(work);
                }
                DatagramEffect::Bye => {
                    held = None;
                    self.bye(header.handle, &mut receiver.reply.spare);
                }
                DatagramEffect::GivenUp(cancels) => {
                    // The cancellation locks the record, in order to complete the call with a refusal.
                    drop(held.take());
                    cancels.cancel();
                    held = self.record(place).map(|record| (place, record.0.lock()));
                }
            }
        }
        if let Some((_, mut inner)) = held {
            if alone {
                self.expect_next(receiver, &mut inner);
            }
            self.send_pending(inner, &mut receiver.reply.output, &receiver.serving.counting);
        }
        None
    }

    /// Handles a datagram whose handle belongs to a record.
    fn handle_known(
        &self,
        receiver: &mut ReceiverState,
        inner: &mut Inner,
        now: Moment,
        header: &Header,
        payload: Range<usize>,
    ) -> DatagramEffect {
        if inner.lent.is_some() && inner.server_end.is_of_assembly(header) {
            // A thread has borrowed the memory of the call, so this piece cannot be stored. The client
            // retransmits the piece later.
            return DatagramEffect::Nothing;
        }
        let bitmap =
            if header.kind.carries() { &[] } else { &receiver.input.memory()[payload.clone()] };
        let effect = inner.handle(now, header, bitmap);
        let cancels = match header.kind {
            PacketKind::Cancel | PacketKind::Bye => self.note_given_up(inner),
            _ => None,
        };
        if !matches!(effect.action, Action::Dropped(why) if why != DropReason::Duplicate) {
            // A dropped packet does not change the address to which results are sent, unless the packet is a
            // duplicate.
            inner.to = receiver.from;
        }
        if effect.release
            && let Some(result) = inner.result.take()
        {
            self.results.release(&mut receiver.reply.spare, inner.group, result);
        }
        if header.kind == PacketKind::HaveResult && !matches!(effect.action, Action::Dropped(_)) {
            self.results.note_progress(inner.group);
        }
        if inner.waits != WaitingFor::Nothing {
            self.still_waits(receiver, inner, now, header);
        } else if header.kind == PacketKind::Probe
            && inner.server_end.phase() == RecordPhase::Running
            && inner.deferred.is_none()
        {
            // The probe shows that the client still waits for the procedure. The arguments of the procedure
            // occupy memory until the procedure ends or is deferred. So the probe counts as progress, and
            // calls that wait for this memory are not refused.
            self.calls.note_progress(inner.group);
        }
        match effect.action {
            Action::Dropped(DropReason::Duplicate) => receiver.serving.counting.came_again(),
            Action::Nothing | Action::Dropped(_) => {}
            Action::Begin(range) => {
                if !self.socket.has_gro() {
                    // Without GRO, the kernel delivers each datagram of a batch alone. Receiving costs a
                    // little less without GRO, so GRO is enabled only when the first batch arrives.
                    let _ = self.socket.enable_gro();
                }
                self.begin(receiver, inner, now, header);
                place(inner, receiver, range, payload);
            }
            Action::Place(range) => {
                self.calls.note_progress(inner.group);
                place(inner, receiver, range, payload);
            }
            Action::Execute(range) => {
                if header.fragments().count() > 1 {
                    place(inner, receiver, range, payload);
                    return inner.note_complete(now, header);
                }
                self.drop_call(inner);
                return inner.work(now, header, CallBytes::Received(payload));
            }
            Action::Discard => self.drop_call(inner),
            Action::Forget => {
                return DatagramEffect::Bye;
            }
        }
        cancels.map_or(DatagramEffect::Nothing, DatagramEffect::GivenUp)
    }

    // Calls.

    /// Returns whether a thread of this process waits for this call, directly or through further nested
    /// calls.
    pub(crate) fn is_from_inside(&self, receiver: &mut ReceiverState, work: &mut Work) -> bool {
        if work.shape.what == STREAMS {
            return true;
        }
        let extension = usize::from(work.shape.extension);
        extension > 0 && {
            let message = work.message.memory(&mut receiver.input, work.shape.total);
            extensions::is_from_inside(Window::from(message.get(..extension).unwrap_or(&[])))
        }
    }

    /// Runs a call and sends its result. For a large result, returns the time after sending it. For a small
    /// result, returns the time before sending it, because the client may run on this processor during the
    /// send.
    pub(crate) fn run(&self, receiver: &mut ReceiverState, mut work: Work) -> Moment {
        let is_given_up = work.message.begins_given_up(self, work.place);
        if self.host.is_stopping() && !work.row.is_of_health() {
            self.refuse_work(receiver, work, &Refusal::stopping());
            return moment();
        }
        if !is_given_up && work.row.admits(work.body()) && self.is_short_of_results(work.group) {
            self.wait_for_results(receiver, work);
            return moment();
        }
        let bytes = work.row.message_bytes;
        let Ok(mut frame) = self.results.frame(&mut receiver.reply.spare, bytes) else {
            self.refuse_work(receiver, work, &Refusal::exhausted("no memory for the result"));
            return moment();
        };
        let result = match work.shape.what {
            DESCRIBE => self.describe(&work, &mut frame).map(Some),
            _ => self.procedure(receiver, &mut work, is_given_up, &mut frame),
        };
        let result = match result {
            Ok(Some(result)) => result,
            Ok(None) => return self.leave_deferred(receiver, work, frame),
            Err(refusal) => {
                self.results.recycle(&mut receiver.reply.spare, frame);
                self.answer_refusal(receiver, work, &refusal);
                return moment();
            }
        };
        if let CallBytes::Owned(estack, bytes) = work.message {
            self.done_with(work.group, estack, bytes);
        }
        let ended = moment();
        if let Some(record) = self.record(work.place) {
            let mut inner = record.0.lock();
            let fresh = self.keep(&mut receiver.reply, &mut inner, result, frame);
            self.send_result(inner, fresh, &mut receiver.reply, &receiver.serving.counting);
            accounted::pass_end_of_call(work.shape.what, &work.row.caller);
            self.forget_closed(&mut receiver.reply);
        }
        if self.queued.any() {
            self.give_room(receiver);
        }
        if result.total as usize > COPIED { moment() } else { ended }
    }

    /// Runs the procedure of a call. The procedure builds its result in `frame`. Returns `None` if the call
    /// is deferred: another thread completes it.
    fn procedure(
        &self,
        receiver: &mut ReceiverState,
        work: &mut Work,
        is_given_up: bool,
        frame: &mut ResultFrame,
    ) -> Result<Option<Shape>, Refusal> {
        let bytes = work.body();
        let Work { place, sequence, came, shape, ref row, ref mut message, .. } = *work;
        let extension = usize::from(shape.extension);
        let ReceiverState { input, serving, reply: ReplyState { blocks, .. }, .. } = receiver;
        let (carried, message) =
            message.memory(input, shape.total).split_at_mut_checked(extension).unwrap_or_default();
        let call = IncomingCall {
            number: call_number(place, sequence),
            bytes,
            extensions: Window::from(&*carried),
            waited: || Duration::from_nanos(moment().since(came)),
            is_given_up: || is_given_up,
        };
        let calls = || Arc::clone(&self.records) as Arc<dyn Calls>;
        let refused = |refusal: &Refusal| row.report_refused(shape.what, bytes, refusal);
        let mut guard = serving.begin(row, call, calls).inspect_err(refused)?;
        self.ensure_callers_are_checked();
        steps::pass_admission();
        let reply = frame.reply(row.message_bytes);
        let placed = Placed {
            procedure: shape.what,
            message,
            head_bytes: shape.head as usize,
            copied: (shape.at as usize).saturating_sub(extension),
        };
        let ran = guard.run_caught(
            |serve| execute_in_place(serve, placed, reply, blocks),
            |refusal| refuse(reply, refusal),
        );
        if ran.answer == Answer::Deferred {
            guard.defer();
            return Ok(None);
        }
        let result = frame.pack(row.message_bytes, &ran, blocks);
        guard.end(ran.answer, result.total.into());
        Ok(Some(result))
    }

    /// Writes the description of the export into `frame`, as the head of a result.
    #[cold]
    fn describe(&self, work: &Work, frame: &mut ResultFrame) -> Result<Shape, Refusal> {
        let row = &work.row;
        let description = self.host.describe(row).filter(|_| row.admits(work.body()));
        let Some(description) = description else {
            return Err(BindingRow::refusal(Some(row), work.body()));
        };
        let bytes = wire_description::to_bytes(&description);
        let put = frame.reply(row.message_bytes).write(0, &bytes);
        put.ok_or_else(|| Refusal::exhausted("the description is too long"))?;
        frame.touch(bytes.len());
        let total = bytes.len() as u32;
        Ok(Shape { what: Answer::Ok as u32, total, head: total, at: 0, extension: 0 })
    }
}

impl Inner {
    /// Handles a packet with the handle of this record.
    #[inline]
    fn handle(&mut self, now: Moment, header: &Header, bitmap: &[u8]) -> Effect {
        self.server_end.handle(now, &*self.flow, header, bitmap)
    }

    /// Notes that a call that consists of several packets has arrived completely.
    fn note_complete(&mut self, now: Moment, header: &Header) -> DatagramEffect {
        let (estack, bytes) = self.call.take().unwrap_or_default();
        self.work(now, header, CallBytes::Owned(estack, bytes))
    }

    fn work(&self, came: Moment, header: &Header, message: CallBytes) -> DatagramEffect {
        let (place, group, shape) = (header.handle.place, self.group, header.shape);
        let Some(row) = self.row.as_ref().map(Arc::clone) else { return DatagramEffect::Nothing };
        let sequence = header.sequence;
        DatagramEffect::Call(Work { place, sequence, came, group, shape, row, message })
    }
}

impl CallBytes {
    /// Ends the wait of a call. Returns whether the call was cancelled while it waited. If the bytes of the
    /// call are still where they were received, the call has not waited.
    #[inline]
    fn begins_given_up(&self, service: &ServerSocket, place: u32) -> bool {
        let waited = matches!(self, Self::Owned(..));
        waited && service.stops_waiting(place)
    }

    /// Returns whether a waiting call was cancelled. If the bytes of the call are still where they were
    /// received, the call does not wait.
    #[inline]
    fn is_given_up(&self, service: &ServerSocket, place: u32) -> bool {
        let waited = matches!(self, Self::Owned(..));
        waited
            && service.record(place).is_some_and(|record| record.0.lock().server_end.is_cancelled())
    }

    fn memory<'a>(&'a mut self, input: &'a mut EStack, total: u32) -> &'a mut [u8] {
        let bytes = match self {
            Self::Received(range) => input.memory().get_mut(range.clone()),
            Self::Owned(estack, _) => estack.memory().get_mut(..total as usize),
        };
        bytes.unwrap_or(&mut [])
    }
}

impl core::fmt::Debug for ServerSocket {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ServerSocket").field("socket", &self.socket).finish_non_exhaustive()
    }
}
