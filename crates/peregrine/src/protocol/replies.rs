//! A server's cache of replies, for protocols in which clients retransmit whole calls. With it, a call that a
//! client sends several times runs once, as long as the cache remembers the call.
//!
//! The idea of the cache is that of servers for NFS (Juszczak, 1989). It keeps what is small as long as
//! possible: if memory for replies is short, it discards an old reply, but still remembers the call. A
//! retransmission of such a call does not run. So the client does not learn the results, but the call does
//! not run twice.

use core::hash::{Hash, Hasher as _};
use core::marker::PhantomData;
use core::net::{IpAddr, SocketAddr};
use std::collections::hash_map::{self, HashMap};

use siphasher::sip::SipHasher13;

use super::exchange::time::{Moment, SECOND};
use super::lists::{Linked, Links, List, Slab};

/// One host may use at most the limits of the cache divided by this number.
pub(crate) const HOST_SHARE: usize = 4;

/// The number of bytes at the front of the content of a call that the checksum covers.
pub(crate) const CHECKED_BYTES: usize = 256;

/// Returns the bytes at the front of the content of a call that the checksum covers.
pub(crate) fn checked(content: &[u8]) -> &[u8] {
    &content[..content.len().min(CHECKED_BYTES)]
}

/// Returns a checksum of the bytes of all `parts`. It is keyed with a secret, so a client cannot compute
/// other bytes with the same checksum.
pub(crate) fn checksum(secret: &[u8; 16], parts: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(secret);
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

/// The machine of a client: its address, and the interface number of an IPv6 address that is valid on one
/// link only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Host(IpAddr, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Transport {
    /// The port of the client's socket.
    Datagram(u16),
    /// The port of the client's end of the connection.
    Stream(u16),
}

/// Where a call comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Peer {
    host: Host,
    transport: Transport,
}

impl Peer {
    /// Returns the peer that has sent a datagram from `from`.
    pub(crate) fn datagram(from: SocketAddr) -> Self {
        Self { host: Host::of(from), transport: Transport::Datagram(from.port()) }
    }

    /// Returns the peer at the other end of a TCP connection. The port counts, because two programs of one
    /// machine may send the same call. A client that has lost its connection and sends its calls again must
    /// connect from the same port.
    pub(crate) fn stream(from: SocketAddr) -> Self {
        Self { host: Host::of(from), transport: Transport::Stream(from.port()) }
    }
}

impl Host {
    fn of(from: SocketAddr) -> Self {
        let scope = match from {
            SocketAddr::V6(from) => from.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        Self(from.ip().to_canonical(), scope)
    }
}

/// What identifies a call: where it comes from, and the protocol's own numbers. A retransmission has the same
/// key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key<C> {
    pub(crate) peer: Peer,
    pub(crate) call: C,
}

/// The proof that the cache counts a call as running. The server gives it back to the cache, with the reply
/// or with the report that the call was not executed.
#[derive(Debug)]
#[must_use]
pub(crate) struct Ticket<C> {
    /// The number of the entry. An entry is not removed while its call runs.
    entry: u32,
    call: PhantomData<C>,
}

/// The limits of a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The largest number of remembered calls, including those that run.
    pub(crate) calls: usize,
    /// The largest number of bytes of all remembered replies together.
    pub(crate) bytes: usize,
    /// How long a call is remembered after it has ended, in nanoseconds. Clients must not retransmit for a
    /// longer time.
    pub(crate) age: u64,
}

impl Bounds {
    pub(crate) const DEFAULT: Self = Self { calls: 16_384, bytes: 16 << 20, age: 120 * SECOND };
}

#[derive(Debug)]
enum State {
    /// The call runs. Its newest copy came from this connection or socket.
    Running { from: u64 },
    /// The call has ended at this moment. The reply may have been discarded.
    Done { at: Moment, reply: Option<Box<[u8]>> },
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

/// A call that the cache remembers.
#[derive(Debug)]
struct Entry<C> {
    key: Key<C>,
    /// The number of the host's share.
    host: u32,
    state: State,
    /// The neighbours in the lists of all calls, of all replies, of the host's calls and of the host's
    /// replies.
    links: [Links; 4],
}

impl<C> Linked for Entry<C> {
    #[cfg(test)]
    fn links(&self, list: usize) -> &Links {
        &self.links[list]
    }

    fn links_mut(&mut self, list: usize) -> &mut Links {
        &mut self.links[list]
    }
}

type Entries<C> = Slab<Entry<C>>;

/// The calls of one host or of all hosts. Those that have ended are in lists, oldest first. Those that run
/// are only counted.
#[derive(Debug)]
struct Ended {
    calls: List,
    /// The calls of the list `calls` whose replies are still remembered.
    replies: List,
    bytes: usize,
    /// The number of calls that run.
    running: usize,
}

impl Ended {
    const fn of_all() -> Self {
        Self { calls: List::new(0), replies: List::new(1), bytes: 0, running: 0 }
    }

