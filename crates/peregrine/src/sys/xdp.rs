//! AF_XDP: frames of a network interface that pass through rings in memory shared with the kernel.
//!
//! A [`Umem`] is memory cut into frames of one size. The kernel puts what arrives into frames that it
//! finds in the *fill* ring and names them in a socket's *receive* ring; what a socket puts into its
//! *transmit* ring is sent, and comes back by the *completion* ring. Each ring has one who writes and
//! one who reads, a counter for each, and no lock.

#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::mem::size_of;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use libc::{c_int, c_void, socklen_t};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::Memory;
use crate::value::Space;

/// Bytes that the kernel keeps free before every frame that arrives.
const KERNEL_HEADROOM: usize = 256;
/// Since Linux 6.18: how many frames one system call may send.
const XDP_MAX_TX_SKB_BUDGET: c_int = 9;

/// A frame in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Described {
    /// Where its first byte lies in the memory.
    pub at: u64,
    /// How many bytes it has.
    pub bytes: u32,
    options: u32,
}

impl Described {
    /// A frame to send.
    pub const fn new(at: u64, bytes: u32) -> Self {
        Self { at, bytes, options: 0 }
    }
}

/// A ring as it is mapped.
struct Ring<T> {
    base: NonNull<u8>,
    bytes: usize,
    offsets: libc::xdp_ring_offset,
    mask: u32,
    /// What the rings' memory belongs to.
    _of: PhantomData<T>,
}

// SAFETY: the mapping belongs to no thread; whoever has the ring is the only one on its side.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps a ring of `entries`, which is a power of two.
    fn map(
        fd: BorrowedFd<'_>,
        offsets: libc::xdp_ring_offset,
        entries: u32,
        page_offset: u64,
    ) -> io::Result<Self> {
        assert!(entries.is_power_of_two());
        let bytes = offsets.desc as usize + entries as usize * size_of::<T>();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a fresh mapping replaces nothing.
        let base = unsafe { mmap(ptr::null_mut(), bytes, protection, flags, fd, page_offset) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mask = entries - 1;
        Ok(Self { base, bytes, offsets, mask, _of: PhantomData })
    }

    /// The counter, or the flags, at an offset that the kernel told.
    #[inline]
    fn word(&self, at: u64) -> &AtomicU32 {
        // SAFETY: the kernel lays its counters out inside of the mapping, aligned.
        let word = unsafe { self.base.add(at as usize) };
        // SAFETY: mapped for as long as `self`; both sides use it as an atomic only.
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
    }

    #[inline]
    fn entry(&self, number: u32) -> *mut T {
        let at = self.offsets.desc as usize + (number & self.mask) as usize * size_of::<T>();
        // SAFETY: the mask keeps it among the entries that were mapped.
        unsafe { self.base.add(at) }.as_ptr().cast()
    }

    fn flags(&self) -> u32 {
        self.word(self.offsets.flags).load(Ordering::Relaxed)
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and nobody can reach it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The end of a ring that writes.
pub struct Producer<T: Copy> {
    ring: Ring<T>,
    /// Up to where entries are written; the other side sees them when they are published.
    next: u32,
    /// Up to where the other side had read when it was looked at last.
    read: u32,
}

impl<T: Copy> Producer<T> {
    fn new(ring: Ring<T>) -> Self {
        Self { ring, next: 0, read: 0 }
    }

    /// Writes an entry; false if the ring is full.
    #[inline]
    pub fn put(&mut self, entry: T) -> bool {
        if self.next.wrapping_sub(self.read) > self.ring.mask {
            // SYNC: xdp-ring. The kernel has read what lay there.
            self.read = self.ring.word(self.ring.offsets.consumer).load(Ordering::Acquire);
            if self.next.wrapping_sub(self.read) > self.ring.mask {
                return false;
            }
        }
        // SAFETY: an entry of the ring that the kernel does not look at, for it is not published.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Shows what was written to the kernel.
    #[inline]
    pub fn publish(&mut self) {
        // SYNC: xdp-ring. Entries first, then the counter.
        self.ring.word(self.ring.offsets.producer).store(self.next, Ordering::Release);
    }

    /// Entries that the kernel has not read.
    #[inline]
    pub fn outstanding(&mut self) -> u32 {
        self.read = self.ring.word(self.ring.offsets.consumer).load(Ordering::Acquire);
        self.next.wrapping_sub(self.read)
    }

    /// Whether the kernel wants a system call to go on.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.ring.flags() & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Whether the kernel has read all that was published.
    #[inline]
    pub fn is_taken(&self) -> bool {
        self.ring.word(self.ring.offsets.consumer).load(Ordering::Acquire) == self.next
    }
}

/// The end of a ring that reads.
pub struct Consumer<T: Copy> {
    ring: Ring<T>,
    next: u32,
    /// Up to where there were entries when it was looked at last.
    written: u32,
}

impl<T: Copy> Consumer<T> {
    fn new(ring: Ring<T>) -> Self {
        Self { ring, next: 0, written: 0 }
    }

    /// The next entry, if there is one.
    #[inline]
    pub fn take(&mut self) -> Option<T> {
        let entry = self.peek()?;
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// The next entry, which stays the next.
    #[inline]
    pub fn peek(&mut self) -> Option<T> {
        if self.next == self.written {
            // SYNC: xdp-ring. The kernel has written what lies before its counter.
            self.written = self.ring.word(self.ring.offsets.producer).load(Ordering::Acquire);
            if self.next == self.written {
                return None;
            }
        }
        // SAFETY: an entry of the ring, which the kernel wrote before it moved its counter.
        Some(unsafe { self.ring.entry(self.next).read() })
    }

    /// Gives the places of the entries that were taken back to the kernel.
    #[inline]
    pub fn release(&mut self) {
        // SYNC: xdp-ring. What was read was read before.
        self.ring.word(self.ring.offsets.consumer).store(self.next, Ordering::Release);
    }
}

impl<T: Copy> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("next", &self.next).finish_non_exhaustive()
    }
}

impl<T: Copy> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("next", &self.next).finish_non_exhaustive()
    }
}

