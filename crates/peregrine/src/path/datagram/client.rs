//! The client's end: a frame for each calling thread, its way to the network, and a caller for each of
//! them and each binding.
//!
//! The thread that calls sends, waits and receives on its own socket, so the kernel wakes the right
//! one (Firefly's direct wake-up). Beyond so many sockets the others share one. What is owed when no call is under way, the keeper does: it
//! acknowledges results, and asks whether calls that were given up have been let go.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::time::Instant;

use super::bind::{Granted, bind_over};
use super::lane::{Came, Lane, Receiving, Waiting, Way, deliver_now, send};
use super::message::{Message, PARTS_MAX, Parts};
use super::sharing::{ReceiveTurn, Shared};
use super::{BUFFER_BYTES, PeerFlow, moment};
use crate::call::chain::WaitingInside;
use crate::call::extensions::{Extensions, no_time_left};
use crate::call::{Answer, Call, CallPath, FrameLayout, Frames, PathKind, Returned, Wait, inside};
use crate::device::{Route, Socket, Until, Use};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::limits;
use crate::protocol::exchange::bind::Wish;
use crate::protocol::exchange::caller::{self, Caller, Outcome, Terms, Unbegun, Why};
use crate::protocol::exchange::header::{CONTROL_BYTES_MAX, HEADER_BYTES, Handle};
use crate::protocol::exchange::message::Shape;
use crate::protocol::exchange::time::Moment;
use crate::sys::{self, Memory};
use crate::value::{Space, Window, align_up};

/// How long an acknowledgement may be owed.
pub(crate) const OWED: Duration = Duration::from_millis(100);

/// A result of so many bytes is acknowledged at once, for the server's sake that keeps it: one packet
/// more, among many.
const ACKNOWLEDGED_AT_ONCE: u32 = 1 << 20;

/// What all bindings of this process that take one route share.
pub(crate) struct Association {
    to: Route,
    pub(crate) frames: Arc<Frames>,
    flow: Arc<PeerFlow>,
    slots: Box<[Slot]>,
    /// How many frames have a socket of their own.
    sockets: AtomicU32,
    /// The socket of the others.
    shared: Mutex<Option<Arc<Shared>>>,
    lanes: Mutex<Vec<Weak<Mutex<Lane>>>>,
    /// Whether the keeper looks after what is owed.
    tended: AtomicBool,
}

