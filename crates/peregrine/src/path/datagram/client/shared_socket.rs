//! One socket for the calls of many threads. One of these threads, the leader, receives for all of them.
//!
//! Each thread sends its own packets, and has its own timers. A thread that waits releases the lock of its
//! activity, which is the state of its calls. The leader finds the activity of each datagram by the handle in
//! the datagram. The leader puts the payload in its place, and wakes the thread of the activity.
//!
//! There is no deadlock. A thread that holds the lock of its activity can block only in sending. Only the
//! leader also waits for the locks of other activities.
//!
//! For pending calls, futures sleep instead of threads. If packets arrive for the activity of a future, the
//! bell of the future must be rung. While threads wait, their leader also receives for the futures. Otherwise
//! the keeper, the background thread of the process, leads each time that packets have arrived.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::activity::{
    Activity, ReceiveWait, ResultPlacement, SendFailure, Waited, is_refusal, receive_now,
};
use super::association::Association;
use super::bells::FrameBells;
use super::handles::{Granted, Renewal, ask, nonce};
use super::watched_socket::WatchedSocket;
use crate::device::{Arrival, BYTES_MAX, Socket, datagrams};
use crate::error::CallError;
use crate::path::datagram::peer::moment;
use crate::path::datagram::wire::Packet;
use crate::path::leader::{Leader, Leadership};
use crate::protocol::exchange::bind::BIND_BYTES;
use crate::protocol::exchange::client_end::ClientTerms;
use crate::protocol::exchange::header::Handle;
use crate::sync::{Mutex, MutexGuard};
use crate::value::Space;

/// Memory into which the leader receives.
type Input = Box<[u8]>;

/// The guard of the leader, or `None` if the calling thread is not the leader. A thread that becomes the
/// leader keeps this guard until its call ends.
pub(super) type HeldLead<'a> = Option<Leader<'a, Input>>;

/// The frames whose bells must be rung, because the leader has received packets for their futures. The bells
/// are rung when the thread holds no lock.
#[derive(Debug, Default)]
#[must_use]
pub(super) struct Rung(Vec<u32>);

impl Rung {
    /// Rings the bells. The caller holds no lock.
    pub(super) fn ring(self, bells: &FrameBells) {
        self.0.into_iter().for_each(|frame| bells.ring(frame));
    }

    /// Makes another thread ring the bells, because the caller holds locks.
    fn ring_soon(self, bells: &Arc<FrameBells>) {
        if !self.0.is_empty() {
            bells.ring_soon(self.0);
        }
    }
}

/// A bind request in progress over the shared socket.
#[derive(Debug, Default)]
struct Asked {
    answer: Option<Box<[u8]>>,
    /// The frame whose future waits for the answer. `None` if a thread waits.
    frame: Option<u32>,
}

/// A socket that several activities share.
pub(super) struct SharedSocket {
    socket: WatchedSocket,
    bells: Arc<FrameBells>,
    leadership: Leadership<Input>,
    /// The activity of each handle.
    activities: Mutex<HashMap<Handle, Weak<Mutex<Activity>>>>,
    /// The bind requests in progress. Each request is identified by its nonce.
    asked: Mutex<HashMap<Handle, Asked>>,
    /// How often the server's machine has reported a closed port.
    refusals: AtomicU32,
    /// Whether the association's server has granted handles over this socket. If so, the socket leads to this
    /// server.
    proven: AtomicBool,
}

impl SharedSocket {
    /// Shares a socket. The socket serves the activities of up to `frames` frames, which have these bells.
    pub(super) fn new(socket: Socket, frames: u32, bells: &Arc<FrameBells>) -> Self {
        let socket = WatchedSocket::new(socket);
        // If this fails, the kernel delivers each packet alone.
        let _ = socket.enable_gro();
        let input = vec![0; BYTES_MAX].into_boxed_slice();
        let leadership = Leadership::new(frames, input, Arc::clone(socket.watches()) as _);
        Self {
            socket,
            bells: Arc::clone(bells),
            leadership,
            activities: Mutex::default(),
            asked: Mutex::default(),
            refusals: AtomicU32::new(0),
            proven: AtomicBool::new(false),
        }
    }

