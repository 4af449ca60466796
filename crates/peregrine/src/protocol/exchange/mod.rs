//! Packet exchange: calls over datagrams, each at most once, whatever the network does.
//!
//! Two state machines, [`caller::Caller`] at the client and [`callee::Callee`] at the server, speak
//! in packets of 64 bytes of header and a piece of a message. They know no socket, clock or thread:
//! headers and lengths go in, with the time; headers, and which piece of the message belongs behind
//! each, come out. So the same code runs over any device and in the simulator. They never see a
//! message's bytes, and allocate nothing.
//!
//! Everything that must hold rests on few facts; `docs/PROTOCOL.md` has them with the packets:
//!
//! * A *handle* names one caller and one duplicate record, which lives exactly as long as the handle:
//!   to forget the record is to revoke the handle. So no late packet can run a call again.
//! * A caller has one call at a time and numbers its calls; the record runs each number once.
//! * The *client* has all timers. It asks, the server says what it has, and exactly what is missing
//!   is sent: a run without faults has no retransmission, however long procedures take.
//! * A server that does not know a handle says how often the handle's place has forgotten a result.
//!   Only if that is as often as when the handle was granted, a call is *not executed* for certain. No
//!   clock takes part in this.
//! * A server asks the caller of a procedure that runs long, and of which nothing was heard for a
//!   while, whether it still waits. Its driver says when; without an answer the call is cancelled.
//!
//! The way of a call (Cedar RPC's, as Firefly and Peregrine have it): the result acknowledges the
//! call, the next call the result; a call and a result that fit a packet are two packets. What is
//! longer is blasted, its naturally first piece last (Peregrine).

pub(crate) mod assembly;
pub(crate) mod bind;
pub(crate) mod blast;
pub(crate) mod callee;
pub(crate) mod caller;
pub(crate) mod flow;
pub(crate) mod header;
pub(crate) mod message;
pub(crate) mod positions;
pub(crate) mod rtt;
pub(crate) mod table;
pub(crate) mod time;
pub(crate) mod versions;
