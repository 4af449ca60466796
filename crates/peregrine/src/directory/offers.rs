//! What a directory knows about a name: the servers that offer it.

use core::fmt;
use core::time::Duration;
use std::collections::HashMap;

use crate::address::Address;
use crate::error::{CallError, Kind, Phase};
use crate::limits;

/// A server that offers a name, and the addresses at which it can be reached.
///
/// ```
/// use peregrine::directory::Offer;
///
/// let offer = Offer::new("fs1", ["files@fs1.example.org:7000"])?;
/// assert_eq!(offer.server(), "fs1");
/// assert_eq!(offer.addresses()[0].name(), "files");
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    server: String,
    addresses: Vec<Address>,
    priority: u16,
}

impl Offer {
    /// Makes the offer of a server. `server` distinguishes the servers of one name. It has the form of a name
    /// (see [`limits`]). Each address must name a machine.
    ///
    /// # Errors
    /// If `server` has not the form of a name, if there is no address or there are more than
    /// [`limits::ADDRESSES_MAX`], or if an address is invalid or names no machine.
    pub fn new<A: AsRef<str>>(
        server: &str,
        addresses: impl IntoIterator<Item = A>,
    ) -> Result<Self, CallError> {
        let parsed = addresses.into_iter().map(|address| address.as_ref().parse());
        Self::at(server, parsed.collect::<Result<_, _>>()?)
    }

    /// Makes the offer of a server, as [`new`](Self::new).
    pub(crate) fn at(server: &str, addresses: Vec<Address>) -> Result<Self, CallError> {
        if let Some(here) = addresses.iter().find(|address| address.place().is_none()) {
            let text = format!("`{here}` names no machine: write NAME@HOST or NAME@HOST:PORT");
            return Err(CallError::not_executed(Kind::BadName, Phase::Resolve, text));
        }
        Self::anywhere(server, addresses)
    }

    /// Makes the offer of a server that may be on this machine, without the name of a machine.
    pub(super) fn anywhere(server: &str, addresses: Vec<Address>) -> Result<Self, CallError> {
        let wrong = |text| Err(CallError::not_executed(Kind::BadName, Phase::Resolve, text));
        if !crate::interface::valid_name(server) {
            return wrong(format!("`{server}` cannot identify a server"));
        }
        if addresses.is_empty() {
            return wrong(format!("the server `{server}` has no address"));
        }
        if addresses.len() > limits::ADDRESSES_MAX {
            let most = limits::ADDRESSES_MAX;
            return wrong(format!("the server `{server}` has more than {most} addresses"));
        }
        Ok(Self { server: server.to_owned(), addresses, priority: 0 })
    }

    /// Sets the priority of the server. As in DNS (RFC 2782), a lower number is a higher priority: clients call
    /// servers of other priorities only while they can use none of this one. By default, it is 0, the highest.
    ///
    /// ```
    /// use peregrine::directory::Offer;
    ///
    /// let reserve = Offer::new("fs9", ["files@fs9.example.org:7000"])?.with_priority(10);
    /// assert_eq!(reserve.priority(), 10);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub const fn with_priority(mut self, priority: u16) -> Self {
        self.priority = priority;
        self
    }

    /// Returns the priority of the server: a lower number is a higher priority.
    pub const fn priority(&self) -> u16 {
        self.priority
    }

    /// Returns what distinguishes the server from the other servers of the name.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the addresses at which the server can be reached, at least one.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at", self.server)?;
        self.addresses.iter().try_for_each(|address| write!(f, " {address}"))
    }
}

/// What a directory knows about a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offers {
    /// The servers that offer the name. Empty if the directory does not know the name.
    pub servers: Vec<Offer>,
    /// How old this knowledge is, if the directory does not answer now.
    pub age: Option<Duration>,
    /// What the directory contains and cannot be used, and why. For people.
    pub remarks: Vec<String>,
}

impl Offers {
    /// Returns the knowledge that these servers offer the name, which is up to date.
    pub fn of(servers: Vec<Offer>) -> Self {
        Self { servers, ..Self::default() }
    }

