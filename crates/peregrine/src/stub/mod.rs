//! Stubs: the runtime under the code that `#[interface]` generates, and those that need none.

mod compiled;
mod interpreted;

pub use compiled::{
    Failure, Outcome, Returned, Stub, Travels, TravelsAsBlock, assign, call, call_swapped,
    is_native,
};
pub(crate) use compiled::{ask, ping};
#[cfg(all(test, feature = "json"))]
pub(crate) use interpreted::made_up;
pub use interpreted::{
    Argument, GenericCall, GenericClient, GenericOutcome, GenericParameter, GenericServer, Program,
    Unfit,
};