/// How a queue of an interface is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Number of the interface.
    pub interface: u32,
    /// Number of the queue.
    pub queue: u32,
}

/// How memory is cut into frames, and how many entries the rings have.
#[derive(Clone, Copy, Debug)]
pub struct UmemLayout {
    /// Bytes of a frame: 2048 or 4096.
    pub frame: u32,
    /// How many frames.
    pub count: u32,
    /// Bytes left free before what arrives, besides the kernel's own.
    pub headroom: u32,
    /// Entries of the fill ring, and of the completion ring: powers of two. The kernel shows a frame
    /// before it says that it has taken it from the fill ring: that one needs more entries than there
    /// are frames that go round in it.
    pub fill: u32,
    /// As above.
    pub completion: u32,
}

/// Frames, and the socket that has given them to one queue of an interface. It may be shared by any
/// number of [`XdpSocket`]s of the same queue.
#[derive(Debug)]
pub struct Umem {
    // First, so that the kernel lets go of the memory before it is unmapped.
    fd: OwnedFd,
    memory: Memory,
    layout: UmemLayout,
    queue: Queue,
}

/// The rings of a queue that all its sockets share.
#[derive(Debug)]
pub struct QueueRings {
    /// Frames for what arrives.
    pub fill: Producer<u64>,
    /// Frames that were sent.
    pub completion: Consumer<u64>,
}

fn done(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn set<T>(fd: BorrowedFd<'_>, name: c_int, value: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as socklen_t;
    let value: *const c_void = ptr::from_ref(value).cast();
    // SAFETY: the kernel reads as many bytes as the value has.
    done(unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, name, value, bytes) })
}

fn offsets(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    let none = libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
    let mut offsets = libc::xdp_mmap_offsets { rx: none, tx: none, fr: none, cr: none };
    let mut bytes = size_of::<libc::xdp_mmap_offsets>() as socklen_t;
    let into: *mut c_void = ptr::from_mut(&mut offsets).cast();
    let name = libc::XDP_MMAP_OFFSETS;
    // SAFETY: the kernel writes at most as many bytes as there are.
    done(unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, name, into, &raw mut bytes) })?;
    if bytes as usize != size_of::<libc::xdp_mmap_offsets>() {
        // Before Linux 5.4 there were no flags.
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(offsets)
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    done(fd)?;
    // SAFETY: a fresh descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn bind(fd: BorrowedFd<'_>, queue: Queue, flags: u16, shared: u32) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: queue.interface,
        sxdp_queue_id: queue.queue,
        sxdp_shared_umem_fd: shared,
    };
    let bytes = size_of::<libc::sockaddr_xdp>() as socklen_t;
    // SAFETY: the kernel reads an address of as many bytes.
    done(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), bytes) })
}

