//! The local path (LRPC): calls between two processes that share A-stacks (call frames in shared memory). A
//! call enters the kernel only if one of the sides sleeps.
//!
//! * `connect`: how a client joins a session with a server.
//! * `capture`: how a client receives the calls of an export as records.
//! * `client`: the client's half of a call.
//! * `server`: the server's half of a call, and the threads that serve calls.
//! * `peer`: what a client keeps for each server process, shared by all its bindings.
//! * `region`: the memory that both sides map, and the words by which they hand over messages.
//! * `wire`: the messages by which a session and its bindings are made.

mod capture;
mod client;
mod connect;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod peer;
mod region;
mod server;
mod wire;

pub(crate) use capture::Records;
pub(crate) use client::LocalPath;
pub(crate) use connect::{Local, counters, health};
pub(crate) use peer::ClientRegion;
pub(crate) use peer::session::Session;
pub(crate) use region::RegionLayout;
pub(crate) use server::arrival::StallPermits;
pub(crate) use server::assignment::{Assignment, RingAction};
pub(crate) use server::astacks::{ServerRegion, User};
pub(crate) use server::handle::{Astack, WorkerHandle, wake_one};
pub(crate) use server::processors::{PROCESSORS_BYTES, Processors};
pub(crate) use server::sessions::Sessions;
pub(crate) use server::worker::{ASSIGNED_MAX, AstackRef, Pause, Worker};
pub(crate) use wire::{
    BindGrant, BindRequest, CapturedRecord, ClientMessage, ServerMessage, Token, record_bytes,
};
