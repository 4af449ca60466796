//! The world of a run of the packet exchange: virtual time, machines with their own clocks, and the network
//! between the machines.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use crate::client::{Client, ClientOptions};
use crate::exchange::header::{HEADER_BYTES, Handle, Header, PacketKind};
use crate::exchange::message::Shape;
use crate::exchange::time::{MILLISECOND, Moment, SECOND};
use crate::exchange::versions;
use crate::network::{ATTACKER, Address, Fate, Link, NotSent, Packet, SERVER, Token, machine_of};
use crate::oracle::{Oracle, Plan};
use crate::paths::{Departure, Paths};
use crate::random::Random;
use crate::server::{Request, Server, ServerOptions};

/// An event, which happens at a certain time.
#[derive(Debug)]
pub(crate) enum Event {
    Arrive(Packet),
    Wake(Address, usize),
    /// A procedure ends. The fields are the incarnation of the server, the place of the call's record, and
    /// the call.
    Finish(u64, u32, Token),
    /// A record can send more. The fields are the incarnation of the server, and the place of the record.
    Flush(u64, u32),
    Change(Change),
    /// The server of this incarnation checks whether the clients of its procedures are alive.
    CheckCallers(u64),
    /// The attacker sends something.
    Attack,
}

/// A change of the world that a script or a seed makes.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Crashes one of the servers that share the address.
    CrashServer(usize),
    /// Starts a server in the place of a crashed one.
    StartServer(usize),
    CrashClient(Address),
    StartClient(Address),
    Stop(Address),
    Continue(Address),
    /// Pauses the machine and its clock for this time, as a virtual machine can be paused.
    Freeze(Address, u64),
    /// Sets two flags: whether all packets to the server are lost, and whether all packets to the client are
    /// lost.
    Cut(bool, bool),
    /// From now on, packets of more than this number of bytes are lost, in both directions.
    Mtu(usize),
    /// From now on, sending packets of more than this number of bytes fails, on both sides.
    Narrow(usize),
    /// Sets two flags: whether sending fails at the clients, and whether it fails at the server.
    NoRoute(bool, bool),
    /// Replaces the address of the client's machine by another one.
    Move(Address),
    /// Address translation forgets the flows of a client. With `true`, the client's next
    /// packets begin new flows. With `false`, these packets are lost.
    Forget(Address, bool),
    /// The load balancer assigns the flows to other servers.
    Rebalance,
}

/// The clock of a machine. It starts at an arbitrary value, and its rate is slightly wrong.
#[derive(Clone, Copy, Debug)]
struct Clock {
    offset: u64,
    /// The error of the clock's rate, in millionths.
    drift: i64,
}

impl Clock {
    fn now(self, time: u64) -> Moment {
        let wrong = i128::from(time) * i128::from(self.drift) / 1_000_000;
        Moment((i128::from(self.offset) + i128::from(time) + wrong) as u64)
    }

    /// Stops the clock at `time` for `nanoseconds`. Afterwards the clock continues as if no time had passed.
    fn pause(&mut self, time: u64, nanoseconds: u64) {
        let passed = self.now(time + nanoseconds).0 - self.now(time).0;
        self.offset -= passed;
    }

    /// Returns the first time at which this clock shows at least `moment`.
    fn time_of(self, moment: u64) -> u64 {
        let local = i128::from(moment) - i128::from(self.offset);
        let time = local * 1_000_000 / (1_000_000 + i128::from(self.drift));
        let mut time = time.max(0) as u64;
        while self.now(time).0 < moment {
            time += 1;
        }
        time
    }
}

struct Machine {
    clock: Clock,
    stopped: bool,
    /// The time until which the machine and its clock are paused. Until then, the clock must not be read.
    frozen_until: u64,
    /// Packets that arrived during the pause. There are at most as many as a socket can hold.
    pending: VecDeque<Packet>,
}

const PENDING_MAX: usize = 200;
/// The interval at which a server checks the clients of running procedures.
const CHECK_EVERY: u64 = 100 * MILLISECOND;

