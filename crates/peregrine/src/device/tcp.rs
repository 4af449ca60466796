//! Wraps TCP sockets: listening, connecting, sending and receiving. A client can also connect to a local
//! stream socket. This module does not know what the transferred bytes mean.

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, getpeername, getsockname, listen, recv, send, shutdown,
    socket_with, sockopt,
};

use super::inherited::{self, Taken};
use crate::limits;
use crate::steps::{self, Step};
use crate::sys::{Parts, TcpHealth, receive_two, tcp_health};
use crate::value::{Space, Window};

/// The first port that [`Stream::privileged`] uses. Servers have most of the ports below it.
const FIRST_PRIVILEGED: u16 = 600;

/// A connected socket. An operation blocks only if the caller requests that.
pub(crate) struct Stream {
    socket: OwnedFd,
    /// What encrypts the bytes. `None`: they are sent as they are.
    seal: Option<Arc<dyn Seal>>,
}

/// Encrypts and authenticates the bytes of one [`Stream`].
///
/// One thread at a time receives, and another one may send at the same time. All bytes go through the seal,
/// and no operation but a receive with `wait` blocks.
pub(crate) trait Seal: Send + Sync {
    /// Sends as many bytes of `parts` as the socket accepts without blocking, and removes these bytes from
    /// `parts`.
    ///
    /// Bytes count as sent when the system has taken their ciphertext. If it took only a part of the
    /// ciphertext, the last byte does not count, so the caller knows that it must continue. The caller must
    /// then continue with the same message, or end the connection. The next call first sends the rest.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if nothing of `parts` was sent because the socket is full.
    fn send(&self, socket: BorrowedFd<'_>, parts: &mut Parts<'_>, more: bool) -> io::Result<()>;

    /// Receives bytes into `first`, and those that do not fit there into `then`. Returns their number, or 0
    /// at the end of the stream. If `wait` is true, blocks until bytes arrive. It may also return with
    /// [`io::ErrorKind::WouldBlock`] earlier, when bytes have arrived that say nothing yet.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if nothing has arrived. [`io::ErrorKind::InvalidData`] if the peer is
    /// refused or has refused this side, or if the bytes were changed on their way.
    fn receive(
        &self,
        socket: BorrowedFd<'_>,
        first: &mut [u8],
        then: Space<'_>,
        wait: bool,
    ) -> io::Result<usize>;

    /// Returns whether bytes were received from the socket and not taken yet. `poll` and epoll do not know of
    /// them. After [`receive`](Self::receive) has failed with `WouldBlock` in the only thread that receives,
    /// there are none.
    fn holds_received(&self) -> bool;

    /// Says to the peer that no more bytes follow. From now on, bytes of the peer are ignored.
    fn finish(&self, socket: BorrowedFd<'_>);
}

/// A listening socket. An operation never blocks.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    /// The use of the inherited socket, if this is one.
    inherited: Option<Taken>,
}

/// The kind of readiness that ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitFor {
    Readable,
    Writable,
    Either,
}

/// Which operations would not block now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

fn socket_for(address: &SocketAddr, flags: SocketFlags) -> io::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    Ok(socket_with(family, SocketType::STREAM, flags | SocketFlags::CLOEXEC, None)?)
}

/// Returns the remaining time until the moment `until`, as a timeout for `poll`.
fn left(until: Option<Instant>) -> Option<rustix::time::Timespec> {
    until.map(|until| {
        let left = until.saturating_duration_since(Instant::now());
        rustix::time::Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        }
    })
}

impl Stream {
    const fn plain(socket: OwnedFd) -> Self {
        Self { socket, seal: None }
    }

    /// Encrypts all further bytes with `seal`.
    #[cfg(feature = "secure")]
    pub(crate) fn set_seal(&mut self, seal: Arc<dyn Seal>) {
        self.seal = Some(seal);
    }

