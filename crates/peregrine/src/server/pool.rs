//! The pool: a bounded number of threads that attend to A-stacks which rang.
//!
//! A thread stays at its A-stack as long as nobody else rings: E-stacks are associated lazily, as
//! in LRPC. When all threads are taken and another A-stack rings, one that has nothing to do
//! leaves its own.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::call::{EStack, Refusal, Wait, enter};
use crate::error::Kind;
use crate::path::local::{Left, ServerRegion};

/// How long a thread without an A-stack stays before it ends.
const LINGER: Duration = Duration::from_secs(5);

/// Threads that run procedures, and the A-stacks that wait for one.
pub(super) struct Pool {
    state: Mutex<State>,
    work: Condvar,
    /// Whether anything waits in the queue: threads read it after each call.
    hungry: AtomicBool,
    threads_max: usize,
    queue_max: usize,
    wait: Wait,
}

type Work = (Arc<ServerRegion>, u32);

#[derive(Default)]
struct State {
    queue: VecDeque<Work>,
    /// Where each busy thread is; the longest there first.
    attending: VecDeque<(u64, Work)>,
    idle: usize,
    threads: usize,
    next: u64,
    stopping: bool,
}

impl Pool {
    pub(super) fn new(threads_max: usize, queue_max: usize, wait: Wait) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            work: Condvar::new(),
            hungry: AtomicBool::new(false),
            threads_max,
            queue_max,
            wait,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A ring came for an A-stack: a thread will attend to it, or its call is refused.
    pub(super) fn rung(self: &Arc<Self>, region: &Arc<ServerRegion>, index: u32) {
        if !region.rung(index) {
            return;
        }
        let mut state = self.state();
        if state.stopping {
            drop(state);
            // Who still posts is answered at the farewell.
            region.refuse(index, &stopping());
            return;
        }
        // What a thread can take at once does not wait.
        let at_once = state.idle + (self.threads_max - state.threads);
        if state.queue.len() >= self.queue_max + at_once {
            drop(state);
            if region.refuse(index, &self.overloaded()) {
                return;
            }
            state = self.state();
        }
        state.queue.push_back((Arc::clone(region), index));
        if !self.find_thread(&mut state) {
            let unserved = state.queue.pop_back();
            drop(state);
            if let Some((region, index)) = unserved {
                let text = "the server can start no thread";
                region.refuse(index, &Refusal::new(Kind::Exhausted, text));
            }
        }
    }

    /// The queue has grown: wakes a thread, starts one, or makes one leave where it is.
    ///
    /// False if there is no thread at all.
    fn find_thread(self: &Arc<Self>, state: &mut State) -> bool {
        self.hungry.store(true, Ordering::SeqCst);
        // Idle threads that were notified and have not come yet are promised to others.
        if state.idle >= state.queue.len() {
            self.work.notify_one();
            return true;
        }
        if state.threads < self.threads_max && self.start_thread().is_ok() {
            state.threads += 1;
            return true;
        }
        self.work.notify_one();
        // Those that run or spin see `hungry` by themselves; those asleep must be woken.
        let asleep = state.attending.iter().position(|(_, (region, index))| region.rouse(*index));
        if let Some(position) = asleep {
            let roused = state.attending.remove(position);
            state.attending.extend(roused);
        }
        state.threads > 0
    }

    fn overloaded(&self) -> Refusal {
        let text = format!("{} threads are busy, {} calls wait", self.threads_max, self.queue_max);
        Refusal::new(Kind::Overloaded, text)
    }

    fn start_thread(self: &Arc<Self>) -> io::Result<()> {
        let pool = Arc::clone(self);
        let thread = std::thread::Builder::new().name("peregrine-worker".into());
        thread.spawn(move || pool.run()).map(drop)
    }

    fn run(self: &Arc<Self>) {
        let mut estack = EStack::default();
        while let Some((key, (region, index))) = self.next_work() {
            let before = enter(Some(Arc::clone(&region.caller)));
            let wanted = || self.hungry.load(Ordering::Relaxed);
            let left = region.attend(index, self.wait, &mut estack, &wanted);
            enter(before);
            estack.trim();
            let mut state = self.state();
            state.attending.retain(|(attended, _)| *attended != key);
            if left == Left::Queued {
                state.queue.push_back((region, index));
                self.hungry.store(true, Ordering::Release);
            }
        }
    }

    /// The next A-stack to attend to; `None` when the thread should end.
    fn next_work(&self) -> Option<(u64, Work)> {
        let mut state = self.state();
        loop {
            if state.stopping {
                state.threads -= 1;
                self.work.notify_all();
                return None;
            }
            let work = state.queue.pop_front();
            self.hungry.store(!state.queue.is_empty(), Ordering::Release);
            match work {
                Some((region, _)) if region.is_closed() => {}
                Some(work) => {
                    state.next += 1;
                    let key = state.next;
                    state.attending.push_back((key, (Arc::clone(&work.0), work.1)));
                    return Some((key, work));
                }
                None => {
                    state.idle += 1;
                    let waited = self.work.wait_timeout(state, LINGER);
                    let (back, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    state = back;
                    state.idle -= 1;
                    if timeout.timed_out() && state.queue.is_empty() && !state.stopping {
                        state.threads -= 1;
                        return None;
                    }
                }
            }
        }
    }

    /// Lets no thread take anything any more, and waits for those that run a procedure; false if
    /// some still did after `limit`.
    pub(super) fn stop(&self, limit: Duration) -> bool {
        let mut state = self.state();
        state.stopping = true;
        self.hungry.store(true, Ordering::SeqCst);
        for (region, index) in state.queue.drain(..) {
            region.refuse(index, &stopping());
        }
        for (_, (region, index)) in &state.attending {
            region.rouse(*index);
        }
        self.work.notify_all();
        let running = |state: &mut State| state.threads > 0;
        let waited = self.work.wait_timeout_while(state, limit, running);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.threads == 0
    }

    /// Threads that there are.
    pub(super) fn threads(&self) -> usize {
        self.state().threads
    }
}

pub(super) fn stopping() -> Refusal {
    Refusal::new(Kind::Withdrawn, "the server is stopping")
}
