//! Domain caching (LRPC): after a call, a server's thread keeps polling on a processor that no other thread
//! needs. The tests count waits in which the thread slept, and waits in which it polled.

mod services;
mod support;

use std::time::{Duration, Instant};

use peregrine::counters::WaitCounts;
use peregrine::{Running, Server, stat, sys};
use services::{Nothing, Null, NullClient, NullServer};

/// A pause after which a server still polls. It is shorter than the time for which the server keeps polling
/// (10 ms). It is longer than the time for which a server spins to avoid the cost of a sleep (at most 100
/// us).
const SOON: Duration = Duration::from_millis(2);
/// A pause longer than the time for which a server keeps polling.
const LATE: Duration = Duration::from_millis(30);
/// The number of calls that `spun` makes with each client.
const CALLS: u64 = 20;

/// Starts a server whose threads stay on processor 0. The client's thread is on processor 1.
fn serve(name: &str) -> (Running, NullClient) {
    // Threads inherit the processor of the thread that starts them.
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

/// Calls all clients in turn, with `pause` between two calls of the same client. Returns how many waits of
/// the server `name` ended while its thread polled.
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

/// Returns whether no other program uses processor 0. If so, a thread that yields the processor runs again at
/// once. The servers sleep during this check.
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
fn server_keeps_polling_after_a_recent_call() {
    /// The number of failed rounds on an otherwise idle processor, after which the test fails.
    const QUIET_ROUNDS: u32 = 10;
    let _alone = support::alone();
    if !has_two_processors() {
        return;
    }
    let _directory = support::own_directory();
    let (_running, client) = serve("keeps-polling");
    let until = Instant::now() + Duration::from_secs(20);
    let mut quiet_rounds = 0;
    while Instant::now() < until {
        let quiet_before = is_quiet();
        if spun("keeps-polling", SOON, &[&client]) > CALLS / 4 {
            return;
        }
        quiet_rounds += u32::from(quiet_before && is_quiet());
        assert!(quiet_rounds < QUIET_ROUNDS, "the server slept between calls on an idle processor");
    }
    println!("skipped: other threads kept using the processor");
}

/// Busy processors do not disturb this test: other threads can only make the server sleep more often, and the
/// test requires that it sleeps.
#[test]
fn server_sleeps_long_after_its_last_call() {
    let _alone = support::alone();
    if !has_two_processors() {
        return;
    }
    let _directory = support::own_directory();
    let (_running, client) = serve("sleeps");
    assert!(spun("sleeps", LATE, &[&client]) < CALLS / 2, "the server does not stop polling");
}

#[test]
fn only_the_last_called_of_two_servers_keeps_polling() {
    let _alone = support::alone();
    if !has_two_processors() {
        return;
    }
    let _directory = support::own_directory();
    let ((_first, client), (_second, other)) = (serve("first"), serve("second"));
    let spun = spun("first", 2 * SOON, &[&client, &other]);
    assert!(spun < CALLS / 2, "both servers poll on one processor");
}
