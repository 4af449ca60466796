//! `Desk`: the state of a thread that attends to A-stacks, as other threads see and change it.
//!
//! The thread and the others follow three rules:
//!
//! * **Relief.** The thread notes which A-stack it serves. Then it checks whether its set has changed,
//!   and only then takes the call. A thread that takes an A-stack away uses the opposite order
//!   ([`Desk::relieve`]). Therefore no call is taken twice.
//! * **Sleep.** The thread writes into the word of each of its A-stacks that it sleeps. Then it checks
//!   the marks that others set, and sleeps on all these words and on its bell ([`Desk::sleep`]). Others
//!   set a mark first, and then change one of the words and wake the thread.
//! * **The queue.** The thread sees under the pool's lock that the queue is empty, and notes that it
//!   lies down ([`Desk::lie_down`]). A thread that adds to the queue reads that note under the same lock
//!   ([`call_one`]).
//!
//! `desk/model.rs` runs this code under a model checker, with its own [`Machine`].

#[cfg(test)]
mod model;

use core::ops::DerefMut;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence, fence};
use core::time::Duration;

use super::assignment::Attendance;
use super::worker::{HOT_MAX, Place};
use crate::path::local::region::word::SLEEP;
use crate::sync::Mutex;
use crate::sys::{self, FutexSet};

/// What the protocol asks of the machine, so that a model checker can bring its own.
pub(crate) trait Machine: Sized + 'static {
    type Astack: Astack;
    type Flag: Flag;
    type Key: Key;
    type Bell: Bell;
    type Set: Set<Self::Astack>;
    /// Keeps a store before a later load as far as the program goes. On the processor it is kept
    /// only where [`Machine::barrier`] falls between the two.
    fn keep_order();
    /// A barrier on every processor that runs a thread of this process; false if the kernel has none.
    fn barrier() -> bool;
    /// A barrier on this processor.
    fn fence();
    /// Sleeps while the bell holds this value and the words of all these A-stacks say that a thread
    /// sleeps on them: until woken, for `limit` at most, or for no reason.
    fn sleep(bell: &Self::Bell, value: u32, hot: &[Hot<Self>], limit: Option<Duration>);
    /// Wakes the thread that sleeps on a bell.
    fn wake(bell: &Self::Bell);
}

/// An A-stack of some session.
pub(crate) trait Astack: Clone {
    /// A number that no other A-stack of this process has, and that is not zero.
    fn key(&self) -> u64;
    /// Whether a call is posted there that nobody has taken yet.
    fn is_posted(&self) -> bool;
    /// Whether its session has ended.
    fn is_closed(&self) -> bool;
    /// Notes who attends to it, whoever did before.
    fn attended(&self, by: Attendance);
    /// The thread has come to look at it, or looks again.
    fn watch(&self);
    /// Its word says from now on that a thread sleeps on it; false if a call has come.
    fn doze(&self) -> bool;
    /// Leaves it to the next ring; false if a call has come meanwhile: then it is still whose it was.
    fn leave(&self) -> bool;
}

/// A mark that one thread sets for another.
pub(crate) trait Flag {
    fn new(value: bool) -> Self;
    /// Relaxed.
    fn peek(&self) -> bool;
    /// Sequentially consistent, as is [`store`](Self::store).
    fn load(&self) -> bool;
    fn store(&self, value: bool);
    /// Takes the mark away; whether it was there.
    fn take(&self) -> bool;
}

/// The A-stack that a thread serves, by key.
pub(crate) trait Key {
    fn new(value: u64) -> Self;
    /// Sequentially consistent.
    fn load(&self) -> u64;
    /// Release.
    fn store(&self, value: u64);
}

/// A word that changes when the thread is wanted.
pub(crate) trait Bell {
    fn new(value: u32) -> Self;
    /// Sequentially consistent, as is [`change`](Self::change).
    fn load(&self) -> u32;
    fn change(&self);
}

/// A lock around the A-stacks of a desk.
pub(crate) trait Set<A> {
    fn new() -> Self;
    fn lock(&self) -> impl DerefMut<Target = Vec<A>>;
}

/// A hot A-stack, as the thread at the desk knows it.
pub(crate) struct Hot<M: Machine> {
    pub(super) place: M::Astack,
    pub(super) key: u64,
    /// Calls that the thread had served when this one was called last.
    pub(super) called: u64,
}

