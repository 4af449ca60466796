//! Attending: one thread looks at the call words of many A-stacks, of any sessions.
//!
//! A thread sits at a *desk* with a set of *hot* A-stacks. It looks at all of them in turn, serves
//! what is posted, and when nothing is it sleeps on all of their words at once. A-stacks that are
//! called seldom are away, and ring. So a thousand idle bindings cost no thread, and a few busy ones
//! need only one.
//!
//! While a thread runs one procedure it looks at no other word. Whoever waits there too long rings
//! again, and the keeper takes that A-stack away from the desk (*relieves* it): see [`Words::runs_another`]
//! for why no call is then taken twice.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, Ordering, fence};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::desk::Words;
use super::processors::{ALONE, LOOKS_ON, Processors, tag};
use super::server::{Attendance, ServerRegion, User, Worker};
use super::wait::{FIRST_LOOKS, PATIENCE, YIELDS, block_cost};
use super::word::{Look, SLEEP};
use crate::call::{Refusal, Wait};
use crate::counters::Counting;
use crate::sync::{Mutex, MutexGuard};
use crate::sys::{self, FutexSet};

/// A-stacks that one thread looks at: a look at all of them takes less than a line takes to come
/// over, and all their words can be slept on at once.
pub(crate) const HOT_MAX: usize = 32;

/// An A-stack of some session.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) region: Arc<ServerRegion>,
    pub(crate) index: u32,
}

impl Place {
    fn key(&self) -> u64 {
        self.region.key(self.index)
    }

    /// Whose A-stack it is.
    pub(crate) fn user(&self) -> User {
        self.region.user()
    }

    /// Whether it is the same A-stack.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

/// A hot A-stack, as the thread at the desk knows it.
struct Hot {
    place: Place,
    key: u64,
    /// Calls that the thread had served when this one was called last.
    called: u64,
}

/// Where a thread sits: what others may see of it, and take from it.
#[derive(Default)]
pub(crate) struct Desk {
    pub(crate) number: u32,
    pub(crate) words: Words,
    /// Rows that the thread remembers may have been taken away.
    stale: AtomicBool,
    set: Mutex<Vec<Place>>,
}

/// Why a thread stopped attending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Something waits in the pool's queue.
    Hungry,
    /// Its set was changed by others.
    Changed,
    /// Nothing has been posted for a while.
    Quiet,
}

impl Desk {
    /// A desk at which a thread is about to sit down.
    pub(crate) fn new(number: u32) -> Self {
        Self { number, ..Self::default() }
    }

    #[track_caller]
    fn set(&self) -> MutexGuard<'_, Vec<Place>> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the call that its thread runs was given up by its caller, as far as that is known.
    pub(crate) fn is_captured(&self) -> bool {
        let current = self.words.current();
        let runs = |place: &&Place| current != 0 && place.key() == current;
        self.set()
            .iter()
            .find(runs)
            .is_some_and(|place| place.region.is_closed() || place.region.is_captured(place.index))
    }

    /// Makes its thread look up rows anew. One that sleeps has forgotten them, one that runs a
    /// procedure forgets them behind it.
    pub(crate) fn forget_rows(&self) {
        self.stale.store(true, Ordering::SeqCst);
        self.words.change();
    }

    /// Takes an A-stack away from the desk whose thread runs the call of another one, and with it
    /// all others where a call is posted: the barrier disturbs every processor, and is not for one
    /// alone. Nothing if the thread runs no other call, and will see by itself what is posted.
    pub(crate) fn relieve(&self, place: &Place) -> Vec<Place> {
        let mut set = self.set();
        let Some(current) = self.words.runs_another(place.key()) else { return Vec::new() };
        let waits = |one: &mut Place| one.key() != current && one.region.is_posted(one.index);
        set.extract_if(.., waits).collect()
    }
}

/// A thread at its desk.
pub(crate) struct Seat {
    pub(crate) desk: Arc<Desk>,
    pub(crate) worker: Worker,
    hot: Vec<Hot>,
    how: Wait,
    /// The processor on which the last caller last knew itself.
    caller_cpu: u32,
    /// What was served when the thread last found nothing, and until when it spins since then.
    idle: Option<(u64, Instant)>,
    yields: u32,
    /// Where it may look on, the tag that says that it does, and where it does.
    processors: Arc<Processors>,
    tag: u32,
    holds: Option<u32>,
    /// Long waits in a row on the caller's own processor, and after how many we move.
    together: u32,
    patience: u32,
}

impl Seat {
    pub(crate) fn new(
        desk: Arc<Desk>,
        how: Wait,
        processors: Arc<Processors>,
        counting: Counting,
    ) -> Self {
        let worker = Worker::new(counting);
        let hot = Vec::with_capacity(HOT_MAX);
        Self {
            desk,
            worker,
            hot,
            how,
            caller_cpu: u32::MAX,
            idle: None,
            yields: 0,
            processors,
            tag: tag(),
            holds: None,
            together: 0,
            patience: PATIENCE,
        }
    }

    /// Whether it looks at nothing.
    pub(crate) const fn is_vacant(&self) -> bool {
        self.hot.is_empty()
    }

