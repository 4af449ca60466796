//! [`Access`]: which paths the second call may use, so that it never has more rights than its caller.
//!
//! | caller of the name service | the second call may use |
//! |---|---|
//! | a process of this machine with the user and the group of the name service | every path of Peregrine |
//! | another process of this machine | UDP and TCP |
//! | a process of another machine | UDP and TCP, but no loopback address |
//!
//! On UDP and TCP, a server sees nothing of the name service but its address, because the name service shows
//! no identity.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use peregrine::{Address, Caller, CallerIdentity, PathKind};

/// The largest number of IP addresses of one host that are tried.
const HOST_ADDRESSES_MAX: usize = 4;

/// What a caller of the name service could reach itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// Everything that the name service can.
    Own,
    /// The networks, including the loopback addresses of this machine.
    ThisMachine,
    /// The networks.
    Remote,
}

impl Access {
    /// Returns what a caller may reach. `None` is code of this process, which no call has brought here.
    pub(crate) fn of(caller: Option<&Caller>) -> Self {
        let Some(caller) = caller else { return Self::Own };
        if caller.path().is_on_this_machine() {
            let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
            return match caller.identity() {
                Some(CallerIdentity::Local { user, group, .. }) if (user, group) == own => {
                    Self::Own
                }
                _ => Self::ThisMachine,
            };
        }
        match caller.from() {
            Some(from) if is_loopback(from.ip()) => Self::ThisMachine,
            _ => Self::Remote,
        }
    }

    /// Returns the addresses at which the second call may be made, for one address of the directory. They
    /// have no names of hosts, so that no later look-up leads elsewhere.
    ///
    /// # Errors
    /// Why there are none, for people.
    pub(crate) fn allowed(self, address: &Address) -> Result<Vec<String>, String> {
        let refused = |why: &str| Err(format!("{address} {why}"));
        if address.name().starts_with('.') {
            return refused("is a reserved name, which only the server's clients call");
        }
        if address.path().is_some_and(|path| path.system().is_some()) {
            return refused("is a program of another RPC system, which does not describe itself");
        }
        if self == Self::Own {
            return Ok(vec![address.to_string()]);
        }
        let place = match (address.path(), address.place()) {
            (None | Some(PathKind::Udp | PathKind::Tcp), Some(place)) => place,
            _ => return refused("can only be called by the user of the name service itself"),
        };
        let schemes = match address.path() {
            Some(PathKind::Udp) => &["udp"][..],
            Some(PathKind::Tcp) => &["tcp"],
            _ => &["udp", "tcp"],
        };
        let hosts: Vec<SocketAddr> = match (place.host(), place.port()).to_socket_addrs() {
            Ok(hosts) => hosts.take(HOST_ADDRESSES_MAX).collect(),
            Err(error) => return refused(&format!("cannot be found: {error}")),
        };
        let reachable = hosts.iter().filter(|host| self.may_reach(host.ip()));
        let reachable: Vec<_> = reachable.collect();
        if reachable.is_empty() {
            return refused(
                "is on the machine of the name service, which other machines cannot reach",
            );
        }
        let name = address.name();
        let of_scheme = |scheme: &&str| {
            let texts = reachable.iter().map(|host| format!("{scheme}:{name}@{host}"));
            texts.collect::<Vec<_>>()
        };
        Ok(schemes.iter().flat_map(of_scheme).collect())
    }

    /// Returns whether an address of the directory means something to the caller: the loopback addresses and
    /// the names without a machine mean another machine there.
    pub(crate) fn is_meant(self, address: &Address) -> bool {
        let Some(place) = address.place() else { return self != Self::Remote };
        let host = place.host().parse::<IpAddr>();
        let is_here = host.map_or(place.host() == "localhost", is_loopback);
        self != Self::Remote || !is_here
    }

    fn may_reach(self, host: IpAddr) -> bool {
        self != Self::Remote || !is_loopback(host)
    }
}

/// Returns whether an address leads to the machine that uses it. Linux also takes unspecified addresses so.
fn is_loopback(host: IpAddr) -> bool {
    let host = host.to_canonical();
    let unspecified = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    host.is_loopback() || unspecified.contains(&host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(access: Access, address: &str) -> Result<Vec<String>, String> {
        access.allowed(&address.parse().unwrap())
    }

    #[test]
    fn every_loopback_address_is_kept_from_other_machines() {
        for host in [
            "127.0.0.1",
            "127.9.9.9",
            "[::1]",
            "0.0.0.0",
            "[::]",
            "[::ffff:127.0.0.1]",
            "localhost",
        ] {
            let address = format!("tcp:files@{host}:7000");
            let refused = allowed(Access::Remote, &address).unwrap_err();
            assert!(refused.contains("is on the machine of the name service"), "{refused}");
            assert!(allowed(Access::ThisMachine, &address).is_ok());
        }
        assert!(!Access::Remote.is_meant(&"files@127.0.0.1:7000".parse().unwrap()));
        assert!(Access::Remote.is_meant(&"files@192.0.2.7:7000".parse().unwrap()));
    }

    #[test]
    fn only_the_own_user_uses_paths_that_show_the_user() {
        for address in ["files", "local:files", "eth:files@192.0.2.7:7000"] {
            for access in [Access::ThisMachine, Access::Remote] {
                let refused = allowed(access, address).unwrap_err();
                assert!(refused.contains("only be called by the user"), "{refused}");
            }
            assert_eq!(allowed(Access::Own, address).unwrap(), [address]);
        }
        let both = allowed(Access::Remote, "files@192.0.2.7:7000").unwrap();
        assert_eq!(both, ["udp:files@192.0.2.7:7000", "tcp:files@192.0.2.7:7000"]);
    }

    #[test]
    fn reserved_names_and_other_systems_are_called_for_no_caller() {
        for address in ["@192.0.2.7:7000", "tcp:.health@192.0.2.7:7000"] {
            assert!(allowed(Access::Own, address).unwrap_err().contains("reserved name"));
        }
        let program = "onc+tcp:192.0.2.7:7000/100003.3";
        assert!(allowed(Access::Own, program).unwrap_err().contains("another RPC system"));
    }
}
