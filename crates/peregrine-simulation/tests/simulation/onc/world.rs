//! Simulates clients, a network and a server of ONC RPC. An oracle records which calls ran.
//!
//! The arguments of each call are its number in the oracle, and so are its results. So the oracle sees
//! whether a client gets the reply to another call.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use crate::exchange::client_end::Executed;
use crate::exchange::time::{MILLISECOND, Moment, SECOND};
use crate::protocol::onc::client::{CALL_TIME, DatagramCall, Pace, Step};
use crate::protocol::onc::failure::Failure;
use crate::protocol::onc::message::{Auth, CALL_BYTES_MAX, Call, Outcome, REPLY_BYTES_MAX, Reply};
use crate::protocol::onc::record::{Assembler, marker};
use crate::protocol::onc::replies::{Bounds, Peer, Replies, Ticket, Verdict};
use crate::protocol::onc::xids::Waiters;
use crate::random::Random;

/// The largest number of callers of one client.
const CALLERS_MAX: usize = 8;
/// The largest number of connections over which a client sends one call, one after the other.
const CONNECTIONS_MAX: u32 = 4;
/// The simulated procedure that returns results.
const RUNS: u32 = 1;
/// The simulated procedure that fails.
const FAILS: u32 = 2;
/// The number of a procedure that the server does not have.
const LACKS: u32 = 3;

/// How the network and the server behave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// The probability that a datagram is lost, in thousandths.
    pub(super) loss: u32,
    /// The probability that a datagram is duplicated, in thousandths.
    pub(super) duplicate: u32,
    /// The probability that a datagram is damaged, in thousandths.
    pub(super) damage: u32,
    /// The probability that the connection ends within a message on a stream, in thousandths.
    pub(super) cut: u32,
    /// The longest delay of a datagram, in nanoseconds.
    pub(super) delay: u64,
    /// The longest time of a procedure, in nanoseconds.
    pub(super) runs_for: u64,
    pub(super) bounds: Bounds,
}

/// What the oracle knows about a call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    pub(super) executions: u32,
    pub(super) ended: Option<Ending>,
    /// When the call last stopped running.
    stopped: Option<Moment>,
    /// Whether the cache may have evicted the call, because younger calls have filled the share of its host.
    may_be_evicted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Results,
    Failed(Failure, Executed),
}

#[derive(Debug)]
enum Event {
    ToServer {
        client: usize,
        bytes: Vec<u8>,
    },
    ToClient {
        client: usize,
        bytes: Vec<u8>,
    },
    /// A procedure ends. `header` has the number of the call and the number of the procedure.
    Stop {
        client: usize,
        call: usize,
        header: [u32; 2],
        ticket: Ticket,
    },
    /// A client looks at the timers of one call.
    Look {
        client: usize,
        xid: u32,
    },
    /// A client begins a call.
    Begin(usize),
    /// Bytes arrive at the other end of a stream, unless the connection has ended.
    Stream {
        client: usize,
        connection: u32,
        bytes: Vec<u8>,
        is_reply: bool,
    },
    Cut {
        client: usize,
        connection: u32,
    },
}

/// A call in flight.
#[derive(Debug)]
struct InFlight {
    call: usize,
    message: Vec<u8>,
    /// The timers of a datagram. Streams have none.
    timers: Option<DatagramCall>,
    sent: u32,
}

#[derive(Debug)]
struct Client {
    address: SocketAddr,
    is_stream: bool,
    pace: Pace,
    waiters: Waiters<InFlight>,
    connection: u32,
    /// Two times: when the last bytes to the server arrive, and when the last bytes to the client arrive.
    arrives: [Moment; 2],
    input: Assembler,
    server_input: Assembler,
    left: u32,
}

pub(super) struct World {
    pub(super) now: Moment,
    events: BTreeMap<(Moment, u64), Event>,
    count: u64,
    random: Random,
    weather: Weather,
    clients: Vec<Client>,
    replies: Replies,
    pub(super) known: Vec<Known>,
    /// The client of each call.
    owners: Vec<usize>,
    pub(super) violations: Vec<String>,
    /// The number of copies of calls that the server did not run.
    pub(super) suppressed: u64,
}

