//! The server of the simulation. It does what a driver in the library does with a [`ServerEnd`]. Its
//! procedures do nothing but take time. It also checks the invariants on which a real driver relies.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use crate::buffer::Buffer;
use crate::exchange::bind::{
    BIND_BYTES, BindAction, BindMessage, BindRefusal, BindRequest, Cookies, Grant,
};
use crate::exchange::flow::{Flow, FlowAccess};
use crate::exchange::header::{BITMAP_BYTES_MAX, CONTROL_BYTES_MAX, HEADER_BYTES, Header};
use crate::exchange::message::Shape;
use crate::exchange::server_end::{Action, RecordPhase, Retain, ServerEnd, ServerTerms};
use crate::exchange::table::Table;
use crate::exchange::time::Moment;
use crate::exchange::versions;
use crate::network::{Address, Packet, RESULT, SERVER, Token, host_of};
use crate::oracle::Oracle;
use crate::random::Random;

/// The settings of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerOptions {
    pub(crate) places: u32,
    pub(crate) share: u32,
    pub(crate) workers: usize,
    pub(crate) queue: usize,
    pub(crate) piece: u32,
    pub(crate) credits: u16,
    pub(crate) bytes_max: u32,
    /// How many of a thousand multi-packet calls find no free memory, and have to wait for memory.
    pub(crate) memory_shortage: u32,
}

/// The flow (congestion control) that all handles of one peer share.
#[derive(Clone, Debug)]
pub(crate) struct Shared(pub(crate) Rc<RefCell<Flow>>);

impl Shared {
    pub(crate) fn new(round_trip: Option<u64>) -> Self {
        Self(Rc::new(RefCell::new(Flow::new(round_trip))))
    }
}

impl FlowAccess for Shared {
    fn with_flow<R>(&self, with: impl FnOnce(&mut Flow) -> R) -> R {
        with(&mut self.0.borrow_mut())
    }
}

struct Record {
    server_end: ServerEnd,
    flow: Shared,
    address: Address,
    /// The call whose packets are still arriving.
    buffer: Option<Buffer>,
    /// The result that the server keeps until the client has acknowledged it.
    result: Option<(Token, u32)>,
    running: Option<Token>,
}

/// The sizes and the kind of a result that reports a refused call, such as "overloaded, not executed".
const REFUSAL: Shape = Shape { what: 2, total: 0, head: 0, at: 0, extension: 0 };

/// The number of a server, multiplied by this factor, is the server's incarnation. The factor is odd. So each
/// server of the world has a distinct incarnation, which looks random.
const INCARNATIONS: u64 = 0x9e37_79b9_7f4a_7c15;

/// An action that the server requests from the world.
#[derive(Debug)]
pub(crate) enum Request {
    Send(Packet),
    /// The procedure of this record has begun. The world ends it after the time in the plan of the call. If
    /// the plan has no time, the procedure never ends.
    Run(u32, Token),
    /// Call [`Server::flush`] for this record at this time, because the record can then send more.
    Flush(u32, Moment),
}

pub(crate) struct Server {
    pub(crate) incarnation: u64,
    options: ServerOptions,
    /// A number that identifies the server's table of records in grants and refusals.
    number: u64,
    table: Table,
    cookies: Cookies,
    records: Vec<Record>,
    busy: usize,
    queue: VecDeque<(u32, Token)>,
    flows: HashMap<Address, Shared>,
    random: Random,
    pub(crate) requests: Vec<Request>,
    pub(crate) dropped: u64,
    /// Whether the next check of the server's clients is scheduled.
    pub(crate) is_checking: bool,
}

