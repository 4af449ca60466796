//! Handshakes and sealed packets in memory, over a network that loses, duplicates and reorders packets.

mod channels;
mod shaking;
mod unsealing;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::{Channel, Failure, Limits, Parameters, Shaking, TAG_BYTES};
use crate::protocol::exchange::bind::{BIND_BYTES, BindMessage, Cookies};
use crate::protocol::exchange::header::{
    HEADER_BYTES, Handle, Header, PacketKind, SHAKE_BYTES_MAX,
};
use crate::protocol::exchange::shake::{self, Opening};
use crate::protocol::exchange::time::{MILLISECOND, Moment};
use crate::secure::tls::{Client, Server, Wire};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const NONCE: [u8; 12] = [7; 12];
const ID: [u8; 8] = [3, 0, 0, 0, 9, 8, 7, 6];

/// A simple source of random numbers that a seed determines.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % bound
    }
}

fn ours(id: [u8; 8]) -> Parameters {
    Parameters { piece: 1392, message_bytes_max: 1 << 20, credits: 64, id, incarnation: 5 }
}

type Outcome = Option<Result<Arc<Channel>, Failure>>;

/// A client and a server that shake hands over a network.
pub(super) struct World {
    pub(super) client: Shaking,
    tls: Server,
    pub(super) server: Option<Shaking>,
    cookies: Cookies,
    limits: Option<Limits>,
    pub(super) now: Moment,
    /// Packets on their way: whether to the server, and the bytes.
    way: Vec<(bool, Vec<u8>)>,
    /// How often the client and the server have sent a packet.
    pub(super) sent: [usize; 2],
    /// All packets that were sent.
    pub(super) log: Vec<(bool, Vec<u8>)>,
}

impl World {
    pub(super) fn new(client: &Client, server: &Server) -> Self {
        let now = Moment(MILLISECOND);
        Self {
            client: Shaking::client(client, HOST, &ours([0; 8]), NONCE, now).unwrap(),
            tls: server.clone(),
            server: None,
            cookies: Cookies::new([1; 16]),
            limits: None,
            now,
            way: Vec::new(),
            sent: [0; 2],
            log: Vec::new(),
        }
    }

    pub(super) fn limited(mut self, limits: Limits) -> Self {
        self.client.set_limits(limits);
        self.limits = Some(limits);
        self
    }

    fn post(&mut self, to_server: bool, packet: &[u8]) {
        self.sent[usize::from(!to_server)] += 1;
        self.log.push((to_server, packet.to_vec()));
        self.way.push((to_server, packet.to_vec()));
    }

    /// Passes a packet to the server, as the driver of a server does.
    fn serve(&mut self, packet: &mut [u8]) {
        if self.server.is_none() {
            let (header, body) = packet.split_first_chunk::<HEADER_BYTES>().unwrap();
            let Ok(header) = Header::parse(header, body.len()) else { return };
            let mut out = [0; BIND_BYTES];
            match BindMessage::parse(&header, body) {
                Some(BindMessage::Hello(_)) => {
                    let cookie = self.cookies.make(self.now, b"here", &header.handle.secret);
                    let serial = header.serial;
                    BindMessage::Cookie(cookie, None).emit(NONCE, 1, serial, &mut out);
                    return self.post(false, &out);
                }
                _ => match shake::opening(&self.cookies, self.now, b"here", &header, body) {
                    Some(Opening::Begin) => {
                        let server = Shaking::server(&self.tls, &ours(ID), NONCE, self.now);
                        let mut server = server.unwrap();
                        if let Some(limits) = self.limits {
                            server.set_limits(limits);
                        }
                        self.server = Some(server);
                    }
                    Some(Opening::SendCookie(_)) => panic!("the cookie must be valid"),
                    None => return,
                },
            }
        }
        let server = self.server.as_mut().unwrap();
        let is_taken = server.receive(self.now, packet);
        let mut answers = 0;
        let mut out = [0; SHAKE_BYTES_MAX];
        while let Some(length) = self.server.as_mut().unwrap().poll_send(self.now, &mut out) {
            answers += 1;
            self.post(false, &out[..length]);
        }
        assert!(answers <= usize::from(is_taken) * usize::from(shake::ANSWERS_MAX));
    }

    fn deliver(&mut self, at: usize) {
        let (to_server, mut packet) = self.way.remove(at);
        if to_server {
            self.serve(&mut packet);
        } else {
            self.client.receive(self.now, &mut packet);
        }
    }

    /// Lets the client send what is due.
    fn poll_client(&mut self) {
        let mut out = [0; SHAKE_BYTES_MAX];
        while let Some(length) = self.client.poll_send(self.now, &mut out) {
            self.post(true, &out[..length]);
        }
    }

    /// Runs until nothing happens any more. The dice decide what the network does with each packet, in percent:
    /// lost, duplicated. Also the order is random.
    pub(super) fn run(&mut self, dice: &mut Dice, [lost, duplicated]: [u64; 2]) {
        for _ in 0..5000 {
            self.poll_client();
            if self.way.is_empty() {
                match self.client.next_timer() {
                    Some(due) => self.now = due.max(self.now),
                    None => return,
                }
                continue;
            }
            self.now = self.now.after(1 + dice.below(MILLISECOND));
            let ordered = lost + duplicated == 0;
            let at = if ordered { 0 } else { dice.below(self.way.len() as u64) as usize };
            if dice.below(100) < lost {
                self.way.remove(at);
            } else {
                if dice.below(100) < duplicated {
                    let copy = self.way[at].clone();
                    self.way.push(copy);
                }
                self.deliver(at);
            }
        }
        panic!("the handshake does not end");
    }

    pub(super) fn outcomes(&self) -> [Outcome; 2] {
        let server = self.server.as_ref().and_then(|server| server.outcome().cloned());
        [self.client.outcome().cloned(), server]
    }

    pub(super) fn channels(&self) -> [Arc<Channel>; 2] {
        self.outcomes().map(|outcome| outcome.expect("an end").expect("a channel"))
    }
}

/// Returns the two ends of a connection.
pub(super) fn connected(limits: Option<Limits>) -> [Arc<Channel>; 2] {
    let (client, server, _) = crate::secure::tests::pair(Wire::Exchange);
    let world = World::new(&client, &server);
    let mut world = match limits {
        Some(limits) => world.limited(limits),
        None => world,
    };
    world.run(&mut Dice::new(1), [0, 0]);
    world.channels()
}

/// Returns a packet with room for a tag. `kind` is `Bind`, or any kind with any payload.
pub(super) fn packet(kind: PacketKind, payload: &[u8]) -> Vec<u8> {
    let mut secret = [5; 12];
    secret[..8].copy_from_slice(&ID);
    let header = Header::new(kind, Handle { place: 4, secret }, 77);
    let mut bytes = [0; HEADER_BYTES];
    header.emit(&mut bytes);
    [&bytes, payload, &[0; TAG_BYTES]].concat()
}
