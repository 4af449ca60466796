//! Calls that nest: a procedure calls another server, whose procedure may call back.
//!
//! A call that a procedure makes carries its *chain*: the processes through which it has come, so
//! that a process into which it comes back knows that one of its own threads waits for it.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use crate::sys;

/// A process that a call has come through: its domain (lower and upper word) and its number.
pub(super) type Link = [u32; 4];
pub(super) const LINK_BYTES: usize = size_of::<Link>();

thread_local! {
    /// The chain of the call whose procedure this thread runs, if it came with one.
    static CHAIN: RefCell<Vec<Link>> = const { RefCell::new(Vec::new()) };
    /// Whether it has waited inside a procedure, until somebody asks.
    static WAITED: Cell<bool> = const { Cell::new(false) };
}

/// Threads of this process that run a procedure and wait for a call of its own to end.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// How many threads of this process wait inside a procedure.
pub(crate) fn waiting_inside() -> u32 {
    WAITING.load(Ordering::SeqCst)
}

/// Counts the thread as waiting for as long as it lives.
#[derive(Debug)]
pub(crate) struct WaitingInside(());

impl WaitingInside {
    pub(crate) fn begin() -> Self {
        WAITING.fetch_add(1, Ordering::SeqCst);
        WAITED.set(true);
        Self(())
    }
}

/// Whether this thread has waited inside a procedure since it was asked last.
#[inline]
pub(crate) fn has_waited() -> bool {
    WAITED.replace(false)
}

impl Drop for WaitingInside {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// This process as a link; the domain is known to nobody whom its calls have not come to.
pub(super) fn own_link() -> Link {
    static DOMAIN: OnceLock<u64> = OnceLock::new();
    /// A forked child is another domain than its parent.
    static OWNER: AtomicU64 = AtomicU64::new(0);
    let pid = std::process::id();
    let domain = *DOMAIN.get_or_init(|| {
        OWNER.store(pid.into(), Ordering::Relaxed);
        // Without randomness it is only easier to guess.
        sys::random().map_or(u64::from(pid) << 32 | 1, u64::from_ne_bytes)
    });
    let domain = domain ^ (OWNER.load(Ordering::Relaxed) ^ u64::from(pid)) << 20;
    [domain as u32, (domain >> 32) as u32, pid, 0]
}

/// A link whose domain nobody asks for: the caller at the beginning.
const fn first_link(process: u32) -> Link {
    [0, 0, process, 0]
}

/// Does something with the links of a call that a procedure of `caller`'s makes: those of the call
/// that it serves, and this process.
pub(super) fn with_links<T>(caller: u32, what: impl FnOnce(&[Link], Link) -> T) -> T {
    let first = [first_link(caller)];
    CHAIN.with_borrow(|chain| what(if chain.is_empty() { &first } else { chain }, own_link()))
}

/// Notes the chain of the call that this thread is about to run.
pub(super) fn enter(links: impl Iterator<Item = Link>) {
    CHAIN.with_borrow_mut(|chain| {
        chain.clear();
        chain.extend(links);
    });
}

/// The thread runs no call with a chain any more.
pub(super) fn leave() {
    CHAIN.with_borrow_mut(Vec::clear);
}

/// The processes through which the call came whose procedure this thread runs; none if it came
/// from its caller directly.
pub(super) fn processes() -> Vec<u32> {
    CHAIN.with_borrow(|chain| chain.iter().map(|link| link[2]).collect())
}
