//! [`Tidying`]: the memory that large messages have used in the frames of a connection. The keeper releases
//! this memory some time after the last large message.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::call::Frames;
use crate::limits;

/// Which frames have used much memory.
pub(super) struct Tidying {
    /// For each frame, the number of calls of [`tidy`](Self::tidy) until the memory that a large message has
    /// used is released.
    large: Box<[AtomicU32]>,
    /// Whether large messages have used memory since the keeper last began to release memory.
    untidy: AtomicBool,
    /// Whether the keeper, the background thread of the process, releases unused memory from time to time.
    tidies: AtomicBool,
}

impl Tidying {
    /// Makes the state for `count` frames.
    pub(super) fn new(count: u32) -> Self {
        Self {
            large: (0..count).map(|_| AtomicU32::new(0)).collect(),
            untidy: AtomicBool::new(false),
            tidies: AtomicBool::new(false),
        }
    }

    /// Notes that a large message is in a frame. The memory of the message is released later, if
    /// [`used`](Self::used) is also called.
    pub(super) fn note(&self, frame: u32) {
        self.large[frame as usize].store(2, Ordering::Relaxed);
    }

    /// Notes that large messages have used memory, so that the keeper later releases it.
    #[cold]
    pub(super) fn used(&self) {
        self.untidy.store(true, Ordering::Relaxed);
    }

    /// Returns whether the keeper must start to release unused memory now.
    #[inline]
    pub(super) fn begins(&self) -> bool {
        self.untidy.load(Ordering::Relaxed)
            && self.untidy.swap(false, Ordering::Relaxed)
            && !self.tidies.swap(true, Ordering::Relaxed)
    }

    /// Releases memory that has not been used since the previous call of this function. Returns true if a
    /// later call may release more memory.
    pub(super) fn tidy(&self, frames: &Frames) -> bool {
        let layout = *frames.layout();
        frames.each_free(&|index| {
            let rounds = &self.large[index as usize];
            let left = rounds.load(Ordering::Relaxed);
            rounds.store(left.saturating_sub(1), Ordering::Relaxed);
            if left == 1 {
                let start = layout.first + layout.stride * index as usize;
                for at in [start + layout.call_at, start + layout.reply_at] {
                    let end = at + layout.bytes;
                    frames.memory().release(at + limits::ASTACK_BYTES_KEPT, end);
                }
            }
        });
        let left = self.large.iter().any(|rounds| rounds.load(Ordering::Relaxed) > 0);
        self.tidies.store(left, Ordering::Relaxed);
        left
    }
}
