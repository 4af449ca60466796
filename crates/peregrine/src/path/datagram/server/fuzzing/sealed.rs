//! The fuzz target for sealed packets. Two clients and a server have connections. A host on the way repeats
//! their packets, changes them, and exchanges their handles. One of the clients is hostile.

use std::io;
use std::sync::Arc;

use super::super::moment;
use super::shaking::{Ends, Input, damage, ours};
use super::{HANDLES, bind, forget, known};
use crate::call::Serve;
use crate::device::sealed::{Opened, PacketSeal};
use crate::device::{Socket, udp::Udp};
use crate::path::datagram::sealed::seal_of;
use crate::protocol::exchange::header::{
    HEADER_BYTES, Handle, Header, PacketKind, SHAKE_BYTES_MAX,
};
use crate::protocol::exchange::sealed::{is_sealed, restore};
use crate::secure::packets::{Channel, Limits, Shaking, TAG_BYTES};

/// The connections are made anew after this many inputs.
const RENEW_EVERY: u32 = 256;
/// The largest number of steps of an input.
const STEPS_MAX: usize = 128;
/// The keys are updated after few packets.
const LIMITS: Limits = Limits { update_after: 8, sealed_max: 1 << 40, forged_max: 1 << 40 };
/// The offset of the flags in a header, and the flag of sealed packets.
const FLAGS_AT: usize = 28;
const SEALED: u8 = 64;
/// The offset of the handle in a header, and its length.
const HANDLE_AT: usize = 8;
const HANDLE_BYTES: usize = 16;

/// A packet that one end has sealed.
struct Sent {
    sealed: Vec<u8>,
    /// What the other end must read.
    plain: Vec<u8>,
    is_opened: bool,
}

/// A connection: the two ends of its keys, and what seals the client's sockets.
struct Link {
    client: Arc<Channel>,
    server: Arc<Channel>,
    seal: Arc<dyn PacketSeal>,
}

/// A server with two clients.
pub struct SealedPackets {
    ends: Ends,
    links: Vec<Link>,
    inputs: u32,
    /// The client's socket, for its seal.
    near: Socket,
}

impl core::fmt::Debug for SealedPackets {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.ends.service.fmt(f)
    }
}

impl SealedPackets {
    /// # Errors
    /// If no socket or key can be made.
    pub fn new(serve: Arc<dyn Serve>) -> io::Result<Self> {
        let near = Socket::Udp(Udp::bound(([127, 0, 0, 1], 0).into())?);
        Ok(Self { ends: Ends::new(serve)?, links: Vec::new(), inputs: 0, near })
    }

    /// Lets the clients and the host on the way do what an input says.
    ///
    /// # Panics
    /// If an end takes a packet that the other has not sealed, or another packet than was sealed, if a
    /// request to bind is taken twice, or if memory is charged although no call exists.
    pub fn take(&mut self, input: &[u8]) {
        if self.inputs.is_multiple_of(RENEW_EVERY) {
            self.links.clear();
            self.ends.state.clear();
            self.links.extend([[1; 4], [2; 4]].map(|random| connect(&self.ends, random)));
        }
        self.inputs = self.inputs.wrapping_add(1);
        let ends = &mut self.ends;
        let links = &self.links;
        let handles = [0, 1].map(|at| bind(&ends.service, &ends.from, Some(links[at].client.id())));
        let mut world = World { ends, links, handles, near: &self.near, sent: Default::default() };
        let mut input = Input(input);
        for _ in 0..STEPS_MAX {
            if input.0.is_empty() {
                break;
            }
            world.step(&mut input);
            world.take_answers();
        }
        let handles = core::mem::take(&mut world.handles);
        let service = &self.ends.service;
        let of_handle = |handle: &Handle| service.records.record(handle.place);
        forget(service, handles.iter().flatten().filter_map(of_handle));
        // A hostile client may have bound further handles.
        if service.calls.any() || self.inputs.is_multiple_of(RENEW_EVERY) {
            forget(service, service.records.all());
        }
        assert!(!service.calls.any(), "bytes are charged although no call exists");
    }
}

