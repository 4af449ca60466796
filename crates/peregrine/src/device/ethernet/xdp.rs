//! Raw Ethernet sockets that use AF_XDP. All AF_XDP sockets of a process share one queue of an interface.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::frame::{ETHER_TYPE, LINK_BYTES};
use super::link_port::QUEUE;
use super::pool::{FrameBuffers, ReturnBatch};
use super::{FrameSource, SocketUse, SpacesWriter};
use crate::device::gso::cut;
use crate::sync::{Mutex, Rank};
use crate::sys::{
    Consumer, Described, NetworkInterface, Ours, Producer, Queue, SocketRings, XdpProgram,
    XdpSocket,
};
use crate::value::{Space, Window};

/// The largest number of retries if the kernel does not take all frames for sending at once.
const KICKS_MAX: usize = 64;

/// The number of frames that are used in turn to send single packets. With fewer frames, each frame is reused
/// sooner, while it is still in a CPU cache. But then the socket must check more often which frames are free.
const FEW: usize = 8;

/// The number of successive polls without a frame after which the socket checks whether the driver waits for
/// free frames.
const EMPTY_MAX: u32 = 1024;

/// The receive queue of an interface, with the pool of frames and the sockets that use it.
pub(super) struct XdpQueue {
    // This is the first field, so that the program is detached before the sockets are dropped.
    program: XdpProgram,
    pool: Arc<FrameBuffers>,
    /// Sockets that have no endpoint now. Later endpoints use them again.
    spare: Mutex<Vec<Arc<Xsk>>>,
}

/// An AF_XDP socket, with the rings and the memory that the socket shares with the kernel.
pub(super) struct Xsk {
    pub(super) inbox: Mutex<XdpInbox>,
    outbox: Mutex<Outbox>,
    socket: Arc<XdpSocket>,
    pool: Arc<FrameBuffers>,
    what: SocketUse,
}

/// The frames that a socket has received.
pub(super) struct XdpInbox {
    ring: Consumer<Described>,
    stash: ReturnBatch,
    /// The number of successive polls that found nothing.
    empty: u32,
    socket: Arc<XdpSocket>,
    pool: Arc<FrameBuffers>,
}

/// The frames that a socket is sending, or can use for sending.
struct Outbox {
    ring: Producer<Described>,
    frames: Box<[u32]>,
    next: usize,
}

impl XdpQueue {
    /// Takes the queue of an interface. If `zero_copy` is true and the driver supports zero-copy, the kernel
    /// does not copy frames.
    ///
    /// # Errors
    /// If another process has the queue or the interface's program, if this process may not use the queue, or
    /// if there is no memory.
    pub(super) fn new(interface: &NetworkInterface, tag: u8, zero_copy: bool) -> io::Result<Self> {
        // Attaching fails if another process has already attached a program. In that case, no pool is
        // created.
        let ours = Ours { ether_type: ETHER_TYPE, queue: QUEUE, tag };
        // For a veth pair, the program runs after the driver. If the program ran in the driver, the kernel
        // would copy each frame once more. The round trip of a small frame would take a quarter longer. Both
        // ends of the pair would also lose their segmentation offload.
        let attach = match &*interface.driver {
            "veth" => XdpProgram::attach_behind,
            _ => XdpProgram::attach,
        };
        let program = attach(interface.number, ours)?;
        let pool =
            FrameBuffers::new(Queue { interface: interface.number, queue: QUEUE }, zero_copy)?;
        Ok(Self { program, pool, spare: Mutex::default() })
    }

    /// Describes the device in words.
    pub(super) fn describe(&self) -> String {
        let place = if self.program.is_in_driver() { "in the driver" } else { "behind the driver" };
        let zero = self.pool.umem().is_zero_copy().unwrap_or(false);
        format!("AF_XDP, {place}, with{} a copy by the kernel", if zero { "out" } else { "" })
    }

