//! The sealed connections of the clients of a socket, as far as handles and the keeper need them. What seals
//! packets and makes handshakes is in [`sealed`](crate::path::datagram::sealed).

use super::ServerSocket;
use crate::error::Kind;
use crate::keeper::Watch;
use crate::path::datagram::peer::{PeerAddress, moment};
use crate::path::datagram::sealed::{ConnectionNumber, SealHost};
use crate::protocol::exchange::bind::{BIND_BYTES, BODY_BYTES, BindMessage, BindRefusal};
use crate::protocol::exchange::header::{HEADER_BYTES, Header, PacketKind};
use crate::protocol::exchange::time::Moment;
use crate::sys::Address;

impl SealHost for ServerSocket {
    fn answer_unverified(&self, now: Moment, packet: &[u8], to: &Address) {
        Self::answer_unverified(self, now, packet, to);
    }

    fn host_number(&self, from: &Address) -> u64 {
        self.peer(PeerAddress::of(from).host())
    }

    fn piece_for(&self, to: &Address) -> u32 {
        self.socket.payload_to(to, HEADER_BYTES).unwrap_or(0) as u32
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn trust_watch(&self) -> Option<&Watch> {
        self.trust.get()
    }
}

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
