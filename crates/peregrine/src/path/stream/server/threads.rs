//! The threads that serve TCP connections: a bounded number.
//!
//! A connection that is active has a thread, which sleeps in receiving; one that is not is watched by
//! the keeper. Procedures that run are bounded by [`Admission`] rather than by threads: a thread that
//! waits for the next call of its connection keeps nobody from running one.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::connections::ServerConnection;
use super::{Attended, StreamWorker};
use crate::call::{Refusal, Wait};
use crate::counters::{Counting, Page, ThreadKind};
use crate::limits;
use crate::serving::ServerCore;
use crate::serving::admission::{Admission, LINGER};
use crate::serving::faults::Faults;
use crate::serving::stop::Drain;
use crate::sync::{Condvar, Mutex, MutexGuard, Rank};

/// Threads that may wait for calls, however few of those may run.
const READERS_MIN: usize = 16;

/// What its threads are called.
const THREAD: &str = "peregrine-stream";

pub(super) struct StreamThreads {
    state: Mutex<State>,
    /// A connection was queued, or the server stops.
    came: Condvar,
    pub(super) admission: Arc<Admission>,
    /// Calls that have come and are not answered.
    calls: AtomicUsize,
    /// Whether connections wait for a thread.
    hungry: AtomicBool,
    pub(super) wait: Wait,
    page: Arc<Page>,
    faults: Arc<Faults>,
}

/// A visit to a connection; dropped only if it panics.
struct Unwinds<'a>(&'a ServerConnection);

impl Drop for Unwinds<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[derive(Default)]
struct State {
    queue: VecDeque<Arc<ServerConnection>>,
    threads: usize,
    /// Threads that wait for a connection.
    idle: usize,
}

impl StreamThreads {
    pub(super) fn new(core: &Arc<ServerCore>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::ranked(Rank::Threads, State::default()),
            came: Condvar::new(),
            admission: core.admission(),
            calls: AtomicUsize::new(0),
            hungry: AtomicBool::new(false),
            wait: core.threads.wait,
            page: core.page(),
            faults: Arc::clone(&core.faults),
        })
    }

    #[track_caller]
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    // Threads.

    /// A thread will attend to the connection.
    pub(super) fn enqueue(self: &Arc<Self>, connection: Arc<ServerConnection>) {
        let mut state = self.state();
        state.queue.push_back(connection);
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
            return unserved.iter().for_each(|connection| connection.end());
        }
        if state.queue.len() > state.idle {
            state.threads += 1;
        }
    }

    /// Starts a thread if one more may be; false if not.
    fn may_start(&self, state: &State, start: impl FnOnce() -> bool) -> bool {
        // Those whose call waits to run do not count: they bound the queue. Nor do calls from inside
        // that run beyond the bound: the next call of which all of them wait may come on this connection.
        let elsewhere = self.admission.waiting() + self.admission.excess();
        let reading = state.threads.saturating_sub(elsewhere);
        let most = self.admission.running_max();
        reading < most + most.clamp(READERS_MIN, limits::READERS_MAX) && start()
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
        let threads = Arc::clone(self);
        let thread = std::thread::Builder::new().name(THREAD.into());
        thread.spawn(move || threads.faults.restart_on_panic(THREAD, || threads.run())).map(drop)
    }

    fn run(self: &Arc<Self>) {
        let counting = Counting::new(&self.page, ThreadKind::Stream);
        let mut worker = StreamWorker::new(counting);
        while let Some(connection) = self.next(&mut worker) {
            // If this panics, the clients must not wait for the answers that nobody will send.
            let unwinds = Unwinds(&connection);
            if ServerConnection::attend(&connection, &mut worker) == Attended::Ended {
                connection.end();
            }
            core::mem::forget(unwinds);
        }
    }

    /// The next connection; `None` if the thread is to end.
    fn next(&self, worker: &mut StreamWorker) -> Option<Arc<ServerConnection>> {
        let mut state = self.state();
        loop {
            if let Some(connection) = state.queue.pop_front() {
                self.hungry.store(state.queue.len() > state.idle, Ordering::Release);
                return Some(connection);
            }
            self.hungry.store(false, Ordering::Release);
            if self.admission.is_stopping() {
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
            let (back, slept) = self.came.wait_timeout(state, LINGER);
            state = back;
            state.idle -= 1;
            if slept && state.queue.is_empty() {
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

    /// Returns the number of threads.
    pub(super) fn count(&self) -> usize {
        self.state().threads
    }

    // Calls.

    /// Waits until one call more may run; is it to wait, `waits` is done first.
    pub(super) fn begin(
        self: &Arc<Self>,
        nested: bool,
        waits: &mut dyn FnMut() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        self.admission.begin(nested, waits)?;
        if self.is_hungry() && (nested || self.admission.has_captured()) {
            self.feed();
        }
        Ok(())
    }

    /// A call has come; it will be answered, whether it runs or not.
    pub(super) fn called(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn answered(&self) {
        self.calls.fetch_sub(1, Ordering::SeqCst);
        if self.admission.is_stopping() {
            self.admission.notify();
        }
    }

    /// Lets no call begin any more.
    pub(super) fn refuse(&self) {
        self.admission.stop();
        drop(self.state());
        self.came.notify_all();
    }

    /// Waits until the calls that run are answered. Returns false if some were not when the drain was
    /// over.
    pub(super) fn drain(&self, drain: &Drain) -> bool {
        self.admission.drain(drain, || self.calls.load(Ordering::SeqCst) == 0)
    }
}
