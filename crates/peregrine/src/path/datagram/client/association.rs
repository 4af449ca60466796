//! What all bindings of this process share that call one server by one route: the frames, a socket for
//! each frame, and what is owed to the server while no call is under way.
//!
//! A handle is used only over the socket over which it was bound. Balancers, address translation and
//! routers choose by ports: over another socket, the same address may lead to another server, or nowhere.
//! Sockets are never replaced. An association whose server falls silent, or whose own address this machine
//! has lost, is *lost* as a whole: its bindings bind again, over new sockets.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use super::activity::{Activity, CallSocket, deliver_now};
use super::handles::{Granted, bind_over, say_goodbye};
use super::shared_socket::SharedSocket;
use crate::call::{FrameLayout, Frames, sparse_memory};
use crate::device::udp::Udp;
use crate::device::{Route, Socket, SocketUse, Until};
use crate::error::{CallError, Kind, Phase};
use crate::growing::Growing;
use crate::limits;
use crate::path::datagram::peer::{BUFFER_BYTES, PeerFlow, moment, piece_sizes};
use crate::protocol::exchange::bind::{BindRequest, GrantedHandle};
use crate::protocol::exchange::client_end::ClientTerms;
use crate::protocol::exchange::header::{CONTROL_BYTES_MAX, HEADER_BYTES};
use crate::protocol::exchange::time::Moment;
use crate::sync::{Mutex, Rank};
use crate::value::{Space, Window, align_up};

/// How long an acknowledgement may be owed.
pub(crate) const OWED: Duration = Duration::from_millis(100);

/// Binding over a way that has carried calls is in vain for so long before its server counts as silent.
/// A call asks for as long before it takes the server for dead.
const SILENCE: Duration = Duration::from_secs(2);
/// The same in round trips, if that is longer.
const SILENCE_ROUND_TRIPS: u32 = 32;

/// Sockets that are tried for a frame until one leads to the association's server. Behind a balancer
/// of two servers every second one does.
const OWN_TRIES: u32 = 4;
/// The same for the socket that frames share, after which there is nothing left to try.
const SHARED_TRIES: u32 = 32;

/// What all bindings of this process share that call one server by one route.
pub(crate) struct Association {
    to: Route,
    /// Which server it is. Another one at the same address knows none of its handles.
    incarnation: u64,
    /// The first one that was measured, in nanoseconds.
    round_trip: u64,
    pub(crate) frames: Arc<Frames>,
    flow: Arc<PeerFlow>,
    call_sockets: Growing<OnceLock<CallSocket>>,
    captured: Arc<Growing<Mutex<Option<CapturedCall>>>>,
    /// For how many milliseconds callers of each frame have bound over its way without an answer, since
    /// something was heard over it. Only the holder of the frame changes it.
    silences: Growing<AtomicU32>,
    /// How many frames have a socket of their own.
    sockets: AtomicU32,
    /// The socket of the others.
    shared: Mutex<Option<Arc<SharedSocket>>>,
    activities: Mutex<Vec<Weak<Mutex<Activity>>>>,
    /// Whether the keeper looks after what is owed.
    tended: AtomicBool,
    /// Why no call begins over its sockets any more: the number of a [`Loss`], or 0.
    lost: AtomicU32,
}

/// FailureReason an association is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum LostReason {
    /// The server does not answer over its sockets.
    Silent = 1,
    /// This machine has lost the address of its sockets.
    AddressLost = 2,
    /// Another server answers over its sockets: it was started again, or a balancer leads elsewhere now.
    AnotherServer = 3,
}

impl LostReason {
    /// The failure of a call that did not begin for it.
    #[cold]
    pub(super) fn failure(self) -> CallError {
        let text = match self {
            Self::Silent => "the server has not answered for long",
            Self::AddressLost => "this machine has lost the address that the server answered to",
            Self::AnotherServer => {
                "another server answers there: it was started again, or several share the address"
            }
        };
        CallError::not_executed(Kind::ServerGone, Phase::Call, text)
    }
}

