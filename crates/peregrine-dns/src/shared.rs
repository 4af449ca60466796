//! What the threads of a program and the thread of the directory share: what is known of each name, and whose
//! watches are to be notified of changes.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use peregrine::directory::{Offers, Watcher};
use tokio::sync::Notify;

use crate::chance::{Pause, fraction};
use crate::found::Found;
use crate::round::{Answers, Round};

/// The number of names whose answers a process keeps. Names that are watched are kept in any case.
const NAMES_MAX: usize = 1024;
/// The maximum time between the end of an answer and the next question for a watch.
const JITTER_MAX: Duration = Duration::from_secs(10);

/// How long the end of a watch waits for a watcher that runs.
const END_LIMIT: Duration = Duration::from_secs(1);

/// A watch of one name.
pub(crate) struct Watching {
    number: u64,
    calls: Mutex<Calls>,
    /// Notified when the watcher has returned.
    has_returned: Condvar,
}

/// The calls of a watcher.
struct Calls {
    /// `None` while it runs, and after the end of the watch.
    watcher: Option<Watcher>,
    /// The thread that runs the watcher now.
    runs_on: Option<ThreadId>,
    /// What the watcher must be called with next.
    next: Option<Offers>,
    /// Whether a thread calls the watcher, or will soon.
    has_thread: bool,
    has_ended: bool,
    /// Whether the last call panicked.
    has_panicked: bool,
}

/// What is known of a name.
struct Name {
    /// The answers of the last round.
    answers: Answers,
    /// What the last round has found. `None`: there was no round. An error says why nothing is known.
    found: Option<Result<Found, String>>,
    /// What the last round has found that did not fail. The watches know it.
    last: Option<Found>,
    /// When the oldest answer came.
    oldest: Option<Instant>,
    /// When the oldest answer came that is used although it is not valid any more.
    stale: Option<Instant>,
    /// Why there is no new answer.
    trouble: Option<String>,
    /// No question is asked before this time.
    due: Instant,
    /// When the next question is asked for watches.
    due_for_watches: Instant,
    pause: Pause,
    /// The number of rounds.
    rounds: u64,
    /// Whether a look-up waits for a round.
    is_wanted: bool,
    /// Whether a task asks for this name, or waits until it must.
    has_task: bool,
    /// Wakes this task.
    wakes: Arc<Notify>,
    watching: Vec<Arc<Watching>>,
    /// The last look-up.
    used: Instant,
}

impl Name {
    fn new(now: Instant) -> Self {
        Self {
            answers: Answers::default(),
            found: None,
            last: None,
            oldest: None,
            stale: None,
            trouble: None,
            due: now,
            due_for_watches: now,
            pause: Pause::new(),
            rounds: 0,
            is_wanted: false,
            has_task: false,
            wakes: Arc::default(),
            watching: Vec::new(),
            used: now,
        }
    }

    /// Returns what is known. With `silent`, the name server has not answered yet, for this reason.
    fn known(&self, silent: Option<&str>) -> Option<Result<Offers, String>> {
        let found = match self.found.as_ref()? {
            Ok(found) => found,
            Err(why) => return Some(Err(why.clone())),
        };
        let mut offers = found.offers();
        let since = match silent {
            None => self.stale,
            Some(_) => self.oldest,
        };
        if let Some(since) = since {
            offers.age = Some(since.elapsed());
            let why = silent.or(self.trouble.as_deref()).unwrap_or("there is no new answer");
            offers.remark(&format!("this is the last answer of DNS: {why}"));
        }
        Some(Ok(offers))
    }
}

#[derive(Default)]
struct State {
    names: HashMap<String, Name>,
    /// The number of the next watch.
    next: u64,
}

impl State {
    /// Returns what is known of a name, which may be new. Forgets another name if there are too many.
    fn name(&mut self, name: &str) -> &mut Name {
        if !self.names.contains_key(name) && self.names.len() >= NAMES_MAX {
            let unused = self.names.iter().filter(|(_, one)| !one.has_task);
            let oldest = unused.min_by_key(|(_, one)| one.used).map(|(name, _)| name.clone());
            oldest.map(|oldest| self.names.remove(&oldest));
        }
        self.names.entry(name.to_owned()).or_insert_with(|| Name::new(Instant::now()))
    }
}

/// What the task of a name does next.
pub(crate) enum Next {
    /// Asks. These are the answers of the last round.
    Ask(Answers),
    /// Waits until this time, or until it is woken.
    Wait(Instant, Arc<Notify>),
    /// Ends.
    End,
}

