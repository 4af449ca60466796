//! What the kernel knows of a TCP connection: when something was heard of the other end, and whether
//! it was asked in vain.

#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::time::Duration;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How things stand with the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pulse {
    /// For how long nothing was heard of it, be it only that something has arrived there.
    pub(crate) silence: Duration,
    /// How many times in a row the same was sent to it, the first time aside, without any answer.
    pub(crate) in_vain: u32,
    /// Bytes of which it is not known that they have arrived.
    pub(crate) owed: usize,
}

/// Words of `struct tcp_info` up to the last that is needed here.
const INFO_WORDS: usize = 15;
/// The words that tell for how many milliseconds neither data nor an acknowledgement has come.
const LAST_DATA: usize = 13;
const LAST_ACKNOWLEDGEMENT: usize = 14;

/// Asks how things stand.
///
/// # Errors
/// Those of `getsockopt` and of `ioctl`.
pub(crate) fn tcp_pulse(socket: BorrowedFd<'_>) -> io::Result<Pulse> {
    let mut info = [0_u32; INFO_WORDS];
    let mut bytes = size_of_val(&info) as libc::socklen_t;
    let start: *mut c_void = info.as_mut_ptr().cast();
    let (fd, level) = (socket.as_raw_fd(), libc::IPPROTO_TCP);
    // SAFETY: writes at most as many bytes as there are, and any bits are numbers.
    let told = unsafe { libc::getsockopt(fd, level, libc::TCP_INFO, start, &raw mut bytes) };
    if told != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut owed: c_int = 0;
    // SAFETY: writes one integer, which is ours.
    if unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut owed) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Bytes: two states, then how often in vain something was sent again, or room was asked for.
    let [_, _, retransmits, probes] = info[0].to_ne_bytes();
    let silence = info[LAST_DATA].min(info[LAST_ACKNOWLEDGEMENT]);
    Ok(Pulse {
        silence: Duration::from_millis(silence.into()),
        in_vain: retransmits.max(probes).into(),
        owed: usize::try_from(owed).unwrap_or(0),
    })
}
