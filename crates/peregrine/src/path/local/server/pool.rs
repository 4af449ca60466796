//! The pool: a bounded number of threads that attend to A-stacks which rang.
//!
//! Each thread sits at a desk and looks at all the A-stacks that it was given. A ring goes to a
//! thread that looks around anyway, if there is one, else to one that sleeps, else to a new one.
//! A thread that finds nothing more to do gives its A-stacks to one that is still up, so that a
//! few that are busy share one thread, and processors are left to those who call. E-stacks are
//! thereby associated lazily, as in LRPC.
//!
//! A client can make a look at its A-stacks slow. So a thread looks at A-stacks of one user only
//! ([`State::takes`]), unless no other thread can be had: then an A-stack may go [`anywhere`].
//!
//! [`anywhere`]: Waiting::anywhere
//!
//! The keeper looks at A-stacks of all users that ring. After a look that was slow it leaves the rings of
//! that user for [`REST`] times as long.

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

/// A look at an A-stack that takes so long is slow: its client takes the memory away meanwhile. A look
/// at memory that is there takes less than a microsecond, at memory that is not a few.
const SLOW_LOOK: Duration = Duration::from_millis(1);
/// For how many times as long as a slow look took the keeper leaves the rings of its user. So looks at
/// A-stacks of one user cost the keeper a twentieth of its time.
const REST: u32 = 20;

/// What its threads are called.
const THREAD: &str = "peregrine-worker";

/// Threads that run procedures, and the A-stacks that wait for one.
pub(super) struct Pool {
    state: Mutex<State>,
    /// Until when the keeper leaves the rings of a user whose A-stacks were slow to look at.
    slow: Mutex<HashMap<u32, Instant>>,
    /// Of threads at desks: each may run a procedure at any time.
    admission: Arc<Admission>,
    wait: Wait,
    processors: Arc<Processors>,
    page: Arc<Page>,
    faults: Arc<crate::serving::faults::Faults>,
}

/// What a look into the queue brought.
enum Took {
    Something,
    Nothing,
    /// The pool stops.
    Stopping,
}

/// An A-stack that waits for a thread.
struct Waiting {
    place: AstackRef,
    user: User,
    /// Whether a thread that looks at A-stacks of other users may take it.
    anywhere: bool,
    /// Whether its call said, when its ring came, that it comes from a procedure of this process.
    inside: bool,
}

impl Waiting {
    /// Looks at the call, which is the client's memory and may take a moment: not under the lock.
    fn looked_at(place: AstackRef) -> Self {
        let inside = is_from_inside(&place);
        Self { inside, ..Self::unseen(place) }
    }

    /// An A-stack whose call, if there is one, has not been looked at. Its client rings again.
    fn unseen(place: AstackRef) -> Self {
        Self { user: place.user(), place, anywhere: false, inside: false }
    }
}

/// A thread at its desk.
struct Sitting {
    desk: Arc<WorkerHandle>,
    /// Whose A-stacks it looks at, if at any.
    user: Option<User>,
    /// Whether it ran a call that was given up, when such threads were looked for last.
    captured: bool,
}

struct State {
    queue: VecDeque<Waiting>,
    /// Where each thread sits.
    desks: Vec<Sitting>,
    next_desk: u32,
    admission: Arc<Admission>,
}

impl State {
    fn desks(&self) -> Vec<Arc<WorkerHandle>> {
        self.desks.iter().map(|one| Arc::clone(&one.desk)).collect()
    }

