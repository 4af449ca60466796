//! Pending calls. The future of a pending call looks for packets each time that it is polled. No thread waits
//! for such a call while its future sleeps.
//!
//! A pending call goes through the same [steps](super::exchange) as the call of a thread. No step waits for
//! packets, for space in a send buffer, or for a new handle. The whole message is copied into the frame
//! before it is sent. Without the copy, the client could not retransmit parts of the message after the
//! caller's memory is gone.
//!
//! # How a future is woken
//!
//! Before a future sleeps, it arms its call. From then on, the *bell* of its frame wakes it. The bell must
//! ring when packets have arrived for its activity, when a timer of its call expires, and at its deadline.
//!
//! 1. *Timers.* Arming sets the timer of the bell to the first time at which the call must act. If a later
//!    look changes the timers of the call, it may set the timer of the bell to an earlier time. When the
//!    timer rings, the future is polled, handles what is due, and arms its call again.
//! 2. *A socket that no other frame uses.* Only the holder of the frame receives from such a socket. Arming
//!    makes the keeper report the socket once ([`watched_socket`](super::watched_socket)). The keeper rings
//!    the bell, and receives nothing. Packets that arrived before are reported as well.
//! 3. *A shared socket.* Arming sets the word of the frame to `FUTURE` ([`leader`](super::leader)). Then the
//!    future looks, under the lock of the activity, for what was received before. A thread that receives a
//!    packet first notes the packet in the activity, under the same lock, and then looks at the word. So the
//!    future sees the packet, or the thread sees `FUTURE`. Only the thread that replaces `FUTURE` by `WOKEN`
//!    rings the bell.
//! 4. *A receiver for the shared socket.* While futures sleep, a thread leads, or the socket is armed: the
//!    keeper reports the next packets once. A future that begins to sleep while no thread leads arms the
//!    socket. A leader that stops leading arms it if futures sleep and no follower is left (`SYNC:
//!    datagram-future`). When packets arrive, the keeper leads for a short time, and leaves as any leader
//!    does. If another thread leads at that time, the keeper does nothing: that thread arms the socket when
//!    it leaves.
//! 5. *Each ring is followed by a poll.* A ring takes the waker that was set last. A late ring of an earlier
//!    sleep only causes one more poll, after which the future arms its call again.
//! 6. *No lock.* A bell runs code of the program's executor, so a thread rings it while it holds no lock. A
//!    leader that must keep its locks has the timer thread ring the bell ([`bells`](super::bells)).

use core::time::Duration;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Instant;

use super::activity::{Activity, CallSocket, ResultPlacement, Sending, receive_now};
use super::exchange::{handle_timer, handle_wait, shape_of};
use super::handles::{Asking, Granted, lost, receive_from};
use super::shared_socket::{Rung, SharedSocket};
use super::{DatagramPath, HandleProvider};
use crate::call::extensions::{Extensions, no_time_left};
use crate::call::{Begun, Call, Returned, inside};
use crate::error::CallError;
use crate::path::datagram::peer::moment;
use crate::path::datagram::wire::message::{Message, Parts};
use crate::protocol::exchange::message::Shape;
use crate::protocol::exchange::time::{MILLISECOND, Moment};
use crate::sync::Mutex;
use crate::sys::IfFull;
use crate::value::Window;

/// The largest number of times that one poll receives. If more packets have arrived, other futures of the
/// same thread run first.
const ROUNDS_MAX: u32 = 16;

/// A call whose future was dropped may be a sign of a silent server. The call counts as such a sign only if
/// it was pending for at least this many nanoseconds, or if its deadline has passed.
const SILENT_AFTER: u64 = 200 * MILLISECOND;

/// The state of a pending call.
#[derive(Default)]
pub(super) struct PendingCall {
    stage: Stage,
    extensions: Option<Extensions>,
    shape: Shape,
    began: Moment,
    /// Whether packets are first received into memory outside of the frame.
    staged: bool,
    /// Whether the call was begun again with a new handle. This happens at most once.
    again: bool,
    /// Whether the call was armed, so that its bell may ring.
    armed: bool,
    /// The time for which the timer of the bell was set.
    rings_at: Option<Instant>,
}

