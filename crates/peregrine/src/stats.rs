//! Exact counts that tests hold: copies of arguments and results. Nothing in release builds.

/// LRPC's names for the copies of a call (Table III of the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// From the client's memory into the A-stack.
    A,
    /// From the A-stack into the server's private memory.
    E,
    /// From the A-stack into the client's memory.
    F,
}

#[cfg(debug_assertions)]
mod counters {
    use core::sync::atomic::AtomicU64;
    pub(super) static BYTES: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
}

/// Notes a copy of so many bytes; compiles to nothing in release builds.
#[inline(always)]
pub(crate) fn count(copy: Copy, bytes: usize) {
    #[cfg(debug_assertions)]
    counters::BYTES[copy as usize].fetch_add(bytes as u64, core::sync::atomic::Ordering::Relaxed);
    #[cfg(not(debug_assertions))]
    let _ = (copy, bytes);
}

/// Bytes copied so far in this process as A, E and F; `None` in release builds, which do not count.
pub fn copied() -> Option<[u64; 3]> {
    #[cfg(debug_assertions)]
    return Some(core::array::from_fn(|i| {
        counters::BYTES[i].load(core::sync::atomic::Ordering::Relaxed)
    }));
    #[cfg(not(debug_assertions))]
    None
}
