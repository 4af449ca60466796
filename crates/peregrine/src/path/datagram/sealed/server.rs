//! The server's end: makes handshakes with clients whose address is proven, and seals the packets of a socket
//! with the keys of each client.
//!
//! In clear, a server takes only `HELLO` and `SHAKE`. All other packets in clear, and packets with keys that it
//! does not know, are refused in clear: for the client that is only a hint.

#[cfg(any(test, fuzzing))]
mod fuzzing;

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::client::link_local;
use super::connections::{Connections, Reserved};
use super::{ConnectionNumber, SealHost};
use crate::call::Identified;
use crate::device::Socket;
use crate::device::sealed::{Opened, PacketSeal};
use crate::error::Kind;
use crate::path::datagram::peer::moment;
use crate::path::security::{ServerSecurity, WANTS_TLS};
use crate::protocol::exchange::bind::{
    BIND_BYTES, BindAction, BindMessage, BindRefusal, Cookies, Nonce,
};
use crate::protocol::exchange::header::{Flags, HEADER_BYTES, Header, PacketKind, SHAKE_BYTES_MAX};
use crate::protocol::exchange::message::{PIECE_MAX, PIECE_MIN};
use crate::protocol::exchange::shake::{Opening, SHAKE_TIME, SHAKES_MAX, SHAKES_PER_HOST, opening};
use crate::protocol::exchange::time::Moment;
use crate::secure::Refusal;
use crate::secure::packets::{
    Channel, Failure, Parameters, Shaking, TAG_BYTES, claimed, is_sealed,
};
use crate::sync::{Mutex, Rank};
use crate::sys::{self, Address};
use crate::value::Window;

/// How soon after a change of the trust the server ends the connections of clients that it does not trust any
/// more.
const TRUST: Duration = Duration::from_secs(1);

/// Which handshake a packet belongs to: the address of the client, and its nonce.
type Key = (Address, Nonce);

/// A handshake, and the place that it has reserved for the connection.
struct Handshake {
    shaking: Shaking,
    /// `None` once the handshake has ended.
    reserved: Option<Reserved<Arc<Channel>>>,
}

/// The handshakes of a socket. Those that have ended are kept for some seconds, to answer clients that repeat
/// their packets.
#[derive(Default)]
struct Handshakes {
    all: HashMap<Key, Arc<Mutex<Handshake>>>,
    /// When they began, the oldest first, and the numbers of the hosts.
    order: VecDeque<(Moment, Key, u64)>,
}

impl Handshakes {
    /// Removes the handshakes that began too long ago, and the oldest ones if there are more than `most`.
    /// Returns them. The caller drops them without locks.
    #[must_use]
    fn expire(&mut self, now: Moment, most: usize) -> Vec<Arc<Mutex<Handshake>>> {
        let mut ended = Vec::new();
        while let Some((begun, oldest, _)) = self.order.front()
            && (now.since(*begun) > SHAKE_TIME || self.order.len() > most)
        {
            ended.extend(self.all.remove(oldest));
            self.order.pop_front();
        }
        ended
    }

    /// Adds a handshake. Returns handshakes that are given up for it, which the caller drops without locks.
    #[must_use]
    fn add(
        &mut self,
        now: Moment,
        key: Key,
        host: u64,
        new: Arc<Mutex<Handshake>>,
    ) -> Vec<Arc<Mutex<Handshake>>> {
        let mut ended = self.expire(now, SHAKES_MAX - 1);
        let of_host = |one: &&(Moment, Key, u64)| one.2 == host;
        if self.order.iter().filter(of_host).count() >= SHAKES_PER_HOST
            && let Some(at) = self.order.iter().position(|one| one.2 == host)
            && let Some((_, oldest, _)) = self.order.remove(at)
        {
            ended.extend(self.all.remove(&oldest));
        }
        self.order.push_back((now, key, host));
        ended.extend(self.all.insert(key, new));
        ended
    }
}

