//! The server's half of a local call: the server receives the call, copies it, runs the procedure, and posts
//! the reply.
//!
//! [`Worker`](worker::Worker) is a thread that polls A-stacks. For each posted call it runs
//! [`ServerRegion::serve`].

pub(crate) mod arrival;
pub(crate) mod assignment;
pub(crate) mod astacks;
mod capture;
mod deferred;
pub(crate) mod handle;
mod names;
mod pool;
pub(crate) mod processors;
pub(crate) mod sessions;
pub(crate) mod worker;

use core::sync::atomic::Ordering;
use std::sync::Arc;

use self::arrival::Arrival;
use self::astacks::{NO_CALL, ServerAstack, ServerRegion};
use super::region::HEADER_BYTES;
use super::region::chunks::ChunkWriter;
use super::region::header::{CallFlags, CallHeader, ReplyHeader};
use super::region::word::{self, Look, Notify};
use crate::call::accounted;
use crate::call::deferred::{Cancels, Owed};
use crate::call::streams::STREAMS;
use crate::call::{
    Account, Answer, Calls, EStack, Incoming, Ran, Refusal, execute, extensions, refuse,
};
use crate::counters::Counting;
use crate::serving::binding_table::{BindingCache, BindingRow};
use crate::serving::procedure::{IncomingCall, Serving};
use crate::stats::{Moment, stamp};
use crate::steps::{self, Step};
use crate::sys;
use crate::value::{Space, Window, align_up};

/// The state that a worker thread needs to run procedures.
pub(crate) struct Executor {
    estack: EStack,
    pub(super) serving: Serving,
    rows: BindingCache,
    /// The number of calls that the thread has served.
    pub(super) served: u64,
    /// The processor on which the thread last ran, as far as the thread knows.
    pub(super) cpu: u32,
}

impl Executor {
    pub(crate) fn new(counting: Counting) -> Self {
        Self {
            estack: EStack::default(),
            serving: Serving::new(counting),
            rows: BindingCache::default(),
            served: 0,
            cpu: sys::current_cpu(),
        }
    }

    /// Forgets the last caller and frees memory that is not needed now. A sleeping thread must not keep an
    /// exported object alive.
    pub(crate) fn forget(&mut self) {
        self.rows.forget();
        self.serving.forget();
        self.estack.trim();
    }
}

impl ServerRegion {
    /// Serves call `id`: takes the call, runs its procedure, and posts the reply. Returns the processor on
    /// which the caller last ran. Returns `None` if the reply is deferred: the caller of this function must
    /// then [detach](Self::detach) the A-stack.
    ///
    /// # Panics
    /// If the procedure panics. No reply is posted then.
    #[inline]
    pub(super) fn serve(
        self: &Arc<Self>,
        index: u32,
        id: u32,
        executor: &mut Executor,
    ) -> Option<u32> {
        stamp(Moment::Seen);
        let astack = &self.astacks[index as usize];
        astack.last_call.store(id, Ordering::Relaxed);
        let queued = astack.queued.load(Ordering::Relaxed);
        if queued != NO_CALL && queued != id {
            // `queued` holds the number of an earlier call. It is cleared because numbers wrap: a later call
            // that was not queued may get the same number.
            astack.queued.store(NO_CALL, Ordering::Relaxed);
        }
        executor.served += 1;
        let header = self.header(astack);
        self.run_call::<false>(index, id, header, executor)
    }

    /// Runs a call of an account: records when the call passes its steps.
    #[cold]
    #[inline(never)]
    fn run_recorded(
        self: &Arc<Self>,
        index: u32,
        id: u32,
        mut header: CallHeader,
        executor: &mut Executor,
    ) -> Option<u32> {
        steps::forget();
        steps::record(Step::Received);
        header.flags = header.flags.without_mark();
        self.run_call::<true>(index, id, header, executor)
    }

