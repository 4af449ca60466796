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

use super::activity::{Activity, ReceiveWait, ResultPlacement, SendFailure, Waited, is_refusal};
use super::association::{Association, connected};
use super::handles::{Granted, ask};
use super::leader::{Leader, Leadership};
use crate::device::{Arrival, BYTES_MAX, Route, Socket, SocketUse, Until, datagrams};
use crate::error::{CallError, Phase};
use crate::path::datagram::peer::moment;
use crate::path::datagram::wire::Packet;
use crate::protocol::exchange::bind::BindRequest;
use crate::protocol::exchange::client_end::ClientTerms;
use crate::protocol::exchange::header::Handle;
use crate::sync::{Mutex, MutexGuard};
use crate::sys;
use crate::value::Space;

/// Bytes into which whoever has the turn receives.
type Input = Box<[u8]>;

/// The turn, from call to call of the protocol core.
pub(super) type ReceiveTurn<'a> = Option<Leader<'a, Input>>;

/// A socket, and who uses it.
pub(super) struct SharedSocket {
    socket: Socket,
    turn: Leadership<Input>,
    /// Whose is what comes.
    activities: Mutex<HashMap<Handle, Weak<Mutex<Activity>>>>,
    /// The answers to those who ask for handles, by what they said first.
    asked: Mutex<HashMap<Handle, Option<Box<[u8]>>>>,
    /// How often the server's machine has said that nobody is there.
    refusals: AtomicU32,
    /// Whether something was bound over it at the association's server.
    proven: AtomicBool,
}

