//! The experiment `secure`: measures calls that are encrypted and authenticated, and binding to servers that
//! require it. Each row is compared with the smallest program that does the same cryptography. Also measures
//! what the layer `Tracing` costs while nothing collects spans.
//!
//! All programs have the same certificates, which prove Ed25519 keys, and use the same cipher suite: the
//! first one of `rustls` with `ring`. Both sides authenticate each other.
//!
//! | limit | what it is |
//! |---|---|
//! | `plain-and-sealing` | the same call without encryption, and the time of sealing and opening its packets |
//! | `rustls-pingpong` | two processes that exchange 64 bytes by `rustls` on a TCP connection |
//! | `rustls-handshake` | a TCP connection, a handshake of `rustls`, and an exchange of 64 bytes |
//! | `tonic-tls` | null calls by gRPC with TLS (needs the feature `peers`) |
//! | `untraced` | the same local call by a binding and to an export without layers |

mod calls;
pub(crate) mod keys;
mod sealing;
pub(crate) mod tls;
mod traced;

use self::calls::{Bindings, Calls};
use self::keys::Keys;
use self::sealing::PlainAndSealing;
use self::tls::{Handshakes, Pingpong};
use crate::cases::{Case, Placement, Waiting};
use crate::local::split;
use crate::network::far::Far;
use crate::network::link::Link;
use crate::network::path::Path;
use crate::network::{Filter, Subject, on_each_link, rounds_of, row};
use crate::row::Row;
use crate::subject::Failure;
use crate::{Progress, Selection};

/// The name of the limit that consists of a plain call and the cost of its packets' encryption.
pub(crate) const PLAIN_AND_SEALING: &str = "plain-and-sealing";
/// The name of the limit that exchanges messages by `rustls`.
pub(crate) const PINGPONG: &str = "rustls-pingpong";
/// The name of the limit that only connects.
pub(crate) const HANDSHAKE: &str = "rustls-handshake";
/// The name of the limit that calls by gRPC with TLS.
pub(crate) const TONIC_TLS: &str = "tonic-tls";

/// The name of the limit that makes the same local calls without layers.
pub(crate) const UNTRACED: &str = "untraced";

/// The names of all measurements.
pub(crate) const CASES: [&str; 7] = [
    "null-sealed",
    "in-48000-sealed",
    "null-tls",
    "bind",
    "bind-resumed",
    "null-tls-peer",
    traced::CASE,
];

/// What is measured, and the limit that it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Calls of this case. The limit is the plain call and the cost of its packets' encryption.
    Sealed(&'static str),
    /// Null calls. The limit exchanges messages by `rustls`.
    Null,
    /// Binding. The limit is a handshake. The flag says whether handshakes are resumed.
    Binding(bool),
    /// Null calls. The limit calls by gRPC with TLS.
    Peer,
}

/// The conditions of a row.
struct Measured {
    case: &'static str,
    path: Path,
    link: Link,
    wait: Waiting,
    placement: Placement,
    what: What,
}

const MEASURED: [Measured; 8] = {
    const FIRST: Measured = Measured {
        case: "null-sealed",
        path: Path::Udp,
        link: Link::Loopback,
        wait: Waiting::Spin,
        placement: Placement::TwoCores,
        what: What::Sealed("null"),
    };
    const BIND: Measured =
        Measured { case: "bind", wait: Waiting::Block, what: What::Binding(false), ..FIRST };
    const RESUMED: Measured = Measured { case: "bind-resumed", what: What::Binding(true), ..BIND };
    const TLS: Measured = Measured {
        case: "null-tls",
        path: Path::Tcp,
        wait: Waiting::Block,
        placement: Placement::OneCore,
        what: What::Null,
        ..FIRST
    };
    [
        FIRST,
        Measured {
            case: "in-48000-sealed",
            link: Link::Veth,
            what: What::Sealed("in-48000"),
            ..FIRST
        },
        TLS,
        Measured { path: Path::Tcp, ..BIND },
        BIND,
        Measured { path: Path::Tcp, ..RESUMED },
        RESUMED,
        Measured { case: "null-tls-peer", placement: Placement::TwoCores, what: What::Peer, ..TLS },
    ]
};

impl Measured {
    /// Reports that the row is missing, and why.
    fn skipped(&self, why: &str) {
        eprintln!("{}, {}, {}: skipped: {why}", self.case, self.path.name(), self.link.name());
    }

