//! The pool: a bounded number of worker threads that serve A-stacks (call frames). A client rings (sends a
//! message) when it has posted a call on an A-stack that no worker polls.
//!
//! Each worker polls all A-stacks that are assigned to it. A ring wakes a sleeping worker only if the number
//! of polling workers is smaller than the number of waiting A-stacks. A new worker starts only if, in
//! addition, no worker sleeps. A worker without calls hands its A-stacks to another worker that still polls.
//! So one thread serves several busy A-stacks, and the other processors remain free for the clients. As in
//! LRPC, an A-stack gets an E-stack (private memory for arguments) only when it is called (lazy association).
//!
//! A client can make reads of its A-stacks slow. Therefore a worker reads the A-stacks of one user only
//! ([`State::takes`]). If no other worker is available, any worker may take an A-stack ([`anywhere`]).
//!
//! [`anywhere`]: QueuedAstack::anywhere
//!
//! When a client rings, the keeper (a background thread) reads the client's A-stack. After a slow read, the
//! keeper ignores the rings of the client's user for [`REST`] times the duration of the read.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::call::chain::waiting_inside;
use crate::call::{Refusal, Wait};
use crate::counters::{Counting, Page, ThreadKind};
use crate::directory;
use crate::error::Kind;
use crate::path::local::{
    ASSIGNED_MAX, Assignment, Astack, AstackRef, PROCESSORS_BYTES, Pause, Processors, RingAction,
    ServerRegion, User, Worker, WorkerHandle, wake_one,
};
use crate::serving::admission::{Admission, LINGER};
use crate::serving::deferrals::Deferrals;
use crate::serving::stop::Drain;
use crate::serving::{Load, ServerCore};
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys::Memory;
use crate::{limits, sys};

/// A read of an A-stack that takes this long is slow: the client probably removes the pages all the time. A
/// read of present memory takes less than a microsecond, and a read of absent memory takes a few
/// microseconds.
const SLOW_READ: Duration = Duration::from_millis(1);
/// After a slow read, the keeper ignores the rings of the client's user for `REST` times the duration of the
/// read. So reads of one user's A-stacks take at most about a twentieth of the keeper's time.
const REST: u32 = 20;

/// The name of the worker threads.
const THREAD: &str = "peregrine-worker";

/// The threads that run procedures, and the A-stacks that wait for such a thread.
pub(super) struct WorkerPool {
    state: Mutex<State>,
    /// For each user whose A-stacks were slow to read: the time until which the keeper ignores the user's
    /// rings.
    slow: Mutex<HashMap<u32, Instant>>,
    /// Bounds the number of workers, each of which may run a procedure at any time.
    admission: Arc<Admission>,
    wait: Wait,
    processors: Arc<Processors>,
    /// The deferred calls of the server.
    pub(super) deferrals: Arc<Deferrals>,
    page: Arc<Page>,
    faults: Arc<crate::serving::faults::Faults>,
}

/// The result of an attempt to take an A-stack from the queue.
enum FromQueue {
    Taken,
    Nothing,
    /// The pool is stopping.
    Stopping,
}

/// An A-stack that waits for a worker.
struct QueuedAstack {
    astack: AstackRef,
    user: User,
    /// Whether a worker that serves another user may take the A-stack.
    anywhere: bool,
    /// Whether a procedure of this process made the call, as read when the ring for the call arrived.
    nested: bool,
}

impl QueuedAstack {
    /// Makes an entry, and reads whether its call is nested. The client can make this read slow, so the
    /// caller must not hold the lock of the pool.
    fn checked(astack: AstackRef) -> Self {
        let nested = is_nested(&astack);
        Self { nested, ..Self::unchecked(astack) }
    }

    /// Makes an entry without reading whether a posted call is nested. If the call is nested, its client
    /// rings again, and the keeper then reads that the call is nested.
    fn unchecked(astack: AstackRef) -> Self {
        Self { user: astack.user(), astack, anywhere: false, nested: false }
    }
}

