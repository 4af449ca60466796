//! Remote procedure calls that cost what the distance costs, and nothing more.
#![deny(unsafe_code)]

mod binding;
pub mod call;
pub mod digest;
pub mod directory;
pub mod error;
pub mod interface;
mod keeper;
pub mod limits;
mod path;
mod server;
pub mod stats;
pub mod stub;
pub mod sys;
pub mod value;

pub use binding::{BindOptions, Binding, Description, describe};
pub use call::{Caller, Limit, PathKind, Wait, caller};
pub use error::{CallError, Executed, Kind, Phase, Result};
pub use peregrine_macros::{Plain, Value, interface};
pub use server::{ExportOptions, Running, Server, StopHandle};
pub use value::{Full, Invalid, Lent, Out, Plain, Value};

/// What generated code needs; no part of the public interface.
#[doc(hidden)]
pub mod __rt {
    pub use crate::binding::{BindOptions, Binding};
    pub use crate::call::{Limit, Refusal, Reply, Request, Serve, Served};
    pub use crate::error::CallError;
    pub use crate::interface::{
        Body, Digest, Direction, Field, Interface, Named, Parameter, Procedure, Shape, Type,
        Variant,
    };
    pub use crate::stub::{Outcome, Stub, assign, call};
    pub use crate::value::{Invalid, Overflow, Plain, Reader, Value, Writer};
    pub use core;
    pub use std;
}
