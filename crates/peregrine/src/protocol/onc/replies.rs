//! The server's cache of replies to calls of ONC RPC. This file says what identifies a call. The cache itself
//! is in `protocol/replies.rs`.
//!
//! ONC RPC does not promise that a call runs only once: after a server has forgotten a call, a retransmission
//! runs the call again. If the server remembers a call, but has discarded its reply, it drops retransmissions
//! of the call. On a stream, where the client waits for an answer, the server reports SYSTEM_ERR instead.

use super::message::{Call, Flavour};
use crate::protocol::exchange::time::Moment;
use crate::protocol::replies::{self, Key};

pub(crate) use crate::protocol::replies::{Bounds, Peer};

/// What identifies a call among the calls of one client.
///
/// The checksums are keyed with a secret, so a client cannot compute another call with the same checksums.
/// They cover the credential, so users of one machine do not get replies to each other's calls. The stamp of
/// a credential with user and groups is left out, because clients may change it for a retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    bytes: usize,
    credential: u64,
    arguments: u64,
}

/// The proof that the cache counts a call as running. The server gives it back to the cache, with the reply
/// or with the report that the call was not executed.
pub(crate) type Ticket = replies::Ticket<Identity>;
/// What a server does with a call.
pub(crate) type Verdict<'a> = replies::Verdict<'a, Identity>;

/// The cache of a server.
#[derive(Debug)]
pub(crate) struct Replies {
    secret: [u8; 16],
    cache: replies::Replies<Identity>,
}

impl Replies {
    /// Makes a cache. `secret` must be random.
    pub(crate) fn new(secret: [u8; 16], bounds: Bounds) -> Self {
        Self { secret, cache: replies::Replies::new(bounds) }
    }

