//! A running call that is followed until it ends, because the server keeps something for its procedure.
//!
//! The thread that runs the call offers the [`Followed`] call to the server stub. A stub of an async server
//! takes it, and keeps it with the procedure until the reply is made, on any thread. Nothing is allocated.

use core::cell::Cell;
use std::sync::Arc;

use super::Answer;

/// What is known of a call that is followed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FollowedCall {
    pub(crate) procedure: u32,
    /// The number of bytes of the call's message.
    pub(crate) argument_bytes: usize,
    /// When the call began, in nanoseconds since the machine was started, or 0 if nothing needs to know.
    pub(crate) begun: u64,
    /// Whether the call came from another machine. Always false if nothing needs to know.
    pub(crate) is_remote: bool,
}

/// What follows calls until they end.
pub(crate) trait Follows: Send + Sync {
    /// Notes that a call has ended. `result` has the kind of the answer, and the number of bytes of the
    /// result. It is `None` if there is no result, because the call was refused or the procedure panicked.
    fn ended(&self, call: &FollowedCall, result: Option<(Answer, usize)>);
}

/// A running call. If this value is dropped, the call has ended without a result.
pub(crate) struct Followed {
    by: Arc<dyn Follows>,
    call: FollowedCall,
    has_ended: bool,
}

impl Followed {
    pub(crate) const fn new(by: Arc<dyn Follows>, call: FollowedCall) -> Self {
        Self { by, call, has_ended: false }
    }

    /// Notes that the call has ended.
    pub(crate) fn end(mut self, result: Option<(Answer, usize)>) {
        self.has_ended = true;
        self.by.ended(&self.call, result);
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        if !self.has_ended {
            self.by.ended(&self.call, None);
        }
    }
}

thread_local! {
    /// The call that this thread is about to run, if it is followed and no stub has taken it yet.
    static OFFERED: Cell<Option<Followed>> = const { Cell::new(None) };
}

/// Takes the call that this thread is about to run, if it is followed.
pub(super) fn take() -> Option<Followed> {
    OFFERED.take()
}

/// Runs `serve`, which may [take](take) the call. Returns the call if it was not taken.
pub(crate) fn offer<T>(call: Followed, serve: impl FnOnce() -> T) -> (T, Option<Followed>) {
    /// The call around this one, if it was not taken. It is offered again after this one.
    struct Around(Option<Followed>);
    impl Drop for Around {
        fn drop(&mut self) {
            drop(OFFERED.replace(self.0.take()));
        }
    }
    let _around = Around(OFFERED.replace(Some(call)));
    let served = serve();
    (served, OFFERED.take())
}
