//! Frames for futures and for batches: taken without blocking a thread.
//!
//! A future that waits has a place in the queue of the frames, and is woken when a frame is offered to it. No
//! event announces that the server has released a captured frame. So while futures wait, a timer wakes the
//! first of them from time to time ([`Look`]), and this future asks its path for released frames. If the
//! owner of this future does not poll it, the timer wakes the next future after another interval.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::task::{Poll, Waker};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use super::{FrameGuard, FrameStates, Frames, allowed, thread_index};
use crate::call::OnExhausted;
use crate::call::pending::{Bell, Bells, Rings};

impl Frames {
    /// Takes a frame for a future, as [`take`](Self::take) does for a thread, but does not wait. If no frame
    /// is free, `waker` is woken when the future may try again, or at `deadline`. `wait` is the state of the
    /// future's wait, and begins as `None`. The future must call [`leave`](Self::leave) when it does not wait
    /// any more.
    pub(crate) fn poll_take<'a>(
        &'a self,
        wait: &mut Option<FutureWait>,
        deadline: Option<Instant>,
        is_released: &dyn Fn(u32) -> bool,
        on_exhausted: OnExhausted,
        waker: &Waker,
    ) -> Poll<FrameGuard<'a>> {
        let hint = thread_index();
        if wait.is_none()
            && let Some(index) = self.states.pool.take(hint)
        {
            return Poll::Ready(FrameGuard { frames: self, index });
        }
        let ticket = wait.as_ref().map(|wait| wait.ticket);
        let on_exhausted = allowed(on_exhausted);
        match self.states.pool.take_for_future(hint, is_released, on_exhausted, ticket, waker) {
            Ok(index) => {
                if let Some(bell) = wait.take().and_then(|wait| wait.bell) {
                    bell.silence();
                }
                Poll::Ready(FrameGuard { frames: self, index })
            }
            Err(ticket) => {
                let mut bell = wait.take().and_then(|wait| wait.bell);
                let looks = self.states.look_later();
                let is_timed = deadline
                    .is_none_or(|at| bell.get_or_insert_with(Arc::default).ring_at(at, waker));
                if !looks || !is_timed {
                    // No thread will wake the future in time, so the future is polled again at once.
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
        self.states.pool.leave_future(wait.ticket);
    }

    /// Takes a frame as [`take`](Self::take) does, but returns `None` instead of waiting.
    pub(crate) fn try_take(
        &self,
        is_released: &dyn Fn(u32) -> bool,
        on_exhausted: OnExhausted,
    ) -> Option<FrameGuard<'_>> {
        let index = self.states.pool.try_take(thread_index(), is_released, on_exhausted)?;
        Some(FrameGuard { frames: self, index })
    }

    /// Returns the guard of a frame that was [kept](FrameGuard::keep).
    pub(crate) const fn kept(&self, index: u32) -> FrameGuard<'_> {
        FrameGuard { frames: self, index }
    }

    /// Returns the bell of a frame. The bell rings when the frame's pending call may have a reply, or has
    /// work to do.
    pub(crate) fn bell(&self, index: u32) -> &Bell {
        &self.states.bells[index as usize]
    }

    /// Returns how many calls are pending.
    pub(crate) fn pending(&self) -> u32 {
        self.states.pending.load(Ordering::Relaxed)
    }

    /// Counts one more pending call if `begins` is true, and otherwise one less.
    pub(crate) fn count_pending(&self, begins: bool) {
        if begins {
            self.states.pending.fetch_add(1, Ordering::Relaxed);
        } else {
            self.states.pending.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl FrameStates {
    /// Sets the timer after which a waiting future checks for released frames. Returns false if no thread can
    /// be started.
    fn look_later(self: &Arc<Self>) -> bool {
        if self.look.is_due.swap(true, Ordering::AcqRel) {
            return true;
        }
        let _ = self.look.states.set(Arc::downgrade(self));
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
    states: OnceLock<Weak<FrameStates>>,
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
        let Some(states) = self.states.get().and_then(Weak::upgrade) else { return };
        // If no other future waits, the next future that joins the queue sets the timer.
        if states.pool.wake_future(states.look_every) {
            states.look_later();
        }
    }
}

/// The wait of a future for a frame.
#[derive(Debug)]
pub(crate) struct FutureWait {
    ticket: u64,
    /// Wakes the future at its deadline. `None` if the future has no deadline.
    bell: Option<Arc<DeadlineBell>>,
}

/// Wakes a future at its deadline, while the future waits for a frame.
#[derive(Debug, Default)]
pub(crate) struct DeadlineBell(Bell);

impl DeadlineBell {
    /// Wakes `waker` at the time `at`. Returns false if no thread can be started.
    pub(crate) fn ring_at(self: &Arc<Self>, at: Instant, waker: &Waker) -> bool {
        self.0.set(waker);
        let rings: Arc<dyn Rings> = Arc::clone(self) as _;
        Bells::of_process().watch(&rings, 0, Some(at), false).is_ok()
    }

    /// Removes the waker and the timer.
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
