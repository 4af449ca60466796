//! The handle of a tokio runtime as the [`Executor`] of an async server.

use core::pin::Pin;

use tokio::runtime::Handle;

use super::Executor;

/// Procedures run on the runtime of the handle, so they may use its timers, sockets and tasks.
///
/// Procedures are polled for the first time on the thread that received the call, in the context of the
/// runtime. If the runtime is shut down, the procedures that have not ended are dropped, and their calls
/// fail. These calls may have executed.
///
/// ```
/// use std::time::Duration;
/// # use peregrine::interface;
///
/// #[interface]
/// trait Clock {
///     /// Returns after `ms` milliseconds.
///     fn after(&self, ms: u32) -> peregrine::Result<u32>;
/// }
///
/// struct Timers;
///
/// impl ClockAsync for Timers {
///     async fn after(&self, ms: u32) -> peregrine::Result<u32> {
///         tokio::time::sleep(Duration::from_millis(ms.into())).await;
///         Ok(ms)
///     }
/// }
///
/// let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
/// let server = ClockAsyncServer::new(Timers).with_executor(runtime.handle().clone());
/// let clock = ClockAsyncClient::in_process_to(server)?;
/// assert_eq!(runtime.block_on(clock.after(2))?, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Executor for Handle {
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        // The task runs until its end, although its `JoinHandle` is dropped.
        drop(Self::spawn(self, future));
    }

    fn enter(&self, poll: &mut dyn FnMut()) {
        let _context = Self::enter(self);
        poll();
    }
}
