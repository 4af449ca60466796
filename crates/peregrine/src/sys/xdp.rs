//! AF_XDP sockets. Ethernet frames of a network interface pass through rings in memory that is shared with
//! the kernel.
//!
//! A [`Umem`] is memory divided into frames of one size. Each frame holds one Ethernet frame. The kernel
//! takes empty frames from the *fill* ring, fills them with what arrives, and lists them in a socket's
//! *receive* ring. A socket puts frames to send into its *transmit* ring. The kernel sends them and gives
//! them back through the *completion* ring. Each ring has one writer, one reader, a counter for each of the
//! two, and no lock.

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
use super::Space;

/// The number of bytes that the kernel keeps free before every frame that arrives.
const KERNEL_HEADROOM: usize = 256;
/// The socket option that sets how many frames one system call may send. It exists since Linux 6.18.
const XDP_MAX_TX_SKB_BUDGET: c_int = 9;

/// An entry of a receive ring or a transmit ring, which describes one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Described {
    /// The offset of the frame's first byte in the memory of the [`Umem`].
    pub at: u64,
    /// The length of the frame in bytes.
    pub bytes: u32,
    options: u32,
}

impl Described {
    /// Describes a frame to send.
    pub const fn new(at: u64, bytes: u32) -> Self {
        Self { at, bytes, options: 0 }
    }
}

/// A mapped ring.
struct Ring<T> {
    base: NonNull<u8>,
    bytes: usize,
    offsets: libc::xdp_ring_offset,
    mask: u32,
    /// The element type of the ring.
    _of: PhantomData<T>,
}

