//! What a directory knows about a name: the servers that offer it.

use core::fmt;
use core::time::Duration;

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
        if let Some(here) = addresses.iter().find(|address| address.place().is_none()) {
            return wrong(format!("`{here}` names no machine: write NAME@HOST or NAME@HOST:PORT"));
        }
        Ok(Self { server: server.to_owned(), addresses })
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
    fn remarks_are_bounded() {
        let mut offers = Offers::default();
        offers.remark("red \u{1b}[31m\n");
        (0..100).for_each(|_| offers.remark(&"x".repeat(1000)));
        assert_eq!(offers.remarks.len(), limits::REMARKS_MAX);
        assert_eq!(offers.remarks[0], r"red \u{1b}[31m\n");
        assert_eq!(offers.remarks[1].len(), limits::REMARK_MAX);
    }
}