    /// Returns the knowledge that these servers offer the name, as a directory has read it. Some are left
    /// out, with a remark:
    ///
    /// * a second server that is called like an earlier one;
    /// * a server whose addresses all belong to earlier servers: only one server can be reached there, and the
    ///   others are records of dead servers, or were registered by mistake;
    /// * all servers after the first [`limits::SERVERS_MAX`].
    ///
    /// ```
    /// use peregrine::directory::{Offer, Offers};
    ///
    /// let old = Offer::new("old", ["files@fs1:7000"])?;
    /// let new = Offer::new("new", ["files@fs1:7000"])?;
    /// let found = Offers::distinct([old, new]);
    /// assert_eq!(found.servers.len(), 1);
    /// assert_eq!(found.remarks, ["`new` is left out: `old` has the same addresses: files@fs1:7000"]);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn distinct(servers: impl IntoIterator<Item = Offer>) -> Self {
        let mut found = Self::default();
        let mut named = HashMap::new();
        let mut places: HashMap<Address, usize> = HashMap::new();
        let mut too_many = 0usize;
        for offer in servers {
            let next = found.servers.len();
            if named.contains_key(&offer.server) {
                found.remark(&format!("one more server called {offer}"));
                continue;
            }
            let first = offer.addresses.first().and_then(|address| places.get(address)).copied();
            if let Some(first) = first
                && offer.addresses.iter().all(|address| places.contains_key(address))
            {
                let (left_out, known) = (&offer.server, &found.servers[first]);
                let addresses: Vec<_> = offer.addresses.iter().map(ToString::to_string).collect();
                found.remark(&format!(
                    "`{left_out}` is left out: `{}` has the same addresses: {}",
                    known.server,
                    addresses.join(" ")
                ));
                continue;
            }
            if next == limits::SERVERS_MAX {
                too_many += 1;
                continue;
            }
            named.insert(offer.server.clone(), next);
            for address in &offer.addresses {
                places.entry(address.clone()).or_insert(next);
            }
            found.servers.push(offer);
        }
        if too_many > 0 {
            let most = limits::SERVERS_MAX;
            found.remark(&format!("{too_many} servers are left out: there are {most} servers"));
        }
        found
    }

    /// Returns all addresses of all servers.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.servers.iter().flat_map(|one| one.addresses.iter())
    }

    /// Adds a remark, unless there are [`limits::REMARKS_MAX`] already. Control characters are escaped, and
    /// only the first [`limits::REMARK_MAX`] characters are kept, because others may have written the text.
    pub fn remark(&mut self, text: &str) {
        if self.remarks.len() < limits::REMARKS_MAX {
            let escaped = text.chars().flat_map(|c| {
                let plain = (!c.is_control()).then_some(c);
                plain.into_iter().chain(c.escape_default().filter(move |_| plain.is_none()))
            });
            self.remarks.push(escaped.take(limits::REMARK_MAX).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_are_checked() {
        let fails = |server: &str, addresses: &[&str]| {
            let error = Offer::new(server, addresses).unwrap_err();
            assert_eq!((error.kind(), error.phase()), (Kind::BadName, Phase::Resolve));
            error.to_string()
        };
        assert!(fails("../x", &["a@b"]).contains("`../x` cannot identify a server"));
        assert!(fails("x", &[]).contains("`x` has no address"));
        assert!(fails("x", &["files"]).contains("`files` names no machine"));
        assert!(fails("x", &["a@b:c"]).contains("a port"));
        let many = vec!["a@b"; limits::ADDRESSES_MAX + 1];
        assert!(fails("x", &many).contains("more than 8 addresses"));
        let offer = Offer::new("x", ["a@b:1", "tcp:a@[::1]:2"]).unwrap();
        assert_eq!(offer.to_string(), "x at a@b:1 tcp:a@[::1]:2");
    }

    #[test]
    fn two_servers_at_one_place_count_once() {
        let offer = |server: &str, addresses: &[&str]| Offer::new(server, addresses).unwrap();
        let found = Offers::distinct([
            offer("a", &["f@h:1", "f@h:2"]),
            offer("b", &["f@h:2"]),
            offer("a", &["f@h:3"]),
            offer("c", &["f@h:2", "f@h:4"]),
            offer("d", &["f@h:4", "f@h:1"]),
        ]);
        let names: Vec<_> = found.servers.iter().map(Offer::server).collect();
        assert_eq!(names, ["a", "c"], "a server with one address of its own stays");
        assert_eq!(
            found.remarks,
            [
                "`b` is left out: `a` has the same addresses: f@h:2",
                "one more server called a at f@h:3",
                "`d` is left out: `c` has the same addresses: f@h:4 f@h:1",
            ]
        );
        let many =
            (0..limits::SERVERS_MAX + 2).map(|n| offer(&format!("s{n}"), &[&format!("f@h{n}")]));
        let found = Offers::distinct(many);
        assert_eq!(found.servers.len(), limits::SERVERS_MAX);
        assert_eq!(found.remarks, ["2 servers are left out: there are 1024 servers"]);
    }

    #[test]
    fn remarks_are_bounded() {
        let mut offers = Offers::default();
        offers.remark("red \u{1b}[31m\n");
        (0..100).for_each(|_| offers.remark(&"x".repeat(1000)));
        assert_eq!(offers.remarks.len(), limits::REMARKS_MAX);
        assert_eq!(offers.remarks[0], r"red \u{1b}[31m\n");
        assert_eq!(offers.remarks[1].len(), limits::REMARK_MAX);
    }
}
