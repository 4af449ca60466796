//! Stubs: the runtime of the code that `#[interface]` generates, and interpreted stubs, which need no
//! generated code.

mod compiled;
mod interpreted;

pub use compiled::{
    CallTarget, Failure, Outcome, Returned, Stub, Travels, TravelsAsBlock, assign, call,
    call_swapped, target,
};
pub(crate) use compiled::{ask, ping};
#[cfg(all(test, feature = "json"))]
pub(crate) use interpreted::made_up;
pub use interpreted::{
    Argument, GenericCall, GenericClient, GenericOutcome, GenericParameter, GenericServer, Program,
    Unfit,
};
