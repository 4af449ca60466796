//! The client's end of the datagram path. For each binding and each frame, the client has one *activity*: a
//! sequence of calls, one after another. A frame is the memory of one call and its result.
//!
//! The calling thread sends, waits and receives on the socket of its frame. So the kernel wakes the right
//! thread (Firefly's direct wake-up). The number of such sockets is limited. Further frames share one socket.
//! Between calls, the keeper, the background thread of the process, acknowledges results. The keeper also
//! asks whether the server has released cancelled calls (see [`association`]).

pub(super) mod activity;
pub(super) mod association;
pub(super) mod fallback;
pub(super) mod handles;
mod leader;
mod shared_socket;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use self::activity::{
    Activity, CallSocket, ReceiveWait, ResultPlacement, SendFailure, Waited, send,
};
use self::association::{Association, LostReason};
use self::handles::{Granted, lost, say_goodbye};
use self::shared_socket::{HeldLead, SharedSocket};
use super::peer::moment;
use super::wire::message::{Message, PARTS_MAX, Parts};
use crate::call::chain::WaitingInside;
use crate::call::extensions::{BYTES_MAX, Extensions, no_time_left};
use crate::call::{Answer, Call, CallPath, PathKind, Returned, Wait, inside};
use crate::device::{Route, Socket};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::growing::Growing;
use crate::protocol::exchange::bind::{BindRequest, GrantedHandle};
use crate::protocol::exchange::client_end::{
    self, BeginError, ClientEnd, ClientTerms, FailureReason, Outcome,
};
use crate::protocol::exchange::header::HEADER_BYTES;
use crate::protocol::exchange::message::{PIECE_MIN, Shape};
use crate::protocol::exchange::time::Moment;
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys;
use crate::value::Window;

/// A live server answers within this time, or within four round trips if these take longer. If no answer
/// arrives in this time, the client assumes that it must reach the server over another socket.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// A result of at least this many bytes is acknowledged at once, so that the server can free the memory of
/// the result. The additional packet costs little compared with the many packets of such a result.
const ACKNOWLEDGED_AT_ONCE: u32 = 1 << 20;

/// The functions of a binding that one of its frames uses to request a handle.
pub(crate) trait HandleProvider: Send + Sync {
    /// Returns the request that the binding sends.
    fn request(&self) -> BindRequest;

    /// Returns the time until which a call with this deadline may wait for a bind.
    fn until(&self, deadline: Option<Instant>) -> Instant;

    /// Schedules a run of the keeper soon, because packets will be due.
    fn remind(&self);

    /// Returns true if this process made the binding, and false if the parent process made it before a fork.
    fn is_own(&self) -> bool;
}

/// The socket over which the first handle of a binding was granted.
pub(crate) enum BoundOver {
    /// The socket of the frame with this index. The caller holds the frame.
    Frame(u32),
    /// A socket that no frame uses yet.
    Socket(Socket),
}

/// A binding to an export, over datagrams.
pub(crate) struct DatagramPath<R: HandleProvider> {
    association: Arc<Association>,
    activities: Growing<OnceLock<Arc<Mutex<Activity>>>>,
    /// Handles that were granted over the shared socket, and that no frame uses yet.
    spare: Mutex<Vec<GrantedHandle>>,
    /// The time at which the server granted the first handle of the binding.
    bound: Moment,
    terms: ClientTerms,
    checked: bool,
    round_trip: u64,
    /// The time for [`ClientEnd::ask_after`], in nanoseconds.
    ask_after: u64,
    wait: Wait,
    /// Whether the last call failed because its handle was closed or captured.
    lost: AtomicBool,
    /// When the current series of calls without an answer began, in nanoseconds. The value is the start of
    /// the first call of the series. If that call received packets from the server, the value is the time of
    /// the last such packet. 0 means that the last call got an answer.
    silent_since: AtomicU64,
    /// The socket and the handles of the first bind. The first frame without a socket takes them.
    first: Mutex<Option<(Socket, Granted)>>,
    provider: R,
}

