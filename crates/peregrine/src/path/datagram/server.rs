//! The server's end of a datagram socket: records of callers, and the memory of their calls.
//!
//! Any thread may receive any packet. It locks the caller's record for as long as the protocol needs
//! to say what is to be done, and runs a call where it was received, with no lock held. The result is
//! put together in the thread's frame, and the record keeps it until it is acknowledged.

mod expecting;
mod pacing;
mod places;
pub(crate) mod receivers;
mod records;
mod room;
mod sending;
mod sockets;
mod tending;
#[cfg(test)]
mod tests;

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::io;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use self::expecting::{Expected, place};
use self::pacing::{Flows, Pacer};
use self::records::{Inner, Record, Records, name_of};
use self::room::{Line, Waiter, Waits};
use self::sending::Strangers;
pub(crate) use self::sockets::Datagrams;
pub use self::sockets::Losses;
use self::tending::Remind;
pub(crate) use self::tending::TENDED_AFTER;
use super::keeping::{Frame, Holdings, Peer, Results, Shelf, Spare};
use super::packing::{pack, written};
use super::{BUFFER_BYTES, moment};
use crate::call::{
    Answer, Calls, EStack, Placed, Ran, Refusal, execute_in_place, extensions, refuse,
};
use crate::counters::{Counting, Page, ThreadKind};
use crate::device::{Arrival, BYTES_MAX, Node, Socket, Until, datagrams};
use crate::error::Kind as Why;
use crate::limits;
use crate::protocol::exchange::bind::{Cookies, OnLink};
use crate::protocol::exchange::callee::{Callee, Received, Retain, Standing, Then};
use crate::protocol::exchange::caller::Dropped;
use crate::protocol::exchange::header::{Flags, HEADER_BYTES, Handle, Header, Kind};
use crate::protocol::exchange::message::Shape;
use crate::protocol::exchange::table::Table;
use crate::protocol::exchange::time::{MILLISECOND, Moment};
use crate::protocol::stream::description_to_bytes;
use crate::serving::binding_table::BindingRow;
use crate::serving::procedure::{Begins, Serving};
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys::{self, Address};
use crate::value::{Space, Window};

/// Bytes of a packet that are copied, for less than it costs a thread to wait for another one.
const COPIED: usize = 4096;
/// So often at most, those who hold memory are looked at for whether they are still heard of.
const SWEEP: u64 = 100 * MILLISECOND;
/// The procedure that tells what is exported, of every export.
pub(crate) const DESCRIBE: u32 = u32::MAX - 1;

/// What the server decides for its sockets.
pub(crate) trait Host: Send + Sync {
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
    ) -> Result<Arc<BindingRow>, (Why, String)>;

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
pub(crate) struct Service {
    socket: Socket,
    /// Where else this server is, on a link.
    link: Option<OnLink>,
    host: Arc<dyn Host>,
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
    calls: Holdings,
    estacks: Shelf<EStack>,
    results: Results,
    /// Calls that wait for room: at their clients, and here, for their results.
    line: Line<Waiter>,
    deferred: Line<Work>,
    /// When silent callers were last looked for.
    swept: AtomicU64,
    /// Datagrams that were not understood, and those that there was no room to send.
    dropped: AtomicU64,
    unsent: AtomicU64,
    strangers: Strangers,
    /// Whether callers of procedures are looked after, and who is told that they are to be.
    tended: AtomicBool,
    remind: OnceLock<Remind>,
    page: Arc<Page>,
    flows: Flows,
    pacer: Pacer,
    /// For the thread that paces.
    this: Weak<Self>,
}

