//! Unix sockets that preserve message boundaries, pass descriptors and identify the peer.

#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use core::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType, accept_with, bind, connect, listen, recvmsg, sendmsg, shutdown, socket_with,
    sockopt,
};

use super::closing::close_elsewhere;

/// A connected or listening `SOCK_SEQPACKET` socket. All operations of the socket return at once. Its drop
/// also returns at once, no matter which descriptors the peer has sent.
#[derive(Debug)]
pub(crate) struct Seqpacket {
    fd: ManuallyDrop<OwnedFd>,
    /// Whether this process accepts descriptors from the peer.
    admits: AtomicBool,
    /// Whether the kernel rejects descriptors. If so, there are none in the queue.
    refuses: AtomicBool,
    /// The process that created the socket. A forked child shares the socket, so what the child does to it
    /// affects the parent.
    owner: u32,
}

/// The next item in the receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// The peer has closed the connection, and no message is left.
    End,
    /// A message without descriptors.
    Plain,
    /// A message with descriptors.
    WithFiles,
}

/// The identity of the peer, as the kernel recorded it when the session began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// One message. It is truncated if it was longer than the buffer.
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
    /// Wraps a socket to which no peer can have sent anything yet.
    fn of(fd: OwnedFd) -> Self {
        let (admits, refuses) = (AtomicBool::new(false), AtomicBool::new(true));
        Self { fd: ManuallyDrop::new(fd), admits, refuses, owner: std::process::id() }
    }

    fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(Self::of(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?))
    }

    /// Creates a socket that is never used. It only keeps a descriptor in reserve.
    pub(crate) fn reserve() -> io::Result<Self> {
        Self::new()
    }

    /// Returns the two ends of one session.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::SEQPACKET;
        let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        Ok((Self::of(a), Self::of(b)))
    }

    /// Sets whether the peer may send descriptors. Sessions that are accepted from a listening socket inherit
    /// this setting.
    ///
    /// A descriptor that a peer chooses is a danger even if this process does not use it. Closing its last
    /// copy can block for as long as the peer wants (a TCP socket that lingers, a file of a file system in
    /// user space). If this process does not receive the descriptor, the danger remains: the kernel then
    /// closes the descriptor in the thread that closes the socket. Therefore this function asks the kernel to
    /// reject descriptors, which the kernel can do since Linux 6.16. On earlier kernels a message with
    /// descriptors is detected and left in the queue. The socket is then closed in a thread that may block
    /// for ever (see `closing`).
    pub(crate) fn admit_files(&self, admit: bool) {
        /// `SO_PASSRIGHTS`. It has the same number on all architectures except two.
        const PASS_RIGHTS: libc::c_int =
            if cfg!(any(target_arch = "sparc", target_arch = "sparc64")) { 0x5c } else { 83 };
        let value = libc::c_int::from(admit);
        let bytes = size_of_val(&value) as libc::socklen_t;
        // SAFETY: reads a local integer. A kernel that does not know the option changes nothing.
        let set = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                PASS_RIGHTS,
                (&raw const value).cast(),
                bytes,
            )
        };
        self.admits.store(admit, Ordering::Relaxed);
        self.refuses.store(set == 0 && !admit, Ordering::Relaxed);
    }

    /// Looks at the next item in the queue. Removes nothing, and closes no descriptor.
    fn waiting(&self) -> io::Result<Waiting> {
        // With this option, every message carries its sender's identity, which distinguishes an empty message
        // from the end of the connection.
        sockopt::set_socket_passcred(self, true)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let message = recvmsg(self, &mut [IoSliceMut::new(&mut [0])], &mut ancillary, flags)?;
        Ok(if message.flags.contains(ReturnFlags::CTRUNC) {
            // The buffer has space for the sender's identity only. The kernel cut something off, so the
            // message also carries descriptors.
            Waiting::WithFiles
        } else if message.bytes > 0 || ancillary.drain().next().is_some() {
            Waiting::Plain
        } else {
            Waiting::End
        })
    }

    /// Shuts the socket down and discards its messages. Returns whether no message with descriptors is left
    /// in the queue.
    fn is_drained(&self) -> bool {
        /// The limit on the messages that are discarded. The send buffer of a peer holds fewer messages.
        const MESSAGES: usize = 4096;
        let _ = shutdown(self, Shutdown::Both);
        for _ in 0..MESSAGES {
            match self.waiting() {
                Ok(Waiting::End) => return true,
                Ok(Waiting::Plain) => drop(self.receive_any(&mut [])),
                // A connection reset is reported once, before the messages that arrived earlier.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
                // A socket that was never connected has no queue.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return true,
                Ok(Waiting::WithFiles) | Err(_) => return false,
            }
        }
        false
    }

    /// Listens at a path. The path must not exist yet.
    pub(crate) fn listen(path: &Path) -> io::Result<Self> {
        let socket = Self::new()?;
        socket.admit_files(false);
        bind(&socket, &address(path)?)?;
        listen(&socket, 1024)?;
        Ok(socket)
    }

    /// Connects to a listening socket. Never blocks: if the backlog is full, fails with `WouldBlock`.
    /// Descriptors are not [admitted](Self::admit_files) yet.
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let socket = Self::new()?;
        socket.admit_files(false);
        connect(&socket, &address(path)?)?;
        Ok(socket)
    }

    /// Accepts the next session, if there is one.
    pub(crate) fn accept(&self) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = Self::of(accept_with(self, flags)?);
        socket.refuses.store(self.refuses.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(socket)
    }

    pub(crate) fn credentials(&self) -> io::Result<Credentials> {
        let peer = sockopt::socket_peercred(self)?;
        let pid = peer.pid.as_raw_pid().cast_unsigned();
        Ok(Credentials { pid, uid: peer.uid.as_raw(), gid: peer.gid.as_raw() })
    }

    /// Returns the supplementary groups that the peer had when the session began. The list is empty if the
    /// kernel does not report the groups.
    pub(crate) fn peer_groups(&self) -> Vec<u32> {
        let mut groups = vec![0u32; 64];
        loop {
            let mut bytes = (groups.len() * size_of::<u32>()) as libc::socklen_t;
            // SAFETY: writes at most `bytes` bytes to `groups`, which has that size.
            let asked = unsafe {
                libc::getsockopt(
                    self.fd.as_raw_fd(),
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
            // The kernel allows at most 65,536 groups. It has stored in `bytes` how many bytes the whole list
            // needs.
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
        let sent = sendmsg(self, &[IoSlice::new(message)], &mut ancillary, flags)?;
        if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Receives one message. The message has 0 bytes if the peer has closed the connection.
    ///
    /// # Errors
    /// `EMFILE` if descriptors came with the message and this process would then have too many open
    /// descriptors. `InvalidData` if descriptors came but are not admitted. In that case the message stays in
    /// the queue, and the caller can only drop the socket.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let open = !self.refuses.load(Ordering::Relaxed) && !self.admits.load(Ordering::Relaxed);
        if open {
            match self.waiting()? {
                Waiting::Plain => {}
                Waiting::End => return Ok(Received { bytes: 0, whole: true, files: Vec::new() }),
                Waiting::WithFiles => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        self.receive_any(buffer)
    }

    fn receive_any(&self, buffer: &mut [u8]) -> io::Result<Received> {
        const FILES: usize = 4;
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES), ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let message = recvmsg(self, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags)?;
        let mut files = Vec::new();
        for one in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = one {
                files.extend(received);
            }
        }
        // The kernel cuts off descriptors that do not fit the buffer, or that would exceed this process's
        // limit of open descriptors. If the buffer is not full, that limit is the reason.
        if message.flags.contains(ReturnFlags::CTRUNC) && files.len() < FILES {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let cut = message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        Ok(Received { bytes: message.bytes, whole: !cut, files })
    }

    /// Waits until a message has arrived. Returns false if none arrives within `limit`.
    pub(crate) fn readable_within(&self, limit: Duration) -> io::Result<bool> {
        self.ready_within(PollFlags::IN, limit)
    }

    /// Waits until the socket has room for a message, or the peer has closed the connection. Returns false if
    /// neither happens within `limit`.
    pub(crate) fn writable_within(&self, limit: Duration) -> io::Result<bool> {
        self.ready_within(PollFlags::OUT, limit)
    }

    fn ready_within(&self, events: PollFlags, limit: Duration) -> io::Result<bool> {
        let until = std::time::Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            let left = rustix::time::Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut [PollFd::new(self, events)], Some(&left)) {
                Ok(ready) => return Ok(ready > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Seqpacket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Seqpacket {
    fn drop(&mut self) {
        let harmless = *self.refuses.get_mut()
            || self.owner != std::process::id()
            // The queue of a listening socket contains sessions that were not accepted yet. The queues of
            // these sessions may contain descriptors.
            || (!sockopt::socket_acceptconn(&*self).unwrap_or(true) && self.is_drained());
        // SAFETY: the value is dropped here, and nothing uses the field afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        if !harmless {
            close_elsewhere(fd);
        }
    }
}
