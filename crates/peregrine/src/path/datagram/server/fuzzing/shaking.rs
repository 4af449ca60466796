//! The fuzz target for handshakes. A client and a server shake hands over a network that loses, repeats,
//! reorders and changes their packets, and that invents packets.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;

use super::super::{Arrival, ReceiverState, ServerSocket, moment};
use super::Only;
use crate::call::Serve;
use crate::counters::Page;
use crate::device::Socket;
use crate::device::sealed::{Opened, PacketSeal};
use crate::device::udp::Udp;
use crate::path::datagram::sealed::ServerSeal;
use crate::path::security::{Refusals, ServerSecurity};
use crate::protocol::exchange::bind::{BIND_BYTES, BindMessage, Nonce};
use crate::protocol::exchange::header::{
    HEADER_BYTES, Handle, Header, PacketKind, SHAKE_BYTES_MAX, VERSION, checksum,
};
use crate::protocol::exchange::sealed::is_sealed;
use crate::protocol::exchange::shake::{ANSWERS_MAX, Level, Message};
use crate::protocol::exchange::time::{MILLISECOND, Moment};
use crate::secure::packets::{Failure, Parameters, Shaking, TAG_BYTES};
use crate::secure::tls::{self, Client, Server, Wire};
use crate::secure::{Fingerprint, Identity, KeyError, Trust, TrustedKey};
use crate::serving::deferrals::Deferrals;
use crate::sys::Address;

/// The nonce of the honest client.
const NONCE: Nonce = [7; 12];
/// The largest number of packets that are on their way.
const WAY_MAX: usize = 64;
/// The largest number of steps of an input.
const STEPS_MAX: usize = 64;
/// The largest number of handshakes that an input begins with the packet of the honest client. Each takes a
/// part of a millisecond.
const OTHERS_MAX: usize = 3;

/// A server socket with a seal, and the TLS of a client that it trusts.
pub(super) struct Ends {
    pub(super) service: Arc<ServerSocket>,
    pub(super) receiver: ReceiverState,
    pub(super) state: Arc<ServerSeal>,
    pub(super) seal: Arc<dyn PacketSeal>,
    pub(super) client: Client,
    pub(super) server: Server,
    /// The key of the server.
    key: Fingerprint,
    /// Sends the answers of the seal itself.
    plain: Socket,
    /// The client's socket, and its address.
    near: UdpSocket,
    pub(super) from: Address,
}

impl Ends {
    pub(super) fn new(serve: Arc<dyn Serve>) -> io::Result<Self> {
        Self::with_keys(serve).map_err(io::Error::other)?
    }

    fn with_keys(serve: Arc<dyn Serve>) -> Result<io::Result<Self>, KeyError> {
        let (ada, bob) = (Identity::generate()?, Identity::generate()?);
        let of_ada = Trust::of_keys([TrustedKey::new("bob", bob.public_key(), "")?])?;
        let of_bob = Trust::of_keys([TrustedKey::new("ada", ada.public_key(), "")?])?;
        let client = tls::client(&ada, &of_ada, "key:bob".parse()?, Wire::Exchange);
        let security = ServerSecurity::new(&bob, &of_bob, &Arc::<Refusals>::default());
        Ok(Self::with_security(serve, client, &security, bob.fingerprint()))
    }

    fn with_security(
        serve: Arc<dyn Serve>,
        client: Client,
        security: &ServerSecurity,
        key: Fingerprint,
    ) -> io::Result<Self> {
        let udp = || Udp::bound(([127, 0, 0, 1], 0).into()).map(Socket::Udp);
        let near = UdpSocket::bind("127.0.0.1:0")?;
        near.set_nonblocking(true)?;
        let page = Page::new()?;
        let (deferrals, only) = (Deferrals::new(&page), Arc::new(Only(serve)));
        let security_of = Some(security.clone());
        let service = ServerSocket::new(udp()?, None, 1, only, deferrals, page, security_of)?;
        let state = Arc::clone(service.sealed.as_ref().expect("a seal"));
        Ok(Self {
            receiver: service.receiver()?,
            seal: state.seal(),
            server: security.packets().clone(),
            state,
            service,
            client,
            key,
            plain: udp()?,
            from: near.local_addr()?.into(),
            near,
        })
    }

    /// Passes a packet to the server's seal.
    pub(super) fn open(&self, packet: &mut [u8]) -> Opened {
        self.seal.open(packet, Some(&self.from), &self.plain)
    }

    /// Passes a packet that the seal has opened to the server. Returns whether the server ran a call.
    pub(super) fn take(&mut self, packet: &[u8]) -> bool {
        let memory = self.receiver.input.memory();
        let bytes = packet.len().min(memory.len());
        memory[..bytes].copy_from_slice(&packet[..bytes]);
        self.receiver.from = self.from;
        self.receiver.rest = Some((Arrival { bytes, segment: bytes, cut: false }, 0));
        let Some(work) = self.service.take(&mut self.receiver, false) else { return false };
        self.service.run(&mut self.receiver, work);
        true
    }

