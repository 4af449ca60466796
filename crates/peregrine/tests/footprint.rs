//! Counts the memory and the descriptors that an idle session and an idle binding use. One process is both
//! client and server, so each count includes both sides.

mod services;
mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use peregrine::Server;
use services::{Nothing, Null, NullClient, NullServer};
use support::heap::{Counting, bytes_in_use};
use support::{at_rest, until};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns the resident bytes of all regions (the memory that client and server share). A page that is mapped
/// twice counts once, because `Pss` counts half of it for each mapping.
fn region_bytes() -> i64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("what is mapped");
    let (mut bytes, mut inside) = (0, false);
    for line in maps.lines() {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        if !first.ends_with(':') {
            inside = rest.contains("memfd:peregrine");
        } else if inside && first == "Pss:" {
            let number = rest.split_whitespace().next().and_then(|n| n.parse::<i64>().ok());
            bytes += number.expect("kilobytes") << 10;
        }
    }
    bytes
}

/// Returns how many bytes and how many descriptors both sides use, after the server has processed all
/// messages.
fn in_use(directory: &Path) -> (i64, usize) {
    let [open] = at_rest(directory, "null", [std::process::id()]);
    // The server frees the memory of an answer a moment after it has sent the answer. Wait until the counts
    // do not change any more.
    let mut last = (0, 0);
    let mut same = 0;
    while same < 5 {
        std::thread::sleep(Duration::from_millis(2));
        // `region_bytes` allocates and frees memory, so it runs before `bytes_in_use`.
        let region = region_bytes();
        let now = (bytes_in_use(), region);
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    (last.0 + last.1, open)
}

/// Counts repeatedly, until `is_due` returns true for the counts or 10 s have passed. On a slow machine, the
/// first counts may be too large.
fn in_use_when(directory: &Path, is_due: impl Fn((i64, usize)) -> bool) -> (i64, usize) {
    let limit = Instant::now() + Duration::from_secs(10);
    loop {
        let now = in_use(directory);
        if is_due(now) || Instant::now() >= limit {
            return now;
        }
    }
}

fn bind() -> NullClient {
    NullClient::bind("null").unwrap()
}

/// This is the only test of this program, because the allocator counts for the whole process.
#[test]
fn idle_sessions_and_bindings_cost_little_and_leak_nothing() {
    const SESSION_BYTES: i64 = 64 << 10;
    const SESSION_DESCRIPTORS: usize = 3;
    const BINDING_BYTES: i64 = 2 << 10;
    const BINDINGS: i64 = 500;
    let directory = support::own_directory();
    let directory = directory.path();
    let running = Server::new().export("null", NullServer::new(Nothing)).unwrap().spawn().unwrap();
    // The first bindings allocate what a process needs only once, and start the server's thread.
    let first: Vec<_> = (0..BINDINGS).map(|_| bind()).collect();
    first.iter().for_each(|client| client.null().unwrap());
    drop(first);
    let gone = || peregrine::describe("null").unwrap().bindings == 0;
    until("all bindings are released", gone);

    let mut left = Vec::new();
    for round in 0..4 {
        let before = in_use(directory);
        left.push(before.0);
        let session = bind();
        let is_little = |now: (i64, usize)| {
            now.0 - before.0 <= SESSION_BYTES && now.1 <= before.1 + 2 * SESSION_DESCRIPTORS
        };
        let bound = in_use_when(directory, is_little);
        session.null().unwrap();
        let called = in_use_when(directory, is_little);
        for (what, now) in [("bound", bound), ("called", called)] {
            let (bytes, open) = (now.0 - before.0, now.1.saturating_sub(before.1));
            println!("{what}: {bytes} bytes, {open} descriptors on both sides together");
            assert!(bytes <= SESSION_BYTES, "{what}: a session takes {bytes} bytes");
            assert!(open <= 2 * SESSION_DESCRIPTORS, "{what}: {open} descriptors");
        }

        let more: Vec<_> = (0..BINDINGS).map(|_| bind()).collect();
        let is_little =
            |now: (i64, usize)| (now.0 - called.0) / BINDINGS <= BINDING_BYTES && now.1 == called.1;
        let idle = in_use_when(directory, is_little);
        // In the second half of the rounds, each of these bindings makes a call, and is then idle again.
        if round >= 2 {
            more.iter().for_each(|client| client.null().unwrap());
        }
        let used = in_use_when(directory, is_little);
        for (what, now) in [("idle", idle), ("used", used)] {
            let bytes = (now.0 - called.0) / BINDINGS;
            println!("{what}: {bytes} bytes per binding");
            assert!(bytes <= BINDING_BYTES, "{what}: a binding takes {bytes} bytes");
            assert_eq!(now.1, called.1, "{what}: a binding takes a descriptor");
        }
        drop((more, session));
        until("all bindings are released", gone);
    }
    // A little growth is allowed: tables keep their size, and threads of the test runner allocate now and
    // then.
    let grown = left[3] - left[1];
    assert!(grown < BINDINGS * 16, "{grown} bytes leaked by {} bindings", 2 * BINDINGS);
    drop(running);
}
