//! The paths of Courier, Xerox's standard XSIS 038112. Over TCP, they transport calls as messages of the
//! standard, or in Cooper's form, which is that of Courier in 4.2BSD. Over UDP, they transport calls in
//! packets. The other end need not be Peregrine.
//!
//! The protocol module is [`courier`](crate::protocol::courier). It has no sockets, threads or clocks. This
//! module adds these parts.
//!
//! * `client`: makes calls over TCP. `connect` binds.
//! * `server`: receives and runs calls over TCP.
//! * `packet`: packet Courier, over UDP. `exchange`: Courier over Peregrine's own packet exchange.
//! * `wire`: what these modules share.

mod client;
mod connect;
mod exchange;
mod packet;
mod server;
mod wire;

pub(crate) use connect::CourierTcp;
pub(crate) use exchange::{CourierExchange, exchange_export};
pub(crate) use packet::{CourierDatagrams, CourierUdp};
pub(crate) use server::{CourierConnections, courier_connections};
