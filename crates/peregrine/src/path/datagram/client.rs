//! The client's end of the datagram path. For each binding and each frame, the client has one *activity*: a
//! sequence of calls, one after another. A frame is the memory of one call and its result.
//!
//! The calling thread sends, waits and receives on the socket of its frame. So the kernel wakes the right
//! thread (Firefly's direct wake-up). The number of such sockets is limited. Further frames share one socket.
//! Between calls, the keeper, the background thread of the process, acknowledges results. The keeper also
//! asks whether the server has released cancelled calls (see [`association`]). For pending calls, which have
//! a future instead of a thread, see [`pending`].

pub(super) mod activity;
pub(super) mod association;
mod bells;
mod exchange;
pub(super) mod fallback;
pub(super) mod handles;
mod pending;
mod shared_socket;
mod watched_socket;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use self::activity::{Activity, CallSocket};
use self::association::{Association, LostReason};
use self::exchange::shape_of;
use self::handles::{Granted, lost, say_goodbye};
use self::shared_socket::SharedSocket;
use super::peer::moment;
use super::wire::message::{Message, PARTS_MAX, Parts};
use crate::call::accounted;
use crate::call::chain::WaitingInside;
use crate::call::extensions::{BYTES_MAX, Extensions, no_time_left};
use crate::call::metadata::no_space_for_metadata;
use crate::call::{Begun, Call, CallPath, PathKind, Returned, Wait, inside};
use crate::device::{Route, Socket};
use crate::error::{CallError, Kind, Phase};
use crate::growing::Growing;
use crate::limits;
use crate::protocol::exchange::bind::{BindRequest, GrantedHandle};
use crate::protocol::exchange::client_end::{BeginError, ClientEnd, ClientTerms};
use crate::protocol::exchange::message::Shape;
use crate::protocol::exchange::time::Moment;
use crate::sync::{Mutex, Rank};
use crate::sys;
use crate::value::Window;

/// A live server answers a request for a handle within this time, or within four round trips if these take
/// longer. If no answer arrives in this time, the client assumes that it must reach the server over another
/// socket. A call waits about as long for a silent server.
const ANSWER_LIMIT: Duration = limits::CALL_SILENCE;

