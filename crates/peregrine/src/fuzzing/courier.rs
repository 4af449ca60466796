//! Fuzz targets for Courier: the bytes that any peer can send over a stream or in datagrams, and both ends of
//! packet Courier.

use core::net::{Ipv4Addr, SocketAddr};
use std::collections::{BTreeMap, VecDeque};

use crate::protocol::courier::cooper::{
    ClientInput, Request, Response, STARTED, ServerInput, activation, call_header, refusal,
    reply_header,
};
use crate::protocol::courier::failure::Failure;
use crate::protocol::courier::frames::{END_FRAME, END_REPLY_FRAME};
use crate::protocol::courier::message::{Answer, CALL_BYTES, Call, NoCall, Reply, Versions};
use crate::protocol::courier::outstanding::Outstanding;
use crate::protocol::courier::packet::{Datagram, Packet, payload};
use crate::protocol::courier::packet_client::{Association, Form, PacketCall, Step};
use crate::protocol::courier::packet_server::{PacketServer, Running};
use crate::protocol::courier::stream::{Event, Framing, Input};
use crate::protocol::exchange::time::{Moment, SECOND};
use crate::protocol::replies::Bounds;

const START: Moment = Moment(1000 * SECOND);
const MESSAGE_MAX: usize = 2000;

/// Reads any bytes as messages, as streams in each form, and as a packet.
///
/// # Panics
/// Panics if a value differs after it was written and read again, or if a stream contains other messages when
/// it arrives in pieces of another size.
pub fn message(bytes: &[u8]) {
    call(bytes);
    reply(bytes);
    for framing in [Framing::Records, Framing::Frames] {
        stream(framing, bytes);
    }
    cooper(bytes);
    outstanding(bytes);
    if let Ok(packet) = Packet::parse(bytes) {
        let again = packet.to_vec();
        assert_eq!(Packet::parse(&again), Ok(packet));
    }
}

fn call(bytes: &[u8]) {
    match Call::parse(bytes) {
        Ok((call, offset)) => {
            let mut header = [0; CALL_BYTES];
            assert_eq!((call.emit(&mut header), &header[..]), (Some(offset), &bytes[..offset]));
        }
        Err(NoCall::Reject(reply)) => {
            let rejected = reply.to_vec();
            assert_eq!(Reply::parse(&rejected), Ok((reply, rejected.len())));
        }
        Err(NoCall::Ignore(_)) => {}
    }
}

fn reply(bytes: &[u8]) {
    let Ok((reply, offset)) = Reply::parse(bytes) else { return };
    assert_eq!(reply.to_vec(), bytes[..offset]);
    let is_rejected = matches!(reply.answer, Answer::Reject(_));
    assert_eq!(Failure::of(&reply.answer).is_some(), is_rejected);
}

/// Reads a stream in pieces of two sizes, and reads it again after its messages were written.
fn stream(framing: Framing, bytes: &[u8]) {
    let (events, version, is_good) = messages(framing, bytes, 1 << 20);
    assert_eq!(messages(framing, bytes, 1), (events.clone(), version, is_good));
    let mut again = Vec::new();
    let mut write = |message: &[u8]| {
        for (before, range) in (0..).map_while(|index| framing.piece(message.len(), index)) {
            again.extend(before);
            again.extend(&message[range]);
        }
    };
    write(&Versions::OURS.to_bytes());
    let is_message = |event: &&Event| matches!(event, Event::Message(_));
    let sent: Vec<_> = events.iter().filter(is_message).cloned().collect();
    for event in &sent {
        let Event::Message(message) = event else { continue };
        write(message);
    }
    if framing == Framing::Frames {
        again.extend([END_FRAME, END_REPLY_FRAME].concat());
    }
    let ends = [Event::End, Event::EndReply];
    let ends = if framing == Framing::Frames { &ends[..] } else { &[] };
    assert_eq!(messages(framing, &again, 7), ([&sent, ends].concat(), Some(3), true));
}

/// Returns the messages of a stream that arrives in pieces, the version, and whether the stream is valid.
fn messages(framing: Framing, bytes: &[u8], piece: usize) -> (Vec<Event>, Option<u16>, bool) {
    let (mut input, mut events) = (Input::new(framing, MESSAGE_MAX), Vec::new());
    for mut bytes in bytes.chunks(piece) {
        loop {
            match input.take(&mut bytes) {
                Ok(Some(event)) => {
                    if let Event::Message(message) = &event {
                        assert!(message.len() <= MESSAGE_MAX && input.version() == Some(3));
                    }
                    events.push(event);
                }
                Ok(None) => break,
                Err(broken) => {
                    assert!(!broken.to_string().is_empty());
                    return (events, input.version(), false);
                }
            }
        }
    }
    (events, input.version(), input.end().is_ok())
}

fn requests(bytes: &[u8], piece: usize) -> (Vec<Request>, bool) {
    let (mut server, mut requests) = (ServerInput::new(), Vec::new());
    for mut bytes in bytes.chunks(piece) {
        loop {
            match server.take(&mut bytes) {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(_) => return (requests, false),
            }
        }
    }
    (requests, server.end().is_ok())
}

