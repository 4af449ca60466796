//! `ForkMark`: one memory read tells whether this process was forked from the one that made it.

#![allow(unsafe_code)]

use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::sync::OnceLock;

/// A mark in memory that the kernel wipes in a child (`MADV_WIPEONFORK`).
#[derive(Clone, Copy)]
pub(crate) struct ForkMark(&'static AtomicU32);

impl ForkMark {
    /// The mark of this process. A child of the process that set it gets one that is wiped.
    pub(crate) fn of_process() -> io::Result<Self> {
        static MARK: OnceLock<ForkMark> = OnceLock::new();
        if let Some(mark) = MARK.get() {
            return Ok(*mark);
        }
        let mark = Self::make()?;
        Ok(*MARK.get_or_init(|| mark))
    }

    /// A mark for bindings made by this very process, also where its parent had bound before.
    pub(crate) fn for_binding() -> io::Result<Self> {
        let mark = Self::of_process()?;
        if mark.wiped() { Self::make() } else { Ok(mark) }
    }

    fn make() -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh anonymous mapping replaces nothing.
        let page = unsafe { libc::mmap(ptr::null_mut(), 4096, protection, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: advice about the page that was just mapped.
        if unsafe { libc::madvise(page, 4096, libc::MADV_WIPEONFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: page-aligned, zeroed, never unmapped, only used as this atomic.
        let mark = unsafe { AtomicU32::from_ptr(page.cast()) };
        mark.store(1, Ordering::Relaxed);
        Ok(Self(mark))
    }

    /// Whether this process is a child of the one that made the mark.
    #[inline]
    pub(crate) fn wiped(self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}
