//! Simulates calls over TCP in virtual time, with the real state machines of both ends of the stream
//! protocol. The simulated connections accept bytes in pieces, stall, are reset within a message, or become
//! silent without an error.

mod client;
mod pipe;
mod seeds;
mod server;
mod world;
