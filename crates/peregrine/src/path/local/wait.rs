//! Waiting for a word: spin, block, or spin for what blocking would cost.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::sync::OnceLock;
use std::time::Instant;

use super::word::{self, Look, SLEEP};
use crate::call::Wait;
use crate::sys;

/// Looks before anything else is thought of: the reply to a short call comes within them.
const FIRST_LOOKS: u32 = 64;
/// Looks between two readings of the clock.
const LOOKS: u32 = 32;
/// Times that the processor is offered to a peer on the same one before sleeping: with luck it
/// runs, finds its message, and is back before any futex was needed.
const YIELDS: u32 = 2;

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A message; the word that posted it.
    Posted(u32),
    /// The session has ended.
    Dead,
    /// The deadline passed.
    Late,
    /// The waiter is wanted elsewhere; the word as it was.
    Interrupted(u32),
}

/// Who waits for whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) wait: Wait,
    /// The processor that this side ran on a moment ago.
    pub(super) own_cpu: u32,
    /// The processor that the other side last ran on: on the same one, spinning keeps it from
    /// running.
    pub(super) peer_cpu: u32,
}

/// Waits for a message other than `seen`.
#[inline]
pub(super) fn wait(
    word: &AtomicU32,
    seen: u32,
    terms: Terms,
    deadline: impl FnOnce() -> Option<Instant>,
    interrupted: impl Fn() -> bool,
) -> Event {
    if terms.wait != Wait::Block && terms.peer_cpu != terms.own_cpu {
        for _ in 0..FIRST_LOOKS {
            if let Look::Posted(message) = word::look(word, seen) {
                return Event::Posted(message);
            }
            spin_loop();
        }
    }
    wait_longer(word, seen, terms, deadline(), &interrupted)
}

#[cold]
fn wait_longer(
    word: &AtomicU32,
    seen: u32,
    terms: Terms,
    deadline: Option<Instant>,
    interrupted: &dyn Fn() -> bool,
) -> Event {
    let mut spin_until = None;
    let mut yields = 0;
    loop {
        let value = match word::look(word, seen) {
            Look::Posted(message) => return Event::Posted(message),
            Look::Dead => return Event::Dead,
            Look::Nothing(value) => value,
        };
        if interrupted() {
            return Event::Interrupted(value);
        }
        let now = (deadline.is_some() || terms.wait == Wait::Adaptive).then(Instant::now);
        let late = |now: Instant| deadline.is_some_and(|deadline| now >= deadline);
        if now.is_some_and(late) {
            return Event::Late;
        }
        let same = terms.peer_cpu == sys::current_cpu();
        let spin = match (terms.wait, now) {
            (Wait::Spin, _) => true,
            (Wait::Adaptive, Some(now)) if !same => {
                now < *spin_until.get_or_insert_with(|| now + block_cost())
            }
            _ => false,
        };
        if spin && same {
            std::thread::yield_now();
        } else if spin {
            for _ in 0..LOOKS {
                if matches!(word::look(word, seen), Look::Posted(_)) {
                    break;
                }
                spin_loop();
            }
        } else if same && yields < YIELDS {
            yields += 1;
            std::thread::yield_now();
        } else if word::fall_asleep(word, value) {
            // Whoever wants us elsewhere sets its mark first and wakes the word then.
            if !interrupted() {
                let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
                sys::futex_wait(word, SLEEP, left);
            }
        }
    }
}

/// What sleeping and waking costs on this machine, measured once: for so long it pays to spin.
/// Nothing where this process has but one processor.
pub(crate) fn block_cost() -> Duration {
    static COST: OnceLock<Duration> = OnceLock::new();
    *COST.get_or_init(|| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        if processors < 2 {
            return Duration::ZERO;
        }
        measure_block_cost().clamp(Duration::from_micros(5), Duration::from_micros(100))
    })
}

/// Half a round trip between two threads that sleep in between.
fn measure_block_cost() -> Duration {
    const ROUNDS: u32 = 24;
    let words = [AtomicU32::new(0), AtomicU32::new(0)];
    let pass = |to: &AtomicU32, round| {
        to.store(round, Ordering::Release);
        sys::futex_wake(to);
    };
    let receive = |from: &AtomicU32, round| {
        while from.load(Ordering::Acquire) != round {
            sys::futex_wait(from, round - 1, Some(Duration::from_millis(1)));
        }
    };
    std::thread::scope(|scope| {
        let echo = std::thread::Builder::new().name("peregrine-gauge".into());
        let echo = echo.spawn_scoped(scope, || {
            for round in 1..=ROUNDS {
                receive(&words[0], round);
                pass(&words[1], round);
            }
        });
        if echo.is_err() {
            return Duration::from_micros(20);
        }
        let mut trips: Vec<Duration> = (1..=ROUNDS)
            .map(|round| {
                let start = Instant::now();
                pass(&words[0], round);
                receive(&words[1], round);
                start.elapsed()
            })
            .collect();
        trips.sort_unstable();
        trips[trips.len() / 2] / 2
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_a_message_a_deadline_or_an_interruption() {
        let word = AtomicU32::new(word::posted(1));
        let soon = || Some(Instant::now() + Duration::from_millis(5));
        for wait_how in [Wait::Spin, Wait::Block, Wait::Adaptive] {
            let terms = Terms { wait: wait_how, own_cpu: 0, peer_cpu: u32::MAX };
            let event = wait(&word, 0, terms, soon, || false);
            assert_eq!(event, Event::Posted(word::posted(1)));
            assert_eq!(wait(&word, word::posted(1), terms, soon, || false), Event::Late);
            let event = wait(&word, word::posted(1), terms, || None, || true);
            assert!(matches!(event, Event::Interrupted(_)));
            word.store(word::posted(1), Ordering::Relaxed);
        }
    }

    #[test]
    fn what_blocking_costs_is_measured_within_bounds() {
        assert!(block_cost() <= Duration::from_micros(100));
    }
}
