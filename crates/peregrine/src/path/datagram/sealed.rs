//! Sealed packets: handshakes of TLS over packets, and the keys by which the sockets of both ends seal and
//! open all packets after the handshake.
//!
//! What a handshake makes is called a *connection*: the keys of both directions, and the proven peer. The
//! number of the connection is the beginning of the secret in each packet, so it says which keys the packet
//! has. All sockets of an association use one connection.
//!
//! Without the feature `secure`, the types for servers have no values.

#[cfg(feature = "secure")]
mod client;
#[cfg(feature = "secure")]
mod connections;
#[cfg(not(feature = "secure"))]
mod off;
#[cfg(feature = "secure")]
mod server;

#[cfg(all(feature = "secure", any(test, fuzzing)))]
pub(crate) use client::seal_of;
#[cfg(feature = "secure")]
pub(crate) use client::shake_hands;
#[cfg(not(feature = "secure"))]
pub(crate) use off::{ServerSeal, shake_hands};
#[cfg(feature = "secure")]
pub(crate) use server::ServerSeal;

use core::fmt;
use std::sync::Arc;

use crate::address::Place;
use crate::device::sealed::PacketSeal;
use crate::keeper::Watch;
use crate::path::security::{AcceptedServer, ClientSecurity, SecurityKey};
use crate::protocol::exchange::bind::Nonce;
use crate::protocol::exchange::time::Moment;
use crate::sys::Address;

/// What a seal needs of the socket of its server.
#[cfg_attr(not(feature = "secure"), expect(dead_code, reason = "no socket has a seal"))]
pub(crate) trait SealHost: Send + Sync {
    /// Answers a host that has not proven its address, unless it has used up its answers.
    fn answer_unverified(&self, now: Moment, packet: &[u8], to: &Address);

    /// Returns the number that stands for a client's host at this socket.
    fn host_number(&self, from: &Address) -> u64;

    /// Returns the length in bytes of the largest piece of a message that reaches a client in one packet.
    fn piece_for(&self, to: &Address) -> u32;

    /// Returns the random number that identifies this run of the server.
    fn incarnation(&self) -> u64;

    /// Returns the watch that the keeper must be reminded of when there is a connection.
    fn trust_watch(&self) -> Option<&Watch>;
}

/// Identifies a connection at the socket of its server.
pub(crate) type ConnectionNumber = [u8; 8];

/// What a client wants: the security of a binding, and the place at which it expects a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wants<'a> {
    pub(crate) security: &'a ClientSecurity,
    pub(crate) place: &'a Place,
}

impl Wants<'_> {
    /// Returns what bindings must have in common to share a connection.
    pub(crate) fn key(&self) -> SecurityKey {
        self.security.key(self.place)
    }
}

/// The client's end of a connection, for all sockets of an association.
#[derive(Clone)]
pub(crate) struct ClientChannel {
    seal: Arc<dyn PacketSeal>,
    key: SecurityKey,
    /// The random number that identifies this run of the server.
    incarnation: u64,
    /// Says how packets are encrypted, and who the server is.
    words: Arc<str>,
    server: Arc<AcceptedServer>,
}

impl ClientChannel {
    /// Returns what seals the packets of a socket.
    pub(crate) fn seal(&self) -> Arc<dyn PacketSeal> {
        Arc::clone(&self.seal)
    }

    /// Returns what other bindings must have in common with this connection to share it.
    pub(crate) const fn key(&self) -> &SecurityKey {
        &self.key
    }

    /// Returns the random number that identifies the run of the server that made the handshake.
    pub(crate) const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Returns the server.
    pub(crate) const fn server(&self) -> &Arc<AcceptedServer> {
        &self.server
    }

    /// Says how packets are encrypted, and who the server is.
    pub(crate) fn in_words(&self) -> &str {
        &self.words
    }
}

impl fmt::Debug for ClientChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientChannel({})", self.words)
    }
}

/// Puts the number of a connection into a random secret.
pub(crate) fn of_connection(connection: Option<ConnectionNumber>, mut secret: Nonce) -> Nonce {
    if let Some(connection) = connection {
        secret[..connection.len()].copy_from_slice(&connection);
    }
    secret
}
