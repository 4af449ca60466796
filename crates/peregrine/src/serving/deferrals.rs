//! [`Deferrals`] counts and bounds the deferred calls of a server, on all paths.
//!
//! Two numbers are bounded: the number of deferred calls, and the number of bytes of their messages. One
//! client may use at most a quarter of what is left, so a few hostile clients leave something for others. A
//! client is a process of this machine, a host, or a station of an Ethernet link. The first deferred call of
//! a client may exceed its quarter of the bytes.

use core::net::IpAddr;
use std::collections::HashMap;
use std::sync::Arc;

use super::binding_table::BindingRow;
use crate::address::host_of;
use crate::call::{Account, Answer, Batched, CallerInfo, InFlight, InFlightNow};
use crate::counters::{Counting, Page, ThreadKind};
use crate::limits;
use crate::sync::Mutex;
use crate::sys;

/// The deferred calls of one server.
pub(crate) struct Deferrals {
    pending: Mutex<Pending>,
    /// Any thread may send a reply, so these counters are shared.
    counting: Mutex<Counting>,
    /// The one-way calls and the streams of the server.
    in_flight: Arc<InFlight>,
}

/// The deferred calls without a reply.
#[derive(Default)]
struct Pending {
    all: Share,
    /// The number of calls that a stopping server does not wait for.
    held: usize,
    /// The number of deferred calls that carry other calls or items: batches, and messages of streams.
    carriers: usize,
    of: HashMap<Client, Share>,
}

/// A number of deferred calls, and the number of bytes of their messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    calls: usize,
    bytes: usize,
}

/// What counts as one client for the bounds of deferred calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Client {
    Process(u32),
    Host(IpAddr),
    Station([u8; 6]),
}

/// A deferred call that is counted. The call is pending until this value is dropped.
pub(crate) struct Deferral {
    deferrals: Arc<Deferrals>,
    client: Client,
    /// The binding of the call. `None` after the reply was counted.
    row: Option<Arc<BindingRow>>,
    /// The number of bytes of the call's message.
    bytes: usize,
    begun: u64,
    /// Whether a server that stops waits for the reply.
    awaited: bool,
    /// Whether the call carries other calls or items of streams, and is left out of the counters itself.
    carries: bool,
}

/// The [`Account`] of a binding: counts deferred calls for the binding's client.
#[derive(Clone)]
pub(crate) struct RowAccount {
    deferrals: Arc<Deferrals>,
    client: Client,
    row: Arc<BindingRow>,
}

impl Client {
    fn of(caller: &CallerInfo) -> Self {
        match (caller.hardware, caller.from) {
            (Some(address), _) => Self::Station(address),
            (None, Some(from)) => Self::Host(host_of(from.ip())),
            (None, None) => Self::Process(caller.process),
        }
    }
}

impl Pending {
    /// Adds a call of a client. Returns false if the bounds do not permit this call.
    fn add(&mut self, client: Client, bytes: usize) -> bool {
        let calls_left = limits::DEFERRED_MAX - self.all.calls;
        let bytes_left = limits::DEFERRED_BYTES_MAX - self.all.bytes;
        let before = self.of.get(&client).copied().unwrap_or_default();
        let with = Share { calls: before.calls + 1, bytes: before.bytes.saturating_add(bytes) };
        let is_first = before.calls == 0;
        let fits = calls_left > 0
            && bytes <= bytes_left
            && (is_first || with.calls <= calls_left / 4 && with.bytes <= bytes_left / 4);
        if fits {
            self.all = Share { calls: self.all.calls + 1, bytes: self.all.bytes + bytes };
            self.of.insert(client, with);
        }
        fits
    }

    fn remove(&mut self, client: Client, bytes: usize) {
        let Some(share) = self.of.get_mut(&client) else { return };
        share.calls -= 1;
        share.bytes -= bytes;
        if share.calls == 0 {
            self.of.remove(&client);
        }
        self.all = Share { calls: self.all.calls - 1, bytes: self.all.bytes - bytes };
    }
}

