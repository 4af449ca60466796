//! An `Address` names an export, and optionally its machine and a path to it. All addresses have one grammar,
//! which one parser reads. The parser's errors contain the column.
//!
//! ```text
//! address  = [scheme ":"] target
//! scheme   = "local" | "eth" | "udp" | "tcp" | foreign
//! foreign  = "onc+udp" | "onc+tcp" | "courier+udp" | "courier+tcp" | "courier+exchange"
//! target   = name ["@" host [":" port]]
//!          | "@" host [":" port]                 (not after "local:": the server itself)
//!          | host ":" port "/" name              (after "eth:", "udp:" or "tcp:"; never printed)
//!          | host [":" port] ["/" name]      (only after a foreign scheme)
//! host     = host name | IPv4 address | "[" IPv6 address "]"
//! ```
//!
//! After a foreign scheme, the name is the number and the version of a program, such as `100003.3`, or a name
//! by which another system knows the program. A client whose interface is a program of that system may leave
//! out the name.
//!
//! Without a scheme, a binding uses the fastest path that works. With a scheme, it uses only the path that
//! the scheme names.

use core::fmt;
use core::str::FromStr;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};

use crate::call::PathKind;
use crate::error::{CallError, Kind, Phase};
use crate::interface::{HEALTH_NAME, SERVER_NAME, System, WATCH_NAME, valid_name};

/// A machine, and a port on this machine.
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

/// The address of an export: a name, optionally with a machine, and optionally with a path.
///
/// | written | means |
/// |---|---|
/// | `files` | the server of `files`, on this machine or on one in the [hosts file](crate::directory) |
/// | `files@fs.example.org` | the server of `files` on that machine, at port [7193](Place::DEFAULT_PORT) |
/// | `files@fs.example.org:7000` | the server of `files` on that machine, at port 7000 |
/// | `local:files` | the server of `files` on this machine, only by shared memory |
/// | `tcp:files@fs.example.org:7000` | the server of `files` on that machine, only by TCP |
/// | `@fs.example.org` | the server on that machine itself, which [describes itself](crate::server_info) |
/// | `udp:`..., `eth:`... | like `tcp:`, but only by UDP, or only by raw Ethernet |
/// | `onc+udp:fs.example.org/100005.3` | version 3 of the program 100005 of ONC RPC on that machine, whose port its rpcbind knows |
/// | `onc+tcp:fs.example.org:2049/100003.3` | the program 100003 at port 2049 |
/// | `courier+tcp:fs.example.org/2.3` | version 3 of the program 2 of Courier, at [its port](Place::COURIER_PORT) |
/// | `courier+udp:fs.example.org/2.3` | the same, in packets over UDP |
/// | `courier+exchange:fs.example.org/2.3` | the same, over Peregrine's own packets, at port [7193](Place::DEFAULT_PORT) |
/// | `courier+tcp:fs.example.org/Clock` | the program `Clock` in [Cooper's form](crate::CourierForm::Cooper) |
///
/// A port may follow each host, as in `@fs.example.org:7000`. With `eth:`, the client first asks the server
/// for its Ethernet address, with a UDP packet to this host and port.
///
/// ```
/// use peregrine::{Address, PathKind};
///
/// let address: Address = "tcp:files@fs.example.org:7000".parse()?;
/// assert_eq!((address.name(), address.path()), ("files", Some(PathKind::Tcp)));
/// let error = "tcp:fs.example.org/files".parse::<Address>().unwrap_err();
/// assert!(error.to_string().contains("expected `@HOST` or nothing more at `/files`"));
/// # Ok::<(), peregrine::CallError>(())
/// ```
///
/// With a scheme, the form `HOST:PORT/NAME` is also accepted. It means the same as `NAME@HOST:PORT`, and is
/// printed as `NAME@HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    path: Option<PathKind>,
    name: String,
    place: Option<Place>,
}

/// The place where a server listens. It is written like an address without a name.
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
    /// `HOST:PORT`: TCP, UDP and, if the machine allows it, raw Ethernet.
    All(Place),
    /// `onc+udp:HOST:PORT` or a similar text, for clients of another RPC system.
    Foreign(PathKind, Place),
}

