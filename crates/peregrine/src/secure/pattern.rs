//! Patterns for identities, by which a server says which peers may do what.

use core::fmt;
use core::str::FromStr;

use super::error::KeyError;
use super::key::{Fingerprint, shown};
use super::name::{SCHEME, is_segment, is_trust_domain};
use super::peer::Peer;
use super::trusted::is_name;
use crate::limits;

/// A pattern that some peers match.
///
/// | pattern | which peers match it |
/// |---|---|
/// | `spiffe://example.org/ops/backup` | the peer with this SPIFFE ID |
/// | `spiffe://example.org/ops/*` | those with a SPIFFE ID below `ops`, at any depth |
/// | `spiffe://example.org/*/backup` | `*` elsewhere is exactly one segment |
/// | `spiffe://*/ops/backup` | `*` as trust domain is any of them |
/// | `ops/*` | the same as `spiffe://*/ops/*` |
/// | `SHA256:...` | the peer with the key of this fingerprint |
/// | `ada` | the peer whose key has the name `ada` in the list of trusted keys |
/// | `*` | every peer that is trusted |
///
/// Only names that are proven count: the SPIFFE ID of a certificate that a trusted CA signed, and the name
/// that this side has given to a key. Matching is case-sensitive.
///
/// ```
/// use peregrine::secure::IdentityPattern;
///
/// let operators: IdentityPattern = "spiffe://example.org/ops/*".parse()?;
/// assert!(operators.matches_spiffe(&"spiffe://example.org/ops/backup".parse()?));
/// assert!(!operators.matches_spiffe(&"spiffe://example.org/ops".parse()?));
/// assert!(!operators.matches_spiffe(&"spiffe://example.org/opsx/backup".parse()?));
/// # Ok::<(), peregrine::secure::KeyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdentityPattern {
    text: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// A SPIFFE ID. No trust domain means any of them.
    Spiffe {
        domain: Option<String>,
        path: Vec<Segment>,
    },
    Key(Fingerprint),
    Listed(String),
    Everybody,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Segment {
    Exactly(String),
    /// One segment, or at the end of the pattern one or more.
    Any,
}

impl IdentityPattern {
    /// Returns whether a peer matches.
    pub fn matches(&self, peer: &Peer) -> bool {
        match &self.kind {
            Kind::Spiffe { .. } => peer.spiffe().is_some_and(|id| self.matches_spiffe(id)),
            Kind::Key(fingerprint) => peer.fingerprint() == *fingerprint,
            Kind::Listed(name) => peer.name() == Some(name),
            Kind::Everybody => true,
        }
    }

    /// Returns whether a SPIFFE ID matches. Patterns for keys match none.
    pub fn matches_spiffe(&self, id: &super::SpiffeId) -> bool {
        match &self.kind {
            Kind::Spiffe { domain, path } => {
                domain.as_deref().is_none_or(|domain| domain == id.trust_domain())
                    && match_path(path, id.path())
            }
            Kind::Everybody => true,
            Kind::Key(_) | Kind::Listed(_) => false,
        }
    }
}

fn match_path(pattern: &[Segment], path: &str) -> bool {
    if pattern.is_empty() || path.is_empty() {
        return pattern.is_empty() && path.is_empty();
    }
    let mut segments = path.split('/');
    let fits = pattern.iter().all(|expected| match (expected, segments.next()) {
        (Segment::Exactly(expected), Some(segment)) => expected == segment,
        (Segment::Any, found) => found.is_some(),
        (Segment::Exactly(_), None) => false,
    });
    fits && (matches!(pattern.last(), Some(Segment::Any)) || segments.next().is_none())
}

impl fmt::Display for IdentityPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for IdentityPattern {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let invalid = |why: &str| KeyError::invalid(shown(text), why);
        if text.len() > limits::SPIFFE_ID_BYTES_MAX {
            return Err(invalid("a pattern has at most 2048 bytes"));
        }
        let kind = if text == "*" {
            Kind::Everybody
        } else if text.starts_with("SHA256:") {
            Kind::Key(text.parse()?)
        } else if let Some(rest) = text.strip_prefix(SCHEME) {
            let (domain, path) = match rest.split_once('/') {
                Some((domain, path)) => (domain, Some(path)),
                None => (rest, None),
            };
            let domain = match domain {
                "*" => None,
                domain if is_trust_domain(domain) => Some(domain.to_owned()),
                _ => return Err(invalid("the trust domain is not valid; `*` is any of them")),
            };
            let path = path.map_or(Some(Vec::new()), segments);
            let path = path.ok_or_else(|| invalid("a segment of the path is a name or `*`"))?;
            Kind::Spiffe { domain, path }
        } else if text.contains('/') {
            let path = segments(text);
            let path = path.ok_or_else(|| invalid("a segment of the path is a name or `*`"))?;
            Kind::Spiffe { domain: None, path }
        } else if is_name(text) {
            Kind::Listed(text.to_owned())
        } else {
            return Err(invalid(
                "expected `spiffe://DOMAIN/PATH`, a path with `/`, `SHA256:...`, a name of the list of \
                 trusted keys, or `*`",
            ));
        };
        Ok(Self { text: text.to_owned(), kind })
    }
}

