//! Courier over Peregrine's own packet exchange: a call is an ordinary call of Peregrine, and its argument is
//! a whole message of Courier. So the exchange provides at-most-once execution, retransmission, large
//! messages and the deadline. The procedures and values are those of Courier.
//!
//! A server offers each program as an export with a [reserved name](name_of). The export has one procedure,
//! [`CALL`]. Its argument and its result are payloads: the versions of Courier, and the message.
//!
//! * `client`: makes calls. `connect`: binds.
//! * `server`: serves the export.

mod client;
mod connect;
mod server;

pub(crate) use connect::CourierExchange;
pub(crate) use server::exchange_export;

use crate::protocol::courier::message::{CALL_BYTES, VERSIONS_BYTES};

/// The procedure whose argument is a call of Courier.
const CALL: u32 = 0;
/// The number of bytes of a payload before the arguments.
const HEADER_BYTES: usize = VERSIONS_BYTES + CALL_BYTES;

// The header and the arguments are two blocks of a message. They form one payload, because no padding is
// needed between them.
const _: () = assert!(HEADER_BYTES.is_multiple_of(16));

/// Returns the reserved name of the export through which clients call a program. An application cannot export
/// such a name.
fn name_of(program: u32, version: u32) -> String {
    format!(".courier.{program}.{version}")
}