    /// Returns whether bytes were received from the socket and not taken yet. A thread must not sleep until
    /// the socket is readable, or leave the socket to the keeper, while this is true.
    #[inline]
    pub(crate) fn holds_received(&self) -> bool {
        self.seal.as_ref().is_some_and(|seal| seal.holds_received())
    }

    /// Connects to one of `addresses`: the first that accepts a connection before `until`. Attempts overlap
    /// (RFC 8305). The next attempt begins `stagger` after the previous attempt, or as soon as an attempt
    /// fails. The sockets of the unsuccessful attempts are closed.
    ///
    /// # Errors
    /// If all attempts failed, returns the address and the error of the attempt that failed last. If the time
    /// expired, returns the first address whose attempt is still unanswered. Returns `None` if `addresses` is
    /// empty.
    pub(crate) fn connect(
        addresses: &[SocketAddr],
        stagger: Duration,
        until: Instant,
    ) -> Result<Self, Option<(SocketAddr, io::Error)>> {
        let mut attempts: Vec<(SocketAddr, Self)> = Vec::new();
        let (mut next, mut starts) = (addresses.iter(), Instant::now());
        let mut failure = None;
        loop {
            while (attempts.is_empty() || Instant::now() >= starts)
                && let Some(address) = next.next()
            {
                match Self::begin(address) {
                    Ok((stream, true)) => {
                        return stream.connected().map_err(|e| Some((*address, e)));
                    }
                    Ok((stream, false)) => {
                        attempts.push((*address, stream));
                        starts = Instant::now() + stagger;
                    }
                    Err(error) => failure = Some((*address, error)),
                }
            }
            let Some((first, _)) = attempts.first() else { return Err(failure) };
            if Instant::now() >= until {
                return Err(Some((*first, io::ErrorKind::TimedOut.into())));
            }
            let mut fds: Vec<PollFd<'_>> =
                attempts.iter().map(|(_, one)| PollFd::new(&one.socket, PollFlags::OUT)).collect();
            let limit = if next.len() > 0 { until.min(starts) } else { until };
            match poll(&mut fds, left(Some(limit)).as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Some((*first, error.into()))),
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            for at in (0..attempts.len()).rev().filter(|at| ready[*at]) {
                let (address, stream) = attempts.remove(at);
                let done = sockopt::socket_error(&stream.socket).and_then(|error| error);
                match done.map_err(io::Error::from).and_then(|()| stream.connected()) {
                    Ok(stream) => return Ok(stream),
                    Err(error) => {
                        failure = Some((address, error));
                        starts = Instant::now();
                    }
                }
            }
        }
    }

