//! What the threads of a program and the thread of the directory share: what is known, and since when the
//! cluster has not answered.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use peregrine::directory::{Offer, Offers, Watcher};
use tokio::sync::Notify;

use crate::known::{Claim, Known, Mark};
use crate::place::Place;
use crate::watches::Watches;

/// How long the first look-up waits after an attempt has failed, for a cluster that begins at the same time.
const FAILED_LIMIT: Duration = Duration::from_secs(1);

struct State {
    known: Known,
    /// When the cluster was heard last. `None`: never.
    heard: Option<Instant>,
    /// Whether changes are noticed now.
    is_current: bool,
    /// Why not.
    trouble: Option<String>,
}

/// What is known, and the watches.
pub(crate) struct Shared {
    opened: Instant,
    state: Mutex<State>,
    /// Notified after the first reading, and after a failure.
    has_tried: Condvar,
    /// Notified when something new is known, for the registrations.
    pub(crate) has_learnt: Notify,
    watches: Watches,
}

impl Shared {
    pub(crate) fn new(place: Place) -> Self {
        let known = Known::nothing(place);
        let state = State { known, heard: None, is_current: false, trouble: None };
        Self {
            opened: Instant::now(),
            state: Mutex::new(state),
            has_tried: Condvar::new(),
            has_learnt: Notify::new(),
            watches: Watches::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what `get` returns for what is known.
    pub(crate) fn with_known<T>(&self, get: impl FnOnce(&Known) -> T) -> T {
        get(&self.state().known)
    }

    /// Changes what is known, and lets the watchers be called.
    pub(crate) fn learn(&self, change: impl FnOnce(&mut Known) -> BTreeSet<String>) {
        let mut state = self.state();
        let changed = change(&mut state.known);
        (state.heard, state.is_current, state.trouble) = (Some(Instant::now()), true, None);
        drop(state);
        self.has_tried.notify_all();
        self.has_learnt.notify_one();
        if !changed.is_empty() {
            self.watches.changed(&changed);
        }
    }

    /// Notes that the cluster contradicts what is known, for the next reading.
    pub(crate) fn learn_of_loss(&self) {
        self.state().known.contradict();
    }

    /// Notes that changes are not noticed from now on.
    pub(crate) fn lose(&self, why: String) {
        let mut state = self.state();
        (state.is_current, state.trouble) = (false, Some(why));
        drop(state);
        self.has_tried.notify_all();
    }

    /// Waits for the first reading, and returns what `get` returns for what is known, with its age.
    ///
    /// # Errors
    /// Why nothing was read before `limit`.
    pub(crate) fn look_up<T>(
        &self,
        limit: Duration,
        get: impl FnOnce(&Known) -> T,
    ) -> Result<(T, Option<Duration>), String> {
        let is_first = |state: &mut State| state.heard.is_none() && state.trouble.is_none();
        let waited = self.has_tried.wait_timeout_while(self.state(), limit, is_first);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let left = (self.opened + FAILED_LIMIT).saturating_duration_since(Instant::now());
        if state.heard.is_none() && !left.is_zero() {
            let is_unheard = |state: &mut State| state.heard.is_none();
            let waited = self.has_tried.wait_timeout_while(state, left, is_unheard);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let Some(heard) = state.heard else {
            let why = state.trouble.clone();
            return Err(why.unwrap_or_else(|| "the cluster has not answered yet".to_owned()));
        };
        let age = (!state.is_current).then(|| heard.elapsed());
        Ok((get(&state.known), age))
    }

    /// Begins a watch, and calls `watcher` with what is known. Returns the number of the watch.
    ///
    /// # Errors
    /// If the thread for watchers cannot be started.
    pub(crate) fn watch(self: &Arc<Self>, name: &str, watcher: Watcher) -> std::io::Result<u64> {
        let shared = Arc::clone(self);
        let start = move || {
            let thread = thread::Builder::new().name("peregrine-watch".to_owned());
            let run = move || shared.watches.run(|name| shared.offers(name));
            Ok(thread.spawn(run)?.thread().id())
        };
        self.watches.begin(name, watcher, || self.offers(name), start)
    }

    fn offers(&self, name: &str) -> Offers {
        let state = self.state();
        let age = state.heard.filter(|_| !state.is_current).map(|heard| heard.elapsed());
        let mut offers = state.known.offers(name);
        offers.age = age;
        offers
    }

    /// Ends a watch.
    pub(crate) fn unwatch(&self, number: u64) {
        self.watches.end(number);
    }

    /// Returns why a watch does not work now.
    pub(crate) fn problem(&self, number: u64) -> Option<String> {
        let panicked = || self.watches.has_panicked(number);
        let silent = self.silence().map(|(age, why)| {
            format!("the cluster has not answered for {} s: {why}", age.as_secs())
        });
        silent
            .or_else(|| self.trouble())
            .or_else(|| panicked().then(|| "the watcher panicked".to_owned()))
    }

    /// Returns why changes are not noticed now.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.state().trouble.clone()
    }

    /// Returns how long the cluster has not answered, and why. `None`: it answers, or never has.
    pub(crate) fn silence(&self) -> Option<(Duration, String)> {
        let state = self.state();
        let heard = state.heard.filter(|_| !state.is_current)?;
        Some((heard.elapsed(), state.trouble.clone().unwrap_or_default()))
    }

    /// Returns what the cluster has at the key of a registration that was written at `at`. `None`: that is
    /// not known now.
    pub(crate) fn claim(&self, name: &str, offer: &Offer, lease: i64, at: Mark) -> Option<Claim> {
        let state = self.state();
        let known = &state.known;
        // A cluster that was begun anew counts its revisions again.
        let is_known = at.generation < known.generation || known.revision >= at.revision;
        (state.is_current && is_known).then(|| known.claim(name, offer, lease))
    }
}
