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

/// A value that each process has for itself. A forked child begins with one of its own, and leaves its
/// parent's as it is: a thread that the child does not have may have held a lock in it. There is no
/// lock on the way to it, for the same reason.
pub(crate) struct PerProcess<T: 'static>(AtomicPtr<Own<T>>);

struct Own<T> {
    process: u32,
    value: T,
}

impl<T: Default + Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The value of this process.
    pub(crate) fn own(&'static self) -> &'static T {
        let process = std::process::id();
        let mut known = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or a value that was leaked below.
            if let Some(own) = unsafe { known.as_ref() }
                && own.process == process
            {
                return &own.value;
            }
            let new = Box::into_raw(Box::new(Own { process, value: T::default() }));
            // SYNC: own value. Who finds it finds what was written there before.
            let order = (Ordering::AcqRel, Ordering::Acquire);
            match self.0.compare_exchange(known, new, order.0, order.1) {
                Ok(_) => known = new,
                Err(other) => {
                    // SAFETY: made above, and nobody else has seen it.
                    drop(unsafe { Box::from_raw(new) });
                    known = other;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A child is forked while another thread holds the lock, which no thread of the child lets go.
    #[test]
    fn a_child_is_not_kept_by_a_lock_of_its_parent() {
        static TABLE: PerProcess<Mutex<u32>> = PerProcess::new();
        let held = TABLE.own().lock().unwrap();
        // SAFETY: the child takes a lock, and ends without going back.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no memory is involved. A child that hangs is ended by its alarm.
            unsafe { libc::alarm(20) };
            let value = TABLE.own().lock().map_or(u32::MAX, |value| *value);
            // SAFETY: ends the child without running anything of its parent's.
            unsafe { libc::_exit(i32::from(value != 0)) };
        }
        let mut status = -1;
        // SAFETY: our own child, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child waited for its parent's lock");
        drop(held);
        assert!(ptr::eq(TABLE.own(), TABLE.own()), "a process has one value");
    }
}
