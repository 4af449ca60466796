//! `Frames`: the call frames (A-stacks) of a binding, taken and given back without a virtual call.
//!
//! Firefly's Starter and Ender: a thread tries the frame that it used before; threads beyond the
//! number of frames wait in the kernel.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use crate::sys::{self, Memory};
use crate::value::{Space, Window};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const CAPTURED: u32 = 2;

/// Where each frame's call space and reply space lie in the memory of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLayout {
    /// How many frames there are.
    pub count: u32,
    /// Bytes before the first frame.
    pub first: usize,
    /// Bytes from one frame to the next.
    pub stride: usize,
    /// Bytes from a frame's start to its call space.
    pub call_at: usize,
    /// Bytes from a frame's start to its reply space.
    pub reply_at: usize,
    /// Bytes of either space.
    pub bytes: usize,
}

/// The frames of one binding.
#[derive(Debug)]
pub struct Frames {
    memory: Arc<Memory>,
    layout: FrameLayout,
    slots: Box<[Slot]>,
    waiters: AtomicU32,
    /// Changes whenever a frame is given back while somebody waits.
    given: AtomicU32,
    active: AtomicU32,
}

/// A line of its own: threads on different frames do not disturb each other.
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    state: AtomicU32,
    /// Where the frame begins in the memory.
    start: usize,
}

impl Slot {
    #[inline]
    fn take(&self, seen: u32) -> bool {
        let taken = self.state.compare_exchange(seen, TAKEN, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }
}

/// A small number for each thread, so that it finds its last frame again.
#[inline]
fn thread_index() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static INDEX: Cell<u32> = const { Cell::new(u32::MAX) });
    INDEX.with(|index| {
        if index.get() == u32::MAX {
            index.set(NEXT.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff);
        }
        index.get()
    })
}

impl Frames {
    /// All frames free.
    ///
    /// # Panics
    /// If there is no frame, or the layout does not lie within the memory.
    pub fn new(memory: Arc<Memory>, layout: FrameLayout, active: u32) -> Self {
        assert!(layout.count > 0, "a binding needs a frame");
        let last = layout.first + layout.stride * (layout.count as usize - 1);
        let end = last + layout.call_at.max(layout.reply_at) + layout.bytes;
        assert!(end <= memory.len(), "frames of {end} bytes in {} bytes", memory.len());
        let slot = |index| Slot {
            state: AtomicU32::new(FREE),
            start: layout.first + layout.stride * index as usize,
        };
        let slots = (0..layout.count).map(slot).collect();
        Self {
            memory,
            layout,
            slots,
            waiters: AtomicU32::new(0),
            given: AtomicU32::new(0),
            active: AtomicU32::new(active),
        }
    }

    pub(crate) fn at_least(&self, count: u32) {
        self.active.fetch_max(count.min(self.layout.count), Ordering::SeqCst);
    }

    /// The memory in which the frames lie.
    pub const fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Where they lie.
    pub const fn layout(&self) -> &FrameLayout {
        &self.layout
    }

