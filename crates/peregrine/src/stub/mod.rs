//! Stubs: the runtime of the code that `#[interface]` generates, and interpreted stubs, which need no
//! generated code. This module also converts calls to a server whose interface differs from the client's.

mod accounting;
mod awaited;
mod callback;
mod compiled;
mod converted;
mod few;
mod foreign;
mod interpreted;
mod lane;
mod looking;
mod oneway;
mod streams;

pub use accounting::{Accounting, CallTimes};
pub use awaited::{AsyncCall, AsyncFrame, Scratch, bind, bind_pool, outcome_of};
#[cfg(feature = "async")]
pub use callback::CallableAsync;
pub use callback::{Callable, CallableBy, Callback, Registration};
pub use compiled::{
    Arguments, CallTarget, Failure, Outcome, Returned, Stub, Travels, TravelsAsBlock, assign, call,
    call_swapped, target,
};
pub(crate) use compiled::{ask, ping};
pub(crate) use converted::{ConvertedPath, Program as Conversion, SharedPath};
pub use foreign::{answer_foreign, call_foreign, check_put};
pub(crate) use interpreted::CapturedMessage;
#[cfg(all(test, feature = "json"))]
pub(crate) use interpreted::made_up;
pub use interpreted::{
    Argument, CapturedArgument, GenericCall, GenericClient, GenericOutcome, GenericParameter,
    GenericServer, Program, Unfit,
};
pub(crate) use lane::Lane;
pub(crate) use oneway::OneWay;
pub use oneway::{
    InPlace, Ordered, Queued, after_oneway, after_oneway_async, call_oneway, call_oneway_async,
    flush, flush_async,
};
pub use streams::{CallbackDrive, SinkDrive, SourceDrive, Streams, wait_for};
pub(crate) use streams::{ClientConduit, STREAM_FRAMES};
