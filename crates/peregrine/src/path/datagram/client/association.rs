//! An association: the state that all bindings of this process to one server by one route share. An
//! association has frames (the memory of calls), a socket for each frame, and the packets that are due
//! between calls.
//!
//! The server grants *handles* to a client. Each handle identifies a sequence of calls. A handle is used only
//! over the socket over which it was granted. Load balancers, address translators and routers choose the
//! route of a packet by its ports. So from another socket, the same address may lead to another server, or
//! nowhere. The sockets of an association are never replaced. The whole association is *lost* if the server
//! does not answer any more, or if this machine has lost the address of the sockets. Then the bindings of the
//! association bind again, over new sockets.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use super::activity::{Activity, CallSocket, deliver};
use super::bells::FrameBells;
use super::handles::{Granted, Renewal, bind_over, say_goodbye};
use super::shared_socket::SharedSocket;
use super::watched_socket::WatchedSocket;
use crate::call::{FrameLayout, Frames, sparse_memory};
use crate::device::udp::Udp;
use crate::device::{Route, Socket, SocketUse, Until};
use crate::error::{CallError, Kind, Phase};
use crate::growing::Growing;
use crate::limits;
use crate::path::datagram::peer::{BUFFER_BYTES, PeerFlow, moment, piece_sizes};
use crate::path::datagram::sealed::ClientChannel;
use crate::protocol::exchange::bind::{BindRequest, GrantedHandle};
use crate::protocol::exchange::client_end::ClientTerms;
use crate::protocol::exchange::header::{CONTROL_BYTES_MAX, HEADER_BYTES};
use crate::protocol::exchange::time::Moment;
use crate::sync::{Mutex, Rank};
use crate::sys::IfFull;
use crate::value::{Space, Window, align_up};

/// The longest time by which the client delays an acknowledgement.
pub(crate) const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(100);

/// A server counts as silent if binding over a socket of the association has failed for this long in total. A
/// call that gets no answer also probes the server for this long before it fails.
const SILENCE: Duration = Duration::from_secs(2);
/// Like [`SILENCE`], but in round trips of the association. The longer of the two times applies.
const SILENCE_ROUND_TRIPS: u32 = 32;

/// The number of sockets that are tried for a frame until one of them leads to the association's server. With
/// a load balancer and two servers, about every second socket leads to that server.
const OWN_TRIES: u32 = 4;
/// Like [`OWN_TRIES`], over a sealed connection. Over the shared socket, an attempt that leads to another
/// server takes long, because that server cannot answer. So more other sockets are tried.
const SEALED_TRIES: u32 = 16;
/// The number of shared sockets that are tried until one of them leads to the association's server. This
/// number is larger than [`OWN_TRIES`], because there is no alternative after these sockets.
const SHARED_TRIES: u32 = 32;

/// The state that all bindings of this process to one server by one route share.
pub(crate) struct Association {
    to: Route,
    /// The random number that identifies one run of the server. An answer with another number comes from
    /// another server or another run. That server does not know the handles of this association.
    incarnation: u64,
    /// The first round trip that was measured, in nanoseconds.
    round_trip: u64,
    /// What encrypts the packets of all sockets. `None` if they are not encrypted.
    channel: Option<ClientChannel>,
    pub(crate) frames: Arc<Frames>,
    /// The bells of the frames, for pending calls.
    pub(super) bells: Arc<FrameBells>,
    flow: Arc<PeerFlow>,
    call_sockets: Growing<OnceLock<CallSocket>>,
    captured: Arc<Growing<Mutex<Option<CapturedCall>>>>,
    /// For each frame: for how many milliseconds its holders have waited for answers to bind requests. The
    /// count restarts at 0 when a packet arrives over the frame's socket. Only the holder of a frame changes
    /// the entry of that frame.
    silences: Growing<AtomicU32>,
    /// The number of frames that have a socket that is not shared.
    sockets: AtomicU32,
    /// The shared socket, for all frames that have no separate socket.
    shared: Mutex<Option<Arc<SharedSocket>>>,
    activities: Mutex<Vec<Weak<Mutex<Activity>>>>,
    /// Whether the keeper, the background thread of the process, already knows that packets are due.
    due: AtomicBool,
    /// Why the association is lost: the number of a [`LostReason`], or 0 if it is not lost.
    lost: AtomicU32,
}