    /// Decides what to do with a call that has arrived. `from` is the number that the code of the
    /// path has given to the connection or socket at which the call arrived. [`end`](Self::end) returns this
    /// number.
    pub(crate) fn begin(
        &mut self,
        now: Moment,
        peer: Peer,
        from: u64,
        call: &Call<'_>,
        arguments: &[u8],
    ) -> Verdict<'_> {
        let call = self.identity(call, arguments);
        self.cache.begin(now, Key { peer, call }, from)
    }

    /// Notes that a call has ended, and keeps a copy of its reply. Returns where the reply is sent: see
    /// [`replies::Replies::end`].
    pub(crate) fn end(&mut self, now: Moment, ticket: Ticket, reply: &[u8]) -> u64 {
        self.cache.end(now, ticket, reply)
    }

    /// Forgets a call that was refused before its procedure began. A retransmission of the call runs.
    pub(crate) fn not_executed(&mut self, ticket: Ticket) {
        self.cache.not_executed(ticket);
    }

    /// Returns the number of remembered calls, and the number of bytes of remembered replies.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn size(&self) -> (usize, usize) {
        self.cache.size()
    }

    fn identity(&self, call: &Call<'_>, arguments: &[u8]) -> Identity {
        let checksum = |first: u32, bytes: &[u8]| {
            replies::checksum(&self.secret, &[&first.to_ne_bytes(), bytes])
        };
        let Call { xid, program, version, procedure, credential, .. } = *call;
        let stamp = if credential.flavour == Flavour::SYS { 4 } else { 0 };
        Identity {
            xid,
            program,
            version,
            procedure,
            bytes: arguments.len(),
            credential: checksum(
                credential.flavour.0,
                credential.body.get(stamp..).unwrap_or_default(),
            ),
            arguments: checksum(0, replies::checked(arguments)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::exchange::time::SECOND;
    use crate::protocol::onc::client::CALL_TIME;
    use crate::protocol::onc::message::{Auth, AuthSys, Groups};
    use crate::protocol::onc::xids::SPAN;
    use crate::protocol::replies::{CHECKED_BYTES, HOST_SHARE};
    use core::net::SocketAddr;
    use proptest::prelude::*;

    const START: Moment = Moment(1000 * SECOND);
    const BOUNDS: Bounds = Bounds { calls: 16, bytes: 4000, age: 120 * SECOND };

    fn call(xid: u32) -> Call<'static> {
        let (credential, verifier) = (Auth::NONE, Auth::NONE);
        Call { xid, program: 100_003, version: 3, procedure: 12, credential, verifier }
    }

    fn at(last: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], port))
    }

    fn cache() -> Replies {
        Replies::new([7; 16], BOUNDS)
    }

    impl Replies {
        /// Runs a call, which must not be known yet.
        fn run(&mut self, now: Moment, peer: Peer, call: &Call<'_>, reply: &[u8]) {
            let Verdict::Execute(ticket) = self.begin(now, peer, 0, call, b"args") else {
                panic!("the call {call:?} does not run");
            };
            assert_eq!(self.end(now, ticket, reply), 0);
        }

        fn runs(&mut self, peer: Peer, call: &Call<'_>, arguments: &[u8]) -> bool {
            match self.begin(START, peer, 0, call, arguments) {
                Verdict::Execute(ticket) => {
                    self.not_executed(ticket);
                    true
                }
                _ => false,
            }
        }
    }

    // A client stops retransmitting before its calls are forgotten.
    const _: () = assert!(CALL_TIME < Bounds::DEFAULT.age && Bounds::DEFAULT.age <= SPAN);

    #[test]
    fn duplicate_is_dropped_while_the_call_runs_and_then_answered() {
        let (mut cache, peer) = (cache(), Peer::datagram(at(1, 700)));
        let Verdict::Execute(ticket) = cache.begin(START, peer, 0, &call(1), b"args") else {
            panic!("the first copy runs");
        };
        assert!(matches!(cache.begin(START, peer, 0, &call(1), b"args"), Verdict::InProgress));
        assert_eq!(cache.end(START, ticket, b"reply"), 0);
        assert!(matches!(
            cache.begin(START, peer, 0, &call(1), b"args"),
            Verdict::Replay(b"reply")
        ));
        cache.cache.check();
        let later = START.after(BOUNDS.age - 1);
        assert!(matches!(cache.begin(later, peer, 0, &call(1), b"args"), Verdict::Replay(_)));
        cache.cache.expire(START.after(BOUNDS.age));
        assert_eq!((cache.size(), cache.cache.hosts()), ((0, 0), 0));
    }

    #[test]
    fn other_calls_and_other_clients_get_no_reply_of_the_cache() {
        let (mut cache, peer) = (cache(), Peer::datagram(at(1, 700)));
        cache.run(START, peer, &call(1), b"reply");
        assert!(!cache.runs(peer, &call(1), b"args"));
        for other in [
            call(2),
            Call { program: 1, ..call(1) },
            Call { version: 4, ..call(1) },
            Call { procedure: 1, ..call(1) },
            Call { credential: Auth { flavour: Flavour(6), body: &[] }, ..call(1) },
        ] {
            assert!(cache.runs(peer, &other, b"args"), "{other:?}");
        }
        for arguments in [&b"argz"[..], b"args and more", b""] {
            assert!(cache.runs(peer, &call(1), arguments));
        }
        let scoped = |scope| {
            let ip = "fe80::1".parse().expect("an address");
            SocketAddr::V6(core::net::SocketAddrV6::new(ip, 700, 0, scope))
        };
        cache.run(START, Peer::datagram(scoped(1)), &call(1), b"reply");
        for other in [
            Peer::datagram(at(2, 700)),
            Peer::datagram(at(1, 701)),
            Peer::stream(at(1, 700)),
            Peer::datagram(scoped(2)),
        ] {
            assert!(cache.runs(other, &call(1), b"args"), "{other:?}");
        }
    }

    #[test]
    fn client_that_connects_again_gets_its_reply() {
        let mut cache = cache();
        cache.run(START, Peer::stream(at(1, 700)), &call(1), b"reply");
        assert!(!cache.runs(Peer::stream(at(1, 700)), &call(1), b"args"));
        assert!(cache.runs(Peer::stream(at(1, 999)), &call(1), b"args"), "another program");
        // If a client sends a running call again on another connection, the reply goes to that connection.
        let peer = Peer::stream(at(1, 700));
        let Verdict::Execute(ticket) = cache.begin(START, peer, 5, &call(2), b"args") else {
            panic!("the first copy runs");
        };
        assert!(matches!(cache.begin(START, peer, 6, &call(2), b"args"), Verdict::InProgress));
        assert_eq!(cache.end(START, ticket, b"reply"), 6);
        // The same IPv4 address has another form at a socket that also accepts IPv6.
        let mapped = SocketAddr::new("::ffff:10.0.0.1".parse().expect("an address"), 700);
        assert!(!cache.runs(Peer::stream(mapped), &call(1), b"args"));
        assert!(cache.runs(Peer::stream(at(2, 700)), &call(1), b"args"));
    }

    #[test]
    fn users_of_one_machine_are_told_apart_but_not_their_stamps() {
        let body = |stamp, user| {
            let groups = Groups::default();
            let sys = AuthSys { stamp, machine: b"host", user, group: 5, groups };
            let mut body = vec![0; 400];
            let length = sys.emit(&mut body).expect("room");
            body.truncate(length);
            body
        };
        fn sys(body: &[u8]) -> Call<'_> {
            Call { credential: Auth { flavour: Flavour::SYS, body }, ..call(1) }
        }
        let (mut cache, peer) = (cache(), Peer::stream(at(1, 700)));
        cache.run(START, peer, &sys(&body(1, 1000)), b"reply");
        assert!(!cache.runs(peer, &sys(&body(2, 1000)), b"args"));
        assert!(cache.runs(peer, &sys(&body(1, 1001)), b"args"));
        assert!(cache.runs(peer, &sys(b"?"), b"args"));
    }

    #[test]
    fn arguments_beyond_the_checked_bytes_count_only_by_their_length() {
        let (mut cache, peer) = (cache(), Peer::datagram(at(1, 700)));
        let mut arguments = vec![7; CHECKED_BYTES + 8];
        let Verdict::Execute(ticket) = cache.begin(START, peer, 0, &call(1), &arguments) else {
            panic!("the first copy runs");
        };
        assert_eq!(cache.end(START, ticket, b"reply"), 0);
        arguments[CHECKED_BYTES] = 8;
        assert!(!cache.runs(peer, &call(1), &arguments));
        arguments[CHECKED_BYTES - 1] = 8;
        assert!(cache.runs(peer, &call(1), &arguments));
    }

    #[test]
    fn call_whose_reply_was_discarded_does_not_run_again() {
        let (mut cache, peer) = (cache(), Peer::datagram(at(1, 700)));
        let share = BOUNDS.bytes / HOST_SHARE;
        cache.run(START, peer, &call(1), &vec![1; share]);
        assert!(matches!(cache.begin(START, peer, 0, &call(1), b"args"), Verdict::Replay(_)));
        cache.run(START, peer, &call(2), b"short");
        assert!(matches!(cache.begin(START, peer, 0, &call(1), b"args"), Verdict::Forgotten));
        assert!(matches!(
            cache.begin(START, peer, 0, &call(2), b"args"),
            Verdict::Replay(b"short")
        ));
        // A reply that is larger than the share of a host is not kept, so it displaces no other reply.
        cache.run(START, peer, &call(3), &vec![1; share + 1]);
        assert!(matches!(cache.begin(START, peer, 0, &call(3), b"args"), Verdict::Forgotten));
        assert_eq!(cache.size(), (3, 5));
        cache.cache.check();
    }

    #[test]
    fn host_evicts_its_own_calls_first() {
        let mut cache = cache();
        cache.run(START, Peer::datagram(at(2, 700)), &call(1), b"reply");
        for xid in 0..100 {
            cache.run(START, Peer::datagram(at(1, 700)), &call(xid), b"reply");
            cache.cache.check();
        }
        assert_eq!(cache.size(), (5, 25));
        assert!(!cache.runs(Peer::datagram(at(2, 700)), &call(1), b"args"));
        assert!(!cache.runs(Peer::datagram(at(1, 700)), &call(96), b"args"));
        assert!(cache.runs(Peer::datagram(at(1, 700)), &call(95), b"args"));
    }

    #[test]
    fn running_calls_are_never_evicted() {
        let mut cache = cache();
        let mut tickets = Vec::new();
        for host in 0..8 {
            for xid in 0..5 {
                let peer = Peer::datagram(at(host, 700));
                match cache.begin(START, peer, 0, &call(xid), b"args") {
                    Verdict::Execute(ticket) => tickets.push(ticket),
                    verdict => assert!(matches!(verdict, Verdict::Full)),
                }
                cache.cache.check();
            }
        }
        assert_eq!(tickets.len(), BOUNDS.calls);
        let first = Peer::datagram(at(0, 700));
        assert!(matches!(cache.begin(START, first, 0, &call(0), b"args"), Verdict::InProgress));
        for ticket in tickets {
            cache.not_executed(ticket);
        }
        assert_eq!((cache.size(), cache.cache.hosts()), ((0, 0), 0));
    }

    /// A call that has ended.
    struct Past {
        host: u8,
        xid: u32,
        at: Moment,
        reply: Vec<u8>,
        /// Whether there have been enough younger calls that the cache may have evicted this one.
        was_crowded: bool,
    }

    /// Marks the ended calls that the cache may have evicted when the newest call of `running` began.
    fn crowd(ended: &mut [Past], running: &[(u8, u32, Ticket)]) {
        for at in 0..ended.len() {
            let host = ended[at].host;
            let younger = &ended[at + 1..];
            let of_host = younger.iter().filter(|past| past.host == host).count()
                + running.iter().filter(|(one, ..)| *one == host).count();
            ended[at].was_crowded |= of_host >= BOUNDS.calls / HOST_SHARE
                || younger.len() + running.len() >= BOUNDS.calls;
        }
    }

    proptest! {
        #[test]
        fn cache_agrees_with_a_simple_one(
            steps in proptest::collection::vec((0_u8..5, 0_u32..12, 0_u8..6, 0_usize..1200), 0..300),
        ) {
            let mut cache = cache();
            let mut running: Vec<(u8, u32, Ticket)> = Vec::new();
            let mut ended: Vec<Past> = Vec::new();
            let mut now = START;
            for (host, xid, step, size) in steps {
                now = now.after(size as u64 * SECOND / 100);
                let peer = Peer::datagram(at(host, 700));
                if step == 0 && !running.is_empty() {
                    let (host, xid, ticket) = running.swap_remove(size % running.len());
                    if size % 5 == 0 {
                        cache.not_executed(ticket);
                    } else {
                        let reply = [&[host, xid as u8][..], &vec![0; size]].concat();
                        assert_eq!(cache.end(now, ticket, &reply), 0);
                        ended.push(Past { host, xid, at: now, reply, was_crowded: false });
                    }
                } else {
                    let runs = running.iter().any(|(a, b, _)| (*a, *b) == (host, xid));
                    let last = ended.iter().rfind(|past| (past.host, past.xid) == (host, xid));
                    match cache.begin(now, peer, 0, &call(xid), b"args") {
                        Verdict::Execute(ticket) => {
                            prop_assert!(!runs, "a call runs twice at a time");
                            let is_old = |past: &Past| now.since(past.at) >= BOUNDS.age;
                            prop_assert!(
                                last.is_none_or(|past| past.was_crowded || is_old(past)),
                                "a call was forgotten too early"
                            );
                            running.push((host, xid, ticket));
                            crowd(&mut ended, &running);
                        }
                        Verdict::Replay(reply) => {
                            prop_assert!(!runs);
                            prop_assert_eq!(Some(reply), last.map(|past| &*past.reply));
                        }
                        Verdict::InProgress => prop_assert!(runs),
                        Verdict::Forgotten => prop_assert!(!runs && last.is_some()),
                        Verdict::Full => {
                            let of_host = running.iter().filter(|(one, ..)| *one == host).count();
                            let is_full = of_host >= 4 || running.len() >= BOUNDS.calls;
                            prop_assert!(is_full && !runs);
                        }
                    }
                }
                cache.cache.check();
            }
        }
    }
}
