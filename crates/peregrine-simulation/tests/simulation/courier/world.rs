//! Simulates clients, a network and a server of packet Courier. An oracle records which calls ran.
//!
//! The arguments of each call begin with its number in the oracle, and so do its results. So the oracle sees
//! whether a client gets the reply to another call, and whether all bytes are in their places.

use core::net::SocketAddr;
use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::exchange::client_end::Executed;
use crate::exchange::time::{MILLISECOND, Moment, SECOND};
use crate::protocol::courier::failure::Failure;
use crate::protocol::courier::message::{Answer, CALL_BYTES, Call, Rejection, Reply};
use crate::protocol::courier::packet::{Datagram, payload};
use crate::protocol::courier::packet_client::{Association, Form, PacketCall, Step};
use crate::protocol::courier::packet_server::{PacketServer, Running, Work};
use crate::protocol::onc::xids::Waiters;
use crate::protocol::replies::Bounds;
use crate::random::Random;

/// The largest number of callers of one client.
const CALLERS_MAX: usize = 8;
/// The time limit of a call, in nanoseconds.
const CALL_TIME: u64 = 40 * SECOND;
/// A datagram that was damaged has fewer bytes than this, so it is no call or reply. The checksums of UDP
/// detect other damage.
const DAMAGED_BYTES: u64 = 14;
/// The simulated procedure that returns results.
const RUNS: u16 = 1;
/// The simulated procedure that reports an error.
const FAILS: u16 = 2;
/// The number of a procedure that the server does not have.
const LACKS: u16 = 3;
/// The number of the error that [`FAILS`] reports.
const ERROR: u16 = 17;

/// How the network and the server behave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// The probability that a datagram is lost, in thousandths.
    pub(super) loss: u32,
    /// The probability that a datagram is duplicated, in thousandths.
    pub(super) duplicate: u32,
    /// The probability that a datagram is damaged, in thousandths.
    pub(super) damage: u32,
    /// The probability that the server cannot run a call now, in thousandths.
    pub(super) overload: u32,
    /// The longest delay of a datagram, in nanoseconds.
    pub(super) delay: u64,
    /// The longest time of a procedure, in nanoseconds.
    pub(super) runs_for: u64,
    /// The longest time between two restarts of the server, in nanoseconds, or 0 if there are none.
    pub(super) restarts: u64,
    /// The largest number of bytes of arguments and of results.
    pub(super) size: u64,
    pub(super) bounds: Bounds,
}

/// What the oracle knows about a call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    pub(super) is_whole: bool,
    pub(super) executions: u32,
    pub(super) ended: Option<Ending>,
    /// When the call last stopped running.
    stopped: Option<Moment>,
    /// The incarnation of the server in which the call last began to run.
    incarnation: u32,
    /// Whether the cache may have evicted the call, because younger calls have filled the share of its host.
    may_be_evicted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Results,
    Error,
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
    Stop {
        client: usize,
        call: usize,
        reply: Vec<u8>,
        running: Running,
        incarnation: u32,
    },
    /// A client looks at the timers of one call. The event is ignored if the client has looked at them since
    /// the event was scheduled.
    Look {
        client: usize,
        id: u32,
        look: u64,
    },
    Begin(usize),
    Restart,
}

#[derive(Debug)]
struct InFlight {
    call: usize,
    state: Option<PacketCall>,
    look: u64,
}

#[derive(Debug)]
struct Client {
    address: SocketAddr,
    form: Form,
    server: Association,
    waiters: Waiters<InFlight>,
    left: u32,
}

pub(super) struct World {
    pub(super) now: Moment,
    events: BTreeMap<(Moment, u64), Event>,
    count: u64,
    random: Random,
    weather: Weather,
    clients: Vec<Client>,
    server: PacketServer,
    incarnation: u32,
    pub(super) known: Vec<Known>,
    pub(super) violations: Vec<String>,
    /// The number of datagrams that were sent.
    pub(super) datagrams: u64,
}

/// Returns the bytes of arguments or results: the number of the call, and bytes that depend on it.
fn body(call: usize, bytes: usize) -> Vec<u8> {
    let filler = (0..bytes.next_multiple_of(2)).map(|at| (call * 7 + at * 13 + at / 256) as u8);
    (call as u64).to_be_bytes().into_iter().chain(filler).collect()
}

