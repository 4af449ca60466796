//! Calls over TCP in virtual time: the two ends of the stream protocol, and connections that accept bytes in
//! pieces, stall, are reset within a message, or become silent without an error.

mod client;
mod pipe;
mod seeds;
mod server;
mod world;
