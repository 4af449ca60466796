//! Sends datagrams with forged source addresses, and shrinks the send buffer of a socket.

use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// The default size in bytes of the send buffer of an unprivileged process.
const SEND_BUFFER: libc::c_int = 212_992;

/// Finds this process's UDP socket that is bound to `port`, and shrinks its send buffer to the default size.
pub(crate) fn shrink_send_buffer(port: u16) {
    let mut shrunk = 0;
    for entry in
        std::fs::read_dir("/proc/self/fd").expect("the descriptors of this process").flatten()
    {
        let name = entry.file_name();
        let Some(fd) = name.to_str().and_then(|name| name.parse::<libc::c_int>().ok()) else {
            continue;
        };
        // SAFETY: a socket address may be all zeros.
        let mut address: libc::sockaddr_in = unsafe { core::mem::zeroed() };
        let mut bytes = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the kernel writes at most `bytes` bytes.
        let named =
            unsafe { libc::getsockname(fd, (&raw mut address).cast(), &raw mut bytes) } == 0;
        let is_it = named
            && address.sin_family == libc::AF_INET as libc::sa_family_t
            && address.sin_port == port.to_be();
        if !is_it {
            continue;
        }
        // The kernel doubles the value that it gets.
        let half = SEND_BUFFER / 2;
        let length = size_of_val(&half) as libc::socklen_t;
        let value = (&raw const half).cast();
        // SAFETY: the kernel reads `length` bytes, the size of `half`.
        let set = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, value, length) };
        assert_eq!(set, 0);
        shrunk += 1;
    }
    assert_eq!(shrunk, 1, "the number of sockets at port {port}");
}

/// Sends datagrams with forged source addresses.
pub(crate) struct Spoofer(OwnedFd);

impl Spoofer {
    pub(crate) fn new() -> Self {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW) };
        assert!(fd >= 0, "cannot make a raw socket: {}", std::io::Error::last_os_error());
        // SAFETY: the descriptor is new and has no other owner.
        Self(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    pub(crate) fn send(&self, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) {
        let udp = (8 + payload.len()) as u16;
        let mut packet = vec![0x45, 0];
        packet.extend((20 + udp).to_be_bytes());
        // The kernel fills in the identification and the header's checksum.
        packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
        packet.extend(from.ip().octets());
        packet.extend(to.ip().octets());
        packet.extend(from.port().to_be_bytes());
        packet.extend(to.port().to_be_bytes());
        packet.extend(udp.to_be_bytes());
        // A checksum of 0 means that the datagram has no checksum.
        packet.extend([0, 0]);
        packet.extend(payload);
        // SAFETY: a socket address may be all zeros.
        let mut address: libc::sockaddr_in = unsafe { core::mem::zeroed() };
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_addr.s_addr = u32::from_ne_bytes(to.ip().octets());
        let (fd, bytes) = (self.0.as_raw_fd(), size_of_val(&address) as libc::socklen_t);
        let (start, name) = (packet.as_ptr().cast(), (&raw const address).cast());
        // SAFETY: the kernel reads `packet.len()` bytes of the packet and `bytes` bytes of the address.
        let sent = unsafe { libc::sendto(fd, start, packet.len(), 0, name, bytes) };
        assert!(sent > 0, "cannot send the packet: {}", std::io::Error::last_os_error());
    }
}
