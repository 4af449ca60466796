//! `Worker`: a thread that polls the call words of several A-stacks, and serves the calls that are posted
//! there. The A-stacks may belong to different sessions.
//!
//! A worker polls in turn all A-stacks that are assigned to it, and serves the posted calls. When no call is
//! posted, the worker sleeps on the words of all its A-stacks at once. A-stacks that are seldom called are
//! not assigned: their clients ring, that is, they send a message for each posted call. A thousand idle
//! bindings therefore need no thread, and a few busy bindings need only one thread.
//!
//! While a worker runs a procedure, it polls no word. A caller whose call has waited too long rings again.
//! The keeper then takes the A-stack away from the worker. The `handle` module has the state that workers
//! share with other threads.

use core::hint::spin_loop;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use super::Executor;
use super::assignment::Assignment;
use super::astacks::{ServerRegion, User};
use super::handle::{Assigned, Astack, Linux, WorkerHandle};
use super::processors::{KEEP_POLLING, Processors, YIELD_WHEN_IDLE, tag};
use crate::call::{Wait, block_cost};
use crate::counters::Counting;
use crate::path::local::region::word::{FIRST_POLLS, Look, YIELDS};
use crate::serving::procedure::catching;
use crate::sys;

/// The largest number of A-stacks that one worker polls. Polling all of them takes less time than moving a
/// cache line between processors, and one system call can sleep on all their words.
pub(crate) const ASSIGNED_MAX: usize = 32;

/// A worker first moves to another processor after this number of consecutive waits on the caller's
/// processor. The worker moves and not the caller, because the caller's program decides where the caller
/// runs.
const MOVE_AFTER: u32 = 16;

/// An A-stack of any session: a region, and an index in the region.
#[derive(Clone)]
pub(crate) struct AstackRef {
    pub(crate) region: Arc<ServerRegion>,
    pub(crate) index: u32,
}

impl AstackRef {
    /// Returns the user of the client process.
    pub(crate) fn user(&self) -> User {
        self.region.user()
    }

    /// Returns whether `other` is the same A-stack.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Astack for AstackRef {
    fn key(&self) -> u64 {
        self.region.key(self.index)
    }
    fn is_posted(&self) -> bool {
        self.region.is_posted(self.index)
    }
    fn is_closed(&self) -> bool {
        self.region.is_closed()
    }
    fn set_assignment(&self, to: Assignment) {
        self.region.set_assignment(self.index, to);
    }
    fn mark_polled(&self) {
        self.region.mark_polled(self.index);
    }
    fn mark_asleep(&self) -> bool {
        self.region.mark_asleep(self.index)
    }
    fn unassign(&self) -> bool {
        self.region.unassign(self.index)
    }
}

/// Why a worker has stopped polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// The pool's queue has an A-stack for the worker, or the pool stops.
    QueueReady,
    /// Other threads have changed the assignments of the worker.
    Changed,
    /// The call on the A-stack at this position of the worker's list is deferred.
    Deferred(usize),
    /// No call was posted for a while, or the session of a served call has ended.
    Idle,
}

impl WorkerHandle {
    /// Returns whether the worker runs a captured call, as far as this process knows: the caller has given up
    /// the call, or the session of the call has ended.
    pub(crate) fn is_captured(&self) -> bool {
        self.serving().is_some_and(|AstackRef { region, index }| {
            region.is_closed() || region.is_captured(index)
        })
    }
}

/// A thread that serves calls, with its assigned A-stacks.
pub(crate) struct Worker {
    pub(crate) handle: Arc<WorkerHandle>,
    pub(crate) executor: Executor,
    assigned: Vec<Assigned<Linux>>,
    wait: Wait,
    /// The processor on which the last caller ran, as that caller reported it.
    caller_cpu: u32,
    /// The number of served calls when the worker last became idle. Also the time until which the worker
    /// polls even if other threads need the processor.
    idle: Option<(u64, Instant)>,
    yields: u32,
    processors: Arc<Processors>,
    /// The tag that this thread writes into the words of processors.
    tag: u32,
    /// The processor that this thread has claimed.
    claimed: Option<u32>,
    /// The number of consecutive waits while the worker was on the caller's processor.
    shared_cpu: u32,
    /// The value of `shared_cpu` at which the worker moves to another processor.
    move_after: u32,
}

impl Worker {
    pub(crate) fn new(
        handle: Arc<WorkerHandle>,
        wait: Wait,
        processors: Arc<Processors>,
        counting: Counting,
    ) -> Self {
        let executor = Executor::new(counting);
        let assigned = Vec::with_capacity(ASSIGNED_MAX);
        Self {
            handle,
            executor,
            assigned,
            wait,
            caller_cpu: u32::MAX,
            idle: None,
            yields: 0,
            processors,
            tag: tag(),
            claimed: None,
            shared_cpu: 0,
            move_after: MOVE_AFTER,
        }
    }

