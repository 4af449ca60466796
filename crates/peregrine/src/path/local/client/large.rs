//! Calls with a large message or a large reply. Client and server work on two processors at the same time:
//! one side reads what the other side has written so far.

use core::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::{
    CallState, LocalPath, ReplyWait, SMALL_BYTES, bytes_of_reply, extend, take_blocks,
    unknown_answer,
};
use crate::call::accounted;
use crate::call::chain::WaitingInside;
use crate::call::{Answer, Call, Layout, Returned, inside};
use crate::error::CallError;
use crate::limits;
use crate::path::local::peer::ClientRegion;
use crate::path::local::peer::wait::{Waiter, wait, wait_longer};
use crate::path::local::region::chunks::ChunkWriter;
use crate::path::local::region::header::CallFlags;
use crate::steps::{self, Step};

impl LocalPath {
    /// Makes a call whose message is large. The server's thread runs on another processor.
    #[cold]
    #[inline(never)]
    pub(super) fn transport_large(
        &self,
        call: &mut Call<'_, '_, '_>,
    ) -> Result<Returned, CallError> {
        let region = &*self.region;
        let index = call.frame.index();
        let begun = region.begin_message(call, self.message_bytes);
        let (layout, flags, writer) = begun.ok_or_else(|| self.too_large(call))?;
        let outs: usize = call.outs.iter().map(|out| out.capacity()).sum();
        if layout.total.max(outs) > SMALL_BYTES || index >= limits::ASTACKS {
            region.note_large(index);
        }
        self.exchange_large(call, &layout, flags, Some(writer))
    }

    /// Makes a call whose message was already written to the A-stack. The reply is expected to be large,
    /// because the last reply was large.
    #[cold]
    #[inline(never)]
    pub(super) fn transport_large_reply(
        &self,
        call: &mut Call<'_, '_, '_>,
        layout: Layout,
    ) -> Result<Returned, CallError> {
        self.exchange_large(call, &layout, CallFlags::EMPTY, None)
    }

    /// Makes a call as [`exchange`](Self::exchange) does. If the call belongs to an account, records when it
    /// passes its steps.
    fn exchange_large(
        &self,
        call: &mut Call<'_, '_, '_>,
        layout: &Layout,
        flags: CallFlags,
        writer: Option<ChunkWriter<'_>>,
    ) -> Result<Returned, CallError> {
        if !call.terms.are_accounted() {
            return self.exchange::<false>(call, layout, flags, writer);
        }
        accounted::enter(call);
        let returned = self.exchange::<true>(call, layout, flags.with_mark(), writer);
        steps::record(Step::Taken);
        let head = returned.as_ref().map_or(0, |returned| returned.head_bytes);
        steps::note_received(bytes_of_reply(call, head));
        returned
    }

    /// Posts a call, receives its reply, and posts the call again if the server asks for that. `writer`
    /// writes the rest of a message of which only the beginning was written. `writer` is `None` if the
    /// message is complete. `RECORDED`: the call belongs to an account.
    fn exchange<const RECORDED: bool>(
        &self,
        call: &mut Call<'_, '_, '_>,
        layout: &Layout,
        mut flags: CallFlags,
        mut writer: Option<ChunkWriter<'_>>,
    ) -> Result<Returned, CallError> {
        let region = &*self.region;
        let index = call.frame.index();
        let astack = &region.astacks[index as usize];
        let cpu = astack.client_cpu.load(Ordering::Relaxed);
        if astack.next_reply.get() != 0 {
            flags = region.expect_large_reply(index, flags);
        }
        let (inside, deadline) = (inside(), call.terms.deadline());
        if inside.is_some() || call.terms.are_sent() {
            flags = flags.with_extensions(extend(call, layout.total, inside)?);
        }
        let _waiting = inside.map(|_| WaitingInside::begin());
        let state = CallState { astack, index, cpu, deadline };
        let offset = flags.reply_offset();
        let (answer, header) = loop {
            if let Some(writer) = &writer {
                writer.announce(first_bytes(layout));
            }
            // From here on, the server may run the call.
            let id = self.post::<RECORDED>(call, &state, layout, flags);
            if let Some(writer) = writer.take() {
                region.write_rest(call, layout, &writer);
            }
            let header = if offset == 0 {
                self.receive::<RECORDED>(&state, id, wait)?
            } else {
                let [_, progress] = region.progress_words(index);
                self.receive::<RECORDED>(&state, id, |word, last, state, reply| {
                    let mut reply = LargeReplyWait { reply, call, offset, progress, taken: 0 };
                    wait_longer(word, last, state, &mut reply)
                })?
            };
            match Answer::from_number(header.answer) {
                // The server stopped waiting for the message, for example because this thread did not run for
                // a while. The message is complete now.
                Some(Answer::PostAgain) if flags.is_arriving() => flags = flags.without_arriving(),
                Some(Answer::PostAgain) | None => return Err(unknown_answer()),
                Some(answer) => break (answer, header),
            }
        };
        let mut head_at = header.head_at;
        if offset != 0 {
            region.confirm_progress(call);
            // The addition saturates. So an offset outside of the reply stays outside of the reply.
            head_at = head_at.saturating_add(offset as u32);
        }
        let mut bytes = header.head_at as usize + header.head_bytes as usize;
        if answer == Answer::Ok {
            bytes = bytes.max(take_blocks(call, offset)?);
        }
        if bytes > SMALL_BYTES || offset != 0 {
            region.note_reply(index, flags.reply_slot(), bytes);
        }
        Ok(Returned { answer, head_at, head_bytes: header.head_bytes })
    }
}

