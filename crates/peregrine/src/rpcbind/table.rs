//! `Table`: the programs that are registered, and the rules by which they change.
//!
//! * A registration belongs to its [`Owner`]. Only the same owner and the superuser can remove it.
//! * A registered address is not replaced. It must be removed first.
//! * rpcbind's own registrations do not change.
//! * The number of registrations is bounded. Some places are reserved for the superuser, so that other
//!   programs cannot use up all of them.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::asker::{Asker, Owner};
use crate::call::PathKind;
use crate::path::onc::{RegisteredProgram, network_of};
use crate::protocol::onc::rpcbind::PROGRAM;
use crate::protocol::onc::universal::{Network, Universal};
use crate::sync::{Mutex, MutexGuard};

/// The largest number of registrations.
const ALL_MAX: usize = 1024;
/// The number of registrations from which on only the superuser can register further programs.
const OTHERS_MAX: usize = 768;
/// Each version of rpcbind counts the requests for addresses of at most this number of programs.
const ASKED_MAX: usize = 64;
/// The largest number of bytes in the path of a local socket.
const PATH_BYTES_MAX: usize = 107;

/// A program that is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) network: Network,
    pub(super) place: Place,
    pub(super) owner: Owner,
}

/// Where a program listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Socket(SocketAddr),
    /// The path of a local socket.
    Local(String),
}

impl Place {
    /// Reads a universal address.
    fn parse(network: Network, text: &str) -> Option<Self> {
        match Universal::parse(network, text)? {
            Universal::Socket(at) => Some(Self::Socket(at)),
            Universal::Local(path) if path.len() > PATH_BYTES_MAX => None,
            Universal::Local(path) => Some(Self::Local(path.to_owned())),
        }
    }

    /// Returns the universal address.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Socket(at) => Universal::Socket(*at).to_string(),
            Self::Local(path) => path.clone(),
        }
    }
}

/// The programs that are registered, and how often each procedure was called.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: Mutex<Vec<Entry>>,
    counts: Mutex<[Counts; 3]>,
}

/// How often the procedures of a version were called.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) procedures: [i32; 13],
    pub(super) set: i32,
    pub(super) unset: i32,
    pub(super) asked: Vec<Asked>,
}

/// How often the address of a program was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) network: Network,
    pub(super) success: i32,
    pub(super) failure: i32,
}

