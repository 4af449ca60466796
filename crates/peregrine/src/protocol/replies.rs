//! A server's cache of replies, for protocols in which clients retransmit whole calls. With it, a call that a
//! client sends several times runs once, as long as the cache remembers the call.
//!
//! The idea of the cache is that of servers for NFS (Juszczak, 1989). It keeps what is small as long as
//! possible: if memory for replies is short, it discards an old reply, but still remembers the call. A
//! retransmission of such a call does not run. So the client does not learn the results, but the call does
//! not run twice.

use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, VecDeque};

use super::exchange::time::{Moment, SECOND};

/// The share of the cache that one host may use is this part of the whole.
pub(crate) const HOST_SHARE: usize = 4;

/// The machine of a client, or the user of a client on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Host {
    /// An address, and the interface number of an IPv6 address that is valid on one link only.
    Ip(IpAddr, u32),
    User(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Transport {
    /// The port of the client's socket.
    Datagram(u16),
    /// The port of the client's end of the connection.
    Stream(u16),
    /// The number of the client's process.
    Local(u32),
}

/// Where a call comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Peer {
    host: Host,
    transport: Transport,
}

impl Peer {
    /// Takes the source of a datagram.
    pub(crate) fn datagram(from: SocketAddr) -> Self {
        Self { host: Host::of(from), transport: Transport::Datagram(from.port()) }
    }

    /// Takes the other end of a TCP connection. The port counts, because two programs of one machine may
    /// send the same call. A client that has lost its connection and sends its calls again must connect from
    /// the same port.
    pub(crate) fn stream(from: SocketAddr) -> Self {
        Self { host: Host::of(from), transport: Transport::Stream(from.port()) }
    }

    /// Takes the user and process at the other end of a local socket, as the kernel reports them.
    pub(crate) const fn local(user: u32, process: u32) -> Self {
        Self { host: Host::User(user), transport: Transport::Local(process) }
    }
}

impl Host {
    fn of(from: SocketAddr) -> Self {
        let scope = match from {
            SocketAddr::V6(from) => from.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        Self::Ip(from.ip().to_canonical(), scope)
    }
}

/// What identifies a call: where it comes from, and the protocol's own numbers. A retransmission has the same
/// key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key<C> {
    pub(crate) peer: Peer,
    pub(crate) call: C,
}

/// A call that runs. The server returns it with the reply, or reports that the call was not executed.
#[derive(Debug)]
#[must_use]
pub(crate) struct Ticket<C>(Key<C>);

/// The limits of a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// How many calls are remembered, including those that run.
    pub(crate) calls: usize,
    /// How many bytes the replies have altogether.
    pub(crate) bytes: usize,
    /// How long a call is remembered after it has ended, in nanoseconds. This must be at least as long as
    /// clients retransmit.
    pub(crate) age: u64,
}

impl Bounds {
    pub(crate) const DEFAULT: Self = Self { calls: 16_384, bytes: 16 << 20, age: 120 * SECOND };
}

#[derive(Debug)]
enum State {
    /// The call runs, and its newest copy came from this connection.
    Running { from: u64 },
    /// The call has ended. Its number in the order of ends, and the reply unless it was discarded.
    Done { end: u64, reply: Option<Box<[u8]>> },
}

/// What a server does with a call.
#[derive(Debug)]
pub(crate) enum Verdict<'a, C> {
    /// Runs the call.
    Execute(Ticket<C>),
    /// Sends this reply again.
    Replay(&'a [u8]),
    /// Drops the call, because another copy of it runs. The reply to that copy is enough.
    InProgress,
    /// Does not run the call, because it has run and its reply was discarded.
    Forgotten,
    /// Refuses or drops the call, because the calls that run fill the share of its host or the whole cache.
    Full,
}

/// A call that has ended, in [`Order`].
#[derive(Clone, Copy, Debug)]
struct Place<C> {
    /// The number in the order of ends.
    end: u64,
    at: Moment,
    key: Key<C>,
}

/// Calls in the order in which they have ended. Almost always the oldest is removed. A place in the middle
/// that was removed becomes empty, and the list is shortened when half of it is empty.
#[derive(Debug)]
struct Order<C> {
    /// The first place is not empty.
    places: VecDeque<(u64, Option<Place<C>>)>,
    len: usize,
}

impl<C: Copy> Order<C> {
    /// Adds the call that has ended last.
    fn push(&mut self, place: Place<C>) {
        self.places.push_back((place.end, Some(place)));
        self.len += 1;
    }

