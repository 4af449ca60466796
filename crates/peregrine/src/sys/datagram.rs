//! UDP sockets. A datagram can be gathered from several pieces of memory, and scattered into several. Several
//! datagrams can be sent and received in one batch (GSO and GRO).

#![allow(unsafe_code)]

use core::mem::{offset_of, size_of, zeroed};
use core::time::Duration;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, c_void, socklen_t};

use super::control::Control;
use super::{Space, Window};

/// The level of UDP's own options and control messages.
const SOL_UDP: c_int = 17;
/// GSO: the length in bytes of each datagram of a batch. The last datagram may be shorter.
const UDP_SEGMENT: c_int = 103;
/// GRO: enables receiving batches in one piece, and reports the length of their datagrams.
const UDP_GRO: c_int = 104;
/// The index, in the answer to `SO_MEMINFO`, of the number of bytes that were sent and are still in the send
/// buffer.
const MEMINFO_SENT: usize = 2;
/// The index, in the answer to `SO_MEMINFO`, of the size of the send buffer.
const MEMINFO_SEND_BUFFER: usize = 3;
/// The index, in the answer to `SO_MEMINFO`, of the number of dropped datagrams.
const MEMINFO_DROPS: usize = 8;

// Lists of windows and spaces are passed to the kernel as lists of `iovec`, so they must have the same
// layout.
const _: () = {
    assert!(size_of::<Window<'_>>() == size_of::<libc::iovec>());
    assert!(align_of::<Window<'_>>() == align_of::<libc::iovec>());
    assert!(size_of::<Space<'_>>() == size_of::<libc::iovec>());
    assert!(align_of::<Space<'_>>() == align_of::<libc::iovec>());
    assert!(offset_of!(libc::iovec, iov_base) == 0);
    assert!(size_of::<*mut u8>() == size_of::<usize>());
};

/// The address of a peer, in the kernel's layout (`sockaddr_in`, `sockaddr_in6`). The address of an endpoint
/// on an Ethernet link has the family `AF_PACKET`, a hardware address and an endpoint number. The kernel
/// never reads such an address.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(C, align(4))]
pub struct Address {
    bytes: [u8; Self::BYTES],
    len: u32,
    /// The local address to which the peer sent its datagram, if the socket is bound to all addresses of this
    /// machine.
    local_address: LocalAddress,
}

/// The local address to which a datagram was sent.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
enum LocalAddress {
    /// The kernel chooses the source address of an answer, because the socket has only one address, or the
    /// datagram was sent to a multicast or broadcast address.
    #[default]
    Own,
    V4([u8; 4]),
    /// An IPv6 address, and the index of the interface of that address. The index is 0 unless the address is
    /// link-local.
    V6([u8; 16], u32),
}

impl LocalAddress {
    /// Returns the address to which a datagram was sent, as the kernel reports it. For a multicast or
    /// broadcast address the kernel chooses the source address of the answer.
    fn of(control: &Control) -> Self {
        // The value is an `in_pktinfo`: the interface, the address to answer from, and the address in the
        // header.
        if let Some(told) = control.value::<12>(libc::IPPROTO_IP, libc::IP_PKTINFO) {
            let answers = Ipv4Addr::from([told[4], told[5], told[6], told[7]]);
            return if answers.is_unspecified() { Self::Own } else { Self::V4(answers.octets()) };
        }
        // The value is an `in6_pktinfo`: the address in the header, and the interface.
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

    /// Adds the control message that makes the kernel send a datagram from this address.
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
    /// An empty address for the kernel to fill in.
    const ROOM: Self = Self::of([0; Self::BYTES], Self::BYTES);

    const fn of(bytes: [u8; Self::BYTES], len: usize) -> Self {
        Self { bytes, len: len as u32, local_address: LocalAddress::Own }
    }

    /// Returns whether this is an IPv6 address.
    #[inline]
    pub const fn is_v6(&self) -> bool {
        self.family() == libc::AF_INET6 as u16
    }

    const fn family(&self) -> u16 {
        u16::from_ne_bytes([self.bytes[0], self.bytes[1]])
    }

    /// Returns the address of an endpoint on an Ethernet link.
    #[inline]
    pub fn of_link(hardware: [u8; 6], endpoint: [u8; 2]) -> Self {
        let mut bytes = [0; Self::BYTES];
        bytes[..2].copy_from_slice(&(libc::AF_PACKET as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&endpoint);
        bytes[4..10].copy_from_slice(&hardware);
        Self::of(bytes, 10)
    }

    /// Returns the hardware address and the endpoint number, if this is the address of an endpoint on an
    /// Ethernet link.
    #[inline]
    pub fn link(&self) -> Option<([u8; 6], [u8; 2])> {
        (self.family() == libc::AF_PACKET as u16).then(|| (self.part(4), self.part(2)))
    }

    /// Returns the IP address and port, unless this is the address of an endpoint on an Ethernet link.
    pub fn ip(&self) -> Option<SocketAddr> {
        self.link().is_none().then(|| SocketAddr::from(*self))
    }

    /// Returns the bytes of the address, as the kernel knows it (`struct sockaddr`).
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }

    /// Returns the address with these [bytes](Self::as_bytes). Returns `None` if they are not the bytes of an
    /// IP address.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let len = match family {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            libc::AF_INET6 => Self::BYTES,
            _ => return None,
        };
        let mut whole = [0; Self::BYTES];
        whole[..len].copy_from_slice(bytes.get(..len)?);
        Some(Self::of(whole, len))
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

/// What a system call has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The number of bytes received.
    pub bytes: usize,
    /// The length in bytes of each datagram but the last, which may be shorter. If this length is less than
    /// `bytes`, several datagrams were received.
    pub segment: usize,
    /// Whether the datagram was longer than the buffers. The rest of it is lost.
    pub cut: bool,
}

/// A UDP socket.
#[derive(Debug)]
pub struct Datagrams(OwnedFd);

/// Whether a system call that sends may block while the send buffer is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfFull {
    /// The system call blocks for as long as necessary.
    Wait,
    /// The system call fails with `WouldBlock`, and sends nothing.
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
    /// Creates a socket for the IP version of an address. It is not bound yet.
    ///
    /// # Errors
    /// Those of `socket`: no descriptor is left, or the kernel does not support the IP version.
    pub fn new(like: &Address) -> io::Result<Self> {
        let family = if like.is_v6() { libc::AF_INET6 } else { libc::AF_INET };
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Wraps a socket for datagrams.
    pub(crate) const fn of(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Binds the socket to a local address. Port 0 means any free port.
    ///
    /// # Errors
    /// Those of `bind`.
    pub fn bind(&self, to: &Address) -> io::Result<()> {
        // SAFETY: reads `len` bytes of an address, which has at least that length.
        done(unsafe { libc::bind(self.fd(), to.bytes.as_ptr().cast(), to.len) })
    }

    /// Connects the socket to a peer. The socket then sends only to this peer, and receives only from this
    /// peer.
    ///
    /// # Errors
    /// Those of `connect`, for example that there is no route.
    pub fn connect(&self, to: &Address) -> io::Result<()> {
        // SAFETY: reads `len` bytes of an address, which has at least that length.
        done(unsafe { libc::connect(self.fd(), to.bytes.as_ptr().cast(), to.len) })
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Those of `getsockname`.
    pub fn local(&self) -> io::Result<Address> {
        let mut address = Address::ROOM;
        let bytes = address.bytes.as_mut_ptr().cast();
        // SAFETY: writes at most `len` bytes of an address, which has at least that length.
        done(unsafe { libc::getsockname(self.fd(), bytes, &raw mut address.len) })?;
        Ok(address)
    }

    /// Sends one datagram from one piece of memory. The receiver is `to`, or the connected peer.
    ///
    /// # Errors
    /// Those of `sendto`. `ConnectionRefused` reports that an *earlier* datagram met a closed port. The new
    /// datagram was not sent.
    #[inline]
    pub fn send(
        &self,
        whole: Window<'_>,
        to: Option<&Address>,
        if_full: IfFull,
    ) -> io::Result<usize> {
        if to.is_some_and(|to| to.local_address != LocalAddress::Own) {
            return self.gather(&[whole], to, None, if_full);
        }
        let (name, len) = to.map_or((core::ptr::null(), 0), |to| (to.bytes.as_ptr(), to.len));
        let (fd, flags) = (self.fd(), if_full.flags());
        // SAFETY: the window is mapped for reading, and the address has at least `len` bytes.
        sent(unsafe {
            libc::sendto(fd, whole.as_ptr().cast(), whole.len(), flags, name.cast(), len)
        })
    }

    /// Sends several pieces of memory, either as one datagram, or as a batch of datagrams of `segment` bytes
    /// each. The last datagram of a batch may be shorter.
    ///
    /// # Errors
    /// As for [`send`](Self::send), and those of the kernel if it cannot send this batch.
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
            to.local_address.tell(&mut control);
        }
        message.msg_iov = parts.as_ptr().cast_mut().cast();
        message.msg_iovlen = parts.len() as _;
        if let Some(segment) = segment {
            control.put(SOL_UDP, UDP_SEGMENT, &segment.to_ne_bytes());
        }
        control.attach(&mut message);
        // SAFETY: the kernel reads the parts, the address and the control message, which outlive the call.
        // The parts have the layout of `iovec`, and are mapped for as long as their windows live.
        sent(unsafe { libc::sendmsg(self.fd(), &raw const message, if_full.flags()) })
    }

    /// Receives one datagram into one piece of memory, and stores the sender's address in `from`. If there is
    /// no datagram, fails with `WouldBlock`: at once if `now` is true, otherwise after the
    /// [limit](Self::limit).
    ///
    /// If the socket [receives batches](Self::merge), or [reports](Self::report_local_address) the
    /// destination address, use [`scatter`](Self::scatter).
    ///
    /// # Errors
    /// Those of `recvfrom`. `ConnectionRefused` reports that a datagram sent earlier met a closed port.
    #[inline]
    pub fn receive(
        &self,
        into: Space<'_>,
        from: Option<&mut Address>,
        now: bool,
    ) -> io::Result<Arrival> {
        // With MSG_TRUNC the kernel returns the full length even if the datagram was cut off.
        let flags = libc::MSG_TRUNC | if now { libc::MSG_DONTWAIT } else { 0 };
        let (name, len) = match from {
            Some(from) => {
                *from = Address::ROOM;
                (from.bytes.as_mut_ptr().cast(), &raw mut from.len)
            }
            None => (core::ptr::null_mut(), core::ptr::null_mut()),
        };
        // SAFETY: the space is mapped for writing, and only the kernel writes it. The address has as
        // many bytes as its length says.
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

    /// Receives a datagram, or a batch if the socket [receives batches](Self::merge). The bytes fill several
    /// pieces of memory in order. If there is no datagram, waits as [`receive`](Self::receive) does.
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
        // SAFETY: the kernel writes to the spaces, the address and the control message. The spaces have the
        // layout of `iovec`, and are mapped for as long as they live.
        let bytes = sent(unsafe { libc::recvmsg(self.fd(), &raw mut message, flags) })?;
        control.filled(&message);
        if let Some(from) = from {
            from.len = message.msg_namelen.min(Address::ROOM.len);
            from.local_address = LocalAddress::of(&control);
        }
        let told = control.value(SOL_UDP, UDP_GRO).map(c_int::from_ne_bytes);
        let segment = told.and_then(|bytes| usize::try_from(bytes).ok()).filter(|n| *n > 0);
        let cut = message.msg_flags & libc::MSG_TRUNC != 0;
        Ok(Arrival { bytes, segment: segment.unwrap_or(bytes).min(bytes), cut })
    }

    /// Sets whether batches of datagrams may arrive in one piece (GRO).
    ///
    /// # Errors
    /// Fails if the kernel does not support GRO (before Linux 5.0).
    pub fn merge(&self, merge: bool) -> io::Result<()> {
        self.set(SOL_UDP, UDP_GRO, &c_int::from(merge))
    }

    /// Makes [`scatter`](Self::scatter) store in `from` also the local address to which a datagram was sent.
    /// An answer that is sent to `from` then comes from that local address. Sockets that are bound to all
    /// addresses need this. Without it, the kernel chooses the local address of the answer by the route, and
    /// the answer may come from another address than the client expects.
    ///
    /// # Errors
    /// Those of `setsockopt`.
    pub fn report_local_address(&self, v6: bool) -> io::Result<()> {
        match v6 {
            false => self.set(libc::IPPROTO_IP, libc::IP_PKTINFO, &1),
            true => self.set(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &1),
        }
    }

    /// Sets how long a receiving call waits for a datagram. Zero means for ever. The kernel rounds the time
    /// up to its timer ticks of some milliseconds.
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

    /// Requests sizes in bytes for the receive buffer and the send buffer, and returns the sizes that the
    /// kernel granted. The kernel's own data also occupies the buffers: about 770 bytes for each datagram.
    ///
    /// # Errors
    /// Those of `getsockopt`.
    pub fn size_buffers(&self, receive: usize, send: usize) -> io::Result<[usize; 2]> {
        let bytes = |bytes| c_int::try_from(bytes).unwrap_or(c_int::MAX / 2);
        let ask = |force, plain, bytes: c_int| {
            // A size above the system's limit needs CAP_NET_ADMIN. Without this capability, the kernel grants
            // at most the limit.
            let forced = self.set(libc::SOL_SOCKET, force, &bytes);
            forced.or_else(|_| self.set(libc::SOL_SOCKET, plain, &bytes))
        };
        ask(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, bytes(receive))?;
        ask(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, bytes(send))?;
        let has = |name| self.number(libc::SOL_SOCKET, name);
        Ok([has(libc::SO_RCVBUF)?, has(libc::SO_SNDBUF)?])
    }

    /// Returns how many datagrams were dropped since the socket was created, because its receive buffer was
    /// full.
    ///
    /// This is a separate system call, so that receiving costs nothing extra. `SO_RXQ_OVFL`
    /// would instead add a control message to each received datagram.
    ///
    /// # Errors
    /// Those of `getsockopt`.
    pub fn overflowed(&self) -> io::Result<u32> {
        Ok(self.memory()?[MEMINFO_DROPS])
    }

    /// Returns the number of bytes of the send buffer that are in use, and the size of the buffer, as the
    /// kernel counts them. A datagram to a host whose link address is not resolved yet occupies the buffer
    /// until the kernel has resolved the address.
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

    /// Returns the MTU of the route to the connected peer, as far as the kernel knows it. The MTU is the size
    /// of the largest packet, IP header included.
    ///
    /// # Errors
    /// Those of `getsockopt`, for example that the socket is not connected.
    pub fn mtu(&self, v6: bool) -> io::Result<usize> {
        match v6 {
            false => self.number(libc::IPPROTO_IP, libc::IP_MTU),
            true => self.number(libc::IPPROTO_IPV6, libc::IPV6_MTU),
        }
    }

    /// Sets what happens to packets that are too large for a link on their way. If `whole` is true, such
    /// packets are dropped, and the kernel remembers the reported size limit for each host:
    /// [`mtu`](Self::mtu) returns the limit, and sending a larger packet fails with `EMSGSIZE`. If `whole` is
    /// false, such packets may be fragmented at that link. (In IPv6 only the sender fragments, after a router
    /// has reported the limit to it.)
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

    /// Makes an IPv6 socket receive no IPv4 packets. This function must be called before the socket is bound.
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

    /// Reads an option that consists of numbers. Returns how many bytes the kernel has written.
    fn read(&self, level: c_int, name: c_int, into: &mut [u32]) -> io::Result<usize> {
        let mut bytes = size_of_val(into) as socklen_t;
        let start: *mut c_void = into.as_mut_ptr().cast();
        // SAFETY: writes at most `bytes` bytes, and all bit patterns are valid numbers.
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
    // SAFETY: a message of null pointers and zero lengths is valid and empty.
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
    fn addresses_survive_conversion_and_back() {
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
    fn destination_address_survives_control_messages() {
        let v6: Ipv6Addr = "fd00::7".parse().unwrap();
        let near: Ipv6Addr = "fe80::7".parse().unwrap();
        let mapped: Ipv6Addr = "::ffff:10.0.0.7".parse().unwrap();
        for local_address in [
            LocalAddress::Own,
            LocalAddress::V4([10, 0, 0, 7]),
            LocalAddress::V6(v6.octets(), 0),
            LocalAddress::V6(near.octets(), 3),
            LocalAddress::V6(mapped.octets(), 0),
        ] {
            let mut control = Control::new();
            local_address.tell(&mut control);
            assert!(LocalAddress::of(&control) == local_address);
        }
        // Multicast and unspecified addresses cannot be source addresses, and only link-local addresses need
        // an interface.
        for (address, local_address) in [
            ("ff02::1", LocalAddress::Own),
            ("::", LocalAddress::Own),
            ("fd00::7", LocalAddress::V6(v6.octets(), 0)),
        ] {
            let mut control = Control::new();
            LocalAddress::V6(address.parse::<Ipv6Addr>().unwrap().octets(), 9).tell(&mut control);
            assert!(LocalAddress::of(&control) == local_address, "{address}");
        }
    }
}
