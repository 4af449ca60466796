//! Messages gathered from where they lie, and scattered to where they belong, in one system call.

#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ptr;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use crate::value::{Space, Window};

/// As many parts as a call with a dozen buffers has.
const PARTS_MAX: usize = 32;

/// Parts of a message, one behind the other, up to [`PARTS_MAX`].
pub(crate) struct Parts<'a> {
    list: [libc::iovec; PARTS_MAX],
    /// Those of the list that are still to be sent.
    first: usize,
    end: usize,
    memory: PhantomData<Window<'a>>,
}

const NONE: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };

impl<'a> Parts<'a> {
    pub(crate) const fn new() -> Self {
        Self { list: [NONE; PARTS_MAX], first: 0, end: 0, memory: PhantomData }
    }

    /// Adds a part; false if there are too many.
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

    /// So many bytes have been sent.
    fn advance(&mut self, mut bytes: usize) {
        while let Some(part) = self.list[..self.end].get_mut(self.first) {
            if bytes < part.iov_len {
                // Inside the part, for there is more of it.
                part.iov_base = part.iov_base.wrapping_byte_add(bytes);
                part.iov_len -= bytes;
                return;
            }
            bytes -= part.iov_len;
            self.first += 1;
        }
        (self.first, self.end) = (0, 0);
    }

    /// Sends what the socket takes at once. `more` says that more comes at once.
    ///
    /// # Errors
    /// `WouldBlock` if it takes nothing now; otherwise the connection is broken.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>, more: bool) -> io::Result<()> {
        // SAFETY: all bits zero are a message header that names nothing.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        let list = &mut self.list[self.first..self.end];
        message.msg_iov = list.as_mut_ptr();
        message.msg_iovlen = list.len() as _;
        let more = if more { libc::MSG_MORE } else { 0 };
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | more;
        // SAFETY: the kernel reads the windows that the list names; 'a keeps them mapped.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
        let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
        self.advance(sent);
        Ok(())
    }
}

/// Receives into `first`, and what does not fit there into `then`; how many bytes, 0 at the end.
/// Waits for the first byte if it may `wait`.
///
/// # Errors
/// `WouldBlock` if there is nothing in time; otherwise the connection is broken.
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
    // SAFETY: all bits zero are a message header that names nothing.
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
    fn what_was_not_taken_is_sent_later() {
        let mut parts = Parts::new();
        assert!(parts.push(Window::from(&b"abc"[..])) && parts.push(Window::from(&b"de"[..])));
        parts.advance(2);
        let left: Vec<usize> =
            parts.list[parts.first..parts.end].iter().map(|p| p.iov_len).collect();
        assert_eq!(left, [1, 2]);
        parts.advance(1);
        assert!(!parts.is_empty());
        parts.advance(2);
        assert!(parts.is_empty());
        (0..PARTS_MAX).for_each(|_| assert!(parts.push(Window::from(&b"x"[..]))));
        assert!(!parts.push(Window::from(&b"x"[..])), "there is no room for more");
    }
}
