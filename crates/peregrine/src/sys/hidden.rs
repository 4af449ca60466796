//! Memory that core dumps leave out, for private keys.
#![allow(unsafe_code)]

use core::ops::Deref;
use core::ptr::{self, NonNull};
use std::io;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};

/// The number of bytes of the stack that [`Hidden::new`] overwrites.
const STACK_BYTES: usize = 64 << 10;

/// A value in pages of its own. Core dumps do not contain the pages, forked child processes see zeros there,
/// and the kernel does not write them to a swap device if this process may lock so much memory. When the
/// value is dropped, its bytes are overwritten.
pub(crate) struct Hidden<T> {
    at: NonNull<T>,
    bytes: usize,
}

// SAFETY: a `Hidden<T>` owns its value, as a `Box<T>` does.
unsafe impl<T: Send> Send for Hidden<T> {}
// SAFETY: as above: a shared reference gives only a shared reference to the value.
unsafe impl<T: Sync> Sync for Hidden<T> {}

impl<T> Hidden<T> {
    /// Moves the value that `make` returns into pages of its own. Overwrites the part of the stack where the
    /// value was made. Memory that `make` has allocated and freed elsewhere is not overwritten.
    ///
    /// # Errors
    /// If there is no memory. Then the result of `make` is not made.
    pub(crate) fn new<E>(make: impl FnOnce() -> Result<T, E>) -> io::Result<Result<Self, E>> {
        let bytes = size_of::<T>().max(1);
        const { assert!(align_of::<T>() <= 4096, "a page is aligned for the value") };
        // SAFETY: a fresh mapping replaces nothing.
        let base = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        // SAFETY: advice about the mapping just made. It must not be refused, because it is why the mapping
        // exists: kernels since 3.4 know it.
        let advised = unsafe { madvise(base, bytes, Advice::LinuxDontDump) };
        // SAFETY: as above. If the kernel refuses this, only children see the value, too.
        let _ = unsafe { madvise(base, bytes, Advice::LinuxWipeOnFork) };
        // SAFETY: as above. If the kernel refuses this, only a swap device may get the value, too.
        let _ = unsafe { mlock(base, bytes) };
        let at = NonNull::new(base.cast::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        if let Err(error) = advised {
            // SAFETY: the mapping just made, which nothing refers to.
            let _ = unsafe { munmap(base, bytes) };
            return Err(error.into());
        }
        // The value is made in a function of its own, whose part of the stack is overwritten afterwards.
        // SAFETY: the pages are writable, aligned, large enough, and contain no value yet.
        let made = unsafe { fill(at.as_ptr(), make) };
        overwrite_stack();
        if let Err(error) = made {
            // SAFETY: as above: the pages contain no value.
            let _ = unsafe { munmap(base, bytes) };
            return Ok(Err(error));
        }
        Ok(Ok(Self { at, bytes }))
    }
}

/// Writes the value that `make` returns to `at`.
///
/// # Safety
/// `at` is valid for writing a `T`.
#[inline(never)]
unsafe fn fill<T, E>(at: *mut T, make: impl FnOnce() -> Result<T, E>) -> Result<(), E> {
    let value = make()?;
    // SAFETY: the caller guarantees it.
    unsafe { at.write(value) };
    Ok(())
}

/// Overwrites the part of the stack below the frame of the caller.
#[inline(never)]
fn overwrite_stack() {
    let mut stack = [0u8; STACK_BYTES];
    for byte in &mut stack {
        // SAFETY: a local variable. The write is volatile so that the compiler keeps it.
        unsafe { ptr::from_mut(byte).write_volatile(0) };
    }
    core::hint::black_box(&stack);
}

impl<T> Deref for Hidden<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the pages contain a value as long as `self` exists.
        unsafe { self.at.as_ref() }
    }
}

impl<T> Drop for Hidden<T> {
    fn drop(&mut self) {
        let base = self.at.as_ptr().cast::<u8>();
        // SAFETY: the value exists, and nothing uses it any more.
        unsafe { self.at.as_ptr().drop_in_place() };
        for at in 0..self.bytes {
            // SAFETY: a place within the mapping.
            let byte = unsafe { base.add(at) };
            // SAFETY: a byte of the mapping. The write is volatile so that the compiler keeps it.
            unsafe { byte.write_volatile(0) };
        }
        // SAFETY: the mapping of `new`, which nothing refers to any more.
        let _ = unsafe { munmap(base.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_made_once_and_dropped_once() {
        struct Counts<'a>(&'a core::cell::Cell<u32>, [u8; 5000]);
        impl Drop for Counts<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        let dropped = core::cell::Cell::new(0);
        let hidden = Hidden::new(|| Ok::<_, ()>(Counts(&dropped, [7; 5000]))).unwrap().unwrap();
        assert_eq!((hidden.1[4999], dropped.get()), (7, 0));
        drop(hidden);
        assert_eq!(dropped.get(), 1);
        assert!(matches!(Hidden::new(|| Err::<u64, _>("none")), Ok(Err("none"))));
    }

    #[test]
    fn pages_are_left_out_of_core_dumps() {
        let hidden = Hidden::new(|| Ok::<_, ()>([0x5au8; 32])).unwrap().unwrap();
        let at = hidden.as_ptr() as usize;
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_inside = false;
        let flags = maps.lines().find_map(|line| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let number = |text| usize::from_str_radix(text, 16);
            if let Some((Ok(from), Ok(to))) = range.map(|(from, to)| (number(from), number(to))) {
                is_inside = (from..to).contains(&at);
            }
            line.strip_prefix("VmFlags:").filter(|_| is_inside)
        });
        let flags = flags.expect("flags of the mapping");
        assert!(flags.split(' ').any(|flag| flag == "dd"), "{flags}");
    }
}
