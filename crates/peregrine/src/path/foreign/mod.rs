//! What the paths of other RPC systems share. Each of these systems has its own protocol, and all have the
//! same idea of a call: a message names a program, a version and a procedure. A client need not bind before
//! it calls.
//!
//! * `client`: the client's end of a socket, with the calls in flight on it.
//! * `program`: the program that a client wants. `exported`: the export that has a program.
//! * `callers`: what a server stores about its callers.
//! * `connections`: the TCP connections of a server. `service`: the protocol of the connections. `datagrams`:
//!   the UDP sockets of a server.
//! * `serving`: how a call runs, and where its reply is made.

pub(super) mod callers;
pub(super) mod client;
mod connection;
pub(super) mod connections;
pub(crate) mod datagrams;
pub(super) mod exported;
pub(super) mod program;
pub(super) mod service;
pub(super) mod serving;

use core::time::Duration;

use crate::protocol::exchange::time::Moment;
use crate::sys;

/// Returns the current time of the clock that all protocols use.
pub(super) fn moment() -> Moment {
    Moment(sys::boot_ns())
}

/// Returns a duration in nanoseconds, the unit of all protocols.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