    /// Returns a socket for the endpoint at `slot`, and directs the endpoint's frames to this socket. Uses a
    /// spare socket of an earlier endpoint, if there is one. Otherwise creates a socket.
    ///
    /// # Errors
    /// If there are no frames or descriptors left.
    pub(super) fn open(&self, slot: u8, what: SocketUse) -> io::Result<Arc<Xsk>> {
        let spare = {
            let mut spare = self.spare.lock();
            let found = spare.iter().position(|xsk| xsk.what == what);
            found.map(|at| spare.swap_remove(at))
        };
        let xsk = match spare {
            Some(xsk) => xsk,
            None => Arc::new(Xsk::new(&self.pool, what)?),
        };
        xsk.clear();
        match self.program.lead(slot, &xsk.socket) {
            Ok(()) => Ok(xsk),
            Err(error) => {
                self.close(slot, &xsk);
                Err(error)
            }
        }
    }

    /// Keeps the socket of an endpoint that has ended, so that the next endpoint can use this socket. If the
    /// socket were closed instead, the pool would lose the memory of a frame that arrives at this moment.
    pub(super) fn close(&self, slot: u8, xsk: &Arc<Xsk>) {
        self.program.leave(slot);
        xsk.clear();
        self.spare.lock().push(Arc::clone(xsk));
    }
}

impl Xsk {
    fn new(pool: &Arc<FrameBuffers>, what: SocketUse) -> io::Result<Self> {
        let (receive, transmit) = what.frames();
        let (socket, rings) = XdpSocket::new(pool.umem(), receive, transmit)?;
        // This is the last step that can fail, so that a failure takes no frames.
        let frames = pool.take(receive, transmit)?;
        // A server's threads always receive. While no thread polls a client's socket, frames wait in the
        // socket, and the kernel needs other frames.
        if what != SocketUse::Service {
            pool.offer_more(receive);
        }
        let SocketRings { receive, transmit } = rings;
        let socket = Arc::new(socket);
        let stash = ReturnBatch::default();
        Ok(Self {
            inbox: Mutex::ranked(
                Rank::Ring,
                XdpInbox {
                    ring: receive,
                    stash,
                    empty: 0,
                    socket: Arc::clone(&socket),
                    pool: Arc::clone(pool),
                },
            ),
            outbox: Mutex::ranked(Rank::Ring, Outbox { ring: transmit, frames, next: 0 }),
            socket,
            pool: Arc::clone(pool),
            what,
        })
    }

    /// Gives the received frames back to the kernel without reading them, so that new frames can arrive in
    /// their memory. `close` calls this function when the socket loses its endpoint. `open` calls it again
    /// for the next endpoint, because frames for the former endpoint may still arrive in between.
    fn clear(&self) {
        let mut inbox = self.inbox.lock();
        while inbox.peek().is_some() {
            inbox.consume();
        }
        inbox.ring.release();
        let XdpInbox { stash, pool, .. } = &mut *inbox;
        stash.flush(pool);
    }

    /// Returns the size in bytes of the longest frame that can arrive.
    pub(super) fn room(&self) -> usize {
        self.pool.umem().room()
    }

    /// Returns how many received frames the socket can hold.
    pub(super) const fn frames(&self) -> usize {
        self.what.frames().0 as usize
    }

    pub(super) fn overflowed(&self) -> io::Result<u64> {
        self.socket.dropped()
    }

    #[inline]
    pub(super) fn has_arrived(&self) -> bool {
        // If another thread holds the lock, that thread is polling.
        self.inbox.try_lock().is_some_and(|mut inbox| inbox.ring.peek().is_some())
    }

