//! What a pool knows about each server of its name: whether it is bound, left out after a failure, or not
//! needed. It makes no system call and knows no threads: each function gets the time.
//!
//! A server that fails is left out for a pause, and then bound again. The pause doubles with each failure. It
//! is short again after the server has served for [`PROBATION`] without a failure.
//!
//! | a call ends with | the server is left out |
//! |---|---|
//! | no server there, or one that stops | at once |
//! | a result that the client cannot read | after [`STRIKES`] of these |
//! | a panic, or no result in time | after [`FAULTS_MIN`] of these, if other servers have much fewer |
//! | any other error | never |
//!
//! A panic or a late result may be due to the arguments, or to a client without patience. Then all servers
//! have such faults. The pool does not see which calls succeed, because this would cost each call time.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use super::members::{Member, Members};
use crate::address::Address;
use crate::binding::Bound;
use crate::call::PathKind;
use crate::directory::{Offer, Offers};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::limits;
use crate::path::balance::Balance;

/// How long a server is left out after its first failure.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(100);

/// How long a server is left out at most.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How long a server must serve so that its earlier failures do not count any more.
pub(super) const PROBATION: Duration = Duration::from_secs(10);

/// How long servers that serve are used although the directory knows no server any more. It may have lost its
/// data: then the servers register again within this time.
pub(super) const GRACE: Duration = Duration::from_secs(90);

/// After this many results within [`PROBATION`] that the client cannot read, a server is left out.
const STRIKES: u32 = 3;

/// After this many calls within [`PROBATION`] that panic or end too late, a server is left out, unless the
/// others have them, too. One that was left out a short time ago is left out after the first.
const FAULTS_MIN: u32 = 5;

/// How many times more such calls a server must have than the others have on average.
const FAULTS_FACTOR: u64 = 3;

/// A number that is random enough for pauses: each call returns another one.
pub(super) type Random<'a> = &'a mut dyn FnMut() -> u32;

/// Whether a pool uses a server, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolStanding {
    /// Calls go to this server.
    Used,
    /// The server is bound. Calls go to servers of a higher priority, or to nearer ones, as long as there are
    /// any.
    Farther,
    /// The server is bound. Its values have another byte order than those of the servers that are used.
    OtherOrder,
    /// The pool is binding to the server.
    Binding,
    /// The server has failed. The pool will try it again after a pause.
    LeftOut,
    /// The pool has enough other servers.
    Spare,
}

impl fmt::Display for PoolStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Used => "used",
            Self::Farther => "farther",
            Self::OtherOrder => "other byte order",
            Self::Binding => "binding",
            Self::LeftOut => "left out",
            Self::Spare => "spare",
        })
    }
}

/// A server of a pool's name, as [`Binding::servers`](crate::Binding::servers) returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolServer {
    /// What distinguishes the server from the other servers of the name. Empty for the name itself, if no
    /// directory knows a server of it.
    pub server: String,
    /// Where the server can be reached. Empty for the name itself.
    pub addresses: Vec<Address>,
    /// Whether the pool uses the server.
    pub standing: PoolStanding,
    /// The path of the calls, if the server is bound.
    pub path: Option<PathKind>,
    /// What carries the calls, or why the server is not used. May be empty.
    pub reason: String,
}

/// A server that the pool uses or tries to use.
struct Server {
    id: u64,
    /// `None`: the name itself, because no directory knows a server of it.
    offer: Option<Offer>,
    /// Whether the directory still knows the server.
    is_offered: bool,
    status: Status,
    /// The failures since the server last served for [`PROBATION`].
    failures: u32,
    /// Unreadable results since the moment `since`.
    strikes: u32,
    since: Instant,
    faults: Faults,
    /// A server that has failed is not tried before this moment, even if calls wait for it.
    not_before: Instant,
    /// Why the last attempt to use the server failed, and when it ended.
    failed: Option<(CallError, Instant)>,
}

/// Calls that have panicked or ended too late, in the [`PROBATION`] that began with the first of them.
#[derive(Clone, Copy)]
struct Faults {
    count: u32,
    since: Instant,
}

impl Faults {
    const fn none(now: Instant) -> Self {
        Self { count: 0, since: now }
    }