/// What a thread that receives has of its own.
pub(crate) struct Hand {
    input: EStack,
    from: Address,
    /// Datagrams of a train that were not looked at yet: what arrived, and which is next.
    rest: Option<(Arrival, usize)>,
    /// What comes next, if that is known.
    expected: Option<Expected>,
    output: Vec<u8>,
    spare: Spare,
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
    message: Where,
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
enum Where {
    /// In the hand that received it.
    Hand(Range<usize>),
    /// In memory of its own, for which so much is reckoned.
    Own(EStack, usize),
}

/// What was received.
pub(crate) enum Got {
    Nothing,
    Settled,
    Work(Work),
}

/// What a datagram was to its record.
enum Heard {
    Nothing,
    Call(Work),
    /// Its caller does not need it any more.
    Bye,
}

impl Service {
    /// Serves whoever sends to a socket. `link`: where else this server is; `incarnation`: random, the
    /// same for all places of one server.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) fn new(
        socket: Socket,
        link: Option<Node>,
        incarnation: u64,
        host: Arc<dyn Host>,
        page: Arc<Page>,
    ) -> io::Result<Arc<Self>> {
        let buffer = socket.size_buffers(BUFFER_BYTES)?;
        let link = link.map(|Node { hardware, endpoint }| OnLink { hardware, endpoint });
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
            calls: Holdings::new(limits::PARTIAL_BYTES_MAX, limits::PARTIAL_BYTES_PER_HOST),
            estacks: Shelf::new(limits::SPARE_BYTES_MAX),
            results: Results::new(),
            line: Line::new(Rank::Leaf),
            deferred: Line::new(Rank::Deferred),
            swept: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
            strangers: Strangers::new(),
            tended: AtomicBool::new(false),
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
    pub(crate) fn hand(&self) -> io::Result<Hand> {
        let mut input = EStack::default();
        if !input.reserve(BYTES_MAX) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(Hand {
            input,
            from: Address::default(),
            rest: None,
            expected: None,
            output: vec![0; BYTES_MAX],
            spare: Spare::default(),
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
    fn peer(&self, from: Peer) -> u64 {
        use core::hash::{Hash as _, Hasher as _};
        let mut hasher = siphasher::sip::SipHasher13::new_with_key(&self.peers);
        from.hash(&mut hasher);
        hasher.finish()
    }

    /// Takes the next datagram; asleep it waits for one. `alone`: no other thread receives.
    pub(crate) fn receive(&self, hand: &mut Hand, asleep: bool, alone: bool) -> Got {
        if !alone && hand.expected.is_some() {
            self.put_down(hand);
        }
        let until = if asleep { Until::Ever } else { Until::Now };
        if hand.expected.is_some() {
            if !asleep && !self.socket.may_have_come() {
                return Got::Nothing;
            }
            match self.receive_expected(hand, until) {
                None => return Got::Nothing,
                Some(Heard::Call(work)) => return Got::Work(work),
                Some(_) if hand.rest.is_none() => return Got::Settled,
                Some(_) => {}
            }
        }
        if hand.rest.is_none() {
            let into = [Space::of_mut(hand.input.memory())];
            match self.socket.receive(&into, Some(&mut hand.from), until) {
                Ok(Some(arrival)) => hand.rest = Some((arrival, 0)),
                // What is wrong with one datagram is no reason to stop.
                Ok(None) | Err(_) => return Got::Nothing,
            }
        }
        let work = self.take(hand, alone);
        if self.line.any() {
            self.give_room(hand);
        }
        match work {
            Some(work) => Got::Work(work),
            None => Got::Settled,
        }
    }

    /// What arrived, datagram by datagram, up to a call to run. Most of a train is for one record:
    /// that is locked once.
    fn take(&self, hand: &mut Hand, alone: bool) -> Option<Work> {
        let (arrival, first) = hand.rest.take()?;
        let (now, mut peer) = (moment(), None);
        let mut held: Option<(u32, MutexGuard<'_, Inner>)> = None;
        for (number, at) in datagrams(arrival).enumerate().skip(first) {
            if arrival.cut && at.end == arrival.bytes {
                // The rest of it is lost.
                break;
            }
            let payload = at.start + HEADER_BYTES..at.end;
            let memory = hand.input.memory();
            let header = memory.get(at.clone()).and_then(<[u8]>::first_chunk);
            let header = header.and_then(|header| Header::parse(header, payload.len()).ok());
            let Some(header) = header.filter(|header| header.holds(&memory[payload.clone()]))
            else {
                let datagram = memory.get(at).unwrap_or(&[]);
                self.not_understood(now, datagram, &hand.from);
                continue;
            };
            let place = header.handle.place;
            if header.kind.binds() {
                // That locks records itself.
                if let Some((_, before)) = held.take() {
                    self.say(before, &mut hand.output, &hand.serving.counting);
                }
                let body = memory[payload].to_vec();
                self.bind(now, &header, &body, &hand.from);
                continue;
            }
            if held.as_ref().is_none_or(|(locked, _)| *locked != place) {
                if let Some((_, before)) = held.take() {
                    self.say(before, &mut hand.output, &hand.serving.counting);
                }
                let Some(record) = self.record(place) else {
                    let nobody = Callee::vacant(place);
                    self.refuse(&nobody, now, &header, &hand.from);
                    continue;
                };
                held = Some((place, record.0.lock()));
            }
            let Some((_, inner)) = &mut held else { continue };
            // Who is where it was heard last is who it was.
            let known = inner.to == hand.from && inner.callee.is_for(&header);
            let from = hand.from;
            let mut peer = || *peer.get_or_insert_with(|| self.peer(Peer::of(&from)));
            if !known && !inner.callee.knows(&header, peer()) {
                self.refuse(&inner.callee, now, &header, &hand.from);
                continue;
            }
            if inner.checked && header.kind.carries() && !header.flags.has(Flags::CHECKED) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            match self.heard(hand, inner, now, &header, payload) {
                Heard::Nothing => {}
                Heard::Call(work) => {
                    if number + 1 < datagrams(arrival).len() {
                        hand.rest = Some((arrival, number + 1));
                    }
                    if let Some((_, inner)) = held {
                        self.say(inner, &mut hand.output, &hand.serving.counting);
                    }
                    return Some(work);
                }
                Heard::Bye => {
                    held = None;
                    self.bye(header.handle, &mut hand.spare);
                }
            }
        }
        if let Some((_, mut inner)) = held {
            if alone {
                self.expect(hand, &mut inner);
            }
            self.say(inner, &mut hand.output, &hand.serving.counting);
        }
        None
    }

    /// A datagram for a record that knows it.
    fn heard(
        &self,
        hand: &mut Hand,
        inner: &mut Inner,
        now: Moment,
        header: &Header,
        payload: Range<usize>,
    ) -> Heard {
        if inner.lent.is_some() && inner.callee.is_of_assembly(header) {
            // There is no place for it now: as good as lost.
            return Heard::Nothing;
        }
        let bitmap =
            if header.kind.carries() { &[] } else { &hand.input.memory()[payload.clone()] };
        let received = inner.handle(now, header, bitmap);
        if matches!(header.kind, Kind::Quit | Kind::Bye) {
            self.note_given_up(inner);
        }
        if !matches!(received.then, Then::Dropped(why) if why != Dropped::Again) {
            // Whoever repeats what is over gets no result for it.
            inner.to = hand.from;
        }
        if received.release
            && let Some(result) = inner.result.take()
        {
            self.results.release(&mut hand.spare, inner.group, result);
        }
        if header.kind == Kind::HaveResult && !matches!(received.then, Then::Dropped(_)) {
            self.results.goes_on(inner.group);
        }
        if inner.waits != Waits::No {
            self.still_waits(hand, inner, now, header);
        } else if header.kind == Kind::Probe && inner.callee.standing() == Standing::Running {
            // Its arguments take room for as long as its procedure runs.
            self.calls.goes_on(inner.group);
        }
        match received.then {
            Then::Dropped(Dropped::Again) => hand.serving.counting.came_again(),
            Then::Nothing | Then::Dropped(_) => {}
            Then::Begin(range) => {
                if !self.socket.merges() {
                    // Otherwise each datagram of a train comes alone. Until the first of them is
                    // seen, receiving costs a little less without.
                    let _ = self.socket.merge();
                }
                self.begin(hand, inner, now, header);
                place(inner, hand, range, payload);
            }
            Then::Place(range) => {
                self.calls.goes_on(inner.group);
                place(inner, hand, range, payload);
            }
            Then::Execute(range) => {
                if header.cut().count() > 1 {
                    place(inner, hand, range, payload);
                    return inner.whole(now, header);
                }
                self.drop_call(inner);
                return inner.work(now, header, Where::Hand(payload));
            }
            Then::Abandon => self.drop_call(inner),
            Then::Forget => {
                return Heard::Bye;
            }
        }
        Heard::Nothing
    }

    // Calls.

    /// Whether a thread of this process waits for the call to end, by way of others.
    pub(crate) fn is_from_inside(&self, hand: &mut Hand, work: &mut Work) -> bool {
        let extension = usize::from(work.shape.extension);
        extension > 0 && {
            let message = work.message.memory(&mut hand.input, work.shape.total);
            extensions::is_from_inside(Window::from(message.get(..extension).unwrap_or(&[])))
        }
    }

    /// Answers a call that is not run.
    #[cold]
    pub(crate) fn refuse_work(&self, hand: &mut Hand, work: Work, refusal: &Refusal) {
        hand.serving.counting.refused(Some(&work.row.tally));
        self.answer_refusal(hand, work, refusal);
    }

    /// As [`refuse_work`](Self::refuse_work), of a call that is counted as refused already.
    #[cold]
    fn answer_refusal(&self, hand: &mut Hand, work: Work, refusal: &Refusal) {
        if let Where::Own(estack, bytes) = work.message {
            self.done_with(work.group, estack, bytes);
        }
        let Some(record) = self.record(work.place) else { return };
        let mut inner = record.0.lock();
        inner.waits = Waits::No;
        self.reply_no(hand, &mut inner, refusal);
        self.say(inner, &mut hand.output, &hand.serving.counting);
        self.part(hand);
        if self.line.any() {
            self.give_room(hand);
        }
    }

    /// Answers the call of a record, whose thread panicked outside of its procedure.
    #[cold]
    pub(crate) fn fail(&self, hand: &mut Hand, place: u32, refusal: &Refusal) {
        hand.serving.forget();
        let Some(record) = self.record(place) else { return };
        let mut inner = record.0.lock();
        self.reply_no(hand, &mut inner, refusal);
        self.say(inner, &mut hand.output, &hand.serving.counting);
    }

    /// Replies with a refusal.
    #[cold]
    fn reply_no(&self, hand: &mut Hand, inner: &mut Inner, refusal: &Refusal) {
        // Without memory nothing is kept, and what the client asks for again is empty.
        let frame = self.results.frame(&mut hand.spare, limits::MESSAGE_BYTES_MIN);
        let space = frame.as_ref().map(|frame| frame.reply(limits::MESSAGE_BYTES_MIN));
        let Ran { answer, head_at: at, head_bytes: head, .. } =
            refuse(space.unwrap_or(Space::none()), refusal);
        let shape = Shape { what: answer as u32, total: at + head, head, at, extension: 0 };
        match frame {
            Ok(mut frame) => {
                frame.touch(shape.total as usize);
                self.keep(hand, inner, shape, frame);
            }
            Err(_) => {
                self.ends(inner);
                inner.callee.replied(Shape { total: 0, head: 0, at: 0, ..shape });
            }
        }
    }

    #[inline]
    fn keep(&self, hand: &mut Hand, inner: &mut Inner, shape: Shape, frame: Frame) {
        self.ends(inner);
        let (spare, group) = (&mut hand.spare, inner.group);
        match inner.callee.replied(shape) {
            Retain::Keep => {
                inner.result = Some(self.results.keep(spare, group, frame, shape.total));
            }
            Retain::Drop => self.results.give_back(spare, frame),
            Retain::Forget => {
                self.results.give_back(spare, frame);
                hand.leaves = Some(inner.callee.handle_of());
            }
        }
    }

    /// Forgets the record of a caller that said goodbye while its last call ran, once that has ended
    /// and no record is locked.
    #[inline]
    fn part(&self, hand: &mut Hand) {
        if let Some(handle) = hand.leaves.take() {
            self.bye(handle, &mut hand.spare);
        }
    }

    /// Runs a call and sends its result. When that was done, but for sending a small one: meanwhile
    /// the client may have run, on this very processor.
    pub(crate) fn run(&self, hand: &mut Hand, mut work: Work) -> Moment {
        let is_given_up = work.message.begins_given_up(self, work.place);
        if self.host.is_stopping() {
            self.refuse_work(hand, work, &Refusal::stopping());
            return moment();
        }
        if !is_given_up && work.row.admits(work.body()) && self.is_short_of_results(work.group) {
            self.wait_for_results(hand, work);
            return moment();
        }
        let bytes = work.row.message_bytes;
        let Ok(mut frame) = self.results.frame(&mut hand.spare, bytes) else {
            self.refuse_work(hand, work, &Refusal::exhausted("no memory for the result"));
            return moment();
        };
        let result = match work.shape.what {
            DESCRIBE => self.describe(&work, &mut frame),
            _ => self.procedure(hand, &mut work, is_given_up, &mut frame),
        };
        let result = match result {
            Ok(result) => result,
            Err(refusal) => {
                self.results.give_back(&mut hand.spare, frame);
                self.answer_refusal(hand, work, &refusal);
                return moment();
            }
        };
        if let Where::Own(estack, bytes) = work.message {
            self.done_with(work.group, estack, bytes);
        }
        let ended = moment();
        if let Some(record) = self.record(work.place) {
            let mut inner = record.0.lock();
            self.keep(hand, &mut inner, result, frame);
            self.say(inner, &mut hand.output, &hand.serving.counting);
            self.part(hand);
        }
        if self.line.any() {
            self.give_room(hand);
        }
        if result.total as usize > COPIED { moment() } else { ended }
    }

    /// Runs the procedure of a call; its result is in the frame.
    fn procedure(
        &self,
        hand: &mut Hand,
        work: &mut Work,
        is_given_up: bool,
        frame: &mut Frame,
    ) -> Result<Shape, Refusal> {
        let bytes = work.body();
        let Work { place, sequence, came, shape, ref row, ref mut message, .. } = *work;
        let extension = usize::from(shape.extension);
        let Hand { input, blocks, serving, .. } = hand;
        let (carried, message) =
            message.memory(input, shape.total).split_at_mut_checked(extension).unwrap_or_default();
        let call = Begins {
            number: name_of(place, sequence),
            bytes,
            extensions: Window::from(&*carried),
            waited: || Duration::from_nanos(moment().since(came)),
            is_given_up: || is_given_up,
        };
        let calls = || Arc::clone(&self.records) as Arc<dyn Calls>;
        let mut guard = serving.begin(row, call, calls)?;
        self.runs();
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
    fn describe(&self, work: &Work, frame: &mut Frame) -> Result<Shape, Refusal> {
        let row = &work.row;
        let description = self.host.describe(row).filter(|_| row.admits(work.body()));
        let Some(description) = description else { return Err(BindingRow::refusal(Some(row))) };
        let bytes = description_to_bytes(&description);
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
    fn handle(&mut self, now: Moment, header: &Header, bitmap: &[u8]) -> Received {
        self.callee.handle(now, &*self.flow, header, bitmap)
    }

    /// All of a call has come.
    fn whole(&mut self, now: Moment, header: &Header) -> Heard {
        let (estack, bytes) = self.call.take().unwrap_or_default();
        self.work(now, header, Where::Own(estack, bytes))
    }

    fn work(&self, came: Moment, header: &Header, message: Where) -> Heard {
        let (place, group, shape) = (header.handle.place, self.group, header.shape);
        let Some(row) = self.row.as_ref().map(Arc::clone) else { return Heard::Nothing };
        let sequence = header.sequence;
        Heard::Call(Work { place, sequence, came, group, shape, row, message })
    }
}

impl Where {
    /// The procedure is about to run: whether the call was given up while it waited. Those that did
    /// not wait are not looked at.
    #[inline]
    fn begins_given_up(&self, service: &Service, place: u32) -> bool {
        let waited = matches!(self, Self::Own(..));
        waited && service.stops_waiting(place)
    }

    /// Whether the call of a record was given up meanwhile. Those that did not wait are not looked at.
    #[inline]
    fn is_given_up(&self, service: &Service, place: u32) -> bool {
        let waited = matches!(self, Self::Own(..));
        waited && service.record(place).is_some_and(|record| record.0.lock().callee.is_given_up())
    }

    fn memory<'a>(&'a mut self, input: &'a mut EStack, total: u32) -> &'a mut [u8] {
        let whole = match self {
            Self::Hand(range) => input.memory().get_mut(range.clone()),
            Self::Own(estack, _) => estack.memory().get_mut(..total as usize),
        };
        whole.unwrap_or(&mut [])
    }
}

impl core::fmt::Debug for Service {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Service").field("socket", &self.socket).finish_non_exhaustive()
    }
}
