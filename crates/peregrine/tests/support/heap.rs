//! The system's allocator with two counters: the number of allocations, and the number of bytes in use.
//!
//! To use it, a test program makes [`Counting`] its global allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

pub(crate) struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static IN_USE: AtomicI64 = AtomicI64::new(0);

/// Returns how often this process has allocated memory or resized an allocation.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// Returns how many bytes this process has allocated and not freed.
pub(crate) fn bytes_in_use() -> i64 {
    IN_USE.load(Ordering::Relaxed)
}

thread_local! {
    /// Two numbers: how many bytes this thread has allocated and not freed, and the maximum of the first
    /// number.
    static OWN: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

/// Runs `make`. Returns its result, and the largest number of bytes by which this thread's memory grew
/// meanwhile.
pub(crate) fn peak_of<T>(make: impl FnOnce() -> T) -> (T, i64) {
    let before = OWN.get().0;
    OWN.set((before, before));
    let made = make();
    (made, OWN.get().1 - before)
}

fn count(bytes: usize, sign: i64) {
    let change = sign * bytes as i64;
    IN_USE.fetch_add(change, Ordering::Relaxed);
    // While a thread ends, it may be unable to access `OWN`. The numbers in `OWN` then stay unchanged.
    let _ = OWN.try_with(|own| {
        let (in_use, peak) = own.get();
        own.set((in_use + change, peak.max(in_use + change)));
    });
}

// SAFETY: forwards all calls to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        count(layout.size(), 1);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(memory, layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        count(layout.size(), -1);
        count(bytes, 1);
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

/// Calls `run` a few times. Returns the smallest number of allocations during one of these calls. The other
/// numbers may be too large, because threads that start meanwhile, such as the keeper of the process, also
/// allocate.
pub(crate) fn fewest_allocations(run: impl Fn()) -> u64 {
    let count = |_| {
        let before = allocations();
        run();
        allocations() - before
    };
    (0..5).map(count).min().expect("several runs")
}