impl World {
    /// Makes a world in which each client makes `calls` calls. Every second client uses streams. All clients
    /// have the same address and begin with nearby numbers, so that a faulty cache would confuse them.
    pub(super) fn new(seed: u64, clients: usize, calls: u32, weather: Weather) -> Self {
        let mut random = Random::new(seed);
        let start = if random.chance(500) { u32::MAX - 3 } else { random.next() as u32 };
        let client = |index: usize| Client {
            address: SocketAddr::from(([10, 0, 0, 1], 700 + index as u16)),
            is_stream: index % 2 == 1,
            pace: Pace::default(),
            waiters: Waiters::new(start.wrapping_add(index as u32), CALLERS_MAX),
            connection: 0,
            arrives: [Moment::default(); 2],
            input: Assembler::new(REPLY_BYTES_MAX + 8),
            server_input: Assembler::new(CALL_BYTES_MAX + 8),
            left: calls,
        };
        let mut world = Self {
            now: Moment(1000 * SECOND),
            events: BTreeMap::new(),
            count: 0,
            clients: (0..clients).map(client).collect(),
            replies: Replies::new(random.bytes(), weather.bounds),
            random,
            weather,
            known: Vec::new(),
            owners: Vec::new(),
            violations: Vec::new(),
            suppressed: 0,
        };
        for client in 0..clients {
            world.after(0, Event::Begin(client));
        }
        world
    }

    fn after(&mut self, nanoseconds: u64, event: Event) {
        self.count += 1;
        self.events.insert((self.now.after(nanoseconds), self.count), event);
    }

    /// Runs until nothing is left to do.
    pub(super) fn run(&mut self) {
        while let Some(((at, _), event)) = self.events.pop_first() {
            self.now = at;
            match event {
                Event::Begin(client) => self.begin(client),
                Event::Look { client, xid } => self.look(client, xid),
                Event::ToServer { client, bytes } => {
                    let peer = Peer::datagram(self.clients[client].address);
                    self.serve(client, peer, 0, &bytes);
                }
                Event::ToClient { client, bytes } => self.receive(client, &bytes),
                Event::Stop { client, call, header, ticket } => {
                    self.stop(client, call, header, ticket);
                }
                Event::Stream { client, connection, bytes, is_reply } => {
                    if self.clients[client].connection == connection {
                        self.arrive(client, &bytes, is_reply);
                    }
                }
                Event::Cut { client, connection } => {
                    if self.clients[client].connection == connection {
                        self.reconnect(client);
                    }
                }
            }
        }
        for (call, known) in self.known.iter().enumerate() {
            match known.ended {
                None => self.violations.push(format!("call {call} has not ended")),
                Some(Ending::Results) if known.executions == 0 => {
                    self.violations.push(format!("call {call} has results and did not run"));
                }
                Some(Ending::Failed(failure, Executed::No)) if known.executions > 0 => {
                    self.violations.push(format!("call {call} ran, but {failure}"));
                }
                Some(_) => {}
            }
        }
    }

    fn begin(&mut self, client: usize) {
        let one = &mut self.clients[client];
        if one.left == 0 {
            return;
        }
        one.left -= 1;
        let call = self.known.len();
        let flight = InFlight { call, message: Vec::new(), timers: None, sent: 0 };
        let again = self.random.below(SECOND);
        let Ok(xid) = one.waiters.add(self.now, flight) else {
            one.left += 1;
            return self.after(again, Event::Begin(client));
        };
        self.known.push(Known::default());
        self.owners.push(client);
        let procedure = match self.random.below(10) {
            0 => FAILS,
            1 => LACKS,
            _ => RUNS,
        };
        let (credential, verifier) = (Auth::NONE, Auth::NONE);
        let header = Call { xid, program: 7, version: 1, procedure, credential, verifier };
        let mut message = vec![0; CALL_BYTES_MAX];
        let length = header.emit(&mut message).expect("room");
        message.truncate(length);
        message.extend((call as u64).to_be_bytes());
        let one = &mut self.clients[client];
        let timers =
            (!one.is_stream).then(|| DatagramCall::begin(xid, self.now, CALL_TIME, &one.pace));
        let flight = one.waiters.find(xid).expect("the call");
        (flight.message, flight.timers) = (message, timers);
        self.transmit(client, xid);
        self.after(0, Event::Look { client, xid });
        self.after(again, Event::Begin(client));
    }

    fn transmit(&mut self, client: usize, xid: u32) {
        let one = &mut self.clients[client];
        let flight = one.waiters.find(xid).expect("the call");
        flight.sent += 1;
        let message = flight.message.clone();
        if one.is_stream {
            self.write(client, &message, false);
        } else {
            self.send(client, message, false);
        }
    }

