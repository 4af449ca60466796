//! Vector I/O. One system call sends a message from several places in memory, or receives bytes into several
//! places.

#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ptr;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::{Space, Window};

/// The largest number of parts. It is enough for a call with a dozen buffers.
const PARTS_MAX: usize = 32;

/// The parts of a message in their order, at most [`PARTS_MAX`].
pub(crate) struct Parts<'a> {
    list: [libc::iovec; PARTS_MAX],
    /// The index of the first part that is not sent completely.
    first: usize,
    end: usize,
    memory: PhantomData<Window<'a>>,
}

const NONE: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };

impl<'a> Parts<'a> {
    pub(crate) const fn new() -> Self {
        Self { list: [NONE; PARTS_MAX], first: 0, end: 0, memory: PhantomData }
    }

    /// Adds a part. Returns false if there are already [`PARTS_MAX`] parts.
    pub(crate) const fn push(&mut self, part: Window<'a>) -> bool {
        if part.is_empty() {
            return true;
        }
        if self.end == PARTS_MAX {
            return false;
        }
        let iov_base = part.as_ptr().cast_mut().cast();
        self.list[self.end] = libc::iovec { iov_base, iov_len: part.len() };
        self.end += 1;
        true
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.first == self.end
    }

    /// Returns the number of bytes that have not been sent.
    pub(crate) fn left(&self) -> usize {
        self.list[self.first..self.end].iter().map(|part| part.iov_len).sum()
    }

    /// Skips the first `bytes` bytes, which have been sent.
    pub(crate) fn advance(&mut self, mut bytes: usize) {
        while let Some(part) = self.list[..self.end].get_mut(self.first) {
            if bytes < part.iov_len {
                // The rest of this part is still unsent, so the address stays inside the part.
                part.iov_base = part.iov_base.wrapping_byte_add(bytes);
                part.iov_len -= bytes;
                return;
            }
            bytes -= part.iov_len;
            self.first += 1;
        }
        (self.first, self.end) = (0, 0);
    }

    /// Copies bytes from the first one that has not been sent on, as many as fit into `into`. Returns their
    /// number.
    #[cfg(feature = "secure")]
    pub(crate) fn copy_to(&self, into: &mut [u8]) -> usize {
        let mut at = 0;
        for part in &self.list[self.first..self.end] {
            let bytes = part.iov_len.min(into.len() - at);
            // SAFETY: the window of the part stays mapped for 'a, and has at least `bytes` bytes. There is
            // space for them in `into`, which is private.
            unsafe { super::fetch(part.iov_base.cast(), into[at..].as_mut_ptr(), bytes) };
            at += bytes;
        }
        at
    }

    /// Sends as many bytes as the socket accepts without blocking. `more` is true if more bytes follow at
    /// once.
    ///
    /// # Errors
    /// `WouldBlock` if the socket accepts nothing now; all other errors mean a broken connection.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>, more: bool) -> io::Result<()> {
        // SAFETY: a message header of all zeros is valid and names no memory.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        let list = &mut self.list[self.first..self.end];
        message.msg_iov = list.as_mut_ptr();
        message.msg_iovlen = list.len() as _;
        let more = if more { libc::MSG_MORE } else { 0 };
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | more;
        // SAFETY: the kernel reads the windows in the list, which stay mapped for 'a.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
        let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
        self.advance(sent);
        Ok(())
    }
}

/// Receives bytes into `first`. The bytes that do not fit there go into `then`. Returns the number of bytes,
/// 0 at the end of the stream. If `wait` is true, blocks until the first byte arrives.
///
/// # Errors
/// `WouldBlock` if no byte has arrived, or none arrived within the time limit of the socket; all other errors
/// mean a broken connection.
pub(crate) fn receive_two(
    socket: BorrowedFd<'_>,
    first: &mut [u8],
    then: Space<'_>,
    wait: bool,
) -> io::Result<usize> {
    let mut list = [
        libc::iovec { iov_base: first.as_mut_ptr().cast(), iov_len: first.len() },
        libc::iovec { iov_base: then.as_mut_ptr().cast(), iov_len: then.len() },
    ];
    // SAFETY: a message header of all zeros is valid and names no memory.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = list.as_mut_ptr();
    message.msg_iovlen = list.len() as _;
    let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: the kernel writes `first` and `then`, which are borrowed for writing.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn parts_arrive_in_order_and_are_scattered() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let mut parts = Parts::new();
        for part in [&b"ab"[..], b"", b"cde", b"f"] {
            assert!(parts.push(Window::from(part)));
        }
        parts.send(one.as_fd(), false).unwrap();
        assert!(parts.is_empty());
        let mut got = [0; 6];
        other.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"abcdef");

        let (mut first, mut then) = ([0; 2], [0; 8]);
        one.write_all(b"123456").unwrap();
        let space = Space::of_mut(&mut then);
        assert_eq!(receive_two(other.as_fd(), &mut first, space, true).unwrap(), 6);
        assert_eq!((&first, &then[..4]), (b"12", &b"3456"[..]));
        let space = Space::of_mut(&mut then);
        let nothing = receive_two(other.as_fd(), &mut first, space, false).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn unsent_parts_are_kept_for_later() {
        let mut parts = Parts::new();
        assert!(parts.push(Window::from(&b"abc"[..])) && parts.push(Window::from(&b"de"[..])));
        parts.advance(2);
        let mut copied = [0; 4];
        assert_eq!((parts.copy_to(&mut copied[..2]), &copied[..2]), (2, &b"cd"[..]));
        assert_eq!((parts.copy_to(&mut copied), &copied[..3]), (3, &b"cde"[..]));
        let left: Vec<usize> =
            parts.list[parts.first..parts.end].iter().map(|p| p.iov_len).collect();
        assert_eq!((left, parts.left()), (vec![1, 2], 3));
        parts.advance(1);
        assert!(!parts.is_empty());
        parts.advance(2);
        assert!(parts.is_empty());
        (0..PARTS_MAX).for_each(|_| assert!(parts.push(Window::from(&b"x"[..]))));
        assert!(!parts.push(Window::from(&b"x"[..])), "more than PARTS_MAX parts were accepted");
    }
}