/// What a pending call does next.
#[derive(Default)]
enum Stage {
    /// There is no call.
    #[default]
    Ended,
    /// The call must be begun on the activity.
    Begins,
    /// The call was begun.
    Runs,
    /// The server has closed the handle, and the client requests another one.
    Asks(Box<Asking>),
}

impl PendingCall {
    /// Returns the first time at which the call has something to do if no packet arrives.
    fn due(&self, activity: &Activity) -> Option<Instant> {
        let left = match &self.stage {
            Stage::Ended | Stage::Begins => return None,
            Stage::Asks(asking) => asking.left(),
            Stage::Runs => {
                let client_end = &activity.client_end;
                let due =
                    client_end.next_timer().into_iter().chain(client_end.next_send()).min()?;
                Duration::from_nanos(due.since(moment()))
            }
        };
        Instant::now().checked_add(left)
    }

    /// Returns whether another thread has received something for this call at the shared socket.
    fn has_news(&self, activity: &Activity, shared: &SharedSocket) -> bool {
        shared.has_news(activity)
            || matches!(&self.stage, Stage::Asks(asking) if shared.has_answer(&asking.key()))
    }
}

impl<R: HandleProvider> DatagramPath<R> {
    /// Begins a pending call, and sends the first packets.
    pub(super) fn begin_pending(&self, call: &mut Call<'_, '_, '_>) -> Result<Begun, CallError> {
        let layout = call.layout();
        self.check(&layout)?;
        let deadline = call.terms.deadline();
        let index = call.frame.index();
        // The frame is prepared, so this does not wait.
        let mutex = self.activity(index, deadline)?;
        let inside = inside();
        let has_extensions = inside.is_some() || !call.terms.are_none();
        let extensions = has_extensions.then(|| Extensions::of(inside, call.terms)).transpose()?;
        call.put(usize::MAX).ok_or_else(|| self.too_large(layout.total))?;
        call.head.flush();
        let extension = extensions.as_ref().map_or(0, |extensions| extensions.padded().len());
        let shape = shape_of(call, &layout, extension);
        let mut activity = mutex.lock();
        let pending = activity.pending.get_or_insert_default();
        **pending = PendingCall { stage: Stage::Begins, extensions, shape, ..Default::default() };
        let mut rung = Rung::default();
        let begun = match self.resume(call, mutex, &mut activity, &mut rung) {
            None => {
                drop(activity);
                Ok(Begun::Pending)
            }
            Some(result) => self.conclude(call, mutex, activity, result).map(Begun::Ended),
        };
        rung.ring(&self.association.bells);
        begun
    }

    /// Looks for the result of a pending call.
    pub(super) fn poll_pending(
        &self,
        call: &mut Call<'_, '_, '_>,
    ) -> Option<Result<Returned, CallError>> {
        let mutex = self.activities[call.frame.index() as usize].get()?;
        let mut activity = mutex.lock();
        let mut rung = Rung::default();
        let ended = match self.resume(call, mutex, &mut activity, &mut rung) {
            None => {
                self.hasten(&mut activity);
                drop(activity);
                None
            }
            Some(result) => {
                self.rouse(&mut activity);
                Some(self.conclude(call, mutex, activity, result))
            }
        };
        rung.ring(&self.association.bells);
        ended
    }

    /// Makes sure that the bell of a frame rings when its pending call has something to do. The
    /// [module](self) explains how.
    pub(super) fn arm_pending(&self, index: u32, deadline: Option<Instant>) {
        if self.try_arm(index, deadline).is_err() {
            // The future is polled at once, and tries again.
            self.association.bells.ring(index);
        }
    }

    fn try_arm(&self, index: u32, deadline: Option<Instant>) -> io::Result<()> {
        let association = &self.association;
        let activity = self.activities[index as usize].get();
        let (Some(mutex), Some(call_socket)) = (activity, association.socket_of(index)) else {
            return Err(ErrorKind::NotFound.into());
        };
        if let Some(pending) = &mut mutex.lock().pending {
            pending.armed = true;
        }
        match call_socket {
            CallSocket::Own(socket) => {
                socket.watch(|| {
                    let bells = Arc::clone(&association.bells);
                    Arc::new(move || bells.ring(index))
                })?;
                socket.watches().arm();
            }
            CallSocket::Shared(shared) => shared.sleep(association, index)?,
        }
        let mut activity = mutex.lock();
        let Some(pending) = &activity.pending else { return Ok(()) };
        if let CallSocket::Shared(shared) = call_socket
            && pending.has_news(&activity, shared)
        {
            drop(activity);
            association.bells.ring(index);
            return Ok(());
        }
        let at = pending.due(&activity).into_iter().chain(deadline).min();
        if let Some(pending) = &mut activity.pending {
            pending.rings_at = at;
        }
        association.bells.ring_at(index, at)
    }

