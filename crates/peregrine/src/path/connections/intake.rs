//! The intake: bounds the memory of calls that have not begun to run, in total and for each client host. Such
//! calls are messages that have arrived only in part, and calls that wait for a permit.
//!
//! A message of more than a few kilobytes reserves memory as its bytes arrive. An announced size alone
//! reserves nothing. The message keeps its [`Reservation`] until its procedure is about to run. If a host
//! has used its share of the memory, a connection of this host that needs more memory is *held*: the server
//! does not receive from this connection until memory is free again. So the client has to wait. The share
//! of a host is at most a quarter of the memory that is left. A few hostile hosts thus leave memory for
//! others.
//!
//! Two messages must not wait for each other's memory:
//!
//! * Messages that have arrived only in part must not wait for each other. So one message of each host may
//!   exceed the share of the host, and one message of all hosts may exceed the total.
//! * A call that waits for a permit waits until running procedures end. These procedures may wait for a
//!   nested call that has not arrived yet. Only a complete message shows whether it is a nested call. So a
//!   message may arrive by an *extension*, beyond the bound, if it has been held for [`STUCK`] while threads
//!   wait inside procedures. Each host may have one extension. There are at most as many extensions as there
//!   are threads that wait inside procedures. A nested call that arrived by an extension runs, although its
//!   memory exceeds the bound. Any other call that arrived by an extension is refused if it would have to
//!   wait. If no thread waited inside a procedure when a message began to arrive, the message cannot be a
//!   nested call. Such a message gets no extension. The message stays held, and is not refused.
//!
//! A second intake bounds the memory of replies to deferred calls. There is no extension for a reply, and no
//! connection is held: without memory for its result, a call gets a refusal.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::limits;
use crate::sync::{Mutex, MutexGuard};

/// How long a message is held before it may arrive by an extension.
pub(in crate::path) const STUCK: Duration = Duration::from_millis(100);

/// The reservations of all connections.
#[derive(Default)]
pub(crate) struct Intake(Mutex<State>);

/// A connection that the intake can hold until memory is free.
pub(crate) trait Resume: Send + Sync {
    /// Returns the flag that is set while the connection waits for memory.
    fn waits(&self) -> &AtomicBool;

    /// Lets a thread receive from the connection, because memory was released.
    fn resume(self: Arc<Self>);
}

/// The memory that is reserved for one message. Dropping this value releases the memory.
pub(crate) struct Reservation {
    intake: Arc<Intake>,
    host: IpAddr,
    /// The number of this reservation. It is unique in the intake.
    number: u64,
    bytes: usize,
}

/// The largest numbers of reserved bytes.
#[derive(Clone, Copy)]
struct Bounds {
    all: usize,
    per_host: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { all: limits::PARTIAL_BYTES_MAX, per_host: limits::PARTIAL_BYTES_PER_HOST }
    }
}

#[derive(Default)]
struct State {
    bounds: Bounds,
    bytes: usize,
    hosts: HashMap<IpAddr, Host>,
    /// The number of the one reservation that may grow although all memory is in use.
    first: Option<u64>,
    /// The number of messages that currently arrive by an extension.
    extensions: u32,
    /// Connections that wait for memory.
    held: VecDeque<Weak<dyn Resume>>,
    /// The number of the next reservation.
    next: u64,
}

#[derive(Default)]
struct Host {
    bytes: usize,
    /// The number of the one reservation that may grow although the host has used its share.
    first: Option<u64>,
    /// The number of the reservation whose message arrives by an extension.
    extension: Option<u64>,
}

impl Host {
    const fn is_idle(&self) -> bool {
        self.bytes == 0 && self.first.is_none() && self.extension.is_none()
    }

    /// Returns whether the host's share allows `more` further bytes. `left` is the number of bytes that are
    /// left for all hosts together.
    fn shares(&self, left: usize, more: usize, bounds: Bounds) -> bool {
        self.bytes + more <= (left / 4).min(bounds.per_host)
    }
}

impl State {
    /// Reserves `more` bytes. Returns false if no memory is left for the message. `extensions` is the largest
    /// number of messages that may now arrive by an extension, including this message.
    fn reserve(&mut self, host: IpAddr, number: u64, more: usize, extensions: u32) -> bool {
        let bounds = self.bounds;
        let left = bounds.all.saturating_sub(self.bytes);
        let theirs = self.hosts.entry(host).or_default();
        let within = more <= left
            && (theirs.shares(left, more, bounds) || is_or_becomes(&mut theirs.first, number));
        if !within && !is_or_becomes(&mut self.first, number) && theirs.extension != Some(number) {
            if theirs.extension.is_some() || self.extensions >= extensions {
                if theirs.is_idle() {
                    self.hosts.remove(&host);
                }
                return false;
            }
            theirs.extension = Some(number);
            self.extensions += 1;
        }
        theirs.bytes += more;
        self.bytes += more;
        true
    }

