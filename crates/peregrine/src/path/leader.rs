//! Leader and followers. Several threads wait at a shared socket. One of them, the leader, receives for all.
//! The others are its followers.
//!
//! Each thread has a *word*, on which it sleeps. The stream path also has a leader, but there the word also
//! shows whether the reply of a call has arrived. On the datagram path, the thread's activity (its sequence
//! of calls) keeps that state, because packets arrive in any order. A word only shows that the thread must
//! check its activity again.
//!
//! | word | what the thread does |
//! |---|---|
//! | `IDLE` | does not wait, or is the leader |
//! | `AWAKE` | waits by polling the word |
//! | `ASLEEP` | sleeps on the word |
//! | `WOKEN` | must check its activity, because a packet arrived for the activity, or there is no leader |
//! | `FUTURE` | no thread waits: a future sleeps, and must be polled when a packet arrives for its activity |
//!
//! A future is not woken to become the leader, because its executor might poll it only after a long time.
//! While futures sleep and no thread leads, the [substitute](Substitute) receives. A future that is polled
//! may lead while it receives what has arrived, and then stops leading.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use crate::call::{Wait, block_cost};
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys;

const IDLE: u32 = 0;
const AWAKE: u32 = 1;
const ASLEEP: u32 = 2;
const WOKEN: u32 = 3;
const FUTURE: u32 = 4;

/// Receives while futures sleep and there is no leader.
pub(super) trait Substitute: Send + Sync {
    /// Makes the substitute lead for a short time as soon as packets have arrived. Must not wait.
    fn stand_by(&self);
}

/// What [`Leadership::try_wake`] has woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    Nothing,
    Thread,
    /// The caller must ring the bell of the future.
    Future,
}

/// Records which thread is the leader. Contains the memory into which the leader receives.
pub(super) struct Leadership<T> {
    /// The thread that holds this lock is the leader.
    input: Mutex<T>,
    /// Whether there is a leader. The value may be wrong for a short time, while a thread becomes the leader
    /// or stops leading.
    has_leader: AtomicBool,
    /// The number of followers.
    waiting: AtomicU32,
    /// The number of words that are `FUTURE`. The number may be too high for a short time.
    futures: AtomicU32,
    words: Box<[AtomicU32]>,
    substitute: Arc<dyn Substitute>,
}

/// The guard that the leader holds. Dropping the guard lets a follower become the leader.
pub(super) struct Leader<'a, T> {
    leadership: &'a Leadership<T>,
    /// `Some` until the guard is dropped.
    input: Option<MutexGuard<'a, T>>,
}

/// A thread that waits while another thread is the leader.
pub(super) struct Follower<'a, T> {
    leadership: &'a Leadership<T>,
    index: u32,
    /// The time at which the thread stops polling, and sleeps instead.
    until: Option<Instant>,
}

impl<T> Leadership<T> {
    /// Creates the state for `threads` threads, which are numbered from 0.
    pub(super) fn new(threads: u32, input: T, substitute: Arc<dyn Substitute>) -> Self {
        Self {
            input: Mutex::ranked(Rank::Receive, input),
            has_leader: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            futures: AtomicU32::new(0),
            words: (0..threads).map(|_| AtomicU32::new(IDLE)).collect(),
            substitute,
        }
    }