/// An entry of the pool for one worker.
struct WorkerEntry {
    handle: Arc<WorkerHandle>,
    /// The user whose A-stacks the worker serves, if it serves any.
    user: Option<User>,
    /// Whether the worker ran a captured call (a call that its caller has given up) at the last search for
    /// such workers.
    captured: bool,
}

struct State {
    queue: VecDeque<QueuedAstack>,
    workers: Vec<WorkerEntry>,
    next_number: u32,
    admission: Arc<Admission>,
}

impl State {
    fn handles(&self) -> Vec<Arc<WorkerHandle>> {
        self.workers.iter().map(|one| Arc::clone(&one.handle)).collect()
    }

    /// Records which user a worker serves now, and returns this user. If the worker has A-stacks of several
    /// users, the user that was recorded before remains.
    fn note_user(&mut self, worker: &Worker) -> Option<User> {
        let own = self.workers.iter_mut().find(|one| one.handle.number == worker.handle.number)?;
        // The worker runs no call now.
        let was_captured = core::mem::take(&mut own.captured);
        let mut users = worker.users();
        own.user = match users.next() {
            Some(first) if users.any(|user| user != first) => own.user,
            user => user,
        };
        let user = own.user;
        if was_captured {
            self.count_captured();
        }
        user
    }

    /// Reports how many workers run a captured call. The admission then allows workers that replace them.
    fn count_captured(&self) {
        self.admission.set_captured(self.workers.iter().filter(|one| one.captured).count());
    }

    /// Returns how many more workers may serve a user. A user other than the server's own may have at most
    /// three quarters of all workers. In addition, the user may have replacements for its own captured
    /// workers. If `nested` is true, the user may also have the workers that are allowed for nested calls.
    fn share_left(&self, user: User, nested: bool) -> usize {
        if user == User::Own {
            return usize::MAX;
        }
        let theirs = || self.workers.iter().filter(|one| one.user == Some(user));
        let replaced = theirs().filter(|one| one.captured).count().min(limits::REPLACED_MAX);
        let beyond = if nested { self.admission.nested() } else { 0 };
        let threads = self.admission.running_max();
        (threads - threads / 4 + replaced + beyond).saturating_sub(theirs().count())
    }

    /// Returns how many more workers may be started for a user.
    fn room(&self, user: User) -> usize {
        let left = self.admission.bound(false).saturating_sub(self.workers.len());
        left.min(self.share_left(user, false))
    }

    /// Returns whether a worker that serves `user` may take a waiting A-stack. If `user` is `None`, the
    /// worker serves no user yet.
    fn takes(&self, user: Option<User>, one: &QueuedAstack) -> bool {
        let fits = match user {
            Some(user) => user == one.user,
            None => one.nested || self.share_left(one.user, false) > 0,
        };
        fits || one.anywhere
    }

    /// Returns whether the queue has an A-stack for a worker that serves `user`. If `user` is `None`, the
    /// worker serves no user yet.
    fn has_for(&self, user: Option<User>) -> bool {
        self.queue.iter().any(|one| self.takes(user, one))
    }

    /// Removes a worker that ends, unless it was removed before.
    fn leave(&mut self, worker: &Worker) {
        let before = self.workers.len();
        self.workers.retain(|one| one.handle.number != worker.handle.number);
        if self.workers.len() < before {
            self.admission.end();
            self.count_captured();
        }
    }

    /// Returns how many A-stacks of a user wait for a worker.
    fn waiting(&self, user: User) -> usize {
        self.queue.iter().filter(|one| one.user == user).count()
    }

    /// Returns the workers that may take an A-stack of a user.
    fn workers_for(&self, user: User) -> impl DoubleEndedIterator<Item = &WorkerHandle> + Clone {
        let open = self.share_left(user, false) > 0;
        let fits = move |one: &&WorkerEntry| one.user.map_or(open, |own| own == user);
        self.workers.iter().filter(fits).map(|one| &*one.handle)
    }
}

