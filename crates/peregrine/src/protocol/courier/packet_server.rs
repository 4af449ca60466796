//! The server's end of packet Courier: which calls run, and what answers each packet. It has no timers, and
//! sends only in answer to packets and when a call ends.
//!
//! The cache of replies makes a call run once while the cache remembers it. A call in parts also needs a
//! ticket of this server. A server that was restarted does not accept the tickets of its predecessor, so a
//! call in parts does not run again after a restart.

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use super::message::{Call, Rejection, Reply};
use super::packet::{
    Body, Division, Incoming, Name, PAYLOAD_MAX, PIECE, Packet, Part, Report, WHOLE_PAYLOAD_MAX,
    WINDOW, message, payload, send_missing,
};
use super::packet_client::WINDOW_FIRST;
use crate::protocol::exchange::time::{Moment, SECOND};
use crate::protocol::replies::{Bounds, HOST_SHARE, Key, Peer, Replies, Ticket, Verdict};

/// How many bytes of a whole call identify it.
const CHECKED_BYTES: usize = 256;
/// The largest number of calls of which parts are missing. Their memory is [`PARTIAL_BYTES_MAX`] at most.
const PARTIAL_CALLS_MAX: usize = 256;
/// The largest number of bytes that the calls have together of which parts are missing. One host may use a
/// part of this number and of [`PARTIAL_CALLS_MAX`], as in the cache.
const PARTIAL_BYTES_MAX: usize = 64 << 20;
/// A call of which no part has arrived for this time is forgotten. Its client has given up.
const PARTIAL_AGE: u64 = 30 * SECOND;

/// The numbers of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Identity {
    /// Clients of other implementations may use the same number for another call after a restart. So the
    /// content counts, too: its length, and a checksum of its beginning. The checksum is keyed with a secret,
    /// so a client cannot compute a call that is taken for another one.
    Whole {
        id: u32,
        client: u16,
        bytes: usize,
        checksum: u64,
    },
    Parts {
        id: u32,
        conversation: u32,
    },
}

/// How the reply to a call is sent.
#[derive(Clone, Copy, Debug)]
enum ReplyForm {
    Whole { id: u32, client: u16 },
    Parts { name: Name, piece: u16 },
}

/// A call that runs. The server returns it with the reply.
#[derive(Debug)]
#[must_use]
pub(crate) struct Running {
    ticket: Ticket<Identity>,
    form: ReplyForm,
    transaction: u16,
}

/// A call that the driver runs now.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) call: Call,
    /// The whole message, with the header of the call.
    pub(crate) message: Vec<u8>,
    /// The offset of the arguments in the message.
    pub(crate) arguments: usize,
    pub(crate) running: Running,
}

/// A call of which parts are missing, or for which the cache has no room.
#[derive(Debug)]
struct Partial {
    ip: IpAddr,
    incoming: Incoming,
    /// When a part arrived.
    touched: Moment,
}

/// The state of a server.
#[derive(Debug)]
pub(crate) struct PacketServer {
    secret: [u8; 16],
    cache: Replies<Identity>,
    partial: BTreeMap<Key<Identity>, Partial>,
    /// The longest payload of a reply in parts. It fits the share of one host in the cache.
    reply_bytes_max: usize,
}

impl PacketServer {
    /// Makes a server. `secret` must be random, and new after each restart.
    pub(crate) fn new(secret: [u8; 16], bounds: Bounds) -> Self {
        let reply_bytes_max = PAYLOAD_MAX.min(bounds.bytes / HOST_SHARE);
        Self { secret, cache: Replies::new(bounds), partial: BTreeMap::new(), reply_bytes_max }
    }

    /// Returns the number of calls that are remembered, of bytes in replies, and of calls of which parts are
    /// missing.
    pub(crate) fn size(&self) -> (usize, usize, usize) {
        let (calls, bytes) = self.cache.size();
        (calls, bytes, self.partial.len())
    }