    /// Runs the procedure of a call, and posts the reply. `RECORDED`: the call belongs to an account.
    #[inline(always)]
    fn run_call<const RECORDED: bool>(
        self: &Arc<Self>,
        index: u32,
        id: u32,
        header: CallHeader,
        executor: &mut Executor,
    ) -> Option<u32> {
        let astack = &self.astacks[index as usize];
        let flags = header.flags;
        let (mut space, mut reply) = self.spaces(astack);
        let mut extensions = Window::empty();
        if !flags.is_empty() {
            if !RECORDED && flags.is_marked() {
                return self.run_recorded(index, id, header, executor);
            }
            (space, reply) = self.spaces_of(astack, flags);
            if flags.extensions() != 0 {
                extensions = extensions_of(space, &header);
            }
        }
        let Executor { estack, serving, rows, cpu, .. } = executor;
        let Some(row) =
            rows.get(self.number, header.binding, || self.bindings().get(header.binding))
        else {
            serving.counting.refused(None);
            self.post_refusal(astack, id, &BindingRow::refusal(None, 0));
            return Some(header.cpu);
        };
        let call = IncomingCall {
            number: u64::from(index) << 32 | u64::from(id),
            bytes: header.total,
            extensions,
            waited: || self.waited(astack, id),
            is_given_up: || self.was_given_up(index, id),
        };
        let mut guard = match serving.begin(row, call, || Arc::clone(self) as Arc<dyn Calls>) {
            Ok(guard) => guard,
            Err(refusal) => {
                row.report_refused(header.procedure, header.total, &refusal);
                self.post_refusal(astack, id, &refusal);
                return Some(header.cpu);
            }
        };
        let (arrival, writer);
        let (mut arrives, mut departs) = (None, None);
        if !flags.is_empty() {
            if flags.is_arriving() {
                let progress = self.memory.word(self.layout.progress_word(index));
                let total = header.total as usize;
                arrival = Arrival::new(&self.stalls, progress, &self.closed, total);
                arrives = Some(&arrival as _);
            }
            if flags.reply_offset() != 0 {
                let progress = self.memory.word(self.layout.reply_progress_word(index));
                writer = ChunkWriter::new(&astack.store_mode, progress);
                departs = Some(&writer);
            }
        }
        // The taken word is written before the procedure begins. If this process dies, the word shows the
        // client that the call may have executed.
        self.memory.word(astack.taken_at).store(id, Ordering::Relaxed);
        if RECORDED {
            steps::record(Step::Admitted);
            steps::record(Step::AdmittedAgain);
        }
        let incoming = Incoming {
            procedure: header.procedure,
            space,
            head_bytes: header.head_bytes as usize,
            copied: header.copied as usize,
            total: header.total as usize,
            arrives,
            departs: departs.map(|writer| writer as _),
        };
        let ran = guard.run(|serve| execute(serve, &incoming, reply, estack));
        if ran.answer == Answer::Deferred {
            if RECORDED {
                steps::forget();
            }
            guard.defer();
            return None;
        }
        if let Some(writer) = departs {
            writer.finish();
        }
        let Ran { answer, head_at, head_bytes, block_bytes, .. } = ran;
        let reply = ReplyHeader { answer: answer as u32, cpu: *cpu, head_at, head_bytes };
        self.post_as::<RECORDED>(astack, id, reply);
        // The reply was posted already, so that counting the call does not delay the caller.
        guard.end(answer, u64::from(head_bytes) + block_bytes as u64);
        if RECORDED {
            match answer {
                // The client posts the call again.
                Answer::PostAgain => steps::forget(),
                _ => accounted::end_of_call(&row.caller),
            }
        }
        Some(header.cpu)
    }

    /// Reads the header of the call on an A-stack.
    #[inline]
    fn header(&self, astack: &ServerAstack) -> CallHeader {
        // The header lies inside of the region, as the layout ensures, so reading cannot fail.
        let words = self.memory.space().read_plain(astack.call_at + 4);
        CallHeader::of(words.unwrap_or([u32::MAX; 7]))
    }

    /// Returns the spaces of the call and of the reply, for a call without flags.
    #[inline]
    fn spaces(&self, astack: &ServerAstack) -> (Window<'_>, Space<'_>) {
        let part = |at| self.memory.space().part(at + HEADER_BYTES, self.layout.bytes);
        let call = part(astack.call_at).unwrap_or(Space::none());
        (call.window(), part(astack.reply_at).unwrap_or(Space::none()))
    }

    /// Returns the spaces of the call and of the reply, for a call with any flags.
    #[cold]
    fn spaces_of(&self, astack: &ServerAstack, flags: CallFlags) -> (Window<'_>, Space<'_>) {
        let half = |at| self.memory.space().part(at + HEADER_BYTES, self.layout.space_bytes());
        let (call, reply) = (half(astack.call_at), half(astack.reply_at));
        // The flags can only name slots that the region has, so the slot begins before the end of the
        // space, and the subtraction cannot underflow.
        let (at, bytes) = (flags.call_offset(), self.layout.space_bytes());
        let call = call.and_then(|half| half.part(at, bytes - at));
        let reply = reply.and_then(|half| half.part(flags.reply_offset(), self.layout.bytes));
        (call.unwrap_or(Space::none()).window(), reply.unwrap_or(Space::none()))
    }