fn responses(bytes: &[u8], piece: usize) -> (Vec<Response>, bool) {
    let (mut client, mut responses) = (ClientInput::new(), Vec::new());
    for mut bytes in bytes.chunks(piece) {
        loop {
            match client.take(&mut bytes) {
                Ok(Some(response)) => responses.push(response),
                Ok(None) => break,
                Err(_) => return (responses, false),
            }
        }
    }
    (responses, client.end().is_ok())
}

fn cooper(bytes: &[u8]) {
    let (all, is_whole) = requests(bytes, 1 << 20);
    assert_eq!(requests(bytes, 1), (all.clone(), is_whole));
    let mut again = Vec::new();
    for request in &all {
        match request {
            Request::Activate(name) => again.extend(activation(name).expect("a name")),
            Request::Call { procedure, arguments } => {
                again.extend(call_header(*procedure, arguments.len()).expect("a short call"));
                again.extend(arguments);
            }
        }
    }
    assert_eq!(requests(&again, 7), (all, true));
    let (all, is_whole) = responses(bytes, 1 << 20);
    assert_eq!(responses(bytes, 1), (all.clone(), is_whole));
    let mut again = Vec::new();
    for response in &all {
        match response {
            Response::Started => again.extend(STARTED),
            Response::Refused(text) => again.extend(refusal(text)),
            Response::Results(results) => {
                again.extend(reply_header(results.len()).expect("short results"));
                again.extend(results);
            }
        }
    }
    // Bytes of a refusal that are not UTF-8 are replaced, and the text may be too long then.
    let is_text = |response: &Response| matches!(response, Response::Refused(_));
    assert!(all.iter().any(is_text) || responses(&again, 7) == (all, true));
}

/// Begins and ends calls of one connection, whose replies must arrive in order.
fn outstanding(bytes: &[u8]) {
    let (mut calls, mut model) = (Outstanding::new(), VecDeque::new());
    for (index, byte) in bytes.iter().enumerate() {
        if let Ok(number) = calls.add(index) {
            model.push_back((number, index));
        }
        let number = u16::from(*byte);
        let expected = model.iter().find(|(one, _)| *one == number).map(|(_, index)| *index);
        assert_eq!(calls.find(number).copied(), expected);
        let is_oldest = model.front().is_some_and(|(oldest, _)| *oldest == number);
        assert_eq!(calls.answered(number).is_ok(), is_oldest);
        if is_oldest {
            model.pop_front();
        }
        assert_eq!(calls.len(), model.len());
    }
    assert!(calls.drain().map(|(_, index)| index).eq(model.into_iter().map(|(_, index)| index)));
}

/// Makes calls of several clients to one server of packet Courier. Each step of four bytes begins a call,
/// ends a procedure, delivers, repeats or changes a datagram, restarts the server, or lets time pass.
///
/// # Panics
/// Panics if two runs of a call overlap, if a call that is sent in parts runs twice although the server
/// remembers it, if a client gets the reply to another call, or if a limit is exceeded.
pub fn packets(bytes: &[u8]) {
    let mut world = World::new();
    for step in bytes.as_chunks().0 {
        world.step(*step);
    }
}

const BOUNDS: Bounds = Bounds { calls: 4096, bytes: 60_000, age: u64::MAX };

struct World {
    now: Moment,
    server: PacketServer,
    restarts: u8,
    clients: Vec<Association>,
    calls: BTreeMap<(usize, u32), PacketCall>,
    /// The calls that run, and the reply to each of them.
    running: BTreeMap<(usize, u32), (Running, Vec<u8>)>,
    /// How often each call has run.
    executed: BTreeMap<(usize, u32), u32>,
    to_server: Vec<(usize, Vec<u8>)>,
    to_client: Vec<(usize, Vec<u8>)>,
    next: u32,
}

fn address(client: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 700 + client as u16))
}

impl World {
    fn new() -> Self {
        Self {
            now: START,
            server: PacketServer::new([0; 16], BOUNDS),
            restarts: 0,
            clients: (0..4).map(Association::new).collect(),
            calls: BTreeMap::new(),
            running: BTreeMap::new(),
            executed: BTreeMap::new(),
            to_server: Vec::new(),
            to_client: Vec::new(),
            next: u32::MAX - 2,
        }
    }

    fn step(&mut self, [step, which, a, b]: [u8; 4]) {
        let (client, size) = (usize::from(which % 4), usize::from(a) * 32);
        match step % 8 {
            0 if self.calls.len() < 32 => self.begin(client, size),
            1 => self.end(usize::from(which), size),
            2 | 3 => self.deliver(step % 2 == 0, usize::from(which), a, b),
            4 => self.now = self.now.after(u64::from(a) * SECOND / 64),
            5 if self.restarts < 4 && b == 0 => {
                self.restarts += 1;
                self.server = PacketServer::new([self.restarts; 16], BOUNDS);
                self.running.clear();
            }
            _ => {}
        }
        self.look();
        // If a queue has more than 256 datagrams, its oldest ones are lost.
        for queue in [&mut self.to_server, &mut self.to_client] {
            let lost = queue.len().saturating_sub(256);
            queue.drain(..lost);
        }
        let (calls, bytes, partial) = self.server.size();
        assert!(calls <= BOUNDS.calls && bytes <= BOUNDS.bytes && partial <= 256);
    }

