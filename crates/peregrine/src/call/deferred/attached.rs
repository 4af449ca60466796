//! [`Attached`]: the executor of an async server, and the deferred calls that the executor does not know.
//!
//! A procedure is passed to the executor when the procedure is woken for the first time. If the executor ends
//! before that, the procedure may never be woken, and the caller would wait forever. So each server also
//! passes one more future, the [`Sentinel`], to its executor. When the executor drops the sentinel, all calls
//! that were not passed to the executor fail.

use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use super::executor::Executor;
use super::task::{Cancelled, Linux, Machine, Task};
use crate::sync::Mutex;

/// The executor of an async server, for generated code.
#[derive(Clone)]
pub struct ServerExecutor(pub(super) Arc<Attached<Linux>>);

impl ServerExecutor {
    /// Wraps an executor.
    pub fn new(executor: impl Executor) -> Self {
        Self(Arc::new(Attached::new(Box::new(executor))))
    }
}

impl core::fmt::Debug for ServerExecutor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ServerExecutor").finish_non_exhaustive()
    }
}

/// The executor of a server.
pub(super) struct Attached<M: Machine> {
    executor: Box<dyn Executor>,
    unknown: Arc<Unknown<M>>,
}

/// The tasks that were not passed to the executor.
struct Unknown<M: Machine>(Mutex<State<M>>);

struct State<M: Machine> {
    /// The tasks by their addresses. A weak reference keeps the memory of a task, so no other task gets the
    /// address.
    tasks: HashMap<usize, Weak<Task<M>>>,
    life: Life,
    /// The waker of the sentinel.
    waker: Option<Waker>,
}

/// The phases of the sentinel's life, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// No call was deferred.
    Unborn,
    /// The executor has the sentinel.
    Watches,
    /// The server was dropped, or the executor has dropped the sentinel.
    Ended,
}

fn key<M: Machine>(task: &Task<M>) -> usize {
    core::ptr::from_ref(task) as usize
}

impl<M: Machine> Attached<M> {
    pub(super) fn new(executor: Box<dyn Executor>) -> Self {
        let state = State { tasks: HashMap::new(), life: Life::Unborn, waker: None };
        Self { executor, unknown: Arc::new(Unknown(Mutex::new(state))) }
    }

    /// Polls a procedure for the first time, in the context of the executor.
    pub(super) fn enter(&self, poll: &mut dyn FnMut()) {
        self.executor.enter(poll);
    }

    /// Passes a future to the executor.
    pub(super) fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        // An executor that panics has dropped the future. The drop already fails the calls, so the panic is
        // discarded.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.executor.spawn(future))) {
            core::mem::forget(panic);
        }
    }

    /// Notes a task that is not passed to the executor yet. Returns false if the executor has ended.
    pub(super) fn enroll(&self, task: &Arc<Task<M>>) -> bool {
        let mut state = self.unknown.0.lock();
        if state.life == Life::Ended {
            return false;
        }
        state.tasks.insert(key(task), Arc::downgrade(task));
        let begins = state.life == Life::Unborn;
        state.life = Life::Watches;
        drop(state);
        if begins {
            self.spawn(Box::pin(Sentinel(Arc::clone(&self.unknown))));
        }
        true
    }

    /// Forgets a task, which has ended or is passed to the executor.
    pub(super) fn leave(&self, task: &Task<M>) {
        let task = self.unknown.0.lock().tasks.remove(&key(task));
        drop(task);
    }
}

impl<M: Machine> Drop for Attached<M> {
    fn drop(&mut self) {
        let mut state = self.unknown.0.lock();
        state.life = Life::Ended;
        let waker = state.waker.take();
        drop(state);
        // The wake-up makes the executor poll the sentinel, which then ends.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A future that ends when the server is dropped. If the executor drops the sentinel earlier, the calls that
/// the executor does not know fail.
struct Sentinel<M: Machine>(Arc<Unknown<M>>);

impl<M: Machine> Future for Sentinel<M> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let waker = context.waker().clone();
        let mut state = self.0.0.lock();
        if state.life == Life::Ended {
            return Poll::Ready(());
        }
        let before = state.waker.replace(waker);
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl<M: Machine> Drop for Sentinel<M> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.life = Life::Ended;
        let tasks = core::mem::take(&mut state.tasks);
        let waker = state.waker.take();
        drop(state);
        drop(waker);
        for task in tasks.into_values().filter_map(|task| task.upgrade()) {
            task.cancel_because(Cancelled::ExecutorEnded);
        }
    }
}
