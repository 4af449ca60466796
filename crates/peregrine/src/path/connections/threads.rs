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

/// A connection to which threads attend.
pub(in crate::path) trait Attend: Send + Sync + Sized + 'static {
    /// The state of one thread that attends to connections.
    type Worker;

    /// Returns the state of a new thread.
    fn worker(counting: Counting) -> Self::Worker;

    /// Releases what a sleeping thread must not keep, such as references to exported objects.
    fn forget(worker: &mut Self::Worker);

    /// Receives calls from the connection, and runs them on the current thread.
    fn attend(self: &Arc<Self>, worker: &mut Self::Worker) -> Attended;

    /// Sends replies to deferred calls. These replies could not be sent earlier without waiting.
    fn send_unsent(self: &Arc<Self>);

    /// Removes the connection, because it has ended.
    fn end(&self);
}

/// How a thread has left a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::path) enum Attended {
    /// Another thread or the keeper attends to the connection.
    Left,
    /// The connection has ended, and must be removed.
    Ended,
}

/// The threads of the connections of a server.
pub(in crate::path) struct ConnectionThreads<C> {
    state: Mutex<State<C>>,
    /// Notified when a connection is queued, or when the server stops.
    work_ready: Condvar,
    pub(in crate::path) admission: Arc<Admission>,
    /// The number of calls that have arrived and have no reply yet.
    calls: AtomicUsize,
    /// Whether connections wait for a thread.
    hungry: AtomicBool,
    pub(in crate::path) wait: Wait,
    page: Arc<Page>,
    faults: Arc<Faults>,
}

/// Ends a connection if the thread that attends to it panics.
struct Unwinds<'a, C: Attend>(&'a C);

impl<C: Attend> Drop for Unwinds<'_, C> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// What a thread does for a connection.
pub(in crate::path) enum Work<C> {
    /// The thread receives and serves calls.
    Receive(Arc<C>),
    /// The thread sends replies to deferred calls, and may wait for the client.
    Send(Arc<C>),
}

impl<C> Work<C> {
    const fn connection(&self) -> &Arc<C> {
        match self {
            Self::Receive(connection) | Self::Send(connection) => connection,
        }
    }
}

struct State<C> {
    queue: VecDeque<Work<C>>,
    threads: usize,
    /// The number of threads that wait for a connection.
    idle: usize,
    spares: Spares,
}

impl<C: Attend> ConnectionThreads<C> {
    pub(in crate::path) fn new(core: &Arc<ServerCore>) -> Arc<Self> {
        let state =
            State { queue: VecDeque::new(), threads: 0, idle: 0, spares: Spares::default() };
        Arc::new(Self {
            state: Mutex::ranked(Rank::Threads, state),
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
    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock()
    }

    // Threads.

    /// Queues a connection for a thread.
    pub(in crate::path) fn enqueue(self: &Arc<Self>, work: Work<C>) {
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
    fn may_start(&self, state: &State<C>, start: impl FnOnce() -> bool) -> bool {
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
        let mut worker = C::worker(counting);
        while let Some(work) = self.next(&mut worker) {
            // If the thread panics while it attends to the connection, `unwinds` ends the connection.
            // Otherwise the client would wait for replies that are never sent.
            let unwinds = Unwinds(&**work.connection());
            match &work {
                Work::Receive(connection) => {
                    if connection.attend(&mut worker) == Attended::Ended {
                        connection.end();
                    }
                }
                Work::Send(connection) => connection.send_unsent(),
            }
            core::mem::forget(unwinds);
        }
    }

    /// Returns the next connection that waits for a thread, or `None` if the calling thread must end.
    fn next(&self, worker: &mut C::Worker) -> Option<Work<C>> {
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
            C::forget(worker);
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
    pub(in crate::path) fn is_hungry(&self) -> bool {
        self.hungry.load(Ordering::Acquire)
    }

    /// Returns the number of threads.
    pub(in crate::path) fn count(&self) -> usize {
        self.state().threads
    }

    // Calls.

    /// Waits until one more call may run. If the call must wait, this function first calls `waits`.
    pub(in crate::path) fn begin(
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
    pub(in crate::path) fn called(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
    }

    pub(in crate::path) fn answered(&self) {
        self.calls.fetch_sub(1, Ordering::SeqCst);
        if self.admission.is_stopping() {
            self.admission.notify();
        }
    }

    /// Refuses all calls that have not begun.
    pub(in crate::path) fn refuse(&self) {
        self.admission.stop();
        drop(self.state());
        self.work_ready.notify_all();
    }

    /// Waits until every call has its reply. Returns false if a call still has no reply when the time for
    /// draining ends.
    pub(in crate::path) fn drain(&self, drain: &Drain) -> bool {
        self.admission.drain(drain, || self.calls.load(Ordering::SeqCst) == 0)
    }
}
