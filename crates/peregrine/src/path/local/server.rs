//! The server's half of a local call: see the call, copy it, run it, post the reply.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::region::{CallHeader, HEADER_BYTES, RegionLayout, ReplyHeader};
use super::wait::{Event, Terms, wait};
use super::word::{self, Look, Owed};
use crate::call::{CallerInfo, EStack, Incoming, Refusal, Serve, Wait, execute, refuse};
use crate::stats::{Moment, stamp};
use crate::sys::{self, Memory};
use crate::value::{Space, Window};

/// Nobody attends the A-stack, nor is anybody called to.
const IDLE: u32 = 0;
/// It waits in the pool's queue.
const QUEUED: u32 = 1;
/// A thread attends it.
const ATTENDED: u32 = 2;

/// Calls of one A-stack that a thread serves in a row while others wait for a thread.
const FAIR_CALLS: u32 = 8;

/// A binding's A-stacks, seen from the server.
pub(crate) struct ServerRegion {
    memory: Memory,
    layout: RegionLayout,
    astacks: Box<[AStack]>,
    serve: Arc<dyn Serve>,
    pub(crate) caller: Arc<CallerInfo>,
    closed: AtomicBool,
}

/// What the server alone knows of an A-stack.
#[repr(align(64))]
struct AStack {
    /// Where its call line, its reply line and its taken word begin.
    call_at: usize,
    reply_at: usize,
    taken_at: usize,
    /// The last call word that was taken.
    seen: AtomicU32,
    attendance: AtomicU32,
}

/// How a thread left an A-stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing is posted there, or whoever posts rings.
    Idle,
    /// More calls are posted; it was put back to the queue's end.
    Queued,
}

impl ServerRegion {
    /// A region for one binding, and the descriptor that the client maps.
    pub(crate) fn new(
        layout: RegionLayout,
        serve: Arc<dyn Serve>,
        caller: CallerInfo,
    ) -> io::Result<(Self, OwnedFd)> {
        let (memory, file) = Memory::shared(layout.region_bytes())?;
        let astack = |index| AStack {
            call_at: layout.call_word(index),
            reply_at: layout.reply_word(index),
            taken_at: layout.taken_word(index),
            seen: AtomicU32::new(0),
            attendance: AtomicU32::new(IDLE),
        };
        let astacks = (0..layout.count).map(astack).collect();
        let closed = AtomicBool::new(false);
        let caller = Arc::new(caller);
        Ok((Self { memory, layout, astacks, serve, caller, closed }, file))
    }

    /// A ring came for an A-stack: whether it must be put into the queue. Rings for A-stacks that
    /// do not exist, or that somebody attends to, mean nothing.
    pub(crate) fn rung(&self, index: u32) -> bool {
        let Some(astack) = self.astacks.get(index as usize) else { return false };
        let exchange =
            astack.attendance.compare_exchange(IDLE, QUEUED, Ordering::AcqRel, Ordering::Relaxed);
        exchange.is_ok() && !self.closed.load(Ordering::Acquire)
    }

    /// Serves an A-stack until the thread is `wanted` elsewhere or the session ends.
    pub(crate) fn attend(
        &self,
        index: u32,
        how: Wait,
        estack: &mut EStack,
        wanted: &dyn Fn() -> bool,
    ) -> Left {
        let astack = &self.astacks[index as usize];
        astack.attendance.store(ATTENDED, Ordering::Release);
        word::come(self.memory.word(self.layout.call_word(index)));
        loop {
            // Around all calls rather than around each: a call that does not panic pays nothing.
            // What a panic may leave broken is the object's own, as with a poisoned lock.
            let calls = AssertUnwindSafe(|| self.serve_calls(index, how, estack, wanted));
            match catch_unwind(calls) {
                Ok(left) => return left,
                Err(panic) => {
                    let message = astack.seen.load(Ordering::Relaxed);
                    self.post_refusal(astack, message, &Refusal::panicked(panic));
                }
            }
        }
    }

    fn serve_calls(
        &self,
        index: u32,
        how: Wait,
        estack: &mut EStack,
        wanted: &dyn Fn() -> bool,
    ) -> Left {
        let astack = &self.astacks[index as usize];
        let call = self.memory.word(self.layout.call_word(index));
        let mut terms = Terms::new(how);
        let mut in_a_row = 0;
        loop {
            let seen = astack.seen.load(Ordering::Relaxed);
            let leave = || wanted() || self.closed.load(Ordering::Relaxed);
            let value = match wait(call, seen, &mut terms, || None, leave) {
                Event::Posted(message) => {
                    terms.peer_cpu = self.answer(astack, message, terms.own_cpu, estack);
                    if !leave() {
                        in_a_row = 0;
                        continue;
                    }
                    in_a_row += 1;
                    message
                }
                Event::Interrupted(value) => value,
                // Only a client that scribbles on its own words can have written this.
                Event::Dead | Event::Late => word::DEAD,
            };
            if self.closed.load(Ordering::Acquire) {
                astack.attendance.store(IDLE, Ordering::Release);
                return Left::Idle;
            }
            if self.leave(astack, call, value) {
                return Left::Idle;
            }
            if in_a_row >= FAIR_CALLS {
                astack.attendance.store(QUEUED, Ordering::Release);
                return Left::Queued;
            }
        }
    }

