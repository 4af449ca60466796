//! The intake: how many bytes of messages that have not come whole the connections of a server hold,
//! in all and for each host.
//!
//! A message of more than a few kilobytes reserves memory as it comes, never as it was announced. Where
//! its host has had its share, the connection is *held*: it is not read until memory is free again,
//! so its client has to wait. A host's share is at most a quarter of what is left, so a few hostile
//! hosts leave room for others. Messages of which a part is there must not wait for each other:
//! one of each host may grow beyond the host's share, and one of all beyond the whole.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};

use super::network::Line;
use crate::limits;
use crate::sync::{Mutex, MutexGuard};

/// Reservations of all connections.
#[derive(Default)]
pub(super) struct Intake(Mutex<State>);

#[derive(Default)]
struct State {
    bytes: usize,
    hosts: HashMap<IpAddr, Host>,
    /// The connection whose message may grow although all memory is taken.
    first: Option<u64>,
    /// Connections that wait for memory.
    held: VecDeque<Weak<Line>>,
}

#[derive(Default)]
struct Host {
    bytes: usize,
    /// The connection whose message may grow although the host has had its share.
    first: Option<u64>,
}

impl State {
    /// Reserves memory for the message that a connection receives; false if there is none for it.
    fn reserve(&mut self, host: IpAddr, connection: u64, more: usize) -> bool {
        let left = limits::PARTIAL_BYTES_MAX.saturating_sub(self.bytes);
        let theirs = self.hosts.entry(host).or_default();
        let within = more <= left && {
            let share = (left / 4).min(limits::PARTIAL_BYTES_PER_HOST);
            theirs.bytes + more <= share || is_or_becomes(&mut theirs.first, connection)
        };
        if !within && !is_or_becomes(&mut self.first, connection) {
            if theirs.bytes == 0 && theirs.first.is_none() {
                self.hosts.remove(&host);
            }
            return false;
        }
        theirs.bytes += more;
        self.bytes += more;
        true
    }

    /// Gives memory back; `over`: the connection holds none any more.
    fn release(&mut self, host: IpAddr, connection: u64, fewer: usize, over: bool) {
        self.bytes -= fewer;
        let ended = |first: &mut Option<u64>| first.take_if(|first| over && *first == connection);
        let _ = ended(&mut self.first);
        if let Some(theirs) = self.hosts.get_mut(&host) {
            theirs.bytes -= fewer;
            let _ = ended(&mut theirs.first);
            if theirs.bytes == 0 && theirs.first.is_none() {
                self.hosts.remove(&host);
            }
        }
    }
}

/// Whether a connection is the one that is let through first; it becomes so if there is none.
fn is_or_becomes(first: &mut Option<u64>, connection: u64) -> bool {
    *first.get_or_insert(connection) == connection
}

impl Intake {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves memory for the message that a connection receives; false if there is none for it.
    pub(super) fn reserve(&self, host: IpAddr, connection: u64, more: usize) -> bool {
        self.state().reserve(host, connection, more)
    }

    /// Gives memory back; `over`: the connection holds none any more. Returns a connection that was
    /// held and may now try again.
    pub(super) fn release(
        &self,
        host: IpAddr,
        connection: u64,
        fewer: usize,
        over: bool,
    ) -> Option<Arc<Line>> {
        let mut state = self.state();
        state.release(host, connection, fewer, over);
        let line =
            core::iter::from_fn(|| state.held.pop_front()).find_map(|line| line.upgrade())?;
        line.waits.store(false, Ordering::Release);
        Some(line)
    }

    /// A connection waits for memory.
    pub(super) fn hold(&self, line: &Arc<Line>) {
        let mut state = self.state();
        // Once only, however often it tries in between.
        if !line.waits.swap(true, Ordering::AcqRel) {
            state.held.push_back(Arc::downgrade(line));
        }
    }

    /// Whether connections wait for memory.
    pub(super) fn is_short(&self) -> bool {
        !self.state().held.is_empty()
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
                if first || !state.reserve(host(number), connection, MIB / 4) {
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
            if state.reserve(of(connection), connection, 3 * MIB / 4) {
                parts[connection as usize] = 3 * MIB / 4;
            }
        }
        let mut left: Vec<u64> = connections.collect();
        while !left.is_empty() {
            let before = left.len();
            left.retain(|&connection| {
                let part = &mut parts[connection as usize];
                if !state.reserve(of(connection), connection, MIB - *part) {
                    return true;
                }
                state.release(of(connection), connection, MIB, true);
                false
            });
            assert!(left.len() < before, "{before} messages wait for each other");
        }
        assert_eq!((state.bytes, state.hosts.len(), state.first), (0, 0, None));
    }
}
