//! Simulates Courier with the real state machines of both ends: calls of packet Courier in virtual time, whose
//! datagrams are lost, duplicated, delayed and damaged, and whose server is restarted; and calls over streams.

mod golden;
mod seeds;
mod stream;
mod world;