    /// Returns the next packet that the server has sent to the client.
    pub(super) fn answer(&self) -> Option<Vec<u8>> {
        let mut memory = [0; 4096];
        let bytes = self.near.recv(&mut memory).ok()?;
        Some(memory[..bytes].to_vec())
    }

    /// Returns the client's end of a handshake. It has the cookie of the server already.
    pub(super) fn shaking(&self, now: Moment, nonce: Nonce) -> Shaking {
        let address = [127, 0, 0, 1].into();
        let shaking = Shaking::client(&self.client, address, &ours([0; 8]), nonce, now);
        let mut shaking = shaking.expect("TLS begins");
        let mut packet = [0; BIND_BYTES];
        BindMessage::Cookie(self.cookie(&self.from, nonce), None).emit(nonce, 0, 0, &mut packet);
        assert!(shaking.receive(now, &mut packet));
        shaking
    }

    fn cookie(&self, from: &Address, nonce: Nonce) -> [u8; 16] {
        let text = format!("{from:?}");
        self.service.cookies.make(moment(), text.as_bytes(), &nonce)
    }
}

pub(super) fn ours(id: [u8; 8]) -> Parameters {
    Parameters { piece: 1024, message_bytes_max: 0, credits: 0, id, incarnation: 1 }
}

/// The part of an input that was not read yet. After the end of the input, zeros are read.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *byte
    }

    pub(super) fn half(&mut self) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }

    /// Returns some bytes, whose number precedes them.
    pub(super) fn bytes(&mut self) -> &'a [u8] {
        let wanted = self.half();
        let (bytes, rest) = self.0.split_at(wanted.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// Returns one of `count` numbers.
    pub(super) fn below(&mut self, count: usize) -> Option<usize> {
        usize::from(self.byte()).checked_rem(count)
    }
}

/// Changes the length or a byte of a packet.
pub(super) fn damage(input: &mut Input<'_>, packet: &mut Vec<u8>) {
    match input.byte() {
        0 => packet.resize(input.half() % (SHAKE_BYTES_MAX + 100), input.byte()),
        change => {
            let at = input.half();
            if let Some(at) = at.checked_rem(packet.len()) {
                packet[at] ^= change;
            }
        }
    }
}

/// Writes the checks of a packet in clear.
pub(super) fn check(packet: &mut [u8]) {
    let Some((header, body)) = packet.split_first_chunk_mut::<HEADER_BYTES>() else { return };
    header[56..60].copy_from_slice(&checksum(body).to_le_bytes());
    header[4..8].fill(0);
    let check = checksum(header);
    header[4..8].copy_from_slice(&check.to_le_bytes());
}

/// A server and a client, whose handshakes an input disturbs.
pub struct Handshakes {
    ends: Ends,
}

impl core::fmt::Debug for Handshakes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.ends.service.fmt(f)
    }
}

/// One handshake.
struct World<'a> {
    ends: &'a mut Ends,
    client: Shaking,
    now: Moment,
    /// Packets on their way: whether to the server, and the bytes.
    way: Vec<(bool, Vec<u8>)>,
    /// Whether a host on the way has forged a packet that the client or the server may take. In clear,
    /// nothing proves a packet, so the handshake may fail.
    is_forged: bool,
    /// Whether the clock was advanced, so that the client may have given up.
    is_late: bool,
    /// The number of further handshakes that were begun.
    others: usize,
}

impl Handshakes {
    /// # Errors
    /// If no socket or key can be made.
    pub fn new(serve: Arc<dyn Serve>) -> io::Result<Self> {
        Ok(Self { ends: Ends::new(serve)? })
    }

    /// Lets an input disturb a handshake. Then the network passes everything on.
    ///
    /// # Panics
    /// If one side accepts what the other has not sent, if a handshake fails although no packet was forged
    /// that could end it, or if the server keeps more state, or answers more, than it may.
    pub fn take(&mut self, input: &[u8]) {
        self.shake(Input(input));
        self.ends.state.clear();
    }

    fn shake(&mut self, mut input: Input<'_>) {
        let now = moment();
        let client = self.ends.shaking(now, NONCE);
        let ends = &mut self.ends;
        let mut world = World {
            ends,
            client,
            now,
            way: Vec::new(),
            is_forged: false,
            is_late: false,
            others: 0,
        };
        for _ in 0..STEPS_MAX {
            if input.0.is_empty() {
                break;
            }
            world.step(&mut input);
        }
        world.complete();
        world.judge();
    }
}

