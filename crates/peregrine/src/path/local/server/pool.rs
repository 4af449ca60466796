//! The pool: a bounded number of worker threads that serve the A-stacks whose clients rang.
//!
//! Each worker polls all A-stacks that are assigned to it. A ring wakes a worker only if no worker polls.
//! A new worker starts only if none sleeps either. A worker without calls gives its A-stacks to another
//! worker that still polls. So one thread serves several busy A-stacks, and the clients keep the
//! other processors. This is the lazy association of E-stacks of LRPC.
//!
//! A client can make reads of its A-stacks slow. Therefore a worker reads the A-stacks of one user only
//! ([`State::takes`]). If no other worker is available, any worker may take an A-stack ([`anywhere`]).
//!
//! [`anywhere`]: Waiting::anywhere
//!
//! The keeper reads the A-stacks of all users that ring. After a slow read it ignores the rings of that
//! user for [`REST`] times the duration of the read.

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
use crate::serving::stop::Drain;
use crate::serving::{Load, ServerCore};
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys::Memory;
use crate::{limits, sys};

/// A read of an A-stack that takes this long is slow: its client removes the pages meanwhile. A read
/// of present memory takes less than a microsecond, and of absent memory a few microseconds.
const SLOW_READ: Duration = Duration::from_millis(1);
/// The keeper ignores the rings of a user for this many times the duration of a slow read. So reads of
/// one user's A-stacks take at most a twentieth of the keeper's time.
const REST: u32 = 20;

/// The name of the worker threads.
const THREAD: &str = "peregrine-worker";

/// Threads that run procedures, and the A-stacks that wait for one.
pub(super) struct Pool {
    state: Mutex<State>,
    /// Until when the keeper ignores the rings of each user whose A-stacks were slow to read.
    slow: Mutex<HashMap<u32, Instant>>,
    /// Admits workers, each of which may run a procedure at any time.
    admission: Arc<Admission>,
    wait: Wait,
    processors: Arc<Processors>,
    page: Arc<Page>,
    faults: Arc<crate::serving::faults::Faults>,
}

/// What a worker found in the queue.
enum FromQueue {
    Taken,
    Nothing,
    /// The pool is stopping.
    Stopping,
}

/// An A-stack that waits for a worker.
struct Waiting {
    astack: AstackRef,
    user: User,
    /// Whether a worker that serves another user may take it.
    anywhere: bool,
    /// Whether a procedure of this process made the call, as the call said when its ring arrived.
    nested: bool,
}

impl Waiting {
    /// Reads the call. The memory is the client's, so this may be slow: it is not done under the lock.
    fn checked(astack: AstackRef) -> Self {
        let nested = is_nested(&astack);
        Self { nested, ..Self::unchecked(astack) }
    }

    /// An A-stack whose call, if any, has not been read. Its client rings again.
    fn unchecked(astack: AstackRef) -> Self {
        Self { user: astack.user(), astack, anywhere: false, nested: false }
    }
}

/// A worker of the pool.
struct WorkerEntry {
    handle: Arc<WorkerHandle>,
    /// The user whose A-stacks it serves, if any.
    user: Option<User>,
    /// Whether it ran an abandoned call at the last search for such workers.
    captured: bool,
}

struct State {
    queue: VecDeque<Waiting>,
    workers: Vec<WorkerEntry>,
    next_number: u32,
    admission: Arc<Admission>,
}

impl State {
    fn handles(&self) -> Vec<Arc<WorkerHandle>> {
        self.workers.iter().map(|one| Arc::clone(&one.handle)).collect()
    }

    /// Records which user a worker serves now. A worker with A-stacks of several users keeps the user
    /// that was recorded before.
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

    /// Reports how many workers run a call that its caller has abandoned. They are replaced.
    fn count_captured(&self) {
        self.admission.set_captured(self.workers.iter().filter(|one| one.captured).count());
    }

    /// How many more workers may serve a user. A user other than the server's own leaves to the others
    /// a quarter of all workers, and the workers that replace captured ones of others.
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

    /// How many more workers may be started for a user.
    fn room(&self, user: User) -> usize {
        let left = self.admission.bound(false).saturating_sub(self.workers.len());
        left.min(self.share_left(user, false))
    }

    /// Whether a worker that serves `user`, or no user yet, may take a waiting A-stack.
    fn takes(&self, user: Option<User>, one: &Waiting) -> bool {
        let fits = match user {
            Some(user) => user == one.user,
            None => one.nested || self.share_left(one.user, false) > 0,
        };
        fits || one.anywhere
    }

    /// Whether a worker that serves `user`, or no user yet, finds a waiting A-stack that it may take.
    fn has_for(&self, user: Option<User>) -> bool {
        self.queue.iter().any(|one| self.takes(user, one))
    }

