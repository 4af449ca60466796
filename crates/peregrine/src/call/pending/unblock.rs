//! [`unblock`]: runs blocking work on a new thread, and completes a future with the result.

use core::future::poll_fn;
use core::task::{Poll, Waker};
use std::io;
use std::sync::Arc;

use crate::sync::Mutex;

/// The result of the work, and what waits for it.
struct Shared<T> {
    result: Option<T>,
    /// Whether the thread has ended, perhaps by a panic.
    ended: bool,
    waker: Option<Waker>,
}

/// Ends the wait for a thread when the thread ends, also if it panics.
struct Ends<T>(Arc<Mutex<Shared<T>>>);

impl<T> Drop for Ends<T> {
    fn drop(&mut self) {
        let mut shared = self.0.lock();
        shared.ended = true;
        let waker = shared.waker.take();
        drop(shared);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Runs `work` on a new thread, and waits for its result without blocking the calling thread. If the returned
/// future is dropped, the work continues and its result is dropped.
///
/// This is for rare work: binding, and the preparation of a frame for its first pending call.
///
/// # Errors
/// If no thread can be started, or the work panics.
pub(crate) async fn unblock<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let shared = Arc::new(Mutex::new(Shared { result: None, ended: false, waker: None }));
    let ends = Ends(Arc::clone(&shared));
    std::thread::Builder::new().name("peregrine-bind".into()).spawn(move || {
        let result = work();
        ends.0.lock().result = Some(result);
        drop(ends);
    })?;
    poll_fn(move |context| {
        let mut shared = shared.lock();
        match shared.result.take() {
            Some(result) => Poll::Ready(Ok(result)),
            None if shared.ended => Poll::Ready(Err(io::Error::other("the thread panicked"))),
            None => {
                shared.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::pin::pin;
    use core::task::Context;
    use std::task::Wake;
    use std::thread::{Thread, current, park};

    struct Unparks(Thread);

    impl Wake for Unparks {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let waker = Waker::from(Arc::new(Unparks(current())));
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(result) => return result,
                Poll::Pending => park(),
            }
        }
    }

    #[test]
    fn result_of_the_thread_completes_the_future() {
        assert_eq!(block_on(unblock(|| 7)).unwrap(), 7);
    }

    #[test]
    fn panic_of_the_thread_is_an_error() {
        let failed = block_on(unblock(|| {
            if true {
                panic!("a fault")
            }
        }));
        assert_eq!(failed.unwrap_err().to_string(), "the thread panicked");
    }
}
