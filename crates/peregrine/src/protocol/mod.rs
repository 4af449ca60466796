//! Protocols between machines, sans-IO: bytes in, bytes out; no socket, clock or thread.

pub(crate) mod exchange;
pub(crate) mod stream;