impl WorkerPool {
    /// Makes a pool without workers.
    ///
    /// # Errors
    /// If there is no memory for the table of [`Processors`].
    pub(super) fn new(core: &Arc<ServerCore>) -> io::Result<Arc<Self>> {
        let processors = directory::shared_words(PROCESSORS_BYTES)
            .or_else(|_| Memory::private(PROCESSORS_BYTES))?;
        let admission = core.admission();
        let state = State {
            queue: VecDeque::new(),
            workers: Vec::new(),
            next_number: 0,
            admission: Arc::clone(&admission),
        };
        Ok(Arc::new(Self {
            state: Mutex::ranked(Rank::Threads, state),
            slow: Mutex::default(),
            admission,
            wait: core.threads.wait,
            processors: Arc::new(Processors::new(processors)),
            deferrals: Arc::clone(&core.deferrals),
            page: core.page(),
            faults: Arc::clone(&core.faults),
        }))
    }

    #[track_caller]
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    #[track_caller]
    fn slow(&self) -> MutexGuard<'_, HashMap<u32, Instant>> {
        self.slow.lock()
    }

    /// Runs `look`, which reads memory of a user's clients. Records the user if `look` was slow.
    fn timed<T>(&self, user: User, look: impl FnOnce() -> T) -> T {
        let User::Other(user) = user else { return look() };
        let begun = Instant::now();
        let seen = look();
        let now = Instant::now();
        let took = now - begun;
        if took >= SLOW_READ {
            let mut slow = self.slow();
            slow.retain(|_, until| *until > now);
            slow.insert(user, now + took * REST);
        }
        seen
    }

    /// Returns for how long the keeper will still ignore the rings of a user, or `None` if the keeper does
    /// not ignore these rings.
    pub(super) fn ignored_for(&self, user: User) -> Option<Duration> {
        let User::Other(user) = user else { return None };
        let until = self.slow().get(&user).copied();
        until?.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// Returns the largest number of A-stacks that may be assigned to one worker.
    fn assigned_max() -> usize {
        // Without `membarrier`, no A-stack can be taken from a worker that runs a procedure. Without
        // `futex_waitv`, a worker cannot sleep on several A-stacks.
        if sys::has_futex_sets() && sys::membarrier() { ASSIGNED_MAX } else { 1 }
    }

    /// Handles a client's ring for an A-stack: finds a worker for the posted call, or refuses the call.
    pub(super) fn on_ring(self: &Arc<Self>, region: &Arc<ServerRegion>, index: u32) {
        let astack = AstackRef { region: Arc::clone(region), index };
        let asked = self.timed(astack.user(), || {
            region.note_queued(index);
            region.on_ring(index)
        });
        match asked {
            RingAction::Enqueue => self.enqueue(astack),
            // The A-stack is in the queue already, and its client has rung again.
            RingAction::FindWorker => self.on_ring_again(&astack),
            RingAction::Reassign(number) => self.reassign(number, astack),
            RingAction::Nothing => astack.region.cancel_given_up(astack.index),
        }
    }

    /// Handles a ring for an A-stack that is already in the queue. The posted call may be newer than the
    /// queue entry. So this function checks again whether the call is nested.
    fn on_ring_again(self: &Arc<Self>, astack: &AstackRef) {
        let nested = self.timed(astack.user(), || is_nested(astack));
        self.find_captured();
        let mut state = self.state();
        if nested && let Some(one) = state.queue.iter_mut().find(|one| one.astack.is(astack)) {
            one.nested = true;
        }
        self.find_worker(&mut state, astack.user());
    }

    /// Handles a ring for a call that was posted a while ago and that worker `number` has not taken. If the
    /// worker runs another call, this function gives the A-stack to another worker.
    fn reassign(self: &Arc<Self>, number: u32, astack: AstackRef) {
        let is_it = |one: &&WorkerEntry| one.handle.number == number;
        let found = self.state().workers.iter().find(is_it).map(|one| Arc::clone(&one.handle));
        let Some(handle) = found else { return };
        let waiting = self.timed(astack.user(), || handle.take_waiting(&astack));
        if waiting.is_empty() {
            // The worker should be polling. If the client has overwritten the call word, the worker may still
            // sleep.
            handle.wake();
        }
        for astack in waiting {
            astack.set_assignment(Assignment::Queued);
            self.enqueue(astack);
        }
    }

    /// Wakes the workers of a session that has ended, through their private words. A client could overwrite a
    /// notice in the shared words, or move the threads that sleep on them to another word (`FUTEX_REQUEUE`).
    pub(super) fn closed(&self, region: &ServerRegion) {
        let at: HashSet<u32> = region.workers().collect();
        for one in self.state().workers.iter().filter(|one| at.contains(&one.handle.number)) {
            one.handle.wake();
        }
    }

    pub(super) fn enqueue(self: &Arc<Self>, astack: AstackRef) {
        let user = astack.user();
        let waiting = self.timed(user, || QueuedAstack::checked(astack));
        self.find_captured();
        let mut state = self.state();
        if self.admission.is_stopping() {
            drop(state);
            // If the client posts a further call on this A-stack, that call is refused when the session ends.
            let AstackRef { region, index } = &waiting.astack;
            region.refuse(*index, &Refusal::stopping());
            return;
        }
        // A procedure of this process waits for a nested call, directly or through other processes. If the
        // nested call waited for the thread of that procedure, neither could continue. So the nested call
        // goes first.
        if waiting.nested {
            state.queue.push_front(waiting);
            self.find_worker(&mut state, user);
            return;
        }
        // A call is refused if too many calls of its user wait already. Calls that workers can take at once
        // do not count as waiting.
        let free =
            state.workers_for(user).filter(|one| !one.is_awake() || one.is_polling()).count();
        let at_once = free + state.room(user);
        if let Err(refusal) = self.admission.may_wait(state.waiting(user), at_once) {
            drop(state);
            let AstackRef { region, index } = &waiting.astack;
            if self.timed(user, || region.refuse(*index, &refusal)) {
                return;
            }
            state = self.state();
        }
        state.queue.push_back(waiting);
        self.find_worker(&mut state, user);
        if state.workers.is_empty() {
            let unserved = state.queue.pop_back();
            drop(state);
            if let Some(QueuedAstack { astack: AstackRef { region, index }, .. }) = unserved {
                let text = "the server can start no thread";
                region.refuse(index, &Refusal::new(Kind::Exhausted, text));
            }
        }
    }

    /// Searches for the workers that run a captured call, if the number of workers has reached its bound.
    /// Otherwise counts no worker as captured. The search reads memory of clients and may be slow, so this
    /// thread does not hold the pool's lock meanwhile.
    fn find_captured(&self) {
        let mut state = self.state();
        if state.workers.len() < self.admission.running_max() {
            state.workers.iter_mut().for_each(|one| one.captured = false);
            state.count_captured();
            return;
        }
        let workers = state.workers.iter().map(|one| (Arc::clone(&one.handle), one.user));
        let workers: Vec<_> = workers.collect();
        drop(state);
        let is_captured = |(handle, user): &&(Arc<WorkerHandle>, Option<User>)| {
            user.is_some_and(|user| {
                // For a user whose A-stacks are slow to read, captured workers are counted later.
                self.ignored_for(user).is_none() && self.timed(user, || handle.is_captured())
            })
        };
        let captured = workers.iter().filter(is_captured).map(|(handle, _)| handle.number);
        let captured: HashSet<_> = captured.collect();
        let mut state = self.state();
        for one in &mut state.workers {
            one.captured = captured.contains(&one.handle.number);
        }
        state.count_captured();
    }

    /// Wakes or starts a worker for the queued A-stacks of a user.
    fn find_worker(self: &Arc<Self>, state: &mut State, user: User) {
        if wake_one(state.workers_for(user), state.waiting(user)) {
            return;
        }
        // A nested call may start a worker although the number of workers has reached its bound.
        let nested = bring_nested_forward(&mut state.queue, user);
        if state.share_left(user, nested) > 0 && self.admission.try_begin(nested) {
            if self.start_worker(state).is_ok() {
                return;
            }
            self.admission.end();
        }
        // If no worker was started, the A-stack waits for a worker of the same user. If there is no such
        // worker, any worker may take the A-stack.
        if state.workers_for(user).next().is_none() {
            state.queue.iter_mut().for_each(|one| one.anywhere |= one.user == user);
            state.workers.iter().for_each(|one| one.handle.set_queue_ready(true));
            if let Some(asleep) = state.workers.iter().rev().find(|one| !one.handle.is_awake()) {
                asleep.handle.wake();
            }
        }
    }

    fn start_worker(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let pool = Arc::clone(self);
        let handle = Arc::new(WorkerHandle::new(state.next_number));
        let counting = Counting::new(&self.page, ThreadKind::Local);
        let processors = Arc::clone(&self.processors);
        let worker = Worker::new(Arc::clone(&handle), self.wait, processors, counting);
        let thread = std::thread::Builder::new().name(THREAD.into());
        handle.set_queue_ready(true);
        thread.spawn(move || pool.run(worker))?;
        state.next_number = state.next_number.wrapping_add(1) % (u32::MAX / 2);
        state.workers.push(WorkerEntry { handle, user: None, captured: false });
        Ok(())
    }

    fn run(self: &Arc<Self>, mut worker: Worker) {
        self.faults.restart_on_panic(THREAD, || self.work(&mut worker));
        self.leave(worker);
    }

    /// Serves calls until the worker must end.
    fn work(self: &Arc<Self>, worker: &mut Worker) {
        let most = Self::assigned_max();
        loop {
            let pause = worker.serve();
            if let Pause::Deferred(at) = pause {
                if let Some(astack) = worker.detach(at) {
                    self.requeue([astack]);
                }
                continue;
            }
            worker.apply_changes();
            if pause == Pause::Changed {
                continue;
            }
            worker.unassign_closed();
            let took = match worker.handle.is_queue_ready() {
                true => self.take_from_queue(worker, most),
                false => FromQueue::Nothing,
            };
            match took {
                FromQueue::Taken => {}
                FromQueue::Nothing if pause == Pause::QueueReady || worker.keeps_polling() => {}
                FromQueue::Nothing if self.rest(worker) => {}
                _ => break,
            }
        }
    }

    /// Removes a worker that ends. The pool queues the worker's A-stacks where a call was posted, or refuses
    /// their calls if the server stops.
    fn leave(self: &Arc<Self>, mut worker: Worker) {
        let posted = worker.unassign_all();
        worker.executor.forget();
        let mut state = self.state();
        state.leave(&worker);
        let stops = self.admission.is_stopping();
        drop(state);
        if stops {
            for astack in posted {
                astack.region.refuse(astack.index, &Refusal::stopping());
                astack.set_assignment(Assignment::Unassigned);
            }
        } else {
            self.requeue(posted);
        }
        self.admission.notify();
    }

    /// Assigns an A-stack from the queue to a worker, if the worker may take one.
    fn take_from_queue(self: &Arc<Self>, worker: &mut Worker, most: usize) -> FromQueue {
        let mut state = self.state();
        if self.admission.is_stopping() {
            return FromQueue::Stopping;
        }
        let user = state.note_user(worker);
        let astack = loop {
            let Some(at) = state.queue.iter().position(|one| state.takes(user, one)) else {
                break None;
            };
            match state.queue.remove(at) {
                Some(QueuedAstack { astack, .. }) if astack.region.is_closed() => {
                    astack.set_assignment(Assignment::Unassigned);
                }
                waiting => break waiting.map(|waiting| waiting.astack),
            }
        };
        if let (None, Some(astack)) = (user, &astack) {
            self.assign_user(&mut state, worker, astack.user());
        }
        if state.queue.is_empty() {
            state.workers.iter().for_each(|one| one.handle.set_queue_ready(false));
        } else {
            let user = user.or_else(|| astack.as_ref().map(AstackRef::user));
            worker.handle.set_queue_ready(state.has_for(user));
        }
        drop(state);
        let Some(astack) = astack else { return FromQueue::Nothing };
        if let Some(left) = worker.assign(astack, most) {
            self.requeue([left]);
        }
        FromQueue::Taken
    }

    /// Records that a worker without A-stacks now serves `user`, a user of the operating system. From now on,
    /// the worker normally takes no A-stacks of other users. Therefore this function also finds another
    /// worker if the queue has A-stacks of another user.
    fn assign_user(self: &Arc<Self>, state: &mut State, worker: &Worker, user: User) {
        if let Some(own) =
            state.workers.iter_mut().find(|one| one.handle.number == worker.handle.number)
        {
            own.user = Some(user);
        }
        let other = state.queue.iter().find(|one| one.user != user).map(|one| one.user);
        if let Some(other) = other {
            self.find_worker(state, other);
        }
    }

    fn requeue(self: &Arc<Self>, astacks: impl IntoIterator<Item = AstackRef>) {
        let astacks: Vec<_> = astacks.into_iter().map(QueuedAstack::checked).collect();
        let mut state = self.state();
        state.queue.extend(astacks);
        let mut users = Vec::new();
        for one in &state.queue {
            if !users.contains(&one.user) {
                users.push(one.user);
            }
        }
        for user in users {
            self.find_worker(&mut state, user);
        }
    }

    /// Handles a worker that serves several users. If the pool may now have one more worker, unassigns the
    /// A-stacks of all users except the user that the pool has recorded for the worker. Requeues the A-stacks
    /// in which a call was posted meanwhile.
    fn separate_users(self: &Arc<Self>, worker: &mut Worker) {
        let first = worker.users().next();
        if worker.users().all(|user| Some(user) == first) {
            return;
        }
        let mut state = self.state();
        let user = state.note_user(worker);
        let full = state.workers.len() >= self.admission.bound(false);
        drop(state);
        if let Some(user) = user.filter(|_| !full) {
            self.requeue(worker.unassign_others(user));
        }
    }

    /// Handles a worker without calls: it hands its A-stacks to another worker, or sleeps on them. Returns
    /// false if the worker must end.
    fn rest(self: &Arc<Self>, worker: &mut Worker) -> bool {
        self.separate_users(worker);
        let mut state = self.state();
        if self.admission.excess() > 0 {
            drop(state);
            self.find_captured();
            state = self.state();
        }
        if self.admission.is_stopping() {
            return false;
        }
        let user = state.note_user(worker);
        if state.has_for(user) {
            worker.handle.set_queue_ready(true);
            return true;
        }
        if state.workers.len() > self.admission.bound(false) {
            // Workers were started for nested calls beyond the usual bound. This worker has no calls, so it
            // ends.
            return false;
        }
        if let Some(user) = user {
            let own = worker.handle.number;
            if state.workers_for(user).any(|other| other.number != own && other.is_polling()) {
                worker.requeue_all(|one| state.queue.push_back(QueuedAstack::unchecked(one)));
                state.note_user(worker);
                let others = state.workers_for(user).filter(|other| other.number != own);
                others.for_each(|other| other.set_queue_ready(true));
                // The worker serves no user now, and may take A-stacks of other users.
                if state.queue.iter().any(|one| one.user != user && state.takes(None, one)) {
                    worker.handle.set_queue_ready(true);
                    return true;
                }
            }
        }
        if !sys::has_futex_sets() {
            // Without `futex_waitv`, a worker can sleep on one word only: its own wake word. So the worker
            // gives up its A-stacks, and the clients ring for the next calls.
            state.queue.extend(worker.unassign_all().into_iter().map(QueuedAstack::unchecked));
            state.note_user(worker);
            if !state.queue.is_empty() {
                worker.handle.set_queue_ready(true);
                return true;
            }
        }
        let bell = worker.prepare_sleep();
        drop(state);
        worker.executor.forget();
        let limit = worker.is_unassigned().then_some(LINGER);
        let rung = worker.sleep(bell, limit);
        if rung || !worker.is_unassigned() {
            return true;
        }
        let mut state = self.state();
        // A ring may have arrived while this thread did not hold the lock of the pool.
        if worker.was_woken(bell) || !state.queue.is_empty() {
            return true;
        }
        // After `leave`, no A-stack is assigned to this worker.
        state.leave(worker);
        false
    }

    /// Refuses waiting calls and all further calls.
    pub(super) fn refuse(&self) {
        self.admission.stop();
        let mut state = self.state();
        let queue = core::mem::take(&mut state.queue);
        for WorkerEntry { handle, .. } in &state.workers {
            handle.set_queue_ready(true);
            handle.wake();
        }
        drop(state);
        for QueuedAstack { astack: AstackRef { region, index }, .. } in queue {
            region.refuse(index, &Refusal::stopping());
        }
    }

    /// Waits until all workers have ended. Returns false if a worker still runs when the time for draining
    /// ends.
    pub(super) fn drain(&self, drain: &Drain) -> bool {
        self.admission
            .drain(drain, || self.state().workers.is_empty() && self.deferrals.pending() == 0)
    }

    /// Causes each worker to forget the bindings that it has cached. A worker that runs a call forgets them
    /// after this call. The caller of this function has already removed the ended bindings from their tables.
    pub(super) fn forget_rows(&self) {
        self.state().workers.iter().for_each(|one| one.handle.forget_bindings());
    }

    /// Returns how many calls are captured, and how many A-stacks wait for a worker.
    pub(super) fn load(&self) -> Load {
        let state = self.state();
        let (handles, waiting) = (state.handles(), state.queue.len() as u64);
        drop(state);
        let captured = handles.iter().filter(|handle| handle.is_captured()).count() as u64;
        Load { captured, waiting }
    }

    /// Returns whether all workers that there may be run procedures.
    pub(super) fn is_full(&self) -> bool {
        let running = self.state().workers.iter().filter(|one| one.handle.runs()).count();
        running >= self.admission.bound(false)
    }

    /// Returns the largest number of workers, without the additional workers for nested calls.
    pub(super) fn threads_max(&self) -> usize {
        self.admission.running_max()
    }

    /// Returns the number of workers.
    pub(super) fn threads(&self) -> usize {
        self.state().workers.len()
    }
}