impl Deferrals {
    pub(crate) fn new(page: &Arc<Page>) -> Arc<Self> {
        let counting = Mutex::new(Counting::new(page, ThreadKind::Local));
        Arc::new(Self { pending: Mutex::default(), counting, in_flight: Arc::default() })
    }

    /// Returns the number of deferred calls for which a server that stops waits.
    pub(crate) fn pending(&self) -> usize {
        let pending = self.pending.lock();
        pending.all.calls - pending.held
    }

    /// Returns how many calls are deferred. Calls that carry other calls or items of streams do not count.
    pub(crate) fn deferred(&self) -> u64 {
        let pending = self.pending.lock();
        (pending.all.calls - pending.carriers) as u64
    }

    /// Returns whether no further call may be deferred.
    pub(crate) fn is_full(&self) -> bool {
        self.pending.lock().all.calls >= limits::DEFERRED_MAX
    }

    /// Returns how many one-way calls and streams the server has.
    pub(crate) fn in_flight(&self) -> InFlightNow {
        self.in_flight.now()
    }

    /// Counts a call of a binding as deferred. `bytes` is the number of bytes of the call's message. Returns
    /// `None` if the bounds do not permit this call.
    pub(crate) fn begin(self: &Arc<Self>, row: Arc<BindingRow>, bytes: usize) -> Option<Deferral> {
        let client = Client::of(&row.caller);
        if !self.pending.lock().add(client, bytes) {
            return None;
        }
        let (deferrals, row) = (Arc::clone(self), Some(row));
        let (begun, awaited, carries) = (sys::boot_ns(), true, false);
        Some(Deferral { deferrals, client, row, bytes, begun, awaited, carries })
    }

    /// Returns the [`Account`] of a binding, which counts deferred calls for the binding's client.
    pub(crate) fn account(self: &Arc<Self>, row: Arc<BindingRow>) -> RowAccount {
        let client = Client::of(&row.caller);
        RowAccount { deferrals: Arc::clone(self), client, row }
    }

    /// Counts packets of replies that were retransmitted.
    pub(crate) fn resent(&self, packets: u64) {
        if packets > 0 {
            self.counting.lock().resent(packets);
        }
    }
}

impl Deferral {
    /// Counts the reply, which has been sent. `bytes` is the size of the result.
    pub(crate) fn end(mut self, answer: Answer, bytes: u64) {
        self.count(answer, bytes);
    }

    /// Counts the reply before it is sent. The call stays deferred until this value is dropped, but does not
    /// keep the exported object alive any more.
    pub(crate) fn count(&mut self, answer: Answer, bytes: u64) {
        let Some(row) = self.row.take() else { return };
        let took = sys::boot_ns().saturating_sub(self.begun);
        let mut counting = self.deferrals.counting.lock();
        counting.end_deferred(&row.tally, took, answer, self.bytes as u64, bytes);
        drop(counting);
        // The row may be the last owner of the exported object, so it is dropped after the lock is released.
        drop(row);
    }

    /// Returns whether a server that stops waits for the reply.
    pub(crate) const fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// Leaves the call out of the counters. A server that stops waits for the end of the call only if
    /// `awaited` is true.
    pub(crate) fn leave_uncounted(&mut self, awaited: bool) {
        self.row = None;
        let mut pending = self.deferrals.pending.lock();
        if !core::mem::replace(&mut self.carries, true) {
            pending.carriers += 1;
        }
        if self.awaited && !awaited {
            self.awaited = false;
            pending.held += 1;
        }
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        let mut pending = self.deferrals.pending.lock();
        pending.remove(self.client, self.bytes);
        pending.held -= usize::from(!self.awaited);
        pending.carriers -= usize::from(self.carries);
    }
}

impl Account for RowAccount {
    fn defer(&self, bytes: usize) -> bool {
        self.deferrals.pending.lock().add(self.client, bytes)
    }

