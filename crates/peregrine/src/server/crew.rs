//! The crew: a bounded number of threads that serve network connections, and of calls that run.
//!
//! A connection that is active has a thread, which sleeps in receiving; one that is not is watched by
//! the keeper. Procedures that run are bounded by permits rather than by threads: a thread that waits
//! for the next call of its connection keeps nobody from running one.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::faults::Faults;
use super::network::Line;
use super::pool::stopping;
use super::stop::Drain;
use crate::call::chain::waiting_inside;
use crate::call::{Refusal, Wait};
use crate::counters::{Counting, Page, ThreadKind};
use crate::error::Kind;
use crate::limits;
use crate::path::stream::{Attended, StreamWorker};
use crate::sync::{Condvar, Mutex, MutexGuard, Rank};

/// How long a thread without a connection stays before it ends.
const LINGER: Duration = Duration::from_secs(5);
/// Threads that may wait for calls, however few of those may run.
const READERS_MIN: usize = 16;

/// What its threads are called.
const THREAD: &str = "peregrine-stream";

pub(super) struct Crew {
    state: Mutex<State>,
    /// A connection was queued, or the crew stops.
    came: Condvar,
    /// A call has ended while others wait to begin, or the crew stops, or was told to and a call was
    /// answered.
    room: Condvar,
    /// Calls that have come and are not answered.
    calls: AtomicUsize,
    /// Calls that run.
    running: AtomicUsize,
    /// Those of them that their callers have given up.
    captured: AtomicUsize,
    /// Calls that wait to run.
    waiting: AtomicUsize,
    /// Whether connections wait for a thread.
    hungry: AtomicBool,
    stopping: AtomicBool,
    running_max: usize,
    waiting_max: usize,
    pub(super) wait: Wait,
    page: Arc<Page>,
    faults: Arc<Faults>,
}

/// A visit to a connection; dropped only if it panics.
struct Unwinds<'a>(&'a Line);

impl Drop for Unwinds<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[derive(Default)]
struct State {
    queue: VecDeque<Arc<Line>>,
    threads: usize,
    /// Threads that wait for a connection.
    idle: usize,
}

