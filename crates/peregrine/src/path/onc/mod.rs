//! The path of ONC RPC (Sun RPC): it transports calls as messages of RFC 5531, over UDP or TCP. The other end
//! need not be Peregrine.
//!
//! The protocol module is [`onc`](crate::protocol::onc). It has no sockets, threads or clocks. This module
//! adds these parts.
//!
//! * `client`: makes calls. `connect` binds, and `lookup` asks rpcbind for ports.
//! * `server`: receives and runs calls. `lookup` also registers the programs of a server at rpcbind.

mod client;
mod connect;
mod lookup;
mod server;

pub(crate) use connect::{OncTcp, OncUdp};
pub use lookup::{RegisteredProgram, registered_programs};
pub(crate) use lookup::{Registrations, name_programs, network_of};
pub(crate) use server::{OncConnections, OncDatagrams, onc_connections};