// SAFETY: the mapping is not bound to a thread, and each side of a ring has one owner.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps a ring of `entries` entries, which must be a power of two.
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

    /// Returns the counter or the flags at an offset that the kernel reported.
    #[inline]
    fn word(&self, at: u64) -> &AtomicU32 {
        // SAFETY: the kernel's counters are aligned and inside the mapping.
        let word = unsafe { self.base.add(at as usize) };
        // SAFETY: mapped for as long as `self`, and both sides access it only as an atomic.
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
    }

    #[inline]
    fn entry(&self, number: u32) -> *mut T {
        let at = self.offsets.desc as usize + (number & self.mask) as usize * size_of::<T>();
        // SAFETY: the mask keeps the index among the mapped entries.
        unsafe { self.base.add(at) }.as_ptr().cast()
    }

    fn flags(&self) -> u32 {
        self.word(self.offsets.flags).load(Ordering::Relaxed)
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing can reach it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The end of a ring at which this process writes entries.
pub struct Producer<T: Copy> {
    ring: Ring<T>,
    /// The number of the next entry to write. The kernel sees entries only after they are published.
    next: u32,
    /// The kernel's read position when this process last loaded it.
    read: u32,
}

impl<T: Copy> Producer<T> {
    fn new(ring: Ring<T>) -> Self {
        Self { ring, next: 0, read: 0 }
    }

    /// Writes an entry. Returns false if the ring is full.
    #[inline]
    pub fn put(&mut self, entry: T) -> bool {
        if self.next.wrapping_sub(self.read) > self.ring.mask {
            // SYNC: xdp-ring. The kernel has read the old entry before this process overwrites it.
            self.read = self.ring.word(self.ring.offsets.consumer).load(Ordering::Acquire);
            if self.next.wrapping_sub(self.read) > self.ring.mask {
                return false;
            }
        }
        // SAFETY: the entry is inside the ring. It is not published, so the kernel does not read it.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Publishes the written entries to the kernel.
    #[inline]
    pub fn publish(&mut self) {
        // SYNC: xdp-ring. This process writes the entries before the counter.
        self.ring.word(self.ring.offsets.producer).store(self.next, Ordering::Release);
    }

    /// Returns the number of written entries that the kernel has not read yet.
    #[inline]
    pub fn outstanding(&mut self) -> u32 {
        self.read = self.ring.word(self.ring.offsets.consumer).load(Ordering::Acquire);
        self.next.wrapping_sub(self.read)
    }

    /// Returns whether the kernel needs a system call to continue.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.ring.flags() & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Returns whether the kernel has read all published entries.
    #[inline]
    pub fn is_taken(&self) -> bool {
        self.ring.word(self.ring.offsets.consumer).load(Ordering::Acquire) == self.next
    }
}

/// The end of a ring at which this process reads entries.
pub struct Consumer<T: Copy> {
    ring: Ring<T>,
    next: u32,
    /// The kernel's write position when this process last loaded it.
    written: u32,
}

impl<T: Copy> Consumer<T> {
    fn new(ring: Ring<T>) -> Self {
        Self { ring, next: 0, written: 0 }
    }

    /// Removes and returns the next entry, if there is one.
    #[inline]
    pub fn take(&mut self) -> Option<T> {
        let entry = self.peek()?;
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Returns the next entry without removing it.
    #[inline]
    pub fn peek(&mut self) -> Option<T> {
        if self.next == self.written {
            // SYNC: xdp-ring. The kernel writes the entries before its counter.
            self.written = self.ring.word(self.ring.offsets.producer).load(Ordering::Acquire);
            if self.next == self.written {
                return None;
            }
        }
        // SAFETY: the entry is inside the ring. The kernel first wrote the entry, and then advanced its
        // counter.
        Some(unsafe { self.ring.entry(self.next).read() })
    }

    /// Hands the space of the removed entries back to the kernel.
    #[inline]
    pub fn release(&mut self) {
        // SYNC: xdp-ring. This process has read the entries before the kernel gets their space.
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

/// A receive queue of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The index of the interface.
    pub interface: u32,
    /// The index of the queue.
    pub queue: u32,
}

/// How the memory is divided into frames, and how many entries the rings have.
#[derive(Clone, Copy, Debug)]
pub struct UmemLayout {
    /// Bytes per frame: 2048 or 4096.
    pub frame: u32,
    /// The number of frames.
    pub count: u32,
    /// The number of bytes left free before each frame that arrives. The kernel's own headroom is added to
    /// this number.
    pub headroom: u32,
    /// The number of entries of the fill ring, a power of two. The kernel delivers a frame before it marks
    /// the frame's entry of the fill ring as read. So a frame may be put back while its old entry still
    /// occupies the ring. Therefore this ring needs more entries than the number of frames that circulate.
    pub fill: u32,
    /// The number of entries of the completion ring, a power of two.
    pub completion: u32,
}

/// The memory of the frames, and the socket that registered this memory for one queue of an interface. Any
/// number of [`XdpSocket`]s of the same queue may share the frames.
#[derive(Debug)]
pub struct Umem {
    // Dropped first: the kernel releases the memory before the memory is unmapped.
    fd: OwnedFd,
    memory: Memory,
    layout: UmemLayout,
    queue: Queue,
}

/// The two rings that all sockets of a queue share.
#[derive(Debug)]
pub struct QueueRings {
    /// The ring through which the kernel gets empty frames.
    pub fill: Producer<u64>,
    /// The ring through which the kernel gives back frames that were sent.
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
    // SAFETY: the kernel writes at most `bytes` bytes.
    done(unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, name, into, &raw mut bytes) })?;
    if bytes as usize != size_of::<libc::xdp_mmap_offsets>() {
        // Kernels before Linux 5.4 report a shorter structure, and their rings have no flags.
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(offsets)
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    done(fd)?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
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
    // SAFETY: the kernel reads `bytes` bytes, which is the size of `address`.
    done(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), bytes) })
}

impl Umem {
    /// Takes a queue of an interface. The kernel copies each frame once in each direction, unless `zero_copy`
    /// is set and the driver supports it. If both conditions hold, the driver receives all frames of the
    /// queue into this memory, including frames for other programs. If the queue is in use, retries until
    /// `patience` has passed, because the kernel releases the queue of an ended process only after a delay.
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
        // The kernel pins all of this memory, so a core dump would contain all of it.
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
        // A socket needs at least one ring before it can take a queue. This socket sends nothing.
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

    /// Returns a space of the memory of all frames. Within this crate, each frame belongs to one thread at a
    /// time.
    #[inline]
    pub(crate) const fn space(&self) -> Space<'_> {
        self.memory.space()
    }

    /// Returns how the memory is divided.
    pub const fn layout(&self) -> &UmemLayout {
        &self.layout
    }

    /// Returns the queue for which the memory is registered.
    pub const fn queue(&self) -> Queue {
        self.queue
    }

    /// Returns the length in bytes of the longest frame that can arrive.
    pub const fn room(&self) -> usize {
        self.layout.frame as usize - KERNEL_HEADROOM - self.layout.headroom as usize
    }

    /// Returns whether frames are transferred without a copy.
    ///
    /// # Errors
    /// Those of `getsockopt`.
    pub fn is_zero_copy(&self) -> io::Result<bool> {
        let mut options = 0u32;
        let mut bytes = size_of::<u32>() as socklen_t;
        let into: *mut c_void = ptr::from_mut(&mut options).cast();
        let (fd, name) = (self.fd.as_raw_fd(), libc::XDP_OPTIONS);
        // SAFETY: the kernel writes at most `bytes` bytes.
        done(unsafe { libc::getsockopt(fd, libc::SOL_XDP, name, into, &raw mut bytes) })?;
        Ok(options & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }
}

