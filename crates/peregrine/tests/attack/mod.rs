//! What tests of hostile peers share: the other side by hand, noise, an honest service to protect,
//! and what a process has of the machine.

// Each test program uses its own part of this.
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

/// How long the long tests go on: `PEREGRINE_SOAK` seconds, or this.
pub(crate) fn soak(unless_set: Duration) -> Duration {
    let seconds = std::env::var("PEREGRINE_SOAK").ok().and_then(|text| text.parse().ok());
    seconds.map_or(unless_set, Duration::from_secs_f64)
}

/// The seed of a test: `PEREGRINE_SEED`, or the clock. A failure shows it.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("PEREGRINE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_nanos() as u64) | 1
    });
    println!("PEREGRINE_SEED={seed}");
    seed
}

/// Ends this process if it is still there after `limit`: a child that hangs fails its test.
pub(crate) fn no_longer_than(limit: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        eprintln!("process {} hangs", std::process::id());
        std::process::exit(3);
    });
}

/// The file that ends what children do.
const STOP: &str = "stop";

/// Tells all children in a directory that they may end.
pub(crate) fn stop(directory: &Path) {
    std::fs::write(directory.join(STOP), "").expect("a file in the test's own directory");
}

/// Whether the children in a directory may end.
pub(crate) fn stopped(directory: &Path) -> bool {
    directory.join(STOP).exists()
}

/// Waits until `done`; whether it came about in time.
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
