//! A socket for packets, whatever carries them.

use core::fmt;
use core::time::Duration;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::SendDatagrams;
use super::ethernet::{Ethernet, LinkAddress, LinkPort, SocketUse};
use super::udp::{self, Udp};
use super::udp::{Arrival, Until};
use crate::sys::Address;
use crate::value::{Space, Window};

/// Bytes of what arrives that no frame holds: headers that the kernel counts with it.
const COUNTED: usize = 768;

/// How packets get to a server.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// In datagrams, to there.
    Udp(SocketAddr),
    /// In frames, from this interface to that endpoint.
    Link(Arc<LinkPort>, LinkAddress),
}

impl PartialEq for Route {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Udp(one), Self::Udp(other)) => one == other,
            (Self::Link(one, node), Self::Link(other, another)) => {
                Arc::ptr_eq(one, other) && node == another
            }
            _ => false,
        }
    }
}

impl Route {
    /// A socket that sends there, and hears from there only.
    ///
    /// # Errors
    /// If there is no way there, or no descriptor or memory.
    pub(crate) fn connect(&self, what: SocketUse) -> io::Result<Socket> {
        match self {
            Self::Udp(to) => Udp::connected(*to).map(Socket::Udp),
            Self::Link(link_port, node) => {
                Ethernet::connected(link_port, *node, what).map(Socket::Ethernet)
            }
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(to) => to.fmt(f),
            Self::Link(link_port, node) => {
                write!(f, "{:?} on `{}`", Address::from(*node), link_port.interface().name)
            }
        }
    }
}

/// A socket that packets pass through.
#[derive(Debug)]
pub(crate) enum Socket {
    /// In datagrams of an internet protocol.
    Udp(Udp),
    /// In frames on a link.
    Ethernet(Ethernet),
}

