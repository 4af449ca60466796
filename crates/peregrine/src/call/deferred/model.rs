//! Tests of [`Task`] under a model checker, which runs every interleaving of a few threads. `Model` is the
//! `Machine` of these tests.
//!
//! A procedure waits for an event. One thread polls the procedure for the first time, and another thread
//! polls it after a wake-up. Further threads make the event happen, cancel the call, or shut the executor
//! down. In the end, exactly one reply was sent, and the procedure was dropped before the reply.

use core::ops::DerefMut;
use core::pin::Pin;
use core::sync::atomic::Ordering;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::Wake;

use loom::sync::atomic::{AtomicBool, AtomicU32};
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::attached::Attached;
use super::task::{Machine, Procedure, State, Task, TaskLock};
use super::{Answered, Cancels, Executor, Owed};
use crate::call::Answer;
use crate::call::caller::Conditions;

struct Model;

impl Machine for Model {
    type TaskLock = Mutex<State<Self>>;
    fn schedule(task: Arc<Task<Self>>) {
        QUEUE.push(Work::Run(task));
    }
}

impl TaskLock<Model> for Mutex<State<Model>> {
    fn new(state: State<Model>) -> Self {
        Self::new(state)
    }
    fn lock(&self) -> impl DerefMut<Target = State<Model>> {
        Self::lock(self).unwrap()
    }
}

/// An entry of the queue: what the thread that polls must poll.
enum Work {
    /// Polls a task of the built-in executor.
    Run(Arc<Task<Model>>),
    /// Polls a future of the program's own executor.
    Poll(Arc<Spawned>),
}

/// The queue of all executors. The flag says that the thread that polls must end when the queue is empty.
struct Queue {
    state: Mutex<(VecDeque<Work>, bool)>,
    changed: Condvar,
}

loom::lazy_static! {
    static ref QUEUE: Queue = Queue {
        state: Mutex::new((VecDeque::new(), false)),
        changed: Condvar::new(),
    };
}

impl Queue {
    fn push(&self, work: Work) {
        self.state.lock().unwrap().0.push_back(work);
        self.changed.notify_all();
    }

    /// Ends the thread that polls, once the queue is empty.
    fn end(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }

    /// Polls the woken tasks and futures, until [`end`](Self::end) is called. After a lost wake-up, the model
    /// checker reports a deadlock.
    fn work(&self) {
        let mut state = self.state.lock().unwrap();
        loop {
            match state.0.pop_front() {
                Some(work) => {
                    drop(state);
                    match work {
                        Work::Run(task) => task.run(),
                        Work::Poll(spawned) => spawned.poll(),
                    }
                    state = self.state.lock().unwrap();
                }
                None if state.1 => return,
                None => state = self.changed.wait(state).unwrap(),
            }
        }
    }
}

/// The program's own executor, which can be shut down.
#[derive(Default)]
struct Remote {
    all: Mutex<Vec<Weak<Spawned>>>,
    is_down: AtomicBool,
}

/// A future that was passed to the executor. The field `future` is `None` after the future has ended.
struct Spawned {
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

struct Handle(Arc<Remote>);

impl Executor for Handle {
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let spawned = Arc::new(Spawned { future: Mutex::new(Some(future)) });
        let mut all = self.0.all.lock().unwrap();
        if self.0.is_down.load(Ordering::Relaxed) {
            drop(all);
            return spawned.discard();
        }
        all.push(Arc::downgrade(&spawned));
        drop(all);
        QUEUE.push(Work::Poll(spawned));
    }
}

impl Remote {
    fn shut_down(&self) {
        let mut all = self.all.lock().unwrap();
        self.is_down.store(true, Ordering::Relaxed);
        let all = core::mem::take(&mut *all);
        for spawned in all.iter().filter_map(Weak::upgrade) {
            spawned.discard();
        }
    }
}

impl Spawned {
    fn poll(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut place = self.future.lock().unwrap();
        let Some(future) = &mut *place else { return };
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        let ended = if polled.is_ready() { place.take() } else { None };
        drop(place);
        drop(ended);
    }

    fn discard(&self) {
        let future = self.future.lock().unwrap().take();
        drop(future);
    }
}

impl Wake for Spawned {
    fn wake(self: Arc<Self>) {
        QUEUE.push(Work::Poll(self));
    }
}

/// What the test sees of a call.
#[derive(Default)]
struct Seen {
    /// Whether the event has happened, and the waker that it wakes.
    event: Mutex<(bool, Option<Waker>)>,
    dropped: AtomicU32,
    replies: AtomicU32,
    is_ok: AtomicBool,
}

/// A procedure that waits for the event.
struct Waits(Arc<Seen>);

impl Future for Waits {
    type Output = Answered;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        let mut event = self.0.event.lock().unwrap();
        if event.0 {
            return Poll::Ready(Answered::ok(&(), Vec::new(), |_| Ok(())));
        }
        event.1 = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

struct OwedReply(Arc<Seen>);

impl Owed for OwedReply {
    fn leave_uncounted(&mut self, _: bool) {}

