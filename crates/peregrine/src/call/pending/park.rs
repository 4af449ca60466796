//! [`park`]: a thread that waits as a future does.

use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::Arc;
use std::task::Wake;
use std::thread::{self, Thread};
use std::time::Instant;

/// Wakes a thread that parks.
struct Unpark {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        // SYNC: woken. The flag is set before the thread is unparked, and read after the thread was unparked.
        if !self.woken.swap(true, Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}

/// Calls `poll` until there is a result: each time that the thread is woken, and after each interval `every`.
pub(crate) fn park<T>(
    every: Option<Duration>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> T {
    // Most waits end at once, and need no memory.
    if let Poll::Ready(ended) = poll(&mut Context::from_waker(Waker::noop())) {
        return ended;
    }
    let unpark = Arc::new(Unpark { thread: thread::current(), woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&unpark));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(ended) = poll(&mut context) {
            return ended;
        }
        let until = every.map(|every| Instant::now() + every);
        // A nested wait of this thread may have taken the token of `unpark`, so the flag decides.
        while !unpark.woken.swap(false, Ordering::SeqCst) {
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => thread::park(),
                Some(Duration::ZERO) => break,
                Some(left) => thread::park_timeout(left),
            }
        }
    }
}

/// Runs a future on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    park(None, |context| future.as_mut().poll(context))
}
