//! The stream path: it transports calls as messages over a TCP connection. All bindings of a process to one
//! address share one connection.
//!
//! The protocol module, [`stream`](crate::protocol::stream), defines what messages mean and how calls end.
//! The protocol module has no sockets, threads or locks, and no memory for calls. This module adds these
//! parts.
//!
//! * `connect`: connects a client to a server, and decides which bindings share a connection.
//! * `client`: sends calls and receives replies, on the client.
//! * `server`: receives calls and sends replies, on the server. It contains the threads that serve
//!   connections.
//! * `peer`: sends messages, for both ends.

mod client;
mod connect;
mod peer;
mod server;

pub(crate) use client::{Connection, Grant, StreamPath, ask_alone};
pub(crate) use connect::Tcp;
pub(crate) use server::Connections;