    /// Takes a datagram. Returns the call that it completes, if the call is to run. `send` sends a datagram
    /// back to `from`. What cannot be read gets no answer.
    pub(crate) fn receive(
        &mut self,
        now: Moment,
        from: SocketAddr,
        datagram: &[u8],
        send: &mut impl FnMut(&[u8]),
    ) -> Option<Work> {
        self.cache.expire(now);
        match Packet::parse(datagram).ok()? {
            Packet::Whole { id, client, payload } => {
                self.receive_whole(now, from, (id, client), payload, send)
            }
            Packet::Parts(name, body) => {
                let ticket = self.ticket(from, name.conversation);
                if matches!(body, Body::Hello) || ticket != name.ticket {
                    let is_of_client =
                        matches!(body, Body::Hello | Body::Call(_) | Body::HaveReply(_));
                    if is_of_client {
                        send(&Packet::Parts(Name { ticket, ..name }, Body::Welcome).to_vec());
                    }
                    return None;
                }
                match body {
                    Body::Call(part) => self.receive_part(now, from, name, &part, send),
                    Body::HaveReply(report) => {
                        self.receive_report(from, name, &report, send);
                        None
                    }
                    _ => None,
                }
            }
        }
    }

    /// Notes that a call has ended, and sends its reply: the message with its header. A reply that is too long
    /// is replaced by a rejection.
    pub(crate) fn end(
        &mut self,
        now: Moment,
        running: Running,
        reply: &[u8],
        send: &mut impl FnMut(&[u8]),
    ) {
        let Running { ticket, form, transaction } = running;
        let mut payload = payload(reply);
        let most = match form {
            ReplyForm::Whole { .. } => WHOLE_PAYLOAD_MAX,
            ReplyForm::Parts { .. } => self.reply_bytes_max,
        };
        if payload.len() > most {
            payload = rejected(transaction);
        }
        self.cache.end(now, ticket, &payload);
        send_reply(form, &payload, send);
    }

