//! The selection of a path: binding takes the fastest one that works.
//!
//! [`CONNECTS`] lists all paths. The path is selected before the first call. No call changes its path while
//! it runs.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::bound::Fit;
use super::explain::{Explanation, Verdict};
use super::{BindOptions, Binding, compare, pool};
use crate::address::{Address, Place};
use crate::call::{Limit, PathKind};
use crate::directory::{self, Directory, Offer};
use crate::error::{CallError, Kind, NO_DATAGRAMS, Phase};
use crate::interface::{Description, Digest, InterfaceRef};
use crate::limits;
use crate::path::balance::Balance;
use crate::path::bind::{BoundPath, Connect, Exclusion, Inquiry, Target, Wanted, until, violated};
use crate::path::courier::{CourierExchange, CourierTcp, CourierUdp};
use crate::path::datagram::{OverEthernet, OverUdp};
use crate::path::local::Local;
use crate::path::onc::{OncTcp, OncUdp};
use crate::path::security;
use crate::path::stream::Tcp;
use crate::protocol::description;
use crate::stub;
use crate::sys;

/// The client sides of all paths, the fastest path first. An address without the scheme of another RPC system
/// leads only to Peregrine's own paths, and an address with such a scheme only to the paths of that system.
const CONNECTS: &[&dyn Connect] = &[
    &Local,
    &OverEthernet,
    &OverUdp,
    &Tcp,
    &OncUdp,
    &OncTcp,
    &CourierExchange,
    &CourierUdp,
    &CourierTcp,
];

/// The longest time that one attempt may take if another one can follow.
const ATTEMPT_MAX: Duration = Duration::from_secs(1);

/// Returns the time by which an attempt must end if `others` attempts follow it. Each attempt gets the same
/// share of the remaining time, but at most [`ATTEMPT_MAX`]. A working path is thus tried even if no path
/// before it answers.
fn attempt_end(until: Instant, others: usize) -> Instant {
    if others == 0 {
        return until;
    }
    let now = Instant::now();
    let share = until.saturating_duration_since(now) / (others as u32 + 1);
    now + share.min(ATTEMPT_MAX)
}

/// One attempt to bind: a path and an address.
struct Attempt<'a> {
    connect: &'static dyn Connect,
    target: Target<'a>,
    /// Whether the attempt counts only if the server at the address also exports the name on this machine.
    only_if_here: bool,
}

/// The result of an unsuccessful selection: the error, and the outcome of each path.
pub(super) struct Unbound(Box<(CallError, Explanation)>);

impl Unbound {
    pub(super) fn new(error: CallError, explanation: Explanation) -> Self {
        Self(Box::new((error, explanation)))
    }

