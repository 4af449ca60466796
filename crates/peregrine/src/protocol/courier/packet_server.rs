//! The server's end of packet Courier: which calls run, and what answers each packet. It has no timers, and
//! sends only in answer to packets and when a call ends.
//!
//! As long as the cache of replies remembers a call, the call does not run again. A call in parts also needs
//! a cookie of this server. A server that was restarted does not accept the cookies of its predecessor, so a
//! call in parts does not run again after a restart.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use super::message::{Answer, Call, Rejection, Reply};
use super::packet::{
    Body, Datagram, Division, Incoming, Name, PART_BYTES, PARTS_PROGRAM, PARTS_VERSION,
    PAYLOAD_MAX, PIECE, Packet, Part, Report, WHOLE_BYTES, WHOLE_PAYLOAD_MAX, WINDOW, message,
    payload, send_missing,
};
use super::packet_client::WINDOW_FIRST;
use crate::protocol::exchange::time::{Moment, SECOND};
use crate::protocol::replies::{
    Bounds, HOST_SHARE, Key, Peer, Replies, Ticket, Verdict, checked, checksum,
};

/// The largest number of calls of which parts are missing. Their memory is [`PARTIAL_BYTES_MAX`] at most.
const PARTIAL_CALLS_MAX: usize = 256;
/// The largest number of bytes that the calls of which parts are missing may have together. One host may use
/// only a share of this number and of [`PARTIAL_CALLS_MAX`], as in the cache of replies.
const PARTIAL_BYTES_MAX: usize = 64 << 20;
/// A call of which no part arrives for this time may be forgotten, because its client has given up.
const PARTIAL_AGE: u64 = 30 * SECOND;

/// What identifies a call among the calls of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Identity {
    /// A call in one datagram. Clients of other implementations may use the same number for another call
    /// after a restart. So the content belongs to the identity, too: its length, and a checksum of its
    /// beginning. The checksum is keyed with a secret, so a client cannot compute another call with the same
    /// checksum.
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

/// A call that runs. The code of the path passes this value back with the reply.
#[derive(Debug)]
#[must_use]
pub(crate) struct Running {
    ticket: Ticket<Identity>,
    form: ReplyForm,
    transaction: u16,
    /// Whether the call came in several parts. If so, its client does not send the parts again.
    is_assembled: bool,
}

/// A call that the code of the path runs now.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) call: Call,
    pub(crate) arguments: Arguments,
    pub(crate) running: Running,
}

/// Where the arguments of a call are.
#[derive(Debug)]
pub(crate) enum Arguments {
    /// The arguments begin at this offset of the datagram, and end where the datagram ends.
    Received(usize),
    /// The call came in several parts. These are its arguments.
    Assembled(Vec<u8>),
}

impl Arguments {
    /// Returns the arguments. `datagram` is the datagram with which the call has arrived.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of<'a>(&'a self, datagram: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Received(at) => &datagram[*at..],
            Self::Assembled(arguments) => arguments,
        }
    }
}

/// A call of which parts are missing, or for which the cache has no space.
#[derive(Debug)]
struct Partial {
    ip: IpAddr,
    incoming: Incoming,
    /// When the last new part arrived.
    touched: Moment,
}

/// The state of a server.
#[derive(Debug)]
pub(crate) struct PacketServer {
    secret: [u8; 16],
    cache: Replies<Identity>,
    partial: BTreeMap<Key<Identity>, Partial>,
    /// The largest number of bytes of the payload of a reply in parts. Such a reply fits the share of one
    /// host in the cache.
    reply_bytes_max: usize,
}

impl PacketServer {
    /// Makes a server. `secret` must be random, and new after each restart.
    pub(crate) fn new(secret: [u8; 16], bounds: Bounds) -> Self {
        let reply_bytes_max = PAYLOAD_MAX.min(bounds.bytes / HOST_SHARE);
        Self { secret, cache: Replies::new(bounds), partial: BTreeMap::new(), reply_bytes_max }
    }

