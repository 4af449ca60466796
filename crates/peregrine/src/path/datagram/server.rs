//! The server's end of a datagram socket: records of callers, and the memory of their calls.
//!
//! Any thread may receive any packet. It locks the caller's record for as long as the protocol needs
//! to say what is to be done, and runs a call where it was received, with no lock held. The result is
//! put together in the thread's frame, and the record keeps it until it is acknowledged.

mod in_place;
mod liveness;
mod pacing;
mod places;
pub(crate) mod receivers;
mod records;
mod retention;
mod sending;
mod sockets;
#[cfg(test)]
mod tests;
mod waiting;

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::io;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use self::in_place::{ExpectedPieces, place};
pub(crate) use self::liveness::CHECKED_AFTER;
use self::liveness::KeeperReminder;
use self::pacing::{Flows, Pacer};
use self::records::{Inner, Record, Records, call_number};
use self::retention::{FreeList, MemoryBudget, ResultFrame, RetainedResults, ThreadCache};
use self::sending::UnverifiedHosts;
pub(crate) use self::sockets::Datagrams;
pub use self::sockets::Losses;
use self::waiting::{FairQueue, QueuedCall, WaitingFor};
use super::peer::{BUFFER_BYTES, PeerAddress, moment};
use super::wire::DESCRIBE;
use super::wire::packing::{pack, written};
use crate::call::{
    Answer, Calls, EStack, Placed, Ran, Refusal, execute_in_place, extensions, refuse,
};
use crate::counters::{Counting, Page, ThreadKind};
use crate::device::{Arrival, BYTES_MAX, LinkAddress, Socket, Until, datagrams};
use crate::error::Kind as ErrorKind;
use crate::limits;
use crate::protocol::description as wire_description;
use crate::protocol::exchange::bind::{Cookies, LinkLocation};
use crate::protocol::exchange::client_end::DropReason;
use crate::protocol::exchange::header::{Flags, HEADER_BYTES, Handle, Header, PacketKind};
use crate::protocol::exchange::message::Shape;
use crate::protocol::exchange::server_end::{Action, Effect, RecordPhase, Retain, ServerEnd};
use crate::protocol::exchange::table::Table;
use crate::protocol::exchange::time::{MILLISECOND, Moment};
use crate::serving::binding_table::BindingRow;
use crate::serving::procedure::{IncomingCall, Serving};
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys::{self, Address};
use crate::value::{Space, Window};

/// Bytes of a packet that are copied, for less than it costs a thread to wait for another one.
const COPIED: usize = 4096;
/// So often at most, those who hold memory are looked at for whether they are still heard of.
const SWEEP: u64 = 100 * MILLISECOND;

/// What the server decides for its sockets.
pub(crate) trait ExportHost: Send + Sync {
    /// A row for a new binding to a name, for messages of so many bytes, wanted from an address.
    ///
    /// # Errors
    /// Why there will be none.
    fn bind(
        &self,
        name: &str,
        digest: Option<[u8; 16]>,
        bytes: u64,
        from: &Address,
    ) -> Result<Arc<BindingRow>, (ErrorKind, String)>;

    /// What the export of a row says of itself, if it is still there.
    fn describe(&self, row: &BindingRow) -> Option<crate::interface::Description>;

    /// Whether calls are refused because the server stops.
    fn is_stopping(&self) -> bool;

    /// So many procedures more, or fewer, run although their callers have given them up.
    fn captured(&self, more: usize, fewer: usize);

    /// Runs the work of a service thread, again and again if it panics.
    fn outlive(&self, thread: &str, work: &mut dyn FnMut());
}

/// A socket to which any number of clients send, and what is known of each.
pub(crate) struct ServerSocket {
    socket: Socket,
    /// Where else this server is, on a link.
    link: Option<LinkLocation>,
    host: Arc<dyn ExportHost>,
    records: Arc<Records>,
    table: Mutex<Table>,
    cookies: Cookies,
    /// Keeps addresses from choosing with whom they share a number.
    peers: [u8; 16],
    /// Names the table of this socket, and no other: random.
    number: u64,
    /// Tells this server from others that listened here before or will.
    incarnation: u64,
    buffer: usize,
    /// Calls of several packets, or that wait, and memory for them.
    calls: MemoryBudget,
    estacks: FreeList<EStack>,
    results: RetainedResults,
    /// Calls that wait for room: at their clients, and here, for their results.
    line: FairQueue<QueuedCall>,
    deferred: FairQueue<Work>,
    /// When silent callers were last looked for.
    swept: AtomicU64,
    /// Datagrams that were not understood, and those that there was no room to send.
    dropped: AtomicU64,
    unsent: AtomicU64,
    unverified: UnverifiedHosts,
    /// Whether callers of procedures are looked after, and who is told that they are to be.
    is_checking: AtomicBool,
    remind: OnceLock<KeeperReminder>,
    page: Arc<Page>,
    flows: Flows,
    pacer: Pacer,
    /// For the thread that paces.
    this: Weak<Self>,
}

