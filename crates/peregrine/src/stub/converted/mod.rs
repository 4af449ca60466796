//! Calls between a client and a server that were built at different times, so that their interfaces differ.
//!
//! The client converts the messages. When it binds, it compares both interfaces (`interface/compare.rs`) and
//! makes a [`Program`] for all procedures whose messages differ. The usual stub marshals a call of such a
//! procedure, in the native representation, into private memory. [`ConvertedPath`] then rewrites the message
//! into the frame of the real path, as the server's interface and byte order require. It rewrites the result
//! in the other direction. The server takes no part in the conversion. Procedures that are equal on both
//! sides are called without conversion.
//!
//! Conversion reads each value once and writes it once. It allocates memory only for a call with many
//! blocks.

mod compile;
mod convert;
mod elements;
mod path;
mod program;
mod reduce;
#[cfg(test)]
mod tests;

pub(crate) use path::{ConvertedPath, SharedPath};
pub(crate) use program::Program;
