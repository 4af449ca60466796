//! TUN devices: network interfaces whose packets a process reads and writes.

#![allow(unsafe_code)]

use core::ffi::c_short;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// A TUN device, which goes when it is dropped. What is read and written are IP packets, one at a time.
#[derive(Debug)]
pub struct Tun(OwnedFd);

impl Tun {
    /// A new device of that name in the network namespace of this thread. Reading and writing never wait.
    ///
    /// # Errors
    /// Those of the kernel: it needs `CAP_NET_ADMIN`, and a name of 1 to 15 bytes that no interface has.
    pub fn new(name: &str) -> io::Result<Self> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let tun = Self(options.open("/dev/net/tun")?.into());
        // SAFETY: all zeros is a request.
        let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed() as _;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as c_short;
        let fd = tun.0.as_raw_fd();
        // SAFETY: the kernel reads and writes one request.
        if unsafe { libc::ioctl(fd, libc::TUNSETIFF as _, &raw mut request) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(tun)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