/// What is known, and the watches.
#[derive(Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Notified after each round.
    has_asked: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is known of a name. If answers are not valid any more, waits for new ones: at most
    /// `limit`, or `stale_limit` if there are old ones. `begin` begins the task of the name.
    ///
    /// # Errors
    /// Why nothing is known.
    pub(crate) fn look_up(
        &self,
        name: &str,
        limit: Duration,
        stale_limit: Duration,
        begin: impl FnOnce(),
    ) -> Result<Offers, String> {
        let mut state = self.state();
        let one = state.name(name);
        one.used = Instant::now();
        if Instant::now() < one.due
            && let Some(known) = one.known(None)
        {
            return known;
        }
        let rounds = one.rounds;
        let limit = if matches!(one.found, Some(Ok(_))) { stale_limit } else { limit };
        // The caller may wait while a round is under way. Then this is the round that it wants.
        one.is_wanted = true;
        if one.has_task {
            one.wakes.notify_one();
        } else {
            one.has_task = true;
            begin();
        }
        let is_waiting = |state: &mut State| {
            // A name with a task is not forgotten.
            state.names.get(name).is_some_and(|one| one.rounds == rounds)
        };
        let waited = self.has_asked.wait_timeout_while(state, limit, is_waiting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        const SILENT: &str = "the name server has not answered yet";
        let one = state.name(name);
        let silent = (one.rounds == rounds).then_some(SILENT);
        one.known(silent).unwrap_or_else(|| Err(SILENT.to_owned()))
    }

    /// Returns what the task of a name does next.
    pub(crate) fn next(&self, name: &str) -> Next {
        let mut state = self.state();
        let Some(one) = state.names.get_mut(name) else { return Next::End };
        let now = Instant::now();
        let is_watched = !one.watching.is_empty();
        if (one.is_wanted && now >= one.due) || (is_watched && now >= one.due_for_watches) {
            return Next::Ask(core::mem::take(&mut one.answers));
        }
        // What was wanted is known meanwhile.
        one.is_wanted = false;
        if is_watched {
            return Next::Wait(one.due_for_watches, Arc::clone(&one.wakes));
        }
        one.has_task = false;
        Next::End
    }

    /// Takes what a round has found. Returns the watches that must be notified, and of what.
    pub(crate) fn take(&self, name: &str, round: Round) -> Vec<(Arc<Watching>, Offers)> {
        let mut state = self.state();
        let Some(one) = state.names.get_mut(name) else { return Vec::new() };
        let now = Instant::now();
        let is_changed = round.found.as_ref().is_ok_and(|found| Some(found) != one.last.as_ref());
        if is_changed {
            one.last = round.found.as_ref().ok().cloned();
        }
        one.found = Some(round.found);
        one.oldest = round.answers.kept.values().map(|kept| kept.came).min();
        (one.answers, one.stale, one.trouble) = (round.answers, round.stale, round.trouble);
        (one.due, one.due_for_watches) = match (&one.trouble, round.until) {
            (None, until) => {
                one.pause.reset();
                let due = until.unwrap_or(now).max(now + Pause::SHORTEST);
                let spread = (due - now).div_f64(10.0).min(JITTER_MAX);
                (due, due + spread.mul_f64(fraction()))
            }
            (Some(_), _) => {
                let due = now + one.pause.next();
                (due, due)
            }
        };
        one.rounds += 1;
        one.is_wanted = false;
        let told = match &one.last {
            Some(found) if is_changed => {
                let all = one.watching.iter();
                all.map(|watching| (Arc::clone(watching), found.offers())).collect()
            }
            _ => Vec::new(),
        };
        drop(state);
        self.has_asked.notify_all();
        told
    }

    /// Notes that the task of a name has panicked, and will go on.
    pub(crate) fn fail(&self, name: &str) {
        let mut state = self.state();
        let Some(one) = state.names.get_mut(name) else { return };
        let why = "a defect of this program: the task that asks for the name panicked".to_owned();
        if !matches!(one.found, Some(Ok(_))) {
            one.found = Some(Err(why.clone()));
        }
        one.stale = one.stale.or(one.oldest);
        one.trouble = Some(why);
        one.due = Instant::now() + one.pause.next();
        one.due_for_watches = one.due;
        one.rounds += 1;
        one.is_wanted = false;
        drop(state);
        self.has_asked.notify_all();
    }

    /// Begins a watch: passes to `watcher` what is known. Returns the number of the watch. `begin` begins the
    /// task of the name.
    pub(crate) fn watch(&self, name: &str, mut watcher: Watcher, begin: impl FnOnce()) -> u64 {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        // A change that comes now waits, because the watcher counts as running. So it first sees what is known now.
        let calls = Calls {
            watcher: None,
            runs_on: Some(thread::current().id()),
            next: None,
            has_thread: false,
            has_ended: false,
            has_panicked: false,
        };
        let has_returned = Condvar::new();
        let watching = Arc::new(Watching { number, calls: Mutex::new(calls), has_returned });
        let one = state.name(name);
        one.watching.push(Arc::clone(&watching));
        let known = one.known(None).and_then(Result::ok);
        let offers = known.or_else(|| one.last.as_ref().map(Found::offers)).unwrap_or_default();
        if one.has_task {
            one.wakes.notify_one();
        } else {
            one.has_task = true;
            begin();
        }
        drop(state);
        let called = catch_unwind(AssertUnwindSafe(|| watcher(offers)));
        if let Err(panic) = called {
            self.unwatch(name, number);
            resume_unwind(panic);
        }
        watching.put_back(watcher, false);
        number
    }

    /// Ends a watch. When this function returns, the watcher does not run any more, unless it has called this
    /// function, or takes longer than [`END_LIMIT`].
    pub(crate) fn unwatch(&self, name: &str, number: u64) {
        let mut state = self.state();
        let Some(one) = state.names.get_mut(name) else { return };
        let at = one.watching.iter().position(|one| one.number == number);
        let ended = at.map(|at| one.watching.swap_remove(at));
        one.wakes.notify_one();
        drop(state);
        if let Some(ended) = ended {
            ended.end();
        }
    }

    /// Returns why a watch of a name does not work now.
    pub(crate) fn trouble(&self, name: &str, number: u64) -> Option<String> {
        let state = self.state();
        let one = state.names.get(name)?;
        let watching = one.watching.iter().find(|one| one.number == number).cloned();
        let trouble = one.trouble.clone();
        drop(state);
        let panicked = || watching.is_some_and(|one| one.calls().has_panicked);
        trouble.or_else(|| panicked().then(|| "the watcher panicked".to_owned()))
    }
}

