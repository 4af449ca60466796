//! ONC RPC (RFC 5531) over UDP and TCP. The protocol itself is in `protocol/onc/`. A binding calls a program of
//! ONC RPC through an ordinary call path.

mod client;
mod connect;
mod lookup;

pub(crate) use connect::{OncTcp, OncUdp};
pub use lookup::{RegisteredProgram, registered_programs};
