//! Nested calls: a procedure calls another server, and the called procedure may call back.
//!
//! A call that a procedure makes carries its *chain*: the processes through which it has come. If the call
//! comes back into one of these processes, that process knows that one of its own threads waits for the call.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use crate::sys;

/// A process in a chain, as four words: the number of its domain (lower and upper word), its process ID, and
/// a reserved word. The number of the domain is random, so only peers of the process know it.
pub(super) type Link = [u32; 4];
pub(super) const LINK_BYTES: usize = size_of::<Link>();

thread_local! {
    /// The chain of the call that this thread runs. Empty if the call has none.
    static CHAIN: RefCell<Vec<Link>> = const { RefCell::new(Vec::new()) };
    /// Whether the thread has waited inside a procedure since [`has_waited`] last read this flag.
    static WAITED: Cell<bool> = const { Cell::new(false) };
}

/// The number of threads of this process whose procedure waits for a nested call.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Returns how many threads of this process wait inside a procedure.
pub(crate) fn waiting_inside() -> u32 {
    WAITING.load(Ordering::SeqCst)
}

/// While this guard exists, the thread that made it counts as waiting. Each path to another process holds a
/// guard while a procedure waits for a nested call. For each guard, the servers of this process may run one
/// nested call more than their limit allows. So a nested call that comes back to this process finds a thread.
#[derive(Debug)]
pub(crate) struct WaitingInside(());

impl WaitingInside {
    pub(crate) fn begin() -> Self {
        WAITING.fetch_add(1, Ordering::SeqCst);
        WAITED.set(true);
        Self(())
    }
}

/// Returns whether this thread has waited inside a procedure since the last call of this function.
#[inline]
pub(crate) fn has_waited() -> bool {
    WAITED.replace(false)
}

impl Drop for WaitingInside {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns the link of this process. The number of the domain in the link is random, and only peers that this
/// process has called know the number.
pub(super) fn own_link() -> Link {
    static DOMAIN: OnceLock<u64> = OnceLock::new();
    /// The process that drew `DOMAIN`. A forked child is a different domain than its parent.
    static OWNER: AtomicU64 = AtomicU64::new(0);
    let pid = sys::process_id();
    let domain = *DOMAIN.get_or_init(|| {
        OWNER.store(pid.into(), Ordering::Relaxed);
        // Without random bytes, the domain is easier to guess, but calls still work.
        sys::random().map_or(u64::from(pid) << 32 | 1, u64::from_ne_bytes)
    });
    let domain = domain ^ (OWNER.load(Ordering::Relaxed) ^ u64::from(pid)) << 20;
    [domain as u32, (domain >> 32) as u32, pid, 0]
}

/// Returns the link of the first caller. The number of the caller's domain is unknown, so the link contains 0
/// instead.
const fn first_link(process: u32) -> Link {
    [0, 0, process, 0]
}

/// Calls `what` with the links of a call that a procedure makes: the chain of the call that runs the
/// procedure, and the link of this process. `caller` is the process that called the procedure.
pub(super) fn with_links<T>(caller: u32, what: impl FnOnce(&[Link], Link) -> T) -> T {
    let first = [first_link(caller)];
    CHAIN.with_borrow(|chain| what(if chain.is_empty() { &first } else { chain }, own_link()))
}

/// Sets the chain of the call that this thread is about to run.
pub(super) fn enter(links: impl Iterator<Item = Link>) {
    CHAIN.with_borrow_mut(|chain| {
        chain.clear();
        chain.extend(links);
    });
}

/// Removes the chain of the call that this thread ran.
pub(super) fn leave() {
    CHAIN.with_borrow_mut(Vec::clear);
}

/// Returns the processes in the chain of the call that this thread runs. The list is empty if the call is not
/// a nested call.
pub(super) fn processes() -> Vec<u32> {
    CHAIN.with_borrow(|chain| chain.iter().map(|link| link[2]).collect())
}

/// Returns the chain of the call that this thread runs.
pub(super) fn links() -> Vec<Link> {
    CHAIN.with_borrow(Clone::clone)
}
