//! `ForkMark`: one memory read tells whether this process was forked from the one that made it.

#![allow(unsafe_code)]

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::io;

/// A mark in memory that the kernel wipes in a child (`MADV_WIPEONFORK`).
#[derive(Clone, Copy)]
pub(crate) struct ForkMark(&'static AtomicU32);

impl ForkMark {
    /// The mark of this process, which its bindings share. A child makes one of its own: its
    /// parent's is wiped, and has to stay so for the bindings that the child inherited.
    pub(crate) fn of_process() -> io::Result<Self> {
        // No lock: a thread that the child does not have might hold it.
        static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
        let known = MARK.load(Ordering::Acquire);
        // SAFETY: null, or the word of a mark, which is never unmapped.
        if let Some(word) = unsafe { known.as_ref() }
            && !Self(word).wiped()
        {
            return Ok(Self(word));
        }
        let mark = Self::make()?;
        // Of threads that come at the same time each may have its own: they mean the same.
        MARK.store(ptr::from_ref(mark.0).cast_mut(), Ordering::Release);
        Ok(mark)
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