    /// Notes at whose A-stacks a thread looks now. One that has A-stacks of several users stays
    /// that of the first.
    fn note_user(&mut self, seat: &Worker) -> Option<User> {
        let own = self.desks.iter_mut().find(|one| one.desk.number == seat.handle.number)?;
        // It runs no call now.
        let was_captured = core::mem::take(&mut own.captured);
        let mut users = seat.users();
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

    /// Tells how many threads run a call which its caller has given up: they are replaced.
    fn count_captured(&self) {
        self.admission.set_captured(self.desks.iter().filter(|one| one.captured).count());
    }

    /// How many more threads may look at A-stacks of a user, of those that there may be. A user other
    /// than the server's own leaves a quarter of them to all others, and those that replace threads of
    /// others.
    fn share_left(&self, user: User, nested: bool) -> usize {
        if user == User::Own {
            return usize::MAX;
        }
        let theirs = || self.desks.iter().filter(|one| one.user == Some(user));
        let replaced = theirs().filter(|one| one.captured).count().min(limits::REPLACED_MAX);
        let beyond = if nested { self.admission.nested() } else { 0 };
        let threads = self.admission.running_max();
        (threads - threads / 4 + replaced + beyond).saturating_sub(theirs().count())
    }

    /// How many more threads may be started for a user.
    fn room(&self, user: User) -> usize {
        let left = self.admission.bound(false).saturating_sub(self.desks.len());
        left.min(self.share_left(user, false))
    }

    /// Whether a thread may take what waits, that looks at A-stacks of `user`, or at none.
    fn takes(&self, user: Option<User>, one: &Waiting) -> bool {
        let fits = match user {
            Some(user) => user == one.user,
            None => one.inside || self.share_left(one.user, false) > 0,
        };
        fits || one.anywhere
    }

    /// Whether something waits that such a thread may take.
    fn has_for(&self, user: Option<User>) -> bool {
        self.queue.iter().any(|one| self.takes(user, one))
    }

    /// The thread at a desk ends, if it has not been reckoned as ended before.
    fn leave(&mut self, seat: &Worker) {
        let before = self.desks.len();
        self.desks.retain(|one| one.desk.number != seat.handle.number);
        if self.desks.len() < before {
            self.admission.end();
            self.count_captured();
        }
    }

    /// How many A-stacks of a user wait.
    fn waiting(&self, user: User) -> usize {
        self.queue.iter().filter(|one| one.user == user).count()
    }

    /// The threads that may take an A-stack of a user.
    fn desks_for(&self, user: User) -> impl DoubleEndedIterator<Item = &WorkerHandle> + Clone {
        let open = self.share_left(user, false) > 0;
        let fits = move |one: &&Sitting| one.user.map_or(open, |own| own == user);
        self.desks.iter().filter(fits).map(|one| &*one.desk)
    }
}

impl Pool {
    /// Threads of a server, none of which runs yet.
    ///
    /// # Errors
    /// If there is no memory for the words that the servers of this machine share.
    pub(super) fn new(core: &Arc<ServerCore>) -> io::Result<Arc<Self>> {
        let processors = directory::shared_words(PROCESSORS_BYTES)
            .or_else(|_| Memory::private(PROCESSORS_BYTES))?;
        let admission = core.admission();
        let state = State {
            queue: VecDeque::new(),
            desks: Vec::new(),
            next_desk: 0,
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

    /// Looks at memory of a user's clients, and notes if that was slow.
    fn timed<T>(&self, user: User, look: impl FnOnce() -> T) -> T {
        let User::Other(user) = user else { return look() };
        let begun = Instant::now();
        let seen = look();
        let now = Instant::now();
        let took = now - begun;
        if took >= SLOW_LOOK {
            let mut slow = self.slow();
            slow.retain(|_, until| *until > now);
            slow.insert(user, now + took * REST);
        }
        seen
    }

    /// For how long the keeper is to leave the rings of a user.
    pub(super) fn rests_from(&self, user: User) -> Option<Duration> {
        let User::Other(user) = user else { return None };
        let until = self.slow().get(&user).copied();
        until?.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// A-stacks that one thread attends to.
    fn hot_max() -> usize {
        // Without barriers on other processors no A-stack can be taken away from a thread that
        // is busy elsewhere; without sets of futexes it cannot sleep on several.
        if sys::has_futex_sets() && sys::membarrier() { ASSIGNED_MAX } else { 1 }
    }

    /// A ring came for an A-stack: a thread will attend to it, or its call is refused.
    pub(super) fn rung(self: &Arc<Self>, region: &Arc<ServerRegion>, index: u32) {
        let place = AstackRef { region: Arc::clone(region), index };
        let asked = self.timed(place.user(), || {
            region.note_queued(index);
            region.on_ring(index)
        });
        match asked {
            RingAction::Enqueue => self.enqueue(place),
            // It has waited for long, or the first ring came a moment ago.
            RingAction::FindWorker => self.rung_again(&place),
            RingAction::Reassign(desk) => self.relieve(desk, place),
            RingAction::Nothing => {}
        }
    }

    /// A ring came for an A-stack in the queue. A thread that gave it away had not seen this call.
    fn rung_again(self: &Arc<Self>, place: &AstackRef) {
        let inside = self.timed(place.user(), || is_from_inside(place));
        self.find_captured();
        let mut state = self.state();
        if inside && let Some(one) = state.queue.iter_mut().find(|one| one.place.is(place)) {
            one.inside = true;
        }
        self.find_thread(&mut state, place.user());
    }

    /// The thread at a desk has not taken a call that was posted a while ago: if it runs
    /// another one, the A-stack goes to another thread.
    fn relieve(self: &Arc<Self>, desk: u32, place: AstackRef) {
        let is_it = |one: &&Sitting| one.desk.number == desk;
        let found = self.state().desks.iter().find(is_it).map(|one| Arc::clone(&one.desk));
        let Some(desk) = found else { return };
        let waiting = self.timed(place.user(), || desk.take_waiting(&place));
        if waiting.is_empty() {
            // It looks, or should: if the word was written over it may be asleep.
            desk.wake();
        }
        for place in waiting {
            place.set_assignment(Assignment::Queued);
            self.enqueue(place);
        }
    }

    /// A session has ended: the threads that attend to it are told by their own bells, which nobody
    /// else can reach. Its words are its client's too, who can write over a notice there, or move
    /// whoever sleeps on them to another word (`FUTEX_REQUEUE`).
    pub(super) fn closed(&self, region: &ServerRegion) {
        let at: HashSet<u32> = region.workers().collect();
        for one in self.state().desks.iter().filter(|one| at.contains(&one.desk.number)) {
            one.desk.wake();
        }
    }

    fn enqueue(self: &Arc<Self>, place: AstackRef) {
        let user = place.user();
        let waiting = self.timed(user, || Waiting::looked_at(place));
        self.find_captured();
        let mut state = self.state();
        if self.admission.is_stopping() {
            drop(state);
            // Who still posts is answered at the farewell.
            let AstackRef { region, index } = &waiting.place;
            region.refuse(*index, &Refusal::stopping());
            return;
        }
        // A thread of ours waits for this call to end, by way of others: that it waits for a
        // thread must never be what they wait for.
        if waiting.inside {
            state.queue.push_front(waiting);
            self.find_thread(&mut state, user);
            return;
        }
        // What a thread can take at once does not wait. Nor do calls of others count.
        let free = state.desks_for(user).filter(|one| !one.is_awake() || one.is_polling()).count();
        let at_once = free + state.room(user);
        if let Err(refusal) = self.admission.may_wait(state.waiting(user), at_once) {
            drop(state);
            let AstackRef { region, index } = &waiting.place;
            if self.timed(user, || region.refuse(*index, &refusal)) {
                return;
            }
            state = self.state();
        }
        state.queue.push_back(waiting);
        self.find_thread(&mut state, user);
        if state.desks.is_empty() {
            let unserved = state.queue.pop_back();
            drop(state);
            if let Some(Waiting { place: AstackRef { region, index }, .. }) = unserved {
                let text = "the server can start no thread";
                region.refuse(index, &Refusal::new(Kind::Exhausted, text));
            }
        }
    }

    /// Looks for the threads that run a call which its caller has given up, if that matters. It reads
    /// memory of clients, which may take a moment: not under the lock.
    fn find_captured(&self) {
        let mut state = self.state();
        if state.desks.len() < self.admission.running_max() {
            state.desks.iter_mut().for_each(|one| one.captured = false);
            state.count_captured();
            return;
        }
        let desks = state.desks.iter().map(|one| (Arc::clone(&one.desk), one.user));
        let desks: Vec<_> = desks.collect();
        drop(state);
        let is_captured = |(desk, user): &&(Arc<WorkerHandle>, Option<User>)| {
            user.is_some_and(|user| {
                // One whose A-stacks are slow to look at has its threads replaced later.
                self.rests_from(user).is_none() && self.timed(user, || desk.is_captured())
            })
        };
        let captured = desks.iter().filter(is_captured).map(|(desk, _)| desk.number);
        let captured: HashSet<_> = captured.collect();
        let mut state = self.state();
        for one in &mut state.desks {
            one.captured = captured.contains(&one.desk.number);
        }
        state.count_captured();
    }

    /// A-stacks of a user have come into the queue: sees to it that a thread comes.
    fn find_thread(self: &Arc<Self>, state: &mut State, user: User) {
        if wake_one(state.desks_for(user), state.waiting(user)) {
            return;
        }
        // A call from inside may get a thread beyond the bound.
        let inside = bring_inside_forward(&mut state.queue, user);
        if state.share_left(user, inside) > 0 && self.admission.try_begin(inside) {
            if self.start_thread(state).is_ok() {
                return;
            }
            self.admission.end();
        }
        // Without a new thread it waits for one of the user's, if there is one, else for any.
        if state.desks_for(user).next().is_none() {
            state.queue.iter_mut().for_each(|one| one.anywhere |= one.user == user);
            state.desks.iter().for_each(|one| one.desk.set_queue_ready(true));
            if let Some(asleep) = state.desks.iter().rev().find(|one| !one.desk.is_awake()) {
                asleep.desk.wake();
            }
        }
    }

    fn start_thread(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let pool = Arc::clone(self);
        let desk = Arc::new(WorkerHandle::new(state.next_desk));
        let counting = Counting::new(&self.page, ThreadKind::Local);
        let processors = Arc::clone(&self.processors);
        let seat = Worker::new(Arc::clone(&desk), self.wait, processors, counting);
        let thread = std::thread::Builder::new().name(THREAD.into());
        desk.set_queue_ready(true);
        thread.spawn(move || pool.run(seat))?;
        state.next_desk = state.next_desk.wrapping_add(1) % (u32::MAX / 2);
        state.desks.push(Sitting { desk, user: None, captured: false });
        Ok(())
    }

    fn run(self: &Arc<Self>, mut seat: Worker) {
        self.faults.restart_on_panic(THREAD, || self.work(&mut seat));
        self.leave(seat);
    }

    /// A thread's work, until it is to end.
    fn work(self: &Arc<Self>, seat: &mut Worker) {
        let most = Self::hot_max();
        loop {
            let pause = seat.serve();
            seat.apply_changes();
            if pause == Pause::Changed {
                continue;
            }
            seat.unassign_closed();
            let took = match seat.handle.is_queue_ready() {
                true => self.take_from_queue(seat, most),
                false => Took::Nothing,
            };
            match took {
                Took::Something => {}
                Took::Nothing if pause == Pause::QueueReady || seat.keeps_polling() => {}
                Took::Nothing if self.rest(seat) => {}
                _ => break,
            }
        }
    }

    /// The thread ends.
    fn leave(self: &Arc<Self>, mut seat: Worker) {
        let posted = seat.unassign_all();
        seat.executor.forget();
        let mut state = self.state();
        state.leave(&seat);
        let stops = self.admission.is_stopping();
        drop(state);
        if stops {
            for place in posted {
                place.region.refuse(place.index, &Refusal::stopping());
                place.set_assignment(Assignment::Unassigned);
            }
        } else {
            self.put_back(posted);
        }
        self.admission.notify();
    }

    /// Takes an A-stack from the queue, if there is one.
    fn take_from_queue(self: &Arc<Self>, seat: &mut Worker, most: usize) -> Took {
        let mut state = self.state();
        if self.admission.is_stopping() {
            return Took::Stopping;
        }
        let user = state.note_user(seat);
        let place = loop {
            let Some(at) = state.queue.iter().position(|one| state.takes(user, one)) else {
                break None;
            };
            match state.queue.remove(at) {
                Some(Waiting { place, .. }) if place.region.is_closed() => {
                    place.set_assignment(Assignment::Unassigned);
                }
                waiting => break waiting.map(|waiting| waiting.place),
            }
        };
        if let (None, Some(place)) = (user, &place) {
            self.turn_to(&mut state, seat, place.user());
        }
        if state.queue.is_empty() {
            state.desks.iter().for_each(|one| one.desk.set_queue_ready(false));
        } else {
            let user = user.or_else(|| place.as_ref().map(AstackRef::user));
            seat.handle.set_queue_ready(state.has_for(user));
        }
        drop(state);
        let Some(place) = place else { return Took::Nothing };
        if let Some(left) = seat.assign(place, most) {
            self.put_back([left]);
        }
        Took::Something
    }

    /// A thread that looked at nothing takes an A-stack of a user, and none of others from now on.
    /// Theirs may have relied on it.
    fn turn_to(self: &Arc<Self>, state: &mut State, seat: &Worker, user: User) {
        if let Some(own) = state.desks.iter_mut().find(|one| one.desk.number == seat.handle.number)
        {
            own.user = Some(user);
        }
        let other = state.queue.iter().find(|one| one.user != user).map(|one| one.user);
        if let Some(other) = other {
            self.find_thread(state, other);
        }
    }

    fn put_back(self: &Arc<Self>, places: impl IntoIterator<Item = AstackRef>) {
        let places: Vec<_> = places.into_iter().map(Waiting::looked_at).collect();
        let mut state = self.state();
        state.queue.extend(places);
        let mut users = Vec::new();
        for one in &state.queue {
            if !users.contains(&one.user) {
                users.push(one.user);
            }
        }
        for user in users {
            self.find_thread(&mut state, user);
        }
    }

    /// Where a thread has come to look at A-stacks of several users, and another one may be had by
    /// now: leaves those of all but one to the next ring.
    fn part_users(self: &Arc<Self>, seat: &mut Worker) {
        let first = seat.users().next();
        if seat.users().all(|user| Some(user) == first) {
            return;
        }
        let mut state = self.state();
        let user = state.note_user(seat);
        let full = state.desks.len() >= self.admission.bound(false);
        drop(state);
        if let Some(user) = user.filter(|_| !full) {
            self.put_back(seat.unassign_others(user));
        }
    }

    /// Nothing is to be done: gives what it attends to away, or sleeps on it. False if the
    /// thread is to end.
    fn rest(self: &Arc<Self>, seat: &mut Worker) -> bool {
        self.part_users(seat);
        let mut state = self.state();
        if self.admission.excess() > 0 {
            drop(state);
            self.find_captured();
            state = self.state();
        }
        if self.admission.is_stopping() {
            return false;
        }
        let user = state.note_user(seat);
        if state.has_for(user) {
            seat.handle.set_queue_ready(true);
            return true;
        }
        if state.desks.len() > self.admission.bound(false) {
            // It was there for a call from inside, and the bound holds again.
            return false;
        }
        if let Some(user) = user {
            let own = seat.handle.number;
            if state.desks_for(user).any(|desk| desk.number != own && desk.is_polling()) {
                state.queue.extend(seat.requeue_all().into_iter().map(Waiting::unseen));
                state.note_user(seat);
                let others = state.desks_for(user).filter(|desk| desk.number != own);
                others.for_each(|desk| desk.set_queue_ready(true));
                // It looks at nothing now, and may take what waits for others.
                if state.queue.iter().any(|one| one.user != user && state.takes(None, one)) {
                    seat.handle.set_queue_ready(true);
                    return true;
                }
            }
        }
        if !sys::has_futex_sets() {
            // It can sleep on its bell alone: whoever calls it next rings.
            state.queue.extend(seat.unassign_all().into_iter().map(Waiting::unseen));
            state.note_user(seat);
            if !state.queue.is_empty() {
                seat.handle.set_queue_ready(true);
                return true;
            }
        }
        let bell = seat.prepare_sleep();
        drop(state);
        seat.executor.forget();
        let limit = seat.is_unassigned().then_some(LINGER);
        let rung = seat.sleep(bell, limit);
        if rung || !seat.is_unassigned() {
            return true;
        }
        let mut state = self.state();
        // A ring may have come just now.
        if seat.was_woken(bell) || !state.queue.is_empty() {
            return true;
        }
        // Nobody relies on it any more.
        state.leave(seat);
        false
    }

    /// Lets no call begin any more. Calls that wait are refused.
    pub(super) fn refuse(&self) {
        self.admission.stop();
        let mut state = self.state();
        let queue = core::mem::take(&mut state.queue);
        for Sitting { desk, .. } in &state.desks {
            desk.set_queue_ready(true);
            desk.wake();
        }
        drop(state);
        for Waiting { place: AstackRef { region, index }, .. } in queue {
            region.refuse(index, &Refusal::stopping());
        }
    }

    /// Waits for the threads that run a procedure. Returns false if some still did when the drain was
    /// over.
    pub(super) fn drain(&self, drain: &Drain) -> bool {
        self.admission.drain(drain, || self.state().desks.is_empty())
    }

    /// Rows were taken away: no thread remembers them for longer than the call that it runs.
    pub(super) fn forget_rows(&self) {
        self.state().desks.iter().for_each(|one| one.desk.forget_bindings());
    }

    /// Returns how many calls are captured, and how many A-stacks wait for a thread.
    pub(super) fn load(&self) -> Load {
        let state = self.state();
        let (desks, waiting) = (state.desks(), state.queue.len() as u64);
        drop(state);
        let captured = desks.iter().filter(|desk| desk.is_captured()).count() as u64;
        Load { captured, waiting }
    }

    /// Threads that there may be, save for calls from inside.
    pub(super) fn threads_max(&self) -> usize {
        self.admission.running_max()
    }

    /// Threads that there are.
    pub(super) fn threads(&self) -> usize {
        self.state().desks.len()
    }
}

/// Whether the call that is posted there comes from a procedure of this process that waits for it.
fn is_from_inside(place: &AstackRef) -> bool {
    waiting_inside() > 0 && place.is_posted() && place.region.is_from_inside(place.index)
}

/// Puts a user's call from inside in front, wherever it is in the queue: its A-stack may have been
/// queued before it was posted. Returns false if there is none. Looks at no memory of clients.
fn bring_inside_forward(queue: &mut VecDeque<Waiting>, user: User) -> bool {
    let is_it = |one: &Waiting| one.inside && one.user == user;
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
    fn threads_of_one_user_are_not_replaced_by_those_of_another() {
        const OTHER: User = User::Other(61_999);
        let sitting = |number, user, captured| {
            let desk = Arc::new(WorkerHandle::new(number));
            Sitting { desk, user: Some(user), captured }
        };
        let admission = Admission::new(8, 16);
        let (queue, next_desk) = (VecDeque::new(), 8);
        let mut state = State { queue, desks: Vec::new(), next_desk, admission };
        state.desks.extend((0..6).map(|number| sitting(number, OTHER, false)));
        state.desks.extend((6..8).map(|number| sitting(number, User::Own, true)));
        state.count_captured();
        assert_eq!((state.admission.bound(false), state.share_left(OTHER, false)), (10, 0));
        assert_eq!((state.room(OTHER), state.room(User::Own)), (0, 2));
        // Their own are.
        state.desks[0].captured = true;
        state.count_captured();
        assert_eq!((state.room(OTHER), state.room(User::Own)), (1, 3));
    }
}