    /// Returns whether a complete message may keep its memory while its call waits for a permit. A message
    /// that arrived by an extension may do so only if it now fits into the memory without an extension. In
    /// that case, its extension ends.
    fn may_wait(&mut self, host: IpAddr, number: u64, bytes: usize) -> bool {
        let Some(theirs) = self.hosts.get_mut(&host) else { return true };
        if theirs.extension != Some(number) {
            return true;
        }
        let left = self.bounds.all.saturating_sub(self.bytes - bytes);
        let others = Host { bytes: theirs.bytes - bytes, ..Host::default() };
        let room = bytes <= left && others.shares(left, bytes, self.bounds);
        if room {
            theirs.extension = None;
            self.extensions -= 1;
        }
        room
    }

    /// Releases `fewer` bytes of a reservation. `over` is true if the reservation ends.
    fn release(&mut self, host: IpAddr, number: u64, fewer: usize, over: bool) {
        self.bytes -= fewer;
        let ended = |slot: &mut Option<u64>| slot.take_if(|one| over && *one == number).is_some();
        ended(&mut self.first);
        if let Some(theirs) = self.hosts.get_mut(&host) {
            theirs.bytes -= fewer;
            ended(&mut theirs.first);
            self.extensions -= u32::from(ended(&mut theirs.extension));
            if theirs.is_idle() {
                self.hosts.remove(&host);
            }
        }
    }
}

/// Returns whether the reservation `number` equals `first`, the only reservation that may exceed a bound. If
/// there is no `first` yet, `number` becomes `first`.
fn is_or_becomes(first: &mut Option<u64>, number: u64) -> bool {
    *first.get_or_insert(number) == number
}

impl Intake {
    /// Returns an intake for replies to deferred calls.
    pub(in crate::path) fn of_replies() -> Arc<Self> {
        let (all, per_host) = (limits::UNSENT_BYTES_MAX, limits::UNSENT_BYTES_PER_HOST);
        let bounds = Bounds { all, per_host };
        Arc::new(Self(Mutex::new(State { bounds, ..State::default() })))
    }

    #[track_caller]
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Reserves memory for a message that begins to arrive. Returns `None` if no memory is left for the
    /// message. `extensions` has the same meaning as in [`Reservation::grow`].
    pub(in crate::path) fn reserve(
        self: &Arc<Self>,
        host: IpAddr,
        bytes: usize,
        extensions: u32,
    ) -> Option<Reservation> {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let reserved = state.reserve(host, number, bytes, extensions);
        drop(state);
        reserved.then(|| Reservation { intake: Arc::clone(self), host, number, bytes })
    }

    /// Holds a connection until memory is released.
    pub(crate) fn hold(&self, connection: Arc<dyn Resume>) {
        let mut state = self.state();
        // The queue contains a connection only once, even if the connection is held several times.
        if !connection.waits().swap(true, Ordering::AcqRel) {
            state.held.push_back(Arc::downgrade(&connection));
        }
        drop(state);
    }

    /// Returns whether any connection waits for memory.
    pub(crate) fn is_short(&self) -> bool {
        !self.state().held.is_empty()
    }

    /// Releases memory, and lets one held connection try again.
    fn release(&self, host: IpAddr, number: u64, fewer: usize, over: bool) {
        let mut state = self.state();
        state.release(host, number, fewer, over);
        let next = core::iter::from_fn(|| state.held.pop_front()).find_map(|held| held.upgrade());
        drop(state);
        if let Some(next) = next {
            next.waits().store(false, Ordering::Release);
            next.resume();
        }
    }
}

impl Reservation {
    /// Returns the number of reserved bytes.
    pub(in crate::path) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves memory for `more` further bytes of the message. Returns false if no memory is left for these
    /// bytes. `extensions` is the largest number of messages that may now arrive by an extension, including
    /// this message.
    pub(in crate::path) fn grow(&mut self, more: usize, extensions: u32) -> bool {
        let grown = self.intake.state().reserve(self.host, self.number, more, extensions);
        self.bytes += if grown { more } else { 0 };
        grown
    }