    /// Whose A-stacks it looks at, one by one.
    pub(crate) fn users(&self) -> impl Iterator<Item = User> {
        self.hot.iter().map(|hot| hot.place.user())
    }

    /// Looks at one more A-stack from now on. Where there is no room, the one that was called
    /// longest ago is left to the next ring; what could not be left is given back, for the queue.
    #[must_use]
    pub(crate) fn take_in(&mut self, place: Place, most: usize) -> Option<Place> {
        let mut left = None;
        if self.hot.len() >= most {
            let oldest = (0..self.hot.len()).min_by_key(|&at| self.hot[at].called);
            left = oldest.and_then(|at| self.let_go(at));
        }
        place.region.attended(place.index, Attendance::At(self.desk.number));
        place.region.watch(place.index);
        self.desk.set().push(place.clone());
        let (key, called) = (place.key(), self.worker.served);
        // In front: it is there because somebody calls.
        self.hot.insert(0, Hot { place, key, called });
        left
    }

    /// Looks at an A-stack no more; gives it back if a call has come there meanwhile.
    fn let_go(&mut self, at: usize) -> Option<Place> {
        let hot = self.hot.remove(at);
        self.desk.set().retain(|place| place.key() != hot.key);
        let Place { region, index } = &hot.place;
        if region.is_closed() || region.leave(*index) {
            if region.is_closed() {
                region.attended(*index, Attendance::Idle);
            }
            return None;
        }
        region.attended(*index, Attendance::Queued);
        Some(hot.place)
    }

    /// Gives all A-stacks to others, by way of the queue.
    pub(crate) fn give_all(&mut self) -> Vec<Place> {
        self.hot.clear();
        let places = core::mem::take(&mut *self.desk.set());
        for place in &places {
            place.region.attended(place.index, Attendance::Queued);
        }
        places
    }

    /// Leaves the A-stacks of all users but one; those where a call has come are given back.
    pub(crate) fn leave_others(&mut self, user: User) -> Vec<Place> {
        let mut posted = Vec::new();
        while let Some(at) = self.hot.iter().position(|hot| hot.place.user() != user) {
            posted.extend(self.let_go(at));
        }
        posted
    }

    /// Leaves all A-stacks; those where a call has come are given back.
    pub(crate) fn leave_all(&mut self) -> Vec<Place> {
        (0..self.hot.len()).filter_map(|_| self.let_go(0)).collect()
    }

    /// Brings the thread's own view up to date with what others have changed.
    pub(crate) fn refresh(&mut self) {
        if !self.desk.words.has_changed() {
            return;
        }
        let set = self.desk.set();
        self.desk.words.saw_change();
        // What is dropped here may be the last of a session, whose end takes other locks.
        let others = self.hot.extract_if(.., |hot| set.iter().all(|place| place.key() != hot.key));
        let others: Vec<_> = others.collect();
        drop(set);
        drop(others);
        if self.desk.stale.swap(false, Ordering::SeqCst) {
            self.worker.forget();
        }
    }

    /// Forgets A-stacks of sessions that have ended.
    pub(crate) fn drop_closed(&mut self) {
        let mut at = 0;
        while at < self.hot.len() {
            if self.hot[at].place.region.is_closed() {
                let _ = self.let_go(at);
                // Nor is their memory kept by who has run their last call.
                self.worker.forget();
            } else {
                at += 1;
            }
        }
    }

    /// Serves what is posted, until there is a reason to think. A procedure that panics is answered
    /// for.
    pub(crate) fn attend(&mut self) -> Pause {
        loop {
            // Around all calls rather than around each: a call that does not panic pays nothing.
            // What a panic may leave broken is the object's own, as with a poisoned lock.
            let calls = AssertUnwindSafe(|| self.serve_calls());
            match catch_unwind(calls) {
                Ok(pause) => return pause,
                Err(panic) => {
                    let refusal = Refusal::panicked(panic);
                    self.worker.panicked();
                    let key = self.desk.words.current();
                    if let Some(hot) = self.hot.iter().find(|hot| hot.key == key) {
                        hot.place.region.post_panic(hot.place.index, &refusal);
                    }
                    self.desk.words.ends();
                }
            }
        }
    }

    #[inline]
    fn serve_calls(&mut self) -> Pause {
        let mut quiet = 0;
        loop {
            // On the caller's own processor, looking keeps it from calling.
            let together = self.caller_cpu == self.worker.cpu;
            let looks = if together || self.how == Wait::Block { 1 } else { FIRST_LOOKS };
            match self.serve_posted() {
                Served::None => {
                    quiet += 1;
                    self.worker.counting.looked();
                }
                Served::Some => quiet = 0,
                Served::Changed => return Pause::Changed,
                Served::Closed => return Pause::Quiet,
            }
            if self.desk.words.feels_hungry() {
                return Pause::Hungry;
            }
            if quiet >= looks {
                return Pause::Quiet;
            }
            if quiet > 0 {
                spin_loop();
            }
        }
    }

