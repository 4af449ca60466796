//! Where a directory is in DNS: the text after `dns:`.
//!
//! ```text
//! place   = ["//" server *("," server) "/"] domain [":" port]
//! server  = address [":" port]
//! address = IPv4 address | "[" IPv6 address "]"
//! ```
//!
//! This is the form of RFC 4501, with a port, and with several name servers.

use core::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use peregrine::{CallError, Executed, Kind, Place as Machine};

/// The port of name servers.
const NAME_SERVER_PORT: u16 = 53;
/// The maximum number of name servers in a text.
const NAME_SERVERS_MAX: usize = 8;
/// The maximum length of a label, such as `example` in `www.example.org`.
pub(crate) const LABEL_BYTES_MAX: usize = 63;

/// A domain, and the name servers that are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The name servers. If there are none, those of the system are asked.
    pub(crate) name_servers: Vec<SocketAddr>,
    /// In lower case, and without a dot at the end.
    pub(crate) domain: String,
    /// The port of servers for which DNS has only an address.
    pub(crate) port: u16,
}

impl Place {
    /// Reads `DOMAIN[:PORT]`, or `//SERVER[:PORT],SERVER[:PORT]/DOMAIN[:PORT]`.
    pub(crate) fn read(text: &str) -> Result<Self, CallError> {
        let wrong = |what: &str| {
            let text = format!("`dns:{text}`: {what}; write dns:DOMAIN or dns://ADDRESS/DOMAIN");
            CallError::new(Kind::BadName, Executed::No, text)
        };
        let (name_servers, rest) = match text.strip_prefix("//") {
            None => (Vec::new(), text),
            Some(rest) => {
                let (servers, rest) =
                    rest.split_once('/').ok_or_else(|| wrong("`/DOMAIN` is missing"))?;
                let servers = servers.split(',').map(name_server);
                let servers = servers.collect::<Option<Vec<_>>>();
                let servers = servers.ok_or_else(|| {
                    wrong("a name server is not an IP address, perhaps with a port")
                })?;
                if servers.len() > NAME_SERVERS_MAX {
                    return Err(wrong("there are more than 8 name servers"));
                }
                (servers, rest)
            }
        };
        let (domain, port) = match rest.split_once(':') {
            None => (rest, Machine::DEFAULT_PORT),
            Some((domain, port)) => {
                let port = port.parse().ok().filter(|port| *port > 0);
                (domain, port.ok_or_else(|| wrong("the port is not valid"))?)
            }
        };
        let domain = domain.strip_suffix('.').unwrap_or(domain);
        if !is_domain(domain) {
            return Err(wrong("the domain is missing or not valid"));
        }
        Ok(Self { name_servers, domain: domain.to_ascii_lowercase(), port })
    }

    /// Returns whether all name servers are on this machine. Only then may a server have an address of the
    /// loopback interface: from elsewhere, such an address means another machine.
    pub(crate) fn is_on_this_machine(&self) -> bool {
        let mut servers = self.name_servers.iter();
        !self.name_servers.is_empty() && servers.all(|one| one.ip().to_canonical().is_loopback())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DNS")?;
        let mut between = " at ";
        for server in &self.name_servers {
            write!(f, "{between}{server}")?;
            between = ", ";
        }
        write!(f, " below {}", self.domain)
    }
}

fn name_server(text: &str) -> Option<SocketAddr> {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = match bracketed {
        Some(address) => address.parse().ok().map(IpAddr::V6),
        None => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    };
    let with_default = address.map(|address| SocketAddr::new(address, NAME_SERVER_PORT));
    with_default.or_else(|| text.parse().ok()).filter(|server| server.port() > 0)
}

/// Returns whether a text without a dot at its end consists of labels of letters, digits, `-` and `_`.
pub(crate) fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    text.len() < 254 && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let read = |text| {
            let place = Place::read(text).unwrap();
            let servers: Vec<_> = place.name_servers.iter().map(SocketAddr::to_string).collect();
            (servers.join(" "), place.domain, place.port)
        };
        let own =
            |servers: &str, domain: &str, port: u16| (servers.to_owned(), domain.to_owned(), port);
        assert_eq!(read("example.org"), own("", "example.org", 7193));
        assert_eq!(read("Example.ORG.:7000"), own("", "example.org", 7000));
        assert_eq!(read("ns.svc.cluster.local"), own("", "ns.svc.cluster.local", 7193));
        assert_eq!(read("//192.0.2.1/a_b.c:1"), own("192.0.2.1:53", "a_b.c", 1));
        let servers = "//127.0.0.1:5353,[2001:db8::1],[::1]:54/example.org";
        assert_eq!(
            read(servers),
            own("127.0.0.1:5353 [2001:db8::1]:53 [::1]:54", "example.org", 7193)
        );
    }

    #[test]
    fn wrong_places_are_explained() {
        for (text, what) in [
            ("", "the domain is missing"),
            ("//192.0.2.1", "`/DOMAIN` is missing"),
            ("//192.0.2.1/", "the domain is missing"),
            ("///example.org", "a name server is not an IP address"),
            ("//ns.example.org/example.org", "a name server is not an IP address"),
            ("//::1/example.org", "a name server is not an IP address"),
            ("//192.0.2.1:0/example.org", "a name server is not an IP address"),
            ("//192.0.2.1,/example.org", "a name server is not an IP address"),
            ("//[192.0.2.1]/example.org", "a name server is not an IP address"),
            (
                "//1.1.1.1,1.1.1.2,1.1.1.3,1.1.1.4,1.1.1.5,1.1.1.6,1.1.1.7,1.1.1.8,1.1.1.9/a",
                "there are more than 8 name servers",
            ),
            ("example..org", "the domain is missing or not valid"),
            (".", "the domain is missing or not valid"),
            ("example.org/x", "the domain is missing or not valid"),
            ("ex ample.org", "the domain is missing or not valid"),
            ("example.org:", "the port is not valid"),
            ("example.org:0", "the port is not valid"),
            ("example.org:65536", "the port is not valid"),
            (&"a".repeat(64), "the domain is missing or not valid"),
            (&"a.".repeat(128), "the domain is missing or not valid"),
        ] {
            let error = Place::read(text).unwrap_err();
            assert_eq!(error.kind(), Kind::BadName);
            assert!(error.to_string().contains(what), "{error}");
        }
    }

    #[test]
    fn only_explicit_name_servers_are_on_this_machine() {
        let is_here = |text| Place::read(text).unwrap().is_on_this_machine();
        assert!(is_here("//127.0.0.1/a"));
        assert!(is_here("//127.0.0.53,[::1]:54/a"));
        assert!(!is_here("a"));
        assert!(!is_here("//127.0.0.1,192.0.2.1/a"));
    }

    #[test]
    fn places_are_described() {
        let described = |text| Place::read(text).unwrap().to_string();
        assert_eq!(described("example.org"), "DNS below example.org");
        let two = described("//192.0.2.1,[::1]:54/example.org");
        assert_eq!(two, "DNS at 192.0.2.1:53, [::1]:54 below example.org");
    }
}