impl Socket {
    /// Sends one packet made of these parts; without `to` to whom the socket is connected.
    ///
    /// # Errors
    /// If it did not go. `ConnectionRefused`: an *earlier* one met nobody, and this one did not go.
    #[inline]
    pub(crate) fn send(&self, parts: &[Window<'_>], to: Option<&Address>) -> io::Result<()> {
        match self {
            Self::Udp(udp) => udp.send(parts, to),
            Self::Ethernet(ethernet) => ethernet.send(parts, to),
        }
    }

    /// The same to whom the socket is connected, on behalf of somebody else: it does not wait for room.
    ///
    /// # Errors
    /// As for [`send`](Self::send); `WouldBlock` if there is no room.
    pub(crate) fn send_now(&self, parts: &[Window<'_>]) -> io::Result<()> {
        match self {
            Self::Udp(udp) => udp.send_now(parts),
            // That never waits.
            Self::Ethernet(ethernet) => ethernet.send(parts, None),
        }
    }

    /// Receives a packet, or a train if the socket [merges](Self::merge), into these spaces, filled
    /// one after the other. `None` if nothing came in time.
    ///
    /// # Errors
    /// Those of the system call. `ConnectionRefused`: what was sent met nobody; told once.
    #[inline]
    pub(crate) fn receive(
        &self,
        into: &[Space<'_>],
        from: Option<&mut Address>,
        until: Until,
    ) -> io::Result<Option<Arrival>> {
        match self {
            Self::Udp(udp) => udp.receive(into, from, until),
            Self::Ethernet(ethernet) => ethernet.receive(into, from, until),
        }
    }

    /// Whether it pays to receive: false only where that is known without a system call.
    #[inline]
    pub(crate) fn may_have_arrived(&self) -> bool {
        match self {
            Self::Udp(_) => true,
            Self::Ethernet(ethernet) => ethernet.has_arrived(),
        }
    }

    /// How many looks are worth a look at the clock: a look is a system call, or one at memory.
    #[inline]
    pub(crate) const fn looks(&self) -> u32 {
        match self {
            Self::Udp(_) => 8,
            Self::Ethernet(_) => 128,
        }
    }

    /// Lets trains arrive in one piece from now on.
    ///
    /// # Errors
    /// If the kernel does not know how.
    pub(crate) fn enable_gro(&self) -> io::Result<()> {
        match self {
            Self::Udp(udp) => udp.enable_gro(),
            Self::Ethernet(ethernet) => {
                ethernet.enable_gro();
                Ok(())
            }
        }
    }

    /// Whether trains may arrive in one piece.
    #[inline]
    pub(crate) fn has_gro(&self) -> bool {
        match self {
            Self::Udp(udp) => udp.has_gro(),
            Self::Ethernet(ethernet) => ethernet.has_gro(),
        }
    }

    /// Whether parts of a train are better gathered than put together first.
    #[inline]
    pub(super) const fn prefers_gathering(&self) -> bool {
        matches!(self, Self::Ethernet(_))
    }

    /// Its own address.
    ///
    /// # Errors
    /// Those of `getsockname`.
    pub(crate) fn local(&self) -> io::Result<Address> {
        match self {
            Self::Udp(udp) => udp.local().map(Address::from),
            Self::Ethernet(ethernet) => Ok(ethernet.node().into()),
        }
    }

    /// Bytes of what arrives that it has room for, as [`credits`](Self::credits) counts them; asks for
    /// `wanted`.
    ///
    /// # Errors
    /// Those of `setsockopt`.
    pub(crate) fn size_buffers(&self, wanted: usize) -> io::Result<usize> {
        match self {
            Self::Udp(udp) => Ok(udp.size_buffers(wanted, wanted)?[0]),
            Self::Ethernet(ethernet) => Ok(ethernet.frames() * (ethernet.payload(0) + COUNTED)),
        }
    }

    /// How much of the send buffer is taken, in 256ths. On a link nothing waits in one: a frame goes to
    /// a hardware address, for which nobody is asked.
    pub(crate) fn fill_of_send_buffer(&self) -> u32 {
        match self {
            Self::Udp(udp) => {
                let [taken, all] = udp.send_buffer().unwrap_or([0, 1]);
                (u64::from(taken) * 256 / u64::from(all).max(1)).min(256) as u32
            }
            Self::Ethernet(_) => 0,
        }
    }

    /// Packets that found no room.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub(crate) fn overflowed(&self) -> io::Result<u64> {
        match self {
            Self::Udp(udp) => udp.overflowed().map(u64::from),
            Self::Ethernet(ethernet) => ethernet.overflowed(),
        }
    }

    /// Lets packets be cut up on their way, if what carries them can do that.
    ///
    /// # Errors
    /// Those of `setsockopt`.
    pub(crate) fn allow_fragmentation(&self) -> io::Result<()> {
        match self {
            Self::Udp(udp) => udp.allow_fragmentation(),
            Self::Ethernet(_) => Ok(()),
        }
    }

    /// Bytes behind a header of so many that a packet to the peer may have without being cut up on
    /// the way: a multiple of 16. For connected sockets.
    ///
    /// # Errors
    /// If the socket is not connected.
    pub(crate) fn payload(&self, header: usize) -> io::Result<usize> {
        match self {
            Self::Udp(udp) => udp.payload(header),
            Self::Ethernet(ethernet) => Ok(ethernet.payload(header)),
        }
    }

    /// As [`payload`](Self::payload), to a peer that an unconnected socket answers.
    ///
    /// # Errors
    /// If there is no route to it.
    pub(crate) fn payload_to(&self, peer: &Address, header: usize) -> io::Result<usize> {
        match (self, peer.ip()) {
            (Self::Udp(_), Some(peer)) => udp::payload_to(peer, header),
            (Self::Ethernet(ethernet), _) => Ok(ethernet.payload(header)),
            (Self::Udp(_), None) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Makes threads that sleep in receiving come back, from now on.
    pub(crate) fn close(&self) {
        match self {
            Self::Udp(udp) => udp.close(),
            Self::Ethernet(ethernet) => ethernet.close(),
        }
    }
}

/// Waits until something has come to one of these sockets, or for so long. Those that are not of the
/// internet are not waited for.
///
/// # Errors
/// Those of `poll`.
pub(crate) fn wait_for_any(sockets: &[&Socket], limit: Duration) -> io::Result<()> {
    let mut fds: Vec<PollFd<'_>> = sockets
        .iter()
        .filter_map(|socket| match socket {
            Socket::Udp(udp) => Some(PollFd::from_borrowed_fd(udp.as_fd(), PollFlags::IN)),
            Socket::Ethernet(_) => None,
        })
        .collect();
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    match poll(&mut fds, Some(&limit)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl SendDatagrams for Socket {
    fn send(&self, parts: &[Window<'_>], to: Option<&Address>) -> io::Result<()> {
        self.send(parts, to)
    }

    fn send_batch(
        &self,
        parts: &[Window<'_>],
        segment: usize,
        to: Option<&Address>,
    ) -> io::Result<()> {
        match self {
            Self::Udp(udp) => udp.send_batch(parts, segment, to),
            Self::Ethernet(ethernet) => ethernet.send_batch(parts, segment, to),
        }
    }
}