    fn release(&self, bytes: usize) {
        self.deferrals.pending.lock().remove(self.client, bytes);
    }

    fn count(&self, batched: &Batched) {
        self.deferrals.counting.lock().end_batched(&self.row.tally, batched);
    }

    fn in_flight(&self) -> Arc<InFlight> {
        Arc::clone(&self.deferrals.in_flight)
    }

    fn keep(&self) -> Arc<dyn Account> {
        Arc::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: Client = Client::Process(1);
    const HONEST: Client = Client::Process(2);

    /// Adds calls of a client until no more fit. Returns the number of added calls.
    fn fill(pending: &mut Pending, client: Client, bytes: usize) -> usize {
        (0..limits::DEFERRED_MAX).take_while(|_| pending.add(client, bytes)).count()
    }

    #[test]
    fn client_with_many_deferred_calls_leaves_most_for_others() {
        let mut pending = Pending::default();
        let hostile = fill(&mut pending, HOSTILE, 0);
        let honest = fill(&mut pending, HONEST, 0);
        assert_eq!(hostile, limits::DEFERRED_MAX / 5);
        assert_eq!(honest, (limits::DEFERRED_MAX - hostile) / 5);
        (0..hostile).for_each(|_| pending.remove(HOSTILE, 0));
        (0..honest).for_each(|_| pending.remove(HONEST, 0));
        assert_eq!((pending.all, pending.of.len()), (Share::default(), 0));
    }

    #[test]
    fn client_with_large_deferred_calls_leaves_most_for_others() {
        let mut pending = Pending::default();
        let (large, most) = (1 << 20, limits::DEFERRED_BYTES_MAX);
        assert_eq!(fill(&mut pending, HOSTILE, large), most / large / 5);
        let left = most - pending.all.bytes;
        assert!(pending.add(HONEST, left / 2), "the first call of a client may be larger");
        assert!(!pending.add(HONEST, 1));
        assert!(!pending.add(Client::Process(3), left), "all bytes together are bounded");
    }

    #[test]
    fn many_hostile_clients_leave_a_call_for_each_other_client() {
        let mut pending = Pending::default();
        for process in 0..30 {
            fill(&mut pending, Client::Process(process), 0);
        }
        let others = 100..100 + (limits::DEFERRED_MAX - pending.all.calls) as u32;
        assert!(others.len() > 100);
        assert!(others.clone().all(|process| pending.add(Client::Process(process), 0)));
        assert!(!pending.add(Client::Process(others.end), 0));
    }

    #[test]
    fn processes_and_hosts_share_the_bound() {
        let caller = |process, from: Option<&str>, hardware| CallerInfo {
            path: crate::call::PathKind::Local,
            export: Box::default(),
            process,
            user: 0,
            group: 0,
            from: from.map(|from| from.parse().unwrap()),
            hardware,
            claimed: None,
            identity: None,
            ending: None,
            carried: None,
            account: Default::default(),
        };
        assert_eq!(Client::of(&caller(1, None, None)), HOSTILE);
        // Over a network, a client can claim any process number. So this number does not distinguish clients.
        let one = Client::of(&caller(1, Some("192.0.2.1:7"), None));
        assert_eq!(one, Client::of(&caller(2, Some("192.0.2.1:8"), None)));
        assert_eq!(one, Client::of(&caller(2, Some("[::ffff:192.0.2.1]:8"), None)));
        // One host can use all addresses of a /64 network.
        let one = Client::of(&caller(1, Some("[2001:db8::1]:7"), None));
        assert_eq!(one, Client::of(&caller(1, Some("[2001:db8::2]:7"), None)));
        assert_ne!(one, Client::of(&caller(1, Some("[2001:db8:0:1::1]:7"), None)));
        let station = Some([2; 6]);
        assert_eq!(Client::of(&caller(1, None, station)), Client::of(&caller(2, None, station)));
    }
}
