//! Runs the protocols in virtual time: the real state machines, a network with all kinds of faults, and an
//! oracle that records what really happened.
//!
//! This program compiles the protocols of the library into itself. Apart from the protocols, it contains only
//! `growing.rs` and `limits.rs` of the library. If the protocols used any other part of the library,
//! compilation would fail. So the protocols cannot use the library's sockets and clocks. Nothing private
//! becomes public for the tests.
//!
//! `PEREGRINE_SEED=n cargo test -p peregrine-simulation -- seed` runs one seed. `PEREGRINE_TRACE=1`
//! prints each packet. `PEREGRINE_SEEDS=n` sets the number of seeds. The module [`stream`] simulates TCP
//! connections.

#[allow(dead_code)]
#[path = "../../../peregrine/src/protocol/exchange/mod.rs"]
mod exchange;
#[allow(dead_code)]
#[path = "../../../peregrine/src/growing.rs"]
mod growing;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../peregrine/src/limits.rs"]
mod limits;
#[allow(dead_code, unused_imports)]
#[path = "../../../peregrine/src/protocol"]
mod protocol {
    pub(crate) use crate::exchange;
    pub(crate) mod courier;
    pub(crate) mod fields;
    mod lists;
    pub(crate) mod onc;
    pub(crate) mod replies;
    pub(crate) mod retransmission;
    pub(crate) mod stream;
}

mod buffer;
mod cases;
mod client;
mod cost;
mod courier;
mod network;
mod onc;
mod oracle;
mod paths;
mod random;
mod seeds;
mod server;
mod stream;

mod world;
