//! `Address`: where an export is, as people write it. One grammar, one parser, errors that point.
//!
//! ```text
//! address  = name | "local:" name | scheme place "/" name
//! scheme   = "tcp:" | "udp:" | "eth:"
//! place    = host ":" port
//! host     = host name | IPv4 address | "[" IPv6 address "]"
//! ```

use core::fmt;
use core::str::FromStr;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};

use crate::error::{CallError, Kind, Phase};
use crate::interface::valid_name;

/// A machine and a port on it.
///
/// ```
/// use peregrine::Place;
///
/// let place: Place = "[::1]:7000".parse()?;
/// assert_eq!((place.host(), place.port()), ("::1", 7000));
/// assert_eq!(place.to_string(), "[::1]:7000");
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    host: String,
    port: u16,
}

/// Where an export is: a name of this machine, or a name at a place, by the protocol that leads
/// there.
///
/// ```
/// use peregrine::Address;
///
/// let address: Address = "tcp:fs.example.org:7000/files".parse()?;
/// assert_eq!(address.name(), "files");
/// assert_eq!(address.to_string(), "tcp:fs.example.org:7000/files");
/// let error = "tcp:fs.example.org/files".parse::<Address>().unwrap_err();
/// assert!(error.to_string().contains("expected `:PORT` at `/files`"));
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// `NAME` or `local:NAME`: a server of this machine.
    Local {
        /// The name under which it exports.
        name: String,
    },
    /// `tcp:HOST:PORT/NAME`.
    Tcp {
        /// Where the server listens.
        place: Place,
        /// The name under which it exports.
        name: String,
    },
    /// `udp:HOST:PORT/NAME`.
    Udp {
        /// Where the server listens.
        place: Place,
        /// The name under which it exports.
        name: String,
    },
    /// `eth:HOST:PORT/NAME`: over raw Ethernet, to a server that tells at that UDP address where it is
    /// on the link.
    Ethernet {
        /// Where the server listens.
        place: Place,
        /// The name under which it exports.
        name: String,
    },
}

/// Where a server listens: an address without a name.
///
/// ```
/// use peregrine::Endpoint;
///
/// let endpoint: Endpoint = "tcp:127.0.0.1:7000".parse()?;
/// assert_eq!(endpoint.to_string(), "tcp:127.0.0.1:7000");
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Endpoint {
    /// `tcp:HOST:PORT`.
    Tcp(Place),
    /// `udp:HOST:PORT`.
    Udp(Place),
    /// `eth:HOST:PORT`.
    Ethernet(Place),
}

/// What there may be in front of the first colon.
const SCHEMES: &str = "`local:`, `tcp:`, `udp:` or `eth:`";