impl Server {
    pub(crate) fn new(
        incarnation: u64,
        number: u64,
        options: ServerOptions,
        mut random: Random,
    ) -> Self {
        let record = |place| Record {
            server_end: ServerEnd::vacant(place),
            flow: Shared::new(None),
            address: 0,
            buffer: None,
            result: None,
            running: None,
        };
        Self {
            incarnation,
            options,
            number,
            table: Table::new(options.places, options.share),
            cookies: Cookies::new(random.bytes()),
            records: (0..options.places).map(record).collect(),
            busy: 0,
            queue: VecDeque::new(),
            flows: HashMap::new(),
            random,
            requests: Vec::new(),
            dropped: 0,
            is_checking: false,
        }
    }

    pub(crate) fn receive(&mut self, now: Moment, packet: &Packet, oracle: &mut Oracle) {
        let Some(header) = packet.header() else {
            self.dropped += 1;
            if let Some(answer) = versions::refuse(&packet.bytes, 1) {
                self.send(packet.from, answer.to_vec(), None);
            }
            return;
        };
        if header.kind.binds() {
            return self.bind(now, &header, packet);
        }
        // A handle belongs to the host that bound it, but not to one port of that host.
        let peer = u64::from(host_of(packet.from));
        let Some(record) = self.records.get_mut(header.handle.place as usize) else {
            // A packet for a place that does not exist is refused in the same way as a packet for a place
            // that was never bound.
            let vacant = ServerEnd::vacant(header.handle.place);
            return self.refuse(packet, vacant.refusal_of(&header, self.number));
        };
        if !record.server_end.accepts(&header, peer) {
            let refusal = record.server_end.refusal_of(&header, self.number);
            return self.refuse(packet, refusal);
        }
        record.address = packet.from;
        if record.server_end.phase() == RecordPhase::Waiting && self.random.chance(500) {
            record.server_end.resume();
            record.buffer = Some(Buffer::new(record.server_end.call_bytes()));
        }
        let bitmap = bitmap(packet);
        let effect = record.server_end.handle(now, &record.flow, &header, bitmap);
        if effect.release && record.result.take().is_none() {
            oracle.violated("a result was released that was not kept".into());
        }
        let place = header.handle.place;
        match effect.action {
            Action::Nothing => {}
            Action::Dropped(_) => self.dropped += 1,
            Action::Begin(_) if self.random.chance(self.options.memory_shortage) => {
                record.buffer = None;
                record.server_end.wait_for_room();
            }
            Action::Begin(range) => {
                let mut buffer = Buffer::new(header.shape.total);
                buffer.place(packet, range, oracle);
                record.buffer = Some(buffer);
            }
            Action::Place(range) => match &mut record.buffer {
                Some(buffer) => buffer.place(packet, range, oracle),
                None => oracle.violated("a piece of a message that has not begun".into()),
            },
            Action::Execute(range) => {
                let whole = range.len() as u32 == header.shape.total;
                let mut buffer = match record.buffer.take() {
                    Some(buffer) if !whole => buffer,
                    _ => Buffer::new(header.shape.total),
                };
                buffer.place(packet, range, oracle);
                let token = buffer.whole(oracle);
                self.execute(place, token, oracle);
            }
            Action::Discard => {
                if record.buffer.take().is_none() {
                    oracle.violated("no message to discard".into());
                }
            }
            Action::Forget => self.forget(place),
        }
        self.flush(now, place);
        self.check(place, oracle);
    }

    /// Executes a complete call, puts it into the queue, or refuses it.
    fn execute(&mut self, place: u32, token: Token, oracle: &mut Oracle) {
        let record = &mut self.records[place as usize];
        if self.busy < self.options.workers {
            self.busy += 1;
            self.start(place, token, oracle);
        } else if self.queue.len() < self.options.queue {
            record.running = Some(token);
            self.queue.push_back((place, token));
        } else if record.server_end.complete(REFUSAL) == Retain::Keep {
            record.result = Some((token | RESULT, 0));
        }
    }

    fn start(&mut self, place: u32, token: Token, oracle: &mut Oracle) {
        let record = &mut self.records[place as usize];
        record.running = Some(token);
        let secret = record.server_end.bound_handle().secret;
        oracle.executes(secret, record.server_end.sequence(), token);
        self.requests.push(Request::Run(place, token));
    }

