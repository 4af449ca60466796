//! [`Task`]: the procedure of a deferred call, from its first poll to its reply.
//!
//! All transitions of a task are made under its lock, and what follows from a transition is done after the lock is
//! released. The [`Machine`] has the lock, so that a model checker can run the same code (`model.rs`).

use core::fmt;
use core::ops::DerefMut;
use core::pin::Pin;
use core::sync::atomic::AtomicU32;
use core::task::{Context, Poll, Waker};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::Wake;

use super::attached::Attached;
use super::executor::Threads;
use super::{Answered, Cancels, Owed};
use crate::call::caller::Conditions;
use crate::call::pending::{Bells, Rings};
use crate::call::request::Refusal;
use crate::error::{Executed, Kind};
use crate::sync::Mutex;

/// The future of a procedure.
pub(super) type Procedure = Pin<Box<dyn Future<Output = Answered> + Send>>;

/// The operations that a task needs from the machine.
pub(super) trait Machine: Sized + Send + Sync + 'static {
    type Lock: Lock;
    /// Polls a task soon, on the built-in executor.
    fn schedule(task: Arc<Task<Self>>);
}

/// The lock of a task.
pub(super) trait Lock: Send + Sync {
    fn new(state: State) -> Self;
    fn lock(&self) -> impl DerefMut<Target = State>;
}

/// The operations of Linux, for all uses except the model checker.
pub(super) struct Linux;

impl Machine for Linux {
    type Lock = Mutex<State>;
    fn schedule(task: Arc<Task>) {
        Threads::of_process().schedule(task);
    }
}

impl Lock for Mutex<State> {
    fn new(state: State) -> Self {
        Self::new(state)
    }
    fn lock(&self) -> impl DerefMut<Target = State> {
        Self::lock(self)
    }
}

/// A procedure that has been polled at least once, and has not ended.
pub(super) struct Task<M: Machine = Linux> {
    state: M::Lock,
    /// What polls the procedure. `None`: the built-in executor.
    executor: Option<Arc<Attached<M>>>,
    conditions: Conditions,
}

/// The state of a task.
pub(super) struct State {
    phase: Phase,
    /// The procedure. `None` while it is polled, and after its end.
    procedure: Option<Procedure>,
    /// The duty to reply. `None` before the call was deferred, and after the reply.
    owed: Option<Box<dyn Owed>>,
    /// Whether the procedure was woken while it was polled.
    woken: bool,
    /// Why the call was cancelled while the procedure was polled.
    cancelled: Option<Cancelled>,
    /// The waker of the executor to which the task was passed.
    remote: Option<Waker>,
    /// The timer that cancels the call at its deadline.
    deadline: Option<Arc<dyn Rings>>,
}

/// The phases of a task, in their order. `Idle`, `Scheduled` and `Polled` repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A thread polls the procedure.
    Polled,
    /// The procedure waits to be woken.
    Idle,
    /// The procedure was woken, and waits to be polled.
    Scheduled,
    /// The procedure has ended, or was dropped.
    Done,
}

/// Why a procedure was dropped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancelled {
    /// The caller does not wait any more.
    GivenUp,
    /// The executor has dropped the task, for example because it shuts down.
    ExecutorEnded,
}

impl Cancelled {
    /// Makes the refusal for a call whose procedure was dropped.
    fn answer(self) -> Answered {
        match self {
            Self::GivenUp => Refusal::abandoned("its caller has given up"),
            Self::ExecutorEnded => Refusal {
                kind: Kind::Withdrawn,
                executed: Executed::Maybe,
                text: "the executor of the server dropped the procedure".to_owned(),
            },
        }
        .into()
    }
}

impl<M: Machine> Task<M> {
    /// Makes the task of a procedure that this thread polls for the first time.
    pub(super) fn new(executor: Option<&Arc<Attached<M>>>) -> Arc<Self> {
        let state = M::Lock::new(State {
            phase: Phase::Polled,
            procedure: None,
            owed: None,
            woken: false,
            cancelled: None,
            remote: None,
            deadline: None,
        });
        Arc::new(Self { state, executor: executor.cloned(), conditions: Conditions::of_thread() })
    }

    /// Returns the conditions of the call.
    pub(super) const fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Ends the first poll: the procedure waits to be woken, and `owed` sends the reply.
    pub(super) fn begin_waiting(self: &Arc<Self>, procedure: Procedure, owed: Box<dyn Owed>) {
        let deadline = self.conditions.due().and_then(|due| {
            let timer: Arc<dyn Rings> = Arc::new(Deadline(Arc::downgrade(self)));
            let set = Bells::of_process().watch(&timer, 0, Some(due), false);
            set.is_ok().then_some(timer)
        });
        let mut state = self.state.lock();
        state.owed = Some(owed);
        state.deadline = deadline;
        drop(state);
        if let Some(executor) = &self.executor
            && !executor.enroll(self)
        {
            self.cancel_because(Cancelled::ExecutorEnded);
        }
        self.end_poll(procedure, Poll::Pending);
    }

    /// Polls the procedure, if it was woken.
    pub(super) fn run(self: Arc<Self>) {
        let mut state = self.state.lock();
        if state.phase != Phase::Scheduled {
            return;
        }
        state.phase = Phase::Polled;
        state.woken = false;
        let procedure = state.procedure.take();
        drop(state);
        let Some(procedure) = procedure else { return };
        let waker = Waker::from(Arc::clone(&self));
        self.poll(procedure, &mut Context::from_waker(&waker));
    }

