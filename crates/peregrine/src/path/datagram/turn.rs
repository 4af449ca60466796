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
const LOOKING: u32 = 1;
const ASLEEP: u32 = 2;
const POKED: u32 = 3;

/// The turn, and with it what one needs to receive.
#[derive(Debug)]
pub(super) struct Turn<T> {
    /// Who has the lock has the turn.
    input: Mutex<T>,
    /// Whether somebody has it: a hint, which is right whenever nobody is just taking it or letting
    /// it go.
    taken: AtomicBool,
    /// How many wait without it.
    waiting: AtomicU32,
    words: Box<[AtomicU32]>,
}

/// The turn; passed on when dropped.
#[derive(Debug)]
pub(super) struct Held<'a, T> {
    turn: &'a Turn<T>,
    /// There until dropped.
    input: Option<MutexGuard<'a, T>>,
}

/// One who waits without the turn.
#[derive(Debug)]
pub(super) struct Waits<'a, T> {
    turn: &'a Turn<T>,
    index: u32,
    /// Until when it looks rather than sleeps.
    until: Option<Instant>,
}

impl<T> Turn<T> {
    /// A turn for so many callers, by number.
    pub(super) fn new(callers: u32, input: T) -> Self {
        Self {
            input: Mutex::ranked(Rank::Receive, input),
            taken: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            words: (0..callers).map(|_| AtomicU32::new(IDLE)).collect(),
        }
    }

    /// The turn, if nobody has it.
    #[inline]
    pub(super) fn try_take(&self) -> Option<Held<'_, T>> {
        let input = self.input.try_lock()?;
        self.taken.store(true, Ordering::SeqCst);
        Some(Held { turn: self, input: Some(input) })
    }

    /// Begins to wait, for what others give it or for the turn. Only what happens before is not told:
    /// so look once more after this, and try to take the turn.
    pub(super) fn wait(&self, index: u32) -> Waits<'_, T> {
        self.words[index as usize].store(LOOKING, Ordering::SeqCst);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // SYNC: datagram-turn. We say that we wait, then look whether the turn is free; who lets it go
        // does that first, and then looks whether anybody waits: one of us sees the other.
        fence(Ordering::SeqCst);
        Waits { turn: self, index, until: None }
    }

    /// Something came for a caller, and is where it will find it: it is to look, if it waits.
    pub(super) fn tell(&self, index: u32) {
        let _ = self.poke(index);
    }

    /// The same of all.
    #[cold]
    pub(super) fn tell_all(&self) {
        (0..self.words.len() as u32).for_each(|index| self.tell(index));
    }

    /// Makes a caller look; false if it does not wait, or looks anyway.
    fn poke(&self, index: u32) -> bool {
        let word = &self.words[index as usize];
        loop {
            let is = word.load(Ordering::SeqCst);
            if !matches!(is, LOOKING | ASLEEP) {
                return false;
            }
            // SYNC: datagram-word, taken in `Waits::look`.
            if word.compare_exchange(is, POKED, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
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
    fn pass_on(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 && !self.taken.load(Ordering::SeqCst) {
            self.poke_one();
        }
    }

    #[cold]
    fn poke_one(&self) {
        let _ = (0..self.words.len() as u32).any(|index| self.poke(index));
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst)
    }
}

impl<T> Held<'_, T> {
    /// What one receives with.
    pub(super) fn input(&mut self) -> &mut T {
        self.input.as_deref_mut().expect("there until dropped")
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.turn.taken.store(false, Ordering::SeqCst);
        self.input = None;
        self.turn.pass_on();
    }
}