fn segments(path: &str) -> Option<Vec<Segment>> {
    let segment = |text: &str| match text {
        "*" => Some(Segment::Any),
        text if is_segment(text) => Some(Segment::Exactly(text.to_owned())),
        _ => None,
    };
    path.split('/').map(segment).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::secure::SpiffeId;

    fn matches(pattern: &str, id: &str) -> bool {
        let pattern: IdentityPattern = pattern.parse().unwrap();
        assert!(!matches!(pattern.kind, Kind::Listed(_) | Kind::Key(_)));
        pattern.matches_spiffe(&id.parse().unwrap())
    }

    #[test]
    fn a_star_is_one_segment_and_at_the_end_one_or_more() {
        for (pattern, id, expected) in [
            ("spiffe://a/ops/backup", "spiffe://a/ops/backup", true),
            ("spiffe://a/ops/backup", "spiffe://b/ops/backup", false),
            ("spiffe://a/ops/backup", "spiffe://a/ops/backup/x", false),
            ("spiffe://a/ops/backup", "spiffe://a/ops", false),
            ("spiffe://a/ops/*", "spiffe://a/ops/x", true),
            ("spiffe://a/ops/*", "spiffe://a/ops/x/y/z", true),
            ("spiffe://a/ops/*", "spiffe://a/ops", false),
            ("spiffe://a/ops/*", "spiffe://a/opsx/x", false),
            ("spiffe://a/ops/*", "spiffe://a/Ops/x", false),
            ("spiffe://a/ops/*", "spiffe://a.evil/ops/x", false),
            ("spiffe://a/*/backup", "spiffe://a/ops/backup", true),
            ("spiffe://a/*/backup", "spiffe://a/x/y/backup", false),
            ("spiffe://a/*/backup", "spiffe://a/backup", false),
            ("spiffe://a/*", "spiffe://a", false),
            ("spiffe://a", "spiffe://a", true),
            ("spiffe://a", "spiffe://a/x", false),
            ("spiffe://*/ops/*", "spiffe://b/ops/x", true),
            ("ops/*", "spiffe://b/ops/x", true),
            ("ops/*", "spiffe://ops/x", false),
            ("*/backup", "spiffe://b/ops/backup", true),
            ("*", "spiffe://b", true),
        ] {
            assert_eq!(matches(pattern, id), expected, "{pattern} {id}");
        }
    }

    #[test]
    fn patterns_that_could_be_misread_are_refused() {
        for text in [
            "",
            "/",
            "ops/",
            "/ops",
            "ops//x",
            "ops/../x",
            "ops/a*",
            "**",
            "a b",
            "spiffe://",
            "spiffe://A/x",
            "spiffe://a*/x",
            "spiffe://a/",
            "SHA256:",
            "http://a/x",
            "a:b",
            "é",
            "ops/*\n",
        ] {
            assert!(text.parse::<IdentityPattern>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn without_stars_a_pattern_matches_exactly_itself(
            one in "spiffe://[ab]{1,2}(/[ab]{1,2}){0,3}", other in "spiffe://[ab]{1,2}(/[ab]{1,2}){0,3}",
        ) {
            let id: SpiffeId = other.parse().unwrap();
            let pattern: IdentityPattern = one.parse().unwrap();
            prop_assert_eq!(pattern.matches_spiffe(&id), one == other);
        }

        #[test]
        fn a_star_at_the_end_matches_what_begins_with_the_rest(
            before in "spiffe://[ab](/[ab]){0,2}", id in "spiffe://[ab](/[ab]){0,3}",
        ) {
            let pattern: IdentityPattern = format!("{before}/*").parse().unwrap();
            let expected = id.starts_with(&format!("{before}/"));
            prop_assert_eq!(pattern.matches_spiffe(&id.parse().unwrap()), expected);
        }
    }
}
