//! Who gets a place in the server's table of records, and whose is taken for it.
//!
//! Places are bounded, and so is what one address may have of them. Who may be forgotten:
//!
//! | standing of a record | may be forgotten | what its client learns with its next packet |
//! |---|---|---|
//! | idle | [`IDLE_MIN`] after it was last heard of | refused: not executed; it binds again |
//! | assembling, or waiting to | after [`ASSEMBLING_MIN`] | the same: nothing ran |
//! | replied | after [`REPLIED_MIN`] | refused: may have executed |
//! | running | never; procedures are bounded elsewhere | |
//!
//! What the records themselves say is asked of the owner, so that a call touches nothing but its own.

use super::callee::Standing;
use super::time::{Moment, SECOND};

/// Whoever called so lately is not evicted by strangers.
pub(crate) const IDLE_MIN: u64 = SECOND;
/// A client with a call under way is heard of every two seconds or more often.
pub(crate) const ASSEMBLING_MIN: u64 = 10 * SECOND;
/// A client that waits for its result and lives is heard of long before.
pub(crate) const REPLIED_MIN: u64 = 60 * SECOND;
/// Records that are looked at for one admission, at most; the next one looks at others.
const LOOKS_MAX: u32 = 1024;
/// Records among which the one that is idle longest is taken.
const CHOICE: u32 = 16;
const GROUPS_MAX: u32 = 1024;

/// A place for a new handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    pub(crate) place: u32,
    /// Another handle's record is there and must be forgotten first.
    pub(crate) evict: bool,
}

/// Which places are free, and which address has which.
///
/// Addresses fall into groups by their number, which the driver makes with a secret hash, so that
/// nobody can choose to share a group with somebody else. Each group is a list through the places, in
/// the order in which they were admitted; free places are one more list.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    places: u32,
    groups: u32,
    /// Places that one group may have.
    share: u32,
    /// Before and after each place, each group's head, and the head of the free ones.
    links: Box<[(u32, u32)]>,
    /// The group of each place.
    group: Box<[u32]>,
    /// How many places each group has.
    have: Box<[u32]>,
    /// Where the next look at all places begins.
    hand: u32,
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
            hand: 0,
        };
        let free = table.free();
        for place in 0..places {
            table.append(free, place);
        }
        table
    }

    /// The head of the list of free places.
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

    /// A place for a handle of this address, or none. `standing` tells of a place that is taken how
    /// it stands, and when it was last heard of.
    pub(crate) fn admit(
        &mut self,
        now: Moment,
        peer: u64,
        standing: impl Fn(u32) -> (Standing, Moment),
    ) -> Option<Admission> {
        let group = (peer % u64::from(self.groups)) as u32;
        let free = self.free();
        let first_free = self.links[free as usize].1;
        let (place, evict) = if self.have[group as usize] >= self.share {
            (self.idlest_of(now, group, standing)?, true)
        } else if first_free != free {
            (first_free, false)
        } else {
            (self.idlest(now, standing)?, true)
        };
        if evict {
            self.have[self.group[place as usize] as usize] -= 1;
        }
        self.unlink(place);
        self.append(self.places + group, place);
        self.group[place as usize] = group;
        self.have[group as usize] += 1;
        Some(Admission { place, evict })
    }

    /// Whether this address has all places that its group may have.
    pub(crate) fn has_its_share(&self, peer: u64) -> bool {
        self.have[(peer % u64::from(self.groups)) as usize] >= self.share
    }

    /// Whether no place is free.
    pub(crate) fn is_full(&self) -> bool {
        let free = self.free();
        self.links[free as usize].1 == free
    }

    /// A record was forgotten, and nobody takes its place.
    pub(crate) fn release(&mut self, place: u32) {
        self.have[self.group[place as usize] as usize] -= 1;
        self.unlink(place);
        self.append(self.free(), place);
    }

    /// A place that was admitted stays with the address that had it: its record came to life meanwhile.
    pub(crate) fn leave_to(&mut self, place: u32, peer: u64) {
        let group = (peer % u64::from(self.groups)) as u32;
        self.have[self.group[place as usize] as usize] -= 1;
        self.unlink(place);
        self.append(self.places + group, place);
        self.group[place as usize] = group;
        self.have[group as usize] += 1;
    }

    /// That of a group's places which may be taken and is idle longest, as far as is looked.
    fn idlest_of(
        &mut self,
        now: Moment,
        group: u32,
        standing: impl Fn(u32) -> (Standing, Moment),
    ) -> Option<u32> {
        let head = self.places + group;
        let mut choice = Choice::default();
        for _ in 0..self.have[group as usize].min(LOOKS_MAX) {
            let place = self.links[head as usize].1;
            if choice.look(now, place, standing(place)) {
                break;
            }
            // Others come first the next time.
            self.unlink(place);
            self.append(head, place);
        }
        choice.best()
    }

    /// The same among all places.
    fn idlest(&mut self, now: Moment, standing: impl Fn(u32) -> (Standing, Moment)) -> Option<u32> {
        let mut choice = Choice::default();
        for _ in 0..self.places.min(LOOKS_MAX) {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.places;
            if choice.look(now, place, standing(place)) {
                break;
            }
        }
        choice.best()
    }
}