/// An event with its time. Events with the same time happen in the order in which they were added.
struct Entry {
    at: (u64, u64),
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}

/// A packet that was sent. The log of these packets lets tests count them.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) at: u64,
    pub(crate) from: Address,
    pub(crate) header: Header,
}

type Script = Box<dyn FnMut(u64, &Packet, &Header) -> Fate>;

pub(crate) struct World {
    pub(crate) now: u64,
    order: u64,
    queue: BinaryHeap<Reverse<Entry>>,
    pub(crate) random: Random,
    pub(crate) oracle: Oracle,
    pub(crate) to_server: Link,
    pub(crate) to_client: Link,
    machines: Vec<Machine>,
    /// The servers that share one address. All of them run on one machine.
    pub(crate) servers: Vec<Option<Server>>,
    paths: Paths,
    server_options: ServerOptions,
    incarnations: u64,
    pub(crate) clients: Vec<Option<Client>>,
    client_options: ClientOptions,
    /// The calls that clients had not begun when they crashed.
    left: Vec<Vec<VecDeque<Token>>>,
    pub(crate) script: Option<Script>,
    /// All packets that were sent, or `None` if they are not logged.
    pub(crate) log: Option<Vec<Sent>>,
    pub(crate) trace: bool,
    /// Packets that the attacker has seen.
    seen: Vec<Packet>,
    /// The time at which the attacks end.
    pub(crate) attacks_until: u64,
    /// The number of bytes that were sent to the attacker.
    sent_to_attacker: usize,
    /// The number of bytes that the attacker has sent from its own address.
    sent_by_attacker: usize,
    /// Whether a closed port is reported to the sender by ICMP.
    pub(crate) icmp: bool,
    pub(crate) steps: u64,
}

pub(crate) const SERVER_OPTIONS: ServerOptions = ServerOptions {
    places: 64,
    share: 64,
    workers: 64,
    queue: 64,
    piece: 1408,
    credits: 1024,
    bytes_max: 64 << 20,
    memory_shortage: 0,
};

pub(crate) const CLIENT_OPTIONS: ClientOptions =
    ClientOptions { piece: 1408, credits: 1024, result_bytes_max: 64 << 20, pause: 0, bye: true };

impl World {
    pub(crate) fn new(
        seed: u64,
        clients: u32,
        server_options: ServerOptions,
        client_options: ClientOptions,
    ) -> Self {
        let mut random = Random::new(seed);
        // These are the largest errors of clocks, in millionths. The first is that of a quartz clock. The
        // second is that of a virtual machine's clock while it is being corrected.
        let drift = *random.pick(&[500, 100_000]);
        let mut machine = |_| Machine {
            clock: Clock {
                offset: random.range(100_000 * SECOND..1_000_000 * SECOND),
                drift: random.range(0..2 * drift) as i64 - drift as i64,
            },
            stopped: false,
            frozen_until: 0,
            pending: VecDeque::new(),
        };
        let machines = (0..=clients).map(&mut machine).collect();
        let mut world = Self {
            now: 0,
            order: 0,
            queue: BinaryHeap::new(),
            random,
            oracle: Oracle::default(),
            to_server: Link::PERFECT,
            to_client: Link::PERFECT,
            machines,
            servers: vec![None],
            paths: Paths::new(clients as usize + 1),
            server_options,
            incarnations: 0,
            clients: (0..clients).map(|_| None).collect(),
            client_options,
            left: vec![Vec::new(); clients as usize],
            script: None,
            log: None,
            trace: std::env::var_os("PEREGRINE_TRACE").is_some(),
            seen: Vec::new(),
            attacks_until: 0,
            sent_to_attacker: 0,
            sent_by_attacker: 0,
            icmp: true,
            steps: 0,
        };
        world.change(Change::StartServer(0));
        world
    }

    pub(crate) fn at(&mut self, time: u64, event: Event) {
        self.order += 1;
        self.queue.push(Reverse(Entry { at: (time, self.order), event }));
    }

    pub(crate) fn later(&mut self, after: u64, change: Change) {
        self.at(self.now + after, Event::Change(change));
    }

