//! The procedures of the three versions of rpcbind.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::asker::Asker;
use super::interface::{
    AddressCalls, Calls, Mapping, Mappings, Netbuf, Place as ListedPlace, Places, Portmap, Rpcb,
    RpcbindV3, RpcbindV4, Rpcbs,
};
use super::table::{Asked, Entry, Place, Table, anywhere, network_of_protocol};
use crate::device::udp::Udp;
use crate::error::{CallError, Executed, Kind, Result};
use crate::foreign::ByteString;
use crate::protocol::onc::universal::{Network, Universal};
use crate::sys::Address;

const LISTS_OVER_TCP: &str = "rpcbind sends lists to other machines over TCP only";

/// Returns the address of this machine that a caller at `from` reaches. Nothing is sent.
fn near(from: SocketAddr) -> Option<IpAddr> {
    let socket = Udp::connected(from).ok()?;
    socket.local().ok().map(|local| local.ip())
}

/// Returns the universal address at which a caller reaches a program. Returns `None` if the caller cannot
/// reach it.
fn told(place: &Place, asker: &Asker) -> Option<String> {
    match place {
        Place::Local(path) => Some(path.clone()),
        Place::Socket(at) => {
            let ip = asker.reaches(at.ip(), near)?;
            Some(Universal::Socket(SocketAddr::new(ip, at.port())).to_string())
        }
    }
}

/// Returns an error if the caller may not get a list.
fn check_lists(asker: &Asker) -> Result<()> {
    if asker.may_get_lists() {
        return Ok(());
    }
    Err(CallError::new(Kind::Denied, Executed::No, LISTS_OVER_TCP.to_owned()))
}

fn set(table: &Table, version: u32, asker: &Asker, rpcb: &Rpcb) -> bool {
    let program = (rpcb.program, rpcb.version);
    let has_changed = table.set(asker, program, &rpcb.network.to_text(), &rpcb.address.to_text());
    table.count(version, 1, has_changed);
    has_changed
}

fn unset(table: &Table, version: u32, asker: &Asker, rpcb: &Rpcb) -> bool {
    let name = rpcb.network.to_text();
    let network = Network::from_name(&name);
    let is_removed = |one| name.is_empty() || network == Some(one);
    let has_changed = table.unset(asker, (rpcb.program, rpcb.version), is_removed);
    table.count(version, 2, has_changed);
    has_changed
}

/// Returns the address of a program in the network of the caller, as the standard requires.
fn address(table: &Table, by: u32, asker: &Asker, rpcb: &Rpcb) -> ByteString {
    let program = (rpcb.program, rpcb.version);
    let place = asker.network.and_then(|network| table.find(by, program, network));
    place.and_then(|place| told(&place, asker)).unwrap_or_default().into()
}

fn dump(table: &Table, asker: &Asker) -> Result<Option<Box<Rpcbs>>> {
    check_lists(asker)?;
    Ok(table.all().into_iter().rev().fold(None, |rest, one| {
        let first = Rpcb {
            program: one.program,
            version: one.version,
            network: one.network.into(),
            address: one.address.into(),
            owner: one.owner.into(),
        };
        Some(Box::new(Rpcbs { first, rest }))
    }))
}

fn time() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32)
}

impl Portmap for Arc<Table> {
    fn set(&self, mapping: Mapping) -> Result<bool> {
        let network = network_of_protocol(mapping.protocol);
        let port = u16::try_from(mapping.port).unwrap_or(0);
        let has_changed = network.is_some_and(|network| {
            let program = (mapping.program, mapping.version);
            Table::set(self, &Asker::of_call(), program, network.name(), &anywhere(port))
        });
        self.count(2, 1, has_changed);
        Ok(has_changed)
    }

    fn unset(&self, mapping: Mapping) -> Result<bool> {
        let is_removed = |network| matches!(network, Network::Udp | Network::Tcp);
        let program = (mapping.program, mapping.version);
        let has_changed = Table::unset(self, &Asker::of_call(), program, is_removed);
        self.count(2, 2, has_changed);
        Ok(has_changed)
    }

    fn getport(&self, mapping: Mapping) -> Result<u32> {
        self.count(2, 3, false);
        let asker = Asker::of_call();
        let network = network_of_protocol(mapping.protocol);
        let program = (mapping.program, mapping.version);
        let place = network.and_then(|network| self.find(2, program, network));
        Ok(match place {
            Some(Place::Socket(at)) if asker.reaches(at.ip(), near).is_some() => at.port().into(),
            _ => 0,
        })
    }