    /// Returns the number of remembered calls, the number of bytes of remembered replies, and the number of
    /// calls of which parts are missing.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn size(&self) -> (usize, usize, usize) {
        let (calls, bytes) = self.cache.size();
        (calls, bytes, self.partial.len())
    }

    /// Takes a datagram. Returns the call that the datagram completes, if the call is to run. `send` sends a
    /// datagram back to `from`. A datagram that cannot be read gets no answer.
    pub(crate) fn receive(
        &mut self,
        now: Moment,
        from: SocketAddr,
        datagram: &[u8],
        send: &mut impl FnMut(Datagram<'_>),
    ) -> Option<Work> {
        self.cache.expire(now);
        match Packet::parse(datagram).ok()? {
            Packet::Whole { id, client, payload } => {
                self.receive_whole(now, from, (id, client), payload, send)
            }
            Packet::Parts(name, body) => {
                let cookie = self.cookie(from, name.conversation);
                if matches!(body, Body::Hello) || cookie != name.cookie {
                    let is_of_client =
                        matches!(body, Body::Hello | Body::Call(_) | Body::HaveReply(_));
                    if is_of_client {
                        Packet::Parts(Name { cookie, ..name }, Body::Welcome).send(send);
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

    /// Returns the largest number of bytes of the payload of a reply.
    pub(crate) fn payload_max(&self, running: &Running) -> usize {
        match running.form {
            ReplyForm::Whole { .. } => WHOLE_PAYLOAD_MAX,
            ReplyForm::Parts { .. } => self.reply_bytes_max,
        }
    }

    /// Notes that a call has ended, and sends its reply. A payload that is too long is replaced by a
    /// rejection.
    pub(crate) fn end(
        &mut self,
        now: Moment,
        running: Running,
        payload: &[u8],
        send: &mut impl FnMut(Datagram<'_>),
    ) {
        let rejection;
        let payload = if payload.len() > self.payload_max(&running) {
            rejection = rejected(running.transaction);
            &rejection
        } else {
            payload
        };
        self.cache.end(now, running.ticket, payload);
        send_reply(running.form, payload, send);
    }

    /// Notes that a call was not executed, and sends `payload`, which says why. If `payload` is `None`,
    /// nothing is sent. The client then sends the call again, and the new copy may run.
    ///
    /// The client of a call in several parts does not send the parts again. So the reply to such a call is
    /// remembered like other replies.
    pub(crate) fn refuse(
        &mut self,
        now: Moment,
        running: Running,
        payload: Option<&[u8]>,
        send: &mut impl FnMut(Datagram<'_>),
    ) {
        if running.is_assembled {
            let rejection = rejected(running.transaction);
            return self.end(now, running, payload.unwrap_or(&rejection), send);
        }
        self.cache.not_executed(running.ticket);
        if let Some(payload) = payload {
            send_reply(running.form, payload, send);
        }
    }

    fn cookie(&self, from: SocketAddr, conversation: u32) -> u64 {
        let (port, conversation) = (from.port().to_ne_bytes(), conversation.to_ne_bytes());
        let of = |ip: &[u8]| checksum(&self.secret, &[ip, &port, &conversation]);
        match from.ip().to_canonical() {
            IpAddr::V4(ip) => of(&ip.octets()),
            IpAddr::V6(ip) => of(&ip.octets()),
        }
    }

    fn receive_whole(
        &mut self,
        now: Moment,
        from: SocketAddr,
        (id, client): (u32, u16),
        payload: &[u8],
        send: &mut impl FnMut(Datagram<'_>),
    ) -> Option<Work> {
        let message = message(payload).ok()?;
        let (call, arguments) = Call::parse(message).ok()?;
        let form = ReplyForm::Whole { id, client };
        if (call.program, call.version, call.procedure) == (PARTS_PROGRAM, PARTS_VERSION, 0) {
            // The call does nothing, so it need not be remembered.
            let reply = Reply { transaction: call.transaction, answer: Answer::Return };
            send_reply(form, &super::packet::payload(&reply.to_vec()), send);
            return None;
        }
        let (bytes, checksum) = (payload.len(), checksum(&self.secret, &[checked(payload)]));
        let identity = Identity::Whole { id, client, bytes, checksum };
        match self.cache.begin(now, Key { peer: Peer::datagram(from), call: identity }, 0) {
            Verdict::Execute(ticket) => {
                let (transaction, is_assembled) = (call.transaction, false);
                let running = Running { ticket, form, transaction, is_assembled };
                let header = WHOLE_BYTES + payload.len() - message.len();
                let arguments = Arguments::Received(header + arguments);
                return Some(Work { call, arguments, running });
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
        send: &mut impl FnMut(Datagram<'_>),
    ) -> Option<Work> {
        let key = key(from, name);
        let form = ReplyForm::Parts { name, piece: part.division.piece };
        if let Some(verdict) = self.cache.look(key, 0) {
            // If the part asks for a report, the client has sent it again, because the reply has not
            // arrived. A part that does not ask may be a duplicate that the network made.
            match verdict {
                _ if !part.asks => {}
                Verdict::Replay(reply) => send_reply(form, reply, send),
                Verdict::InProgress => Packet::Parts(name, Body::Working).send(send),
                _ => Packet::Parts(name, Body::Forgotten).send(send),
            }
            return None;
        }
        let is_only = part.division.count() == 1;
        if !is_only && !self.assemble(now, from, name, part, send) {
            return None;
        }
        let Verdict::Execute(ticket) = self.cache.begin(now, key, 0) else {
            // The cache is full of calls that run. The client sends a part again, and the server then tries
            // again.
            return None;
        };
        let assembled = self.partial.remove(&key).map(|partial| partial.incoming.into_payload());
        let payload = assembled.as_deref().unwrap_or(part.data);
        let read = message(payload).ok().and_then(|message| {
            let (call, at) = Call::parse(message).ok()?;
            Some((call, payload.len() - message.len() + at))
        });
        let Some((call, at)) = read else {
            self.cache.not_executed(ticket);
            return None;
        };
        let arguments = match assembled {
            None => Arguments::Received(PART_BYTES + at),
            Some(mut payload) => {
                payload.drain(..at);
                Arguments::Assembled(payload)
            }
        };
        let (transaction, is_assembled) = (call.transaction, !is_only);
        Some(Work { call, arguments, running: Running { ticket, form, transaction, is_assembled } })
    }

    /// Adds a part to a call of several parts. Returns whether the call is complete. If it is not, and the
    /// part asks for a report, sends the report.
    fn assemble(
        &mut self,
        now: Moment,
        from: SocketAddr,
        name: Name,
        part: &Part<'_>,
        send: &mut impl FnMut(Datagram<'_>),
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
            Packet::Parts(name, Body::HaveCall(report)).send(send);
        }
        is_whole
    }

    /// Answers a client that reports which parts of a reply have arrived, or asks about its call.
    fn receive_report(
        &mut self,
        from: SocketAddr,
        name: Name,
        report: &Report,
        send: &mut impl FnMut(Datagram<'_>),
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
                        Packet::Parts(name, Body::Reply(part)).send(send);
                    });
                }
                Some(_) => {}
            },
            Some(Verdict::InProgress) => Packet::Parts(name, Body::Working).send(send),
            // A client sends a report only after the server has received all parts of the call, so the call
            // has run.
            None | Some(_) => Packet::Parts(name, Body::Forgotten).send(send),
        }
    }

    /// Makes space for one more call of which parts are missing. If that call would exceed a limit, forgets
    /// such calls whose clients have given up. Returns `false` if the call would still exceed a limit.
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

/// Returns the payload that says that a call may have run, but that its reply cannot be sent.
fn rejected(transaction: u16) -> Vec<u8> {
    payload(&Reply::rejected(transaction, Rejection::UNSPECIFIED).to_vec())
}

/// Sends a reply, or its first parts.
fn send_reply(form: ReplyForm, payload: &[u8], send: &mut impl FnMut(Datagram<'_>)) {
    match form {
        ReplyForm::Whole { id, client } => Packet::Whole { id, client, payload }.send(send),
        ReplyForm::Parts { name, piece } => {
            let Some(division) = Division::of(payload.len(), piece) else { return };
            let (arrivals, end) = (Default::default(), division.count());
            send_missing(payload, division, &arrivals, end, WINDOW_FIRST, |part| {
                Packet::Parts(name, Body::Reply(part)).send(send);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::protocol::courier::failure::Failure;
    use crate::protocol::courier::packet_client::{Association, Form, PacketCall, Step};
    use crate::protocol::exchange::client_end::Executed;
    use crate::protocol::exchange::time::MILLISECOND;

    const START: Moment = Moment(1000 * SECOND);
    const BOUNDS: Bounds = Bounds { calls: 16, bytes: 80_000, age: 120 * SECOND };
    const PARTS: Form = Form::Parts(512);

    /// What the delivery of datagrams causes: a call that the server must run, after the number of bytes of
    /// its arguments, and the outcome of the call at the client.
    type Delivered = (Option<(usize, Work)>, Option<Result<Vec<u8>, Failure>>);

    /// A client, a server, and the datagrams between them.
    struct Pair {
        now: Moment,
        from: SocketAddr,
        to: Association,
        server: PacketServer,
        to_server: Vec<Vec<u8>>,
        to_client: Vec<Vec<u8>>,
        datagrams: usize,
    }

    impl Pair {
        fn new() -> Self {
            Self {
                now: START,
                from: SocketAddr::from(([10, 0, 0, 1], 700)),
                to: Association::new(9),
                server: PacketServer::new([1; 16], BOUNDS),
                to_server: Vec::new(),
                to_client: Vec::new(),
                datagrams: 0,
            }
        }

        fn begin(&mut self, id: u32, form: Form, argument_bytes: usize) -> PacketCall {
            let mut message = vec![0; 12 + argument_bytes];
            let call = Call { transaction: 4, program: 2, version: 3, procedure: 0 };
            call.emit(&mut message).expect("room");
            let send = &mut |datagram: Datagram<'_>| self.to_server.push(datagram.concat());
            PacketCall::begin(id, payload(&message), form, self.now, 60 * SECOND, &self.to, send)
                .expect("a short call")
        }

        /// Delivers datagrams until no datagram is left.
        fn deliver(&mut self, call: &mut PacketCall) -> Delivered {
            let (mut work, mut ended) = (None, None);
            while !self.to_server.is_empty() || !self.to_client.is_empty() {
                for bytes in core::mem::take(&mut self.to_server) {
                    self.datagrams += 1;
                    let send = &mut |datagram: Datagram<'_>| self.to_client.push(datagram.concat());
                    let new = self.server.receive(self.now, self.from, &bytes, send);
                    assert!(new.is_none() || work.is_none(), "the call runs twice");
                    let counted = |new: Work| (new.arguments.of(&bytes).len(), new);
                    work = work.or(new.map(counted));
                }
                for bytes in core::mem::take(&mut self.to_client) {
                    self.datagrams += 1;
                    let send = &mut |datagram: Datagram<'_>| self.to_server.push(datagram.concat());
                    let end = call.receive(self.now, &bytes, &mut self.to, send);
                    ended = ended.or(end.map(|end| end.map(Cow::into_owned)));
                }
            }
            (work, ended)
        }

        fn end(&mut self, (_, work): (usize, Work), result_bytes: usize) {
            let reply = Reply { transaction: work.call.transaction, answer: Answer::Return };
            let reply = [reply.to_vec(), vec![7; result_bytes]].concat();
            let send = &mut |datagram: Datagram<'_>| self.to_client.push(datagram.concat());
            self.server.end(self.now, work.running, &payload(&reply), send);
        }

        /// Makes a call. Returns the number of bytes of its results, and the number of datagrams.
        fn call(&mut self, id: u32, form: Form, bytes: [usize; 2]) -> (usize, usize) {
            let before = self.datagrams;
            let mut call = self.begin(id, form, bytes[0]);
            let (work, ended) = self.deliver(&mut call);
            assert_eq!(ended, None);
            let work = work.expect("the call runs");
            assert_eq!(work.0, bytes[0]);
            self.end(work, bytes[1]);
            let (again, ended) = self.deliver(&mut call);
            assert!(again.is_none());
            let reply = ended.expect("a reply").expect("results");
            (reply.len() - 4, self.datagrams - before)
        }

        /// Waits until the client sends again.
        fn wait(&mut self, call: &mut PacketCall) {
            while self.to_server.is_empty() {
                let send = &mut |datagram: Datagram<'_>| self.to_server.push(datagram.concat());
                match call.step(self.now, &self.to, send) {
                    Step::Wait(until) if self.to_server.is_empty() => self.now = until,
                    Step::Wait(_) => {}
                    Step::GiveUp(failure) => panic!("{failure}"),
                }
            }
        }
    }

    #[test]
    fn short_call_and_reply_are_two_datagrams() {
        let mut pair = Pair::new();
        assert_eq!(pair.call(1, Form::Whole, [10, 20]), (20, 2));
        // The first call in parts asks for a cookie, and so does a call after a pause.
        assert_eq!(pair.call(1, PARTS, [10, 20]), (20, 4));
        assert_eq!(pair.call(2, PARTS, [10, 20]), (20, 2));
        pair.now = pair.now.after(SECOND);
        assert_eq!(pair.call(3, PARTS, [10, 20]), (20, 4));
        assert_eq!(pair.server.size().0, 4);
    }

    #[test]
    fn long_call_and_reply_have_one_report_for_each_window() {
        let mut pair = Pair::new();
        // 20 parts in windows of 4, 8 and 8; and the same for the reply.
        let bytes = 20 * 512 - 16;
        let reports = 2 + 2;
        assert_eq!(pair.call(1, PARTS, [bytes, bytes - 8]), (bytes - 8, 2 + 40 + reports));
        assert_eq!(pair.call(2, Form::Whole, [60_000, 8000]), (8000, 2));
        assert_eq!(pair.server.size().2, 0);
    }

    #[test]
    fn duplicate_is_answered_only_if_it_asks() {
        let mut pair = Pair::new();
        pair.call(1, PARTS, [10, 20]);
        let mut call = pair.begin(2, PARTS, 10);
        let first = pair.to_server.clone();
        let (work, _) = pair.deliver(&mut call);
        let before = pair.datagrams;
        pair.to_server.clone_from(&first);
        assert!(pair.deliver(&mut call).0.is_none());
        assert_eq!(pair.datagrams, before + 1);
        // The client sends its part again. The server says that the call runs.
        pair.wait(&mut call);
        assert_eq!(call.transmissions(), 2);
        assert!(pair.deliver(&mut call).0.is_none());
        assert_eq!(pair.datagrams, before + 3);
        // The reply is lost. The client asks, and the server sends the reply again.
        pair.end(work.expect("the call runs"), 20);
        pair.to_client.clear();
        pair.wait(&mut call);
        assert!(matches!(pair.deliver(&mut call), (None, Some(Ok(_)))));
        assert_eq!(pair.datagrams, before + 5);
        let mut call = pair.begin(3, Form::Whole, 10);
        let first = pair.to_server.clone();
        let (work, _) = pair.deliver(&mut call);
        pair.to_server.clone_from(&first);
        assert!(pair.deliver(&mut call).0.is_none());
        pair.end(work.expect("the call runs"), 20);
        pair.to_client.clear();
        pair.to_server = first;
        assert!(matches!(pair.deliver(&mut call), (None, Some(Ok(_)))));
    }

    #[test]
    fn lost_part_is_sent_again_and_no_other() {
        let mut pair = Pair::new();
        pair.call(1, PARTS, [10, 20]);
        let mut call = pair.begin(2, PARTS, 3 * 512 - 16);
        assert_eq!(pair.to_server.len(), 3);
        pair.to_server.remove(1);
        let before = pair.datagrams;
        let (work, _) = pair.deliver(&mut call);
        // Two parts, a report, and the lost part.
        assert_eq!(pair.datagrams, before + 4);
        assert_eq!(call.transmissions(), 1);
        pair.end(work.expect("the call runs"), 2 * 512 - 8);
        pair.to_client.pop();
        // The client waits, and then asks for what is missing.
        assert_eq!(pair.deliver(&mut call).1, None);
        pair.wait(&mut call);
        assert!(matches!(pair.deliver(&mut call), (None, Some(Ok(_)))));
    }

    #[test]
    fn restarted_server_refuses_the_cookies_of_its_predecessor() {
        let mut pair = Pair::new();
        pair.call(1, PARTS, [10, 20]);
        let mut call = pair.begin(2, PARTS, 10);
        pair.server = PacketServer::new([2; 16], BOUNDS);
        let (work, ended) = pair.deliver(&mut call);
        assert!(work.is_none());
        assert_eq!(ended, Some(Err(Failure::Restarted)));
        assert_eq!(Failure::Restarted.executed(call.transmissions()), Executed::Maybe);
        // A call of which a part was never sent was certainly not executed.
        pair.server = PacketServer::new([1; 16], BOUNDS);
        pair.call(3, PARTS, [10, 20]);
        pair.server = PacketServer::new([2; 16], BOUNDS);
        let mut call = pair.begin(4, PARTS, 10_000);
        assert_eq!(pair.deliver(&mut call).1, Some(Err(Failure::Restarted)));
        assert_eq!(Failure::Restarted.executed(call.transmissions()), Executed::No);
        // The next call asks for a cookie first.
        assert_eq!(pair.call(5, PARTS, [10, 20]), (20, 4));
    }

    #[test]
    fn reply_that_is_too_long_or_discarded_is_a_failure() {
        let mut pair = Pair::new();
        let share = BOUNDS.bytes / HOST_SHARE;
        let mut call = pair.begin(1, PARTS, 10);
        let (work, _) = pair.deliver(&mut call);
        pair.end(work.expect("the call runs"), share);
        let reply = pair.deliver(&mut call).1.expect("a reply").expect("a message");
        let (reply, _) = Reply::parse(&reply).expect("a reply");
        let failure = Failure::of(&reply.answer).expect("a failure");
        assert_eq!((reply.transaction, failure), (4, Failure::Unspecified(0xffff)));
        let mut call = pair.begin(2, PARTS, 10);
        let (work, _) = pair.deliver(&mut call);
        pair.end(work.expect("the call runs"), 20);
        pair.to_client.clear();
        // A long reply to the same host makes the server discard this one.
        assert_eq!(pair.call(3, Form::Whole, [10, share - 8]).0, share - 8);
        pair.wait(&mut call);
        assert_eq!(pair.deliver(&mut call).1, Some(Err(Failure::ReplyDiscarded)));
    }

    #[test]
    fn answer_to_an_unproven_address_is_not_larger_than_the_packet() {
        let mut server = PacketServer::new([1; 16], BOUNDS);
        let from = SocketAddr::from(([10, 0, 0, 1], 700));
        let name = Name { id: 1, conversation: 2, cookie: 3 };
        let division = Division::of(100, 512).expect("a division");
        let part = Part { division, position: 0, asks: true, data: &[0; 100] };
        for body in [Body::Hello, Body::Call(part), Body::Welcome, Body::Working] {
            let packet = Packet::Parts(name, body).to_vec();
            let mut answers = Vec::new();
            let send = &mut |datagram: Datagram<'_>| answers.push(datagram.concat().len());
            assert!(server.receive(START, from, &packet, send).is_none());
            assert!(answers.iter().sum::<usize>() <= packet.len(), "{body:?}");
        }
        assert_eq!(server.size(), (0, 0, 0));
    }

    #[test]
    fn partial_calls_are_bounded_and_forgotten() {
        let mut server = PacketServer::new([1; 16], BOUNDS);
        let division = Division::of(PAYLOAD_MAX, 512).expect("a division");
        let part = Part { division, position: 0, asks: true, data: &[0; 512] };
        let partial = |server: &mut PacketServer, now: Moment, host: u8, id: u32| {
            let from = SocketAddr::from(([10, 0, 0, host], 700));
            let cookie = server.cookie(from, 2);
            let packet = Packet::Parts(Name { id, conversation: 2, cookie }, Body::Call(part));
            let mut answers = 0;
            let work = server.receive(now, from, &packet.to_vec(), &mut |_| answers += 1);
            assert!(work.is_none());
            answers
        };
        let most = PARTIAL_BYTES_MAX / PAYLOAD_MAX;
        for id in 0..100 {
            partial(&mut server, START, 1, id);
        }
        assert_eq!(server.size().2, most / HOST_SHARE);
        for host in 2..50 {
            partial(&mut server, START.after(MILLISECOND), host, 1);
        }
        assert_eq!(server.size().2, most / HOST_SHARE + 48);
        let later = START.after(PARTIAL_AGE);
        assert_eq!(partial(&mut server, later, 1, 500), 1);
        assert_eq!(server.size().2, 1 + 48);
        // Another division of the same call is ignored.
        let other = Part { division: Division { total: 1000, ..division }, ..part };
        let from = SocketAddr::from(([10, 0, 0, 1], 700));
        let name = Name { id: 500, conversation: 2, cookie: server.cookie(from, 2) };
        let packet = Packet::Parts(name, Body::Call(other)).to_vec();
        assert!(server.receive(later, from, &packet, &mut |_| panic!("no answer")).is_none());
    }

    #[test]
    fn whole_calls_with_the_same_number_are_told_apart_by_their_content() {
        let mut pair = Pair::new();
        assert_eq!(pair.call(1, Form::Whole, [10, 20]), (20, 2));
        assert_eq!(pair.call(1, Form::Whole, [12, 20]), (20, 2));
        // A payload that is not a call of a known version gets no answer.
        let call = Call { transaction: 4, program: 2, version: 3, procedure: 0 };
        let mut message = vec![0; 12];
        call.emit(&mut message).expect("room");
        let mut other_version = payload(&message);
        other_version[1..4].copy_from_slice(&[4, 0, 9]);
        for payload in [&payload(&message)[..15], &payload(&[0, 1, 0, 0]), &other_version] {
            let packet = Packet::Whole { id: 9, client: 2, payload }.to_vec();
            let mut send = |_: Datagram<'_>| panic!("no answer");
            assert!(pair.server.receive(START, pair.from, &packet, &mut send).is_none());
        }
    }
}
