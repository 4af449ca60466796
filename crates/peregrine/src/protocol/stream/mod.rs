//! The stream protocol: calls as messages on one TCP connection, with many calls in flight.
//!
//! Each message is a [`Header`], a body, and extensions, each padded to a multiple of 16 bytes. Memory
//! that begins at such a multiple therefore has every message aligned. All numbers of the protocol are
//! little-endian. The values in the bodies of calls and replies have the server's byte order.
//!
//! This room decides what received bytes mean, what is sent, and how calls end. It has no sockets,
//! threads or clocks: the path gives it bytes and the time, and large payloads never pass through it.
//!
//! * [`client_end`]: the client's calls in flight, its received messages, and why a connection ended.
//! * [`server_end`]: the server's received messages, and its calls that have no reply yet.
//! * [`keep_alive`]: whether a silent server is still there.
//! * [`header`] and [`messages`]: the bytes.

pub(crate) mod client_end;
mod header;
pub(crate) mod keep_alive;
mod messages;
pub(crate) mod server_end;

pub(crate) use header::{HEADER_BYTES, Header, Kind, Unreadable, padding};
pub(crate) use messages::{Bind, Bound, Refused};
