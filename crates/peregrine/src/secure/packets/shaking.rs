//! One end of a handshake: TLS, and the transport of its bytes.

use core::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::AlertDescription;
use rustls::quic::{
    ClientConnection, Connection, KeyChange, Keys, PacketKey, Secrets, ServerConnection, Version,
};

use super::channel::{Channel, Limits};
use super::{ConnectionId, Parameters};
use crate::protocol::exchange::bind::BindRefusal;
use crate::protocol::exchange::header::{HEADER_BYTES, Header, PacketKind, SHAKE_BYTES_MAX};
use crate::protocol::exchange::sealed::{Cover, TAG_BYTES, claimed, restore};
use crate::protocol::exchange::shake::{End, Level, Shake};
use crate::protocol::exchange::time::Moment;
use crate::secure::tls::{self, Client, Server};
use crate::secure::{Peer, Refusal};

/// The largest number of packets that are sealed with the keys of a handshake. A peer cannot make this side
/// send more, because a handshake is given up after ten seconds.
const SEALED_MAX: u32 = 1 << 20;

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // there is only one for each handshake
pub(crate) enum Failure {
    /// One side refused the other.
    Refused(Refusal),
    /// The server does not make handshakes, and says why. This is not proven.
    Unbound(Box<BindRefusal>),
    /// The server does not answer.
    NoAnswer,
}

/// Which end this is.
enum Side {
    Client(Client),
    Server(Server),
}

impl Side {
    fn explain(&self, error: &rustls::Error) -> Refusal {
        match self {
            Self::Client(client) => client.refusal(error),
            Self::Server(server) => server.refusal(error),
        }
    }

    fn judge(&self, connection: &Connection) -> Result<Peer, Refusal> {
        match self {
            Self::Client(client) => client.peer(connection),
            Self::Server(server) => server.peer(connection),
        }
    }
}

/// The keys of the packets of a handshake.
pub(super) struct HandshakeKeys {
    seal: Box<dyn PacketKey>,
    open: Box<dyn PacketKey>,
    /// The number of the next packet.
    next: u32,
}

/// One end of a handshake. It uses no socket and no clock.
///
/// The owner passes each packet for this handshake to [`receive`](Self::receive), sends what
/// [`poll_send`](Self::poll_send) writes until it returns `None`, and looks at [`outcome`](Self::outcome). Also
/// after the outcome is known, there may be a last packet to send. A server keeps this value until
/// [`next_timer`](Self::next_timer), to answer a client that repeats its packets.
pub(crate) struct Shaking {
    side: Side,
    pub(super) tls: Connection,
    shake: Shake,
    pub(super) handshake: Option<HandshakeKeys>,
    /// The keys after the handshake, until the peer is judged.
    application: Option<(Keys, Secrets)>,
    channel: Option<Arc<Channel>>,
    /// The level of the bytes that TLS writes.
    writes: Level,
    /// The connection's name, if this is the server.
    id: ConnectionId,
    limits: Option<Limits>,
    outcome: Option<Result<Arc<Channel>, Failure>>,
}

impl Shaking {
    /// Begins the client's end of a handshake with a server at an address. `nonce` must be random.
    ///
    /// # Errors
    /// Fails if TLS cannot begin.
    pub(crate) fn client(
        client: &Client,
        address: IpAddr,
        ours: &Parameters,
        nonce: [u8; 12],
        now: Moment,
    ) -> Result<Self, Refusal> {
        let (config, name) = (Arc::clone(&client.config), client.name(address));
        let tls = ClientConnection::new(config, Version::V1, name, ours.to_bytes());
        let tls = tls.map_err(|error| client.refusal(&error))?;
        let mut shaking =
            Self::new(Side::Client(client.clone()), tls.into(), Shake::client(now, nonce), ours.id);
        shaking.write(now);
        Ok(shaking)
    }