    /// Posts the reply to call `id`.
    #[inline]
    fn post(&self, astack: &ServerAstack, id: u32, header: ReplyHeader) {
        self.post_as::<false>(astack, id, header);
    }

    /// Posts the reply to call `id`. `RECORDED`: the call belongs to an account.
    #[inline(always)]
    fn post_as<const RECORDED: bool>(&self, astack: &ServerAstack, id: u32, header: ReplyHeader) {
        let reply_at = astack.reply_at;
        // The header lies inside of the region, as the layout ensures, so writing cannot fail.
        let _ = self.memory.space().write_plain(reply_at + 4, &header.words());
        let reply = self.memory.word(reply_at);
        stamp(Moment::Ready);
        if RECORDED {
            steps::record(Step::Sending);
        }
        if word::post(reply, id) == Notify::Wake {
            sys::futex_wake(reply);
        }
        stamp(Moment::Posted);
        if RECORDED {
            steps::record(Step::Sent);
        }
    }

    /// Posts a refusal instead of the result of call `id`.
    #[cold]
    fn post_refusal(&self, astack: &ServerAstack, id: u32, refusal: &Refusal) {
        let (_, reply) = self.spaces_of(astack, self.header(astack).flags);
        let Ran { answer, head_at, head_bytes, .. } = refuse(reply, refusal);
        let (answer, cpu) = (answer as u32, sys::current_cpu());
        self.post(astack, id, ReplyHeader { answer, cpu, head_at, head_bytes });
    }

    /// Posts a refusal of the last call on an A-stack, because the procedure of this call has panicked.
    #[cold]
    pub(super) fn post_panic(&self, index: u32, refusal: &Refusal) {
        let astack = &self.astacks[index as usize];
        self.post_refusal(astack, astack.last_call.load(Ordering::Relaxed), refusal);
    }

    /// Refuses the call that is posted on a queued A-stack, and unassigns the A-stack. The client rings
    /// (sends a message) for its next call there. Returns false if the client posts new calls faster than
    /// this function refuses them. The A-stack then stays queued, and a worker must serve its call.
    pub(crate) fn refuse(&self, index: u32, refusal: &Refusal) -> bool {
        /// The largest number of calls that are refused in a row.
        const ATTEMPTS: u32 = 64;
        let Some(astack) = self.astacks.get(index as usize) else { return true };
        for _ in 0..ATTEMPTS {
            if let Look::Posted(id) = self.look(index) {
                astack.last_call.store(id, Ordering::Relaxed);
                let header = self.header(astack);
                let row = self.bindings().get(header.binding);
                if let Some(row) = row {
                    row.tally.refused();
                    row.report_refused(header.procedure, header.total, refusal);
                }
                self.post_refusal(astack, id, refusal);
            }
            if self.unassign(index) {
                return true;
            }
        }
        false
    }

    /// Returns whether a procedure of this process may wait for the posted call: a procedure made the call,
    /// directly or through other processes, or the call moves items of streams.
    pub(crate) fn is_from_inside(&self, index: u32) -> bool {
        let astack = &self.astacks[index as usize];
        let header = self.header(astack);
        if header.procedure == STREAMS {
            return true;
        }
        let (space, _) = self.spaces_of(astack, header.flags);
        let extended = header.flags.extensions() != 0;
        extended && extensions::is_from_inside(extensions_of(space, &header))
    }
}

impl Calls for ServerRegion {
    fn is_given_up(&self, call: u64) -> bool {
        self.is_closed() || self.was_given_up((call >> 32) as u32, call as u32)
    }

    fn is_gone(&self) -> bool {
        self.is_closed()
    }

    fn defer(self: Arc<Self>, call: u64, cancels: Arc<dyn Cancels>) -> Option<Box<dyn Owed>> {
        self.defer_call(call, cancels)
    }

    fn with_account(&self, call: u64, with: &mut dyn FnMut(&dyn Account)) {
        if let Some(account) = self.account_of(call) {
            with(&account);
        }
    }
}

/// Returns the extensions of a call, which follow its message.
fn extensions_of<'a>(space: Window<'a>, header: &CallHeader) -> Window<'a> {
    let at = align_up(header.total as usize);
    space.part(at, header.flags.extensions()).unwrap_or(Window::empty())
}
