//! `Pool`: frames in memory shared with the kernel, and whose they are just now.
//!
//! | a frame | where it is named |
//! |---|---|
//! | for what arrives | fill ring, then a socket's receive ring, then a stash, then spare or the fill ring |
//! | to be sent | a socket's own list; *under way* from the transmit ring to the completion ring |

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use crate::sync::Mutex;
use crate::sys::{Consumer, Producer, Queue, QueueRings, Umem, UmemLayout};
use crate::value::Space;

/// Bytes of a frame, and how many there are: those that are sent, and those for what arrives.
/// Together they are what everybody may lock, as most systems are set up.
const FRAME: u32 = 2048;
const FRAMES: u32 = 4096;
const SENT: u32 = 1280;
const RECEIVED: u32 = FRAMES - SENT;
/// Bytes of all of them.
pub(super) const MEMORY: u64 = FRAME as u64 * FRAMES as u64;
/// So that what stands behind both headers begins at a multiple of 16: before a frame the kernel
/// leaves 256 bytes free, and these.
const HEADROOM: u32 = 14;
/// Where the driver receives everybody's frames into this memory, so many are never promised to a
/// socket: what lies unread in full rings must not stop the traffic of others.
const OF_OTHERS: u32 = 512;
/// Frames that a socket has received are given back so many at a time.
const BATCH: usize = 8;
const LAYOUT: UmemLayout = UmemLayout {
    frame: FRAME,
    count: FRAMES,
    headroom: HEADROOM,
    fill: FRAMES,
    completion: SENT.next_power_of_two(),
};
/// Frames that the kernel is offered at first, if it copies into them. It takes them in turn, so the
/// fewer there are the sooner each comes again, while it still lies in a cache. Without copies all are
/// offered: the driver needs them for everything that arrives at the queue.
const LEVEL: u32 = 32;
/// For so long, a queue is waited for that nobody should have: who attached the interface's program
/// takes it, and the one before has ended.
pub(super) const LEAVING: Duration = Duration::from_millis(500);

/// The frames of a queue.
pub(super) struct Pool {
    umem: Arc<Umem>,
    fill: Mutex<Fill>,
    completion: Mutex<Consumer<u64>>,
    /// Which of the frames that are sent the kernel has.
    under_way: Box<[AtomicBool]>,
    vacant: Mutex<Vacant>,
}

/// Frames that no socket has.
struct Vacant {
    /// Numbers of those that can be sent.
    sent: Vec<u32>,
    /// How many of the others may still be promised. What arrives at a socket that nobody looks at
    /// stays there, and takes from no other socket only if each has room for as much as its ring has.
    arriving: u32,
}

/// Frames for what arrives.
struct Fill {
    ring: Producer<u64>,
    /// Those that the kernel is not offered just now; the last was used last.
    spare: Vec<u64>,
    /// How many it is offered.
    level: u32,
}

impl Fill {
    /// Offers as many as are due. Had the kernel used up half of them since the last time, more are.
    fn offer(&mut self) {
        let mut has = self.ring.outstanding();
        if has < self.level / 2 {
            self.level = (self.level * 2).min(RECEIVED);
        }
        while has < self.level
            && let Some(at) = self.spare.pop()
        {
            // The ring has room for all frames that there are.
            self.ring.put(at);
            has += 1;
        }
        self.ring.publish();
    }
}

impl Pool {
    /// Takes a queue of an interface, without copies if the driver supports it and `zero_copy` is set.
    ///
    /// # Errors
    /// As for [`Umem::new`].
    pub(super) fn new(queue: Queue, zero_copy: bool) -> io::Result<Arc<Self>> {
        let (umem, rings) = Umem::new(LAYOUT, queue, zero_copy, LEAVING)?;
        let alone = !umem.is_zero_copy()?;
        Ok(Arc::new(Self::over(umem, rings, alone)))
    }

    /// The frames of a queue into which only what is for our sockets is received (`alone`), or all that
    /// arrives there.
    fn over(umem: Umem, QueueRings { fill, completion }: QueueRings, alone: bool) -> Self {
        let spare = (SENT..FRAMES).map(|frame| u64::from(frame) * u64::from(FRAME)).collect();
        let (level, promised) =
            if alone { (LEVEL / 2, RECEIVED) } else { (RECEIVED, RECEIVED - OF_OTHERS) };
        let mut fill = Fill { ring: fill, spare, level };
        fill.offer();
        Self {
            umem: Arc::new(umem),
            fill: Mutex::new(fill),
            completion: Mutex::new(completion),
            under_way: (0..SENT).map(|_| AtomicBool::new(false)).collect(),
            vacant: Mutex::new(Vacant { sent: (0..SENT).collect(), arriving: promised }),
        }
    }

