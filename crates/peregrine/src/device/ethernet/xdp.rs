//! Sockets by AF_XDP, which share the queue that this process has.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::frame::{ETHER_TYPE, LINK_BYTES};
use super::link_port::QUEUE;
use super::pool::{Pool, ReturnBatch};
use super::{FrameSource, Pen, SocketUse};
use crate::device::gso::cut;
use crate::sync::{Mutex, Rank};
use crate::sys::{
    Consumer, Described, NetworkInterface, Ours, Producer, Queue, SocketRings, XdpProgram,
    XdpSocket,
};
use crate::value::{Space, Window};

/// How often the kernel is asked to go on with what it did not take at once.
const KICKS_MAX: usize = 64;

/// Frames that go round while they are sent one by one: the fewer, the sooner each is used again, while
/// it lies in a cache; and the more often somebody has to look which have come back.
const FEW: usize = 8;

/// After so many looks that found nothing, whether the driver waits for frames to receive into is looked at.
const EMPTY_MAX: u32 = 1024;

/// A queue of an interface.
pub(super) struct XdpQueue {
    // First: nothing is led to a socket any more when the others go.
    program: XdpProgram,
    pool: Arc<Pool>,
    /// Sockets that nobody uses now.
    spare: Mutex<Vec<Arc<Xsk>>>,
}

/// A socket, with what it shares with the kernel.
pub(super) struct Xsk {
    pub(super) inbox: Mutex<XdpInbox>,
    outbox: Mutex<Outbox>,
    socket: Arc<XdpSocket>,
    pool: Arc<Pool>,
    what: SocketUse,
}

/// What has arrived.
pub(super) struct XdpInbox {
    ring: Consumer<Described>,
    stash: ReturnBatch,
    /// Looks in a row that found nothing.
    empty: u32,
    socket: Arc<XdpSocket>,
    pool: Arc<Pool>,
}

/// What is to be sent.
struct Outbox {
    ring: Producer<Described>,
    frames: Box<[u32]>,
    next: usize,
}

impl XdpQueue {
    /// Takes the queue of an interface, without copies if the driver supports it and `zero_copy` is set.
    ///
    /// # Errors
    /// If somebody has it, or the interface's program; if this process may not, or there is no room.
    pub(super) fn new(interface: &NetworkInterface, tag: u8, zero_copy: bool) -> io::Result<Self> {
        // The program first: an interface has only one, whoever's it is.
        let ours = Ours { ether_type: ETHER_TYPE, queue: QUEUE, tag };
        // Frames of a veth pair come from the rest of the kernel, which copies each once more before
        // the driver runs a program: that takes a quarter longer for a small one, there and back, and
        // costs both ends their segmentation offload.
        let attach = match &*interface.driver {
            "veth" => XdpProgram::attach_behind,
            _ => XdpProgram::attach,
        };
        let program = attach(interface.number, ours)?;
        let pool = Pool::new(Queue { interface: interface.number, queue: QUEUE }, zero_copy)?;
        Ok(Self { program, pool, spare: Mutex::default() })
    }

    /// What it is, in words.
    pub(super) fn describe(&self) -> String {
        let place = if self.program.is_in_driver() { "in the driver" } else { "behind the driver" };
        let zero = self.pool.umem().is_zero_copy().unwrap_or(false);
        format!("AF_XDP, {place}, with{} a copy of the kernel's", if zero { "out" } else { "" })
    }

    /// A socket for an endpoint.
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
        self.program.lead(slot, &xsk.socket)?;
        Ok(xsk)
    }

    /// A socket is used no more. It is kept for the next one: so no frame is lost with it that arrives
    /// just now.
    pub(super) fn close(&self, slot: u8, xsk: &Arc<Xsk>) {
        self.program.leave(slot);
        xsk.clear();
        self.spare.lock().push(Arc::clone(xsk));
    }
}

impl Xsk {
    fn new(pool: &Arc<Pool>, what: SocketUse) -> io::Result<Self> {
        let (receive, transmit) = what.frames();
        let (socket, rings) = XdpSocket::new(pool.umem(), receive, transmit)?;
        // Last, for what fails has not taken any.
        let frames = pool.take(receive, transmit)?;
        if what != SocketUse::Service {
            // The server's threads always look.
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

    /// Gives back what has arrived, unseen.
    fn clear(&self) {
        let mut inbox = self.inbox.lock();
        while inbox.peek().is_some() {
            inbox.consume();
        }
        inbox.ring.release();
        let XdpInbox { stash, pool, .. } = &mut *inbox;
        stash.flush(pool);
    }

    /// Bytes of the longest frame that can arrive.
    pub(super) fn room(&self) -> usize {
        self.pool.umem().room()
    }

    /// Frames that may have arrived.
    pub(super) const fn frames(&self) -> usize {
        self.what.frames().0 as usize
    }

    pub(super) fn overflowed(&self) -> io::Result<u64> {
        self.socket.dropped()
    }

    #[inline]
    pub(super) fn has_arrived(&self) -> bool {
        // Who has the lock looks.
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
        // Whoever has put more meanwhile has it sent, or this call has.
        drop(outbox);
        self.kick()
    }

    /// Sends frames whose packets are `segment` bytes each, but for the last.
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

    /// Puts a frame among those to be sent; if all are under way, once one has been sent.
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

    /// Has the kernel send what there is.
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
            // Nobody can learn of a frame that was sent while there is no room to tell.
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
    /// Writes a frame and names it; false if all frames are under way.
    #[inline]
    fn put(
        &mut self,
        pool: &Pool,
        header: &[u8; LINK_BYTES],
        parts: &[Window<'_>],
    ) -> io::Result<bool> {
        let Some((at, frame)) = pool.vacant(self.frames[self.next]).or_else(|| self.find(pool))
        else {
            return Ok(false);
        };
        let _ = frame.write(0, header);
        let rest = [frame.range(LINK_BYTES, frame.window().len() - LINK_BYTES)];
        let mut pen = Pen { into: &rest, space: 0, at: 0 };
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

    /// The next frame has not come back: it may have, or another one.
    #[cold]
    fn find<'p>(&mut self, pool: &'p Pool) -> Option<(u64, Space<'p>)> {
        pool.reap();
        let is_vacant = |number: &u32| pool.vacant(*number).is_some();
        if !is_vacant(&self.frames[self.next]) {
            self.next = self.frames.iter().position(is_vacant)?;
        }
        pool.vacant(self.frames[self.next])
    }
}

impl XdpInbox {
    /// A driver that had no frames to receive into goes on when it is told. Those that copy never wait.
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