    /// Returns whether no A-stack is assigned.
    pub(crate) const fn is_unassigned(&self) -> bool {
        self.assigned.is_empty()
    }

    /// Returns the user of each assigned A-stack.
    pub(crate) fn users(&self) -> impl Iterator<Item = User> {
        self.assigned.iter().map(|one| one.astack.user())
    }

    /// Assigns one more A-stack. If the worker has `most` A-stacks already, unassigns the A-stack whose last
    /// call is the oldest. Returns the unassigned A-stack if a call was posted there meanwhile. The caller
    /// puts the returned A-stack into the queue.
    #[must_use]
    pub(crate) fn assign(&mut self, astack: AstackRef, most: usize) -> Option<AstackRef> {
        let mut returned = None;
        if self.assigned.len() >= most {
            let oldest = (0..self.assigned.len()).min_by_key(|&at| self.assigned[at].last_served);
            returned = oldest.and_then(|at| self.unassign_at(at));
        }
        // The A-stack is added at the front, because a call is probably posted there.
        self.assigned.insert(0, self.handle.assign(astack, self.executor.served));
        returned
    }

    /// Unassigns an A-stack. Returns the A-stack if a call was posted there meanwhile.
    fn unassign_at(&mut self, at: usize) -> Option<AstackRef> {
        self.handle.unassign(self.assigned.remove(at))
    }

    /// Removes all A-stacks from the worker. `queue` puts each into the queue, for other workers.
    pub(crate) fn requeue_all(&mut self, queue: impl FnMut(AstackRef)) {
        self.assigned.clear();
        self.handle.requeue_all(queue);
    }

    /// Removes from the worker an A-stack whose call is deferred. Returns the A-stack if the reply has been
    /// posted already: the caller puts the A-stack into the queue.
    pub(crate) fn detach(&mut self, at: usize) -> Option<AstackRef> {
        let astack = self.handle.remove(self.assigned.remove(at));
        let detached = astack.region.detach(astack.index);
        self.handle.end_call();
        (!detached).then_some(astack)
    }

    /// Unassigns the A-stacks of all users but one. Returns the A-stacks where a call was posted meanwhile.
    pub(crate) fn unassign_others(&mut self, user: User) -> Vec<AstackRef> {
        let mut posted = Vec::new();
        while let Some(at) = self.assigned.iter().position(|one| one.astack.user() != user) {
            posted.extend(self.unassign_at(at));
        }
        posted
    }

    /// Unassigns all A-stacks. Returns the A-stacks where a call was posted meanwhile.
    pub(crate) fn unassign_all(&mut self) -> Vec<AstackRef> {
        (0..self.assigned.len()).filter_map(|_| self.unassign_at(0)).collect()
    }

    /// Applies the changes that other threads have made to the worker's assignments and bindings.
    pub(crate) fn apply_changes(&mut self) {
        if self.handle.apply_changes(&mut self.assigned) {
            self.executor.forget();
        }
    }

    /// Unassigns the A-stacks of sessions that have ended.
    pub(crate) fn unassign_closed(&mut self) {
        let mut at = 0;
        while at < self.assigned.len() {
            if self.assigned[at].astack.region.is_closed() {
                let _ = self.unassign_at(at);
                // The executor may also hold a reference to the region, because of its last call.
                self.executor.forget();
            } else {
                at += 1;
            }
        }
    }

    /// Polls the assigned A-stacks and serves calls until there is a reason to pause. If a procedure panics,
    /// this function posts a refusal and continues.
    pub(crate) fn serve(&mut self) -> Pause {
        loop {
            // One catch covers many calls, so a call that does not panic has no extra cost.
            match catching(|| self.serve_until_pause()) {
                Ok(pause) => return pause,
                Err(refusal) => {
                    let key = self.handle.current();
                    if let Some(one) = self.assigned.iter().find(|one| one.key == key) {
                        one.astack.region.post_panic(one.astack.index, &refusal);
                    }
                    self.handle.end_call();
                }
            }
        }
    }

    #[inline]
    fn serve_until_pause(&mut self) -> Pause {
        let mut empty = 0;
        loop {
            // If the worker and its last caller run on the same processor, polling keeps the caller from
            // running.
            let shared = self.caller_cpu == self.executor.cpu;
            let polls = if shared || self.wait == Wait::Block { 1 } else { FIRST_POLLS };
            match self.poll_all() {
                Polled::Nothing => {
                    empty += 1;
                    self.executor.serving.counting.looked();
                }
                Polled::Served => empty = 0,
                Polled::Changed => return Pause::Changed,
                Polled::Closed => return Pause::Idle,
                Polled::Deferred(at) => return Pause::Deferred(at),
            }
            if self.handle.may_be_queue_ready() {
                return Pause::QueueReady;
            }
            if empty >= polls {
                return Pause::Idle;
            }
            if empty > 0 {
                spin_loop();
            }
        }
    }

