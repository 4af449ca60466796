//! A pool of frames in memory that this process shares with the kernel. A frame is a piece of this memory
//! that holds one Ethernet frame. The pool tracks whether the kernel or this process owns each frame.
//!
//! * A frame for receiving is first in the fill ring. It moves to a socket's receive ring, then to a return
//!   batch, and then to the spare list or back to the fill ring.
//! * A frame for sending belongs to the list of one socket. It is *in flight* from the transmit ring to
//!   the completion ring. After that, the socket can use the frame again.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use crate::sync::Mutex;
use crate::sys::{Consumer, Producer, Queue, QueueRings, Umem, UmemLayout};
use crate::value::Space;

/// The size of a frame in bytes.
const FRAME: u32 = 2048;
/// The number of all frames. Together they take 8 MiB. On most systems, every process may lock 8 MiB.
const FRAMES: u32 = 4096;
/// The number of frames for sending.
const SENT: u32 = 1280;
/// The number of frames for receiving.
const RECEIVED: u32 = FRAMES - SENT;
/// The size in bytes of all frames together.
pub(super) const MEMORY: u64 = FRAME as u64 * FRAMES as u64;
/// The number of bytes that the kernel leaves free before each received frame, in addition to the 256 bytes
/// that it always leaves free. With 14 bytes, the packet after the 18 bytes of headers begins at a multiple
/// of 16.
const HEADROOM: u32 = 14;
/// If the driver receives all frames of the queue into this memory, this number of frames is never promised
/// to sockets. If all frames were promised, unread frames in full rings could stop the traffic of other
/// programs.
const OF_OTHERS: u32 = 512;
/// A socket gives frames back to the kernel in batches of this size.
const BATCH: usize = 8;
const LAYOUT: UmemLayout = UmemLayout {
    frame: FRAME,
    count: FRAMES,
    headroom: HEADROOM,
    fill: FRAMES,
    completion: SENT.next_power_of_two(),
};
/// The number of frames that the pool offers to the kernel at first, if the kernel copies into them. The
/// kernel uses the offered frames in turn, so a small number of frames stays in a CPU cache. If the kernel
/// does not copy, the pool offers all frames for receiving, because the driver needs them for everything that
/// arrives at the queue.
const LEVEL: u32 = 32;
/// How long to wait for a queue that the kernel has not released yet. The kernel may still have the queue
/// shortly after the program of the interface was replaced, or after the process with the queue has ended.
const LEAVING: Duration = Duration::from_millis(500);

/// The frames of a queue.
pub(super) struct FrameBuffers {
    umem: Arc<Umem>,
    fill: Mutex<Fill>,
    completion: Mutex<Consumer<u64>>,
    /// For each frame for sending: true if the kernel owns the frame.
    in_flight: Box<[AtomicBool]>,
    vacant: Mutex<Vacant>,
}

/// Frames that are not assigned to any socket.
struct Vacant {
    /// The indices of unassigned frames for sending.
    sent: Vec<u32>,
    /// The number of frames for receiving that can still be promised to sockets. If no thread polls a socket,
    /// received frames stay in the socket's ring. So each socket is promised as many frames as its ring
    /// holds. A socket that is not polled then takes no frames of other sockets.
    arriving: u32,
}

/// Frames for receiving.
struct Fill {
    ring: Producer<u64>,
    /// The offsets in bytes of the frames that are not offered to the kernel now. The frame that was used
    /// last is at the end.
    spare: Vec<u64>,
    /// The number of frames that the kernel should have at a time.
    level: u32,
}

impl Fill {
    /// Offers frames until the kernel has `level` of them. If the kernel has used more than half of these
    /// frames since the last offer, this function first doubles the level.
    fn offer(&mut self) {
        let mut has = self.ring.outstanding();
        if has < self.level / 2 {
            self.level = (self.level * 2).min(RECEIVED);
        }
        while has < self.level
            && let Some(at) = self.spare.pop()
        {
            // The ring can hold all frames that exist.
            self.ring.put(at);
            has += 1;
        }
        self.ring.publish();
    }
}

impl FrameBuffers {
    /// Takes a queue of an interface. If `zero_copy` is true and the driver supports zero-copy, the kernel
    /// does not copy frames.
    ///
    /// # Errors
    /// As for [`Umem::new`].
    pub(super) fn new(queue: Queue, zero_copy: bool) -> io::Result<Arc<Self>> {
        let (umem, rings) = Umem::new(LAYOUT, queue, zero_copy, LEAVING)?;
        let alone = !umem.is_zero_copy()?;
        Ok(Arc::new(Self::over(umem, rings, alone)))
    }

    /// Creates the pool of a queue. If `alone` is true, the frames are used only for packets to this
    /// process's sockets. Otherwise they are used for everything that arrives at the queue.
    fn over(umem: Umem, QueueRings { fill, completion }: QueueRings, alone: bool) -> Self {
        let spare = (SENT..FRAMES).map(|frame| u64::from(frame) * u64::from(FRAME)).collect();
        // The first offer doubles the level, so the pool starts with half of `LEVEL`.
        let (level, promised) =
            if alone { (LEVEL / 2, RECEIVED) } else { (RECEIVED, RECEIVED - OF_OTHERS) };
        let mut fill = Fill { ring: fill, spare, level };
        fill.offer();
        Self {
            umem: Arc::new(umem),
            fill: Mutex::new(fill),
            completion: Mutex::new(completion),
            in_flight: (0..SENT).map(|_| AtomicBool::new(false)).collect(),
            vacant: Mutex::new(Vacant { sent: (0..SENT).collect(), arriving: promised }),
        }
    }

