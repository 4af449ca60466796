//! Measures how long two threads take to pass a word to each other, by polling memory and by sleeping.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use peregrine::sys::{futex_wait, futex_wake, pin_to};
use rustix::thread::{CpuSet, sched_getaffinity};

use super::{Finding, Verdict};
use crate::output::nanoseconds;

/// How both threads wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Polling,
    Sleeping,
}

/// The number of rounds. The result is the median over the rounds.
const ROUNDS: usize = 7;
/// Time limit of a round trip.
const TIMEOUT: Duration = Duration::from_millis(100);

/// Measures everything, in about 0.1 s.
pub(super) fn measure() -> Vec<Finding> {
    let Ok(allowed) = sched_getaffinity(None) else { return Vec::new() };
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).map(|cpu| cpu as u32);
    let Some(one) = cpus.next() else { return Vec::new() };
    let mut all = vec![sleeping_on_one(one)];
    if let Some(other) = cpus.next() {
        all.extend([sleeping_on_two([one, other]), polling([one, other])]);
    }
    all
}

/// Converts a measurement to a finding. The verdict is `Good` if the measured time is below `bound`
/// nanoseconds.
fn finding(
    what: &'static str,
    name: &'static str,
    measured: io::Result<f64>,
    bound: f64,
) -> Finding {
    match measured {
        Ok(ns) => {
            let verdict = if ns < bound { Verdict::Good } else { Verdict::Slow };
            let found = format!("{} per round trip", nanoseconds(ns));
            Finding::new(what, verdict, found).measured(name, ns)
        }
        Err(error) => Finding::new(what, Verdict::Slow, format!("not measured: {error}")),
    }
}

fn sleeping_on_one(cpu: u32) -> Finding {
    let measured = round_trip([cpu; 2], Waiting::Sleeping, 400);
    finding("wake-up, same processor", "wake_same_processor", measured, 20e3)
        .costs("a call takes about this time if both sides sleep on one processor")
        .fix("check whether system calls are filtered or traced: grep Seccomp /proc/self/status")
}

fn sleeping_on_two(cpus: [u32; 2]) -> Finding {
    let measured = round_trip(cpus, Waiting::Sleeping, 200);
    finding("wake-up, other processor", "wake_other_processor", measured, 20e3)
        .costs(
            "a call takes about this time if both sides sleep on two processors; \
             with adaptive waiting, the default, both sides first poll for this time",
        )
        .fix(format!(
            "run client and server on one processor (taskset -c {} PROGRAM), or poll (Wait::Spin)",
            cpus[0]
        ))
}

fn polling(cpus: [u32; 2]) -> Finding {
    let measured = round_trip(cpus, Waiting::Polling, 4000);
    finding("polling, two processors", "line", measured, 1e3)
        .costs("a call takes about this time while both sides poll")
        .fix("run client and server on processors that share a cache: lscpu --extended")
}

/// Returns how many nanoseconds a word takes from one thread to another thread and back.
fn round_trip(cpus: [u32; 2], waiting: Waiting, trips: u32) -> io::Result<f64> {
    // The far thread waits for odd values and writes even values. The near thread does the opposite.
    let word = AtomicU32::new(0);
    // If one thread times out, that thread ends. Then the other thread times out, too.
    let wait = |until: u32| -> bool {
        let begun = Instant::now();
        let mut polls = 0_u32;
        loop {
            let value = word.load(Ordering::Acquire);
            if value == until {
                return true;
            }
            match waiting {
                Waiting::Sleeping => futex_wait(&word, value, Some(TIMEOUT)),
                Waiting::Polling => core::hint::spin_loop(),
            }
            polls += 1;
            if (waiting == Waiting::Sleeping || polls.is_multiple_of(4096))
                && begun.elapsed() > TIMEOUT
            {
                return false;
            }
        }
    };
    let pass = |value: u32| {
        word.store(value, Ordering::Release);
        if waiting == Waiting::Sleeping {
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
        // The near side also runs on a separate thread, because nothing undoes `pin_to`.
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
        return Err(io::Error::other("timed out: the machine is too busy"));
    };
    rounds.sort_unstable_by(f64::total_cmp);
    Ok(rounds[ROUNDS / 2])
}
