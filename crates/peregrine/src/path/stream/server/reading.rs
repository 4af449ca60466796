//! Reading: what a thread receives of a connection, and what is kept of it while no thread reads.
//!
//! Memory grows with what has come, never with what was announced, and beyond a few kilobytes only
//! if the server has memory left for the connection's host.

use std::io;
use std::time::{Duration, Instant};

use super::intake::{Reservation, STUCK};
use super::{Attended, Host, IDLE, Incoming, PARKED, QUEUED, READ_AHEAD, StreamWorker};
use crate::call::chain::waiting_inside;
use crate::call::{EStack, Wait, block_cost};
use crate::path::stream::peer::now;
use crate::protocol::stream::server_end::{MessageTimer, Unread};

use core::sync::atomic::Ordering;

/// What was received and not looked at; the thread that reads next begins with it.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) memory: EStack,
    pub(super) bytes: usize,
    /// Bytes still to come that are not wanted.
    pub(super) skip: usize,
    /// It has stopped in the middle of a message before.
    pub(super) stalled: bool,
    /// What is known of the message of which a part is here.
    part: Part,
}

/// A message that is larger than what is read ahead, and has not arrived whole.
#[derive(Default)]
pub(super) struct Part {
    /// The memory that is reserved for it.
    reserved: Option<Reservation>,
    /// How long its client may still take.
    timer: MessageTimer,
    /// Whether it may be a nested call, for which a procedure of this process waits: not if no thread
    /// waited inside when memory was first wanted for it, for such a thread begins to wait before it
    /// sends anything. `None` until then.
    may_be_nested: Option<bool>,
}

/// What reading on has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Got {
    Some,
    /// Nothing for a while.
    Nothing,
    /// There is no memory for more of the message.
    Full,
    Closed,
}

impl Incoming {
    /// Begins with what was kept.
    pub(super) fn load(&self, worker: &mut StreamWorker) -> bool {
        let mut kept = self.kept();
        let kept = &mut *kept;
        worker.unread = Unread { from: 0, to: kept.bytes, skip: kept.skip };
        worker.part = core::mem::take(&mut kept.part);
        worker.part.timer.resume(now());
        if kept.bytes > READ_AHEAD {
            let own = core::mem::replace(&mut worker.input, core::mem::take(&mut kept.memory));
            worker.spare = own;
        } else if worker.input.reserve(READ_AHEAD) {
            let from = &kept.memory.memory()[..kept.bytes];
            worker.input.memory()[..from.len()].copy_from_slice(from);
        }
        (kept.bytes, kept.skip) = (0, 0);
        kept.stalled
    }

    /// Leaves it to the keeper.
    pub(super) fn park(&self, worker: &mut StreamWorker, host: &dyn Host) -> Attended {
        let patience = worker.part.timer.left(worker.unread.len(), now());
        if !self.put_back(worker, true) {
            return Attended::Ended;
        }
        self.set(PARKED);
        host.watch();
        if let Some(patience) = patience {
            host.remind(patience);
        }
        Attended::Left
    }

    /// Reads no more of it until there is memory.
    #[cold]
    pub(super) fn hold(&self, worker: &mut StreamWorker, host: &dyn Host) -> Attended {
        worker.part.timer.hold(now());
        if !self.put_back(worker, true) {
            return Attended::Ended;
        }
        self.set(PARKED);
        self.held.store(true, Ordering::Release);
        host.hold();
        Attended::Left
    }

    /// Leaves it to the thread that comes to it when others have been served.
    #[cold]
    pub(super) fn stand_in_line(&self, worker: &mut StreamWorker, host: &dyn Host) -> Attended {
        if !self.put_back(worker, false) {
            return Attended::Ended;
        }
        self.set(QUEUED);
        host.read_on();
        Attended::Left
    }

    /// Keeps what was received and not looked at; false if that cannot be, or the connection was
    /// closed meanwhile.
    fn put_back(&self, worker: &mut StreamWorker, parks: bool) -> bool {
        let mut kept_guard = self.kept();
        let kept = &mut *kept_guard;
        let bytes = worker.unread.len();
        worker.move_to_front();
        if worker.input.memory().len() <= 2 * bytes {
            // The memory goes along: a peer that sends byte by byte does not make us copy.
            kept.memory = core::mem::take(&mut worker.input);
            worker.input = core::mem::take(&mut worker.spare);
        } else {
            // The thread's memory is large because of other messages.
            if kept.memory.memory().len() > 2 * bytes.max(READ_AHEAD) {
                kept.memory = EStack::default();
            }
            if !kept.memory.reserve(bytes) {
                return false;
            }
            kept.memory.memory()[..bytes].copy_from_slice(&worker.input.memory()[..bytes]);
        }
        (kept.bytes, kept.skip) = (bytes, worker.unread.skip);
        kept.stalled = parks && (bytes > 0 || kept.skip > 0);
        let needed = kept.memory.memory().len();
        worker.unread = Unread::default();
        let mut part = core::mem::take(&mut worker.part);
        drop(kept_guard);
        // What was reserved for what may have come, and did not. Other connections then read on, so
        // nothing is locked here.
        if let Some(reserved) = &mut part.reserved {
            reserved.shrink(needed);
        }
        let mut kept = self.kept();
        // Whoever ends the connection closes it first, and then forgets what was kept.
        if self.closed.load(Ordering::SeqCst) {
            drop(kept);
            return false;
        }
        kept.part = part;
        true
    }

