//! Runs futures on the calling thread, without an async runtime.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Wakes the thread of a future, and notes in a flag that this future was woken.
struct Wakes {
    thread: Thread,
    woken: AtomicBool,
}

impl Wakes {
    fn this_thread() -> Arc<Self> {
        Arc::new(Self { thread: thread::current(), woken: AtomicBool::new(true) })
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Runs a future to its end. The thread sleeps while the future waits.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let wakes = Wakes::this_thread();
    let waker = Waker::from(Arc::clone(&wakes));
    let mut future = pin!(future);
    loop {
        // A thread may be unparked for another reason, so the flag decides whether the future is polled. If a
        // wake-up is lost, the test hangs.
        if !wakes.woken.swap(false, Ordering::Acquire) {
            thread::park();
            continue;
        }
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return result;
        }
    }
}

/// Runs futures to their ends, all on this thread. Each future has its own waker, and is polled only after it
/// was woken. Returns the results in the order of `futures`.
pub(crate) fn join_all<T>(futures: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    struct Joined<F, T> {
        future: Pin<Box<F>>,
        wakes: Arc<Wakes>,
        result: Option<T>,
    }
    let mut all: Vec<_> = futures
        .into_iter()
        .map(|future| Joined {
            future: Box::pin(future),
            wakes: Wakes::this_thread(),
            result: None,
        })
        .collect();
    loop {
        let (mut polled, mut pending) = (false, false);
        for one in all.iter_mut().filter(|one| one.result.is_none()) {
            if one.wakes.woken.swap(false, Ordering::Acquire) {
                polled = true;
                let waker = Waker::from(Arc::clone(&one.wakes));
                if let Poll::Ready(result) =
                    one.future.as_mut().poll(&mut Context::from_waker(&waker))
                {
                    one.result = Some(result);
                    continue;
                }
            }
            pending = true;
        }
        if !pending {
            return all.into_iter().filter_map(|one| one.result).collect();
        }
        if !polled {
            thread::park();
        }
    }
}

/// Polls a future once, with a waker that does nothing. Returns the result if the future has ended.
pub(crate) fn poll_once<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

/// Yields once: wakes itself at the first poll, and ends at the second poll.
pub(crate) async fn yielded() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Starts a thread at the first poll, and waits until this thread has woken the future.
pub(crate) async fn woken_by_a_thread() {
    let mut ran = None;
    std::future::poll_fn(move |context| {
        let ran = ran.get_or_insert_with(|| {
            let (ran, waker) = (Arc::new(AtomicBool::new(false)), context.waker().clone());
            let runs = Arc::clone(&ran);
            thread::spawn(move || {
                runs.store(true, Ordering::Release);
                waker.wake();
            });
            ran
        });
        if ran.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
