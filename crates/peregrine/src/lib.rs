//! Remote procedure calls that cost what the distance costs, and nothing more.
//!
//! Write a trait; `#[interface]` makes it an interface. The client implements the trait, so the same
//! code runs on a local object and on a server in another process:
//!
//! ```
//! use peregrine::{Out, interface};
//!
//! #[interface]
//! trait Files {
//!     /// in: travels with the call only
//!     fn size(&self, path: &str) -> peregrine::Result<u64>;
//!     /// out: the caller's own buffer, filled by the result
//!     fn read(&self, path: &str, into: Out<'_, u8>) -> peregrine::Result<()>;
//!     /// in-out: travels both ways
//!     fn sort(&self, values: &mut [u64]) -> peregrine::Result<()>;
//! }
//!
//! struct Constant;
//! impl Files for Constant {
//!     fn size(&self, path: &str) -> peregrine::Result<u64> {
//!         Ok(path.len() as u64)
//!     }
//!     fn read(&self, path: &str, mut into: Out<'_, u8>) -> peregrine::Result<()> {
//!         into.put(path.as_bytes()).expect("room for a name");
//!         Ok(())
//!     }
//!     fn sort(&self, values: &mut [u64]) -> peregrine::Result<()> {
//!         values.sort_unstable();
//!         Ok(())
//!     }
//! }
//!
//! // In another process it would be `FilesClient::bind("files")?`, against
//! // `Server::new().export("files", FilesServer::new(Constant))?.run()?`.
//! let files = FilesClient::in_process(Constant);
//! let mut buffer = Vec::with_capacity(64);
//! files.read("hosts", Out::from(&mut buffer))?;
//! assert_eq!(buffer, b"hosts");
//! let mut values = [3, 1, 2];
//! files.sort(&mut values)?;
//! assert_eq!(values, [1, 2, 3]);
//! # Ok::<(), peregrine::CallError>(())
//! ```
//!
//! # Map
//!
//! * [`interface`](macro@interface), [`derive@Plain`], [`derive@Value`]: what you write.
//! * [`Out`], [`Lent`]: buffers whose place the caller decides, and that are not copied.
//! * [`Server`], [`Running`], [`ExportOptions`], [`Losses`], [`Fault`]: serving objects under names.
//! * [`Address`], [`Endpoint`], [`Place`]: where servers are and listen.
//! * [`Binding`], [`BindOptions`], [`Limit`], [`Wait`], [`OnExhausted`]: what is behind a client.
//! * [`CallError`], [`Kind`], [`Executed`]: what failed, and whether the call ran.
//! * [`caller`]: who calls the procedure that runs.
//! * [`directory`], [`describe`](fn@describe), [`exports`](fn@exports): what is exported, here and elsewhere.
//! * [`stat`](fn@stat), [`counters::Stat`], [`tells`], [`Disclosure`]: what servers count and tell of themselves.
//! * [`limits`]: every bound.
//!
//! The modules [`call`], [`stub`], [`value`] and [`sys`] are for generated code and for programs that
//! bring their own stubs or measure.
#![deny(unsafe_code)]

// What the macros write names it so.
extern crate self as peregrine;

mod address;
mod binding;
pub mod call;
pub mod counters;
mod device;
pub mod digest;
pub mod directory;
pub mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod interface;
#[cfg(feature = "json")]
#[cfg_attr(docsrs, doc(cfg(feature = "json")))]
pub mod json;
mod keeper;
pub mod limits;
mod path;
mod protocol;
mod registry;
mod server;
pub mod server_info;
mod serving;
pub mod stats;
pub mod stub;
mod sync;
pub mod sys;
pub mod value;

pub use address::{Address, Endpoint, Place};
pub use binding::{
    BindOptions, Binding, Candidate, Description, EthernetDevice, Explanation, Rebind, Verdict,
    describe, explain, exports, stat,
};
pub use call::{Caller, Limit, OnExhausted, PathKind, Wait, caller};
pub use error::{CallError, Executed, Kind, Phase, Result};
pub use peregrine_macros::{Plain, Value, interface};
pub use server::{Disclosure, ExportOptions, Fault, Losses, Running, Server, StopHandle};
pub use stub::{
    Argument, GenericCall, GenericClient, GenericOutcome, GenericParameter, GenericServer,
};
pub use value::{Dynamic, Full, Invalid, Lent, Out, Plain, Value};

/// What generated code needs; no part of the public interface.
#[doc(hidden)]
pub mod __rt {
    pub use crate::binding::{BindOptions, Binding};
    pub use crate::call::{Limit, Refusal, Reply, Request, Serve, Served};
    pub use crate::error::CallError;
    pub use crate::interface::{
        Body, Digest, Direction, Field, Interface, InterfaceRef, Named, Parameter, Procedure,
        Shape, Type, Variant,
    };
    pub use crate::stub::{Outcome, Stub, assign, call, call_swapped, is_native};
    pub use crate::value::{
        Invalid, Overflow, Plain, Reader, Representation, Value, Writer, common_unit,
    };
    pub use core;
    pub use std;
}
