//! The protocols between machines, without input and output. They turn bytes into messages and messages into
//! bytes, and use no socket, clock or thread.

pub(crate) mod description;
pub(crate) mod exchange;
mod fields;
// No path uses these protocols yet, so only tests and fuzz targets contain them.
#[cfg(any(test, fuzzing))]
pub(crate) mod courier;
#[cfg(any(test, fuzzing))]
pub(crate) mod onc;
#[cfg(any(test, fuzzing))]
pub(crate) mod replies;
#[cfg(any(test, fuzzing))]
pub(crate) mod retransmission;
pub(crate) mod stream;