    const fn of_host() -> Self {
        Self { calls: List::new(2), replies: List::new(3), bytes: 0, running: 0 }
    }

    const fn len(&self) -> usize {
        self.calls.len() + self.running
    }

    /// Adds a call that has ended. `kept` is the number of bytes of its reply, or `None` if the reply is not
    /// kept.
    fn push<C>(&mut self, entries: &mut Entries<C>, entry: u32, kept: Option<usize>) {
        self.running -= 1;
        self.calls.push(entries, entry);
        if let Some(bytes) = kept {
            self.replies.push(entries, entry);
            self.bytes += bytes;
        }
    }

    fn remove_reply<C>(&mut self, entries: &mut Entries<C>, entry: u32, bytes: usize) {
        self.replies.remove(entries, entry);
        self.bytes -= bytes;
    }
}

/// The part of the cache that one host uses.
#[derive(Debug)]
struct Share {
    host: Host,
    ended: Ended,
}

/// The cache of a server. `C` is the part of a key that the protocol defines.
#[derive(Debug)]
pub(crate) struct Replies<C> {
    bounds: Bounds,
    entries: Entries<C>,
    /// The number of the entry of each call.
    numbers: HashMap<Key<C>, u32>,
    all: Ended,
    shares: Slab<Share>,
    /// The number of the share of each host.
    hosts: HashMap<Host, u32>,
}

impl<C: Copy + Eq + Hash> Replies<C> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            entries: Slab::default(),
            numbers: HashMap::new(),
            all: Ended::of_all(),
            shares: Slab::default(),
            hosts: HashMap::new(),
        }
    }

    /// Decides what to do with a call that has arrived. `from` is the number that the code of the
    /// path has given to the connection or socket at which the call arrived. [`end`](Self::end) returns this
    /// number.
    pub(crate) fn begin(&mut self, now: Moment, key: Key<C>, from: u64) -> Verdict<'_, C> {
        self.expire(now);
        let host = key.peer.host;
        let vacant = match self.numbers.entry(key) {
            hash_map::Entry::Occupied(known) => {
                let entry = *known.get();
                return self.verdict(entry, from);
            }
            hash_map::Entry::Vacant(vacant) => vacant,
        };
        let shares = &mut self.shares;
        let share = *self
            .hosts
            .entry(host)
            .or_insert_with(|| shares.insert(Share { host, ended: Ended::of_host() }));
        let state = State::Running { from };
        let entry = Entry { key, host: share, state, links: Default::default() };
        let entry = *vacant.insert(self.entries.insert(entry));
        self.all.running += 1;
        self.shares[share].ended.running += 1;
        let ticket = Ticket { entry, call: PhantomData };
        if !self.make_room(share) {
            self.not_executed(ticket);
            return Verdict::Full;
        }
        Verdict::Execute(ticket)
    }

    /// Returns what the server does with another copy of a call that the cache remembers, or `None` if it
    /// does not remember the call. `from` is the number of the connection or socket at which the copy
    /// arrived.
    pub(crate) fn look(&mut self, key: Key<C>, from: u64) -> Option<Verdict<'_, C>> {
        let entry = *self.numbers.get(&key)?;
        Some(self.verdict(entry, from))
    }

    fn verdict(&mut self, entry: u32, from: u64) -> Verdict<'_, C> {
        match &mut self.entries[entry].state {
            State::Running { from: newest } => {
                *newest = from;
                Verdict::InProgress
            }
            State::Done { reply: Some(reply), .. } => Verdict::Replay(reply),
            State::Done { reply: None, .. } => Verdict::Forgotten,
        }
    }

    /// Notes that a call has ended, and keeps a copy of its reply. A reply that is larger than the share of
    /// one host is not kept.
    ///
    /// Returns the number of the connection or socket at which the newest copy of the call arrived. The reply
    /// must be sent there: if the client has connected again while the call ran, the first connection is of
    /// no use any more.
    pub(crate) fn end(&mut self, now: Moment, ticket: Ticket<C>, reply: &[u8]) -> u64 {
        let number = ticket.entry;
        let kept = (reply.len() <= self.host_bytes()).then(|| Box::from(reply));
        let bytes = kept.is_some().then_some(reply.len());
        let entry = &mut self.entries[number];
        let host = entry.host;
        let before = core::mem::replace(&mut entry.state, State::Done { at: now, reply: kept });
        let State::Running { from } = before else {
            unreachable!("a ticket belongs to a call that runs")
        };
        self.all.push(&mut self.entries, number, bytes);
        self.shares[host].ended.push(&mut self.entries, number, bytes);
        while self.shares[host].ended.bytes > self.host_bytes() {
            self.discard_reply(self.shares[host].ended.replies.oldest());
        }
        while self.all.bytes > self.bounds.bytes {
            self.discard_reply(self.all.replies.oldest());
        }
        from
    }

    /// Forgets a call that was refused before its procedure began. A retransmission of the call runs.
    pub(crate) fn not_executed(&mut self, ticket: Ticket<C>) {
        let Entry { key, host, .. } = self.entries.remove(ticket.entry);
        self.numbers.remove(&key);
        self.all.running -= 1;
        self.shares[host].ended.running -= 1;
        self.drop_if_empty(host);
    }

    /// Forgets the calls that ended longer ago than [`Bounds::age`].
    pub(crate) fn expire(&mut self, now: Moment) {
        while let Some(oldest) = self.all.calls.oldest()
            && let State::Done { at, .. } = self.entries[oldest].state
            && now.since(at) >= self.bounds.age
        {
            self.forget(oldest);
        }
    }

    /// Returns the number of remembered calls, and the number of bytes of remembered replies.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.numbers.len(), self.all.bytes)
    }

    fn host_calls(&self) -> usize {
        (self.bounds.calls / HOST_SHARE).max(1)
    }

    fn host_bytes(&self) -> usize {
        self.bounds.bytes / HOST_SHARE
    }

    /// Forgets the oldest ended call of the host if the host has too many calls, and the oldest ended call of
    /// all hosts if the cache has too many. Returns `false` if no such call has ended.
    fn make_room(&mut self, share: u32) -> bool {
        let of_host = &self.shares[share].ended;
        if of_host.len() > self.host_calls() {
            let Some(oldest) = of_host.calls.oldest() else { return false };
            self.forget(oldest);
        }
        if self.all.len() > self.bounds.calls {
            let Some(oldest) = self.all.calls.oldest() else { return false };
            self.forget(oldest);
        }
        true
    }

    /// Drops the share of a host if nothing is left in it.
    fn drop_if_empty(&mut self, share: u32) {
        if self.shares[share].ended.len() == 0 {
            let Share { host, .. } = self.shares.remove(share);
            self.hosts.remove(&host);
        }
    }

    /// Discards the reply of a call that has ended. The call is still remembered.
    fn discard_reply(&mut self, oldest: Option<u32>) {
        let Some(number) = oldest else { return };
        let entry = &mut self.entries[number];
        let host = entry.host;
        let State::Done { reply, .. } = &mut entry.state else { return };
        let Some(reply) = reply.take() else { return };
        self.all.remove_reply(&mut self.entries, number, reply.len());
        self.shares[host].ended.remove_reply(&mut self.entries, number, reply.len());
    }

    /// Forgets a call that has ended.
    fn forget(&mut self, number: u32) {
        self.discard_reply(Some(number));
        let host = self.entries[number].host;
        self.all.calls.remove(&mut self.entries, number);
        self.shares[host].ended.calls.remove(&mut self.entries, number);
        let Entry { key, .. } = self.entries.remove(number);
        self.numbers.remove(&key);
        self.drop_if_empty(host);
    }

    /// Returns the number of hosts that have a share.
    #[cfg(test)]
    pub(crate) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Checks that all tables agree, and that the limits hold.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let mut bytes = 0;
        for (key, number) in &self.numbers {
            let entry = &self.entries[*number];
            assert!(entry.key == *key);
            assert_eq!(self.hosts.get(&key.peer.host), Some(&entry.host));
            if let State::Done { reply: Some(reply), .. } = &entry.state {
                bytes += reply.len();
            }
        }
        assert_eq!(bytes, self.all.bytes);
        assert_eq!(self.numbers.len(), self.entries.len());
        assert_eq!(self.hosts.len(), self.shares.len());
        assert_eq!(self.numbers.len(), self.all.len());
        assert!(self.numbers.len() <= self.bounds.calls && self.all.bytes <= self.bounds.bytes);
        let shares = || self.hosts.values().map(|share| &self.shares[*share].ended);
        assert_eq!(shares().map(|ended| ended.calls.len()).sum::<usize>(), self.all.calls.len());
        assert_eq!(
            shares().map(|ended| ended.replies.len()).sum::<usize>(),
            self.all.replies.len()
        );
        assert_eq!(shares().map(|ended| ended.running).sum::<usize>(), self.all.running);
        assert_eq!(shares().map(|ended| ended.bytes).sum::<usize>(), self.all.bytes);
        for ended in shares() {
            assert!(0 < ended.len() && ended.len() <= self.host_calls());
            assert!(ended.bytes <= self.host_bytes());
        }
        let is_done = |number: &u32| matches!(self.entries[*number].state, State::Done { .. });
        let has_reply = |number: &u32| {
            matches!(self.entries[*number].state, State::Done { reply: Some(_), .. })
        };
        for ended in shares().chain([&self.all]) {
            assert!(ended.calls.values(&self.entries).iter().all(is_done));
            assert!(ended.replies.values(&self.entries).iter().all(has_reply));
        }
    }
}
