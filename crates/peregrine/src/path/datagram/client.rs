//! The client's end of a call: a caller for each binding and frame, its packets out, its result in.
//!
//! The thread that calls sends, waits and receives on its frame's own socket, so the kernel wakes the
//! right one (Firefly's direct wake-up). Beyond so many sockets the others share one. What is owed when no
//! call is under way, the keeper does: it acknowledges results, and asks whether calls that were given up
//! have been let go. Both stand in [`association`](super::association).

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::association::{Association, Loss};
use super::bind::{Granted, lost, say_goodbye};
use super::lane::{Came, Lane, Receiving, Trouble, Waiting, Way, send};
use super::message::{Message, PARTS_MAX, Parts};
use super::moment;
use super::sharing::{ReceiveTurn, Shared};
use crate::call::chain::WaitingInside;
use crate::call::extensions::{Extensions, no_time_left};
use crate::call::{Answer, Call, CallPath, PathKind, Returned, Wait, inside};
use crate::device::{Route, Socket};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::protocol::exchange::bind::{Lease, Wish};
use crate::protocol::exchange::caller::{self, Caller, Outcome, Terms, Unbegun, Why};
use crate::protocol::exchange::header::HEADER_BYTES;
use crate::protocol::exchange::message::{PIECE_MIN, Shape};
use crate::protocol::exchange::time::Moment;
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys;
use crate::value::Window;

/// A server that is known to be there answers within this, or within four round trips if that is longer.
/// Beyond it there may be another way to it.
const PATIENCE: Duration = Duration::from_secs(1);

/// A result of so many bytes is acknowledged at once, for the server's sake that keeps it: one packet
/// more, among many.
const ACKNOWLEDGED_AT_ONCE: u32 = 1 << 20;

/// What a binding says when one of its callers asks for a handle.
pub(crate) trait Renew: Send + Sync {
    /// What it wishes.
    fn wish(&self) -> Wish;

    /// Until when that may take, for a call with this deadline.
    fn until(&self, deadline: Option<Instant>) -> Instant;

    /// Something is owed: the keeper is to look after it.
    fn remind(&self);

    /// Whether this process bound, and is not a forked child of the one that did.
    fn is_own(&self) -> bool;
}

/// Over what a binding's first handle was bound.
pub(crate) enum First {
    /// The way of this frame, which the caller has.
    Frame(u32),
    /// A socket that is the way of no frame yet.
    Socket(Socket),
}

/// A binding's way to its export.
pub(crate) struct DatagramPath<R: Renew> {
    association: Arc<Association>,
    lanes: Box<[OnceLock<Arc<Mutex<Lane>>>]>,
    /// Handles that were bound over the shared socket and that no caller has yet.
    spare: Mutex<Vec<Lease>>,
    /// When the server granted the first of its handles.
    bound: Moment,
    terms: Terms,
    checked: bool,
    round_trip: u64,
    /// See [`Caller::ask_after`], in nanoseconds.
    ask_after: u64,
    wait: Wait,
    /// Whether the last call found a server.
    lost: AtomicBool,
    /// When the first of those calls began, or heard something last, that have failed since for want of
    /// answers; 0 if none has.
    silent_since: AtomicU64,
    /// The socket over which it was bound, and its handle, until a frame without a way is used.
    first: Mutex<Option<(Socket, Granted)>>,
    renew: R,
}

