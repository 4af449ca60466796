//! Defines a *window*: an interval in which several callers (threads or processes) count their calls.
//!
//! All callers start before the window begins and stop after it has ended. So the calls of each caller are
//! counted while all other callers call, too. Only calls that begin and end in the window count. Reading the
//! clock takes a considerable part of the time of a call, so callers read it rarely. Therefore some calls at
//! either end of the window do not count. Their number is about the same for each caller.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::subject::{Failure, Sample};

/// An interval of time, by the clock that all processes of a machine share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) begins_ns: u64,
    pub(crate) ends_ns: u64,
}

/// The counts of one caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// The number of calls inside the window.
    pub(crate) calls: u64,
    /// The number of all calls, including those before and after the window.
    pub(crate) all: u64,
    /// The delay in nanoseconds with which the caller began after the window's start; 0 if it was in time.
    pub(crate) late_ns: u64,
}

/// The time in nanoseconds for which a caller calls between two readings of the clock: at most a
/// two-thousandth of a window.
const LOOK_NS: u64 = 5000;
/// The largest number of calls between two readings of the clock.
const CALLS_MAX: u64 = 128;

/// Returns the current time in nanoseconds, by the clock that all processes of a machine share.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Window {
    /// Returns a window of `ns` nanoseconds that begins `in_ns` nanoseconds after `now`.
    pub(crate) const fn after(now: u64, in_ns: u64, ns: u64) -> Self {
        Self { begins_ns: now + in_ns, ends_ns: now + in_ns + ns }
    }

    /// Returns the length of the window in nanoseconds.
    pub(crate) const fn ns(self) -> u64 {
        self.ends_ns - self.begins_ns
    }

    /// Calls `call` until the window has ended, and counts the calls.
    ///
    /// # Errors
    /// Returns the error of the first call that fails.
    pub(crate) fn count<E>(
        self,
        mut now: impl FnMut() -> u64,
        mut call: impl FnMut() -> Result<(), E>,
    ) -> Result<Counted, E> {
        let mut began = now();
        let mut counted =
            Counted { late_ns: began.saturating_sub(self.begins_ns), ..Counted::default() };
        let mut calls = 1;
        while began < self.ends_ns {
            for _ in 0..calls {
                call()?;
            }
            let ended = now();
            counted.all += calls;
            if began >= self.begins_ns && ended <= self.ends_ns {
                counted.calls += calls;
            }
            let each = ended.saturating_sub(began) / calls;
            calls = (LOOK_NS / each.max(1)).clamp(1, CALLS_MAX);
            began = ended;
        }
        Ok(counted)
    }
}

/// The time in nanoseconds from the moment when all callers are ready until the window begins, in the first
/// attempt. All callers usually begin within this time. Each further attempt doubles the time.
const LEAD_NS: u64 = 20_000_000;
/// The number of windows that are tried before the measurement fails because callers begin too late.
const ATTEMPTS: u32 = 5;

/// Returns the length of a window divided by the number of all calls in the window. Also returns the
/// processor time per call, if it is known. `call` runs the callers. When all of them are ready, `call`
/// passes the current time to its argument (a function), which returns the window. At the end, `call` returns
/// the counts of each caller, and the processor time if it is known.
///
/// # Errors
/// If `call` fails, or callers begin too late in every attempt.
pub(crate) fn sample(
    length: Duration,
    mut call: impl FnMut(&dyn Fn(u64) -> Window) -> Result<(Vec<Counted>, Option<Duration>), Failure>,
) -> Result<Sample, Failure> {
    for attempt in 0..ATTEMPTS {
        let lead_ns = LEAD_NS << attempt;
        let (counted, ran) = call(&|now| Window::after(now, lead_ns, length.as_nanos() as u64))?;
        if counted.iter().any(|one| one.late_ns > 0) {
            continue;
        }
        let calls: u64 = counted.iter().map(|one| one.calls).sum();
        let all: u64 = counted.iter().map(|one| one.all).sum();
        if calls == 0 {
            return Err("no call ended within the window".into());
        }
        let cpu_ns = ran.map(|ran| ran.as_nanos() as f64 / all as f64);
        return Ok(Sample { ns: length.as_nanos() as f64 / calls as f64, cpu_ns });
    }
    Err("the machine is too busy: callers begin too late".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Returns the counts of a caller that begins at `start`, and whose calls take `each` nanoseconds.
    fn counted(window: Window, start: u64, each: u64) -> Counted {
        let clock = Cell::new(start);
        let call = || {
            clock.set(clock.get() + each);
            Ok::<(), ()>(())
        };
        window.count(|| clock.get(), call).unwrap()
    }

    #[test]
    fn only_calls_inside_the_window_count() {
        let window = Window::after(0, 1_000_000, 10_000_000);
        assert_eq!(window.ns(), 10_000_000);
        // Calls of 100 ns: 100,000 of them fit into the window. The clock is read only after several calls.
        // So a few calls near the start and the end of the window may not be counted.
        let Counted { calls, all, late_ns } = counted(window, 0, 100);
        assert!((99_850..=100_000).contains(&calls), "{calls}");
        assert!((110_000..=110_050).contains(&all), "{all}");
        assert_eq!(late_ns, 0);
        // Calls of 3 ms: the calls that run when the window begins and when it ends do not count.
        assert_eq!(counted(window, 0, 3_000_000), Counted { calls: 2, all: 4, late_ns: 0 });
    }

    #[test]
    fn late_caller_reports_its_delay() {
        let window = Window::after(0, 1_000_000, 10_000_000);
        assert_eq!(counted(window, 3_000_000, 100).late_ns, 2_000_000);
        let Counted { calls, all, .. } = counted(window, 12_000_000, 100);
        assert_eq!((calls, all), (0, 0));
    }

    #[test]
    fn first_failure_ends_the_window() {
        let window = Window::after(0, 0, 1000);
        assert_eq!(window.count(|| 0, || Err("gone")), Err("gone"));
    }
}