    /// Returns the name of the limit.
    const fn limit_name(&self) -> &'static str {
        match self.what {
            What::Sealed(_) => PLAIN_AND_SEALING,
            What::Null => PINGPONG,
            What::Binding(_) => HANDSHAKE,
            What::Peer => TONIC_TLS,
        }
    }

    /// Returns the row without results.
    fn row(&self) -> Row {
        let row = row(self.case, Some(self.path.name()), self.wait, self.placement, self.link);
        Row { bindings: 1, ..row }
    }

    /// Returns Peregrine's subject and its limit. Returns `None`, and reports why, if one of them does not
    /// work here.
    fn subjects(&self, keys: &Keys, far: &mut Far) -> Result<Option<Subjects>, Failure> {
        let &Self { path, wait, .. } = self;
        let name = if let What::Sealed(name) = self.what { name } else { "null" };
        let case = Case::named(name).ok_or("there is no such case")?;
        let mut calls = Calls { path, case, wait, keys: keys.clone() };
        if let Some(why) = calls.missing(far)? {
            self.skipped(&why);
            return Ok(None);
        }
        let limit: Box<dyn Subject> = match self.what {
            What::Sealed(_) => Box::new(PlainAndSealing::new(path, case, wait, self.link)?),
            What::Null => Box::new(Pingpong { keys: keys.clone() }),
            What::Binding(resumed) => {
                let limit = Box::new(Handshakes { resumed, keys: keys.clone() });
                let ours = Bindings { path, resumed, keys: keys.clone() };
                return Ok(Some([Box::new(ours), limit]));
            }
            What::Peer => match self.peer(far)? {
                Some(peer) => peer,
                None => return Ok(None),
            },
        };
        Ok(Some([Box::new(calls), limit]))
    }

    /// Starts the client and the server of gRPC.
    #[cfg(feature = "peers")]
    fn peer(&self, far: &Far) -> Result<Option<Box<dyn Subject>>, Failure> {
        use crate::network::other::{Pair, Peer};
        keys::make_for_tonic()?;
        let cpus = self.placement.processors(&crate::machine::processors()).unwrap_or_default();
        Ok(Some(Box::new(Pair::start(Peer::TonicTls, far, cpus, 1)?)))
    }

    /// Reports that this program was built without gRPC.
    #[cfg(not(feature = "peers"))]
    fn peer(&self, _: &Far) -> Result<Option<Box<dyn Subject>>, Failure> {
        self.skipped("this program was built without the feature `peers`");
        Ok(None)
    }
}

/// Peregrine's subject, and its limit.
type Subjects = [Box<dyn Subject>; 2];

/// Measures everything that was selected.
pub(crate) fn measure(selection: &Selection, progress: &Progress) -> Result<Vec<Row>, Failure> {
    let keys = Keys::make()?;
    let mut rows = Vec::new();
    for measured in MEASURED.iter().filter(|one| selection.has_case(one.case)) {
        let filter = Filter::only(measured.link);
        on_each_link(selection, &filter, measured.placement, |_, far| {
            progress.show(&format!("{}, {}", measured.case, measured.path.name()));
            let Some(subjects) = measured.subjects(&keys, far)? else { return Ok(()) };
            // A handshake takes about as long as a hundred calls.
            let times = if matches!(measured.what, What::Binding(_)) { 10 } else { 1 };
            let slice = selection.slice() * times;
            let samples = rounds_of(selection.rounds(), slice, far, subjects.into())?;
            let ((ours, cpu), (limit, _)) = (split(&samples[0]), split(&samples[1]));
            let row = measured.row().ours(&ours, &cpu).limit(measured.limit_name(), &limit);
            rows.push(row.ratio(&ours, &limit));
            Ok(())
        })?;
    }
    rows.extend(traced::measure(selection, progress)?);
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::{self, Mark};

    #[test]
    fn every_row_has_a_mark_and_every_case_a_row() {
        for measured in &MEASURED {
            let row = measured.row().ours(&[3.0], &[]).limit(measured.limit_name(), &[4.0]);
            let row = row.ratio(&[3.0], &[4.0]);
            assert!(matches!(marks::of(&row), Some(Mark::Ratio(..))), "{row:?}");
            assert!(CASES.contains(&measured.case), "{}", measured.case);
        }
        for case in CASES.into_iter().filter(|case| *case != traced::CASE) {
            assert!(MEASURED.iter().any(|one| one.case == case), "{case}");
        }
    }

    #[test]
    fn every_row_has_other_conditions() {
        for (at, one) in MEASURED.iter().enumerate() {
            let same = |other: &&Measured| (one.case, one.path) == (other.case, other.path);
            assert_eq!(MEASURED.iter().position(|other| same(&other)), Some(at), "{}", one.case);
        }
    }
}
