//! One socket for the calls of many threads. One of these threads, the leader, receives for all of them.
//!
//! Each thread sends its own packets, and has its own timers. A thread that waits releases the lock of its
//! activity, which is the state of its calls. The leader finds the activity of each datagram by the handle in
//! the datagram. The leader puts results in their places, and wakes the threads of these activities.
//!
//! There is no deadlock. A thread that holds the lock of its activity can block only in sending. Only the
//! leader also waits for the locks of other activities.

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

/// Memory into which the leader receives.
type Input = Box<[u8]>;

/// The guard of the leader, or `None` if the calling thread is not the leader. A thread that becomes the
/// leader keeps this guard until its call ends.
pub(super) type HeldLead<'a> = Option<Leader<'a, Input>>;

/// A socket that several activities share.
pub(super) struct SharedSocket {
    socket: Socket,
    leadership: Leadership<Input>,
    /// The activity of each handle.
    activities: Mutex<HashMap<Handle, Weak<Mutex<Activity>>>>,
    /// The bind requests in progress. For each request, identified by its nonce: the answer, if it has
    /// arrived.
    asked: Mutex<HashMap<Handle, Option<Box<[u8]>>>>,
    /// How often the server's machine has reported a closed port.
    refusals: AtomicU32,
    /// Whether the association's server has granted handles over this socket. If so, the socket leads to this
    /// server.
    proven: AtomicBool,
}

impl SharedSocket {
    /// Creates a socket for a route. The socket serves the activities of up to `frames` frames.
    pub(super) fn new(to: &Route, frames: u32) -> io::Result<Self> {
        let socket = connected(to, SocketUse::Shared)?;
        // Without GRO, the kernel delivers each packet alone.
        let _ = socket.enable_gro();
        let input = vec![0; BYTES_MAX].into_boxed_slice();
        let leadership = Leadership::new(frames, input);
        Ok(Self {
            socket,
            leadership,
            activities: Mutex::default(),
            asked: Mutex::default(),
            refusals: AtomicU32::new(0),
            proven: AtomicBool::new(false),
        })
    }

