//! Completes calls: packs their results, keeps results and refusals, and sends them.
//!
//! Most calls are completed by the receiving thread that has run their procedures. A deferred call may be
//! completed by any thread.

use core::sync::atomic::Ordering;

use super::records::Inner;
use super::retention::{ResultFrame, ThreadCache};
use super::waiting::WaitingFor;
use super::{CallBytes, ReceiverState, ServerSocket, Work};
use crate::call::{Answer, Ran, Refusal, refuse};
use crate::device::BYTES_MAX;
use crate::limits;
use crate::path::datagram::wire::packing::{pack, written_end};
use crate::protocol::exchange::header::Handle;
use crate::protocol::exchange::message::Shape;
use crate::protocol::exchange::server_end::Retain;
use crate::value::Space;

/// The memory and state with which one thread completes calls.
pub(super) struct ReplyState {
    /// The memory from which packets are sent.
    pub(super) output: Vec<u8>,
    pub(super) spare: ThreadCache,
    /// The handle of a record that this thread must forget. The thread does so as soon as it holds no lock.
    leaves: Option<Handle>,
    /// The offsets at which the blocks of a result begin.
    pub(super) blocks: Vec<u32>,
}

impl ReplyState {
    pub(super) fn new() -> Self {
        Self {
            output: vec![0; BYTES_MAX],
            spare: ThreadCache::default(),
            leaves: None,
            blocks: Vec::new(),
        }
    }
}

impl ResultFrame {
    /// Packs a result of at most `bytes` bytes that was built in this frame. Returns the shape of the packed
    /// result. `blocks` contains the offset at which each block begins.
    #[inline]
    pub(super) fn pack(&mut self, bytes: usize, ran: &Ran, blocks: &[u32]) -> Shape {
        let &Ran { answer, head_at, head_bytes, .. } = ran;
        let reply = self.reply(bytes);
        let outs = if answer == Answer::Ok { blocks } else { &[] };
        let touched = match answer {
            Answer::Ok => written_end(reply, outs).max(head_at as usize + head_bytes as usize),
            // Before the procedure failed, it may have written anywhere in the memory of the result.
            _ => bytes,
        };
        let (at, total) = pack(reply, outs, head_at as usize, head_bytes as usize);
        self.touch(touched);
        let (at, total) = (at as u32, total as u32);
        Shape { what: answer as u32, total, head: head_bytes, at, extension: 0 }
    }
}

impl ServerSocket {
    /// Counts a call as refused, and answers it with the refusal.
    #[cold]
    pub(crate) fn refuse_work(&self, receiver: &mut ReceiverState, work: Work, refusal: &Refusal) {
        receiver.serving.counting.refused(Some(&work.row.tally));
        work.row.report_refused(work.shape.what, work.body(), refusal);
        self.answer_refusal(receiver, work, refusal);
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Answers a call with a refusal that was already counted.
    #[cold]
    pub(super) fn answer_refusal(
        &self,
        receiver: &mut ReceiverState,
        work: Work,
        refusal: &Refusal,
    ) {
        if let CallBytes::Owned(estack, bytes) = work.message {
            self.done_with(work.group, estack, bytes);
        }
        let Some(record) = self.record(work.place) else { return };
        let mut inner = record.0.lock();
        inner.waits = WaitingFor::Nothing;
        self.reply_refusal(&mut receiver.reply, &mut inner, refusal);
        self.send_pending(inner, &mut receiver.reply.output, &receiver.serving.counting);
        self.forget_closed(&mut receiver.reply);
        if self.queued.any() {
            self.give_room(receiver);
        }
    }

    /// Answers a call whose thread panicked outside of the procedure. `place` is the place of the caller's
    /// record.
    #[cold]
    pub(crate) fn fail(&self, receiver: &mut ReceiverState, place: u32, refusal: &Refusal) {
        receiver.serving.forget();
        let Some(record) = self.record(place) else { return };
        let mut inner = record.0.lock();
        let deferred = inner.deferred.take();
        self.reply_refusal(&mut receiver.reply, &mut inner, refusal);
        self.send_pending(inner, &mut receiver.reply.output, &receiver.serving.counting);
        if let Some(cancels) = deferred.and_then(|call| call.cancels) {
            cancels.cancel();
        }
    }

    /// Completes the call of a record with a refusal as its result.
    #[cold]
    pub(super) fn reply_refusal(
        &self,
        state: &mut ReplyState,
        inner: &mut Inner,
        refusal: &Refusal,
    ) {
        // If there is no memory, the record keeps no result, and the client receives an empty result.
        let frame = self.results.frame(&mut state.spare, limits::MESSAGE_BYTES_MIN);
        let space = frame.as_ref().map(|frame| frame.reply(limits::MESSAGE_BYTES_MIN));
        let Ran { answer, head_at: at, head_bytes: head, .. } =
            refuse(space.unwrap_or(Space::none()), refusal);
        let shape = Shape { what: answer as u32, total: at + head, head, at, extension: 0 };
        match frame {
            Ok(mut frame) => {
                frame.touch(shape.total as usize);
                if let Some(frame) = self.keep(state, inner, shape, frame) {
                    self.results.recycle(&mut state.spare, frame);
                }
            }
            Err(_) => {
                self.ends(inner);
                inner.server_end.complete(Shape { total: 0, head: 0, at: 0, ..shape });
            }
        }
    }

    /// Completes the call of a record with a result, and keeps the result if the client may need it. Returns the
    /// frame if it still contains a small result that is kept: the result can be sent from there.
    #[inline]
    pub(super) fn keep(
        &self,
        state: &mut ReplyState,
        inner: &mut Inner,
        shape: Shape,
        frame: ResultFrame,
    ) -> Option<ResultFrame> {
        debug_assert!(inner.deferred.is_none(), "the reply of this call is owed by another thread");
        self.ends(inner);
        let (spare, group) = (&mut state.spare, inner.group);
        match inner.server_end.complete(shape) {
            Retain::Keep => {
                let (result, fresh) = self.results.keep(spare, group, frame, shape.total);
                inner.result = Some(result);
                return fresh;
            }
            Retain::Drop => self.results.recycle(spare, frame),
            Retain::Forget => {
                self.results.recycle(spare, frame);
                state.leaves = Some(inner.server_end.bound_handle());
            }
        }
        None
    }

    /// Forgets the record of a client that said goodbye during its last call. That call has ended now. The
    /// caller must not hold the lock of a record.
    #[inline]
    pub(super) fn forget_closed(&self, state: &mut ReplyState) {
        if let Some(handle) = state.leaves.take() {
            self.bye(handle, &mut state.spare);
        }
    }
}
