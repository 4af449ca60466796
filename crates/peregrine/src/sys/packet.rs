//! AF_PACKET sockets. Such a socket sends and receives Ethernet frames of a network interface. The kernel
//! puts frames that arrive into a ring.
//!
//! AF_PACKET is older than AF_XDP, and needs no exclusive queue. Any number of sockets may be bound to one
//! network interface. Each socket has a filter that the kernel runs.

#![allow(unsafe_code)]

use core::mem::size_of;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, Ordering};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, c_void, socklen_t};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::{Space, Window};

const PACKET_IGNORE_OUTGOING: c_int = 23;
/// The largest number of frames that one system call sends.
pub const FRAMES_SENT_MAX: usize = 64;

/// Selects the frames that a socket receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The type in the Ethernet header.
    pub ether_type: u16,
    /// The two bytes after the Ethernet header.
    pub endpoint: [u8; 2],
}

/// The receive ring. It has slots that the kernel fills in order.
#[derive(Debug)]
pub struct PacketRing {
    map: Mapped,
    slot: usize,
    count: usize,
    next: usize,
}

struct Mapped {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is not bound to a thread.
unsafe impl Send for Mapped {}
// SAFETY: as above. In addition, the mapping is only accessed through atomics and copies.
unsafe impl Sync for Mapped {}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing can reach it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapped({} bytes)", self.bytes)
    }
}

/// A packet socket, bound to an interface.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

