//! Attending: one thread looks at the call words of many A-stacks, of any sessions.
//!
//! A thread sits at a *desk* with a set of *hot* A-stacks. It looks at all of them in turn, serves
//! what is posted, and when nothing is it sleeps on all of their words at once. A-stacks that are
//! called seldom are away, and ring. So a thousand idle bindings cost no thread, and a few busy ones
//! need only one.
//!
//! While a thread runs one procedure it looks at no other word. Whoever waits there too long rings
//! again, and the keeper takes that A-stack away from the desk (*relieves* it). What threads and
//! others agree on is in `desk`.

use core::hint::spin_loop;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use super::assignment::Attendance;
use super::handle::{Astack, Desk, Hot, Linux};
use super::processors::{ALONE, LOOKS_ON, Processors, tag};
use super::{ServerRegion, User, Worker};
use crate::call::{Wait, block_cost};
use crate::counters::Counting;
use crate::path::local::client::wait::{FIRST_LOOKS, PATIENCE, YIELDS};
use crate::path::local::region::word::Look;
use crate::serving::procedure::catching;
use crate::sys;

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
    /// Whose A-stack it is.
    pub(crate) fn user(&self) -> User {
        self.region.user()
    }

    /// Whether it is the same A-stack.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Astack for Place {
    fn key(&self) -> u64 {
        self.region.key(self.index)
    }
    fn is_posted(&self) -> bool {
        self.region.is_posted(self.index)
    }
    fn is_closed(&self) -> bool {
        self.region.is_closed()
    }
    fn attended(&self, by: Attendance) {
        self.region.attended(self.index, by);
    }
    fn watch(&self) {
        self.region.watch(self.index);
    }
    fn doze(&self) -> bool {
        self.region.doze(self.index)
    }
    fn leave(&self) -> bool {
        self.region.leave(self.index)
    }
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
    /// Whether the call that its thread runs was given up by its caller, as far as that is known.
    pub(crate) fn is_captured(&self) -> bool {
        self.serving()
            .is_some_and(|Place { region, index }| region.is_closed() || region.is_captured(index))
    }
}

/// A thread at its desk.
pub(crate) struct Seat {
    pub(crate) desk: Arc<Desk>,
    pub(crate) worker: Worker,
    hot: Vec<Hot<Linux>>,
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
            left = oldest.and_then(|at| self.is_released(at));
        }
        // In front: it is there because somebody calls.
        self.hot.insert(0, self.desk.take_in(place, self.worker.served));
        left
    }

    /// Looks at an A-stack no more; gives it back if a call has come there meanwhile.
    fn is_released(&mut self, at: usize) -> Option<Place> {
        self.desk.is_released(self.hot.remove(at))
    }

    /// Gives all A-stacks to others, by way of the queue.
    pub(crate) fn give_all(&mut self) -> Vec<Place> {
        self.hot.clear();
        self.desk.give_all()
    }

    /// Leaves the A-stacks of all users but one; those where a call has come are given back.
    pub(crate) fn leave_others(&mut self, user: User) -> Vec<Place> {
        let mut posted = Vec::new();
        while let Some(at) = self.hot.iter().position(|hot| hot.place.user() != user) {
            posted.extend(self.is_released(at));
        }
        posted
    }

    /// Leaves all A-stacks; those where a call has come are given back.
    pub(crate) fn leave_all(&mut self) -> Vec<Place> {
        (0..self.hot.len()).filter_map(|_| self.is_released(0)).collect()
    }

    /// Brings the thread's own view up to date with what others have changed.
    pub(crate) fn refresh(&mut self) {
        if self.desk.refresh(&mut self.hot) {
            self.worker.forget();
        }
    }

    /// Forgets A-stacks of sessions that have ended.
    pub(crate) fn drop_closed(&mut self) {
        let mut at = 0;
        while at < self.hot.len() {
            if self.hot[at].place.region.is_closed() {
                let _ = self.is_released(at);
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
            match catching(|| self.serve_calls()) {
                Ok(pause) => return pause,
                Err(refusal) => {
                    let key = self.desk.current();
                    if let Some(hot) = self.hot.iter().find(|hot| hot.key == key) {
                        hot.place.region.post_panic(hot.place.index, &refusal);
                    }
                    self.desk.ends();
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
                    self.worker.serving.counting.looked();
                }
                Served::Some => quiet = 0,
                Served::Changed => return Pause::Changed,
                Served::Closed => return Pause::Quiet,
            }
            if self.desk.may_be_hungry() {
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
            if !self.desk.begins(hot.key) {
                return Served::Changed;
            }
            self.caller_cpu = region.answer(*index, message, &mut self.worker);
            self.worker.serving.counting.found();
            hot.called = self.worker.served;
            self.desk.ends();
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
        self.desk.lie_down()
    }

    /// Whether the bell has rung since the thread [lay down](Self::lie_down).
    pub(crate) fn was_rung(&self, bell: u32) -> bool {
        self.desk.was_rung(bell)
    }

    /// Sleeps until a call comes to any of its A-stacks, the bell rings, or `limit` has passed;
    /// whether the bell rang.
    pub(crate) fn sleep(&mut self, bell: u32, limit: Option<Duration>) -> bool {
        self.worker.serving.counting.slept();
        self.desk.sleep(&self.hot, bell, limit)
    }
}

enum Served {
    None,
    Some,
    Changed,
    /// The session of a call has ended meanwhile.
    Closed,
}
