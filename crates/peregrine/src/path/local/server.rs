//! The server's half of a local call: see the call, copy it, run it, post the reply.

pub(crate) mod arrival;
pub(crate) mod assignment;
pub(crate) mod handle;
mod names;
mod pool;
pub(crate) mod processors;
pub(crate) mod sessions;
pub(crate) mod worker;

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use core::time::Duration;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use self::arrival::{Arrival, Patience, Waits};
use self::assignment::{self as attention, Asked, Attendance, Attention};
use super::region::chunks::{Pace, Stream};
use super::region::word::{self, Look, Owed};
use super::region::{CallHeader, HEADER_BYTES, Manner, RegionLayout, ReplyHeader};
use crate::call::{Calls, EStack, Incoming, Ran, Refusal, execute, extensions, refuse};
use crate::counters::Counting;
use crate::limits;
use crate::serving::binding_table::{BindingRow, BindingTable, Lately};
use crate::serving::procedure::{Begins, Serving};
use crate::stats::{Moment, stamp};
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys::{self, Memory};
use crate::value::{Space, Window, align_up};

/// A word that posts no call.
const NO_CALL: u32 = 0;

/// Whose a session is. A client can keep a thread waiting that looks at its region, so a thread
/// looks at the regions of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// The server's own user, or root: they can stop the server anyway.
    Own,
    Other(u32),
}

/// A session's A-stacks and bindings, seen from the server.
pub(crate) struct ServerRegion {
    user: User,
    memory: Memory,
    layout: RegionLayout,
    astacks: Box<[AStack]>,
    rows: Mutex<BindingTable>,
    closed: AtomicBool,
    patience: Patience,
    /// Differs from that of every other region of this process.
    number: u64,
}

/// What the server alone knows of an A-stack.
#[repr(align(64))]
struct AStack {
    /// Where its call line, its reply line and its taken word are.
    call_at: usize,
    reply_at: usize,
    taken_at: usize,
    /// The last call word that was taken.
    seen: AtomicU32,
    attention: Attention<AtomicU32>,
    /// The last call that was found to wait, as its word, and when that was.
    queued: AtomicU32,
    queued_at: AtomicU64,
    pace: Pace,
}

/// What a thread that serves calls has of its own.
pub(crate) struct Worker {
    estack: EStack,
    pub(super) serving: Serving,
    rows: Lately,
    /// Calls that it has served.
    pub(super) served: u64,
    /// The processor that it last knew itself on.
    pub(super) cpu: u32,
}

impl Worker {
    pub(crate) fn new(counting: Counting) -> Self {
        Self {
            estack: EStack::default(),
            serving: Serving::new(counting),
            rows: Lately::default(),
            served: 0,
            cpu: sys::current_cpu(),
        }
    }

    /// Forgets whom it served, and gives back what it needs no more: exported objects live no
    /// longer because of a thread that sleeps.
    pub(crate) fn forget(&mut self) {
        self.rows.forget();
        self.serving.forget();
        self.estack.trim();
    }
}

