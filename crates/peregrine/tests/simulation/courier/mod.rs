//! Simulates Courier with the real state machines of both ends. Calls of packet Courier run in virtual time:
//! datagrams are lost, duplicated, delayed and damaged, and the server is restarted. Other calls use streams.

mod golden;
mod seeds;
mod stream;
mod world;
