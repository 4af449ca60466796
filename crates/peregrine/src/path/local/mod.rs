//! The local path (LRPC): a call between two processes that share A-stacks, without a kernel
//! entry while both look, and with as few as can be while they sleep.
//!
//! Set-up and data path are apart: `handshake` and `region` say what is agreed on once; `client`
//! and `server` are the two halves of a call; `word` is the state machine between them and `wait`
//! how one waits; `stream` writes what is large. `session` is what both know about each other's life.

mod arrival;
mod attend;
mod attention;
mod client;
mod connect;
mod desk;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod handshake;
mod processors;
mod region;
mod server;
mod session;
mod stream;
mod wait;
mod word;

pub(crate) use arrival::Waits;
pub(crate) use attend::{HOT_MAX, Pause, Place, Seat};
pub(crate) use attention::{Asked, Attendance};
pub(crate) use client::{ClientRegion, LocalPath};
pub(crate) use connect::{Local, counters};
pub(crate) use desk::{Astack, Desk, call_one};
pub(crate) use handshake::{Answer, Bind, Bound, Request, Token};
pub(crate) use processors::{PROCESSORS_BYTES, Processors};
pub(crate) use region::RegionLayout;
pub(crate) use server::sessions::Sessions;
pub(crate) use server::{ServerRegion, User};
pub(crate) use session::Session;