    /// Notes that the association's server has granted handles over this socket.
    pub(super) fn prove(&self) {
        self.proven.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    pub(super) const fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Reduces the credits in the terms of an activity. Credits are the number of packets that the server may
    /// have in the receive buffer. All activities of the socket share one receive buffer.
    pub(super) const fn terms(terms: ClientTerms) -> ClientTerms {
        /// Each activity gets the credits divided by this number.
        const PART: u16 = 8;
        let credits_here = terms.credits_here.div_ceil(PART);
        ClientTerms { credits_here, ..terms }
    }

    /// Registers the activity of a handle.
    pub(super) fn add(&self, handle: Handle, activity: &Arc<Mutex<Activity>>) {
        let mut activities = self.activities.lock();
        // This also removes the activities of dropped bindings.
        activities.retain(|_, activity| activity.strong_count() > 0);
        activities.insert(handle, Arc::downgrade(activity));
    }

    /// Removes a handle. From now on, packets with this handle are dropped.
    pub(super) fn remove(&self, handle: &Handle) {
        self.activities.lock().remove(handle);
    }

    /// Prepares an activity for a new call. The new call ignores earlier packets and refusals.
    pub(super) fn begin(&self, activity: &mut Activity) {
        activity.news = false;
        activity.refusals = self.refusals.load(Ordering::Acquire);
    }

    /// Notes that the server's machine reported a closed port. Wakes the threads of all calls, because any of
    /// them may have sent the refused packet.
    #[cold]
    pub(super) fn note_refusal(&self) {
        // SYNC: refusals. The count is raised before the waiting threads are woken.
        self.refusals.fetch_add(1, Ordering::SeqCst);
        self.leadership.wake_all();
    }

    /// Returns whether a refusal was reported that the activity has not handled yet.
    fn is_refused(&self, activity: &mut Activity) -> bool {
        let refusals = self.refusals.load(Ordering::SeqCst);
        core::mem::replace(&mut activity.refusals, refusals) != refusals
    }

    /// Waits for a packet for this activity, until the activity's next timer or the deadline. If there is no
    /// leader, this thread becomes the leader, and receives for all threads. Otherwise this thread waits, and
    /// releases the lock of the activity meanwhile.
    pub(super) fn receive<'s, 'm>(
        &'s self,
        association: &Association,
        (mutex, mut activity): (&'m Mutex<Activity>, MutexGuard<'m, Activity>),
        leader: &mut HeldLead<'s>,
        waiting: &mut ReceiveWait,
    ) -> (MutexGuard<'m, Activity>, Waited) {
        let mut follower = None;
        loop {
            if core::mem::take(&mut activity.news) {
                return (activity, Waited::Packets(moment()));
            }
            if self.is_refused(&mut activity) {
                return (activity, Waited::Unreachable);
            }
            if leader.is_none() {
                *leader = self.leadership.try_lead();
            }
            if let Some(leader) = leader {
                // A thread must stop being a follower when it becomes the leader.
                drop(follower);
                let waited = self.receive_for_all(association, leader, &mut activity, waiting);
                return (activity, waited);
            }
            let left = waiting.left(&activity);
            if left == 0 {
                return (activity, Waited::Nothing);
            }
            match &mut follower {
                None => follower = Some(self.leadership.follow(activity.index)),
                Some(follower) => {
                    drop(activity);
                    let left =
                        if left == u64::MAX { Duration::MAX } else { Duration::from_nanos(left) };
                    follower.wait(waiting.wait, left);
                    activity = mutex.lock();
                }
            }
        }
    }

    /// Receives once, and delivers the datagrams to the activities of all threads.
    fn receive_for_all(
        &self,
        association: &Association,
        leader: &mut Leader<'_, Input>,
        own: &mut Activity,
        waiting: &mut ReceiveWait,
    ) -> Waited {
        let place = Space::of_mut(leader.input());
        match waiting.receive(own, &self.socket, place) {
            Ok(Some(arrival)) => {
                self.distribute(association, place, arrival, Some(own));
                Waited::Packets(moment())
            }
            Ok(None) => Waited::Nothing,
            Err(error) if is_refusal(&error) => {
                self.note_refusal();
                self.is_refused(own);
                Waited::Unreachable
            }
            // If this error belongs to an earlier packet that this socket sent, that packet is retransmitted
            // later.
            Err(error) => {
                own.send_failure = SendFailure::of(&error).or(own.send_failure);
                Waited::Nothing
            }
        }
    }

    /// Delivers each received datagram to the activity to which it belongs. Drops damaged datagrams, and
    /// datagrams without an activity.
    fn distribute(
        &self,
        association: &Association,
        place: Space<'_>,
        arrival: Arrival,
        mut own: Option<&mut Activity>,
    ) {
        let now = moment();
        let mut to_wake = None;
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
                self.keep_answer(handle, place.part(range.start, range.len()));
                continue;
            }
            let activity = self.activities.lock().get(&handle).and_then(Weak::upgrade);
            let Some(activity) = activity else { continue };
            // This thread is the leader, and only the leader locks two activities.
            let mut activity = activity.lock_same_rank();
            if !take(&mut activity) {
                continue;
            }
            activity.news = true;
            let index = activity.index;
            drop(activity);
            // Several successive packets for one activity wake the thread of that activity only once.
            if let Some(other) = to_wake.replace(index).filter(|other| *other != index) {
                self.leadership.wake(other);
            }
        }
        if let Some(index) = to_wake {
            self.leadership.wake(index);
        }
    }

    /// Receives and delivers the datagrams that have arrived. Does nothing if another thread is the leader.
    fn drain(&self, association: &Association, mut own: Option<&mut Activity>) {
        let Some(mut leader) = self.leadership.try_lead() else { return };
        let place = Space::of_mut(leader.input());
        for _ in 0..16 {
            match self.socket.receive(&[place], None, Until::Now) {
                Ok(Some(arrival)) => {
                    self.distribute(association, place, arrival, own.as_deref_mut())
                }
                Ok(None) => break,
                Err(error) if is_refusal(&error) => self.note_refusal(),
                Err(_) => {}
            }
        }
    }

    /// Receives the datagrams that have arrived, and checks for refusals. The caller's activity has no call
    /// in progress.
    pub(super) fn check(&self, association: &Association, activity: &mut Activity) {
        self.drain(association, Some(activity));
        if self.is_refused(activity) {
            activity.client_end.note_unreachable();
        }
    }

    // Bind requests of frames that use the shared socket.

    /// Requests handles from the server. Other threads may make calls over the socket meanwhile.
    #[cold]
    pub(super) fn bind(
        &self,
        association: &Association,
        request: BindRequest,
        until: Instant,
    ) -> Result<Granted, CallError> {
        let secret = sys::random();
        let secret = secret
            .map_err(|error| CallError::system(Phase::Bind, "cannot read random bytes", error))?;
        let key = Handle { place: 0, secret };
        self.asked.lock().insert(key, None);
        let to = association.to();
        let granted = ask(&self.socket, to, request, secret, until, &mut |memory, due| {
            Ok(self.answered(association, key, due).and_then(|answer| {
                let memory = memory.get_mut(..answer.len())?;
                memory.copy_from_slice(&answer);
                Some(memory.len())
            }))
        });
        self.asked.lock().remove(&key);
        granted
    }

    /// Keeps an answer to a bind request, if that request is in progress.
    #[cold]
    fn keep_answer(&self, key: Handle, answer: Option<Space<'_>>) {
        if let (Some(place), Some(answer)) = (self.asked.lock().get_mut(&key), answer) {
            let mut bytes = vec![0; answer.window().len()].into_boxed_slice();
            let _ = answer.read(0, &mut bytes);
            *place = Some(bytes);
        }
    }

    /// Waits for an answer, for at most `due`. The thread polls at growing intervals, because hundreds of
    /// threads may bind at the same time, and each poll receives the answers for all of them.
    fn answered(&self, association: &Association, key: Handle, due: Duration) -> Option<Box<[u8]>> {
        const POLL_FIRST: Duration = Duration::from_micros(500);
        const POLL_MAX: Duration = Duration::from_millis(16);
        let (until, mut interval) = (Instant::now() + due, POLL_FIRST);
        loop {
            self.drain(association, None);
            let answer = self.asked.lock().get_mut(&key).and_then(Option::take);
            if answer.is_some() || Instant::now() >= until {
                return answer;
            }
            std::thread::sleep(interval.min(due));
            interval = (interval * 2).min(POLL_MAX);
        }
    }
}
