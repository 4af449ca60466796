//! Locks, and in debug builds the order in which a thread may take them.
//!
//! [`Mutex`], [`MutexGuard`] and [`Condvar`] are those of the standard library, without poisoning: a
//! thread that panics holds locks only while what they protect is as it should be. In debug builds, and so
//! in all tests, each thread also knows which locks it holds. It panics when it takes one whose
//! [`Rank`] is not above the ranks of all that it holds, or one that it holds already. The message names
//! both places. A deadlock needs two threads that meet at the wrong moment; a wrong order needs one
//! thread that passes there once.
//!
//! Attempts (`try_lock`) cannot block, and may be made in any order. What is locked after one succeeded
//! is checked against it as usual.

use core::ops::{Deref, DerefMut};
use core::time::Duration;
use std::sync::{self, PoisonError, TryLockError};

/// The order: a thread that holds a lock takes only locks of a higher rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// A client binds again, for all that share a binding.
    Rebind,
    /// A client's sessions or connections with one server, while a thread binds to it.
    Server,
    /// A client's associations over datagrams.
    Associations,
    /// A server's exports.
    Exports,
    /// What the keeper watches for an export.
    ExportWatch,
    /// A server's sessions, or its connections.
    Clients,
    /// What the keeper watches for a connection.
    ClientWatch,
    /// What was received on a server's connection while no thread attends to it.
    Received,
    /// A server's threads, and what waits for them.
    Threads,
    /// Whose turn it is to receive for all.
    Receive,
    /// A caller over datagrams. Who has the turn to receive may hold two.
    Activity,
    /// Handles that no caller has yet.
    Handles,
    /// The socket that callers share.
    SharedSocket,
    /// Calls over datagrams that wait for room for their results.
    Deferred,
    /// A server's callers over datagrams, all of them.
    Callers,
    /// One of them.
    Record,
    /// Which callers have more to be sent, and when.
    Pacer,
    /// The bindings of one client.
    BindingTable,
    /// The interfaces at which this process speaks raw Ethernet.
    LinkPorts,
    /// Frames on their way from or to an interface.
    Ring,
    /// Nothing is locked while it is held. The rank of all locks that are made without one.
    Leaf,
}

/// A mutual exclusion lock with a rank.
pub(crate) struct Mutex<T: ?Sized> {
    #[cfg(debug_assertions)]
    rank: Rank,
    inner: sync::Mutex<T>,
}

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T: ?Sized> {
    inner: sync::MutexGuard<'a, T>,
    #[cfg(debug_assertions)]
    held: order::Held,
}

impl<T> Mutex<T> {
    /// A lock under which nothing else is locked.
    pub(crate) const fn new(value: T) -> Self {
        Self::ranked(Rank::Leaf, value)
    }

