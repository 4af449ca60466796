//! TUN devices. A TUN device is a network interface whose packets a process reads and writes.

#![allow(unsafe_code)]

use core::ffi::c_short;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// A TUN device. The kernel removes it when this value is dropped. One system call transfers one IP packet.
#[derive(Debug)]
pub struct Tun(OwnedFd);

impl Tun {
    /// Creates a device of this name in the network namespace of this thread. Reads and writes never
    /// block.
    ///
    /// # Errors
    /// Those of the kernel, which requires `CAP_NET_ADMIN` and an unused name of 1 to 15 bytes.
    pub fn new(name: &str) -> io::Result<Self> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let tun = Self(options.open("/dev/net/tun")?.into());
        // SAFETY: a request of all zeros is valid.
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
