//! What the test programs share: a server in its own process, and a client that sends any bytes as HTTP.

// Each test program uses only a part of this module.
#![allow(dead_code)]

pub(crate) mod client;
pub(crate) mod server;

use std::time::{Duration, Instant};

/// Time limit of every wait.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + TIMEOUT;
    while !done() {
        assert!(Instant::now() < limit, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