    /// Makes the calling thread the leader, unless another thread is the leader.
    #[inline]
    pub(super) fn try_lead(&self) -> Option<Leader<'_, T>> {
        let input = self.input.try_lock()?;
        self.has_leader.store(true, Ordering::SeqCst);
        Some(Leader { leadership: self, input: Some(input) })
    }

    /// Makes the calling thread a follower. From then on, the thread is woken when a packet arrives for its
    /// activity, or when there is no leader. Earlier events do not wake the thread. So the caller must then
    /// check its activity once more, and call [`try_lead`](Self::try_lead).
    pub(super) fn follow(&self, index: u32) -> Follower<'_, T> {
        self.words[index as usize].store(AWAKE, Ordering::SeqCst);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // SYNC: datagram-turn. A follower first raises `waiting`, and then tries to take the lock. A leader
        // first releases the lock, and then reads `waiting`. So at least one of the two threads sees the
        // change of the other.
        fence(Ordering::SeqCst);
        Follower { leadership: self, index, until: None }
    }

    /// Registers a future that is about to sleep. From then on, [`wake`](Self::wake) reports the future once.
    /// Earlier events do not wake the future. So the caller must then check its activity once more.
    pub(super) fn sleep(&self, index: u32) {
        self.futures.fetch_add(1, Ordering::SeqCst);
        if self.words[index as usize].swap(FUTURE, Ordering::SeqCst) == FUTURE {
            self.futures.fetch_sub(1, Ordering::SeqCst);
        }
        // SYNC: datagram-future. A future first raises `futures`, and then reads `has_leader`. A leader first
        // clears `has_leader` and releases the lock, and then reads `futures`. So at least one of the two
        // makes the substitute stand by.
        fence(Ordering::SeqCst);
        if !self.has_leader.load(Ordering::SeqCst) {
            self.substitute.stand_by();
        }
    }

    /// Ends the sleep of a future. Does nothing if the future does not sleep.
    pub(super) fn rouse(&self, index: u32) {
        if self.words[index as usize].swap(IDLE, Ordering::SeqCst) == FUTURE {
            self.futures.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Wakes a thread because a packet arrived for its activity. Does nothing if the thread does not wait.
    /// Returns true if a future sleeps instead of the thread. The caller must then ring the bell of the
    /// future: no other thread does so.
    #[must_use]
    pub(super) fn wake(&self, index: u32) -> bool {
        self.try_wake(index, true) == Woken::Future
    }

    /// Wakes all threads that wait. Returns the indexes of all futures that sleep. The caller must ring the
    /// bells of these futures.
    #[cold]
    #[must_use]
    pub(super) fn wake_all(&self) -> Vec<u32> {
        (0..self.words.len() as u32).filter(|index| self.wake(*index)).collect()
    }

    /// Wakes the thread at `index`. If a future sleeps there instead, marks the future as woken, provided
    /// that `futures` is true. Does nothing if neither waits, or if the word is already `WOKEN`.
    fn try_wake(&self, index: u32, futures: bool) -> Woken {
        let word = &self.words[index as usize];
        loop {
            let state = word.load(Ordering::SeqCst);
            let waits = matches!(state, AWAKE | ASLEEP) || (futures && state == FUTURE);
            if !waits {
                return Woken::Nothing;
            }
            // SYNC: datagram-word, taken in `Follower::reset`.
            if word.compare_exchange(state, WOKEN, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                if state == FUTURE {
                    self.futures.fetch_sub(1, Ordering::SeqCst);
                    return Woken::Future;
                }
                if state == ASLEEP {
                    sys::futex_wake(word);
                }
                return Woken::Thread;
            }
        }
    }

    /// Ensures that a follower becomes the leader if there is no leader. One woken follower suffices: it
    /// becomes the leader, or it calls this function when it stops waiting. If there is no follower, the
    /// substitute receives for the futures.
    #[inline]
    fn appoint(&self) {
        fence(Ordering::SeqCst);
        if self.has_leader.load(Ordering::SeqCst) {
            // The new leader calls this function when it stops leading.
            return;
        }
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.wake_one();
        } else if self.futures.load(Ordering::SeqCst) > 0 {
            // SYNC: datagram-future, in `sleep`.
            self.substitute.stand_by();
        }
    }

    #[cold]
    fn wake_one(&self) {
        let _ =
            (0..self.words.len() as u32).any(|index| self.try_wake(index, false) != Woken::Nothing);
    }

    /// Returns the number of followers.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst)
    }
}

impl<T> Leader<'_, T> {
    /// Returns the memory into which the leader receives.
    pub(super) fn input(&mut self) -> &mut T {
        self.input.as_deref_mut().expect("the lock is held until the guard is dropped")
    }
}

impl<T> Drop for Leader<'_, T> {
    fn drop(&mut self) {
        self.leadership.has_leader.store(false, Ordering::SeqCst);
        self.input = None;
        self.leadership.appoint();
    }
}

