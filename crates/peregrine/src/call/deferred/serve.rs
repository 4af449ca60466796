//! [`serve_async`]: serves a call of an async server up to the end of the first poll of its procedure.

use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::Arc;

use super::attached::ServerExecutor;
use super::task::{Procedure, Task};
use super::{Answered, Cancels, Owed, OwnedCall};
use crate::call::caller::Conditions;
use crate::call::followed;
use crate::call::serve::Served;
use crate::call::{Reply, Request};
use crate::sync::{Condvar, Mutex};

/// The interval at which a thread that waits for a procedure checks whether the caller has given up the call.
const CHECK_EVERY: Duration = Duration::from_millis(10);

/// Serves a call of an async server: makes the procedure with `make`, and polls it. If the procedure does not
/// end at once, the call is deferred.
///
/// # Errors
/// Fails if the message does not arrive completely, the call was refused, or the result does not fit.
pub fn serve_async<F>(
    executor: Option<&ServerExecutor>,
    request: &mut Request<'_>,
    reply: &mut Reply<'_>,
    make: impl FnOnce(OwnedCall) -> F,
) -> Served
where
    F: Future<Output = Answered> + Send + 'static,
{
    // The procedure may run other async procedures on this thread, so the call is taken before.
    let followed = followed::take();
    let call = OwnedCall::of(request, reply)?;
    let executor = executor.map(|executor| &executor.0);
    let mut procedure: Procedure = Box::pin(make(call));
    let conditions = Arc::new(Conditions::of_thread());
    let task = Task::new(&conditions, executor);
    let waker = Waker::from(Arc::clone(&task));
    let mut polled = Poll::Pending;
    let mut poll = || polled = procedure.as_mut().poll(&mut Context::from_waker(&waker));
    match executor {
        Some(executor) => executor.enter(&mut poll),
        None => poll(),
    }
    if let Poll::Ready(answered) = polled {
        if let Some(followed) = followed {
            followed.end(answered.ended().ok());
        }
        return answered.write(reply);
    }
    let source = conditions.source();
    let source = source.map(|(calls, call)| (Arc::clone(calls), call));
    #[cfg(feature = "tracing")]
    let procedure = match &source {
        Some((calls, _)) => calls.within(procedure),
        None => procedure,
    };
    let cancels: Arc<dyn Cancels> = Arc::clone(&task) as _;
    let owed = source.as_ref().and_then(|(calls, call)| Arc::clone(calls).defer(*call, cancels));
    match owed {
        Some(owed) => {
            reply.defer();
            task.begin_waiting(procedure, owed, followed);
            Ok(())
        }
        None => {
            let wait = Arc::new(ThreadWait::default());
            task.begin_waiting(procedure, Box::new(Arc::clone(&wait)), followed);
            let is_given_up =
                || source.as_ref().is_some_and(|(calls, call)| calls.is_given_up(*call));
            wait.answer(|| Arc::clone(&task).cancel(), is_given_up).write(reply)
        }
    }
}

/// Polls a future once on this thread. If the future does not end, the built-in executor polls it from then
/// on. Each poll sees the caller and the deadline of the call that this thread runs now. Returns whether the
/// future has ended.
pub(crate) fn continue_later(future: impl Future<Output = ()> + Send + 'static) -> bool {
    let mut procedure: Procedure = Box::pin(async move {
        future.await;
        Answered::ok(&(), Vec::new(), |_| Ok(()))
    });
    let task: Arc<Task> = Task::new(&Arc::new(Conditions::of_thread()), None);
    let waker = Waker::from(Arc::clone(&task));
    let ended = procedure.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
    if !ended {
        task.begin_waiting(procedure, Box::new(NoReply), None);
    }
    ended
}

/// The [`Owed`] of a future whose result is not needed: the result is dropped.
struct NoReply;

impl Owed for NoReply {
    fn leave_uncounted(&mut self, _: bool) {}

    fn answer(self: Box<Self>, _: Answered) {}
}

/// The wait of a thread for the end of a procedure, if the path of the call cannot defer replies.
#[derive(Debug, Default)]
pub(crate) struct ThreadWait {
    answered: Mutex<Option<Answered>>,
    ended: Condvar,
}

impl Owed for Arc<ThreadWait> {
    fn leave_uncounted(&mut self, _: bool) {}

    fn answer(self: Box<Self>, answered: Answered) {
        *self.answered.lock() = Some(answered);
        self.ended.notify_one();
    }
}

impl ThreadWait {
    /// Waits for the result. Cancels the call if its caller gives it up.
    pub(crate) fn answer(&self, cancel: impl Fn(), is_given_up: impl Fn() -> bool) -> Answered {
        loop {
            let answered = self.answered.lock();
            let (mut answered, _) =
                self.ended.wait_timeout_while(answered, CHECK_EVERY, |answered| answered.is_none());
            if let Some(answered) = answered.take() {
                return answered;
            }
            drop(answered);
            if is_given_up() {
                cancel();
            }
        }
    }
}
