//! `Pool`: bindings to many servers of one name. Each call takes one of them.
//!
//! A pool is a [`Binding`](super::Binding) whose calls choose their server ([`Pool::pick`]). The directory
//! says which servers there are, and the pool follows its changes. One thread of the process keeps all pools
//! (`keeping.rs`). What is known about each server is in `servers.rs`, which a test can run without threads;
//! what calls read is in `members.rs`. A pool repeats calls within a budget (`budget.rs`).
//!
//! Calls take no lock: they read the members through a [`Published`]. A server that is not used any more is
//! thus dropped as soon as its last call ends, also if some threads do not call again. A thread of its own drops
//! it, because this may take long: the kernel takes 30 ms to close each packet socket.

mod budget;
mod keeping;
mod loads;
mod members;
mod servers;
#[cfg(test)]
mod tests;

pub(super) use loads::load;
pub use servers::{PoolServer, PoolStanding};

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::{Arc, Weak};
use std::time::Instant;

use self::budget::Budget;
use self::members::{Choice, Member, Members, ROUND, Turns};
use self::servers::Servers;
use super::rebind::Asked;
use super::{Bound, Rebind, select};
use crate::address::Address;
use crate::call::{Frames, PathKind, Refusal, Reply, Request, Serve, Served, thread_index};
use crate::directory::{Directory as _, Offer, Offers, Standing as Watching};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::interface::InterfaceRef;
use crate::path::balance::Balance;
use crate::path::bind::{BoundPath, until};
use crate::path::in_process::InProcess;
use crate::sync::{Condvar, Mutex, MutexGuard, Rank};
use crate::sys::{self, Published, Reading};

/// The number of attempts to bind that a pool makes at the same time.
const BINDING_MAX: usize = 8;

/// How long an attempt to bind may take while no server serves and others have not been tried.
const SHORT: Duration = Duration::from_secs(1);

/// How often a call is tried at most.
pub(crate) const ATTEMPTS_MAX: u32 = 5;

/// A pool asks a directory that cannot be watched again at most once in this time.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A pool tries again after this time to watch a directory that could not be watched for a passing reason.
const WATCH_EVERY: Duration = Duration::from_secs(5);

/// While calls use servers that are not in the list any more, a pool looks this often whether they have ended.
const COLLECT_EVERY: Duration = Duration::from_secs(1);

/// The servers of a name, and which of them calls take.
pub(crate) struct Pool {
    asked: Arc<Asked>,
    choice: Choice,
    members: Published<Members>,
    turns: Turns,
    /// Whether calls write their values in the byte order of this machine.
    is_native: AtomicBool,
    state: Mutex<State>,
    /// Signalled when a server was bound, or an attempt has failed.
    changed: Condvar,
    budget: Budget,
    /// What the directory has reported and the pool has not taken over.
    inbox: Arc<Mutex<Option<Offers>>>,
    /// What one-way calls use, so that they stay in order as long as its server serves.
    oneway: Mutex<Weak<Bound>>,
    me: Weak<Self>,
}

struct State {
    servers: Servers,
    /// The number of attempts to bind that are under way, also those to servers that are not wanted any more.
    attempts: usize,
    /// The directory reports changes as long as this exists.
    watch: Option<Arc<Watching>>,
    /// Whether the directory can be watched, as far as is known.
    can_watch: bool,
    /// When the directory was asked, if it is not watched.
    looked: Option<Instant>,
    is_looking: bool,
    /// Servers that are not used any more, until their last call ends.
    leaving: Vec<Arc<Member>>,
    random: u64,
}

/// The server of a call.
pub(crate) struct Picked<'a> {
    members: Reading<'a, Members>,
    at: usize,
}

/// How a failed call goes on.
pub(crate) enum Again<T> {
    /// At this server, at once.
    At(T),
    /// After waiting for a server. Contains the error of the call.
    Later(CallError),
}

/// What an attempt to follow a directory has found.
struct Found {
    /// `None`: the directory has answered once, and is not watched.
    watch: Option<Watching>,
    can_watch: bool,
}

