//! Simulates calls of packet Courier in virtual time, with the real state machines of both ends. Datagrams
//! are lost, duplicated, delayed and damaged, and the server is restarted.

mod golden;
mod seeds;
mod world;
