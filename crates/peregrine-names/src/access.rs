//! [`Access`]: which paths the second call may use, so that it never has more rights than its caller.
//!
//! | caller of the name service | the second call may use |
//! |---|---|
//! | a process of this machine with the user and the group of the name service | local paths, UDP, TCP |
//! | another process of this machine | UDP and TCP |
//! | a process of another machine | UDP and TCP, but no loopback address |
//!
//! On UDP and TCP, a server sees nothing of the name service but its address, because the name service shows
//! no identity. On local paths, a server sees the user, the group and the supplementary groups of the name
//! service. The supplementary groups of a caller are not known, so the first line of the table is used only if
//! the name service has none. No call uses raw Ethernet, because that needs a capability, which the caller may
//! not have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use peregrine::{Address, Caller, CallerIdentity, Kind, PathKind};
use rustix::process::{getegid, geteuid, getgid, getgroups};

use crate::interface::Failure;

/// The largest number of IP addresses of one host that are tried.
const HOST_ADDRESSES_MAX: usize = 4;
/// The largest number of names of hosts that are looked up for one call.
const LOOK_UPS_MAX: usize = 8;

/// What a caller of the name service could reach itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// The local paths, and the networks.
    Own,
    /// The networks, including the loopback addresses of this machine.
    ThisMachine,
    /// The networks.
    Remote,
}

/// The number of names of hosts that may still be looked up for a call.
pub(crate) struct LookUps(usize);

impl Default for LookUps {
    fn default() -> Self {
        Self(LOOK_UPS_MAX)
    }
}

