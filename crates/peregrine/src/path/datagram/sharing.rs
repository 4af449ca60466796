//! `Shared`: one socket for many calling threads, of which one receives for all.
//!
//! Each still sends on its own, and has its own timers. What differs from a socket of one's own: who
//! waits leaves its lane to whoever has the receive turn, and that one gives each datagram to the
//! lane whose handle it names, puts results in their places, and wakes whom that concerns.
//!
//! Nobody who has locked a lane waits for anything but its own sending, except for whoever has the
//! turn, who may wait for other lanes: so nobody waits in a circle.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::association::{Association, connected};
use super::bind::{Granted, ask};
use super::lane::{Came, Lane, Packet, Receiving, Trouble, Waiting, is_refusal};
use super::moment;
use super::turn::{Held, Turn};
use crate::device::{Arrival, BYTES_MAX, Route, Socket, Until, Use, datagrams};
use crate::error::{CallError, Phase};
use crate::protocol::exchange::bind::Wish;
use crate::protocol::exchange::caller::Terms;
use crate::protocol::exchange::header::Handle;
use crate::sync::{Mutex, MutexGuard};
use crate::sys;
use crate::value::Space;

/// Bytes into which whoever has the turn receives.
type Input = Box<[u8]>;

/// The turn, from call to call of the protocol core.
pub(super) type ReceiveTurn<'a> = Option<Held<'a, Input>>;

/// A socket, and who uses it.
pub(super) struct Shared {
    socket: Socket,
    turn: Turn<Input>,
    /// Whose is what comes.
    lanes: Mutex<HashMap<Handle, Weak<Mutex<Lane>>>>,
    /// The answers to those who ask for handles, by what they said first.
    asked: Mutex<HashMap<Handle, Option<Box<[u8]>>>>,
    /// How often the server's machine has said that nobody is there.
    refusals: AtomicU32,
    /// Whether something was bound over it at the association's server.
    proven: AtomicBool,
}

impl Shared {
    /// A socket to an address for the callers of so many frames.
    pub(super) fn new(to: &Route, frames: u32) -> io::Result<Self> {
        let socket = connected(to, Use::Shared)?;
        // Without it each packet comes alone.
        let _ = socket.merge();
        let input = vec![0; BYTES_MAX].into_boxed_slice();
        let turn = Turn::new(frames, input);
        Ok(Self {
            socket,
            turn,
            lanes: Mutex::default(),
            asked: Mutex::default(),
            refusals: AtomicU32::new(0),
            proven: AtomicBool::new(false),
        })
    }

