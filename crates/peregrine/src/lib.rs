//! Remote procedure calls that cost what the distance costs, and nothing more.
//!
//! You write a trait, and a client calls an object that implements the trait. The object may be in the same
//! process, in another process (shared memory), or on another machine (raw Ethernet, UDP or TCP). The
//! following program is both server and client. `cargo run serve` starts the server, and `cargo run` starts
//! the client:
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
//! following sections lists the items that one chapter of the tutorial explains.
//!
//! # Interfaces
//!
//! [`#[interface]`](macro@interface) converts a trait to an interface. It generates a client, which
//! implements the trait by calling a server. It also generates a server, which calls an object. Values in
//! parameters and results must derive [`Value`] (structured) or [`Plain`] (fixed layout, copied as one
//! block).
//!
//! The primitive types are values. Arrays, tuples, `Option` and `Result` are values, too, and so are texts,
//! collections and pointers of the standard library. `Duration`, `SystemTime`, IP addresses, and file system
//! paths are also values. [Features](#features) add types of other crates.
//!
//! # Errors
//!
//! Every call can fail with a [`CallError`]. This error says what failed ([`Kind`]), in which [`Phase`], and
//! whether the call was executed ([`Executed`]). The error type of a procedure may be any [`Value`] that can
//! be created from a `CallError`.
//!
//! # Buffers and sizes
//!
//! The type of a parameter determines in which direction it is sent: `&[T]` and [`Lent`] with the call,
//! [`Out`] with the result, and `&mut T` and `&mut [T]` with both:
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
//! [`limits`] lists every limit, with its default and what happens beyond it.
//!
//! # Choosing a path
//!
//! An [`Address`] contains the name of an export, and optionally its [`Place`] and a path. Without a path, a
//! binding uses the fastest path that works. [`Binding::explain`] and [`explain`](fn@explain) say why a
//! binding uses a path ([`Explanation`], [`Candidate`], [`Verdict`]). [`Server::listen`] needs an
//! [`Endpoint`]. [`EthernetDevice`] determines how raw Ethernet is sent.
//!
//! # Waiting
//!
//! [`BindOptions::wait`] and [`Server::wait`] determine how threads wait ([`Wait`]). [`BindOptions::astacks`]
//! limits the number of calls in flight, and [`OnExhausted`] determines what further callers do.
//!
//! # Deadlines
//!
//! A [`Limit`] bounds the time of a call. A procedure can ask through [`caller`] how much time is left, and
//! whether the caller still waits.
//!
//! # Metadata
//!
//! A client sends pairs of text with its calls ([`Binding::with_metadata`], and the method of each client with
//! this name). A procedure reads these pairs ([`Metadata`]) through [`caller`].
//!
//! # Layers
//!
//! A [`Layer`] sees each call of a binding or of a server ([`LayerCall`], [`LayerEnd`], [`LayerOutcome`],
//! [`LayerSide`]). It may refuse calls ([`LayerRefusal`]), and send metadata with them.
//!
//! # Captures
//!
//! A [`Capture`] shows the calls of a server of this machine as they happen ([`CaptureOptions`],
//! [`Captured`], [`CapturedArgument`]).
//!
//! # Names
//!
//! [`directory`] says where clients look names up, and lists the names of this machine.
//! [`describe`](fn@describe) asks a server for the interface of an export. [`exports`](fn@exports) asks a
//! server for the list of its exports.
//!
//! # Deployment
//!
//! [`Server`] and [`ExportOptions`] determine what a server exports, to which users and identities
//! ([`CallerIdentity`], [`Denied`]), and with how many threads. [`Security`] says what protects the calls at an
//! endpoint ([`Insecure`]). [`Running`] and [`StopHandle`] stop a server. [`Rebind`] determines what a client does after its
//! server has ended. A server reports [`Fault`] and [`Losses`]. [`stat`](fn@stat) reads the counters of a
//! server ([`counters::Stat`]). [`health`](fn@health) says whether a server serves ([`Health`]), and
//! [`Server::notify_systemd`] tells systemd ([`systemd`]). [`Disclosure`] determines which of these counters other processes may read
//! ([`server_info`]).
//!
//! # Programs without the trait
//!
//! [`GenericClient`] and [`GenericServer`] use interfaces that are known only at run time. Their values have
//! the type [`Dynamic`].
//!
//! # Streams
//!
//! The items of a [`Sink`] or a [`Source`] are sent while the call runs: from the procedure to its caller, or
//! from the caller to the procedure. See the chapter "Streams" of the guide.
//!
//! # Features
//!
//! All features are optional, and none is on by default.
//!
//! * `async`: `#[interface]` on a trait `Files` also makes `FilesAsync`, `FilesAsyncClient` and
//!   `FilesAsyncServer`.
//! * `bytes`: `Bytes` and `BytesMut` are values, like `Vec<u8>`.
//! * `chrono`: `DateTime<Utc>`, `DateTime<FixedOffset>`, `FixedOffset`, `NaiveDate`, `NaiveTime`,
//!   `NaiveDateTime`, `TimeDelta`, `Weekday` and `Month` are values.
//! * `time`: `UtcDateTime`, `OffsetDateTime`, `UtcOffset`, `Date`, `Time`, `PrimitiveDateTime`, `Duration`,
//!   `Weekday` and `Month` are values.
//! * `uuid`: `Uuid` is [`Plain`].
//! * `tokio`: the handle of a tokio runtime is an [`Executor`] of async servers. Implies `async`.
//! * `json`: adds the module `json`, which converts descriptions and values to JSON and back.
//! * `secure`: adds the module `secure`: identities, and which peers are trusted. With them,
//!   [`Server::listen_beyond_this_machine`] and `BindOptions::secure` encrypt calls over networks.
//! * `tracing`: adds `Tracing`, a layer that makes a span of the crate `tracing` for each call.
//! * `stamps`: records the time at several moments of each local call. It is for measurements only.
//!
//! Types with the same meaning are the same type in an interface. So a client with `chrono::NaiveDate` can
//! call a server with `time::Date`. In all crates, an instant in UTC is a `SystemTime`. `chrono` has leap
//! seconds: a leap second is sent as the last nanosecond of the second before it. A receiver refuses values
//! that its type cannot hold. `docs/REPRESENTATION.md` in the repository contains the details.
//!
//! This documentation omits the modules that only generated code and measurements use. They may change in any
//! version.
#![deny(unsafe_code)]

