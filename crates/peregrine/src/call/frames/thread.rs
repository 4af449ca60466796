//! Numbers for threads, by which a thread finds what it used last.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};

/// Returns a small number for this thread, by which the thread finds the frame that it used last.
#[inline]
pub(crate) fn thread_index() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static INDEX: Cell<u32> = const { Cell::new(u32::MAX) });
    INDEX.with(|index| {
        if index.get() == u32::MAX {
            index.set(NEXT.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff);
        }
        index.get()
    })
}
