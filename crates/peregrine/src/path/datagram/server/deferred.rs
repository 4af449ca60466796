//! Deferred calls: calls of async procedures, whose replies any thread sends later.
//!
//! For the protocol, the procedure of such a call still runs: the client's packets are answered as for any
//! running procedure, and the record is not evicted. But no thread runs the procedure, and the memory of the
//! call's message is released. The thread that ends the procedure builds the result. Then it keeps and sends
//! the result, as a receiving thread does for other calls.
//!
//! If clients must first acknowledge other results, a reply with a large result is *postponed*: it waits in a
//! queue. Receiving threads send it when there is memory.
//!
//! | [`Inner::deferred`] becomes | by | when |
//! |---|---|---|
//! | a call with [`Cancels`] | the receiving thread | the procedure did not end at its first poll |
//! | a call without [`Cancels`] | any thread | the client gave up or counts as dead, or the server stopped |
//! | `None` | the thread that replies | the result is kept; then the client may make its next call |

#[cfg(test)]
mod tests;

use core::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::records::{Inner, Records};
use super::replying::ReplyState;
use super::retention::{BOXED_MAX, LimitReached, ResultFrame};
use super::waiting::WaitingFor;
use super::{CallBytes, ReceiverState, ServerSocket, Work};
use crate::call::deferred::{Cancels, Owed};
use crate::call::{Answer, Answered, Refusal, write_later};
use crate::error::{Executed, Kind};
use crate::path::datagram::peer::moment;
use crate::protocol::exchange::message::Shape;
use crate::protocol::exchange::time::Moment;
use crate::serving::deferrals::Deferral;

/// The number of [`ReplyState`]s that are kept for threads that send replies.
pub(super) const REPLY_STATES_KEPT: usize = 8;

/// The deferred call of a record.
pub(super) struct DeferredCall {
    sequence: u32,
    /// Cancels the procedure. `None` after the procedure was cancelled.
    pub(super) cancels: Option<Arc<dyn Cancels>>,
}

/// The duty to complete a deferred call.
pub(super) struct OwedReply {
    service: Weak<ServerSocket>,
    place: u32,
    sequence: u32,
    group: u16,
    /// The largest size in bytes that the result may have.
    bytes: usize,
    deferral: Deferral,
}

/// A reply that waits for memory for its result.
pub(super) struct PostponedReply {
    owed: OwedReply,
    answered: Answered,
    /// The number of bytes that the budget of waiting calls charges for the reply.
    charged: usize,
}

impl Records {
    /// Defers a running call. The upper half of `call` is the place of the caller's record, and the lower
    /// half is the sequence number of the call. Returns `None` if the call cannot be deferred.
    pub(super) fn defer_call(&self, call: u64, cancels: Arc<dyn Cancels>) -> Option<Box<dyn Owed>> {
        let (place, sequence) = ((call >> 32) as u32, call as u32);
        let service = self.service.upgrade()?;
        let mut inner = self.record(place)?.0.lock();
        let row = Arc::clone(inner.row.as_ref()?);
        let (group, bytes) = (inner.group, row.message_bytes);
        let deferral = self.deferrals.begin(row, inner.server_end.running_bytes() as usize)?;
        // If the call is cancelled already, it was counted as captured. From now on no thread runs it, so it
        // must not count as captured any more.
        service.ends(&mut inner);
        let is_given_up = inner.server_end.is_cancelled();
        let is_stopped = self.stopped.load(Ordering::SeqCst);
        let kept = (!is_given_up && !is_stopped).then(|| Arc::clone(&cancels));
        inner.deferred = Some(Box::new(DeferredCall { sequence, cancels: kept }));
        drop(inner);
        if is_given_up {
            cancels.cancel();
        } else if is_stopped {
            cancels.stop();
        }
        let service = Weak::clone(&self.service);
        Some(Box::new(OwedReply { service, place, sequence, group, bytes, deferral }))
    }
}

impl Owed for OwedReply {
    fn leave_uncounted(&mut self, awaited: bool) {
        self.deferral.leave_uncounted(awaited);
    }

    fn answer(self: Box<Self>, answered: Answered) {
        // If the socket was dropped, no client waits for the reply.
        let Some(service) = self.service.upgrade() else { return };
        service.with_reply_state(|state| service.reply_or_postpone(state, *self, answered));
    }
}

impl Inner {
    /// Removes and returns the deferred call, if it has this sequence number.
    fn take_deferred(&mut self, sequence: u32) -> Option<Box<DeferredCall>> {
        let is_it = self.deferred.as_ref().is_some_and(|call| call.sequence == sequence);
        if is_it { self.deferred.take() } else { None }
    }
}

impl ServerSocket {
    /// Returns whether any reply to a deferred call of the server is still owed.
    pub(crate) fn has_deferred(&self) -> bool {
        self.records.deferrals.pending() > 0
    }

    /// Ends this thread's work on a call whose reply another thread will send. That thread may have sent
    /// the reply already, and the record may belong to the client's next call. So this function does not
    /// use the record.
    #[cold]
    pub(super) fn leave_deferred(
        &self,
        receiver: &mut ReceiverState,
        work: Work,
        frame: ResultFrame,
    ) -> Moment {
        self.results.recycle(&mut receiver.reply.spare, frame);
        if let CallBytes::Owned(estack, bytes) = work.message {
            self.done_with(work.group, estack, bytes);
        }
        if self.queued.any() {
            self.give_room(receiver);
        }
        moment()
    }

