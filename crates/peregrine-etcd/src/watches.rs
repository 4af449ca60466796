//! The watches of names, and the thread that calls the watchers.
//!
//! Watchers run on a thread of their own. A watcher that waits delays other watchers of the same directory,
//! but no registration and no look-up. If a name changes several times before its watcher can run, the
//! watcher is called once, with what is known then, so that nothing grows.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use peregrine::directory::{Offers, Watcher};

/// How long the end of a watch waits for a watcher that runs.
const END_LIMIT: Duration = Duration::from_secs(1);

/// A watch of one name.
struct Watching {
    number: u64,
    name: String,
    /// `None` while it runs.
    watcher: Option<Watcher>,
    /// Whether the name has changed since the last call.
    is_due: bool,
    /// Whether the last call panicked.
    has_panicked: bool,
}

#[derive(Default)]
struct State {
    all: Vec<Watching>,
    next: u64,
    /// The thread, while it runs.
    thread: Option<ThreadId>,
}

impl State {
    fn of(&mut self, number: u64) -> Option<&mut Watching> {
        self.all.iter_mut().find(|one| one.number == number)
    }
}

/// All watches of a directory.
#[derive(Default)]
pub(crate) struct Watches {
    state: Mutex<State>,
    /// Notified when a watch is due, and when a watcher has returned.
    changed: Condvar,
}

impl Watches {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a watch, and calls the watcher with what `get` returns. Starts the thread by `start` if it does
    /// not run. Returns the number of the watch.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn begin(
        &self,
        name: &str,
        mut watcher: Watcher,
        get: impl FnOnce() -> Offers,
        start: impl FnOnce() -> std::io::Result<ThreadId>,
    ) -> std::io::Result<u64> {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        // It counts as running, so that the thread does not call it before this thread has.
        state.all.push(Watching {
            number,
            name: name.to_owned(),
            watcher: None,
            is_due: false,
            has_panicked: false,
        });
        if state.thread.is_none() {
            match start() {
                Ok(thread) => state.thread = Some(thread),
                Err(error) => {
                    state.all.retain(|one| one.number != number);
                    return Err(error);
                }
            }
        }
        drop(state);
        let called = catch_unwind(AssertUnwindSafe(|| watcher(get())));
        if let Err(panic) = called {
            self.state().all.retain(|one| one.number != number);
            self.changed.notify_all();
            resume_unwind(panic);
        }
        self.put_back(number, watcher, false);
        Ok(number)
    }

    fn put_back(&self, number: u64, watcher: Watcher, has_panicked: bool) {
        let mut state = self.state();
        let ended = match state.of(number) {
            Some(one) => {
                (one.watcher, one.has_panicked) = (Some(watcher), has_panicked);
                None
            }
            None => Some(watcher),
        };
        drop(state);
        self.changed.notify_all();
        // Dropping a watcher may run code of the program.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(ended)));
    }

    /// Lets the watchers of these names be called.
    pub(crate) fn changed(&self, names: &BTreeSet<String>) {
        let mut state = self.state();
        state.all.iter_mut().for_each(|one| one.is_due |= names.contains(&one.name));
        drop(state);
        self.changed.notify_all();
    }

    /// Calls the watchers that are due, until there is no watch.
    pub(crate) fn run(&self, get: impl Fn(&str) -> Offers) {
        let mut state = self.state();
        loop {
            if state.all.is_empty() {
                state.thread = None;
                return;
            }
            let due = state.all.iter_mut().find(|one| one.is_due && one.watcher.is_some());
            let Some((one, mut watcher)) = due.and_then(|one| {
                let watcher = one.watcher.take()?;
                Some((one, watcher))
            }) else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            one.is_due = false;
            let (number, name) = (one.number, one.name.clone());
            drop(state);
            let called = catch_unwind(AssertUnwindSafe(|| watcher(get(&name))));
            self.put_back(number, watcher, called.is_err());
            state = self.state();
        }
    }

    /// Ends a watch. If its watcher runs at this time, waits until it has returned, but at most a second, and
    /// not if the watcher itself ends the watch.
    pub(crate) fn end(&self, number: u64) {
        let mut state = self.state();
        let is_own_thread = state.thread == Some(thread::current().id());
        if !is_own_thread {
            let runs =
                |state: &mut State| state.of(number).is_some_and(|one| one.watcher.is_none());
            let waited = self.changed.wait_timeout_while(state, END_LIMIT, runs);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let at = state.all.iter().position(|one| one.number == number);
        let ended = at.map(|at| state.all.swap_remove(at));
        drop(state);
        self.changed.notify_all();
        drop(ended);
    }

    /// Returns whether the last call of a watcher panicked.
    pub(crate) fn has_panicked(&self, number: u64) -> bool {
        self.state().of(number).is_some_and(|one| one.has_panicked)
    }
}