    /// Starts a client with its calls. `plans` has one list of calls for each activity (thread) of the
    /// client.
    pub(crate) fn start(&mut self, client: Address, plans: &[Vec<Plan>]) {
        let plans = plans.iter();
        self.left[client as usize - 1] =
            plans.map(|calls| calls.iter().map(|plan| self.oracle.plan(*plan)).collect()).collect();
        self.change(Change::StartClient(client));
    }

    /// Makes `servers` servers share one address.
    pub(crate) fn balance(&mut self, servers: usize) {
        while self.servers.len() < servers {
            self.servers.push(None);
            self.change(Change::StartServer(self.servers.len() - 1));
        }
    }

    /// Returns the first server.
    pub(crate) fn server(&self) -> Option<&Server> {
        self.servers[0].as_ref()
    }

    /// Returns the index of the server with this incarnation, if the server is alive.
    fn index_of(&self, incarnation: u64) -> Option<usize> {
        let is = |server: &Option<Server>| {
            server.as_ref().is_some_and(|server| server.incarnation == incarnation)
        };
        self.servers.iter().position(is)
    }

    fn clock(&self, machine: Address) -> Clock {
        self.machines[machine as usize].clock
    }

    /// Runs until no events are left, or until `end`. Returns whether no events are left.
    pub(crate) fn run_until(&mut self, end: u64) -> bool {
        while let Some(Reverse(entry)) = self.queue.peek() {
            if entry.at.0 > end {
                self.now = end;
                return false;
            }
            self.step();
        }
        self.now = end;
        true
    }

    pub(crate) fn is_done(&self) -> bool {
        self.clients.iter().flatten().all(Client::is_done)
    }

    pub(crate) fn step(&mut self) {
        let Some(Reverse(Entry { at: (time, _), event })) = self.queue.pop() else { return };
        self.steps += 1;
        self.now = time;
        match event {
            Event::Arrive(packet) => self.arrive(packet),
            Event::Wake(client, activity) => self.wake(client, activity),
            Event::Finish(incarnation, place, token) => {
                let stopped = self.machines[SERVER as usize].stopped;
                if stopped {
                    // The threads of a stopped machine do not run. So the procedure ends only after the
                    // machine continues.
                    self.at(time + MILLISECOND, Event::Finish(incarnation, place, token));
                } else if let Some(at) = self.index_of(incarnation)
                    && let Some(server) = &mut self.servers[at]
                    // A cancelled procedure may already have ended.
                    && server.runs(place, token)
                {
                    let now = self.machines[SERVER as usize].clock.now(time);
                    server.finished(now, place, token, &mut self.oracle);
                    self.serve(at);
                }
            }
            Event::Flush(incarnation, place) => {
                let machine = &self.machines[SERVER as usize];
                if machine.stopped {
                    self.at(time + MILLISECOND, Event::Flush(incarnation, place));
                } else if let Some(at) = self.index_of(incarnation)
                    && let Some(server) = &mut self.servers[at]
                {
                    server.flush(self.machines[SERVER as usize].clock.now(time), place);
                    self.serve(at);
                }
            }
            Event::Change(change) => self.change(change),
            Event::CheckCallers(incarnation) => self.check_callers(incarnation),
            Event::Attack => self.attack(),
        }
    }

    fn arrive(&mut self, mut packet: Packet) {
        let to = machine_of(packet.to);
        if to == ATTACKER {
            return;
        }
        let machine = &mut self.machines[to as usize];
        if machine.stopped {
            if machine.pending.len() < PENDING_MAX {
                machine.pending.push_back(packet);
            }
            return;
        }
        let now = machine.clock.now(self.now);
        if packet.to == SERVER {
            let at = self.paths.server_of(packet.from, self.servers.len());
            match &mut self.servers[at] {
                Some(server) => {
                    server.receive(now, &packet, &mut self.oracle);
                    self.serve(at);
                }
                None => self.port_unreachable(&packet),
            }
        } else if let Some(socket) = self.paths.arrive(packet.to)
            && let Some(client) = &mut self.clients[to as usize - 1]
        {
            packet.socket = socket;
            if let Some(activity) = client.receive(now, &packet, &mut self.oracle) {
                self.drive(to, activity);
            }
        }
    }