impl World<'_> {
    fn step(&mut self, input: &mut Input<'_>) {
        let how = input.byte();
        match how & 15 {
            0..=2 => self.poll_client(),
            3..=5 => {
                if !self.way.is_empty() {
                    self.deliver(0);
                }
            }
            kind @ 6..=10 => {
                let Some(at) = input.below(self.way.len()) else { return };
                match kind {
                    6 => self.deliver(at),
                    7 => drop(self.way.remove(at)),
                    8 => self.post(self.way[at].clone()),
                    _ => {
                        let packet = &mut self.way[at].1;
                        let was_sealed = is_sealed(packet);
                        damage(input, packet);
                        if how & 16 != 0 && !(was_sealed && is_sealed(packet)) {
                            check(packet);
                            self.is_forged = true;
                        }
                    }
                }
            }
            11 => self.begin_another(input),
            12 | 13 => {
                let mut packet = input.bytes().to_vec();
                if how & 32 != 0 {
                    packet.resize(BIND_BYTES, 0);
                }
                if how & 16 != 0 && packet.len() >= HEADER_BYTES {
                    packet[..3].copy_from_slice(&[b'P', b'X', VERSION]);
                    packet[12..24].copy_from_slice(&NONCE);
                    if how & 64 != 0 && packet.len() >= HEADER_BYTES + 16 {
                        let cookie = self.ends.cookie(&self.ends.from, NONCE);
                        packet[HEADER_BYTES..HEADER_BYTES + 16].copy_from_slice(&cookie);
                    }
                    check(&mut packet);
                    self.is_forged = true;
                }
                self.pass(how & 1 == 0, &packet);
            }
            14 => self.forge(input, how),
            _ => {
                self.is_late = true;
                self.now = self.now.after(u64::from(input.byte()) * 50 * MILLISECOND);
            }
        }
    }

    /// Another client, or a host that has seen the first packet, begins a handshake with it.
    fn begin_another(&mut self, input: &mut Input<'_>) {
        let mut nonce = NONCE;
        nonce[0] = input.byte();
        let Some(at) = input.below(self.way.len()) else { return };
        let (_, mut packet) = self.way[at].clone();
        if packet.len() < HEADER_BYTES + 16 || self.others == OTHERS_MAX {
            return;
        }
        self.others += 1;
        packet[12..24].copy_from_slice(&nonce);
        packet[HEADER_BYTES..HEADER_BYTES + 16]
            .copy_from_slice(&self.ends.cookie(&self.ends.from, nonce));
        if !is_sealed(&packet) {
            check(&mut packet);
        }
        // The server gives up the oldest handshake of a host that has too many.
        self.is_forged = true;
        self.pass(true, &packet);
    }

    /// Forges a packet of the handshake in clear.
    fn forge(&mut self, input: &mut Input<'_>, how: u8) {
        let levels = [Level::Clear, Level::Handshake, Level::Application];
        let level = levels[usize::from(input.byte()) % 3];
        let cookie = self.ends.cookie(&self.ends.from, NONCE);
        let offset = input.half() as u32;
        let received = [(); 3].map(|()| input.half() as u32);
        let alert = Some(input.byte()).filter(|alert| *alert != 0);
        let bytes = input.bytes();
        let bytes = &bytes[..bytes.len().min(1000)];
        let message = Message { cookie, level, offset, received, alert, bytes };
        let mut out = [0; SHAKE_BYTES_MAX];
        let bytes_min = if how & 16 != 0 { BIND_BYTES } else { 0 };
        let length = message.emit(NONCE, [1, 1], bytes_min, &mut out);
        self.is_forged = true;
        self.pass(how & 32 == 0, &out[..length]);
    }

    fn post(&mut self, packet: (bool, Vec<u8>)) {
        if self.way.len() < WAY_MAX {
            self.way.push(packet);
        }
    }

    fn poll_client(&mut self) {
        let mut out = [0; SHAKE_BYTES_MAX];
        let mut sent = 0;
        while let Some(bytes) = self.client.poll_send(self.now, &mut out) {
            sent += 1;
            assert!(sent < 64, "the client sends without an end");
            self.post((true, out[..bytes].to_vec()));
        }
    }

    fn deliver(&mut self, at: usize) {
        let (to_server, packet) = self.way.remove(at);
        self.pass(to_server, &packet);
    }

    fn pass(&mut self, to_server: bool, packet: &[u8]) {
        let mut memory = packet.to_vec();
        if !to_server {
            self.client.receive(self.now, &mut memory);
            return;
        }
        if let Opened::Packet(bytes) = self.ends.open(&mut memory) {
            assert!(!self.ends.take(&memory[..bytes]), "the server runs a call without keys");
        }
        let (mut answers, mut bytes) = (0, 0);
        while let Some(answer) = self.ends.answer() {
            (answers, bytes) = (answers + 1, bytes + answer.len());
            self.post((false, answer));
        }
        assert!(answers <= ANSWERS_MAX, "{answers} answers to one packet");
        let nonce = packet.get(12..).and_then(|rest| rest.first_chunk()).copied();
        if !nonce.is_some_and(|nonce| self.ends.state.has_handshake(self.ends.from, nonce)) {
            assert!(bytes <= packet.len(), "{bytes} bytes to a client that has proven nothing");
        }
    }

    /// Lets the network pass everything on until the handshake has ended.
    fn complete(&mut self) {
        for _ in 0..100 {
            self.poll_client();
            if !self.way.is_empty() {
                while !self.way.is_empty() {
                    self.deliver(0);
                }
            } else if self.client.outcome().is_some() {
                return;
            } else if let Some(due) = self.client.next_timer() {
                self.now = self.now.max(due);
            }
        }
        panic!("the handshake does not end: {:?}", self.client);
    }

    fn judge(&self) {
        match self.client.outcome() {
            Some(Ok(channel)) => {
                // Whatever was forged, the client speaks with its server.
                assert_eq!(channel.peer().fingerprint(), self.ends.key);
                if !self.ends.state.has_connection(&channel.id()) {
                    assert!(self.is_forged, "the server has no connection");
                    return;
                }
                let mut secret = [5; 12];
                secret[..8].copy_from_slice(&channel.id());
                let header = Header::new(PacketKind::Probe, Handle { place: 1, secret }, 1);
                let mut packet = [0; HEADER_BYTES + TAG_BYTES];
                header.emit(packet.first_chunk_mut().expect("a header"));
                channel.seal(&mut packet).expect("keys");
                assert_eq!(self.ends.open(&mut packet), Opened::Packet(HEADER_BYTES));
            }
            Some(Err(Failure::NoAnswer)) if self.is_late => {}
            outcome => assert!(self.is_forged, "{outcome:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::Nothing;
    use super::*;
    use crate::protocol::exchange::shake::{SHAKES_MAX, SHAKES_PER_HOST};

    fn host(number: u16) -> Address {
        let [high, low] = number.to_be_bytes();
        std::net::SocketAddr::from(([127, 78, high, low], 9)).into()
    }

    fn nonce(number: usize) -> Nonce {
        let mut nonce = [1; 12];
        nonce[..8].copy_from_slice(&number.to_le_bytes());
        nonce
    }

    /// Returns the first packet of the handshake of a client.
    fn first_packet(ends: &Ends) -> Vec<u8> {
        let mut out = [0; SHAKE_BYTES_MAX];
        let bytes = ends.shaking(moment(), nonce(0)).poll_send(moment(), &mut out).unwrap();
        out[..bytes].to_vec()
    }

    /// Passes the first packet of a host to the server. If the host has proven its address, the packet has
    /// the cookie of the host, and otherwise that of another one.
    fn begin(ends: &Ends, packet: &[u8], from: Address, nonce: Nonce, is_proven: bool) {
        let mut packet = packet.to_vec();
        packet[12..24].copy_from_slice(&nonce);
        if is_proven {
            let cookie = ends.cookie(&from, nonce);
            packet[HEADER_BYTES..HEADER_BYTES + 16].copy_from_slice(&cookie);
        }
        check(&mut packet);
        assert_eq!(ends.seal.open(&mut packet, Some(&from), &ends.plain), Opened::Dropped);
    }

    #[test]
    fn hosts_that_have_returned_no_cookie_have_no_state() {
        let ends = Ends::new(Arc::new(Nothing::default())).unwrap();
        let packet = first_packet(&ends);
        for number in 0..3000 {
            begin(&ends, &packet, host(number), nonce(1 + usize::from(number)), false);
        }
        assert_eq!(ends.state.sizes(), [0; 2]);
        begin(&ends, &packet, host(1), nonce(1), true);
        assert_eq!(ends.state.sizes(), [1; 2]);
    }

    #[test]
    fn handshakes_are_bounded_for_each_host_and_in_all() {
        let mut target = Handshakes::new(Arc::new(Nothing::default())).unwrap();
        let ends = &target.ends;
        let packet = first_packet(ends);
        for number in 0..2 * SHAKES_PER_HOST {
            begin(ends, &packet, host(0), nonce(number), true);
            assert_eq!(ends.state.sizes(), [(number + 1).min(SHAKES_PER_HOST); 2]);
        }
        let hosts = SHAKES_MAX / SHAKES_PER_HOST + 2;
        for number in 0..hosts * SHAKES_PER_HOST {
            let from = host(1 + (number % hosts) as u16);
            begin(ends, &packet, from, nonce(number), true);
        }
        assert_eq!(ends.state.sizes(), [SHAKES_MAX; 2]);
        // The handshake of another client is completed all the same.
        target.shake(Input(&[]));
        assert_eq!(target.ends.state.sizes(), [SHAKES_MAX; 2]);
    }
}