/// Why an association cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum LostReason {
    /// The server does not answer over the sockets of the association.
    Silent = 1,
    /// This machine has lost the address of the association's sockets.
    AddressLost = 2,
    /// Another server answers over the association's sockets. The server was restarted, or a load balancer
    /// now chooses another server.
    AnotherServer = 3,
    /// The key of the server is not trusted any more.
    Distrusted = 4,
}

impl LostReason {
    /// Returns the error of a call that cannot begin for this reason.
    #[cold]
    pub(super) fn failure(self) -> CallError {
        let text = match self {
            Self::Silent => "the server has not answered for long",
            Self::AddressLost => "this machine has lost the address that the server answered to",
            Self::AnotherServer => {
                "another server answers there: it was restarted, or several servers share the address"
            }
            Self::Distrusted => "this side does not trust the server any more",
        };
        CallError::not_executed(Kind::ServerGone, Phase::Call, text)
    }
}

/// A cancelled call that the server has not released yet. Until then the call *captures* its frame: no other
/// call can use the frame.
#[derive(Clone)]
struct CapturedCall {
    association: Weak<Association>,
    activity: Arc<Mutex<Activity>>,
}

/// Creates a socket for a route, with buffers that are large enough for many packets.
pub(super) fn connected(to: &Route, what: SocketUse) -> io::Result<Socket> {
    let socket = to.connect(what)?;
    socket.size_buffers(BUFFER_BYTES)?;
    Ok(socket)
}

impl Association {
    /// Creates an association with the server that made the grant `granted`. The association has frames for
    /// `count` simultaneous calls, with messages of up to `bytes` bytes. `active` is the number of frames
    /// that are active at first.
    ///
    /// # Errors
    /// If there is no memory.
    pub(crate) fn new(
        to: Route,
        (granted, channel): (&Granted, Option<ClientChannel>),
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
        Ok(Self::with_frames(
            (to, channel),
            (granted.grant.incarnation, granted.round_trip_ns),
            frames,
            captured,
        ))
    }

    /// Creates an association with the same server by another route, and with other keys. The two associations
    /// share their frames.
    pub(crate) fn with_route(&self, to: Route, channel: Option<ClientChannel>) -> Self {
        let (frames, captured) = (Arc::clone(&self.frames), Arc::clone(&self.captured));
        Self::with_frames((to, channel), (self.incarnation, self.round_trip), frames, captured)
    }

    fn with_frames(
        (to, channel): (Route, Option<ClientChannel>),
        (incarnation, round_trip): (u64, u64),
        frames: Arc<Frames>,
        captured: Arc<Growing<Mutex<Option<CapturedCall>>>>,
    ) -> Self {
        let count = frames.layout().count;
        Self {
            to,
            incarnation,
            round_trip,
            channel,
            call_sockets: Growing::new(count, |_| OnceLock::new()),
            silences: Growing::new(count, |_| AtomicU32::new(0)),
            bells: FrameBells::new(&frames),
            frames,
            flow: PeerFlow::new(),
            captured,
            sockets: AtomicU32::new(0),
            shared: Mutex::ranked(Rank::SharedSocket, None),
            activities: Mutex::default(),
            due: AtomicBool::new(false),
            lost: AtomicU32::new(0),
        }
    }

    /// Returns the route to the server.
    pub(crate) const fn to(&self) -> &Route {
        &self.to
    }

    /// Returns what encrypts the packets, if they are encrypted.
    pub(crate) const fn channel(&self) -> Option<&ClientChannel> {
        self.channel.as_ref()
    }

