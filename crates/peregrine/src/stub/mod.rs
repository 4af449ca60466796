//! Client stubs: the runtime under the code that `#[interface]` generates.

mod compiled;

pub use compiled::{Failure, Outcome, Returned, Stub, assign, call, call_swapped, is_native};
pub(crate) use compiled::{ask, ping};
