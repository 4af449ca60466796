//! Frames for futures and for batches: taken without blocking a thread.

use core::sync::atomic::{AtomicU32, Ordering};
use core::task::{Poll, Waker};
use std::sync::Arc;
use std::time::Instant;

use super::{FrameGuard, Frames, thread_index};
use crate::call::OnExhausted;
use crate::call::pending::{Bell, Bells, Rings};

impl Frames {
    /// Takes a frame for a future, as [`take`](Self::take) does for a thread, but does not wait: if no frame is
    /// free, `waker` is woken when the future may try again, or at `deadline`. `wait` is the wait of the future,
    /// which begins as `None`. The future must call [`leave`](Self::leave) when it does not wait any more.
    pub(crate) fn poll_take<'a>(
        self: &'a Arc<Self>,
        wait: &mut Option<FutureWait>,
        deadline: Option<Instant>,
        is_released: &dyn Fn(u32) -> bool,
        on_exhausted: OnExhausted,
        waker: &Waker,
    ) -> Poll<FrameGuard<'a>> {
        let hint = thread_index();
        if wait.is_none()
            && let Some(index) = self.pool.take(hint)
        {
            return Poll::Ready(FrameGuard { frames: self, index });
        }
        let ticket = wait.as_ref().map(|wait| wait.ticket);
        match self.pool.take_for_future(hint, is_released, on_exhausted, ticket, waker) {
            Ok(index) => {
                if let Some(wait) = wait.take() {
                    wait.bell.silence();
                }
                Poll::Ready(FrameGuard { frames: self, index })
            }
            Err((ticket, is_first)) => {
                let bell = wait.take().map_or_else(Arc::default, |wait| wait.bell);
                bell.0.set(waker);
                // Nothing announces that a captured frame was released, so the first future checks.
                let look = is_first.then(|| Instant::now() + self.look_every);
                if let Some(at) = deadline.into_iter().chain(look).min() {
                    let rings: Arc<dyn Rings> = Arc::clone(&bell) as _;
                    // If the thread cannot be started, the future waits until a frame is returned.
                    let _ = Bells::of_process().watch(&rings, 0, Some(at), false);
                }
                *wait = Some(FutureWait { ticket, bell });
                Poll::Pending
            }
        }
    }

    /// Ends the wait of a future that gives up.
    pub(crate) fn leave(&self, wait: &FutureWait) {
        wait.bell.silence();
        self.pool.leave_future(wait.ticket);
    }

    /// Takes a frame as [`take`](Self::take) does, but returns `None` instead of waiting.
    pub(crate) fn try_take(
        &self,
        is_released: &dyn Fn(u32) -> bool,
        on_exhausted: OnExhausted,
    ) -> Option<FrameGuard<'_>> {
        let index = self.pool.try_take(thread_index(), is_released, on_exhausted)?;
        Some(FrameGuard { frames: self, index })
    }

    /// Returns the guard of a frame that was [kept](FrameGuard::keep).
    pub(crate) const fn kept(&self, index: u32) -> FrameGuard<'_> {
        FrameGuard { frames: self, index }
    }

    /// Returns the bell of a frame, which rings when there is something to look for its pending call.
    pub(crate) fn bell(&self, index: u32) -> &Bell {
        &self.bells[index as usize]
    }

    /// Returns how many calls are pending.
    pub(crate) fn pending(&self) -> u32 {
        self.pending.load(Ordering::Relaxed)
    }

    /// Counts one more pending call, or one less.
    pub(crate) fn count_pending(&self, begins: bool) {
        if begins {
            self.pending.fetch_add(1, Ordering::Relaxed);
        } else {
            self.pending.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The wait of a future for a frame.
#[derive(Debug)]
pub(crate) struct FutureWait {
    ticket: u64,
    bell: Arc<LookBell>,
}

/// What wakes a future that waits for a frame at a certain time.
#[derive(Debug, Default)]
struct LookBell(Bell);

impl LookBell {
    /// Wakes nothing any more.
    fn silence(self: &Arc<Self>) {
        let rings: Arc<dyn Rings> = Arc::clone(self) as _;
        Bells::of_process().forget(&rings, 0);
        self.0.clear();
    }
}

impl Rings for LookBell {
    fn word(&self, _: u32) -> Option<(&AtomicU32, u32)> {
        None
    }
    fn examine(&self, _: u32) {}
    fn ring(&self, _: u32) {
        self.0.ring();
    }
}