impl Table {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock()
    }

    /// Counts a call of a procedure of version 2, 3 or 4. `has_changed` is the result of SET and UNSET.
    pub(super) fn count(&self, version: u32, procedure: usize, has_changed: bool) {
        self.counted(version, |counts| {
            if let Some(count) = counts.procedures.get_mut(procedure) {
                add(count, true);
            }
            add(&mut counts.set, procedure == 1 && has_changed);
            add(&mut counts.unset, procedure == 2 && has_changed);
        });
    }

    /// Counts that the address of a program was asked for by a procedure of version 2, 3 or 4.
    fn count_asked(&self, by: u32, program: (u32, u32), network: Network, is_found: bool) {
        self.counted(by, |counts| {
            let is_same =
                |one: &Asked| ((one.program, one.version), one.network) == (program, network);
            let at = counts.asked.iter().position(is_same).unwrap_or_else(|| {
                let (program, version) = program;
                counts.asked.push(Asked { program, version, network, success: 0, failure: 0 });
                counts.asked.len() - 1
            });
            add(&mut counts.asked[at].success, is_found);
            add(&mut counts.asked[at].failure, !is_found);
            counts.asked.truncate(ASKED_MAX);
        });
    }

    fn counted(&self, version: u32, count: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.lock();
        if let Some(counts) = counts.get_mut(version as usize - 2) {
            count(counts);
        }
    }

    /// Returns how often the procedures of versions 2, 3 and 4 were called.
    pub(super) fn counts(&self) -> [Counts; 3] {
        self.counts.lock().clone()
    }

    /// Adds rpcbind itself, which listens at `at`.
    pub(super) fn add_itself(&self, path: PathKind, at: SocketAddr) {
        let network = network_of(path, &at);
        // Version 2 knows only IPv4.
        let oldest = if at.is_ipv4() { 2 } else { 3 };
        let (place, owner) = (Place::Socket(at), Owner::Superuser);
        self.entries().extend((oldest..=4).map(|version| Entry {
            program: PROGRAM,
            version,
            network,
            place: place.clone(),
            owner,
        }));
    }

    /// Registers a program. Returns whether it is registered at this address now.
    pub(super) fn set(
        &self,
        asker: &Asker,
        (program, version): (u32, u32),
        network: &str,
        address: &str,
    ) -> bool {
        let (Some(owner), Some(network)) = (asker.owner, Network::from_name(network)) else {
            return false;
        };
        let Some(place) = Place::parse(network, address) else { return false };
        let may_use = match &place {
            Place::Socket(at) => asker.may_use(at.port()),
            Place::Local(_) => true,
        };
        if !may_use || program == PROGRAM {
            return false;
        }
        let mut entries = self.entries();
        let is_same =
            |one: &&Entry| (one.program, one.version, one.network) == (program, version, network);
        if let Some(present) = entries.iter().find(is_same) {
            return present.place == place && owner.may_change(present.owner);
        }
        let most = if owner == Owner::Superuser { ALL_MAX } else { OTHERS_MAX };
        if entries.len() >= most {
            return false;
        }
        entries.push(Entry { program, version, network, place, owner });
        true
    }

    /// Removes a program from the networks for which `is_removed` returns true. Returns whether a
    /// registration was removed.
    pub(super) fn unset(
        &self,
        asker: &Asker,
        (program, version): (u32, u32),
        is_removed: impl Fn(Network) -> bool,
    ) -> bool {
        let Some(owner) = asker.owner.filter(|_| program != PROGRAM) else { return false };
        let mut entries = self.entries();
        let before = entries.len();
        entries.retain(|one| {
            let is_named =
                (one.program, one.version) == (program, version) && is_removed(one.network);
            !is_named || !owner.may_change(one.owner)
        });
        entries.len() < before
    }

    /// Returns where a program listens in a network, for a caller of version `by` of rpcbind. If the version
    /// of the program is not registered there, returns where the highest registered version listens. The
    /// server there reports to the client which versions it has.
    pub(super) fn find(
        &self,
        by: u32,
        (program, version): (u32, u32),
        network: Network,
    ) -> Option<Place> {
        let entries = self.entries();
        let here = entries.iter().filter(|one| (one.program, one.network) == (program, network));
        let found = here.max_by_key(|one| (one.version == version, one.version));
        let found = found.map(|one| one.place.clone());
        drop(entries);
        self.count_asked(by, (program, version), network, found.is_some());
        found
    }

    /// Returns the registrations of exactly this version of a program.
    pub(super) fn of_version(&self, program: u32, version: u32) -> Vec<Entry> {
        let is_named = |one: &&Entry| (one.program, one.version) == (program, version);
        self.entries().iter().filter(is_named).cloned().collect()
    }

    /// Returns all registrations of IPv4, as version 2 knows them: the program, its version, the number of
    /// the protocol and the port.
    pub(super) fn mappings(&self) -> Vec<[u32; 4]> {
        let mapping = |one: &Entry| {
            let protocol = one.network.protocol()?;
            match one.place {
                Place::Socket(at) => {
                    Some([one.program, one.version, protocol, u32::from(at.port())])
                }
                Place::Local(_) => None,
            }
        };
        self.entries().iter().filter_map(mapping).collect()
    }

    /// Returns all registrations.
    pub(super) fn all(&self) -> Vec<RegisteredProgram> {
        let listed = |one: &Entry| RegisteredProgram {
            program: one.program,
            version: one.version,
            network: one.network.name().to_owned(),
            address: one.place.text(),
            owner: one.owner.to_string(),
            name: None,
        };
        self.entries().iter().map(listed).collect()
    }
}

fn add(count: &mut i32, more: bool) {
    *count = count.saturating_add(more.into());
}

