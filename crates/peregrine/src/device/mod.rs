//! The devices that move bytes between machines. They do not know what the bytes mean.

pub(crate) mod ethernet;
mod gso;
mod inherited;
pub(crate) mod sealed;
pub(crate) mod socket;
pub(crate) mod tcp;
pub(crate) mod udp;

pub(crate) use ethernet::{Ethernet, LinkAddress, LinkDevice, LinkPort, SocketUse};
pub(crate) use gso::{GSO_DATAGRAMS_MAX, GsoBatch, SendDatagrams};
pub(crate) use socket::{NoWait, Route, Socket, wait_for_any};
pub(crate) use udp::{Arrival, BYTES_MAX, Until, datagrams};