impl ClientRegion {
    /// Lays a large message out at the next slot (an offset in the space for messages), and writes its
    /// beginning. The returned writer writes the rest, and the server reads the message meanwhile. Returns
    /// `None` if the message does not fit.
    #[cold]
    fn begin_message<'a>(
        &'a self,
        call: &mut Call<'_, '_, '_>,
        message_bytes: usize,
    ) -> Option<(Layout, CallFlags, ChunkWriter<'a>)> {
        let index = call.frame.index();
        let astack = &self.astacks[index as usize];
        let layout = call.layout();
        if layout.total > message_bytes {
            return None;
        }
        let mut flags = CallFlags::EMPTY.with_arriving();
        // If the head alone is large, it was already written at the start of the space, and is not moved.
        if layout.head <= SMALL_BYTES {
            let slot = astack.next_call.get().max(1);
            astack.next_call.advance(slot, layout.total);
            flags = flags.with_call_slot(slot);
            let (at, space) = (flags.call_offset(), call.frame.call_space());
            call.head.move_to(space.part(at, space.len() - at)?)?;
        }
        let [progress, _] = self.progress_words(index);
        let writer = ChunkWriter::new(&astack.store_mode, progress);
        call.put_part(0, first_bytes(&layout), &writer)?;
        Some((layout, flags, writer))
    }

    /// Writes the rest of a large message.
    #[cold]
    fn write_rest(&self, call: &mut Call<'_, '_, '_>, layout: &Layout, writer: &ChunkWriter<'_>) {
        // The layout was checked against the size of the space, so writing cannot fail.
        let _ = call.put_part(first_bytes(layout), layout.total, writer);
        writer.announce(layout.total);
    }

    /// Resets the progress word of the reply. Returns `flags` with the slot at which the server must begin
    /// the reply. A slot other than 0 also requests that the server announces its progress.
    #[cold]
    fn expect_large_reply(&self, index: u32, flags: CallFlags) -> CallFlags {
        let [_, progress] = self.progress_words(index);
        progress.store(0, Ordering::Relaxed);
        flags.with_reply_slot(self.astacks[index as usize].next_reply.get())
    }

    /// If the server has changed bytes of the reply after it had announced them, discards what the client
    /// has read of the reply so far.
    #[cold]
    fn confirm_progress(&self, call: &mut Call<'_, '_, '_>) {
        let [_, progress] = self.progress_words(call.frame.index());
        if progress.load(Ordering::Relaxed) == 0 {
            call.forget_early();
        }
    }

    /// Notes the size of a reply that was large, or that was expected to be large.
    #[cold]
    pub(super) fn note_reply(&self, index: u32, slot: u32, bytes: usize) {
        let astack = &self.astacks[index as usize];
        if bytes > SMALL_BYTES {
            self.note_large(index);
            astack.next_reply.advance(slot, bytes);
        } else {
            astack.next_reply.reset();
        }
    }
}

/// Returns how many bytes of a large message are written before the message is posted.
fn first_bytes(layout: &Layout) -> usize {
    SMALL_BYTES.max(layout.head)
}

/// The wait of a caller for a large reply. The caller reads the part that the server has already written.
struct LargeReplyWait<'a, 'w, 'c, 'f, 'o, 't> {
    reply: &'w mut ReplyWait<'a>,
    call: &'t mut Call<'c, 'f, 'o>,
    /// The offset at which the reply begins in its space.
    offset: usize,
    progress: &'a AtomicU32,
    /// The last value of the progress word that this caller saw.
    taken: u32,
}

impl Waiter for LargeReplyWait<'_, '_, '_, '_, '_, '_> {
    fn deadline(&self) -> Option<Instant> {
        self.reply.deadline()
    }

    fn is_over(&self) -> bool {
        self.reply.is_over()
    }

    fn on_long_wait(&self) {
        self.reply.on_long_wait();
    }

    fn poll_progress(&mut self) -> bool {
        // SYNC: arrival, in the server's `ChunkWriter::announce`.
        let there = self.progress.load(Ordering::Acquire);
        if there == self.taken {
            return false;
        }
        self.taken = there;
        self.call.take_early(self.offset, there as usize);
        true
    }
}