    /// Ends a procedure, and sends its result.
    pub(crate) fn finished(&mut self, now: Moment, place: u32, token: Token, oracle: &mut Oracle) {
        let total = oracle.call(token).plan.result;
        let record = &mut self.records[place as usize];
        record.running = None;
        let shape = Shape { what: 0, total, head: total.min(16), at: 0, extension: 0 };
        match record.server_end.complete(shape) {
            Retain::Keep => record.result = Some((token | RESULT, total)),
            Retain::Drop => {}
            Retain::Forget => self.forget(place),
        }
        self.flush(now, place);
        self.check(place, oracle);
        self.busy -= 1;
        while self.busy < self.options.workers {
            let Some((place, token)) = self.queue.pop_front() else { break };
            if self.records[place as usize].server_end.is_cancelled() {
                self.skip(now, place, oracle);
            } else {
                self.busy += 1;
                self.start(place, token, oracle);
            }
        }
    }

    /// Removes a queued call that was cancelled. The call is not executed, and the client is notified.
    fn skip(&mut self, now: Moment, place: u32, oracle: &mut Oracle) {
        let record = &mut self.records[place as usize];
        let token = record.running.take();
        match record.server_end.complete(REFUSAL) {
            // The call was cancelled because its client was presumed dead. But the client may only have been
            // paused. So the server keeps the refusal, from which the client learns that the call was not
            // executed.
            Retain::Keep => record.result = token.map(|token| (token | RESULT, 0)),
            Retain::Drop => {}
            Retain::Forget => self.forget(place),
        }
        self.flush(now, place);
        self.check(place, oracle);
    }

    fn bind(&mut self, now: Moment, header: &Header, packet: &Packet) {
        let address = packet.from.to_le_bytes();
        let body = &packet.bytes[HEADER_BYTES..];
        let answer = match self.cookies.asked(now, &address, header, body) {
            None => {
                self.dropped += 1;
                return;
            }
            Some(BindAction::SendCookie(cookie, _)) => BindMessage::Cookie(cookie, None),
            Some(BindAction::Decide(request)) => match self.admit(now, packet.from, &request) {
                Some(grant) => BindMessage::Bound(grant),
                None => BindMessage::Unbound(BindRefusal::new(1, "no place is free")),
            },
        };
        let mut out = [0; BIND_BYTES];
        answer.emit(header.handle.secret, 0, header.serial, &mut out);
        self.send(packet.from, out.to_vec(), None);
    }

    fn admit(&mut self, now: Moment, from: Address, request: &BindRequest) -> Option<Grant> {
        let records = &self.records;
        let phase = |place: u32| {
            let server_end = &records[place as usize].server_end;
            (server_end.phase(), server_end.last_heard())
        };
        let admission = self.table.admit(now, u64::from(host_of(from)), phase)?;
        let record = &mut self.records[admission.place as usize];
        if admission.evict {
            record.server_end.forget();
            (record.buffer, record.result) = (None, None);
        }
        let piece = request.piece.min(self.options.piece);
        let terms = ServerTerms {
            piece,
            credits: request.credits,
            credits_here: self.options.credits,
            bytes_max: self.options.bytes_max,
        };
        record.flow = self.flows.entry(host_of(from)).or_insert_with(|| Shared::new(None)).clone();
        record.server_end.assign(now, self.random.bytes(), u64::from(host_of(from)), &terms);
        let mut grant =
            Grant::new(self.number, INCARNATIONS.wrapping_mul(self.incarnation), [0; 16]);
        grant.piece = piece;
        grant.call_bytes_max = self.options.bytes_max;
        grant.credits = self.options.credits;
        Some(grant.with(&[record.server_end.granted_handle()]))
    }

