//! Courier version 3, Xerox's protocol for remote procedure calls (XSIS 038112): its messages, three ways to
//! carry them over a stream, and packet Courier, which carries them in datagrams.
//!
//! This module decides what received bytes mean, which packets are sent again, and which calls a server runs.
//! It has no sockets, threads or clocks. The *driver*, which is the code of the path, passes bytes and the
//! time to it. Arguments and results are never read here, except for the first bytes of a call, by which a
//! server recognizes a retransmission.
//!
//! * [`message`]: the headers of calls and replies, and the versions of Courier.
//! * [`stream`]: messages on a stream, as records of ONC RPC or as [`frames`]. [`outstanding`]: the calls of
//!   a connection that have no reply yet.
//! * [`cooper`]: Cooper's form of Courier, in 4.2BSD, which has no messages of the standard.
//! * [`arrival`]: what a server receives, in the form that the client uses.
//! * [`packet`]: the packets of packet Courier. [`packet_client`] and [`packet_server`]: its two ends.
//! * [`failure`]: why calls fail, and whether they were executed.
//! * [`words`]: the 16-bit words of which all messages consist.
//!
//! Courier has no calls without replies. A caller that does not wait for a result ignores the reply.
//!
//! `docs/PROTOCOL.md` describes the choices that the standard leaves open.

pub(crate) mod arrival;
pub(crate) mod cooper;
pub(crate) mod failure;
pub(crate) mod frames;
pub(crate) mod message;
pub(crate) mod outstanding;
pub(crate) mod packet;
pub(crate) mod packet_client;
pub(crate) mod packet_server;
pub(crate) mod stream;
pub(crate) mod words;
