//! The world in which the stream protocol runs: a server that may be restarted, clients, and the connections
//! between them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::client::{self, Client};
use super::pipe::Pipe;
use super::server::{self, Server};
use crate::exchange::time::{MILLISECOND, SECOND};
use crate::network::Token;
use crate::oracle::{Oracle, Plan};
use crate::protocol::stream::keep_alive::EXAMINE_EVERY;
use crate::random::Random;

/// If a kernel receives no acknowledgement for this time, it presumes the other host dead. The time is long,
/// because kernels probe rarely.
const KERNEL_KEEP_ALIVE: u64 = 60 * SECOND;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// The connection of a client is reset.
    Reset(usize),
    /// Nothing arrives any more on the connection of a client, but neither end gets an error.
    Vanish(usize),
    /// A client reads nothing for this time.
    Freeze(usize, u64),
    /// The server reads and writes nothing for this time. Its kernel continues to work.
    FreezeServer(u64),
    CrashClient(usize),
    CrashServer,
    /// The server begins to stop. Another one is started afterwards.
    StopServer,
    StartServer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(u64),
    Deadline {
        client: usize,
        caller: usize,
        number: u32,
        connection: u64,
    },
    Finish {
        incarnation: u64,
        connection: u64,
        number: u32,
        token: Token,
    },
    ExamineClient(u64),
    ExamineServer {
        incarnation: u64,
        connection: u64,
    },
    Connect(usize),
    Drain(u64),
    /// The client's kernel presumes the server's host dead.
    KernelGivesUp(u64),
    Change(Change),
    Thaw,
}

/// A connection between a client and the server.
struct Connection {
    id: u64,
    client: usize,
    incarnation: u64,
    up: Pipe,
    down: Pipe,
    has_vanished: bool,
    /// The time for which the next arrival on this connection is scheduled.
    scheduled: u64,
}

pub(crate) struct World {
    pub(crate) now: u64,
    delay: u64,
    capacity: usize,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    next_event: u64,
    pub(crate) random: Random,
    pub(crate) oracle: Oracle,
    pub(crate) clients: Vec<Client>,
    crashed: Vec<bool>,
    frozen_until: Vec<u64>,
    server: Option<Server>,
    server_frozen_until: u64,
    incarnations: u64,
    connections: Vec<Connection>,
    next_connection: u64,
    pub(crate) steps: u64,
}

impl World {
    pub(crate) fn new(
        plans: Vec<Vec<Vec<Plan>>>,
        delay: u64,
        capacity: usize,
        random: Random,
    ) -> Self {
        let mut oracle = Oracle::default();
        let mut client = |callers: Vec<Vec<Plan>>| {
            let calls =
                |plans: Vec<Plan>| plans.into_iter().map(|plan| oracle.plan(plan)).collect();
            Client::new(callers.into_iter().map(calls).collect())
        };
        let clients: Vec<Client> = plans.into_iter().map(&mut client).collect();
        let count = clients.len();
        let mut world = Self {
            now: 0,
            delay,
            capacity,
            events: BinaryHeap::new(),
            next_event: 0,
            random,
            oracle,
            clients,
            crashed: vec![false; count],
            frozen_until: vec![0; count],
            server: Some(Server::new(1)),
            server_frozen_until: 0,
            incarnations: 1,
            connections: Vec::new(),
            next_connection: 1,
            steps: 0,
        };
        (0..count).for_each(|client| world.at(0, Event::Connect(client)));
        world
    }