impl Endpoint {
    /// Returns the machine and the port.
    pub const fn place(&self) -> &Place {
        match self {
            Self::Tcp(place)
            | Self::Udp(place)
            | Self::Ethernet(place)
            | Self::All(place)
            | Self::Foreign(_, place) => place,
        }
    }
}

/// A text that is read from left to right. Errors contain the current column.
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

    /// Returns an error that says that `what` was expected at the current position.
    #[cold]
    fn expected(&self, what: &str) -> CallError {
        let here = match self.rest() {
            "" => "the end".to_owned(),
            rest => format!("`{}`", escaped(rest)),
        };
        let column = self.text[..self.at].chars().count() + 1;
        let whole = escaped(self.text);
        let text = format!("`{whole}`: expected {what} at {here} (column {column})");
        CallError::not_executed(Kind::BadName, Phase::Resolve, text)
    }

    /// Reads the scheme, if there is one. Returns the path that the scheme selects.
    fn scheme(&mut self) -> Option<PathKind> {
        let rest = self.rest();
        let is_written =
            |scheme| rest.strip_prefix(scheme).is_some_and(|rest| rest.starts_with(':'));
        let found = PathKind::SCHEMES.iter().find(|(_, scheme)| is_written(*scheme));
        let (path, scheme) = found?;
        self.take(scheme.len() + 1);
        Some(*path)
    }

    fn place(&mut self) -> Result<Place, CallError> {
        let host = self.host()?;
        if !self.eat(":") {
            return Err(self.expected("`:PORT`"));
        }
        Ok(Place { host, port: self.port()? })
    }

    fn port(&mut self) -> Result<u16, CallError> {
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        let port = self.rest()[..digits].parse();
        let port = port.map_err(|_| self.expected("a port from 0 to 65535"))?;
        self.at += digits;
        Ok(port)
    }

    fn host(&mut self) -> Result<String, CallError> {
        if !self.eat("[") {
            // The host ends at the first colon. So an IPv6 address must be in brackets.
            let end = self.rest().find([':', '/', '[', ']', '@']).unwrap_or(self.rest().len());
            if end == 0 {
                return Err(self.expected("a host"));
            }
            self.check_host(end)?;
            return Ok(self.take(end).to_owned());
        }
        let end = self.rest().find(']').unwrap_or(self.rest().len());
        let host = &self.rest()[..end];
        // A link-local address may contain the name of a network interface after a `%`.
        let bare = host.split('%').next().unwrap_or(host);
        if bare.parse::<Ipv6Addr>().is_err() {
            return Err(self.expected("an IPv6 address and `]`"));
        }
        self.check_host(end)?;
        self.at += end;
        if !self.eat("]") {
            return Err(self.expected("`]`"));
        }
        Ok(host.to_owned())
    }

    /// Checks the host that consists of the next bytes. The text may be from a directory, and is shown to
    /// people.
    fn check_host(&self, bytes: usize) -> Result<(), CallError> {
        let is_wrong = |c: char| c.is_whitespace() || c.is_control();
        match self.rest()[..bytes].find(is_wrong) {
            None => Ok(()),
            Some(wrong) => {
                let here = Self { text: self.text, at: self.at + wrong };
                Err(here.expected("a host without spaces and control characters"))
            }
        }
    }

    /// Reads a name. A name ends at the end of the text, or before a character that may follow a name.
    fn name(&mut self) -> Result<String, CallError> {
        let end = self.rest().find(['/', '@', ':']).unwrap_or(self.rest().len());
        let name = &self.rest()[..end];
        if !valid_name(name) {
            return Err(self.expected("a name"));
        }
        self.at += end;
        Ok(name.to_owned())
    }

    fn address(&mut self) -> Result<Address, CallError> {
        let path = self.scheme();
        let is_here = path.is_some_and(PathKind::is_on_this_machine);
        if path.is_some_and(|path| path.system().is_some()) {
            let host = self.host()?;
            let port = match path {
                _ if self.eat(":") => self.port()?,
                Some(PathKind::CourierExchange) => Place::DEFAULT_PORT,
                // A client of ONC RPC asks the machine which port the program has. A client of Courier uses
                // Courier's port.
                _ => 0,
            };
            let name = if self.eat("/") { self.name()? } else { String::new() };
            return Ok(Address { path, name, place: Some(Place { host, port }) });
        }
        if path.is_some() && !is_here && self.reads_as_place() {
            let begin = self.at;
            let place = Some(self.place()?);
            if !self.eat("/") {
                return Err(Self { text: self.text, at: begin }.expected("`NAME@HOST:PORT`"));
            }
            return Ok(Address { path, name: self.name()?, place });
        }
        if !is_here && self.rest().starts_with('@') {
            let (name, place) = (SERVER_NAME.to_owned(), Some(self.place_of_name()?));
            return Ok(Address { path, name, place });
        }
        for reserved in [WATCH_NAME, HEALTH_NAME] {
            let rest = self.rest().strip_prefix(reserved);
            if !is_here && rest.is_some_and(|place| place.starts_with('@')) {
                self.at += reserved.len();
                let (name, place) = (reserved.to_owned(), Some(self.place_of_name()?));
                return Ok(Address { path, name, place });
            }
        }
        let begin = self.at;
        let name = self.name()?;
        let place = match self.rest().as_bytes().first() {
            Some(b'@') if !is_here => Some(self.place_of_name()?),
            Some(b'@') => return Err(self.expected("the end (a name of this machine has no host)")),
            Some(b':') if begin == 0 => {
                let own = PathKind::SCHEMES.iter().filter(|(path, _)| path.system().is_none());
                let schemes = own.map(|(_, scheme)| format!("`{scheme}:`"));
                let schemes = schemes.collect::<Vec<_>>().join(", ");
                return Err(Self::new(self.text).expected(&format!("{schemes} or a name")));
            }
            Some(b':') if is_here => return Err(self.expected("the end")),
            Some(b':') => return Err(self.expected("`@HOST` or nothing more")),
            _ => None,
        };
        Ok(Address { path, name, place })
    }

    /// Returns whether the rest must be read as a `HOST:PORT`, and not as a name. The result is true if a
    /// colon or a bracket comes before any `@` or `/`, or if the rest is empty.
    fn reads_as_place(&self) -> bool {
        let found = self.rest().find([':', '[', '@', '/']);
        found.is_none_or(|at| matches!(self.rest().as_bytes()[at], b':' | b'['))
            && (found.is_some() || self.rest().is_empty())
    }

    /// Reads the text that follows a name: `@HOST`, optionally with a port.
    fn place_of_name(&mut self) -> Result<Place, CallError> {
        self.eat("@");
        let host = self.host()?;
        let port = if self.eat(":") { self.port()? } else { Place::DEFAULT_PORT };
        Ok(Place { host, port })
    }

    fn end(&self) -> Result<(), CallError> {
        if self.rest().is_empty() { Ok(()) } else { Err(self.expected("nothing more")) }
    }
}