impl Found {
    /// Begins to follow the directory, or asks it once. What it says gets into `inbox`.
    ///
    /// # Errors
    /// If the directory does not answer.
    fn new(
        asked: &Asked,
        inbox: &Arc<Mutex<Option<Offers>>>,
        mut can_watch: bool,
    ) -> Result<Self, CallError> {
        let address: Address = asked.address.parse()?;
        let directory = select::directory(&asked.options)?;
        if can_watch {
            let into = Arc::clone(inbox);
            let watcher = move |offers| {
                *into.lock() = Some(offers);
                keeping::wake();
            };
            match directory.watch(address.name(), Box::new(watcher)) {
                Ok(watch) => return Ok(Self { watch: Some(watch), can_watch }),
                // Any other error may be a passing one.
                Err(error) => can_watch = error.kind() != Kind::BadName,
            }
        }
        let offers = directory.look_up(address.name())?;
        *inbox.lock() = Some(offers);
        Ok(Self { watch: None, can_watch })
    }
}

impl State {
    /// Notes what an attempt to follow the directory has found.
    fn found(&mut self, found: Result<Found, CallError>) {
        self.looked = Some(Instant::now());
        if let Ok(found) = found {
            (self.watch, self.can_watch) = (found.watch.map(Arc::new), found.can_watch);
        }
    }

    /// Removes the servers that are not used any more, and whose last call has ended.
    fn unused(&mut self) -> Vec<Arc<Member>> {
        let is_unused = |member: &mut Arc<Member>| {
            Arc::strong_count(member) == 1 && Arc::strong_count(&member.bound) == 1
        };
        self.leaving.extract_if(.., is_unused).collect()
    }

    /// Returns when to try again to watch the directory. `None`: it is watched, or cannot be watched.
    fn watches_again(&self) -> Option<Instant> {
        let lacks = self.can_watch && self.watch.is_none() && !self.is_looking;
        self.looked.filter(|_| lacks).map(|at| at + WATCH_EVERY)
    }
}

impl Picked<'_> {
    fn member(&self) -> &Arc<Member> {
        &self.members.all[self.at]
    }

    #[inline(always)]
    pub(crate) fn bound(&self) -> &Bound {
        &self.members.all[self.at].bound
    }

    /// Returns the server for a call that outlives this thread's part of it.
    pub(crate) fn share(self) -> Arc<Bound> {
        Arc::clone(&self.member().bound)
    }
}

/// The object that calls reach while no server serves. It refuses each call, which then waits for a server.
struct NoServer(InterfaceRef);

impl Serve for NoServer {
    fn interface(&self) -> InterfaceRef {
        self.0.clone()
    }

    fn serve(&self, _: &mut Request<'_>, _: &mut Reply<'_>) -> Served {
        Err(Refusal::new(Kind::ServerGone, "no server can be used"))
    }
}

impl Pool {
    /// Makes a pool, and waits until a server serves.
    ///
    /// # Errors
    /// If no server can be used, or the address names another RPC system.
    pub(super) fn new(asked: Arc<Asked>) -> Result<Arc<Self>, CallError> {
        let at = |error: CallError| error.at(&asked.address);
        let address: Address = asked.address.parse().map_err(at)?;
        if let Some(system) = address.path().and_then(PathKind::system) {
            let text = format!("a pool cannot hold servers of {system}");
            return Err(at(CallError::not_executed(Kind::BadName, Phase::Bind, text)));
        }
        let random = sys::random::<8>().map_err(|error| {
            at(CallError::system(Phase::Bind, "cannot obtain random numbers", error))
        })?;
        let pool = Self::without_servers(Arc::clone(&asked), u64::from_ne_bytes(random));
        let begun = Instant::now();
        if address.place().is_some() || address.is_on_this_machine() {
            // Such an address is one server. No directory is asked.
            *pool.inbox.lock() = Some(Offers::default());
        } else {
            let found = Found::new(&pool.asked, &pool.inbox, true);
            if let Err(error) = &found {
                // The name may be on this machine. And a directory that is away may answer later.
                let mut nothing = Offers::default();
                nothing.remark(&error.chain());
                *pool.inbox.lock() = Some(nothing);
            }
            pool.state().found(found);
        }
        keeping::keep(&pool)?;
        pool.wait_for_first(begun)?;
        loads::ask(&pool);
        Ok(pool)
    }

