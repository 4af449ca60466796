//! `Process`: a handle to another process that cannot come to mean a later one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process descriptor (pidfd): readable once the process has ended.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    file: OwnedFd,
}

impl Process {
    /// The process `pid`, which must be alive or not yet waited for.
    pub(crate) fn open(pid: u32) -> io::Result<Self> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let raw = raw.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { pid, file: pidfd_open(raw, PidfdFlags::empty())? })
    }

    /// Whether it has ended. All its memory accesses are then in the past.
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
