//! What this process has inherited from the program that started it: descriptors and environment variables.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

/// Returns a copy of the descriptor with this number. Programs that this process starts do not inherit the
/// copy.
///
/// # Errors
/// If no descriptor with this number is open, or none is left for the copy.
pub(crate) fn copy_of_descriptor(number: RawFd) -> io::Result<OwnedFd> {
    const FIRST: libc::c_int = 3;
    // SAFETY: takes no pointers. If no descriptor has this number, the kernel reports an error.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, FIRST) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Prevents programs that this process starts from inheriting the descriptor with this number.
pub(crate) fn keep_from_children(number: RawFd) {
    // SAFETY: takes no pointers, and changes only what later programs inherit.
    let _ = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
}

/// Removes environment variables, so that programs that this process starts do not inherit them. Does nothing
/// if the process has more than one thread, because another thread could read the environment meanwhile.
pub(crate) fn forget_variables(names: &[&str]) {
    if std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count) != 1 {
        return;
    }
    for name in names {
        // SAFETY: this thread is the only one, so no other thread reads or writes the environment.
        unsafe { std::env::remove_var(name) };
    }
}