    fn poll(self: &Arc<Self>, mut procedure: Procedure, context: &mut Context<'_>) {
        let entered = self.conditions.enter();
        let polled = catch_unwind(AssertUnwindSafe(|| procedure.as_mut().poll(context)));
        drop(entered);
        let polled = polled.unwrap_or_else(|panic| Poll::Ready(Refusal::panicked(panic).into()));
        self.end_poll(procedure, polled);
    }

    /// Ends a poll: keeps the procedure, or sends the reply.
    fn end_poll(self: &Arc<Self>, procedure: Procedure, polled: Poll<Answered>) {
        let mut state = self.state.lock();
        let answered = match (polled, state.cancelled) {
            (Poll::Ready(answered), _) => answered,
            (Poll::Pending, Some(cancelled)) => cancelled.answer(),
            (Poll::Pending, None) => {
                state.procedure = Some(procedure);
                let again = state.woken;
                state.phase = if again { Phase::Scheduled } else { Phase::Idle };
                drop(state);
                if again {
                    self.schedule();
                }
                return;
            }
        };
        state.phase = Phase::Done;
        let (owed, deadline) = (state.owed.take(), state.deadline.take());
        drop(state);
        self.leave_executor();
        clear(deadline);
        discard(procedure);
        if let Some(owed) = owed {
            owed.answer(answered);
        }
    }

    /// Has the procedure polled soon. Its phase is `Scheduled`.
    fn schedule(self: &Arc<Self>) {
        let Some(executor) = &self.executor else {
            return M::schedule(Arc::clone(self));
        };
        let mut state = self.state.lock();
        if let Some(remote) = &state.remote {
            let remote = remote.clone();
            drop(state);
            return remote.wake();
        }
        // From now on, wake-ups go to the waker with which the executor polls. Until its first poll, there is
        // nothing to wake.
        state.remote = Some(Waker::noop().clone());
        drop(state);
        executor.leave(self);
        executor.spawn(Box::pin(Rest(Arc::clone(self))));
    }

    fn leave_executor(&self) {
        if let Some(executor) = &self.executor {
            executor.leave(self);
        }
    }

    /// Drops the procedure, and answers with a refusal.
    pub(super) fn cancel_because(self: &Arc<Self>, why: Cancelled) {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Polled => state.cancelled = Some(why),
            Phase::Done => {}
            Phase::Idle | Phase::Scheduled => {
                state.phase = Phase::Done;
                let (procedure, owed) = (state.procedure.take(), state.owed.take());
                let (remote, deadline) = (state.remote.take(), state.deadline.take());
                drop(state);
                self.leave_executor();
                clear(deadline);
                if let Some(procedure) = procedure {
                    discard(procedure);
                }
                if let Some(owed) = owed {
                    owed.answer(why.answer());
                }
                // The executor then drops its part of the task.
                if let Some(remote) = remote {
                    remote.wake();
                }
            }
        }
    }
}

/// Cancels a deferred call at its deadline.
struct Deadline<M: Machine>(Weak<Task<M>>);

impl<M: Machine> Rings for Deadline<M> {
    fn word(&self, _: u32) -> Option<(&AtomicU32, u32)> {
        None
    }
    fn examine(&self, _: u32) {}
    fn ring(&self, _: u32) {
        if let Some(task) = self.0.upgrade() {
            task.cancel();
        }
    }
}

/// Removes the timer of a call that has ended.
fn clear(deadline: Option<Arc<dyn Rings>>) {
    if let Some(timer) = deadline {
        Bells::of_process().forget(&timer, 0);
    }
}

/// Drops a procedure, whose drop may panic.
fn discard(procedure: Procedure) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(procedure))) {
        // Dropping the payload would run code of the procedure, which may panic again.
        core::mem::forget(panic);
    }
}

impl<M: Machine> Wake for Task<M> {
    fn wake(self: Arc<Self>) {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Polled => state.woken = true,
            Phase::Idle => {
                state.phase = Phase::Scheduled;
                drop(state);
                self.schedule();
            }
            Phase::Scheduled | Phase::Done => {}
        }
    }
}

impl<M: Machine> Cancels for Task<M> {
    fn cancel(self: Arc<Self>) {
        self.cancel_because(Cancelled::GivenUp);
    }
}

impl<M: Machine> fmt::Debug for Task<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").finish_non_exhaustive()
    }
}

/// The polls of a task after the first one, as a future for an [`Executor`](super::Executor).
pub(super) struct Rest<M: Machine>(Arc<Task<M>>);

impl<M: Machine> Future for Rest<M> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self(task) = &*self;
        // A waker belongs to the executor, so it is cloned and dropped while no lock is held.
        let remote = context.waker().clone();
        let mut state = task.state.lock();
        let before = state.remote.replace(remote);
        let procedure = match state.phase {
            Phase::Done => None,
            // No other thread polls a task that was passed to an executor.
            Phase::Polled | Phase::Idle | Phase::Scheduled => state.procedure.take(),
        };
        if procedure.is_some() {
            state.phase = Phase::Polled;
            state.woken = false;
        }
        drop(state);
        drop(before);
        let Some(procedure) = procedure else { return Poll::Ready(()) };
        task.poll(procedure, context);
        if task.state.lock().phase == Phase::Done { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<M: Machine> Drop for Rest<M> {
    fn drop(&mut self) {
        let Self(task) = self;
        let remote = task.state.lock().remote.take();
        drop(remote);
        // If the executor drops this before its end, for example because it shuts down, the procedure can never
        // end.
        task.cancel_because(Cancelled::ExecutorEnded);
    }
}