    /// Removes a worker that ends, if it was not removed before.
    fn leave(&mut self, worker: &Worker) {
        let before = self.workers.len();
        self.workers.retain(|one| one.handle.number != worker.handle.number);
        if self.workers.len() < before {
            self.admission.end();
            self.count_captured();
        }
    }

    /// How many A-stacks of a user wait for a worker.
    fn waiting(&self, user: User) -> usize {
        self.queue.iter().filter(|one| one.user == user).count()
    }

    /// The workers that may take an A-stack of a user.
    fn workers_for(&self, user: User) -> impl DoubleEndedIterator<Item = &WorkerHandle> + Clone {
        let open = self.share_left(user, false) > 0;
        let fits = move |one: &&WorkerEntry| one.user.map_or(open, |own| own == user);
        self.workers.iter().filter(fits).map(|one| &*one.handle)
    }
}

impl Pool {
    /// A pool without workers.
    ///
    /// # Errors
    /// If there is no memory for the words that all servers of this machine share.
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

    /// Reads memory of a user's clients, and records a slow read.
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

    /// For how long the keeper still ignores the rings of a user.
    pub(super) fn ignored_for(&self, user: User) -> Option<Duration> {
        let User::Other(user) = user else { return None };
        let until = self.slow().get(&user).copied();
        until?.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// The largest number of A-stacks that are assigned to one worker.
    fn assigned_max() -> usize {
        // Without `membarrier`, no A-stack can be taken from a worker that runs a procedure. Without
        // `futex_waitv`, a worker cannot sleep on several A-stacks.
        if sys::has_futex_sets() && sys::membarrier() { ASSIGNED_MAX } else { 1 }
    }

    /// A client rang for an A-stack: a worker serves it, or its call is refused.
    pub(super) fn on_ring(self: &Arc<Self>, region: &Arc<ServerRegion>, index: u32) {
        let astack = AstackRef { region: Arc::clone(region), index };
        let asked = self.timed(astack.user(), || {
            region.note_queued(index);
            region.on_ring(index)
        });
        match asked {
            RingAction::Enqueue => self.enqueue(astack),
            // It has waited for long, or this ring follows the first one closely.
            RingAction::FindWorker => self.on_ring_again(&astack),
            RingAction::Reassign(number) => self.reassign(number, astack),
            RingAction::Nothing => {}
        }
    }

    /// A client rang for an A-stack in the queue. The worker that requeued it had not seen this call.
    fn on_ring_again(self: &Arc<Self>, astack: &AstackRef) {
        let nested = self.timed(astack.user(), || is_nested(astack));
        self.find_captured();
        let mut state = self.state();
        if nested && let Some(one) = state.queue.iter_mut().find(|one| one.astack.is(astack)) {
            one.nested = true;
        }
        self.find_worker(&mut state, astack.user());
    }

    /// Worker `number` has not taken a call that was posted a while ago. If it runs another call, the
    /// A-stack goes to another worker.
    fn reassign(self: &Arc<Self>, number: u32, astack: AstackRef) {
        let is_it = |one: &&WorkerEntry| one.handle.number == number;
        let found = self.state().workers.iter().find(is_it).map(|one| Arc::clone(&one.handle));
        let Some(handle) = found else { return };
        let waiting = self.timed(astack.user(), || handle.take_waiting(&astack));
        if waiting.is_empty() {
            // It should be polling. If its client overwrote the word, it may be asleep.
            handle.wake();
        }
        for astack in waiting {
            astack.set_assignment(Assignment::Queued);
            self.enqueue(astack);
        }
    }

    /// Wakes the workers of a session that has ended, by private words that no client can reach. The
    /// client can overwrite a notice in the shared words, or move their sleepers to another word
    /// (`FUTEX_REQUEUE`).
    pub(super) fn closed(&self, region: &ServerRegion) {
        let at: HashSet<u32> = region.workers().collect();
        for one in self.state().workers.iter().filter(|one| at.contains(&one.handle.number)) {
            one.handle.wake();
        }
    }

    fn enqueue(self: &Arc<Self>, astack: AstackRef) {
        let user = astack.user();
        let waiting = self.timed(user, || Waiting::checked(astack));
        self.find_captured();
        let mut state = self.state();
        if self.admission.is_stopping() {
            drop(state);
            // A call that is posted later is refused when the session ends.
            let AstackRef { region, index } = &waiting.astack;
            region.refuse(*index, &Refusal::stopping());
            return;
        }
        // A worker of this pool waits for this call, perhaps through other processes. If the call also
        // waited for a worker, that would be a deadlock.
        if waiting.nested {
            state.queue.push_front(waiting);
            self.find_worker(&mut state, user);
            return;
        }
        // A call that a worker can take at once does not wait. Calls of other users do not count.
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
            if let Some(Waiting { astack: AstackRef { region, index }, .. }) = unserved {
                let text = "the server can start no thread";
                region.refuse(index, &Refusal::new(Kind::Exhausted, text));
            }
        }
    }

