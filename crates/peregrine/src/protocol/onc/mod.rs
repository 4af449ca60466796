//! ONC RPC version 2 (RFC 5531), the protocol of Sun's RPC: over datagrams, with one message in each, and
//! over streams, where messages are records.
//!
//! This module decides what received bytes mean, when calls are sent again, and which calls a server runs. It
//! has no sockets, threads or clocks. The *driver*, which is the code of the path, passes bytes and the time
//! to it. Arguments and results are never read here, except for the first bytes of arguments, by which a
//! server recognizes a retransmission.
//!
//! * [`message`]: the headers of calls and replies, with credentials.
//! * [`record`]: messages on a stream.
//! * [`client`]: the timers of a call over datagrams.
//! * [`xids`]: the numbers of calls, and the callers that wait for their replies.
//! * [`replies`]: the server's cache of replies.
//! * [`failure`]: why calls fail, and whether they were executed.
//! * [`rpcbind`]: the messages by which programs are found. [`universal`]: the addresses in them.
//! * [`items`]: the numbers and opaque bytes of which all messages consist.
//!
//! `docs/PROTOCOL.md` describes the choices that the standard leaves open.

pub(crate) mod client;
pub(crate) mod failure;
pub(crate) mod items;
pub(crate) mod message;
pub(crate) mod record;
pub(crate) mod replies;
pub(crate) mod rpcbind;
pub(crate) mod universal;
pub(crate) mod xids;