    /// Leaves the A-stack to the next ring; false if a call has come meanwhile.
    fn leave(&self, astack: &AStack, call: &AtomicU32, value: u32) -> bool {
        // Before the word says so: a ring may come at once.
        astack.attendance.store(IDLE, Ordering::Release);
        if word::leave(call, value) {
            return true;
        }
        let back =
            astack.attendance.compare_exchange(IDLE, ATTENDED, Ordering::AcqRel, Ordering::Relaxed);
        // If it is in the queue already, whoever takes it from there attends to it.
        back.is_err()
    }

    fn spaces(&self, astack: &AStack) -> (Window<'_>, Space<'_>) {
        let part = |at| self.memory.space().part(at + HEADER_BYTES, self.layout.bytes);
        let call = part(astack.call_at).unwrap_or(Space::none());
        (call.window(), part(astack.reply_at).unwrap_or(Space::none()))
    }

    /// Takes a call, runs it, posts the reply; returns where the client ran.
    #[inline]
    fn answer(&self, astack: &AStack, message: u32, cpu: u32, estack: &mut EStack) -> u32 {
        stamp(Moment::Seen);
        astack.seen.store(message, Ordering::Relaxed);
        // Before anything of the call runs: after our death it tells that it may have run.
        self.memory.word(astack.taken_at).store(message, Ordering::Relaxed);
        let words = self.memory.space().read_plain(astack.call_at + 4);
        let header = CallHeader::of(words.unwrap_or([u32::MAX; 7]));
        let (space, reply) = self.spaces(astack);
        let incoming = Incoming {
            procedure: header.procedure,
            space,
            head_bytes: header.head_bytes as usize,
            copied: header.copied as usize,
            total: header.total as usize,
        };
        let (answer, head_at, head_bytes) = execute(&*self.serve, &incoming, reply, estack);
        self.post(astack, message, ReplyHeader { answer: answer as u32, cpu, head_at, head_bytes });
        header.cpu
    }

    #[inline]
    fn post(&self, astack: &AStack, message: u32, header: ReplyHeader) {
        let reply_at = astack.reply_at;
        // Inside the region by its layout.
        let _ = self.memory.space().write_plain(reply_at + 4, &header.words());
        let reply = self.memory.word(reply_at);
        stamp(Moment::Ready);
        if word::post(reply, message) == Owed::Wake {
            sys::futex_wake(reply);
        }
        stamp(Moment::Posted);
    }

    /// Answers with a refusal instead of a result.
    #[cold]
    fn post_refusal(&self, astack: &AStack, message: u32, refusal: &Refusal) {
        let (_, reply) = self.spaces(astack);
        let (answer, head_at, head_bytes) = refuse(reply, refusal);
        let (answer, cpu) = (answer as u32, sys::current_cpu());
        self.post(astack, message, ReplyHeader { answer, cpu, head_at, head_bytes });
    }

    /// Answers what is posted on an A-stack without running it, and leaves it to the next ring.
    /// For A-stacks that nobody attends to; false if the client posted so fast that one still is
    /// posted, and must be queued after all.
    pub(crate) fn refuse(&self, index: u32, refusal: &Refusal) -> bool {
        /// Refusals in a row of a client that posts as fast as it is refused.
        const POSTED_MEANWHILE: u32 = 64;
        let Some(astack) = self.astacks.get(index as usize) else { return true };
        let call = self.memory.word(self.layout.call_word(index));
        for _ in 0..POSTED_MEANWHILE {
            let value = match word::look(call, astack.seen.load(Ordering::Relaxed)) {
                Look::Posted(message) => {
                    astack.seen.store(message, Ordering::Relaxed);
                    self.post_refusal(astack, message, refusal);
                    message
                }
                Look::Nothing(value) => value,
                Look::Dead => word::DEAD,
            };
            if self.leave(astack, call, value) {
                return true;
            }
        }
        astack.attendance.store(QUEUED, Ordering::Release);
        false
    }

    /// Ends the session's use of it: threads leave, queued A-stacks are skipped.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for index in 0..self.layout.count {
            self.rouse(index);
        }
    }

    /// Whether the session has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Makes a thread that sleeps at an A-stack look around; false if none sleeps there.
    pub(crate) fn rouse(&self, index: u32) -> bool {
        let call = self.memory.word(self.layout.call_word(index));
        let asleep = word::rouse(call);
        // In any case: the client may have written over the word, or died between posting and
        // waking. Who sleeps is the kernel's knowledge.
        let woken = sys::futex_wake(call);
        asleep || woken > 0
    }

    /// How many A-stacks there are.
    pub(crate) const fn count(&self) -> u32 {
        self.layout.count
    }

    /// Whether a thread attends to any A-stack.
    pub(crate) fn is_attended(&self) -> bool {
        self.astacks.iter().any(|a| a.attendance.load(Ordering::Acquire) == ATTENDED)
    }
}
