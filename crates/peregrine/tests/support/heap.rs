//! The system's allocator, which counts: how often memory was allocated, and how much is in use.
//!
//! A test program counts if it makes [`Counting`] its global allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

pub(crate) struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static IN_USE: AtomicI64 = AtomicI64::new(0);

/// How often this process has allocated, or has changed the size of an allocation.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// Bytes that are allocated.
pub(crate) fn bytes_in_use() -> i64 {
    IN_USE.load(Ordering::Relaxed)
}

fn count(bytes: usize, sign: i64) {
    IN_USE.fetch_add(sign * bytes as i64, Ordering::Relaxed);
}

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        count(layout.size(), 1);
        // SAFETY: as our own caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: as our own caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        count(layout.size(), -1);
        count(bytes, 1);
        // SAFETY: as our own caller promises.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}
