//! `Asker`: from where rpcbind is called, and what the caller may change.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use crate::call::{PathKind, caller};
use crate::interface::System;
use crate::path::onc::network_of;
use crate::protocol::onc::universal::Network;

/// The first port that every user may use.
const PORT_OF_ANY_USER: u16 = 1024;

/// The owner of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The superuser, or a program that may use ports below 1024.
    Superuser,
    /// A user, proven by the kernel.
    User(u32),
    /// Any program of this machine that calls over the loopback interface.
    Unknown,
}

impl Owner {
    /// Returns whether a program of this owner may remove a registration of `other`.
    pub(super) fn may_change(self, other: Self) -> bool {
        self == Self::Superuser || self == other
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superuser => f.write_str("superuser"),
            Self::User(user) => write!(f, "{user}"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// The caller of rpcbind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    /// The owner of what the caller registers. `None` if the caller may change nothing, because it is on
    /// another machine.
    pub(super) owner: Option<Owner>,
    /// The network over which the call arrived. `None` if the call did not arrive by ONC RPC.
    pub(super) network: Option<Network>,
    /// The IP address and port of the caller. `None` if the caller has none, for example over a local socket.
    pub(super) from: Option<SocketAddr>,
}

impl Asker {
    /// Returns the caller of the procedure that runs now.
    pub(super) fn of_call() -> Self {
        let Some(caller) = caller() else {
            return Self { owner: None, network: None, from: None };
        };
        match caller.from() {
            Some(from) => Self::at(caller.path(), from),
            None => {
                let owner = match caller.user() {
                    0 => Owner::Superuser,
                    user => Owner::User(user),
                };
                let is_here = caller.path().is_on_this_machine();
                Self { owner: is_here.then_some(owner), network: None, from: None }
            }
        }
    }

    /// Returns the caller at an address. An identity that the caller claims by AUTH_SYS is not used, because
    /// anybody can claim any identity.
    pub(super) fn at(path: PathKind, from: SocketAddr) -> Self {
        let ip = from.ip().to_canonical();
        let owner = match from.port() < PORT_OF_ANY_USER {
            true => Owner::Superuser,
            false => Owner::Unknown,
        };
        let from = SocketAddr::new(ip, from.port());
        let network = (path.system() == Some(System::Onc)).then(|| network_of(path, &from));
        Self { owner: ip.is_loopback().then_some(owner), network, from: Some(from) }
    }

    /// Returns whether the caller may register a program at this port.
    pub(super) fn may_use(&self, port: u16) -> bool {
        port != 0 && (port >= PORT_OF_ANY_USER || self.owner == Some(Owner::Superuser))
    }

    /// Returns whether the caller may get a long reply. The address of a datagram from another machine may be
    /// forged. A long reply would hit the machine that has the address.
    pub(super) fn may_get_lists(&self) -> bool {
        let is_datagram = matches!(self.network, Some(Network::Udp | Network::Udp6));
        self.owner.is_some() || !is_datagram
    }

    /// Returns the IP address at which this caller reaches a program that listens at `host`. `near` returns
    /// the address of this machine that a caller at the given address reaches. Returns `None` if the caller
    /// cannot reach the program.
    pub(super) fn reaches(
        &self,
        host: IpAddr,
        near: impl Fn(SocketAddr) -> Option<IpAddr>,
    ) -> Option<IpAddr> {
        match self.from {
            Some(from) if host.is_unspecified() => near(from),
            Some(from) if host.is_loopback() && !from.ip().is_loopback() => None,
            _ => Some(host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: PathKind, from: &str) -> Asker {
        Asker::at(path, from.parse().unwrap())
    }

    #[test]
    fn only_the_port_and_the_loopback_interface_prove_an_owner() {
        let owner = |from: &str| at(PathKind::OncTcp, from).owner;
        assert_eq!(owner("127.0.0.1:1023"), Some(Owner::Superuser));
        assert_eq!(owner("127.0.0.1:1024"), Some(Owner::Unknown));
        assert_eq!(owner("[::1]:600"), Some(Owner::Superuser));
        assert_eq!(owner("[::ffff:127.0.0.1]:5000"), Some(Owner::Unknown));
        for other in ["192.0.2.1:600", "[2001:db8::1]:600", "[::ffff:192.0.2.1]:600"] {
            assert_eq!(owner(other), None);
        }
    }

    #[test]
    fn only_owners_and_the_superuser_change_registrations() {
        let all = [Owner::Superuser, Owner::User(1000), Owner::User(1001), Owner::Unknown];
        for by in all {
            for of in all {
                assert_eq!(by.may_change(of), by == of || by == Owner::Superuser);
            }
        }
    }

    #[test]
    fn ports_below_1024_are_for_the_superuser() {
        let (root, user) =
            (at(PathKind::OncUdp, "127.0.0.1:1"), at(PathKind::OncUdp, "127.0.0.1:5000"));
        assert!(root.may_use(111) && !user.may_use(1023) && user.may_use(1024));
        assert!(!root.may_use(0));
    }

    #[test]
    fn other_machines_get_no_lists_in_datagrams() {
        assert!(at(PathKind::OncUdp, "127.0.0.1:5000").may_get_lists());
        assert!(!at(PathKind::OncUdp, "192.0.2.1:5000").may_get_lists());
        assert!(!at(PathKind::OncUdp, "[2001:db8::1]:5000").may_get_lists());
        assert!(at(PathKind::OncTcp, "192.0.2.1:5000").may_get_lists());
    }

    #[test]
    fn each_caller_gets_an_address_that_it_reaches() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let far = at(PathKind::OncUdp, "192.0.2.1:5000");
        let here = at(PathKind::OncUdp, "127.0.0.1:5000");
        let near = |_: SocketAddr| Some(ip("192.0.2.7"));
        assert_eq!(far.reaches(ip("0.0.0.0"), near), Some(ip("192.0.2.7")));
        assert_eq!(far.reaches(ip("127.0.0.1"), near), None);
        assert_eq!(far.reaches(ip("192.0.2.9"), near), Some(ip("192.0.2.9")));
        assert_eq!(here.reaches(ip("127.0.0.1"), near), Some(ip("127.0.0.1")));
        assert_eq!(far.reaches(ip("0.0.0.0"), |_| None), None);
    }
}
