//! The datagram path: it transports calls as packets over UDP or raw Ethernet.
//!
//! The protocol module is [`exchange`](crate::protocol::exchange). It handles only headers and lengths. This
//! module adds what the protocol module does not have: sockets, clocks, locks and the memory of messages.
//!
//! * [`connect`] binds a client to an export, and shares sockets between the bindings of a process.
//! * [`client`] makes calls.
//! * [`server`] receives and runs calls.
//! * [`sealed`] makes handshakes, and encrypts packets.
//! * [`peer`] has the state that each end keeps about the other end.
//! * [`wire`] finds the bytes of a message in memory, and computes their checksums.

mod client;
mod connect;
mod peer;
mod sealed;
mod server;
mod wire;

pub(crate) use connect::{OverEthernet, OverUdp};
pub(crate) use server::Datagrams;
pub use server::Losses;
#[cfg(any(test, fuzzing))]
pub(crate) use server::fuzzing;