/// What a thread that receives has of its own.
pub(crate) struct ReceiverState {
    input: EStack,
    from: Address,
    /// Datagrams of a train that were not looked at yet: what arrived, and which is next.
    rest: Option<(Arrival, usize)>,
    /// What comes next, if that is known.
    expected: Option<ExpectedPieces>,
    output: Vec<u8>,
    spare: ThreadCache,
    /// Whose record is to be forgotten.
    leaves: Option<Handle>,
    blocks: Vec<u32>,
    serving: Serving,
}

/// A call that is to be run.
pub(crate) struct Work {
    place: u32,
    sequence: u32,
    /// When the last of it was taken off the wire.
    came: Moment,
    group: u16,
    shape: Shape,
    row: Arc<BindingRow>,
    message: CallBytes,
}

impl Work {
    /// Who calls.
    pub(crate) const fn caller(&self) -> u32 {
        self.place
    }

    /// Bytes of its message, without what it carries besides.
    const fn body(&self) -> u32 {
        self.shape.total.saturating_sub(self.shape.extension as u32)
    }
}

/// Where the bytes of a call are.
enum CallBytes {
    /// In the hand that received it.
    Received(Range<usize>),
    /// In memory of its own, for which so much is reckoned.
    Owned(EStack, usize),
}

/// What was received.
pub(crate) enum Got {
    Nothing,
    Settled,
    Work(Work),
}

/// What a datagram was to its record.
enum DatagramEffect {
    Nothing,
    Call(Work),
    /// Its caller does not need it any more.
    Bye,
}

