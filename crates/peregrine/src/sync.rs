//! Locks. Debug builds check the order in which a thread takes them.
//!
//! [`Mutex`], [`MutexGuard`] and [`Condvar`] wrap the types of the standard library, without poisoning. So
//! code that may panic while it holds a lock must leave the protected data consistent. In debug builds, and
//! so in all tests, each thread records the locks that it holds. A thread panics when it takes a lock that it
//! already holds, or a lock whose [`Rank`] is not above the ranks of all locks that it holds. The message
//! names the places at which both locks were taken. Two threads that take locks in different orders deadlock
//! only at certain moments. This check reports a wrong order as soon as one thread uses it.
//!
//! `try_lock` cannot block, so it may be called in any order. A lock that `try_lock` took counts as held:
//! later calls of `lock` are checked against this lock.

use core::ops::{Deref, DerefMut};
use core::time::Duration;
use std::sync::{self, PoisonError, TryLockError};

/// The rank of a lock. A thread that holds a lock takes only locks of a higher rank. The text of each rank
/// says what its locks protect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// The calls of a client's binding that share batches. Held while a batch is sent or received.
    Lane,
    /// Held while a client binds again on behalf of all clones of a binding.
    Rebind,
    /// The server of a pool that one-way calls use.
    PoolOneWay,
    /// What a pool knows about its servers.
    Pool,
    /// How a pool asks a server for its load. Held while the server is asked.
    PoolLoad,
    /// The names that a server has registered in a directory.
    Registered,
    /// The directories that a process has opened. Held while one is opened.
    Directories,
    /// A client's sessions or connections with one server. Held while a thread binds to the server.
    Server,
    /// A client's associations over datagrams.
    Associations,
    /// A server's exports.
    Exports,
    /// The socket of an export that the keeper watches.
    ExportWatch,
    /// All sessions of a server, or all its connections.
    Clients,
    /// The connection that the keeper watches.
    ClientWatch,
    /// The bytes that were received on a server's connection while no thread reads the connection.
    Received,
    /// A server's threads, and the calls that wait for them.
    Threads,
    /// Which thread receives for all callers (leader/follower).
    Receive,
    /// A client's activity over datagrams. The thread that receives for all callers may hold two locks of
    /// this rank.
    Activity,
    /// The messages that a client's connection to another RPC system has not accepted yet.
    Output,
    /// Handles that no activity uses yet.
    Handles,
    /// The socket that activities share.
    SharedSocket,
    /// The list of a client's datagram sockets that the keeper watches.
    SocketWatch,
    /// Calls and replies over datagrams that wait for memory for results.
    Postponed,
    /// All records of a server's callers over datagrams.
    Callers,
    /// One record of a caller.
    Record,
    /// Which callers have more to send, and when.
    Pacer,
    /// The bindings of one client.
    BindingTable,
    /// The network interfaces on which this process uses raw Ethernet.
    LinkPorts,
    /// Frames between this process and a network interface.
    Ring,
    /// The lanes of a server. A lane is the calls of one client binding that share batches.
    Lanes,
    /// The items of a callback that wait for credit.
    Callback,
    /// The conduits of a server: which clients have streams.
    Conduits,
    /// One conduit of a server.
    Conduit,
    /// One end of a stream.
    Stream,
    /// The bytes that a sealed connection has received and not decrypted yet.
    #[cfg(feature = "secure")]
    Ciphertext,
    /// The state of TLS of a sealed connection.
    #[cfg(feature = "secure")]
    Tls,
    /// The default rank. No lock is taken while a lock of this rank is held.
    Leaf,
}

/// A mutual exclusion lock with a rank.
pub(crate) struct Mutex<T: ?Sized> {
    #[cfg(debug_assertions)]
    rank: Rank,
    inner: sync::Mutex<T>,
}

/// Keeps a lock held until this guard is dropped.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T: ?Sized> {
    inner: sync::MutexGuard<'a, T>,
    #[cfg(debug_assertions)]
    held: order::Held,
}

impl<T> Mutex<T> {
    /// Returns a lock of the rank [`Rank::Leaf`]: no other lock is taken while this lock is held.
    pub(crate) const fn new(value: T) -> Self {
        Self::ranked(Rank::Leaf, value)
    }

