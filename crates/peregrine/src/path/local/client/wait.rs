//! Waiting for a word: spin, block, or spin for what blocking would cost.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use core::time::Duration;
use std::time::Instant;

use crate::call::{Wait, block_cost};
use crate::path::local::region::word::{self, Look, SLEEP};
use crate::sys;

/// Looks before anything else is thought of: the reply to a short call comes within them.
pub(crate) const FIRST_LOOKS: u32 = 64;
/// Looks between two readings of the clock.
const LOOKS: u32 = 32;
/// Times that the processor is offered to a peer on the same one before sleeping: with luck it
/// runs, finds its message, and is back before any futex was needed.
pub(crate) const YIELDS: u32 = 2;

/// How long a caller waits before it asks whether anybody has seen its call; then twice as long,
/// and so on.
const UNSEEN: Duration = Duration::from_millis(1);
const UNSEEN_MAX: Duration = Duration::from_millis(128);
/// Rounds of [`LOOKS`] that take about as long as [`UNSEEN`].
const UNSEEN_ROUNDS: u32 = 1024;

/// The rounds of a caller that spins, until it asks whether anybody has seen its call: twice as many
/// each time, up to as many as take [`UNSEEN_MAX`].
struct Rounds {
    left: u32,
    next: u32,
}

impl Rounds {
    const MOST: u32 = UNSEEN_ROUNDS * (UNSEEN_MAX.as_millis() / UNSEEN.as_millis()) as u32;

    const fn new() -> Self {
        Self { left: UNSEEN_ROUNDS, next: UNSEEN_ROUNDS }
    }

    /// Counts a round; whether it is time to ask.
    const fn is_over(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        if self.next < Self::MOST {
            self.next *= 2;
        }
        self.left = self.next;
        true
    }
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A message; the word that posted it.
    Posted(u32),
    /// The session has ended, or the word is none that anybody writes there.
    Dead,
    /// The deadline passed.
    Late,
}

/// Who waits for whom, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) wait: Wait,
    /// The processor that this side last knew itself on; looked up again only when a wait is long.
    pub(crate) own_cpu: u32,
    /// The processor that the other side last ran on: on the same one, spinning keeps it from
    /// running.
    pub(crate) peer_cpu: u32,
}

/// Long waits on the caller's processor before a server's thread moves away. A caller stays where
/// its program put it.
pub(crate) const PATIENCE: u32 = 16;

/// What a waiter asks while it waits.
pub(crate) trait Waiter {
    /// When it gives up.
    fn deadline(&self) -> Option<Instant>;
    /// Whether its session has ended.
    fn is_over(&self) -> bool;
    /// It has waited for long: is there something to be done about it?
    fn unseen(&self);
    /// Whether there is news from the other side, short of a message; it has been seen to.
    fn news(&mut self) -> bool {
        false
    }
}

/// Waits for a message other than `seen`.
#[inline]
pub(crate) fn wait(
    word: &AtomicU32,
    seen: u32,
    terms: &mut Terms,
    waiter: &mut impl Waiter,
) -> Event {
    if terms.wait != Wait::Block && terms.peer_cpu != terms.own_cpu {
        for _ in 0..FIRST_LOOKS {
            if let Look::Posted(message) = word::look(word, seen) {
                return Event::Posted(message);
            }
            spin_loop();
        }
    }
    wait_longer(word, seen, terms, waiter)
}