/// What belongs to a frame: whoever has the frame uses it.
#[derive(Default)]
struct Slot {
    way: OnceLock<Way>,
    /// Whose call was given up, until the server has let go of it.
    captured: Mutex<Option<Arc<Mutex<Lane>>>>,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_locked<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Association {
    /// Room for `count` calls at a time, of messages of so many bytes, to one address.
    pub(crate) fn new(to: Route, count: u32, active: u32, bytes: usize) -> io::Result<Self> {
        let bytes = align_up(bytes);
        let half = (HEADER_BYTES + bytes).next_multiple_of(HEADER_BYTES);
        let (count, stride) = (count.clamp(1, limits::ASTACKS_MAX), 2 * half);
        let memory = Memory::private(stride * count as usize)?;
        let (call_at, reply_at) = (HEADER_BYTES, half + HEADER_BYTES);
        let layout = FrameLayout { count, first: 0, stride, call_at, reply_at, bytes };
        Ok(Self::of_frames(to, Arc::new(Frames::new(Arc::new(memory), layout, active))))
    }

    /// The same for the frames of another association, which goes another way to the same server.
    pub(crate) fn beside(&self, to: Route) -> Self {
        let frames = Arc::clone(&self.frames);
        Self::of_frames(to, frames)
    }

    fn of_frames(to: Route, frames: Arc<Frames>) -> Self {
        Self {
            to,
            slots: (0..frames.layout().count).map(|_| Slot::default()).collect(),
            frames,
            flow: PeerFlow::new(),
            sockets: AtomicU32::new(0),
            shared: Mutex::default(),
            lanes: Mutex::default(),
            tended: AtomicBool::new(false),
        }
    }

    /// How its packets get to the server.
    pub(crate) const fn to(&self) -> &Route {
        &self.to
    }

    /// Bytes of the largest message.
    pub(crate) fn message_bytes(&self) -> usize {
        self.frames.layout().bytes
    }

    /// Asks for further handles: without descriptors over the socket that is shared.
    pub(crate) fn bind(&self, wish: Wish, until: Instant) -> Result<Granted, CallError> {
        let error = match connected(&self.to, Use::Calls) {
            Ok(socket) => return bind_over(&socket, &self.to, wish, until),
            Err(error) => error,
        };
        let shared = locked(&self.shared).clone();
        match shared {
            Some(shared) => shared.bind(self, wish, until),
            None => Err(CallError::system(Phase::Bind, "making a socket", error)),
        }
    }

    /// A frame's way to the network.
    #[inline]
    fn way(&self, index: u32) -> io::Result<&Way> {
        let way = &self.slots[index as usize].way;
        way.get().map_or_else(|| self.find_way(way), Ok)
    }

    /// A socket of its own for a frame that has none yet, or the shared one if that would be too many.
    #[cold]
    fn find_way<'a>(&'a self, way: &'a OnceLock<Way>) -> io::Result<&'a Way> {
        let one_more = |count| (count < limits::SOCKETS_PER_SERVER).then_some(count + 1);
        let counted = self.sockets.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        if counted.is_ok_and(|before| before > 0) {
            // There when descriptors have run out: from two sockets on nobody is without a way.
            let _ = self.share();
        }
        let found = if counted.is_ok() {
            connected(&self.to, Use::Calls).map(Way::Own).or_else(|error| {
                self.sockets.fetch_sub(1, Ordering::Relaxed);
                // Without descriptors one may share what is there.
                locked(&self.shared).as_ref().map(|one| Way::Shared(Arc::clone(one))).ok_or(error)
            })?
        } else {
            Way::Shared(self.share()?)
        };
        if let Err(Way::Own(_)) = way.set(found) {
            // Somebody had to say something on behalf of the frame meanwhile.
            self.sockets.fetch_sub(1, Ordering::Relaxed);
        }
        way.get().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The socket that frames share; made for the first of them.
    fn share(&self) -> io::Result<Arc<Shared>> {
        let mut shared = locked(&self.shared);
        if let Some(shared) = &*shared {
            return Ok(Arc::clone(shared));
        }
        let new = Arc::new(Shared::new(&self.to, self.frames.layout().count)?);
        Ok(Arc::clone(shared.insert(new)))
    }

    /// The memory of a frame, from the room for the header on: that of the call, or of the reply.
    fn half(&self, index: u32, at: usize) -> Space<'_> {
        let layout = self.frames.layout();
        let start = layout.stride * index as usize + at - HEADER_BYTES;
        let space = self.frames.memory().space();
        space.part(start, HEADER_BYTES + layout.bytes).unwrap_or(Space::none())
    }

    /// The same of the reply.
    pub(super) fn reply_half(&self, index: u32) -> Space<'_> {
        self.half(index, self.frames.layout().reply_at)
    }

    /// Does what is owed; whether something still will be.
    pub(crate) fn tend(&self) -> bool {
        // Before the look: what is owed from now on is said anew.
        self.tended.store(false, Ordering::SeqCst);
        let mut lanes = locked(&self.lanes);
        lanes.retain(|lane| lane.strong_count() > 0);
        let all: Vec<_> = lanes.iter().filter_map(Weak::upgrade).collect();
        drop(lanes);
        let now = moment();
        let mut owed = false;
        for lane in all {
            // One that is in a call owes nothing.
            let Some(mut lane) = try_locked(&lane) else {
                owed = true;
                continue;
            };
            if lane.caller.is_captured() {
                owed |= !self.look_after(&mut lane);
            } else if lane.caller.owes_acknowledgement() {
                if now.since(lane.ended) < OWED.as_nanos() as u64 / 2 {
                    owed = true;
                } else {
                    lane.caller.acknowledge();
                    self.say(&mut lane, now);
                }
            }
        }
        if owed {
            self.tended.store(true, Ordering::SeqCst);
        }
        owed
    }

