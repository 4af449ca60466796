//! [`Executor`]: what polls the procedures of async servers, and the built-in executor.

use core::pin::Pin;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::task::Task;
use crate::sync::{Condvar, Mutex};
use crate::sys::{self, PerProcess};

/// Something that runs futures, such as an async runtime.
///
/// An async server polls a procedure for the first time on the thread that received the call. If the
/// procedure does not end at once, its further polls are run by the executor of the server. The built-in
/// executor has a few threads, and suits procedures that wait for other calls, channels and locks. A
/// procedure that uses the timers or sockets of a runtime needs an executor of this runtime: with the feature
/// `tokio`, a `tokio::runtime::Handle` is one.
///
/// ```
/// # use peregrine::Executor;
/// /// Runs each future on a thread of its own.
/// struct Threads;
///
/// impl Executor for Threads {
///     fn spawn(&self, future: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>) {
///         std::thread::spawn(move || {
///             let mut future = future;
///             let waker = std::task::Waker::from(std::sync::Arc::new(Unparks(std::thread::current())));
///             let mut context = std::task::Context::from_waker(&waker);
///             while future.as_mut().poll(&mut context).is_pending() {
///                 std::thread::park();
///             }
///         });
///     }
/// }
/// # struct Unparks(std::thread::Thread);
/// # impl std::task::Wake for Unparks {
/// #     fn wake(self: std::sync::Arc<Self>) { self.0.unpark(); }
/// # }
/// ```
pub trait Executor: Send + Sync + 'static {
    /// Runs a future to its end.
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>);

    /// Calls `poll`, which polls a procedure for the first time, on this thread. If the futures of an
    /// executor need a context, the executor enters the context before it calls `poll`, and leaves the
    /// context afterwards.
    fn enter(&self, poll: &mut dyn FnMut()) {
        poll();
    }
}

/// How long a thread of the built-in executor waits for work before it ends.
const LINGER: Duration = Duration::from_secs(5);

/// The built-in executor. It has at most one thread for each processor, but may always have two. A thread
/// starts when it is needed.
#[derive(Default)]
pub(super) struct Threads {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    /// The tasks that were woken.
    queue: VecDeque<Arc<Task>>,
    threads: usize,
    idle: usize,
}

impl Threads {
    /// Returns the executor of this process. A forked child has its own.
    pub(super) fn of_process() -> &'static Self {
        static THREADS: PerProcess<Threads> = PerProcess::new();
        THREADS.own()
    }

    /// Polls a task soon.
    pub(super) fn schedule(&'static self, task: Arc<Task>) {
        let mut state = self.state.lock();
        state.queue.push_back(task);
        if state.idle >= state.queue.len() {
            drop(state);
            return self.ready.notify_one();
        }
        if state.threads < sys::online_cpus().max(2) && self.start() {
            state.threads += 1;
        }
        // If there is no thread and none can be started, the calling thread does the work until the queue is
        // empty. A task that is woken meanwhile, for example by its own poll, is added to the queue.
        let is_stuck = state.threads == 0;
        if is_stuck {
            state.threads = 1;
        }
        drop(state);
        self.ready.notify_one();
        if is_stuck {
            self.work(Duration::ZERO);
        }
    }

    fn start(&'static self) -> bool {
        let thread = std::thread::Builder::new().name("peregrine-async".into());
        thread.spawn(|| self.work(LINGER)).is_ok()
    }

    /// Polls tasks. Returns when there has been no task for as long as `linger`.
    fn work(&self, linger: Duration) {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.queue.pop_front() {
                drop(state);
                task.run();
                state = self.state.lock();
                continue;
            }
            if linger.is_zero() {
                break;
            }
            state.idle += 1;
            let (back, late) = self.ready.wait_timeout(state, linger);
            state = back;
            state.idle -= 1;
            if late && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}
