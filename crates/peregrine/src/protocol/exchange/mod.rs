//! The packet exchange makes calls over datagrams. Each call is executed at most once, even if the network
//! loses, duplicates or reorders packets.
//!
//! Two state machines exchange packets: [`client_end::ClientEnd`] and [`server_end::ServerEnd`]. A packet is
//! a header of 64 bytes. A piece of a message may follow the header.
//!
//! The state machines use no socket, clock or thread. Their inputs are headers, lengths and the time. Their
//! outputs are headers, and for each header the range of the message that follows it. They never read the
//! bytes of a message, and allocate memory only for large sets of positions. (A position is the index of a
//! piece in the order of sending.) So the same code runs over every device and in the simulator.
//!
//! An *activity* is a sequence of calls that one client thread makes one after another. The term comes from
//! Cedar RPC.
//!
//! The guarantees rest on these facts (`docs/PROTOCOL.md` explains them together with the packets):
//!
//! * A *handle* identifies one activity, and the server's record of this activity. With the record, the
//!   server detects duplicates. The record exists exactly as long as the handle. A server that forgets the
//!   record also revokes the handle, so no late packet can execute a call again.
//! * An activity has one call at a time and numbers its calls. Because of the record, the server executes the
//!   call with each number at most once.
//! * The *client* has all timers. It sends probes, the server reports what has arrived, and the client sends
//!   exactly the missing pieces. Without faults nothing is retransmitted, however long procedures take.
//! * A server that does not know a handle reports how many results it has discarded at the handle's place in
//!   its table. The call was certainly *not executed* only if that number has not changed since the handle
//!   was granted. This check needs no clock.
//! * If no packet of the client arrives during a long procedure, the server asks whether the client still
//!   waits. The driver (the code that calls the state machines) decides when the server looks for silent
//!   clients. If no answer arrives, the call is cancelled.
//!
//! Acknowledgements are implicit (Cedar RPC, also Firefly and the Peregrine of 1991). The result acknowledges
//! the call, and the next call acknowledges the result. If a call and its result fit one packet each, the
//! exchange is two packets. A longer message is sent as a *blast*: all pieces follow each other without
//! waiting for acknowledgements, and the front of the message comes last (Peregrine of 1991).

pub(crate) mod assembly;
pub(crate) mod bind;
pub(crate) mod blast;
pub(crate) mod client_end;
pub(crate) mod flow;
pub(crate) mod header;
pub(crate) mod message;
pub(crate) mod positions;
pub(crate) mod rtt;
#[cfg(feature = "secure")]
pub(crate) mod sealed;
pub(crate) mod server_end;
#[cfg(feature = "secure")]
pub(crate) mod shake;
pub(crate) mod table;
pub(crate) mod time;
pub(crate) mod versions;
