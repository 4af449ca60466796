//! How a client waits until the server changes a word: the client polls, or it sleeps, or it polls for as
//! long as a sleep would cost and then sleeps.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use core::time::Duration;
use std::time::Instant;

use crate::call::{Wait, block_cost};
use crate::path::local::region::word::{self, FIRST_POLLS, Look, SLEEP, YIELDS};
use crate::sys;

/// The number of times that a waiting thread polls between two readings of the clock.
const POLLS: u32 = 32;

/// After this time, a waiting caller checks whether the server has taken its call. The interval to the next
/// check doubles each time, up to [`ASK_AFTER_MAX`].
const ASK_AFTER: Duration = Duration::from_millis(1);
/// The longest interval between two of these checks.
const ASK_AFTER_MAX: Duration = Duration::from_millis(128);
/// The number of polling rounds that take about as long as [`ASK_AFTER`]. A round has [`POLLS`] polls.
const ASK_AFTER_ROUNDS: u32 = 1024;

/// Counts the polling rounds of a caller. Counting costs less than reading the clock. After each check, the
/// number of rounds until the next check doubles, as described at [`ASK_AFTER`].
struct PollBackoff {
    left: u32,
    next: u32,
}

impl PollBackoff {
    const MOST: u32 = ASK_AFTER_ROUNDS * (ASK_AFTER_MAX.as_millis() / ASK_AFTER.as_millis()) as u32;

    const fn new() -> Self {
        Self { left: ASK_AFTER_ROUNDS, next: ASK_AFTER_ROUNDS }
    }