    /// Gives up a pending call.
    pub(super) fn give_up_pending(&self, call: &mut Call<'_, '_, '_>) -> CallError {
        let index = call.frame.index();
        let Some(mutex) = self.activities[index as usize].get() else { return no_time_left() };
        let mut activity = mutex.lock();
        self.rouse(&mut activity);
        let (stage, began) = match &mut activity.pending {
            Some(pending) => (core::mem::take(&mut pending.stage), pending.began),
            None => (Stage::Ended, Moment(0)),
        };
        let error = match stage {
            Stage::Asks(asking) => {
                self.stop_asking(index, &asking);
                no_time_left()
            }
            Stage::Ended | Stage::Begins | Stage::Runs => {
                let now = moment();
                let deadline = call.terms.deadline();
                let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
                if is_late || now.since(began) >= SILENT_AFTER {
                    self.note_failure(&activity, began, false);
                }
                self.cancel(&mut activity, now)
            }
        };
        self.leave(index, mutex, activity);
        error
    }

    /// Ends the sleep of the future of an activity.
    pub(super) fn rouse(&self, activity: &mut Activity) {
        let index = activity.index;
        let Some(pending) = &mut activity.pending else { return };
        pending.rings_at = None;
        if core::mem::take(&mut pending.armed) {
            self.association.bells.forget(index);
            if let Some(CallSocket::Shared(shared)) = self.association.socket_of(index) {
                shared.rouse(index);
            }
        }
    }

    /// Sets the timer of an armed call to an earlier time if the call now has something to do earlier.
    fn hasten(&self, activity: &mut Activity) {
        let Some(pending) = activity.pending.as_ref().filter(|pending| pending.armed) else {
            return;
        };
        let Some(due) = pending.due(activity) else { return };
        if pending.rings_at.is_none_or(|set| due < set) {
            if let Some(pending) = &mut activity.pending {
                pending.rings_at = Some(due);
            }
            // The call was armed before, so the timer thread already runs, and this cannot fail.
            let _ = self.association.bells.ring_at(activity.index, Some(due));
        }
    }

    /// Continues a pending call. Returns how the call ended, or `None` if it is still pending.
    fn resume(
        &self,
        call: &Call<'_, '_, '_>,
        mutex: &Arc<Mutex<Activity>>,
        activity: &mut Activity,
        rung: &mut Rung,
    ) -> Option<Result<Shape, CallError>> {
        let mut pending = activity.pending.take()?;
        let ended = self.resume_call(call, mutex, activity, &mut pending, rung);
        if ended.is_some() {
            (pending.stage, pending.extensions) = (Stage::Ended, None);
        }
        activity.pending = Some(pending);
        ended
    }