    fn ticket(&self, from: SocketAddr, conversation: u32) -> u64 {
        let mut hasher = self.hasher();
        match from.ip().to_canonical() {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
        hasher.write_u16(from.port());
        hasher.write_u32(conversation);
        hasher.finish()
    }

    fn hasher(&self) -> siphasher::sip::SipHasher13 {
        siphasher::sip::SipHasher13::new_with_key(&self.secret)
    }

    fn receive_whole(
        &mut self,
        now: Moment,
        from: SocketAddr,
        (id, client): (u32, u16),
        payload: &[u8],
        send: &mut impl FnMut(&[u8]),
    ) -> Option<Work> {
        let message = message(payload).ok()?;
        let (call, arguments) = Call::parse(message).ok()?;
        let mut hasher = self.hasher();
        hasher.write(&payload[..payload.len().min(CHECKED_BYTES)]);
        let (bytes, checksum) = (payload.len(), hasher.finish());
        let identity = Identity::Whole { id, client, bytes, checksum };
        let form = ReplyForm::Whole { id, client };
        match self.cache.begin(now, Key { peer: Peer::datagram(from), call: identity }, 0) {
            Verdict::Execute(ticket) => {
                let running = Running { ticket, form, transaction: call.transaction };
                return Some(Work { call, message: message.to_vec(), arguments, running });
            }
            Verdict::Replay(reply) => send_reply(form, reply, send),
            Verdict::Forgotten => send_reply(form, &rejected(call.transaction), send),
            Verdict::InProgress | Verdict::Full => {}
        }
        None
    }

    /// Takes a part of a call.
    fn receive_part(
        &mut self,
        now: Moment,
        from: SocketAddr,
        name: Name,
        part: &Part<'_>,
        send: &mut impl FnMut(&[u8]),
    ) -> Option<Work> {
        let key = key(from, name);
        let form = ReplyForm::Parts { name, piece: part.division.piece };
        if let Some(verdict) = self.cache.look(key, 0) {
            // A part that asks was sent again, because the reply has not arrived. Other copies may be
            // duplicates that the network made.
            match verdict {
                _ if !part.asks => {}
                Verdict::Replay(reply) => send_reply(form, reply, send),
                Verdict::InProgress => send(&Packet::Parts(name, Body::Working).to_vec()),
                _ => send(&Packet::Parts(name, Body::Forgotten).to_vec()),
            }
            return None;
        }
        let is_only = part.division.count() == 1;
        if !is_only && !self.assemble(now, from, name, part, send) {
            return None;
        }
        let Verdict::Execute(ticket) = self.cache.begin(now, key, 0) else {
            // The cache is full of calls that run. The client sends a part again, which tries again.
            return None;
        };
        let payload = if is_only {
            part.data.to_vec()
        } else {
            self.partial.remove(&key).map(|partial| partial.incoming.into_payload())?
        };
        let read = message(&payload).ok().and_then(|message| {
            let (call, arguments) = Call::parse(message).ok()?;
            Some((call, message.to_vec(), arguments))
        });
        let Some((call, message, arguments)) = read else {
            self.cache.not_executed(ticket);
            return None;
        };
        let running = Running { ticket, form, transaction: call.transaction };
        Some(Work { call, message, arguments, running })
    }

    /// Adds a part to a call of several parts. Returns whether the call is complete. If it is not, reports to a
    /// client that asks.
    fn assemble(
        &mut self,
        now: Moment,
        from: SocketAddr,
        name: Name,
        part: &Part<'_>,
        send: &mut impl FnMut(&[u8]),
    ) -> bool {
        let key = key(from, name);
        if !self.partial.contains_key(&key) && !self.make_room(now, from, part.division) {
            return false;
        }
        let partial = self.partial.entry(key).or_insert_with(|| Partial {
            ip: from.ip().to_canonical(),
            incoming: Incoming::new(part.division),
            touched: now,
        });
        if partial.incoming.division() != part.division {
            return false;
        }
        if partial.incoming.receive(part) {
            partial.touched = now;
        }
        let is_whole = partial.incoming.is_whole();
        if !is_whole && part.asks {
            let report = partial.incoming.report(WINDOW as u16);
            send(&Packet::Parts(name, Body::HaveCall(report)).to_vec());
        }
        is_whole
    }

    /// Answers a client that reports which parts of a reply have arrived, or asks about its call.
    fn receive_report(
        &mut self,
        from: SocketAddr,
        name: Name,
        report: &Report,
        send: &mut impl FnMut(&[u8]),
    ) {
        let piece = report.division.map_or(PIECE, |division| division.piece);
        let form = ReplyForm::Parts { name, piece };
        let key = key(from, name);
        match self.cache.look(key, 0) {
            Some(Verdict::Replay(reply)) => match report.division {
                None => send_reply(form, reply, send),
                Some(division) if Division::of(reply.len(), piece) == Some(division) => {
                    let end = division.count();
                    let window = report.window.min(WINDOW as u16);
                    send_missing(reply, division, &report.arrivals, end, window, |part| {
                        send(&Packet::Parts(name, Body::Reply(part)).to_vec());
                    });
                }
                Some(_) => {}
            },
            Some(Verdict::InProgress) => send(&Packet::Parts(name, Body::Working).to_vec()),
            // The client knows that all parts have arrived, so the call has run.
            None | Some(_) => send(&Packet::Parts(name, Body::Forgotten).to_vec()),
        }
    }

    /// Makes room for another call of which parts are missing. Returns `false` if there is none.
    fn make_room(&mut self, now: Moment, from: SocketAddr, division: Division) -> bool {
        let full = |calls: usize, bytes: usize, part: usize| {
            calls >= PARTIAL_CALLS_MAX / part
                || bytes + division.total as usize > PARTIAL_BYTES_MAX / part
        };
        let ip = from.ip().to_canonical();
        for is_first in [true, false] {
            let size = |partial: &Partial| partial.incoming.division().total as usize;
            let own = || self.partial.values().filter(|partial| partial.ip == ip);
            let all = || self.partial.values();
            let is_full = full(all().count(), all().map(size).sum(), 1)
                || full(own().count(), own().map(size).sum(), HOST_SHARE);
            if !is_full {
                return true;
            }
            if is_first {
                self.partial.retain(|_, partial| now.since(partial.touched) < PARTIAL_AGE);
            }
        }
        false
    }
}

fn key(from: SocketAddr, name: Name) -> Key<Identity> {
    let Name { id, conversation, .. } = name;
    Key { peer: Peer::datagram(from), call: Identity::Parts { id, conversation } }
}

/// Returns the payload that says that a call may have run, but has no reply any more.
fn rejected(transaction: u16) -> Vec<u8> {
    payload(&Reply::rejected(transaction, Rejection::UNSPECIFIED).to_vec())
}

/// Sends a reply, or its first parts.
fn send_reply(form: ReplyForm, payload: &[u8], send: &mut impl FnMut(&[u8])) {
    match form {
        ReplyForm::Whole { id, client } => send(&Packet::Whole { id, client, payload }.to_vec()),
        ReplyForm::Parts { name, piece } => {
            let Some(division) = Division::of(payload.len(), piece) else { return };
            let (arrivals, end) = (Default::default(), division.count());
            send_missing(payload, division, &arrivals, end, WINDOW_FIRST, |part| {
                send(&Packet::Parts(name, Body::Reply(part)).to_vec());
            });
        }
    }
}