impl Place {
    /// The port of the server if an address contains a host but no port, such as `files@fs.example.org`.
    pub const DEFAULT_PORT: u16 = 7193;

    /// The port of Courier over TCP and UDP: IANA's `courier`.
    pub const COURIER_PORT: u16 = 530;

    /// Makes a place. An IPv6 address is without brackets.
    pub(crate) fn new(host: &str, port: u16) -> Self {
        Self { host: host.to_owned(), port }
    }

    /// Returns the host. An IPv6 address is without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port. A server that listens at port 0 gets any free port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the socket addresses of the host. There is at least one. IPv4 and IPv6 addresses alternate
    /// (RFC 8305). So if one of these versions does not work, a client tries only one address of this version
    /// before it tries the other version.
    pub(crate) fn resolve(&self) -> Result<Vec<SocketAddr>, CallError> {
        let failed = |error: io::Error| {
            let text = format!("finding the host `{}`", self.host);
            CallError::not_executed(Kind::Unreachable, Phase::Resolve, text).because(error)
        };
        let found: Vec<_> = (&*self.host, self.port).to_socket_addrs().map_err(failed)?.collect();
        if found.is_empty() {
            return Err(failed(io::Error::other("it has no address")));
        }
        Ok(in_turn(found))
    }
}

/// Returns a text whose control characters are escaped.
fn escaped(text: &str) -> String {
    let escape = |c: char| c.is_control().then(|| c.escape_default());
    text.chars()
        .flat_map(|c| escape(c).into_iter().flatten().chain((!c.is_control()).then_some(c)))
        .collect()
}

