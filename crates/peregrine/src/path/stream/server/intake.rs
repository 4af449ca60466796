//! The intake: how many bytes of calls that have not begun to run the connections of a server hold, in
//! all and for each host. These are messages that have not come whole, and calls that wait for a permit.
//!
//! A message of more than a few kilobytes reserves memory as it comes, never as it was announced. It
//! keeps its [`Reservation`] until its procedure is about to run. Where its host has had its share, the
//! connection is *held*: the server does not read it until memory is free again, so its client has to
//! wait. A host's share is at most a quarter of what is left, so a few hostile hosts leave room for
//! others.
//!
//! Nothing may wait for memory that waits for it in turn:
//!
//! * Messages of which a part is there must not wait for each other. So one message of each host may
//!   grow beyond the host's share, and one of all beyond the whole.
//! * A call that waits for a permit waits for procedures that run. Those may wait for a nested call
//!   that has not come yet. Only a whole message tells that it is a nested call. So when a message has
//!   been held for [`STUCK`] while threads wait inside procedures, it may come by an *extension*: one
//!   message of each host, and no more than there are such threads. A nested call then runs beyond the
//!   bound. Another call that came so is refused if it would have to wait. A message that began to come
//!   while no thread waited inside is no nested call, and gets no extension: it is held, not refused.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::limits;
use crate::sync::{Mutex, MutexGuard};

/// How long a message is held before it may come by an extension.
pub(super) const STUCK: Duration = Duration::from_millis(100);

/// Reservations of all connections.
#[derive(Default)]
pub(crate) struct Intake(Mutex<State>);

/// A connection that can be held.
pub(crate) trait Resume: Send + Sync {
    /// Whether it is among those that wait for memory.
    fn waits(&self) -> &AtomicBool;

    /// Memory was given back: has a thread read on.
    fn resume(self: Arc<Self>);
}

/// Memory that one message holds, until this is dropped.
pub(crate) struct Reservation {
    intake: Arc<Intake>,
    host: IpAddr,
    /// Differs from that of every other reservation of this intake.
    number: u64,
    bytes: usize,
}

#[derive(Default)]
struct State {
    bytes: usize,
    hosts: HashMap<IpAddr, Host>,
    /// The reservation that may grow although all memory is taken.
    first: Option<u64>,
    /// Messages that come by an extension.
    extensions: u32,
    /// Connections that wait for memory.
    held: VecDeque<Weak<dyn Resume>>,
    /// The number of the next reservation.
    next: u64,
}

#[derive(Default)]
struct Host {
    bytes: usize,
    /// The reservation that may grow although the host has had its share.
    first: Option<u64>,
    /// The reservation that is an extension.
    extension: Option<u64>,
}

impl Host {
    const fn is_idle(&self) -> bool {
        self.bytes == 0 && self.first.is_none() && self.extension.is_none()
    }

    /// Whether so many bytes more are within its share.
    fn shares(&self, left: usize, more: usize) -> bool {
        self.bytes + more <= (left / 4).min(limits::PARTIAL_BYTES_PER_HOST)
    }
}

