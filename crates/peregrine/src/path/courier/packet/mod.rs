//! Packet Courier: calls of Courier over UDP, in whole datagrams or in parts.
//!
//! * `server`: receives and runs calls.

mod server;

pub(crate) use server::CourierDatagrams;