/// A call that was given up, until the server has let go of it: its frame is captured meanwhile.
#[derive(Clone)]
struct CapturedCall {
    association: Weak<Association>,
    activity: Arc<Mutex<Activity>>,
}

/// A socket for a route, with room for what may come.
pub(super) fn connected(to: &Route, what: SocketUse) -> io::Result<Socket> {
    let socket = to.connect(what)?;
    socket.size_buffers(BUFFER_BYTES)?;
    Ok(socket)
}

impl Association {
    /// Room for `count` calls at a time, of messages of so many bytes, to the server that granted something.
    ///
    /// # Errors
    /// If there is no memory.
    pub(crate) fn new(
        to: Route,
        granted: &Granted,
        count: u32,
        active: u32,
        bytes: usize,
    ) -> io::Result<Self> {
        let bytes = align_up(bytes);
        let half = (HEADER_BYTES + bytes).next_multiple_of(HEADER_BYTES);
        let stride = 2 * half;
        let (memory, count) = sparse_memory(stride, count.clamp(1, limits::ASTACKS_MAX))?;
        let (call_at, reply_at) = (HEADER_BYTES, half + HEADER_BYTES);
        let layout = FrameLayout { count, first: 0, stride, call_at, reply_at, bytes };
        let frames = Arc::new(Frames::new(Arc::new(memory), layout, active));
        let captured = Arc::new(Growing::new(count, |_| Mutex::default()));
        Ok(Self::of_frames(
            to,
            (granted.grant.incarnation, granted.round_trip_ns),
            frames,
            captured,
        ))
    }

    /// The same for the frames of another association, which goes another way to the same server.
    pub(crate) fn beside(&self, to: Route) -> Self {
        let (frames, captured) = (Arc::clone(&self.frames), Arc::clone(&self.captured));
        Self::of_frames(to, (self.incarnation, self.round_trip), frames, captured)
    }

    fn of_frames(
        to: Route,
        (incarnation, round_trip): (u64, u64),
        frames: Arc<Frames>,
        captured: Arc<Growing<Mutex<Option<CapturedCall>>>>,
    ) -> Self {
        let count = frames.layout().count;
        Self {
            to,
            incarnation,
            round_trip,
            call_sockets: Growing::new(count, |_| OnceLock::new()),
            silences: Growing::new(count, |_| AtomicU32::new(0)),
            frames,
            flow: PeerFlow::new(),
            captured,
            sockets: AtomicU32::new(0),
            shared: Mutex::ranked(Rank::SharedSocket, None),
            activities: Mutex::default(),
            tended: AtomicBool::new(false),
            lost: AtomicU32::new(0),
        }
    }

    /// How its packets get to the server.
    pub(crate) const fn to(&self) -> &Route {
        &self.to
    }

    /// What is known of the path to its server.
    pub(super) fn flow(&self) -> Arc<PeerFlow> {
        Arc::clone(&self.flow)
    }

    /// Bytes of the largest message.
    pub(crate) fn message_bytes(&self) -> usize {
        self.frames.layout().bytes
    }