impl ServerRegion {
    /// A region for one session, and the descriptor that the client maps.
    pub(crate) fn new(
        user: User,
        layout: RegionLayout,
        waits: Arc<Waits>,
    ) -> io::Result<(Self, OwnedFd)> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (memory, file) = Memory::shared(layout.region_bytes())?;
        let astack = |index| AStack {
            call_at: layout.call_word(index),
            reply_at: layout.reply_word(index),
            taken_at: layout.taken_word(index),
            seen: AtomicU32::new(0),
            attention: Attention::default(),
            queued: AtomicU32::new(NO_CALL),
            queued_at: AtomicU64::new(0),
            pace: Pace::default(),
        };
        let region = Self {
            user,
            memory,
            layout,
            astacks: (0..layout.count).map(astack).collect(),
            rows: Mutex::ranked(Rank::BindingTable, BindingTable::default()),
            closed: AtomicBool::new(false),
            patience: Patience::new(waits),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        };
        Ok((region, file))
    }

    /// Whose session it is.
    pub(crate) const fn user(&self) -> User {
        self.user
    }

    pub(crate) const fn layout(&self) -> RegionLayout {
        self.layout
    }

    /// The bindings of the session.
    #[track_caller]
    pub(crate) fn rows(&self) -> MutexGuard<'_, BindingTable> {
        self.rows.lock()
    }

    /// A number for an A-stack that no other of this process has, and that is not zero.
    #[inline]
    pub(super) const fn key(&self, index: u32) -> u64 {
        self.number * limits::ASTACKS_MAX as u64 + index as u64 + 1
    }

    /// Who attends to an A-stack; `None` if there is no such A-stack.
    pub(crate) fn attendance(&self, index: u32) -> Option<Attendance> {
        self.astacks.get(index as usize).map(|astack| astack.attention.by())
    }

    /// Notes who attends to an A-stack, whoever did before.
    pub(crate) fn attended(&self, index: u32, by: Attendance) {
        self.astacks[index as usize].attention.note(by);
    }

    /// The client rings for an A-stack.
    pub(crate) fn ring(&self, index: u32) -> Asked {
        let Some(astack) = self.astacks.get(index as usize) else { return Asked::Nothing };
        match astack.attention.ring(self.call_word(index), self.seen(index)) {
            Asked::Enqueue if self.is_closed() => Asked::Nothing,
            asked => asked,
        }
    }

    /// The call that was taken last on an A-stack, as its word.
    #[inline]
    fn seen(&self, index: u32) -> u32 {
        self.astacks[index as usize].seen.load(Ordering::Relaxed)
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

    /// Whether a call is posted there that nobody has taken yet.
    pub(super) fn is_posted(&self, index: u32) -> bool {
        attention::is_posted(self.call_word(index), self.seen(index))
    }

    /// The call word says from now on that a thread sleeps on it; false if a call has come.
    pub(super) fn doze(&self, index: u32) -> bool {
        attention::doze(self.call_word(index), self.seen(index))
    }

    /// The thread has come to look at it, or looks again.
    pub(super) fn watch(&self, index: u32) {
        attention::watch(self.call_word(index));
    }

    /// Whether the call that is posted there says that it comes, by way of others, from a
    /// procedure of this process.
    pub(crate) fn is_from_inside(&self, index: u32) -> bool {
        let astack = &self.astacks[index as usize];
        let header = self.header(astack);
        let (space, _) = self.spaces_of(astack, header.manner);
        let extended = header.manner.extensions() != 0;
        extended && extensions::is_from_inside(extensions_of(space, &header))
    }

    /// The client rings for an A-stack: a call waits there, since now.
    pub(crate) fn note_queued(&self, index: u32) {
        let Some(astack) = self.astacks.get(index as usize) else { return };
        let Look::Posted(message) = self.look(index) else { return };
        if astack.queued.load(Ordering::Relaxed) != message {
            astack.queued_at.store(sys::boot_ns(), Ordering::Relaxed);
            // SYNC: queued, in `waited`.
            astack.queued.store(message, Ordering::Release);
        }
    }

    /// For how long a call that is taken now is known to have waited.
    fn waited(&self, astack: &AStack, message: u32) -> Duration {
        let queued = astack.queued.load(Ordering::Acquire) == message;
        let waited = || sys::boot_ns().saturating_sub(astack.queued_at.load(Ordering::Relaxed));
        Duration::from_nanos(if queued { waited() } else { 0 })
    }

    /// Whether the client says that it has given up the call that was taken last on an A-stack.
    pub(super) fn is_captured(&self, index: u32) -> bool {
        self.was_given_up(index, self.seen(index))
    }

    /// Whether the client says that it has given a call up.
    fn was_given_up(&self, index: u32, message: u32) -> bool {
        self.memory.word(self.layout.given_up_word(index)).load(Ordering::Relaxed) == message
    }

    #[inline]
    fn header(&self, astack: &AStack) -> CallHeader {
        // Inside the region by its layout.
        let words = self.memory.space().read_plain(astack.call_at + 4);
        CallHeader::of(words.unwrap_or([u32::MAX; 7]))
    }

    /// Leaves an A-stack to the next ring; false if a call has come meanwhile: then it is still
    /// whose it was.
    pub(super) fn leave(&self, index: u32) -> bool {
        let astack = &self.astacks[index as usize];
        astack.attention.leave(self.call_word(index), self.seen(index))
    }

    /// Where the messages of a plain call lie.
    #[inline]
    fn spaces(&self, astack: &AStack) -> (Window<'_>, Space<'_>) {
        let part = |at| self.memory.space().part(at + HEADER_BYTES, self.layout.bytes);
        let call = part(astack.call_at).unwrap_or(Space::none());
        (call.window(), part(astack.reply_at).unwrap_or(Space::none()))
    }

    /// Where the messages of any call lie.
    #[cold]
    fn spaces_of(&self, astack: &AStack, manner: Manner) -> (Window<'_>, Space<'_>) {
        let half = |at| self.memory.space().part(at + HEADER_BYTES, self.layout.space_bytes());
        let (call, reply) = (half(astack.call_at), half(astack.reply_at));
        // There is such a place, whatever the client says.
        let (at, bytes) = (manner.call_at(), self.layout.space_bytes());
        let call = call.and_then(|half| half.part(at, bytes - at));
        let reply = reply.and_then(|half| half.part(manner.reply_at(), self.layout.bytes));
        (call.unwrap_or(Space::none()).window(), reply.unwrap_or(Space::none()))
    }

    /// Takes a call, runs it, posts the reply; returns where the client ran.
    ///
    /// # Panics
    /// If the procedure does; then there is no reply yet.
    #[inline]
    pub(super) fn answer(self: &Arc<Self>, index: u32, message: u32, worker: &mut Worker) -> u32 {
        stamp(Moment::Seen);
        let astack = &self.astacks[index as usize];
        astack.seen.store(message, Ordering::Relaxed);
        let queued = astack.queued.load(Ordering::Relaxed);
        if queued != NO_CALL && queued != message {
            // Of an earlier call: a later one may have its number again, and has not waited.
            astack.queued.store(NO_CALL, Ordering::Relaxed);
        }
        worker.served += 1;
        let header = self.header(astack);
        let manner = header.manner;
        let (mut space, mut reply) = self.spaces(astack);
        let Worker { estack, serving, rows, cpu, .. } = worker;
        let Some(row) = rows.get(self.number, header.binding, || self.rows().get(header.binding))
        else {
            serving.counting.refused(None);
            self.post_refusal(astack, message, &BindingRow::refusal(None));
            return header.cpu;
        };
        let mut extensions = Window::empty();
        if !manner.is_plain() {
            (space, reply) = self.spaces_of(astack, manner);
            if manner.extensions() != 0 {
                extensions = extensions_of(space, &header);
            }
        }
        let call = Begins {
            number: u64::from(index) << 32 | u64::from(message),
            bytes: header.total,
            extensions,
            waited: || self.waited(astack, message),
            // Only what has a limit is ever given up, and so it has extensions.
            is_given_up: || !extensions.is_empty() && self.was_given_up(index, message),
        };
        let mut guard = match serving.begin(row, call, || Arc::clone(self) as Arc<dyn Calls>) {
            Ok(guard) => guard,
            Err(refusal) => {
                self.post_refusal(astack, message, &refusal);
                return header.cpu;
            }
        };
        let (arrival, stream);
        let (mut arrives, mut departs) = (None, None);
        if !manner.is_plain() {
            if manner.is_arriving() {
                let progress = self.memory.word(self.layout.progress_word(index));
                let total = header.total as usize;
                arrival = Arrival::new(&self.patience, progress, &self.closed, total);
                arrives = Some(&arrival as _);
            }
            if manner.reply_at() != 0 {
                let progress = self.memory.word(self.layout.reply_progress_word(index));
                stream = Stream::new(&astack.pace, progress);
                departs = Some(&stream);
            }
        }
        // Before anything of the call runs: after our death it tells that it may have run.
        self.memory.word(astack.taken_at).store(message, Ordering::Relaxed);
        let incoming = Incoming {
            procedure: header.procedure,
            space,
            head_bytes: header.head_bytes as usize,
            copied: header.copied as usize,
            total: header.total as usize,
            arrives,
            departs: departs.map(|stream| stream as _),
        };
        let ran = guard.run(|serve| execute(serve, &incoming, reply, estack));
        if let Some(stream) = departs {
            stream.end();
        }
        let Ran { answer, head_at, head_bytes, block_bytes } = ran;
        let reply = ReplyHeader { answer: answer as u32, cpu: *cpu, head_at, head_bytes };
        self.post(astack, message, reply);
        // The caller has its result: what is counted from here on costs it nothing.
        guard.end(answer, u64::from(head_bytes) + block_bytes as u64);
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

    /// Answers with a refusal instead of a result, at the place where the client looks for that.
    #[cold]
    fn post_refusal(&self, astack: &AStack, message: u32, refusal: &Refusal) {
        let (_, reply) = self.spaces_of(astack, self.header(astack).manner);
        let Ran { answer, head_at, head_bytes, .. } = refuse(reply, refusal);
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
                if let Some(row) = self.rows().get(self.header(astack).binding) {
                    row.tally.refused();
                }
                self.post_refusal(astack, message, refusal);
            }
            if self.leave(index) {
                return true;
            }
        }
        false
    }

    /// Ends the session's use of it: threads leave, queued A-stacks are skipped. Threads that sleep
    /// there are to be rung for; the words are not touched, for that would give memory to A-stacks
    /// that were never used.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // SYNC: rouse, the other half is in `Desk::sleep`. Who comes to an A-stack after
        // those who are there were rung for sees that it is closed.
        fence(Ordering::SeqCst);
    }

    /// Whether the session has ended.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
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
        self.astacks.iter().filter_map(|one| match one.attention.by() {
            Attendance::At(desk) => Some(desk),
            Attendance::Idle | Attendance::Queued => None,
        })
    }
}

impl Calls for ServerRegion {
    fn is_given_up(&self, call: u64) -> bool {
        self.is_closed() || self.was_given_up((call >> 32) as u32, call as u32)
    }
}

/// What lies behind the message of a call.
fn extensions_of<'a>(space: Window<'a>, header: &CallHeader) -> Window<'a> {
    let at = align_up(header.total as usize);
    space.part(at, header.manner.extensions()).unwrap_or(Window::empty())
}
