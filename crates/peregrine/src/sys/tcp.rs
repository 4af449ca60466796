//! Asks the kernel what it knows about a TCP connection: when a segment last arrived from the peer, and how
//! many transmissions the peer did not acknowledge.

#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::time::Duration;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The state of the peer of a connection, as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpHealth {
    /// The time since a segment last arrived from the peer. Acknowledgements are included.
    pub(crate) silence: Duration,
    /// How many retransmissions or window probes in a row the peer has not answered.
    pub(crate) unanswered: u32,
    /// The number of sent bytes that are not known to have arrived.
    pub(crate) unacknowledged: usize,
}

/// The length of the part of `struct tcp_info` that is read here, in words.
const INFO_WORDS: usize = 15;
/// The index of the word that holds the milliseconds since data last arrived.
const LAST_DATA: usize = 13;
/// The index of the word that holds the milliseconds since an acknowledgement last arrived.
const LAST_ACKNOWLEDGEMENT: usize = 14;

/// Asks the kernel for the state of a connection.
///
/// # Errors
/// Those of `getsockopt` and `ioctl`.
pub(crate) fn tcp_health(socket: BorrowedFd<'_>) -> io::Result<TcpHealth> {
    let mut info = [0_u32; INFO_WORDS];
    let mut bytes = size_of_val(&info) as libc::socklen_t;
    let start: *mut c_void = info.as_mut_ptr().cast();
    let (fd, level) = (socket.as_raw_fd(), libc::IPPROTO_TCP);
    // SAFETY: writes at most `bytes` bytes, and all bit patterns are valid numbers.
    let told = unsafe { libc::getsockopt(fd, level, libc::TCP_INFO, start, &raw mut bytes) };
    if told != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut unacknowledged: c_int = 0;
    // SAFETY: writes one integer, which is a local variable.
    if unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut unacknowledged) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // The four bytes of the word are two states, the unanswered retransmissions, and the unanswered window
    // probes.
    let [_, _, retransmits, probes] = info[0].to_ne_bytes();
    let silence = info[LAST_DATA].min(info[LAST_ACKNOWLEDGEMENT]);
    Ok(TcpHealth {
        silence: Duration::from_millis(silence.into()),
        unanswered: retransmits.max(probes).into(),
        unacknowledged: usize::try_from(unacknowledged).unwrap_or(0),
    })
}
