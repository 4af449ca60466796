//! What moves bytes between machines, with no knowledge of what they mean.

pub(crate) mod ethernet;
pub(crate) mod socket;
pub(crate) mod tcp;
mod train;
pub(crate) mod udp;

pub(crate) use ethernet::{By, Ethernet, LinkPort, Node, Use};
pub(crate) use socket::{Route, Socket, wait_for_any};
pub(crate) use train::{Sends, TRAIN_MAX, Train};
pub(crate) use udp::{Arrival, BYTES_MAX, Until, datagrams};