    /// Reports to the client that a port on the server's machine is closed. Does so only if the path is open.
    /// The machine itself is running.
    fn port_unreachable(&mut self, packet: &Packet) {
        if !self.icmp || self.to_client.cut || packet.from == ATTACKER {
            return;
        }
        let from = machine_of(packet.from);
        let now = self.clock(from).now(self.now);
        if self.paths.arrive(packet.from).is_some()
            && let Some(client) = &mut self.clients[from as usize - 1]
            && let Some(activity) = client.note_unreachable(now, packet)
        {
            self.drive(from, activity);
        }
    }

    fn wake(&mut self, client: Address, activity: usize) {
        if let Some(one) = &mut self.clients[client as usize - 1]
            && let Some(one) = one.activities.get_mut(activity)
            // Only a wake-up at the time `wake` is valid. A wake-up at another time is outdated, and is
            // ignored.
            && one.wake == self.now
        {
            one.wake = u64::MAX;
            self.drive(client, activity);
        }
    }

    fn drive(&mut self, address: Address, activity: usize) {
        if self.machines[address as usize].stopped {
            return;
        }
        let clock = self.clock(address);
        let Some(client) = &mut self.clients[address as usize - 1] else { return };
        let mut out = Vec::new();
        let wake = client.drive(clock.now(self.now), activity, &mut self.oracle, &mut out);
        if let Some(local) = wake {
            let time = clock.time_of(local).max(self.now + 1);
            let scheduled = &mut client.activities[activity].wake;
            if time < *scheduled {
                *scheduled = time;
                self.at(time, Event::Wake(address, activity));
            }
        }
        let (now, mut again) = (clock.now(self.now), false);
        for packet in out {
            let outcome = self.leave(packet);
            if let Some(client) = &mut self.clients[address as usize - 1] {
                client.sent(now, activity, outcome, &mut self.oracle);
            }
            again |= matches!(outcome, Err(NotSent::TooLarge(_) | NotSent::Moved));
            if outcome == Err(NotSent::Moved) {
                // The other packets come from the same socket, so they cannot be sent either.
                break;
            }
        }
        if again {
            self.drive(address, activity);
        }
    }

    /// Sends a packet of a client.
    fn leave(&mut self, mut packet: Packet) -> Result<(), NotSent> {
        let departure = self.paths.leave(packet.from, packet.socket);
        if departure == Departure::AddressLost {
            return Err(NotSent::Moved);
        }
        self.to_server.take(packet.length(), &mut self.random)?;
        if let Departure::From(address) = departure {
            packet.from = address;
            self.send(packet);
        }
        Ok(())
    }

    fn check_callers(&mut self, incarnation: u64) {
        let (time, now) = (self.now, self.clock(SERVER).now(self.now));
        let Some(at) = self.index_of(incarnation) else { return };
        let Some(server) = &mut self.servers[at] else { return };
        let stopped = self.machines[SERVER as usize].stopped;
        server.is_checking = stopped || server.check_callers(time, now, &mut self.oracle);
        if server.is_checking {
            self.at(time + CHECK_EVERY, Event::CheckCallers(incarnation));
        }
        self.serve(at);
    }

    /// Performs the actions that a server requests.
    fn serve(&mut self, at: usize) {
        let Some(server) = &mut self.servers[at] else { return };
        let incarnation = server.incarnation;
        if server.running().next().is_some() && !server.is_checking {
            server.is_checking = true;
            self.at(self.now + CHECK_EVERY, Event::CheckCallers(incarnation));
        }
        let Some(server) = &mut self.servers[at] else { return };
        for request in core::mem::take(&mut server.requests) {
            match request {
                Request::Send(packet) => {
                    // If the machine does not accept the packet, the packet counts as lost.
                    if self.to_client.take(packet.length(), &mut self.random).is_ok() {
                        self.send(packet);
                    }
                }
                Request::Flush(place, due) => {
                    let at = self.clock(SERVER).time_of(due.0).max(self.now + 1);
                    self.at(at, Event::Flush(incarnation, place));
                }
                Request::Run(place, token) => {
                    if let Some(runs_for) = self.oracle.call(token).plan.runs_for {
                        let end = self.now + runs_for;
                        self.at(end, Event::Finish(incarnation, place, token));
                    }
                }
            }
        }
    }

