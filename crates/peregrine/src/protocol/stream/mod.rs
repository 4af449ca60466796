//! The stream protocol makes calls over one TCP connection. Each call is a message, and many calls can be in
//! flight.
//!
//! Each message consists of a [`Header`], a body, and extensions. Each of the three is padded to a multiple
//! of 16 bytes. So if the address of a buffer is a multiple of 16, every message in the buffer is aligned.
//! All numbers of the protocol are little-endian. The values in the bodies of calls and replies have the
//! server's byte order.
//!
//! This module decides what received bytes mean, what is sent, and how calls end. It has no sockets, threads
//! or clocks. The *driver*, which is the code of the path, passes bytes and the time to it. Large payloads
//! never pass through this module.
//!
//! * [`client_end`]: the client's calls in flight, its received messages, and why a connection ended.
//! * [`server_end`]: the server's received messages, and its calls that have no reply yet.
//! * [`keep_alive`]: the detection of dead servers.
//! * [`header`] and [`messages`]: the format of messages.

pub(crate) mod client_end;
mod header;
pub(crate) mod keep_alive;
mod messages;
pub(crate) mod server_end;

pub(crate) use header::{HEADER_BYTES, Header, MessageKind, Unreadable, padding};
pub(crate) use messages::{BindGrant, BindRequest, Refused};
