//! The client's half of a local call: the client writes the call, posts it, waits for the reply, and reads
//! the reply.
//!
//! [`LocalPath::transport`] makes a call. If client and server run on two processors, `transport` leaves
//! calls with large messages or large expected replies to the `large` module. That module posts a call again
//! if the server asks for that.

mod large;
mod pending;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Instant;

use super::peer::wait::{WaitEnd, WaitState, Waiter, wait};
use super::peer::{ClientAstack, ClientRegion};
use super::region::header::{CallFlags, CallHeader, ReplyHeader};
use super::region::slots::SLOT_BYTES;
use super::region::word::{self, Look, Notify, posted};
use crate::call::accounted;
use crate::call::chain::WaitingInside;
use crate::call::extensions::Extensions;
use crate::call::{Answer, Begun, Call, CallPath, Layout, PathKind, Returned, Wait, inside};
use crate::error::CallError;
use crate::limits;
use crate::stats::{Moment, stamp};
use crate::steps::{self, Step};
use crate::sys;
use crate::value::align_up;

/// The local path over which a binding calls its export.
#[derive(Debug)]
pub(crate) struct LocalPath {
    pub(crate) region: Arc<ClientRegion>,
    /// The number of the binding in its session.
    pub(crate) binding: u32,
    /// Whether the server has withdrawn the export.
    pub(crate) revoked: Arc<AtomicBool>,
    /// The size in bytes of the largest message that both the client and the region allow.
    pub(crate) message_bytes: usize,
    /// The size in bytes of the largest message that the client's options allow.
    pub(crate) own_bytes: usize,
    pub(crate) wait: Wait,
}

/// The size in bytes of the largest small message. A message with more bytes is large.
const SMALL_BYTES: usize = SLOT_BYTES;

impl CallPath for LocalPath {
    /// Makes a call. If the server runs on another processor, leaves the call to the `large` module in two
    /// cases: the message is large, or the reply is expected to be large.
    #[inline]
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        let index = call.frame.index();
        let region = &*self.region;
        let astack = &region.astacks[index as usize];
        if !region.session.is_alive() {
            return Err(region.session.refusal());
        }
        // If the server runs on another processor, the server reads a large message while the client is still
        // writing the message.
        let cpu = astack.client_cpu.load(Ordering::Relaxed);
        let apart = astack.server_cpu.load(Ordering::Relaxed) != cpu;
        let Some(layout) = call.put(if apart { SMALL_BYTES } else { usize::MAX }) else {
            return if apart { self.transport_large(call) } else { Err(self.too_large(call)) };
        };
        if layout.total > self.message_bytes {
            return Err(self.too_large(call));
        }
        let outs: usize = call.outs.iter().map(|out| out.capacity()).sum();
        if layout.total.max(outs) > SMALL_BYTES || index >= limits::ASTACKS {
            region.note_large(index);
        }
        if apart && astack.next_reply.get() != 0 {
            return self.transport_large_reply(call, layout);
        }
        let (inside, deadline) = (inside(), call.terms.deadline());
        let mut flags = CallFlags::EMPTY;
        let state = CallState { astack, index, cpu, deadline };
        if inside.is_some() || !call.terms.are_none() {
            if inside.is_some() || call.terms.are_sent() {
                flags = flags.with_extensions(extend(call, layout.total, inside)?);
            }
            if call.terms.are_accounted() {
                return self.transport_recorded(call, &state, &layout, flags, inside);
            }
        }
        let _waiting = inside.map(|_| WaitingInside::begin());

        // From here on, the server may run the call.
        let id = self.post::<false>(call, &state, &layout, flags);
        let header = self.receive::<false>(&state, id, wait)?;
        self.take(call, index, header)
    }

    fn begin(&self, call: &mut Call<'_, '_, '_>) -> Result<Begun, CallError> {
        self.begin_pending(call)
    }

    fn poll(&self, call: &mut Call<'_, '_, '_>) -> Option<Result<Returned, CallError>> {
        self.poll_pending(call)
    }

    fn arm(&self, frame: u32, deadline: Option<Instant>) {
        self.arm_pending(frame, deadline);
    }

    fn give_up(&self, call: &mut Call<'_, '_, '_>) -> CallError {
        self.give_up_pending(call)
    }

    fn is_prepared(&self, _frame: u32) -> bool {
        true
    }

    fn prepare(&self, _frame: u32, _deadline: Option<Instant>) -> Result<(), CallError> {
        Ok(())
    }

    fn message_bytes(&self) -> usize {
        self.message_bytes
    }

    fn retransmissions(&self, _frame: u32) -> u32 {
        0
    }

    fn server_cpu(&self, frame: u32) -> Option<u32> {
        let cpu = self.region.astacks[frame as usize].server_cpu.load(Ordering::Relaxed);
        (cpu != u32::MAX).then_some(cpu)
    }

    fn wait(&self) -> Wait {
        self.wait
    }

    fn kind(&self) -> PathKind {
        PathKind::Local
    }

    fn explain(&self) -> String {
        String::new()
    }

    fn is_alive(&self) -> bool {
        self.region.session.is_alive() && !self.revoked.load(Ordering::Acquire)
    }

    fn captures(&self, _frame: u32) -> bool {
        false
    }

    fn is_released(&self, frame: u32) -> bool {
        self.region.is_released(frame)
    }
}