    fn send(&mut self, packet: Packet) {
        let Some(header) = packet.header() else {
            assert!(versions::read(&packet.bytes).is_some(), "a sent packet can be parsed");
            return self.carry(packet, 0);
        };
        self.oracle.sent(&header);
        if self.trace {
            let (data, length) = (packet.data.as_ref().map(|(token, _)| token), packet.length());
            eprintln!(
                "{:>13} {} -> {} {length} {data:x?} {header:?}",
                self.now, packet.from, packet.to
            );
        }
        if let Some(log) = &mut self.log {
            log.push(Sent { at: self.now, from: packet.from, header });
        }
        if packet.to == ATTACKER {
            self.sent_to_attacker += packet.length();
            return;
        }
        if self.attacks_until > 0 {
            self.overhear(&packet);
        }
        let mut late = 0;
        if let Some(script) = &mut self.script {
            match script(self.now, &packet, &header) {
                Fate::Pass => {}
                Fate::Drop => return,
                Fate::Late(after) => late = after,
                Fate::Twice(after) => {
                    self.at(self.now + after, Event::Arrive(packet.clone()));
                }
            }
        }
        self.carry(packet, late);
    }

    fn carry(&mut self, packet: Packet, late: u64) {
        let link = if packet.to == SERVER { &mut self.to_server } else { &mut self.to_client };
        for (delay, packet) in link.carry(self.now, packet, &mut self.random) {
            self.at(self.now + delay + late, Event::Arrive(packet));
        }
    }

    fn overhear(&mut self, packet: &Packet) {
        if self.seen.len() < 64 {
            self.seen.push(packet.clone());
        } else {
            let at = self.random.below(64) as usize;
            self.seen[at] = packet.clone();
        }
    }

    /// Sends a hostile packet. Its source is either the attacker's own address, at which the attacker can
    /// receive, or a forged address.
    fn attack(&mut self) {
        if self.now > self.attacks_until {
            return;
        }
        let packet = match self.random.below(4) {
            0 if !self.seen.is_empty() => self.replayed(),
            1 => self.forged(),
            _ => self.noise(),
        };
        if packet.from == ATTACKER {
            self.sent_by_attacker += packet.length();
        }
        self.at(self.now + 1000, Event::Arrive(packet));
        if self.sent_to_attacker > self.sent_by_attacker {
            let balance = (self.sent_by_attacker, self.sent_to_attacker);
            self.oracle.violated(format!("an attacker sent and received {balance:?} bytes"));
        }
        let next = self.now + self.random.range(MILLISECOND / 10..20 * MILLISECOND);
        self.at(next, Event::Attack);
    }

    /// Returns a copy of an earlier packet, with the attacker's address as its source.
    fn replayed(&mut self) -> Packet {
        let seen = self.seen.clone();
        Packet { from: ATTACKER, to: SERVER, ..self.random.pick(&seen).clone() }
    }

    /// Makes a valid header with an unknown secret, from a forged address.
    fn forged(&mut self) -> Packet {
        let kinds = [
            PacketKind::Call,
            PacketKind::Probe,
            PacketKind::Cancel,
            PacketKind::Bye,
            PacketKind::HaveResult,
            PacketKind::Refused,
        ];
        let place = self.random.below(self.server_options.places.into()) as u32;
        let handle = Handle { place, secret: self.random.bytes() };
        let kind = *self.random.pick(&kinds);
        let header = Header {
            piece: 1408,
            shape: Shape { total: 0, ..Shape::default() },
            ..Header::new(kind, handle, self.random.next() as u32)
        };
        let mut bytes = [0; HEADER_BYTES];
        header.emit(&mut bytes);
        let spoofed = self.random.below(self.machines.len() as u64) as Address;
        let address = self.paths.address_of(spoofed, &mut self.random);
        let from = if spoofed == SERVER { ATTACKER } else { address };
        let to = if kind == PacketKind::Refused && from != ATTACKER { from } else { SERVER };
        Packet { from, to, socket: 0, bytes: bytes.to_vec(), data: None }
    }

