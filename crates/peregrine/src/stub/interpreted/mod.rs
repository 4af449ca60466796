//! Interpreted stubs: one generic client and one generic server for all interfaces.
//!
//! Chung, Lazowska, Notkin and Zahorjan found their interpreter 2 to 4 times as slow as compiled stubs, but
//! only for structured data. Their interpreter did not know the sizes of records, so it read the description
//! again for each element of an array of records. Here a description is converted once to a [`Program`], when
//! a client binds or a server is made. In the program, data without gaps is one step of a known size,
//! whatever its parts are. The values are [`Dynamic`](crate::Dynamic).
//!
//! Interpreted stubs send the same bytes as compiled stubs, in both representations.

mod callbacks;
mod captured;
mod client;
mod copies;
mod foreign;
mod marshal;
mod oneway;
mod program;
mod server;
mod solid;
mod streams;
mod unmarshal;

#[cfg(test)]
pub(crate) mod made_up;
#[cfg(test)]
mod tests;

pub use captured::CapturedArgument;
pub(crate) use captured::CapturedMessage;
pub use client::{Argument, GenericClient};
pub use program::{Program, Unfit};
pub use server::{GenericCall, GenericOutcome, GenericParameter, GenericServer};