/// Makes a connection. Its packets are not lost.
fn connect(ends: &Ends, random: [u8; 4]) -> Link {
    let (mut nonce, now) = ([0; 12], moment());
    nonce[..4].copy_from_slice(&random);
    let mut client = ends.shaking(now, nonce);
    client.set_limits(LIMITS);
    let mut kept = None;
    ends.state.adopt(u64::from(random[0]), random, |number| {
        let server = Shaking::server(&ends.server, &ours(number), nonce, now);
        let mut server = server.expect("TLS begins");
        server.set_limits(LIMITS);
        let mut out = [0; SHAKE_BYTES_MAX];
        let mut is_busy = true;
        while core::mem::take(&mut is_busy) {
            while let Some(bytes) = client.poll_send(now, &mut out) {
                is_busy = true;
                server.receive(now, &mut out[..bytes]);
            }
            while let Some(bytes) = server.poll_send(now, &mut out) {
                is_busy = true;
                client.receive(now, &mut out[..bytes]);
            }
        }
        let channel = Arc::clone(server.outcome().expect("an end").as_ref().expect("keys"));
        kept = Some(Arc::clone(&channel));
        channel
    });
    let client = Arc::clone(client.outcome().expect("an end").as_ref().expect("keys"));
    let seal = seal_of(Arc::clone(&client));
    Link { client, server: kept.expect("a connection"), seal }
}

struct World<'a> {
    ends: &'a mut Ends,
    links: &'a [Link],
    handles: [Vec<Handle>; 2],
    near: &'a Socket,
    /// What was sealed for the server, and for the first client.
    sent: [Vec<Sent>; 2],
}