/// As [`wait`], for a message that is not expected at once.
#[cold]
pub(crate) fn wait_longer(
    word: &AtomicU32,
    seen: u32,
    terms: &mut Terms,
    waiter: &mut dyn Waiter,
) -> Event {
    let deadline = waiter.deadline();
    let (mut spin_until, mut yields, mut rounds) = (None, 0, Rounds::new());
    let (mut asked, mut patience) = (None, UNSEEN);
    terms.own_cpu = sys::current_cpu();
    loop {
        let value = match word::look(word, seen) {
            Look::Posted(message) => return Event::Posted(message),
            Look::Dead => return Event::Dead,
            Look::Nothing(value) if value == seen || value == SLEEP || value == word::AWAY => value,
            // A message may have been there and was written over: it would not come again.
            Look::Nothing(_) => return Event::Dead,
        };
        if waiter.is_over() {
            return Event::Dead;
        }
        let now = (deadline.is_some() || terms.wait == Wait::Adaptive).then(Instant::now);
        let late = |now: Instant| deadline.is_some_and(|deadline| now >= deadline);
        if now.is_some_and(late) {
            return Event::Late;
        }
        terms.own_cpu = sys::current_cpu();
        let same = terms.peer_cpu == terms.own_cpu;
        let spin = match (terms.wait, now) {
            (Wait::Spin, _) => true,
            (Wait::Adaptive, Some(now)) if !same => {
                now < *spin_until.get_or_insert_with(|| now + block_cost())
            }
            _ => false,
        };
        if spin && rounds.is_over() {
            waiter.unseen();
        }
        if spin && same {
            std::thread::yield_now();
        } else if spin {
            for _ in 0..LOOKS {
                if matches!(word::look(word, seen), Look::Posted(_)) {
                    break;
                }
                if waiter.news() {
                    // The other side is at it: it is worth waiting for.
                    spin_until = None;
                }
                spin_loop();
            }
        } else if same && yields < YIELDS {
            yields += 1;
            std::thread::yield_now();
        } else if word::fall_asleep(word, value) {
            // SYNC: rouse. Who wants us sets its mark, then changes the word; we changed the word,
            // and now look at the mark: one of us sees the other.
            fence(Ordering::SeqCst);
            if waiter.is_over() {
                continue;
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            sys::futex_wait(word, SLEEP, Some(left.map_or(patience, |left| left.min(patience))));
            if !matches!(word::look(word, seen), Look::Posted(_)) {
                // A first sleep that was as long as it may be, or woken for nothing.
                let since = *asked.get_or_insert_with(Instant::now);
                if since.elapsed() >= patience || patience == UNSEEN {
                    asked = Some(Instant::now());
                    patience = (patience * 2).min(UNSEEN_MAX);
                    waiter.unseen();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Test {
        deadline: Option<Instant>,
        over: bool,
        asked: AtomicU32,
    }

    impl Waiter for Test {
        fn deadline(&self) -> Option<Instant> {
            self.deadline
        }
        fn is_over(&self) -> bool {
            self.over
        }
        fn unseen(&self) {
            self.asked.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wait_ends_with_a_message_a_deadline_or_the_session() {
        let word = AtomicU32::new(word::posted(1));
        // Measured once, which on a busy machine takes longer than the deadline below.
        let _ = block_cost();
        for wait_how in [Wait::Spin, Wait::Block, Wait::Adaptive] {
            let deadline = Some(Instant::now() + Duration::from_millis(60));
            let mut waiter = Test { deadline, over: false, asked: AtomicU32::new(0) };
            let terms = &mut Terms { wait: wait_how, own_cpu: 0, peer_cpu: u32::MAX };
            let event = wait(&word, 0, terms, &mut waiter);
            assert_eq!(event, Event::Posted(word::posted(1)));
            assert_eq!(wait(&word, word::posted(1), terms, &mut waiter), Event::Late);
            let asked = waiter.asked.load(Ordering::Relaxed);
            assert!((1..32).contains(&asked), "asked {asked} times, {wait_how:?}");
            waiter.over = true;
            assert_eq!(wait(&word, word::posted(1), terms, &mut waiter), Event::Dead);
            word.store(word::posted(1), Ordering::Relaxed);
        }
    }

    #[test]
    fn caller_that_spins_for_long_asks_no_more_seldom_than_one_that_sleeps() {
        let (mut rounds, mut since, mut longest) = (Rounds::new(), 0, 0);
        let mut asked = 0;
        for _ in 0..100 * Rounds::MOST {
            since += 1;
            if rounds.is_over() {
                asked += 1;
                longest = longest.max(since);
                since = 0;
            }
        }
        assert_eq!(longest, Rounds::MOST);
        assert!((98..120).contains(&asked), "asked {asked} times");
    }
}
