//! The datagram path: calls as packets over UDP or raw Ethernet.
//!
//! The protocol is [`exchange`](crate::protocol::exchange), which handles headers and lengths only.
//! This module has what the protocol must not know: sockets, clocks, locks and the memory of messages.
//!
//! * [`connect`] binds a client to an export, and shares sockets between the bindings of a process.
//! * [`client`] makes calls.
//! * [`server`] receives and runs calls.
//! * [`peer`] has what both ends keep of the other end of a path.
//! * [`wire`] says where the bytes of a message are in memory, and checks them.

mod client;
mod connect;
mod peer;
mod server;
mod wire;

pub(crate) use connect::{OverEthernet, OverUdp};
pub(crate) use server::Datagrams;
pub use server::Losses;
#[cfg(any(test, fuzzing))]
pub(crate) use server::fuzzing;