impl World<'_> {
    fn step(&mut self, input: &mut Input<'_>) {
        let how = input.byte();
        match how & 15 {
            // The first client, and the hostile second one, seal a packet. The third kind of packet has the
            // handle of the first client and the keys of the second.
            0..=3 => self.seal(input, 0, 0),
            4 => self.seal(input, 1, 1),
            5 => self.seal(input, 1, 0),
            6 => {
                let bytes = self.written(input, 0);
                self.seal_for_client(bytes);
            }
            kind => self.disturb(input, how, kind),
        }
    }

    /// Returns the bytes of a packet of a client, with room for a tag.
    fn written(&self, input: &mut Input<'_>, of: usize) -> Vec<u8> {
        let (how, which, ahead) = (input.byte(), input.byte(), input.byte());
        let mut packet = input.bytes().to_vec();
        let length = packet.len().max(HEADER_BYTES) + usize::from(how & 8 != 0) * 512;
        packet.resize(length, ahead);
        let handle = self.handles[of].get(usize::from(which) % (HANDLES + 1));
        known(&mut packet, how | 1, handle, i32::from(ahead as i8) / 16);
        if handle.is_none() {
            packet[HANDLE_AT + 4..][..8].copy_from_slice(&self.links[of].client.id());
        }
        packet.resize(length + TAG_BYTES, 0);
        packet
    }

    /// A client seals a packet with its keys, and sends it.
    fn seal(&mut self, input: &mut Input<'_>, by: usize, of: usize) {
        let packet = self.written(input, of);
        let sealed = sealed(&self.links[by].client, packet);
        let bytes = sealed.sealed.clone();
        // The server looks for the keys by the handle.
        if by == of {
            self.sent[0].push(sealed);
        }
        self.deliver(&bytes);
    }

    /// The server seals a packet for the first client.
    fn seal_for_client(&mut self, packet: Vec<u8>) {
        let sealed = sealed(&self.links[0].server, packet);
        let bytes = sealed.sealed.clone();
        self.sent[1].push(sealed);
        self.deliver_to_client(&bytes);
    }

    /// The host on the way makes a packet of those that it has seen, and delivers it.
    fn disturb(&mut self, input: &mut Input<'_>, how: u8, kind: u8) {
        let to_client = usize::from(how & 16 != 0);
        let seen = |input: &mut Input<'_>| {
            let all = &self.sent[to_client];
            input.below(all.len()).map(|at| all[at].sealed.clone())
        };
        let mut packet = match kind {
            // A packet that the host has made up.
            7 | 8 => {
                let mut packet = input.bytes().to_vec();
                if packet.len() >= HEADER_BYTES {
                    let handle = self.handles[0].first();
                    known(&mut packet, how >> 6, handle, 0);
                    if kind == 8 {
                        packet[FLAGS_AT] |= SEALED;
                    }
                }
                packet
            }
            // A packet with the handle of another.
            9 => {
                let (Some(mut one), Some(other)) = (seen(input), seen(input)) else { return };
                one[HANDLE_AT..][..HANDLE_BYTES]
                    .copy_from_slice(&other[HANDLE_AT..][..HANDLE_BYTES]);
                one
            }
            // A packet without its tag, in clear.
            10 => {
                let Some(mut one) = seen(input) else { return };
                one.truncate(one.len() - TAG_BYTES);
                restore(one.first_chunk_mut().expect("a header"));
                one
            }
            // A packet again, unchanged or changed.
            _ => {
                let Some(one) = seen(input) else { return };
                one
            }
        };
        if kind >= 12 {
            for _ in 0..=how >> 6 {
                damage(input, &mut packet);
            }
        }
        match to_client {
            0 => self.deliver(&packet),
            _ => self.deliver_to_client(&packet),
        }
    }

    fn deliver(&mut self, packet: &[u8]) {
        let mut memory = packet.to_vec();
        let Opened::Packet(bytes) = self.ends.open(&mut memory) else { return };
        let opened = &memory[..bytes];
        if is_sealed(packet) && packet.len() >= HEADER_BYTES {
            let sent = self.sent[0].iter_mut().find(|sent| sent.sealed == packet);
            let sent = sent.expect("the server takes what no client has sealed");
            assert!(opened == sent.plain, "the server reads another packet than was sealed");
            let binds = packet[3] == PacketKind::Bind as u8;
            assert!(!binds || !sent.is_opened, "the server takes a request to bind twice");
            sent.is_opened = true;
        } else {
            let header = opened.split_first_chunk().map(|(header, rest)| (header, rest.len()));
            let header = header.and_then(|(header, rest)| Header::parse(header, rest).ok());
            // What cannot be read is passed on, so that the server can answer other versions.
            assert!(header.is_none_or(|header| header.kind == PacketKind::Hello));
        }
        self.ends.take(&memory[..bytes]);
    }

    fn deliver_to_client(&mut self, packet: &[u8]) {
        let mut memory = packet.to_vec();
        let link = &self.links[0];
        match link.seal.open(&mut memory, None, self.near) {
            Opened::Packet(bytes) => {
                let sent = self.sent[1].iter().find(|sent| sent.sealed == packet);
                let sent = sent.expect("the client takes what the server has not sealed");
                assert!(memory[..bytes] == sent.plain, "the client reads another packet");
            }
            Opened::Unreachable => {
                assert!(!is_sealed(packet) && packet[3] == PacketKind::Refused as u8);
                assert!(packet[HANDLE_AT + 4..].starts_with(&link.client.id()));
            }
            Opened::Dropped => {}
        }
    }

    /// The clients take what the server has sent. All that is sealed is true.
    fn take_answers(&self) {
        while let Some(mut answer) = self.ends.answer() {
            let of_client = |link: &&Link| answer[HANDLE_AT + 4..].starts_with(&link.client.id());
            if is_sealed(&answer)
                && let Some(link) = self.links.iter().find(of_client)
            {
                let opened = link.seal.open(&mut answer, None, self.near);
                assert!(matches!(opened, Opened::Packet(_)), "an answer of the server is lost");
            }
        }
    }
}

/// Seals a packet.
fn sealed(channel: &Channel, mut packet: Vec<u8>) -> Sent {
    let mut plain = packet[..packet.len() - TAG_BYTES].to_vec();
    restore(plain.first_chunk_mut().expect("a header"));
    channel.seal(&mut packet).expect("keys");
    Sent { sealed: packet, plain, is_opened: false }
}