    /// Makes a pool that knows no server yet.
    fn without_servers(asked: Arc<Asked>, mut random: u64) -> Arc<Self> {
        let (options, now) = (&asked.options, Instant::now());
        let balance = options.balance.clone().unwrap_or(Balance::LeastLoaded);
        let max = options.servers as usize;
        let servers = Servers::new(&balance, options.nearest_first, max, random);
        let turns = Turns::new(|| next(&mut random));
        let state = State {
            servers,
            attempts: 0,
            watch: None,
            can_watch: true,
            looked: None,
            is_looking: false,
            leaving: Vec::new(),
            random,
        };
        Arc::new_cyclic(|me| Self {
            choice: Choice::from(&balance),
            members: Published::new(Members::default()),
            turns,
            is_native: AtomicBool::new(true),
            state: Mutex::ranked(Rank::Pool, state),
            changed: Condvar::new(),
            budget: Budget::new(now),
            inbox: Arc::default(),
            oneway: Mutex::ranked(Rank::PoolOneWay, Weak::new()),
            me: Weak::clone(me),
            asked,
        })
    }

    #[track_caller]
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the state of a binding before it has chosen a server.
    pub(super) fn front(asked: &Asked) -> Result<Bound, CallError> {
        let memory = |error| CallError::system(Phase::Bind, "cannot allocate frames", error);
        let (options, interface) = (&asked.options, &asked.interface);
        let bytes = options.message_bytes_for(interface);
        let frames = Frames::private(options.room_for(bytes), 1, bytes).map_err(memory)?;
        let frames = Arc::new(frames);
        let serve: Arc<dyn Serve> = Arc::new(NoServer(interface.clone()));
        let order = serve.byte_order();
        let path = BoundPath { path: Box::new(InProcess::new(serve, &frames)), frames, order };
        let explanation = select::excluded(&asked.address);
        let short = options.on_exhausted_or_default();
        Bound::of_pool(path, interface.clone(), explanation, short)
    }

