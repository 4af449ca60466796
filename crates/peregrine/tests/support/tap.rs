//! A raw socket at a network interface. It receives the frames that arrive there, and can send arbitrary
//! frames.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The type (EtherType) of Peregrine's Ethernet frames.
pub(crate) const PEREGRINE_TYPE: u16 = 0x88b5;
/// A frame type that no program uses. It is reserved for experiments, as is Peregrine's type.
pub(crate) const UNUSED_TYPE: u16 = 0x88b6;
/// Selects frames of all types.
pub(crate) const ALL: u16 = libc::ETH_P_ALL as u16;

/// The number of bytes of the `virtio_net_hdr` that precedes each frame of a forwarding socket. This header
/// says which offloads the frame still needs.
pub(crate) const VNET_HEADER_BYTES: usize = 10;
const PACKET_VNET_HDR: libc::c_int = 15;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// A socket that receives the frames that arrive at an interface, including those for other hosts. Unless it
/// is made for both directions, it does not receive the frames that this machine sends from the interface.
pub(crate) struct Tap(OwnedFd);

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Tap {
    /// Makes a tap at an interface of this thread's namespace, for frames of one type.
    pub(crate) fn at(interface: &str, ether_type: u16) -> io::Result<Self> {
        Self::open(interface, ether_type, false)
    }

    /// Does the same as [`at`](Self::at), but the tap also receives the frames that this machine sends from
    /// the interface, except for those of sockets that bypass the queues of the kernel.
    pub(crate) fn of_both_directions(interface: &str, ether_type: u16) -> io::Result<Self> {
        let tap = Self::at(interface, ether_type)?;
        tap.set(PACKET_IGNORE_OUTGOING, 0)?;
        Ok(tap)
    }

    /// Makes a tap for forwarding all frames. In `receive` and in `send`, [`VNET_HEADER_BYTES`] bytes precede
    /// each frame. These bytes say whether the frame still needs a checksum or segmentation.
    pub(crate) fn passing_on(interface: &str) -> io::Result<Self> {
        Self::open(interface, ALL, true)
    }

    fn open(interface: &str, ether_type: u16, to_do: bool) -> io::Result<Self> {
        let how = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::socket(libc::AF_PACKET, how, 0) };
        done(fd)?;
        // SAFETY: the descriptor is new and has no other owner.
        let tap = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        tap.set(PACKET_VNET_HDR, libc::c_int::from(to_do))?;
        tap.set(PACKET_IGNORE_OUTGOING, 1)?;
        // Without CAP_NET_ADMIN, this call fails, and the buffer keeps its default size.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&tap, 16 << 20);
        let name = CString::new(interface)?;
        // SAFETY: the function reads a C string.
        let number = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if number == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: all zeros is a valid address.
        let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ether_type.to_be();
        address.sll_ifindex = number.cast_signed();
        let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the kernel reads `bytes` bytes, the size of the address.
        done(unsafe { libc::bind(fd, (&raw const address).cast(), bytes) })?;
        Ok(tap)
    }

    fn set(&self, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        let (fd, bytes) = (self.0.as_raw_fd(), size_of::<libc::c_int>() as libc::socklen_t);
        let value: *const libc::c_void = (&raw const value).cast();
        // SAFETY: the kernel reads `bytes` bytes, the size of the number.
        done(unsafe { libc::setsockopt(fd, libc::SOL_PACKET, name, value, bytes) })
    }

    /// Sends a frame unchanged.
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        Ok(rustix::net::send(&self.0, frame, rustix::net::SendFlags::empty()).map(drop)?)
    }

    /// Receives a frame into `into`, and returns the frame's length. Returns `None` if no frame has arrived.
    pub(crate) fn receive(&self, into: &mut [u8]) -> Option<usize> {
        let (bytes, _) = rustix::net::recv(&self.0, into, rustix::net::RecvFlags::empty()).ok()?;
        Some(bytes)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the type of a frame.
pub(crate) fn ether_type(frame: &[u8]) -> Option<u16> {
    frame.get(12..14).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}
