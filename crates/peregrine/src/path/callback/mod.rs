//! Callbacks: a procedure calls an object of its caller.
//!
//! A callback uses two streams of the conduit that carries the streams of its binding (`call/streams.rs`).
//! The caller's arguments contain a number. The stream with this number carries calls from the procedure to
//! the object. The stream with the next number carries the results. So the caller needs no socket for
//! incoming calls, and every path carries callbacks.
//!
//! The items of both streams are messages: a header of 32 bytes and what follows, padded with zeros to a
//! multiple of 16. Numbers are little-endian. The procedure's side converts values to the byte order of the
//! object.
//!
//! | at | bytes | header of an item from the procedure |
//! |---|---|---|
//! | 0 | 8 | the number of the call |
//! | 8 | 4 | the kind: 1 is a call, 2 means that the procedure has given up the call of this number |
//! | 12 | 4 | the number of the procedure |
//! | 16 | 4 | the size of the head in bytes |
//! | 20 | 4 | the size in bytes of the head and the copied blocks |
//! | 24 | 4 | the size of the message in bytes |
//! | 28 | 4 | the size in bytes of the call's extensions |
//! | 32 | | the message, like that of a separate call |
//! | | | at the next multiple of 16: the extensions |
//!
//! | at | bytes | header of an item from the object |
//! |---|---|---|
//! | 0 | 8 | the number of the call |
//! | 8 | 4 | the answer |
//! | 12 | 4 | the offset of the head in the result |
//! | 16 | 4 | the size of the head in bytes |
//! | 20 | 4 | the size of the result in bytes |
//! | 24 | 8 | zero |
//! | 32 | | the result, like that of a separate call |
//!
//! | file | what |
//! |---|---|
//! | `wire` | the two streams at one side, and the items |
//! | `client` | the side of the procedure: a call path to the object |
//! | `server` | the side of the object: it runs the calls |

pub(crate) mod client;
pub(crate) mod server;
pub(crate) mod wire;