    /// Returns a lock of a rank: only locks of a higher rank are taken while this lock is held.
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
    /// Panics in debug builds if this thread holds a lock of the same rank or a higher one.
    #[track_caller]
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(debug_assertions)]
        order::check(self.address(), self.rank, false);
        self.held(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the protected value. No lock is needed, because `&mut self` is the only reference to it.
    pub(crate) fn exclusive(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`lock`](Self::lock), for a thread that may hold another lock of the same rank. Each call of this
    /// function has a comment that says why two such threads never wait for each other.
    #[track_caller]
    #[inline]
    pub(crate) fn lock_same_rank(&self) -> MutexGuard<'_, T> {
        #[cfg(debug_assertions)]
        order::check(self.address(), self.rank, true);
        self.held(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the lock if no thread holds the lock. Otherwise returns `None`.
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
    /// Returns the protected value.
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
    /// Returns the guard of the standard library, and the function that wraps it again.
    fn split(
        self,
    ) -> (sync::MutexGuard<'a, T>, impl FnOnce(sync::MutexGuard<'a, T>) -> MutexGuard<'a, T>) {
        #[cfg(debug_assertions)]
        let held = self.held;
        let wrap = move |inner| MutexGuard {
            inner,
            #[cfg(debug_assertions)]
            held,
        };
        (self.inner, wrap)
    }
}

/// A lock of the rank [`Rank::Leaf`] that many threads hold at the same time for reading.
#[cfg(feature = "secure")]
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(sync::RwLock<T>);

/// Keeps an [`RwLock`] held until this guard is dropped.
#[cfg(feature = "secure")]
#[derive(Debug)]
pub(crate) struct RwGuard<G> {
    inner: G,
    #[cfg(debug_assertions)]
    #[expect(dead_code, reason = "its destructor forgets the lock")]
    held: order::Held,
}

#[cfg(feature = "secure")]
impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// Waits until no thread writes.
    #[track_caller]
    #[inline]
    pub(crate) fn read(&self) -> RwGuard<sync::RwLockReadGuard<'_, T>> {
        #[cfg(debug_assertions)]
        order::check(self.address(), Rank::Leaf, false);
        self.held(self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until no other thread reads or writes.
    #[track_caller]
    pub(crate) fn write(&self) -> RwGuard<sync::RwLockWriteGuard<'_, T>> {
        #[cfg(debug_assertions)]
        order::check(self.address(), Rank::Leaf, false);
        self.held(self.0.write().unwrap_or_else(PoisonError::into_inner))
    }

    #[track_caller]
    #[inline]
    #[cfg_attr(not(debug_assertions), allow(clippy::unused_self))]
    fn held<G>(&self, inner: G) -> RwGuard<G> {
        RwGuard {
            inner,
            #[cfg(debug_assertions)]
            held: order::Held::new(self.address(), Rank::Leaf),
        }
    }

    #[cfg(debug_assertions)]
    fn address(&self) -> usize {
        (&raw const self.0).cast::<()>() as usize
    }
}

#[cfg(feature = "secure")]
impl<G: Deref> Deref for RwGuard<G> {
    type Target = G::Target;
    #[inline]
    fn deref(&self) -> &G::Target {
        &self.inner
    }
}

#[cfg(feature = "secure")]
impl<G: DerefMut> DerefMut for RwGuard<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.inner
    }
}