fn number(body: &[u8]) -> Option<usize> {
    body.first_chunk().map(|number| u64::from_be_bytes(*number) as usize)
}

impl World {
    /// Makes a world in which each client makes `calls` calls. Every second client sends each call whole, as
    /// one datagram. All clients have the same address and begin with nearby numbers, so that a faulty cache
    /// would confuse them.
    pub(super) fn new(seed: u64, clients: usize, calls: u32, weather: Weather) -> Self {
        let mut random = Random::new(seed);
        let start = if random.chance(500) { u32::MAX - 3 } else { random.next() as u32 };
        let clients: Vec<_> = (0..clients)
            .map(|index| Client {
                address: SocketAddr::from(([10, 0, 0, 1], 700 + index as u16)),
                form: match index % 2 {
                    0 => Form::Parts(if random.chance(500) { 512 } else { 1376 }),
                    _ => Form::Whole,
                },
                server: Association::new(index as u32 / 2),
                waiters: Waiters::new(start.wrapping_add(index as u32), CALLERS_MAX),
                left: calls,
            })
            .collect();
        let mut world = Self {
            now: Moment(1000 * SECOND),
            events: BTreeMap::new(),
            count: 0,
            server: PacketServer::new(random.bytes(), weather.bounds),
            clients,
            random,
            weather,
            incarnation: 0,
            known: Vec::new(),
            violations: Vec::new(),
            datagrams: 0,
        };
        for client in 0..world.clients.len() {
            world.after(0, Event::Begin(client));
        }
        world.restart_later();
        world
    }

    fn after(&mut self, nanoseconds: u64, event: Event) {
        self.count += 1;
        self.events.insert((self.now.after(nanoseconds), self.count), event);
    }

    /// The server is restarted only while clients make calls, so that each run ends.
    fn restart_later(&mut self) {
        if self.weather.restarts > 0 && self.clients.iter().any(|client| client.left > 0) {
            let after = 1 + self.random.below(self.weather.restarts);
            self.after(after, Event::Restart);
        }
    }

    /// Runs until nothing is left to do.
    pub(super) fn run(&mut self) {
        while let Some(((at, _), event)) = self.events.pop_first() {
            self.now = at;
            match event {
                Event::Begin(client) => self.begin(client),
                Event::Look { client, id, look } => self.look(client, id, look),
                Event::ToServer { client, bytes } => self.serve(client, &bytes),
                Event::ToClient { client, bytes } => self.receive(client, &bytes),
                Event::Stop { client, call, reply, running, incarnation } => {
                    if incarnation == self.incarnation {
                        self.stop(client, call, &reply, running);
                    }
                }
                Event::Restart => {
                    self.incarnation += 1;
                    let secret = self.random.bytes();
                    self.server = PacketServer::new(secret, self.weather.bounds);
                    self.restart_later();
                }
            }
        }
        for (call, known) in self.known.iter().enumerate() {
            match known.ended {
                None => self.violations.push(format!("call {call} has not ended")),
                Some(Ending::Results | Ending::Error) if known.executions == 0 => {
                    self.violations.push(format!("call {call} has a reply and did not run"));
                }
                Some(Ending::Failed(failure, Executed::No)) if known.executions > 0 => {
                    self.violations.push(format!("call {call} ran, but {failure}"));
                }
                Some(_) => {}
            }
        }
    }

    fn begin(&mut self, client: usize) {
        let again = self.random.below(SECOND);
        let one = &mut self.clients[client];
        if one.left == 0 {
            return;
        }
        let call = self.known.len();
        let flight = InFlight { call, state: None, look: 0 };
        let Ok(id) = one.waiters.add(self.now, flight) else {
            return self.after(again, Event::Begin(client));
        };
        one.left -= 1;
        let is_whole = one.form == Form::Whole;
        self.known.push(Known { is_whole, ..Known::default() });
        let procedure = match self.random.below(10) {
            0 => FAILS,
            1 => LACKS,
            _ => RUNS,
        };
        let transaction = self.random.below(3) as u16;
        let mut message = vec![0; CALL_BYTES];
        let header = Call { transaction, program: 7, version: 1, procedure };
        header.emit(&mut message).expect("room");
        let size = self.random.below(self.weather.size) as usize;
        message.extend(body(call, size));
        let mut sent = Vec::new();
        let one = &mut self.clients[client];
        let state = PacketCall::begin(
            id,
            payload(&message),
            one.form,
            self.now,
            CALL_TIME,
            &one.server,
            &mut |datagram: Datagram<'_>| sent.push(datagram.concat()),
        );
        one.waiters.find(id).expect("the call").state = Some(state.expect("a short call"));
        self.send_all(client, sent, false);
        self.look_at(client, id, self.now);
        self.after(again, Event::Begin(client));
    }