    /// Chooses the server of a call. `None`: no server serves.
    // Always inlined, because callers copy a result that is returned in memory.
    #[inline(always)]
    pub(crate) fn pick(&self) -> Option<Picked<'_>> {
        let members = self.members.read();
        if members.preferred == 0 {
            return None;
        }
        let (turn, is_round) = self.turns.next(thread_index());
        if is_round {
            self.budget.made(u64::from(ROUND));
        }
        let at = self.choice.choose(&members, turn);
        let is_alive = members.all[at].bound.path.is_alive();
        let at = if is_alive { at } else { self.living_after(&members, at)? };
        Some(Picked { members, at })
    }

    /// Chooses the next server that lives, in place of one whose session has ended. The keeper of sessions
    /// has noticed this before a call failed.
    #[cold]
    fn living_after(&self, members: &Members, mut at: usize) -> Option<usize> {
        for _ in 0..members.all.len() {
            let text = "the server's session has ended";
            let gone = CallError::not_executed(Kind::ServerGone, Phase::Call, text);
            self.fails(&members.all[at].bound, &gone);
            at = (at + 1) % members.all.len();
            if members.all[at].bound.path.is_alive() {
                return Some(at);
            }
        }
        None
    }

    /// Chooses a server for the repetition of a call that has failed at `gone`: another one, if there is one
    /// that lives.
    fn pick_other(&self, gone: &Bound) -> Option<Picked<'_>> {
        let mut picked = self.pick()?;
        if core::ptr::eq(picked.bound(), gone) {
            let (all, count) = (&picked.members.all, picked.members.preferred as usize);
            let others = (0..count).map(|n| (picked.at + 1 + n) % count).chain(count..all.len());
            let lives = |at: &usize| {
                let bound = &all[*at].bound;
                !core::ptr::eq(&raw const **bound, gone) && bound.path.is_alive()
            };
            if let Some(at) = others.into_iter().find(lives) {
                picked.at = at;
            }
        }
        Some(picked)
    }

    /// Chooses a server that has a procedure, in place of one that does not have it.
    fn pick_with(&self, lacks: &Bound, procedure: u32) -> Option<Picked<'_>> {
        let picked = self.pick()?;
        let (first, count) = (picked.at, picked.members.all.len());
        let has = |at: &usize| {
            let bound = &picked.members.all[*at].bound;
            !core::ptr::eq(&raw const **bound, lacks)
                && bound.has(procedure)
                && bound.path.is_alive()
        };
        let at = (0..count).map(|next| (first + next) % count).find(has)?;
        Some(Picked { at, ..picked })
    }

    /// Returns whether stubs write values in the byte order of this machine.
    #[inline]
    pub(crate) fn is_native(&self) -> bool {
        self.is_native.load(Ordering::Relaxed)
    }

    /// Returns the state that one-way calls use: the same one as long as it works, so that calls stay in
    /// order.
    pub(crate) fn for_oneway(&self) -> Option<Arc<Bound>> {
        let mut oneway = self.oneway.lock();
        let members = self.members.read();
        let serves = |bound: &Arc<Bound>| {
            let is_it = |member: &Arc<Member>| Arc::ptr_eq(&member.bound, bound);
            members.all.iter().any(is_it) && bound.path.is_alive()
        };
        // Dropping a binding may take long, so the lock ends first.
        let known = oneway.upgrade();
        if let Some(bound) = known.as_ref().filter(|bound| serves(bound)) {
            return Some(Arc::clone(bound));
        }
        let new = self.pick().map(Picked::share);
        *oneway = new.as_ref().map_or_else(Weak::new, Arc::downgrade);
        drop(oneway);
        drop((members, known));
        new
    }

    /// Notes that a call has failed. Leaves the server out if this says that it cannot be used.
    #[cold]
    pub(crate) fn fails(&self, gone: &Bound, error: &CallError) {
        let mut state = self.state();
        let State { servers, random, leaving, .. } = &mut *state;
        let left_out = servers.call_failed(gone, error, Instant::now(), &mut || next(random));
        if let Some(member) = left_out {
            leaving.push(member);
            let former = self.publish(&state);
            drop(state);
            drop(former);
            keeping::wake();
        }
    }

    /// Makes calls use the servers that serve now. The caller holds the lock of the state, so that no older
    /// list replaces a newer one. Returns former lists that no call uses. The caller drops them without a
    /// lock, because this may drop a binding.
    #[must_use]
    fn publish(&self, state: &MutexGuard<'_, State>) -> Vec<Arc<Members>> {
        let members = state.servers.members();
        if let Some(first) = members.all.first() {
            self.is_native.store(!first.bound.is_swapped_server(), Ordering::Relaxed);
        }
        let former = self.members.replace(members);
        self.changed.notify_all();
        former
    }

    /// Returns whether a call that has failed with this error is repeated at another server.
    #[cold]
    pub(crate) fn repeats(&self, gone: &Bound, number: u32, error: &CallError) -> bool {
        let idempotent_too = match self.asked.options.rebind {
            Rebind::Never => return false,
            Rebind::WhenNotExecuted => false,
            Rebind::Idempotent => true,
        };
        let elsewhere = match error.kind() {
            Kind::ServerGone | Kind::Withdrawn | Kind::Unreachable => true,
            // Servers of different versions may serve one name.
            Kind::Overloaded | Kind::NoSuchProcedure => self.members.read().all.len() > 1,
            _ => false,
        };
        elsewhere && gone.may_repeat(number, error, idempotent_too)
    }

    /// Chooses a server for the repetition of a call that has failed. If no server serves, waits for one.
    ///
    /// # Errors
    /// Returns the error of the call if it is not repeated. If no server can be used, the error says why.
    #[cold]
    pub(crate) fn again(
        &self,
        gone: &Bound,
        number: u32,
        error: CallError,
        deadline: Option<Instant>,
    ) -> Result<Picked<'_>, CallError> {
        match self.again_now(gone, number, error)? {
            Again::At(picked) => Ok(picked),
            Again::Later(error) => self.again_later(error, deadline),
        }
    }

    /// Decides whether a call that has failed is repeated, and chooses another server if one serves. Does not
    /// wait.
    ///
    /// # Errors
    /// Returns the error of the call if it is not repeated.
    #[cold]
    pub(super) fn again_now(
        &self,
        gone: &Bound,
        number: u32,
        error: CallError,
    ) -> Result<Again<Picked<'_>>, CallError> {
        self.fails(gone, &error);
        if !self.repeats(gone, number, &error) {
            return Err(error);
        }
        if error.kind() == Kind::NoSuchProcedure {
            // Waiting would not help: servers serve.
            return self.pick_with(gone, number).map(Again::At).ok_or(error);
        }
        // A call that a server could not run adds to the load of another one only what it would have added
        // anyway.
        let adds = error.kind() == Kind::Overloaded || error.executed() == Executed::Maybe;
        if adds && !self.budget.allows(Instant::now()) {
            return Err(error);
        }
        Ok(self.pick_other(gone).map_or(Again::Later(error), Again::At))
    }

    /// Waits until a server serves, and chooses it for the repetition of a call that has failed.
    ///
    /// # Errors
    /// If no server can be used, the error says why.
    #[cold]
    pub(super) fn again_later(
        &self,
        error: CallError,
        deadline: Option<Instant>,
    ) -> Result<Picked<'_>, CallError> {
        let limit = until(self.asked.options.bind_limit.max(self.asked.options.wait_for));
        let limit = deadline.map_or(limit, |deadline| deadline.min(limit));
        match self.wait(Instant::now(), limit) {
            Ok(picked) => Ok(picked),
            Err(why) if error.executed() == Executed::No => Err(why),
            Err(why) => Err(error.because(why.chain())),
        }
    }

    /// Waits until a server serves.
    ///
    /// # Errors
    /// If no server can be used, or `limit` passes.
    fn wait(&self, begun: Instant, limit: Instant) -> Result<Picked<'_>, CallError> {
        /// Attempts that have failed in this time before count, so that many calls do not make many attempts.
        const RECENT: Duration = Duration::from_millis(100);
        /// How often a call that waits for a server has all servers tried.
        const EVERY: Duration = Duration::from_millis(500);
        let patient = begun.checked_add(self.asked.options.wait_for);
        loop {
            if let Some(picked) = self.pick() {
                return Ok(picked);
            }
            let now = Instant::now();
            let mut state = self.state();
            if self.members.read().preferred > 0 {
                continue;
            }
            let is_patient = patient.is_some_and(|patient| now < patient);
            let since = if is_patient { now.checked_sub(EVERY) } else { begun.checked_sub(RECENT) };
            let goes_on = state.servers.hurry(since.unwrap_or(begun), now);
            if now >= limit || !goes_on && !is_patient {
                return Err(state.servers.none_serves());
            }
            if goes_on {
                keeping::wake();
            }
            let until = if is_patient { limit.min(now + EVERY) } else { limit };
            drop(self.changed.wait_timeout(state, until.saturating_duration_since(now)));
        }
    }

    /// Waits until all servers were tried, or until one serves and the others take long.
    ///
    /// # Errors
    /// If no server can be used.
    fn wait_for_first(&self, begun: Instant) -> Result<(), CallError> {
        /// How long the others may take.
        const OTHERS: Duration = Duration::from_millis(250);
        let options = &self.asked.options;
        let limit = until(options.bind_limit.max(options.wait_for));
        drop(self.wait(begun, limit).map_err(|error| error.at(&self.asked.address))?);
        let enough = Instant::now() + OTHERS;
        let mut state = self.state();
        loop {
            let now = Instant::now();
            if state.servers.were_all_tried() || now >= enough {
                return Ok(());
            }
            let left = enough.saturating_duration_since(now);
            state = self.changed.wait_timeout(state, left).0;
        }
    }

    /// Takes over what the directory has reported, and begins to bind to the servers that are due. Returns when
    /// there is more to do. Runs on the thread that keeps the pools.
    fn look_after(&self) -> Option<Instant> {
        let now = Instant::now();
        let offers = self.inbox.lock().take();
        let mut state = self.state();
        let is_new = offers.is_some();
        let State { servers, random, .. } = &mut *state;
        let offered = |offers| servers.offered(offers, now, &mut || next(random));
        let mut left_out = offers.map_or_else(Vec::new, offered);
        left_out.extend(state.servers.expire(now));
        let published = (is_new || !left_out.is_empty()).then(|| self.publish(&state));
        state.leaving.extend(left_out);
        let short = state.servers.are_many_untried(BINDING_MAX);
        let free = BINDING_MAX - state.attempts;
        let due = state.servers.due(now, free);
        state.attempts += due.len();
        let next = state.servers.next_due(state.attempts < BINDING_MAX);
        let (former, is_read) = self.members.collect();
        let looks = Self::looks_again(&mut state, now, !due.is_empty());
        drop((published, former));
        let unused = state.unused();
        let collects = is_read || !state.leaving.is_empty();
        let next = next.into_iter().chain(collects.then(|| now + COLLECT_EVERY));
        let next = next.chain(state.watches_again()).min();
        let can_watch = state.can_watch;
        drop(state);
        if !unused.is_empty() {
            // If no thread can be started, the closure is dropped here, and the servers with it.
            let _ =
                std::thread::Builder::new().name("peregrine-drop".into()).spawn(|| drop(unused));
        }
        if looks {
            self.begin_look(can_watch);
        }
        let limit = self.asked.options.bind_limit;
        let limit = if short { limit.min(SHORT) } else { limit };
        due.into_iter().for_each(|(id, offer)| self.begin_bind(id, offer, limit));
        next
    }

    /// Returns whether to ask a directory again that is not watched: because a server is not bound (`lacks`), or
    /// because it may be possible to watch it now.
    fn looks_again(state: &mut State, now: Instant, lacks: bool) -> bool {
        let is_due = lacks && state.looked.is_some_and(|at| now >= at + LOOK_EVERY)
            || state.watches_again().is_some_and(|at| now >= at);
        let looks = is_due && state.watch.is_none() && !state.is_looking;
        state.is_looking |= looks;
        looks
    }

    /// Asks the directory on a thread of its own, because this may wait.
    fn begin_look(&self, can_watch: bool) {
        let (pool, asked) = (Weak::clone(&self.me), Arc::clone(&self.asked));
        let inbox = Arc::clone(&self.inbox);
        let look = move || {
            let mut finding = Finding::new(|found| {
                let Some(pool) = pool.upgrade() else { return };
                let mut state = pool.state();
                state.found(found);
                state.is_looking = false;
                drop(state);
                keeping::wake();
            });
            finding.found = Some(Found::new(&asked, &inbox, can_watch));
        };
        let spawned = std::thread::Builder::new().name("peregrine-bind".into()).spawn(look);
        if spawned.is_err() {
            self.state().is_looking = false;
        }
    }

    /// Binds to a server on a thread of its own, because this may wait. If no thread can be started, the
    /// attempt has failed.
    fn begin_bind(&self, id: u64, offer: Option<Offer>, limit: Duration) {
        // The thread does not keep the pool: it may be dropped meanwhile.
        let (pool, asked) = (Weak::clone(&self.me), Arc::clone(&self.asked));
        let spawned = std::thread::Builder::new().name("peregrine-bind".into()).spawn(move || {
            let mut finding = Finding::new(|result| {
                if let Some(pool) = pool.upgrade() {
                    pool.bound(id, result);
                }
            });
            let limit = until(limit);
            let bound = match offer {
                Some(offer) => asked.bind_to(&offer, limit),
                None => asked.bind(limit),
            };
            finding.found = Some(bound.map_err(CallError::from));
        });
        if let Err(error) = spawned {
            let what = "cannot start the thread that binds";
            self.bound(id, Err(CallError::system(Phase::Bind, what, error)));
        }
    }

    /// Notes the result of binding to a server.
    fn bound(&self, id: u64, result: Result<Bound, CallError>) {
        let mut state = self.state();
        state.attempts -= 1;
        let State { servers, random, .. } = &mut *state;
        let unused = servers.bound(id, result, Instant::now(), &mut || next(random));
        let former = self.publish(&state);
        drop(state);
        drop((unused, former));
        keeping::wake();
    }

    /// Returns all servers, for people.
    pub(super) fn report(&self) -> Vec<PoolServer> {
        let state = self.state();
        state.servers.report(&self.members.read())
    }

    /// Returns what the directory contains and cannot be used, and why it does not report changes now.
    pub(super) fn remarks(&self) -> Vec<String> {
        let state = self.state();
        let (mut remarks, watch) = (state.servers.remarks.clone(), state.watch.clone());
        let age = state.servers.age;
        drop(state);
        match watch {
            // This is code of the directory, so no lock is held.
            Some(watch) => remarks.extend(
                watch
                    .problem()
                    .map(|problem| format!("the directory does not report changes now: {problem}")),
            ),
            None => remarks.extend(age.map(select::old)),
        }
        remarks
    }
}

/// Hands over what a thread has found, also if code of the program has panicked in it: a directory, or a layer.
struct Finding<T, F: FnMut(Result<T, CallError>)> {
    found: Option<Result<T, CallError>>,
    hand_over: F,
}

impl<T, F: FnMut(Result<T, CallError>)> Finding<T, F> {
    const fn new(hand_over: F) -> Self {
        Self { found: None, hand_over }
    }
}

impl<T, F: FnMut(Result<T, CallError>)> Drop for Finding<T, F> {
    fn drop(&mut self) {
        let panicked = || {
            let text = "a directory or a layer of this program panicked";
            Err(CallError::not_executed(Kind::Panicked, Phase::Bind, text))
        };
        (self.hand_over)(self.found.take().unwrap_or_else(panicked));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        keeping::wake();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("address", &self.asked.address).finish_non_exhaustive()
    }
}

/// Returns the next number of a sequence (xorshift64: G. Marsaglia, "Xorshift RNGs", Journal of Statistical
/// Software 8(14), 2003).
fn next(state: &mut u64) -> u32 {
    let mut x = *state | 1;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state = x;
    (x >> 32) as u32
}
