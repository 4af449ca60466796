//! `WorkerHandle`: the state of a worker thread that other threads see and change.
//!
//! The worker and the other threads follow three rules:
//!
//! * **Taking A-stacks away.** The worker notes which A-stack it serves, then checks whether its assignments
//!   have changed, and only then takes the call. A thread that takes A-stacks away first announces the
//!   change, then reads which A-stack the worker serves ([`WorkerHandle::take_waiting`]). Therefore no call
//!   is taken twice.
//! * **Sleep.** The worker marks in the word of each assigned A-stack that it sleeps. Then it checks the
//!   flags that other threads set, and sleeps on all these words and on its wake word
//!   ([`WorkerHandle::sleep`]). Another thread first sets a flag, then changes one of the words and wakes the
//!   worker.
//! * **The queue.** While the worker holds the pool's lock, it checks that the queue is empty and announces
//!   its sleep ([`WorkerHandle::prepare_sleep`]). A thread that adds to the queue reads this announcement
//!   under the same lock ([`wake_one`]).
//!
//! `handle/model.rs` runs this code under a model checker, with its own [`Machine`].

#[cfg(test)]
mod model;

use core::ops::DerefMut;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence, fence};
use core::time::Duration;

use super::assignment::Assignment;
use super::worker::{ASSIGNED_MAX, AstackRef};
use crate::path::local::region::word::SLEEP;
use crate::sync::Mutex;
use crate::sys::{self, FutexSet};

/// The operations that the rules need from the machine. A model checker implements them, too.
pub(crate) trait Machine: Sized + 'static {
    type Astack: Astack;
    type Flag: Flag;
    type Key: Key;
    type WakeWord: WakeWord;
    type Set: Set<Self::Astack>;
    /// Keeps the compiler from moving a store after a later load. The processor may still reorder the two,
    /// unless another thread executes a [barrier](Machine::barrier) between them.
    fn keep_order();
    /// Executes a barrier on each processor that runs a thread of this process. Returns false if the kernel
    /// does not provide this.
    fn barrier() -> bool;
    /// Executes a barrier on this processor.
    fn fence();
    /// Sleeps while the wake word has this value and the words of all A-stacks are `SLEEP`, for `limit` at
    /// most. May return early.
    fn sleep(
        word: &Self::WakeWord,
        value: u32,
        assigned: &[Assigned<Self>],
        limit: Option<Duration>,
    );
    /// Wakes the worker that sleeps on a wake word.
    fn wake(word: &Self::WakeWord);
}

/// An A-stack of any session, as a worker uses it.
pub(crate) trait Astack: Clone {
    /// Returns a number that identifies the A-stack within this process. It is never zero.
    fn key(&self) -> u64;
    /// Returns whether a call is posted that no thread has taken.
    fn is_posted(&self) -> bool;
    /// Returns whether the session has ended.
    fn is_closed(&self) -> bool;
    /// Sets which worker polls the A-stack, regardless of the previous value.
    fn set_assignment(&self, to: Assignment);
    /// Marks in the call word that a thread polls the word.
    fn mark_polled(&self);
    /// Marks in the call word that a thread sleeps on the word. Returns false if a call was posted.
    fn mark_asleep(&self) -> bool;
    /// Ends the assignment, so that the client rings for its next call. Returns false, and keeps the
    /// assignment, if a call was posted meanwhile.
    fn unassign(&self) -> bool;
}

/// A flag that one thread sets and another thread reads.
pub(crate) trait Flag {
    fn new(value: bool) -> Self;
    /// Reads the flag, with relaxed ordering.
    fn peek(&self) -> bool;
    /// Reads the flag, with sequentially consistent ordering.
    fn load(&self) -> bool;
    /// Sets or clears the flag, with sequentially consistent ordering.
    fn store(&self, value: bool);
    /// Clears the flag. Returns whether it was set.
    fn take(&self) -> bool;
}

/// A word with the key of the A-stack that a worker serves.
pub(crate) trait Key {
    fn new(value: u64) -> Self;
    /// Reads the key, with sequentially consistent ordering.
    fn load(&self) -> u64;
    /// Sets the key, with release ordering.
    fn store(&self, value: u64);
}

/// A word that each wake-up of the worker changes.
pub(crate) trait WakeWord {
    fn new(value: u32) -> Self;
    /// Reads the word, with sequentially consistent ordering.
    fn load(&self) -> u32;
    /// Changes the word to a new value, with sequentially consistent ordering.
    fn change(&self);
}