impl<R: HandleProvider> DatagramPath<R> {
    /// Creates a binding whose first handle was granted over `first`. If the server sends nothing during a
    /// call, the client probes after `ask_after` at the earliest.
    pub(crate) fn new(
        association: Arc<Association>,
        first: BoundOver,
        granted: Granted,
        wait: Wait,
        ask_after: Duration,
        provider: R,
    ) -> Self {
        let count = association.frames.layout().count;
        let path = Self {
            activities: Growing::new(count, |_| OnceLock::new()),
            association,
            spare: Mutex::ranked(Rank::Handles, Vec::new()),
            bound: moment(),
            terms: granted.terms,
            checked: granted.grant.payload_check,
            round_trip: granted.round_trip_ns,
            ask_after: ask_after.as_nanos().try_into().unwrap_or(u64::MAX),
            wait,
            lost: AtomicBool::new(false),
            silent_since: AtomicU64::new(0),
            first: Mutex::default(),
            provider,
        };
        match first {
            BoundOver::Frame(frame) => {
                let handle = path.take_first(&granted);
                if let (Some(call_socket), Some(handle)) =
                    (path.association.socket_of(frame), handle)
                {
                    path.begin_activity(
                        frame,
                        (handle, granted.terms, granted.round_trip_ns),
                        call_socket,
                    );
                }
            }
            BoundOver::Socket(socket) => *path.first.lock() = Some((socket, granted)),
        }
        path
    }

    /// Returns for how long all calls have failed without an answer, in nanoseconds.
    #[cold]
    pub(super) fn silence(&self) -> u64 {
        match self.silent_since.load(Ordering::Relaxed) {
            0 => 0,
            since => moment().0.saturating_sub(since),
        }
    }

    /// Records that the call that began at `began` failed. `dead` is true if the server stopped answering
    /// during the call.
    #[cold]
    fn note_failure(&self, activity: &Activity, began: Moment, dead: bool) {
        let order = Ordering::Relaxed;
        let since = match activity.heard {
            None => began,
            Some(heard) if dead => heard,
            Some(_) => return self.silent_since.store(0, order),
        };
        let _ = self.silent_since.compare_exchange(0, since.0, order, order);
    }

    /// Binds over the socket of a frame. The caller holds the frame.
    #[cold]
    fn bind(&self, frame: u32, deadline: Option<Instant>) -> Result<Granted, CallError> {
        let limit = ANSWER_LIMIT.max(Duration::from_nanos(self.round_trip.saturating_mul(4)));
        let until = self.provider.until(deadline).min(Instant::now() + limit);
        let bound = self.association.bind(frame, self.provider.request(), until);
        bound.map_err(|error| lost(error, deadline))
    }

    /// Returns the first handle of a grant. Keeps the other handles for frames that use the shared socket.
    fn take_first(&self, granted: &Granted) -> Option<GrantedHandle> {
        let (first, rest) = granted.grant.handles().split_first()?;
        *self.spare.lock() = rest.to_vec();
        Some(*first)
    }

    /// Requests a handle for a frame. Returns the handle, the terms of the handle, and the round trip in
    /// nanoseconds.
    #[cold]
    fn handle(
        &self,
        frame: u32,
        deadline: Option<Instant>,
    ) -> Result<(GrantedHandle, ClientTerms, u64), CallError> {
        let granted = self.bind(frame, deadline)?;
        let handle = if let Some(CallSocket::Own(_)) = self.association.socket_of(frame) {
            granted.grant.handles().first().copied()
        } else {
            self.take_first(&granted)
        };
        let handle = handle.ok_or_else(|| {
            CallError::not_executed(Kind::Exhausted, Phase::Bind, "the server granted no handle")
        })?;
        Ok((handle, granted.terms, granted.round_trip_ns))
    }

    /// Creates the protocol state of a new handle, for a frame with this socket.
    fn client_end(
        &self,
        (granted, terms, round_trip): (GrantedHandle, ClientTerms, u64),
        call_socket: &CallSocket,
    ) -> ClientEnd {
        let seed = sys::random().map_or(1, u64::from_le_bytes);
        let terms = if let CallSocket::Shared(_) = call_socket {
            SharedSocket::terms(terms)
        } else {
            terms
        };
        let terms = ClientTerms { piece: self.association.piece_for(terms.piece), ..terms };
        let mut client_end = ClientEnd::new(granted, terms, round_trip, seed);
        client_end.ask_after(self.ask_after);
        client_end.set_last_heard(self.bound);
        client_end
    }