/// What a frame needs from its binding in order to request a handle.
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
    /// The shortest silence of the server after which a call probes, in nanoseconds. See
    /// [`ClientEnd::ask_after`].
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

    /// Returns the time in nanoseconds for which all calls have failed without an answer, or 0.
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
        let until = self.bind_until(deadline);
        let bound = self.association.bind(frame, self.provider.request(), until);
        bound.map_err(|error| lost(error, deadline))
    }

    /// Returns the time until which a frame waits for a handle.
    fn bind_until(&self, deadline: Option<Instant>) -> Instant {
        let limit = ANSWER_LIMIT.max(Duration::from_nanos(self.round_trip.saturating_mul(4)));
        self.provider.until(deadline).min(Instant::now() + limit)
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
        self.handle_of(frame, &granted)
    }

    /// Chooses one of the granted handles for a frame. Returns this handle, its terms, and the round trip in
    /// nanoseconds.
    fn handle_of(
        &self,
        frame: u32,
        granted: &Granted,
    ) -> Result<(GrantedHandle, ClientTerms, u64), CallError> {
        let handle = if let Some(CallSocket::Own(_)) = self.association.socket_of(frame) {
            granted.grant.handles().first().copied()
        } else {
            self.take_first(granted)
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
        if self.association.channel().is_some() {
            client_end.take_refusals_as_hints();
        }
        client_end.set_last_heard(self.bound);
        client_end
    }

    /// Returns the number of frames.
    fn frames(&self) -> u32 {
        self.association.frames.layout().count
    }

    /// Returns how many bytes the server accepts in the message of a call, not counting the extensions.
    pub(crate) const fn call_bytes_max(&self) -> usize {
        (self.terms.call_bytes_max as usize).saturating_sub(BYTES_MAX)
    }

    #[cold]
    fn not_begun(&self, error: BeginError, shape: Shape) -> CallError {
        let bytes = shape.total as usize - usize::from(shape.extension);
        match error {
            BeginError::TooLarge if bytes <= self.call_bytes_max() => no_space_for_metadata(bytes),
            BeginError::TooLarge => self.too_large(bytes),
            // After this error, `transport` requests a new handle. The caller sees the error only if this
            // request fails.
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

    /// Returns the activity of a frame. Creates it if the frame has none, and requests a handle for it if
    /// necessary.
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
        if let Some(activity) = self.known_activity(index) {
            return Ok(activity);
        }
        let handle = self.handle(index, deadline)?;
        let activity = self.begin_activity(index, handle, self.socket_of(index)?);
        activity.lock().client_end.set_last_heard(moment());
        Ok(activity)
    }

    /// Creates the activity of a frame if the server has already granted a handle that this frame can use.
    /// Returns `None` if a handle must be requested first.
    #[cold]
    fn known_activity(&self, index: u32) -> Option<&Arc<Mutex<Activity>>> {
        let handle = match self.association.socket_of(index) {
            Some(CallSocket::Shared(_)) => (self.spare.lock().pop()?, self.terms, self.round_trip),
            Some(CallSocket::Own(_)) => return None,
            None => {
                let (socket, granted) = self.first.lock().take()?;
                self.association.start_with(index, socket);
                (*granted.grant.handles().first()?, granted.terms, granted.round_trip_ns)
            }
        };
        let call_socket = self.association.socket_of(index)?;
        Some(self.begin_activity(index, handle, call_socket))
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

    /// Replaces the closed handle of an activity by a new one.
    fn replace_handle(
        &self,
        mutex: &Arc<Mutex<Activity>>,
        activity: &mut Activity,
        granted: (GrantedHandle, ClientTerms, u64),
    ) -> Result<(), CallError> {
        let call_socket = self.socket_of(activity.index)?;
        let closed = activity.client_end.bound_handle();
        let client_end = self.client_end(granted, call_socket);
        activity.client_end = client_end.with_retransmissions(&activity.client_end);
        activity.client_end.set_last_heard(moment());
        if let CallSocket::Shared(shared) = call_socket {
            shared.remove(&closed);
            shared.add(granted.0.handle, mutex);
        }
        Ok(())
    }
}

impl<R: HandleProvider> CallPath for DatagramPath<R> {
    fn explain(&self) -> String {
        let text = format!("datagrams to {}", self.association.to());
        match self.association.channel() {
            None => text,
            Some(channel) => format!("{text}, {}", channel.in_words()),
        }
    }

    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        let layout = call.layout();
        self.check(&layout)?;
        let deadline = call.terms.deadline();
        let index = call.frame.index();
        let activity = self.activity(index, deadline)?;
        let activity_guard = activity.lock();
        let (inside, carried) = (inside(), &mut None);
        let extension = if inside.is_some() || !call.terms.are_none() {
            if call.terms.are_accounted() {
                accounted::enter(call);
            }
            // The padded length of an extension is a multiple of 16.
            Window::from(carried.insert(Extensions::of(inside, call.terms)?).padded())
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
        let shape = shape_of(call, &layout, extension.len());
        let (mut activity_guard, mut result) =
            self.exchange((activity, activity_guard), &message, shape, call, deadline);
        if self.wants_new_handle(&activity_guard, &result) {
            let in_time = || match deadline {
                Some(deadline) if Instant::now() >= deadline => Err(no_time_left()),
                _ => Ok(()),
            };
            in_time()?;
            // The leader of a shared socket, the thread that receives for all, must not wait for this
            // activity. So this thread releases the lock of the activity while it binds.
            drop(activity_guard);
            let granted = self.handle(index, deadline)?;
            in_time()?;
            activity_guard = activity.lock();
            self.replace_handle(activity, &mut activity_guard, granted)?;
            (activity_guard, result) =
                self.exchange((activity, activity_guard), &message, shape, call, deadline);
        }
        self.conclude(call, activity, activity_guard, result)
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

    fn is_prepared(&self, frame: u32) -> bool {
        // If the association is lost, the call fails at once, so it needs no preparation.
        self.activities[frame as usize].get().is_some()
            || self.association.is_lost()
            || self.known_activity(frame).is_some()
    }

    fn prepare(&self, frame: u32, deadline: Option<Instant>) -> Result<(), CallError> {
        self.activity(frame, deadline).map(drop)
    }

    fn message_bytes(&self) -> usize {
        self.association.message_bytes().min(self.call_bytes_max())
    }

    fn retransmissions(&self, frame: u32) -> u32 {
        let activity = self.activities[frame as usize].get();
        activity.map_or(0, |activity| activity.lock().client_end.retransmissions())
    }

    fn server_cpu(&self, _frame: u32) -> Option<u32> {
        None
    }

    fn wait(&self) -> Wait {
        self.wait
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
            self.rouse(&mut activity);
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
