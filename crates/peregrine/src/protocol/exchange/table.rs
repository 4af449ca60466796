//! The server's table of places. A place holds one record, that is, the state of the calls of one handle. The
//! table decides which client gets a place, and which record is evicted for it.
//!
//! The number of places is bounded, and so is the number of places that one address may have. A record may be
//! evicted as follows:
//!
//! | state of the record | may be evicted | the answer to the client's next packet |
//! |---|---|---|
//! | idle | [`IDLE_MIN`] after its last packet | refused: not executed; the client binds again |
//! | assembling, or waiting for memory | [`ASSEMBLING_MIN`] after its last packet | the same |
//! | replied | [`REPLIED_MIN`] after its last packet | refused: may have executed |
//! | running | never; the number of running procedures has its own limit | |
//!
//! The table asks its owner for the states of records, so calls need not update the table.

use super::server_end::RecordPhase;
use super::time::{Moment, SECOND};

/// A record is not evicted if its last packet arrived within this time.
pub(crate) const IDLE_MIN: u64 = SECOND;
/// A call that has arrived only in part is not evicted if its last packet arrived within this time. A live
/// client sends a packet at least every two seconds.
pub(crate) const ASSEMBLING_MIN: u64 = 10 * SECOND;
/// A result is not evicted if the last packet of the client arrived within this time. A live client that
/// waits for its result sends a packet much earlier.
pub(crate) const REPLIED_MIN: u64 = 60 * SECOND;
/// The largest number of records that one admission of a client examines. The next admission begins with
/// other records.
const LOOKS_MAX: u32 = 1024;
/// The largest number of evictable records that one admission compares. The admission chooses the record that
/// has been idle longest.
const CHOICE: u32 = 16;
const GROUPS_MAX: u32 = 1024;

/// A place for a new handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdmittedPlace {
    pub(crate) place: u32,
    /// Whether the place still has the record of another handle, which must be forgotten first.
    pub(crate) evict: bool,
}

/// The free places, and the places of each group of addresses.
///
/// Each address belongs to a group. The code of the path computes a number for each address with a keyed
/// hash, and this number determines the group. Because of the key, a client cannot choose to share a group
/// with another client. The places of a group form a list in the order of admission. The free places form one
/// more list.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    places: u32,
    groups: u32,
    /// The largest number of places that one group may have.
    share: u32,
    /// The predecessor and the successor of each node in the list to which it belongs. The nodes are the
    /// places, then the head of each group's list, and last the head of the free list.
    links: Box<[(u32, u32)]>,
    /// The group of each place.
    group: Box<[u32]>,
    /// The number of places of each group.
    have: Box<[u32]>,
    /// The place at which the next search of all places begins.
    next_look: u32,
}

impl Table {
    pub(crate) fn new(places: u32, share: u32) -> Self {
        let groups = places.clamp(1, GROUPS_MAX);
        let nodes = places + groups + 1;
        let mut table = Self {
            places,
            groups,
            share,
            links: (0..nodes).map(|node| (node, node)).collect(),
            group: vec![0; places as usize].into(),
            have: vec![0; groups as usize].into(),
            next_look: 0,
        };
        let free = table.free();
        for place in 0..places {
            table.append(free, place);
        }
        table
    }

    /// Returns the head of the list of free places.
    const fn free(&self) -> u32 {
        self.places + self.groups
    }

    fn append(&mut self, head: u32, place: u32) {
        let last = self.links[head as usize].0;
        self.links[last as usize].1 = place;
        self.links[place as usize] = (last, head);
        self.links[head as usize].0 = place;
    }

    fn unlink(&mut self, place: u32) {
        let (before, after) = self.links[place as usize];
        self.links[before as usize].1 = after;
        self.links[after as usize].0 = before;
    }

