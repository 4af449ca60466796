//! Runs futures on one thread. A future is polled only after it was woken. So a lost wake-up makes a test
//! fail.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a test waits for futures that must complete.
const LIMIT: Duration = Duration::from_secs(20);

/// The futures that were woken, and the thread that polls them.
struct Ready {
    woken: Mutex<VecDeque<usize>>,
    thread: Thread,
}

/// Wakes one future.
struct Wakes(usize, Arc<Ready>);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.1.woken.lock().unwrap().push_back(self.0);
        self.1.thread.unpark();
    }
}

/// Futures that run on the thread that made this value.
pub(crate) struct Tasks<'a, T> {
    ready: Arc<Ready>,
    tasks: Vec<Task<'a, T>>,
}

struct Task<'a, T> {
    future: Option<Pin<Box<dyn Future<Output = T> + 'a>>>,
    waker: Waker,
    result: Option<T>,
}

impl<'a, T> Tasks<'a, T> {
    pub(crate) fn new() -> Self {
        let ready = Ready { woken: Mutex::default(), thread: thread::current() };
        Self { ready: Arc::new(ready), tasks: Vec::new() }
    }

    /// Adds a future. Returns its number.
    pub(crate) fn add(&mut self, future: impl Future<Output = T> + 'a) -> usize {
        let waker = Waker::from(Arc::new(Wakes(self.tasks.len(), Arc::clone(&self.ready))));
        waker.wake_by_ref();
        self.tasks.push(Task { future: Some(Box::pin(future)), waker, result: None });
        self.tasks.len() - 1
    }

    /// Drops a future.
    pub(crate) fn drop_one(&mut self, number: usize) {
        self.tasks[number].future = None;
    }

    /// Returns how many futures have completed.
    pub(crate) fn completed(&self) -> usize {
        self.tasks.iter().filter(|task| task.result.is_some()).count()
    }

    /// Takes the result of a future that has completed.
    pub(crate) fn take(&mut self, number: usize) -> Option<T> {
        self.tasks[number].result.take()
    }

    /// Polls the futures that were woken, until `holds` returns true.
    #[track_caller]
    pub(crate) fn run_until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < LIMIT, "timed out while waiting: {what}");
            let woken = self.ready.woken.lock().unwrap().pop_front();
            let Some(number) = woken else {
                // The condition may become true although no future is woken.
                thread::park_timeout(Duration::from_millis(2));
                continue;
            };
            let Task { future, waker, result } = &mut self.tasks[number];
            let Some(polled) = future else { continue };
            if let Poll::Ready(value) = polled.as_mut().poll(&mut Context::from_waker(waker)) {
                *future = None;
                *result = Some(value);
            }
        }
    }

    /// Polls the futures until each of them has completed or sleeps.
    pub(crate) fn run_until_asleep(&mut self) {
        let mut quiet_since = Instant::now();
        self.run_until("all futures sleep", |tasks| {
            if !tasks.ready.woken.lock().unwrap().is_empty() {
                quiet_since = Instant::now();
            }
            quiet_since.elapsed() > Duration::from_millis(30)
        });
    }

    /// Polls the futures that are woken during the next 100 ms.
    pub(crate) fn run_until_some_time(&mut self) {
        let begun = Instant::now();
        self.run_until("some time passes", |_| begun.elapsed() > Duration::from_millis(100));
    }

    /// Runs all futures to their ends. Returns their results in the order in which they were added.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Vec<T> {
        let all = self.tasks.iter().filter(|task| task.future.is_some()).count();
        let before = self.completed();
        self.run_until("all futures complete", |tasks| tasks.completed() == before + all);
        self.tasks.into_iter().filter_map(|task| task.result).collect()
    }
}

/// Runs one future to its end.
#[track_caller]
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut tasks = Tasks::new();
    tasks.add(future);
    tasks.finish().pop().expect("one result")
}