    /// Describes the state of a run that has not ended.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!(" ({} steps, server: {})", self.steps, self.server.is_some());
        for one in &self.connections {
            let Connection { id, client, up, down, has_vanished, .. } = one;
            text +=
                &format!("\nconnection {id} of client {client}: {up:?} {down:?} {has_vanished}");
            if let Some(server) = &self.server {
                text += &server.describe(*id);
            }
        }
        for client in &self.clients {
            text += &format!("\n{}", client.describe());
        }
        text
    }

    fn at(&mut self, time: u64, event: Event) {
        self.next_event += 1;
        self.events.push(Reverse((time.max(self.now), self.next_event, event)));
    }

    /// Schedules a fault after this time.
    pub(crate) fn later(&mut self, after: u64, change: Change) {
        self.at(self.now + after, Event::Change(change));
    }

    /// Returns whether all calls have ended.
    pub(crate) fn is_done(&self) -> bool {
        let mut clients = self.clients.iter().zip(&self.crashed);
        clients.all(|(client, crashed)| *crashed || client.is_done())
    }

    /// Runs until this time, or until no events are left.
    pub(crate) fn run_until(&mut self, end: u64) {
        while let Some(Reverse((time, _, _))) = self.events.peek()
            && *time <= end
        {
            let Some(Reverse((time, _, event))) = self.events.pop() else { break };
            self.now = self.now.max(time);
            self.steps += 1;
            self.handle(event);
        }
        self.now = end;
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive(id) => self.arrive(id),
            Event::Deadline { client, caller, number, connection } => {
                if self.index(connection).is_some() {
                    self.with_client(connection, |client, context| {
                        client.deadline(caller, number, context);
                    });
                } else {
                    let _ = client;
                }
            }
            Event::Finish { incarnation, connection, number, token } => {
                let Some(server) =
                    self.server.as_mut().filter(|one| one.incarnation == incarnation)
                else {
                    return;
                };
                server.finish(number, token, connection, &mut self.oracle);
                self.write_all();
            }
            Event::ExamineClient(id) => {
                if self.index(id).is_some() {
                    let index = self.index(id).expect("the connection exists");
                    let one = &self.connections[index];
                    let client = one.client;
                    // A receiving kernel whose buffer is full answers every zero-window probe.
                    if one.up.is_full() && !one.has_vanished {
                        self.clients[client].acknowledged(self.now);
                    }
                    self.with_client(id, |client, context| client.examine(context));
                    self.at(self.now + EXAMINE_EVERY.as_nanos() as u64, Event::ExamineClient(id));
                }
            }
            Event::ExamineServer { incarnation, connection } => {
                if let Some(server) =
                    self.server.as_mut().filter(|one| one.incarnation == incarnation)
                {
                    server.examine(connection, self.now);
                    self.serve();
                }
            }
            Event::Connect(client) => self.connect(client),
            Event::Drain(incarnation) => self.drain(incarnation),
            Event::KernelGivesUp(id) => {
                if let Some(index) = self.index(id) {
                    self.connections[index].down.reset(true);
                    self.connections[index].up.reset(true);
                    self.arrive(id);
                }
            }
            Event::Change(change) => self.change(change),
            Event::Thaw => {
                let ids: Vec<u64> = self.connections.iter().map(|one| one.id).collect();
                ids.into_iter().for_each(|id| self.arrive(id));
            }
        }
    }

    fn index(&self, id: u64) -> Option<usize> {
        self.connections.iter().position(|one| one.id == id)
    }

    fn connect(&mut self, client: usize) {
        if self.crashed[client] || self.connections.iter().any(|one| one.client == client) {
            return;
        }
        let Some(server) = self.server.as_mut().filter(|server| !server.is_stopping()) else {
            return self.at(self.now + 20 * MILLISECOND, Event::Connect(client));
        };
        let id = self.next_connection;
        self.next_connection += 1;
        server.accept(id);
        let incarnation = server.incarnation;
        let (up, down) = (Pipe::new(self.capacity), Pipe::new(self.capacity));
        self.connections.push(Connection {
            id,
            client,
            incarnation,
            up,
            down,
            has_vanished: false,
            scheduled: u64::MAX,
        });
        self.with_client(id, |client, context| client.connected(context));
        self.at(self.now + EXAMINE_EVERY.as_nanos() as u64, Event::ExamineClient(id));
    }

    /// Delivers what has arrived on a connection. Then lets both ends read, and write as much as they can.
    fn arrive(&mut self, id: u64) {
        let Some(index) = self.index(id) else { return };
        let one = &mut self.connections[index];
        if one.scheduled <= self.now {
            one.scheduled = u64::MAX;
        }
        if !one.has_vanished {
            let client = one.client;
            if one.up.arrive(self.now) {
                // The server's kernel acknowledges bytes even if the server does not read them.
                self.clients[client].acknowledged(self.now);
            }
            self.connections[index].down.arrive(self.now);
        }
        self.read_server(id);
        if let Some(index) = self.index(id)
            && self.frozen_until[self.connections[index].client] <= self.now
        {
            self.with_client(id, |client, context| client.receive(context));
        }
        // The client's step may have read and written. So the server may now be able to write and read more.
        self.read_server(id);
        self.write_all();
        self.arrange(id);
    }

    fn read_server(&mut self, id: u64) {
        if self.server_frozen_until > self.now {
            return;
        }
        self.with_server(id, |server, id, context| server.receive(id, context));
        // While the server reads, it requests actions from the world, such as ending a procedure later.
        self.serve();
    }

    /// Lets the server write its replies, and lets the clients send what they could not send before.
    fn write_all(&mut self) {
        let ids: Vec<u64> = self.connections.iter().map(|one| one.id).collect();
        for id in ids {
            if self.server_frozen_until <= self.now {
                self.with_server(id, |server, id, context| server.write(id, context));
            }
            if let Some(index) = self.index(id)
                && self.frozen_until[self.connections[index].client] <= self.now
            {
                self.with_client(id, |client, context| client.send(context));
            }
        }
        self.serve();
    }

    fn with_client(&mut self, id: u64, act: impl FnOnce(&mut Client, &mut client::Context<'_>)) {
        let Some(index) = self.index(id) else { return };
        let one = &mut self.connections[index];
        let number = one.client;
        let mut requests = Vec::new();
        let mut context = client::Context {
            id,
            now: self.now,
            delay: self.delay,
            up: &mut one.up,
            down: &mut one.down,
            random: &mut self.random,
            oracle: &mut self.oracle,
            requests: &mut requests,
        };
        act(&mut self.clients[number], &mut context);
        self.arrange(id);
        for one in requests {
            match one {
                client::Request::Deadline { caller, number: call, at } => {
                    let event =
                        Event::Deadline { client: number, caller, number: call, connection: id };
                    self.at(at, event);
                }
                client::Request::Close => self.close_client(id),
                client::Request::Connect => {
                    let after = self.random.range(MILLISECOND..100 * MILLISECOND);
                    self.at(self.now + after, Event::Connect(number));
                }
            }
        }
    }

    fn with_server(
        &mut self,
        id: u64,
        act: impl FnOnce(&mut Server, u64, &mut server::Context<'_>),
    ) {
        let Some(index) = self.index(id) else { return };
        let one = &mut self.connections[index];
        let Some(server) = self.server.as_mut().filter(|all| all.incarnation == one.incarnation)
        else {
            return;
        };
        let mut context = server::Context {
            now: self.now,
            delay: self.delay,
            up: &mut one.up,
            down: &mut one.down,
            random: &mut self.random,
            oracle: &mut self.oracle,
        };
        act(server, id, &mut context);
        self.arrange(id);
    }

    /// Schedules the arrival of bytes that were written to a connection.
    fn arrange(&mut self, id: u64) {
        let Some(index) = self.index(id) else { return };
        let one = &mut self.connections[index];
        let due = [&one.up, &one.down].into_iter().filter_map(Pipe::next_due).min();
        if let Some(due) = due.filter(|due| *due < one.scheduled && !one.has_vanished) {
            one.scheduled = due;
            self.at(due, Event::Arrive(id));
        }
    }

    /// Performs the actions that the server requests.
    fn serve(&mut self) {
        let Some(server) = &mut self.server else { return };
        let incarnation = server.incarnation;
        for request in core::mem::take(&mut server.requests) {
            match request {
                server::Request::Finish { connection, number, token, after } => {
                    let event = Event::Finish { incarnation, connection, number, token };
                    self.at(self.now + after, event);
                }
                server::Request::Examine { connection, after } => {
                    let event = Event::ExamineServer { incarnation, connection };
                    self.at(self.now + after, event);
                }
                server::Request::Close { connection, in_good_order } => {
                    self.close_server(connection, in_good_order);
                }
            }
        }
    }

    /// Closes the server's end of a connection.
    fn close_server(&mut self, id: u64, in_good_order: bool) {
        let Some(index) = self.index(id) else { return };
        let loses = self.random.chance(500);
        let one = &mut self.connections[index];
        if one.has_vanished {
            return;
        }
        if in_good_order {
            one.down.close();
        } else {
            one.down.reset(loses);
        }
        one.up.reset(true);
        self.at(self.now + self.delay, Event::Arrive(id));
    }

    /// Closes the client's end of a connection.
    fn close_client(&mut self, id: u64) {
        let Some(index) = self.index(id) else { return };
        let mut one = self.connections.remove(index);
        if one.has_vanished {
            // The connection has vanished, so the server does not learn that the client has closed its end.
            return;
        }
        // Bytes in flight may still arrive, and calls in them may be executed.
        if self.random.chance(500) {
            one.up.arrive(u64::MAX);
        } else {
            one.up.arrive(self.now);
        }
        one.up.reset(false);
        let Some(server) = self.server.as_mut().filter(|all| all.incarnation == one.incarnation)
        else {
            return;
        };
        let mut context = server::Context {
            now: self.now,
            delay: self.delay,
            up: &mut one.up,
            down: &mut one.down,
            random: &mut self.random,
            oracle: &mut self.oracle,
        };
        server.receive(id, &mut context);
        self.serve();
    }

    fn drain(&mut self, incarnation: u64) {
        let Some(server) = self.server.as_mut().filter(|one| one.incarnation == incarnation) else {
            return;
        };
        if !server.is_drained(self.now) {
            return self.at(self.now + 5 * MILLISECOND, Event::Drain(incarnation));
        }
        for id in server.connections() {
            self.with_server(id, |server, id, context| server.farewell(id, context));
        }
        self.serve();
        self.server = None;
        let after = self.random.below(SECOND);
        self.later(after, Change::StartServer);
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Reset(client) | Change::Vanish(client) => {
                let Some(one) = self.connections.iter_mut().find(|one| one.client == client) else {
                    return;
                };
                if change == Change::Vanish(client) {
                    one.has_vanished = true;
                    let id = one.id;
                    return self.at(self.now + KERNEL_KEEP_ALIVE, Event::KernelGivesUp(id));
                }
                let loses = self.random.chance(500);
                one.up.reset(loses);
                one.down.reset(loses);
                let id = one.id;
                self.at(self.now + 1, Event::Arrive(id));
            }
            Change::Freeze(client, time) => {
                self.frozen_until[client] = self.now + time;
                self.at(self.now + time, Event::Thaw);
            }
            Change::FreezeServer(time) => {
                self.server_frozen_until = self.now + time;
                self.at(self.now + time, Event::Thaw);
            }
            Change::CrashClient(client) => {
                self.crashed[client] = true;
                self.clients[client].crash(self.now, &mut self.oracle);
                let ids: Vec<u64> = self
                    .connections
                    .iter()
                    .filter(|one| one.client == client)
                    .map(|one| one.id)
                    .collect();
                ids.into_iter().for_each(|id| self.close_client(id));
            }
            Change::CrashServer => {
                if let Some(server) = self.server.take() {
                    for id in server.connections() {
                        self.close_server(id, false);
                    }
                    let after = self.random.below(SECOND);
                    self.later(after, Change::StartServer);
                }
            }
            Change::StopServer => {
                if let Some(server) = self.server.as_mut().filter(|one| !one.is_stopping()) {
                    server.stop(self.now);
                    let incarnation = server.incarnation;
                    self.write_all();
                    self.at(self.now, Event::Drain(incarnation));
                }
            }
            Change::StartServer => {
                if self.server.is_none() {
                    self.incarnations += 1;
                    self.server = Some(Server::new(self.incarnations));
                }
            }
        }
    }
}