    fn oldest(&self) -> Option<Place<C>> {
        self.places.front().and_then(|(_, place)| *place)
    }

    fn remove(&mut self, end: u64) {
        if self.places.pop_front_if(|(first, _)| *first == end).is_none() {
            let Ok(index) = self.places.binary_search_by_key(&end, |(end, _)| *end) else { return };
            if self.places[index].1.take().is_none() {
                return;
            }
        }
        self.len -= 1;
        while self.places.pop_front_if(|(_, place)| place.is_none()).is_some() {}
        if self.places.len() > 2 * self.len + 16 {
            self.places.retain(|(_, place)| place.is_some());
        }
    }
}

/// The calls that have ended, oldest first: of one host, or of all.
#[derive(Debug)]
struct Ended<C> {
    calls: Order<C>,
    /// Those of the calls that still have their replies.
    replies: Order<C>,
    bytes: usize,
    /// The number of calls that run.
    running: usize,
}

impl<C> Default for Ended<C> {
    fn default() -> Self {
        let order = || Order { places: VecDeque::new(), len: 0 };
        Self { calls: order(), replies: order(), bytes: 0, running: 0 }
    }
}

impl<C> Ended<C> {
    fn len(&self) -> usize {
        self.calls.len + self.running
    }
}

/// The cache of a server. `C` is the part of a key that the protocol defines.
#[derive(Debug)]
pub(crate) struct Replies<C> {
    bounds: Bounds,
    entries: BTreeMap<Key<C>, State>,
    all: Ended<C>,
    hosts: BTreeMap<Host, Ended<C>>,
    /// The number of calls that have ended so far.
    ends: u64,
}