    /// Searches for the workers that run an abandoned call, if the bound is reached. This reads memory of
    /// clients and may be slow, so it is not done under the lock.
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
                // The workers of a user whose A-stacks are slow to read are replaced later.
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

    /// Wakes or starts a worker for the A-stacks of a user that were added to the queue.
    fn find_worker(self: &Arc<Self>, state: &mut State, user: User) {
        if wake_one(state.workers_for(user), state.waiting(user)) {
            return;
        }
        // A nested call may start a worker beyond the bound.
        let nested = bring_nested_forward(&mut state.queue, user);
        if state.share_left(user, nested) > 0 && self.admission.try_begin(nested) {
            if self.start_worker(state).is_ok() {
                return;
            }
            self.admission.end();
        }
        // Without a new worker, the A-stack waits for one of its user. If there is none, any worker may
        // take it.
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

    /// Returns the A-stacks of a worker that ends.
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

    /// Assigns an A-stack from the queue to a worker, if one fits.
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
                Some(Waiting { astack, .. }) if astack.region.is_closed() => {
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

    /// A worker without A-stacks takes one of a user, and from now on none of other users. Waiting
    /// A-stacks of other users may need another worker for that reason.
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
        let astacks: Vec<_> = astacks.into_iter().map(Waiting::checked).collect();
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

    /// If a worker serves several users although another worker is available now, requeues the A-stacks
    /// of all users but one.
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

    /// A worker without calls gives its A-stacks to another worker, or sleeps on them. Returns false if
    /// the worker must end.
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
            // It was started for a nested call, and the bound holds again.
            return false;
        }
        if let Some(user) = user {
            let own = worker.handle.number;
            if state.workers_for(user).any(|other| other.number != own && other.is_polling()) {
                state.queue.extend(worker.requeue_all().into_iter().map(Waiting::unchecked));
                state.note_user(worker);
                let others = state.workers_for(user).filter(|other| other.number != own);
                others.for_each(|other| other.set_queue_ready(true));
                // It serves no user now, and may take A-stacks of other users.
                if state.queue.iter().any(|one| one.user != user && state.takes(None, one)) {
                    worker.handle.set_queue_ready(true);
                    return true;
                }
            }
        }
        if !sys::has_futex_sets() {
            // It can sleep on one word only, which is its own. The next client of its A-stacks rings.
            state.queue.extend(worker.unassign_all().into_iter().map(Waiting::unchecked));
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
        // A ring may have arrived meanwhile.
        if worker.was_woken(bell) || !state.queue.is_empty() {
            return true;
        }
        // From here on, no A-stack is given to this worker.
        state.leave(worker);
        false
    }

    /// Admits no more calls, and refuses waiting calls.
    pub(super) fn refuse(&self) {
        self.admission.stop();
        let mut state = self.state();
        let queue = core::mem::take(&mut state.queue);
        for WorkerEntry { handle, .. } in &state.workers {
            handle.set_queue_ready(true);
            handle.wake();
        }
        drop(state);
        for Waiting { astack: AstackRef { region, index }, .. } in queue {
            region.refuse(index, &Refusal::stopping());
        }
    }

    /// Waits until no worker runs a procedure. Returns false if one still did when the drain ended.
    pub(super) fn drain(&self, drain: &Drain) -> bool {
        self.admission.drain(drain, || self.state().workers.is_empty())
    }

    /// Bindings were removed: each worker forgets them after the call that it runs.
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

    /// The largest number of workers, not counting those for nested calls.
    pub(super) fn threads_max(&self) -> usize {
        self.admission.running_max()
    }

    /// The number of workers.
    pub(super) fn threads(&self) -> usize {
        self.state().workers.len()
    }
}

/// Whether the posted call was made by a procedure of this process that waits for it.
fn is_nested(astack: &AstackRef) -> bool {
    waiting_inside() > 0 && astack.is_posted() && astack.region.is_from_inside(astack.index)
}

/// Moves a nested call of a user to the front of the queue: its A-stack may have been queued before the
/// call was posted. Returns false if there is none. Reads no memory of clients.
fn bring_nested_forward(queue: &mut VecDeque<Waiting>, user: User) -> bool {
    let is_it = |one: &Waiting| one.nested && one.user == user;
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
        // Captured workers of the same user are replaced.
        state.workers[0].captured = true;
        state.count_captured();
        assert_eq!((state.room(OTHER), state.room(User::Own)), (1, 3));
    }
}