impl ServerSocket {
    /// Serves whoever sends to a socket. `link`: where else this server is; `incarnation`: random, the
    /// same for all places of one server.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) fn new(
        socket: Socket,
        link: Option<LinkAddress>,
        incarnation: u64,
        host: Arc<dyn ExportHost>,
        page: Arc<Page>,
    ) -> io::Result<Arc<Self>> {
        let buffer = socket.size_buffers(BUFFER_BYTES)?;
        let link =
            link.map(|LinkAddress { hardware, endpoint }| LinkLocation { hardware, endpoint });
        let (callers, share) = (limits::CALLERS_MAX, limits::CALLERS_PER_HOST);
        let (cookies, peers) = (Cookies::new(sys::random()?), sys::random()?);
        let number = u64::from_le_bytes(sys::random()?);
        Ok(Arc::new_cyclic(|this| Self {
            socket,
            link,
            host,
            records: Arc::new(Records::new()),
            table: Mutex::ranked(Rank::Callers, Table::new(callers as u32, share as u32)),
            cookies,
            peers,
            number,
            incarnation,
            buffer,
            calls: MemoryBudget::new(limits::PARTIAL_BYTES_MAX, limits::PARTIAL_BYTES_PER_HOST),
            estacks: FreeList::new(limits::SPARE_BYTES_MAX),
            results: RetainedResults::new(),
            line: FairQueue::new(Rank::Leaf),
            deferred: FairQueue::new(Rank::Deferred),
            swept: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
            unverified: UnverifiedHosts::new(),
            is_checking: AtomicBool::new(false),
            remind: OnceLock::new(),
            page,
            flows: Flows::default(),
            pacer: Pacer::default(),
            this: Weak::clone(this),
        }))
    }

    /// How many looks are worth a look at the clock.
    pub(crate) fn looks(&self) -> u32 {
        self.socket.looks()
    }

    /// What a new thread needs.
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
            output: vec![0; BYTES_MAX],
            spare: ThreadCache::default(),
            leaves: None,
            blocks: Vec::new(),
            serving: Serving::new(Counting::new(&self.page, ThreadKind::Datagram)),
        })
    }

    /// Datagrams that found no room, those that were not understood, and those that were not sent.
    pub(crate) fn losses(&self) -> [u64; 3] {
        let overflowed = self.socket.overflowed().unwrap_or(0);
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        [overflowed, count(&self.dropped), count(&self.unsent)]
    }

    /// Makes threads that sleep in receiving come back.
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

    /// A number for a host, which nobody can choose.
    fn peer(&self, from: PeerAddress) -> u64 {
        use core::hash::{Hash as _, Hasher as _};
        let mut hasher = siphasher::sip::SipHasher13::new_with_key(&self.peers);
        from.hash(&mut hasher);
        hasher.finish()
    }

    /// Takes the next datagram; asleep it waits for one. `alone`: no other thread receives.
    pub(crate) fn receive(&self, receiver: &mut ReceiverState, asleep: bool, alone: bool) -> Got {
        if !alone && receiver.expected.is_some() {
            self.release_expected(receiver);
        }
        let until = if asleep { Until::Ever } else { Until::Now };
        if receiver.expected.is_some() {
            if !asleep && !self.socket.may_have_arrived() {
                return Got::Nothing;
            }
            match self.receive_expected(receiver, until) {
                None => return Got::Nothing,
                Some(DatagramEffect::Call(work)) => return Got::Work(work),
                Some(_) if receiver.rest.is_none() => return Got::Settled,
                Some(_) => {}
            }
        }
        if receiver.rest.is_none() {
            let into = [Space::of_mut(receiver.input.memory())];
            match self.socket.receive(&into, Some(&mut receiver.from), until) {
                Ok(Some(arrival)) => receiver.rest = Some((arrival, 0)),
                // What is wrong with one datagram is no reason to stop.
                Ok(None) | Err(_) => return Got::Nothing,
            }
        }
        let work = self.take(receiver, alone);
        if self.line.any() {
            self.give_room(receiver);
        }
        match work {
            Some(work) => Got::Work(work),
            None => Got::Settled,
        }
    }

    /// What arrived, datagram by datagram, up to a call to run. Most of a train is for one record:
    /// that is locked once.
    fn take(&self, receiver: &mut ReceiverState, alone: bool) -> Option<Work> {
        let (arrival, first) = receiver.rest.take()?;
        let (now, mut peer) = (moment(), None);
        let mut held: Option<(u32, MutexGuard<'_, Inner>)> = None;
        for (number, at) in datagrams(arrival).enumerate().skip(first) {
            if arrival.cut && at.end == arrival.bytes {
                // The rest of it is lost.
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
                // That locks records itself.
                if let Some((_, before)) = held.take() {
                    self.send_pending(before, &mut receiver.output, &receiver.serving.counting);
                }
                let body = memory[payload].to_vec();
                self.bind(now, &header, &body, &receiver.from);
                continue;
            }
            if held.as_ref().is_none_or(|(locked, _)| *locked != place) {
                if let Some((_, before)) = held.take() {
                    self.send_pending(before, &mut receiver.output, &receiver.serving.counting);
                }
                let Some(record) = self.record(place) else {
                    let nobody = ServerEnd::vacant(place);
                    self.refuse(&nobody, now, &header, &receiver.from);
                    continue;
                };
                held = Some((place, record.0.lock()));
            }
            let Some((_, inner)) = &mut held else { continue };
            // Who is where it was heard last is who it was.
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
            match self.heard(receiver, inner, now, &header, payload) {
                DatagramEffect::Nothing => {}
                DatagramEffect::Call(work) => {
                    if number + 1 < datagrams(arrival).len() {
                        receiver.rest = Some((arrival, number + 1));
                    }
                    if let Some((_, inner)) = held {
                        self.send_pending(inner, &mut receiver.output, &receiver.serving.counting);
                    }
                    return Some(work);
                }
                DatagramEffect::Bye => {
                    held = None;
                    self.bye(header.handle, &mut receiver.spare);
                }
            }
        }
        if let Some((_, mut inner)) = held {
            if alone {
                self.expect_next(receiver, &mut inner);
            }
            self.send_pending(inner, &mut receiver.output, &receiver.serving.counting);
        }
        None
    }

    /// A datagram for a record that knows it.
    fn heard(
        &self,
        receiver: &mut ReceiverState,
        inner: &mut Inner,
        now: Moment,
        header: &Header,
        payload: Range<usize>,
    ) -> DatagramEffect {
        if inner.lent.is_some() && inner.server_end.is_of_assembly(header) {
            // There is no place for it now: as good as lost.
            return DatagramEffect::Nothing;
        }
        let bitmap =
            if header.kind.carries() { &[] } else { &receiver.input.memory()[payload.clone()] };
        let effect = inner.handle(now, header, bitmap);
        if matches!(header.kind, PacketKind::Cancel | PacketKind::Bye) {
            self.note_given_up(inner);
        }
        if !matches!(effect.action, Action::Dropped(why) if why != DropReason::Duplicate) {
            // Whoever repeats what is over gets no result for it.
            inner.to = receiver.from;
        }
        if effect.release
            && let Some(result) = inner.result.take()
        {
            self.results.release(&mut receiver.spare, inner.group, result);
        }
        if header.kind == PacketKind::HaveResult && !matches!(effect.action, Action::Dropped(_)) {
            self.results.note_progress(inner.group);
        }
        if inner.waits != WaitingFor::Nothing {
            self.still_waits(receiver, inner, now, header);
        } else if header.kind == PacketKind::Probe
            && inner.server_end.phase() == RecordPhase::Running
        {
            // Its arguments take room for as long as its procedure runs.
            self.calls.note_progress(inner.group);
        }
        match effect.action {
            Action::Dropped(DropReason::Duplicate) => receiver.serving.counting.came_again(),
            Action::Nothing | Action::Dropped(_) => {}
            Action::Begin(range) => {
                if !self.socket.has_gro() {
                    // Otherwise each datagram of a train comes alone. Until the first of them is
                    // seen, receiving costs a little less without.
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
                    return inner.whole(now, header);
                }
                self.drop_call(inner);
                return inner.work(now, header, CallBytes::Received(payload));
            }
            Action::Discard => self.drop_call(inner),
            Action::Forget => {
                return DatagramEffect::Bye;
            }
        }
        DatagramEffect::Nothing
    }

    // Calls.

    /// Whether a thread of this process waits for the call to end, by way of others.
    pub(crate) fn is_from_inside(&self, receiver: &mut ReceiverState, work: &mut Work) -> bool {
        let extension = usize::from(work.shape.extension);
        extension > 0 && {
            let message = work.message.memory(&mut receiver.input, work.shape.total);
            extensions::is_from_inside(Window::from(message.get(..extension).unwrap_or(&[])))
        }
    }

    /// Answers a call that is not run.
    #[cold]
    pub(crate) fn refuse_work(&self, receiver: &mut ReceiverState, work: Work, refusal: &Refusal) {
        receiver.serving.counting.refused(Some(&work.row.tally));
        self.answer_refusal(receiver, work, refusal);
    }

    /// As [`refuse_work`](Self::refuse_work), of a call that is counted as refused already.
    #[cold]
    fn answer_refusal(&self, receiver: &mut ReceiverState, work: Work, refusal: &Refusal) {
        if let CallBytes::Owned(estack, bytes) = work.message {
            self.done_with(work.group, estack, bytes);
        }
        let Some(record) = self.record(work.place) else { return };
        let mut inner = record.0.lock();
        inner.waits = WaitingFor::Nothing;
        self.reply_refusal(receiver, &mut inner, refusal);
        self.send_pending(inner, &mut receiver.output, &receiver.serving.counting);
        self.forget_closed(receiver);
        if self.line.any() {
            self.give_room(receiver);
        }
    }

    /// Answers the call of a record, whose thread panicked outside of its procedure.
    #[cold]
    pub(crate) fn fail(&self, receiver: &mut ReceiverState, place: u32, refusal: &Refusal) {
        receiver.serving.forget();
        let Some(record) = self.record(place) else { return };
        let mut inner = record.0.lock();
        self.reply_refusal(receiver, &mut inner, refusal);
        self.send_pending(inner, &mut receiver.output, &receiver.serving.counting);
    }

    /// Replies with a refusal.
    #[cold]
    fn reply_refusal(&self, receiver: &mut ReceiverState, inner: &mut Inner, refusal: &Refusal) {
        // Without memory nothing is kept, and what the client asks for again is empty.
        let frame = self.results.frame(&mut receiver.spare, limits::MESSAGE_BYTES_MIN);
        let space = frame.as_ref().map(|frame| frame.reply(limits::MESSAGE_BYTES_MIN));
        let Ran { answer, head_at: at, head_bytes: head, .. } =
            refuse(space.unwrap_or(Space::none()), refusal);
        let shape = Shape { what: answer as u32, total: at + head, head, at, extension: 0 };
        match frame {
            Ok(mut frame) => {
                frame.touch(shape.total as usize);
                self.keep(receiver, inner, shape, frame);
            }
            Err(_) => {
                self.ends(inner);
                inner.server_end.complete(Shape { total: 0, head: 0, at: 0, ..shape });
            }
        }
    }

    #[inline]
    fn keep(
        &self,
        receiver: &mut ReceiverState,
        inner: &mut Inner,
        shape: Shape,
        frame: ResultFrame,
    ) {
        self.ends(inner);
        let (spare, group) = (&mut receiver.spare, inner.group);
        match inner.server_end.complete(shape) {
            Retain::Keep => {
                inner.result = Some(self.results.keep(spare, group, frame, shape.total));
            }
            Retain::Drop => self.results.recycle(spare, frame),
            Retain::Forget => {
                self.results.recycle(spare, frame);
                receiver.leaves = Some(inner.server_end.bound_handle());
            }
        }
    }

    /// Forgets the record of a caller that said goodbye while its last call ran, once that has ended
    /// and no record is locked.
    #[inline]
    fn forget_closed(&self, receiver: &mut ReceiverState) {
        if let Some(handle) = receiver.leaves.take() {
            self.bye(handle, &mut receiver.spare);
        }
    }

    /// Runs a call and sends its result. When that was done, but for sending a small one: meanwhile
    /// the client may have run, on this very processor.
    pub(crate) fn run(&self, receiver: &mut ReceiverState, mut work: Work) -> Moment {
        let is_given_up = work.message.begins_given_up(self, work.place);
        if self.host.is_stopping() {
            self.refuse_work(receiver, work, &Refusal::stopping());
            return moment();
        }
        if !is_given_up && work.row.admits(work.body()) && self.is_short_of_results(work.group) {
            self.wait_for_results(receiver, work);
            return moment();
        }
        let bytes = work.row.message_bytes;
        let Ok(mut frame) = self.results.frame(&mut receiver.spare, bytes) else {
            self.refuse_work(receiver, work, &Refusal::exhausted("no memory for the result"));
            return moment();
        };
        let result = match work.shape.what {
            DESCRIBE => self.describe(&work, &mut frame),
            _ => self.procedure(receiver, &mut work, is_given_up, &mut frame),
        };
        let result = match result {
            Ok(result) => result,
            Err(refusal) => {
                self.results.recycle(&mut receiver.spare, frame);
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
            self.keep(receiver, &mut inner, result, frame);
            self.send_pending(inner, &mut receiver.output, &receiver.serving.counting);
            self.forget_closed(receiver);
        }
        if self.line.any() {
            self.give_room(receiver);
        }
        if result.total as usize > COPIED { moment() } else { ended }
    }

    /// Runs the procedure of a call; its result is in the frame.
    fn procedure(
        &self,
        receiver: &mut ReceiverState,
        work: &mut Work,
        is_given_up: bool,
        frame: &mut ResultFrame,
    ) -> Result<Shape, Refusal> {
        let bytes = work.body();
        let Work { place, sequence, came, shape, ref row, ref mut message, .. } = *work;
        let extension = usize::from(shape.extension);
        let ReceiverState { input, blocks, serving, .. } = receiver;
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
        let mut guard = serving.begin(row, call, calls)?;
        self.note_procedure_runs();
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
        let Ran { answer, head_at, head_bytes, .. } = ran;
        let outs = if answer == Answer::Ok { &**blocks } else { &[] };
        let touched = match answer {
            Answer::Ok => written(reply, outs).max(head_at as usize + head_bytes as usize),
            // What the procedure had begun before.
            _ => row.message_bytes,
        };
        let (at, total) = pack(reply, outs, head_at as usize, head_bytes as usize);
        let (at, total) = (at as u32, total as u32);
        guard.end(answer, total.into());
        frame.touch(touched);
        Ok(Shape { what: answer as u32, total, head: head_bytes, at, extension: 0 })
    }

    /// What the export says of itself, as the head of a result.
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
    /// A packet that its record knows.
    #[inline]
    fn handle(&mut self, now: Moment, header: &Header, bitmap: &[u8]) -> Effect {
        self.server_end.handle(now, &*self.flow, header, bitmap)
    }

    /// All of a call has come.
    fn whole(&mut self, now: Moment, header: &Header) -> DatagramEffect {
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
    /// The procedure is about to run: whether the call was given up while it waited. Those that did
    /// not wait are not looked at.
    #[inline]
    fn begins_given_up(&self, service: &ServerSocket, place: u32) -> bool {
        let waited = matches!(self, Self::Owned(..));
        waited && service.stops_waiting(place)
    }

    /// Whether the call of a record was given up meanwhile. Those that did not wait are not looked at.
    #[inline]
    fn is_given_up(&self, service: &ServerSocket, place: u32) -> bool {
        let waited = matches!(self, Self::Owned(..));
        waited
            && service.record(place).is_some_and(|record| record.0.lock().server_end.is_cancelled())
    }

    fn memory<'a>(&'a mut self, input: &'a mut EStack, total: u32) -> &'a mut [u8] {
        let whole = match self {
            Self::Received(range) => input.memory().get_mut(range.clone()),
            Self::Owned(estack, _) => estack.memory().get_mut(..total as usize),
        };
        whole.unwrap_or(&mut [])
    }
}

impl core::fmt::Debug for ServerSocket {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ServerSocket").field("socket", &self.socket).finish_non_exhaustive()
    }
}
