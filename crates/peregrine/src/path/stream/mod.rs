//! The stream path: calls as messages over one TCP connection, which all bindings of a process to
//! an address share.
//!
//! The protocol, [`stream`](crate::protocol::stream), defines what messages mean and how calls end. This
//! module adds the parts that the protocol does not contain: sockets, threads, locks and memory.
//!
//! * `connect`: how a client reaches a server, and which bindings share a connection.
//! * `client`: the client's half of a call.
//! * `server`: the server's half of a call, and the threads that serve connections.
//! * `peer`: the parts for sending, which both ends use.

mod client;
mod connect;
mod peer;
mod server;

pub(crate) use client::{Connection, Grant, StreamPath, ask_alone};
pub(crate) use connect::Tcp;
pub(crate) use server::{ConnectionTerms, Connections};