    /// Begins the server's end of a handshake. The client's address must be proven
    /// ([`shake::opening`](crate::protocol::exchange::shake::opening)); `nonce` is that of its packet, which is
    /// then passed to [`receive`](Self::receive). `ours` has the name of the connection.
    ///
    /// # Errors
    /// Fails if TLS cannot begin.
    pub(crate) fn server(
        server: &Server,
        ours: &Parameters,
        nonce: [u8; 12],
        now: Moment,
    ) -> Result<Self, Refusal> {
        let tls = ServerConnection::new(Arc::clone(&server.config), Version::V1, ours.to_bytes());
        let tls = tls.map_err(|error| server.refusal(&error))?;
        let side = Side::Server(server.clone());
        Ok(Self::new(side, tls.into(), Shake::server(now, nonce), ours.id))
    }

    fn new(side: Side, tls: Connection, shake: Shake, id: ConnectionId) -> Self {
        Self {
            side,
            tls,
            shake,
            handshake: None,
            application: None,
            channel: None,
            writes: Level::Clear,
            id,
            limits: None,
            outcome: None,
        }
    }

    /// Uses other limits for the keys after the handshake.
    #[cfg(any(test, fuzzing))]
    pub(crate) const fn set_limits(&mut self, limits: Limits) {
        self.limits = Some(limits);
    }

    /// Returns how the handshake has ended, if it has ended.
    ///
    /// A client has ended when it knows that the server accepts it, and a server when it accepts the client.
    pub(crate) const fn outcome(&self) -> Option<&Result<Arc<Channel>, Failure>> {
        self.outcome.as_ref()
    }

    /// Returns when a client must call [`poll_send`](Self::poll_send) again, or when a server drops this value.
    pub(crate) const fn next_timer(&self) -> Option<Moment> {
        self.shake.next_timer()
    }

    /// Handles a packet. It may be decrypted in place. Returns whether it belongs to this handshake and was
    /// accepted: all others change nothing.
    pub(crate) fn receive(&mut self, now: Moment, packet: &mut [u8]) -> bool {
        let Some((length, level)) = self.open(packet) else { return false };
        let Some((header, body)) = packet[..length].split_first_chunk() else { return false };
        let Ok(header) = Header::parse(header, body.len()) else { return false };
        if !self.shake.receive(now, &header, body, level) {
            return false;
        }
        self.advance(now);
        if level == Level::Application && self.outcome.is_none() {
            // Only a server that has accepted this client has sent this packet.
            self.outcome = self.channel.clone().map(Ok);
            self.shake.confirm(now);
        }
        true
    }

    /// Opens a packet if it is sealed. Returns its length, and the level by whose keys it was opened.
    fn open(&mut self, packet: &mut [u8]) -> Option<(usize, Level)> {
        let header = packet.first_chunk::<HEADER_BYTES>()?;
        let Some(cover) = Cover::of(header) else { return Some((packet.len(), Level::Clear)) };
        let claimed = claimed(packet).filter(|claimed| claimed.kind == PacketKind::Shake)?;
        match Level::of(&claimed)? {
            Level::Clear => None,
            Level::Handshake => {
                let (header, rest) = packet.split_first_chunk_mut::<HEADER_BYTES>()?;
                let key = &self.handshake.as_ref()?.open;
                let number = u64::from(cover.number);
                let length = key.decrypt_in_place(number, header, rest).ok()?.len();
                restore(header);
                Some((HEADER_BYTES + length, Level::Handshake))
            }
            Level::Application => {
                let length = self.channel.as_ref()?.open(packet)?;
                Some((length, Level::Application))
            }
        }
    }

    /// Writes the next packet, if one is to be sent. Returns its length.
    pub(crate) fn poll_send(
        &mut self,
        now: Moment,
        out: &mut [u8; SHAKE_BYTES_MAX],
    ) -> Option<usize> {
        let Some((length, level)) = self.shake.poll_send(now, out) else {
            self.learn_end();
            return None;
        };
        if level == Level::Clear {
            return Some(length);
        }
        let packet = out.get_mut(..length + TAG_BYTES)?;
        match level {
            Level::Application => self.channel.as_ref()?.seal(packet).ok()?,
            _ => {
                let keys = self.handshake.as_mut().filter(|keys| keys.next < SEALED_MAX)?;
                let (header, rest) = packet.split_first_chunk_mut::<HEADER_BYTES>()?;
                let (payload, tag) = rest.split_last_chunk_mut::<TAG_BYTES>()?;
                Cover { number: keys.next, phase: 0 }.put(header);
                let sealed = keys.seal.encrypt_in_place(u64::from(keys.next), header, payload);
                keys.next += 1;
                tag.copy_from_slice(sealed.ok()?.as_ref());
            }
        }
        Some(packet.len())
    }

