//! Remote procedure calls that cost what the distance costs, and nothing more.
//!
//! You write a trait, and a client calls an object that implements it: in the same process, in another
//! process (shared memory), or on another machine (raw Ethernet, UDP or TCP). This program is server and
//! client; `cargo run serve` starts the server, and `cargo run` the client:
//!
//! ```no_run
//! use peregrine::{Server, interface};
//!
//! /// Says hello.
//! #[interface]
//! pub trait Hello {
//!     /// Greets a person, as often as asked.
//!     fn greet(&self, name: &str, times: u8) -> peregrine::Result<String>;
//! }
//!
//! struct Polite;
//!
//! impl Hello for Polite {
//!     fn greet(&self, name: &str, times: u8) -> peregrine::Result<String> {
//!         Ok(vec![format!("hello {name}"); times.into()].join(", "))
//!     }
//! }
//!
//! fn main() -> peregrine::Result<()> {
//!     if std::env::args().nth(1).as_deref() == Some("serve") {
//!         return Server::new().export("hello", HelloServer::new(Polite))?.stop_on_signals().run();
//!     }
//!     let hello = HelloClient::bind("hello")?;
//!     println!("{}", hello.greet("world", 2)?);
//!     Ok(())
//! }
//! ```
//!
//! `docs/GUIDE.md` in the repository is a tutorial, and says what to do about each error message. Each of the
//! following sections names the items that belong to one chapter of the tutorial.
//!
//! # Interfaces
//!
//! [`#[interface]`](macro@interface) makes a trait an interface: it adds a client, which implements the
//! trait by calling a server, and a server, which calls an object. Values that travel derive [`Value`]
//! (structured) or [`Plain`] (fixed layout, copied as one block).
//!
//! The primitive types are values, and so are arrays, tuples, `Option`, `Result`, texts, collections and
//! pointers of the standard library, `Duration`, `SystemTime`, IP addresses, and file system paths. Types of
//! other crates are values with [features](#features).
//!
//! # Errors
//!
//! Every call can fail with a [`CallError`]. It says what failed ([`Kind`]), in which [`Phase`], and
//! whether the call ran ([`Executed`]). A procedure's own error type is any [`Value`] that can be made
//! from a `CallError`.
//!
//! # Buffers and sizes
//!
//! The type of a parameter says in which direction it travels: `&[T]` and [`Lent`] in, [`Out`] out,
//! `&mut [T]` both ways:
//!
//! ```
//! use peregrine::{Out, interface};
//!
//! #[interface]
//! trait Names {
//!     fn sort(&self, values: &mut [u64]) -> peregrine::Result<()>;
//!     fn echo(&self, name: &str, into: Out<'_, u8>) -> peregrine::Result<()>;
//! }
//!
//! struct Local;
//!
//! impl Names for Local {
//!     fn sort(&self, values: &mut [u64]) -> peregrine::Result<()> {
//!         values.sort_unstable();
//!         Ok(())
//!     }
//!     fn echo(&self, name: &str, mut into: Out<'_, u8>) -> peregrine::Result<()> {
//!         let _ = into.put(name.as_bytes());
//!         Ok(())
//!     }
//! }
//!
//! fn main() -> peregrine::Result<()> {
//!     // Calls within one process, for tests.
//!     let names = NamesClient::in_process(Local);
//!     let mut values = [3, 1, 2];
//!     names.sort(&mut values)?;
//!     assert_eq!(values, [1, 2, 3]);
//!     let mut buffer = Vec::with_capacity(64);
//!     names.echo("ada", Out::from(&mut buffer))?;
//!     assert_eq!(buffer, b"ada");
//!     Ok(())
//! }
//! ```
//!
//! [`limits`] lists every bound, with its default and what happens beyond it.
//!
//! # Choosing a path
//!
//! An [`Address`] names an export, and perhaps its [`Place`] and one path. Without a path, binding takes
//! the fastest one that works. [`Binding::explain`] and [`explain`](fn@explain) say why ([`Explanation`],
//! [`Candidate`], [`Verdict`]). [`Server::listen`] takes an [`Endpoint`]. [`EthernetDevice`] chooses how
//! raw Ethernet is sent.
//!
//! # Waiting
//!
//! [`BindOptions::wait`] and [`Server::wait`] choose how threads [`Wait`]. [`BindOptions::astacks`]
//! bounds the calls in flight, and [`OnExhausted`] says what further callers do.
//!
//! # Deadlines
//!
//! A [`Limit`] bounds a call. A procedure asks its [`caller`] how much time is left, and whether the
//! caller still waits.
//!
//! # Names
//!
//! [`directory`] says where names are looked up, and lists the names of this machine.
//! [`describe`](fn@describe) asks a server for the interface of an export, and [`exports`](fn@exports) for
//! its exports.
//!
//! # Deployment
//!
//! [`Server`] and [`ExportOptions`] say what is served, to whom and with how many threads. [`Running`]
//! and [`StopHandle`] stop a server. [`Rebind`] says what a client does when its server has gone. [`Fault`]
//! and [`Losses`] are what a server reports. [`stat`](fn@stat) reads the counters of a server
//! ([`counters::Stat`]), and [`Disclosure`] decides which of the counters other processes may read
//! ([`server_info`]).
//!
//! # Programs without the trait
//!
//! [`GenericClient`] and [`GenericServer`] call and serve interfaces that are known only at run time,
//! with values of type [`Dynamic`].
//!
//! # Features
//!
//! All features are optional, and none is on by default.
//!
//! | feature | what it adds |
//! |---|---|
//! | `async` | `#[interface]` on a trait `Files` also makes `FilesAsync`, `FilesAsyncClient` and `FilesAsyncServer` |
//! | `bytes` | `Bytes` and `BytesMut` are values, like `Vec<u8>` |
//! | `chrono` | `DateTime<Utc>`, `DateTime<FixedOffset>`, `FixedOffset`, `NaiveDate`, `NaiveTime`, `NaiveDateTime`, `TimeDelta`, `Weekday` and `Month` are values |
//! | `time` | `UtcDateTime`, `OffsetDateTime`, `UtcOffset`, `Date`, `Time`, `PrimitiveDateTime`, `Duration`, `Weekday` and `Month` are values |
//! | `uuid` | `Uuid` is [`Plain`] |
//! | `json` | the module `json`: descriptions and values as JSON |
//! | `stamps` | records the time at several moments of each local call, for measurements only |
//!
//! Types that mean the same are the same in an interface: a client with `chrono::NaiveDate` can call a
//! server with `time::Date`. An instant in UTC is a `SystemTime` in all crates. `chrono` has leap seconds;
//! a leap second is sent as the last nanosecond of the second before. Each receiver refuses values that its
//! own type cannot hold. `docs/REPRESENTATION.md` in the repository has the details.
//!
//! The documentation leaves out the modules that only generated code and measurements use. They may
//! change in any version.
#![deny(unsafe_code)]