impl<T> Follower<'_, T> {
    fn word(&self) -> &AtomicU32 {
        &self.leadership.words[self.index as usize]
    }

    /// Waits until the thread is woken, or until the time `left` has passed. The wait may end early, so the
    /// caller must check its activity again.
    pub(super) fn wait(&mut self, wait: Wait, left: Duration) {
        let spins = match wait {
            Wait::Spin => true,
            Wait::Block => false,
            Wait::Adaptive => {
                let now = Instant::now();
                now < *self.until.get_or_insert_with(|| now + block_cost())
            }
        };
        if spins {
            // The thread polls for only a few rounds, because the caller must also check the clock.
            for _ in 0..8 {
                let woken = self.word().load(Ordering::Relaxed) == WOKEN;
                if woken || !self.leadership.has_leader.load(Ordering::Relaxed) {
                    break;
                }
                std::thread::yield_now();
            }
        } else if self.change(AWAKE, ASLEEP) {
            let left = (left != Duration::MAX).then_some(left);
            sys::futex_wait(self.word(), ASLEEP, left);
        }
        self.reset();
    }

    /// Resets the word, so that the thread can be woken again.
    fn reset(&self) {
        // SYNC: datagram-word, released in `Leadership::try_wake`.
        self.word().swap(AWAKE, Ordering::SeqCst);
        // SYNC: datagram-turn, as in `Leadership::follow`.
        fence(Ordering::SeqCst);
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.word().compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

impl<T> Drop for Follower<'_, T> {
    fn drop(&mut self) {
        self.word().swap(IDLE, Ordering::SeqCst);
        self.leadership.waiting.fetch_sub(1, Ordering::SeqCst);
        // If this thread was woken to become the leader, and does not lead, another follower must be woken.
        self.leadership.appoint();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::OnceLock;
    use std::sync::atomic::AtomicU64;
    use std::thread;

    const LONG: Duration = Duration::from_secs(20);

    fn until(what: &str, condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < LONG, "timed out while waiting until {what}");
            thread::yield_now();
        }
    }

    /// A substitute that counts how often it was made to stand by.
    #[derive(Default)]
    struct StandsBy(AtomicU32);

    impl Substitute for StandsBy {
        fn stand_by(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn leadership<T>(threads: u32, input: T) -> Leadership<T> {
        Leadership::new(threads, input, Arc::new(StandsBy::default()))
    }

    #[test]
    fn one_thread_leads_and_a_sleeping_follower_succeeds_it() {
        for wait in [Wait::Block, Wait::Adaptive, Wait::Spin] {
            let leadership = leadership(4, 0);
            let leader = leadership.try_lead().unwrap();
            assert!(leadership.try_lead().is_none());
            thread::scope(|scope| {
                for index in 0..4 {
                    let leadership = &leadership;
                    scope.spawn(move || {
                        let mut follower = leadership.follow(index);
                        let mut leader = loop {
                            match leadership.try_lead() {
                                Some(leader) => break leader,
                                None => follower.wait(wait, Duration::MAX),
                            }
                        };
                        drop(follower);
                        *leader.input() += 1;
                    });
                }
                until("all wait", || leadership.waiting() == 4);
                drop(leader);
            });
            assert_eq!((*leadership.try_lead().unwrap().input(), leadership.waiting()), (4, 0));
        }
    }

    #[test]
    fn wake_does_not_wake_other_followers() {
        let leadership = leadership(2, ());
        let looks = [const { AtomicU32::new(0) }; 2];
        let ends = AtomicBool::new(false);
        let leader = leadership.try_lead().unwrap();
        thread::scope(|scope| {
            for index in 0..2 {
                let (leadership, looks, ends) = (&leadership, &looks, &ends);
                scope.spawn(move || {
                    let mut follower = leadership.follow(index);
                    while !ends.load(Ordering::SeqCst) {
                        follower.wait(Wait::Block, Duration::MAX);
                        looks[index as usize].fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            until("both sleep", || {
                leadership.words.iter().all(|word| word.load(Ordering::SeqCst) == ASLEEP)
            });
            assert!(!leadership.wake(1), "no future sleeps");
            until("thread 1 is woken", || looks[1].load(Ordering::SeqCst) == 1);
            until("thread 1 sleeps", || leadership.words[1].load(Ordering::SeqCst) == ASLEEP);
            thread::sleep(Duration::from_millis(5));
            assert_eq!(looks[0].load(Ordering::SeqCst), 0);
            ends.store(true, Ordering::SeqCst);
            assert!(leadership.wake_all().is_empty());
        });
        drop(leader);
        // A thread that does not wait is not woken. Its word stays `IDLE`.
        assert!(!leadership.wake(0));
        assert_eq!(leadership.words[0].load(Ordering::SeqCst), IDLE);
    }

    #[test]
    fn time_limit_ends_the_wait() {
        let leadership = leadership(1, ());
        let _leader = leadership.try_lead().unwrap();
        let (start, limit) = (Instant::now(), Duration::from_millis(10));
        leadership.follow(0).wait(Wait::Block, limit);
        assert!((limit..LONG).contains(&start.elapsed()));
    }

    #[test]
    fn follower_that_leaves_instead_of_leading_wakes_another() {
        let leadership = leadership(2, ());
        let leader = leadership.try_lead().unwrap();
        thread::scope(|scope| {
            let mut first = leadership.follow(0);
            let other = scope.spawn(|| {
                let mut follower = leadership.follow(1);
                while leadership.try_lead().is_none() {
                    follower.wait(Wait::Block, Duration::MAX);
                }
            });
            until("the other sleeps", || leadership.words[1].load(Ordering::SeqCst) == ASLEEP);
            // The first follower is woken to become the leader. It leaves instead, so it must wake the other
            // follower.
            drop(leader);
            assert_eq!(leadership.words[0].load(Ordering::SeqCst), WOKEN);
            assert_eq!(leadership.words[1].load(Ordering::SeqCst), ASLEEP);
            first.wait(Wait::Block, Duration::MAX);
            drop(first);
            other.join().unwrap();
        });
    }

    /// Each thread waits for a number that only the leader can give to it. This imitates a thread that waits
    /// for a packet.
    #[test]
    fn followers_never_wait_without_a_leader() {
        const THREADS: u32 = 6;
        const ROUNDS: u64 = 3000;
        // For each thread: the number that the thread requested, and the number that the thread received.
        let asked = [const { AtomicU64::new(0) }; THREADS as usize];
        let given = [const { AtomicU64::new(0) }; THREADS as usize];
        for wait in [Wait::Block, Wait::Adaptive] {
            let leadership = leadership(THREADS, 0usize);
            asked.iter().chain(&given).for_each(|one| one.store(0, Ordering::SeqCst));
            thread::scope(|scope| {
                for index in 0..THREADS {
                    let (leadership, asked, given) = (&leadership, &asked, &given);
                    scope.spawn(move || {
                        for round in 1..=ROUNDS {
                            asked[index as usize].store(round, Ordering::SeqCst);
                            let has = || given[index as usize].load(Ordering::SeqCst) == round;
                            let mut follower = None;
                            while !has() {
                                let Some(mut leader) = leadership.try_lead() else {
                                    match &mut follower {
                                        None => follower = Some(leadership.follow(index)),
                                        Some(follower) => follower.wait(wait, LONG),
                                    }
                                    continue;
                                };
                                follower = None;
                                // The leader serves one thread after another.
                                while !has() {
                                    let next = (*leader.input() + 1) % THREADS as usize;
                                    *leader.input() = next;
                                    let wanted = asked[next].load(Ordering::SeqCst);
                                    if given[next].swap(wanted, Ordering::SeqCst) != wanted {
                                        let _ = leadership.wake(next as u32);
                                    }
                                }
                            }
                        }
                    });
                }
            });
            assert_eq!(leadership.waiting(), 0);
        }
    }

    #[test]
    fn future_is_reported_once_for_each_sleep() {
        let substitute = Arc::new(StandsBy::default());
        let stands_by = || substitute.0.load(Ordering::SeqCst);
        let leadership = Leadership::new(2, (), Arc::clone(&substitute) as _);
        leadership.sleep(0);
        assert_eq!(stands_by(), 1, "the substitute must stand by if there is no leader");
        assert!(leadership.wake(0) && !leadership.wake(0));
        // No future sleeps when this leader leaves. So the substitute is not made to stand by again.
        drop(leadership.try_lead());
        assert_eq!(stands_by(), 1);
        let leader = leadership.try_lead();
        leadership.sleep(0);
        leadership.sleep(0);
        leadership.sleep(1);
        assert_eq!(stands_by(), 1, "the leader receives");
        drop(leader);
        assert_eq!(stands_by(), 2);
        leadership.rouse(1);
        assert_eq!(leadership.wake_all(), [0]);
        leadership.rouse(0);
        assert_eq!(leadership.futures.load(Ordering::SeqCst), 0);
        drop(leadership.try_lead());
        assert_eq!(stands_by(), 2);
    }

    #[test]
    fn follower_succeeds_the_leader_before_the_substitute_does() {
        let substitute = Arc::new(StandsBy::default());
        let leadership = Leadership::new(2, (), Arc::clone(&substitute) as _);
        let leader = leadership.try_lead();
        leadership.sleep(0);
        let follower = leadership.follow(1);
        drop(leader);
        assert_eq!(leadership.words[1].load(Ordering::SeqCst), WOKEN);
        assert_eq!(substitute.0.load(Ordering::SeqCst), 0);
        // The follower was woken to become the leader. It leaves instead, so the substitute must stand by.
        drop(follower);
        assert_eq!(substitute.0.load(Ordering::SeqCst), 1);
        assert!(leadership.wake(0), "the future of frame 0 must still sleep");
    }

    /// The flag of a substitute, which is set when the substitute must stand by. Another thread of the test
    /// leads if the flag is set and callers wait for numbers.
    #[derive(Default)]
    struct Armed(AtomicBool);

    impl Substitute for Armed {
        fn stand_by(&self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// As in `followers_never_wait_without_a_leader`, callers wait for numbers that only the leader can give
    /// to them. Here some callers are futures. A future becomes the leader only to serve the numbers that are
    /// requested now. Otherwise it sleeps until its bell rings.
    #[test]
    fn futures_never_sleep_while_numbers_are_there() {
        const THREADS: usize = 2;
        const CALLERS: usize = 5;
        const ROUNDS: u64 = 3000;
        for wait in [Wait::Block, Wait::Adaptive] {
            let [asked, given] = [(); 2].map(|()| [const { AtomicU64::new(0) }; CALLERS]);
            let bells = [const { AtomicBool::new(false) }; CALLERS];
            let armed = Arc::new(Armed::default());
            let leadership = Leadership::new(CALLERS as u32, (), Arc::clone(&armed) as _);
            let left = AtomicU32::new(CALLERS as u32);
            let is_owed = |index: usize| {
                asked[index].load(Ordering::SeqCst) != given[index].load(Ordering::SeqCst)
            };
            // Gives each caller the number for which it waits. Only the leader calls this closure.
            let give = |callers: &[thread::Thread]| {
                for index in (0..CALLERS).filter(|index| is_owed(*index)) {
                    given[index].store(asked[index].load(Ordering::SeqCst), Ordering::SeqCst);
                    if leadership.wake(index as u32) {
                        bells[index].store(true, Ordering::SeqCst);
                        callers[index].unpark();
                    }
                }
            };
            let callers = OnceLock::<Vec<thread::Thread>>::new();
            let start = Instant::now();
            let run = |index: usize| {
                for round in 1..=ROUNDS {
                    assert!(start.elapsed() < LONG, "a caller was not woken");
                    asked[index].store(round, Ordering::SeqCst);
                    let mut follower = None;
                    while is_owed(index) {
                        let leader = leadership.try_lead();
                        if leader.is_some() {
                            follower = None;
                            give(callers.wait());
                        } else if index >= THREADS {
                            leadership.sleep(index as u32);
                            while is_owed(index) && !bells[index].swap(false, Ordering::SeqCst) {
                                thread::park_timeout(LONG);
                                assert!(start.elapsed() < LONG, "a future was not woken");
                            }
                        } else {
                            match &mut follower {
                                None => follower = Some(leadership.follow(index as u32)),
                                Some(follower) => follower.wait(wait, LONG),
                            }
                        }
                    }
                    leadership.rouse(index as u32);
                }
                left.fetch_sub(1, Ordering::SeqCst);
            };
            thread::scope(|scope| {
                let run = &run;
                let threads = (0..CALLERS).map(|index| scope.spawn(move || run(index)));
                let threads = threads.map(|spawned| spawned.thread().clone()).collect();
                callers.set(threads).expect("set once");
                while left.load(Ordering::SeqCst) > 0 {
                    let is_ready = (0..CALLERS).any(is_owed);
                    if is_ready && armed.0.swap(false, Ordering::SeqCst) {
                        fence(Ordering::SeqCst);
                        if let Some(leader) = leadership.try_lead() {
                            give(callers.wait());
                            drop(leader);
                        }
                    }
                    thread::yield_now();
                }
            });
            assert_eq!((leadership.waiting(), leadership.futures.load(Ordering::SeqCst)), (0, 0));
        }
    }
}
