//! The path of Courier, Xerox's standard XSIS 038112: it transports calls as messages of the standard, or in
//! Cooper's form, over TCP. The other end need not be Peregrine.
//!
//! The protocol module is [`courier`](crate::protocol::courier). It has no sockets, threads or clocks. This
//! module adds these parts.
//!
//! * `client`: makes calls. `connect` binds.
//! * `server`: receives and runs calls.

mod client;
mod connect;
mod server;

pub(crate) use connect::CourierTcp;
pub(crate) use server::{CourierConnections, courier_connections};
