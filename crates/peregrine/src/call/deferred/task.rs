//! [`Task`]: the procedure of a deferred call, from its first poll to its reply.
//!
//! All transitions of a task are made under its lock, and their consequences, such as sending the reply,
//! follow after the lock is released. [`Machine`] selects the type of the lock, so that a model checker can
//! run the same code (`model.rs`).

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
use crate::call::followed::Followed;
use crate::call::pending::{Bells, Rings};
use crate::call::request::Refusal;
use crate::error::{Executed, Kind};
use crate::sync::Mutex;

/// The future of a procedure.
pub(crate) type Procedure = Pin<Box<dyn Future<Output = Answered> + Send>>;

/// The operations that a task needs from the machine.
pub(super) trait Machine: Sized + Send + Sync + 'static {
    type TaskLock: TaskLock<Self>;
    /// Polls a task soon, on the built-in executor.
    fn schedule(task: Arc<Task<Self>>);
}

/// The lock of a task.
pub(super) trait TaskLock<M: Machine>: Send + Sync {
    fn new(state: State<M>) -> Self;
    fn lock(&self) -> impl DerefMut<Target = State<M>>;
}

/// The operations of Linux, for all uses except the model checker.
pub(super) struct Linux;

impl Machine for Linux {
    type TaskLock = Mutex<State<Self>>;
    fn schedule(task: Arc<Task>) {
        Threads::of_process().schedule(task);
    }
}

impl TaskLock<Linux> for Mutex<State<Linux>> {
    fn new(state: State<Linux>) -> Self {
        Self::new(state)
    }
    fn lock(&self) -> impl DerefMut<Target = State<Linux>> {
        Self::lock(self)
    }
}

/// A procedure that has been polled at least once. Wakers may keep a task alive long after its procedure has
/// ended. So the task drops all that it holds when the procedure ends.
pub(super) struct Task<M: Machine = Linux>(M::TaskLock);

/// The state of a task.
pub(super) struct State<M: Machine> {
    phase: Phase,
    /// The conditions of the call, such as its deadline, and what polls the procedure. `None` after the
    /// procedure has ended.
    circumstances: Option<Circumstances<M>>,
    /// The procedure. `None` while it is polled, and after its end.
    procedure: Option<Procedure>,
    /// The duty to reply. `None` before the call was deferred, and after the reply.
    owed: Option<Box<dyn Owed>>,
    /// The call, if it is followed to its end.
    followed: Option<Followed>,
    /// Whether the procedure was woken while it was polled.
    woken: bool,
    /// Why the call was cancelled while the procedure was polled.
    cancelled: Option<Cancelled>,
    /// The waker of the executor to which the task was passed.
    remote: Option<Waker>,
    /// The timer that cancels the call at its deadline.
    deadline: Option<Arc<dyn Rings>>,
}

/// What a procedure needs to run.
struct Circumstances<M: Machine> {
    conditions: Arc<Conditions>,
    /// What polls the procedure. `None`: the built-in executor.
    executor: Option<Arc<Attached<M>>>,
}

impl<M: Machine> Clone for Circumstances<M> {
    fn clone(&self) -> Self {
        Self { conditions: Arc::clone(&self.conditions), executor: self.executor.clone() }
    }
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
    /// The server stops.
    Stopped,
    /// The executor has dropped the task, for example because it shuts down.
    ExecutorEnded,
}