    /// A lock under which only locks of a higher rank are taken.
    pub(crate) const fn ranked(rank: Rank, value: T) -> Self {
        #[cfg(not(debug_assertions))]
        let _ = rank;
        Self {
            #[cfg(debug_assertions)]
            rank,
            inner: sync::Mutex::new(value),
        }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized + core::fmt::Debug> core::fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    ///
    /// # Panics
    /// In debug builds, if this thread holds a lock of the same rank or a higher one.
    #[track_caller]
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(debug_assertions)]
        order::check(self.address(), self.rank, false);
        self.held(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`lock`](Self::lock) for one who may hold another lock of this rank. There must be a reason,
    /// which is said where it is called, why two threads that do so never wait for each other.
    #[track_caller]
    #[inline]
    pub(crate) fn lock_same_rank(&self) -> MutexGuard<'_, T> {
        #[cfg(debug_assertions)]
        order::check(self.address(), self.rank, true);
        self.held(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the lock; `None` if a thread has it.
    #[track_caller]
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(self.held(inner)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.held(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[track_caller]
    #[inline]
    #[cfg_attr(not(debug_assertions), allow(clippy::unused_self))]
    fn held<'a>(&'a self, inner: sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard {
            inner,
            #[cfg(debug_assertions)]
            held: order::Held::new(self.address(), self.rank),
        }
    }

    #[cfg(debug_assertions)]
    fn address(&self) -> usize {
        (&raw const self.inner).cast::<()>() as usize
    }
}

impl<T> Mutex<T> {
    /// What it protects, when nobody else can reach it.
    #[allow(dead_code)] // for tests
    pub(crate) fn into_inner(self) -> T {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<'a, T> MutexGuard<'a, T> {
    /// The guard of the standard library, and how it becomes one of ours again.
    fn taken_apart(
        self,
    ) -> (sync::MutexGuard<'a, T>, impl FnOnce(sync::MutexGuard<'a, T>) -> MutexGuard<'a, T>) {
        #[cfg(debug_assertions)]
        let held = self.held;
        let again = move |inner| MutexGuard {
            inner,
            #[cfg(debug_assertions)]
            held,
        };
        (self.inner, again)
    }
}

/// A condition that threads wait for with a [`Mutex`]. Who waits holds no lock but that one.
#[derive(Debug, Default)]
pub(crate) struct Condvar(sync::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Waits for a notice, or for no reason.
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let (inner, again) = guard.taken_apart();
        again(self.0.wait(inner).unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for a notice, for so long, or for no reason; whether the time has passed.
    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let (inner, again) = guard.taken_apart();
        let waited = self.0.wait_timeout(inner, limit);
        let (inner, reason) = waited.unwrap_or_else(PoisonError::into_inner);
        (again(inner), reason.timed_out())
    }

    /// Waits while something is so, for so long; whether the time has passed.
    pub(crate) fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
        is_so: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, bool) {
        let (inner, again) = guard.taken_apart();
        let waited = self.0.wait_timeout_while(inner, limit, is_so);
        let (inner, reason) = waited.unwrap_or_else(PoisonError::into_inner);
        (again(inner), reason.timed_out())
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(debug_assertions)]
mod order {
    use core::cell::RefCell;
    use core::panic::Location;
    use std::io::Write as _;

    use super::Rank;

    /// Locks that one thread holds at one time.
    const MOST: usize = 16;

    #[derive(Clone, Copy)]
    struct Lock {
        address: usize,
        rank: Rank,
        at: &'static Location<'static>,
    }

    // Without a destructor, so that it is there for as long as the thread is; without memory of the
    // allocator's, which tests count.
    std::thread_local!(static HELD: RefCell<[Option<Lock>; MOST]> = const { RefCell::new([None; MOST]) });

    /// A lock that this thread holds; no more once this is dropped.
    #[derive(Debug)]
    pub(super) struct Held {
        address: usize,
    }

    impl Held {
        #[track_caller]
        pub(super) fn new(address: usize, rank: Rank) -> Self {
            let lock = Lock { address, rank, at: Location::caller() };
            HELD.with_borrow_mut(|held| {
                let place = held.iter_mut().find(|place| place.is_none());
                *place.expect("a thread holds too many locks") = Some(lock);
            });
            Self { address }
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            let own =
                |place: &&mut Option<Lock>| place.is_some_and(|lock| lock.address == self.address);
            HELD.with_borrow_mut(|held| held.iter_mut().find(own).map(Option::take));
        }
    }

    /// Panics if this thread must not wait for a lock now.
    #[track_caller]
    pub(super) fn check(address: usize, rank: Rank, another: bool) {
        let is_wrong = |lock: &Lock| {
            lock.address == address || lock.rank > rank || (lock.rank == rank && !another)
        };
        let wrong = HELD.with_borrow(|held| held.iter().flatten().copied().find(is_wrong));
        // A thread that panics anyway is not ended for that: the first message says more.
        let Some(Lock { address: held, rank: above, at }) =
            wrong.filter(|_| !std::thread::panicking())
        else {
            return;
        };
        let text = if held == address {
            format!(
                "a deadlock: {rank:?} is locked again by the thread that has held it since {at}"
            )
        } else {
            format!("wrong order of locks: {rank:?} is locked while {above:?} is held, since {at}")
        };
        // Also where a panic is caught, and where a test's output is kept back.
        let _ = writeln!(std::io::stderr(), "{text} (at {})", Location::caller());
        panic!("{text}");
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// What a thread is told that does this.
    fn told(what: impl FnOnce()) -> String {
        let panic = catch_unwind(AssertUnwindSafe(what)).expect_err("nobody minded");
        *panic.downcast::<String>().expect("text")
    }

    #[test]
    fn wrong_order_is_told_with_both_names() {
        let outer = Mutex::ranked(Rank::Activity, 1);
        let inner = Mutex::ranked(Rank::Record, 2);
        {
            let (_outer, _inner) = (outer.lock(), inner.lock());
        }
        let text = told(|| {
            let _inner = inner.lock();
            let _outer = outer.lock();
        });
        assert!(text.contains("Activity is locked while Record is held"), "{text}");
        assert!(text.contains("sync.rs"), "{text}");
        // What was held when it panicked is held no more.
        drop(outer.lock());
    }

    #[test]
    fn same_lock_twice_is_told_and_not_waited_for() {
        let lock = Mutex::new(());
        let text = told(|| {
            let _held = lock.lock();
            let _again = lock.lock_same_rank();
        });
        assert!(text.contains("Leaf is locked again"), "{text}");
    }

    #[test]
    fn nothing_is_locked_under_a_leaf() {
        let leaves = [(); 2].map(|()| Mutex::new(()));
        let text = told(|| {
            let _held = leaves[0].lock();
            let _other = leaves[1].lock();
        });
        assert!(text.contains("wrong order"), "{text}");
    }

    #[test]
    fn attempts_are_made_in_any_order_and_count_as_held() {
        let outer = Mutex::ranked(Rank::Activity, ());
        let inner = Mutex::ranked(Rank::Record, ());
        let both = (inner.lock(), outer.try_lock());
        assert!(both.1.is_some() && outer.try_lock().is_none());
        drop(both);
        let text = told(|| {
            let _inner = inner.try_lock();
            let _outer = outer.lock();
        });
        assert!(text.contains("Activity is locked while Record is held"), "{text}");
        let lanes = (outer.lock(), Mutex::ranked(Rank::Activity, ()));
        drop(lanes.1.lock_same_rank());
    }

    #[test]
    fn lock_is_held_behind_a_wait() {
        let (lock, came) = (Mutex::new(0), Condvar::new());
        let (held, timed_out) = came.wait_timeout(lock.lock(), Duration::from_millis(1));
        assert!(timed_out && lock.try_lock().is_none());
        assert!(told(|| drop(lock.lock())).contains("locked again"));
        drop(held);
        drop(lock.lock());
    }
}
