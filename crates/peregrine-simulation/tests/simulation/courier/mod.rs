//! Simulates Courier with the real state machines of both ends, in virtual time. Calls of packet Courier use
//! datagrams that are lost, duplicated, delayed and damaged, and the server is restarted. Other calls of
//! Courier use streams.

mod golden;
mod seeds;
mod stream;
mod world;