    fn begin(&mut self, client: usize, size: usize) {
        let id = self.next;
        self.next = id.wrapping_add(1);
        let mut message = vec![0; CALL_BYTES];
        let call = Call { transaction: 1, program: 1, version: 1, procedure: 1 };
        call.emit(&mut message).expect("room");
        message.extend(id.to_be_bytes());
        message.resize(message.len() + size, client as u8);
        let form = if client == 0 { Form::Whole } else { Form::Parts(512) };
        let (to, sent) = (&self.clients[client], &mut self.to_server);
        let send = &mut |datagram: Datagram<'_>| sent.push((client, datagram.concat()));
        let begun = PacketCall::begin(id, payload(&message), form, self.now, 60 * SECOND, to, send);
        self.calls.insert((client, id), begun.expect("a short call"));
    }

    fn end(&mut self, which: usize, size: usize) {
        let Some(key) = self.running.keys().nth(which).copied() else { return };
        let (running, mut reply) = self.running.remove(&key).expect("a call that runs");
        reply.resize(reply.len() + size, 7);
        let sent = &mut self.to_client;
        let send = &mut |datagram: Datagram<'_>| sent.push((key.0, datagram.concat()));
        self.server.end(self.now, running, &payload(&reply), send);
    }

    /// Delivers a datagram, which stays in the network if `a` is odd. If `b` is 128 or more, a byte of the
    /// header of a call is changed.
    fn deliver(&mut self, is_call: bool, which: usize, a: u8, b: u8) {
        let queue = if is_call { &mut self.to_server } else { &mut self.to_client };
        if queue.is_empty() {
            return;
        }
        let at = which % queue.len();
        let (client, mut bytes) = if a % 2 == 1 { queue[at].clone() } else { queue.remove(at) };
        if b >= 128 && is_call {
            // The changed byte is the kind or belongs to a length. It never belongs to the identity of the
            // call or to the position of the data.
            let changed = [7, 22, 23, 24, 25][usize::from(b) % 5];
            if let Some(byte) = bytes.get_mut(changed).filter(|_| client > 0) {
                *byte ^= a | 1;
            }
        }
        if is_call {
            self.receive(client, &bytes);
        } else {
            self.reply(client, &bytes);
        }
    }

    fn receive(&mut self, client: usize, bytes: &[u8]) {
        let sent = &mut self.to_client;
        let send = &mut |datagram: Datagram<'_>| sent.push((client, datagram.concat()));
        let Some(work) = self.server.receive(self.now, address(client), bytes, send) else {
            return;
        };
        let reply = Reply { transaction: work.call.transaction, answer: Answer::Return };
        let Some(id) = work.arguments.of(bytes).first_chunk() else { return };
        let key = (client, u32::from_be_bytes(*id));
        let reply = [reply.to_vec(), id.to_vec()].concat();
        let before = self.running.insert(key, (work.running, reply));
        assert!(before.is_none(), "two runs of a call overlap");
        let executed = self.executed.entry(key).or_default();
        *executed += 1;
        assert!(client == 0 || *executed == 1, "a call that is sent in parts runs twice");
    }

    fn reply(&mut self, client: usize, bytes: &[u8]) {
        let Some(id) = bytes.first_chunk() else { return };
        let key = (client, u32::from_be_bytes(*id));
        let Some(call) = self.calls.get_mut(&key) else { return };
        let (to, sent) = (&mut self.clients[client], &mut self.to_server);
        let send = &mut |datagram: Datagram<'_>| sent.push((client, datagram.concat()));
        let Some(ended) = call.receive(self.now, bytes, to, send) else { return };
        self.calls.remove(&key);
        let Ok(reply) = ended else { return };
        let (header, offset) = Reply::parse(&reply).expect("the client has read the reply");
        let is_own = reply[offset..].starts_with(id);
        assert!(is_own || Failure::of(&header.answer).is_some(), "the reply to another call");
    }

    /// Makes the step that is due by the timers of each call, such as a retransmission.
    fn look(&mut self) {
        let (now, clients, sent) = (self.now, &self.clients, &mut self.to_server);
        self.calls.retain(|(client, _), call| {
            let send = &mut |datagram: Datagram<'_>| sent.push((*client, datagram.concat()));
            match call.step(now, &clients[*client], send) {
                Step::Wait(until) => {
                    assert!(until > now, "a call waits until a time that has passed");
                    true
                }
                Step::GiveUp(failure) => {
                    let _ = failure.executed(call.transmissions());
                    false
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_accept_what_this_side_sends() {
        message(&Reply { transaction: 7, answer: Answer::Return }.to_vec());
        // A greeting, a cookie, a call, its end and its reply.
        let steps = [[0, 1, 9, 0], [2, 0, 0, 0], [3, 0, 0, 0], [2, 0, 0, 0], [1, 0, 90, 0]];
        packets(steps.as_flattened());
    }
}