/// The A-stacks that are assigned to a worker, protected by a lock.
pub(crate) trait Set<A> {
    fn new() -> Self;
    fn lock(&self) -> impl DerefMut<Target = Vec<A>>;
}

/// The worker's private record of an assigned A-stack.
pub(crate) struct Assigned<M: Machine> {
    pub(super) astack: M::Astack,
    pub(super) key: u64,
    /// The value of the worker's call counter after the last call on this A-stack.
    pub(super) last_served: u64,
}

/// The state of a worker that other threads see and change.
pub(crate) struct WorkerHandle<M: Machine = Linux> {
    pub(crate) number: u32,
    /// The key of the A-stack whose call the worker runs, or zero while it polls.
    current: M::Key,
    /// Whether other threads have changed `bindings_stale` or `assigned`. The worker must check both before
    /// it serves another call.
    changed: M::Flag,
    /// Whether bindings that the worker remembers may have been removed.
    bindings_stale: M::Flag,
    assigned: M::Set,
    /// The word on which the worker sleeps, in addition to the words of its A-stacks.
    wake_word: M::WakeWord,
    /// Whether the worker is awake: it neither sleeps nor is about to sleep.
    awake: M::Flag,
    /// Whether the pool's queue has an A-stack that the worker may take, or the pool stops. The worker reads
    /// this flag each time it has polled.
    queue_ready: M::Flag,
}

// These methods are for threads other than the worker.
impl<M: Machine> WorkerHandle<M> {
    /// Makes the handle of a worker that is about to start.
    pub(crate) fn new(number: u32) -> Self {
        Self {
            number,
            current: M::Key::new(0),
            changed: M::Flag::new(false),
            bindings_stale: M::Flag::new(false),
            assigned: M::Set::new(),
            wake_word: M::WakeWord::new(0),
            awake: M::Flag::new(true),
            queue_ready: M::Flag::new(false),
        }
    }

    /// Returns whether the worker polls. A worker that polls notices when the queue becomes ready.
    pub(crate) fn is_polling(&self) -> bool {
        self.is_awake() && self.current.load() == 0
    }

    /// Returns whether the worker polls or runs a procedure.
    pub(crate) fn is_awake(&self) -> bool {
        self.awake.load()
    }

    /// Returns whether the worker runs a procedure.
    pub(super) fn runs(&self) -> bool {
        self.current.load() != 0
    }

    /// Returns the A-stack whose call the worker runs.
    pub(super) fn serving(&self) -> Option<M::Astack> {
        let current = self.current.load();
        if current == 0 {
            return None;
        }
        self.assigned.lock().iter().find(|astack| astack.key() == current).cloned()
    }

    /// Wakes the worker if it sleeps.
    pub(crate) fn wake(&self) {
        self.awake.store(true);
        self.wake_word.change();
        M::wake(&self.wake_word);
    }

    /// Sets whether the pool's queue has an A-stack for the worker.
    pub(crate) fn set_queue_ready(&self, ready: bool) {
        self.queue_ready.store(ready);
    }

    /// Returns whether the pool's queue has an A-stack for the worker.
    pub(crate) fn is_queue_ready(&self) -> bool {
        self.queue_ready.load()
    }

    /// Causes the worker to look up bindings again. A sleeping worker has forgotten all bindings, and a
    /// worker that runs a procedure forgets them afterwards.
    pub(crate) fn forget_bindings(&self) {
        self.bindings_stale.store(true);
        self.changed.store(true);
    }

    /// Takes `astack` away from a worker that runs the call of another A-stack. Also takes away the worker's
    /// other A-stacks where a call is posted. Returns the A-stacks that were taken away.
    ///
    /// Takes nothing away if the worker runs no call of another A-stack: the worker then finds the posted
    /// call itself. Takes nothing away either if the kernel provides no barrier.
    ///
    /// First this thread announces the change. Then it executes a barrier on every processor, and reads which
    /// A-stack the worker serves. If the worker serves another A-stack than `astack`, it notes its next
    /// A-stack only after the barrier, and will then see the announcement. A barrier interrupts every
    /// processor. So this function uses one barrier to take all waiting A-stacks of the worker away.
    // SYNC: assigned, the other half is in `begin_call`.
    pub(crate) fn take_waiting(&self, astack: &M::Astack) -> Vec<M::Astack> {
        let mut assigned = self.assigned.lock();
        self.changed.store(true);
        if !M::barrier() {
            return Vec::new();
        }
        let current = self.current.load();
        if current == 0 || current == astack.key() {
            return Vec::new();
        }
        let waits = |one: &mut M::Astack| one.key() != current && one.is_posted();
        assigned.extract_if(.., waits).collect()
    }
}