    /// Polls each A-stack once, and serves each posted call. All callers are served in turn, even if one of
    /// them makes calls very fast.
    #[inline]
    fn poll_all(&mut self) -> Polled {
        let mut polled = Polled::Nothing;
        for (at, one) in self.assigned.iter_mut().enumerate() {
            let AstackRef { region, index } = &one.astack;
            let Look::Posted(id) = region.look(*index) else { continue };
            if !self.handle.begin_call(one.key) {
                return Polled::Changed;
            }
            let Some(cpu) = region.serve(*index, id, &mut self.executor) else {
                return Polled::Deferred(at);
            };
            self.caller_cpu = cpu;
            self.executor.serving.counting.found();
            one.last_served = self.executor.served;
            self.handle.end_call();
            if region.is_closed() {
                return Polled::Closed;
            }
            polled = Polled::Served;
        }
        polled
    }

    /// Returns whether an idle worker should poll again rather than sleep. This function may yield the
    /// processor.
    pub(crate) fn keeps_polling(&mut self) -> bool {
        self.executor.cpu = sys::current_cpu();
        let cpu = self.executor.cpu;
        let shared = self.caller_cpu == cpu;
        let served = self.executor.served;
        let fresh = self.idle.is_none_or(|(before, _)| before != served);
        if fresh {
            self.yields = 0;
        }
        if fresh && shared && self.wait != Wait::Block {
            self.count_shared_cpu();
        }
        let spin = match self.wait {
            Wait::Spin => !self.assigned.is_empty(),
            Wait::Block => false,
            Wait::Adaptive if shared => false,
            Wait::Adaptive => {
                let now = Instant::now();
                if fresh {
                    self.idle = Some((served, now + block_cost()));
                    self.claimed = None;
                }
                let until = self.idle.map_or(now, |(_, until)| until);
                now < until || (now < until + KEEP_POLLING && self.polls_on_idle_cpu(cpu, now))
            }
        };
        if fresh && (shared || self.wait != Wait::Adaptive) {
            self.idle = Some((served, Instant::now()));
        }
        if spin && shared {
            std::thread::yield_now();
        } else if spin {
            // The worker polls again at once.
        } else if shared && self.yields < YIELDS {
            self.yields += 1;
            std::thread::yield_now();
        } else {
            return false;
        }
        true
    }

    /// Returns whether to keep polling although sleeping would cost less. Polling on is worthwhile while no
    /// other thread needs the processor.
    fn polls_on_idle_cpu(&mut self, cpu: u32, now: Instant) -> bool {
        if self.assigned.is_empty() {
            return false;
        }
        match self.claimed {
            // The scheduler moved this thread, or another thread has claimed the processor.
            Some(claimed) if claimed != cpu || !self.processors.is_claimed_by(cpu, self.tag) => {
                return false;
            }
            Some(_) => {}
            None if self.processors.claim(cpu, self.tag) => self.claimed = Some(cpu),
            None => return false,
        }
        std::thread::yield_now();
        now.elapsed() < YIELD_WHEN_IDLE
    }

    /// Counts a wait on the caller's processor, and moves to another processor after several such waits.
    /// Schedulers tend to put threads that wake each other on one processor, but a call between two
    /// processors is twenty times as fast.
    #[cold]
    fn count_shared_cpu(&mut self) {
        self.shared_cpu += 1;
        if self.shared_cpu >= self.move_after {
            self.shared_cpu = 0;
            // If the scheduler moves the thread back each time, the worker tries at growing intervals.
            self.move_after = self.move_after.saturating_mul(2);
            sys::leave_cpu(self.executor.cpu);
        }
    }

    /// Announces that the worker is about to sleep. Returns the value of the wake word: a later wake-up
    /// changes the word, and ends the sleep. After this, the caller must check whether there is anything to
    /// do.
    pub(crate) fn prepare_sleep(&self) -> u32 {
        self.handle.prepare_sleep()
    }

    /// Returns whether another thread has woken the worker since [`prepare_sleep`](Self::prepare_sleep)
    /// returned `wake_word`.
    pub(crate) fn was_woken(&self, wake_word: u32) -> bool {
        self.handle.was_woken(wake_word)
    }

    /// Sleeps until a call is posted on an assigned A-stack, another thread wakes the worker, or `limit` has
    /// passed. Returns whether another thread woke the worker.
    pub(crate) fn sleep(&mut self, wake_word: u32, limit: Option<Duration>) -> bool {
        self.executor.serving.counting.slept();
        self.handle.sleep(&self.assigned, wake_word, limit)
    }
}

/// The result of polling each A-stack once.
enum Polled {
    Nothing,
    /// A call was served.
    Served,
    /// Other threads have changed the assignments.
    Changed,
    /// The session of a served call has ended.
    Closed,
    /// The call on the A-stack at this position of the worker's list is deferred. The worker still counts as
    /// serving this A-stack.
    Deferred(usize),
}
