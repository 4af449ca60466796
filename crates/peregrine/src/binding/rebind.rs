//! Binding again when the server has gone: a policy, and never a change during a call.

use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use super::bound::Bound;
use super::select::{self, Selected, Unbound};
use super::{BindOptions, Rebind};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::interface::{Digest, InterfaceRef};
use crate::path::bind::{hold, until};
use crate::sync::{Mutex, MutexGuard, Rank};

/// An attempt that took so long, and was in vain, is not made again for as long as it took.
const LONG: Duration = Duration::from_millis(500);

/// What all that a binding is, was and will be have in common.
pub(crate) struct Home {
    pub(super) address: String,
    pub(super) interface: InterfaceRef,
    digest: Option<Digest>,
    options: BindOptions,
    /// What it was bound to last, if it ever was bound again.
    latest: Mutex<Option<Arc<Bound>>>,
    /// Held by whoever binds again; until when nobody tries, after it took long and was in vain.
    binds: Mutex<Option<Instant>>,
}

/// Whether binding fails so for as long as the server and its client stay as they are.
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
    pub(super) fn new(
        address: &str,
        interface: InterfaceRef,
        digest: Option<Digest>,
        options: &BindOptions,
    ) -> Self {
        Self {
            address: address.to_owned(),
            interface,
            digest,
            options: options.clone(),
            latest: Mutex::default(),
            binds: Mutex::ranked(Rank::Rebind, None),
        }
    }

    pub(super) fn bind(&self) -> Result<Bound, Unbound> {
        let limit = until(self.options.bind_limit);
        let Self { address, interface, digest, options, .. } = self;
        let selected = select::select(address, interface, *digest, options, limit)?;
        self.bound(selected)
    }

    fn bound(&self, selected: Selected) -> Result<Bound, Unbound> {
        let Selected { path, numbers, explanation } = selected;
        let told = explanation.clone();
        let short = self.options.on_exhausted_or_default();
        Bound::new(path, numbers, self.interface.clone(), explanation, short)
            .map_err(|error| Unbound::new(error.at(&self.address), told))
    }

    #[track_caller]
    fn latest(&self) -> MutexGuard<'_, Option<Arc<Bound>>> {
        self.latest.lock()
    }

    /// What calls go to, of whoever was bound as `known`.
    pub(crate) fn now(&self, known: &Arc<Bound>) -> Arc<Bound> {
        // A forked child fails by its mark: its parent may have held any lock when it forked.
        if !known.has_moved() || known.mark.wiped() {
            return Arc::clone(known);
        }
        self.latest().as_ref().map_or_else(|| Arc::clone(known), Arc::clone)
    }

    /// After a call of procedure `number` failed on `gone`: what it may be repeated on. `None` if it
    /// is to fail as it did; then its error says why binding again did not help, if that was tried.
    #[cold]
    pub(crate) fn again(
        &self,
        known: &Arc<Bound>,
        gone: &Arc<Bound>,
        number: u32,
        error: CallError,
        deadline: Option<Instant>,
    ) -> Result<Arc<Bound>, CallError> {
        let idempotent_too = match self.options.rebind {
            Rebind::Never => return Err(error),
            Rebind::WhenNotExecuted => false,
            Rebind::Idempotent => true,
        };
        let is_gone =
            matches!(error.kind(), Kind::ServerGone | Kind::Withdrawn | Kind::Unreachable);
        if !is_gone || !gone.may_repeat(number, &error, idempotent_too) {
            return Err(error);
        }
        match self.rebind(known, gone, deadline) {
            Ok(bound) => Ok(bound),
            // What is there now is not what was bound, and no later attempt finds it otherwise.
            Err(why) if error.executed() == Executed::No && is_final(why.kind()) => {
                Err(why.because(error.chain()))
            }
            Err(why) => Err(error.because(why.chain())),
        }
    }

    fn rebind(
        &self,
        known: &Arc<Bound>,
        gone: &Arc<Bound>,
        deadline: Option<Instant>,
    ) -> Result<Arc<Bound>, CallError> {
        let limit = until(self.options.bind_limit);
        let until = deadline.map_or(limit, |deadline| deadline.min(limit));
        let mut quiet = hold(&self.binds, until)?;
        // Another caller was here first.
        if let Some(latest) = &*self.latest()
            && !Arc::ptr_eq(latest, gone)
        {
            known.moves();
            gone.moves();
            return Ok(Arc::clone(latest));
        }
        let begun = Instant::now();
        if quiet.is_some_and(|quiet| begun < quiet) {
            let text = "binding again took long and failed a moment ago: it is tried again soon";
            return Err(CallError::not_executed(Kind::TimedOut, Phase::Bind, text));
        }
        let Self { address, interface, digest, options, .. } = self;
        let selected = select::select(address, interface, *digest, options, until);
        let bound = selected.and_then(|selected| self.bound(selected)).inspect_err(|_| {
            // Where nobody answers, calls are not to wait for that one after the other.
            let (now, took) = (Instant::now(), begun.elapsed());
            *quiet = (took >= LONG).then_some(now + took);
        })?;
        *quiet = None;
        let bound = Arc::new(bound);
        // What was there before goes when nobody is kept waiting by that.
        let before = self.latest().replace(Arc::clone(&bound));
        drop(before);
        known.moves();
        gone.moves();
        Ok(bound)
    }
}
