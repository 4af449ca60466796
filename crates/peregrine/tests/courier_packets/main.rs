//! Tests packet Courier over real sockets: servers whose clients are the tests themselves, clients whose servers
//! are, and both ends together.

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
