//! The steps of a call on an activity: begin, send, receive, and end. A thread that makes a call waits
//! between the steps. A pending call returns to its caller instead (see [`pending`](super::pending)).

use core::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Instant;

use super::activity::{
    Activity, CallSocket, ReceiveWait, ResultPlacement, SendFailure, Sending, Waited, send,
};
use super::association::LostReason;
use super::shared_socket::HeldLead;
use super::{DatagramPath, HandleProvider};
use crate::call::{Answer, Call, Layout, Returned};
use crate::error::{CallError, Executed, Kind};
use crate::path::datagram::peer::moment;
use crate::path::datagram::wire::message::Message;
use crate::protocol::exchange::client_end::{self, FailureReason, Outcome};
use crate::protocol::exchange::header::HEADER_BYTES;
use crate::protocol::exchange::message::{PIECE_MIN, Shape};
use crate::protocol::exchange::time::Moment;
use crate::steps::{self, Step};
use crate::sync::{Mutex, MutexGuard};
use crate::sys::IfFull;

/// A result of at least this many bytes is acknowledged at once, so that the server can free the memory of
/// the result. The additional packet costs little compared with the many packets of such a result.
const ACKNOWLEDGED_AT_ONCE: u32 = 1 << 20;

impl<R: HandleProvider> DatagramPath<R> {
    /// Checks whether a call may begin.
    #[inline]
    pub(super) fn check(&self, layout: &Layout) -> Result<(), CallError> {
        if layout.total > self.association.message_bytes() {
            return Err(self.too_large(layout.total));
        }
        match self.association.loss() {
            Some(loss) => Err(loss.failure()),
            None => Ok(()),
        }
    }

    /// Begins a call on an activity.
    #[inline]
    pub(super) fn begin_exchange(
        &self,
        activity: &mut Activity,
        call_socket: &CallSocket,
        shape: Shape,
    ) -> Result<(), CallError> {
        if activity.client_end.piece() > activity.piece_max {
            let piece = activity.piece_max;
            activity.client_end.reduce_piece(piece, moment());
        }
        if let Err(error) = activity.client_end.begin(shape) {
            return Err(self.not_begun(error, shape));
        }
        if let CallSocket::Shared(shared) = call_socket {
            shared.begin(activity);
        }
        activity.heard = None;
        (activity.sent, activity.send_failure) = (false, None);
        Ok(())
    }

    /// Returns whether the packets of the result are first received into memory outside of the frame, because
    /// there may be several packets. This memory is large enough for a whole GRO batch, that is, several
    /// packets that the kernel delivers together.
    #[inline]
    pub(super) fn stages(activity: &Activity, call: &Call<'_, '_, '_>) -> bool {
        let outs: usize = call.outs.iter().map(|out| out.capacity()).sum();
        outs + HEADER_BYTES > activity.client_end.piece() as usize
    }

    /// Sends what must be sent now, for a call that began at `began`. Returns how the call ended, if it has
    /// ended.
    #[inline]
    pub(super) fn advance(
        &self,
        activity: &mut Activity,
        call_socket: &CallSocket,
        sending: &Sending<'_>,
        (began, now): (Moment, Moment),
    ) -> Option<Result<Shape, CallError>> {
        send(activity, call_socket, sending, now);
        if let Some(send_failure) = activity.send_failure.take()
            && let Some(error) = self.handle_send_failure(activity, call_socket, send_failure)
        {
            return Some(Err(error));
        }
        match activity.client_end.outcome()? {
            Outcome::Returned(shape) => {
                activity.ended = now;
                if activity.client_end.piece() < self.terms.piece {
                    self.association.learn_piece(activity.client_end.piece());
                }
                Some(Ok(shape))
            }
            Outcome::Failed { executed, why } => {
                self.note_failure(activity, began, matches!(why, FailureReason::Dead));
                if matches!(why, FailureReason::Dead | FailureReason::Unreachable) {
                    self.association.lose(LostReason::Silent);
                } else if why == FailureReason::AddressChanged {
                    self.association.lose(LostReason::AddressLost);
                }
                Some(Err(failed(executed, why)))
            }
        }
    }

