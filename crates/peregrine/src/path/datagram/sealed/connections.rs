//! The sealed connections of one socket of a server. Their number is bounded, in all and for each host.

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::Arc;

use super::ConnectionNumber;
use crate::growing::Growing;
use crate::limits;
use crate::protocol::exchange::bind::Nonce;
use crate::protocol::exchange::time::{Moment, SECOND};
use crate::sync::Mutex;

/// A connection without a handle ends after this time, in nanoseconds.
const IDLE_MAX: u64 = 30 * SECOND;

/// A connection of a client.
#[derive(Debug)]
pub(super) struct Connection<C> {
    pub(super) number: ConnectionNumber,
    host: u64,
    /// The keys.
    pub(super) channel: C,
    /// The number of handles that were granted over the connection.
    handles: AtomicI32,
    /// When the connection began, or lost its last handle.
    idle_since: AtomicU64,
}

impl<C> Connection<C> {
    fn is_idle(&self) -> bool {
        self.handles.load(Ordering::Relaxed) <= 0
    }

    fn idle_since(&self) -> Moment {
        Moment(self.idle_since.load(Ordering::Relaxed))
    }
}

/// Which places of the table are in use.
#[derive(Debug, Default)]
struct Places {
    free: Vec<u32>,
    /// The number of places that were ever used.
    made: u32,
    /// How many places each host has. A host without one has no entry.
    hosts: HashMap<u64, usize>,
}

/// A place of the table that a handshake has reserved. It is free again when it is dropped.
pub(super) struct Reserved<C> {
    table: Arc<Connections<C>>,
    pub(super) number: ConnectionNumber,
    host: u64,
    /// Whether a connection has the place now.
    is_taken: bool,
}

impl<C> Reserved<C> {
    /// Gives the place to a connection.
    pub(super) fn put(mut self, now: Moment, channel: C) -> Arc<Connection<C>> {
        let connection = Arc::new(Connection {
            number: self.number,
            host: self.host,
            channel,
            handles: AtomicI32::new(0),
            idle_since: AtomicU64::new(now.0),
        });
        self.is_taken = true;
        if let Some(place) = self.table.place(&self.number) {
            *place.lock() = Some(Arc::clone(&connection));
        }
        connection
    }
}

impl<C> Drop for Reserved<C> {
    fn drop(&mut self) {
        if !self.is_taken {
            self.table.release(&self.number, self.host);
        }
    }
}

/// The connections of one socket. The first four bytes of a connection's number are its place.
pub(super) struct Connections<C> {
    entries: Growing<Mutex<Option<Arc<Connection<C>>>>>,
    places: Mutex<Places>,
    most: u32,
    most_per_host: usize,
}

impl<C: Send + Sync + 'static> Connections<C> {
    pub(super) fn new() -> Arc<Self> {
        Self::bounded(limits::CALLERS_MAX as u32, limits::CALLERS_PER_HOST)
    }

    fn bounded(most: u32, most_per_host: usize) -> Arc<Self> {
        let entries = Growing::new(most, |_| Mutex::default());
        Arc::new(Self { entries, places: Mutex::default(), most, most_per_host })
    }

    /// Reserves a place for a handshake. `random` makes the number unpredictable. If there is no place left,
    /// ends the connection that has been without handles for longest. Returns `None` if all have handles.
    pub(super) fn reserve(self: &Arc<Self>, host: u64, random: [u8; 4]) -> Option<Reserved<C>> {
        let place = match self.free_place(host) {
            Some(place) => place,
            None => {
                self.evict(host)?;
                self.free_place(host)?
            }
        };
        let mut number = [0; 8];
        number[..4].copy_from_slice(&place.to_le_bytes());
        number[4..].copy_from_slice(&random);
        Some(Reserved { table: Arc::clone(self), number, host, is_taken: false })
    }

    fn free_place(&self, host: u64) -> Option<u32> {
        let mut places = self.places.lock();
        if places.hosts.get(&host).is_some_and(|count| *count >= self.most_per_host) {
            return None;
        }
        let place = match places.free.pop() {
            Some(place) => place,
            None if places.made < self.most => {
                places.made += 1;
                places.made - 1
            }
            None => return None,
        };
        *places.hosts.entry(host).or_default() += 1;
        Some(place)
    }

    /// Ends an idle connection. If the host has too many, it is one of this host.
    fn evict(&self, host: u64) -> Option<()> {
        let is_host_full = {
            let places = self.places.lock();
            places.hosts.get(&host).is_some_and(|count| *count >= self.most_per_host)
        };
        let all = self.all();
        let idle = all.iter().filter(|one| one.is_idle() && (!is_host_full || one.host == host));
        let oldest = idle.min_by_key(|one| one.idle_since())?;
        self.end(&oldest.number).then_some(())
    }

    /// Returns the connection with a number.
    #[inline]
    pub(super) fn find(&self, number: &ConnectionNumber) -> Option<Arc<Connection<C>>> {
        let place = self.place(number)?.lock();
        place.as_ref().filter(|one| one.number == *number).map(Arc::clone)
    }

    /// Returns all connections.
    pub(super) fn all(&self) -> Vec<Arc<Connection<C>>> {
        let made = self.places.lock().made as usize;
        (0..made).filter_map(|at| self.entries.get(at)?.lock().clone()).collect()
    }

    /// Returns the number of places that are reserved or have connections.
    #[cfg(any(test, fuzzing))]
    pub(super) fn in_use(&self) -> usize {
        let places = self.places.lock();
        let in_use = places.made as usize - places.free.len();
        assert_eq!(places.hosts.values().sum::<usize>(), in_use);
        in_use
    }

    /// Ends a connection. Returns whether there was one with this number.
    pub(super) fn end(&self, number: &ConnectionNumber) -> bool {
        let Some(place) = self.place(number) else { return false };
        let ended = place.lock().take_if(|one| one.number == *number);
        if let Some(ended) = &ended {
            self.release(number, ended.host);
        }
        ended.is_some()
    }

    /// Ends the connections that have been without handles for too long.
    pub(super) fn end_idle(&self, now: Moment) {
        for one in self.all() {
            if one.is_idle() && now.since(one.idle_since()) > IDLE_MAX {
                self.end(&one.number);
            }
        }
    }

    /// Notes that a handle was granted (`change` is 1) or was revoked (-1). `secret` is that of the handle.
    pub(super) fn note_handles(&self, now: Moment, secret: &Nonce, change: i32) {
        let number = secret.first_chunk().expect("a secret is longer than a number");
        if let Some(connection) = self.find(number)
            && connection.handles.fetch_add(change, Ordering::Relaxed) + change <= 0
        {
            connection.idle_since.store(now.0, Ordering::Relaxed);
        }
    }
}