    /// Sends one frame.
    #[inline]
    pub(super) fn send(&self, header: &[u8; LINK_BYTES], parts: &[Window<'_>]) -> io::Result<()> {
        let mut outbox = self.outbox.lock();
        if outbox.next >= FEW {
            outbox.next = 0;
        }
        self.put(&mut outbox, header, parts)?;
        outbox.ring.publish();
        // The kernel sends all published frames, whichever thread has published them. So `kick` needs no
        // lock.
        drop(outbox);
        self.kick()
    }

    /// Sends several packets, each in a frame. Each packet has `segment` bytes, but the last may be shorter.
    pub(super) fn send_batch(
        &self,
        header: &[u8; LINK_BYTES],
        parts: &[Window<'_>],
        segment: usize,
    ) -> io::Result<()> {
        let mut outbox = self.outbox.lock();
        cut(parts, segment, &mut |packet| self.put(&mut outbox, header, packet))?;
        outbox.ring.publish();
        drop(outbox);
        self.kick()
    }

    /// Adds a frame to `outbox`. If all frames are in flight, retries up to [`KICKS_MAX`] times, until the
    /// kernel has sent one of them.
    #[inline]
    fn put(
        &self,
        outbox: &mut Outbox,
        header: &[u8; LINK_BYTES],
        parts: &[Window<'_>],
    ) -> io::Result<()> {
        if outbox.put(&self.pool, header, parts)? {
            return Ok(());
        }
        for _ in 0..KICKS_MAX {
            outbox.ring.publish();
            self.kick()?;
            self.pool.reap();
            if outbox.put(&self.pool, header, parts)? {
                return Ok(());
            }
        }
        Err(ErrorKind::WouldBlock.into())
    }

    /// Requests that the kernel sends the frames in the transmit ring.
    #[inline]
    fn kick(&self) -> io::Result<()> {
        match self.socket.kick() {
            Ok(()) => Ok(()),
            Err(error) => self.kick_again(error),
        }
    }

    #[cold]
    fn kick_again(&self, mut error: io::Error) -> io::Result<()> {
        for _ in 0..KICKS_MAX {
            let busy =
                matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS));
            if !busy {
                return Err(error);
            }
            // While the completion ring is full, the kernel cannot report further sent frames, and so cannot
            // send.
            self.pool.reap();
            match self.socket.kick() {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            }
        }
        Err(error)
    }
}

impl Outbox {
    /// Writes a frame and adds it to the ring. Returns false if all frames are in flight.
    #[inline]
    fn put(
        &mut self,
        pool: &FrameBuffers,
        header: &[u8; LINK_BYTES],
        parts: &[Window<'_>],
    ) -> io::Result<bool> {
        let Some((at, frame)) = pool.vacant(self.frames[self.next]).or_else(|| self.find(pool))
        else {
            return Ok(false);
        };
        let _ = frame.write(0, header);
        let rest = [frame.range(LINK_BYTES, frame.window().len() - LINK_BYTES)];
        let mut pen = SpacesWriter { into: &rest, space: 0, at: 0 };
        let mut bytes = LINK_BYTES;
        for part in parts {
            if pen.put(*part) < part.len() {
                return Err(ErrorKind::FileTooLarge.into());
            }
            bytes += part.len();
        }
        if !self.ring.put(Described::new(at, bytes as u32)) {
            return Ok(false);
        }
        pool.leave(self.frames[self.next]);
        self.next = if self.next + 1 == self.frames.len() { 0 } else { self.next + 1 };
        Ok(true)
    }

    /// Takes sent frames back from the kernel, and then looks for a free frame. Prefers the next frame in
    /// turn.
    #[cold]
    fn find<'p>(&mut self, pool: &'p FrameBuffers) -> Option<(u64, Space<'p>)> {
        pool.reap();
        let is_vacant = |number: &u32| pool.vacant(*number).is_some();
        if !is_vacant(&self.frames[self.next]) {
            self.next = self.frames.iter().position(is_vacant)?;
        }
        pool.vacant(self.frames[self.next])
    }
}

impl XdpInbox {
    /// Wakes the driver if `wanted` is true. The caller passes true if the driver waits for free frames. If
    /// the kernel copies the frames, the driver never waits.
    #[inline]
    fn wake_if(&self, wanted: bool) {
        if wanted {
            self.socket.wake();
        }
    }
}

impl FrameSource for XdpInbox {
    #[inline]
    fn peek(&mut self) -> Option<Space<'_>> {
        let Some(Described { at, bytes, .. }) = self.ring.peek() else {
            self.empty += 1;
            if self.empty == EMPTY_MAX {
                self.empty = 0;
                self.wake_if(self.pool.needs_wakeup());
            }
            return None;
        };
        self.empty = 0;
        Some(self.pool.arrived(at, bytes))
    }

    #[inline]
    fn consume(&mut self) {
        if let Some(frame) = self.ring.take()
            && self.stash.add(frame.at)
        {
            self.ring.release();
            let wants = self.stash.flush(&self.pool);
            self.wake_if(wants);
        }
    }

    #[inline]
    fn rest(&mut self) {
        self.ring.release();
    }
}

impl AsFd for Xsk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