/// Removes duplicates from the addresses, and orders them so that IPv4 and IPv6 addresses alternate. The
/// first address stays the first, and the addresses of one version of IP keep their order.
fn in_turn(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let like_first = found.first().is_some_and(SocketAddr::is_ipv6);
    let (first, other): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|address| address.is_ipv6() == like_first);
    let (mut first, mut other) = (first.into_iter(), other.into_iter());
    let mut all: Vec<SocketAddr> = Vec::new();
    loop {
        let before = all.len();
        for next in [first.next(), other.next()].into_iter().flatten() {
            if !all.contains(&next) {
                all.push(next);
            }
        }
        if all.len() == before && first.len() + other.len() == 0 {
            return all;
        }
    }
}

impl Address {
    /// Returns the name of the export. If the address refers to the server itself, this is
    /// [`SERVER_NAME`](crate::server_info::SERVER_NAME).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path that the address selects. `None` means the fastest path that works.
    pub const fn path(&self) -> Option<PathKind> {
        self.path
    }

    /// Returns whether the address selects a path that reaches only this machine.
    pub(crate) fn is_on_this_machine(&self) -> bool {
        self.path.is_some_and(PathKind::is_on_this_machine)
    }

    /// Returns the machine and the port. If the address contains none, the client looks the name up in
    /// directories.
    pub const fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// Returns this address with the reserved name of the server itself in place of the export's name.
    pub(crate) fn of_server(&self) -> Self {
        self.named(SERVER_NAME)
    }

    /// Returns this address with another name of an export.
    pub(crate) fn named(&self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self.clone() }
    }

    /// Splits a text at the slash that follows an address. Returns the address and the text after the slash.
    /// This text is `None` if there is no slash.
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
    /// Fails if the text does not begin with an address.
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
        match (&address.path, &address.place, cursor.rest()) {
            (_, _, "") => Ok(address),
            // The part before the slash may be a host that was parsed as a name, as in `tcp:host/files`.
            (Some(path), None, _) if !path.is_on_this_machine() => {
                Err(cursor.expected("`@HOST` or nothing more"))
            }
            _ => Err(cursor.expected("nothing more")),
        }
    }
}

/// The advice for an invalid endpoint.
const ENDPOINT: &str = "write HOST:PORT, such as 127.0.0.1:7000, with tcp:, udp: or eth: in front to \
     listen over one of them only";

impl FromStr for Endpoint {
    type Err = CallError;

    fn from_str(written: &str) -> Result<Self, CallError> {
        Self::parse(written).map_err(|error| error.in_phase(Phase::Export).with_advice(ENDPOINT))
    }
}

