//! The bells of the frames of an association. A bell wakes the future of a pending call.
//!
//! A bell runs a waker, which is code of the program's executor. So no thread rings a bell while it holds a
//! lock. The timer thread of the process rings the bell for a thread that must keep its locks.

use core::sync::atomic::AtomicU32;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::call::Frames;
use crate::call::pending::{Bells, Rings};

/// The bit that `ring_soon` sets in the number of a frame. A timer under this number is not replaced by a
/// later timer of the frame.
const SOON: u32 = 1 << 31;

/// The bells of the frames of an association, and their timers.
pub(super) struct FrameBells {
    frames: Arc<Frames>,
}

impl FrameBells {
    pub(super) fn new(frames: &Arc<Frames>) -> Arc<Self> {
        Arc::new(Self { frames: Arc::clone(frames) })
    }

    fn rings(self: &Arc<Self>) -> Arc<dyn Rings> {
        Arc::clone(self) as _
    }

    /// Rings the bell of a frame at `at`. Replaces the former timer of the frame. If `at` is `None`, does
    /// nothing.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn ring_at(self: &Arc<Self>, frame: u32, at: Option<Instant>) -> io::Result<()> {
        Bells::of_process().watch(&self.rings(), frame, at, false)
    }

    /// Makes the timer thread ring the bells of these frames as soon as possible. The caller may hold locks.
    #[cold]
    pub(super) fn ring_soon(self: &Arc<Self>, frames: impl IntoIterator<Item = u32>) {
        for frame in frames {
            // Each future has set a timer before it sleeps. So the timer thread already runs, and `ring_at`
            // cannot fail.
            let _ = self.ring_at(frame | SOON, Some(Instant::now()));
        }
    }

    /// Removes the timer of a frame.
    pub(super) fn forget(self: &Arc<Self>, frame: u32) {
        Bells::of_process().forget(&self.rings(), frame);
    }

    /// Rings the bell of a frame now. The caller holds no lock.
    pub(super) fn ring(&self, frame: u32) {
        self.frames.bell(frame & !SOON).ring();
    }
}

impl Rings for FrameBells {
    fn word(&self, _: u32) -> Option<(&AtomicU32, u32)> {
        None
    }

    fn examine(&self, _: u32) {}

    fn ring(&self, frame: u32) {
        self.ring(frame);
    }
}
