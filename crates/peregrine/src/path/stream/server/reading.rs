//! Receives from a connection on the server, and decides which bytes the connection keeps while no thread
//! receives.
//!
//! Memory grows with the bytes that have arrived. A size that was only announced takes no memory. Beyond a
//! few kilobytes, memory grows only if the server has memory left for the client's host.

use std::time::Duration;

use super::{AcceptedConnection, Host, READ_AHEAD, StreamWorker};
use crate::call::EStack;
use crate::call::chain::waiting_inside;
use crate::path::connections::intake::{Reservation, STUCK};
use crate::path::connections::receive::{Got, receive};
use crate::path::connections::threads::Attended;
use crate::path::connections::turn::Attendant;
use crate::path::stream::peer::now;
use crate::protocol::stream::server_end::{MessageTimer, Unread};

use core::sync::atomic::Ordering;

/// Bytes that a thread received but did not handle. The next thread that receives begins with these bytes.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) memory: EStack,
    pub(super) bytes: usize,
    /// The number of bytes of a refused message that have not arrived yet. These bytes are skipped.
    pub(super) skip: usize,
    /// Whether the client had stopped sending in the middle of a message when the last thread left the
    /// connection.
    pub(super) stalled: bool,
    /// The message that has arrived only in part.
    part: Part,
}

/// A message that is larger than [`READ_AHEAD`] and has arrived only in part.
#[derive(Default)]
pub(super) struct Part {
    /// The memory that is reserved for the message.
    reserved: Option<Reservation>,
    /// Measures how much longer the client may take to send the message.
    timer: MessageTimer,
    /// Whether the message may be a nested call, for which a procedure of this process waits. A thread that
    /// sends a nested call already counts as waiting inside a procedure. So the message cannot be a nested
    /// call if no thread waited inside a procedure when the message first needed memory. `None` until the
    /// message needs memory.
    may_be_nested: Option<bool>,
}

/// The outcome of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    Some,
    /// Nothing arrived for some time.
    Nothing,
    /// There is no memory for the rest of the message.
    Full,
    Closed,
}

impl AcceptedConnection {
    /// Moves the bytes that the connection kept to `worker`. Returns whether the client had stopped sending
    /// in the middle of a message.
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

    /// Leaves the connection to the keeper, the background thread that watches idle connections.
    pub(super) fn park(&self, worker: &mut StreamWorker, host: &dyn Host) -> Attended {
        let patience = worker.part.timer.left(worker.unread.len(), now());
        if !self.put_back(worker, true) {
            return Attended::Ended;
        }
        self.turn.set(Attendant::Keeper);
        host.watch();
        if let Some(patience) = patience {
            host.remind(patience);
        }
        Attended::Left
    }

    /// Stops receiving from the connection until memory is free again.
    #[cold]
    pub(super) fn hold(&self, worker: &mut StreamWorker, host: &dyn Host) -> Attended {
        worker.part.timer.hold(now());
        if !self.put_back(worker, true) {
            return Attended::Ended;
        }
        self.turn.set(Attendant::Keeper);
        self.held.store(true, Ordering::Release);
        host.hold();
        Attended::Left
    }

    /// Queues the connection after the connections that already wait for a thread.
    #[cold]
    pub(super) fn stand_in_line(&self, worker: &mut StreamWorker, host: &dyn Host) -> Attended {
        if !self.put_back(worker, false) {
            return Attended::Ended;
        }
        self.turn.set(Attendant::Queue);
        host.read_on();
        Attended::Left
    }

