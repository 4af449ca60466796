//! Binds a client again when its server is gone, if a policy allows it. A running call never changes its
//! server.

use core::time::Duration;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::bound::Bound;
use super::pool::{self, Again, Picked, Pool};
use super::select::{self, Selected, Unbound};
use super::{BindOptions, Rebind};
use crate::directory::Offer;
use crate::error::{CallError, Executed, Kind, Phase};
use crate::interface::{Digest, InterfaceRef};
use crate::path::bind::{hold, until};
use crate::stub::{ClientConduit, OneWay};
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys::Replaceable;

/// A failed attempt to bind that took at least this long is followed by a backoff. The backoff lasts as long
/// as the attempt took.
const LONG: Duration = Duration::from_millis(500);

/// What a program has asked for when it bound.
pub(super) struct Asked {
    pub(super) address: String,
    pub(super) interface: InterfaceRef,
    digest: Option<Digest>,
    pub(super) options: BindOptions,
}

impl Asked {
    pub(super) fn new(
        address: &str,
        interface: InterfaceRef,
        digest: Option<Digest>,
        options: &BindOptions,
    ) -> Self {
        Self { address: address.to_owned(), interface, digest, options: options.clone() }
    }

    /// Binds to the name or address.
    pub(super) fn bind(&self, limit: Instant) -> Result<Bound, Unbound> {
        let Self { address, interface, digest, options } = self;
        self.bound(select::select(address, interface, *digest, options, limit)?)
    }

    /// Binds to one server of the name.
    pub(super) fn bind_to(&self, offer: &Offer, limit: Instant) -> Result<Bound, Unbound> {
        let Self { address, interface, digest, options } = self;
        let targets = offer.addresses();
        self.bound(select::select_of(address, targets, interface, *digest, options, limit)?)
    }

    fn bound(&self, selected: Selected) -> Result<Bound, Unbound> {
        let Selected { path, fit, explanation } = selected;
        let told = explanation.clone();
        let short = self.options.on_exhausted_or_default();
        Bound::new(path, fit, self.interface.clone(), explanation, short, &self.options.layers)
            .map_err(|error| Unbound::new(error.at(&self.address), told))
    }
}

/// The parts of a binding that stay the same when it is bound again.
pub(crate) struct Home {
    pub(super) asked: Arc<Asked>,
    /// The servers of which each call takes one. `None`: the binding has one server.
    pool: Option<Arc<Pool>>,
    /// The newest state. `None` if the binding was never bound again.
    latest: Mutex<Option<Arc<Bound>>>,
    /// The lock is held by the thread that binds again. The value is the end of the backoff after a long
    /// failed attempt.
    binds: Mutex<Option<Instant>>,
    /// The one-way calls. `None` if the interface has none.
    pub(crate) oneway: Option<Arc<OneWay>>,
    /// The conduits with callbacks that servers have kept.
    kept: Mutex<Vec<Weak<ClientConduit>>>,
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(oneway) = &self.oneway {
            oneway.close();
        }
        for conduit in self.kept.exclusive().drain(..).filter_map(|conduit| conduit.upgrade()) {
            conduit.drop_kept();
        }
    }
}

/// Returns whether binding keeps failing with an error of this kind until the server or the client changes.
const fn is_final(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::InterfaceMismatch
            | Kind::ProtocolMismatch
            | Kind::TooLarge
            | Kind::BadName
            | Kind::Denied
    )
}

impl Home {
    pub(super) fn new(asked: Arc<Asked>, pool: Option<Arc<Pool>>) -> Self {
        let interface = &asked.interface;
        Self {
            oneway: interface.has_oneway().then(|| OneWay::new(interface)),
            asked,
            pool,
            latest: Mutex::default(),
            binds: Mutex::ranked(Rank::Rebind, None),
            kept: Mutex::default(),
        }
    }

    /// Returns what all clones of a binding share.
    pub(super) fn shared(self) -> Arc<Self> {
        let home = Arc::new(self);
        if let Some(oneway) = &home.oneway {
            oneway.set_home(Arc::downgrade(&home));
        }
        home
    }

