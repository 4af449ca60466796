//! Unix sockets that keep message borders, pass descriptors and tell who the peer is.

#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use core::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recvmsg, sendmsg, socket_with, sockopt,
};

/// A connected or listening `SOCK_SEQPACKET` socket; all its operations return at once.
#[derive(Debug)]
pub(crate) struct Seqpacket(OwnedFd);

/// Who is at the other end, as the kernel saw it when the session began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// One message, cut off if it was longer than the buffer.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) bytes: usize,
    pub(crate) whole: bool,
    pub(crate) files: Vec<OwnedFd>,
}

fn address(path: &Path) -> io::Result<SocketAddrUnix> {
    SocketAddrUnix::new(path).map_err(|_| {
        let text = "the path is too long for a socket; set $PEREGRINE_DIR to a shorter directory";
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

impl Seqpacket {
    fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(Self(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?))
    }

    /// A socket that is good for nothing but its descriptor.
    pub(crate) fn unconnected() -> io::Result<Self> {
        Self::new()
    }

    /// Two ends of one session.
    #[cfg(fuzzing)]
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::SEQPACKET;
        let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        Ok((Self(a), Self(b)))
    }

    /// Whether the peer may send descriptors; so do the sessions that a listening socket lets in.
    ///
    /// A descriptor of a peer's choice is a danger even if nobody looks at it: closing the last copy
    /// of it can wait for as long as the peer likes (a TCP socket that lingers, a file of a file
    /// system in user space), and it does not help to take none, for then the kernel closes it, in
    /// the same thread. So the kernel is asked not to let any come: from Linux 6.16 on it can.
    pub(crate) fn admit_files(&self, admit: bool) {
        /// `SO_PASSRIGHTS`: the same number on all machines but two.
        const PASS_RIGHTS: libc::c_int =
            if cfg!(any(target_arch = "sparc", target_arch = "sparc64")) { 0x5c } else { 83 };
        let value = libc::c_int::from(admit);
        let bytes = size_of_val(&value) as libc::socklen_t;
        // SAFETY: reads an integer of ours. Kernels that do not know it change nothing.
        unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                PASS_RIGHTS,
                (&raw const value).cast(),
                bytes,
            )
        };
    }

    /// Listens at a path where nothing may be yet.
    pub(crate) fn listen(path: &Path) -> io::Result<Self> {
        let socket = Self::new()?;
        socket.admit_files(false);
        bind(&socket.0, &address(path)?)?;
        listen(&socket.0, 1024)?;
        Ok(socket)
    }

    /// Connects to a listening socket; never waits (a full backlog is `WouldBlock`). No descriptors
    /// are [admitted](Self::admit_files) yet.
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let socket = Self::new()?;
        socket.admit_files(false);
        connect(&socket.0, &address(path)?)?;
        Ok(socket)
    }

    /// The next session that asks to be let in, if there is one.
    pub(crate) fn accept(&self) -> io::Result<Self> {
        Ok(Self(accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?))
    }

    pub(crate) fn credentials(&self) -> io::Result<Credentials> {
        let peer = sockopt::socket_peercred(&self.0)?;
        let pid = peer.pid.as_raw_pid().cast_unsigned();
        Ok(Credentials { pid, uid: peer.uid.as_raw(), gid: peer.gid.as_raw() })
    }

    /// The supplementary groups of the peer, as they were when the session began; none if the
    /// kernel does not tell.
    pub(crate) fn peer_groups(&self) -> Vec<u32> {
        let mut groups = vec![0u32; 64];
        loop {
            let mut bytes = (groups.len() * size_of::<u32>()) as libc::socklen_t;
            // SAFETY: writes at most `bytes` bytes to `groups`, which has as many.
            let asked = unsafe {
                libc::getsockopt(
                    self.0.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_PEERGROUPS,
                    groups.as_mut_ptr().cast(),
                    &raw mut bytes,
                )
            };
            let count = bytes as usize / size_of::<u32>();
            if asked == 0 {
                groups.truncate(count);
                return groups;
            }
            let short = io::Error::last_os_error().raw_os_error() == Some(libc::ERANGE);
            // The kernel bounds them to 65,536, and has said how many there are.
            if !short || count <= groups.len() || count > 1 << 16 {
                return Vec::new();
            }
            groups.resize(count, 0);
        }
    }

    /// Sends one message, with at most one descriptor.
    pub(crate) fn send(&self, message: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let files = file.map(|file| [file]);
        if let Some(files) = &files {
            let pushed = ancillary.push(SendAncillaryMessage::ScmRights(files));
            debug_assert!(pushed);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = sendmsg(&self.0, &[IoSlice::new(message)], &mut ancillary, flags)?;
        if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Receives one message; 0 bytes if the peer has closed. Where descriptors came with it that
    /// this process cannot have, because it has too many, that is the error.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        const FILES: usize = 4;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let message = recvmsg(&self.0, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags)?;
        let mut files = Vec::new();
        for one in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = one {
                files.extend(received);
            }
        }
        // The kernel cuts off what there is no room for, and what it has no number for.
        if message.flags.contains(ReturnFlags::CTRUNC) && files.len() < FILES {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let cut = message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        Ok(Received { bytes: message.bytes, whole: !cut, files })
    }

    /// Waits until there is something to receive; false if there is nothing in time.
    pub(crate) fn readable_within(&self, limit: Duration) -> io::Result<bool> {
        let until = std::time::Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            let left = rustix::time::Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&left)) {
                Ok(ready) => return Ok(ready > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Seqpacket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