/// What seals and opens the packets of a server's socket.
pub(crate) struct ServerSeal {
    security: ServerSecurity,
    cookies: Cookies,
    /// The socket that uses the seal.
    service: Weak<dyn SealHost>,
    connections: Arc<Connections<Arc<Channel>>>,
    handshakes: Mutex<Handshakes>,
    /// The number of packets that are not authentic, or belong to no handshake.
    rejected: AtomicU64,
    /// The numbers of changes of the trust at the last look and at the one before. Clients are judged twice
    /// after a change, because a handshake may have judged its client before the change, and have added the
    /// connection after the first look.
    seen: [AtomicU64; 2],
    /// Whether the keeper looks at the connections.
    is_watched: AtomicBool,
}

impl ServerSeal {
    pub(crate) fn new(
        security: ServerSecurity,
        cookies: Cookies,
        service: Weak<dyn SealHost>,
    ) -> Arc<Self> {
        Arc::new(Self {
            security,
            cookies,
            service,
            connections: Connections::new(),
            handshakes: Mutex::default(),
            rejected: AtomicU64::new(0),
            seen: [const { AtomicU64::new(u64::MAX) }; 2],
            is_watched: AtomicBool::new(false),
        })
    }

    /// Returns what seals the packets of the socket.
    pub(crate) fn seal(self: &Arc<Self>) -> Arc<dyn PacketSeal> {
        Arc::<Self>::clone(self)
    }

    /// Returns the number of packets that are not authentic, or belong to no handshake.
    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Returns the client of a connection. `None` if the connection has ended.
    pub(crate) fn peer(&self, number: &ConnectionNumber) -> Option<Identified> {
        self.connections.find(number).map(|one| one.channel.peer().clone())
    }

    /// Notes that a handle with this secret was granted (`change` is 1) or was revoked (-1).
    pub(crate) fn note_handles(&self, secret: &Nonce, change: i32) {
        self.connections.note_handles(moment(), secret, change);
    }

    /// Ends the connections of clients that are not trusted any more, and connections that no client uses.
    /// Returns the numbers of the former, and whether there are connections left.
    pub(crate) fn check(&self, now: Moment) -> (Vec<ConnectionNumber>, bool) {
        // SYNC: is-watched. The flag is cleared before the table is read. A thread that adds a handshake or a
        // connection sets the flag after it. So the keeper sees the connection, or is reminded of it.
        self.is_watched.store(false, Ordering::SeqCst);
        let changes = self.security.changes();
        let last = self.seen[0].swap(changes, Ordering::Relaxed);
        let before = self.seen[1].swap(last, Ordering::Relaxed);
        let has_changed = [last, before] != [changes; 2];
        self.connections.end_idle(now);
        let (old, is_shaking) = {
            let mut handshakes = self.handshakes.lock();
            (handshakes.expire(now, SHAKES_MAX), !handshakes.all.is_empty())
        };
        drop(old);
        let (mut ended, mut is_used) = (Vec::new(), is_shaking);
        for one in self.connections.all() {
            let is_trusted = !has_changed || self.security.still_trusts_peer(one.channel.peer());
            if is_trusted && !one.channel.has_ended() {
                is_used = true;
                continue;
            }
            one.channel.end();
            self.connections.end(&one.number);
            ended.push(one.number);
        }
        if is_used {
            self.is_watched.store(true, Ordering::SeqCst);
        }
        (ended, is_used)
    }

    fn reject(&self) -> Opened {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        Opened::Dropped
    }

    /// Opens a packet that claims to be sealed.
    #[inline]
    fn open_sealed(&self, packet: &mut [u8], from: &Address, by: &Socket) -> Opened {
        if packet[KIND_AT] == PacketKind::Shake as u8 {
            return self.shake(packet, from, by);
        }
        let number = packet[SECRET_AT..].first_chunk().expect("a header has a secret");
        let Some(connection) = self.connections.find(number) else {
            return self.refuse(claimed(packet), from);
        };
        match connection.channel.open(packet) {
            Some(bytes) => Opened::Packet(bytes),
            None => self.reject(),
        }
    }