/// Where a thread sits: what others may see of it, and take from it.
pub(crate) struct Desk<M: Machine = Linux> {
    pub(crate) number: u32,
    /// The A-stack whose call the thread runs, by key; zero while it looks around.
    current: M::Key,
    /// Something below has changed: the thread must look there before it serves anything.
    changed: M::Flag,
    /// Rows that the thread remembers may have been taken away.
    stale: M::Flag,
    set: M::Set,
    /// Changes when the thread is wanted; it sleeps on this word too.
    bell: M::Bell,
    /// Whether it is up: not asleep, nor about to be.
    up: M::Flag,
    /// Whether something that its thread may take waits in the pool's queue, or the pool stops. The
    /// thread reads it after each look.
    hungry: M::Flag,
}

// What others do.
impl<M: Machine> Desk<M> {
    /// A desk at which a thread is about to sit down.
    pub(crate) fn new(number: u32) -> Self {
        Self {
            number,
            current: M::Key::new(0),
            changed: M::Flag::new(false),
            stale: M::Flag::new(false),
            set: M::Set::new(),
            bell: M::Bell::new(0),
            up: M::Flag::new(true),
            hungry: M::Flag::new(false),
        }
    }

    /// Whether its thread looks around now, and will see what is new in the pool's queue.
    pub(crate) fn looks_around(&self) -> bool {
        self.is_up() && self.current.load() == 0
    }

    /// Whether its thread is awake, looking around or running a procedure.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load()
    }

    /// The A-stack whose call its thread runs.
    pub(super) fn serving(&self) -> Option<M::Astack> {
        let current = self.current.load();
        if current == 0 {
            return None;
        }
        self.set.lock().iter().find(|place| place.key() == current).cloned()
    }

    /// Wakes its thread, if it sleeps.
    pub(crate) fn ring(&self) {
        self.up.store(true);
        self.bell.change();
        M::wake(&self.bell);
    }

    /// Tells its thread whether there is something to take from the pool's queue.
    pub(crate) fn make_hungry(&self, hungry: bool) {
        self.hungry.store(hungry);
    }

    /// Whether its thread was told that there is something to take from the pool's queue.
    pub(crate) fn is_hungry(&self) -> bool {
        self.hungry.load()
    }

    /// Makes its thread look up rows anew. One that sleeps has forgotten them, one that runs a
    /// procedure forgets them behind it.
    pub(crate) fn forget_rows(&self) {
        self.stale.store(true);
        self.changed.store(true);
    }

    /// Takes an A-stack away from the desk whose thread runs the call of another one, and with it
    /// all others where a call is posted: the barrier disturbs every processor, and is not for one
    /// alone. Nothing if the thread runs no other call, and will see by itself what is posted.
    ///
    /// First the change is announced, then, behind a barrier on every processor, the thread's note is
    /// read. If the note names another A-stack, the thread has yet to write the next one, and will see
    /// the announcement behind that.
    // SYNC: desk, the other half is in `begins`.
    pub(crate) fn relieve(&self, place: &M::Astack) -> Vec<M::Astack> {
        let mut set = self.set.lock();
        self.changed.store(true);
        if !M::barrier() {
            return Vec::new();
        }
        let current = self.current.load();
        if current == 0 || current == place.key() {
            return Vec::new();
        }
        let waits = |one: &mut M::Astack| one.key() != current && one.is_posted();
        set.extract_if(.., waits).collect()
    }
}

// What the thread does that sits there.
impl<M: Machine> Desk<M> {
    /// Notes that the thread serves an A-stack; false if its set has changed, and it must not.
    #[inline]
    pub(super) fn begins(&self, key: u64) -> bool {
        // SYNC: desk, the other half is in `relieve`. What was taken before is seen by whoever
        // sees this, and takes over.
        self.current.store(key);
        M::keep_order();
        if self.changed.peek() {
            self.ends();
            return false;
        }
        true
    }

    /// The thread serves nothing.
    #[inline]
    pub(super) fn ends(&self) {
        self.current.store(0);
    }

    /// The A-stack that the thread serves, by key.
    pub(super) fn current(&self) -> u64 {
        self.current.load()
    }

    /// As [`is_hungry`](Self::is_hungry), but the answer may be a moment old.
    #[inline]
    pub(super) fn may_be_hungry(&self) -> bool {
        self.hungry.peek()
    }

    /// Looks at one more A-stack from now on.
    pub(super) fn take_in(&self, place: M::Astack, called: u64) -> Hot<M> {
        place.attended(Attendance::At(self.number));
        place.watch();
        self.set.lock().push(place.clone());
        Hot { key: place.key(), place, called }
    }

