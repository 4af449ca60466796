//! The ladder: local, ethernet, udp, tcp. Binding takes the fastest path that works.
//!
//! This is the one file that names every path. What is decided here is decided before the first
//! call: no call ever changes its path under way.

use std::time::{Duration, Instant};

use super::datagram::{self, Over};
use super::explain::{Explanation, PATHS, Verdict};
use super::session::until;
use super::{BindOptions, BoundPath, compare, session, stream};
use crate::address::{Address, Place};
use crate::call::PathKind;
use crate::directory::{Directory, Hosts};
use crate::error::{CallError, Kind, Phase};
use crate::interface::{Description, Digest, InterfaceRef};
use crate::limits;
use crate::sys;

/// How long a path may take to answer while there are others to try.
const PATIENCE: Duration = Duration::from_secs(1);

/// Until when a way is tried after which there are `others`: each of them gets as much time as this one,
/// so that one that works is reached however many do not answer.
fn patience(until: Instant, others: usize) -> Instant {
    if others == 0 {
        return until;
    }
    let now = Instant::now();
    let share = until.saturating_duration_since(now) / (others as u32 + 1);
    now + share.min(PATIENCE)
}

/// What a client wants, whoever serves it.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    pub(super) interface: &'a InterfaceRef,
    /// Which interface the server must have; any, if none is given.
    pub(super) digest: Option<Digest>,
    pub(super) options: &'a BindOptions,
    pub(super) until: Instant,
}

/// A way that can be tried: by which path, and where.
struct Way<'a> {
    path: PathKind,
    target: &'a Address,
    /// Only if the server there is of this machine too.
    if_here: bool,
    /// Whether an address names the path.
    asked: bool,
}

/// Why no path works, and what became of each.
pub(super) struct Unbound(Box<(CallError, Explanation)>);

impl Unbound {
    pub(super) fn new(error: CallError, explanation: Explanation) -> Self {
        Self(Box::new((error, explanation)))
    }

    pub(super) fn into_parts(self) -> (CallError, Explanation) {
        *self.0
    }
}

impl From<Unbound> for CallError {
    fn from(unbound: Unbound) -> Self {
        unbound.0.0
    }
}

/// What was bound, by which path, and what became of the others.
pub(super) struct Selected {
    pub(super) leg: BoundPath,
    /// The server's number of each procedure, if they are not the client's.
    pub(super) numbers: Option<Box<[u32]>>,
    pub(super) explanation: Explanation,
}

/// Binds by the fastest path that works.
pub(super) fn select(
    address: &str,
    interface: &InterfaceRef,
    digest: Option<Digest>,
    options: &BindOptions,
    until: Instant,
) -> Result<Selected, Unbound> {
    let mut explanation = Explanation::all(address, Verdict::Excluded, "");
    match try_all(address, interface, digest, options, until, &mut explanation) {
        Ok((leg, numbers)) => Ok(Selected { leg, numbers, explanation }),
        Err(error) => Err(Unbound::new(error.at(address), explanation)),
    }
}

type Bound = (BoundPath, Option<Box<[u32]>>);

fn try_all(
    address: &str,
    interface: &InterfaceRef,
    digest: Option<Digest>,
    options: &BindOptions,
    until: Instant,
    explanation: &mut Explanation,
) -> Result<Bound, CallError> {
    let address: Address = address.parse()?;
    let (targets, nowhere) = targets(&address, options);
    let ways = ways(&address, &targets, &nowhere.cause(), explanation);
    // A directory that could not be asked has something to say; one that does not know, only if there
    // is nobody else.
    let mut failure = (ways.is_empty() || nowhere.kind() != Kind::NotFound).then_some(nowhere);
    // Where nothing answered over UDP, nothing will when it is asked for something else.
    let mut silent: Vec<&Place> = Vec::new();
    let mut ended: Vec<&Address> = Vec::new();
    for (i, way) in ways.iter().enumerate() {
        if ended.contains(&way.target) {
            continue;
        }
        if Instant::now() >= until {
            explanation.set(way.path, Verdict::Failed, "no time was left".to_owned());
            continue;
        }
        let until = patience(until, ways.len() - i - 1);
        let Way { path, target, .. } = *way;
        let wanted = Wanted { name: target.name(), interface, digest, options, until };
        let bound = match target.place() {
            Some(place) if path == PathKind::Udp && silent.contains(&place) => {
                Err(unanswered(place))
            }
            _ => way.try_it(&wanted),
        };
        let error = match bound {
            Ok(bound) => {
                explanation.set(path, Verdict::Chosen, String::new());
                let slower = PATHS.iter().copied().skip_while(|one| *one != path).skip(1);
                for path in slower.filter(|path| ways.iter().any(|way| way.path == *path)) {
                    explanation.set(path, Verdict::NotNeeded, String::new());
                }
                return Ok(bound);
            }
            Err(Failed::Elsewhere(reason)) => {
                explanation.set(path, Verdict::Excluded, reason);
                continue;
            }
            Err(Failed::Error(error)) => error,
        };
        if let Some(place) = target.place()
            && path == PathKind::Ethernet
            && error.kind() == Kind::TimedOut
        {
            silent.push(place);
        }
        explanation.set(path, Verdict::Failed, reason_of(&error));
        let ends = ends_the_climb(error.kind());
        failure = Some(match failure {
            Some(before) => worse(before, error),
            None => error,
        });
        if ends {
            ended.push(target);
        }
    }
    let failure = failure.unwrap_or_else(nobody_else);
    Err(match ways.len() {
        0 | 1 => failure,
        _ => all_failed(&failure, explanation),
    })
}