    fn answer(self: Box<Self>, answered: Answered) {
        assert_eq!(self.0.dropped.load(Ordering::Relaxed), 1, "the procedure still exists");
        self.0.is_ok.store(answered.answer() == Answer::Ok, Ordering::Relaxed);
        self.0.replies.fetch_add(1, Ordering::Relaxed);
    }
}

impl Seen {
    /// Makes the event happen.
    fn happen(&self) {
        let mut event = self.event.lock().unwrap();
        event.0 = true;
        let waker = event.1.take();
        drop(event);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn replies(&self) -> u32 {
        self.replies.load(Ordering::Relaxed)
    }
}

/// A call whose procedure was made, and was not polled yet.
struct Call {
    seen: Arc<Seen>,
    task: Arc<Task<Model>>,
}

impl Call {
    fn new(executor: Option<&Arc<Remote>>) -> Self {
        let executor = executor.map(|remote| {
            let handle = Box::new(Handle(Arc::clone(remote)));
            Arc::new(Attached::new(handle))
        });
        let task = Task::new(&Arc::new(Conditions::of_thread()), executor.as_ref());
        Self { seen: Arc::default(), task }
    }

    /// Polls the procedure for the first time, as `serve_async` does.
    fn begin(&self) {
        let mut procedure: Procedure = Box::pin(Waits(Arc::clone(&self.seen)));
        let waker = Waker::from(Arc::clone(&self.task));
        let owed = Box::new(OwedReply(Arc::clone(&self.seen)));
        match procedure.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => self.task.begin_waiting(procedure, owed, None),
            Poll::Ready(answered) => {
                drop(procedure);
                owed.answer(answered);
            }
        }
    }

    /// Starts a thread.
    fn thread(
        &self,
        run: impl FnOnce(&Seen, Arc<Task<Model>>) + 'static,
    ) -> thread::JoinHandle<()> {
        let (seen, task) = (Arc::clone(&self.seen), Arc::clone(&self.task));
        thread::spawn(move || run(&seen, task))
    }

    /// Checks that the call has exactly one reply. Returns whether this reply is the result.
    fn ended(&self) -> bool {
        assert_eq!((self.seen.replies(), self.seen.dropped.load(Ordering::Relaxed)), (1, 1));
        self.seen.is_ok.load(Ordering::Relaxed)
    }
}

/// Runs the model in every interleaving with at most `switches` involuntary switches of threads.
fn check(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}

#[test]
fn event_during_the_first_poll_is_not_lost() {
    check(4, || {
        let call = Call::new(None);
        let event = call.thread(|seen, _| seen.happen());
        call.begin();
        event.join().unwrap();
        QUEUE.end();
        QUEUE.work();
        assert!(call.ended());
    });
}

#[test]
fn event_and_cancellation_make_one_reply() {
    check(3, || {
        let call = Call::new(None);
        let worker = thread::spawn(|| QUEUE.work());
        let event = call.thread(|seen, _| seen.happen());
        let cancels = call.thread(|_, task| task.cancel());
        call.begin();
        event.join().unwrap();
        cancels.join().unwrap();
        QUEUE.end();
        worker.join().unwrap();
        call.ended();
    });
}

#[test]
fn wake_up_after_the_end_does_nothing() {
    check(3, || {
        let call = Call::new(None);
        call.begin();
        let waker = Waker::from(Arc::clone(&call.task));
        let worker = thread::spawn(|| QUEUE.work());
        let again = thread::spawn(move || waker.wake());
        call.seen.happen();
        again.join().unwrap();
        QUEUE.end();
        worker.join().unwrap();
        assert!(call.ended());
        Arc::clone(&call.task).wake();
        Arc::clone(&call.task).cancel();
        assert!(call.ended());
    });
}

#[test]
fn event_reaches_a_procedure_of_another_executor() {
    check(3, || {
        let call = Call::new(Some(&Arc::default()));
        let worker = thread::spawn(|| QUEUE.work());
        let event = call.thread(|seen, _| seen.happen());
        call.begin();
        event.join().unwrap();
        QUEUE.end();
        worker.join().unwrap();
        assert!(call.ended());
    });
}

#[test]
fn executor_that_shuts_down_ends_its_calls() {
    check(2, || {
        let remote = Arc::<Remote>::default();
        let call = Call::new(Some(&remote));
        let worker = thread::spawn(|| QUEUE.work());
        let event = call.thread(|seen, _| seen.happen());
        let down = {
            let remote = Arc::clone(&remote);
            thread::spawn(move || remote.shut_down())
        };
        call.begin();
        event.join().unwrap();
        down.join().unwrap();
        QUEUE.end();
        worker.join().unwrap();
        call.ended();
    });
}

#[test]
fn executor_that_shuts_down_ends_calls_that_it_does_not_know() {
    check(3, || {
        let remote = Arc::<Remote>::default();
        let call = Call::new(Some(&remote));
        let down = {
            let remote = Arc::clone(&remote);
            thread::spawn(move || remote.shut_down())
        };
        call.begin();
        down.join().unwrap();
        assert!(!call.ended());
    });
}

#[test]
fn cancellation_and_shutdown_make_one_reply() {
    check(2, || {
        let remote = Arc::<Remote>::default();
        let call = Call::new(Some(&remote));
        call.begin();
        call.seen.happen();
        let down = {
            let remote = Arc::clone(&remote);
            thread::spawn(move || remote.shut_down())
        };
        let cancels = call.thread(|_, task| task.cancel());
        QUEUE.end();
        QUEUE.work();
        down.join().unwrap();
        cancels.join().unwrap();
        call.ended();
    });
}