impl<T> Waits<'_, T> {
    fn word(&self) -> &AtomicU32 {
        &self.turn.words[self.index as usize]
    }

    /// Waits until poked, for at most so long, or for no reason; then it is time to look again.
    pub(super) fn rest(&mut self, wait: Wait, left: Duration) {
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
                let poked = self.word().load(Ordering::Relaxed) == POKED;
                if poked || !self.turn.taken.load(Ordering::Relaxed) {
                    break;
                }
                std::thread::yield_now();
            }
        } else if self.moves(LOOKING, ASLEEP) {
            let left = (left != Duration::MAX).then_some(left);
            sys::futex_wait(self.word(), ASLEEP, left);
        }
        self.look();
    }

    /// From here on it is to be poked again.
    fn look(&self) {
        // SYNC: datagram-word, released by whoever poked.
        self.word().swap(LOOKING, Ordering::SeqCst);
        // SYNC: datagram-turn, as in `Turn::wait`.
        fence(Ordering::SeqCst);
    }

    fn moves(&self, from: u32, to: u32) -> bool {
        self.word().compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

impl<T> Drop for Waits<'_, T> {
    fn drop(&mut self) {
        self.word().swap(IDLE, Ordering::SeqCst);
        self.turn.waiting.fetch_sub(1, Ordering::SeqCst);
        // It may have been the one whose turn it was.
        self.turn.pass_on();
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
            let turn = Turn::new(4, 0);
            let held = turn.try_take().unwrap();
            assert!(turn.try_take().is_none());
            thread::scope(|scope| {
                for index in 0..4 {
                    let turn = &turn;
                    scope.spawn(move || {
                        let mut waits = turn.wait(index);
                        let mut held = loop {
                            match turn.try_take() {
                                Some(held) => break held,
                                None => waits.rest(wait, Duration::MAX),
                            }
                        };
                        drop(waits);
                        *held.input() += 1;
                    });
                }
                until("all wait", || turn.waiting() == 4);
                drop(held);
            });
            assert_eq!((*turn.try_take().unwrap().input(), turn.waiting()), (4, 0));
        }
    }

    #[test]
    fn who_is_told_looks_and_nobody_else() {
        let turn = Turn::new(2, ());
        let looks = [const { AtomicU32::new(0) }; 2];
        let ends = AtomicBool::new(false);
        let held = turn.try_take().unwrap();
        thread::scope(|scope| {
            for index in 0..2 {
                let (turn, looks, ends) = (&turn, &looks, &ends);
                scope.spawn(move || {
                    let mut waits = turn.wait(index);
                    while !ends.load(Ordering::SeqCst) {
                        waits.rest(Wait::Block, Duration::MAX);
                        looks[index as usize].fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            until("both sleep", || {
                turn.words.iter().all(|word| word.load(Ordering::SeqCst) == ASLEEP)
            });
            turn.tell(1);
            until("it looks", || looks[1].load(Ordering::SeqCst) == 1);
            until("it sleeps", || turn.words[1].load(Ordering::SeqCst) == ASLEEP);
            thread::sleep(Duration::from_millis(5));
            assert_eq!(looks[0].load(Ordering::SeqCst), 0);
            ends.store(true, Ordering::SeqCst);
            turn.tell_all();
        });
        drop(held);
        // Who does not wait is not told, nor is anything left for it.
        turn.tell(0);
        assert_eq!(turn.words[0].load(Ordering::SeqCst), IDLE);
    }

    #[test]
    fn a_limit_ends_the_rest() {
        let turn = Turn::new(1, ());
        let _held = turn.try_take().unwrap();
        let (start, limit) = (Instant::now(), Duration::from_millis(10));
        turn.wait(0).rest(Wait::Block, limit);
        assert!((limit..LONG).contains(&start.elapsed()));
    }

    #[test]
    fn one_who_leaves_with_what_was_meant_for_it_passes_the_turn_on() {
        let turn = Turn::new(2, ());
        let held = turn.try_take().unwrap();
        thread::scope(|scope| {
            let mut first = turn.wait(0);
            let other = scope.spawn(|| {
                let mut waits = turn.wait(1);
                while turn.try_take().is_none() {
                    waits.rest(Wait::Block, Duration::MAX);
                }
            });
            until("the other sleeps", || turn.words[1].load(Ordering::SeqCst) == ASLEEP);
            // The turn comes to the first, which is awake and does not take it.
            drop(held);
            assert_eq!(turn.words[0].load(Ordering::SeqCst), POKED);
            assert_eq!(turn.words[1].load(Ordering::SeqCst), ASLEEP);
            first.rest(Wait::Block, Duration::MAX);
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
            let turn = Turn::new(CALLERS, 0usize);
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
                                let Some(mut held) = turn.try_take() else {
                                    match &mut waits {
                                        None => waits = Some(turn.wait(index)),
                                        Some(waits) => waits.rest(wait, LONG),
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
                                        turn.tell(next as u32);
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