    /// Gives up the call of an activity, and sends the cancellation. Returns the error of the call.
    #[cold]
    pub(super) fn cancel(&self, activity: &mut Activity, now: Moment) -> CallError {
        activity.client_end.cancel(now);
        let executed = match activity.client_end.outcome() {
            Some(Outcome::Failed { executed, .. }) => executed.into(),
            _ => Executed::Maybe,
        };
        self.association.send_control(activity, now);
        CallError::new(Kind::TimedOut, executed, "the server has not answered")
    }

    /// Returns whether a call that has ended must be made again with a new handle. There are two possible
    /// reasons. The server has discarded the handle because the client was idle, or an earlier call still
    /// occupies the handle.
    #[inline]
    pub(super) fn wants_new_handle(
        &self,
        activity: &Activity,
        result: &Result<Shape, CallError>,
    ) -> bool {
        result.as_ref().is_err_and(|error| self.is_handle_lost(activity, error))
    }

    #[cold]
    fn is_handle_lost(&self, activity: &Activity, error: &CallError) -> bool {
        let client_end = &activity.client_end;
        if !client_end.is_closed() && !client_end.is_captured() {
            return false;
        }
        self.lost.store(true, Ordering::Relaxed);
        let not_run = error.executed() == Executed::No && error.kind() != Kind::TimedOut;
        not_run && !self.association.is_lost()
    }

    /// Makes one call on this activity.
    pub(super) fn exchange<'m>(
        &self,
        (mutex, mut activity): (&'m Mutex<Activity>, MutexGuard<'m, Activity>),
        message: &Message<'_>,
        shape: Shape,
        call: &Call<'_, '_, '_>,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'m, Activity>, Result<Shape, CallError>) {
        let association = &*self.association;
        let call_socket = match self.socket_of(activity.index) {
            Ok(call_socket) => call_socket,
            Err(error) => return (activity, Err(error)),
        };
        if let Err(error) = self.begin_exchange(&mut activity, call_socket, shape) {
            return (activity, Err(error));
        }
        let mut receiving = ResultPlacement {
            half: association.reply_half(activity.index),
            staged: Self::stages(&activity, call),
        };
        let half = association.half(activity.index, association.frames.layout().call_at);
        let sending = Sending { message, half, total: shape.total, if_full: IfFull::Wait };
        let mut waiting = ReceiveWait::new(self.wait, deadline);
        let mut leader: HeldLead<'_> = None;
        let mut now = moment();
        let began = now;
        let result = loop {
            let ended = self.advance(&mut activity, call_socket, &sending, (began, now));
            if let Some(ended) = ended {
                break ended;
            }
            let waited = match call_socket {
                CallSocket::Own(socket) => {
                    receiving.receive(&mut activity, socket, |activity, place| {
                        waiting.receive(activity, socket, place)
                    })
                }
                CallSocket::Shared(shared) => {
                    let waited;
                    let locked = (mutex, activity);
                    (activity, waited) =
                        shared.receive(association, locked, &mut leader, &mut waiting);
                    waited
                }
            };
            now = handle_wait(&mut activity, &waited);
            // The deadline is checked even after packets have arrived. Otherwise a call would never end if
            // packets arrive faster than this thread handles them.
            if activity.client_end.is_in_progress()
                && deadline.is_some_and(|deadline| Instant::now() >= deadline)
            {
                self.note_failure(&activity, began, false);
                break Err(self.cancel(&mut activity, now));
            }
            handle_timer(&mut activity, now);
        };
        (activity, result)
    }

    /// Handles the reason why a packet of the current call could not be sent. Returns an error if the call
    /// must fail.
    #[cold]
    fn handle_send_failure(
        &self,
        activity: &mut Activity,
        call_socket: &CallSocket,
        send_failure: SendFailure,
    ) -> Option<CallError> {
        match send_failure {
            SendFailure::TooLarge => {
                let piece = call_socket.socket().payload(HEADER_BYTES).unwrap_or(0) as u32;
                if piece < PIECE_MIN {
                    // The protocol has no smaller pieces of messages, so the kernel must fragment the
                    // packets.
                    let _ = call_socket.socket().allow_fragmentation();
                }
                activity.piece_max = activity.piece_max.min(piece.max(PIECE_MIN));
                activity.client_end.reduce_piece(activity.piece_max, moment());
                None
            }
            SendFailure::NoRoute => {
                if !self.association.has_moved(call_socket.socket()) {
                    // The route may return. After that, the client retransmits the packets that did not leave
                    // this machine.
                    return None;
                }
                self.association.lose(LostReason::AddressLost);
                activity.client_end.fail_unreachable();
                let _ = activity.client_end.outcome();
                let failure = LostReason::AddressLost.failure();
                Some(if activity.sent { failure.may_have_executed() } else { failure })
            }
        }
    }

    /// Releases the activity of a call that has ended. Notes what the keeper must do later.
    pub(super) fn leave(
        &self,
        index: u32,
        mutex: &Arc<Mutex<Activity>>,
        activity: MutexGuard<'_, Activity>,
    ) {
        if activity.client_end.is_captured() {
            self.association.capture(index, mutex);
        }
        drop(activity);
        if self.association.note_due() {
            self.provider.remind();
        }
    }

    /// Ends a call: acknowledges a large result at once, and fills the out blocks.
    pub(super) fn conclude(
        &self,
        call: &mut Call<'_, '_, '_>,
        mutex: &Arc<Mutex<Activity>>,
        mut activity: MutexGuard<'_, Activity>,
        result: Result<Shape, CallError>,
    ) -> Result<Returned, CallError> {
        let index = call.frame.index();
        if result.as_ref().is_ok_and(|result| result.total >= ACKNOWLEDGED_AT_ONCE) {
            activity.client_end.acknowledge();
            let now = activity.ended;
            self.association.send_control(&mut activity, now);
        }
        self.leave(index, mutex, activity);
        let Shape { what, total, head, at, .. } = result?;
        self.lost.store(false, Ordering::Relaxed);
        if self.silent_since.load(Ordering::Relaxed) != 0 {
            self.silent_since.store(0, Ordering::Relaxed);
        }
        self.association.note_answer(index);
        let answer = match Answer::from_number(what) {
            Some(Answer::PostAgain) | None => {
                return Err(CallError::bad_result("unknown kind of answer"));
            }
            Some(answer) => answer,
        };
        if answer == Answer::Ok {
            let taken = call.take_packed_blocks(total as usize);
            taken.map_err(|invalid| CallError::bad_result(invalid.to_string()))?;
        }
        steps::pass(Step::Taken);
        if steps::is_recording() {
            steps::note_received(total as usize);
        }
        Ok(Returned { answer, head_at: at, head_bytes: head })
    }
}