    /// Handles a packet in clear.
    #[cold]
    fn open_clear(&self, packet: &mut [u8], from: &Address, by: &Socket) -> Opened {
        let parsed = packet.split_first_chunk().and_then(|(header, rest)| {
            Header::parse(header, rest.len()).ok().map(|header| (header, rest))
        });
        // The socket rejects what cannot be read, and answers other versions.
        let Some((header, body)) = parsed else { return Opened::Packet(packet.len()) };
        let number = header.handle.secret.first_chunk().expect("a secret is longer");
        match header.kind {
            // A client with a connection says nothing in clear, so this one is an impostor.
            PacketKind::Hello if self.connections.find(number).is_some() => self.reject(),
            PacketKind::Hello => Opened::Packet(packet.len()),
            PacketKind::Shake => self.shake(packet, from, by),
            PacketKind::Bind => {
                self.refuse_plain_client(&header, body, from, by);
                Opened::Dropped
            }
            _ => self.refuse(Some(header), from),
        }
    }

    /// Refuses a packet without keys that the server knows, in clear, if its sender waits for an answer.
    #[cold]
    fn refuse(&self, header: Option<Header>, from: &Address) -> Opened {
        if let Some(header) = header
            && let Some(service) = self.service.upgrade()
        {
            let waits = match header.kind {
                PacketKind::Call
                | PacketKind::Probe
                | PacketKind::Cancel
                | PacketKind::Hello
                | PacketKind::Bind => true,
                PacketKind::HaveResult => !header.flags.has(Flags::ALL),
                _ => false,
            };
            if waits {
                let mut out = [0; HEADER_BYTES];
                Header::refusal(&header, 0, 0).emit(&mut out);
                service.answer_unverified(moment(), &out, from);
            }
        }
        self.reject()
    }

    /// Says to a client that binds in clear that it must encrypt its packets. First the client must prove its
    /// address.
    #[cold]
    fn refuse_plain_client(&self, header: &Header, body: &[u8], from: &Address, by: &Socket) {
        let Some(service) = self.service.upgrade() else { return };
        let (now, text) = (moment(), format!("{from:?}"));
        let mut packet = [0; BIND_BYTES];
        match self.cookies.asked(now, text.as_bytes(), header, body) {
            Some(BindAction::SendCookie(cookie, _)) => {
                let answer = BindMessage::Cookie(cookie, None);
                answer.emit(header.handle.secret, 0, header.serial, &mut packet);
                service.answer_unverified(now, &packet, from);
            }
            Some(BindAction::Decide(_)) => {
                let refusal = BindRefusal::new(Kind::Denied as u32, WANTS_TLS);
                let answer = BindMessage::Unbound(refusal);
                answer.emit(header.handle.secret, 0, header.serial, &mut packet);
                let _ = by.send(&[Window::from(&packet[..])], Some(from));
                let why = "the client does not use TLS".to_owned();
                self.security.note_refused(place_of(from), &Refusal::OtherProtocol { why });
            }
            None => {
                self.reject();
            }
        }
    }

    /// Handles a packet of a handshake.
    #[cold]
    fn shake(&self, packet: &mut [u8], from: &Address, by: &Socket) -> Opened {
        let now = moment();
        let nonce: Nonce = *packet[SECRET_AT..].first_chunk().expect("a header has a secret");
        let key = (*from, nonce);
        let known = self.handshakes.lock().all.get(&key).cloned();
        let handshake = match known {
            Some(handshake) => handshake,
            None => match self.begin(now, key, packet) {
                Some(handshake) => handshake,
                None => return self.reject(),
            },
        };
        let mut locked = handshake.lock();
        let Handshake { shaking, reserved } = &mut *locked;
        let is_taken = shaking.receive(now, packet);
        let (mut answers, mut out) = (Vec::new(), [0; SHAKE_BYTES_MAX]);
        while let Some(bytes) = shaking.poll_send(now, &mut out) {
            answers.push(out[..bytes].to_vec());
        }
        let mut refused = None;
        match shaking.outcome() {
            Some(Ok(channel)) => {
                if let Some(place) = reserved.take() {
                    place.put(now, Arc::clone(channel));
                }
            }
            Some(Err(failure)) => {
                if reserved.take().is_some()
                    && let Failure::Refused(refusal) = failure
                {
                    refused = Some(refusal.clone());
                }
            }
            None => {}
        }
        drop(locked);
        // The keys are in the table before the client learns that it is accepted.
        for answer in answers {
            let _ = by.send(&[Window::from(&*answer)], Some(from));
        }
        self.look_at_connections();
        if let Some(refusal) = refused {
            self.security.note_refused(place_of(from), &refusal);
        }
        if is_taken { Opened::Dropped } else { self.reject() }
    }

