//! A socket for packets. The caller need not know which device, UDP or raw Ethernet, transports the packets.

use core::fmt;
use core::time::Duration;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::SendDatagrams;
use super::ethernet::{Ethernet, LinkAddress, LinkPort, SocketUse};
use super::sealed::{SealedSocket, TAG_BYTES};
use super::udp::{self, Udp};
use super::udp::{Arrival, Until};
use crate::steps::{self, Step};
use crate::sys::{Address, IfFull};
use crate::value::{Space, Window};

/// The number of bytes that are counted against a receive buffer for each packet, in addition to the packet.
/// The Linux kernel counts about this number for a UDP datagram.
const COUNTED: usize = 768;

/// How packets reach a server.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// By UDP datagrams, to this address.
    Udp(SocketAddr),
    /// By Ethernet frames, from the interface of this link port to this endpoint.
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
    /// Creates a socket that sends to and receives from the server only.
    ///
    /// # Errors
    /// If there is no route, no descriptor or no memory.
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

/// A socket for packets.
#[derive(Debug)]
pub(crate) enum Socket {
    /// UDP.
    Udp(Udp),
    /// Raw Ethernet.
    Ethernet(Ethernet),
    /// One of these, with encrypted packets.
    Sealed(Box<SealedSocket>),
}

impl Socket {
    /// Sends one packet, which consists of `parts`, to `to`. If `to` is `None`, sends to the peer of the
    /// socket.
    ///
    /// # Errors
    /// If the packet was not sent. `ConnectionRefused` means that an *earlier* packet reached a closed port.
    /// Even then, this packet was not sent.
    #[inline]
    pub(crate) fn send(&self, parts: &[Window<'_>], to: Option<&Address>) -> io::Result<()> {
        steps::pass(Step::Sending);
        let sent = match self {
            Self::Udp(udp) => udp.send(parts, to),
            Self::Ethernet(ethernet) => ethernet.send(parts, to),
            Self::Sealed(sealed) => sealed.send(parts, to),
        };
        steps::pass(Step::Sent);
        sent
    }

    /// Sends one packet, which consists of `parts`, to the peer. Does not wait for free space in the send
    /// buffer. The keeper, the background thread of the process, uses this function, because the keeper must
    /// not be delayed. Pending calls use it, because the thread of a future must not be delayed.
    ///
    /// # Errors
    /// As for [`send`](Self::send); `WouldBlock` if the send buffer is full.
    pub(crate) fn send_now(&self, parts: &[Window<'_>]) -> io::Result<()> {
        NoWait(self).send(parts, None)
    }

    /// Receives a packet into the spaces `into`, which are filled one after another. With
    /// [GRO](Self::enable_gro), may receive a batch. Returns `None` if nothing arrived in time.
    ///
    /// # Errors
    /// Those of the system call. `ConnectionRefused` means that an earlier packet of this socket reached a
    /// closed port. The kernel reports each such error once.
    #[inline]
    pub(crate) fn receive(
        &self,
        into: &[Space<'_>],
        from: Option<&mut Address>,
        until: Until,
    ) -> io::Result<Option<Arrival>> {
        let received = match self {
            Self::Udp(udp) => udp.receive(into, from, until),
            Self::Ethernet(ethernet) => ethernet.receive(into, from, until),
            Self::Sealed(sealed) => sealed.receive(into, from, until),
        };
        if let Ok(Some(_)) = received {
            steps::pass(Step::Received);
        }
        received
    }

    /// Returns false if certainly nothing has arrived. Over UDP, this function always returns true, because
    /// only a system call could find out whether a packet has arrived.
    #[inline]
    pub(crate) fn may_have_arrived(&self) -> bool {
        match self {
            Self::Udp(_) => true,
            Self::Ethernet(ethernet) => ethernet.has_arrived(),
            Self::Sealed(sealed) => sealed.socket.may_have_arrived(),
        }
    }

    /// Returns the number of polls between two readings of the clock. A poll is a system call over UDP, but
    /// only reads memory over raw Ethernet.
    #[inline]
    pub(crate) fn looks(&self) -> u32 {
        match self {
            Self::Udp(_) => 8,
            Self::Ethernet(_) => 128,
            Self::Sealed(sealed) => sealed.socket.looks(),
        }
    }

    /// Returns the number of descriptors that become readable when a packet arrives.
    pub(crate) fn descriptors(&self) -> usize {
        match self {
            Self::Udp(_) => 1,
            Self::Ethernet(ethernet) => ethernet.descriptors(),
            Self::Sealed(sealed) => sealed.socket.descriptors(),
        }
    }

    /// Returns the descriptor with this number.
    ///
    /// # Panics
    /// If the number is not less than [`descriptors`](Self::descriptors).
    pub(crate) fn descriptor(&self, number: usize) -> BorrowedFd<'_> {
        match self {
            Self::Udp(udp) => udp.as_fd(),
            Self::Ethernet(ethernet) => ethernet.descriptor(number),
            Self::Sealed(sealed) => sealed.socket.descriptor(number),
        }
    }

    /// Clears the error that the socket has because its interface went down. Over raw Ethernet,
    /// [`receive`](Self::receive) clears such an error only if it sleeps. Over UDP, `receive` always clears
    /// and returns the error of the socket.
    pub(crate) fn clear_link_error(&self) {
        match self {
            Self::Udp(_) => {}
            Self::Ethernet(ethernet) => ethernet.clear_error(),
            Self::Sealed(sealed) => sealed.socket.clear_link_error(),
        }
    }

    /// Lets several packets arrive as one batch from now on (generic receive offload, GRO).
    ///
    /// # Errors
    /// If the kernel does not support GRO.
    pub(crate) fn enable_gro(&self) -> io::Result<()> {
        match self {
            Self::Udp(udp) => udp.enable_gro(),
            Self::Ethernet(ethernet) => {
                ethernet.enable_gro();
                Ok(())
            }
            Self::Sealed(sealed) => sealed.socket.enable_gro(),
        }
    }

    /// Returns whether packets may arrive in batches.
    #[inline]
    pub(crate) fn has_gro(&self) -> bool {
        match self {
            Self::Udp(udp) => udp.has_gro(),
            Self::Ethernet(ethernet) => ethernet.has_gro(),
            Self::Sealed(sealed) => sealed.socket.has_gro(),
        }
    }

    /// Returns whether the small parts of a batch are gathered from the caller's memory rather than copied
    /// first.
    #[inline]
    pub(super) const fn prefers_gathering(&self) -> bool {
        matches!(self, Self::Ethernet(_) | Self::Sealed(_))
    }

    /// Returns the socket's address.
    ///
    /// # Errors
    /// Those of `getsockname`.
    pub(crate) fn local(&self) -> io::Result<Address> {
        match self {
            Self::Udp(udp) => udp.local().map(Address::from),
            Self::Ethernet(ethernet) => Ok(ethernet.node().into()),
            Self::Sealed(sealed) => sealed.socket.local(),
        }
    }

    /// Over UDP, requests a send buffer and a receive buffer of `wanted` bytes each. Over raw Ethernet, the
    /// sizes are fixed. Returns the size in bytes of the receive buffer. Each packet in this buffer takes its
    /// own bytes, and additional bytes that the kernel counts for the packet.
    ///
    /// # Errors
    /// Those of `setsockopt`.
    pub(crate) fn size_buffers(&self, wanted: usize) -> io::Result<usize> {
        match self {
            Self::Udp(udp) => Ok(udp.size_buffers(wanted, wanted)?[0]),
            Self::Ethernet(ethernet) => Ok(ethernet.frames() * (ethernet.payload(0) + COUNTED)),
            Self::Sealed(sealed) => sealed.socket.size_buffers(wanted),
        }
    }

    /// Returns how full the send buffer is, in 256ths. Over UDP, packets stay in this buffer, for example,
    /// while the hardware address of their destination is being resolved. Over raw Ethernet, the level is
    /// always 0, because the hardware addresses of the destinations are known.
    pub(crate) fn fill_of_send_buffer(&self) -> u32 {
        match self {
            Self::Udp(udp) => {
                let [taken, all] = udp.send_buffer().unwrap_or([0, 1]);
                (u64::from(taken) * 256 / u64::from(all).max(1)).min(256) as u32
            }
            Self::Ethernet(_) => 0,
            Self::Sealed(sealed) => sealed.socket.fill_of_send_buffer(),
        }
    }

    /// Returns the number of packets that were dropped because the socket's receive buffer was full.
    ///
    /// # Errors
    /// If the kernel does not report this number.
    pub(crate) fn overflowed(&self) -> io::Result<u64> {
        match self {
            Self::Udp(udp) => udp.overflowed().map(u64::from),
            Self::Ethernet(ethernet) => ethernet.overflowed(),
            Self::Sealed(sealed) => sealed.socket.overflowed(),
        }
    }

    /// Allows fragmentation of packets, if the device supports it.
    ///
    /// # Errors
    /// Those of `setsockopt`.
    pub(crate) fn allow_fragmentation(&self) -> io::Result<()> {
        match self {
            Self::Udp(udp) => udp.allow_fragmentation(),
            Self::Ethernet(_) => Ok(()),
            Self::Sealed(sealed) => sealed.socket.allow_fragmentation(),
        }
    }

    /// Returns the size in bytes of the largest payload, after a header of `header` bytes, that reaches the
    /// peer without fragmentation. The size is a multiple of 16. The socket must be connected.
    ///
    /// # Errors
    /// If the socket is not connected.
    pub(crate) fn payload(&self, header: usize) -> io::Result<usize> {
        match self {
            Self::Udp(udp) => udp.payload(header),
            Self::Ethernet(ethernet) => Ok(ethernet.payload(header)),
            Self::Sealed(sealed) => sealed.socket.payload(header + TAG_BYTES),
        }
    }

    /// Returns the size that [`payload`](Self::payload) describes, for a peer of an unconnected socket.
    ///
    /// # Errors
    /// If there is no route to the peer.
    pub(crate) fn payload_to(&self, peer: &Address, header: usize) -> io::Result<usize> {
        match (self, peer.ip()) {
            (Self::Sealed(sealed), _) => sealed.socket.payload_to(peer, header + TAG_BYTES),
            (Self::Udp(_), Some(peer)) => udp::payload_to(peer, header),
            (Self::Ethernet(ethernet), _) => Ok(ethernet.payload(header)),
            (Self::Udp(_), None) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Wakes all threads that sleep in [`receive`](Self::receive). Later calls of `receive` do not sleep.
    /// Over raw Ethernet, this function affects only a server's socket.
    pub(crate) fn close(&self) {
        match self {
            Self::Udp(udp) => udp.close(),
            Self::Ethernet(ethernet) => ethernet.close(),
            Self::Sealed(sealed) => sealed.socket.close(),
        }
    }
}

/// Waits until a packet has arrived at one of these UDP sockets, or until the time `limit` has passed.
/// Packets at raw Ethernet sockets and at sealed sockets do not end the wait.
///
/// # Errors
/// Those of `poll`.
pub(crate) fn wait_for_any(sockets: &[&Socket], limit: Duration) -> io::Result<()> {
    let mut fds: Vec<PollFd<'_>> = sockets
        .iter()
        .filter_map(|socket| match socket {
            Socket::Udp(udp) => Some(PollFd::from_borrowed_fd(udp.as_fd(), PollFlags::IN)),
            Socket::Ethernet(_) | Socket::Sealed(_) => None,
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

/// A socket that does not wait for free space in its send buffer. While the buffer is full, sending fails
/// with `WouldBlock`.
pub(crate) struct NoWait<'a>(pub(crate) &'a Socket);

impl SendDatagrams for NoWait<'_> {
    fn send(&self, parts: &[Window<'_>], to: Option<&Address>) -> io::Result<()> {
        match self.0 {
            Socket::Udp(udp) => udp.send_or(parts, to, IfFull::Fail),
            // Sending over raw Ethernet never waits.
            Socket::Ethernet(ethernet) => ethernet.send(parts, to),
            Socket::Sealed(sealed) => sealed.send_now(parts, to),
        }
    }

    fn send_batch(
        &self,
        parts: &[Window<'_>],
        segment: usize,
        to: Option<&Address>,
    ) -> io::Result<()> {
        match self.0 {
            Socket::Udp(udp) => udp.send_batch_or(parts, segment, to, IfFull::Fail),
            Socket::Ethernet(ethernet) => ethernet.send_batch(parts, segment, to),
            Socket::Sealed(sealed) => sealed.send_batch_now(parts, segment, to),
        }
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
        steps::pass(Step::Sending);
        let sent = match self {
            Self::Udp(udp) => udp.send_batch(parts, segment, to),
            Self::Ethernet(ethernet) => ethernet.send_batch(parts, segment, to),
            Self::Sealed(sealed) => sealed.send_batch(parts, segment, to),
        };
        steps::pass(Step::Sent);
        sent
    }
}