    /// Looks at an A-stack no more; gives it back if a call has come there meanwhile.
    pub(super) fn is_released(&self, hot: Hot<M>) -> Option<M::Astack> {
        self.set.lock().retain(|place| place.key() != hot.key);
        let place = hot.place;
        if place.is_closed() || place.leave() {
            if place.is_closed() {
                place.attended(Attendance::Idle);
            }
            return None;
        }
        place.attended(Attendance::Queued);
        Some(place)
    }

    /// Gives all A-stacks to others, by way of the queue.
    pub(super) fn give_all(&self) -> Vec<M::Astack> {
        let places = core::mem::take(&mut *self.set.lock());
        places.iter().for_each(|place| place.attended(Attendance::Queued));
        places
    }

    /// Brings the thread's own view up to date with what others have changed. True if rows that it
    /// remembers may have been taken away.
    pub(super) fn refresh(&self, hot: &mut Vec<Hot<M>>) -> bool {
        // SYNC: desk. That the thread serves nothing is noted before this is read.
        M::keep_order();
        if !self.changed.load() {
            return false;
        }
        let set = self.set.lock();
        self.changed.store(false);
        // What is dropped here may be the last of a session, whose end takes other locks.
        let others = hot.extract_if(.., |hot| set.iter().all(|place| place.key() != hot.key));
        let others: Vec<_> = others.collect();
        drop(set);
        drop(others);
        self.stale.take()
    }

    /// Says that the thread is about to sleep, and from which ring of its bell on it will not.
    /// What is asked of it before is to be seen behind this.
    pub(super) fn lie_down(&self) -> u32 {
        let bell = self.bell.load();
        self.up.store(false);
        bell
    }

    /// Whether the bell has rung since the thread [lay down](Self::lie_down).
    pub(super) fn was_rung(&self, bell: u32) -> bool {
        self.bell.load() != bell
    }

    /// Sleeps until a call comes to any of these A-stacks, the bell rings, or `limit` has passed;
    /// whether the bell rang.
    pub(super) fn sleep(&self, hot: &[Hot<M>], bell: u32, limit: Option<Duration>) -> bool {
        // If a call has come to one, there is no need to tell the others.
        if hot.iter().all(|hot| hot.place.doze()) {
            // SYNC: rouse. Who wants us sets its mark, then changes a word; we changed the words, and
            // now look at the marks: one of us sees the other.
            M::fence();
            if hot.is_empty()
                || (!self.changed.load() && !hot.iter().any(|hot| hot.place.is_closed()))
            {
                M::sleep(&self.bell, bell, hot, limit);
            }
        }
        self.up.store(true);
        hot.iter().for_each(|hot| hot.place.watch());
        self.was_rung(bell)
    }
}

/// Makes one of these threads look at the queue, in which `waiting` A-stacks wait that any of them may
/// take. The caller holds the lock of the queue. Returns false if none of the threads is free.
pub(crate) fn call_one<'a, M: Machine>(
    desks: impl DoubleEndedIterator<Item = &'a Desk<M>> + Clone,
    waiting: usize,
) -> bool {
    desks.clone().for_each(|desk| desk.make_hungry(true));
    // Those that look around see by themselves that they are hungry; each may be about to run a
    // long procedure, so each is relied on for one A-stack.
    if desks.clone().filter(|desk| desk.looks_around()).count() >= waiting {
        return true;
    }
    // The one that came last is the one whose caches are warmest.
    let asleep = desks.rev().find(|desk| !desk.is_up());
    asleep.map(Desk::ring).is_some()
}

/// The machine on which servers run.
pub(crate) struct Linux;

impl Machine for Linux {
    type Astack = Place;
    type Flag = AtomicBool;
    type Key = AtomicU64;
    type Bell = AtomicU32;
    type Set = Mutex<Vec<Place>>;

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
    fn sleep(bell: &AtomicU32, value: u32, hot: &[Hot<Self>], limit: Option<Duration>) {
        if hot.is_empty() {
            sys::futex_wait(bell, value, limit);
            return;
        }
        let mut words = FutexSet::<{ HOT_MAX + 1 }>::new();
        words.push(bell, value);
        hot.iter().for_each(|hot| words.push(hot.place.region.call_word(hot.place.index), SLEEP));
        words.wait(limit);
    }
    fn wake(bell: &AtomicU32) {
        sys::futex_wake(bell);
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

impl Bell for AtomicU32 {
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
