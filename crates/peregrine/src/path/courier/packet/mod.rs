//! Packet Courier: calls of Courier over UDP, in whole datagrams or in parts.
//!
//! * `client`: makes calls. `connect`: binds.
//! * `server`: receives and runs calls.

mod client;
mod connect;
mod server;

pub(crate) use connect::CourierUdp;
pub(crate) use server::CourierDatagrams;