impl Watching {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what the watcher must be called with. If it is called with something else first, it only sees the
    /// last state. Returns whether a thread must call [`run`](Self::run).
    pub(crate) fn note(&self, offers: Offers) -> bool {
        let mut calls = self.calls();
        calls.next = Some(offers);
        !core::mem::replace(&mut calls.has_thread, true)
    }

    /// Calls the watcher until it knows the last state, or the watch has ended.
    pub(crate) fn run(&self) {
        loop {
            let runs = |calls: &mut Calls| calls.watcher.is_none() && !calls.has_ended;
            let waited = self.has_returned.wait_while(self.calls(), runs);
            let mut calls = waited.unwrap_or_else(PoisonError::into_inner);
            let next = calls.next.take().filter(|_| !calls.has_ended);
            let Some((offers, mut watcher)) = next.and_then(|next| {
                let watcher = calls.watcher.take()?;
                Some((next, watcher))
            }) else {
                calls.has_thread = false;
                return;
            };
            calls.runs_on = Some(thread::current().id());
            drop(calls);
            let called = catch_unwind(AssertUnwindSafe(|| watcher(offers)));
            self.put_back(watcher, called.is_err());
        }
    }

    /// Notes that the watcher has returned.
    fn put_back(&self, watcher: Watcher, has_panicked: bool) {
        let mut calls = self.calls();
        (calls.runs_on, calls.has_panicked) = (None, has_panicked);
        let ended = match calls.has_ended {
            true => Some(watcher),
            false => calls.watcher.replace(watcher),
        };
        drop(calls);
        self.has_returned.notify_all();
        // Dropping a watcher may run code of the program.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(ended)));
    }

    /// Ends the calls. Waits for the watcher if it runs on another thread, but at most for [`END_LIMIT`].
    fn end(&self) {
        let mut calls = self.calls();
        calls.has_ended = true;
        let watcher = calls.watcher.take();
        let own = thread::current().id();
        let runs = |calls: &mut Calls| calls.runs_on.is_some_and(|thread| thread != own);
        drop(self.has_returned.wait_timeout_while(calls, END_LIMIT, runs));
        // A change that comes now finds that the watch has ended.
        self.has_returned.notify_all();
        drop(watcher);
    }
}
