//! The protocols between machines, without input and output. They turn bytes into messages and messages into
//! bytes, and use no socket, clock or thread.

pub(crate) mod description;
pub(crate) mod exchange;
mod fields;
mod lists;
// Only tests and fuzz targets use some parts.
#[cfg_attr(not(any(test, fuzzing)), allow(dead_code))]
pub(crate) mod courier;
// Only tests and fuzz targets use some parts.
#[cfg_attr(not(any(test, fuzzing)), allow(dead_code))]
pub(crate) mod onc;
// Only tests and fuzz targets use some parts.
#[cfg_attr(not(any(test, fuzzing)), allow(dead_code))]
pub(crate) mod replies;
pub(crate) mod retransmission;
pub(crate) mod stream;
