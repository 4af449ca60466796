//! Deferred calls: calls of an async server, whose replies any thread sends later.
//!
//! The thread that receives such a call copies the message ([`OwnedCall`]), makes the future of the
//! procedure, and polls it once. If the procedure ends at once, the thread sends the reply as for any other
//! call. Otherwise the thread asks the source of the call, such as a session or a connection, to defer the
//! reply ([`Calls::defer`](super::caller::Calls::defer)). The thread then serves the next call. The
//! [`Task`](task::Task) of the deferred call keeps the future. When the future is woken, an [`Executor`]
//! polls it. When the procedure has ended, the task passes the reply to the source.

mod attached;
mod executor;
#[cfg(test)]
mod model;
mod owned;
mod serve;
mod task;
#[cfg(feature = "tokio")]
mod tokio;

pub use attached::ServerExecutor;
pub use executor::Executor;
pub use owned::{Answered, OwnedCall};
pub use serve::serve_async;
pub(crate) use serve::{ThreadWait, continue_later};
#[cfg(feature = "tracing")]
pub(crate) use task::Procedure;

use std::sync::Arc;

/// The duty to send the reply to a deferred call.
pub(crate) trait Owed: Send {
    /// Leaves the call out of the counters of the server, because the call carries items of streams, or a
    /// batch whose calls are counted one by one. When the server stops, it waits for the reply only if
    /// `awaited` is true.
    fn leave_uncounted(&mut self, awaited: bool);

    /// Sends the reply. Does nothing if the caller does not wait any more.
    fn answer(self: Box<Self>, answered: Answered);
}

/// A deferred call, as its session or connection sees it.
pub(crate) trait Cancels: Send + Sync {
    /// Drops the procedure, because the caller has given up the call or does not exist any more. The task
    /// then answers with a refusal. The thread that calls this must hold no lock that [`Owed::answer`] takes.
    fn cancel(self: Arc<Self>);

    /// Drops the procedure as [`cancel`](Self::cancel) does, because the server stops.
    fn stop(self: Arc<Self>) {
        self.cancel();
    }
}