    /// Notes that something is owed; whether the keeper is to be told.
    fn owes(&self) -> bool {
        !self.tended.load(Ordering::Relaxed) && !self.tended.swap(true, Ordering::SeqCst)
    }

    /// Sends what a caller has to say that has no call.
    fn say(&self, lane: &mut Lane, now: Moment) {
        let Ok(way) = self.way(lane.index) else { return };
        let mut out = [0; CONTROL_BYTES_MAX];
        // Nothing that it says then has a part of a message.
        while let Some(send) = lane.poll_send(now, &mut out) {
            deliver_now(lane, way, &[Window::from(&out[..send.bytes])]);
        }
    }

    /// Looks whether the server has let go of a call that was given up, and asks again; true once
    /// it has.
    fn look_after(&self, lane: &mut Lane) -> bool {
        let Ok(way) = self.way(lane.index) else { return true };
        match way {
            Way::Own(socket) => hear(socket, lane),
            Way::Shared(shared) => shared.look(self, lane),
        }
        let now = moment();
        if lane.caller.next_timer().is_some_and(|due| due <= now) {
            lane.caller.timer(now);
        }
        self.say(lane, now);
        !lane.caller.is_captured()
    }
}

/// Takes what has come on a lane's own socket while no call is under way.
fn hear(socket: &Socket, lane: &mut Lane) {
    let mut memory = [0; CONTROL_BYTES_MAX];
    // What comes belongs to the frame's call, if another binding has one: it asks again.
    for _ in 0..16 {
        let came = socket.receive(&[Space::of_mut(&mut memory)], None, Until::Now);
        match came {
            Ok(Some(arrival)) if !arrival.cut => {
                lane.hear(&memory[..arrival.bytes]);
            }
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(_) => lane.caller.unreachable(),
        }
    }
}

/// A socket for a route, with room for what may come.
pub(super) fn connected(to: &Route, what: Use) -> io::Result<Socket> {
    let socket = to.connect(what)?;
    socket.size_buffers(BUFFER_BYTES)?;
    Ok(socket)
}

/// Gets new handles for a binding whose server has forgotten an idle one.
pub(crate) trait Renew: Send + Sync {
    /// Handles from the same server as before.
    ///
    /// # Errors
    /// If it is another one, or there are none.
    fn renew(&self, deadline: Option<Instant>) -> Result<Granted, CallError>;

    /// Something is owed: the keeper is to look after it.
    fn remind(&self);

    /// Whether this process bound, and is not a forked child of the one that did.
    fn is_own(&self) -> bool;
}

/// A binding's way to its export.
pub(crate) struct DatagramPath<R: Renew> {
    association: Arc<Association>,
    lanes: Box<[OnceLock<Arc<Mutex<Lane>>>]>,
    spare: Mutex<Vec<Handle>>,
    terms: Terms,
    checked: bool,
    round_trip: u64,
    wait: Wait,
    /// Whether the last call found a server.
    lost: AtomicBool,
    /// When the first of those calls began, or heard something last, that have failed since for want of
    /// answers; 0 if none has.
    silent_since: AtomicU64,
    renew: R,
}

impl<R: Renew> DatagramPath<R> {
    pub(crate) fn new(
        association: Arc<Association>,
        (grant, terms, round_trip): Granted,
        wait: Wait,
        renew: R,
    ) -> Self {
        let count = association.frames.layout().count;
        Self {
            lanes: (0..count).map(|_| OnceLock::new()).collect(),
            association,
            spare: Mutex::new(grant.handles().to_vec()),
            terms,
            checked: grant.payload_check,
            round_trip,
            wait,
            lost: AtomicBool::new(false),
            silent_since: AtomicU64::new(0),
            renew,
        }
    }

