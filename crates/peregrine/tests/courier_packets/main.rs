//! Tests packet Courier over real sockets. Some tests are themselves the clients of a server, and some are
//! the servers of a client. Others use clients and servers of Peregrine together.

mod answers;
mod both;
mod duplicates;
mod exchange;
mod failures;
#[path = "../support/foreign.rs"]
mod foreign;
mod hostile;
mod oneway;
#[path = "../support/mod.rs"]
mod support;
mod world;