    /// Returns a place for a new handle of the address with the number `peer`. This is a free place, if there
    /// is one. Otherwise it is the evictable place whose record has been idle longest. If the group of the
    /// address has its full share of the places, only a place of that group is chosen. Returns `None` if
    /// no place can be chosen. `phase` returns the phase of the record at a place, and the time at which its
    /// last packet arrived.
    pub(crate) fn admit(
        &mut self,
        now: Moment,
        peer: u64,
        phase: impl Fn(u32) -> (RecordPhase, Moment),
    ) -> Option<AdmittedPlace> {
        let group = (peer % u64::from(self.groups)) as u32;
        let free = self.free();
        let first_free = self.links[free as usize].1;
        let (place, evict) = if self.have[group as usize] >= self.share {
            (self.idlest_in_group(now, group, phase)?, true)
        } else if first_free != free {
            (first_free, false)
        } else {
            (self.idlest(now, phase)?, true)
        };
        if evict {
            self.have[self.group[place as usize] as usize] -= 1;
        }
        self.unlink(place);
        self.append(self.places + group, place);
        self.group[place as usize] = group;
        self.have[group as usize] += 1;
        Some(AdmittedPlace { place, evict })
    }

    /// Returns whether the group of this address has as many places as a group may have.
    pub(crate) fn is_group_full(&self, peer: u64) -> bool {
        self.have[(peer % u64::from(self.groups)) as usize] >= self.share
    }

    /// Returns whether there is no free place.
    pub(crate) fn is_full(&self) -> bool {
        let free = self.free();
        self.links[free as usize].1 == free
    }

    /// Frees a place. Its record must have been forgotten.
    pub(crate) fn release(&mut self, place: u32) {
        self.have[self.group[place as usize] as usize] -= 1;
        self.unlink(place);
        self.append(self.free(), place);
    }

    /// Gives an admitted place back to the address that had it before. Must be called if the old
    /// record at the place has received a packet since the admission.
    pub(crate) fn reassign(&mut self, place: u32, peer: u64) {
        let group = (peer % u64::from(self.groups)) as u32;
        self.have[self.group[place as usize] as usize] -= 1;
        self.unlink(place);
        self.append(self.places + group, place);
        self.group[place as usize] = group;
        self.have[group as usize] += 1;
    }

    /// Examines places of one group. Returns the evictable place whose record has been idle longest.
    fn idlest_in_group(
        &mut self,
        now: Moment,
        group: u32,
        phase: impl Fn(u32) -> (RecordPhase, Moment),
    ) -> Option<u32> {
        let head = self.places + group;
        let mut choice = EvictionChoice::default();
        for _ in 0..self.have[group as usize].min(LOOKS_MAX) {
            let place = self.links[head as usize].1;
            if choice.look(now, place, phase(place)) {
                break;
            }
            // The next search begins with other places of the group.
            self.unlink(place);
            self.append(head, place);
        }
        choice.best()
    }

    /// Examines places of all groups. Returns the evictable place whose record has been idle longest.
    fn idlest(&mut self, now: Moment, phase: impl Fn(u32) -> (RecordPhase, Moment)) -> Option<u32> {
        let mut choice = EvictionChoice::default();
        for _ in 0..self.places.min(LOOKS_MAX) {
            let place = self.next_look;
            self.next_look = (self.next_look + 1) % self.places;
            if choice.look(now, place, phase(place)) {
                break;
            }
        }
        choice.best()
    }
}

/// The best record to evict among those that were examined so far.
#[derive(Clone, Copy, Debug, Default)]
struct EvictionChoice {
    best: Option<(u64, u32)>,
    seen: u32,
}

impl EvictionChoice {
    /// Examines one place. Returns whether enough evictable records were found.
    fn look(&mut self, now: Moment, place: u32, (phase, heard): (RecordPhase, Moment)) -> bool {
        let silence = now.since(heard);
        if is_evictable(phase, silence) {
            self.seen += 1;
            self.best = self.best.max(Some((silence, place)));
        }
        self.seen == CHOICE
    }

    fn best(self) -> Option<u32> {
        self.best.map(|(_, place)| place)
    }
}