impl LocalPath {
    /// Makes a call of an account: records when the call passes its steps.
    #[cold]
    #[inline(never)]
    fn transport_recorded(
        &self,
        call: &mut Call<'_, '_, '_>,
        state: &CallState<'_>,
        layout: &Layout,
        flags: CallFlags,
        inside: Option<u32>,
    ) -> Result<Returned, CallError> {
        let _waiting = inside.map(|_| WaitingInside::begin());
        accounted::enter(call);
        let id = self.post::<true>(call, state, layout, flags.with_mark());
        let header = self.receive::<true>(state, id, wait)?;
        let returned = self.take(call, state.index, header);
        steps::record(Step::Taken);
        steps::note_received(bytes_of_reply(call, header.head_bytes));
        returned
    }

    /// Reads a small reply, whose header is `header`.
    #[inline(always)]
    fn take(
        &self,
        call: &mut Call<'_, '_, '_>,
        index: u32,
        header: ReplyHeader,
    ) -> Result<Returned, CallError> {
        let answer = match Answer::from_number(header.answer) {
            Some(Answer::PostAgain) | None => return Err(unknown_answer()),
            Some(answer) => answer,
        };
        let mut bytes = header.head_at as usize + header.head_bytes as usize;
        if answer == Answer::Ok {
            bytes = bytes.max(take_blocks(call, 0)?);
        }
        if bytes > SMALL_BYTES {
            self.region.note_reply(index, 0, bytes);
        }
        Ok(Returned { answer, head_at: header.head_at, head_bytes: header.head_bytes })
    }

    #[cold]
    fn too_large(&self, call: &Call<'_, '_, '_>) -> CallError {
        let server = self.region.message_bytes();
        CallError::too_large(call.layout().total, self.own_bytes, Some(server))
    }

    /// Writes the head and the header of a call, and posts the call. The caller of this function has already
    /// written the rest of the message, or writes the end of a large message later. Returns the value of the
    /// call word. `RECORDED`: the call belongs to an account.
    #[inline(always)]
    fn post<const RECORDED: bool>(
        &self,
        call: &mut Call<'_, '_, '_>,
        state: &CallState<'_>,
        layout: &Layout,
        flags: CallFlags,
    ) -> u32 {
        let CallState { astack, index, cpu, .. } = *state;
        let header = CallHeader {
            binding: self.binding,
            procedure: call.procedure,
            head_bytes: layout.head as u32,
            copied: layout.copied as u32,
            total: layout.total as u32,
            cpu,
            flags,
        };
        let memory = &self.region.memory;
        let sequence = astack.sequence.load(Ordering::Relaxed).wrapping_add(1);
        astack.sequence.store(sequence, Ordering::Relaxed);
        let id = posted(sequence);
        let call_word = memory.word(astack.call_at);
        // The first bytes of the message, the header and the word share a cache line, so they are written
        // together. No write can fail, because the layout was checked against the size of the region.
        call.head.flush();
        let _ = memory.space().write_plain(astack.call_at + 4, &header.words());
        stamp(Moment::Ready);
        if RECORDED {
            steps::record(Step::Sending);
        }
        match word::post(call_word, id) {
            Notify::Nothing => {}
            Notify::Wake => drop(sys::futex_wake(call_word)),
            Notify::Ring => self.region.session.ring(index),
        }
        stamp(Moment::Posted);
        if RECORDED {
            steps::record(Step::Sent);
        }
        id
    }

