//! The pool: a bounded number of threads that attend to A-stacks which rang.
//!
//! Each thread sits at a desk and looks at all the A-stacks that it was given. A ring goes to a
//! thread that looks around anyway, if there is one, else to one that sleeps, else to a new one.
//! A thread that finds nothing more to do gives its A-stacks to one that is still up, so that a
//! few that are busy share one thread, and processors are left to those who call. E-stacks are
//! thereby associated lazily, as in LRPC.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::faults::Faults;
use super::stop::Drain;
use crate::call::chain::waiting_inside;
use crate::call::{Refusal, Wait};
use crate::counters::{Counting, Page, ThreadKind};
use crate::error::Kind;
use crate::path::local::{Attendance, Desk, HOT_MAX, Pause, Place, Processors, Seat, ServerRegion};
use crate::sync::{Condvar, Mutex, MutexGuard, Rank};
use crate::{limits, sys};

/// How long a thread without an A-stack stays before it ends.
const LINGER: Duration = Duration::from_secs(5);

/// What its threads are called.
const THREAD: &str = "peregrine-worker";

/// Threads that run procedures, and the A-stacks that wait for one.
pub(super) struct Pool {
    state: Mutex<State>,
    ended: Condvar,
    /// Whether anything waits in the queue, or the pool stops: threads read it after each look.
    hungry: AtomicBool,
    threads_max: usize,
    queue_max: usize,
    wait: Wait,
    processors: Arc<Processors>,
    page: Arc<Page>,
    faults: Arc<Faults>,
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
    place: Place,
    /// Whether its call said, when its ring came, that it comes from a procedure of this process.
    inside: bool,
}

impl Waiting {
    /// Looks at the call, which is the client's memory and may take a moment: not under the lock.
    fn looked_at(place: Place) -> Self {
        let inside = is_from_inside(&place);
        Self { place, inside }
    }

    /// An A-stack whose call, if there is one, has not been looked at. Its client rings again.
    const fn unseen(place: Place) -> Self {
        Self { place, inside: false }
    }
}

#[derive(Default)]
struct State {
    queue: VecDeque<Waiting>,
    /// Where each thread sits.
    desks: Vec<Arc<Desk>>,
    next_desk: u32,
    stopping: bool,
}

