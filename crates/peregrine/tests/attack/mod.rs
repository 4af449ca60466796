//! What the tests of hostile peers share: hostile clients and servers, random numbers, an honest service that
//! must keep working, and counts of the resources that a process uses.

// No test program uses all parts of this module.
#![allow(dead_code)]

pub(crate) mod assault;
pub(crate) mod noise;
pub(crate) mod packet;
pub(crate) mod scribble;
pub(crate) mod trickle;
pub(crate) mod tricks;
pub(crate) mod vault;
pub(crate) mod vitals;
pub(crate) mod wrong;

pub(crate) use crate::support::wire;

use std::path::Path;
use std::time::{Duration, Instant};

/// Returns the duration of a long test: `PEREGRINE_SOAK` seconds, or `unless_set` if that variable is not
/// set.
pub(crate) fn soak(unless_set: Duration) -> Duration {
    let seconds = std::env::var("PEREGRINE_SOAK").ok().and_then(|text| text.parse().ok());
    seconds.map_or(unless_set, Duration::from_secs_f64)
}

/// Returns the seed of a test: `PEREGRINE_SEED`, or a seed from the clock. Prints the seed, so that a failed
/// run can be repeated.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("PEREGRINE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_nanos() as u64) | 1
    });
    println!("PEREGRINE_SEED={seed}");
    seed
}

/// Ends this process if it still runs after `limit`, so that a child process that hangs fails its test.
pub(crate) fn no_longer_than(limit: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        eprintln!("process {} hangs", std::process::id());
        std::process::exit(3);
    });
}

/// The name of a file in the test's directory. When this file exists, the child processes of the test end.
const STOP: &str = "stop";

/// Asks all child processes that use the directory `directory` to end.
pub(crate) fn stop(directory: &Path) {
    std::fs::write(directory.join(STOP), "").expect("a file in the test's own directory");
}

/// Returns whether [`stop`] has asked the child processes that use the directory `directory` to end.
pub(crate) fn stopped(directory: &Path) -> bool {
    directory.join(STOP).exists()
}

/// Waits until `done` returns true, but at most for the time `limit`. Returns whether `done` has returned
/// true.
pub(crate) fn eventually(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + limit;
    loop {
        if done() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