impl Access {
    /// Returns what a caller may reach. `None` is code of this process, which no call has brought here.
    pub(crate) fn of(caller: Option<&Caller>) -> Self {
        let Some(caller) = caller else { return Self::Own };
        if caller.path().is_on_this_machine() {
            let own = (geteuid().as_raw(), getegid().as_raw());
            return match caller.identity() {
                Some(CallerIdentity::Local { user, group, .. })
                    if (user, group) == own && !has_other_groups() =>
                {
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
    /// The reason, if no address may be used. The kind is [`Kind::Unreachable`] if a host could not be found.
    pub(crate) fn allowed(
        self,
        address: &Address,
        look_ups: &mut LookUps,
    ) -> Result<Vec<String>, Failure> {
        let failed = |kind, why: &str| Err(Failure::new(kind, format!("{address} {why}")));
        let refused = |why| failed(Kind::Denied, why);
        if address.name().starts_with('.') {
            return refused("is a reserved name, which only the server's clients call");
        }
        if address.path().is_some_and(|path| path.system().is_some()) {
            return refused("is a program of another RPC system, which does not describe itself");
        }
        if address.path() == Some(PathKind::Ethernet) {
            return refused("is on raw Ethernet, on which a name service makes no calls");
        }
        let place = match (address.path(), address.place()) {
            (None | Some(PathKind::Udp | PathKind::Tcp), Some(place)) => place,
            (None | Some(PathKind::Local), None) if self == Self::Own => {
                return Ok(vec![format!("local:{}", address.name())]);
            }
            _ if has_other_groups() => {
                return refused(
                    "cannot be called by this name service, because it has supplementary groups, which \
                     its callers may not have: start it without them",
                );
            }
            _ => return refused("can only be called by the user of the name service itself"),
        };
        let schemes = match address.path() {
            Some(PathKind::Udp) => &["udp"][..],
            Some(PathKind::Tcp) => &["tcp"],
            _ => &["udp", "tcp"],
        };
        if place.host().parse::<IpAddr>().is_err() {
            let Some(left) = look_ups.0.checked_sub(1) else {
                let why =
                    format!("is not looked up: one call looks up {LOOK_UPS_MAX} names of hosts");
                return failed(Kind::Unreachable, &why);
            };
            look_ups.0 = left;
        }
        let hosts: Vec<SocketAddr> = match (place.host(), place.port()).to_socket_addrs() {
            Ok(hosts) => hosts.take(HOST_ADDRESSES_MAX).collect(),
            Err(error) => return failed(Kind::Unreachable, &format!("cannot be found: {error}")),
        };
        if hosts.is_empty() {
            return failed(Kind::Unreachable, "cannot be found: the host has no IP address");
        }
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
        let is_here = host.map_or_else(|_| is_loopback_name(place.host()), is_loopback);
        self != Self::Remote || !is_here
    }

    fn may_reach(self, host: IpAddr) -> bool {
        self != Self::Remote || !is_loopback(host)
    }
}

/// Returns whether this process has more groups than the effective one. If that is not known, it has.
fn has_other_groups() -> bool {
    let own = getegid();
    getgid() != own || getgroups().map_or(true, |all| all.iter().any(|group| *group != own))
}

/// Returns whether an address leads to the machine that uses it. Linux also takes unspecified addresses so.
fn is_loopback(host: IpAddr) -> bool {
    let host = host.to_canonical();
    let unspecified = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    host.is_loopback() || unspecified.contains(&host)
}

/// Returns whether a name of a host means the machine that uses it (RFC 6761), or is used so in `/etc/hosts`
/// of Linux distributions.
fn is_loopback_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let known = ["localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"];
    known.contains(&&*host) || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(access: Access, address: &str) -> Result<Vec<String>, String> {
        let allowed = access.allowed(&address.parse().unwrap(), &mut LookUps::default());
        allowed.map_err(|failure| failure.to_string())
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
            // What is bound is the IP address that was checked, and no name that could change its meaning.
            for access in [Access::ThisMachine, Access::Own] {
                for one in allowed(access, &address).unwrap() {
                    let place = one.strip_prefix("tcp:files@").unwrap();
                    assert!(is_loopback(place.parse::<SocketAddr>().unwrap().ip()), "{one}");
                }
            }
        }
        for host in [
            "127.0.0.1",
            "[::1]",
            "localhost",
            "LocalHost",
            "localhost.",
            "db.localhost",
            "ip6-localhost",
        ] {
            let address = format!("files@{host}:7000").parse().unwrap();
            assert!(!Access::Remote.is_meant(&address), "{address}");
            assert!(Access::ThisMachine.is_meant(&address), "{address}");
        }
        for host in ["192.0.2.7", "mylocalhost", "localhost.example.org"] {
            assert!(Access::Remote.is_meant(&format!("files@{host}:7000").parse().unwrap()));
        }
    }

    #[test]
    fn only_the_own_user_uses_paths_that_show_the_user() {
        for address in ["files", "local:files"] {
            for access in [Access::ThisMachine, Access::Remote] {
                let refused = allowed(access, address).unwrap_err();
                let why = match has_other_groups() {
                    true => "supplementary groups",
                    false => "only be called by the user",
                };
                assert!(refused.contains(why), "{refused}");
            }
            assert_eq!(allowed(Access::Own, address).unwrap(), ["local:files"]);
        }
        for access in [Access::Own, Access::ThisMachine, Access::Remote] {
            let both = allowed(access, "files@192.0.2.7:7000").unwrap();
            assert_eq!(both, ["udp:files@192.0.2.7:7000", "tcp:files@192.0.2.7:7000"]);
        }
    }

    #[test]
    fn no_call_uses_raw_ethernet() {
        for access in [Access::Own, Access::ThisMachine, Access::Remote] {
            let refused = allowed(access, "eth:files@192.0.2.7:7000").unwrap_err();
            assert!(refused.contains("is on raw Ethernet"), "{refused}");
        }
    }

    #[test]
    fn names_of_hosts_are_looked_up_a_bounded_number_of_times() {
        let mut look_ups = LookUps::default();
        let mut find =
            |address: &str| Access::ThisMachine.allowed(&address.parse().unwrap(), &mut look_ups);
        for _ in 0..LOOK_UPS_MAX {
            assert!(find("files@192.0.2.7:7000").is_ok());
            assert!(find("files@localhost:7000").is_ok());
        }
        let failure = find("files@localhost:7000").unwrap_err();
        assert_eq!(failure.kind(), Kind::Unreachable);
        assert!(failure.to_string().contains("is not looked up"), "{failure}");
        assert!(find("files@192.0.2.7:7000").is_ok());
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