/// The frames of a [`Umem`] that only one thread uses.
#[derive(Debug)]
pub struct LoneUmem {
    umem: Arc<Umem>,
    /// Not `Send`: copies to and from frames are not atomic.
    one_thread: PhantomData<*const ()>,
}

impl LoneUmem {
    /// Wraps a `Umem` that nothing else uses.
    pub fn new(umem: Umem) -> Self {
        Self { umem: Arc::new(umem), one_thread: PhantomData }
    }

    /// Returns the `Umem`, from which sockets are created.
    pub const fn umem(&self) -> &Arc<Umem> {
        &self.umem
    }

    /// Returns a space of the memory of all frames.
    #[inline]
    pub fn space(&self) -> Space<'_> {
        self.umem.space()
    }
}

/// One of the sockets of a queue. Each socket has its own receive ring and transmit ring.
#[derive(Debug)]
pub struct XdpSocket {
    fd: OwnedFd,
    _umem: Arc<Umem>,
}

/// The rings of one socket.
#[derive(Debug)]
pub struct SocketRings {
    /// The ring of frames that have arrived.
    pub receive: Consumer<Described>,
    /// The ring of frames to send.
    pub transmit: Producer<Described>,
}

impl XdpSocket {
    /// Creates a socket of a queue. Its rings have `receive` and `transmit` entries. Both numbers must be
    /// powers of two. The socket receives nothing until an [`XdpProgram`](super::XdpProgram) redirects frames
    /// to it.
    ///
    /// # Errors
    /// Fails if the kernel has no memory or descriptor left.
    pub fn new(umem: &Arc<Umem>, receive: u32, transmit: u32) -> io::Result<(Self, SocketRings)> {
        let fd = socket()?;
        set(fd.as_fd(), libc::XDP_RX_RING, &receive)?;
        set(fd.as_fd(), libc::XDP_TX_RING, &transmit)?;
        // By default, one system call sends at most 32 frames. Further frames need another system call.
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

    /// Returns the number of frames that were dropped because there was no space for them.
    ///
    /// # Errors
    /// Those of `getsockopt`.
    pub fn dropped(&self) -> io::Result<u64> {
        // The numbers are, in this order: dropped, invalid to receive, invalid to send, receive ring full,
        // fill ring empty, transmit ring empty.
        let mut numbers = [0u64; 6];
        let mut bytes = size_of_val(&numbers) as socklen_t;
        let (fd, name) = (self.fd.as_raw_fd(), libc::XDP_STATISTICS);
        let into: *mut c_void = numbers.as_mut_ptr().cast();
        // SAFETY: the kernel writes at most `bytes` bytes, and all bit patterns are valid numbers.
        done(unsafe { libc::getsockopt(fd, libc::SOL_XDP, name, into, &raw mut bytes) })?;
        Ok(numbers[0] + numbers[3] + numbers[4])
    }

    /// Makes the kernel send published frames, as many as it accepts at once.
    ///
    /// # Errors
    /// `WouldBlock` if frames are left, or the interface's queue is full: call the function again.
    /// `NetworkDown`, and other errors, if frames could not be sent and are lost.
    #[inline]
    pub fn kick(&self) -> io::Result<()> {
        // SAFETY: the call sends frames of the ring, and reads no other memory.
        let sent = unsafe {
            libc::sendto(self.fd.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0)
        };
        done(sent as c_int)
    }
}

impl XdpSocket {
    /// Wakes a driver that waits for empty frames. The driver then looks at the fill ring.
    pub fn wake(&self) {
        let (fd, flags) = (self.fd.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: the call receives nothing, and writes no memory.
        unsafe { libc::recvfrom(fd, ptr::null_mut(), 0, flags, ptr::null_mut(), ptr::null_mut()) };
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
