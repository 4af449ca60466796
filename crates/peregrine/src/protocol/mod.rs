//! The protocols between machines, without input and output. They turn bytes into messages and messages into
//! bytes, and use no socket, clock or thread.

pub(crate) mod courier;
pub(crate) mod description;
pub(crate) mod exchange;
mod fields;
mod lists;
pub(crate) mod onc;
pub(crate) mod replies;
pub(crate) mod retransmission;
pub(crate) mod stream;