/// The best place seen so far.
#[derive(Clone, Copy, Debug, Default)]
struct Choice {
    best: Option<(u64, u32)>,
    seen: u32,
}

impl Choice {
    /// Whether enough was seen.
    fn look(&mut self, now: Moment, place: u32, (standing, heard): (Standing, Moment)) -> bool {
        let silence = now.since(heard);
        if is_forgettable(standing, silence) {
            self.seen += 1;
            self.best = self.best.max(Some((silence, place)));
        }
        self.seen == CHOICE
    }

    fn best(self) -> Option<u32> {
        self.best.map(|(_, place)| place)
    }
}

/// Whether a record may be forgotten of which nothing was heard for so many nanoseconds.
pub(crate) const fn is_forgettable(standing: Standing, silence: u64) -> bool {
    match standing {
        Standing::Vacant | Standing::Running => false,
        Standing::Idle => silence >= IDLE_MIN,
        Standing::Assembling | Standing::Waiting => silence >= ASSEMBLING_MIN,
        Standing::Replied => silence >= REPLIED_MIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment(1000 * SECOND);

    fn idle_for(seconds: u64) -> (Standing, Moment) {
        (Standing::Idle, Moment(NOW.0 - seconds * SECOND))
    }

    #[test]
    fn who_speaks_up_in_time_stays() {
        let mut table = Table::new(2, 2);
        for peer in [7, 8] {
            assert!(table.admit(NOW, peer, |_| idle_for(0)).is_some());
        }
        let taken = table.admit(NOW, 9, |_| idle_for(60)).expect("an idle one");
        assert!(taken.evict);
        table.leave_to(taken.place, 7 + u64::from(taken.place));
        assert_eq!((0..2).map(|place| table.group[place]).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(table.have.iter().sum::<u32>(), 2);
        table.release(0);
        table.release(1);
        assert!(table.have.iter().all(|have| *have == 0));
        let admission = table.admit(NOW, 9, |_| panic!("there are free ones"));
        assert!(admission.is_some_and(|admission| !admission.evict));
    }

    #[test]
    fn free_places_first_then_the_idlest() {
        let mut table = Table::new(3, 3);
        for place in 0..3 {
            let admission = table.admit(NOW, u64::from(place), |_| panic!("there are free ones"));
            assert_eq!(admission, Some(Admission { place, evict: false }));
        }
        let idle = [3, 9, 6];
        let admission = table.admit(NOW, 0, |place| idle_for(idle[place as usize]));
        assert_eq!(admission, Some(Admission { place: 1, evict: true }));
        table.release(2);
        let admission = table.admit(NOW, 0, |_| panic!("there is a free one"));
        assert_eq!(admission, Some(Admission { place: 2, evict: false }));
        assert_eq!(table.have[..], [3, 0, 0]);
    }

    #[test]
    fn who_has_its_share_only_takes_of_its_own() {
        let mut table = Table::new(8, 2);
        for peer in [1, 1, 2] {
            table.admit(NOW, peer, |_| panic!("there are free ones"));
        }
        let idle = |place: u32| idle_for(if place == 2 { 99 } else { 5 + u64::from(place) });
        assert_eq!(table.admit(NOW, 1, idle), Some(Admission { place: 1, evict: true }));
        assert_eq!(table.admit(NOW, 1, |_| (Standing::Running, NOW)), None);
        assert_eq!(table.admit(NOW, 1, |_| (Standing::Idle, NOW)), None);
        assert_eq!(table.have[..3], [0, 2, 1]);
    }

    #[test]
    fn what_is_at_stake_says_how_long_it_is_kept() {
        assert!(!is_forgettable(Standing::Running, u64::MAX));
        assert!(!is_forgettable(Standing::Replied, REPLIED_MIN - 1));
        assert!(is_forgettable(Standing::Replied, REPLIED_MIN));
        assert!(is_forgettable(Standing::Assembling, ASSEMBLING_MIN));
        assert!(!is_forgettable(Standing::Idle, 0));
    }

    #[test]
    fn an_admission_looks_at_few_records() {
        let mut table = Table::new(10_000, 10_000);
        for _ in 0..10_000 {
            table.admit(NOW, 7, |_| panic!("there are free ones"));
        }
        let looks = core::cell::Cell::new(0);
        let busy = |place: u32| {
            looks.set(looks.get() + 1);
            if place == 5000 { idle_for(2) } else { (Standing::Running, NOW) }
        };
        let tries = (0..).find(|_| table.admit(NOW, 7, busy).is_some());
        assert_eq!(tries, Some(4));
        assert!(looks.get() <= 5 * LOOKS_MAX);
    }
}