    pub(super) fn kind(&self) -> Kind {
        self.0.0.kind()
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

/// The path that was selected, and the outcome of each path.
pub(super) struct Selected {
    pub(super) path: BoundPath,
    /// How the client calls the server's procedures, if the interfaces differ.
    pub(super) fit: Option<Fit>,
    pub(super) explanation: Explanation,
}

/// Binds to an export by the fastest path that works.
pub(super) fn select(
    address: &str,
    interface: &InterfaceRef,
    digest: Option<Digest>,
    options: &BindOptions,
    until: Instant,
) -> Result<Selected, Unbound> {
    let of = |parsed: &Address| targets(parsed, options);
    select_by(address, of, interface, digest, options, until)
}

/// Binds to one server of a name, by the fastest path that works. `targets` are the server's addresses.
pub(super) fn select_of(
    address: &str,
    targets: &[Address],
    interface: &InterfaceRef,
    digest: Option<Digest>,
    options: &BindOptions,
    until: Instant,
) -> Result<Selected, Unbound> {
    let of = |_: &Address| Targets::of(targets.to_vec(), no_other_machine());
    select_by(address, of, interface, digest, options, until)
}

/// Where an export may be.
struct Targets {
    addresses: Vec<Address>,
    /// Why there are no more addresses.
    no_more: CallError,
    /// How old this knowledge is, if the directory does not answer now.
    age: Option<Duration>,
}

impl Targets {
    const fn of(addresses: Vec<Address>, no_more: CallError) -> Self {
        Self { addresses, no_more, age: None }
    }
}

/// Binds by the fastest path that works. `targets` returns where the export may be.
fn select_by(
    address: &str,
    targets: impl FnOnce(&Address) -> Targets,
    interface: &InterfaceRef,
    digest: Option<Digest>,
    options: &BindOptions,
    until: Instant,
) -> Result<Selected, Unbound> {
    let mut explanation = excluded(address);
    let tried = address.parse().and_then(|parsed: Address| {
        let targets = targets(&parsed);
        explanation.remarks.extend(targets.age.map(old));
        try_all(&parsed, targets, interface, digest, options, until, &mut explanation)
    });
    match tried {
        Ok((path, fit)) => Ok(Selected { path, fit, explanation }),
        Err(error) => Err(Unbound::new(error.at(address), explanation)),
    }
}

/// Returns an explanation in which all paths have the same verdict and reason.
pub(crate) fn explain_all(address: &str, verdict: Verdict, reason: &str) -> Explanation {
    let path = address.parse().ok().and_then(|address: Address| address.path());
    let kinds = CONNECTS.iter().map(|connect| connect.kind());
    Explanation::all(address, kinds.filter(|kind| suits(path, *kind)), verdict, reason)
}

/// Returns whether a path belongs to the same RPC system as the path that an address names.
fn suits(asked: Option<PathKind>, kind: PathKind) -> bool {
    kind.system() == asked.and_then(PathKind::system)
}

/// Returns an explanation in which no path was tried.
pub(super) fn excluded(address: &str) -> Explanation {
    explain_all(address, Verdict::Excluded, "")
}

type Selection = (BoundPath, Option<Fit>);

fn try_all(
    address: &Address,
    Targets { addresses: targets, no_more, .. }: Targets,
    interface: &InterfaceRef,
    digest: Option<Digest>,
    options: &BindOptions,
    until: Instant,
    explanation: &mut Explanation,
) -> Result<Selection, CallError> {
    let is_secure = options.security.is_some();
    if is_secure {
        security::check_asked(address.path())?;
    }
    let searched = searched(address, &targets, &no_more);
    let connects = connects(is_secure, explanation);
    let mut attempts = attempts(&connects, address, &targets, &no_more.cause(), explanation);
    if !prefers_paths(options) {
        // The order of the servers decides, and then the path.
        let place =
            |one: &Attempt<'_>| targets.iter().position(|target| target == one.target.address);
        attempts.sort_by_key(place);
    }
    // If a directory cannot be read, this explains why binding failed. If a directory lacks the name, this
    // explains the failure only if there is no address to try.
    let mut failure = (attempts.is_empty() || no_more.kind() != Kind::NotFound).then_some(no_more);
    // Binding over Ethernet begins with a request over UDP. If a place does not answer this request, the
    // client does not try to bind to the place over UDP.
    let mut silent: Vec<&Place> = Vec::new();
    let mut ended: Vec<&Address> = Vec::new();
    for (i, attempt) in attempts.iter().enumerate() {
        let (kind, target) = (attempt.connect.kind(), attempt.target.address);
        if ended.contains(&target) {
            continue;
        }
        if Instant::now() >= until {
            explanation.set(kind, Verdict::Failed, "no time was left".to_owned());
            continue;
        }
        let until = attempt_end(until, attempts.len() - i - 1);
        let wanted = Wanted { name: target.name(), interface, digest, options, until };
        let bound = match target.place() {
            Some(place) if kind == PathKind::Udp && silent.contains(&place) => {
                Err(unanswered(place))
            }
            _ => attempt.bind(&wanted),
        };
        let error = match bound {
            Ok(bound) => {
                explanation.choose(kind, |kind| {
                    attempts.iter().any(|attempt| attempt.connect.kind() == kind)
                });
                return Ok(bound);
            }
            Err(Failed::Elsewhere(reason)) => {
                explanation.set(kind, Verdict::Excluded, reason);
                continue;
            }
            Err(Failed::Error(error)) => error,
        };
        if let Some(place) = target.place()
            && kind == PathKind::Ethernet
            && error.kind() == Kind::TimedOut
        {
            silent.push(place);
        }
        explanation.set(kind, Verdict::Failed, reason_of(&error));
        if is_final(error.kind()) {
            ended.push(target);
        }
        failure = Some(match failure {
            Some(before) => furthest(before, error),
            None => error,
        });
    }
    let failure = failure.unwrap_or_else(no_other_machine);
    Err(match attempts.len() {
        0 | 1 => with_searched(failure, searched),
        _ => all_failed(&failure, explanation),
    })
}

/// Why an attempt to bind failed.
enum Failed {
    /// The server at the address is not the server that exports the name on this machine.
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
    CallError::not_executed(Kind::TimedOut, Phase::Bind, text).with_advice(NO_DATAGRAMS).into()
}

fn reason_of(error: &CallError) -> String {
    let text = error.kind().text();
    if error.detail().is_empty() { text.to_owned() } else { format!("{text}: {}", error.cause()) }
}

/// Returns whether an attempt by another path to the same address would fail for the same reason.
const fn is_final(kind: Kind) -> bool {
    matches!(kind, Kind::InterfaceMismatch | Kind::TooLarge | Kind::BadName)
}

/// Returns the more informative of two failures: the failure of the attempt that got further.
fn furthest(a: CallError, b: CallError) -> CallError {
    let progress = |error: &CallError| match error.kind() {
        Kind::NotFound => 0,
        Kind::Unreachable => 1,
        Kind::TimedOut => 2,
        Kind::ServerGone | Kind::Withdrawn => 3,
        _ => 4,
    };
    if progress(&b) >= progress(&a) { b } else { a }
}

/// Returns one error for all attempts. Its kind is that of the attempt that got furthest. Its text has all
/// reasons.
fn all_failed(furthest: &CallError, explanation: &Explanation) -> CallError {
    let mut reasons: Vec<(String, &str)> = Vec::new();
    for candidate in explanation.candidates().iter().filter(|one| !one.reason.is_empty()) {
        match reasons.last_mut() {
            Some((paths, reason)) if *reason == candidate.reason => {
                paths.push_str(&format!(", {}", candidate.path));
            }
            _ => reasons.push((candidate.path.to_string(), &candidate.reason)),
        }
    }
    let text: Vec<_> = reasons.iter().map(|(paths, reason)| format!("{paths}: {reason}")).collect();
    CallError::not_executed(furthest.kind(), furthest.phase(), text.join("; "))
        .advised_like(furthest)
}

#[cold]
fn no_other_machine() -> CallError {
    CallError::not_executed(Kind::NotFound, Phase::Resolve, "no hosts file names another machine")
}

/// Returns a text that says where, besides this machine, the client searched for an unknown name.
fn searched(address: &Address, targets: &[Address], no_more: &CallError) -> Option<String> {
    let asked = address.place().is_none() && !address.is_on_this_machine();
    let unknown = targets.len() == 1 && no_more.kind() == Kind::NotFound;
    (asked && unknown).then(|| no_more.cause())
}

/// Adds the text that [`searched`] returned to the error of an unknown name.
fn with_searched(error: CallError, searched: Option<String>) -> CallError {
    match searched {
        Some(searched) if error.kind() == Kind::NotFound && error.detail() != searched => {
            let text = format!("{}, {searched}", error.detail());
            CallError::not_executed(Kind::NotFound, error.phase(), text).advised_like(&error)
        }
        _ => error,
    }
}

/// Returns the directory that lists the names that other machines serve.
///
/// # Errors
/// If the environment selects a directory that cannot be opened.
pub(super) fn directory(options: &BindOptions) -> Result<Arc<dyn Directory>, CallError> {
    let chosen = options.directory.as_ref().map(Arc::clone);
    chosen.map_or_else(directory::of_environment, Ok)
}

/// Returns the remark that a directory does not answer, and that what it knows has this age.
pub(super) fn old(age: Duration) -> String {
    format!("the directory does not answer: this is {} s old", age.as_secs())
}

/// Returns where the export may be.
fn targets(address: &Address, options: &BindOptions) -> Targets {
    let mut targets = vec![address.clone()];
    if address.place().is_some() || address.is_on_this_machine() {
        return Targets::of(targets, no_other_machine());
    }
    let mut age = None;
    // The runtime directory lists the names that this machine serves. `known` lists the names that other
    // machines serve.
    let known = match directory(options) {
        Ok(known) => known,
        Err(error) => return Targets::of(targets, error),
    };
    let no_more = match known.look_up(address.name()) {
        Ok(offers) if offers.servers.is_empty() => {
            let remarks: String =
                offers.remarks.iter().map(|remark| format!(", {remark}")).collect();
            let text = format!("not in {}{remarks}", known.describe());
            CallError::not_executed(Kind::NotFound, Phase::Resolve, text)
        }
        Ok(mut offers) => {
            age = offers.age;
            order(&mut offers.servers, known.is_ordered(), options);
            targets.extend(offers.addresses().take(limits::OFFERS_MAX).cloned());
            if !prefers_paths(options) {
                // The name on this machine is one of the servers, or none of them.
                targets.rotate_left(1);
            }
            no_other_machine()
        }
        Err(error) => error,
    };
    Targets { addresses: targets, no_more, age }
}

/// Returns whether a faster path is preferred to the server that the balance chooses.
const fn prefers_paths(options: &BindOptions) -> bool {
    options.nearest_first && !matches!(options.balance, Some(Balance::Key(_)))
}

/// Orders the servers of a name as the balance of a binding says. `is_ordered` is whether the directory has an
/// order.
fn order(servers: &mut [Offer], is_ordered: bool, options: &BindOptions) {
    static TURNS: AtomicUsize = AtomicUsize::new(0);
    if servers.len() < 2 {
        return;
    }
    match &options.balance {
        Some(Balance::First) => {}
        None if is_ordered => {}
        Some(Balance::Key(key)) => {
            let weight = |one: &Offer| Balance::weight(key.as_bytes(), one.server());
            servers.sort_by_cached_key(|one| {
                core::cmp::Reverse((weight(one), one.server().to_owned()))
            });
        }
        Some(Balance::RoundRobin) => {
            servers.rotate_left(TURNS.fetch_add(1, Ordering::Relaxed) % servers.len());
        }
        Some(Balance::LeastLoaded | Balance::Random) | None => shuffle(servers),
    }
    servers.sort_by_key(Offer::priority);
    if let (Some(Balance::LeastLoaded), [one, other, ..]) = (&options.balance, &mut *servers)
        && one.priority() == other.priority()
        && pool::load(other, options) < pool::load(one, options)
    {
        core::mem::swap(one, other);
    }
}

/// Brings servers into a random order, without a system call: only the first use of a thread makes one.
fn shuffle(servers: &mut [Offer]) {
    let key = RandomState::new().build_hasher().finish().to_ne_bytes();
    servers.sort_by_cached_key(|one| Balance::weight(&key, one.server()));
}

/// Returns the client sides of the paths that a binding may use, the fastest path first.
fn connects(is_secure: bool, explanation: &mut Explanation) -> Vec<&'static dyn Connect> {
    let mut connects = CONNECTS.to_vec();
    if is_secure {
        connects.retain(|connect| {
            let may = security::may_carry(connect.kind());
            if !may {
                let why = security::NOT_SEALED.to_owned();
                explanation.set(connect.kind(), Verdict::Excluded, why);
            }
            may
        });
    }
    connects
}

/// Returns the attempts to reach the targets by these paths, in the order of `connects`. If a path has no
/// attempt, stores the reason in `explanation`. For a path that needs a host and a port, the reason is
/// `no_more`: it says where hosts and ports were searched for.
fn attempts<'a>(
    connects: &[&'static dyn Connect],
    address: &Address,
    targets: &'a [Address],
    no_more: &str,
    explanation: &mut Explanation,
) -> Vec<Attempt<'a>> {
    let mut attempts = Vec::new();
    for &connect in connects {
        let kind = connect.kind();
        if !suits(address.path(), kind) {
            continue;
        }
        if let Some(asked) = address.path()
            && asked != kind
        {
            explanation.set(kind, Verdict::Excluded, format!("the address asks for {asked}"));
            continue;
        }
        let (before, mut reason) = (attempts.len(), no_more);
        for target in targets {
            if target.path().is_some_and(|asked| asked != kind) {
                continue;
            }
            match connect.leads_to(target) {
                Ok(()) => {}
                Err(Exclusion::NoPlace) => continue,
                Err(Exclusion::Unsuited(why)) => {
                    reason = why;
                    continue;
                }
            }
            let is_asked = [address, target].iter().any(|one| one.path() == Some(kind));
            let only_if_here = kind.is_on_this_machine() && target.place().is_some();
            let target = Target { address: target, is_asked };
            attempts.push(Attempt { connect, target, only_if_here });
        }
        if attempts.len() == before {
            explanation.set(kind, Verdict::Excluded, reason.to_owned());
        }
    }
    attempts
}