    /// Creates a further socket, which encrypts its packets as all sockets of the association do.
    fn connected(&self, what: SocketUse) -> io::Result<Socket> {
        let socket = connected(&self.to, what)?;
        Ok(match &self.channel {
            None => socket,
            Some(channel) => socket.sealed(channel.seal()),
        })
    }

    /// Returns the congestion control of the path to the server.
    pub(super) fn flow(&self) -> Arc<PeerFlow> {
        Arc::clone(&self.flow)
    }

    /// Returns the size of the largest message in bytes.
    pub(crate) fn message_bytes(&self) -> usize {
        self.frames.layout().bytes
    }

    /// Returns the round trip of the first bind.
    pub(crate) const fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.round_trip)
    }

    /// Returns whether the association is lost.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed) != 0
    }

    /// Returns why the association is lost, or `None` if it is not lost and calls may begin.
    #[inline]
    pub(super) fn loss(&self) -> Option<LostReason> {
        match self.lost.load(Ordering::Relaxed) {
            0 => None,
            2 => Some(LostReason::AddressLost),
            3 => Some(LostReason::AnotherServer),
            4 => Some(LostReason::Distrusted),
            _ => Some(LostReason::Silent),
        }
    }

    /// Marks the association as lost. From now on, no call begins over its sockets, and no binding joins it.
    /// Calls in progress continue.
    #[cold]
    pub(super) fn lose(&self, why: LostReason) {
        let _ = self.lost.compare_exchange(0, why as u32, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Ends the use of the association because the key of its server is not trusted any more. Calls in
    /// progress get no more packets.
    #[cold]
    pub(crate) fn distrust(&self) {
        self.lose(LostReason::Distrusted);
        if let Some(channel) = &self.channel {
            channel.seal().end();
        }
    }

    // Sockets and handles.

    /// Returns the socket of a frame, if the frame has one.
    #[inline]
    pub(super) fn socket_of(&self, frame: u32) -> Option<&CallSocket> {
        self.call_sockets[frame as usize].get()
    }

    /// Assigns a socket to a frame that has none. A binding was made over this socket.
    pub(super) fn start_with(&self, frame: u32, socket: Socket) {
        if self.call_sockets[frame as usize]
            .set(CallSocket::Own(WatchedSocket::new(socket)))
            .is_ok()
        {
            self.sockets.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Binds over the socket of a frame. The caller holds the frame. If the frame has no socket, it gets one
    /// that leads to this server.
    ///
    /// # Errors
    /// `ServerGone` if another server answers. Otherwise the errors of binding.
    pub(crate) fn bind(
        &self,
        frame: u32,
        request: BindRequest,
        until: Instant,
    ) -> Result<Granted, CallError> {
        let renewal = self.renewal(request, until);
        let Some(call_socket) = self.socket_of(frame) else {
            return self.bind_new_socket(frame, renewal);
        };
        let begun = Instant::now();
        let bound = match call_socket {
            CallSocket::Own(socket) => bind_over(socket, &self.to, renewal.over_own()),
            CallSocket::Shared(shared) => shared.bind(self, renewal),
        };
        self.check_bound(frame, call_socket, begun, bound)
    }

    /// Returns a request that ends at the time `until`.
    pub(super) const fn renewal(&self, request: BindRequest, until: Instant) -> Renewal {
        Renewal { request, round_trip: self.round_trip(), until }
    }

    /// Checks the outcome of a bind exchange over the socket of a frame. The exchange began at `begun`.
    ///
    /// # Errors
    /// The error of the exchange, or `ServerGone` if another server answered.
    pub(super) fn check_bound(
        &self,
        frame: u32,
        call_socket: &CallSocket,
        begun: Instant,
        bound: Result<Granted, CallError>,
    ) -> Result<Granted, CallError> {
        let granted = bound.inspect_err(|error| {
            if error.kind() == Kind::TimedOut {
                self.note_no_answer(frame, begun.elapsed());
            }
        })?;
        self.note_answer(frame);
        if granted.grant.incarnation != self.incarnation {
            say_goodbye(call_socket.socket(), granted.grant.handles(), granted.terms);
            self.lose(LostReason::AnotherServer);
            return Err(LostReason::AnotherServer.failure());
        }
        Ok(granted)
    }

    /// Notes that a packet arrived over the socket of a frame. The caller holds the frame.
    #[inline]
    pub(super) fn note_answer(&self, frame: u32) {
        let silence = &self.silences[frame as usize];
        if silence.load(Ordering::Relaxed) != 0 {
            silence.store(0, Ordering::Relaxed);
        }
    }

    /// Notes that the holder of a frame has waited for the time `waited`, and got no answer to a bind
    /// request. The times of several calls are added up, because a single call may have too little time to
    /// notice a silent server.
    #[cold]
    fn note_no_answer(&self, frame: u32, waited: Duration) {
        let waited = u32::try_from(waited.as_millis()).unwrap_or(u32::MAX);
        let silence = &self.silences[frame as usize];
        let total = silence.load(Ordering::Relaxed).saturating_add(waited);
        silence.store(total, Ordering::Relaxed);
        let longest = SILENCE.max(self.round_trip() * SILENCE_ROUND_TRIPS);
        if u128::from(total) >= longest.as_millis() {
            self.lose(LostReason::Silent);
        }
    }

    /// Gives a frame a socket that is not shared. If there are too many sockets, gives it the shared socket.
    #[cold]
    fn bind_new_socket(&self, frame: u32, renewal: Renewal) -> Result<Granted, CallError> {
        let one_more = |count| (count < limits::SOCKETS_PER_SERVER).then_some(count + 1);
        let counted = self.sockets.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        let Ok(before) = counted else { return self.bind_shared(frame, renewal) };
        if before > 0 {
            // The shared socket is created together with the second socket. So the shared socket already
            // exists when descriptors run out.
            let _ = self.share();
        }
        let tries = if self.channel.is_some() { SEALED_TRIES } else { OWN_TRIES };
        for _ in 0..tries {
            let socket = match self.connected(SocketUse::Calls) {
                Ok(socket) => socket,
                // If there are no descriptors left, the frame uses the shared socket, provided that it
                // exists.
                Err(_) if self.shared.lock().is_some() => break,
                Err(error) => {
                    self.sockets.fetch_sub(1, Ordering::Relaxed);
                    return Err(CallError::system(Phase::Bind, "cannot make a socket", error));
                }
            };
            let granted = match bind_over(&socket, &self.to, renewal.over_own()) {
                Ok(granted) => granted,
                // Another server does not know the keys, so it can only refuse the packets.
                Err(error) if self.channel.is_some() && error.kind() == Kind::Unreachable => {
                    continue;
                }
                Err(error) => {
                    self.sockets.fetch_sub(1, Ordering::Relaxed);
                    return Err(error);
                }
            };
            if granted.grant.incarnation == self.incarnation {
                let own = CallSocket::Own(WatchedSocket::new(socket));
                let _ = self.call_sockets[frame as usize].set(own);
                return Ok(granted);
            }
            say_goodbye(&socket, granted.grant.handles(), granted.terms);
        }
        self.sockets.fetch_sub(1, Ordering::Relaxed);
        self.bind_shared(frame, renewal)
    }

    /// Gives a frame the shared socket, which must lead to the association's server.
    fn bind_shared(&self, frame: u32, renewal: Renewal) -> Result<Granted, CallError> {
        for _ in 0..SHARED_TRIES {
            let shared = self
                .share()
                .map_err(|error| CallError::system(Phase::Bind, "cannot make a socket", error))?;
            let granted = shared.bind(self, renewal)?;
            if granted.grant.incarnation == self.incarnation {
                shared.prove();
                let _ = self.call_sockets[frame as usize].set(CallSocket::Shared(shared));
                return Ok(granted);
            }
            say_goodbye(shared.socket(), granted.grant.handles(), granted.terms);
            if shared.is_proven() {
                // The shared socket led to this server before. Now it leads to another server.
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

    /// Returns the shared socket. Creates it if it does not exist yet.
    fn share(&self) -> io::Result<Arc<SharedSocket>> {
        let mut shared = self.shared.lock();
        if let Some(shared) = &*shared {
            return Ok(Arc::clone(shared));
        }
        let socket = self.connected(SocketUse::Shared)?;
        let new = SharedSocket::new(socket, self.frames.layout().count, &self.bells);
        let new = Arc::new(new);
        Ok(Arc::clone(shared.insert(new)))
    }

    /// Notifies the server that handles are not needed any more. These handles were granted over the shared
    /// socket.
    pub(super) fn say_goodbye(&self, handles: &[GrantedHandle], terms: ClientTerms) {
        if let Some(shared) = &*self.shared.lock() {
            say_goodbye(shared.socket(), handles, terms);
        }
    }

    /// Returns true if the route to the server now begins at an address of this machine that differs from the
    /// address of `socket`. Returns false if there is no route now, because the route may return.
    #[cold]
    pub(super) fn has_moved(&self, socket: &Socket) -> bool {
        let Route::Udp(to) = self.to else { return false };
        let own = socket.local().ok().and_then(|own| own.ip()).map(|own| own.ip());
        // Connecting a UDP socket looks up the route, and sends nothing.
        let now = Udp::connected(to).and_then(|new| new.local()).map(|now: SocketAddr| now.ip());
        now.is_ok_and(|now| own != Some(now))
    }

    /// Remembers that pieces of this size reach the server, and that larger pieces did not reach it.
    #[cold]
    pub(super) fn learn_piece(&self, piece: u32) {
        if let Route::Udp(to) = self.to {
            piece_sizes::learn(to.ip(), piece);
        }
    }

    /// Returns the size of message pieces to use. This is `piece`, or a smaller size if larger pieces were
    /// recently lost on the way to the server.
    pub(super) fn piece_for(&self, piece: u32) -> u32 {
        match self.to {
            Route::Udp(to) => piece_sizes::known(to.ip()).map_or(piece, |known| known.min(piece)),
            Route::Link(..) => piece,
        }
    }

    // Memory.

    /// Returns one half of a frame: the memory of one message, and of the header before it. `at` is the
    /// offset in bytes of the message in the frame.
    pub(super) fn half(&self, index: u32, at: usize) -> Space<'_> {
        let layout = self.frames.layout();
        let start = layout.stride * index as usize + at - HEADER_BYTES;
        let space = self.frames.memory().space();
        space.range(start, HEADER_BYTES + layout.bytes)
    }

    /// Returns the half of a frame for the reply: the memory of the reply, and of the header before it.
    pub(super) fn reply_half(&self, index: u32) -> Space<'_> {
        self.half(index, self.frames.layout().reply_at)
    }

    // Packets that are due between calls.

    /// Registers an activity, so that the keeper sends the activity's packets that are due between calls.
    pub(super) fn add(&self, activity: &Arc<Mutex<Activity>>) {
        self.activities.lock().push(Arc::downgrade(activity));
    }

    /// Marks a frame as captured. The mark stays until the server has released the activity's cancelled call.
    #[cold]
    pub(super) fn capture(self: &Arc<Self>, frame: u32, activity: &Arc<Mutex<Activity>>) {
        let captured =
            CapturedCall { association: Arc::downgrade(self), activity: Arc::clone(activity) };
        *self.captured[frame as usize].lock() = Some(captured);
    }

    /// Returns whether a frame is captured. Only the holder of the frame calls this function.
    #[cold]
    pub(super) fn is_captured(&self, frame: u32) -> bool {
        self.captured[frame as usize].lock().is_some()
    }

    /// Returns whether a frame is free of cancelled calls. This is so if the frame is not captured, or if the
    /// server has released the call that captured it. That call may belong to another association that shares
    /// the frames.
    pub(crate) fn is_released(&self, frame: u32) -> bool {
        // The caller holds the frame, so no other thread changes this entry meanwhile.
        let captured = self.captured[frame as usize].lock().clone();
        let Some(CapturedCall { association, activity }) = captured else { return true };
        // If the association was dropped, no thread receives from its sockets any more. So no packet of the
        // cancelled call can be written into the frame, and the frame is free.
        let is_released = match association.upgrade() {
            None => true,
            Some(association) => {
                let Some(mut activity) = activity.try_lock() else { return false };
                association.check_released(&mut activity)
            }
        };
        if is_released {
            *self.captured[frame as usize].lock() = None;
        }
        is_released
    }

    /// Sends the packets that are due. Returns whether further packets will become due later.
    pub(crate) fn maintain(&self) -> bool {
        // The flag is cleared first, so that `note_due` can report packets that become due from here on.
        self.due.store(false, Ordering::SeqCst);
        let mut activities = self.activities.lock();
        activities.retain(|activity| activity.strong_count() > 0);
        let all: Vec<_> = activities.iter().filter_map(Weak::upgrade).collect();
        drop(activities);
        let now = moment();
        let mut due = false;
        for activity in all {
            // If another thread holds the lock of the activity, a call is in progress, and no packets are
            // due now. Packets may become due after the call.
            let Some(mut activity) = activity.try_lock() else {
                due = true;
                continue;
            };
            if activity.client_end.is_captured() {
                due |= !self.check_released(&mut activity);
            } else if activity.client_end.owes_acknowledgement() {
                if now.since(activity.ended) < ACKNOWLEDGE_WITHIN.as_nanos() as u64 / 2 {
                    due = true;
                } else {
                    activity.client_end.acknowledge();
                    self.send_control(&mut activity, now);
                }
            }
        }
        if due {
            self.due.store(true, Ordering::SeqCst);
        }
        due
    }

    /// Notes that packets will become due. Returns true if the caller must wake the keeper.
    pub(super) fn note_due(&self) -> bool {
        !self.due.load(Ordering::Relaxed) && !self.due.swap(true, Ordering::SeqCst)
    }

    /// Sends the control packets of an activity that has no call in progress.
    pub(super) fn send_control(&self, activity: &mut Activity, now: Moment) {
        let Some(call_socket) = self.socket_of(activity.index) else { return };
        let mut out = [0; CONTROL_BYTES_MAX];
        // The packets that are due carry no pieces of messages, because no call is in progress.
        while let Some(send) = activity.poll_send(now, &mut out) {
            let packet = [Window::from(&out[..send.bytes])];
            deliver(activity, call_socket, &packet, IfFull::Fail);
        }
    }

    /// Asks the server whether it has released a cancelled call. Returns true once the server has released
    /// it.
    fn check_released(&self, activity: &mut Activity) -> bool {
        let Some(call_socket) = self.socket_of(activity.index) else { return true };
        match call_socket {
            CallSocket::Own(socket) => receive_between_calls(socket, activity),
            CallSocket::Shared(shared) => shared.check(self, activity),
        }
        let now = moment();
        if activity.client_end.next_timer().is_some_and(|due| due <= now) {
            activity.client_end.handle_timer(now);
            if activity.client_end.is_closed() {
                // The client has asked as often as a waiting call does, and has got no answer. If the
                // deadline of each call passes too early, the client notices only here that the server is
                // silent.
                self.lose(LostReason::Silent);
            }
        }
        self.send_control(activity, now);
        !activity.client_end.is_captured()
    }
}

/// Receives the packets that arrived on an activity's own socket between calls.
fn receive_between_calls(socket: &Socket, activity: &mut Activity) {
    let mut memory = [0; CONTROL_BYTES_MAX];
    // This loop may drop packets of a call that another binding makes on this frame. In that case, the
    // caller of that call asks the server again.
    for _ in 0..16 {
        let received = socket.receive(&[Space::of_mut(&mut memory)], None, Until::Now);
        match received {
            Ok(Some(arrival)) if !arrival.cut => {
                activity.handle_control(&memory[..arrival.bytes]);
            }
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(_) => activity.client_end.note_unreachable(moment()),
        }
    }
}