    /// Returns how many bytes the server accepts in the message of a call, not counting the extensions.
    pub(crate) const fn call_bytes_max(&self) -> usize {
        (self.terms.call_bytes_max as usize).saturating_sub(BYTES_MAX)
    }

    #[cold]
    fn not_begun(&self, error: BeginError, bytes: u32) -> CallError {
        match error {
            BeginError::TooLarge => self.too_large(bytes as usize),
            // `transport` then requests a new handle. The user sees this error only if requesting the handle
            // fails.
            BeginError::Busy | BeginError::Closed => {
                let text = "the server has closed the handle of this frame";
                CallError::not_executed(Kind::ServerGone, Phase::Call, text)
            }
        }
    }

    #[cold]
    fn too_large(&self, bytes: usize) -> CallError {
        let (own, server) = (self.association.message_bytes(), self.call_bytes_max());
        CallError::too_large(bytes, own, Some(server))
    }

    /// Returns the activity of a frame.
    fn activity(
        &self,
        index: u32,
        deadline: Option<Instant>,
    ) -> Result<&Arc<Mutex<Activity>>, CallError> {
        let activity = &self.activities[index as usize];
        if let Some(activity) = activity.get() {
            return Ok(activity);
        }
        self.new_activity(index, deadline)
    }

    #[cold]
    fn new_activity(
        &self,
        index: u32,
        deadline: Option<Instant>,
    ) -> Result<&Arc<Mutex<Activity>>, CallError> {
        let known = match self.association.socket_of(index) {
            Some(CallSocket::Shared(_)) => {
                self.spare.lock().pop().map(|spare| (spare, self.terms, self.round_trip))
            }
            Some(CallSocket::Own(_)) => None,
            None => self.first.lock().take().and_then(|(socket, granted)| {
                self.association.start_with(index, socket);
                Some((*granted.grant.handles().first()?, granted.terms, granted.round_trip_ns))
            }),
        };
        let is_new = known.is_none();
        let handle = match known {
            Some(handle) => handle,
            None => self.handle(index, deadline)?,
        };
        let call_socket = self.socket_of(index)?;
        let activity = self.begin_activity(index, handle, call_socket);
        if is_new {
            activity.lock().client_end.set_last_heard(moment());
        }
        Ok(activity)
    }

    /// Creates the activity of a frame. The caller holds the frame.
    fn begin_activity(
        &self,
        index: u32,
        (granted, terms, round_trip): (GrantedHandle, ClientTerms, u64),
        call_socket: &CallSocket,
    ) -> &Arc<Mutex<Activity>> {
        let client_end = self.client_end((granted, terms, round_trip), call_socket);
        self.activities[index as usize].get_or_init(|| {
            let activity = Arc::new(Mutex::ranked(
                Rank::Activity,
                Activity::new(client_end, self.association.flow(), index, self.checked),
            ));
            if let CallSocket::Shared(shared) = call_socket {
                shared.add(granted.handle, &activity);
            }
            self.association.add(&activity);
            activity
        })
    }

    /// Returns the socket of a frame that has an activity.
    fn socket_of(&self, index: u32) -> Result<&CallSocket, CallError> {
        self.association.socket_of(index).ok_or_else(|| LostReason::Silent.failure())
    }

    /// Handles packets that did not leave this machine, or that are too large for the route. Returns an error
    /// if the call must fail.
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

