//! The packet exchange: calls over datagrams, each executed at most once, whatever the network
//! does.
//!
//! Two state machines exchange packets: [`client_end::ClientEnd`] and [`server_end::ServerEnd`]. A
//! packet is a header of 64 bytes and a piece of a message.
//!
//! The state machines use no socket, clock or thread. Their inputs are headers, lengths and the
//! time. Their outputs are headers, and the range of the message that belongs after each header.
//! They never see a message's bytes and allocate nothing. So the same code runs over every device
//! and in the simulator.
//!
//! An *activity* is a sequence of calls that one client thread makes one after the other (the word
//! is that of Cedar RPC).
//!
//! The guarantees rest on these facts (`docs/PROTOCOL.md` has them with the packets):
//!
//! * A *handle* names one activity and one duplicate record. The record lives exactly as long as
//!   the handle: to forget the record is to revoke the handle. So no late packet can execute a call
//!   again.
//! * An activity has one call at a time and numbers its calls. The record executes each number
//!   once.
//! * The *client* has all timers. It sends probes, the server reports what it has, and exactly what
//!   is missing is sent. Without faults nothing is retransmitted, however long procedures take.
//! * A server that does not know a handle reports how often the handle's place has forgotten a
//!   result. The call is *not executed* for certain only if that number has not changed since the
//!   handle was granted. This needs no clock.
//! * A procedure may run for long while nothing is heard of its client. Then the server asks
//!   whether the client still waits. The driver says when. The call is cancelled if no answer
//!   comes.
//!
//! Acknowledgements are implicit (Cedar RPC, also Firefly and Peregrine): the result acknowledges
//! the call, and the next call acknowledges the result. A call and a result that fit one packet
//! each are two packets. A longer message is sent as a *blast*, all pieces without waiting, with
//! the naturally first piece last (Peregrine).

pub(crate) mod assembly;
pub(crate) mod bind;
pub(crate) mod blast;
pub(crate) mod client_end;
pub(crate) mod flow;
pub(crate) mod header;
pub(crate) mod message;
pub(crate) mod positions;
pub(crate) mod rtt;
pub(crate) mod server_end;
pub(crate) mod table;
pub(crate) mod time;
pub(crate) mod versions;
