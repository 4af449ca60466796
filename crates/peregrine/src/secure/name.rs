//! Names of peers: SPIFFE IDs, and what a client expects of its server.

use core::fmt;
use core::str::FromStr;
use std::net::IpAddr;

use rustls_pki_types::{DnsName, ServerName};

use super::error::KeyError;
use super::key::{Fingerprint, shown};
use super::trusted::is_name;
use crate::limits;

/// A SPIFFE ID: `spiffe://TRUST-DOMAIN/PATH`, the name of a workload in its certificate.
///
/// The trust domain has lower-case letters, digits, `.`, `-` and `_`. The segments of the path have letters,
/// digits, `.`, `-` and `_`, and are not empty, `.` or `..`. There is no port, query or fragment.
///
/// ```
/// use peregrine::secure::SpiffeId;
///
/// let id: SpiffeId = "spiffe://example.org/ops/backup".parse()?;
/// assert_eq!((id.trust_domain(), id.path()), ("example.org", "ops/backup"));
/// assert!("spiffe://example.org/ops/".parse::<SpiffeId>().is_err());
/// # Ok::<(), peregrine::secure::KeyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpiffeId(String);

/// The beginning of every SPIFFE ID.
pub(super) const SCHEME: &str = "spiffe://";

impl SpiffeId {
    /// Returns the name of the trust domain.
    pub fn trust_domain(&self) -> &str {
        self.parts().0
    }

    /// Returns the path without its first slash. It is empty for the trust domain itself.
    pub fn path(&self) -> &str {
        self.parts().1
    }

    /// Returns the whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parts(&self) -> (&str, &str) {
        let rest = &self.0[SCHEME.len()..];
        rest.split_once('/').unwrap_or((rest, ""))
    }
}

impl fmt::Display for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SpiffeId {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let invalid = |why: &str| Err(KeyError::invalid(shown(text), why));
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return invalid("a SPIFFE ID begins with `spiffe://`");
        };
        if text.len() > limits::SPIFFE_ID_BYTES_MAX {
            return invalid("longer than the 2048 bytes of a SPIFFE ID");
        }
        let (domain, path) = match rest.split_once('/') {
            Some((domain, path)) => (domain, Some(path)),
            None => (rest, None),
        };
        if !is_trust_domain(domain) {
            return invalid(
                "a trust domain has 1 to 255 lower-case letters, digits, `.`, `-` or `_`",
            );
        }
        if !path.is_none_or(|path| path.split('/').all(is_segment)) {
            return invalid("segments of the path have letters, digits, `.`, `-` and `_`");
        }
        Ok(Self(text.to_owned()))
    }
}

pub(super) fn is_trust_domain(domain: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-_".contains(c);
    (1..=255).contains(&domain.len()) && domain.chars().all(letter)
}

pub(super) fn is_segment(segment: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    !["", ".", ".."].contains(&segment) && segment.chars().all(letter)
}

/// Which server a client expects.
///
/// A server whose key is in the client's list of trusted keys satisfies a DNS name, an IP address and a
/// SPIFFE ID without having them in its certificate: the key is its name. `Key` and `Listed` are always
/// compared.
///
/// The text is `spiffe://...`, `SHA256:...`, `key:NAME` for a name of the list, an IP address or a DNS name.
///
/// ```
/// use peregrine::secure::Expected;
///
/// assert!(matches!("192.0.2.7".parse()?, Expected::Ip(_)));
/// assert!(matches!("fs.example.org".parse()?, Expected::Dns(_)));
/// assert!(matches!("key:bob".parse()?, Expected::Listed(_)));
/// assert!("not a host".parse::<Expected>().is_err());
/// # Ok::<(), peregrine::secure::KeyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Expected {
    /// A DNS name, which the certificate contains, perhaps with `*` for its first label.
    Dns(String),
    /// An IP address, which the certificate contains.
    Ip(IpAddr),
    /// A SPIFFE ID, which the certificate contains.
    Spiffe(SpiffeId),
    /// This key.
    Key(Fingerprint),
    /// The key that has this name in the list of trusted keys.
    Listed(String),
}

impl Expected {
    /// Returns the name for TLS. If it is a DNS name, the client sends it, and no other name is ever sent.
    pub(super) fn server_name(&self, address: IpAddr) -> ServerName<'static> {
        match self {
            Self::Dns(name) => match ServerName::try_from(name.clone()) {
                Ok(name) => name,
                Err(_) => ServerName::from(address),
            },
            Self::Ip(_) | Self::Spiffe(_) | Self::Key(_) | Self::Listed(_) => address.into(),
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Ip(address) => address.fmt(f),
            Self::Spiffe(id) => id.fmt(f),
            Self::Key(fingerprint) => fingerprint.fmt(f),
            Self::Listed(name) => write!(f, "key:{name}"),
        }
    }
}

impl FromStr for Expected {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        if text.starts_with(SCHEME) {
            return text.parse().map(Self::Spiffe);
        }
        if text.starts_with("SHA256:") {
            return text.parse().map(Self::Key);
        }
        if let Some(name) = text.strip_prefix("key:").filter(|name| is_name(name)) {
            return Ok(Self::Listed(name.to_owned()));
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Ip(address));
        }
        match DnsName::try_from(text) {
            Ok(_) => Ok(Self::Dns(text.to_ascii_lowercase())),
            Err(_) => Err(KeyError::invalid(
                shown(text),
                "expected a DNS name, an IP address, `spiffe://...`, `SHA256:...` or `key:NAME`",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spiffe_ids_have_one_form() {
        for text in ["spiffe://a", "spiffe://a.b-c_d/x", "spiffe://example.org/Ops/b.1/_-"] {
            assert_eq!(text.parse::<SpiffeId>().unwrap().to_string(), text);
        }
        let long = format!("spiffe://a/{}", "b".repeat(2038));
        for text in [
            "",
            "spiffe:/a",
            "SPIFFE://a",
            "spiffe://",
            "spiffe:///x",
            "spiffe://A",
            "spiffe://a:1/x",
            "spiffe://u@a",
            "spiffe://a/",
            "spiffe://a//x",
            "spiffe://a/./x",
            "spiffe://a/../x",
            "spiffe://a/x/",
            "spiffe://a/x?y",
            "spiffe://a/x#y",
            "spiffe://a/%41",
            "spiffe://a/é",
            &long,
        ] {
            assert!(text.parse::<SpiffeId>().is_err(), "{text}");
        }
        assert!(long[..long.len() - 1].parse::<SpiffeId>().is_ok());
    }

    #[test]
    fn expectations_are_read_back_from_their_texts() {
        for text in ["fs.example.org", "::1", "192.0.2.7", "spiffe://a/b", "key:ada"] {
            assert_eq!(text.parse::<Expected>().unwrap().to_string(), text);
        }
        for text in
            ["", "key:", "key:a b", "SHA256:", "spiffe://", "a/b", "host:7000", "-a.example"]
        {
            assert!(text.parse::<Expected>().is_err(), "{text}");
        }
    }
}
