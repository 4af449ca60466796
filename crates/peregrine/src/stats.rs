//! Exact counts for tests: the bytes of arguments and results that are copied. Release builds do not count.
//!
//! With the feature `stamps`, this module also records moments of calls. The moments show how a call spends
//! its time.

/// LRPC's names for the copies of a call (Table III of the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// The copy from the client's memory into the A-stack.
    A,
    /// The copy of the head and of all blocks except lent ones, from the A-stack into the server's private
    /// memory.
    E,
    /// The copy from the A-stack into the client's memory.
    F,
    /// Not in LRPC: over datagrams, the copy of a result that a server keeps until the client has it, and the
    /// copy of a kept result to the memory from which it is sent.
    R,
}

#[cfg(debug_assertions)]
mod counters {
    use core::sync::atomic::AtomicU64;
    pub(super) static BYTES: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
}

/// Counts a copy of `bytes` bytes. Compiles to nothing in release builds.
#[inline(always)]
pub(crate) fn count(copy: Copy, bytes: usize) {
    #[cfg(debug_assertions)]
    counters::BYTES[copy as usize].fetch_add(bytes as u64, core::sync::atomic::Ordering::Relaxed);
    #[cfg(not(debug_assertions))]
    let _ = (copy, bytes);
}

/// Returns how many bytes this process has copied so far by the copies A, E, F and R, or `None` in release
/// builds.
pub fn copied() -> Option<[u64; 4]> {
    #[cfg(debug_assertions)]
    return Some(core::array::from_fn(|i| {
        counters::BYTES[i].load(core::sync::atomic::Ordering::Relaxed)
    }));
    #[cfg(not(debug_assertions))]
    None
}

/// Moments of a local call that are recorded on either side, in the order in which a call passes them: the
/// client's [`Ready`](Self::Ready) and [`Posted`](Self::Posted), the server's [`Seen`](Self::Seen) and
/// [`Run`](Self::Run), the server's `Ready` and `Posted`, and the client's `Seen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Moment {
    /// Everything has been written, except for the word of the call or reply.
    Ready = 0,
    /// The word has been written, and no earlier write is still in the processor's store buffer.
    Posted = 1,
    /// The thread has seen the word that the other side has written.
    Seen = 2,
    /// The procedure begins. The measuring program's own procedures record this moment.
    Run = 3,
}

impl Moment {
    /// The number of low bits of a stamp that contain the moment. The other bits contain the value of the
    /// processor's clock.
    pub const BITS: u32 = 2;
}

#[cfg(feature = "stamps")]
mod stamps {
    use core::sync::atomic::{AtomicU64, AtomicUsize};
    pub(super) static STAMPS: [AtomicU64; 1 << 14] = [const { AtomicU64::new(0) }; 1 << 14];
    pub(super) static NOTED: AtomicUsize = AtomicUsize::new(0);
}

/// Records that a call passes a moment, if the feature `stamps` is set. Only one thread of a process may
/// record: if several threads do, stamps are lost.
#[inline(always)]
pub fn stamp(moment: Moment) {
    #[cfg(feature = "stamps")]
    {
        use core::sync::atomic::Ordering::Relaxed;
        let noted = stamps::NOTED.load(Relaxed);
        if let Some(place) = stamps::STAMPS.get(noted) {
            place.store(crate::sys::ticks() << Moment::BITS | moment as u64, Relaxed);
            stamps::NOTED.store(noted + 1, Relaxed);
        }
    }
    #[cfg(not(feature = "stamps"))]
    let _ = moment;
}

/// Returns the first 16,384 stamps since the previous call of this function, in order. Returns `None`
/// without the feature `stamps`.
pub fn take_stamps() -> Option<Vec<u64>> {
    #[cfg(feature = "stamps")]
    {
        use core::sync::atomic::Ordering::Relaxed;
        let noted = stamps::NOTED.load(Relaxed).min(stamps::STAMPS.len());
        let taken = stamps::STAMPS[..noted].iter().map(|stamp| stamp.load(Relaxed)).collect();
        stamps::NOTED.store(0, Relaxed);
        Some(taken)
    }
    #[cfg(not(feature = "stamps"))]
    None
}
