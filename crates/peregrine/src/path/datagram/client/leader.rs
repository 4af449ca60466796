//! `Turn`: who of those that wait at one socket receives for all, and how the others wait meanwhile.
//!
//! It is TCP's receive turn in the form that a socket without order allows: there the word of a call
//! says too whether its reply is there, here its lane does, and a word says only that its caller is
//! to look again.
//!
//! | word | its caller |
//! |---|---|
//! | `IDLE` | does not wait, or has the turn |
//! | `LOOKING` | waits, awake |
//! | `ASLEEP` | waits, asleep on the word |
//! | `POKED` | is to look: something came for it, or the turn is free |

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use core::time::Duration;
use std::time::Instant;

use crate::call::{Wait, block_cost};
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys;

const IDLE: u32 = 0;
const AWAKE: u32 = 1;
const ASLEEP: u32 = 2;
const WOKEN: u32 = 3;

/// The turn, and with it what one needs to receive.
#[derive(Debug)]
pub(super) struct Leadership<T> {
    /// Who has the lock has the turn.
    input: Mutex<T>,
    /// Whether somebody has it: a hint, which is right whenever nobody is just taking it or letting
    /// it go.
    has_leader: AtomicBool,
    /// How many wait without it.
    waiting: AtomicU32,
    words: Box<[AtomicU32]>,
}

/// The turn; passed on when dropped.
#[derive(Debug)]
pub(super) struct Leader<'a, T> {
    turn: &'a Leadership<T>,
    /// There until dropped.
    input: Option<MutexGuard<'a, T>>,
}

/// One who waits without the turn.
#[derive(Debug)]
pub(super) struct Follower<'a, T> {
    turn: &'a Leadership<T>,
    index: u32,
    /// Until when it looks rather than sleeps.
    until: Option<Instant>,
}

impl<T> Leadership<T> {
    /// A turn for so many callers, by number.
    pub(super) fn new(callers: u32, input: T) -> Self {
        Self {
            input: Mutex::ranked(Rank::Receive, input),
            has_leader: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            words: (0..callers).map(|_| AtomicU32::new(IDLE)).collect(),
        }
    }

    /// The turn, if nobody has it.
    #[inline]
    pub(super) fn try_lead(&self) -> Option<Leader<'_, T>> {
        let input = self.input.try_lock()?;
        self.has_leader.store(true, Ordering::SeqCst);
        Some(Leader { turn: self, input: Some(input) })
    }

    /// Begins to wait, for what others give it or for the turn. Only what happens before is not told:
    /// so look once more after this, and try to take the turn.
    pub(super) fn follow(&self, index: u32) -> Follower<'_, T> {
        self.words[index as usize].store(AWAKE, Ordering::SeqCst);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // SYNC: datagram-turn. We say that we wait, then look whether the turn is free; who lets it go
        // does that first, and then looks whether anybody waits: one of us sees the other.
        fence(Ordering::SeqCst);
        Follower { turn: self, index, until: None }
    }

    /// Something came for a caller, and is where it will find it: it is to look, if it waits.
    pub(super) fn wake(&self, index: u32) {
        let _ = self.try_wake(index);
    }

    /// The same of all.
    #[cold]
    pub(super) fn wake_all(&self) {
        (0..self.words.len() as u32).for_each(|index| self.wake(index));
    }

    /// Makes a caller look; false if it does not wait, or looks anyway.
    fn try_wake(&self, index: u32) -> bool {
        let word = &self.words[index as usize];
        loop {
            let is = word.load(Ordering::SeqCst);
            if !matches!(is, AWAKE | ASLEEP) {
                return false;
            }
            // SYNC: datagram-word, taken in `Waits::look`.
            if word.compare_exchange(is, WOKEN, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                if is == ASLEEP {
                    sys::futex_wake(word);
                }
                return true;
            }
        }
    }

    /// Sees to it that somebody receives, if anybody waits. Those who were poked before need no more:
    /// each of them takes the turn, or comes here when it leaves.
    #[inline]
    fn appoint(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 && !self.has_leader.load(Ordering::SeqCst) {
            self.wake_one();
        }
    }

    #[cold]
    fn wake_one(&self) {
        let _ = (0..self.words.len() as u32).any(|index| self.try_wake(index));
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst)
    }
}

impl<T> Leader<'_, T> {
    /// What one receives with.
    pub(super) fn input(&mut self) -> &mut T {
        self.input.as_deref_mut().expect("there until dropped")
    }
}

impl<T> Drop for Leader<'_, T> {
    fn drop(&mut self) {
        self.turn.has_leader.store(false, Ordering::SeqCst);
        self.input = None;
        self.turn.appoint();
    }
}