impl Umem {
    /// Takes a queue of an interface. The kernel copies each frame once each way, unless `zero_copy` is
    /// set and the driver supports it: then the driver receives all frames of the queue, also those of
    /// others, into this memory. A queue that is taken is asked for again until `patience` ends: what a
    /// process leaves behind, the kernel lets go of some time after that process has ended.
    ///
    /// # Errors
    /// `ResourceBusy` if another process has the queue; `PermissionDenied` without `CAP_NET_RAW`;
    /// `ENOBUFS` if more memory would be locked than `RLIMIT_MEMLOCK` allows.
    pub fn new(
        layout: UmemLayout,
        queue: Queue,
        zero_copy: bool,
        patience: Duration,
    ) -> io::Result<(Self, QueueRings)> {
        let how = if zero_copy { 0 } else { libc::XDP_COPY };
        let until = Instant::now() + patience;
        let memory = Memory::private(layout.frame as usize * layout.count as usize)?;
        // The kernel pins all of it, so all of it would be dumped.
        memory.leave_out_of_dumps();
        let fd = socket()?;
        let registered = libc::xdp_umem_reg {
            addr: memory.space().window().as_ptr() as u64,
            len: memory.len() as u64,
            chunk_size: layout.frame,
            headroom: layout.headroom,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(fd.as_fd(), libc::XDP_UMEM_REG, &registered)?;
        set(fd.as_fd(), libc::XDP_UMEM_FILL_RING, &layout.fill)?;
        set(fd.as_fd(), libc::XDP_UMEM_COMPLETION_RING, &layout.completion)?;
        // One of them a socket must have to take a queue; this one sends nothing.
        set(fd.as_fd(), libc::XDP_TX_RING, &2u32)?;
        let offsets = offsets(fd.as_fd())?;
        let at = libc::XDP_UMEM_PGOFF_FILL_RING;
        let fill = Ring::map(fd.as_fd(), offsets.fr, layout.fill, at)?;
        let at = libc::XDP_UMEM_PGOFF_COMPLETION_RING;
        let completion = Ring::map(fd.as_fd(), offsets.cr, layout.completion, at)?;
        while let Err(error) = bind(fd.as_fd(), queue, libc::XDP_USE_NEED_WAKEUP | how, 0) {
            if error.kind() != io::ErrorKind::ResourceBusy || Instant::now() >= until {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let rings = QueueRings { fill: Producer::new(fill), completion: Consumer::new(completion) };
        Ok((Self { fd, memory, layout, queue }, rings))
    }

    /// All frames. Within this crate each frame belongs to one thread at a time.
    #[inline]
    pub(crate) const fn space(&self) -> Space<'_> {
        self.memory.space()
    }

    /// How it is cut.
    pub const fn layout(&self) -> &UmemLayout {
        &self.layout
    }

    /// Which queue it serves.
    pub const fn queue(&self) -> Queue {
        self.queue
    }

    /// Bytes of the longest frame that can arrive.
    pub const fn room(&self) -> usize {
        self.layout.frame as usize - KERNEL_HEADROOM - self.layout.headroom as usize
    }

    /// Whether frames travel without being copied.
    ///
    /// # Errors
    /// Those of `getsockopt`.
    pub fn is_zero_copy(&self) -> io::Result<bool> {
        let mut options = 0u32;
        let mut bytes = size_of::<u32>() as socklen_t;
        let into: *mut c_void = ptr::from_mut(&mut options).cast();
        let (fd, name) = (self.fd.as_raw_fd(), libc::XDP_OPTIONS);
        // SAFETY: the kernel writes at most as many bytes as there are.
        done(unsafe { libc::getsockopt(fd, libc::SOL_XDP, name, into, &raw mut bytes) })?;
        Ok(options & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }
}

/// The frames of a [`Umem`] for a thread that alone reaches them.
#[derive(Debug)]
pub struct LoneUmem {
    umem: Arc<Umem>,
    /// Copies to and from frames are not atomic.
    one_thread: PhantomData<*const ()>,
}

impl LoneUmem {
    /// From one that nobody else has.
    pub fn new(umem: Umem) -> Self {
        Self { umem: Arc::new(umem), one_thread: PhantomData }
    }

    /// What sockets are made with.
    pub const fn umem(&self) -> &Arc<Umem> {
        &self.umem
    }

    /// All frames.
    #[inline]
    pub fn space(&self) -> Space<'_> {
        self.umem.space()
    }
}

/// One socket among those of a queue, with rings of its own.
#[derive(Debug)]
pub struct XdpSocket {
    fd: OwnedFd,
    _umem: Arc<Umem>,
}

/// A socket's own rings.
#[derive(Debug)]
pub struct SocketRings {
    /// What has arrived.
    pub receive: Consumer<Described>,
    /// What is to be sent.
    pub transmit: Producer<Described>,
}

impl XdpSocket {
    /// A further socket of a queue, with rings of so many entries, which are powers of two. Nothing
    /// arrives at it before an [`XdpProgram`](super::XdpProgram) leads there.
    ///
    /// # Errors
    /// If the kernel has no memory or descriptor left.
    pub fn new(umem: &Arc<Umem>, receive: u32, transmit: u32) -> io::Result<(Self, SocketRings)> {
        let fd = socket()?;
        set(fd.as_fd(), libc::XDP_RX_RING, &receive)?;
        set(fd.as_fd(), libc::XDP_TX_RING, &transmit)?;
        // Otherwise 32 frames, and then it asks for another call.
        let _ = set(fd.as_fd(), XDP_MAX_TX_SKB_BUDGET, &transmit);
        let offsets = offsets(fd.as_fd())?;
        let at = libc::XDP_PGOFF_RX_RING as u64;
        let receive = Ring::map(fd.as_fd(), offsets.rx, receive, at)?;
        let at = libc::XDP_PGOFF_TX_RING as u64;
        let transmit = Ring::map(fd.as_fd(), offsets.tx, transmit, at)?;
        let whose = umem.fd.as_raw_fd().cast_unsigned();
        bind(fd.as_fd(), umem.queue, libc::XDP_SHARED_UMEM, whose)?;
        let rings =
            SocketRings { receive: Consumer::new(receive), transmit: Producer::new(transmit) };
        Ok((Self { fd, _umem: Arc::clone(umem) }, rings))
    }

    /// Frames that arrived and found no room.
    ///
    /// # Errors
    /// Those of `getsockopt`.
    pub fn dropped(&self) -> io::Result<u64> {
        // Dropped, invalid, invalid, receive ring full, fill ring empty, transmit ring empty.
        let mut numbers = [0u64; 6];
        let mut bytes = size_of_val(&numbers) as socklen_t;
        let (fd, name) = (self.fd.as_raw_fd(), libc::XDP_STATISTICS);
        let into: *mut c_void = numbers.as_mut_ptr().cast();
        // SAFETY: the kernel writes at most as many bytes as there are, and any bits are numbers.
        done(unsafe { libc::getsockopt(fd, libc::SOL_XDP, name, into, &raw mut bytes) })?;
        Ok(numbers[0] + numbers[3] + numbers[4])
    }

    /// Makes the kernel send what was published, as much of it as it takes at once.
    ///
    /// # Errors
    /// `WouldBlock` if it was not all, or the interface has no room: ask again. `NetworkDown`, and
    /// others, if frames could not be sent, and are lost.
    #[inline]
    pub fn kick(&self) -> io::Result<()> {
        // SAFETY: sends what lies in the ring; reads no memory of ours.
        let sent = unsafe {
            libc::sendto(self.fd.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0)
        };
        done(sent as c_int)
    }
}

impl XdpSocket {
    /// Makes a driver that waits for frames to receive into look whether there are some.
    pub fn wake(&self) {
        let (fd, flags) = (self.fd.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: receives nothing into no memory.
        unsafe { libc::recvfrom(fd, ptr::null_mut(), 0, flags, ptr::null_mut(), ptr::null_mut()) };
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