/// Handles the end of a wait for packets. Returns the time at which the wait ended.
#[inline]
pub(super) fn handle_wait(activity: &mut Activity, waited: &Waited) -> Moment {
    if let Waited::Unreachable = waited {
        activity.client_end.note_unreachable(moment());
    }
    if let Waited::Packets(now) = *waited { now } else { moment() }
}

/// Handles the expiry of the timer of a call, if the timer has expired.
#[inline]
pub(super) fn handle_timer(activity: &mut Activity, now: Moment) {
    if activity.client_end.next_timer().is_some_and(|due| due <= now) {
        activity.client_end.handle_timer(now);
    }
}

/// Returns the shape of a call with extensions of `extension` bytes.
pub(super) fn shape_of(call: &Call<'_, '_, '_>, layout: &Layout, extension: usize) -> Shape {
    Shape {
        what: call.procedure,
        total: (extension + layout.total) as u32,
        head: layout.head as u32,
        at: (extension + layout.copied) as u32,
        extension: extension as u16,
    }
}

#[cold]
fn failed(executed: client_end::Executed, why: FailureReason) -> CallError {
    let (kind, text) = match why {
        FailureReason::Dead => (Kind::ServerGone, "the server does not answer any more"),
        FailureReason::Unreachable => {
            (Kind::ServerGone, "no server listens any more where the server was")
        }
        FailureReason::Refused => {
            (Kind::ServerGone, "the server does not know this client any more")
        }
        FailureReason::AddressChanged => {
            let text = "this machine has lost the address from which the client bound";
            (Kind::ServerGone, text)
        }
        FailureReason::Cancelled => (Kind::TimedOut, "the call was cancelled"),
        FailureReason::Protocol => (Kind::BadResult, "the result is larger than agreed"),
    };
    CallError::new(kind, executed.into(), text)
}