/// Why a way was not taken.
enum Failed {
    /// It leads to somebody else.
    Elsewhere(String),
    Error(CallError),
}

impl From<CallError> for Failed {
    fn from(error: CallError) -> Self {
        Self::Error(error)
    }
}

#[cold]
fn unanswered(place: &Place) -> Failed {
    let text = format!("{place} does not answer");
    CallError::not_executed(Kind::TimedOut, Phase::Bind, text).into()
}

fn reason_of(error: &CallError) -> String {
    let text = error.kind().text();
    if error.detail().is_empty() { text.to_owned() } else { format!("{text}: {}", error.cause()) }
}

/// What another path cannot mend.
const fn ends_the_climb(kind: Kind) -> bool {
    matches!(kind, Kind::InterfaceMismatch | Kind::TooLarge | Kind::BadName)
}

/// Of two failures the one that says more: who came further knows better.
fn worse(a: CallError, b: CallError) -> CallError {
    let far = |error: &CallError| match error.kind() {
        Kind::NotFound => 0,
        Kind::Unreachable => 1,
        Kind::TimedOut => 2,
        Kind::ServerGone | Kind::Withdrawn => 3,
        _ => 4,
    };
    if far(&b) >= far(&a) { b } else { a }
}

/// One error for all paths: the kind of the one that came furthest, and what became of each.
fn all_failed(worst: &CallError, explanation: &Explanation) -> CallError {
    let mut told: Vec<(String, &str)> = Vec::new();
    for candidate in explanation.candidates.iter().filter(|candidate| !candidate.reason.is_empty())
    {
        match told.last_mut() {
            Some((paths, reason)) if *reason == candidate.reason => {
                paths.push_str(&format!(", {}", candidate.path));
            }
            _ => told.push((candidate.path.to_string(), &candidate.reason)),
        }
    }
    let text: Vec<_> = told.iter().map(|(paths, reason)| format!("{paths}: {reason}")).collect();
    CallError::not_executed(worst.kind(), worst.phase(), text.join("; "))
}

#[cold]
fn nobody_else() -> CallError {
    CallError::not_executed(Kind::NotFound, Phase::Resolve, "no hosts file names another machine")
}

/// Where the export may be, and why there are no more such places.
fn targets(address: &Address, options: &BindOptions) -> (Vec<Address>, CallError) {
    let mut targets = vec![address.clone()];
    if address.place().is_some() || address.path() == Some(PathKind::Local) {
        return (targets, nobody_else());
    }
    // On this machine by the runtime directory, elsewhere as another directory says.
    let hosts = Hosts::of_environment();
    let known: &dyn Directory = match &options.directory {
        Some(directory) => &**directory,
        None => &hosts,
    };
    let why = match known.offers(address.name()) {
        Ok(offers) if offers.is_empty() => {
            let text = format!("not in {}", known.describe());
            CallError::not_executed(Kind::NotFound, Phase::Resolve, text)
        }
        Ok(offers) => {
            targets.extend(offers.into_iter().take(limits::OFFERS_MAX));
            nobody_else()
        }
        Err(error) => error,
    };
    (targets, why)
}

/// The ways to the targets, the fastest first; of paths without one the explanation says why.
fn ways<'a>(
    address: &Address,
    targets: &'a [Address],
    nowhere: &str,
    explanation: &mut Explanation,
) -> Vec<Way<'a>> {
    let mut ways = Vec::new();
    for &path in PATHS {
        if let Some(asked) = address.path()
            && asked != path
        {
            explanation.set(path, Verdict::Excluded, format!("the address asks for {asked}"));
            continue;
        }
        let before = ways.len();
        for target in targets {
            let by_path = target.path().is_none_or(|asked| asked == path);
            let leads = match path {
                PathKind::Local => target.place().is_none() || target.path().is_none(),
                _ => target.place().is_some(),
            };
            if by_path && leads {
                let if_here = path == PathKind::Local && target.place().is_some();
                let asked = [address, target].iter().any(|one| one.path() == Some(path));
                ways.push(Way { path, target, if_here, asked });
            }
        }
        if ways.len() == before {
            explanation.set(path, Verdict::Excluded, nowhere.to_owned());
        }
    }
    ways
}

