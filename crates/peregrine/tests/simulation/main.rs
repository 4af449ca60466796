//! The packet exchange in a world of virtual time: real state machines, a network that does its
//! worst, and an oracle that knows what is true.
//!
//! The core is compiled into this program as it stands in `src/`, which nothing else could do if it
//! used anything of the crate, of a socket or of a clock: so nothing private becomes public for the
//! sake of tests, and that the core is pure is proven by the compiler.
//!
//! `PEREGRINE_SEED=n cargo test -p peregrine --test simulation -- seed` runs one seed, with
//! `PEREGRINE_TRACE=1` packet by packet; `PEREGRINE_SEEDS=n` sets how many are run.

#[allow(dead_code)]
#[path = "../../src/protocol/exchange/mod.rs"]
mod exchange;

mod buffer;
mod cases;
mod client;
mod cost;
mod network;
mod oracle;
mod random;
mod seeds;
mod server;
mod ways;
mod world;
