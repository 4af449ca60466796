//! The stream path: calls as messages over one TCP connection, which all bindings of a process to
//! an address share.
//!
//! `client` is the connection as its callers see it, who lend each other the receive turn; `server`
//! is the connection as the threads see it that serve it. `sending` gathers a message from where it
//! lies.

mod client;
mod connect;
mod sending;
mod server;
mod turn;

pub(crate) use client::{Connection, Grant, StreamPath, ask_alone};
pub(crate) use connect::Tcp;
pub(crate) use server::{ConnectionTerms, Connections};