    /// Forgets what was kept of it.
    pub(crate) fn forget_kept(&self) {
        // Dropped when it is not locked any more.
        let kept = core::mem::take(&mut *self.kept());
        drop(kept);
    }

    /// It is to be read on although it was held: whether it is to be queued for a thread.
    pub(crate) fn resumes(&self) -> bool {
        self.held.swap(false, Ordering::AcqRel) && self.wakes()
    }

    /// Whether it waits for memory.
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// How long its client may still take for the message of which a part is here; `None` if there is
    /// none that takes memory, or a thread reads it.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let kept = self.kept();
        kept.part.timer.left(kept.bytes, now())
    }

    /// Receives more, at least one byte, if it comes.
    pub(super) fn receive(
        &self,
        worker: &mut StreamWorker,
        needed: usize,
        waits: bool,
        host: &dyn Host,
    ) -> Got {
        worker.move_to_front();
        let Some(upto) = self.make_room(worker, needed) else { return Got::Full };
        if !worker.input.reserve(upto) {
            return Got::Closed;
        }
        let how = if waits { host.wait() } else { Wait::Spin };
        let until = match how {
            Wait::Block => None,
            Wait::Adaptive => Some(Instant::now() + block_cost()),
            Wait::Spin if waits => Some(Instant::now() + IDLE),
            Wait::Spin => Some(Instant::now()),
        };
        loop {
            let blocks = match until {
                None => true,
                Some(until) => Instant::now() >= until && how == Wait::Adaptive,
            };
            let place = &mut worker.input.memory()[worker.unread.to..upto];
            match self.stream.receive(place, blocks) {
                Ok(0) => return Got::Closed,
                Ok(bytes) => {
                    worker.unread.to += bytes;
                    if blocks {
                        worker.serving.counting.slept()
                    } else {
                        worker.serving.counting.found()
                    }
                    return Got::Some;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Got::Closed,
                Err(_) if blocks => return Got::Nothing,
                Err(_) if until.is_some_and(|until| Instant::now() >= until) => {
                    if how == Wait::Spin {
                        return Got::Nothing;
                    }
                }
                Err(_) => {
                    worker.serving.counting.looked();
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Up to where may be received now; `None` if there is no memory for more.
    #[inline]
    fn make_room(&self, worker: &mut StreamWorker, needed: usize) -> Option<usize> {
        if needed <= READ_AHEAD {
            return Some(READ_AHEAD);
        }
        // As far as the thread's memory reaches, else twice what has come.
        let there = worker.input.memory().len();
        let grown = if worker.unread.to < there { there } else { 2 * worker.unread.to };
        let wanted = needed.min(grown.max(READ_AHEAD));
        if self.reserve(&mut worker.part, wanted) {
            return Some(wanted);
        }
        let least = needed.min((2 * worker.unread.to).max(READ_AHEAD));
        (least < wanted && self.reserve(&mut worker.part, least)).then_some(least)
    }

    /// Whether a message may take so many bytes. The first few are never refused.
    fn reserve(&self, part: &mut Part, bytes: usize) -> bool {
        let before = part.reserved.as_ref().map_or(0, Reservation::bytes);
        if bytes <= READ_AHEAD || bytes <= before {
            return true;
        }
        let may_be_nested = *part.may_be_nested.get_or_insert_with(|| waiting_inside() > 0);
        let extensions =
            if may_be_nested && part.timer.held() >= STUCK { waiting_inside() } else { 0 };
        match &mut part.reserved {
            Some(reserved) => reserved.grow(bytes - before, extensions),
            none => {
                *none = self.intake.reserve(self.host, bytes, extensions);
                if none.is_some() {
                    part.timer.begin(now());
                }
                none.is_some()
            }
        }
    }

    /// A message has come whole, or what comes of it is not wanted: it is a part no more. The memory
    /// that was reserved for it, if there is any.
    #[inline]
    pub(super) fn is_whole(worker: &mut StreamWorker) -> Option<Reservation> {
        if worker.part.may_be_nested.is_none() && worker.part.timer.held().is_zero() {
            return None;
        }
        core::mem::take(&mut worker.part).reserved
    }
}
