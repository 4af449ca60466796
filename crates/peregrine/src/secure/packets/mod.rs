//! Sealed packets: TLS 1.3 for the packet exchange, over UDP and raw Ethernet, by `rustls::quic`.
//!
//! [`Shaking`] is one end of a handshake. Its bytes travel in packets of the exchange
//! ([`protocol::exchange::shake`](crate::protocol::exchange::shake)). It ends with a [`Channel`], which seals
//! and opens the packets after the handshake. `docs/PROTOCOL.md` has the bytes.
//!
//! ```text
//! client: Shaking::client ── poll_send ──▶  server: shake::opening decides, then Shaking::server
//!         receive ◀────────── poll_send ──          receive
//!         outcome: Ok(Arc<Channel>)                 outcome: Ok(Arc<Channel>)
//!         Channel::seal ── packet ─────────────▶    Channel::open
//! ```
//!
//! The secrets of rustls are overwritten when they are dropped. The expanded keys of `ring` are not, and
//! neither is plaintext in the memory of packets.

mod channel;
mod parameters;
mod replays;
mod shaking;
#[cfg(test)]
mod tests;
mod unsealer;

pub(crate) use channel::Channel;
#[cfg(any(test, fuzzing))]
pub(crate) use channel::Limits;
pub(crate) use parameters::Parameters;
pub(crate) use shaking::{Failure, Shaking};
pub use unsealer::{Unsealed, Unsealer};

pub(crate) use crate::protocol::exchange::sealed::{TAG_BYTES, claimed, is_sealed};

/// Names a connection at its server: the place in the server's table as a little-endian u32, and 4 random
/// bytes. The secrets of the connection's handles begin with it.
pub(crate) type ConnectionId = [u8; 8];
