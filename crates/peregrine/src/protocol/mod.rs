//! The protocols between machines, without input and output. They turn bytes into messages and messages into
//! bytes, and use no socket, clock or thread.

pub(crate) mod description;
pub(crate) mod exchange;
mod fields;
// No path uses this protocol yet, so only tests and fuzz targets contain it.
#[cfg(any(test, fuzzing))]
pub(crate) mod onc;
pub(crate) mod stream;