    fn noise(&mut self) -> Packet {
        let length = self.random.below(200) as usize;
        let bytes = (0..length).map(|_| self.random.next() as u8).collect();
        let machine = self.random.below(self.machines.len() as u64) as Address;
        let to = self.paths.address_of(machine, &mut self.random);
        Packet { from: ATTACKER, to, socket: 0, bytes, data: None }
    }

    pub(crate) fn change(&mut self, change: Change) {
        if self.trace {
            eprintln!("{:>13} {change:?}", self.now);
        }
        match change {
            Change::CrashServer(at) => self.servers[at] = None,
            Change::StartServer(at) => {
                self.incarnations += 1;
                let random = Random::new(self.random.next());
                let (n, options) = (self.incarnations, self.server_options);
                self.servers[at] = Some(Server::new(n, 1000 + n, options, random));
            }
            Change::CrashClient(address) => {
                let now = self.now;
                if let Some(client) = &mut self.clients[address as usize - 1] {
                    self.left[address as usize - 1] = client.crash(now, &mut self.oracle);
                }
                self.clients[address as usize - 1] = None;
            }
            Change::StartClient(address) => self.start_client(address),
            Change::Stop(address) => self.machines[address as usize].stopped = true,
            Change::Continue(address) => self.continue_machine(address),
            Change::Freeze(address, nanoseconds) => {
                let (now, machine) = (self.now, &mut self.machines[address as usize]);
                if !machine.stopped {
                    machine.stopped = true;
                    machine.frozen_until = now + nanoseconds;
                    machine.clock.pause(now, nanoseconds);
                    self.later(nanoseconds, Change::Continue(address));
                }
            }
            Change::Cut(to_server, to_client) => {
                (self.to_server.cut, self.to_client.cut) = (to_server, to_client);
            }
            Change::Mtu(mtu) => (self.to_server.mtu, self.to_client.mtu) = (mtu, mtu),
            Change::Narrow(narrow) => {
                (self.to_server.narrow, self.to_client.narrow) = (narrow, narrow);
            }
            Change::NoRoute(client, server) => {
                (self.to_server.no_route, self.to_client.no_route) = (client, server);
            }
            Change::Move(address) => self.paths.moves(address),
            Change::Forget(address, anew) => self.paths.forget(address, anew),
            Change::Rebalance => self.paths.rebalance(),
        }
    }

    fn start_client(&mut self, address: Address) {
        let at = address as usize - 1;
        if self.clients[at].is_some() {
            return;
        }
        let plans = core::mem::take(&mut self.left[at]);
        let activities = plans.len();
        let random = Random::new(self.random.next());
        self.clients[at] = Some(Client::new(address, self.client_options, plans, random));
        for activity in 0..activities {
            self.drive(address, activity);
        }
    }

    fn continue_machine(&mut self, address: Address) {
        let machine = &mut self.machines[address as usize];
        if self.now < machine.frozen_until {
            return;
        }
        machine.stopped = false;
        for packet in core::mem::take(&mut machine.pending) {
            self.arrive(packet);
        }
        if address != SERVER {
            let client = self.clients[address as usize - 1].as_ref();
            for activity in 0..client.map_or(0, |client| client.activities.len()) {
                self.drive(address, activity);
            }
        }
    }

    /// Returns how many packets of a kind were sent so far, if they are logged.
    pub(crate) fn sent(&self, kind: PacketKind) -> usize {
        self.log.iter().flatten().filter(|sent| sent.header.kind == kind).count()
    }
}