impl<C: Copy + Ord> Replies<C> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let (entries, hosts) = (BTreeMap::new(), BTreeMap::new());
        Self { bounds, entries, all: Ended::default(), hosts, ends: 0 }
    }

    /// Decides what to do with a call that has arrived. `from` is the driver's number of the connection or
    /// socket at which it has arrived. [`end`](Self::end) returns this number.
    pub(crate) fn begin(&mut self, now: Moment, key: Key<C>, from: u64) -> Verdict<'_, C> {
        self.expire(now);
        if self.entries.contains_key(&key) {
            return self.look(key, from).expect("the cache remembers the call");
        }
        if !self.make_room(key.peer.host) {
            return Verdict::Full;
        }
        self.entries.insert(key, State::Running { from });
        self.all.running += 1;
        self.hosts.entry(key.peer.host).or_default().running += 1;
        Verdict::Execute(Ticket(key))
    }

    /// Returns what the server does with another copy of a call that the cache remembers, or `None` if it
    /// does not remember the call. `from` is where the copy has come from.
    pub(crate) fn look(&mut self, key: Key<C>, from: u64) -> Option<Verdict<'_, C>> {
        Some(match self.entries.get_mut(&key)? {
            State::Running { from: newest } => {
                *newest = from;
                Verdict::InProgress
            }
            State::Done { reply: Some(reply), .. } => Verdict::Replay(reply),
            State::Done { reply: None, .. } => Verdict::Forgotten,
        })
    }

    /// Notes that a call has ended, and keeps a copy of its reply. A reply that is larger than the share of
    /// one host is not kept.
    ///
    /// Returns where the newest copy of the call has come from. The driver sends the reply there: if the
    /// client has connected again while the call ran, the first connection is of no use any more.
    pub(crate) fn end(&mut self, now: Moment, ticket: Ticket<C>, reply: &[u8]) -> u64 {
        let Ticket(key) = ticket;
        let host = key.peer.host;
        self.ends += 1;
        let end = self.ends;
        let kept = (reply.len() <= self.host_bytes()).then(|| reply.into());
        for ended in [&mut self.all, self.hosts.entry(host).or_default()] {
            ended.running -= 1;
            ended.calls.push(Place { end, at: now, key });
            if kept.is_some() {
                ended.replies.push(Place { end, at: now, key });
                ended.bytes += reply.len();
            }
        }
        let before = self.entries.insert(key, State::Done { end, reply: kept });
        while self.hosts[&host].bytes > self.host_bytes() {
            self.discard_reply(self.hosts[&host].replies.oldest());
        }
        while self.all.bytes > self.bounds.bytes {
            self.discard_reply(self.all.replies.oldest());
        }
        match before {
            Some(State::Running { from }) => from,
            _ => unreachable!("a ticket belongs to a call that runs"),
        }
    }

    /// Forgets a call that was refused before its procedure began. A retransmission runs.
    pub(crate) fn not_executed(&mut self, ticket: Ticket<C>) {
        let Ticket(key) = ticket;
        self.entries.remove(&key);
        self.all.running -= 1;
        self.of_host(key.peer.host, |ended| ended.running -= 1);
    }

    /// Forgets the calls that ended long ago.
    pub(crate) fn expire(&mut self, now: Moment) {
        while let Some(Place { at, key, .. }) = self.all.calls.oldest() {
            if now.since(at) < self.bounds.age {
                return;
            }
            self.forget(key);
        }
    }

    /// Returns the number of calls that are remembered, and of bytes in replies.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.all.bytes)
    }

    fn host_calls(&self) -> usize {
        (self.bounds.calls / HOST_SHARE).max(1)
    }

    fn host_bytes(&self) -> usize {
        self.bounds.bytes / HOST_SHARE
    }

    /// Forgets the oldest calls until there is room for one more. Returns `false` if all calls that could be
    /// forgotten still run.
    fn make_room(&mut self, host: Host) -> bool {
        let of_host = self.hosts.get(&host);
        if of_host.is_some_and(|ended| ended.len() >= self.host_calls()) {
            let Some(oldest) = of_host.and_then(|ended| ended.calls.oldest()) else {
                return false;
            };
            self.forget(oldest.key);
        }
        if self.all.len() >= self.bounds.calls {
            let Some(oldest) = self.all.calls.oldest() else { return false };
            self.forget(oldest.key);
        }
        true
    }

    /// Applies a change to the share of a host. Drops the share if nothing is left in it.
    fn of_host(&mut self, host: Host, change: impl FnOnce(&mut Ended<C>)) {
        if let Some(ended) = self.hosts.get_mut(&host) {
            change(ended);
            if ended.len() == 0 {
                self.hosts.remove(&host);
            }
        }
    }

    /// Discards the reply of a call that has ended. The call is still remembered.
    fn discard_reply(&mut self, oldest: Option<Place<C>>) {
        let Some(Place { end, key, .. }) = oldest else { return };
        let Some(State::Done { reply, .. }) = self.entries.get_mut(&key) else { return };
        let Some(reply) = reply.take() else { return };
        let discard = |ended: &mut Ended<C>| {
            ended.replies.remove(end);
            ended.bytes -= reply.len();
        };
        discard(&mut self.all);
        self.of_host(key.peer.host, discard);
    }

    /// Forgets a call that has ended.
    fn forget(&mut self, key: Key<C>) {
        let Some(State::Done { end, reply }) = self.entries.remove(&key) else { return };
        let forget = |ended: &mut Ended<C>| {
            ended.calls.remove(end);
            if let Some(reply) = &reply {
                ended.replies.remove(end);
                ended.bytes -= reply.len();
            }
        };
        forget(&mut self.all);
        self.of_host(key.peer.host, forget);
    }

    /// Returns the number of hosts that have a share.
    #[cfg(test)]
    pub(crate) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Checks that all tables agree, and that the limits hold.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let done = |state: &&State| matches!(state, State::Done { .. });
        let ended = self.entries.values().filter(done).count();
        let bytes = |state: &State| match state {
            State::Done { reply, .. } => reply.as_ref().map_or(0, |reply| reply.len()),
            State::Running { .. } => 0,
        };
        assert_eq!(ended, self.all.calls.len);
        assert_eq!(self.entries.len(), self.all.len());
        assert_eq!(self.entries.values().map(bytes).sum::<usize>(), self.all.bytes);
        assert!(self.entries.len() <= self.bounds.calls && self.all.bytes <= self.bounds.bytes);
        let hosts = || self.hosts.values();
        assert_eq!(hosts().map(|ended| ended.calls.len).sum::<usize>(), ended);
        assert_eq!(hosts().map(|ended| ended.running).sum::<usize>(), self.all.running);
        assert_eq!(hosts().map(|ended| ended.bytes).sum::<usize>(), self.all.bytes);
        let replies = hosts().map(|ended| ended.replies.len).sum::<usize>();
        assert_eq!(replies, self.all.replies.len);
        for ended in hosts() {
            assert!(0 < ended.len() && ended.len() <= self.host_calls());
            assert!(ended.bytes <= self.host_bytes());
        }
        for order in hosts().chain([&self.all]).flat_map(|ended| [&ended.calls, &ended.replies]) {
            let full = order.places.iter().filter(|(_, place)| place.is_some()).count();
            assert_eq!(full, order.len);
            assert!(order.places.len() <= 2 * order.len + 16);
        }
    }
}