    /// Makes one call on this activity.
    fn exchange<'m>(
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
        if activity.client_end.piece() > activity.piece_max {
            let piece = activity.piece_max;
            activity.client_end.reduce_piece(piece, moment());
        }
        if let Err(error) = activity.client_end.begin(shape) {
            return (activity, Err(self.not_begun(error, shape.total)));
        }
        if let CallSocket::Shared(shared) = call_socket {
            shared.begin(&mut activity);
        }
        // If the result may consist of several packets, the client receives them into other memory first.
        // That memory is large enough for a whole GRO batch, several packets that the kernel delivers
        // together.
        let outs: usize = call.outs.iter().map(|out| out.capacity()).sum();
        let mut receiving = ResultPlacement {
            half: association.reply_half(activity.index),
            staged: outs + HEADER_BYTES > activity.client_end.piece() as usize,
        };
        let call_half = association.half(activity.index, association.frames.layout().call_at);
        let mut waiting = ReceiveWait::new(self.wait, deadline);
        let mut leader: HeldLead<'_> = None;
        let mut now = moment();
        let began = now;
        activity.heard = None;
        (activity.sent, activity.send_failure) = (false, None);
        let result = loop {
            send(&mut activity, call_socket, message, call_half, shape.total, now);
            if let Some(send_failure) = activity.send_failure.take()
                && let Some(error) =
                    self.handle_send_failure(&mut activity, call_socket, send_failure)
            {
                break Err(error);
            }
            match activity.client_end.outcome() {
                Some(Outcome::Returned(shape)) => {
                    activity.ended = now;
                    if activity.client_end.piece() < self.terms.piece {
                        self.association.learn_piece(activity.client_end.piece());
                    }
                    break Ok(shape);
                }
                Some(Outcome::Failed { executed, why }) => {
                    self.note_failure(&activity, began, matches!(why, FailureReason::Dead));
                    if matches!(why, FailureReason::Dead | FailureReason::Unreachable) {
                        self.association.lose(LostReason::Silent);
                    } else if why == FailureReason::AddressChanged {
                        self.association.lose(LostReason::AddressLost);
                    }
                    break Err(failed(executed, why));
                }
                None => {}
            }
            let waited = match call_socket {
                CallSocket::Own(socket) => receiving.receive(&mut activity, socket, &mut waiting),
                CallSocket::Shared(shared) => {
                    let waited;
                    let locked = (mutex, activity);
                    (activity, waited) =
                        shared.receive(association, locked, &mut leader, &mut waiting);
                    waited
                }
            };
            now = if let Waited::Packets(now) = waited { now } else { moment() };
            if let Waited::Unreachable = waited {
                activity.client_end.note_unreachable();
            }
            // The deadline is checked even after packets have arrived. Otherwise a call would never end if
            // packets arrive faster than this thread handles them.
            if activity.client_end.is_in_progress()
                && deadline.is_some_and(|deadline| Instant::now() >= deadline)
            {
                self.note_failure(&activity, began, false);
                activity.client_end.cancel(now);
                let executed = match activity.client_end.outcome() {
                    Some(Outcome::Failed { executed: client_end::Executed::No, .. }) => {
                        Executed::No
                    }
                    _ => Executed::Maybe,
                };
                send(&mut activity, call_socket, message, call_half, shape.total, now);
                let text = "the server has not answered";
                break Err(CallError::new(Kind::TimedOut, executed, text));
            }
            if activity.client_end.next_timer().is_some_and(|due| due <= now) {
                activity.client_end.handle_timer(now);
            }
        };
        (activity, result)
    }
}

#[cold]
fn failed(executed: client_end::Executed, why: FailureReason) -> CallError {
    let executed = match executed {
        client_end::Executed::No => Executed::No,
        client_end::Executed::Maybe => Executed::Maybe,
    };
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
    CallError::new(kind, executed, text)
}

