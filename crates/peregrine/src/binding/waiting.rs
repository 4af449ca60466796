//! Binding that waits for a server ([`BindOptions::wait_for`](super::BindOptions::wait_for)).

use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use super::Bound;
use super::rebind::Asked;
use super::select::{self, Unbound};
use crate::address::Address;
use crate::directory::{Directory as _, Standing};
use crate::error::Kind;
use crate::path::bind::until;
use crate::sync::{Condvar, Mutex};

/// The pause after the first attempt. It doubles with each further attempt.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The longest pause between two attempts, unless the directory reports a change.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Whether the directory has reported a change since the last attempt.
#[derive(Default)]
struct Changes {
    any: Mutex<bool>,
    signal: Condvar,
}

/// Returns whether a later attempt to bind may succeed although nothing changes at the client.
const fn may_pass(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::NotFound
            | Kind::Unreachable
            | Kind::ServerGone
            | Kind::Withdrawn
            | Kind::TimedOut
            | Kind::Overloaded
    )
}

impl Asked {
    /// Binds. If no server can be used, waits for one as long as the options say.
    pub(super) fn bind_or_wait(&self) -> Result<Bound, Unbound> {
        let limit = || until(self.options.bind_limit);
        let end = until(self.options.wait_for);
        let waits = |unbound: &Unbound| may_pass(unbound.kind()) && Instant::now() < end;
        let mut failed = match self.bind(limit()) {
            Err(unbound) if waits(&unbound) => unbound,
            done => return done,
        };
        let changes = Arc::new(Changes::default());
        let watch = self.watch(&changes);
        let mut pause = PAUSE_MIN;
        while waits(&failed) {
            let left = end.saturating_duration_since(Instant::now());
            let any = changes.any.lock();
            let mut any = changes.signal.wait_timeout_while(any, pause.min(left), |any| !*any).0;
            *any = false;
            drop(any);
            pause = (2 * pause).min(PAUSE_MAX);
            match self.bind(limit().min(end)) {
                Ok(bound) => return Ok(bound),
                Err(unbound) => failed = unbound,
            }
        }
        drop(watch);
        Err(failed)
    }

    /// Lets the directory report changes of the name, if it can.
    fn watch(&self, changes: &Arc<Changes>) -> Option<Standing> {
        let address: Address = self.address.parse().ok()?;
        if address.place().is_some() || address.is_on_this_machine() {
            return None;
        }
        let changes = Arc::clone(changes);
        let watcher = Box::new(move |_| {
            *changes.any.lock() = true;
            changes.signal.notify_one();
        });
        select::directory(&self.options).ok()?.watch(address.name(), watcher).ok()
    }
}