impl<T> Follower<'_, T> {
    fn word(&self) -> &AtomicU32 {
        &self.turn.words[self.index as usize]
    }

    /// Waits until poked, for at most so long, or for no reason; then it is time to look again.
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
            // A few looks at a time: the caller looks at the clock.
            for _ in 0..8 {
                let poked = self.word().load(Ordering::Relaxed) == WOKEN;
                if poked || !self.turn.has_leader.load(Ordering::Relaxed) {
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

    /// From here on it is to be poked again.
    fn reset(&self) {
        // SYNC: datagram-word, released by whoever poked.
        self.word().swap(AWAKE, Ordering::SeqCst);
        // SYNC: datagram-turn, as in `Turn::wait`.
        fence(Ordering::SeqCst);
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.word().compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

impl<T> Drop for Follower<'_, T> {
    fn drop(&mut self) {
        self.word().swap(IDLE, Ordering::SeqCst);
        self.turn.waiting.fetch_sub(1, Ordering::SeqCst);
        // It may have been the one whose turn it was.
        self.turn.appoint();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::thread;

    const LONG: Duration = Duration::from_secs(20);

    fn until(what: &str, condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < LONG, "never: {what}");
            thread::yield_now();
        }
    }

    #[test]
    fn one_has_the_turn_and_passes_it_on_to_one_who_sleeps() {
        for wait in [Wait::Block, Wait::Adaptive, Wait::Spin] {
            let turn = Leadership::new(4, 0);
            let held = turn.try_lead().unwrap();
            assert!(turn.try_lead().is_none());
            thread::scope(|scope| {
                for index in 0..4 {
                    let turn = &turn;
                    scope.spawn(move || {
                        let mut waits = turn.follow(index);
                        let mut held = loop {
                            match turn.try_lead() {
                                Some(held) => break held,
                                None => waits.wait(wait, Duration::MAX),
                            }
                        };
                        drop(waits);
                        *held.input() += 1;
                    });
                }
                until("all wait", || turn.waiting() == 4);
                drop(held);
            });
            assert_eq!((*turn.try_lead().unwrap().input(), turn.waiting()), (4, 0));
        }
    }

    #[test]
    fn who_is_told_looks_and_nobody_else() {
        let turn = Leadership::new(2, ());
        let looks = [const { AtomicU32::new(0) }; 2];
        let ends = AtomicBool::new(false);
        let held = turn.try_lead().unwrap();
        thread::scope(|scope| {
            for index in 0..2 {
                let (turn, looks, ends) = (&turn, &looks, &ends);
                scope.spawn(move || {
                    let mut waits = turn.follow(index);
                    while !ends.load(Ordering::SeqCst) {
                        waits.wait(Wait::Block, Duration::MAX);
                        looks[index as usize].fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            until("both sleep", || {
                turn.words.iter().all(|word| word.load(Ordering::SeqCst) == ASLEEP)
            });
            turn.wake(1);
            until("it looks", || looks[1].load(Ordering::SeqCst) == 1);
            until("it sleeps", || turn.words[1].load(Ordering::SeqCst) == ASLEEP);
            thread::sleep(Duration::from_millis(5));
            assert_eq!(looks[0].load(Ordering::SeqCst), 0);
            ends.store(true, Ordering::SeqCst);
            turn.wake_all();
        });
        drop(held);
        // Who does not wait is not told, nor is anything left for it.
        turn.wake(0);
        assert_eq!(turn.words[0].load(Ordering::SeqCst), IDLE);
    }

    #[test]
    fn a_limit_ends_the_rest() {
        let turn = Leadership::new(1, ());
        let _held = turn.try_lead().unwrap();
        let (start, limit) = (Instant::now(), Duration::from_millis(10));
        turn.follow(0).wait(Wait::Block, limit);
        assert!((limit..LONG).contains(&start.elapsed()));
    }

    #[test]
    fn one_who_leaves_with_what_was_meant_for_it_passes_the_turn_on() {
        let turn = Leadership::new(2, ());
        let held = turn.try_lead().unwrap();
        thread::scope(|scope| {
            let mut first = turn.follow(0);
            let other = scope.spawn(|| {
                let mut waits = turn.follow(1);
                while turn.try_lead().is_none() {
                    waits.wait(Wait::Block, Duration::MAX);
                }
            });
            until("the other sleeps", || turn.words[1].load(Ordering::SeqCst) == ASLEEP);
            // The turn comes to the first, which is awake and does not take it.
            drop(held);
            assert_eq!(turn.words[0].load(Ordering::SeqCst), WOKEN);
            assert_eq!(turn.words[1].load(Ordering::SeqCst), ASLEEP);
            first.wait(Wait::Block, Duration::MAX);
            drop(first);
            other.join().unwrap();
        });
    }

    /// Everybody wants a number that only the one with the turn can give it, as with packets.
    #[test]
    fn nobody_is_left_waiting_with_no_one_receiving() {
        const CALLERS: u32 = 6;
        const ROUNDS: u64 = 3000;
        // What is under way, by caller, and what was given.
        let asked = [const { AtomicU64::new(0) }; CALLERS as usize];
        let given = [const { AtomicU64::new(0) }; CALLERS as usize];
        for wait in [Wait::Block, Wait::Adaptive] {
            let turn = Leadership::new(CALLERS, 0usize);
            asked.iter().chain(&given).for_each(|one| one.store(0, Ordering::SeqCst));
            thread::scope(|scope| {
                for index in 0..CALLERS {
                    let (turn, asked, given) = (&turn, &asked, &given);
                    scope.spawn(move || {
                        for round in 1..=ROUNDS {
                            asked[index as usize].store(round, Ordering::SeqCst);
                            let has = || given[index as usize].load(Ordering::SeqCst) == round;
                            let mut waits = None;
                            while !has() {
                                let Some(mut held) = turn.try_lead() else {
                                    match &mut waits {
                                        None => waits = Some(turn.follow(index)),
                                        Some(waits) => waits.wait(wait, LONG),
                                    }
                                    continue;
                                };
                                waits = None;
                                // One after the other gets what it asked for.
                                while !has() {
                                    let next = (*held.input() + 1) % CALLERS as usize;
                                    *held.input() = next;
                                    let wanted = asked[next].load(Ordering::SeqCst);
                                    if given[next].swap(wanted, Ordering::SeqCst) != wanted {
                                        turn.wake(next as u32);
                                    }
                                }
                            }
                        }
                    });
                }
            });
            assert_eq!(turn.waiting(), 0);
        }
    }
}