impl Endpoint {
    fn parse(written: &str) -> Result<Self, CallError> {
        let mut cursor = Cursor::new(written);
        if written.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(cursor.expected("`HOST:PORT`"));
        }
        let endpoint = match cursor.scheme() {
            Some(PathKind::Tcp) => Self::Tcp(cursor.place()?),
            Some(PathKind::Udp) => Self::Udp(cursor.place()?),
            Some(PathKind::Ethernet) => Self::Ethernet(cursor.place()?),
            Some(path) if path.system() == Some(System::Courier) => {
                let host = cursor.host()?;
                let port = match path {
                    _ if cursor.eat(":") => cursor.port()?,
                    PathKind::CourierExchange => Place::DEFAULT_PORT,
                    _ => Place::COURIER_PORT,
                };
                Self::Foreign(path, Place { host, port })
            }
            Some(path) if path.system().is_some() => Self::Foreign(path, cursor.place()?),
            None => Self::All(cursor.place()?),
            Some(_) => {
                let text = "`HOST:PORT`, perhaps with `tcp:`, `udp:` or `eth:` in front,";
                return Err(Cursor::new(written).expected(text));
            }
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
            Self::All(place) => write!(f, "{place}"),
            Self::Foreign(path, place) => write!(f, "{path}:{place}"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scheme) = self.path.and_then(PathKind::scheme) {
            write!(f, "{scheme}:")?;
        }
        if let Some(place) = &self.place
            && self.path.is_some_and(|path| path.system().is_some())
        {
            match place.port {
                0 if place.host.contains(':') => write!(f, "[{}]", place.host)?,
                0 => f.write_str(&place.host)?,
                _ => write!(f, "{place}")?,
            }
            return if self.name.is_empty() { Ok(()) } else { write!(f, "/{}", self.name) };
        }
        match &self.place {
            Some(place) if self.name == SERVER_NAME => write!(f, "@{place}"),
            Some(place) => write!(f, "{}@{place}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Returns the address to which limits per host apply. For IPv6 this is the /64 network, because one host can
/// use all addresses of such a network.
pub(crate) fn host_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => v4.into(),
            None => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn wrong(text: &str) -> String {
        let error = text.parse::<Address>().err().unwrap_or_else(|| panic!("{text} was accepted"));
        assert_eq!(error.kind(), Kind::BadName);
        error.detail().to_owned()
    }

    #[test]
    fn what_is_written_is_read_and_written_again() {
        for text in [
            "files",
            "local:files",
            "tcp:files",
            "files@fs.example.org:7000",
            "tcp:files@localhost:7000",
            "tcp:a.b@192.0.2.1:1",
            "udp:files@[::1]:65535",
            "eth:x@[fe80::1%eth0]:7",
            "@fs.example.org:7000",
            "udp:@[::1]:9",
            ".health@fs:7000",
        ] {
            assert_eq!(address(text).to_string(), text);
        }
        let one = address("tcp:[2001:db8::7]:80/n");
        assert_eq!(one, address("tcp:n@[2001:db8::7]:80"));
        assert_eq!(one.to_string(), "tcp:n@[2001:db8::7]:80");
        let place = one.place().unwrap();
        assert_eq!((place.host(), place.port()), ("2001:db8::7", 80));
        assert_eq!(one.path(), Some(PathKind::Tcp));
        assert_eq!(address("files@fs").place().unwrap().port(), Place::DEFAULT_PORT);
        assert_eq!(address("local").name(), "local");
        let server = address("@fs");
        assert_eq!((server.name(), server.path()), (SERVER_NAME, None));
        assert_eq!(server.place().unwrap().port(), Place::DEFAULT_PORT);
        assert_eq!(address("tcp:files@fs:7").of_server(), address("tcp:@fs:7"));
        assert_eq!((address("files").path(), address("files").place()), (None, None));
    }

    #[test]
    fn what_follows_an_address_is_split_off() {
        for (text, rest) in [
            ("files/etc/hosts", Some("etc/hosts")),
            ("files@fs/etc/hosts", Some("etc/hosts")),
            ("files@fs:7/a@b:1", Some("a@b:1")),
            ("tcp:fs:7/files/etc/hosts", Some("etc/hosts")),
            ("tcp:files@fs:7/etc", Some("etc")),
            ("udp:files/x", Some("x")),
            ("files@[::1]:7/", Some("")),
            ("files", None),
        ] {
            let (address, behind) = Address::split(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((address.name(), behind), ("files", rest), "{text}");
        }
    }

    #[test]
    fn errors_point_at_what_is_wrong() {
        const SCHEMES: &str = "expected `local:`, `eth:`, `udp:`, `tcp:` or a name";
        const HOST: &str = "expected a host without spaces and control characters";
        for (text, what) in [
            ("", "expected a name at the end (column 1)"),
            (".files", "expected a name at `.files` (column 1)"),
            ("local:", "expected a name at the end (column 7)"),
            ("local:a/b", "expected nothing more at `/b` (column 8)"),
            ("local:a@b", "(a name of this machine has no host) at `@b` (column 8)"),
            ("http://x", &format!("{SCHEMES} at `http://x` (column 1)")),
            ("ipc:x", &format!("{SCHEMES} at `ipc:x` (column 1)")),
            ("files@", "expected a host at the end (column 7)"),
            ("@", "expected a host at the end (column 2)"),
            ("@h:x", "expected a port from 0 to 65535 at `x` (column 4)"),
            ("@h/x", "expected nothing more at `/x` (column 3)"),
            ("local:@h", "expected a name at `@h` (column 7)"),
            (".server@h", "expected a name at `.server@h` (column 1)"),
            ("files@h:", "expected a port from 0 to 65535 at the end (column 9)"),
            ("files@h:7x", "expected nothing more at `x` (column 10)"),
            ("a@b@c", "expected nothing more at `@c` (column 4)"),
            (
                "files:7@h",
                "expected `local:`, `eth:`, `udp:`, `tcp:` or a name at `files:7@h` (column 1)",
            ),
            ("local:a:7", "expected the end at `:7` (column 8)"),
            ("tcp:", "expected a host at the end (column 5)"),
            ("tcp::7/n", "expected a host at `:7/n` (column 5)"),
            ("tcp:host/files", "expected `@HOST` or nothing more at `/files` (column 9)"),
            ("tcp:host:/files", "expected a port from 0 to 65535 at `/files` (column 10)"),
            ("tcp:host:65536/f", "expected a port from 0 to 65535 at `65536/f` (column 10)"),
            ("tcp:host:7", "expected `NAME@HOST:PORT` at `host:7` (column 5)"),
            ("tcp:host:7/", "expected a name at the end (column 12)"),
            ("tcp:host:7/ä", "expected a name at `ä` (column 12)"),
            ("tcp:host:7/a/b", "expected nothing more at `/b` (column 13)"),
            ("tcp:[::1:7/a", "expected an IPv6 address and `]` at `::1:7/a` (column 6)"),
            ("tcp:[host]:7/a", "expected an IPv6 address and `]` at `host]:7/a` (column 6)"),
            ("tcp:::1:7/a", "expected a host at `::1:7/a` (column 5)"),
            ("tcp:fe80::1:7/a", "expected a port from 0 to 65535 at `:1:7/a` (column 10)"),
            ("tcp:é@h", "expected a name at `é@h` (column 5)"),
            ("files@a b", &format!("{HOST} at ` b` (column 8)")),
            ("files@ a", &format!("{HOST} at ` a` (column 7)")),
            ("files@a\u{a0}b", &format!("{HOST} at `\u{a0}b` (column 8)")),
            ("files@a\n:7", &format!(r"{HOST} at `\n:7` (column 8)")),
            ("tcp:a\u{1b}[0m:7/n", &format!(r"{HOST} at `\u{{1b}}[0m:7/n` (column 6)")),
            ("eth:x@[fe80::1%e 0]:7", &format!("{HOST} at ` 0]:7` (column 17)")),
            ("onc+udp:a\tb/1.2", &format!(r"{HOST} at `\tb/1.2` (column 10)")),
        ] {
            let said = wrong(text);
            assert!(said.ends_with(what), "{text}: {said}");
            assert!(!said.chars().any(char::is_control), "{said:?}");
        }
    }

    #[test]
    fn versions_of_addresses_come_in_turn() {
        let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let found = addresses(&["[::1]:9", "[::2]:9", "[::3]:9", "[::2]:9", "1.0.0.1:9"]);
        let expected = addresses(&["[::1]:9", "1.0.0.1:9", "[::2]:9", "[::3]:9"]);
        assert_eq!(in_turn(found), expected);
        assert_eq!(in_turn(addresses(&["1.0.0.1:9"; 3])), addresses(&["1.0.0.1:9"]));
        let other = addresses(&["1.0.0.1:9", "[::1]:9", "[::2]:9"]);
        assert_eq!(in_turn(other.clone()), other);
    }

    #[test]
    fn host_is_one_address_of_ipv4_or_one_network_of_ipv6() {
        let host = |text: &str| host_of(text.parse().unwrap());
        assert_eq!(host("192.0.2.1"), host("::ffff:192.0.2.1"));
        assert_ne!(host("192.0.2.1"), host("192.0.2.2"));
        assert_eq!(host("2001:db8::1"), host("2001:db8::ffff:ffff:ffff:ffff"));
        assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
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