impl Crew {
    pub(super) fn new(
        running_max: usize,
        waiting_max: usize,
        wait: Wait,
        page: Arc<Page>,
        faults: Arc<Faults>,
    ) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::ranked(Rank::Threads, State::default()),
            came: Condvar::new(),
            room: Condvar::new(),
            calls: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            captured: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            hungry: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            running_max,
            waiting_max,
            wait,
            page,
            faults,
        })
    }

    #[track_caller]
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Threads.

    /// A thread will attend to the connection.
    pub(super) fn enqueue(self: &Arc<Self>, line: Arc<Line>) {
        let mut state = self.state();
        state.queue.push_back(line);
        if state.idle > 0 {
            self.came.notify_one();
        }
        if state.queue.len() > state.idle && !self.may_start(&state, || self.start().is_ok()) {
            if state.threads > 0 {
                self.hungry.store(true, Ordering::Release);
                return;
            }
            // There is no thread and none can be had: nobody would ever come.
            let unserved = state.queue.pop_back();
            drop(state);
            return unserved.iter().for_each(|line| line.end());
        }
        if state.queue.len() > state.idle {
            state.threads += 1;
        }
    }

    /// Starts a thread if one more may be; false if not.
    fn may_start(&self, state: &State, start: impl FnOnce() -> bool) -> bool {
        // Those whose call waits to run do not count: they bound the queue. Nor do calls from inside
        // that run beyond the bound: the next call of which all of them wait may come on this line.
        let waiting = self.waiting.load(Ordering::SeqCst);
        let beyond = self.running.load(Ordering::SeqCst).saturating_sub(self.running_max);
        let reading = state.threads.saturating_sub(waiting + beyond);
        reading < self.running_max + self.running_max.max(READERS_MIN) && start()
    }

    /// A thread has gone to run a call beyond the bound, and connections wait for one.
    #[cold]
    fn feed(self: &Arc<Self>) {
        let mut state = self.state();
        if state.queue.len() > state.idle && self.may_start(&state, || self.start().is_ok()) {
            state.threads += 1;
        }
    }

    fn start(self: &Arc<Self>) -> io::Result<()> {
        let crew = Arc::clone(self);
        let thread = std::thread::Builder::new().name(THREAD.into());
        thread.spawn(move || crew.faults.outlive(THREAD, || crew.run())).map(drop)
    }

    fn run(self: &Arc<Self>) {
        let counting = Counting::new(&self.page, ThreadKind::Stream);
        let mut worker = StreamWorker::new(counting);
        while let Some(line) = self.next(&mut worker) {
            // If this panics, the clients must not wait for the answers that nobody will send.
            let unwinds = Unwinds(&line);
            if Line::attend(&line, &mut worker) == Attended::Ended {
                line.end();
            }
            core::mem::forget(unwinds);
        }
    }

    /// The next connection; `None` if the thread is to end.
    fn next(&self, worker: &mut StreamWorker) -> Option<Arc<Line>> {
        let mut state = self.state();
        loop {
            if let Some(line) = state.queue.pop_front() {
                self.hungry.store(state.queue.len() > state.idle, Ordering::Release);
                return Some(line);
            }
            self.hungry.store(false, Ordering::Release);
            if self.is_stopping() {
                break;
            }
            drop(state);
            // Exported objects live no longer because of a thread that sleeps.
            worker.forget();
            state = self.state();
            if !state.queue.is_empty() {
                continue;
            }
            state.idle += 1;
            let (back, slept) =
                self.came.wait_timeout(state, LINGER).unwrap_or_else(PoisonError::into_inner);
            state = back;
            state.idle -= 1;
            if slept.timed_out() && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
        None
    }

    /// Whether connections wait for a thread: those that have one let it go after each call.
    pub(super) fn is_hungry(&self) -> bool {
        self.hungry.load(Ordering::Acquire)
    }

    /// Calls that wait to run.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Threads that there are.
    pub(super) fn threads(&self) -> usize {
        self.state().threads
    }

    // Permits.

    /// Waits until one call more may run; is it to wait, `waits` is done first.
    pub(super) fn begin(
        self: &Arc<Self>,
        from_inside: bool,
        waits: &mut dyn FnMut() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        if self.is_stopping() || !self.try_begin(from_inside) {
            waits()?;
            self.begin_slowly(from_inside)?;
        }
        if self.is_hungry() && (from_inside || self.captured.load(Ordering::SeqCst) > 0) {
            self.feed();
        }
        Ok(())
    }

    fn try_begin(&self, from_inside: bool) -> bool {
        // A call from inside runs beyond the bound, but no more of them than there are threads
        // inside: anybody can say where a call comes from.
        let beyond = if from_inside { waiting_inside() as usize } else { 0 };
        // Those who have been given up are replaced.
        let replaced = self.captured.load(Ordering::SeqCst).min(limits::REPLACED_MAX);
        let most = self.running_max + replaced + beyond;
        let one_more = |running| (running < most).then_some(running + 1);
        self.running.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok()
    }

    #[cold]
    fn begin_slowly(&self, from_inside: bool) -> Result<(), Refusal> {
        let mut state = self.state();
        // SYNC: permits. We say that we wait, then look; who ends a call says that first, and then
        // looks whether anybody waits.
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= self.waiting_max && !from_inside {
            // What can run at once does not wait.
            let begun = !self.is_stopping() && self.try_begin(false);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return if begun { Ok(()) } else { Err(self.overloaded()) };
        }
        let result = loop {
            if self.is_stopping() {
                break Err(stopping());
            }
            if self.try_begin(from_inside) {
                break Ok(());
            }
            // How many threads are inside changes without a notice.
            let limit = if from_inside { Duration::from_millis(1) } else { LINGER };
            let waited = self.room.wait_timeout(state, limit);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        result
    }

    fn overloaded(&self) -> Refusal {
        if self.is_stopping() {
            return stopping();
        }
        let text = format!("{} calls run, {} wait", self.running_max, self.waiting_max);
        Refusal::new(Kind::Overloaded, text)
    }

    /// A call has ended.
    pub(super) fn end(&self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _state = self.state();
            self.room.notify_all();
        }
    }

    /// So many calls more, or fewer, run although their callers have given them up: as many others
    /// may run beside them.
    pub(super) fn captured(&self, more: usize, fewer: usize) {
        self.captured.fetch_sub(fewer, Ordering::SeqCst);
        // SYNC: permits. As in `end`.
        if more > 0 {
            self.captured.fetch_add(more, Ordering::SeqCst);
            if self.waiting.load(Ordering::SeqCst) > 0 {
                let _state = self.state();
                self.room.notify_all();
            }
        }
    }

    /// A call has come; it will be answered, whether it runs or not.
    pub(super) fn called(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn answered(&self) {
        self.calls.fetch_sub(1, Ordering::SeqCst);
        if self.is_stopping() {
            let _state = self.state();
            self.room.notify_all();
        }
    }

    // Stopping.

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Lets no call begin any more, and waits until those that run are answered; false if some were
    /// not when the drain was over.
    pub(super) fn stop(&self, drain: &Drain) -> bool {
        self.stopping.store(true, Ordering::SeqCst);
        let mut state = self.state();
        self.came.notify_all();
        self.room.notify_all();
        loop {
            if self.calls.load(Ordering::SeqCst) == 0 {
                return true;
            }
            let Some(slice) = drain.slice() else { return false };
            // A call that runs may have begun before it could see that the crew stops: then its end
            // notifies nobody.
            let waited = self.room.wait_timeout(state, slice);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