    /// Drops the procedures of all deferred calls, because the server stops. Their callers get refusals. If a
    /// refusal is lost, the caller notices later that the server is gone.
    pub(crate) fn stop_deferred(&self) {
        // SYNC: datagram-stop. `defer_call` reads this flag while it holds the lock of the record. So either
        // `defer_call` sees the flag, or this function finds the deferred call.
        self.records.stopped.store(true, Ordering::SeqCst);
        for record in self.records.all() {
            let mut inner = record.0.lock();
            let cancels = inner.deferred.as_mut().and_then(|call| call.cancels.take());
            drop(inner);
            if let Some(cancels) = cancels {
                cancels.stop();
            }
        }
        while let Some((group, reply)) = self.replies.next(|_, _| Ok(())) {
            self.calls.subtract(group, reply.charged);
            self.with_reply_state(|state| self.reply(state, reply.owed, &no_memory().into()));
        }
    }

    /// Runs `with` on a spare [`ReplyState`], for a thread that does not receive.
    fn with_reply_state(&self, with: impl FnOnce(&mut ReplyState)) {
        let mut state = self.reply_states.take().unwrap_or_else(ReplyState::new);
        with(&mut state);
        self.reply_states.put(state, 1);
    }

    /// Sends the reply to a deferred call, or postpones it if there is no memory for its result.
    fn reply_or_postpone(&self, state: &mut ReplyState, owed: OwedReply, answered: Answered) {
        let (group, charged) = (owed.group, answered.packed_bytes());
        if charged <= BOXED_MAX || !self.is_short_of_results(group) {
            return self.reply(state, owed, &answered);
        }
        if self.results.is_stalled(group) || !self.calls.reserve(group, charged) {
            return self.reply(state, owed, &no_memory().into());
        }
        if let Some(record) = self.record(owed.place) {
            record.0.lock().waits = WaitingFor::ResultRoom;
        }
        self.replies.push(group, PostponedReply { owed, answered, charged });
        // Clients may have acknowledged results before the queue contained this reply. So the queue is
        // examined now.
        self.send_postponed(state);
    }

    /// Sends the postponed replies for whose results there is memory. Also answers calls that were cancelled,
    /// and calls that have waited for too long because clients do not acknowledge their results.
    #[cold]
    pub(super) fn send_postponed(&self, state: &mut ReplyState) {
        let may = |group, reply: &PostponedReply| {
            let waits = self.is_short_of_results(group)
                && !self.results.is_stalled(group)
                && !self.is_given_up(&reply.owed);
            if waits { Err(LimitReached::Group) } else { Ok(()) }
        };
        while let Some((group, reply)) = self.replies.next(may) {
            let PostponedReply { owed, answered, charged } = reply;
            self.calls.subtract(group, charged);
            self.calls.note_progress(group);
            let answered = if self.is_given_up(&owed) {
                Refusal::abandoned("its caller has given up").into()
            } else if self.results.is_stalled(group) && self.is_short_of_results(group) {
                no_memory().into()
            } else {
                answered
            };
            self.reply(state, owed, &answered);
        }
    }

    /// Sends postponed replies even if no packet arrives, for example because all clients are dead.
    pub(super) fn check_postponed(&self) {
        if self.replies.any() {
            self.with_reply_state(|state| self.send_postponed(state));
        }
    }

    /// Returns whether the client has given up the call to which a reply is owed.
    fn is_given_up(&self, owed: &OwedReply) -> bool {
        let record = self.record(owed.place);
        record.is_some_and(|record| record.0.lock().server_end.is_call_cancelled(owed.sequence))
    }

    /// Builds the result of a deferred call, keeps it, and sends it.
    fn reply(&self, state: &mut ReplyState, owed: OwedReply, answered: &Answered) {
        let OwedReply { place, sequence, bytes, deferral, .. } = owed;
        let built = self.build(state, bytes, answered);
        let Some(record) = self.record(place) else { return };
        let mut inner = record.0.lock();
        // `_call` may have the last reference to the procedure. So `_call` is dropped only after the lock is
        // released.
        let Some(_call) = inner.take_deferred(sequence) else { return };
        inner.waits = WaitingFor::Nothing;
        let (answer, total, fresh) = match built {
            Some((result, frame)) => {
                let fresh = self.keep(state, &mut inner, result, frame);
                (Answer::from_number(result.what), result.total, fresh)
            }
            None => {
                self.reply_refusal(state, &mut inner, &no_memory());
                (None, 0, None)
            }
        };
        self.send_result(inner, fresh, state, &*self.records.deferrals);
        self.forget_closed(state);
        deferral.end(answer.unwrap_or(Answer::MayHaveExecuted), total.into());
    }

    /// Builds a result of at most `bytes` bytes. Returns `None` if there is no memory.
    fn build(
        &self,
        state: &mut ReplyState,
        bytes: usize,
        answered: &Answered,
    ) -> Option<(Shape, ResultFrame)> {
        let mut frame = self.results.frame(&mut state.spare, bytes).ok()?;
        let ran = write_later(answered, frame.reply(bytes), &mut state.blocks);
        let result = frame.pack(bytes, &ran, &state.blocks);
        Some((result, frame))
    }
}

/// Makes the refusal for a procedure that ran, but for whose result there is no memory.
#[cold]
fn no_memory() -> Refusal {
    let text = "the procedure ran, but there is no memory for its result".into();
    Refusal { kind: Kind::Exhausted, executed: Executed::Maybe, text }
}
