//! The threads that serve TCP connections, and the queue of connections that wait for a thread.
//!
//! Each active connection has a thread, which sleeps in the kernel until the next call arrives. The keeper,
//! the background thread of the process, watches the inactive connections. [`Admission`] bounds the number of
//! procedures that run, and not the number of threads. So a thread that waits for a call does not prevent
//! another thread from running a procedure.

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
use crate::serving::spares::Spares;
use crate::serving::stop::Drain;
use crate::sync::{Condvar, Mutex, MutexGuard, Rank};

/// The smallest value of the bound on threads that wait for calls. This value applies if fewer than
/// `READERS_MIN` procedures may run at a time.
const READERS_MIN: usize = 16;

/// The name of each thread that serves TCP connections.
const THREAD: &str = "peregrine-stream";

pub(super) struct StreamThreads {
    state: Mutex<State>,
    /// Notified when a connection is queued, or when the server stops.
    work_ready: Condvar,
    pub(super) admission: Arc<Admission>,
    /// The number of calls that have arrived and have no reply yet.
    calls: AtomicUsize,
    /// Whether connections wait for a thread.
    hungry: AtomicBool,
    pub(super) wait: Wait,
    page: Arc<Page>,
    faults: Arc<Faults>,
}

/// Ends a connection if the thread that attends to it panics.
struct Unwinds<'a>(&'a ServerConnection);

impl Drop for Unwinds<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// What a thread does for a connection.
pub(super) enum Work {
    /// The thread receives and serves calls.
    Receive(Arc<ServerConnection>),
    /// The thread sends replies to deferred calls, and may wait for the client.
    Send(Arc<ServerConnection>),
}

impl Work {
    const fn connection(&self) -> &Arc<ServerConnection> {
        match self {
            Self::Receive(connection) | Self::Send(connection) => connection,
        }
    }
}

#[derive(Default)]
struct State {
    queue: VecDeque<Work>,
    threads: usize,
    /// The number of threads that wait for a connection.
    idle: usize,
    spares: Spares,
}

impl StreamThreads {
    pub(super) fn new(core: &Arc<ServerCore>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::ranked(Rank::Threads, State::default()),
            work_ready: Condvar::new(),
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

    /// Queues a connection for a thread.
    pub(super) fn enqueue(self: &Arc<Self>, work: Work) {
        let mut state = self.state();
        state.queue.push_back(work);
        if state.idle > 0 {
            self.work_ready.notify_one();
        }
        if state.queue.len() > state.idle && !self.may_start(&state, || self.start().is_ok()) {
            if state.threads > 0 {
                self.hungry.store(true, Ordering::Release);
                return;
            }
            // There is no thread, and no thread can be started. So nothing can serve this connection.
            let unserved = state.queue.pop_back();
            drop(state);
            return unserved.iter().for_each(|work| work.connection().end());
        }
        if state.queue.len() > state.idle {
            state.threads += 1;
        }
    }

    /// Starts a thread if the bound allows it. Returns whether a thread was started.
    fn may_start(&self, state: &State, start: impl FnOnce() -> bool) -> bool {
        // Threads whose calls wait for a permit do not count, because the queue for permits is bounded.
        // Threads that run nested calls beyond the bound of procedures do not count either. If these threads
        // counted, all threads could wait for a call that arrives on a queued connection. Then no further
        // thread would start to receive that call.
        let elsewhere = self.admission.waiting() + self.admission.excess();
        let reading = state.threads.saturating_sub(elsewhere);
        let most = self.admission.running_max();
        reading < most + most.clamp(READERS_MIN, limits::READERS_MAX) && start()
    }

    /// Starts another thread if connections wait for a thread. Called after a call was admitted beyond the
    /// bound of running procedures.
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
        while let Some(work) = self.next(&mut worker) {
            // If the thread panics while it attends to the connection, `unwinds` ends the connection.
            // Otherwise the client would wait for replies that are never sent.
            let unwinds = Unwinds(work.connection());
            match &work {
                Work::Receive(connection) => {
                    if ServerConnection::attend(connection, &mut worker) == Attended::Ended {
                        connection.end();
                    }
                }
                Work::Send(connection) => ServerConnection::send_unsent(connection),
            }
            core::mem::forget(unwinds);
        }
    }

    /// Returns the next connection that waits for a thread, or `None` if the calling thread must end.
    fn next(&self, worker: &mut StreamWorker) -> Option<Work> {
        let mut state = self.state();
        loop {
            if let Some(work) = state.queue.pop_front() {
                self.hungry.store(state.queue.len() > state.idle, Ordering::Release);
                return Some(work);
            }
            self.hungry.store(false, Ordering::Release);
            if self.admission.is_stopping() {
                break;
            }
            drop(state);
            // A sleeping thread must not keep exported objects alive.
            worker.forget();
            state = self.state();
            if !state.queue.is_empty() {
                continue;
            }
            let State { idle, spares, .. } = &mut *state;
            if spares.must_end(*idle) {
                break;
            }
            state.idle += 1;
            let (back, slept) = self.work_ready.wait_timeout(state, LINGER);
            state = back;
            let State { idle, spares, .. } = &mut *state;
            *idle -= 1;
            spares.note_idle(*idle);
            if slept && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
        None
    }

    /// Returns whether connections wait for a thread. While this is true, each thread leaves its connection
    /// after the next call, and then serves a waiting connection.
    pub(super) fn is_hungry(&self) -> bool {
        self.hungry.load(Ordering::Acquire)
    }

    /// Returns the number of threads.
    pub(super) fn count(&self) -> usize {
        self.state().threads
    }

    // Calls.

    /// Waits until one more call may run. If a wait is necessary, first calls `waits`.
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

    /// Notes that a call has arrived. Each call gets a reply, even if it does not run.
    pub(super) fn called(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn answered(&self) {
        self.calls.fetch_sub(1, Ordering::SeqCst);
        if self.admission.is_stopping() {
            self.admission.notify();
        }
    }

    /// Refuses all calls that have not begun.
    pub(super) fn refuse(&self) {
        self.admission.stop();
        drop(self.state());
        self.work_ready.notify_all();
    }

    /// Waits until every call has its reply. Returns false if a call still has no reply when the time for
    /// draining ends.
    pub(super) fn drain(&self, drain: &Drain) -> bool {
        self.admission.drain(drain, || self.calls.load(Ordering::SeqCst) == 0)
    }
}
