//! Protocols between machines, sans-IO: bytes in, bytes out; no socket, clock or thread.

pub(crate) mod description;
pub(crate) mod exchange;
mod fields;
pub(crate) mod stream;