    fn dump(&self) -> Result<Option<Box<Mappings>>> {
        self.count(2, 4, false);
        check_lists(&Asker::of_call())?;
        Ok(self.mappings().into_iter().rev().fold(None, |rest, one| {
            let [program, version, protocol, port] = one;
            let first = Mapping { program, version, protocol, port };
            Some(Box::new(Mappings { first, rest }))
        }))
    }
}

/// Implements the procedures that versions 3 and 4 have in common.
macro_rules! common {
    ($version:literal) => {
        fn set(&self, rpcb: Rpcb) -> Result<bool> {
            Ok(set(self, $version, &Asker::of_call(), &rpcb))
        }

        fn unset(&self, rpcb: Rpcb) -> Result<bool> {
            Ok(unset(self, $version, &Asker::of_call(), &rpcb))
        }

        fn getaddr(&self, rpcb: Rpcb) -> Result<ByteString> {
            self.count($version, 3, false);
            Ok(address(self, $version, &Asker::of_call(), &rpcb))
        }

        fn dump(&self) -> Result<Option<Box<Rpcbs>>> {
            self.count($version, 4, false);
            dump(self, &Asker::of_call())
        }

        fn gettime(&self) -> Result<u32> {
            self.count($version, 6, false);
            Ok(time())
        }

        fn uaddr2taddr(&self, address: ByteString) -> Result<Netbuf> {
            self.count($version, 7, false);
            Ok(netbuf_of(Asker::of_call().network, &address.to_text()))
        }

        fn taddr2uaddr(&self, address: Netbuf) -> Result<ByteString> {
            self.count($version, 8, false);
            Ok(universal_of(&address).unwrap_or_default().into())
        }
    };
}

impl RpcbindV3 for Arc<Table> {
    common!(3);
}

impl RpcbindV4 for Arc<Table> {
    common!(4);

    fn getversaddr(&self, rpcb: Rpcb) -> Result<ByteString> {
        self.count(4, 9, false);
        let asker = Asker::of_call();
        let all = self.of_version(rpcb.program, rpcb.version);
        let place = all.iter().find(|one| asker.network == Some(one.network));
        Ok(place.and_then(|one| told(&one.place, &asker)).unwrap_or_default().into())
    }

    fn getaddrlist(&self, rpcb: Rpcb) -> Result<Option<Box<Places>>> {
        self.count(4, 11, false);
        let asker = Asker::of_call();
        check_lists(&asker)?;
        let all = self.of_version(rpcb.program, rpcb.version);
        let family = asker.network.map(family);
        let same = all.iter().rev().filter(|one| family == Some(self::family(one.network)));
        Ok(same
            .filter_map(|one| listed(one, &asker))
            .fold(None, |rest, first| Some(Box::new(Places { first, rest }))))
    }

    fn getstat(&self) -> Result<[Calls; 3]> {
        self.count(4, 12, false);
        check_lists(&Asker::of_call())?;
        Ok(self.counts().map(|counts| Calls {
            procedures: counts.procedures,
            set: counts.set,
            unset: counts.unset,
            addresses: counts.asked.iter().rev().fold(None, |rest, one| {
                let &Asked { program, version, network, success, failure } = one;
                let network = network.name().into();
                let calls = AddressCalls { program, version, success, failure, network, rest };
                Some(Box::new(calls))
            }),
            indirect: None,
        }))
    }
}

/// Returns the family of protocols of a network.
const fn family(network: Network) -> &'static str {
    match network {
        Network::Udp | Network::Tcp => "inet",
        Network::Udp6 | Network::Tcp6 => "inet6",
        Network::Local => "loopback",
    }
}

fn listed(one: &Entry, asker: &Asker) -> Option<ListedPlace> {
    let (semantics, protocol) = match one.network {
        Network::Udp | Network::Udp6 => (1, "udp"),
        Network::Tcp | Network::Tcp6 => (3, "tcp"),
        Network::Local => (3, "-"),
    };
    Some(ListedPlace {
        address: told(&one.place, asker)?.into(),
        network: one.network.name().into(),
        semantics,
        family: family(one.network).into(),
        protocol: protocol.into(),
    })
}

/// Converts a universal address to a `struct sockaddr`. Returns an empty one if the text is no address.
fn netbuf_of(network: Option<Network>, text: &str) -> Netbuf {
    match network.and_then(|network| Universal::parse(network, text)) {
        Some(Universal::Socket(at)) => {
            let bytes = Address::from(at).as_bytes().to_vec();
            Netbuf { room: bytes.len() as u32, bytes }
        }
        _ => Netbuf::default(),
    }
}

/// Returns the universal address of a `struct sockaddr`.
fn universal_of(address: &Netbuf) -> Option<String> {
    let at = Address::of_bytes(&address.bytes)?.ip()?;
    Some(Universal::Socket(at).to_string())
}