    /// Checks whether the clients of running and waiting calls are alive. Returns whether there are any such
    /// calls.
    pub(crate) fn check_callers(&mut self, time: u64, now: Moment, oracle: &mut Oracle) -> bool {
        for place in 0..self.options.places {
            let record = &mut self.records[place as usize];
            let Some(token) = record.running else { continue };
            record.server_end.check_caller(now);
            if record.server_end.is_cancelled() {
                oracle.cancels(time, token);
                let runs = !self.queue.iter().any(|(queued, _)| *queued == place);
                if runs && oracle.call(token).plan.checks_cancellation {
                    self.finished(now, place, token, oracle);
                }
            }
            self.flush(now, place);
        }
        self.records.iter().any(|record| record.running.is_some())
    }

    fn forget(&mut self, place: u32) {
        let record = &mut self.records[place as usize];
        record.server_end.forget();
        (record.buffer, record.result) = (None, None);
        self.table.release(place);
    }

    fn refuse(&mut self, packet: &Packet, refusal: Option<Header>) {
        self.dropped += 1;
        if let Some(refusal) = refusal {
            let mut out = [0; HEADER_BYTES];
            refusal.emit(&mut out);
            self.send(packet.from, out.to_vec(), None);
        }
    }

    fn send(&mut self, to: Address, bytes: Vec<u8>, data: Option<(Token, core::ops::Range<u32>)>) {
        self.requests.push(Request::Send(Packet { from: SERVER, to, socket: 0, bytes, data }));
    }

    /// Sends all packets of a record that are due. If more packets become due later, requests another call of
    /// this function.
    pub(crate) fn flush(&mut self, now: Moment, place: u32) {
        let mut out = [0; CONTROL_BYTES_MAX];
        loop {
            let record = &mut self.records[place as usize];
            let Some(send) = record.server_end.poll_send(now, &record.flow, &mut out) else {
                if let Some(due) = record.server_end.next_send() {
                    self.requests.push(Request::Flush(place, due));
                }
                break;
            };
            let header = Header::parse(
                out.first_chunk().expect("a header"),
                send.bytes - HEADER_BYTES + send.range.len(),
            )
            .expect("a sent packet can be parsed");
            let token = record.result.map(|(token, _)| token).filter(|_| header.kind.carries());
            let data = token.map(|token| (token, send.range));
            let to = record.address;
            self.send(to, out[..send.bytes].to_vec(), data);
        }
    }

    /// Checks that the driver keeps exactly the data that the server end at this place needs now. If the
    /// driver kept other data, too, that would be a leak.
    fn check(&self, place: u32, oracle: &mut Oracle) {
        let record = &self.records[place as usize];
        let phase = record.server_end.phase();
        let expected = (
            phase == RecordPhase::Assembling,
            phase == RecordPhase::Replied,
            phase == RecordPhase::Running,
        );
        let actual = (record.buffer.is_some(), record.result.is_some(), record.running.is_some());
        if expected != actual {
            oracle.violated(format!("{phase:?} with {actual:?} (buffer, result, running)"));
        }
    }

    /// Returns the calls whose procedures run or wait in the queue.
    pub(crate) fn running(&self) -> impl Iterator<Item = Token> {
        self.records.iter().filter_map(|record| record.running)
    }

    /// Returns whether the procedure of this call still runs at this place.
    pub(crate) fn runs(&self, place: u32, token: Token) -> bool {
        let waits = self.queue.iter().any(|(queued, _)| *queued == place);
        self.records[place as usize].running == Some(token) && !waits
    }

    /// Returns the number of records that keep an incomplete call or a result.
    pub(crate) fn kept(&self) -> usize {
        let keeps = |record: &&Record| record.buffer.is_some() || record.result.is_some();
        self.records.iter().filter(keeps).count()
    }
}

/// Returns the control payload of a packet. A control payload is not part of a message.
pub(crate) fn bitmap(packet: &Packet) -> &[u8] {
    let behind = &packet.bytes[HEADER_BYTES..];
    &behind[..behind.len().min(BITMAP_BYTES_MAX)]
}