    fn resume_call(
        &self,
        call: &Call<'_, '_, '_>,
        mutex: &Arc<Mutex<Activity>>,
        activity: &mut Activity,
        pending: &mut PendingCall,
        rung: &mut Rung,
    ) -> Option<Result<Shape, CallError>> {
        let call_socket = match self.socket_of(activity.index) {
            Ok(call_socket) => call_socket,
            Err(error) => return Some(Err(error)),
        };
        let deadline = call.terms.deadline();
        loop {
            let result = match &mut pending.stage {
                Stage::Ended => return None,
                Stage::Begins => match self.begin_exchange(activity, call_socket, pending.shape) {
                    Ok(()) => {
                        pending.stage = Stage::Runs;
                        pending.began = moment();
                        pending.staged = Self::stages(activity, call);
                        self.run(call, activity, call_socket, pending, None)?
                    }
                    Err(error) => Err(error),
                },
                Stage::Runs => self.run(call, activity, call_socket, pending, Some(rung))?,
                Stage::Asks(asking) => {
                    let granted = self.poll_asking(activity, call_socket, asking, rung)?;
                    self.stop_asking(activity.index, asking);
                    let index = activity.index;
                    let replaced = granted
                        .map_err(|error| lost(error, deadline))
                        .and_then(|granted| self.handle_of(index, &granted))
                        .and_then(|handle| self.replace_handle(mutex, activity, handle));
                    if let Err(error) = replaced {
                        return Some(Err(error));
                    }
                    pending.stage = Stage::Begins;
                    continue;
                }
            };
            if core::mem::replace(&mut pending.again, true)
                || !self.wants_new_handle(activity, &result)
            {
                return Some(result);
            }
            match self.begin_asking(activity.index, call_socket, deadline) {
                Ok(asking) => pending.stage = Stage::Asks(Box::new(asking)),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Sends the packets that are due, and receives what has arrived if `receives` is given. Returns how the
    /// call ended, if it has ended.
    fn run(
        &self,
        call: &Call<'_, '_, '_>,
        activity: &mut Activity,
        call_socket: &CallSocket,
        pending: &mut PendingCall,
        mut receives: Option<&mut Rung>,
    ) -> Option<Result<Shape, CallError>> {
        let association = &*self.association;
        let Shape { total, extension, .. } = pending.shape;
        let copied = total as usize - usize::from(extension);
        let copied_space = call.frame.call_space().range(0, copied).window();
        let message = match &pending.extensions {
            None => Message::Whole(copied_space),
            Some(extensions) => {
                let mut parts = Parts::new();
                parts.push(Window::from(extensions.padded()));
                parts.push(copied_space);
                Message::Parts(parts)
            }
        };
        let half = association.half(activity.index, association.frames.layout().call_at);
        let sending = Sending { message: &message, half, total, if_full: IfFull::Fail };
        let half = association.reply_half(activity.index);
        let mut receiving = ResultPlacement { half, staged: pending.staged };
        for _ in 0..ROUNDS_MAX {
            let waited = match (call_socket, &mut receives) {
                (_, None) => None,
                (CallSocket::Own(socket), _) => {
                    Some(receiving.receive(activity, socket, |_, place| receive_now(socket, place)))
                }
                (CallSocket::Shared(shared), Some(rung)) => {
                    Some(shared.look(association, activity, rung))
                }
            };
            pending.staged = receiving.staged;
            let now = waited.as_ref().map_or_else(moment, |waited| handle_wait(activity, waited));
            handle_timer(activity, now);
            let times = (pending.began, now);
            let ended = self.advance(activity, call_socket, &sending, times);
            if ended.is_some() || waited.is_none_or(|waited| waited.is_nothing()) {
                return ended;
            }
        }
        None
    }

    /// Begins to request a new handle for a frame.
    #[cold]
    fn begin_asking(
        &self,
        index: u32,
        call_socket: &CallSocket,
        deadline: Option<Instant>,
    ) -> Result<Asking, CallError> {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(no_time_left());
        }
        let until = self.bind_until(deadline);
        let renewal = self.association.renewal(self.provider.request(), until);
        let renewal = match call_socket {
            CallSocket::Own(_) => renewal.over_own(),
            CallSocket::Shared(_) => renewal,
        };
        let asking =
            Asking::new(call_socket.socket(), renewal).map_err(|error| lost(error, deadline))?;
        if let CallSocket::Shared(shared) = call_socket {
            shared.expect_answer(asking.key(), index);
        }
        Ok(asking)
    }

    /// Looks for the answer to a request for a new handle.
    #[cold]
    fn poll_asking(
        &self,
        activity: &mut Activity,
        call_socket: &CallSocket,
        asking: &mut Asking,
        rung: &mut Rung,
    ) -> Option<Result<Granted, CallError>> {
        let association = &*self.association;
        let (socket, begun, key) = (call_socket.socket(), asking.begun, asking.key());
        let bound = asking.poll(socket, association.to(), &mut |memory| match call_socket {
            CallSocket::Own(socket) => receive_from(socket, memory, Duration::ZERO),
            CallSocket::Shared(shared) => {
                Ok(shared.take_answer(association, &key, activity, memory, rung))
            }
        })?;
        Some(association.check_bound(activity.index, call_socket, begun, bound))
    }

    #[cold]
    fn stop_asking(&self, index: u32, asking: &Asking) {
        if let Some(CallSocket::Shared(shared)) = self.association.socket_of(index) {
            shared.forget_answer(&asking.key());
        }
    }
}