/// Text that is read from left to right; what is wrong is wrong at a place in it.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, _) = self.rest().split_at(bytes);
        self.at += bytes;
        taken
    }

    fn eat(&mut self, what: &str) -> bool {
        let found = self.rest().starts_with(what);
        if found {
            self.at += what.len();
        }
        found
    }

    /// Says what should stand here.
    #[cold]
    fn expected(&self, what: &str) -> CallError {
        let here = match self.rest() {
            "" => "the end".to_owned(),
            rest => format!("`{rest}`"),
        };
        let column = self.text[..self.at].chars().count() + 1;
        let text = format!("`{}`: expected {what} at {here} (column {column})", self.text);
        CallError::not_executed(Kind::BadName, Phase::Resolve, text)
    }

    /// The scheme, if there is one: what stands in front of the first colon.
    fn scheme(&mut self) -> &'a str {
        let end = self.text.find(':').unwrap_or(0);
        let scheme = self.take(end);
        self.eat(":");
        scheme
    }

    fn place(&mut self) -> Result<Place, CallError> {
        let host = self.host()?;
        if !self.eat(":") {
            return Err(self.expected("`:PORT`"));
        }
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        let port = self.rest()[..digits].parse();
        let port = port.map_err(|_| self.expected("a port from 0 to 65535"))?;
        self.at += digits;
        Ok(Place { host, port })
    }

    fn host(&mut self) -> Result<String, CallError> {
        if !self.eat("[") {
            // An address of IPv6 without brackets has its second colon where the port ends.
            let end = self.rest().find([':', '/', '[', ']', '@']).unwrap_or(self.rest().len());
            if end == 0 {
                return Err(self.expected("a host"));
            }
            return Ok(self.take(end).to_owned());
        }
        let end = self.rest().find(']').unwrap_or(self.rest().len());
        let host = &self.rest()[..end];
        // An address of one link may name its interface.
        let bare = host.split('%').next().unwrap_or(host);
        if bare.parse::<core::net::Ipv6Addr>().is_err() {
            return Err(self.expected("an IPv6 address and `]`"));
        }
        self.at += end;
        if !self.eat("]") {
            return Err(self.expected("`]`"));
        }
        Ok(host.to_owned())
    }

    /// A name, up to the end or the next slash.
    fn name(&mut self) -> Result<String, CallError> {
        let end = self.rest().find('/').unwrap_or(self.rest().len());
        let name = &self.rest()[..end];
        if !valid_name(name) {
            return Err(self.expected("a name"));
        }
        self.at += end;
        Ok(name.to_owned())
    }

    fn address(&mut self) -> Result<Address, CallError> {
        let scheme = self.scheme();
        match scheme {
            "" | "local" => Ok(Address::Local { name: self.name()? }),
            "tcp" | "udp" | "eth" => {
                let place = self.place()?;
                if !self.eat("/") {
                    return Err(self.expected("`/NAME`"));
                }
                let name = self.name()?;
                Ok(match scheme {
                    "tcp" => Address::Tcp { place, name },
                    "eth" => Address::Ethernet { place, name },
                    _ => Address::Udp { place, name },
                })
            }
            _ => Err(Self::new(self.text).expected(SCHEMES)),
        }
    }

    fn end(&self) -> Result<(), CallError> {
        if self.rest().is_empty() { Ok(()) } else { Err(self.expected("nothing more")) }
    }
}

impl Place {
    /// The host, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; 0 lets a server that listens choose.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The socket addresses that the host has; there is at least one.
    pub(crate) fn resolve(&self) -> Result<Vec<SocketAddr>, CallError> {
        let failed = |error: io::Error| {
            let text = format!("finding the host `{}`", self.host);
            CallError::not_executed(Kind::Unreachable, Phase::Resolve, text).because(error)
        };
        let found: Vec<_> = (&*self.host, self.port).to_socket_addrs().map_err(failed)?.collect();
        if found.is_empty() {
            return Err(failed(io::Error::other("it has no address")));
        }
        Ok(found)
    }
}

impl Address {
    /// The name under which the server exports.
    pub fn name(&self) -> &str {
        match self {
            Self::Local { name }
            | Self::Tcp { name, .. }
            | Self::Udp { name, .. }
            | Self::Ethernet { name, .. } => name,
        }
    }

    /// An address, and what stands behind the slash that follows it: nothing if there is no slash.
    ///
    /// ```
    /// use peregrine::Address;
    ///
    /// let (address, path) = Address::split("tcp:[::1]:7000/files/etc/hosts")?;
    /// assert_eq!((address.name(), path), ("files", Some("etc/hosts")));
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    ///
    /// # Errors
    /// If it does not begin with an address.
    pub fn split(text: &str) -> Result<(Self, Option<&str>), CallError> {
        let mut cursor = Cursor::new(text);
        let address = cursor.address()?;
        Ok((address, cursor.rest().strip_prefix('/')))
    }
}

impl FromStr for Address {
    type Err = CallError;

    fn from_str(text: &str) -> Result<Self, CallError> {
        let mut cursor = Cursor::new(text);
        let address = cursor.address()?;
        cursor.end()?;
        Ok(address)
    }
}

impl FromStr for Endpoint {
    type Err = CallError;

    fn from_str(text: &str) -> Result<Self, CallError> {
        let mut cursor = Cursor::new(text);
        let endpoint = match cursor.scheme() {
            "tcp" => Self::Tcp(cursor.place()?),
            "udp" => Self::Udp(cursor.place()?),
            "eth" => Self::Ethernet(cursor.place()?),
            _ => return Err(Cursor::new(text).expected("`tcp:`, `udp:` or `eth:` and `HOST:PORT`")),
        };
        cursor.end()?;
        Ok(endpoint)
    }
}

