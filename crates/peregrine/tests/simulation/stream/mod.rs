//! Calls over TCP in virtual time: the two ends of the stream protocol, and connections that take bytes in
//! pieces, stall, are reset in mid-message, or fall silent without a word.

mod client;
mod pipe;
mod seeds;
mod server;
mod world;