impl Way<'_> {
    fn try_it(&self, wanted: &Wanted<'_>) -> Result<Bound, Failed> {
        if let Some(place) = self.target.place().filter(|_| self.if_here) {
            is_here(place, wanted).map_err(Failed::Elsewhere)?;
        }
        match self.bind(wanted) {
            Ok(leg) => Ok((leg, None)),
            Err(error) if error.kind() == Kind::InterfaceMismatch => {
                let left = wanted.until.saturating_duration_since(Instant::now());
                let theirs = self.describe(wanted.name, wanted.options, left)?;
                let numbers = compare::numbers(wanted.interface, &theirs)?;
                // Of this very interface, for the server may have been exchanged meanwhile.
                let leg = self.bind(&Wanted { digest: Some(theirs.digest), ..*wanted })?;
                Ok((leg, numbers))
            }
            Err(error) => Err(error.into()),
        }
    }

    const fn ethernet(&self) -> Over {
        Over::Ethernet { asked: self.asked }
    }

    fn bind(&self, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
        match (self.path, self.target.place()) {
            (PathKind::Ethernet, Some(place)) => datagram::bind(self.ethernet(), place, wanted),
            (PathKind::Udp, Some(place)) => datagram::bind(Over::Udp, place, wanted),
            (PathKind::Tcp, Some(place)) => stream::bind(place, wanted),
            _ => session::bind(wanted),
        }
    }

    fn describe(
        &self,
        name: &str,
        options: &BindOptions,
        limit: Duration,
    ) -> Result<Description, CallError> {
        match (self.path, self.target.place()) {
            (PathKind::Ethernet, Some(place)) => {
                datagram::describe(self.ethernet(), place, name, options, limit)
            }
            (PathKind::Udp, Some(place)) => {
                datagram::describe(Over::Udp, place, name, options, limit)
            }
            (PathKind::Tcp, Some(place)) => stream::describe(place, name, limit),
            _ => session::describe(name, limit),
        }
    }
}

/// Whether the server that listens at a place is the one that exports the name on this machine; if
/// not, why it is taken for another.
fn is_here(place: &Place, wanted: &Wanted<'_>) -> Result<(), String> {
    let addresses = place.resolve().map_err(|error| error.cause())?;
    let own = |ip: core::net::IpAddr| ip.is_loopback() || sys::interface_of(ip).is_ok();
    if !addresses.iter().any(|address| own(address.ip())) {
        return Err(format!("{} is another machine", place.host()));
    }
    let left = wanted.until.saturating_duration_since(Instant::now());
    let said = session::describe(wanted.name, left).map_err(|error| reason_of(&error))?;
    let listens = |text: &String| {
        // Numbers only: nobody's name is looked up because a server says it.
        let place = text.split_once(':').map(|(_, place)| place.parse::<core::net::SocketAddr>());
        place.and_then(Result::ok).into_iter().any(|at| {
            let here = |address: &core::net::SocketAddr| {
                address.port() == at.port() && (address.ip() == at.ip() || at.ip().is_unspecified())
            };
            addresses.iter().any(here)
        })
    };
    if said.network == sys::network_number() && said.listens.iter().any(listens) {
        return Ok(());
    }
    Err(format!("`{}` of this machine does not listen at {place}", wanted.name))
}

/// What an export says of itself, by whichever path it answers.
pub(super) fn describe(address: &str, limit: Duration) -> Result<Description, CallError> {
    let until = until(limit);
    let parsed: Address = address.parse()?;
    let options = BindOptions::default();
    let (targets, nowhere) = targets(&parsed, &options);
    let mut explanation = Explanation::all(address, Verdict::Excluded, "");
    let mut ways = ways(&parsed, &targets, &nowhere.cause(), &mut explanation);
    // For one question a connection is made faster than it is found out what else there is.
    ways.sort_by_key(|way| match way.path {
        PathKind::Local => 0,
        PathKind::Tcp => 1,
        PathKind::Udp => 2,
        _ => 3,
    });
    let mut failure = (ways.is_empty() || nowhere.kind() != Kind::NotFound).then_some(nowhere);
    for (i, way) in ways.iter().enumerate() {
        let until = patience(until, ways.len() - i - 1);
        let name = way.target.name();
        let wanted = Wanted {
            name,
            interface: &InterfaceRef::none(),
            digest: None,
            options: &options,
            until,
        };
        if let Some(place) = way.target.place().filter(|_| way.if_here)
            && is_here(place, &wanted).is_err()
        {
            continue;
        }
        let left = until.saturating_duration_since(Instant::now());
        match way.describe(name, &options, left) {
            Ok(description) => return Ok(description),
            Err(error) => {
                failure = Some(match failure {
                    Some(before) => worse(before, error),
                    None => error,
                });
            }
        }
    }
    Err(failure.unwrap_or_else(nobody_else))
}