    /// Passes bytes between TLS and the transport.
    fn advance(&mut self, now: Moment) {
        self.learn_end();
        for level in [Level::Clear, Level::Handshake, Level::Application] {
            // The keys of the next level may just have been made.
            if self.outcome.as_ref().is_some_and(Result::is_err) || !self.shake.is_open(level) {
                return;
            }
            let bytes = self.shake.read(level);
            if bytes.is_empty() {
                continue;
            }
            match self.tls.read_hs(bytes) {
                Ok(()) => {
                    self.write(now);
                    self.judge(now);
                }
                // After the handshake, a server sends tickets only. Without them, it is not resumed.
                Err(_) if self.channel.is_some() => {}
                // New keys are not taken: the peer may be unable to open an alert that is sealed with them.
                Err(error) => {
                    let alert = self.tls.alert().unwrap_or(AlertDescription::InternalError);
                    self.fail(now, self.side.explain(&error), alert.into());
                }
            }
        }
    }

    /// Takes what TLS has to send, and new keys.
    fn write(&mut self, now: Moment) {
        loop {
            let mut bytes = Vec::new();
            let change = self.tls.write_hs(&mut bytes);
            let is_idle = bytes.is_empty() && change.is_none();
            self.shake.write(now, self.writes, &bytes);
            match change {
                Some(KeyChange::Handshake { keys }) => {
                    let (seal, open) = (keys.local.packet, keys.remote.packet);
                    self.handshake = Some(HandshakeKeys { seal, open, next: 0 });
                    self.shake.open(Level::Handshake);
                    self.writes = Level::Handshake;
                }
                Some(KeyChange::OneRtt { keys, next }) => {
                    self.application = Some((keys, next));
                    self.writes = Level::Application;
                }
                None => {}
            }
            if is_idle {
                return;
            }
        }
    }

    /// Judges the peer if TLS has completed the handshake.
    fn judge(&mut self, now: Moment) {
        if self.tls.is_handshaking() || self.channel.is_some() {
            return;
        }
        let Some((keys, secrets)) = self.application.take() else { return };
        let theirs = self.tls.quic_transport_parameters().unwrap_or_default();
        let theirs = Parameters::from_bytes(theirs);
        let theirs = theirs.map_err(|why| Refusal::OtherProtocol { why });
        match self.side.judge(&self.tls).and_then(|peer| Ok((peer, theirs?))) {
            Ok((peer, theirs)) => {
                let is_server = matches!(self.side, Side::Server(_));
                let id = if is_server { self.id } else { theirs.id };
                let channel = Channel::new(id, peer, theirs, keys, secrets, self.limits);
                let channel = Arc::new(channel);
                self.channel = Some(Arc::clone(&channel));
                self.shake.open(Level::Application);
                if is_server {
                    // The client learns from this packet that it is accepted.
                    self.shake.answer();
                    self.outcome = Some(Ok(channel));
                }
            }
            Err(refusal) => {
                let alert = tls::alert(&refusal);
                self.fail(now, refusal, alert);
            }
        }
    }

    fn fail(&mut self, now: Moment, refusal: Refusal, alert: u8) {
        self.shake.fail(now, alert);
        self.outcome = Some(Err(Failure::Refused(refusal)));
    }

    /// Takes over why the transport has ended.
    fn learn_end(&mut self) {
        if self.outcome.is_some() {
            return;
        }
        self.outcome = self.shake.end().map(|end| {
            Err(match end {
                End::Alert(code, _) => {
                    Failure::Refused(tls::refused_by_peer(AlertDescription::from(*code)))
                }
                End::Unbound(refusal) => Failure::Unbound(Box::new(*refusal)),
                End::NoAnswer => Failure::NoAnswer,
            })
        });
    }
}

impl fmt::Debug for Shaking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shaking")
            .field("shake", &self.shake)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}