    /// Begins a handshake if the packet proves the client's address.
    fn begin(&self, now: Moment, key: Key, packet: &[u8]) -> Option<Arc<Mutex<Handshake>>> {
        let (header, body) = packet.split_first_chunk()?;
        let header = Header::parse(header, body.len()).ok()?;
        let (from, nonce) = key;
        let service = self.service.upgrade()?;
        let text = format!("{from:?}");
        let mut answer = [0; BIND_BYTES];
        match opening(&self.cookies, now, text.as_bytes(), &header, body)? {
            Opening::SendCookie(cookie) => {
                let message = BindMessage::Cookie(cookie, None);
                message.emit(nonce, 0, header.serial, &mut answer);
                service.answer_unverified(now, &answer, &from);
                None
            }
            Opening::Begin => {
                let host = service.host_number(&from);
                let reserved = self.connections.reserve(host, sys::random().ok()?);
                let Some(reserved) = reserved else {
                    let text = "the server has no room for a further connection";
                    let refusal = BindRefusal::new(Kind::Exhausted as u32, text);
                    BindMessage::Unbound(refusal).emit(nonce, 0, header.serial, &mut answer);
                    service.answer_unverified(now, &answer, &from);
                    return None;
                };
                let ours = Parameters {
                    piece: service.piece_for(&from).clamp(PIECE_MIN, PIECE_MAX),
                    message_bytes_max: 0,
                    credits: 0,
                    id: reserved.number,
                    incarnation: service.incarnation(),
                };
                let shaking = Shaking::server(self.security.packets(), &ours, nonce, now).ok()?;
                let handshake = Handshake { shaking, reserved: Some(reserved) };
                let handshake = Arc::new(Mutex::ranked(Rank::Tls, handshake));
                let ended = self.handshakes.lock().add(now, key, host, Arc::clone(&handshake));
                drop(ended);
                Some(handshake)
            }
        }
    }

    /// Lets the keeper look from now on whether the clients are still trusted.
    fn look_at_connections(&self) {
        // SYNC: is-watched, in `check`.
        if !self.is_watched.swap(true, Ordering::SeqCst)
            && let Some(service) = self.service.upgrade()
            && let Some(watch) = service.trust_watch()
        {
            watch.remind(TRUST);
        }
    }
}

/// The offset of the kind in a header.
const KIND_AT: usize = 3;
/// The offset of the secret in a header.
const SECRET_AT: usize = 12;

/// Returns the address of a client for reports. For a client on a link, it is the address of IPv6 that its
/// host has there by default.
fn place_of(from: &Address) -> SocketAddr {
    match (from.ip(), from.link()) {
        (Some(address), _) => address,
        (None, Some((hardware, _))) => (link_local(hardware), 0).into(),
        (None, None) => ([0, 0, 0, 0], 0).into(),
    }
}

impl PacketSeal for ServerSeal {
    fn connection(&self) -> Option<[u8; 8]> {
        None
    }

    fn seal(&self, packet: &mut [u8]) -> Option<usize> {
        let plain = packet.len().checked_sub(TAG_BYTES)?;
        let number = packet.get(SECRET_AT..)?.first_chunk()?;
        if let Some(connection) = self.connections.find(number) {
            connection.channel.seal(packet).ok()?;
            return Some(packet.len());
        }
        // To a client without a connection, the server says only how to get one, and what it does not know.
        let kind = *packet.get(KIND_AT)?;
        let in_clear = [PacketKind::Cookie, PacketKind::Unbound, PacketKind::Refused];
        in_clear.map(|kind| kind as u8).contains(&kind).then_some(plain)
    }

    fn open(&self, packet: &mut [u8], from: Option<&Address>, by: &Socket) -> Opened {
        let Some(from) = from.filter(|_| packet.len() >= HEADER_BYTES) else {
            return Opened::Packet(packet.len());
        };
        if is_sealed(packet) {
            self.open_sealed(packet, from, by)
        } else {
            self.open_clear(packet, from, by)
        }
    }
}

impl fmt::Debug for ServerSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerSeal")
    }
}