    /// Looks at every A-stack once; each posted call is served. So everybody is served in turn,
    /// however fast one of them calls.
    #[inline]
    fn serve_posted(&mut self) -> Served {
        let mut served = Served::None;
        for hot in &mut self.hot {
            let Place { region, index } = &hot.place;
            let Look::Posted(message) = region.look(*index) else { continue };
            if !self.desk.words.begins(hot.key) {
                return Served::Changed;
            }
            self.caller_cpu = region.answer(*index, message, &mut self.worker);
            self.worker.counting.found();
            hot.called = self.worker.served;
            self.desk.words.ends();
            if region.is_closed() {
                return Served::Closed;
            }
            served = Served::Some;
        }
        served
    }

    /// Nothing was posted for a while: whether to go on looking, having spun or offered the
    /// processor for a moment. Otherwise it is time to sleep.
    pub(crate) fn is_patient(&mut self) -> bool {
        self.worker.cpu = sys::current_cpu();
        let cpu = self.worker.cpu;
        let same = self.caller_cpu == cpu;
        let served = self.worker.served;
        let fresh = self.idle.is_none_or(|(before, _)| before != served);
        if fresh {
            self.yields = 0;
        }
        if fresh && same && self.how != Wait::Block {
            self.on_one_processor();
        }
        let spin = match self.how {
            Wait::Spin => !self.hot.is_empty(),
            Wait::Block => false,
            Wait::Adaptive if same => false,
            Wait::Adaptive => {
                let now = Instant::now();
                if fresh {
                    self.idle = Some((served, now + block_cost()));
                    self.holds = None;
                }
                let until = self.idle.map_or(now, |(_, until)| until);
                now < until || (now < until + LOOKS_ON && self.looks_on(cpu, now))
            }
        };
        if fresh && self.how != Wait::Adaptive {
            self.idle = Some((served, Instant::now()));
        }
        if spin && same {
            std::thread::yield_now();
        } else if spin {
            // Back to looking.
        } else if same && self.yields < YIELDS {
            self.yields += 1;
            std::thread::yield_now();
        } else {
            return false;
        }
        true
    }

    /// Whether to go on looking although that costs more than sleeping would: on a processor that
    /// nobody else needs.
    fn looks_on(&mut self, cpu: u32, now: Instant) -> bool {
        if self.hot.is_empty() {
            return false;
        }
        match self.holds {
            // It was moved to another one, which may have its own.
            Some(held) if held != cpu || !self.processors.has(cpu, self.tag) => return false,
            Some(_) => {}
            None if self.processors.take(cpu, self.tag) => self.holds = Some(cpu),
            None => return false,
        }
        std::thread::yield_now();
        now.elapsed() < ALONE
    }

    /// Both sides were put on one processor, as schedulers like to do with threads that wake each
    /// other. Where there are others, a call between two is twenty times as fast.
    #[cold]
    fn on_one_processor(&mut self) {
        self.together += 1;
        if self.together >= self.patience {
            self.together = 0;
            // If we are brought back every time, we ask ever less often.
            self.patience = self.patience.saturating_mul(2);
            sys::leave_cpu(self.worker.cpu);
        }
    }

    /// Says that the thread is about to sleep, and from which ring of its bell on it will not.
    /// What is asked of it before is to be seen behind this.
    pub(crate) fn lie_down(&self) -> u32 {
        self.desk.words.lie_down()
    }

    /// Whether the bell has rung since the thread [lay down](Self::lie_down).
    pub(crate) fn was_rung(&self, bell: u32) -> bool {
        self.desk.words.was_rung(bell)
    }

    /// Sleeps until a call comes to any of its A-stacks, the bell rings, or `limit` has passed;
    /// whether the bell rang.
    pub(crate) fn sleep(&mut self, bell: u32, limit: Option<Duration>) -> bool {
        self.worker.counting.slept();
        if self.hot.is_empty() {
            sys::futex_wait(self.desk.words.bell(), bell, limit);
        } else {
            self.sleep_on_words(bell, limit);
        }
        self.rise();
        self.was_rung(bell)
    }

    fn sleep_on_words(&self, bell: u32, limit: Option<Duration>) {
        let mut words = FutexSet::<{ HOT_MAX + 1 }>::new();
        words.push(self.desk.words.bell(), bell);
        for Hot { place: Place { region, index }, .. } in &self.hot {
            // A call has come to one: there is no need to tell the others.
            let Some(word) = region.doze(*index) else { return };
            words.push(word, SLEEP);
        }
        // SYNC: rouse. Who wants us sets its mark, then changes a word; we changed the words, and
        // now look at the marks: one of us sees the other.
        fence(Ordering::SeqCst);
        let changed = self.desk.words.has_changed();
        if !changed && !self.hot.iter().any(|hot| hot.place.region.is_closed()) {
            words.wait(limit);
        }
    }

    fn rise(&self) {
        self.desk.words.rise();
        for hot in &self.hot {
            hot.place.region.watch(hot.place.index);
        }
    }
}

enum Served {
    None,
    Some,
    Changed,
    /// The session of a call has ended meanwhile.
    Closed,
}
