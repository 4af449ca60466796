//! The server's half of a local call: see the call, copy it, run it, post the reply.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::region::{CallHeader, HEADER_BYTES, RegionLayout, ReplyHeader};
use super::rows::{Row, Rows};
use super::word::{self, Look, Owed};
use crate::call::{EStack, Incoming, Refusal, enter, execute, refuse};
use crate::error::Kind;
use crate::limits;
use crate::stats::{Moment, stamp};
use crate::sys::{self, Memory};
use crate::value::{Space, Window};

/// Nobody attends the A-stack, nor is anybody called to.
const IDLE: u32 = 0;
/// It waits in the pool's queue.
const QUEUED: u32 = 1;
/// The thread at desk `n` attends it, if it is this plus `n`.
const ATTENDED: u32 = 2;

/// A session's A-stacks and bindings, seen from the server.
pub(crate) struct ServerRegion {
    memory: Memory,
    layout: RegionLayout,
    astacks: Box<[AStack]>,
    rows: Mutex<Rows>,
    closed: AtomicBool,
    /// Differs from that of every other region of this process.
    number: u64,
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

/// Who attends to an A-stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attendance {
    /// Nobody: a call rings.
    Idle,
    /// A thread has been asked for.
    Queued,
    /// The thread at this desk.
    At(u32),
}

/// A row that a thread has looked up.
struct Known {
    region: u64,
    binding: u32,
    row: Arc<Row>,
}

/// What a thread that serves calls has of its own.
pub(crate) struct Worker {
    estack: EStack,
    /// Rows that it looked up lately, by the last bits of their numbers.
    known: [Option<Known>; Self::KNOWN],
    /// Whose call it runs, as `caller()` tells it.
    entered: (u64, u32),
    /// Calls that it has served.
    pub(super) served: u64,
    /// The processor that it last knew itself on.
    pub(super) cpu: u32,
}

impl Worker {
    const KNOWN: usize = 16;

    pub(crate) fn new() -> Self {
        Self {
            estack: EStack::default(),
            known: [const { None }; Self::KNOWN],
            entered: (u64::MAX, 0),
            served: 0,
            cpu: sys::current_cpu(),
        }
    }

    /// Forgets whom it served, and gives back what it needs no more: exported objects live no
    /// longer because of a thread that sleeps.
    pub(crate) fn forget(&mut self) {
        self.known = [const { None }; Self::KNOWN];
        if core::mem::replace(&mut self.entered, (u64::MAX, 0)).0 != u64::MAX {
            drop(enter(None));
        }
        self.estack.trim();
    }
}