fn done(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns a filter as a classic BPF program. The program accepts whole frames that have the type and the
/// endpoint of `filter`, and drops all other frames.
fn instructions(filter: Filter) -> [libc::sock_filter; 6] {
    const LOAD_HALF: u16 = 0x28;
    const IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let op = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    [
        op(LOAD_HALF, 0, 0, 12),
        op(IF_EQUAL, 0, 3, u32::from(filter.ether_type)),
        op(LOAD_HALF, 0, 0, 14),
        op(IF_EQUAL, 0, 1, u32::from(u16::from_be_bytes(filter.endpoint))),
        op(RETURN, 0, 0, u32::MAX),
        op(RETURN, 0, 0, 0),
    ]
}

impl PacketSocket {
    /// Creates a socket at an interface, with a ring of `count` slots of `slot` bytes for frames that match
    /// the filter. `slot` must divide 4096. Sent frames bypass the kernel's queue.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_RAW`; other errors if there is no memory or no such interface.
    pub fn new(
        interface: u32,
        filter: Filter,
        slot: u32,
        count: u32,
    ) -> io::Result<(Self, PacketRing)> {
        const BLOCK: u32 = 1 << 16;
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        done(fd)?;
        // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
        let socket = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        socket.set(libc::SOL_PACKET, libc::PACKET_VERSION, &libc::tpacket_versions::TPACKET_V2)?;
        let per_block = BLOCK / slot;
        let blocks = count.div_ceil(per_block);
        let request = libc::tpacket_req {
            tp_block_size: BLOCK,
            tp_block_nr: blocks,
            tp_frame_size: slot,
            tp_frame_nr: blocks * per_block,
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1)?;
        // This option exists since Linux 4.20. Without the option, the filter must drop the frames that this
        // process sends.
        let _ = socket.set(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1);
        let mut code = instructions(filter);
        let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
        socket.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
        let bytes = (blocks * BLOCK) as usize;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a fresh mapping replaces nothing.
        let base = unsafe { mmap(ptr::null_mut(), bytes, protection, flags, &socket.0, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let map = Mapped { base, bytes };
        // SAFETY: advice about the mapping just made: frames do not belong in core dumps.
        let _ = unsafe { madvise(map.base.as_ptr().cast(), bytes, Advice::LinuxDontDump) };
        let count = (blocks * per_block) as usize;
        let ring = PacketRing { map, slot: slot as usize, count, next: 0 };
        // SAFETY: an address of all zeros is valid.
        let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = filter.ether_type.to_be();
        address.sll_ifindex = interface.cast_signed();
        let bytes = size_of::<libc::sockaddr_ll>() as socklen_t;
        // SAFETY: the kernel reads `bytes` bytes, which is the size of `address`.
        done(unsafe { libc::bind(fd, (&raw const address).cast(), bytes) })?;
        Ok((socket, ring))
    }

    fn set<T>(&self, level: c_int, name: c_int, value: &T) -> io::Result<()> {
        let bytes = size_of::<T>() as socklen_t;
        let value: *const c_void = ptr::from_ref(value).cast();
        // SAFETY: the kernel reads as many bytes as the value has, and the filter's code outlives the call.
        done(unsafe { libc::setsockopt(self.0.as_raw_fd(), level, name, value, bytes) })
    }

    /// Returns how many frames were dropped for lack of space since this function was last called.
    ///
    /// # Errors
    /// Those of `getsockopt`.
    pub fn dropped(&self) -> io::Result<u32> {
        let mut numbers = [0u32; 2];
        let mut bytes = size_of_val(&numbers) as socklen_t;
        let (fd, name) = (self.0.as_raw_fd(), libc::PACKET_STATISTICS);
        let into: *mut c_void = numbers.as_mut_ptr().cast();
        // SAFETY: the kernel writes at most `bytes` bytes, and all bit patterns are valid numbers.
        done(unsafe { libc::getsockopt(fd, libc::SOL_PACKET, name, into, &raw mut bytes) })?;
        Ok(numbers[1])
    }

    /// Returns the pending error of the socket, if there is one, and clears it. Such an error is, for
    /// example, that the interface went down.
    ///
    /// # Errors
    /// The pending error.
    pub fn error(&self) -> io::Result<()> {
        rustix::net::sockopt::socket_error(&self.0)??;
        Ok(())
    }

    /// Sends one frame from one piece of memory.
    ///
    /// # Errors
    /// Those of `send`. `ENOBUFS` means that the interface's queue is full and the frame is lost.
    #[inline]
    pub fn send(&self, frame: Window<'_>) -> io::Result<()> {
        let (fd, flags) = (self.0.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: the window is mapped for reading.
        let sent = unsafe { libc::send(fd, frame.as_ptr().cast(), frame.len(), flags) };
        done(sent as c_int)
    }

    /// Sends frames, each from one piece of memory. One system call sends up to [`FRAMES_SENT_MAX`] of them.
    ///
    /// # Errors
    /// As for [`send`](Self::send). After an error, the number of frames that were sent is unknown.
    pub fn send_all(&self, frames: &[Window<'_>]) -> io::Result<()> {
        let mut frames = frames;
        while !frames.is_empty() {
            // SAFETY: a message of all zeros is valid and empty.
            let mut messages: [libc::mmsghdr; FRAMES_SENT_MAX] = unsafe { core::mem::zeroed() };
            for (message, frame) in messages.iter_mut().zip(frames) {
                // A window has the layout of an `iovec`.
                message.msg_hdr.msg_iov = ptr::from_ref(frame).cast_mut().cast();
                message.msg_hdr.msg_iovlen = 1;
            }
            let (fd, flags) = (self.0.as_raw_fd(), libc::MSG_DONTWAIT);
            let (first, count) = (messages.as_mut_ptr(), frames.len().min(FRAMES_SENT_MAX) as u32);
            // SAFETY: the kernel reads the parts, which have the layout of `iovec` and are mapped for as
            // long as their windows live.
            let sent = unsafe { libc::sendmmsg(fd, first, count, flags) };
            done(sent)?;
            // The kernel returns the number of frames that it sent before the first failure. It reports the
            // failure at the next call.
            frames = &frames[sent as usize..];
        }
        Ok(())
    }
}

impl PacketRing {
    #[inline]
    fn status(&self) -> &AtomicU32 {
        // SAFETY: the slot is inside the mapping.
        let word = unsafe { self.map.base.add(self.next * self.slot) };
        // SAFETY: the word is mapped for as long as `self`, and aligned. The kernel and this process access
        // the word only as an atomic.
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
    }

    /// Returns whether a frame has arrived.
    #[inline]
    pub fn has_frame(&self) -> bool {
        // SYNC: packet-ring. The kernel writes the frame before the status.
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Returns the frame that has arrived, if there is one. The frame stays in its slot until
    /// [`release`](Self::release).
    #[inline]
    pub fn peek(&mut self) -> Option<Space<'_>> {
        if !self.has_frame() {
            return None;
        }
        // SAFETY: the slot is inside the mapping.
        let slot = unsafe { self.map.base.add(self.next * self.slot) };
        // SAFETY: the slot begins with a header, which the kernel has written.
        let header = unsafe { slot.as_ptr().cast::<libc::tpacket2_hdr>().read() };
        // SAFETY: the slot is mapped and has this length, and no reference to it exists.
        let whole = unsafe { Space::new(slot.as_ptr(), self.slot) };
        whole.part(usize::from(header.tp_mac), header.tp_snaplen as usize).or(Some(Space::none()))
    }

    /// Hands the slot of the current frame back to the kernel.
    #[inline]
    pub fn release(&mut self) {
        // SYNC: packet-ring. This thread has read the frame before the kernel gets the slot.
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = if self.next + 1 == self.count { 0 } else { self.next + 1 };
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