impl Cancelled {
    /// Makes the refusal for a call whose procedure was dropped.
    fn answer(self) -> Answered {
        match self {
            Self::GivenUp => Refusal::abandoned("its caller has given up"),
            Self::Stopped => Refusal::stopped(),
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
    /// Makes the task of a procedure that this thread polls for the first time, under these conditions.
    pub(super) fn new(
        conditions: &Arc<Conditions>,
        executor: Option<&Arc<Attached<M>>>,
    ) -> Arc<Self> {
        let conditions = Arc::clone(conditions);
        let circumstances = Some(Circumstances { conditions, executor: executor.cloned() });
        Arc::new(Self(M::TaskLock::new(State {
            phase: Phase::Polled,
            circumstances,
            procedure: None,
            owed: None,
            followed: None,
            woken: false,
            cancelled: None,
            remote: None,
            deadline: None,
        })))
    }

    /// Ends the first poll: the procedure waits to be woken, and `owed` sends the reply. `followed` is the call,
    /// if it is followed to its end.
    pub(super) fn begin_waiting(
        self: &Arc<Self>,
        procedure: Procedure,
        owed: Box<dyn Owed>,
        followed: Option<Followed>,
    ) {
        let mut state = self.0.lock();
        state.owed = Some(owed);
        state.followed = followed;
        let circumstances = state.circumstances.clone();
        drop(state);
        let Some(Circumstances { conditions, executor }) = circumstances else { return };
        if let Some(due) = conditions.due() {
            let timer: Arc<dyn Rings> = Arc::new(Deadline(Arc::downgrade(self)));
            if Bells::of_process().watch(&timer, 0, Some(due), false).is_ok() {
                self.0.lock().deadline = Some(timer);
            }
        }
        if executor.is_some_and(|executor| !executor.enroll(self)) {
            self.cancel_because(Cancelled::ExecutorEnded);
        }
        self.end_poll(procedure, Poll::Pending);
    }

    /// Polls the procedure, if it was woken.
    pub(super) fn run(self: Arc<Self>) {
        let polls = self.0.lock().begin_poll(Phase::Scheduled);
        let waker = Waker::from(Arc::clone(&self));
        if let Some((procedure, circumstances)) = polls {
            self.poll(procedure, &circumstances.conditions, &mut Context::from_waker(&waker));
        }
    }

    fn poll(
        self: &Arc<Self>,
        mut procedure: Procedure,
        conditions: &Conditions,
        context: &mut Context<'_>,
    ) {
        let entered = conditions.enter();
        let polled = catch_unwind(AssertUnwindSafe(|| procedure.as_mut().poll(context)));
        drop(entered);
        let polled = polled.unwrap_or_else(|panic| Poll::Ready(Refusal::panicked(panic).into()));
        self.end_poll(procedure, polled);
    }

    /// Ends a poll: keeps the procedure, or sends the reply.
    fn end_poll(self: &Arc<Self>, procedure: Procedure, polled: Poll<Answered>) {
        let mut state = self.0.lock();
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
        let mut ended = state.end();
        drop(state);
        // The executor needs no wake-up: it polls this task now, and sees the end.
        drop(ended.remote.take());
        discard(procedure);
        self.answer(ended, answered);
    }

    /// Makes the executor poll the procedure soon. The phase of the task is `Scheduled`.
    fn schedule(self: &Arc<Self>) {
        let mut state = self.0.lock();
        // The call may have been cancelled meanwhile.
        let Some(Circumstances { executor, .. }) = &state.circumstances else { return };
        let Some(executor) = executor.clone() else {
            drop(state);
            return M::schedule(Arc::clone(self));
        };
        if let Some(remote) = &state.remote {
            let remote = remote.clone();
            drop(state);
            return remote.wake();
        }
        // From now on, wake-ups go to the executor's waker. The executor passes this waker in its first poll.
        // Until then no wake-up is needed, so a waker that does nothing takes its place.
        state.remote = Some(Waker::noop().clone());
        drop(state);
        executor.leave(self);
        executor.spawn(Box::pin(Rest(Arc::clone(self))));
    }

    /// Drops the procedure, and answers with a refusal.
    pub(super) fn cancel_because(self: &Arc<Self>, why: Cancelled) {
        let mut state = self.0.lock();
        match state.phase {
            Phase::Polled => state.cancelled = Some(why),
            Phase::Done => {}
            Phase::Idle | Phase::Scheduled => {
                let procedure = state.procedure.take();
                let ended = state.end();
                drop(state);
                if let Some(procedure) = procedure {
                    discard(procedure);
                }
                self.answer(ended, why.answer());
            }
        }
    }

    /// Sends the reply after the end of the procedure.
    fn answer(&self, ended: Ended<M>, answered: Answered) {
        let Ended { owed, followed, circumstances, remote, deadline } = ended;
        if let Some(executor) = circumstances.and_then(|circumstances| circumstances.executor) {
            executor.leave(self);
        }
        // Removes the timer of the call.
        if let Some(timer) = deadline {
            Bells::of_process().forget(&timer, 0);
        }
        // The caller may make its next call as soon as it has the reply.
        if let Some(followed) = followed {
            followed.end(answered.ended().ok());
        }
        if let Some(owed) = owed {
            owed.answer(answered);
        }
        // The wake-up makes the executor poll the `Rest` of this task, which then ends.
        if let Some(remote) = remote {
            remote.wake();
        }
    }
}

impl<M: Machine> State<M> {
    /// Takes the procedure for a poll by the calling thread. Returns `None` if the phase is not `phase`.
    fn begin_poll(&mut self, phase: Phase) -> Option<(Procedure, Circumstances<M>)> {
        if self.phase != phase {
            return None;
        }
        let procedure = self.procedure.take()?;
        self.phase = Phase::Polled;
        self.woken = false;
        Some((procedure, self.circumstances.clone()?))
    }

    /// Ends the procedure. Returns what the task held.
    fn end(&mut self) -> Ended<M> {
        self.phase = Phase::Done;
        Ended {
            owed: self.owed.take(),
            followed: self.followed.take(),
            circumstances: self.circumstances.take(),
            remote: self.remote.take(),
            deadline: self.deadline.take(),
        }
    }
}

/// What is left of a task after the end of its procedure.
struct Ended<M: Machine> {
    owed: Option<Box<dyn Owed>>,
    followed: Option<Followed>,
    circumstances: Option<Circumstances<M>>,
    remote: Option<Waker>,
    deadline: Option<Arc<dyn Rings>>,
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

/// Drops a procedure, whose drop may panic.
fn discard(procedure: Procedure) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(procedure))) {
        // Dropping the payload would run code of the procedure, which may panic again.
        core::mem::forget(panic);
    }
}

impl<M: Machine> Wake for Task<M> {
    fn wake(self: Arc<Self>) {
        let mut state = self.0.lock();
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
    fn stop(self: Arc<Self>) {
        self.cancel_because(Cancelled::Stopped);
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
        // A waker is foreign code, so it is cloned and dropped while no lock is held.
        let waker = context.waker().clone();
        let mut state = task.0.lock();
        if state.phase == Phase::Done {
            return Poll::Ready(());
        }
        let before = state.remote.replace(waker);
        let phase = state.phase;
        let polls = state.begin_poll(phase);
        drop(state);
        drop(before);
        if let Some((procedure, circumstances)) = polls {
            task.poll(procedure, &circumstances.conditions, context);
        }
        if task.0.lock().phase == Phase::Done { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<M: Machine> Drop for Rest<M> {
    fn drop(&mut self) {
        let Self(task) = self;
        let remote = task.0.lock().remote.take();
        drop(remote);
        // If the executor drops this future before the procedure has ended, for example because the executor
        // shuts down, the procedure can never end.
        task.cancel_because(Cancelled::ExecutorEnded);
    }
}
