//! What the server halves of all paths over TCP share: they accept connections, and bound the number of
//! connections and the memory of their messages. Their threads attend to the connections. The keeper, the
//! background thread of the process, watches the connections to which no thread attends.
//!
//! * [`acceptor`]: sockets that accept connections.
//! * [`table`]: the open connections of a server, and the limits of their number.
//! * [`threads`]: the threads, and the connections that wait for one.
//! * [`turn`]: which thread receives from a connection.
//! * [`watching`]: the keeper's watch of a connection.
//! * [`receive`]: how a thread waits for bytes.
//! * [`intake`]: the memory of messages that have not begun to run.
//! * [`stall`]: clients that do not read.

pub(in crate::path) mod acceptor;
pub(in crate::path) mod intake;
pub(in crate::path) mod receive;
pub(in crate::path) mod stall;
pub(in crate::path) mod table;
pub(in crate::path) mod threads;
pub(in crate::path) mod turn;
pub(in crate::path) mod watching;