    /// For how long calls have failed in a row of which nothing was heard, in nanoseconds.
    #[cold]
    pub(super) fn silence(&self) -> u64 {
        match self.silent_since.load(Ordering::Relaxed) {
            0 => 0,
            since => moment().0.saturating_sub(since),
        }
    }

    /// A call that began then fails; if the server is `dead` to it, it has asked in vain for long
    /// since it heard anything.
    #[cold]
    fn note_failure(&self, lane: &Lane, began: Moment, dead: bool) {
        let order = Ordering::Relaxed;
        let since = match lane.heard {
            None => began,
            Some(heard) if dead => heard,
            Some(_) => return self.silent_since.store(0, order),
        };
        let _ = self.silent_since.compare_exchange(0, since.0, order, order);
    }

    /// A handle that nobody has used yet.
    fn handle(&self, deadline: Option<Instant>) -> Result<Handle, CallError> {
        if let Some(handle) = locked(&self.spare).pop() {
            return Ok(handle);
        }
        let (grant, ..) = self.renew.renew(deadline)?;
        let mut spare = locked(&self.spare);
        spare.extend_from_slice(grant.handles());
        spare.pop().ok_or_else(|| {
            CallError::not_executed(Kind::Exhausted, Phase::Bind, "the server granted no handle")
        })
    }

    /// A caller of a new handle, for a frame that goes that way.
    fn caller(&self, (handle, terms, round_trip): (Handle, Terms, u64), way: &Way) -> Caller {
        let seed = sys::random().map_or(1, u64::from_le_bytes);
        let terms = if let Way::Shared(_) = way { Shared::terms(terms) } else { terms };
        Caller::new(handle, terms, round_trip, seed)
    }

    /// The caller of a frame.
    fn lane(&self, index: u32, deadline: Option<Instant>) -> Result<&Arc<Mutex<Lane>>, CallError> {
        let lane = &self.lanes[index as usize];
        if let Some(lane) = lane.get() {
            return Ok(lane);
        }
        self.new_lane(index, lane, deadline)
    }

    #[cold]
    fn new_lane<'a>(
        &'a self,
        index: u32,
        lane: &'a OnceLock<Arc<Mutex<Lane>>>,
        deadline: Option<Instant>,
    ) -> Result<&'a Arc<Mutex<Lane>>, CallError> {
        let handle = self.handle(deadline)?;
        let way = self.way_of(index).inspect_err(|_| locked(&self.spare).push(handle))?;
        let caller = self.caller((handle, self.terms, self.round_trip), way);
        // Nobody else has the frame.
        Ok(lane.get_or_init(|| {
            let flow = Arc::clone(&self.association.flow);
            let lane = Lane::new(caller, flow, index, self.checked);
            let lane = Arc::new(Mutex::new(lane));
            if let Way::Shared(shared) = way {
                shared.add(handle, &lane);
            }
            locked(&self.association.lanes).push(Arc::downgrade(&lane));
            lane
        }))
    }

    fn way_of(&self, index: u32) -> Result<&Way, CallError> {
        let way = self.association.way(index);
        way.map_err(|error| CallError::system(Phase::Call, "making a socket", error))
    }

    /// One call, with the caller's lane.
    fn exchange<'m>(
        &self,
        (mutex, mut lane): (&'m Mutex<Lane>, MutexGuard<'m, Lane>),
        message: &Message<'_>,
        shape: Shape,
        call: &Call<'_, '_, '_>,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'m, Lane>, Result<Shape, CallError>) {
        let association = &*self.association;
        let way = match self.way_of(lane.index) {
            Ok(way) => way,
            Err(error) => return (lane, Err(error)),
        };
        if let Err(unbegun) = lane.caller.begin(shape) {
            return (lane, Err(not_begun(unbegun)));
        }
        if let Way::Shared(shared) = way {
            shared.begin(&mut lane);
        }
        // A result of several packets goes where there is room for whole trains.
        let outs: usize = call.outs.iter().map(|out| out.capacity()).sum();
        let mut receiving = Receiving {
            half: association.reply_half(lane.index),
            apart: outs + HEADER_BYTES > lane.caller.piece() as usize,
        };
        let call_half = association.half(lane.index, association.frames.layout().call_at);
        let mut waiting = Waiting::new(self.wait, deadline);
        let mut turn: ReceiveTurn<'_> = None;
        let mut now = moment();
        let began = now;
        lane.heard = None;
        let result = loop {
            send(&mut lane, way, message, call_half, shape.total, now);
            match lane.caller.outcome() {
                Some(Outcome::Returned(shape)) => {
                    lane.ended = now;
                    break Ok(shape);
                }
                Some(Outcome::Failed { executed, why }) => {
                    self.note_failure(&lane, began, matches!(why, Why::Dead));
                    break Err(failed(executed, why));
                }
                None => {}
            }
            let came = match way {
                Way::Own(socket) => receiving.receive(&mut lane, socket, &mut waiting),
                Way::Shared(shared) => {
                    let came;
                    let open = (mutex, lane);
                    (lane, came) = shared.receive(association, open, &mut turn, &mut waiting);
                    came
                }
            };
            now = if let Came::Packets(now) = came { now } else { moment() };
            match came {
                Came::Packets(_) => {}
                Came::Nothing => {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        self.note_failure(&lane, began, false);
                        lane.caller.quit(now);
                        // It says what was asked of it.
                        let _ = lane.caller.outcome();
                        send(&mut lane, way, message, call_half, shape.total, now);
                        let text = "the server has not answered";
                        break Err(CallError::new(Kind::TimedOut, Executed::Maybe, text));
                    }
                }
                Came::Unreachable => lane.caller.unreachable(),
            }
            if lane.caller.next_timer().is_some_and(|due| due <= now) {
                lane.caller.timer(now);
            }
        };
        (lane, result)
    }
}