// These methods are for the worker's own thread.
impl<M: Machine> WorkerHandle<M> {
    /// Notes that the worker serves an A-stack. Returns false if the worker's assignments have changed. The
    /// worker must then not take the call.
    #[inline]
    pub(super) fn begin_call(&self, key: u64) -> bool {
        // SYNC: assigned, the other half is in `take_waiting`. A thread that reads the key and then takes
        // other A-stacks away also sees what this worker has written for earlier calls on those A-stacks.
        self.current.store(key);
        M::keep_order();
        if self.changed.peek() {
            self.end_call();
            return false;
        }
        true
    }

    /// Notes that the worker serves no A-stack.
    #[inline]
    pub(super) fn end_call(&self) {
        self.current.store(0);
    }

    /// Returns the key of the A-stack that the worker serves, or zero.
    pub(super) fn current(&self) -> u64 {
        self.current.load()
    }

    /// Returns whether the pool's queue has an A-stack for the worker. This function may see a change a
    /// moment later than [`is_queue_ready`](Self::is_queue_ready).
    #[inline]
    pub(super) fn may_be_queue_ready(&self) -> bool {
        self.queue_ready.peek()
    }

    /// Assigns an A-stack. `served` is the number of calls that the worker has served.
    pub(super) fn assign(&self, astack: M::Astack, served: u64) -> Assigned<M> {
        astack.set_assignment(Assignment::Worker(self.number));
        astack.mark_polled();
        self.assigned.lock().push(astack.clone());
        Assigned { key: astack.key(), astack, last_served: served }
    }

    /// Unassigns an A-stack. Returns the A-stack if a call was posted there meanwhile.
    pub(super) fn unassign(&self, one: Assigned<M>) -> Option<M::Astack> {
        self.assigned.lock().retain(|astack| astack.key() != one.key);
        let astack = one.astack;
        if astack.is_closed() || astack.unassign() {
            if astack.is_closed() {
                astack.set_assignment(Assignment::Unassigned);
            }
            return None;
        }
        astack.set_assignment(Assignment::Queued);
        Some(astack)
    }

    /// Removes an A-stack from the worker, and does not change its call word. The worker serves this A-stack,
    /// so no other thread takes it away meanwhile.
    pub(super) fn remove(&self, one: Assigned<M>) -> M::Astack {
        self.assigned.lock().retain(|astack| astack.key() != one.key);
        one.astack
    }

    /// Removes all A-stacks from the worker. `queue` puts each into the queue, for other workers.
    pub(super) fn requeue_all(&self, mut queue: impl FnMut(M::Astack)) {
        for astack in self.assigned.lock().drain(..) {
            astack.set_assignment(Assignment::Queued);
            queue(astack);
        }
    }

    /// Removes from the worker's list the A-stacks that other threads have taken away. Returns whether
    /// bindings that the worker remembers may have been removed.
    pub(super) fn apply_changes(&self, list: &mut Vec<Assigned<M>>) -> bool {
        // SYNC: assigned, the other half is in `take_waiting`. The worker has noted that it serves no
        // A-stack, and now loads `changed`. If the load misses the change of another thread, that thread sees
        // this note or a later one.
        M::keep_order();
        if !self.changed.load() {
            return false;
        }
        let assigned = self.assigned.lock();
        self.changed.store(false);
        let is_gone = |one: &mut Assigned<M>| assigned.iter().all(|astack| astack.key() != one.key);
        // The removed A-stacks are dropped after the lock is released. An A-stack may hold the last reference
        // to a session, and ending a session takes other locks.
        let gone: Vec<_> = list.extract_if(.., is_gone).collect();
        drop(assigned);
        drop(gone);
        self.bindings_stale.take()
    }

    /// Announces that the worker is about to sleep. Returns the value of the wake word: a later wake-up
    /// changes the word, and ends the sleep. After this, the worker must check whether there is anything to
    /// do.
    pub(super) fn prepare_sleep(&self) -> u32 {
        let value = self.wake_word.load();
        self.awake.store(false);
        value
    }

    /// Returns whether another thread has woken the worker since [`prepare_sleep`](Self::prepare_sleep)
    /// returned `value`.
    pub(super) fn was_woken(&self, value: u32) -> bool {
        self.wake_word.load() != value
    }

