//! The paths of Courier, Xerox's protocol for remote procedure calls. The other end need not be Peregrine.
//!
//! The protocol module is [`courier`](crate::protocol::courier). It has no sockets, threads or clocks. This
//! module adds these parts.
//!
//! * `packet`: packet Courier, over UDP.
//! * `answers`: what a server answers, which is the same on all paths.

mod answers;
mod packet;

pub(crate) use packet::CourierDatagrams;
