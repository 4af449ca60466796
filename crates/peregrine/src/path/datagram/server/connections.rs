//! The sealed connections of the clients of a socket, as far as handles and the keeper need them. What seals
//! packets and makes handshakes is in [`sealed`](crate::path::datagram::sealed).

use super::ServerSocket;
use crate::error::Kind;
use crate::keeper::Watch;
#[cfg(feature = "secure")]
use crate::path::datagram::peer::PeerAddress;
use crate::path::datagram::peer::moment;
use crate::path::datagram::sealed::ConnectionNumber;
use crate::protocol::exchange::bind::{BIND_BYTES, BODY_BYTES, BindMessage, BindRefusal};
#[cfg(feature = "secure")]
use crate::protocol::exchange::header::HEADER_BYTES;
use crate::protocol::exchange::header::{Header, PacketKind};
use crate::protocol::exchange::time::Moment;
use crate::sys::Address;

impl ServerSocket {
    /// Returns the number of the sealed connection to which a bind request belongs. `None` if the request came
    /// in clear. A socket with a seal gets no other request in clear than that for a cookie.
    pub(super) fn connection_of(&self, header: &Header) -> Option<ConnectionNumber> {
        self.sealed.as_ref().filter(|_| header.kind != PacketKind::Hello)?;
        header.handle.secret.first_chunk().copied()
    }

    /// Says to a client that begins a handshake that this server does not encrypt packets.
    #[cold]
    pub(super) fn refuse_handshake(&self, now: Moment, header: &Header, body: &[u8], to: &Address) {
        // The answer is not longer than the packet.
        if body.len() < BODY_BYTES {
            return;
        }
        let text = "the server does not encrypt packets";
        let refusal = BindRefusal::new(Kind::ProtocolMismatch as u32, text);
        let mut packet = [0; BIND_BYTES];
        BindMessage::Unbound(refusal).emit(header.handle.secret, 0, header.serial, &mut packet);
        self.answer_unverified(now, &packet, to);
    }

    /// Sets the watch through which the keeper calls [`check_connections`](Self::check_connections).
    pub(super) fn set_trust_watch(&self, watch: Watch) {
        let _ = self.trust.set(watch);
    }

    /// Returns the watch that the keeper must be reminded of when there is a connection.
    #[cfg(feature = "secure")]
    pub(crate) fn trust_watch(&self) -> Option<&Watch> {
        self.trust.get()
    }

    /// Returns the number that stands for a client's host at this socket.
    #[cfg(feature = "secure")]
    pub(crate) fn host_number(&self, from: &Address) -> u64 {
        self.peer(PeerAddress::of(from).host())
    }

    /// Returns the length in bytes of the largest piece of a message that reaches a client in one packet.
    #[cfg(feature = "secure")]
    pub(crate) fn piece_for(&self, to: &Address) -> u32 {
        self.socket.payload_to(to, HEADER_BYTES).unwrap_or(0) as u32
    }

    /// Returns the random number that identifies this run of the server.
    #[cfg(feature = "secure")]
    pub(crate) const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Ends the sealed connections of clients that are not trusted any more, and connections that no client
    /// uses, and revokes the bindings of ended connections. Returns whether there are connections left, so
    /// that the server must look again.
    pub(super) fn check_connections(&self) -> bool {
        let Some(sealed) = &self.sealed else { return false };
        let (ended, is_used) = sealed.check(moment());
        if !ended.is_empty() {
            for record in self.records.all() {
                let inner = record.0.lock();
                let secret = inner.server_end.bound_handle().secret;
                if let Some(row) = &inner.row
                    && ended.iter().any(|one| secret.starts_with(one))
                {
                    row.revoke();
                }
            }
        }
        is_used
    }
}