/// Returns whether a record in this phase may be evicted. `silence` is the number of nanoseconds since the
/// record's last packet arrived.
pub(crate) const fn is_evictable(phase: RecordPhase, silence: u64) -> bool {
    match phase {
        RecordPhase::Vacant | RecordPhase::Running => false,
        RecordPhase::Idle => silence >= IDLE_MIN,
        RecordPhase::Assembling | RecordPhase::Waiting => silence >= ASSEMBLING_MIN,
        RecordPhase::Replied => silence >= REPLIED_MIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment(1000 * SECOND);

    fn idle_for(seconds: u64) -> (RecordPhase, Moment) {
        (RecordPhase::Idle, Moment(NOW.0 - seconds * SECOND))
    }

    #[test]
    fn record_with_a_recent_packet_is_not_evicted() {
        let mut table = Table::new(2, 2);
        for peer in [7, 8] {
            assert!(table.admit(NOW, peer, |_| idle_for(0)).is_some());
        }
        let taken = table.admit(NOW, 9, |_| idle_for(60)).expect("an evictable record");
        assert!(taken.evict);
        table.reassign(taken.place, 7 + u64::from(taken.place));
        assert_eq!((0..2).map(|place| table.group[place]).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(table.have.iter().sum::<u32>(), 2);
        table.release(0);
        table.release(1);
        assert!(table.have.iter().all(|have| *have == 0));
        let admission =
            table.admit(NOW, 9, |_| panic!("a record was examined although places are free"));
        assert!(admission.is_some_and(|admission| !admission.evict));
    }

    #[test]
    fn free_places_are_used_before_the_longest_idle() {
        let mut table = Table::new(3, 3);
        for place in 0..3 {
            let admission = table.admit(NOW, u64::from(place), |_| {
                panic!("a record was examined although places are free")
            });
            assert_eq!(admission, Some(AdmittedPlace { place, evict: false }));
        }
        let idle = [3, 9, 6];
        let admission = table.admit(NOW, 0, |place| idle_for(idle[place as usize]));
        assert_eq!(admission, Some(AdmittedPlace { place: 1, evict: true }));
        table.release(2);
        let admission =
            table.admit(NOW, 0, |_| panic!("a record was examined although a place is free"));
        assert_eq!(admission, Some(AdmittedPlace { place: 2, evict: false }));
        assert_eq!(table.have[..], [3, 0, 0]);
    }

    #[test]
    fn address_with_its_full_share_evicts_only_its_own_records() {
        let mut table = Table::new(8, 2);
        for peer in [1, 1, 2] {
            table.admit(NOW, peer, |_| panic!("a record was examined although places are free"));
        }
        let idle = |place: u32| idle_for(if place == 2 { 99 } else { 5 + u64::from(place) });
        assert_eq!(table.admit(NOW, 1, idle), Some(AdmittedPlace { place: 1, evict: true }));
        assert_eq!(table.admit(NOW, 1, |_| (RecordPhase::Running, NOW)), None);
        assert_eq!(table.admit(NOW, 1, |_| (RecordPhase::Idle, NOW)), None);
        assert_eq!(table.have[..3], [0, 2, 1]);
    }

    #[test]
    fn state_of_a_record_decides_how_long_it_is_kept() {
        assert!(!is_evictable(RecordPhase::Running, u64::MAX));
        assert!(!is_evictable(RecordPhase::Replied, REPLIED_MIN - 1));
        assert!(is_evictable(RecordPhase::Replied, REPLIED_MIN));
        assert!(is_evictable(RecordPhase::Assembling, ASSEMBLING_MIN));
        assert!(!is_evictable(RecordPhase::Idle, 0));
    }

    #[test]
    fn admission_examines_few_records() {
        let mut table = Table::new(10_000, 10_000);
        for _ in 0..10_000 {
            table.admit(NOW, 7, |_| panic!("a record was examined although places are free"));
        }
        let looks = core::cell::Cell::new(0);
        let busy = |place: u32| {
            looks.set(looks.get() + 1);
            if place == 5000 { idle_for(2) } else { (RecordPhase::Running, NOW) }
        };
        let tries = (0..).find(|_| table.admit(NOW, 7, busy).is_some());
        assert_eq!(tries, Some(4));
        assert!(looks.get() <= 5 * LOOKS_MAX);
    }
}
