//! Universal addresses: addresses as texts, as rpcbind uses them. The last two numbers of a text are the
//! port. `127.0.0.1.8.1` is port 2049 (8 times 256, plus 1) of 127.0.0.1.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::rpcbind::{PROTOCOL_TCP, PROTOCOL_UDP};

/// A kind of transport that Peregrine knows. rpcbind identifies it by a name (netid).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    Udp,
    Tcp,
    Udp6,
    Tcp6,
    /// Stream sockets of the same machine.
    Local,
}

impl Network {
    pub(crate) const ALL: [Self; 5] = [Self::Udp, Self::Tcp, Self::Udp6, Self::Tcp6, Self::Local];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Udp6 => "udp6",
            Self::Tcp6 => "tcp6",
            Self::Local => "local",
        }
    }

    /// Returns the network with this name. `unix` is another name of `local`.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let name = if name == "unix" { "local" } else { name };
        Self::ALL.into_iter().find(|network| network.name() == name)
    }

    /// Returns the network whose protocol has this number in version 2 of rpcbind, which knows only IPv4.
    pub(crate) const fn from_protocol(protocol: u32) -> Option<Self> {
        match protocol {
            PROTOCOL_TCP => Some(Self::Tcp),
            PROTOCOL_UDP => Some(Self::Udp),
            _ => None,
        }
    }

    /// Returns the number that the protocol of the network has in version 2 of rpcbind, or `None` if version
    /// 2 does not know the network.
    pub(crate) const fn protocol(self) -> Option<u32> {
        match self {
            Self::Tcp => Some(PROTOCOL_TCP),
            Self::Udp => Some(PROTOCOL_UDP),
            _ => None,
        }
    }
}

/// A universal address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Universal<'a> {
    Socket(SocketAddr),
    /// The path of a local socket.
    Local(&'a str),
}

impl<'a> Universal<'a> {
    /// Reads an address of this network. Returns `None` if the text is no such address. An IPv6 address with
    /// the name of an interface (`fe80::1%eth0`) is refused, because only its own machine knows the name.
    pub(crate) fn parse(network: Network, text: &'a str) -> Option<Self> {
        if network == Network::Local {
            return (!text.is_empty() && !text.contains('\0')).then_some(Self::Local(text));
        }
        let (rest, low) = text.rsplit_once('.')?;
        let (host, high) = rest.rsplit_once('.')?;
        let ip = match network {
            Network::Udp6 | Network::Tcp6 => IpAddr::V6(host.parse::<Ipv6Addr>().ok()?),
            _ => IpAddr::V4(host.parse::<Ipv4Addr>().ok()?),
        };
        let port = u16::from_be_bytes([byte(high)?, byte(low)?]);
        Some(Self::Socket(SocketAddr::new(ip, port)))
    }

    /// Returns the port, or `None` if the address is the path of a local socket.
    pub(crate) const fn port(&self) -> Option<u16> {
        match self {
            Self::Socket(address) => Some(address.port()),
            Self::Local(_) => None,
        }
    }
}

/// Reads a number from 0 to 255. A sign is not allowed.
fn byte(text: &str) -> Option<u8> {
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for Universal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(address) => {
                let [high, low] = address.port().to_be_bytes();
                write!(f, "{}.{high}.{low}", address.ip())
            }
            Self::Local(path) => f.write_str(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_have_their_documented_texts() {
        let texts = [
            (Network::Tcp, "127.0.0.1.8.1", "127.0.0.1:2049"),
            (Network::Udp, "0.0.0.0.0.111", "0.0.0.0:111"),
            (Network::Tcp6, "::1.255.255", "[::1]:65535"),
            (Network::Udp6, "::ffff:10.0.0.1.8.1", "[::ffff:10.0.0.1]:2049"),
        ];
        for (network, text, socket) in texts {
            let address = Universal::Socket(socket.parse().expect("an address"));
            assert_eq!(Universal::parse(network, text), Some(address));
            assert_eq!(address.to_string(), text);
        }
        let path = Universal::Local("/run/rpcbind.sock");
        assert_eq!(Universal::parse(Network::Local, "/run/rpcbind.sock"), Some(path));
        assert_eq!(path.to_string(), "/run/rpcbind.sock");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "1",
            "8.1",
            "127.0.0.1",
            "127.0.0.1.256.1",
            "127.0.0.1.+8.1",
            "127.0.0.1..1",
            "127.0.0.1.8.1.",
            "::1.8.1",
            "localhost.8.1",
            " 127.0.0.1.8.1",
            "127.0.0.1.8.1 ",
        ] {
            assert_eq!(Universal::parse(Network::Tcp, text), None, "{text}");
        }
        assert_eq!(Universal::parse(Network::Tcp6, "127.0.0.1.8.1"), None);
        assert_eq!(Universal::parse(Network::Tcp6, "fe80::1%eth0.8.1"), None);
        assert_eq!(Universal::parse(Network::Local, ""), None);
        assert_eq!(Universal::parse(Network::Local, "a\0b"), None);
    }

    #[test]
    fn networks_have_names() {
        for network in Network::ALL {
            assert_eq!(Network::from_name(network.name()), Some(network));
            let protocol = network.protocol();
            assert!(protocol.is_none_or(|one| Network::from_protocol(one) == Some(network)));
        }
        assert_eq!(Network::from_name("unix"), Some(Network::Local));
        assert_eq!(Network::from_name("sctp"), None);
    }

    proptest! {
        #[test]
        fn addresses_are_read_as_they_were_written(ip in any::<IpAddr>(), port in any::<u16>()) {
            let network = if ip.is_ipv4() { Network::Udp } else { Network::Udp6 };
            let address = Universal::Socket(SocketAddr::new(ip, port));
            let text = address.to_string();
            prop_assert_eq!(Universal::parse(network, &text), Some(address));
        }

        #[test]
        fn any_text_is_read_without_harm(text in "\\PC{0,40}") {
            for network in Network::ALL {
                if let Some(address) = Universal::parse(network, &text) {
                    let again = address.to_string();
                    prop_assert_eq!(Universal::parse(network, &again), Some(address));
                }
            }
        }
    }
}
