//! Reads files into spaces, and writes windows to files, without a copy in this process.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::{Space, Window};

/// Repeats a system call for as long as signals interrupt it. `call` returns the number of bytes, or a
/// negative number after it has stored the error in `errno`.
fn retry(call: impl Fn() -> isize) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(bytes) => return Ok(bytes),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

/// Reads from byte `offset` of a file into a space. Returns the number of bytes read, which is 0 at the end
/// of the file.
///
/// # Errors
/// Those of `pread`.
pub fn pread(file: &File, into: Space<'_>, offset: u64) -> io::Result<usize> {
    let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the space is mapped for writing, `len` bytes long, and only the kernel writes.
    retry(|| unsafe { libc::pread(file.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), offset) })
}

/// Writes a window to a file, at byte `offset`. Returns the number of bytes written.
///
/// # Errors
/// Those of `pwrite`.
pub fn pwrite(file: &File, from: Window<'_>, offset: u64) -> io::Result<usize> {
    let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the window is mapped for reading and `len` bytes long.
    retry(|| unsafe { libc::pwrite(file.as_raw_fd(), from.as_ptr().cast(), from.len(), offset) })
}
