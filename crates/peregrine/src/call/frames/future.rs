//! Frames for futures and for batches: taken without blocking a thread.
//!
//! A future that waits has a place in the queue of the frames, and is woken when it may take a frame. No event
//! announces that the server has released a captured frame. So while futures wait, a timer wakes the first of them from
//! time to time ([`Look`]), and this future asks the path. If it does not ask, because its owner does not poll it, the
//! next future asks after the next interval.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::task::{Poll, Waker};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use super::{FrameGuard, Frames, allowed, thread_index};
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
        let on_exhausted = allowed(on_exhausted);
        match self.pool.take_for_future(hint, is_released, on_exhausted, ticket, waker) {
            Ok(index) => {
                if let Some(bell) = wait.take().and_then(|wait| wait.bell) {
                    bell.silence();
                }
                Poll::Ready(FrameGuard { frames: self, index })
            }
            Err(ticket) => {
                let mut bell = wait.take().and_then(|wait| wait.bell);
                let looks = self.look_later();
                let is_timed = deadline
                    .is_none_or(|at| bell.get_or_insert_with(Arc::default).ring_at(at, waker));
                if !looks || !is_timed {
                    // No thread wakes the future in time, so it polls.
                    waker.wake_by_ref();
                }
                *wait = Some(FutureWait { ticket, bell });
                Poll::Pending
            }
        }
    }

    /// Ends the wait of a future that gives up.
    pub(crate) fn leave(&self, wait: &FutureWait) {
        wait.bell.iter().for_each(DeadlineBell::silence);
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

    /// Has a waiting future check for released frames after a while. Returns false if there is no thread for that.
    fn look_later(self: &Arc<Self>) -> bool {
        if self.look.is_due.swap(true, Ordering::AcqRel) {
            return true;
        }
        let _ = self.look.frames.set(Arc::downgrade(self));
        let rings: Arc<dyn Rings> = Arc::clone(&self.look) as _;
        let at = Instant::now() + self.look_every;
        let is_set = Bells::of_process().watch(&rings, 0, Some(at), false).is_ok();
        if !is_set {
            self.look.is_due.store(false, Ordering::Release);
        }
        is_set
    }
}

/// The timer of the checks for released frames.
#[derive(Default)]
pub(super) struct Look {
    frames: OnceLock<Weak<Frames>>,
    /// Whether the timer is set.
    is_due: AtomicBool,
}

impl Rings for Look {
    fn word(&self, _: u32) -> Option<(&AtomicU32, u32)> {
        None
    }
    fn examine(&self, _: u32) {}
    fn ring(&self, _: u32) {
        self.is_due.store(false, Ordering::Release);
        let Some(frames) = self.frames.get().and_then(Weak::upgrade) else { return };
        // A future that joins the queue from now on sets the timer.
        if frames.pool.wake_future() {
            frames.look_later();
        }
    }
}

/// The wait of a future for a frame.
#[derive(Debug)]
pub(crate) struct FutureWait {
    ticket: u64,
    /// `None` without a deadline.
    bell: Option<Arc<DeadlineBell>>,
}

/// What wakes a future that waits for a frame at its deadline.
#[derive(Debug, Default)]
pub(crate) struct DeadlineBell(Bell);

impl DeadlineBell {
    /// Wakes `waker` at a time. Returns false if there is no thread for that.
    pub(crate) fn ring_at(self: &Arc<Self>, at: Instant, waker: &Waker) -> bool {
        self.0.set(waker);
        let rings: Arc<dyn Rings> = Arc::clone(self) as _;
        Bells::of_process().watch(&rings, 0, Some(at), false).is_ok()
    }

    /// Wakes nothing any more.
    pub(crate) fn silence(self: &Arc<Self>) {
        let rings: Arc<dyn Rings> = Arc::clone(self) as _;
        Bells::of_process().forget(&rings, 0);
        self.0.clear();
    }
}

impl Rings for DeadlineBell {
    fn word(&self, _: u32) -> Option<(&AtomicU32, u32)> {
        None
    }
    fn examine(&self, _: u32) {}
    fn ring(&self, _: u32) {
        self.0.ring();
    }
}
