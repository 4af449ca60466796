//! Interpreted stubs: one generic client and one generic server for every interface.
//!
//! Chung, Lazowska, Notkin and Zahorjan found their interpreter 2 to 4 times as slow as compiled stubs
//! where data is structured, and nowhere else: it walked the description anew for every element of an
//! array of records, for it did not know their sizes. Here a description is *flattened once*, when a
//! client binds or a server is made, into a [`Program`]: whatever lies in one piece on the wire is one
//! step of a known size, however it is made up. The values are [`Dynamic`](crate::Dynamic).
//!
//! Bytes are the same as those of compiled stubs, in both representations.

mod client;
mod marshal;
mod program;
mod server;
mod solid;
mod unmarshal;

#[cfg(test)]
pub(crate) mod made_up;
#[cfg(test)]
mod tests;

pub use client::{Argument, GenericClient};
pub use program::{Program, Unfit};
pub use server::{GenericCall, GenericOutcome, GenericParameter, GenericServer};
