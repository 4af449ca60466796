//! Domain caching: a server that was called lately goes on looking for calls on a processor that
//! nobody else needs. Held by counts of waits in which a server's thread slept, and of those in which
//! it looked on.

mod services;
mod support;

use std::time::{Duration, Instant};

use peregrine::counters::WaitCounts;
use peregrine::{Running, Server, stat, sys};
use services::{Nothing, Null, NullClient, NullServer};

/// Longer than any server spins because a sleep would cost as much (at most 100 us), and shorter than
/// it looks on (10 ms).
const SOON: Duration = Duration::from_millis(2);
/// Longer than a server looks on.
const LATE: Duration = Duration::from_millis(30);
/// Calls of a round.
const CALLS: u64 = 20;

/// Servers whose threads stay on one processor.
fn serve(name: &str) -> (Running, NullClient) {
    // Threads have the processor of the thread that starts them.
    sys::pin_to(0).unwrap();
    let running = Server::new().export(name, NullServer::new(Nothing)).unwrap().spawn().unwrap();
    let client = NullClient::bind(name).unwrap();
    client.null().unwrap();
    sys::pin_to(1).unwrap();
    (running, client)
}

fn waits(name: &str) -> WaitCounts {
    stat(name).unwrap().server.waits
}

/// Calls that `name` is sent so long after each other, with `others` in between; waits of `name` that
/// ended while its thread looked.
fn spun(name: &str, pause: Duration, clients: &[&NullClient]) -> u64 {
    let before = waits(name);
    for _ in 0..CALLS {
        for client in clients {
            client.null().unwrap();
            std::thread::sleep(pause / clients.len() as u32);
        }
    }
    let after = waits(name);
    println!("{name}: {} spun, {} slept", after.spun - before.spun, after.slept - before.slept);
    after.spun - before.spun
}

/// Whether a thread that offers the server's processor to others has it back at once, as a server's
/// thread has to that looks on. The servers sleep by then.
fn is_quiet() -> bool {
    std::thread::sleep(LATE);
    let offer = || {
        sys::pin_to(0).unwrap();
        (0..2000).all(|_| {
            let offered = Instant::now();
            std::thread::yield_now();
            offered.elapsed() < Duration::from_micros(20)
        })
    };
    std::thread::spawn(offer).join().unwrap()
}

fn has_two_processors() -> bool {
    let two = std::thread::available_parallelism().map_or(1, usize::from) >= 2;
    if !two {
        println!("skipped: needs two processors");
    }
    two
}

#[test]
fn a_server_that_was_called_lately_looks_on() {
    /// Rounds on a processor that nobody else wanted, none of which was as it should be.
    const QUIET_ROUNDS: u32 = 10;
    let _alone = support::alone();
    if !has_two_processors() {
        return;
    }
    let _directory = support::own_directory();
    let (_running, client) = serve("looks-on");
    let until = Instant::now() + Duration::from_secs(20);
    let mut quiet_rounds = 0;
    while Instant::now() < until {
        let quiet_before = is_quiet();
        if spun("looks-on", SOON, &[&client]) > CALLS / 4 {
            return;
        }
        quiet_rounds += u32::from(quiet_before && is_quiet());
        assert!(quiet_rounds < QUIET_ROUNDS, "it slept between calls, undisturbed");
    }
    println!("skipped: other threads always wanted the processor");
}

/// One that other threads disturb sleeps more often, never less.
#[test]
fn a_server_that_was_called_long_ago_sleeps() {
    let _alone = support::alone();
    if !has_two_processors() {
        return;
    }
    let _directory = support::own_directory();
    let (_running, client) = serve("sleeps");
    assert!(spun("sleeps", LATE, &[&client]) < CALLS / 2, "it looks on for ever");
}

#[test]
fn of_two_servers_the_one_that_was_called_last_looks_on() {
    let _alone = support::alone();
    if !has_two_processors() {
        return;
    }
    let _directory = support::own_directory();
    let ((_first, client), (_second, other)) = (serve("first"), serve("second"));
    let spun = spun("first", 2 * SOON, &[&client, &other]);
    assert!(spun < CALLS / 2, "both look on at one processor");
}