    fn send_all(&mut self, client: usize, all: Vec<Vec<u8>>, is_reply: bool) {
        for bytes in all {
            self.send(client, bytes, is_reply);
        }
    }

    /// Sends a datagram, which may be lost, duplicated, delayed or damaged.
    fn send(&mut self, client: usize, bytes: Vec<u8>, is_reply: bool) {
        self.datagrams += 1;
        let copies = match () {
            () if self.random.chance(self.weather.loss) => 0,
            () if self.random.chance(self.weather.duplicate) => 2,
            () => 1,
        };
        for _ in 0..copies {
            let mut bytes = bytes.clone();
            if self.random.chance(self.weather.damage) {
                bytes.truncate(self.random.below(DAMAGED_BYTES) as usize);
            }
            let event = match is_reply {
                true => Event::ToClient { client, bytes },
                false => Event::ToServer { client, bytes },
            };
            let delay = self.random.below(self.weather.delay);
            self.after(delay, event);
        }
    }

    fn look_at(&mut self, client: usize, id: u32, at: Moment) {
        let flight = self.clients[client].waiters.find(id).expect("the call");
        flight.look += 1;
        let look = flight.look;
        self.after(at.since(self.now), Event::Look { client, id, look });
    }

    fn look(&mut self, client: usize, id: u32, look: u64) {
        let one = &mut self.clients[client];
        let Some(flight) = one.waiters.find(id).filter(|flight| flight.look == look) else {
            return;
        };
        let state = flight.state.as_mut().expect("the call has begun");
        let mut sent = Vec::new();
        let step = state.step(self.now, &one.server, &mut |datagram: Datagram<'_>| {
            sent.push(datagram.concat())
        });
        self.send_all(client, sent, false);
        match step {
            Step::Wait(until) if until <= self.now => {
                self.violations.push("a call waits for the past".to_owned());
            }
            Step::Wait(until) => self.look_at(client, id, until),
            Step::GiveUp(failure) => self.ended(client, id, Err(failure)),
        }
    }

    /// Receives a datagram at a client.
    fn receive(&mut self, client: usize, bytes: &[u8]) {
        let Some(id) = bytes.first_chunk().map(|id| u32::from_be_bytes(*id)) else { return };
        let one = &mut self.clients[client];
        let Some(flight) = one.waiters.find(id) else { return };
        let state = flight.state.as_mut().expect("the call has begun");
        let mut sent = Vec::new();
        let ended =
            state.receive(self.now, bytes, &mut one.server, &mut |datagram: Datagram<'_>| {
                sent.push(datagram.concat());
            });
        self.send_all(client, sent, false);
        match ended {
            Some(ended) => self.ended(client, id, ended.map(Cow::into_owned)),
            None => self.look_at(client, id, self.now),
        }
    }

    fn ended(&mut self, client: usize, id: u32, ended: Result<Vec<u8>, Failure>) {
        let flight = self.clients[client].waiters.remove(id).expect("the call");
        let (call, state) = (flight.call, flight.state.expect("the call has begun"));
        let failed =
            |failure: Failure| Ending::Failed(failure, failure.executed(state.transmissions()));
        let ending = match ended {
            Err(failure) => failed(failure),
            Ok(reply) => {
                let (header, offset) = Reply::parse(&reply).expect("the client has read the reply");
                let results = &reply[offset..];
                let is_rejected = matches!(header.answer, Answer::Reject(_));
                if !is_rejected && results != body(call, results.len().saturating_sub(8)) {
                    self.violations.push(format!("call {call} got other results"));
                }
                match (Failure::of(&header.answer), header.answer) {
                    (Some(failure), _) => failed(failure),
                    (None, Answer::Abort(ERROR)) => Ending::Error,
                    (None, _) => Ending::Results,
                }
            }
        };
        self.known[call].ended = Some(ending);
    }

    /// Receives a datagram at the server, as a driver does.
    fn serve(&mut self, client: usize, bytes: &[u8]) {
        let (from, mut sent) = (self.clients[client].address, Vec::new());
        let mut send = |datagram: Datagram<'_>| sent.push(datagram.concat());
        if let Some(work) = self.server.receive(self.now, from, bytes, &mut send) {
            let Work { call: header, arguments, running } = work;
            let arguments = arguments.of(bytes);
            let call = number(arguments).expect("arguments");
            if arguments != body(call, arguments.len() - 8) {
                self.violations.push(format!("call {call} arrived with other arguments"));
            }
            if header.procedure == LACKS {
                let reply = Reply::rejected(header.transaction, Rejection::NoSuchProcedure);
                let rejection = payload(&reply.to_vec());
                self.server.refuse(self.now, running, Some(&rejection), &mut send);
            } else if self.random.chance(self.weather.overload) {
                self.server.refuse(self.now, running, None, &mut send);
            } else {
                let answer = match header.procedure {
                    FAILS => Answer::Abort(ERROR),
                    _ => Answer::Return,
                };
                let mut reply = Reply { transaction: header.transaction, answer }.to_vec();
                let size = self.random.below(self.weather.size) as usize;
                reply.extend(body(call, size));
                self.started(call);
                let runs_for = self.random.below(self.weather.runs_for);
                let incarnation = self.incarnation;
                self.after(runs_for, Event::Stop { client, call, reply, running, incarnation });
            }
        }
        self.send_all(client, sent, true);
        self.check_limits();
    }

    /// Notes that a call begins to run.
    fn started(&mut self, call: usize) {
        let (bounds, now, incarnation) = (self.weather.bounds, self.now, self.incarnation);
        let known = &mut self.known[call];
        if known.executions > 0 {
            let is_old = known.stopped.is_some_and(|stopped| now.since(stopped) >= bounds.age);
            // Only whole calls run again after a restart.
            let is_restarted = known.is_whole && known.incarnation != incarnation;
            if !is_old && !known.may_be_evicted && !is_restarted {
                self.violations.push(format!("call {call} ran twice"));
            }
        }
        if let Some(Ending::Failed(failure, Executed::No)) = known.ended {
            self.violations.push(format!("call {call} runs, but {failure}"));
        }
        known.executions += 1;
        (known.stopped, known.incarnation, known.may_be_evicted) = (None, incarnation, false);
        // All clients have the same host, and share its quarter of the cache. When as many calls were begun
        // as this quarter holds, calls that have stopped may be evicted. Calls that were rejected count, too.
        if self.known.len() >= bounds.calls / 4 {
            for known in self.known.iter_mut().filter(|known| known.stopped.is_some()) {
                known.may_be_evicted = true;
            }
        }
    }

    fn stop(&mut self, client: usize, call: usize, reply: &[u8], running: Running) {
        self.known[call].stopped = Some(self.now);
        let mut sent = Vec::new();
        let mut send = |datagram: Datagram<'_>| sent.push(datagram.concat());
        self.server.end(self.now, running, &payload(reply), &mut send);
        self.send_all(client, sent, true);
        self.check_limits();
    }

    fn check_limits(&mut self) {
        let (calls, bytes, partial) = self.server.size();
        let bounds = self.weather.bounds;
        if calls > bounds.calls || bytes > bounds.bytes || partial > 256 {
            self.violations.push(format!("{calls} calls, {bytes} bytes, {partial} partial calls"));
        }
    }
}

/// Weather without faults. A test may change parts of it.
pub(super) const FAIR: Weather = Weather {
    loss: 0,
    duplicate: 0,
    damage: 0,
    overload: 0,
    delay: 50 * MILLISECOND,
    runs_for: 20 * MILLISECOND,
    restarts: 0,
    size: 100,
    bounds: Bounds::DEFAULT,
};