    pub(super) const fn umem(&self) -> &Arc<Umem> {
        &self.umem
    }

    /// Frames for a socket to send with, and room for as many that arrive as its ring has.
    ///
    /// # Errors
    /// If there are not as many left.
    pub(super) fn take(&self, arriving: u32, sent: u32) -> io::Result<Box<[u32]>> {
        let mut vacant = self.vacant.lock();
        let left = vacant.sent.len().checked_sub(sent as usize).ok_or(ErrorKind::QuotaExceeded)?;
        let more = vacant.arriving.checked_sub(arriving).ok_or(ErrorKind::QuotaExceeded)?;
        vacant.arriving = more;
        Ok(vacant.sent.split_off(left).into_boxed_slice())
    }

    /// The kernel is offered as many frames more, always: those that may lie in a ring, and beside it,
    /// while nobody looks. Otherwise nothing arrives any more, and nobody notices that it is so.
    pub(super) fn offer_more(&self, frames: u32) {
        let mut fill = self.fill.lock();
        fill.level = (fill.level + frames + BATCH as u32).min(RECEIVED);
        fill.offer();
    }

    /// The memory of a frame to be sent, if the kernel is done with what was in it.
    #[inline]
    pub(super) fn vacant(&self, number: u32) -> Option<(u64, Space<'_>)> {
        // SYNC: frame-sent.
        if self.under_way[number as usize].load(Ordering::Acquire) {
            return None;
        }
        let at = u64::from(number) * u64::from(FRAME);
        Some((at, self.umem.space().part(at as usize, FRAME as usize)?))
    }

    /// The kernel gets the frame.
    #[inline]
    pub(super) fn leave(&self, number: u32) {
        self.under_way[number as usize].store(true, Ordering::Relaxed);
    }

    /// Learns which frames have been sent, whosever they are.
    pub(super) fn reap(&self) {
        let mut completion = self.completion.lock();
        while let Some(at) = completion.take() {
            if let Some(frame) = self.under_way.get((at / u64::from(FRAME)) as usize) {
                // SYNC: frame-sent. The kernel reads it no more.
                frame.store(false, Ordering::Release);
            }
        }
        completion.release();
    }

    /// Whether the kernel wants a system call to go on receiving.
    #[cold]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.fill.try_lock().is_some_and(|fill| fill.ring.needs_wakeup())
    }

    /// What arrived.
    #[inline]
    pub(super) fn arrived(&self, at: u64, bytes: u32) -> Space<'_> {
        self.umem.space().range(at as usize, bytes as usize)
    }
}

/// Frames that were received, until they are given back together.
#[derive(Debug, Default)]
pub(super) struct ReturnBatch {
    frames: [u64; BATCH],
    count: usize,
}

impl ReturnBatch {
    /// A frame whose bytes nobody needs any more; whether it is time to give back what there is.
    #[inline]
    pub(super) fn add(&mut self, at: u64) -> bool {
        self.frames[self.count] = at;
        self.count += 1;
        self.count == BATCH
    }

    /// Gives them back to the kernel; whether it wants a system call for that.
    pub(super) fn flush(&mut self, pool: &Pool) -> bool {
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
    fn frames_of_a_process_have_eight_mebibytes() {
        assert_eq!(MEMORY, 8 << 20);
        assert_eq!(u64::from(LAYOUT.frame) * u64::from(LAYOUT.count), MEMORY);
        assert_eq!(SocketUse::Service.frames().0, 2048, "frames that may wait for a server");
    }

    /// No driver here does without copies, so the pool is told that this one did.
    #[test]
    fn driver_that_copies_nothing_is_offered_all_frames() {
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
                let pool = Pool::over(umem, rings, alone);
                let offered = pool.fill.lock().ring.outstanding();
                assert_eq!(offered, if alone { LEVEL } else { RECEIVED });
                // However many sockets there are, so many frames stay with the driver.
                let kept = if alone { 0 } else { OF_OTHERS };
                assert!(pool.take(RECEIVED - kept, 1).is_ok());
                assert!(pool.take(1, 1).is_err());
            }
        });
    }
}