impl State {
    /// Reserves memory; false if there is none. `extensions`: how many messages may come by an
    /// extension now, this one among them.
    fn reserve(&mut self, host: IpAddr, number: u64, more: usize, extensions: u32) -> bool {
        let left = limits::PARTIAL_BYTES_MAX.saturating_sub(self.bytes);
        let theirs = self.hosts.entry(host).or_default();
        let within =
            more <= left && (theirs.shares(left, more) || is_or_becomes(&mut theirs.first, number));
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

    /// Whether a message that has come whole may keep its memory while its call waits: not if it came
    /// by an extension, and there is no room for it without.
    fn may_wait(&mut self, host: IpAddr, number: u64, bytes: usize) -> bool {
        let Some(theirs) = self.hosts.get_mut(&host) else { return true };
        if theirs.extension != Some(number) {
            return true;
        }
        let left = limits::PARTIAL_BYTES_MAX.saturating_sub(self.bytes - bytes);
        let others = Host { bytes: theirs.bytes - bytes, ..Host::default() };
        let room = bytes <= left && others.shares(left, bytes);
        if room {
            theirs.extension = None;
            self.extensions -= 1;
        }
        room
    }

    /// Gives memory back; `over`: the reservation ends.
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

/// Whether a reservation is the one that is let through first; it becomes so if there is none.
fn is_or_becomes(first: &mut Option<u64>, number: u64) -> bool {
    *first.get_or_insert(number) == number
}

impl Intake {
    #[track_caller]
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Reserves memory for a message that begins to come; `None` if there is none. `extensions` as
    /// for [`Reservation::grow`].
    pub(super) fn reserve(
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

    /// A connection waits for memory.
    pub(crate) fn hold(&self, connection: Arc<dyn Resume>) {
        let mut state = self.state();
        // Once only, however often it tries in between.
        if !connection.waits().swap(true, Ordering::AcqRel) {
            state.held.push_back(Arc::downgrade(&connection));
        }
        drop(state);
    }

    /// Whether connections wait for memory.
    pub(crate) fn is_short(&self) -> bool {
        !self.state().held.is_empty()
    }

    /// Memory was given back: a connection that was held tries again.
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
    /// Bytes that it holds.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves memory for more of the message; false if there is none. `extensions`: how many
    /// messages may come by an extension now, this one among them.
    pub(super) fn grow(&mut self, more: usize, extensions: u32) -> bool {
        let grown = self.intake.state().reserve(self.host, self.number, more, extensions);
        self.bytes += if grown { more } else { 0 };
        grown
    }

    /// Gives back what is not needed of it.
    pub(super) fn shrink(&mut self, to: usize) {
        if to < self.bytes {
            self.intake.release(self.host, self.number, self.bytes - to, false);
            self.bytes = to;
        }
    }

    /// Whether the call, which has come whole, may wait for a permit.
    pub(super) fn may_wait(&self) -> bool {
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
    fn hosts_that_take_all_they_can_leave_room_for_others() {
        let mut state = State::default();
        let mut connection = 0;
        let mut granted = Vec::new();
        for number in 0..20 {
            let mut bytes = 0;
            loop {
                connection += 1;
                // The first that is refused becomes the one which may grow.
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
    fn messages_that_are_there_in_part_do_not_wait_for_each_other() {
        let mut state = State::default();
        // Three quarters of each message are there when all memory is taken.
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
    fn extension_is_one_of_each_host_and_ends_with_its_reservation() {
        let mut state = State::default();
        let all = limits::PARTIAL_BYTES_MAX;
        // Two messages of other hosts take all memory, and more than it.
        assert!(state.reserve(host(9), 1, all, 0) && state.reserve(host(8), 2, MIB, 0));
        assert!(!state.reserve(host(1), 3, MIB, 0));
        assert!(state.reserve(host(1), 3, MIB, 2) && state.reserve(host(1), 3, MIB, 0));
        assert!(!state.reserve(host(1), 4, MIB, 2), "its host has one");
        assert!(state.reserve(host(2), 5, MIB, 2));
        assert!(!state.reserve(host(3), 6, MIB, 2), "as many as threads wait inside");
        assert!(!state.may_wait(host(1), 3, 2 * MIB) && state.may_wait(host(9), 1, all));
        state.release(host(9), 1, all, true);
        assert!(state.may_wait(host(1), 3, 2 * MIB), "there is room for it now");
        assert_eq!(state.extensions, 1);
        state.release(host(2), 5, MIB, true);
        state.release(host(1), 3, 2 * MIB, true);
        state.release(host(8), 2, MIB, true);
        assert_eq!((state.bytes, state.hosts.len(), state.extensions), (0, 0, 0));
    }

    #[test]
    fn reservation_ends_with_the_thread_that_panics() {
        let intake = Arc::<Intake>::default();
        let ends = std::panic::catch_unwind(|| {
            let _reserved = intake.reserve(host(1), MIB, 0).expect("room");
            panic!("as a service thread does");
        });
        assert!(ends.is_err());
        let state = intake.state();
        assert_eq!((state.bytes, state.hosts.len()), (0, 0));
    }
}
