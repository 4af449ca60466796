//! Calls that nest: a procedure calls another server, whose procedure may call back.
//!
//! A call that a procedure makes carries its *chain*: the processes through which it has come, so
//! that a process into which it comes back knows that one of its own threads waits for it. Its numbers
//! are little-endian.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use crate::limits;
use crate::sys;
use crate::value::{Plain, Space, Window, align_up};

/// A process that a call has come through: its domain (lower and upper word) and its number.
type Link = [u32; 4];
const LINK_BYTES: usize = size_of::<Link>();

/// The extension that a chain is, behind the message: its tag, and how many bytes follow.
const TAG: u32 = 1;
const HEADER_BYTES: usize = 8;

/// Bytes of the longest chain, as an extension, up to a multiple of 16.
pub(crate) const BYTES_MAX: usize = align_up(HEADER_BYTES + limits::CHAIN_MAX * LINK_BYTES);

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
fn own_link() -> Link {
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

/// Why a call cannot be made.
pub(crate) enum Unchained {
    /// Calls nest as deeply as they may.
    TooDeep,
    /// There is no room behind the message.
    NoRoom,
}

/// Writes the chain of a call that a procedure of `caller`'s makes to `at`; how many bytes it has.
pub(crate) fn write(space: Space<'_>, at: usize, caller: u32) -> Result<usize, Unchained> {
    CHAIN.with_borrow(|chain| {
        let before = if chain.is_empty() { &[first_link(caller)][..] } else { chain };
        let links = before.len() + 1;
        if links > limits::CHAIN_MAX {
            return Err(Unchained::TooDeep);
        }
        let bytes = (links * LINK_BYTES) as u32;
        let mut written = space.write_plain(at, &[TAG, bytes].map(u32::to_le));
        let mut next = at + HEADER_BYTES;
        for link in before.iter().chain([&own_link()]) {
            written = written.and_then(|()| space.write_plain(next, &link.map(u32::to_le)));
            next += LINK_BYTES;
        }
        written.map(|()| next - at).ok_or(Unchained::NoRoom)
    })
}

/// The links of the extensions that lie in `extensions`, one by one; nothing if there is no chain,
/// or none that makes sense.
fn links(extensions: Window<'_>) -> impl Iterator<Item = Link> {
    let header: Option<[u32; 2]> = extensions.read_plain(0);
    let count = match header.map(|header| header.map(u32::from_le)) {
        Some([TAG, bytes]) if (bytes as usize).is_multiple_of(LINK_BYTES) => {
            (bytes as usize / LINK_BYTES).min(limits::CHAIN_MAX)
        }
        _ => 0,
    };
    let link = move |i| extensions.read_plain(HEADER_BYTES + i * LINK_BYTES);
    (0..count).map_while(link).map(|link: Link| link.map(u32::from_le))
}

/// Notes the chain of the call that this thread is about to run.
#[cold]
pub(crate) fn enter(extensions: Window<'_>) {
    CHAIN.with_borrow_mut(|chain| {
        chain.clear();
        chain.extend(links(extensions));
    });
}

/// The thread runs no call with a chain any more.
pub(crate) fn leave() {
    CHAIN.with_borrow_mut(Vec::clear);
}

/// Whether a call whose extensions these are says that it comes from inside this process. A hint:
/// any peer to whom a call of ours came can say so.
pub(crate) fn is_from_inside(extensions: Window<'_>) -> bool {
    let own = own_link();
    links(extensions).any(|link| link == own)
}

/// The processes through which the call came whose procedure this thread runs; none if it came
/// from its caller directly.
pub(crate) fn processes() -> Vec<u32> {
    CHAIN.with_borrow(|chain| chain.iter().map(|link| link[2]).collect())
}

const _: () = assert!(<Link as Plain>::ANY_BITS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_grows_link_by_link_and_is_known_again() {
        let mut memory = [0u8; 4096];
        let space = Space::of_mut(&mut memory);
        let bytes = write(space, 16, 77).ok().unwrap();
        assert_eq!(bytes, HEADER_BYTES + 2 * LINK_BYTES);
        let window = space.window().part(16, bytes).unwrap();
        assert!(is_from_inside(window));
        enter(window);
        assert_eq!(processes(), [77, std::process::id()]);
        let mut deep = 2;
        while let Ok(bytes) = write(space, 0, 1) {
            deep += 1;
            enter(space.window().part(0, bytes).unwrap());
            assert_eq!(processes().len(), deep);
        }
        assert_eq!(deep, limits::CHAIN_MAX);
        leave();
        assert_eq!(processes(), []);
    }

    #[test]
    fn what_is_no_chain_is_none() {
        let mut memory = [0u8; 64];
        let space = Space::of_mut(&mut memory);
        assert!(!is_from_inside(space.window()));
        space.write_plain(0, &[TAG, u32::MAX].map(u32::to_le)).unwrap();
        assert_eq!(links(space.window()).count(), 0);
        space.write_plain(0, &[TAG, 0xffff_fff0].map(u32::to_le)).unwrap();
        assert_eq!(links(space.window()).count(), 3, "no more than there is");
        assert_eq!(links(Window::empty()).count(), 0);
        assert!(write(space.part(0, 20).unwrap(), 0, 1).is_err());
    }
}
