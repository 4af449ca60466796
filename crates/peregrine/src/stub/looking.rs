//! How the future of a pending call looks for its result before it sleeps.

use core::task::Waker;
use core::time::Duration;
use std::time::Instant;

use crate::call::{Wait, block_cost};

/// The number of times that a future looks for its result between two readings of the clock.
const LOOKS: u32 = 32;
/// For how long a future looks for its result with [`Wait::Spin`]. Then the future sleeps, because on the
/// local path the client repeats a ring only while the future sleeps. A ring must be repeated if no thread of
/// the server takes the call.
const SPIN_MAX: Duration = Duration::from_millis(10);

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
pub(super) fn spin<T>(
    wait: Wait,
    looking: &mut Looking,
    waker: &Waker,
    only: impl Fn() -> bool,
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
    let is_over = match *looking {
        Looking::Until(until) => Instant::now() >= until,
        _ => wait == Wait::Block,
    };
    if is_over {
        return Looked::Sleep;
    }
    // If this is the only pending call, its future looks many times, as a thread would. Otherwise the futures
    // look in turn.
    for _ in 0..if only() { LOOKS } else { 0 } {
        core::hint::spin_loop();
        if let Some(found) = look() {
            return Looked::Found(found);
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