    pub(super) const fn umem(&self) -> &Arc<Umem> {
        &self.umem
    }

    /// Assigns frames to a socket. Returns the indices of `sent` frames, in which the socket builds what it
    /// sends. Also reserves `arriving` frames for the receive ring of the socket. The ring holds this number
    /// of frames.
    ///
    /// # Errors
    /// If the pool has too few frames left.
    pub(super) fn take(&self, arriving: u32, sent: u32) -> io::Result<Box<[u32]>> {
        let mut vacant = self.vacant.lock();
        let left = vacant.sent.len().checked_sub(sent as usize).ok_or(ErrorKind::QuotaExceeded)?;
        let more = vacant.arriving.checked_sub(arriving).ok_or(ErrorKind::QuotaExceeded)?;
        vacant.arriving = more;
        Ok(vacant.sent.split_off(left).into_boxed_slice())
    }

    /// Raises the number of offered frames by `frames` and one return batch. A socket that no thread polls
    /// may keep this number of frames. Without the additional frames, such a socket could keep all frames of
    /// the kernel. Then nothing would arrive at any socket.
    pub(super) fn offer_more(&self, frames: u32) {
        let mut fill = self.fill.lock();
        fill.level = (fill.level + frames + BATCH as u32).min(RECEIVED);
        fill.offer();
    }

    /// Returns the offset and the memory of a frame for sending, or `None` if the kernel still owns the
    /// frame.
    #[inline]
    pub(super) fn vacant(&self, number: u32) -> Option<(u64, Space<'_>)> {
        // SYNC: frame-sent, stored in `reap`.
        if self.in_flight[number as usize].load(Ordering::Acquire) {
            return None;
        }
        let at = u64::from(number) * u64::from(FRAME);
        Some((at, self.umem.space().part(at as usize, FRAME as usize)?))
    }

    /// Notes that the kernel owns the frame from now on.
    #[inline]
    pub(super) fn leave(&self, number: u32) {
        self.in_flight[number as usize].store(true, Ordering::Relaxed);
    }

    /// Notes, for all sockets, which frames the kernel has sent. The kernel does not own these frames any
    /// more.
    pub(super) fn reap(&self) {
        let mut completion = self.completion.lock();
        while let Some(at) = completion.take() {
            if let Some(frame) = self.in_flight.get((at / u64::from(FRAME)) as usize) {
                // SYNC: frame-sent. The kernel does not read the frame any more.
                frame.store(false, Ordering::Release);
            }
        }
        completion.release();
    }

    /// Returns whether the kernel needs a system call to continue receiving.
    #[cold]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.fill.try_lock().is_some_and(|fill| fill.ring.needs_wakeup())
    }

    /// Returns the memory of a received frame.
    #[inline]
    pub(super) fn arrived(&self, at: u64, bytes: u32) -> Space<'_> {
        self.umem.space().range(at as usize, bytes as usize)
    }
}

/// A batch of received frames that are given back to the kernel together.
#[derive(Debug, Default)]
pub(super) struct ReturnBatch {
    frames: [u64; BATCH],
    count: usize,
}

impl ReturnBatch {
    /// Adds a frame whose bytes are not needed any more. Returns true if the batch is now full.
    #[inline]
    pub(super) fn add(&mut self, at: u64) -> bool {
        self.frames[self.count] = at;
        self.count += 1;
        self.count == BATCH
    }

    /// Gives the frames back to the kernel. Returns whether the kernel needs a system call to continue
    /// receiving.
    pub(super) fn flush(&mut self, pool: &FrameBuffers) -> bool {
        let mut fill = pool.fill.lock();
        let frames = self.frames[..self.count].iter().map(|at| *at & !u64::from(FRAME - 1));
        fill.spare.extend(frames);
        self.count = 0;
        fill.offer();
        fill.ring.needs_wakeup()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::SocketUse;
    use crate::device::gso::tests::Namespaces;
    use crate::sys::interface_of;

    #[test]
    fn frames_of_a_process_take_eight_mebibytes() {
        assert_eq!(MEMORY, 8 << 20);
        assert_eq!(u64::from(LAYOUT.frame) * u64::from(LAYOUT.count), MEMORY);
        assert_eq!(SocketUse::Service.frames().0, 2048, "frames that a server's socket can hold");
    }

    /// No driver on the test machines supports zero-copy. So the test imitates such a driver: it passes false
    /// for the parameter `alone` of `FrameBuffers::over`.
    #[test]
    fn driver_without_copies_is_offered_all_frames() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: namespaces need root");
            return;
        }
        let namespaces = match Namespaces::new() {
            Ok(namespaces) => namespaces,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        namespaces.within(0, || {
            let interface = interface_of([10, 1, 1, 1].into()).unwrap().number;
            for alone in [true, false] {
                let queue = Queue { interface, queue: 0 };
                let (umem, rings) = Umem::new(LAYOUT, queue, true, LEAVING).unwrap();
                let pool = FrameBuffers::over(umem, rings, alone);
                let offered = pool.fill.lock().ring.outstanding();
                assert_eq!(offered, if alone { LEVEL } else { RECEIVED });
                // If `alone` is false, `OF_OTHERS` frames stay reserved for the driver, regardless of the
                // number of sockets.
                let kept = if alone { 0 } else { OF_OTHERS };
                assert!(pool.take(RECEIVED - kept, 1).is_ok());
                assert!(pool.take(1, 1).is_err());
            }
        });
    }
}