/// Returns whether a procedure of this process made the posted call and now waits for the result.
fn is_nested(astack: &AstackRef) -> bool {
    waiting_inside() > 0 && astack.is_posted() && astack.region.is_from_inside(astack.index)
}

/// Moves a nested call of a user to the front of the queue. If the A-stack of this call was queued before the
/// call was posted, the A-stack is not at the front yet. Returns false if the queue has no nested call of
/// this user. Reads no memory of clients.
fn bring_nested_forward(queue: &mut VecDeque<QueuedAstack>, user: User) -> bool {
    let is_it = |one: &QueuedAstack| one.nested && one.user == user;
    let Some(at) = queue.iter().position(is_it) else { return false };
    if let Some(waiting) = queue.remove(at) {
        queue.push_front(waiting);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_workers_of_one_user_are_not_replaced_by_another_user() {
        const OTHER: User = User::Other(61_999);
        let entry = |number, user, captured| {
            let handle = Arc::new(WorkerHandle::new(number));
            WorkerEntry { handle, user: Some(user), captured }
        };
        let admission = Admission::new(8, 16);
        let (queue, next_number) = (VecDeque::new(), 8);
        let mut state = State { queue, workers: Vec::new(), next_number, admission };
        state.workers.extend((0..6).map(|number| entry(number, OTHER, false)));
        state.workers.extend((6..8).map(|number| entry(number, User::Own, true)));
        state.count_captured();
        assert_eq!((state.admission.bound(false), state.share_left(OTHER, false)), (10, 0));
        assert_eq!((state.room(OTHER), state.room(User::Own)), (0, 2));
        // A captured worker of `OTHER` allows one more worker, also for `OTHER` itself.
        state.workers[0].captured = true;
        state.count_captured();
        assert_eq!((state.room(OTHER), state.room(User::Own)), (1, 3));
    }
}
