//! The client's end: makes the handshake when a client binds, and seals the packets of its sockets.

use core::time::Duration;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use super::{ClientChannel, ConnectionNumber, Wants};
use crate::device::sealed::{Opened, PacketSeal};
use crate::device::{Route, Socket, Until};
use crate::error::{CallError, Kind, Phase};
use crate::path::datagram::peer::{moment, silent};
use crate::path::security::denied;
use crate::protocol::exchange::bind::{BIND_BYTES, BindMessage, Cookie, Nonce};
use crate::protocol::exchange::header::{HEADER_BYTES, Header, PacketKind, SHAKE_BYTES_MAX};
use crate::protocol::exchange::message::{PIECE_MAX, PIECE_MIN};
use crate::secure::Refusal;
use crate::secure::packets::{Channel, Failure, Parameters, Shaking, TAG_BYTES};
use crate::secure::tls::Wire;
use crate::sys::Address;
use crate::value::{Space, Window};

const SHAKING: &str = "the handshake of TLS";

/// Makes a handshake over a socket whose server has sent a cookie for this nonce.
///
/// # Errors
/// If one side refuses the other, or the server does not make handshakes or does not answer.
pub(crate) fn shake_hands(
    wants: Wants<'_>,
    (socket, to): (&Socket, &Route),
    (nonce, cookie): (Nonce, Cookie),
    until: Instant,
) -> Result<ClientChannel, CallError> {
    let client = wants.security.client_at(wants.place, Wire::Exchange)?;
    let failed = |error| CallError::system(Phase::Bind, SHAKING.to_owned(), error);
    let piece = socket.payload(HEADER_BYTES + TAG_BYTES).map_err(failed)?;
    let ours = Parameters {
        piece: (piece as u32).clamp(PIECE_MIN, PIECE_MAX),
        message_bytes_max: 0,
        credits: 0,
        id: [0; 8],
        incarnation: 0,
    };
    let address = match to {
        Route::Udp(to) => to.ip(),
        // Handshakes are resumed with servers at the same address, and this one has none of IP.
        Route::Link(_, node) => IpAddr::V6(link_local(node.hardware)),
    };
    let shaking = Shaking::client(&client, address, &ours, nonce, moment());
    let mut shaking = shaking.map_err(|refusal| denied(SHAKING, refusal))?;
    // The server has sent its cookie already.
    let mut packet = [0; BIND_BYTES];
    BindMessage::Cookie(cookie, None).emit(nonce, 0, 0, &mut packet);
    shaking.receive(moment(), &mut packet);
    let (mut out, mut memory) = ([0; SHAKE_BYTES_MAX], [0; SHAKE_BYTES_MAX]);
    let channel = loop {
        while let Some(bytes) = shaking.poll_send(moment(), &mut out) {
            // If the socket does not accept the packet, the packet is lost.
            let _ = socket.send(&[Window::from(&out[..bytes])], None);
        }
        match shaking.outcome() {
            Some(Ok(channel)) => break Arc::clone(channel),
            Some(Err(failure)) => return Err(explained(failure, to)),
            None => {}
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(silent(to, 0));
        }
        let due = shaking.next_timer().map(|due| Duration::from_nanos(due.since(moment())));
        let due = due.map_or(left, |due| due.min(left));
        let wait = if due.is_zero() { Until::Now } else { Until::After(due) };
        match socket.receive(&[Space::of_mut(&mut memory)], None, wait) {
            Ok(Some(arrival)) if !arrival.cut => {
                shaking.receive(moment(), &mut memory[..arrival.bytes]);
            }
            // A closed port is a hint only. If no server is there, the packets are not answered.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(failed(error)),
        }
    };
    let server = Arc::new(wants.security.accepted(channel.peer()));
    let words = server.in_words().into();
    let incarnation = channel.theirs().incarnation;
    let seal = Arc::new(ClientSeal(channel));
    Ok(ClientChannel { seal, key: wants.key(), incarnation, words, server })
}

/// Returns the address of IPv6 that a host with a hardware address has on its link by default.
pub(super) fn link_local([a, b, c, d, e, f]: [u8; 6]) -> Ipv6Addr {
    let pair = u16::from_be_bytes;
    let host = [pair([a ^ 2, b]), pair([c, 0xff]), pair([0xfe, d]), pair([e, f])];
    Ipv6Addr::new(0xfe80, 0, 0, 0, host[0], host[1], host[2], host[3])
}

/// Returns the error for a handshake that failed.
fn explained(failure: &Failure, to: &Route) -> CallError {
    match failure {
        Failure::Refused(refusal) => denied(SHAKING, refusal.clone()),
        Failure::Unbound(refusal) => {
            let text = String::from_utf8_lossy(refusal.text());
            match Kind::from_number(refusal.kind) {
                Some(kind) if kind != Kind::ProtocolMismatch => {
                    CallError::not_executed(kind, Phase::Bind, text)
                }
                _ => {
                    let why = format!("it answers without TLS, `{}`", text.escape_debug());
                    denied(SHAKING, Refusal::OtherProtocol { why })
                }
            }
        }
        Failure::NoAnswer => silent(to, 0),
    }
}

/// Seals the packets of a client's sockets.
#[derive(Debug)]
struct ClientSeal(Arc<Channel>);

impl ClientSeal {
    fn number(&self) -> ConnectionNumber {
        self.0.id()
    }
}

/// Returns the seal of a client's sockets.
#[cfg(any(test, fuzzing))]
pub(crate) fn seal_of(channel: Arc<Channel>) -> Arc<dyn PacketSeal> {
    Arc::new(ClientSeal(channel))
}

impl PacketSeal for ClientSeal {
    fn connection(&self) -> Option<[u8; 8]> {
        Some(self.number())
    }

    fn seal(&self, packet: &mut [u8]) -> Option<usize> {
        self.0.seal(packet).ok()?;
        Some(packet.len())
    }

    fn open(&self, packet: &mut [u8], _: Option<&Address>, _: &Socket) -> Opened {
        if let Some(bytes) = self.0.open(packet) {
            // A late packet of the handshake says nothing new.
            let is_late = packet[3] == PacketKind::Shake as u8;
            return if is_late { Opened::Dropped } else { Opened::Packet(bytes) };
        }
        // In clear, the client takes only hints that the server does not know the connection.
        let refused = packet.split_first_chunk().and_then(|(header, rest)| {
            let header = Header::parse(header, rest.len()).ok()?;
            let is_ours = header.handle.secret.starts_with(&self.number());
            (header.kind == PacketKind::Refused && is_ours).then_some(())
        });
        if refused.is_some() { Opened::Unreachable } else { Opened::Dropped }
    }

    fn end(&self) {
        self.0.end();
    }
}