    /// Moves the unread bytes from `worker` to the connection. Returns false if there is no memory, or if the
    /// connection was closed meanwhile.
    fn put_back(&self, worker: &mut StreamWorker, parks: bool) -> bool {
        let mut kept_guard = self.kept();
        let kept = &mut *kept_guard;
        let bytes = worker.unread.len();
        worker.move_to_front();
        if worker.input.memory().len() <= 2 * bytes {
            // The connection keeps the thread's memory itself. So a client that sends single bytes causes no
            // copies.
            kept.memory = core::mem::take(&mut worker.input);
            worker.input = core::mem::take(&mut worker.spare);
        } else {
            // Because of other messages, the thread's memory is much larger than the unread bytes. So the
            // bytes are copied.
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
        // Releases memory that was reserved for bytes that did not arrive. The release may resume another
        // connection, so this thread must hold no lock here.
        if let Some(reserved) = &mut part.reserved {
            reserved.shrink(needed);
        }
        let mut kept = self.kept();
        // A thread that ends the connection closes it first, and only then drops what the connection keeps.
        // So if the connection is still open here, that thread will also drop `part`.
        if self.closed.load(Ordering::SeqCst) {
            drop(kept);
            return false;
        }
        kept.part = part;
        true
    }

    /// Drops the bytes that the connection keeps.
    pub(crate) fn forget_kept(&self) {
        // Dropping the bytes may resume another connection. So they are dropped after the lock is released.
        let kept = core::mem::take(&mut *self.kept());
        drop(kept);
    }

    /// Notes that the connection need not wait for memory any more. Returns true if the caller must
    /// queue the connection for a thread.
    pub(crate) fn resumes(&self) -> bool {
        self.held.swap(false, Ordering::AcqRel) && self.wakes()
    }

    /// Returns whether the connection waits for memory.
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// Returns how much longer the client may take to send the message that has arrived in part. Returns
    /// `None` if no message uses memory, or if a thread is receiving.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let kept = self.kept();
        kept.part.timer.left(kept.bytes, now())
    }

    /// Receives at least one byte, unless none arrives in time.
    pub(super) fn receive(
        &self,
        worker: &mut StreamWorker,
        needed: usize,
        waits: bool,
        host: &dyn Host,
    ) -> ReadOutcome {
        worker.move_to_front();
        let Some(upto) = self.make_room(worker, needed) else { return ReadOutcome::Full };
        if !worker.input.reserve(upto) {
            return ReadOutcome::Closed;
        }
        let place = &mut worker.input.memory()[worker.unread.to..upto];
        let how = waits.then(|| host.wait());
        match receive(&self.stream, place, how, &mut worker.serving.counting) {
            Got::Bytes(bytes) => {
                worker.unread.to += bytes;
                ReadOutcome::Some
            }
            Got::Nothing => ReadOutcome::Nothing,
            Got::Closed => ReadOutcome::Closed,
        }
    }

    /// Returns the offset in the input up to which the thread may receive now. Returns `None` if no memory is
    /// left.
    #[inline]
    fn make_room(&self, worker: &mut StreamWorker, needed: usize) -> Option<usize> {
        if needed <= READ_AHEAD {
            return Some(READ_AHEAD);
        }
        // `grown` is the size of the thread's memory. If received bytes fill that memory, `grown` is twice
        // their number.
        let there = worker.input.memory().len();
        let grown = if worker.unread.to < there { there } else { 2 * worker.unread.to };
        let wanted = needed.min(grown.max(READ_AHEAD));
        if self.reserve(&mut worker.part, wanted) {
            return Some(wanted);
        }
        let least = needed.min((2 * worker.unread.to).max(READ_AHEAD));
        (least < wanted && self.reserve(&mut worker.part, least)).then_some(least)
    }

    /// Reserves memory so that the message can use `bytes` bytes. Returns false if no memory is left for the
    /// message. The first [`READ_AHEAD`] bytes of a message need no reservation.
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

    /// Resets the state of a message that had arrived in part. The caller calls this function when the
    /// message is complete or was refused. Returns the memory that was reserved for the message, if any.
    #[inline]
    pub(super) fn is_whole(worker: &mut StreamWorker) -> Option<Reservation> {
        if worker.part.may_be_nested.is_none() && worker.part.timer.held().is_zero() {
            return None;
        }
        core::mem::take(&mut worker.part).reserved
    }
}