    /// Notes that the association's server has granted handles over this socket.
    pub(super) fn prove(&self) {
        self.proven.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn socket(&self) -> &Socket {
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
        // The activities of dropped bindings are removed first.
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

    /// Notes that the server's machine reported a closed port. Wakes the threads and futures of all calls,
    /// because any of them may have sent the refused packet.
    #[cold]
    pub(super) fn note_refusal(&self) {
        // SYNC: refusals. The count is raised before the waiting threads are woken.
        self.refusals.fetch_add(1, Ordering::SeqCst);
        Rung(self.leadership.wake_all()).ring_soon(&self.bells);
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
                let mut rung = Rung::default();
                let waited = self.receive_for_all(
                    association,
                    leader,
                    &mut activity,
                    &mut rung,
                    |own, place| waiting.receive(own, &self.socket, place),
                );
                rung.ring_soon(&self.bells);
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

    /// Receives once, and delivers the datagrams to the activities of all callers. `receive` receives them
    /// into the given memory.
    #[inline]
    fn receive_for_all(
        &self,
        association: &Association,
        leader: &mut Leader<'_, Input>,
        own: &mut Activity,
        rung: &mut Rung,
        receive: impl FnOnce(&mut Activity, Space<'_>) -> io::Result<Option<Arrival>>,
    ) -> Waited {
        let place = Space::of_mut(leader.input());
        match receive(own, place) {
            Ok(Some(arrival)) => {
                self.distribute(association, place, arrival, Some(own), rung);
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

    // Pending calls.

    /// Looks for packets for this activity, which has a pending call. If there is no leader, receives once
    /// for all callers. Does not wait for packets, nor for another leader.
    pub(super) fn look(
        &self,
        association: &Association,
        activity: &mut Activity,
        rung: &mut Rung,
    ) -> Waited {
        if core::mem::take(&mut activity.news) {
            return Waited::Packets(moment());
        }
        if self.is_refused(activity) {
            return Waited::Unreachable;
        }
        let Some(mut leader) = self.leadership.try_lead() else { return Waited::Nothing };
        self.receive_for_all(association, &mut leader, activity, rung, |_, place| {
            receive_now(&self.socket, place)
        })
    }

    /// Registers the future of a frame before the future sleeps. The bell of the frame rings once when a
    /// packet has arrived for the activity. If packets have arrived before, the future must look for them.
    ///
    /// # Errors
    /// If the keeper cannot watch the socket. The future is not registered.
    pub(super) fn sleep(
        self: &Arc<Self>,
        association: &Arc<Association>,
        frame: u32,
    ) -> io::Result<()> {
        self.socket.watch(|| {
            // The association owns this socket, and this socket owns the function. So the function has only
            // weak references.
            let (shared, association) = (Arc::downgrade(self), Arc::downgrade(association));
            Arc::new(move || {
                if let (Some(shared), Some(association)) = (shared.upgrade(), association.upgrade())
                {
                    let mut rung = Rung::default();
                    shared.drain(&association, None, &mut rung);
                    rung.ring(&shared.bells);
                }
            })
        })?;
        self.leadership.sleep(frame);
        Ok(())
    }

    /// Returns whether another thread has received a packet or a refusal for this activity.
    pub(super) fn has_news(&self, activity: &Activity) -> bool {
        activity.news || activity.refusals != self.refusals.load(Ordering::SeqCst)
    }

    /// Returns whether the answer to a bind request has arrived.
    pub(super) fn has_answer(&self, key: &Handle) -> bool {
        self.asked.lock().get(key).is_some_and(|asked| asked.answer.is_some())
    }

    /// Ends the registration of a future that does not sleep any more.
    pub(super) fn rouse(&self, frame: u32) {
        self.leadership.rouse(frame);
    }

    /// Expects the answer to a bind request of a pending call. `key` identifies the request.
    pub(super) fn expect_answer(&self, key: Handle, frame: u32) {
        self.asked.lock().insert(key, Asked { answer: None, frame: Some(frame) });
    }

    /// Notes that the answer to a bind request is not expected any more.
    pub(super) fn forget_answer(&self, key: &Handle) {
        self.asked.lock().remove(key);
    }

    /// Takes the answer to a bind request, if it has arrived. Writes it to `memory`, and returns its length.
    pub(super) fn take_answer(
        &self,
        association: &Association,
        key: &Handle,
        own: &mut Activity,
        memory: &mut [u8; BIND_BYTES],
        rung: &mut Rung,
    ) -> Option<usize> {
        self.drain(association, Some(own), rung);
        let answer = self.asked.lock().get_mut(key).and_then(|asked| asked.answer.take())?;
        memory.get_mut(..answer.len())?.copy_from_slice(&answer);
        Some(answer.len())
    }

    // Delivery.

    /// Delivers each received datagram to the activity to which it belongs. Drops damaged datagrams, and
    /// datagrams without an activity.
    fn distribute(
        &self,
        association: &Association,
        place: Space<'_>,
        arrival: Arrival,
        mut own: Option<&mut Activity>,
        rung: &mut Rung,
    ) {
        let now = moment();
        let mut to_wake = None;
        let mut wake = |index| {
            if self.leadership.wake(index) {
                rung.0.push(index);
            }
        };
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
                let answer = place.part(range.start, range.len());
                if let Some(index) = self.keep_answer(handle, answer) {
                    wake(index);
                }
                continue;
            }
            let activity = self.activities.lock().get(&handle).and_then(Weak::upgrade);
            let Some(activity) = activity else { continue };
            // Only the leader locks two activities, and this thread is the leader. So there is no deadlock.
            let mut activity = activity.lock_same_rank();
            if !take(&mut activity) {
                continue;
            }
            activity.news = true;
            let index = activity.index;
            drop(activity);
            // Several successive packets for one activity wake the thread of that activity only once.
            if let Some(other) = to_wake.replace(index).filter(|other| *other != index) {
                wake(other);
            }
        }
        if let Some(index) = to_wake {
            wake(index);
        }
    }

    /// Receives and delivers the datagrams that have arrived. Does nothing if another thread is the leader.
    fn drain(&self, association: &Association, mut own: Option<&mut Activity>, rung: &mut Rung) {
        let Some(mut leader) = self.leadership.try_lead() else { return };
        let place = Space::of_mut(leader.input());
        for _ in 0..16 {
            match receive_now(&self.socket, place) {
                Ok(Some(arrival)) => {
                    self.distribute(association, place, arrival, own.as_deref_mut(), rung)
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
        let mut rung = Rung::default();
        self.drain(association, Some(activity), &mut rung);
        rung.ring_soon(&self.bells);
        if self.is_refused(activity) {
            activity.client_end.note_unreachable(moment());
        }
    }

    // Bind requests of frames that use the shared socket.

    /// Requests handles from the server. Other threads may make calls over the socket meanwhile.
    #[cold]
    pub(super) fn bind(
        &self,
        association: &Association,
        renewal: Renewal,
    ) -> Result<Granted, CallError> {
        let secret = nonce(&self.socket)?;
        let key = Handle { place: 0, secret };
        self.asked.lock().insert(key, Asked::default());
        let to = association.to();
        let granted = ask(&self.socket, to, renewal, secret, &mut |memory, due| {
            Ok(self.answered(association, key, due).and_then(|answer| {
                let memory = memory.get_mut(..answer.len())?;
                memory.copy_from_slice(&answer);
                Some(memory.len())
            }))
        });
        self.asked.lock().remove(&key);
        granted
    }

    /// Keeps an answer to a bind request, if that request is in progress. Returns the frame whose future
    /// waits for the answer, if a future waits.
    #[cold]
    fn keep_answer(&self, key: Handle, answer: Option<Space<'_>>) -> Option<u32> {
        let (mut asked, answer) = (self.asked.lock(), answer?);
        let place = asked.get_mut(&key)?;
        let mut bytes = vec![0; answer.window().len()].into_boxed_slice();
        let _ = answer.read(0, &mut bytes);
        place.answer = Some(bytes);
        place.frame
    }

    /// Waits for an answer, for at most `due`. The thread polls at growing intervals, because hundreds of
    /// threads may bind at the same time. Each poll receives the answers for all of them.
    fn answered(&self, association: &Association, key: Handle, due: Duration) -> Option<Box<[u8]>> {
        const POLL_FIRST: Duration = Duration::from_micros(500);
        const POLL_MAX: Duration = Duration::from_millis(16);
        let (until, mut interval) = (Instant::now() + due, POLL_FIRST);
        loop {
            let mut rung = Rung::default();
            self.drain(association, None, &mut rung);
            rung.ring_soon(&self.bells);
            let answer = self.asked.lock().get_mut(&key).and_then(|asked| asked.answer.take());
            if answer.is_some() || Instant::now() >= until {
                return answer;
            }
            std::thread::sleep(interval.min(due));
            interval = (interval * 2).min(POLL_MAX);
        }
    }
}