// With this declaration, the code that the macros generate can refer to this crate as `peregrine`.
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
pub mod foreign;
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
mod observe;
mod path;
mod protocol;
mod registry;
mod rpcbind;
#[cfg(feature = "secure")]
#[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
pub mod secure;
mod server;
pub mod server_info;
mod serving;
#[doc(hidden)]
pub mod stats;
mod steps;
#[doc(hidden)]
pub mod stub;
mod sync;
#[doc(hidden)]
pub mod sys;
pub mod systemd;
#[doc(hidden)]
pub mod value;

pub use address::{Address, Endpoint, Place};
pub use binding::{
    AuthSys, Balance, BindOptions, Binding, Candidate, Capture, CaptureOptions, Captured,
    CourierForm, Description, EthernetDevice, Explanation, PoolServer, PoolStanding, Rebind,
    RegisteredProgram, Verdict, describe, describe_with, explain, exports, exports_with, health,
    health_with, health_within, registered_programs, stat, stat_with, watch, watch_with,
};
pub use call::streams::{Items, Sender, Sink, Source};
pub use call::{
    Caller, CallerIdentity, Claimed, Executor, Limit, Metadata, OnExhausted, PathKind, Wait, caller,
};
pub use error::{CallError, Executed, Kind, Phase, Result};
pub use observe::{Layer, LayerCall, LayerEnd, LayerOutcome, LayerRefusal, LayerSide};
#[cfg(feature = "tracing")]
#[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
pub use observe::{Propagate, TracedCall, Tracing};
pub use peregrine_macros::{Plain, Value, interface};
pub use rpcbind::Rpcbind;
pub use server::{
    Denied, Disclosure, ExportOptions, Fault, Insecure, Late, Losses, Running, Security, Server,
    StatHandle, StopHandle,
};
pub use server_info::Health;
pub use steps::Step;
pub use stub::{
    Accounting, Argument, CallTimes, Callback, CapturedArgument, GenericCall, GenericClient,
    GenericOutcome, GenericParameter, GenericServer, Registration,
};
pub use value::{Dynamic, Full, Invalid, Lent, Out, Plain, Value};

/// The items that generated code uses. They are not part of the public interface.
#[doc(hidden)]
pub mod __rt {
    pub use crate::binding::{BindOptions, Binding, PoolServer};
    pub use crate::call::{
        Answered, Caller, Executor, ForeignCall, InOut, Limit, OwnedCall, Refusal, Reply, Request,
        Serve, Served, ServedForeign, ServerExecutor, serve_async,
    };
    pub use crate::error::CallError;
    pub use crate::interface::{
        Body, Case, Digest, Direction, Field, Growth, Interface, InterfaceRef, Named, Parameter,
        PlainVariant, Procedure, Program, Shape, System, Type, Variant,
    };
    #[cfg(feature = "async")]
    pub use crate::stub::CallableAsync;
    pub use crate::stub::bind as bind_async;
    pub use crate::stub::bind_pool as pool_async;
    pub use crate::stub::{
        Accounting, AsyncCall, CallTarget, Callable, CallableBy, CallbackDrive, InPlace, Ordered,
        Outcome, Queued, Scratch, SinkDrive, SourceDrive, Streams, Stub, Travels, TravelsAsBlock,
        after_oneway, after_oneway_async, answer_foreign, assign, call, call_foreign, call_oneway,
        call_oneway_async, call_swapped, check_put, flush, flush_async, outcome_of, target,
        wait_for,
    };
    pub use crate::value::{
        Block, FreesInALoop, Invalid, Native, Nodes, OutBlock, Overflow, Plain, Reader,
        Representation, Swapped, Value, Writer, common_unit, default_bytes,
    };
    pub use core;
    pub use std;
}
