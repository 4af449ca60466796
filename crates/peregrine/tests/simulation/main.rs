//! The protocols in virtual time: real state machines, a network with all kinds of faults, and an oracle that
//! records what really happened.
//!
//! This program compiles the protocols from `src/` into itself. Compilation would fail if they used any part
//! of the library other than `growing.rs` and `limits.rs`, which this program contains, too. So the protocols
//! cannot use the sockets and clocks of the library, and nothing private becomes public for the tests.
//!
//! `PEREGRINE_SEED=n cargo test -p peregrine --test simulation -- seed` runs one seed. `PEREGRINE_TRACE=1`
//! prints each packet. `PEREGRINE_SEEDS=n` sets the number of seeds. [`stream`] has the world of TCP
//! connections.

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
mod paths;
mod random;
mod seeds;
mod server;
mod stream;

mod world;