    /// Counts a round of polls. Returns whether a check is due.
    const fn is_due(&mut self) -> bool {
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
pub(crate) enum WaitEnd {
    /// A message was posted. The number is the [`posted`](word::posted) value of the message.
    Posted(u32),
    /// The session has ended, or the word has a value that neither side writes.
    Dead,
    /// The deadline passed without a message.
    Late,
}

/// How a thread waits, and on which processors the thread and its peer run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitState {
    pub(crate) wait: Wait,
    /// The processor on which this thread last ran. A long wait updates this value.
    pub(crate) own_cpu: u32,
    /// The processor on which the peer last ran. If this thread runs on the same processor, polling keeps the
    /// peer from running.
    pub(crate) peer_cpu: u32,
}

/// The callbacks of [`wait()`].
pub(crate) trait Waiter {
    /// Returns the time at which the thread gives up, if there is one.
    fn deadline(&self) -> Option<Instant>;
    /// Returns whether the session has ended.
    fn is_over(&self) -> bool;
    /// Checks whether the server has taken the call. [`wait()`] calls this when the wait has lasted long.
    fn on_long_wait(&self);
    /// Handles progress that the peer has announced. Returns whether there was any progress.
    fn poll_progress(&mut self) -> bool {
        false
    }
}

/// Waits for a new message. `last` is the [`posted`](word::posted) value of the message that was taken last.
#[inline]
pub(crate) fn wait(
    word: &AtomicU32,
    last: u32,
    state: &mut WaitState,
    waiter: &mut impl Waiter,
) -> WaitEnd {
    if state.wait != Wait::Block && state.peer_cpu != state.own_cpu {
        for _ in 0..FIRST_POLLS {
            if let Look::Posted(id) = word::look(word, last) {
                return WaitEnd::Posted(id);
            }
            spin_loop();
        }
    }
    wait_longer(word, last, state, waiter)
}

/// Waits as [`wait`] does, for a message that is not expected at once.
#[cold]
pub(crate) fn wait_longer(
    word: &AtomicU32,
    last: u32,
    state: &mut WaitState,
    waiter: &mut dyn Waiter,
) -> WaitEnd {
    let deadline = waiter.deadline();
    let (mut spin_until, mut yields, mut backoff) = (None, 0, PollBackoff::new());
    let (mut asked, mut ask_after) = (None, ASK_AFTER);
    state.own_cpu = sys::current_cpu();
    loop {
        let value = match word::look(word, last) {
            Look::Posted(id) => return WaitEnd::Posted(id),
            Look::Dead => return WaitEnd::Dead,
            Look::Nothing(value) if value == last || value == SLEEP || value == word::AWAY => value,
            // A stray write has changed the word. It may have overwritten a message that the peer will not
            // post again.
            Look::Nothing(_) => return WaitEnd::Dead,
        };
        if waiter.is_over() {
            return WaitEnd::Dead;
        }
        let now = (deadline.is_some() || state.wait == Wait::Adaptive).then(Instant::now);
        let late = |now: Instant| deadline.is_some_and(|deadline| now >= deadline);
        if now.is_some_and(late) {
            return WaitEnd::Late;
        }
        state.own_cpu = sys::current_cpu();
        let same = state.peer_cpu == state.own_cpu;
        let spin = match (state.wait, now) {
            (Wait::Spin, _) => true,
            (Wait::Adaptive, Some(now)) if !same => {
                now < *spin_until.get_or_insert_with(|| now + block_cost())
            }
            _ => false,
        };
        if spin && backoff.is_due() {
            waiter.on_long_wait();
        }
        if spin && same {
            std::thread::yield_now();
        } else if spin {
            for _ in 0..POLLS {
                if matches!(word::look(word, last), Look::Posted(_)) {
                    break;
                }
                if waiter.poll_progress() {
                    // The peer is writing the reply, and the reply will soon be complete. The time limit of
                    // polling begins again.
                    spin_until = None;
                }
                spin_loop();
            }
        } else if same && yields < YIELDS {
            yields += 1;
            std::thread::yield_now();
        } else if word::mark_asleep(word, value) {
            // SYNC: rouse. A thread that wants to wake this thread first sets a flag, then changes the word.
            // This thread has changed the word, and now reads the flag. At least one of the two threads sees
            // what the other thread wrote.
            fence(Ordering::SeqCst);
            if waiter.is_over() {
                continue;
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let longest = left.map_or(ask_after, |left| left.min(ask_after));
            sys::futex_wait(word, SLEEP, Some(longest));
            if !matches!(word::look(word, last), Look::Posted(_)) {
                // The first sleep without a message always causes a check, even if the sleep ended early.
                let since = *asked.get_or_insert_with(Instant::now);
                if since.elapsed() >= ask_after || ask_after == ASK_AFTER {
                    asked = Some(Instant::now());
                    ask_after = (ask_after * 2).min(ASK_AFTER_MAX);
                    waiter.on_long_wait();
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
        fn on_long_wait(&self) {
            self.asked.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn message_deadline_and_end_of_session_each_end_a_wait() {
        let word = AtomicU32::new(word::posted(1));
        // The first call of `block_cost` measures the cost. On a busy machine, the measurement may take
        // longer than the deadline below.
        let _ = block_cost();
        for wait_how in [Wait::Spin, Wait::Block, Wait::Adaptive] {
            let deadline = Some(Instant::now() + Duration::from_millis(60));
            let mut waiter = Test { deadline, over: false, asked: AtomicU32::new(0) };
            let state = &mut WaitState { wait: wait_how, own_cpu: 0, peer_cpu: u32::MAX };
            let end = wait(&word, 0, state, &mut waiter);
            assert_eq!(end, WaitEnd::Posted(word::posted(1)));
            assert_eq!(wait(&word, word::posted(1), state, &mut waiter), WaitEnd::Late);
            let asked = waiter.asked.load(Ordering::Relaxed);
            assert!((1..32).contains(&asked), "asked {asked} times, {wait_how:?}");
            waiter.over = true;
            assert_eq!(wait(&word, word::posted(1), state, &mut waiter), WaitEnd::Dead);
            word.store(word::posted(1), Ordering::Relaxed);
        }
    }

    #[test]
    fn polling_caller_checks_as_often_as_a_sleeping_caller() {
        let (mut backoff, mut since, mut longest) = (PollBackoff::new(), 0, 0);
        let mut asked = 0;
        for _ in 0..100 * PollBackoff::MOST {
            since += 1;
            if backoff.is_due() {
                asked += 1;
                longest = longest.max(since);
                since = 0;
            }
        }
        assert_eq!(longest, PollBackoff::MOST);
        assert!((98..120).contains(&asked), "asked {asked} times");
    }
}