    /// Notes that a conduit has callbacks that the server has kept. These callbacks end when all clients of
    /// the binding are dropped.
    pub(crate) fn keeps(&self, conduit: &Arc<ClientConduit>) {
        let mut kept = self.kept.lock();
        kept.retain(|one| one.strong_count() > 0);
        if !kept.iter().any(|one| core::ptr::eq(one.as_ptr(), Arc::as_ptr(conduit))) {
            kept.push(Arc::downgrade(conduit));
        }
    }

    pub(super) fn bind(&self) -> Result<Bound, Unbound> {
        self.asked.bind_or_wait()
    }

    /// Returns the servers of which each call takes one. `None`: the binding has one server.
    #[inline(always)]
    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.pool.as_deref()
    }

    /// Returns how often a call is tried at most.
    pub(crate) const fn attempts_max(&self) -> u32 {
        if self.pool.is_some() { pool::ATTEMPTS_MAX } else { 2 }
    }

    #[track_caller]
    fn latest(&self) -> MutexGuard<'_, Option<Arc<Bound>>> {
        self.latest.lock()
    }

    /// Returns the state that calls of a binding use now. If the binding was bound again, the new state
    /// replaces `known`, so that later calls find it on the fast path.
    pub(crate) fn now(&self, known: &Replaceable<Bound>) -> Arc<Bound> {
        let current = known.share();
        // A forked child gets the parent's state. The mark in this state then makes the call fail. No lock is
        // taken here, because the parent may have held any lock when it forked.
        if !current.has_moved() || current.mark.wiped() {
            return current;
        }
        let latest = self.latest().as_ref().map(Arc::clone);
        let Some(latest) = latest else { return current };
        known.replace(&current, &latest);
        latest
    }

    /// Returns the state that a call of a binding uses. While no server of a pool can be used, returns the
    /// state that refuses all calls.
    pub(crate) fn for_call(&self, known: &Replaceable<Bound>) -> Arc<Bound> {
        if let Some(pool) = &self.pool {
            // A forked child does not look at the servers.
            let picked = if known.get().mark.wiped() { None } else { pool.pick() };
            if let Some(picked) = picked {
                return picked.share();
            }
        }
        self.now(known)
    }

    /// Notes that a call has failed. A pool leaves its server out, if the error says that it cannot be used.
    #[cold]
    pub(crate) fn fails(&self, gone: &Bound, error: &CallError) {
        if let Some(pool) = &self.pool {
            pool.fails(gone, error);
        }
    }

    /// Returns whether to bind again and to repeat a call of procedure `number` that failed on the state
    /// `gone`.
    #[cold]
    pub(crate) fn repeats(&self, gone: &Bound, number: u32, error: &CallError) -> bool {
        if let Some(pool) = &self.pool {
            return pool.repeats(gone, number, error);
        }
        let idempotent_too = match self.asked.options.rebind {
            Rebind::Never => return false,
            Rebind::WhenNotExecuted => false,
            Rebind::Idempotent => true,
        };
        matches!(error.kind(), Kind::ServerGone | Kind::Withdrawn | Kind::Unreachable)
            && gone.may_repeat(number, error, idempotent_too)
    }

    /// Binds again after a call of procedure `number` failed on the state `gone`. Returns the state on which
    /// the call may be repeated.
    ///
    /// # Errors
    /// Returns the error of the call if the call must not be repeated. If binding again failed, returns one
    /// error that contains both failures.
    #[cold]
    pub(crate) fn again(
        &self,
        known: &Replaceable<Bound>,
        gone: &Bound,
        number: u32,
        error: CallError,
        deadline: Option<Instant>,
    ) -> Result<Arc<Bound>, CallError> {
        if !self.repeats(gone, number, &error) {
            return Err(error);
        }
        match self.rebind(known, gone, deadline) {
            Ok(bound) => Ok(bound),
            // The new server does not fit the client or refuses it, and later attempts would fail in the same
            // way.
            Err(why) if error.executed() == Executed::No && is_final(why.kind()) => {
                // An error with a cause of its own, such as why the server was refused, keeps this cause.
                let has_cause = core::error::Error::source(&why).is_some();
                Err(if has_cause { why } else { why.because(error.chain()) })
            }
            Err(why) => Err(error.because(why.chain())),
        }
    }

    /// Binds again as [`again`](Self::again) does, for a caller that holds a counted reference to `gone`. A
    /// pool chooses another server instead.
    ///
    /// # Errors
    /// As for [`again`](Self::again).
    pub(crate) fn again_for(
        &self,
        gone: &Arc<Bound>,
        number: u32,
        error: CallError,
        deadline: Option<Instant>,
    ) -> Result<Arc<Bound>, CallError> {
        match self.again_now(gone, number, error)? {
            Again::At(bound) => Ok(bound),
            Again::Later(error) => self.again_later(gone, number, error, deadline),
        }
    }

    /// Decides whether a failed call is repeated. Does not wait: only a pool, of which another server serves,
    /// returns a state at once.
    ///
    /// # Errors
    /// Returns the error of the call if the call must not be repeated.
    #[cold]
    pub(crate) fn again_now(
        &self,
        gone: &Arc<Bound>,
        number: u32,
        error: CallError,
    ) -> Result<Again<Arc<Bound>>, CallError> {
        if let Some(pool) = &self.pool {
            return Ok(match pool.again_now(gone, number, error)? {
                Again::At(picked) => Again::At(picked.share()),
                Again::Later(error) => Again::Later(error),
            });
        }
        if self.repeats(gone, number, &error) { Ok(Again::Later(error)) } else { Err(error) }
    }

    /// Waits for a server, or binds again, for a call that [`again_now`](Self::again_now) repeats.
    ///
    /// # Errors
    /// As for [`again`](Self::again).
    #[cold]
    pub(crate) fn again_later(
        &self,
        gone: &Arc<Bound>,
        number: u32,
        error: CallError,
        deadline: Option<Instant>,
    ) -> Result<Arc<Bound>, CallError> {
        if let Some(pool) = &self.pool {
            return pool.again_later(error, deadline).map(Picked::share);
        }
        self.again(&Replaceable::new(Arc::clone(gone)), gone, number, error, deadline)
    }

    fn rebind(
        &self,
        known: &Replaceable<Bound>,
        gone: &Bound,
        deadline: Option<Instant>,
    ) -> Result<Arc<Bound>, CallError> {
        let limit = until(self.asked.options.bind_limit);
        let until = deadline.map_or(limit, |deadline| deadline.min(limit));
        let mut quiet = hold(&self.binds, until)?;
        // Another caller may have bound again while this thread waited for the lock.
        let is_newer = |latest: &Arc<Bound>| !core::ptr::eq(Arc::as_ptr(latest), gone);
        if self.latest().as_ref().is_some_and(is_newer) {
            return Ok(self.now(known));
        }
        let begun = Instant::now();
        if quiet.is_some_and(|quiet| begun < quiet) {
            let text = "a recent attempt to bind again failed: backing off";
            return Err(CallError::not_executed(Kind::TimedOut, Phase::Bind, text));
        }
        let bound = self.asked.bind(until).inspect_err(|_| {
            // While no server answers, each attempt to bind may take long and then fails for the same reason.
            // Without this backoff, every call would wait for such an attempt.
            let (now, took) = (Instant::now(), begun.elapsed());
            *quiet = (took >= LONG).then_some(now + took);
        })?;
        *quiet = None;
        let bound = Arc::new(bound);
        // The former state is dropped after the lock of `latest` is released, because dropping it may take
        // long.
        let before = self.latest().replace(Arc::clone(&bound));
        drop(before);
        // `gone` is the state that was replaced. Other clones of the binding still have it, and learn at
        // their next call that there is a new one.
        gone.moves();
        self.now(known);
        Ok(bound)
    }
}
