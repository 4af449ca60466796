//! Polls futures a certain number of times.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The target of a waker. It notes that it was woken, and unparks the thread that polls.
pub(crate) struct Woken {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

impl Woken {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { thread: thread::current(), is_woken: AtomicBool::new(false) })
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::SeqCst)
    }

    pub(crate) fn forget(&self) {
        self.is_woken.store(false, Ordering::SeqCst);
    }

    /// Waits until the future was woken. If this takes more than 20 seconds, the wake-up was lost, and this
    /// function panics.
    pub(crate) fn wait(&self) {
        let begun = Instant::now();
        while !self.is_woken.swap(false, Ordering::SeqCst) {
            assert!(begun.elapsed() < Duration::from_secs(20), "the future was not woken");
            thread::park_timeout(Duration::from_millis(100));
        }
    }
}

/// How a future ended.
pub(crate) enum Polled<T> {
    Ended(T),
    Dropped,
}

/// Polls a future at most `polls` times, and then drops it. Before each poll but the first, waits until the
/// future was woken.
pub(crate) fn polled<T>(polls: u32, future: impl Future<Output = T>) -> Polled<T> {
    let woken = Woken::new();
    let waker = Waker::from(Arc::clone(&woken));
    let mut future = pin!(future);
    for poll in 0..polls {
        if poll > 0 {
            woken.wait();
        }
        if let Poll::Ready(ended) = poll_once(future.as_mut(), &waker) {
            return Polled::Ended(ended);
        }
    }
    Polled::Dropped
}

pub(crate) fn poll_once<T>(
    future: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    waker: &Waker,
) -> Poll<T> {
    future.poll(&mut Context::from_waker(waker))
}

/// Polls a future until it ends.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    match polled(u32::MAX, future) {
        Polled::Ended(ended) => ended,
        Polled::Dropped => unreachable!("the future has not ended after {} polls", u32::MAX),
    }
}

/// Yields to the executor `times` times.
pub(crate) async fn yielded(times: u32) {
    for _ in 0..times {
        let mut first = true;
        std::future::poll_fn(move |context| {
            if std::mem::take(&mut first) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }
}