/// A condition that threads wait for with a [`Mutex`]. A waiting thread must hold no other lock.
#[derive(Debug, Default)]
pub(crate) struct Condvar(sync::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Waits for a notification. May also return without a notification.
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let (inner, wrap) = guard.split();
        wrap(self.0.wait(inner).unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for a notification, for at most `limit`. May also return without a notification. The second
    /// value says whether the limit has passed.
    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let (inner, wrap) = guard.split();
        let waited = self.0.wait_timeout(inner, limit);
        let (inner, reason) = waited.unwrap_or_else(PoisonError::into_inner);
        (wrap(inner), reason.timed_out())
    }

    /// Waits while `condition` is true, for at most `limit`. The second value says whether the limit has
    /// passed.
    pub(crate) fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, bool) {
        let (inner, wrap) = guard.split();
        let waited = self.0.wait_timeout_while(inner, limit, condition);
        let (inner, reason) = waited.unwrap_or_else(PoisonError::into_inner);
        (wrap(inner), reason.timed_out())
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

    /// The largest number of locks that one thread can hold at one time.
    const HELD_MAX: usize = 16;

    #[derive(Clone, Copy)]
    struct Lock {
        address: usize,
        rank: Rank,
        at: &'static Location<'static>,
    }

    // The array has no destructor, so it is usable until the thread ends. The array is not allocated, because
    // tests count allocations.
    std::thread_local!(static HELD: RefCell<[Option<Lock>; HELD_MAX]> = const { RefCell::new([None; HELD_MAX]) });

    /// The record of a lock that this thread holds. Dropping this value removes the record.
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

    /// Panics if this thread must not wait for a lock of this rank now. `another` is whether the thread may
    /// hold another lock of this rank.
    #[track_caller]
    pub(super) fn check(address: usize, rank: Rank, another: bool) {
        let is_wrong = |lock: &Lock| {
            lock.address == address || lock.rank > rank || (lock.rank == rank && !another)
        };
        let wrong = HELD.with_borrow(|held| held.iter().flatten().copied().find(is_wrong));
        // If the thread is already panicking, it does not panic here. A second panic would abort the process,
        // and the first message is the useful one.
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
        // The text is also written to standard error, because the panic may be caught, or the test program
        // may capture the message of the panic.
        let _ = writeln!(std::io::stderr(), "{text} (at {})", Location::caller());
        panic!("{text}");
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Runs a function that panics, and returns the message of the panic.
    fn panic_text(what: impl FnOnce()) -> String {
        let panic = catch_unwind(AssertUnwindSafe(what)).expect_err("no panic");
        *panic.downcast::<String>().expect("text")
    }

    #[test]
    fn message_of_a_wrong_order_names_both_locks() {
        let outer = Mutex::ranked(Rank::Activity, 1);
        let inner = Mutex::ranked(Rank::Record, 2);
        {
            let (_outer, _inner) = (outer.lock(), inner.lock());
        }
        let text = panic_text(|| {
            let _inner = inner.lock();
            let _outer = outer.lock();
        });
        assert!(text.contains("Activity is locked while Record is held"), "{text}");
        assert!(text.contains("sync.rs"), "{text}");
        // The panic has released the locks.
        drop(outer.lock());
    }

    #[test]
    fn locking_the_same_lock_twice_panics_at_once() {
        let lock = Mutex::new(());
        let text = panic_text(|| {
            let _held = lock.lock();
            let _again = lock.lock_same_rank();
        });
        assert!(text.contains("Leaf is locked again"), "{text}");
    }

    #[test]
    fn locking_while_a_leaf_is_held_panics() {
        let leaves = [(); 2].map(|()| Mutex::new(()));
        let text = panic_text(|| {
            let _held = leaves[0].lock();
            let _other = leaves[1].lock();
        });
        assert!(text.contains("wrong order"), "{text}");
    }

    #[test]
    fn try_lock_ignores_the_order_but_counts_as_held() {
        let outer = Mutex::ranked(Rank::Activity, ());
        let inner = Mutex::ranked(Rank::Record, ());
        let both = (inner.lock(), outer.try_lock());
        assert!(both.1.is_some() && outer.try_lock().is_none());
        drop(both);
        let text = panic_text(|| {
            let _inner = inner.try_lock();
            let _outer = outer.lock();
        });
        assert!(text.contains("Activity is locked while Record is held"), "{text}");
        let activities = (outer.lock(), Mutex::ranked(Rank::Activity, ()));
        drop(activities.1.lock_same_rank());
    }

    #[test]
    fn lock_is_held_after_a_wait() {
        let (lock, came) = (Mutex::new(0), Condvar::new());
        let (held, timed_out) = came.wait_timeout(lock.lock(), Duration::from_millis(1));
        assert!(timed_out && lock.try_lock().is_none());
        assert!(panic_text(|| drop(lock.lock())).contains("locked again"));
        drop(held);
        drop(lock.lock());
    }
}