    /// Sends a datagram, which may be lost, duplicated, delayed or damaged.
    fn send(&mut self, client: usize, bytes: Vec<u8>, is_reply: bool) {
        let copies = match () {
            () if self.random.chance(self.weather.loss) => 0,
            () if self.random.chance(self.weather.duplicate) => 2,
            () => 1,
        };
        for _ in 0..copies {
            let mut bytes = bytes.clone();
            if self.random.chance(self.weather.damage) {
                // The checksums of UDP detect changed bytes, so damaged datagrams are only shorter.
                bytes.truncate(self.random.below(bytes.len() as u64) as usize);
            }
            let event = match is_reply {
                true => Event::ToClient { client, bytes },
                false => Event::ToServer { client, bytes },
            };
            let delay = self.random.below(self.weather.delay);
            self.after(delay, event);
        }
    }

    /// Writes a record to a stream, in fragments and pieces of any size.
    fn write(&mut self, client: usize, record: &[u8], is_reply: bool) {
        let mut bytes = Vec::new();
        let mut rest = record;
        while self.random.chance(300) {
            let (fragment, later) =
                rest.split_at(self.random.below(rest.len() as u64 + 1) as usize);
            bytes.extend((fragment.len() as u32).to_be_bytes());
            bytes.extend(fragment);
            rest = later;
        }
        bytes.extend(marker(rest.len()).expect("a short record"));
        bytes.extend(rest);
        let connection = self.clients[client].connection;
        let is_cut = self.random.chance(self.weather.cut);
        if is_cut {
            bytes.truncate(self.random.below(bytes.len() as u64 + 1) as usize);
        }
        let direction = usize::from(is_reply);
        let mut at = self.clients[client].arrives[direction].max(self.now);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(1 + self.random.below(rest.len() as u64) as usize);
            at = at.after(self.random.below(self.weather.delay));
            let bytes = piece.to_vec();
            let event = Event::Stream { client, connection, bytes, is_reply };
            self.after(at.since(self.now), event);
            rest = later;
        }
        self.clients[client].arrives[direction] = at;
        if is_cut {
            self.after(at.since(self.now), Event::Cut { client, connection });
        }
    }

    /// Receives the bytes of a stream at either end.
    fn arrive(&mut self, client: usize, mut bytes: &[u8], is_reply: bool) {
        let connection = self.clients[client].connection;
        while self.clients[client].connection == connection {
            let one = &mut self.clients[client];
            let input = if is_reply { &mut one.input } else { &mut one.server_input };
            match input.take(&mut bytes) {
                Ok(Some(record)) if is_reply => self.receive(client, &record),
                Ok(Some(record)) => {
                    let peer = Peer::stream(self.clients[client].address);
                    self.serve(client, peer, connection, &record);
                }
                Ok(None) => return,
                Err(broken) => {
                    self.violations.push(format!("a stream is broken: {broken}"));
                    return;
                }
            }
        }
    }

    /// Ends the connection of a client. The client connects again from the same port, and sends its calls
    /// again with the same numbers.
    fn reconnect(&mut self, client: usize) {
        let one = &mut self.clients[client];
        one.connection += 1;
        one.arrives = [self.now; 2];
        one.input = Assembler::new(REPLY_BYTES_MAX + 8);
        one.server_input = Assembler::new(CALL_BYTES_MAX + 8);
        let waiting: Vec<_> = one.waiters.iter().map(|(xid, flight)| (xid, flight.sent)).collect();
        for (xid, sent) in waiting {
            if sent < CONNECTIONS_MAX {
                self.transmit(client, xid);
            } else {
                self.fail(client, xid, Failure::Disconnected);
            }
        }
    }

    fn look(&mut self, client: usize, xid: u32) {
        let Some(flight) = self.clients[client].waiters.find(xid) else { return };
        let Some(timers) = &mut flight.timers else { return };
        let next = match timers.step(self.now) {
            Step::Wait(until) => until.since(self.now),
            Step::Retransmit => {
                self.transmit(client, xid);
                0
            }
            Step::GiveUp(failure) => return self.fail(client, xid, failure),
        };
        self.after(next, Event::Look { client, xid });
    }

    fn fail(&mut self, client: usize, xid: u32, failure: Failure) {
        let flight = self.clients[client].waiters.remove(xid).expect("the call");
        let executed = failure.executed(flight.sent);
        self.known[flight.call].ended = Some(Ending::Failed(failure, executed));
    }

    /// Receives a reply.
    fn receive(&mut self, client: usize, bytes: &[u8]) {
        let xid = crate::protocol::onc::message::replied_to(bytes);
        let one = &mut self.clients[client];
        let Some(flight) = xid.and_then(|xid| one.waiters.find(xid)) else { return };
        let reply = match &mut flight.timers {
            Some(timers) => timers.receive(self.now, bytes, &mut one.pace),
            None => Some(Reply::parse(bytes).expect("a reply on a stream is whole")),
        };
        let Some((reply, offset)) = reply else { return };
        if let Some(timers) = &flight.timers
            && timers.transmissions() != flight.sent
        {
            self.violations.push(format!("call {} was not counted as sent", flight.call));
        }
        if let Some(failure) = Failure::of(&reply.answer) {
            return self.fail(client, reply.xid, failure);
        }
        let (call, results) = (flight.call, &bytes[offset..]);
        // A damaged datagram may lack the end of its results. The stub then reports unreadable results.
        if results.len() == 8 && results != (call as u64).to_be_bytes() {
            self.violations.push(format!("call {call} got the reply to another call"));
        }
        self.known[call].ended = Some(Ending::Results);
        self.clients[client].waiters.remove(reply.xid);
    }

    /// Serves a call as a driver does.
    fn serve(&mut self, client: usize, peer: Peer, connection: u32, bytes: &[u8]) {
        let Ok((header, offset)) = Call::parse(bytes) else { return };
        let Some(number) = bytes[offset..].first_chunk().copied() else { return };
        let call = u64::from_be_bytes(number) as usize;
        if header.procedure == LACKS {
            let reply = Reply::accepted(header.xid, Outcome::ProcedureUnavailable);
            return self.reply(client, connection, &emitted(&reply, &[]));
        }
        match self.replies.begin(self.now, peer, connection.into(), &header, &bytes[offset..]) {
            Verdict::Execute(ticket) => {
                self.started(client, call);
                let runs_for = self.random.below(self.weather.runs_for);
                let header = [header.xid, header.procedure];
                self.after(runs_for, Event::Stop { client, call, header, ticket });
            }
            Verdict::Replay(reply) => {
                let reply = reply.to_vec();
                self.suppressed += 1;
                self.reply(client, connection, &reply);
            }
            Verdict::InProgress => self.suppressed += 1,
            Verdict::Forgotten | Verdict::Full => {
                self.suppressed += 1;
                // On a stream, the client does not send the call again, so it needs an answer.
                let reply = Reply::accepted(header.xid, Outcome::SystemError);
                self.reply(client, connection, &emitted(&reply, &[]));
            }
        }
    }

    /// Notes that a call begins to run.
    fn started(&mut self, client: usize, call: usize) {
        let bounds = self.weather.bounds;
        let known = &mut self.known[call];
        if known.executions > 0 {
            let is_old = known.stopped.is_some_and(|stopped| self.now.since(stopped) >= bounds.age);
            if !is_old && !known.may_be_evicted {
                self.violations.push(format!("call {call} ran twice"));
            }
        }
        known.executions += 1;
        known.stopped = None;
        if self.owners[call] != client {
            self.violations.push(format!("call {call} arrived from client {client}"));
        }
        // All clients have the same host, and share its quarter of the cache. When as many calls were begun
        // as this quarter holds, calls that have stopped may be evicted.
        known.may_be_evicted = false;
        let begun = self.known.iter().filter(|known| known.executions > 0).count();
        if begun >= bounds.calls / 4 {
            for known in self.known.iter_mut().filter(|known| known.stopped.is_some()) {
                known.may_be_evicted = true;
            }
        }
    }

    fn stop(&mut self, client: usize, call: usize, [xid, procedure]: [u32; 2], ticket: Ticket) {
        self.known[call].stopped = Some(self.now);
        let reply = if procedure == FAILS {
            emitted(&Reply::accepted(xid, Outcome::SystemError), &[])
        } else {
            emitted(&Reply::accepted(xid, Outcome::Success), &(call as u64).to_be_bytes())
        };
        let newest = self.replies.end(self.now, ticket, &reply);
        self.reply(client, newest as u32, &reply);
        let (calls, bytes) = self.replies.size();
        let bounds = self.weather.bounds;
        if calls > bounds.calls || bytes > bounds.bytes {
            self.violations.push(format!("the cache has {calls} calls and {bytes} bytes"));
        }
    }

    fn reply(&mut self, client: usize, connection: u32, reply: &[u8]) {
        let one = &self.clients[client];
        if !one.is_stream {
            self.send(client, reply.to_vec(), true);
        } else if one.connection == connection {
            self.write(client, reply, true);
        }
    }
}

fn emitted(reply: &Reply<'_>, results: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; REPLY_BYTES_MAX];
    let length = reply.emit(&mut bytes).expect("room");
    bytes.truncate(length);
    bytes.extend(results);
    bytes
}

/// Weather without faults. A test may change parts of it.
pub(super) const FAIR: Weather = Weather {
    loss: 0,
    duplicate: 0,
    damage: 0,
    cut: 0,
    delay: 50 * MILLISECOND,
    runs_for: 20 * MILLISECOND,
    bounds: Bounds::DEFAULT,
};
