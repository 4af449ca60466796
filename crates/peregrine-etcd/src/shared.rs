//! What the threads of a program and the thread of the directory share: what is known, and whose watches are
//! to be told of changes.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use peregrine::directory::{Offers, Watcher};
use serde_json::Value;

use crate::known::Known;
use crate::place::Place;

/// A watch of one name.
struct Watching {
    number: u64,
    name: String,
    watcher: Arc<Mutex<Watcher>>,
}

struct State {
    known: Known,
    /// When the cluster was heard last. `None`: never.
    heard: Option<Instant>,
    /// Whether changes are noticed now.
    is_current: bool,
    /// Why not.
    trouble: Option<String>,
    watching: Vec<Watching>,
    next: u64,
}

/// What is known, and the watches.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Notified after the first reading.
    has_read: Condvar,
    /// The thread of the directory, which calls the watchers.
    own: Mutex<Option<ThreadId>>,
}

impl Shared {
    pub(crate) fn new(place: Place) -> Self {
        let state = State {
            known: Known::nothing(place),
            heard: None,
            is_current: false,
            trouble: None,
            watching: Vec::new(),
            next: 0,
        };
        Self { state: Mutex::new(state), has_read: Condvar::new(), own: Mutex::new(None) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that the current thread calls the watchers.
    pub(crate) fn is_own_thread(&self) {
        *self.own.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current().id());
    }

    /// Returns the revision up to which changes are known.
    pub(crate) fn revision(&self) -> i64 {
        self.state().known.revision
    }

    /// Changes what is known, and tells the watchers.
    pub(crate) fn learn(&self, change: impl FnOnce(&mut Known) -> BTreeSet<String>) {
        let mut state = self.state();
        let changed = change(&mut state.known);
        (state.heard, state.is_current, state.trouble) = (Some(Instant::now()), true, None);
        let told: Vec<_> = state
            .watching
            .iter()
            .filter(|one| changed.contains(&one.name))
            .map(|one| (Arc::clone(&one.watcher), state.known.offers(&one.name)))
            .collect();
        drop(state);
        self.has_read.notify_all();
        for (watcher, offers) in told {
            (watcher.lock().unwrap_or_else(PoisonError::into_inner))(offers);
        }
    }

    /// Notes that changes are not noticed from now on.
    pub(crate) fn lose(&self, why: String) {
        let mut state = self.state();
        (state.is_current, state.trouble) = (false, Some(why));
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
        let state = self.state();
        let is_waiting = |state: &mut State| state.heard.is_none();
        let waited = self.has_read.wait_timeout_while(state, limit, is_waiting);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let Some(heard) = state.heard else {
            let why = state.trouble.clone();
            return Err(why.unwrap_or_else(|| "the cluster has not answered yet".to_owned()));
        };
        let age = (!state.is_current).then(|| heard.elapsed());
        Ok((get(&state.known), age))
    }

    /// Begins a watch: tells `watcher` what is known. Returns the number of the watch.
    pub(crate) fn watch(&self, name: &str, watcher: Watcher) -> u64 {
        let watcher = Arc::new(Mutex::new(watcher));
        let own = Arc::clone(&watcher);
        // A change that comes now waits for this lock, so the watcher is told what is known first.
        let mut first = own.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.watching.push(Watching { number, name: name.to_owned(), watcher });
        let offers = state.known.offers(name);
        drop(state);
        first(offers);
        number
    }

    /// Ends a watch. When this function returns, the watcher does not run any more, unless it has called this
    /// function.
    pub(crate) fn unwatch(&self, number: u64) {
        let mut state = self.state();
        let at = state.watching.iter().position(|one| one.number == number);
        let ended = at.map(|at| state.watching.swap_remove(at));
        drop(state);
        let own = *self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if own != Some(thread::current().id())
            && let Some(ended) = &ended
        {
            drop(ended.watcher.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Returns why changes are not noticed now.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.state().trouble.clone()
    }

    /// Takes one answer of a watch.
    pub(crate) fn take(&self, answer: &Value) {
        self.learn(|known| known.change(answer));
    }
}

/// Returns what is known with its age.
pub(crate) fn aged((mut offers, age): (Offers, Option<Duration>)) -> Offers {
    offers.age = age;
    offers
}