impl FromStr for Place {
    type Err = CallError;

    fn from_str(text: &str) -> Result<Self, CallError> {
        let mut cursor = Cursor::new(text);
        let place = cursor.place()?;
        cursor.end()?;
        Ok(place)
    }
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(place) => write!(f, "tcp:{place}"),
            Self::Udp(place) => write!(f, "udp:{place}"),
            Self::Ethernet(place) => write!(f, "eth:{place}"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { name } => f.write_str(name),
            Self::Tcp { place, name } => write!(f, "tcp:{place}/{name}"),
            Self::Udp { place, name } => write!(f, "udp:{place}/{name}"),
            Self::Ethernet { place, name } => write!(f, "eth:{place}/{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn wrong(text: &str) -> String {
        let error = text.parse::<Address>().err().unwrap_or_else(|| panic!("{text} is none"));
        assert_eq!(error.kind(), Kind::BadName);
        error.detail().to_owned()
    }

    #[test]
    fn what_is_written_is_read_and_written_again() {
        for text in [
            "files",
            "tcp:localhost:7000/files",
            "tcp:192.0.2.1:1/a.b",
            "udp:[::1]:65535/files",
            "tcp:[fe80::1%eth0]:7/x",
        ] {
            assert_eq!(address(text).to_string(), text);
        }
        assert_eq!(address("local:files"), address("files"));
        let Address::Tcp { place, name } = address("tcp:[2001:db8::7]:80/n") else { panic!() };
        assert_eq!((place.host(), place.port(), &*name), ("2001:db8::7", 80, "n"));
    }

    #[test]
    fn errors_point_at_what_is_wrong() {
        for (text, what) in [
            ("", "expected a name at the end (column 1)"),
            (".files", "expected a name at `.files` (column 1)"),
            ("local:", "expected a name at the end (column 7)"),
            ("local:a/b", "expected nothing more at `/b` (column 8)"),
            ("http://x", "expected `local:`, `tcp:`, `udp:` or `eth:` at `http://x` (column 1)"),
            ("ipc:x", "expected `local:`, `tcp:`, `udp:` or `eth:` at `ipc:x` (column 1)"),
            ("eth:x", "expected `:PORT` at the end (column 6)"),
            ("tcp:", "expected a host at the end (column 5)"),
            ("tcp::7/n", "expected a host at `:7/n` (column 5)"),
            ("tcp:host/files", "expected `:PORT` at `/files` (column 9)"),
            ("tcp:host:/files", "expected a port from 0 to 65535 at `/files` (column 10)"),
            ("tcp:host:65536/f", "expected a port from 0 to 65535 at `65536/f` (column 10)"),
            ("tcp:host:7", "expected `/NAME` at the end (column 11)"),
            ("tcp:host:7/", "expected a name at the end (column 12)"),
            ("tcp:host:7/ä", "expected a name at `ä` (column 12)"),
            ("tcp:host:7/a/b", "expected nothing more at `/b` (column 13)"),
            ("tcp:[::1:7/a", "expected an IPv6 address and `]` at `::1:7/a` (column 6)"),
            ("tcp:[host]:7/a", "expected an IPv6 address and `]` at `host]:7/a` (column 6)"),
            ("tcp:::1:7/a", "expected a host at `::1:7/a` (column 5)"),
            ("tcp:fe80::1:7/a", "expected a port from 0 to 65535 at `:1:7/a` (column 10)"),
        ] {
            let said = wrong(text);
            assert!(said.ends_with(what), "{text}: {said}");
        }
    }

    #[test]
    fn hosts_are_found_or_not() {
        let place: Place = "127.0.0.1:9".parse().unwrap();
        assert_eq!(place.resolve().unwrap(), ["127.0.0.1:9".parse().unwrap()]);
        let place: Place = "[::1]:9".parse().unwrap();
        assert_eq!(place.resolve().unwrap(), ["[::1]:9".parse().unwrap()]);
        let place: Place = "no-such-host.invalid:9".parse().unwrap();
        let error = place.resolve().unwrap_err();
        assert_eq!((error.kind(), error.phase()), (Kind::Unreachable, Phase::Resolve));
    }
}