    fn recent(&self, now: Instant) -> u32 {
        let is_recent = now.saturating_duration_since(self.since) < PROBATION;
        if is_recent { self.count } else { 0 }
    }

    fn add(&mut self, now: Instant) {
        match self.recent(now) {
            0 => *self = Self { count: 1, since: now },
            count => self.count = count.saturating_add(1),
        }
    }
}

enum Status {
    /// Left out until this moment.
    Waiting(Instant),
    Binding,
    Serving(Arc<Member>),
}

impl Server {
    fn name(&self) -> &str {
        self.offer.as_ref().map_or("", Offer::server)
    }

    fn is_healthy(&self) -> bool {
        self.failures == 0 || matches!(self.status, Status::Serving(_))
    }

    /// Leaves the server out for a pause.
    fn leave_out(&mut self, error: CallError, now: Instant, random: Random<'_>) {
        if matches!(self.status, Status::Serving(_))
            && now.saturating_duration_since(self.since) >= PROBATION
        {
            self.failures = 0;
        }
        let pause = pause(self.failures, random());
        self.status = Status::Waiting(now + pause);
        self.not_before = now + pause / 8;
        self.failures = self.failures.saturating_add(1);
        self.failed = Some((error, now));
        (self.since, self.strikes, self.faults) = (now, 0, Faults::none(now));
    }

    /// Returns after how many faults the server is left out.
    fn faults_max(&self, now: Instant) -> u32 {
        let is_on_probation =
            self.failures > 0 && now.saturating_duration_since(self.since) < PROBATION;
        if is_on_probation { 1 } else { FAULTS_MIN }
    }
}