/// Returns the universal address of a port at all IPv4 addresses, as version 2 registers it.
pub(super) fn anywhere(port: u16) -> String {
    let ip = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    Universal::Socket(SocketAddr::new(ip, port)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(from: &str) -> Asker {
        Asker::at(PathKind::OncUdp, from.parse().unwrap())
    }

    fn root() -> Asker {
        at("127.0.0.1:700")
    }

    fn user() -> Asker {
        at("127.0.0.1:5000")
    }

    const ONE: (u32, u32) = (0x2000_0001, 1);

    #[test]
    fn registrations_belong_to_their_owners() {
        let table = Table::default();
        let (here, there) = ("0.0.0.0.8.1", "0.0.0.0.8.2");
        assert!(table.set(&root(), ONE, "udp", here));
        assert!(table.set(&root(), ONE, "udp", here), "the same again");
        assert!(!table.set(&root(), ONE, "udp", there), "registered already");
        assert!(!table.set(&user(), ONE, "udp", here), "of another owner");
        assert!(table.set(&user(), ONE, "tcp", there));
        assert!(table.unset(&user(), ONE, |_| true));
        assert_eq!(table.of_version(ONE.0, ONE.1).len(), 1, "the superuser's registration stays");
        assert!(!table.unset(&user(), ONE, |_| true));
        assert!(table.unset(&root(), ONE, |network| network == Network::Udp));
        assert!(table.all().is_empty());
    }

    #[test]
    fn other_machines_change_nothing() {
        let table = Table::default();
        let far = at("192.0.2.1:700");
        assert!(!table.set(&far, ONE, "udp", "0.0.0.0.8.1"));
        assert!(table.set(&user(), ONE, "udp", "0.0.0.0.8.1"));
        assert!(!table.unset(&far, ONE, |_| true));
    }

    #[test]
    fn only_addresses_of_known_networks_are_registered() {
        let table = Table::default();
        let long = "x".repeat(PATH_BYTES_MAX + 1);
        for (network, address) in [
            ("udp", "0.0.0.0.0.0"),
            ("udp", "0.0.0.0.3.255"),
            ("udp", "::.8.1"),
            ("tcp6", "0.0.0.0.8.1"),
            ("udp", "here"),
            ("sctp", "0.0.0.0.8.1"),
            ("", "0.0.0.0.8.1"),
            ("local", ""),
            ("local", &*long),
        ] {
            assert!(!table.set(&user(), ONE, network, address), "{network} {address}");
        }
        assert!(table.set(&user(), ONE, "local", "/run/some.sock"));
        assert!(table.set(&root(), ONE, "udp6", "::.3.255"));
    }

    #[test]
    fn own_registrations_do_not_change() {
        let table = Table::default();
        table.add_itself(PathKind::OncUdp, "127.0.0.1:111".parse().unwrap());
        table.add_itself(PathKind::OncTcp, "[::1]:111".parse().unwrap());
        let versions: Vec<_> = table.all().iter().map(|one| one.version).collect();
        assert_eq!(versions, [2, 3, 4, 3, 4]);
        assert!(!table.unset(&root(), (PROGRAM, 4), |_| true));
        assert!(!table.set(&root(), (PROGRAM, 5), "udp", "0.0.0.0.8.1"));
        assert_eq!(table.mappings(), [2, 3, 4].map(|version| [PROGRAM, version, 17, 111]));
    }

    #[test]
    fn table_is_bounded_and_the_superuser_has_room() {
        let table = Table::default();
        let set = |asker: &Asker, version| table.set(asker, (7, version), "udp", "0.0.0.0.8.1");
        let many = |asker: &Asker, versions: core::ops::Range<u32>| {
            versions.filter(|version| set(asker, *version)).count()
        };
        assert_eq!(many(&user(), 0..5000), OTHERS_MAX);
        assert_eq!(many(&root(), 5000..10_000), ALL_MAX - OTHERS_MAX);
        assert!(table.unset(&root(), (7, 0), |_| true));
        assert!(!set(&user(), 10_000) && set(&root(), 10_000));
    }

    #[test]
    fn another_version_is_found_if_the_wanted_one_is_missing() {
        let table = Table::default();
        for (version, address) in [(1, "0.0.0.0.8.1"), (3, "0.0.0.0.8.3"), (2, "0.0.0.0.8.2")] {
            assert!(table.set(&user(), (7, version), "udp", address));
        }
        let found = |version| table.find(4, (7, version), Network::Udp).map(|place| place.text());
        assert_eq!(found(1).as_deref(), Some("0.0.0.0.8.1"));
        assert_eq!(found(9).as_deref(), Some("0.0.0.0.8.3"));
        assert_eq!(table.find(4, (7, 1), Network::Tcp), None);
        assert_eq!(table.find(4, (8, 1), Network::Udp), None);
        let asked = table.counts()[2].asked.clone();
        let counted: Vec<_> = asked.iter().map(|one| (one.success, one.failure)).collect();
        assert_eq!(counted, [(1, 0), (1, 0), (0, 1), (0, 1)]);
        for program in 0..1000 {
            table.find(4, (program, 1), Network::Udp);
        }
        assert_eq!(table.counts()[2].asked.len(), ASKED_MAX);
    }
}