// The code that the macros generate refers to the crate by this name.
extern crate self as peregrine;

mod address;
mod binding;
#[doc(hidden)]
pub mod call;
pub mod counters;
mod device;
pub mod digest;
pub mod directory;
pub mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod growing;
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
#[doc(hidden)]
pub mod stats;
#[doc(hidden)]
pub mod stub;
mod sync;
#[doc(hidden)]
pub mod sys;
#[doc(hidden)]
pub mod value;

pub use address::{Address, Endpoint, Place};
pub use binding::{
    BindOptions, Binding, Candidate, Description, EthernetDevice, Explanation, Rebind, Verdict,
    describe, explain, exports, stat,
};
pub use call::{Caller, Executor, Limit, OnExhausted, PathKind, Wait, caller};
pub use error::{CallError, Executed, Kind, Phase, Result};
pub use peregrine_macros::{Plain, Value, interface};
pub use server::{Disclosure, ExportOptions, Fault, Losses, Running, Server, StopHandle};
pub use stub::{
    Argument, GenericCall, GenericClient, GenericOutcome, GenericParameter, GenericServer,
};
pub use value::{Dynamic, Full, Invalid, Lent, Out, Plain, Value};

/// The items that generated code uses. Not part of the public interface.
#[doc(hidden)]
pub mod __rt {
    pub use crate::binding::{BindOptions, Binding};
    pub use crate::call::{
        Answered, Executor, InOut, Limit, OwnedCall, Refusal, Reply, Request, Serve, Served,
        serve_async,
    };
    pub use crate::error::CallError;
    pub use crate::interface::{
        Body, Digest, Direction, Field, Growth, Interface, InterfaceRef, Named, Parameter,
        PlainVariant, Procedure, Shape, Type, Variant,
    };
    pub use crate::stub::bind as bind_async;
    pub use crate::stub::{
        AsyncCall, CallTarget, Outcome, Stub, Travels, TravelsAsBlock, assign, call, call_swapped,
        target,
    };
    pub use crate::value::{
        Block, Invalid, Native, Nodes, OutBlock, Overflow, Plain, Reader, Representation, Swapped,
        Value, Writer, common_unit, default_bytes,
    };
    pub use core;
    pub use std;
}
