//! What it costs to pass something to another thread: looking at memory, and asleep in the kernel.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use peregrine::sys::{futex_wait, futex_wake, pin_to};
use rustix::thread::{CpuSet, sched_getaffinity};

use super::{Finding, Verdict};
use crate::output::nanoseconds;

/// How both sides wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Looking,
    Asleep,
}

/// Rounds, of which the median counts.
const ROUNDS: usize = 7;
/// No round trip takes as long; and if one does, it is not waited for.
const PATIENCE: Duration = Duration::from_millis(100);

/// All of it; about a tenth of a second.
pub(super) fn measure() -> Vec<Finding> {
    let Ok(allowed) = sched_getaffinity(None) else { return Vec::new() };
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).map(|cpu| cpu as u32);
    let Some(one) = cpus.next() else { return Vec::new() };
    let mut all = vec![asleep_together(one)];
    if let Some(other) = cpus.next() {
        all.extend([asleep_apart([one, other]), looking([one, other])]);
    }
    all
}

/// What was measured, which is good below a bound.
fn finding(
    what: &'static str,
    name: &'static str,
    measured: io::Result<f64>,
    bound: f64,
) -> Finding {
    match measured {
        Ok(ns) => {
            let verdict = if ns < bound { Verdict::Good } else { Verdict::Slow };
            let found = format!("{} there and back", nanoseconds(ns));
            Finding::new(what, verdict, found).measured(name, ns)
        }
        Err(error) => Finding::new(what, Verdict::Slow, format!("not measured: {error}")),
    }
}

fn asleep_together(cpu: u32) -> Finding {
    let measured = round_trip([cpu; 2], Waiting::Asleep, 400);
    finding("wake-up, same processor", "wake_same_processor", measured, 20e3)
        .costs("a call between two sleepers on one processor takes about as long")
        .fix("see whether system calls are filtered or traced: grep Seccomp /proc/self/status")
}

fn asleep_apart(cpus: [u32; 2]) -> Finding {
    let measured = round_trip(cpus, Waiting::Asleep, 200);
    finding("wake-up, other processor", "wake_other_processor", measured, 20e3)
        .costs(
            "a call between two sleepers on two processors takes about as long; \
             with adaptive waiting, the default, both look for as long before they sleep",
        )
        .fix(format!(
            "let caller and server share a processor (taskset -c {} PROGRAM), or look (Wait::Spin)",
            cpus[0]
        ))
}

fn looking(cpus: [u32; 2]) -> Finding {
    let measured = round_trip(cpus, Waiting::Looking, 4000);
    finding("two processors that look", "line", measured, 1e3)
        .costs("a call takes about as long while both sides look")
        .fix("put caller and server on processors that share a cache: lscpu --extended")
}

/// Nanoseconds of a word that is passed there and back between two threads.
fn round_trip(cpus: [u32; 2], waiting: Waiting, trips: u32) -> io::Result<f64> {
    // Even: the one side has it.
    let word = AtomicU32::new(0);
    // Whoever waits longer than patience says so by ending, and the other one follows.
    let wait = |until: u32| -> bool {
        let begun = Instant::now();
        let mut looks = 0_u32;
        loop {
            let value = word.load(Ordering::Acquire);
            if value == until {
                return true;
            }
            match waiting {
                Waiting::Asleep => futex_wait(&word, value, Some(PATIENCE)),
                Waiting::Looking => core::hint::spin_loop(),
            }
            looks += 1;
            if (waiting == Waiting::Asleep || looks.is_multiple_of(4096))
                && begun.elapsed() > PATIENCE
            {
                return false;
            }
        }
    };
    let pass = |value: u32| {
        word.store(value, Ordering::Release);
        if waiting == Waiting::Asleep {
            futex_wake(&word);
        }
    };
    let all = trips * ROUNDS as u32;
    let measured: io::Result<Option<Vec<f64>>> = std::thread::scope(|scope| {
        let far = scope.spawn(|| -> io::Result<()> {
            pin_to(cpus[1])?;
            for trip in 0..all {
                if !wait(2 * trip + 1) {
                    break;
                }
                pass(2 * trip + 2);
            }
            Ok(())
        });
        // A thread of its own, too: it stays on its processor.
        let near = scope.spawn(|| -> io::Result<Option<Vec<f64>>> {
            pin_to(cpus[0])?;
            let mut rounds = Vec::new();
            for round in 0..ROUNDS as u32 {
                let begun = Instant::now();
                for trip in round * trips..(round + 1) * trips {
                    pass(2 * trip + 1);
                    if !wait(2 * trip + 2) {
                        return Ok(None);
                    }
                }
                rounds.push(begun.elapsed().as_nanos() as f64 / f64::from(trips));
            }
            Ok(Some(rounds))
        });
        far.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        near.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let Some(mut rounds) = measured? else {
        return Err(io::Error::other("the machine is too busy: nothing came back in time"));
    };
    rounds.sort_unstable_by(f64::total_cmp);
    Ok(rounds[ROUNDS / 2])
}
