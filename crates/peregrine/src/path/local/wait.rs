//! Waiting for a word: spin, block, or spin for what blocking would cost.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering, fence};
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

/// Who waits for whom, and where. The side that waits keeps it from call to call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) wait: Wait,
    /// The processor that this side last knew itself on; looked up again only when a wait is long.
    pub(super) own_cpu: u32,
    /// The processor that the other side last ran on: on the same one, spinning keeps it from
    /// running.
    pub(super) peer_cpu: u32,
    /// Whether this side moves away from a processor that both find themselves on.
    moves: bool,
    /// Long waits in a row on the other side's own processor, and after how many we move.
    together: u32,
    patience: u32,
}

impl Terms {
    /// For a server's thread, which attends to one A-stack for long: it moves away.
    pub(super) fn new(wait: Wait) -> Self {
        let own_cpu = sys::current_cpu();
        Self { wait, own_cpu, peer_cpu: u32::MAX, moves: true, together: 0, patience: PATIENCE }
    }

    /// For a caller, whose threads change: it stays where its program put it.
    #[inline]
    pub(super) const fn of_caller(wait: Wait, own_cpu: u32, peer_cpu: u32) -> Self {
        Self { wait, own_cpu, peer_cpu, moves: false, together: 0, patience: PATIENCE }
    }

    /// Both sides were put on one processor, as schedulers like to do with threads that wake each
    /// other. Where there are others, a call between two is twenty times as fast.
    #[cold]
    fn on_one_processor(&mut self) {
        self.together += 1;
        if self.moves && self.together >= self.patience {
            self.together = 0;
            // If we are brought back every time, we ask ever less often.
            self.patience = self.patience.saturating_mul(2);
            sys::leave_cpu(self.own_cpu);
        }
    }
}

/// Long waits on the same processor before a side moves away.
const PATIENCE: u32 = 16;

/// Waits for a message other than `seen`.
#[inline]
pub(super) fn wait(
    word: &AtomicU32,
    seen: u32,
    terms: &mut Terms,
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
    terms: &mut Terms,
    deadline: Option<Instant>,
    interrupted: &dyn Fn() -> bool,
) -> Event {
    let mut spin_until = None;
    let mut yields = 0;
    terms.own_cpu = sys::current_cpu();
    if terms.wait != Wait::Block && terms.peer_cpu == terms.own_cpu {
        terms.on_one_processor();
    }
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
        terms.own_cpu = sys::current_cpu();
        let same = terms.peer_cpu == terms.own_cpu;
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
            // SYNC: rouse. Who wants us sets its mark, then changes the word; we changed the word,
            // and now look at the mark: one of us sees the other.
            fence(Ordering::SeqCst);
            if !interrupted() {
                let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
                sys::futex_wait(word, SLEEP, left);
            }
        }
    }
}

/// What sleeping and waking costs on this machine, measured once: for so long it pays to spin.
/// Nothing where the machine has but one processor. Threads may be bound to fewer, one by one:
/// that they share one with their peer is seen call by call.
pub(crate) fn block_cost() -> Duration {
    static COST: OnceLock<Duration> = OnceLock::new();
    *COST.get_or_init(|| {
        if sys::online_cpus() < 2 {
            return Duration::ZERO;
        }
        measure_block_cost().clamp(Duration::from_micros(5), Duration::from_micros(100))
    })
}

/// A round trip between two threads that sleep in between, each on a processor of its own.
fn measure_block_cost() -> Duration {
    const ROUNDS: u32 = 24;
    const GUESS: Duration = Duration::from_micros(30);
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
    let gauge = || std::thread::Builder::new().name("peregrine-gauge".into());
    std::thread::scope(|scope| {
        // Threads of their own, for whoever asks may be bound to one processor. Where they may
        // not go apart, they measure the hand-over on one, which is what there is to measure.
        let echo = gauge().spawn_scoped(scope, || {
            let _ = sys::pin_to(1);
            for round in 1..=ROUNDS {
                receive(&words[0], round);
                pass(&words[1], round);
            }
        });
        if echo.is_err() {
            return GUESS;
        }
        let ask = || {
            let _ = sys::pin_to(0);
            let mut trips: Vec<Duration> = (1..=ROUNDS)
                .map(|round| {
                    let start = Instant::now();
                    pass(&words[0], round);
                    receive(&words[1], round);
                    start.elapsed()
                })
                .collect();
            trips.sort_unstable();
            trips[trips.len() / 2]
        };
        match gauge().spawn_scoped(scope, ask) {
            Ok(asks) => asks.join().unwrap_or(GUESS),
            // The echo waits for nobody: it must be let go.
            Err(_) => {
                (1..=ROUNDS).for_each(|round| {
                    pass(&words[0], round);
                    receive(&words[1], round);
                });
                GUESS
            }
        }
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
            let terms = &mut Terms::of_caller(wait_how, 0, u32::MAX);
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
