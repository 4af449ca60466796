//! UDP sockets: gathered, scattered, in trains of equal datagrams.

#![allow(unsafe_code)]

use core::mem::{offset_of, size_of, zeroed};
use core::time::Duration;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, c_void, socklen_t};

use super::control::Control;
use crate::value::{Space, Window};

/// The level of UDP's own options and control messages.
const SOL_UDP: c_int = 17;
/// The bytes of each datagram of a train but the last, which may be shorter.
const UDP_SEGMENT: c_int = 103;
/// Says that trains may arrive in one piece, and how long the datagrams of one are.
const UDP_GRO: c_int = 104;
/// Among the numbers of `SO_MEMINFO`: bytes that were sent and have not left, the most of them that
/// there may be, and dropped datagrams.
const MEMINFO_SENT: usize = 2;
const MEMINFO_SEND_BUFFER: usize = 3;
const MEMINFO_DROPS: usize = 8;

// A list of windows or of spaces is handed to the kernel as it is.
const _: () = {
    assert!(size_of::<Window<'_>>() == size_of::<libc::iovec>());
    assert!(align_of::<Window<'_>>() == align_of::<libc::iovec>());
    assert!(size_of::<Space<'_>>() == size_of::<libc::iovec>());
    assert!(align_of::<Space<'_>>() == align_of::<libc::iovec>());
    assert!(offset_of!(libc::iovec, iov_base) == 0);
    assert!(size_of::<*mut u8>() == size_of::<usize>());
};

/// Where a datagram goes or comes from: as the kernel writes it (`sockaddr_in`, `sockaddr_in6`), or, on
/// a link, which it knows nothing of, a hardware address and an endpoint there (`AF_PACKET`).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(C, align(4))]
pub struct Address {
    bytes: [u8; Self::BYTES],
    len: u32,
    /// For a peer that sent to a socket bound to all addresses of this machine: the one it sent to.
    asked: Asked,
}

/// One of this machine's own addresses.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
enum Asked {
    /// The only one that the socket has.
    #[default]
    Own,
    V4([u8; 4]),
    /// With the number of the interface, if the address means nothing without it.
    V6([u8; 16], u32),
}

impl Asked {
    /// The address that a datagram was sent to, as the socket tells. What was sent to a group of hosts
    /// is answered from whichever address the kernel chooses.
    fn of(control: &Control) -> Self {
        // An `in_pktinfo`: the interface, the address to answer from, the one in the header.
        if let Some(told) = control.value::<12>(libc::IPPROTO_IP, libc::IP_PKTINFO) {
            let answers = Ipv4Addr::from([told[4], told[5], told[6], told[7]]);
            return if answers.is_unspecified() { Self::Own } else { Self::V4(answers.octets()) };
        }
        // An `in6_pktinfo`: the address in the header, the interface.
        let Some(told) = control.value::<20>(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) else {
            return Self::Own;
        };
        let (mut address, mut interface) = ([0; 16], [0; 4]);
        address.copy_from_slice(&told[..16]);
        interface.copy_from_slice(&told[16..]);
        let address = Ipv6Addr::from(address);
        if address.is_multicast() || address.is_unspecified() {
            return Self::Own;
        }
        let interface = u32::from_ne_bytes(interface);
        Self::V6(address.octets(), if address.is_unicast_link_local() { interface } else { 0 })
    }

    /// Has a datagram sent from there.
    fn tell(&self, control: &mut Control) {
        match self {
            Self::Own => {}
            Self::V4(address) => {
                let mut told = [0; 12];
                told[4..8].copy_from_slice(address);
                control.put(libc::IPPROTO_IP, libc::IP_PKTINFO, &told);
            }
            Self::V6(address, interface) => {
                let mut told = [0; 20];
                told[..16].copy_from_slice(address);
                told[16..].copy_from_slice(&interface.to_ne_bytes());
                control.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &told);
            }
        }
    }
}

impl Address {
    const BYTES: usize = size_of::<libc::sockaddr_in6>();
    /// For the kernel to fill in.
    const ROOM: Self = Self::of([0; Self::BYTES], Self::BYTES);

    const fn of(bytes: [u8; Self::BYTES], len: usize) -> Self {
        Self { bytes, len: len as u32, asked: Asked::Own }
    }

    /// Whether it is of the sixth version.
    #[inline]
    pub const fn is_v6(&self) -> bool {
        self.family() == libc::AF_INET6 as u16
    }

    const fn family(&self) -> u16 {
        u16::from_ne_bytes([self.bytes[0], self.bytes[1]])
    }

    /// An endpoint on a link.
    #[inline]
    pub fn of_link(hardware: [u8; 6], endpoint: [u8; 2]) -> Self {
        let mut bytes = [0; Self::BYTES];
        bytes[..2].copy_from_slice(&(libc::AF_PACKET as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&endpoint);
        bytes[4..10].copy_from_slice(&hardware);
        Self::of(bytes, 10)
    }

    /// The hardware address and the endpoint, if it is one on a link.
    #[inline]
    pub fn link(&self) -> Option<([u8; 6], [u8; 2])> {
        (self.family() == libc::AF_PACKET as u16).then(|| (self.part(4), self.part(2)))
    }

    /// As the standard library has it, unless it is one on a link.
    pub fn ip(&self) -> Option<SocketAddr> {
        self.link().is_none().then(|| SocketAddr::from(*self))
    }

    const fn port(&self) -> u16 {
        u16::from_be_bytes([self.bytes[2], self.bytes[3]])
    }

    fn part<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut part = [0; N];
        part.copy_from_slice(&self.bytes[at..at + N]);
        part
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        let mut bytes = [0; Self::BYTES];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        let (family, len) = match address {
            SocketAddr::V4(v4) => {
                bytes[4..8].copy_from_slice(&v4.ip().octets());
                (libc::AF_INET, size_of::<libc::sockaddr_in>())
            }
            SocketAddr::V6(v6) => {
                bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                (libc::AF_INET6, Self::BYTES)
            }
        };
        bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        Self::of(bytes, len)
    }
}

impl From<Address> for SocketAddr {
    fn from(address: Address) -> Self {
        let port = address.port();
        if address.is_v6() {
            let ip = Ipv6Addr::from(address.part::<16>(8));
            let flow = u32::from_be_bytes(address.part(4));
            let scope = u32::from_ne_bytes(address.part(24));
            SocketAddrV6::new(ip, port, flow, scope).into()
        } else {
            SocketAddrV4::new(Ipv4Addr::from(address.part::<4>(4)), port).into()
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.link() {
            None => SocketAddr::from(*self).fmt(f),
            Some(([a, b, c, d, e, g], [tag, slot])) => {
                write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}/{tag:02x}{slot:02x}")
            }
        }
    }
}

/// What one system call received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// All of it.
    pub bytes: usize,
    /// Bytes of each datagram but the last, which may be shorter: more than one came if this is
    /// less than `bytes`.
    pub segment: usize,
    /// Whether there was not room for all of it; the rest is lost.
    pub cut: bool,
}

/// A UDP socket.
#[derive(Debug)]
pub struct Datagrams(OwnedFd);

/// Whether a system call that sends may wait for room in the send buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfFull {
    /// It waits, for as long as it takes.
    Wait,
    /// It fails with `WouldBlock`, and nothing is sent.
    Fail,
}

impl IfFull {
    const fn flags(self) -> c_int {
        match self {
            Self::Wait => 0,
            Self::Fail => libc::MSG_DONTWAIT,
        }
    }
}

impl Datagrams {
    /// A socket of the version that an address has, bound to nothing yet.
    ///
    /// # Errors
    /// If the kernel has none left, or does not know that version.
    pub fn new(like: &Address) -> io::Result<Self> {
        let family = if like.is_v6() { libc::AF_INET6 } else { libc::AF_INET };
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else has.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Gives the socket an address of its own; port 0 is any that is free.
    ///
    /// # Errors
    /// Those of `bind`.
    pub fn bind(&self, to: &Address) -> io::Result<()> {
        // SAFETY: reads `len` bytes of an address, which has as many.
        done(unsafe { libc::bind(self.fd(), to.bytes.as_ptr().cast(), to.len) })
    }

    /// Lets it send to and receive from one peer only.
    ///
    /// # Errors
    /// Those of `connect`: no route, for one.
    pub fn connect(&self, to: &Address) -> io::Result<()> {
        // SAFETY: reads `len` bytes of an address, which has as many.
        done(unsafe { libc::connect(self.fd(), to.bytes.as_ptr().cast(), to.len) })
    }

    /// Its own address.
    ///
    /// # Errors
    /// Those of `getsockname`.
    pub fn local(&self) -> io::Result<Address> {
        let mut address = Address::ROOM;
        let bytes = address.bytes.as_mut_ptr().cast();
        // SAFETY: writes at most `len` bytes, which the address has.
        done(unsafe { libc::getsockname(self.fd(), bytes, &raw mut address.len) })?;
        Ok(address)
    }

    /// Sends one datagram that lies in one piece: to `to`, or to whom the socket is connected.
    ///
    /// # Errors
    /// Those of `sendto`; `ConnectionRefused` tells of an *earlier* datagram that met a closed
    /// port, and this one was not sent.
    #[inline]
    pub fn send(
        &self,
        whole: Window<'_>,
        to: Option<&Address>,
        if_full: IfFull,
    ) -> io::Result<usize> {
        if to.is_some_and(|to| to.asked != Asked::Own) {
            return self.gather(&[whole], to, None, if_full);
        }
        let (name, len) = to.map_or((core::ptr::null(), 0), |to| (to.bytes.as_ptr(), to.len));
        let (fd, flags) = (self.fd(), if_full.flags());
        // SAFETY: the window is mapped for reading and `len` bytes long, as is the address.
        sent(unsafe {
            libc::sendto(fd, whole.as_ptr().cast(), whole.len(), flags, name.cast(), len)
        })
    }

    /// Sends what lies in several pieces, as one datagram, or as a train of datagrams of `segment`
    /// bytes each, whose last may be shorter.
    ///
    /// # Errors
    /// As for [`send`](Self::send), and what the kernel says if it makes no trains of these.
    pub fn gather(
        &self,
        parts: &[Window<'_>],
        to: Option<&Address>,
        segment: Option<u16>,
        if_full: IfFull,
    ) -> io::Result<usize> {
        let mut control = Control::new();
        let mut message = empty_message();
        if let Some(to) = to {
            message.msg_name = to.bytes.as_ptr().cast_mut().cast();
            message.msg_namelen = to.len;
            to.asked.tell(&mut control);
        }
        message.msg_iov = parts.as_ptr().cast_mut().cast();
        message.msg_iovlen = parts.len() as _;
        if let Some(segment) = segment {
            control.put(SOL_UDP, UDP_SEGMENT, &segment.to_ne_bytes());
        }
        control.attach(&mut message);
        // SAFETY: the kernel reads the parts, which are laid out as it wants them and mapped for
        // as long as their windows live, the address and the control message, all of them longer
        // lived than the call.
        sent(unsafe { libc::sendmsg(self.fd(), &raw const message, if_full.flags()) })
    }

    /// Receives one datagram into one piece; who sent it goes into `from`. `WouldBlock` if there is
    /// none: at once with `now`, else after the [limit](Self::limit).
    ///
    /// On a socket that [merges](Self::merge), or that [tells](Self::tell_asked) which address was
    /// asked, use [`scatter`](Self::scatter).
    ///
    /// # Errors
    /// Those of `recvfrom`; `ConnectionRefused` says that something sent met a closed port.
    #[inline]
    pub fn receive(
        &self,
        into: Space<'_>,
        from: Option<&mut Address>,
        now: bool,
    ) -> io::Result<Arrival> {
        // With MSG_TRUNC the kernel tells how long the datagram was, wherever it was cut.
        let flags = libc::MSG_TRUNC | if now { libc::MSG_DONTWAIT } else { 0 };
        let (name, len) = match from {
            Some(from) => {
                *from = Address::ROOM;
                (from.bytes.as_mut_ptr().cast(), &raw mut from.len)
            }
            None => (core::ptr::null_mut(), core::ptr::null_mut()),
        };
        // SAFETY: the space is mapped for writing and only the kernel writes it; the address has
        // room for what its length says.
        let bytes = sent(unsafe {
            libc::recvfrom(
                self.fd(),
                into.as_mut_ptr().cast(),
                into.window().len(),
                flags,
                name,
                len,
            )
        })?;
        let room = into.window().len();
        Ok(Arrival { bytes: bytes.min(room), segment: bytes.min(room), cut: bytes > room })
    }

    /// Receives a datagram, or a train of them if the socket [merges](Self::merge), into several
    /// pieces, filled one after the other. Waits as [`receive`](Self::receive) does.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn scatter(
        &self,
        into: &[Space<'_>],
        from: Option<&mut Address>,
        now: bool,
    ) -> io::Result<Arrival> {
        let mut control = Control::new();
        let mut message = empty_message();
        let mut from = from;
        if let Some(from) = &mut from {
            **from = Address::ROOM;
            message.msg_name = from.bytes.as_mut_ptr().cast();
            message.msg_namelen = from.len;
        }
        message.msg_iov = into.as_ptr().cast_mut().cast();
        message.msg_iovlen = into.len() as _;
        control.offer(&mut message);
        let flags = if now { libc::MSG_DONTWAIT } else { 0 };
        // SAFETY: the kernel writes to the spaces, which are laid out as it wants them and mapped
        // for as long as they live, to the address and to the control message.
        let bytes = sent(unsafe { libc::recvmsg(self.fd(), &raw mut message, flags) })?;
        control.filled(&message);
        if let Some(from) = from {
            from.len = message.msg_namelen.min(Address::ROOM.len);
            from.asked = Asked::of(&control);
        }
        let told = control.value(SOL_UDP, UDP_GRO).map(c_int::from_ne_bytes);
        let segment = told.and_then(|bytes| usize::try_from(bytes).ok()).filter(|n| *n > 0);
        let cut = message.msg_flags & libc::MSG_TRUNC != 0;
        Ok(Arrival { bytes, segment: segment.unwrap_or(bytes).min(bytes), cut })
    }

    /// Whether trains of datagrams may arrive in one piece.
    ///
    /// # Errors
    /// If the kernel does not know how (before Linux 5.0).
    pub fn merge(&self, merge: bool) -> io::Result<()> {
        self.set(SOL_UDP, UDP_GRO, &c_int::from(merge))
    }

    /// Has [`scatter`](Self::scatter) learn which address of this machine each datagram was sent to:
    /// what is sent back to its sender then comes from there. For a socket that is bound to all
    /// addresses; otherwise the kernel chooses one by the route, which may be another.
    ///
    /// # Errors
    /// Those of `setsockopt`.
    pub fn tell_asked(&self, v6: bool) -> io::Result<()> {
        match v6 {
            false => self.set(libc::IPPROTO_IP, libc::IP_PKTINFO, &1),
            true => self.set(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &1),
        }
    }

    /// How long receiving waits for something; zero is for ever. The kernel counts in ticks of some
    /// milliseconds, and rounds up.
    ///
    /// # Errors
    /// Those of `setsockopt`.
    pub fn limit(&self, limit: Duration) -> io::Result<()> {
        let value = libc::timeval {
            tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_usec: limit.subsec_micros() as libc::suseconds_t,
        };
        self.set(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &value)
    }

    /// Asks for so many bytes of memory for what has arrived, and for what is under way; gives what
    /// there is then, as the kernel counts: with its own headers, of some 700 bytes a datagram.
    ///
    /// # Errors
    /// Those of `getsockopt`.
    pub fn size_buffers(&self, receive: usize, send: usize) -> io::Result<[usize; 2]> {
        let bytes = |bytes| c_int::try_from(bytes).unwrap_or(c_int::MAX / 2);
        let ask = |force, plain, bytes: c_int| {
            // Beyond what everybody may have only with CAP_NET_ADMIN; less is better than nothing.
            let forced = self.set(libc::SOL_SOCKET, force, &bytes);
            forced.or_else(|_| self.set(libc::SOL_SOCKET, plain, &bytes))
        };
        ask(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, bytes(receive))?;
        ask(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, bytes(send))?;
        let has = |name| self.number(libc::SOL_SOCKET, name);
        Ok([has(libc::SO_RCVBUF)?, has(libc::SO_SNDBUF)?])
    }

    /// How many datagrams found no room since the socket was made.
    ///
    /// Asked for when it is wanted, which costs the datagrams nothing (`SO_RXQ_OVFL` would add a
    /// control message to each).
    ///
    /// # Errors
    /// Those of `getsockopt`.
    pub fn overflowed(&self) -> io::Result<u32> {
        Ok(self.memory()?[MEMINFO_DROPS])
    }

    /// Bytes of the send buffer that are taken by what has not left the machine, and all there are, as
    /// the kernel counts. A datagram to a host that the kernel still looks for on the link takes its
    /// part for as long.
    ///
    /// # Errors
    /// Those of `getsockopt`.
    pub fn send_buffer(&self) -> io::Result<[u32; 2]> {
        let numbers = self.memory()?;
        Ok([numbers[MEMINFO_SENT], numbers[MEMINFO_SEND_BUFFER]])
    }

    fn memory(&self) -> io::Result<[u32; 9]> {
        let mut numbers = [0u32; 9];
        let bytes = self.read(libc::SOL_SOCKET, libc::SO_MEMINFO, &mut numbers)?;
        if bytes < size_of_val(&numbers) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(numbers)
    }

    /// The largest packet, IP header included, that the route to the peer takes in one piece as
    /// far as is known. For connected sockets.
    ///
    /// # Errors
    /// Those of `getsockopt`: if it is not connected, for one.
    pub fn mtu(&self, v6: bool) -> io::Result<usize> {
        match v6 {
            false => self.number(libc::IPPROTO_IP, libc::IP_MTU),
            true => self.number(libc::IPPROTO_IPV6, libc::IPV6_MTU),
        }
    }

    /// Has packets dropped that are too large for a link on their way, or lets them be cut up into
    /// fragments there. (In the sixth version only the sender cuts, once it has been told.) A packet that is
    /// known to be too large fails as `EMSGSIZE`, and [`mtu`](Self::mtu) tells what is not; the kernel
    /// keeps that for each host.
    ///
    /// # Errors
    /// Those of `setsockopt`.
    pub fn keep_whole(&self, v6: bool, whole: bool) -> io::Result<()> {
        let (level, discover, how) = match (v6, whole) {
            (false, true) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
            (false, false) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT),
            (true, true) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO),
            (true, false) => {
                (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT)
            }
        };
        self.set(level, discover, &how)?;
        if v6 {
            self.set(libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, &c_int::from(whole))?;
        }
        Ok(())
    }

    /// Leaves what comes in the fourth version to sockets of that one. For sockets of the sixth, before
    /// they are bound.
    ///
    /// # Errors
    /// Those of `setsockopt`.
    pub fn only_v6(&self) -> io::Result<()> {
        self.set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1)
    }

    fn fd(&self) -> c_int {
        self.0.as_raw_fd()
    }

    fn set<T: Copy>(&self, level: c_int, name: c_int, value: &T) -> io::Result<()> {
        let bytes = size_of::<T>() as socklen_t;
        let start: *const c_void = (&raw const *value).cast();
        // SAFETY: reads as many bytes as the value has.
        done(unsafe { libc::setsockopt(self.fd(), level, name, start, bytes) })
    }

    /// Fills in numbers; how many bytes of them.
    fn read(&self, level: c_int, name: c_int, into: &mut [u32]) -> io::Result<usize> {
        let mut bytes = size_of_val(into) as socklen_t;
        let start: *mut c_void = into.as_mut_ptr().cast();
        // SAFETY: writes at most as many bytes as there are, and any bits are numbers.
        done(unsafe { libc::getsockopt(self.fd(), level, name, start, &raw mut bytes) })?;
        Ok(bytes as usize)
    }

    fn number(&self, level: c_int, name: c_int) -> io::Result<usize> {
        let mut number = [0];
        self.read(level, name, &mut number)?;
        Ok(number[0] as usize)
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const fn empty_message() -> libc::msghdr {
    // SAFETY: null pointers and zero lengths are an empty message.
    unsafe { zeroed() }
}

fn done(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[inline]
fn sent(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were() {
        for text in ["127.0.0.1:80", "255.1.2.3:65535", "[::1]:9", "[fe80::1%3]:4000"] {
            let address: SocketAddr = text.parse().unwrap();
            let raw = Address::from(address);
            assert_eq!(SocketAddr::from(raw), address);
            assert_eq!(raw.is_v6(), address.is_ipv6());
            assert_eq!(format!("{raw:?}"), format!("{address:?}"));
        }
        let [one, other] = ["10.0.0.1:1", "10.0.0.1:2"].map(|a| a.parse::<SocketAddr>().unwrap());
        assert_ne!(Address::from(one), Address::from(other));
    }

    #[test]
    fn address_that_was_asked_is_told_as_it_was_learnt() {
        let v6: Ipv6Addr = "fd00::7".parse().unwrap();
        let near: Ipv6Addr = "fe80::7".parse().unwrap();
        let mapped: Ipv6Addr = "::ffff:10.0.0.7".parse().unwrap();
        for asked in [
            Asked::Own,
            Asked::V4([10, 0, 0, 7]),
            Asked::V6(v6.octets(), 0),
            Asked::V6(near.octets(), 3),
            Asked::V6(mapped.octets(), 0),
        ] {
            let mut control = Control::new();
            asked.tell(&mut control);
            assert!(Asked::of(&control) == asked);
        }
        // Groups are no addresses to answer from, and most addresses are the same on all interfaces.
        for (address, asked) in
            [("ff02::1", Asked::Own), ("::", Asked::Own), ("fd00::7", Asked::V6(v6.octets(), 0))]
        {
            let mut control = Control::new();
            Asked::V6(address.parse::<Ipv6Addr>().unwrap().octets(), 9).tell(&mut control);
            assert!(Asked::of(&control) == asked, "{address}");
        }
    }
}
