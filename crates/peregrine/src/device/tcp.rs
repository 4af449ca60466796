//! TCP: sockets that listen, connect, send and receive. What the bytes mean is others' business.

use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvFlags, Shutdown, SocketFlags, SocketType, accept_with, bind, connect,
    getpeername, getsockname, listen, recv, shutdown, socket_with, sockopt,
};

use crate::limits;
use crate::sys::{Parts, Pulse, receive_two, tcp_pulse};
use crate::value::Space;

/// A connected socket. Waits where it is told to.
#[derive(Debug)]
pub(crate) struct Stream(OwnedFd);

/// A socket that listens; its operations return at once.
#[derive(Debug)]
pub(crate) struct Listener(OwnedFd);

/// What is to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    Readable,
    Writable,
    Either,
}

/// What it has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

fn socket_for(address: &SocketAddr, flags: SocketFlags) -> io::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    Ok(socket_with(family, SocketType::STREAM, flags | SocketFlags::CLOEXEC, None)?)
}

/// The time until a moment as `poll` wants it.
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
    /// Connects to the first of several addresses that accepts, before `until`. Each is tried `stagger`
    /// after the one before, or as soon as one fails (RFC 8305); the others are closed.
    ///
    /// # Errors
    /// The last address that failed, or the first that has not answered, and why; `None` if there is no
    /// address.
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
                attempts.iter().map(|(_, one)| PollFd::new(&one.0, PollFlags::OUT)).collect();
            let limit = if next.len() > 0 { until.min(starts) } else { until };
            match poll(&mut fds, left(Some(limit)).as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Some((*first, error.into()))),
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            for at in (0..attempts.len()).rev().filter(|at| ready[*at]) {
                let (address, stream) = attempts.remove(at);
                let done = sockopt::socket_error(&stream.0).and_then(|error| error);
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

    /// Begins to connect; whether that is all.
    fn begin(address: &SocketAddr) -> io::Result<(Self, bool)> {
        let stream = Self(socket_for(address, SocketFlags::NONBLOCK)?);
        match connect(&stream.0, address) {
            Ok(()) => Ok((stream, true)),
            Err(rustix::io::Errno::INPROGRESS) => Ok((stream, false)),
            Err(error) => Err(error.into()),
        }
    }

    /// It is connected, and waits where it is told to from now on.
    fn connected(self) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&self.0, false)?;
        Ok(self)
    }

    /// Makes it fit for calls: small messages leave at once, a peer that is silently gone is
    /// noticed within [`limits::SILENCE`].
    pub(crate) fn prepare(&self, congestion: Option<&str>) -> io::Result<()> {
        let socket = &self.0;
        sockopt::set_tcp_nodelay(socket, true)?;
        sockopt::set_socket_keepalive(socket, true)?;
        let silence = limits::SILENCE;
        sockopt::set_tcp_keepidle(socket, silence / 2)?;
        sockopt::set_tcp_keepintvl(socket, silence / 10)?;
        sockopt::set_tcp_keepcnt(socket, 5)?;
        sockopt::set_tcp_user_timeout(socket, silence.as_millis() as u32)?;
        // What is sent again is so at even intervals at first: little is ever under way, and a way that
        // was cut for a moment is to be found open soon. Without it, later.
        let _ = sockopt::set_tcp_thin_linear_timeouts(socket, true);
        if let Some(name) = congestion {
            sockopt::set_tcp_congestion(socket, name)?;
        }
        Ok(())
    }

    /// How long a [`receive`](Self::receive) that waits waits at most.
    pub(crate) fn patience(&self, limit: Duration) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.0, sockopt::Timeout::Recv, Some(limit))?)
    }

    /// How things stand with the other end.
    pub(crate) fn pulse(&self) -> io::Result<Pulse> {
        tcp_pulse(self.0.as_fd())
    }

    /// Sends what the socket takes at once.
    pub(crate) fn send(&self, parts: &mut Parts<'_>, more: bool) -> io::Result<()> {
        parts.send(self.0.as_fd(), more)
    }

    /// Receives what there is, waiting for it if told so; 0 bytes if the other side has closed.
    pub(crate) fn receive(&self, into: &mut [u8], wait: bool) -> io::Result<usize> {
        let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        Ok(recv(&self.0, into, flags)?.1)
    }

    /// As [`receive`](Self::receive), into two places.
    pub(crate) fn receive_two(
        &self,
        first: &mut [u8],
        then: Space<'_>,
        wait: bool,
    ) -> io::Result<usize> {
        receive_two(self.0.as_fd(), first, then, wait)
    }

    /// Waits until something can be done, or the moment comes.
    pub(crate) fn wait(&self, what: For, until: Option<Instant>) -> io::Result<Ready> {
        let flags = match what {
            For::Readable => PollFlags::IN,
            For::Writable => PollFlags::OUT,
            For::Either => PollFlags::IN | PollFlags::OUT,
        };
        loop {
            let mut one = [PollFd::new(&self.0, flags)];
            match poll(&mut one, left(until).as_ref()) {
                Ok(_) => {
                    let came = one[0].revents();
                    // An error is told by whatever is tried next.
                    let failed = came.intersects(PollFlags::ERR | PollFlags::HUP);
                    let readable = failed || came.contains(PollFlags::IN);
                    let writable = failed || came.contains(PollFlags::OUT);
                    return Ok(Ready { readable, writable });
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Ends it in both directions: whoever waits on it comes back.
    pub(crate) fn end(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    /// Where it leads.
    pub(crate) fn peer(&self) -> io::Result<SocketAddr> {
        let peer = getpeername(&self.0)?.ok_or(io::ErrorKind::NotConnected)?;
        Ok(SocketAddr::try_from(peer)?)
    }

    /// Says that nothing more will be sent.
    pub(crate) fn finish(&self) {
        let _ = shutdown(&self.0, Shutdown::Write);
    }
}

impl Listener {
    pub(crate) fn listen(address: &SocketAddr) -> io::Result<Self> {
        let socket = socket_for(address, SocketFlags::NONBLOCK)?;
        // A server that is started again need not wait for its old connections to be forgotten.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, true)?;
        }
        bind(&socket, address)?;
        listen(&socket, 1024)?;
        Ok(Self(socket))
    }

    /// Where it listens, the port included if the system chose it.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::try_from(getsockname(&self.0)?)?)
    }

    /// The next connection, if there is one, and where it comes from.
    pub(crate) fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        // Of the accepted sockets none inherits that nobody waits.
        let socket = accept_with(&self.0, SocketFlags::CLOEXEC)?;
        let from = getpeername(&socket)?;
        let from = from.map(SocketAddr::try_from).transpose()?;
        let from = from.ok_or(io::ErrorKind::NotConnected)?;
        Ok((Stream(socket), from))
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
