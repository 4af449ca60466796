//! `Process` is a handle to another process. The handle never refers to a later process with the same number.
//! This module also decides which environment variables of this process may be trusted.

#![allow(unsafe_code)]

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process descriptor (pidfd). It becomes readable when the process ends.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    file: OwnedFd,
}

impl Process {
    /// Opens the process `pid`. The process must be alive, or must have ended without its parent having
    /// waited for it.
    pub(crate) fn open(pid: u32) -> io::Result<Self> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let raw = raw.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { pid, file: pidfd_open(raw, PidfdFlags::empty())? })
    }

    /// Returns whether the process has ended. A process that has ended makes no further memory accesses.
    pub(crate) fn ended(&self) -> bool {
        let mut one = [PollFd::new(&self.file, PollFlags::IN)];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut one, Some(&now)), Ok(1))
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Returns the name of this machine. Empty if it cannot be read.
pub(crate) fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}

/// Returns an environment variable if the variable is set, not empty, and may be trusted. A variable may not
/// be trusted if this program runs with more rights than the user who started the program and chose its
/// environment. This is the rule of `secure_getenv`.
pub(crate) fn trusted_variable(name: &str) -> Option<OsString> {
    // SAFETY: reads a number that the kernel gave to this process when it started.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    std::env::var_os(name).filter(|value| !secure && !value.is_empty())
}