impl Attempt<'_> {
    /// Binds. If the interfaces differ, checks whether the client can use the server's interface.
    fn bind(&self, wanted: &Wanted<'_>) -> Result<Selection, Failed> {
        self.check_machine(wanted).map_err(Failed::Elsewhere)?;
        match self.connect.bind(&self.target, wanted) {
            Ok(path) => Ok((path, None)),
            // Servers of other RPC systems do not describe their interfaces.
            Err(error)
                if error.kind() == Kind::InterfaceMismatch
                    && self.connect.kind().system().is_none() =>
            {
                let theirs = self.describe(wanted)?;
                let fit = compare::fit(wanted.interface, theirs.digest, &theirs.text)?;
                // The server may have been replaced meanwhile. Binding must then fail unless the new server
                // has the interface that was compared.
                let wanted = Wanted { digest: Some(theirs.digest), ..*wanted };
                Ok((self.connect.bind(&self.target, &wanted)?, fit))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Asks the server to describe the export.
    fn describe(&self, wanted: &Wanted<'_>) -> Result<Description, CallError> {
        let any = Wanted { interface: &InterfaceRef::none(), digest: None, ..*wanted };
        let (path, procedure) = match self.connect.inquire(&self.target, &any)? {
            Inquiry::Answer(description) => return Ok(description),
            Inquiry::Call { path, procedure } => (path, procedure),
        };
        let binding =
            Binding::of_path(path, None, InterfaceRef::none(), excluded(""), any.options)?;
        let left = any.until.saturating_duration_since(Instant::now());
        let bytes = stub::ask(&binding.with_limit(Limit::Within(left)), procedure)?;
        description::from_bytes(&bytes)
            .ok_or_else(|| violated("cannot read the server's description"))
    }

    /// If `only_if_here` is true, checks that the server at the address is the one that exports the name on
    /// this machine. The error says why the server is considered a different one.
    fn check_machine(&self, wanted: &Wanted<'_>) -> Result<(), String> {
        let Some(place) = self.target.address.place().filter(|_| self.only_if_here) else {
            return Ok(());
        };
        let addresses = place.resolve().map_err(|error| error.cause())?;
        let is_own = |ip: core::net::IpAddr| ip.is_loopback() || sys::interface_of(ip).is_ok();
        if !addresses.iter().any(|address| is_own(address.ip())) {
            return Err(format!("{} is another machine", place.host()));
        }
        let description = self.describe(wanted).map_err(|error| reason_of(&error))?;
        let listens = |text: &String| {
            // Only numeric addresses are accepted: a server must not make the client resolve names.
            let place = text.split_once(':').map(|(_, place)| place.parse());
            place.and_then(Result::ok).into_iter().any(|at: core::net::SocketAddr| {
                let same = |address: &core::net::SocketAddr| {
                    let same_host = address.ip() == at.ip() || at.ip().is_unspecified();
                    address.port() == at.port() && same_host
                };
                addresses.iter().any(same)
            })
        };
        let same_network = description.network == sys::network_number();
        if same_network && description.listens.iter().any(listens) {
            return Ok(());
        }
        Err(format!("`{}` of this machine does not listen at {place}", wanted.name))
    }
}

/// Asks the server to describe the export at an address, by the first path that answers.
pub(super) fn describe(address: &str, options: &BindOptions) -> Result<Description, CallError> {
    let until = until(options.bind_limit);
    let parsed: Address = address.parse()?;
    let is_secure = options.security.is_some();
    if is_secure {
        security::check_asked(parsed.path())?;
    }
    let Targets { addresses: targets, no_more, .. } = targets(&parsed, options);
    let searched = searched(&parsed, &targets, &no_more);
    let explanation = &mut excluded(address);
    let connects = connects(is_secure, explanation);
    let mut attempts = attempts(&connects, &parsed, &targets, &no_more.cause(), explanation);
    // For a single request, TCP takes less time than binding over a faster path would take.
    attempts.sort_by_key(|attempt| match attempt.connect.kind() {
        kind if kind.is_on_this_machine() => 0,
        PathKind::Tcp => 1,
        PathKind::Udp => 2,
        _ => 3,
    });
    let mut failure = (attempts.is_empty() || no_more.kind() != Kind::NotFound).then_some(no_more);
    for (i, attempt) in attempts.iter().enumerate() {
        let until = attempt_end(until, attempts.len() - i - 1);
        let (name, interface) = (attempt.target.address.name(), &InterfaceRef::none());
        let wanted = Wanted { name, interface, digest: None, options, until };
        if attempt.check_machine(&wanted).is_err() {
            continue;
        }
        match attempt.describe(&wanted) {
            Ok(description) => return Ok(description),
            Err(error) => {
                failure = Some(match failure {
                    Some(before) => furthest(before, error),
                    None => error,
                });
            }
        }
    }
    Err(with_searched(failure.unwrap_or_else(no_other_machine), searched))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that reaches no address, and says why.
    struct Nowhere(Exclusion);

    impl Connect for Nowhere {
        fn kind(&self) -> PathKind {
            PathKind::Tcp
        }

        fn leads_to(&self, _: &Address) -> Result<(), Exclusion> {
            Err(self.0)
        }

        fn bind(&self, _: &Target<'_>, _: &Wanted<'_>) -> Result<BoundPath, CallError> {
            unreachable!("the path is excluded")
        }

        fn inquire(&self, _: &Target<'_>, _: &Wanted<'_>) -> Result<Inquiry, CallError> {
            unreachable!("the path is excluded")
        }
    }

    /// Returns the reason that an explanation gives for excluding a path.
    fn reason(connect: &'static dyn Connect, address: &str) -> String {
        let mut explanation = excluded(address);
        let address: Address = address.parse().unwrap();
        let targets = [address.clone()];
        let attempts = attempts(&[connect], &address, &targets, "not in hosts", &mut explanation);
        assert!(attempts.is_empty());
        let of_path = |one: &&crate::binding::Candidate| one.path == connect.kind();
        explanation.candidates().iter().find(of_path).expect("a candidate").reason.clone()
    }

    #[test]
    fn excluded_path_gives_its_own_reason() {
        static NO_PLACE: Nowhere = Nowhere(Exclusion::NoPlace);
        static UNSUITED: Nowhere = Nowhere(Exclusion::Unsuited("the path needs a prefix"));
        assert_eq!(reason(&NO_PLACE, "files"), "not in hosts");
        assert_eq!(reason(&UNSUITED, "files"), "the path needs a prefix");
        assert_eq!(reason(&UNSUITED, "udp:files@host"), "the address asks for udp");
        assert_eq!(reason(&Tcp, "files"), "not in hosts");
    }
}