#[cold]
fn not_begun(unbegun: Unbegun) -> CallError {
    match unbegun {
        Unbegun::TooLarge => CallError::too_large(),
        Unbegun::Busy | Unbegun::Gone => {
            let text = "the server has not let go of the caller's last call";
            CallError::not_executed(Kind::Exhausted, Phase::Call, text)
        }
    }
}

#[cold]
fn failed(executed: caller::Executed, why: Why) -> CallError {
    let executed = match executed {
        caller::Executed::No => Executed::No,
        caller::Executed::Maybe => Executed::Maybe,
    };
    let (kind, text) = match why {
        Why::Dead => (Kind::ServerGone, "the server does not answer any more"),
        Why::Unreachable => (Kind::ServerGone, "nobody listens any more where the server was"),
        Why::Refused => (Kind::ServerGone, "the server does not know this caller any more"),
        Why::Quit => (Kind::TimedOut, "the call was given up"),
        Why::Protocol => (Kind::BadResult, "the result is larger than agreed"),
    };
    CallError::new(kind, executed, text)
}

impl<R: Renew> CallPath for DatagramPath<R> {
    fn explain(&self) -> String {
        format!("datagrams to {}", self.association.to())
    }

    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        let layout = call.layout();
        if layout.total > self.association.message_bytes() {
            return Err(CallError::too_large());
        }
        let deadline = call.limit.deadline();
        let index = call.frame.index();
        let lane = self.lane(index, deadline)?;
        let mut lane_guard = locked(lane);
        let (inside, carried) = (inside(), &mut None);
        let extension = if inside.is_some() || deadline.is_some() {
            // What travels is a multiple of 16.
            Window::from(carried.insert(Extensions::of(inside, deadline)?).padded())
        } else {
            Window::empty()
        };
        let _waiting = inside.map(|_| WaitingInside::begin());
        let blocks = call.ins.len() + call.lent.len();
        let piece = lane_guard.caller.piece() as usize;
        // Blocks are sent from where they lie, unless they are few bytes, or many, or to be converted:
        // then by way of the frame.
        let whole = !call.is_straight() || layout.total <= piece || blocks + 2 > PARTS_MAX;
        if whole {
            call.put(usize::MAX).ok_or_else(CallError::too_large)?;
        }
        call.head.flush();
        let there = if whole { layout.total } else { layout.head };
        let there = call.frame.call_space().part(0, there).unwrap_or(Space::none()).window();
        let message = if whole && extension.is_empty() {
            Message::Whole(there)
        } else {
            let mut parts = Parts::new();
            let mut fits = extension.is_empty() || parts.push(extension);
            fits &= parts.push(there);
            for block in call.ins.iter().chain(call.lent).filter(|_| !whole) {
                fits &= parts.push(block.straight().unwrap_or(Window::empty()));
            }
            if !fits {
                return Err(CallError::too_large());
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
        (lane_guard, result) = self.exchange((lane, lane_guard), &message, shape, call, deadline);
        if lane_guard.caller.is_gone()
            && let Err(error) = &result
        {
            // The handle is of no use; if nothing ran, an idle caller was forgotten.
            self.lost.store(true, Ordering::Relaxed);
            if error.executed() == Executed::No {
                let gone = lane_guard.caller.handle_of();
                // Who has the receive turn is not to wait for it.
                drop(lane_guard);
                let (grant, terms, round_trip) = self.renew.renew(deadline)?;
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Err(no_time_left());
                }
                lane_guard = locked(lane);
                if let Some((handle, rest)) = grant.handles().split_first() {
                    *locked(&self.spare) = rest.to_vec();
                    let way = self.way_of(index)?;
                    lane_guard.caller = self.caller((*handle, terms, round_trip), way);
                    if let Way::Shared(shared) = way {
                        shared.remove(&gone);
                        shared.add(*handle, lane);
                    }
                    (lane_guard, result) =
                        self.exchange((lane, lane_guard), &message, shape, call, deadline);
                }
            }
        }
        if result.as_ref().is_ok_and(|result| result.total >= ACKNOWLEDGED_AT_ONCE) {
            lane_guard.caller.acknowledge();
            let now = lane_guard.ended;
            self.association.say(&mut lane_guard, now);
        }
        if lane_guard.caller.is_captured() {
            let slot = &self.association.slots[index as usize];
            *locked(&slot.captured) = Some(Arc::clone(lane));
        }
        drop(lane_guard);
        if self.association.owes() {
            self.renew.remind();
        }
        let Shape { what, total, head, at, .. } = result?;
        self.lost.store(false, Ordering::Relaxed);
        if self.silent_since.load(Ordering::Relaxed) != 0 {
            self.silent_since.store(0, Ordering::Relaxed);
        }
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
        !self.lost.load(Ordering::Relaxed)
    }