    /// How long it took the server to answer when it was bound first.
    pub(crate) const fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.round_trip)
    }

    /// Whether its sockets are of no use any more.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed) != 0
    }

    /// Why no call may begin, if none may.
    #[inline]
    pub(super) fn loss(&self) -> Option<LostReason> {
        match self.lost.load(Ordering::Relaxed) {
            0 => None,
            2 => Some(LostReason::AddressLost),
            3 => Some(LostReason::AnotherServer),
            _ => Some(LostReason::Silent),
        }
    }

    /// No call begins over its sockets from now on, and no binding joins it. Calls under way end as they
    /// will.
    #[cold]
    pub(super) fn lose(&self, why: LostReason) {
        let _ = self.lost.compare_exchange(0, why as u32, Ordering::Relaxed, Ordering::Relaxed);
    }

    // Ways to the network, and handles.

    /// The way of a frame, if something was bound over it.
    #[inline]
    pub(super) fn socket_of(&self, frame: u32) -> Option<&CallSocket> {
        self.call_sockets[frame as usize].get()
    }

    /// Makes the socket over which one has bound the way of a frame that has none yet.
    pub(super) fn start_with(&self, frame: u32, socket: Socket) {
        if self.call_sockets[frame as usize].set(CallSocket::Own(socket)).is_ok() {
            self.sockets.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Binds over the way of a frame, which the caller has. A frame without a way gets one, over a socket
    /// that leads to this server.
    ///
    /// # Errors
    /// `ServerGone` if another server answers; else those of binding.
    pub(crate) fn bind(
        &self,
        frame: u32,
        wish: BindRequest,
        until: Instant,
    ) -> Result<Granted, CallError> {
        let Some(call_socket) = self.socket_of(frame) else {
            return self.bind_new_way(frame, wish, until);
        };
        let (begun, socket) = (Instant::now(), call_socket.socket());
        let bound = match call_socket {
            CallSocket::Own(_) => {
                bind_over(socket, &self.to, BindRequest { handles: 1, ..wish }, until)
            }
            CallSocket::Shared(shared) => shared.bind(self, wish, until),
        };
        let granted = bound.inspect_err(|error| {
            if error.kind() == Kind::TimedOut {
                self.heard_nothing_over(frame, begun.elapsed());
            }
        })?;
        self.heard_over(frame);
        if granted.grant.incarnation != self.incarnation {
            say_goodbye(socket, granted.grant.handles(), granted.terms);
            self.lose(LostReason::AnotherServer);
            return Err(LostReason::AnotherServer.failure());
        }
        Ok(granted)
    }

    /// Something was heard over a frame's way, by the holder of the frame.
    #[inline]
    pub(super) fn heard_over(&self, frame: u32) {
        let silence = &self.silences[frame as usize];
        if silence.load(Ordering::Relaxed) != 0 {
            silence.store(0, Ordering::Relaxed);
        }
    }

    /// The holder of a frame has bound over its way for so long without an answer. Each call may have
    /// less time than it takes to notice that a server is silent: so the times are added up.
    #[cold]
    fn heard_nothing_over(&self, frame: u32, waited: Duration) {
        let waited = u32::try_from(waited.as_millis()).unwrap_or(u32::MAX);
        let silence = &self.silences[frame as usize];
        let total = silence.load(Ordering::Relaxed).saturating_add(waited);
        silence.store(total, Ordering::Relaxed);
        let longest = SILENCE.max(self.round_trip() * SILENCE_ROUND_TRIPS);
        if u128::from(total) >= longest.as_millis() {
            self.lose(LostReason::Silent);
        }
    }

    /// A socket of its own for a frame that has none yet, or the shared one if that would be too many.
    #[cold]
    fn bind_new_way(
        &self,
        frame: u32,
        wish: BindRequest,
        until: Instant,
    ) -> Result<Granted, CallError> {
        let one_more = |count| (count < limits::SOCKETS_PER_SERVER).then_some(count + 1);
        let counted = self.sockets.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        let Ok(before) = counted else { return self.bind_shared(frame, wish, until) };
        if before > 0 {
            // There when descriptors have run out: from two sockets on nobody is without a way.
            let _ = self.share();
        }
        for _ in 0..OWN_TRIES {
            let socket = match connected(&self.to, SocketUse::Calls) {
                Ok(socket) => socket,
                // Without descriptors one may share what is there.
                Err(_) if self.shared.lock().is_some() => break,
                Err(error) => {
                    self.sockets.fetch_sub(1, Ordering::Relaxed);
                    return Err(CallError::system(Phase::Bind, "making a socket", error));
                }
            };
            let bound = bind_over(&socket, &self.to, BindRequest { handles: 1, ..wish }, until);
            let granted = bound.inspect_err(|_| {
                self.sockets.fetch_sub(1, Ordering::Relaxed);
            })?;
            if granted.grant.incarnation == self.incarnation {
                let _ = self.call_sockets[frame as usize].set(CallSocket::Own(socket));
                return Ok(granted);
            }
            say_goodbye(&socket, granted.grant.handles(), granted.terms);
        }
        self.sockets.fetch_sub(1, Ordering::Relaxed);
        self.bind_shared(frame, wish, until)
    }

    /// Gives a frame the shared way, over a socket that leads to the association's server.
    fn bind_shared(
        &self,
        frame: u32,
        wish: BindRequest,
        until: Instant,
    ) -> Result<Granted, CallError> {
        for _ in 0..SHARED_TRIES {
            let shared = self
                .share()
                .map_err(|error| CallError::system(Phase::Bind, "making a socket", error))?;
            let granted = shared.bind(self, wish, until)?;
            if granted.grant.incarnation == self.incarnation {
                shared.prove();
                let _ = self.call_sockets[frame as usize].set(CallSocket::Shared(shared));
                return Ok(granted);
            }
            say_goodbye(shared.socket(), granted.grant.handles(), granted.terms);
            if shared.is_proven() {
                // It led there once, and does not any more.
                break;
            }
            let mut current = self.shared.lock();
            if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &shared)) {
                *current = None;
            }
        }
        self.lose(LostReason::AnotherServer);
        Err(LostReason::AnotherServer.failure())
    }

    /// The socket that frames share; made for the first of them.
    fn share(&self) -> io::Result<Arc<SharedSocket>> {
        let mut shared = self.shared.lock();
        if let Some(shared) = &*shared {
            return Ok(Arc::clone(shared));
        }
        let new = Arc::new(SharedSocket::new(&self.to, self.frames.layout().count)?);
        Ok(Arc::clone(shared.insert(new)))
    }

    /// Gives handles back that were bound over the shared socket.
    pub(super) fn say_goodbye(&self, handles: &[GrantedHandle], terms: ClientTerms) {
        if let Some(shared) = &*self.shared.lock() {
            say_goodbye(shared.socket(), handles, terms);
        }
    }

    /// Whether this machine would use another address of its own for the route now than a socket has. If
    /// there is no way there at all it has not moved: the way may come back.
    #[cold]
    pub(super) fn has_moved(&self, socket: &Socket) -> bool {
        let Route::Udp(to) = self.to else { return false };
        let own = socket.local().ok().and_then(|own| own.ip()).map(|own| own.ip());
        // Connecting looks the route up, and sends nothing.
        let now = Udp::connected(to).and_then(|new| new.local()).map(|now: SocketAddr| now.ip());
        now.is_ok_and(|now| own != Some(now))
    }

    /// Pieces of so many bytes get through to its server, and larger ones did not.
    #[cold]
    pub(super) fn learn(&self, piece: u32) {
        if let Route::Udp(to) = self.to {
            piece_sizes::learn(to.ip(), piece);
        }
    }

    /// Bytes of a piece that gets through to its server, if `piece` bytes are what was agreed on.
    pub(super) fn piece_for(&self, piece: u32) -> u32 {
        match self.to {
            Route::Udp(to) => piece_sizes::known(to.ip()).map_or(piece, |known| known.min(piece)),
            Route::Link(..) => piece,
        }
    }

    // Memory.

    /// The memory of a frame, from the room for the header on: that of the call, or of the reply.
    pub(super) fn half(&self, index: u32, at: usize) -> Space<'_> {
        let layout = self.frames.layout();
        let start = layout.stride * index as usize + at - HEADER_BYTES;
        let space = self.frames.memory().space();
        space.range(start, HEADER_BYTES + layout.bytes)
    }

    /// The same of the reply.
    pub(super) fn reply_half(&self, index: u32) -> Space<'_> {
        self.half(index, self.frames.layout().reply_at)
    }

    // What is owed.

    /// Looks after a lane from now on.
    pub(super) fn add(&self, activity: &Arc<Mutex<Activity>>) {
        self.activities.lock().push(Arc::downgrade(activity));
    }

    /// A lane's call was given up: its frame is captured until the server has let go.
    #[cold]
    pub(super) fn capture(self: &Arc<Self>, frame: u32, activity: &Arc<Mutex<Activity>>) {
        let captive =
            CapturedCall { association: Arc::downgrade(self), activity: Arc::clone(activity) };
        *self.captured[frame as usize].lock() = Some(captive);
    }

    /// Whether a frame is captured. Only its holder asks.
    #[cold]
    pub(super) fn is_captured(&self, frame: u32) -> bool {
        self.captured[frame as usize].lock().is_some()
    }

    /// Whether the server has let go of a frame, whichever association captured it.
    pub(crate) fn is_released(&self, frame: u32) -> bool {
        // Who asks has the frame, so that nobody else changes this meanwhile.
        let captive = self.captured[frame as usize].lock().clone();
        let Some(CapturedCall { association, activity }) = captive else { return true };
        // Without its association nobody asks any more.
        let is_released = match association.upgrade() {
            None => true,
            Some(association) => {
                let Some(mut activity) = activity.try_lock() else { return false };
                association.look_after(&mut activity)
            }
        };
        if is_released {
            *self.captured[frame as usize].lock() = None;
        }
        is_released
    }

    /// Does what is owed; whether something still will be.
    pub(crate) fn tend(&self) -> bool {
        // Before the look: what is owed from now on is said anew.
        self.tended.store(false, Ordering::SeqCst);
        let mut activities = self.activities.lock();
        activities.retain(|activity| activity.strong_count() > 0);
        let all: Vec<_> = activities.iter().filter_map(Weak::upgrade).collect();
        drop(activities);
        let now = moment();
        let mut owed = false;
        for activity in all {
            // One that is in a call owes nothing.
            let Some(mut activity) = activity.try_lock() else {
                owed = true;
                continue;
            };
            if activity.client_end.is_captured() {
                owed |= !self.look_after(&mut activity);
            } else if activity.client_end.owes_acknowledgement() {
                if now.since(activity.ended) < OWED.as_nanos() as u64 / 2 {
                    owed = true;
                } else {
                    activity.client_end.acknowledge();
                    self.say(&mut activity, now);
                }
            }
        }
        if owed {
            self.tended.store(true, Ordering::SeqCst);
        }
        owed
    }

    /// Notes that something is owed; whether the keeper is to be told.
    pub(super) fn owes(&self) -> bool {
        !self.tended.load(Ordering::Relaxed) && !self.tended.swap(true, Ordering::SeqCst)
    }

    /// Sends what a caller has to say that has no call.
    pub(super) fn say(&self, activity: &mut Activity, now: Moment) {
        let Some(call_socket) = self.socket_of(activity.index) else { return };
        let mut out = [0; CONTROL_BYTES_MAX];
        // Nothing that it says then has a part of a message.
        while let Some(send) = activity.poll_send(now, &mut out) {
            deliver_now(activity, call_socket, &[Window::from(&out[..send.bytes])]);
        }
    }

    /// Looks whether the server has let go of a call that was given up, and asks again; true once
    /// it has.
    fn look_after(&self, activity: &mut Activity) -> bool {
        let Some(call_socket) = self.socket_of(activity.index) else { return true };
        match call_socket {
            CallSocket::Own(socket) => hear(socket, activity),
            CallSocket::Shared(shared) => shared.look(self, activity),
        }
        let now = moment();
        if activity.client_end.next_timer().is_some_and(|due| due <= now) {
            activity.client_end.handle_timer(now);
            if activity.client_end.is_closed() {
                // It was asked as often as a call that waits asks, and said nothing. Calls with limits
                // shorter than that learn it here only.
                self.lose(LostReason::Silent);
            }
        }
        self.say(activity, now);
        !activity.client_end.is_captured()
    }
}

/// Takes what has come on a lane's own socket while no call is under way.
fn hear(socket: &Socket, activity: &mut Activity) {
    let mut memory = [0; CONTROL_BYTES_MAX];
    // What comes belongs to the frame's call, if another binding has one: it asks again.
    for _ in 0..16 {
        let came = socket.receive(&[Space::of_mut(&mut memory)], None, Until::Now);
        match came {
            Ok(Some(arrival)) if !arrival.cut => {
                activity.hear(&memory[..arrival.bytes]);
            }
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(_) => activity.client_end.note_unreachable(),
        }
    }
}
