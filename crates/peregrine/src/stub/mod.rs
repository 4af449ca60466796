//! Client stubs: the runtime under the code that `#[interface]` generates.

mod compiled;

pub use compiled::{Outcome, Returned, Stub, assign, call};
