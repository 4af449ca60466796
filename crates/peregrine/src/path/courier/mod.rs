//! The paths of Courier, Xerox's protocol for remote procedure calls. The other end need not be Peregrine.
//!
//! The protocol module is [`courier`](crate::protocol::courier). It has no sockets, threads or clocks. This
//! module adds these parts.
//!
//! * `packet`: packet Courier, over UDP.
//! * `answers`: what a server answers. `errors`: what a client makes of answers and failures.
//! * `program`: what a client needs to know of a program in order to bind to it.

mod answers;
mod errors;
mod packet;
mod program;

pub(crate) use packet::{CourierDatagrams, CourierUdp};
