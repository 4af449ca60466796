//! [`block_on`]: a thread polls, and sleeps until it is woken.

use core::cell::RefCell;
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use std::task::Wake;
use std::time::Instant;

use crate::sys;

/// The thread runs, and was not woken since its last sleep.
const RUNS: u32 = 0;
/// The thread was woken, and polls once more.
const WOKEN: u32 = 1;
/// The thread sleeps, or is about to.
const SLEEPS: u32 = 2;

/// What a thread sleeps on. `std::thread::park` is not used here: it would consume an `unpark` that the
/// program intended for another wait.
#[derive(Default)]
struct Sleeper(AtomicU32);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if self.0.swap(WOKEN, Ordering::AcqRel) == SLEEPS {
            sys::futex_wake(&self.0);
        }
    }
}

impl Sleeper {
    /// Sleeps until the thread is woken, or `until`.
    fn sleep(&self, until: Option<Instant>) {
        // SYNC: sleeper. A thread that wakes this thread replaces the value. If it replaces the value before
        // this exchange, this thread does not sleep.
        let sleeps = self.0.compare_exchange(RUNS, SLEEPS, Ordering::AcqRel, Ordering::Acquire);
        while sleeps.is_ok() && self.0.load(Ordering::Acquire) == SLEEPS {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            sys::futex_wait(&self.0, SLEEPS, left);
        }
        self.0.store(RUNS, Ordering::Release);
    }
}

thread_local! {
    static SLEEPER: RefCell<Option<(Arc<Sleeper>, Waker)>> = const { RefCell::new(None) };
}

/// Polls until there is a result. Between two polls, the thread sleeps until it is woken, or `until`.
pub(super) fn block_on<T>(
    until: Option<Instant>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> T {
    let made = || {
        let sleeper = Arc::new(Sleeper::default());
        let waker = Waker::from(Arc::clone(&sleeper));
        (sleeper, waker)
    };
    // All waits of a thread share one sleeper. So the waker of an earlier wait may end the sleep of this
    // wait. That only causes one more poll.
    let (sleeper, waker) = SLEEPER.with_borrow_mut(|known| known.get_or_insert_with(made).clone());
    loop {
        match poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => sleeper.sleep(until),
        }
    }
}
