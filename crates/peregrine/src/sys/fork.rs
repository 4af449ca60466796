//! Detects forks. With a `ForkMark`, one memory read shows whether this process is a forked child of the
//! process that made the mark. `PerProcess` is a value of which each process has its own copy.

#![allow(unsafe_code)]

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::io;

/// A word of memory with the ID of this process. The kernel zeroes the word in a child process
/// (`MADV_WIPEONFORK`).
#[derive(Clone, Copy)]
pub(crate) struct ForkMark(&'static AtomicU32);

impl ForkMark {
    /// Returns the mark of this process. All bindings of the process share the mark. A forked child makes a
    /// new mark. The mark of the child's parent is zeroed in the child, and must stay zero there for the
    /// bindings that the child inherited.
    pub(crate) fn of_process() -> io::Result<Self> {
        // A lock must not guard the mark: a thread that does not exist in a forked child might hold the lock.
        static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
        let known = MARK.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or points to the word of a mark, which is never unmapped.
        if let Some(word) = unsafe { known.as_ref() }
            && !Self(word).wiped()
        {
            return Ok(Self(word));
        }
        let mark = Self::make()?;
        // Threads that get here at the same time may store different marks. All of them are valid.
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
            let error = io::Error::last_os_error();
            // SAFETY: nothing refers to the page that was just mapped.
            unsafe { libc::munmap(page, 4096) };
            return Err(error);
        }
        // SAFETY: the page is aligned and zeroed, is never unmapped, and is only used as this atomic.
        let mark = unsafe { AtomicU32::from_ptr(page.cast()) };
        mark.store(std::process::id(), Ordering::Relaxed);
        Ok(Self(mark))
    }

    /// Returns whether this process is a forked child of the process that made the mark.
    #[inline]
    pub(crate) fn wiped(self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// Returns the ID of this process, like `std::process::id`, but usually without a system call.
#[inline]
pub(crate) fn process_id() -> u32 {
    ForkMark::of_process()
        .map_or_else(|_| std::process::id(), |mark| mark.0.load(Ordering::Relaxed))
}

/// A value of which each process has its own copy. A forked child starts with a new value. It does not touch
/// its parent's value: a thread that does not exist in the child may have held a lock in that value. For the
/// same reason no lock guards the access.
pub(crate) struct PerProcess<T: 'static>(AtomicPtr<Own<T>>);

struct Own<T> {
    process: u32,
    value: T,
}

impl<T: Default + Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value of this process. The first use makes the value with `Default`.
    pub(crate) fn own(&'static self) -> &'static T {
        let process = process_id();
        let mut known = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: the pointer is null, or points to a value that was leaked below.
            if let Some(own) = unsafe { known.as_ref() }
                && own.process == process
            {
                return &own.value;
            }
            let new = Box::into_raw(Box::new(Own { process, value: T::default() }));
            // SYNC: own value. A thread that loads the pointer also sees the contents that were written
            // before the pointer.
            let order = (Ordering::AcqRel, Ordering::Acquire);
            match self.0.compare_exchange(known, new, order.0, order.1) {
                Ok(_) => known = new,
                Err(other) => {
                    // SAFETY: made above, and no other thread has seen it.
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

    #[test]
    fn child_has_an_id_of_its_own() {
        assert_eq!(process_id(), std::process::id());
        // SAFETY: the child compares two numbers, and exits without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_own = process_id() == std::process::id() && process_id() == std::process::id();
            // SAFETY: ends the child without running its parent's exit handlers.
            unsafe { libc::_exit(i32::from(!is_own)) };
        }
        let mut status = -1;
        // SAFETY: `child` is a child of this process, and `status` is writable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child has the ID of its parent");
    }

    /// The child is forked while the parent holds the lock. No thread of the child releases that lock.
    #[test]
    fn child_does_not_wait_for_a_lock_of_its_parent() {
        static TABLE: PerProcess<Mutex<u32>> = PerProcess::new();
        let held = TABLE.own().lock().unwrap();
        // SAFETY: the child takes a lock, and exits without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no memory is involved. The alarm ends a child that hangs.
            unsafe { libc::alarm(20) };
            let value = TABLE.own().lock().map_or(u32::MAX, |value| *value);
            // SAFETY: ends the child without running its parent's exit handlers.
            unsafe { libc::_exit(i32::from(value != 0)) };
        }
        let mut status = -1;
        // SAFETY: `child` is a child of this process, and `status` is writable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child waited for its parent's lock");
        drop(held);
        assert!(ptr::eq(TABLE.own(), TABLE.own()), "a process has one value");
    }
}