impl SharedSocket {
    /// A socket to an address for the callers of so many frames.
    pub(super) fn new(to: &Route, frames: u32) -> io::Result<Self> {
        let socket = connected(to, SocketUse::Shared)?;
        // Without it each packet comes alone.
        let _ = socket.enable_gro();
        let input = vec![0; BYTES_MAX].into_boxed_slice();
        let turn = Leadership::new(frames, input);
        Ok(Self {
            socket,
            turn,
            activities: Mutex::default(),
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
    pub(super) const fn terms(terms: ClientTerms) -> ClientTerms {
        /// What those who have most of it at one time may each be sent at once.
        const PART: u16 = 8;
        let credits_here = terms.credits_here.div_ceil(PART);
        ClientTerms { credits_here, ..terms }
    }

    /// What comes for that handle is that lane's.
    pub(super) fn add(&self, handle: Handle, activity: &Arc<Mutex<Activity>>) {
        let mut activities = self.activities.lock();
        // Of bindings that went before a call that they gave up was let go.
        activities.retain(|_, activity| activity.strong_count() > 0);
        activities.insert(handle, Arc::downgrade(activity));
    }

    /// What comes for that handle is nobody's.
    pub(super) fn remove(&self, handle: &Handle) {
        self.activities.lock().remove(handle);
    }

    /// A lane begins a call: what was before is none of it.
    pub(super) fn begin(&self, activity: &mut Activity) {
        activity.news = false;
        activity.refusals = self.refusals.load(Ordering::Acquire);
    }

    /// The server's machine said that nobody is there, on whosever packet: all are told who have a
    /// call under way.
    #[cold]
    pub(super) fn refuse(&self) {
        // SYNC: refusals. First it is so, and then those who wait are made to look.
        self.refusals.fetch_add(1, Ordering::SeqCst);
        self.turn.wake_all();
    }

    /// Whether there was a refusal of which the lane does not know.
    fn is_refused(&self, activity: &mut Activity) -> bool {
        let refusals = self.refusals.load(Ordering::SeqCst);
        core::mem::replace(&mut activity.refusals, refusals) != refusals
    }

    /// Waits for something for this lane, until its timer or the deadline; with the turn if it is to
    /// be had, and then for all. The lane is open to others while its caller waits without.
    pub(super) fn receive<'s, 'm>(
        &'s self,
        association: &Association,
        (mutex, mut activity): (&'m Mutex<Activity>, MutexGuard<'m, Activity>),
        turn: &mut ReceiveTurn<'s>,
        waiting: &mut ReceiveWait,
    ) -> (MutexGuard<'m, Activity>, Waited) {
        let mut waits = None;
        loop {
            if core::mem::take(&mut activity.news) {
                return (activity, Waited::Packets(moment()));
            }
            if self.is_refused(&mut activity) {
                return (activity, Waited::Unreachable);
            }
            if turn.is_none() {
                *turn = self.turn.try_lead();
            }
            if let Some(held) = turn {
                // It waits as one who has the turn.
                drop(waits);
                let came = self.receive_for_all(association, held, &mut activity, waiting);
                return (activity, came);
            }
            let left = waiting.left(&activity);
            if left == 0 {
                return (activity, Waited::Nothing);
            }
            match &mut waits {
                None => waits = Some(self.turn.follow(activity.index)),
                Some(waits) => {
                    drop(activity);
                    let left =
                        if left == u64::MAX { Duration::MAX } else { Duration::from_nanos(left) };
                    waits.wait(waiting.wait, left);
                    activity = mutex.lock();
                }
            }
        }
    }

    /// Receives once, for whomever it is.
    fn receive_for_all(
        &self,
        association: &Association,
        held: &mut Leader<'_, Input>,
        own: &mut Activity,
        waiting: &mut ReceiveWait,
    ) -> Waited {
        let place = Space::of_mut(held.input());
        match waiting.receive(own, &self.socket, place) {
            Ok(Some(arrival)) => {
                self.give(association, place, arrival, Some(own));
                Waited::Packets(moment())
            }
            Ok(None) => Waited::Nothing,
            Err(error) if is_refusal(&error) => {
                self.refuse();
                self.is_refused(own);
                Waited::Unreachable
            }
            // What was sent is as good as lost, and asked for again.
            Err(error) => {
                own.send_failure = SendFailure::of(&error).or(own.send_failure);
                Waited::Nothing
            }
        }
    }

    /// Gives what arrived to those whose it is. What is nobody's, or is damaged, is dropped.
    fn give(
        &self,
        association: &Association,
        place: Space<'_>,
        arrival: Arrival,
        mut own: Option<&mut Activity>,
    ) {
        let now = moment();
        let mut concerned = None;
        for range in datagrams(arrival) {
            if arrival.cut && range.end == arrival.bytes {
                continue;
            }
            let Some(packet) = Packet::at(place, range.clone()) else { continue };
            let handle = packet.header.handle;
            let take = |activity: &mut Activity| {
                let half = association.reply_half(activity.index);
                ResultPlacement { half, staged: true }.take(activity, now, place, &packet)
            };
            if let Some(own) =
                own.as_deref_mut().filter(|own| own.client_end.bound_handle() == handle)
            {
                take(own);
                continue;
            }
            if packet.header.kind.binds() {
                self.answer(handle, place.part(range.start, range.len()));
                continue;
            }
            let activity = self.activities.lock().get(&handle).and_then(Weak::upgrade);
            let Some(activity) = activity else { continue };
            // Only who has the turn, as this thread does, holds two.
            let mut activity = activity.lock_same_rank();
            if !take(&mut activity) {
                continue;
            }
            activity.news = true;
            let index = activity.index;
            drop(activity);
            // Once for all that came for one behind each other.
            if let Some(other) = concerned.replace(index).filter(|other| *other != index) {
                self.turn.wake(other);
            }
        }
        if let Some(index) = concerned {
            self.turn.wake(index);
        }
    }

    /// Takes what is there, if nobody receives.
    fn drain(&self, association: &Association, mut own: Option<&mut Activity>) {
        let Some(mut held) = self.turn.try_lead() else { return };
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
    pub(super) fn look(&self, association: &Association, activity: &mut Activity) {
        self.drain(association, Some(activity));
        if self.is_refused(activity) {
            activity.client_end.note_unreachable();
        }
    }

    // Asking for handles, for those who have no descriptor to ask with.

    /// Asks the server for handles, among those who call.
    #[cold]
    pub(super) fn bind(
        &self,
        association: &Association,
        wish: BindRequest,
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