    /// Waits with `wait` for the reply to call `id`, and reads the header of the reply.
    #[inline(always)]
    fn receive<'a, const RECORDED: bool>(
        &'a self,
        state: &CallState<'_>,
        id: u32,
        wait: impl FnOnce(&'a AtomicU32, u32, &mut WaitState, &mut ReplyWait<'a>) -> WaitEnd,
    ) -> Result<ReplyHeader, CallError> {
        let CallState { astack, index, cpu, deadline } = *state;
        let region = &*self.region;
        let last = astack.last_reply.load(Ordering::Relaxed);
        let peer_cpu = astack.server_cpu.load(Ordering::Relaxed);
        let mut state = WaitState { wait: self.wait, own_cpu: cpu, peer_cpu };
        let reply_word = region.memory.word(astack.reply_at);
        let end =
            wait(reply_word, last, &mut state, &mut ReplyWait { region, index, id, deadline });
        stamp(Moment::Seen);
        if RECORDED {
            steps::record(Step::Received);
        }
        astack.client_cpu.store(state.own_cpu, Ordering::Relaxed);
        match end {
            WaitEnd::Posted(reply) if reply == id => {
                astack.last_reply.store(reply, Ordering::Relaxed)
            }
            WaitEnd::Posted(reply) => return Err(foreign_reply(astack, reply)),
            // A reply that was posted just before the end of the session is valid.
            end if word::look(reply_word, last) != Look::Posted(id) => {
                return Err(region.no_reply(index, id, end));
            }
            _ => astack.last_reply.store(id, Ordering::Relaxed),
        }
        Ok(self.reply_header(astack))
    }

    /// Reads the header of a reply that was posted.
    #[inline(always)]
    fn reply_header(&self, astack: &ClientAstack) -> ReplyHeader {
        let words = self.region.memory.space().read_plain(astack.reply_at + 4);
        let header = ReplyHeader::of(words.unwrap_or([u32::MAX; 4]));
        astack.server_cpu.store(header.cpu, Ordering::Relaxed);
        header
    }
}

/// The values that are needed to post a call and to receive its reply.
struct CallState<'a> {
    astack: &'a ClientAstack,
    index: u32,
    /// The processor on which the caller last ran, as far as the caller knows.
    cpu: u32,
    deadline: Option<Instant>,
}

/// Copies the out blocks of a reply that begins at byte `offset` of its space. Returns the offset of the end
/// of the last block in the reply.
#[inline(always)]
fn take_blocks(call: &mut Call<'_, '_, '_>, offset: usize) -> Result<usize, CallError> {
    call.take_blocks(offset).map_err(|invalid| CallError::bad_result(invalid.to_string()))
}

/// Returns the number of bytes of a reply: of its head, and of the blocks that are filled.
#[cold]
fn bytes_of_reply(call: &Call<'_, '_, '_>, head: u32) -> usize {
    let blocks = call.outs.iter().map(|out| align_up(out.filled_bytes()));
    head as usize + blocks.sum::<usize>()
}

#[cold]
fn foreign_reply(astack: &ClientAstack, reply: u32) -> CallError {
    astack.last_reply.store(reply, Ordering::Relaxed);
    CallError::bad_result("the reply belongs to another call")
}

#[cold]
fn unknown_answer() -> CallError {
    CallError::bad_result("unknown kind of answer")
}

/// Writes the extensions of a call after its message. A call has extensions if a procedure makes the call, or
/// if the call has a deadline or metadata. Returns the size of the extensions in bytes.
#[cold]
fn extend(call: &Call<'_, '_, '_>, total: usize, inside: Option<u32>) -> Result<u32, CallError> {
    let extensions = Extensions::of(inside, call.terms)?;
    let extensions = extensions.as_bytes();
    let written = call.head.space().write(align_up(total), extensions);
    // Wherever the largest message begins, the space after it suffices for the extensions.
    written
        .map(|()| extensions.len() as u32)
        .ok_or_else(|| CallError::too_large(total, total, None))
}

/// The wait of a caller for the reply to its call.
struct ReplyWait<'a> {
    region: &'a ClientRegion,
    index: u32,
    /// The [`posted`] value of the call.
    id: u32,
    deadline: Option<Instant>,
}

impl Waiter for ReplyWait<'_> {
    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn is_over(&self) -> bool {
        !self.region.session.is_alive()
    }

    /// Ends the session if a stray write has destroyed the call or its reply. If the server has not taken the
    /// call, rings again: sends a message on the session's socket. The assigned thread may be running another
    /// procedure, or the first ring may have been lost.
    fn on_long_wait(&self) {
        self.region.check_words(self.index, self.id);
        if !self.region.was_taken(self.index, self.id) {
            self.region.session.ring(self.index);
        }
    }
}
