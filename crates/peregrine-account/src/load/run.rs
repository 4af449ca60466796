//! Makes calls: as fast as possible, and at random moments that do not depend on earlier calls.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::fs;
use std::thread;
use std::time::Instant;

use peregrine::CallError;

use super::Caller;

/// How long before its begin a run is planned, so that all threads are there in time.
const LEAD: Duration = Duration::from_millis(3);

/// A call of a run. Times are in nanoseconds since the begin of the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    /// When it should have begun.
    pub(super) due: u64,
    pub(super) begun: u64,
    pub(super) ended: u64,
}

/// The calls of a run.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// In the order in which they were due.
    pub(super) calls: Vec<Made>,
    /// How often the calling threads slept.
    pub(super) sleeps: u64,
}

impl Run {
    /// Returns how long each call took, without the time before it began.
    pub(super) fn durations(&self) -> impl Iterator<Item = u64> + Clone {
        self.calls.iter().map(|call| call.ended - call.begun)
    }

    /// Returns how long the run took, in nanoseconds: from the first call's begin to the end of the last one.
    pub(super) fn elapsed(&self) -> f64 {
        let begun = self.calls.iter().map(|call| call.begun).min().unwrap_or(0);
        let ended = self.calls.iter().map(|call| call.ended).max().unwrap_or(0);
        ended.saturating_sub(begun).max(1) as f64
    }

    /// Returns how many calls ended per second.
    pub(super) fn per_s(&self) -> f64 {
        self.calls.len() as f64 * 1e9 / self.elapsed()
    }
}

/// Returns how often this thread has slept.
fn sleeps() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Runs `work` on a thread for each caller, from the same moment on. `work` gets the caller and a function that
/// returns the nanoseconds since that moment.
fn together(
    callers: &mut [Caller<'_>],
    work: impl Fn(&mut Caller<'_>, &dyn Fn() -> u64, &mut Vec<Made>) -> Result<(), CallError> + Sync,
) -> Result<Run, CallError> {
    let begin = Instant::now() + LEAD;
    let now = || begin.elapsed().as_nanos() as u64;
    let one = |caller: &mut Caller<'_>| {
        let (mut calls, before) = (Vec::new(), sleeps());
        while Instant::now() < begin {
            core::hint::spin_loop();
        }
        let done = work(caller, &now, &mut calls);
        done.map(|()| (calls, sleeps() - before))
    };
    let all: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> =
            callers.iter_mut().map(|caller| scope.spawn(|| one(caller))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut run = Run::default();
    for done in all {
        let (calls, sleeps) = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        run.calls.extend(calls);
        run.sleeps += sleeps;
    }
    run.calls.sort_by_key(|call| call.due);
    Ok(run)
}

/// Lets each caller make one call after the other for `time`, with a pause of `think` between them.
pub(super) fn closed(
    callers: &mut [Caller<'_>],
    time: Duration,
    think: Duration,
    calls_max: usize,
) -> Result<Run, CallError> {
    let (time, think) = (time.as_nanos() as u64, think.as_nanos() as u64);
    let is_over = AtomicBool::new(false);
    let run = together(callers, |caller, now, calls| {
        let mut due = now();
        loop {
            while now() < due {
                core::hint::spin_loop();
            }
            let begun = now();
            let result = caller();
            let ended = now();
            calls.push(Made { due: begun, begun, ended });
            result.inspect_err(|_| is_over.store(true, Ordering::Relaxed))?;
            // All callers end together, so that none of them is ever alone.
            if ended > time || calls.len() >= calls_max || is_over.load(Ordering::Relaxed) {
                is_over.store(true, Ordering::Relaxed);
                return Ok(());
            }
            due = ended + think;
        }
    })?;
    Ok(run)
}

/// Makes a call at each of these moments, or as soon afterwards as a caller is free. The moments are in
/// nanoseconds since the begin.
pub(super) fn open(callers: &mut [Caller<'_>], arrivals: &[u64]) -> Result<Run, CallError> {
    let next = AtomicUsize::new(0);
    together(callers, |caller, now, calls| {
        loop {
            let Some(due) = arrivals.get(next.fetch_add(1, Ordering::Relaxed)) else {
                return Ok(());
            };
            while now() < *due {
                core::hint::spin_loop();
            }
            let begun = now();
            let result = caller();
            calls.push(Made { due: *due, begun, ended: now() });
            // The other callers end, too.
            result.inspect_err(|_| next.store(arrivals.len(), Ordering::Relaxed))?;
        }
    })
}

#[cfg(test)]
mod tests {
    use peregrine::{Executed, Kind};

    use super::*;

    fn no() -> CallError {
        CallError::new(Kind::BadResult, Executed::Maybe, "no")
    }

    fn busy(ns: u64) -> Caller<'static> {
        Box::new(move || {
            let until = Instant::now() + Duration::from_nanos(ns);
            while Instant::now() < until {
                core::hint::spin_loop();
            }
            Ok(())
        })
    }

    #[test]
    fn open_runs_make_each_call_once_and_not_before_it_is_due() {
        let arrivals: Vec<u64> = (0..300).map(|at| at * 700).collect();
        let run = open(&mut [busy(200), busy(900)], &arrivals).unwrap();
        assert_eq!(run.calls.iter().map(|call| call.due).collect::<Vec<_>>(), arrivals);
        assert!(run.calls.iter().all(|call| call.due <= call.begun && call.begun < call.ended));
        assert!(run.durations().all(|ns| ns >= 200));
    }

    #[test]
    fn closed_runs_end_after_their_time_and_their_calls() {
        let time = Duration::from_millis(2);
        let run = closed(&mut [busy(1000), busy(1000)], time, Duration::ZERO, usize::MAX).unwrap();
        assert!(run.elapsed() >= 2e6 && run.calls.len() <= 2 * 2001, "{}", run.calls.len());
        let run = closed(&mut [busy(10)], Duration::MAX, Duration::from_nanos(500), 20).unwrap();
        assert_eq!(run.calls.len(), 20);
        assert!(run.calls.windows(2).all(|two| two[1].begun >= two[0].ended + 500));
    }

    #[test]
    fn failed_call_ends_a_run_of_all_callers() {
        let mut left = 5;
        let failing: Caller<'_> = Box::new(move || {
            left -= 1;
            if left > 0 { Ok(()) } else { Err(no()) }
        });
        let far = [0, 1, 2, 3, 4, u64::MAX];
        assert!(open(&mut [failing], &far).is_err());
        let failing: Caller<'_> = Box::new(|| Err(no()));
        let done = closed(&mut [failing, busy(5)], Duration::MAX, Duration::ZERO, usize::MAX);
        assert!(done.is_err());
    }
}
