//! How the future of a pending call looks for its result before it sleeps.

use core::task::Waker;
use core::time::Duration;
use std::thread;
use std::time::Instant;

use crate::call::{Wait, block_cost};
use crate::sys;

/// The number of times that a future looks for its result between two readings of the clock.
const LOOKS: u32 = 32;
/// For how long a future looks for its result with [`Wait::Spin`]. Then the future sleeps, because on the
/// local path the client repeats a ring only while the future sleeps. A ring must be repeated if no thread of
/// the server takes the call.
const SPIN_MAX: Duration = Duration::from_millis(10);
/// The number of times that a future yields a processor that it shares with the server, before it sleeps.
const YIELDS: u32 = 2;

/// How long the future of a pending call has looked for its result.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Looking {
    #[default]
    NotYet,
    /// The future has begun to look, but has not read the clock yet.
    Briefly,
    /// The future looks until this time, and then sleeps.
    Until(Instant),
}

/// The outcome of [`spin`].
pub(super) enum Looked<T> {
    Found(T),
    /// The future has woken itself: it looks again when the other futures of its task have run.
    Again,
    /// The future has looked for long enough.
    Sleep,
}

/// Returns how long a future looks for a result before it sleeps.
pub(super) fn looks_for(wait: Wait) -> Duration {
    match wait {
        Wait::Spin => SPIN_MAX,
        Wait::Adaptive => block_cost(),
        Wait::Block => Duration::ZERO,
    }
}

/// Looks for a result for as long as `wait` says. `only` returns whether no other call is pending.
/// `server_cpu` returns the processor on which the server runs, if that is known.
pub(super) fn spin<T>(
    wait: Wait,
    looking: &mut Looking,
    waker: &Waker,
    only: impl Fn() -> bool,
    server_cpu: impl Fn() -> Option<u32>,
    mut look: impl FnMut() -> Option<T>,
) -> Looked<T> {
    if let Looking::NotYet = looking {
        // The other futures of this task run first: they may begin calls, too.
        *looking = Looking::Briefly;
        waker.wake_by_ref();
        return Looked::Again;
    }
    if let Some(found) = look() {
        return Looked::Found(found);
    }
    let shares_cpu = shares_cpu(server_cpu());
    if shares_cpu == Some(true) {
        for _ in 0..YIELDS {
            thread::yield_now();
            if let Some(found) = look() {
                return Looked::Found(found);
            }
        }
        if wait != Wait::Spin {
            return Looked::Sleep;
        }
    }
    let is_over = match *looking {
        Looking::Until(until) => Instant::now() >= until,
        _ => wait == Wait::Block,
    };
    if is_over {
        return Looked::Sleep;
    }
    // If this is the only pending call, its future looks many times, as a thread would. Otherwise the futures
    // look in turn.
    if shares_cpu != Some(true) && only() {
        for _ in 0..LOOKS {
            core::hint::spin_loop();
            if let Some(found) = look() {
                return Looked::Found(found);
            }
        }
        if shares_cpu.is_none() {
            // The server may need this processor.
            thread::yield_now();
        }
    }
    // The clock is not read if the reply comes quickly, because reading the clock takes long compared with a
    // call.
    if let Looking::Briefly = looking {
        *looking = Looking::Until(Instant::now() + looks_for(wait));
    }
    waker.wake_by_ref();
    Looked::Again
}

/// Returns whether this thread runs on the processor of the server, if that processor is known. If so, the
/// server runs only while this thread does not.
pub(super) fn shares_cpu(server_cpu: Option<u32>) -> Option<bool> {
    server_cpu.map(|cpu| cpu == sys::current_cpu())
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// Returns how often a future looks for a result that never comes, until it sleeps. `None` if it has not
    /// slept after 1,000 polls.
    fn looks_until_sleep(wait: Wait, server_cpu: Option<u32>) -> Option<u32> {
        let (looks, mut looking) = (Cell::new(0), Looking::default());
        let look = || {
            looks.set(looks.get() + 1);
            None::<()>
        };
        let sleeps = |_: &u32| {
            let looked = spin(wait, &mut looking, Waker::noop(), || true, || server_cpu, look);
            matches!(looked, Looked::Sleep)
        };
        (0..1000).find(sleeps)?;
        Some(looks.get())
    }

    #[test]
    fn future_polls_only_if_the_server_runs_on_another_processor() {
        let here = sys::current_cpu();
        if sys::pin_to(here).is_err() {
            return;
        }
        // One look, and one after each yield.
        assert_eq!(looks_until_sleep(Wait::Adaptive, Some(here)), Some(1 + YIELDS));
        assert_eq!(looks_until_sleep(Wait::Block, Some(here)), Some(1 + YIELDS));
        assert_eq!(looks_until_sleep(Wait::Block, Some(u32::MAX)), Some(1));
        assert_eq!(looks_until_sleep(Wait::Block, None), Some(1));
        // With two processors or more, polling is worth more than nothing.
        if !block_cost().is_zero() {
            let looks = looks_until_sleep(Wait::Adaptive, Some(u32::MAX));
            assert!(looks.is_none_or(|looks| looks > LOOKS), "{looks:?}");
        }
    }
}