/// Returns how long a server is left out that has failed before `failures` times: between a half and the
/// whole of a time that doubles. Clients that have lost the same server thus come back at different moments.
pub(super) fn pause(failures: u32, random: u32) -> Duration {
    let whole = PAUSE_MIN.saturating_mul(1 << failures.min(16)).min(PAUSE_MAX);
    whole / 2 + (whole / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// All servers that a pool knows.
pub(super) struct Servers {
    /// By which key servers are ranked. `None`: in the order of the directory.
    key: Option<Vec<u8>>,
    /// Whether the order of the directory decides.
    is_ordered: bool,
    nearest_first: bool,
    max: usize,
    /// The names of the servers, in the order in which they are preferred.
    ranked: Vec<String>,
    used: Vec<Server>,
    /// The other servers, with the failures that they had when they were used.
    spare: Vec<(Offer, u32)>,
    next_id: u64,
    /// Since when the directory knows no server.
    emptied: Option<Instant>,
    /// What the directory knows, besides the servers.
    pub(super) age: Option<Duration>,
    pub(super) remarks: Vec<String>,
}

impl Servers {
    /// Returns the state of a pool that knows no server yet. `random` ranks the servers if there are more
    /// than `max`, so that different clients use different servers.
    pub(super) fn new(balance: &Balance, nearest_first: bool, max: usize, random: u64) -> Self {
        let key = match balance {
            Balance::First => None,
            Balance::Key(key) => Some(key.as_bytes().to_vec()),
            _ => Some(random.to_le_bytes().to_vec()),
        };
        let is_key = matches!(balance, Balance::Key(_));
        Self {
            key,
            is_ordered: is_key || matches!(balance, Balance::First),
            nearest_first: nearest_first && !is_key,
            max,
            ranked: Vec::new(),
            used: Vec::new(),
            spare: Vec::new(),
            next_id: 0,
            emptied: None,
            age: None,
            remarks: Vec::new(),
        }
    }

    /// Takes over what the directory knows now. Returns the members that are dropped.
    pub(super) fn offered(
        &mut self,
        offers: Offers,
        now: Instant,
        random: Random<'_>,
    ) -> Vec<Arc<Member>> {
        // Two servers cannot be at one place: one of them has ended, or one of them lies.
        let found = Offers::distinct(offers.servers);
        let mut wanted = found.servers;
        (self.age, self.remarks) = (offers.age, offers.remarks);
        self.remarks.extend(found.remarks);
        self.remarks.truncate(limits::REMARKS_MAX);
        if let Some(key) = &self.key {
            let weight = |one: &Offer| Balance::weight(key, one.server());
            wanted.sort_by_cached_key(|one| {
                core::cmp::Reverse((weight(one), one.server().to_owned()))
            });
        }
        wanted.sort_by_key(Offer::priority);
        let is_empty = wanted.is_empty();
        self.emptied = is_empty.then(|| self.emptied.unwrap_or(now));
        if !is_empty {
            self.ranked = wanted.iter().map(|one| one.server().to_owned()).collect();
        }
        let mut dropped = Vec::new();
        for server in &mut self.used {
            let found = wanted.iter().position(|one| Some(one) == server.offer.as_ref());
            server.is_offered = found.is_some();
        }
        // The servers that are preferred, and as many more as there are failures among these.
        let preferred = &self.ranked[..self.max.min(self.ranked.len())];
        let fails = |server: &&Server| {
            !server.is_healthy() && preferred.iter().any(|one| one == server.name())
        };
        let wanted_max = self.max + self.used.iter().filter(fails).count();
        let rank = |server: &Server| self.ranked.iter().position(|one| one == server.name());
        let serves = |server: &Server| matches!(server.status, Status::Serving(_));
        let is_preferred = |server: &Server| rank(server).is_some_and(|rank| rank < wanted_max);
        // Without any of these, the pool goes on looking for others that serve.
        let looks_further = !self.used.iter().any(|one| is_preferred(one) && serves(one));
        // If the directory knows no server any more, the ones that serve are kept for a time
        // (`expire`): the directory may have lost its data.
        self.used.retain_mut(|server| {
            let is_serving = matches!(server.status, Status::Serving(_));
            let rank = self.ranked.iter().position(|one| one == server.name());
            let is_preferred = looks_further || rank.is_some_and(|rank| rank < wanted_max);
            let is_wanted = server.is_offered && is_preferred;
            let stays = is_wanted || is_empty && (is_serving || server.offer.is_none());
            if let (false, Status::Serving(member)) = (stays, &server.status) {
                dropped.push(Arc::clone(member));
            }
            stays
        });
        wanted.retain(|one| !self.used.iter().any(|server| server.offer.as_ref() == Some(one)));
        let before = core::mem::take(&mut self.spare);
        let failures = |offer: &Offer| before.iter().find(|one| one.0 == *offer);
        let with_failures = |offer: Offer| {
            let failures = failures(&offer).map_or(0, |one| one.1);
            (offer, failures)
        };
        self.spare = wanted.into_iter().map(with_failures).collect();
        if is_empty && self.used.is_empty() {
            self.push(None, 0, now);
        }
        self.refill(now, random);
        dropped
    }

    /// Drops the servers that the directory has not known for [`GRACE`], while it knows no other one. Returns
    /// their members.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Arc<Member>> {
        if self.expiry().is_none_or(|at| now < at) {
            return Vec::new();
        }
        let mut dropped = Vec::new();
        self.used.retain_mut(|server| {
            if server.offer.is_none() {
                return true;
            }
            if let Status::Serving(member) = &server.status {
                dropped.push(Arc::clone(member));
            }
            false
        });
        if self.used.is_empty() {
            self.push(None, 0, now);
        }
        dropped
    }

    /// Returns when [`expire`](Self::expire) has something to drop.
    fn expiry(&self) -> Option<Instant> {
        let at = self.emptied? + GRACE;
        self.used.iter().any(|server| server.offer.is_some()).then_some(at)
    }

    /// Adds a server that has had this number of failures. It is due now, or after a pause.
    fn push(&mut self, offer: Option<Offer>, failures: u32, due: Instant) {
        let id = self.next_id;
        self.next_id += 1;
        self.used.push(Server {
            id,
            is_offered: offer.is_some(),
            offer,
            status: Status::Waiting(due),
            failures,
            strikes: 0,
            since: due,
            faults: Faults::none(due),
            not_before: due,
            failed: None,
        });
    }

    /// Uses spare servers in place of those that fail.
    fn refill(&mut self, now: Instant, random: Random<'_>) {
        let healthy = self.used.iter().filter(|server| server.is_healthy()).count();
        let mut lacking = self.max.saturating_sub(healthy);
        while lacking > 0 && !self.spare.is_empty() {
            if self.used.len() >= 2 * self.max && !self.give_up_for_another() {
                return;
            }
            let (offer, failures) = self.spare.remove(0);
            let pause = if failures > 0 { pause(failures - 1, random()) } else { Duration::ZERO };
            self.push(Some(offer), failures, now + pause);
            lacking -= 1;
        }
    }

    /// Gives up the server with the most failures if the next spare server has clearly fewer. So each server is
    /// tried now and then, however many are down. Returns whether there is such a server.
    fn give_up_for_another(&mut self) -> bool {
        let Some((_, other)) = self.spare.first() else { return false };
        let is_left_out = |one: &Server| matches!(one.status, Status::Waiting(_));
        let left_out = self.used.iter().enumerate().filter(|(_, one)| is_left_out(one));
        let worst = left_out.max_by_key(|(_, one)| one.failures);
        let Some((at, worst)) = worst.map(|(at, one)| (at, one.failures)) else { return false };
        if worst <= other + 1 {
            return false;
        }
        let given_up = self.used.remove(at);
        self.spare.extend(given_up.offer.map(|offer| (offer, given_up.failures)));
        true
    }

    /// Returns the servers to which the pool binds now, at most `count`. They count as being bound. The ones
    /// that have not failed come first.
    pub(super) fn due(&mut self, now: Instant, count: usize) -> Vec<(u64, Option<Offer>)> {
        let mut due: Vec<_> = self
            .used
            .iter_mut()
            .filter_map(|one| match one.status {
                Status::Waiting(at) if at <= now => Some((one.failed.is_some(), at, one)),
                _ => None,
            })
            .collect();
        due.sort_by_key(|(has_failed, at, _)| (*has_failed, *at));
        let due = due.into_iter().map(|(_, _, server)| server);
        due.take(count)
            .map(|server| {
                server.status = Status::Binding;
                (server.id, server.offer.clone())
            })
            .collect()
    }

    /// Returns the earliest moment at which a server is due, if the pool can bind to one more (`is_free`), or
    /// at which a server expires.
    pub(super) fn next_due(&self, is_free: bool) -> Option<Instant> {
        let due = self.used.iter().filter_map(|server| match server.status {
            Status::Waiting(at) => Some(at),
            _ => None,
        });
        due.filter(|_| is_free).chain(self.expiry()).min()
    }

    /// Returns whether no server serves, and there are more than `count` that have not been tried yet.
    pub(super) fn are_many_untried(&self, count: usize) -> bool {
        let untried = self.used.iter().filter(|server| server.failed.is_none()).count();
        untried > count && self.serving().next().is_none()
    }

    /// Notes the result of binding to a server. Returns what is not needed any more.
    pub(super) fn bound(
        &mut self,
        id: u64,
        result: Result<Bound, CallError>,
        now: Instant,
        random: Random<'_>,
    ) -> Option<Arc<Member>> {
        let Some(server) = self.used.iter_mut().find(|server| server.id == id) else {
            return result.ok().map(|bound| Arc::new(Member::new(bound, None)));
        };
        match result {
            Ok(bound) => {
                let address = server.offer.as_ref().and_then(|offer| offer.addresses().first());
                let member = Member::new(bound, address.cloned());
                server.status = Status::Serving(Arc::new(member));
                (server.since, server.strikes) = (now, 0);
            }
            Err(error) => {
                server.leave_out(error, now, random);
                self.refill(now, random);
            }
        }
        None
    }

    /// Notes that a call over `gone` has failed. Returns the member that is not used any more.
    pub(super) fn call_failed(
        &mut self,
        gone: *const Bound,
        error: &CallError,
        now: Instant,
        random: Random<'_>,
    ) -> Option<Arc<Member>> {
        let serving =
            self.used.iter().filter(|one| matches!(one.status, Status::Serving(_))).count();
        let all = self.used.len();
        let (at, member) =
            self.used.iter().enumerate().find_map(|(at, server)| match &server.status {
                Status::Serving(member) if Arc::as_ptr(&member.bound) == gone => {
                    Some((at, Arc::clone(member)))
                }
                _ => None,
            })?;
        let faults = |one: &Server| u64::from(one.faults.recent(now));
        let others = self.used.iter().map(faults).sum::<u64>() - faults(&self.used[at]);
        let server = &mut self.used[at];
        // The fault may be the client's. So at most half of the servers are left out.
        let leaves_half = 2 * (serving - 1) >= all;
        match error.kind() {
            Kind::ServerGone | Kind::Withdrawn | Kind::Unreachable => {}
            Kind::TimedOut | Kind::Panicked => {
                server.faults.add(now);
                let own = server.faults.recent(now);
                // The mean of the others, times the factor, is compared without a division.
                let is_worse = u64::from(own) * (all as u64 - 1) >= FAULTS_FACTOR * others;
                if own < server.faults_max(now) || !is_worse || !leaves_half {
                    return None;
                }
            }
            Kind::BadResult | Kind::ProtocolMismatch | Kind::InterfaceMismatch => {
                if now.saturating_duration_since(server.since) >= PROBATION {
                    (server.since, server.strikes, server.failures) = (now, 0, 0);
                }
                server.strikes += 1;
                if server.strikes < STRIKES || !leaves_half {
                    return None;
                }
            }
            _ => return None,
        }
        server.leave_out(error.copy(), now, random);
        // A server that the directory has forgotten, and that has failed, is gone.
        if !server.is_offered && server.offer.is_some() {
            self.used.remove(at);
        }
        if self.used.is_empty() && self.spare.is_empty() {
            self.push(None, 0, now);
        }
        self.refill(now, random);
        Some(member)
    }

    /// Returns the servers that calls use now, the preferred ones first.
    pub(super) fn members(&self) -> Members {
        let mut serving: Vec<_> = self.serving().collect();
        if self.is_ordered {
            let rank = |server: &Server| self.ranked.iter().position(|one| one == server.name());
            serving.sort_by_cached_key(|(server, _)| rank(server).unwrap_or(usize::MAX));
        }
        // A stub writes the values of a call before it knows the server. So all servers have one byte order.
        if serving.iter().any(|(_, member)| !member.bound.is_swapped_server()) {
            serving.retain(|(_, member)| !member.bound.is_swapped_server());
        }
        let rank = |one: &(&Server, &Arc<Member>)| {
            let priority = one.0.offer.as_ref().map_or(0, Offer::priority);
            (priority, if self.nearest_first { distance(one.1) } else { 0 })
        };
        serving.sort_by_key(rank);
        let first = serving.first().map(rank);
        let preferred = serving.iter().take_while(|one| Some(rank(one)) == first).count();
        let all = serving.into_iter().map(|(_, member)| Arc::clone(member)).collect();
        Members { all, preferred: preferred as u32 }
    }

    /// Returns the servers that serve, in their order.
    fn serving(&self) -> impl Iterator<Item = (&Server, &Arc<Member>)> {
        self.used.iter().filter_map(|server| match &server.status {
            Status::Serving(member) => Some((server, member)),
            _ => None,
        })
    }

    /// Makes all servers due soon that are left out, unless they have failed since `since`. A server that has
    /// failed often is tried after an eighth of its pause. Returns whether there is such a server, or the pool
    /// is binding to one.
    pub(super) fn hurry(&mut self, since: Instant, now: Instant) -> bool {
        // Nothing is known yet: the directory has not answered.
        let mut any = self.used.is_empty();
        for server in &mut self.used {
            match &mut server.status {
                Status::Binding => any = true,
                Status::Waiting(at) if server.failed.as_ref().is_none_or(|one| one.1 < since) => {
                    *at = now.max(server.not_before).min(*at);
                    any = true;
                }
                _ => {}
            }
        }
        any
    }

    /// Returns whether each server was tried: it serves, or has failed.
    pub(super) fn were_all_tried(&self) -> bool {
        let tried = |one: &Server| one.failed.is_some() || matches!(one.status, Status::Serving(_));
        !self.used.is_empty() && self.used.iter().all(tried)
    }

    /// Returns the error for a call or a bind while no server serves.
    pub(super) fn none_serves(&self) -> CallError {
        let mut failed = self.used.iter().filter_map(|one| Some((one, &one.failed.as_ref()?.0)));
        let first = failed.clone().next();
        if let (1, Some((server, error))) = (self.used.len(), first)
            && server.offer.is_none()
        {
            return error.copy().not_executed_after_all(error.phase());
        }
        let Some((_, error)) = first else {
            let text = "no server is bound yet";
            return CallError::not_executed(Kind::TimedOut, Phase::Bind, text);
        };
        // The failure of a server that is there says more than that of one that is not.
        let says_most = failed.clone().map(|(_, error)| error).find(|one| {
            !matches!(one.kind(), Kind::Unreachable | Kind::ServerGone | Kind::TimedOut)
        });
        let error = says_most.unwrap_or(error);
        let listed = failed.by_ref().take(SHOWN).map(|(server, error)| {
            let text = error.kind().text();
            let detail = error.cause();
            match detail.is_empty() {
                true => format!("{}: {text}", server.name()),
                false => format!("{}: {text}: {detail}", server.name()),
            }
        });
        let listed = listed.collect::<Vec<_>>().join("; ");
        let more = failed.count();
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let text = format!("no server can be used: {listed}{more}");
        let kind = match error.kind() {
            Kind::Withdrawn => Kind::ServerGone,
            kind => kind,
        };
        CallError::new(kind, Executed::No, text).in_phase(Phase::Bind).advised_like(error)
    }

    /// Returns the names of the servers that serve, with their members.
    #[cfg(test)]
    pub(super) fn named(&self) -> Vec<(&str, Arc<Member>)> {
        self.serving().map(|(server, member)| (server.name(), Arc::clone(member))).collect()
    }

    /// Returns all servers, for people.
    pub(super) fn report(&self, members: &Members) -> Vec<PoolServer> {
        let of_used = |server: &Server| {
            let failed =
                || server.failed.as_ref().map(|(error, _)| error.cause()).unwrap_or_default();
            let (standing, path, reason) = match &server.status {
                Status::Waiting(_) => (PoolStanding::LeftOut, None, failed()),
                Status::Binding => (PoolStanding::Binding, None, failed()),
                Status::Serving(member) => {
                    let at = members.all.iter().position(|one| Arc::ptr_eq(one, member));
                    let standing = match at {
                        Some(at) if (at as u32) < members.preferred => PoolStanding::Used,
                        Some(_) => PoolStanding::Farther,
                        None => PoolStanding::OtherOrder,
                    };
                    let path = &member.bound.path;
                    (standing, Some(path.kind()), path.explain())
                }
            };
            let (name, offer) = (server.name().to_owned(), server.offer.as_ref());
            let addresses = offer.map(|offer| offer.addresses().to_vec()).unwrap_or_default();
            PoolServer { server: name, addresses, standing, path, reason }
        };
        let of_spare = |(offer, _): &(Offer, u32)| PoolServer {
            server: offer.server().to_owned(),
            addresses: offer.addresses().to_vec(),
            standing: PoolStanding::Spare,
            path: None,
            reason: String::new(),
        };
        let mut all: Vec<_> = self.used.iter().map(of_used).collect();
        all.extend(self.spare.iter().map(of_spare));
        all.sort_by(|a, b| a.server.cmp(&b.server));
        all
    }
}

/// How many servers an error names.
const SHOWN: usize = 4;

/// Returns a number that grows with the distance of a member: the order of the paths.
fn distance(member: &Member) -> u8 {
    match member.bound.path.kind() {
        PathKind::InProcess | PathKind::Local => 0,
        PathKind::Ethernet => 1,
        PathKind::Udp => 2,
        _ => 3,
    }
}

impl fmt::Display for PoolServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, standing, path, reason, .. } = self;
        let name = if server.is_empty() { "the name itself" } else { server };
        write!(f, "{name:<16} {standing:<10}")?;
        if let Some(path) = path {
            write!(f, "  {path}")?;
        }
        if reason.is_empty() { Ok(()) } else { write!(f, "  {reason}") }
    }
}