    /// Sleeps until a call is posted on an A-stack in `list`, another thread wakes the worker, or `limit` has
    /// passed. Returns whether another thread woke the worker.
    pub(super) fn sleep(&self, list: &[Assigned<M>], value: u32, limit: Option<Duration>) -> bool {
        // The search stops at the first A-stack where a call was posted. The worker then does not sleep.
        if list.iter().all(|one| one.astack.mark_asleep()) {
            // SYNC: rouse. A thread that wants to wake this thread first sets a flag, then changes a word.
            // This thread has changed the words, and now reads the flags. At least one of the two threads
            // sees what the other thread wrote.
            M::fence();
            if list.is_empty()
                || (!self.changed.load() && !list.iter().any(|one| one.astack.is_closed()))
            {
                M::sleep(&self.wake_word, value, list, limit);
            }
        }
        self.awake.store(true);
        list.iter().for_each(|one| one.astack.mark_polled());
        self.was_woken(value)
    }
}

/// Causes those of `workers` that poll to look at the queue. `waiting` is the number of A-stacks in the queue
/// that each of `workers` may take. If fewer than `waiting` workers poll, wakes a worker that sleeps. Returns
/// false if too few workers poll and none sleeps. The caller holds the lock of the queue.
pub(crate) fn wake_one<'a, M: Machine>(
    workers: impl DoubleEndedIterator<Item = &'a WorkerHandle<M>> + Clone,
    waiting: usize,
) -> bool {
    workers.clone().for_each(|worker| worker.set_queue_ready(true));
    // Workers that poll notice the flag. Each may run a long procedure afterwards, so each is expected to
    // take only one A-stack.
    if workers.clone().filter(|worker| worker.is_polling()).count() >= waiting {
        return true;
    }
    // The worker that was added last probably still has its data in the caches.
    let asleep = workers.rev().find(|worker| !worker.is_awake());
    asleep.map(WorkerHandle::wake).is_some()
}

/// The implementation of [`Machine`] that servers use.
pub(crate) struct Linux;

impl Machine for Linux {
    type Astack = AstackRef;
    type Flag = AtomicBool;
    type Key = AtomicU64;
    type WakeWord = AtomicU32;
    type Set = Mutex<Vec<AstackRef>>;

    #[inline]
    fn keep_order() {
        compiler_fence(Ordering::SeqCst);
    }
    fn barrier() -> bool {
        sys::membarrier()
    }
    fn fence() {
        fence(Ordering::SeqCst);
    }
    fn sleep(word: &AtomicU32, value: u32, assigned: &[Assigned<Self>], limit: Option<Duration>) {
        if assigned.is_empty() {
            sys::futex_wait(word, value, limit);
            return;
        }
        let mut words = FutexSet::<{ ASSIGNED_MAX + 1 }>::new();
        words.push(word, value);
        let call_words = assigned.iter().map(|one| one.astack.region.call_word(one.astack.index));
        call_words.for_each(|word| words.push(word, SLEEP));
        words.wait(limit);
    }
    fn wake(word: &AtomicU32) {
        sys::futex_wake(word);
    }
}

impl Flag for AtomicBool {
    fn new(value: bool) -> Self {
        Self::new(value)
    }
    #[inline]
    fn peek(&self) -> bool {
        self.load(Ordering::Relaxed)
    }
    fn load(&self) -> bool {
        self.load(Ordering::SeqCst)
    }
    fn store(&self, value: bool) {
        self.store(value, Ordering::SeqCst);
    }
    fn take(&self) -> bool {
        self.swap(false, Ordering::SeqCst)
    }
}

impl Key for AtomicU64 {
    fn new(value: u64) -> Self {
        Self::new(value)
    }
    fn load(&self) -> u64 {
        self.load(Ordering::SeqCst)
    }
    #[inline]
    fn store(&self, value: u64) {
        self.store(value, Ordering::Release);
    }
}

impl WakeWord for AtomicU32 {
    fn new(value: u32) -> Self {
        Self::new(value)
    }
    fn load(&self) -> u32 {
        self.load(Ordering::SeqCst)
    }
    fn change(&self) {
        self.fetch_add(1, Ordering::SeqCst);
    }
}

impl<A> Set<A> for Mutex<Vec<A>> {
    fn new() -> Self {
        Self::default()
    }
    fn lock(&self) -> impl DerefMut<Target = Vec<A>> {
        self.lock()
    }
}
