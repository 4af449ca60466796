//! The protocols in a world of virtual time: real state machines, a network that does its worst, and an
//! oracle that knows what is true.
//!
//! The protocols are compiled into this program as they are in `src/`. That would fail if they used a
//! socket, a clock, or another part of the library than the two that this program has, too. So nothing
//! private becomes public for tests, and the compiler proves that the protocols are pure.
//!
//! `PEREGRINE_SEED=n cargo test -p peregrine --test simulation -- seed` runs one seed, with
//! `PEREGRINE_TRACE=1` packet by packet; `PEREGRINE_SEEDS=n` sets how many are run. [`stream`] has the
//! world of TCP connections.

#[allow(dead_code)]
#[path = "../../src/protocol/exchange/mod.rs"]
mod exchange;
#[allow(dead_code)]
#[path = "../../src/growing.rs"]
mod growing;
#[allow(dead_code, unreachable_pub)]
#[path = "../../src/limits.rs"]
mod limits;
#[allow(dead_code, unused_imports)]
#[path = "../../src/protocol"]
mod protocol {
    pub(crate) mod fields;
    pub(crate) mod stream;
}

mod buffer;
mod cases;
mod client;
mod cost;
mod network;
mod oracle;
mod random;
mod seeds;
mod server;
mod stream;
mod ways;
mod world;