impl ServerRegion {
    /// A region for one session, and the descriptor that the client maps.
    pub(crate) fn new(layout: RegionLayout) -> io::Result<(Self, OwnedFd)> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (memory, file) = Memory::shared(layout.region_bytes())?;
        let astack = |index| AStack {
            call_at: layout.call_word(index),
            reply_at: layout.reply_word(index),
            taken_at: layout.taken_word(index),
            seen: AtomicU32::new(0),
            attendance: AtomicU32::new(IDLE),
        };
        let region = Self {
            memory,
            layout,
            astacks: (0..layout.count).map(astack).collect(),
            rows: Mutex::default(),
            closed: AtomicBool::new(false),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        };
        Ok((region, file))
    }

    pub(crate) const fn layout(&self) -> RegionLayout {
        self.layout
    }

    /// The bindings of the session.
    pub(crate) fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for an A-stack that no other of this process has, and that is not zero.
    #[inline]
    pub(super) const fn key(&self, index: u32) -> u64 {
        self.number * limits::ASTACKS_MAX as u64 + index as u64 + 1
    }

    /// Who attends to an A-stack; `None` if there is no such A-stack.
    pub(crate) fn attendance(&self, index: u32) -> Option<Attendance> {
        let astack = self.astacks.get(index as usize)?;
        Some(match astack.attendance.load(Ordering::Acquire) {
            IDLE => Attendance::Idle,
            QUEUED => Attendance::Queued,
            desk => Attendance::At(desk - ATTENDED),
        })
    }

    /// Notes who attends to an A-stack, whoever did before.
    pub(crate) fn attended(&self, index: u32, by: Attendance) {
        let number = match by {
            Attendance::Idle => IDLE,
            Attendance::Queued => QUEUED,
            Attendance::At(desk) => ATTENDED + desk,
        };
        self.astacks[index as usize].attendance.store(number, Ordering::Release);
    }

    /// Takes an A-stack to which nobody attends, for the queue; false if somebody does.
    pub(crate) fn queue(&self, index: u32) -> bool {
        let Some(astack) = self.astacks.get(index as usize) else { return false };
        let exchange =
            astack.attendance.compare_exchange(IDLE, QUEUED, Ordering::AcqRel, Ordering::Relaxed);
        exchange.is_ok() && !self.is_closed()
    }

    #[inline]
    pub(super) fn call_word(&self, index: u32) -> &AtomicU32 {
        self.memory.word(self.astacks[index as usize].call_at)
    }

    /// What the call word of an A-stack shows.
    #[inline]
    pub(super) fn look(&self, index: u32) -> Look {
        let astack = &self.astacks[index as usize];
        word::look(self.memory.word(astack.call_at), astack.seen.load(Ordering::Relaxed))
    }

    /// The call word as it is, while no call is posted there.
    fn quiet(&self, index: u32) -> Option<u32> {
        match self.look(index) {
            Look::Posted(_) => None,
            Look::Nothing(value) => Some(value),
            // Nobody buries a call word. A client that scribbles may write what it likes there: if
            // it is no call, one can sleep on it and leave it like anything else.
            Look::Dead => Some(word::DEAD),
        }
    }

    /// Whether a call is posted there that nobody has taken yet.
    pub(crate) fn is_posted(&self, index: u32) -> bool {
        matches!(self.look(index), Look::Posted(_))
    }

    /// The word on which a thread sleeps that waits for a call, which says so from now on; `None`
    /// if a call has come.
    pub(super) fn doze(&self, index: u32) -> Option<&AtomicU32> {
        let (word, value) = (self.call_word(index), self.quiet(index)?);
        word::fall_asleep(word, value).then_some(word)
    }

    /// The thread has come to look at it, or looks again.
    pub(super) fn watch(&self, index: u32) {
        let word = self.call_word(index);
        word::come(word);
        word::rouse(word);
    }

    /// Leaves an A-stack to the next ring; false if a call has come meanwhile: then it is still
    /// whose it was.
    pub(crate) fn leave(&self, index: u32) -> bool {
        let astack = &self.astacks[index as usize];
        let before = astack.attendance.load(Ordering::Relaxed);
        let Some(value) = self.quiet(index) else { return false };
        // Before the word says so: a ring may come at once.
        astack.attendance.store(IDLE, Ordering::Release);
        if word::leave(self.call_word(index), value) {
            return true;
        }
        let back =
            astack.attendance.compare_exchange(IDLE, before, Ordering::AcqRel, Ordering::Relaxed);
        // If it is in the queue already, whoever takes it from there attends to it.
        back.is_err()
    }

    fn spaces(&self, astack: &AStack) -> (Window<'_>, Space<'_>) {
        let part = |at| self.memory.space().part(at + HEADER_BYTES, self.layout.bytes);
        let call = part(astack.call_at).unwrap_or(Space::none());
        (call.window(), part(astack.reply_at).unwrap_or(Space::none()))
    }

    /// Takes a call, runs it, posts the reply; returns where the client ran.
    ///
    /// # Panics
    /// If the procedure does; then there is no reply yet.
    #[inline]
    pub(super) fn answer(&self, index: u32, message: u32, worker: &mut Worker) -> u32 {
        stamp(Moment::Seen);
        let astack = &self.astacks[index as usize];
        astack.seen.store(message, Ordering::Relaxed);
        worker.served += 1;
        let words = self.memory.space().read_plain(astack.call_at + 4);
        let header = CallHeader::of(words.unwrap_or([u32::MAX; 7]));
        let (space, reply) = self.spaces(astack);
        let Worker { estack, known, entered, cpu, .. } = worker;
        let place = &mut known[header.binding as usize % Worker::KNOWN];
        let found = place
            .as_ref()
            .is_some_and(|known| known.region == self.number && known.binding == header.binding);
        if !found {
            *place = self.look_up(header.binding);
        }
        let row = match place {
            Some(known) if known.row.admits(header.total) => &*known.row,
            _ => {
                let row = place.as_ref().map(|known| &*known.row);
                self.post_refusal(astack, message, &Row::refusal(row));
                return header.cpu;
            }
        };
        if *entered != (self.number, header.binding) {
            *entered = (self.number, header.binding);
            drop(enter(Some(Arc::clone(&row.caller))));
        }
        // Before anything of the call runs: after our death it tells that it may have run.
        self.memory.word(astack.taken_at).store(message, Ordering::Relaxed);
        let incoming = Incoming {
            procedure: header.procedure,
            space,
            head_bytes: header.head_bytes as usize,
            copied: header.copied as usize,
            total: header.total as usize,
        };
        let (answer, head_at, head_bytes) = execute(&*row.serve, &incoming, reply, estack);
        let answer = answer as u32;
        self.post(astack, message, ReplyHeader { answer, cpu: *cpu, head_at, head_bytes });
        header.cpu
    }

    #[cold]
    fn look_up(&self, binding: u32) -> Option<Known> {
        let row = self.rows().get(binding)?;
        Some(Known { region: self.number, binding, row })
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

    /// Answers the call that was taken last there, whose procedure panicked.
    #[cold]
    pub(super) fn post_panic(&self, index: u32, refusal: &Refusal) {
        let astack = &self.astacks[index as usize];
        self.post_refusal(astack, astack.seen.load(Ordering::Relaxed), refusal);
    }

    /// Answers what is posted on an A-stack without running it, and leaves it to the next ring.
    /// For A-stacks in the queue; false if the client posts so fast that one still is posted:
    /// then it still has to be served.
    pub(crate) fn refuse(&self, index: u32, refusal: &Refusal) -> bool {
        /// Refusals in a row of a client that posts as fast as it is refused.
        const POSTED_MEANWHILE: u32 = 64;
        let Some(astack) = self.astacks.get(index as usize) else { return true };
        for _ in 0..POSTED_MEANWHILE {
            if let Look::Posted(message) = self.look(index) {
                astack.seen.store(message, Ordering::Relaxed);
                self.post_refusal(astack, message, refusal);
            }
            if self.leave(index) {
                return true;
            }
        }
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
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Makes a thread that sleeps at an A-stack look around.
    fn rouse(&self, index: u32) {
        let call = self.call_word(index);
        word::rouse(call);
        // In any case: the client may have written over the word, or died between posting and
        // waking. Who sleeps is the kernel's knowledge.
        sys::futex_wake(call);
    }

    /// How many A-stacks there are.
    pub(crate) const fn count(&self) -> u32 {
        self.layout.count
    }

    /// Whether a thread attends to any A-stack.
    pub(crate) fn is_attended(&self) -> bool {
        self.desks().next().is_some()
    }

    /// The desks at which its A-stacks are attended to, some more than once.
    pub(crate) fn desks(&self) -> impl Iterator<Item = u32> {
        let attendance = self.astacks.iter().map(|one| one.attendance.load(Ordering::Acquire));
        attendance.filter_map(|by| by.checked_sub(ATTENDED))
    }
}

impl Row {
    /// Why a call is not run.
    #[cold]
    fn refusal(row: Option<&Self>) -> Refusal {
        match row {
            None => Refusal::new(Kind::Withdrawn, "the session has no such binding"),
            Some(row) if row.is_revoked() => {
                let text = format!("`{}` was withdrawn", row.caller.export);
                Refusal::new(Kind::Withdrawn, text)
            }
            Some(row) => {
                let text = format!("a message may have {} bytes", row.message_bytes);
                Refusal::new(Kind::TooLarge, text)
            }
        }
    }
}