impl<R: HandleProvider> CallPath for DatagramPath<R> {
    fn explain(&self) -> String {
        format!("datagrams to {}", self.association.to())
    }

    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        let layout = call.layout();
        if layout.total > self.association.message_bytes() {
            return Err(self.too_large(layout.total));
        }
        if let Some(loss) = self.association.loss() {
            return Err(loss.failure());
        }
        let deadline = call.limit.deadline();
        let index = call.frame.index();
        let activity = self.activity(index, deadline)?;
        let mut activity_guard = activity.lock();
        let (inside, carried) = (inside(), &mut None);
        let extension = if inside.is_some() || deadline.is_some() {
            // The padded length of an extension is a multiple of 16.
            Window::from(carried.insert(Extensions::of(inside, deadline)?).padded())
        } else {
            Window::empty()
        };
        let _waiting = inside.map(|_| WaitingInside::begin());
        let blocks = call.ins.len() + call.lent.len();
        let piece = activity_guard.client_end.piece() as usize;
        // Blocks, the parts of a message with plain data, are sent from the caller's memory. They are first
        // copied to the frame in three cases: the whole message fits one packet, there are too many blocks,
        // or blocks need conversion.
        let whole = !call.is_unconverted() || layout.total <= piece || blocks + 2 > PARTS_MAX;
        if whole {
            call.put(usize::MAX).ok_or_else(|| self.too_large(layout.total))?;
        }
        call.head.flush();
        let copied = if whole { layout.total } else { layout.head };
        let copied_space = call.frame.call_space().range(0, copied).window();
        let message = if whole && extension.is_empty() {
            Message::Whole(copied_space)
        } else {
            let mut parts = Parts::new();
            let mut fits = extension.is_empty() || parts.push(extension);
            fits &= parts.push(copied_space);
            for block in call.ins.iter().chain(call.lent).filter(|_| !whole) {
                fits &= parts.push(block.unconverted().expect("converted blocks were copied"));
            }
            if !fits {
                return Err(self.too_large(layout.total));
            }
            Message::Parts(parts)
        };
        let shape = Shape {
            what: call.procedure,
            total: (extension.len() + layout.total) as u32,
            head: layout.head as u32,
            at: (extension.len() + layout.copied) as u32,
            extension: extension.len() as u16,
        };
        let mut result;
        (activity_guard, result) =
            self.exchange((activity, activity_guard), &message, shape, call, deadline);
        let client_end = &activity_guard.client_end;
        if let Err(error) = &result
            && (client_end.is_closed() || client_end.is_captured())
        {
            // If the call did not run, there are two possible reasons. The server has discarded the handle
            // because the client was idle, or an earlier call still occupies the handle. In both cases, the
            // call is made again with a new handle.
            self.lost.store(true, Ordering::Relaxed);
            let not_run = error.executed() == Executed::No && error.kind() != Kind::TimedOut;
            if not_run && !self.association.is_lost() {
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Err(no_time_left());
                }
                let closed = client_end.bound_handle();
                // The leader of a shared socket, the thread that receives for all, must not wait for this
                // activity. So this thread releases the lock while it binds.
                drop(activity_guard);
                let granted = self.handle(index, deadline)?;
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Err(no_time_left());
                }
                activity_guard = activity.lock();
                let call_socket = self.socket_of(index)?;
                activity_guard.client_end = self.client_end(granted, call_socket);
                activity_guard.client_end.set_last_heard(moment());
                if let CallSocket::Shared(shared) = call_socket {
                    shared.remove(&closed);
                    shared.add(granted.0.handle, activity);
                }
                (activity_guard, result) =
                    self.exchange((activity, activity_guard), &message, shape, call, deadline);
            }
        }
        if result.as_ref().is_ok_and(|result| result.total >= ACKNOWLEDGED_AT_ONCE) {
            activity_guard.client_end.acknowledge();
            let now = activity_guard.ended;
            self.association.send_control(&mut activity_guard, now);
        }
        if activity_guard.client_end.is_captured() {
            self.association.capture(index, activity);
        }
        drop(activity_guard);
        if self.association.note_due() {
            self.provider.remind();
        }
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
        Ok(Returned { answer, head_at: at, head_bytes: head })
    }

    fn kind(&self) -> PathKind {
        match self.association.to() {
            Route::Udp(_) => PathKind::Udp,
            Route::Link(..) => PathKind::Ethernet,
        }
    }

    fn is_alive(&self) -> bool {
        !self.lost.load(Ordering::Relaxed) && !self.association.is_lost()
    }

    fn captures(&self, frame: u32) -> bool {
        self.association.is_captured(frame)
    }

    fn is_released(&self, frame: u32) -> bool {
        self.association.is_released(frame)
    }
}

impl<R: HandleProvider> Drop for DatagramPath<R> {
    fn drop(&mut self) {
        // A forked child process must not send goodbyes for handles of its parent.
        if !self.provider.is_own() {
            return;
        }
        let now = moment();
        for activity in self.activities.iter().filter_map(OnceLock::get) {
            let mut activity = activity.lock();
            activity.client_end.close();
            self.association.send_control(&mut activity, now);
            if let Some(CallSocket::Shared(shared)) = self.association.socket_of(activity.index) {
                shared.remove(&activity.client_end.bound_handle());
            }
        }
        // Handles that no frame has used need a goodbye, too.
        self.association.say_goodbye(&self.spare.lock(), self.terms);
        let first = self.first.lock().take();
        if let Some((socket, granted)) = first {
            say_goodbye(&socket, granted.grant.handles(), granted.terms);
        }
    }
}