    /// Releases the reserved memory beyond the first `to` bytes.
    pub(in crate::path) fn shrink(&mut self, to: usize) {
        if to < self.bytes {
            self.intake.release(self.host, self.number, self.bytes - to, false);
            self.bytes = to;
        }
    }

    /// Returns whether the call of this complete message may wait for a permit.
    pub(in crate::path) fn may_wait(&self) -> bool {
        self.intake.state().may_wait(self.host, self.number, self.bytes)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.intake.release(self.host, self.number, self.bytes, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const MIB: usize = 1 << 20;

    fn host(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn hosts_that_reserve_all_they_can_leave_memory_for_others() {
        let mut state = State::default();
        let mut connection = 0;
        let mut granted = Vec::new();
        for number in 0..20 {
            let mut bytes = 0;
            loop {
                connection += 1;
                // The first reservation that exceeds the share of the host is granted. After that, the loop
                // ends.
                let first = state.hosts.get(&host(number)).is_some_and(|host| host.first.is_some());
                if first || !state.reserve(host(number), connection, MIB / 4, 0) {
                    break;
                }
                bytes += MIB / 4;
            }
            granted.push(bytes);
        }
        assert!((48 * MIB..=64 * MIB).contains(&granted[0]), "{granted:?}");
        assert!(granted.iter().all(|bytes| *bytes >= MIB / 2), "{granted:?}");
        assert!(granted.is_sorted_by(|a, b| a >= b), "{granted:?}");
        assert!(state.bytes <= limits::PARTIAL_BYTES_MAX);
    }

    #[test]
    fn partly_arrived_messages_do_not_wait_for_each_other() {
        let mut state = State::default();
        // If there is memory, each message first reserves three quarters of its size. After this loop, all
        // memory is in use.
        let connections = 0..2000_u64;
        let of = |connection: u64| host((connection / 200) as u32);
        let mut parts = vec![0; 2000];
        for connection in connections.clone() {
            if state.reserve(of(connection), connection, 3 * MIB / 4, 0) {
                parts[connection as usize] = 3 * MIB / 4;
            }
        }
        let mut left: Vec<u64> = connections.collect();
        while !left.is_empty() {
            let before = left.len();
            left.retain(|&connection| {
                let part = &mut parts[connection as usize];
                if !state.reserve(of(connection), connection, MIB - *part, 0) {
                    return true;
                }
                state.release(of(connection), connection, MIB, true);
                false
            });
            assert!(left.len() < before, "{before} messages wait for each other");
        }
        assert_eq!((state.bytes, state.hosts.len(), state.first), (0, 0, None));
    }

    #[test]
    fn each_host_has_one_extension_which_ends_with_its_reservation() {
        let mut state = State::default();
        let all = limits::PARTIAL_BYTES_MAX;
        // Two messages of other hosts together reserve more memory than the bound for all hosts.
        assert!(state.reserve(host(9), 1, all, 0) && state.reserve(host(8), 2, MIB, 0));
        assert!(!state.reserve(host(1), 3, MIB, 0));
        assert!(state.reserve(host(1), 3, MIB, 2) && state.reserve(host(1), 3, MIB, 0));
        assert!(!state.reserve(host(1), 4, MIB, 2), "its host has an extension already");
        assert!(state.reserve(host(2), 5, MIB, 2));
        assert!(
            !state.reserve(host(3), 6, MIB, 2),
            "there are as many extensions as threads that wait inside procedures"
        );
        assert!(!state.may_wait(host(1), 3, 2 * MIB) && state.may_wait(host(9), 1, all));
        state.release(host(9), 1, all, true);
        assert!(state.may_wait(host(1), 3, 2 * MIB), "there is memory for the message now");
        assert_eq!(state.extensions, 1);
        state.release(host(2), 5, MIB, true);
        state.release(host(1), 3, 2 * MIB, true);
        state.release(host(8), 2, MIB, true);
        assert_eq!((state.bytes, state.hosts.len(), state.extensions), (0, 0, 0));
    }

    #[test]
    fn panic_of_a_thread_ends_its_reservation() {
        let intake = Arc::<Intake>::default();
        let ends = std::panic::catch_unwind(|| {
            let _reserved = intake.reserve(host(1), MIB, 0).expect("memory is left");
            panic!("as a service thread does");
        });
        assert!(ends.is_err());
        let state = intake.state();
        assert_eq!((state.bytes, state.hosts.len()), (0, 0));
    }
}