impl Pool {
    pub(super) fn new(
        threads_max: usize,
        queue_max: usize,
        wait: Wait,
        processors: Processors,
        page: Arc<Page>,
        faults: Arc<Faults>,
    ) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::ranked(Rank::Threads, State::default()),
            ended: Condvar::new(),
            hungry: AtomicBool::new(false),
            threads_max,
            queue_max,
            wait,
            processors: Arc::new(processors),
            page,
            faults,
        })
    }

    #[track_caller]
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A-stacks that one thread attends to.
    fn hot_max() -> usize {
        // Without barriers on other processors no A-stack can be taken away from a thread that
        // is busy elsewhere; without sets of futexes it cannot sleep on several.
        if sys::has_futex_sets() && sys::membarrier() { HOT_MAX } else { 1 }
    }

    /// A ring came for an A-stack: a thread will attend to it, or its call is refused.
    pub(super) fn rung(self: &Arc<Self>, region: &Arc<ServerRegion>, index: u32) {
        let place = Place { region: Arc::clone(region), index };
        region.note_queued(index);
        match region.attendance(index) {
            Some(Attendance::Idle) if region.queue(index) => self.enqueue(place),
            // It has waited for long, or the first ring came a moment ago.
            Some(Attendance::Queued) => self.rung_again(&place),
            Some(Attendance::At(desk)) if region.is_posted(index) => self.relieve(desk, place),
            _ => {}
        }
    }

    /// A ring came for an A-stack in the queue. A thread that gave it away had not seen this call.
    fn rung_again(self: &Arc<Self>, place: &Place) {
        let inside = is_from_inside(place);
        let mut state = self.state();
        if inside && let Some(one) = state.queue.iter_mut().find(|one| one.place.is(place)) {
            one.inside = true;
        }
        self.find_thread(&mut state);
    }

    /// The thread at a desk has not taken a call that was posted a while ago: if it runs
    /// another one, the A-stack goes to another thread.
    fn relieve(self: &Arc<Self>, desk: u32, place: Place) {
        let found = self.state().desks.iter().find(|one| one.number == desk).map(Arc::clone);
        let Some(desk) = found else { return };
        let waiting = desk.relieve(&place);
        if waiting.is_empty() {
            // It looks, or should: if the word was written over it may be asleep.
            desk.ring();
        }
        for place in waiting {
            place.region.attended(place.index, Attendance::Queued);
            self.enqueue(place);
        }
    }

    /// A session has ended: the threads that attend to it are told by their own bells, which nobody
    /// else can reach. Its words are its client's too, who can write over a notice there, or move
    /// whoever sleeps on them to another word (`FUTEX_REQUEUE`).
    pub(super) fn closed(&self, region: &ServerRegion) {
        let at: HashSet<u32> = region.desks().collect();
        for desk in self.state().desks.iter().filter(|desk| at.contains(&desk.number)) {
            desk.ring();
        }
    }

    fn enqueue(self: &Arc<Self>, place: Place) {
        let waiting = Waiting::looked_at(place);
        let mut state = self.state();
        if state.stopping {
            drop(state);
            // Who still posts is answered at the farewell.
            let Place { region, index } = &waiting.place;
            region.refuse(*index, &stopping());
            return;
        }
        // A thread of ours waits for this call to end, by way of others: that it waits for a
        // thread must never be what they wait for.
        if waiting.inside {
            state.queue.push_front(waiting);
            self.find_thread(&mut state);
            return;
        }
        // What a thread can take at once does not wait.
        let free = state.desks.iter().filter(|desk| !desk.is_up() || desk.looks_around()).count();
        let at_once = free + self.bound(&state).saturating_sub(state.desks.len());
        if state.queue.len() >= self.queue_max + at_once {
            drop(state);
            let Place { region, index } = &waiting.place;
            if region.refuse(*index, &self.overloaded()) {
                return;
            }
            state = self.state();
        }
        state.queue.push_back(waiting);
        self.find_thread(&mut state);
        if state.desks.is_empty() {
            let unserved = state.queue.pop_back();
            drop(state);
            if let Some(Waiting { place: Place { region, index }, .. }) = unserved {
                let text = "the server can start no thread";
                region.refuse(index, &Refusal::new(Kind::Exhausted, text));
            }
        }
    }

    /// How many threads there may be. One that runs a call which its caller has given up is
    /// replaced, as LRPC replaces a captured thread.
    fn bound(&self, state: &State) -> usize {
        if state.desks.len() < self.threads_max {
            return self.threads_max;
        }
        let captured = state.desks.iter().filter(|desk| desk.is_captured()).count();
        self.threads_max + captured.min(limits::REPLACED_MAX)
    }

    /// The queue has grown: sees to it that a thread comes.
    fn find_thread(self: &Arc<Self>, state: &mut State) {
        self.hungry.store(true, Ordering::SeqCst);
        // Those that look around see `hungry` by themselves; each may be about to run a long
        // procedure, so each is relied on for one A-stack.
        let looking = state.desks.iter().filter(|desk| desk.looks_around()).count();
        if looking >= state.queue.len() {
            return;
        }
        // The one that came last is the one whose caches are warmest.
        if let Some(asleep) = state.desks.iter().rev().find(|desk| !desk.is_up()) {
            asleep.ring();
            return;
        }
        // A call from inside gets a thread beyond the bound, but no more of them than there are
        // threads inside: anybody can say where a call comes from.
        let beyond = if bring_inside_forward(&mut state.queue) { waiting_inside() } else { 0 };
        let beyond = beyond as usize;
        if state.desks.len() < self.bound(state) + beyond {
            // Without a new thread it waits for one of those that there are.
            let _ = self.start_thread(state);
        }
    }

    fn overloaded(&self) -> Refusal {
        let text = format!("{} threads are busy, {} calls wait", self.threads_max, self.queue_max);
        Refusal::new(Kind::Overloaded, text)
    }

    fn start_thread(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let pool = Arc::clone(self);
        let desk = Arc::new(Desk::new(state.next_desk));
        let counting = Counting::new(&self.page, ThreadKind::Local);
        let processors = Arc::clone(&self.processors);
        let seat = Seat::new(Arc::clone(&desk), self.wait, processors, counting);
        let thread = std::thread::Builder::new().name(THREAD.into());
        thread.spawn(move || pool.run(seat))?;
        state.next_desk = state.next_desk.wrapping_add(1) % (u32::MAX / 2);
        state.desks.push(desk);
        Ok(())
    }

    fn run(self: &Arc<Self>, mut seat: Seat) {
        self.faults.outlive(THREAD, || self.work(&mut seat));
        self.leave(seat);
    }

    /// A thread's work, until it is to end.
    fn work(self: &Arc<Self>, seat: &mut Seat) {
        let most = Self::hot_max();
        loop {
            let pause = seat.attend(&self.hungry);
            seat.refresh();
            if pause == Pause::Changed {
                continue;
            }
            seat.drop_closed();
            let took = match self.hungry.load(Ordering::SeqCst) {
                true => self.take_from_queue(seat, most),
                false => Took::Nothing,
            };
            match took {
                Took::Something => {}
                Took::Nothing if pause == Pause::Hungry || seat.is_patient() => {}
                Took::Nothing if self.rest(seat) => {}
                _ => break,
            }
        }
    }

    /// The thread ends.
    fn leave(self: &Arc<Self>, mut seat: Seat) {
        let posted = seat.leave_all();
        seat.worker.forget();
        let mut state = self.state();
        state.desks.retain(|desk| desk.number != seat.desk.number);
        let stops = state.stopping;
        drop(state);
        if stops {
            for Place { region, index } in posted {
                region.refuse(index, &stopping());
                region.attended(index, Attendance::Idle);
            }
        } else {
            self.put_back(posted);
        }
        self.ended.notify_all();
    }

    /// Takes an A-stack from the queue, if there is one.
    fn take_from_queue(self: &Arc<Self>, seat: &mut Seat, most: usize) -> Took {
        let mut state = self.state();
        if state.stopping {
            return Took::Stopping;
        }
        let place = loop {
            match state.queue.pop_front() {
                Some(Waiting { place, .. }) if place.region.is_closed() => {
                    place.region.attended(place.index, Attendance::Idle);
                }
                waiting => break waiting.map(|waiting| waiting.place),
            }
        };
        self.hungry.store(!state.queue.is_empty(), Ordering::SeqCst);
        drop(state);
        let Some(place) = place else { return Took::Nothing };
        if let Some(left) = seat.take_in(place, most) {
            self.put_back([left]);
        }
        Took::Something
    }

    fn put_back(self: &Arc<Self>, places: impl IntoIterator<Item = Place>) {
        let places: Vec<_> = places.into_iter().map(Waiting::looked_at).collect();
        let mut state = self.state();
        state.queue.extend(places);
        if !state.queue.is_empty() {
            self.find_thread(&mut state);
        }
    }

    /// Nothing is to be done: gives what it attends to away, or sleeps on it. False if the
    /// thread is to end.
    fn rest(self: &Arc<Self>, seat: &mut Seat) -> bool {
        let mut state = self.state();
        if state.stopping {
            return false;
        }
        if !state.queue.is_empty() {
            self.hungry.store(true, Ordering::SeqCst);
            return true;
        }
        if state.desks.len() > self.bound(&state) {
            // It was there for a call from inside, and the bound holds again.
            return false;
        }
        if !seat.is_vacant() {
            let own = seat.desk.number;
            if state.desks.iter().any(|desk| desk.number != own && desk.looks_around()) {
                state.queue.extend(seat.give_all().into_iter().map(Waiting::unseen));
                self.hungry.store(true, Ordering::SeqCst);
            }
        }
        if !sys::has_futex_sets() {
            // It can sleep on its bell alone: whoever calls it next rings.
            state.queue.extend(seat.leave_all().into_iter().map(Waiting::unseen));
            if !state.queue.is_empty() {
                self.hungry.store(true, Ordering::SeqCst);
                return true;
            }
        }
        let bell = seat.lie_down();
        drop(state);
        seat.worker.forget();
        let limit = seat.is_vacant().then_some(LINGER);
        let rung = seat.sleep(bell, limit);
        if rung || !seat.is_vacant() {
            return true;
        }
        let mut state = self.state();
        // A ring may have come just now.
        if seat.was_rung(bell) || !state.queue.is_empty() {
            return true;
        }
        // Nobody relies on it any more.
        state.desks.retain(|desk| desk.number != seat.desk.number);
        false
    }

    /// Lets no thread take anything any more, and waits for those that run a procedure; false if
    /// some still did when the drain was over.
    pub(super) fn stop(&self, drain: &Drain) -> bool {
        let mut state = self.state();
        state.stopping = true;
        self.hungry.store(true, Ordering::SeqCst);
        let queue = core::mem::take(&mut state.queue);
        for desk in &state.desks {
            desk.ring();
        }
        drop(state);
        for Waiting { place: Place { region, index }, .. } in queue {
            region.refuse(index, &stopping());
        }
        let mut state = self.state();
        while !state.desks.is_empty() {
            let Some(slice) = drain.slice() else { return false };
            let waited = self.ended.wait_timeout(state, slice);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Rows were taken away: no thread remembers them for longer than the call that it runs.
    pub(super) fn forget_rows(&self) {
        self.state().desks.iter().for_each(|desk| desk.forget_rows());
    }

    /// Calls that run although their callers have given them up, and A-stacks that wait.
    pub(super) fn captured(&self) -> [u64; 2] {
        let state = self.state();
        let captured = state.desks.iter().filter(|desk| desk.is_captured()).count();
        [captured as u64, state.queue.len() as u64]
    }

    /// Threads that there may be, save for calls from inside.
    pub(super) const fn threads_max(&self) -> usize {
        self.threads_max
    }

    /// Threads that there are.
    pub(super) fn threads(&self) -> usize {
        self.state().desks.len()
    }
}

/// Whether the call that is posted there comes from a procedure of this process that waits for it.
fn is_from_inside(place: &Place) -> bool {
    waiting_inside() > 0
        && place.region.is_posted(place.index)
        && place.region.is_from_inside(place.index)
}

/// Puts a call from inside in front, wherever it is in the queue: its A-stack may have been queued
/// before it was posted. Returns false if there is none. Looks at no memory of clients.
fn bring_inside_forward(queue: &mut VecDeque<Waiting>) -> bool {
    let Some(at) = queue.iter().position(|waiting| waiting.inside) else { return false };
    if let Some(waiting) = queue.remove(at) {
        queue.push_front(waiting);
    }
    true
}

pub(super) fn stopping() -> Refusal {
    Refusal::new(Kind::Withdrawn, "the server is stopping")
}