impl<R: Renew> DatagramPath<R> {
    /// A binding of which the first handle was bound so. Its callers ask about their calls after so
    /// much silence, at least.
    pub(crate) fn new(
        association: Arc<Association>,
        first: First,
        granted: Granted,
        wait: Wait,
        ask_after: Duration,
        renew: R,
    ) -> Self {
        let count = association.frames.layout().count;
        let path = Self {
            lanes: (0..count).map(|_| OnceLock::new()).collect(),
            association,
            spare: Mutex::ranked(Rank::Handles, Vec::new()),
            bound: moment(),
            terms: granted.1,
            checked: granted.0.payload_check,
            round_trip: granted.2,
            ask_after: ask_after.as_nanos().try_into().unwrap_or(u64::MAX),
            wait,
            lost: AtomicBool::new(false),
            silent_since: AtomicU64::new(0),
            first: Mutex::default(),
            renew,
        };
        match first {
            First::Frame(frame) => {
                let handle = path.first_of(&granted);
                if let (Some(way), Some(handle)) = (path.association.way(frame), handle) {
                    path.begin_lane(frame, (handle, granted.1, granted.2), way);
                }
            }
            First::Socket(socket) => *path.first.lock() = Some((socket, granted)),
        }
        path
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

    /// Binds over the way of a frame, which the caller has.
    #[cold]
    fn bind(&self, frame: u32, deadline: Option<Instant>) -> Result<Granted, CallError> {
        let patience = PATIENCE.max(Duration::from_nanos(self.round_trip.saturating_mul(4)));
        let until = self.renew.until(deadline).min(Instant::now() + patience);
        let bound = self.association.bind(frame, self.renew.wish(), until);
        bound.map_err(|error| lost(error, deadline))
    }

    /// The first handle that was granted; the others are kept for callers on the same socket.
    fn first_of(&self, granted: &Granted) -> Option<Lease> {
        let (first, rest) = granted.0.leases().split_first()?;
        *self.spare.lock() = rest.to_vec();
        Some(*first)
    }

    /// A handle for a frame, on the terms on which it was granted.
    #[cold]
    fn handle(
        &self,
        frame: u32,
        deadline: Option<Instant>,
    ) -> Result<(Lease, Terms, u64), CallError> {
        let granted = self.bind(frame, deadline)?;
        let handle = if let Some(Way::Own(_)) = self.association.way(frame) {
            granted.0.leases().first().copied()
        } else {
            self.first_of(&granted)
        };
        let handle = handle.ok_or_else(|| {
            CallError::not_executed(Kind::Exhausted, Phase::Bind, "the server granted no handle")
        })?;
        Ok((handle, granted.1, granted.2))
    }

    /// A caller of a new handle, for a frame that goes that way.
    fn caller(&self, (lease, terms, round_trip): (Lease, Terms, u64), way: &Way) -> Caller {
        let seed = sys::random().map_or(1, u64::from_le_bytes);
        let terms = if let Way::Shared(_) = way { Shared::terms(terms) } else { terms };
        let terms = Terms { piece: self.association.piece_for(terms.piece), ..terms };
        let mut caller = Caller::new(lease, terms, round_trip, seed);
        caller.ask_after(self.ask_after);
        caller.heard_at(self.bound);
        caller
    }

    /// The caller of a frame.
    fn lane(&self, index: u32, deadline: Option<Instant>) -> Result<&Arc<Mutex<Lane>>, CallError> {
        let lane = &self.lanes[index as usize];
        if let Some(lane) = lane.get() {
            return Ok(lane);
        }
        self.new_lane(index, deadline)
    }

    #[cold]
    fn new_lane(
        &self,
        index: u32,
        deadline: Option<Instant>,
    ) -> Result<&Arc<Mutex<Lane>>, CallError> {
        let known = match self.association.way(index) {
            Some(Way::Shared(_)) => {
                self.spare.lock().pop().map(|spare| (spare, self.terms, self.round_trip))
            }
            Some(Way::Own(_)) => None,
            None => self.first.lock().take().and_then(|(socket, granted)| {
                self.association.start_with(index, socket);
                Some((*granted.0.leases().first()?, granted.1, granted.2))
            }),
        };
        let is_new = known.is_none();
        let handle = match known {
            Some(handle) => handle,
            None => self.handle(index, deadline)?,
        };
        let way = self.way(index)?;
        let lane = self.begin_lane(index, handle, way);
        if is_new {
            lane.lock().caller.heard_at(moment());
        }
        Ok(lane)
    }

    /// The lane of a frame, which nobody else has.
    fn begin_lane(
        &self,
        index: u32,
        (lease, terms, round_trip): (Lease, Terms, u64),
        way: &Way,
    ) -> &Arc<Mutex<Lane>> {
        let caller = self.caller((lease, terms, round_trip), way);
        self.lanes[index as usize].get_or_init(|| {
            let lane = Arc::new(Mutex::ranked(
                Rank::Lane,
                Lane::new(caller, self.association.flow(), index, self.checked),
            ));
            if let Way::Shared(shared) = way {
                shared.add(lease.handle, &lane);
            }
            self.association.add(&lane);
            lane
        })
    }

    /// The way of a frame that has a lane.
    fn way(&self, index: u32) -> Result<&Way, CallError> {
        self.association.way(index).ok_or_else(|| Loss::Silent.failure())
    }

    /// Something kept packets of a call from leaving this machine, or makes them too large for what lies
    /// on their way. The error with which the call fails, if it does.
    #[cold]
    fn settle(&self, lane: &mut Lane, way: &Way, trouble: Trouble) -> Option<CallError> {
        match trouble {
            Trouble::TooLarge => {
                let piece = way.socket().payload(HEADER_BYTES).unwrap_or(0) as u32;
                if piece < PIECE_MIN {
                    // There is nothing smaller to send.
                    let _ = way.socket().let_cut();
                }
                lane.piece_max = lane.piece_max.min(piece.max(PIECE_MIN));
                lane.caller.narrow(lane.piece_max, moment());
                None
            }
            Trouble::Stranded => {
                if !self.association.has_moved(way.socket()) {
                    // It may come back: what did not leave is sent again.
                    return None;
                }
                self.association.lose(Loss::Moved);
                lane.caller.cut_off();
                let _ = lane.caller.outcome();
                let failure = Loss::Moved.failure();
                Some(if lane.sent { failure.may_have_executed() } else { failure })
            }
        }
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
        let way = match self.way(lane.index) {
            Ok(way) => way,
            Err(error) => return (lane, Err(error)),
        };
        if lane.caller.piece() > lane.piece_max {
            let narrow = lane.piece_max;
            lane.caller.narrow(narrow, moment());
        }
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
        (lane.sent, lane.trouble) = (false, None);
        let result = loop {
            send(&mut lane, way, message, call_half, shape.total, now);
            if let Some(trouble) = lane.trouble.take()
                && let Some(error) = self.settle(&mut lane, way, trouble)
            {
                break Err(error);
            }
            match lane.caller.outcome() {
                Some(Outcome::Returned(shape)) => {
                    lane.ended = now;
                    if lane.caller.piece() < self.terms.piece {
                        self.association.learn(lane.caller.piece());
                    }
                    break Ok(shape);
                }
                Some(Outcome::Failed { executed, why }) => {
                    self.note_failure(&lane, began, matches!(why, Why::Dead));
                    if matches!(why, Why::Dead | Why::Unreachable) {
                        self.association.lose(Loss::Silent);
                    } else if why == Why::Elsewhere {
                        self.association.lose(Loss::Moved);
                    }
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
            if let Came::Unreachable = came {
                lane.caller.unreachable();
            }
            // Also after a packet: they may come faster than they are looked at.
            if lane.caller.is_under_way()
                && deadline.is_some_and(|deadline| Instant::now() >= deadline)
            {
                self.note_failure(&lane, began, false);
                lane.caller.quit(now);
                let executed = match lane.caller.outcome() {
                    Some(Outcome::Failed { executed: caller::Executed::No, .. }) => Executed::No,
                    _ => Executed::Maybe,
                };
                send(&mut lane, way, message, call_half, shape.total, now);
                let text = "the server has not answered";
                break Err(CallError::new(Kind::TimedOut, executed, text));
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
        // A new handle is bound then; only its failure is told.
        Unbegun::Busy | Unbegun::Gone => {
            let text = "the caller's handle is of no use any more";
            CallError::not_executed(Kind::ServerGone, Phase::Call, text)
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
        Why::Elsewhere => {
            let text = "this machine has lost the address from which the caller bound";
            (Kind::ServerGone, text)
        }
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
        if let Some(loss) = self.association.loss() {
            return Err(loss.failure());
        }
        let deadline = call.limit.deadline();
        let index = call.frame.index();
        let lane = self.lane(index, deadline)?;
        let mut lane_guard = lane.lock();
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
        let whole = !call.is_unconverted() || layout.total <= piece || blocks + 2 > PARTS_MAX;
        if whole {
            call.put(usize::MAX).ok_or_else(CallError::too_large)?;
        }
        call.head.flush();
        let there = if whole { layout.total } else { layout.head };
        let there = call.frame.call_space().range(0, there).window();
        let message = if whole && extension.is_empty() {
            Message::Whole(there)
        } else {
            let mut parts = Parts::new();
            let mut fits = extension.is_empty() || parts.push(extension);
            fits &= parts.push(there);
            for block in call.ins.iter().chain(call.lent).filter(|_| !whole) {
                fits &= parts.push(block.unconverted().expect("no block is converted"));
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
        let caller = &lane_guard.caller;
        if let Err(error) = &result
            && (caller.is_gone() || caller.is_captured())
        {
            // The handle is of no use; if nothing ran, an idle caller was forgotten, or is captured.
            self.lost.store(true, Ordering::Relaxed);
            let not_run = error.executed() == Executed::No && error.kind() != Kind::TimedOut;
            if not_run && !self.association.is_lost() {
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Err(no_time_left());
                }
                let gone = caller.handle_of();
                // Who has the receive turn is not to wait for it.
                drop(lane_guard);
                let granted = self.handle(index, deadline)?;
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Err(no_time_left());
                }
                lane_guard = lane.lock();
                let way = self.way(index)?;
                lane_guard.caller = self.caller(granted, way);
                lane_guard.caller.heard_at(moment());
                if let Way::Shared(shared) = way {
                    shared.remove(&gone);
                    shared.add(granted.0.handle, lane);
                }
                (lane_guard, result) =
                    self.exchange((lane, lane_guard), &message, shape, call, deadline);
            }
        }
        if result.as_ref().is_ok_and(|result| result.total >= ACKNOWLEDGED_AT_ONCE) {
            lane_guard.caller.acknowledge();
            let now = lane_guard.ended;
            self.association.say(&mut lane_guard, now);
        }
        if lane_guard.caller.is_captured() {
            self.association.capture(index, lane);
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
        self.association.heard_over(index);
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

impl<R: Renew> Drop for DatagramPath<R> {
    fn drop(&mut self) {
        // A forked child would speak in its parent's name.
        if !self.renew.is_own() {
            return;
        }
        let now = moment();
        for lane in self.lanes.iter().filter_map(OnceLock::get) {
            let mut lane = lane.lock();
            lane.caller.bye();
            self.association.say(&mut lane, now);
            if let Some(Way::Shared(shared)) = self.association.way(lane.index) {
                shared.remove(&lane.caller.handle_of());
            }
        }
        // Nor are those needed that no thread has used.
        self.association.say_goodbye(&self.spare.lock(), self.terms);
        let first = self.first.lock().take();
        if let Some((socket, granted)) = first {
            say_goodbye(&socket, granted.0.leases(), granted.1);
        }
    }
}