impl<C> Connections<C> {
    #[inline]
    fn place(&self, number: &ConnectionNumber) -> Option<&Mutex<Option<Arc<Connection<C>>>>> {
        let place = number.first_chunk().map(|place| u32::from_le_bytes(*place))?;
        self.entries.get(place as usize)
    }

    fn release(&self, number: &ConnectionNumber, host: u64) {
        let place = number.first_chunk().map_or(0, |place| u32::from_le_bytes(*place));
        let mut places = self.places.lock();
        places.free.push(place);
        if let Some(count) = places.hosts.get_mut(&host) {
            *count -= 1;
            if *count == 0 {
                places.hosts.remove(&host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment(100 * SECOND);

    fn secret(number: &ConnectionNumber) -> Nonce {
        let mut secret = [9; 12];
        secret[..8].copy_from_slice(number);
        secret
    }

    #[test]
    fn connection_is_found_by_its_whole_number() {
        let table = Connections::bounded(4, 4);
        let one = table.reserve(7, [1; 4]).unwrap().put(NOW, "one");
        assert_eq!(table.find(&one.number).unwrap().channel, "one");
        let mut other = one.number;
        other[7] ^= 1;
        assert!(table.find(&other).is_none() && !table.end(&other));
        assert!(table.find(&[0xff; 8]).is_none());
        assert!(table.end(&one.number) && table.find(&one.number).is_none());
        // The place has another number now.
        let again = table.reserve(7, [2; 4]).unwrap().put(NOW, "again");
        assert_eq!(again.number[..4], one.number[..4]);
        assert!(table.find(&one.number).is_none());
    }

    #[test]
    fn connections_are_bounded_and_idle_ones_are_evicted() {
        let table = Connections::bounded(4, 2);
        let put = |host, at| {
            // Each number is drawn anew, also for a place that was used before.
            let reserved = table.reserve(host, [at as u8; 4])?;
            Some(reserved.put(Moment(at), ()))
        };
        let [first, second] = [put(1, 5).unwrap(), put(1, 4).unwrap()];
        table.note_handles(NOW, &secret(&first.number), 1);
        table.note_handles(NOW, &secret(&second.number), 1);
        assert!(put(1, 6).is_none(), "both connections of the host have handles");
        table.note_handles(NOW, &secret(&second.number), -1);
        let third = put(1, 6).unwrap();
        assert!(table.find(&second.number).is_none() && table.find(&first.number).is_some());
        let others = [put(2, 1).unwrap(), put(3, 2).unwrap()];
        let last = put(4, 3).unwrap();
        assert!(table.find(&others[0].number).is_none(), "idle for longest");
        assert!([&others[1], &last, &third].iter().all(|one| table.find(&one.number).is_some()));
    }

    #[test]
    fn place_of_a_failed_handshake_is_free_again() {
        let table = Connections::<()>::bounded(1, 1);
        for _ in 0..3 {
            let reserved = table.reserve(1, [0; 4]).unwrap();
            assert!(table.reserve(1, [0; 4]).is_none());
            assert!(table.find(&reserved.number).is_none());
        }
    }

    #[test]
    fn idle_connections_end() {
        let table = Connections::bounded(4, 4);
        let used = table.reserve(1, [1; 4]).unwrap().put(NOW, ());
        let idle = table.reserve(1, [1; 4]).unwrap().put(NOW, ());
        table.note_handles(NOW, &secret(&used.number), 1);
        table.end_idle(Moment(NOW.0 + IDLE_MAX));
        assert!(table.find(&idle.number).is_some());
        table.end_idle(Moment(NOW.0 + IDLE_MAX + 1));
        assert!(table.find(&idle.number).is_none() && table.find(&used.number).is_some());
    }
}