    /// Connects to a local socket, which the file at `path` names.
    ///
    /// # Errors
    /// If no process accepts connections there, or too many connections wait to be accepted.
    pub(crate) fn local(path: &str) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Self::plain(socket).connected()
    }

    /// Connects to an IPv4 port of this machine from a port below 1024, which proves to the peer that this
    /// program is privileged. Connects from any port if this program may not use such a port.
    ///
    /// # Errors
    /// If the peer does not accept the connection before `until`.
    pub(crate) fn privileged(to: &SocketAddr, until: Instant) -> io::Result<Self> {
        let ports = (FIRST_PRIVILEGED..1024).rev().map(Some).chain([None]);
        for port in ports {
            let socket = socket_for(to, SocketFlags::NONBLOCK)?;
            let from = port.map(|port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
            let bound = from.map_or(Ok(()), |from| bind(&socket, &from));
            match bound.and_then(|()| connect(&socket, to)) {
                Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {
                    let stream = Self::plain(socket);
                    if !stream.wait(WaitFor::Writable, Some(until))?.writable {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    sockopt::socket_error(&stream.socket).and_then(|error| error)?;
                    return stream.connected();
                }
                // Another program uses the port, or has used it for a connection to the peer, or this program
                // is not privileged.
                Err(
                    rustix::io::Errno::ADDRINUSE
                    | rustix::io::Errno::ADDRNOTAVAIL
                    | rustix::io::Errno::ACCESS,
                ) if port.is_some() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// Begins to connect. Returns the stream, and whether it is already connected.
    fn begin(address: &SocketAddr) -> io::Result<(Self, bool)> {
        let stream = Self::plain(socket_for(address, SocketFlags::NONBLOCK)?);
        match connect(&stream.socket, address) {
            Ok(()) => Ok((stream, true)),
            Err(rustix::io::Errno::INPROGRESS) => Ok((stream, false)),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets a newly connected socket to blocking mode. While connecting, the socket was in non-blocking mode.
    fn connected(self) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&self.socket, false)?;
        Ok(self)
    }

    /// Prepares the socket for calls. Small messages are then sent at once, and a peer that does not answer
    /// is noticed within [`limits::SILENCE`].
    pub(crate) fn prepare(&self, congestion: Option<&str>) -> io::Result<()> {
        let socket = &self.socket;
        sockopt::set_tcp_nodelay(socket, true)?;
        sockopt::set_socket_keepalive(socket, true)?;
        let silence = limits::SILENCE;
        sockopt::set_tcp_keepidle(socket, silence / 2)?;
        sockopt::set_tcp_keepintvl(socket, silence / 10)?;
        sockopt::set_tcp_keepcnt(socket, 5)?;
        sockopt::set_tcp_user_timeout(socket, silence.as_millis() as u32)?;
        // While little data is in flight, this option makes the first retransmissions come at even intervals.
        // So the connection continues soon after a short interruption. Without the option, the intervals grow
        // from the first retransmission on.
        let _ = sockopt::set_tcp_thin_linear_timeouts(socket, true);
        if let Some(name) = congestion {
            sockopt::set_tcp_congestion(socket, name)?;
        }
        Ok(())
    }

    /// Sets the longest time that a blocking [`receive`](Self::receive) waits.
    pub(crate) fn set_receive_timeout(&self, limit: Duration) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Recv, Some(limit))?)
    }

    /// Returns what the kernel reports about the connection and the peer.
    pub(crate) fn health(&self) -> io::Result<TcpHealth> {
        tcp_health(self.socket.as_fd())
    }

    /// Sends as many bytes of `parts` as the socket accepts without blocking, and removes these bytes from
    /// `parts`. The caller sets `more` if it will send further bytes at once.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the socket accepts no bytes now.
    pub(crate) fn send(&self, parts: &mut Parts<'_>, more: bool) -> io::Result<()> {
        steps::pass(Step::Sending);
        let sent = match &self.seal {
            None => parts.send(self.socket.as_fd(), more),
            Some(seal) => seal.send(self.socket.as_fd(), parts, more),
        };
        steps::pass(Step::Sent);
        sent
    }

    /// Sends as many of `bytes` as the socket accepts without blocking. Returns their number.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the socket accepts no bytes now.
    pub(crate) fn send_some(&self, bytes: &[u8]) -> io::Result<usize> {
        let Some(seal) = &self.seal else {
            return Ok(send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?);
        };
        let mut parts = Parts::new();
        parts.push(Window::from(bytes));
        seal.send(self.socket.as_fd(), &mut parts, false)?;
        Ok(bytes.len() - parts.left())
    }

    /// Receives the bytes that have arrived. If `wait` is true, blocks until bytes arrive. Returns the number
    /// of bytes, or 0 if the peer has closed the connection.
    pub(crate) fn receive(&self, into: &mut [u8], wait: bool) -> io::Result<usize> {
        let received = match &self.seal {
            None => {
                let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
                recv(&self.socket, into, flags)?.1
            }
            Some(seal) => seal.receive(self.socket.as_fd(), into, Space::none(), wait)?,
        };
        steps::pass(Step::Received);
        Ok(received)
    }

    /// Receives as [`receive`](Self::receive) does. The bytes go into `first`. The bytes that do not fit into
    /// `first` go into `then`.
    pub(crate) fn receive_two(
        &self,
        first: &mut [u8],
        then: Space<'_>,
        wait: bool,
    ) -> io::Result<usize> {
        let received = match &self.seal {
            None => receive_two(self.socket.as_fd(), first, then, wait)?,
            Some(seal) => seal.receive(self.socket.as_fd(), first, then, wait)?,
        };
        steps::pass(Step::Received);
        Ok(received)
    }

    /// Waits until the socket has the readiness `what`, or until the time `until`.
    pub(crate) fn wait(&self, what: WaitFor, until: Option<Instant>) -> io::Result<Ready> {
        let flags = match what {
            WaitFor::Readable => PollFlags::IN,
            WaitFor::Writable => PollFlags::OUT,
            WaitFor::Either => PollFlags::IN | PollFlags::OUT,
        };
        if what != WaitFor::Writable && self.holds_received() {
            return Ok(Ready { readable: true, writable: false });
        }
        loop {
            let mut one = [PollFd::new(&self.socket, flags)];
            match poll(&mut one, left(until).as_ref()) {
                Ok(_) => {
                    let events = one[0].revents();
                    // A failed socket counts as ready, because the next operation reports the error.
                    let failed = events.intersects(PollFlags::ERR | PollFlags::HUP);
                    let readable = failed || events.contains(PollFlags::IN);
                    let writable = failed || events.contains(PollFlags::OUT);
                    return Ok(Ready { readable, writable });
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Shuts down both directions. Threads that wait on the socket stop waiting.
    pub(crate) fn end(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Returns the address of the peer.
    pub(crate) fn peer(&self) -> io::Result<SocketAddr> {
        let peer = getpeername(&self.socket)?.ok_or(io::ErrorKind::NotConnected)?;
        Ok(SocketAddr::try_from(peer)?)
    }

    /// Shuts down the sending direction. The peer still receives all bytes that were sent before. This socket
    /// can still receive the end of the stream, and unless the stream is encrypted also bytes.
    pub(crate) fn shut_down_sending(&self) {
        if let Some(seal) = &self.seal {
            seal.finish(self.socket.as_fd());
        }
        let _ = shutdown(&self.socket, Shutdown::Write);
    }
}

impl Listener {
    /// Listens at an address. If this process has inherited a socket that listens there, takes this socket.
    ///
    /// # Errors
    /// Those of `bind` and `listen`, for example that the address is in use.
    pub(crate) fn listen(address: &SocketAddr) -> io::Result<Self> {
        if let Some((socket, taken)) = inherited::take(SocketType::STREAM, address)? {
            rustix::io::ioctl_fionbio(&socket, true)?;
            return Ok(Self { socket, inherited: Some(taken) });
        }
        let socket = socket_for(address, SocketFlags::NONBLOCK)?;
        // Without this option, a restarted server could not listen until the kernel has forgotten the
        // connections of the previous run.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, true)?;
        }
        let bound = bind(&socket, address).and_then(|()| listen(&socket, 1024));
        bound.map_err(|error| inherited::explain(error.into(), SocketType::STREAM))?;
        Ok(Self { socket, inherited: None })
    }

    /// Returns whether this process has inherited the socket.
    pub(crate) const fn is_inherited(&self) -> bool {
        self.inherited.is_some()
    }

    /// Returns the address at which the socket listens. A port of 0 is replaced by the actual port.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::try_from(getsockname(&self.socket)?)?)
    }

    /// Accepts the next connection, if there is one. Returns the connection and the address of the peer.
    pub(crate) fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        // The accepted socket does not inherit the listener's non-blocking mode.
        let socket = accept_with(&self.socket, SocketFlags::CLOEXEC)?;
        let from = getpeername(&socket)?;
        let from = from.map(SocketAddr::try_from).transpose()?;
        let from = from.ok_or(io::ErrorKind::NotConnected)?;
        Ok((Stream::plain(socket), from))
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl core::fmt::Debug for Stream {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Stream({:?}, sealed: {})", self.socket, self.seal.is_some())
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
