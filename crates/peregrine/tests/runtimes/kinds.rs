//! Defines the runtimes under which the tests run clients and servers.

use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use async_executor::Executor as SmolTasks;
use futures_util::future::{BoxFuture, FutureExt as _};
use peregrine::Executor;
use tokio::sync::oneshot;

/// How a test runs its futures: on a runtime, or without one ([`Bare`]).
pub(crate) trait Runtime: Clone + Send + Sync + 'static {
    /// Starts the runtime. It is shut down when the [`Driver`] is dropped.
    fn start() -> (Self, Driver);
    /// Returns the executor of this runtime for an async server. `None` selects the built-in one.
    fn executor(&self) -> Option<Boxed>;
    /// Runs a future on the calling thread, in the context of the runtime.
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T;
    /// Completes after `time`, by the timers of the runtime.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;
    /// Starts a future as a task of the runtime. The returned future completes when the task has ended or was
    /// dropped.
    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> BoxFuture<'static, ()>;
}

/// An executor of any type.
pub(crate) struct Boxed(Box<dyn Executor>);

impl Executor for Boxed {
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.spawn(future);
    }
    fn enter(&self, poll: &mut dyn FnMut()) {
        self.0.enter(poll);
    }
}

/// Shuts a runtime down when it is dropped.
pub(crate) struct Driver {
    stop: Option<Box<dyn FnOnce() + Send>>,
}

impl Driver {
    fn new(stop: impl FnOnce() + Send + 'static) -> Self {
        Self { stop: Some(Box::new(stop)) }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop();
        }
    }
}

/// No runtime: futures run on the thread that waits for them, and on the threads that the library starts.
#[derive(Clone)]
pub(crate) struct Bare;

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Runtime for Bare {
    fn start() -> (Self, Driver) {
        (Self, Driver::new(|| {}))
    }
    fn executor(&self) -> Option<Boxed> {
        None
    }
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let waker = Waker::from(Arc::new(Unparks(thread::current())));
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(result) => return result,
                Poll::Pending => thread::park(),
            }
        }
    }
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        async move {
            let (done, ends) = oneshot::channel();
            thread::spawn(move || {
                thread::sleep(time);
                let _ = done.send(());
            });
            let _ = ends.await;
        }
        .boxed()
    }
    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> BoxFuture<'static, ()> {
        let (done, ends) = oneshot::channel::<()>();
        thread::spawn(move || {
            Self.block_on(future);
            drop(done);
        });
        ends.map(drop).boxed()
    }
}

/// A runtime of tokio. If `MANY` is true, the runtime has several threads.
#[derive(Clone)]
pub(crate) struct Tokio<const MANY: bool>(tokio::runtime::Handle);

pub(crate) type CurrentThread = Tokio<false>;
pub(crate) type MultiThread = Tokio<true>;

impl<const MANY: bool> Runtime for Tokio<MANY> {
    fn start() -> (Self, Driver) {
        let mut builder = match MANY {
            true => tokio::runtime::Builder::new_multi_thread(),
            false => tokio::runtime::Builder::new_current_thread(),
        };
        let runtime = builder.worker_threads(2).enable_time().build().expect("a runtime");
        let handle = runtime.handle().clone();
        // A runtime with one thread runs its tasks only while that thread drives it.
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let _ = runtime.block_on(stopped);
        });
        (Self(handle), Driver::new(|| end(stop, thread)))
    }
    fn executor(&self) -> Option<Boxed> {
        Some(Boxed(Box::new(self.0.clone())))
    }
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.block_on(future)
    }
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        // The timer is made at the first poll, which must be in the context of the runtime.
        async move { tokio::time::sleep(time).await }.boxed()
    }
    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> BoxFuture<'static, ()> {
        self.0.spawn(future).map(drop).boxed()
    }
}

fn end(stop: oneshot::Sender<()>, thread: JoinHandle<()>) {
    drop(stop);
    thread.join().expect("the runtime ends");
}

/// The executor and the timers of smol. Only the thread that drives the executor owns it.
#[derive(Clone)]
pub(crate) struct Smol(Weak<SmolTasks<'static>>);

/// A program can implement this trait for any other executor in the same way.
impl Executor for Smol {
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        if let Some(tasks) = self.0.upgrade() {
            tasks.spawn(future).detach();
        }
    }
}

impl Runtime for Smol {
    fn start() -> (Self, Driver) {
        let tasks = Arc::new(SmolTasks::new());
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = Self(Arc::downgrade(&tasks));
        let thread = thread::spawn(move || {
            let _ = async_io::block_on(tasks.run(stopped));
        });
        (runtime, Driver::new(|| end(stop, thread)))
    }
    fn executor(&self) -> Option<Boxed> {
        Some(Boxed(Box::new(self.clone())))
    }
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        async_io::block_on(future)
    }
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        async move {
            async_io::Timer::after(time).await;
        }
        .boxed()
    }
    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> BoxFuture<'static, ()> {
        let tasks = self.0.upgrade().expect("the executor runs");
        tasks.spawn(future).boxed()
    }
}