    /// Something was bound over it at the association's server.
    pub(super) fn prove(&self) {
        self.proven.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    pub(super) const fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The terms of one who shares it: all of them together have one receive buffer.
    pub(super) const fn terms(terms: Terms) -> Terms {
        /// What those who have most of it at one time may each be sent at once.
        const PART: u16 = 8;
        let credits_here = terms.credits_here.div_ceil(PART);
        Terms { credits_here, ..terms }
    }

    /// What comes for that handle is that lane's.
    pub(super) fn add(&self, handle: Handle, lane: &Arc<Mutex<Lane>>) {
        let mut lanes = self.lanes.lock();
        // Of bindings that went before a call that they gave up was let go.
        lanes.retain(|_, lane| lane.strong_count() > 0);
        lanes.insert(handle, Arc::downgrade(lane));
    }

    /// What comes for that handle is nobody's.
    pub(super) fn remove(&self, handle: &Handle) {
        self.lanes.lock().remove(handle);
    }

    /// A lane begins a call: what was before is none of it.
    pub(super) fn begin(&self, lane: &mut Lane) {
        lane.news = false;
        lane.refusals = self.refusals.load(Ordering::Acquire);
    }

    /// The server's machine said that nobody is there, on whosever packet: all are told who have a
    /// call under way.
    #[cold]
    pub(super) fn refuse(&self) {
        // SYNC: refusals. First it is so, and then those who wait are made to look.
        self.refusals.fetch_add(1, Ordering::SeqCst);
        self.turn.tell_all();
    }

    /// Whether there was a refusal of which the lane does not know.
    fn is_refused(&self, lane: &mut Lane) -> bool {
        let refusals = self.refusals.load(Ordering::SeqCst);
        core::mem::replace(&mut lane.refusals, refusals) != refusals
    }

    /// Waits for something for this lane, until its timer or the deadline; with the turn if it is to
    /// be had, and then for all. The lane is open to others while its caller waits without.
    pub(super) fn receive<'s, 'm>(
        &'s self,
        association: &Association,
        (mutex, mut lane): (&'m Mutex<Lane>, MutexGuard<'m, Lane>),
        turn: &mut ReceiveTurn<'s>,
        waiting: &mut Waiting,
    ) -> (MutexGuard<'m, Lane>, Came) {
        let mut waits = None;
        loop {
            if core::mem::take(&mut lane.news) {
                return (lane, Came::Packets(moment()));
            }
            if self.is_refused(&mut lane) {
                return (lane, Came::Unreachable);
            }
            if turn.is_none() {
                *turn = self.turn.try_take();
            }
            if let Some(held) = turn {
                // It waits as one who has the turn.
                drop(waits);
                let came = self.receive_for_all(association, held, &mut lane, waiting);
                return (lane, came);
            }
            let left = waiting.left(&lane);
            if left == 0 {
                return (lane, Came::Nothing);
            }
            match &mut waits {
                None => waits = Some(self.turn.wait(lane.index)),
                Some(waits) => {
                    drop(lane);
                    let left =
                        if left == u64::MAX { Duration::MAX } else { Duration::from_nanos(left) };
                    waits.rest(waiting.wait, left);
                    lane = mutex.lock();
                }
            }
        }
    }

    /// Receives once, for whomever it is.
    fn receive_for_all(
        &self,
        association: &Association,
        held: &mut Held<'_, Input>,
        own: &mut Lane,
        waiting: &mut Waiting,
    ) -> Came {
        let place = Space::of_mut(held.input());
        match waiting.receive(own, &self.socket, place) {
            Ok(Some(arrival)) => {
                self.give(association, place, arrival, Some(own));
                Came::Packets(moment())
            }
            Ok(None) => Came::Nothing,
            Err(error) if is_refusal(&error) => {
                self.refuse();
                self.is_refused(own);
                Came::Unreachable
            }
            // What was sent is as good as lost, and asked for again.
            Err(error) => {
                own.trouble = Trouble::of(&error).or(own.trouble);
                Came::Nothing
            }
        }
    }

    /// Gives what arrived to those whose it is. What is nobody's, or is damaged, is dropped.
    fn give(
        &self,
        association: &Association,
        place: Space<'_>,
        arrival: Arrival,
        mut own: Option<&mut Lane>,
    ) {
        let now = moment();
        let mut concerned = None;
        for range in datagrams(arrival) {
            if arrival.cut && range.end == arrival.bytes {
                continue;
            }
            let Some(packet) = Packet::at(place, range.clone()) else { continue };
            let handle = packet.header.handle;
            let take = |lane: &mut Lane| {
                let half = association.reply_half(lane.index);
                Receiving { half, apart: true }.take(lane, now, place, &packet)
            };
            if let Some(own) = own.as_deref_mut().filter(|own| own.caller.handle_of() == handle) {
                take(own);
                continue;
            }
            if packet.header.kind.binds() {
                self.answer(handle, place.part(range.start, range.len()));
                continue;
            }
            let lane = self.lanes.lock().get(&handle).and_then(Weak::upgrade);
            let Some(lane) = lane else { continue };
            // Only who has the turn, as this thread does, holds two.
            let mut lane = lane.lock_another();
            if !take(&mut lane) {
                continue;
            }
            lane.news = true;
            let index = lane.index;
            drop(lane);
            // Once for all that came for one behind each other.
            if let Some(other) = concerned.replace(index).filter(|other| *other != index) {
                self.turn.tell(other);
            }
        }
        if let Some(index) = concerned {
            self.turn.tell(index);
        }
    }

    /// Takes what is there, if nobody receives.
    fn drain(&self, association: &Association, mut own: Option<&mut Lane>) {
        let Some(mut held) = self.turn.try_take() else { return };
        let place = Space::of_mut(held.input());
        for _ in 0..16 {
            match self.socket.receive(&[place], None, Until::Now) {
                Ok(Some(arrival)) => self.give(association, place, arrival, own.as_deref_mut()),
                Ok(None) => break,
                Err(error) if is_refusal(&error) => self.refuse(),
                Err(_) => {}
            }
        }
    }

    /// The same on behalf of a lane without a call under way.
    pub(super) fn look(&self, association: &Association, lane: &mut Lane) {
        self.drain(association, Some(lane));
        if self.is_refused(lane) {
            lane.caller.unreachable();
        }
    }

    // Asking for handles, for those who have no descriptor to ask with.

    /// Asks the server for handles, among those who call.
    #[cold]
    pub(super) fn bind(
        &self,
        association: &Association,
        wish: Wish,
        until: Instant,
    ) -> Result<Granted, CallError> {
        let secret = sys::random();
        let secret = secret
            .map_err(|error| CallError::system(Phase::Bind, "asking for random bytes", error))?;
        let asks = Handle { place: 0, secret };
        self.asked.lock().insert(asks, None);
        let to = association.to();
        let granted = ask(&self.socket, to, wish, secret, until, &mut |memory, due| {
            Ok(self.answered(association, asks, due).and_then(|answer| {
                let memory = memory.get_mut(..answer.len())?;
                memory.copy_from_slice(&answer);
                Some(memory.len())
            }))
        });
        self.asked.lock().remove(&asks);
        granted
    }

    /// An answer came; it is kept for whoever asked, if somebody did.
    #[cold]
    fn answer(&self, asks: Handle, answer: Option<Space<'_>>) {
        if let (Some(place), Some(answer)) = (self.asked.lock().get_mut(&asks), answer) {
            let mut bytes = vec![0; answer.window().len()].into_boxed_slice();
            let _ = answer.read(0, &mut bytes);
            *place = Some(bytes);
        }
    }

    /// Waits for an answer, for so long. It is not worth a place among those who are woken.
    fn answered(
        &self,
        association: &Association,
        asks: Handle,
        due: Duration,
    ) -> Option<Box<[u8]>> {
        const LOOK_EVERY: Duration = Duration::from_micros(500);
        let until = Instant::now() + due;
        loop {
            self.drain(association, None);
            let answer = self.asked.lock().get_mut(&asks).and_then(Option::take);
            if answer.is_some() || Instant::now() >= until {
                return answer;
            }
            std::thread::sleep(LOOK_EVERY.min(due));
        }
    }
}
