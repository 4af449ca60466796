//! Client stubs: the runtime under the code that `#[interface]` generates.

mod compiled;

pub(crate) use compiled::ask;
pub use compiled::{Failure, Outcome, Returned, Stub, assign, call, call_swapped, is_native};