    /// Takes a frame. While there is none, waits until `deadline`; `let_go` tells whether the
    /// server has let go of a captured frame.
    #[inline]
    pub fn take(
        &self,
        deadline: impl FnOnce() -> Option<Instant>,
        let_go: impl Fn(u32) -> bool,
        _short: super::Short,
    ) -> Option<Taken<'_>> {
        let mut index = thread_index();
        let active = self.active.load(Ordering::Relaxed);
        if index >= active {
            index %= active;
        }
        // SYNC: frame, given back in Taken::drop: what the last holder wrote is ours to see.
        if self.slots[index as usize].take(FREE) {
            return Some(Taken { frames: self, index });
        }
        self.take_slowly(index, deadline(), &let_go)
    }

    /// The hinted frame was not free: look at all of them, and at last wait.
    #[cold]
    fn take_slowly(
        &self,
        hinted: u32,
        deadline: Option<Instant>,
        let_go: &dyn Fn(u32) -> bool,
    ) -> Option<Taken<'_>> {
        loop {
            if let Some(taken) = self.scan(hinted, let_go) {
                return Some(taken);
            }
            self.waiters.fetch_add(1, Ordering::SeqCst);
            // Holders give frames back with a plain store and then read `waiters`: this barrier on
            // their processors makes one of us see the other.
            sys::membarrier();
            let given = self.given.load(Ordering::SeqCst);
            let found = self.scan(hinted, let_go);
            let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if found.is_none() && !late {
                // Bounded, for captured frames come back without a notice.
                let left = deadline.map_or(WAIT, |d| d.saturating_duration_since(Instant::now()));
                sys::futex_wait(&self.given, given, Some(left.min(WAIT)));
            }
            self.waiters.fetch_sub(1, Ordering::SeqCst);
            if found.is_some() || late {
                return found;
            }
        }
    }

    fn scan(&self, from: u32, let_go: &dyn Fn(u32) -> bool) -> Option<Taken<'_>> {
        let count = self.active.load(Ordering::SeqCst);
        (0..count).map(|i| (from + i) % count).find_map(|index| {
            let slot = &self.slots[index as usize];
            let seen = slot.state.load(Ordering::Relaxed);
            // Lazily: a `Taken` that nobody took would give the frame back when dropped.
            let taken = match seen {
                FREE => slot.take(FREE),
                // First ours, then asked for: what `let_go` notes belongs to the frame's holder.
                CAPTURED if slot.take(CAPTURED) => {
                    let free = let_go(index);
                    if !free {
                        slot.state.store(CAPTURED, Ordering::Release);
                    }
                    free
                }
                _ => false,
            };
            taken.then(|| Taken { frames: self, index })
        })
    }

    #[cold]
    fn notify(&self) {
        self.given.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(&self.given);
    }
}

/// The longest sleep without another look at captured frames.
const WAIT: Duration = Duration::from_millis(10);

/// A frame that belongs to one call; given back when dropped.
#[derive(Debug)]
pub struct Taken<'a> {
    frames: &'a Frames,
    index: u32,
}

impl<'a> Taken<'a> {
    /// Its number, from 0.
    #[inline]
    pub const fn index(&self) -> u32 {
        self.index
    }

    #[inline]
    fn part(&self, at: usize) -> Space<'a> {
        let start = self.frames.slots[self.index as usize].start + at;
        let space = self.frames.memory.space();
        space.part(start, self.frames.layout.bytes).unwrap_or(Space::none())
    }

    /// Where the message of the call goes.
    #[inline]
    pub fn call_space(&self) -> Space<'a> {
        self.part(self.frames.layout.call_at)
    }

    /// Where the message of the result is.
    #[inline]
    pub fn reply_space(&self) -> Window<'a> {
        self.part(self.frames.layout.reply_at).window()
    }

    /// The reply space as the server writes it, for paths that run the server themselves.
    #[inline]
    pub fn reply_to(&self) -> Space<'a> {
        self.part(self.frames.layout.reply_at)
    }

    /// Leaves the frame to the server, which may still use it: the caller gave up. It comes back
    /// when the server lets go.
    pub fn capture(self) {
        let slot = &self.frames.slots[self.index as usize];
        slot.state.store(CAPTURED, Ordering::Release);
        core::mem::forget(self);
    }
}

impl Drop for Taken<'_> {
    #[inline]
    fn drop(&mut self) {
        // SYNC: frame, taken in Frames::take and Frames::scan.
        self.frames.slots[self.index as usize].state.store(FREE, Ordering::Release);
        // The waiter's membarrier stands in for the fence that would belong here.
        compiler_fence(Ordering::SeqCst);
        if self.frames.waiters.load(Ordering::Relaxed) != 0 {
            self.frames.notify();
        }
    }
}
