//! Protocols between machines, without I/O: they read and write bytes, and use no socket, clock or
//! thread.

pub(crate) mod description;
pub(crate) mod exchange;
mod fields;
pub(crate) mod stream;