    fn let_go(&self, frame: u32) -> bool {
        let slot = &self.association.slots[frame as usize];
        let mut captured = locked(&slot.captured);
        let Some(lane) = captured.as_ref() else { return true };
        let Some(mut lane) = try_locked(lane) else { return false };
        let let_go = self.association.look_after(&mut lane);
        drop(lane);
        if let_go {
            *captured = None;
        }
        let_go
    }
}

impl<R: Renew> Drop for DatagramPath<R> {
    fn drop(&mut self) {
        // A forked child would speak in its parent's name.
        if !self.renew.is_own() {
            return;
        }
        let now = moment();
        for lane in self.lanes.iter().filter_map(OnceLock::get) {
            let mut lane = locked(lane);
            lane.caller.bye();
            self.association.say(&mut lane, now);
            // What was given up is heard of until the server has let go.
            if let Ok(Way::Shared(shared)) = self.association.way(lane.index)
                && !lane.caller.is_captured()
            {
                shared.remove(&lane.caller.handle_of());
            }
        }
        // Nor are those needed that no thread has used.
        for handle in locked(&self.spare).drain(..) {
            let mut caller = Caller::new(handle, self.terms, self.round_trip, 1);
            caller.bye();
            let mut lane = Lane::new(caller, Arc::clone(&self.association.flow), 0, false);
            lane.ended = now;
            self.association.say(&mut { lane }, now);
        }
    }
}
