//! Simulates calls of ONC RPC in virtual time, with the real state machines of both ends. Datagrams are lost,
//! duplicated, delayed and damaged. Streams divide their bytes in any way, and connections end at any time.

mod seeds;
mod world;
