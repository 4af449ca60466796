//! Runs servers and clients over TCP in separate processes. The tests check what the other processes observe
//! when one process is killed.

mod ledger;
mod support;

use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use ledger::{Book, Ledger as _, LedgerClient, LedgerServer};
use peregrine::{Executed, Kind, Server};
use support::{Process, role};

const LIMIT: Duration = Duration::from_secs(10);

/// Does the work of a child process that has a role. In the test run itself, this function does nothing.
#[test]
fn child() {
    let directory = support::directory;
    match role().as_deref() {
        Some("server") => {
            let book = Book::of(&directory());
            let server = Server::new().export("ledger", LedgerServer::new(book)).unwrap();
            let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
            println!("\n{}/ledger\nready", running.addresses()[0]);
            running.wait();
        }
        Some(client) if client.starts_with("tcp:") => {
            let ledger = LedgerClient::bind(client).unwrap();
            println!("\nready");
            for number in 0.. {
                if ledger.enter(number, 0).is_err() {
                    return;
                }
            }
        }
        _ => {}
    }
}

fn server(directory: &Path) -> (Process, String) {
    let mut process = Process::launch("child", "server", directory);
    let address = loop {
        let line = process.line();
        if line.starts_with("tcp:") {
            break line;
        }
    };
    while process.line() != "ready" {}
    (process, address)
}

#[test]
fn calls_running_when_the_server_dies_are_uncertain_at_once() {
    let _alone = support::alone();
    let directory = support::own_directory();
    let (mut server, address) = server(directory.path());
    let ledger = LedgerClient::bind(&address).unwrap();
    let callers: Vec<_> = (0..4)
        .map(|number| {
            let ledger = ledger.clone();
            std::thread::spawn(move || ledger.enter(number, 60_000))
        })
        .collect();
    support::until("all calls run", || Book::read(directory.path()).len() == 4);
    let killed = Instant::now();
    server.kill();
    for caller in callers {
        let error = caller.join().unwrap().unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::ServerGone, Executed::Maybe));
        assert!(error.to_string().contains(&address), "{error}");
    }
    assert!(killed.elapsed() < 2 * LIMIT, "{:?}", killed.elapsed());
    // Later calls are certainly not executed.
    let error = ledger.enter(9, 0).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::ServerGone, Executed::No), "{error}");
    assert!(error.to_string().contains("nothing was sent"), "{error}");
}

#[test]
fn calls_after_the_server_died_are_not_executed() {
    let _alone = support::alone();
    let directory = support::own_directory();
    let (mut server, address) = server(directory.path());
    let ledger = LedgerClient::bind(&address).unwrap();
    assert_eq!(ledger.enter(1, 0).unwrap(), 2);
    server.kill();
    support::until("the death is noticed", || !ledger.is_alive());
    let error = ledger.enter(2, 0).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::ServerGone, Executed::No), "{error}");
    assert_eq!(Book::read(directory.path()), [1]);
    let error = LedgerClient::bind(&address).unwrap_err();
    assert_eq!(error.kind(), Kind::Unreachable, "{error}");
}

#[test]
fn no_call_is_executed_twice_or_lost_silently_while_servers_die() {
    let _alone = support::alone();
    let directory = support::own_directory();
    let mut returned = Vec::new();
    let mut uncertain = 0;
    let mut number = 0;
    for round in 0..6 {
        let (mut server, address) = server(directory.path());
        let ledger = LedgerClient::bind(&address).unwrap();
        let some = Arc::new(Barrier::new(2));
        let killer = std::thread::spawn({
            let some = Arc::clone(&some);
            move || {
                some.wait();
                std::thread::sleep(Duration::from_millis(5 + 7 * round));
                server.kill();
            }
        });
        let mut first = Some(number + 20);
        loop {
            number += 1;
            match ledger.enter(number, 0) {
                Ok(next) => {
                    assert_eq!(next, number + 1);
                    returned.push(number);
                    if first.take_if(|first| number >= *first).is_some() {
                        some.wait();
                    }
                }
                Err(error) if error.executed() == Executed::No => break,
                Err(_) => uncertain += 1,
            }
        }
        killer.join().unwrap();
    }
    let book = Book::read(directory.path());
    let mut once = book.clone();
    once.dedup();
    assert_eq!(once, book, "a call ran twice");
    assert!(
        returned.iter().all(|number| book.binary_search(number).is_ok()),
        "a call returned but did not run"
    );
    assert!(book.len() <= returned.len() + uncertain, "more calls ran than the outcomes allow");
    assert!(returned.len() >= 6 * 20, "only {} calls", returned.len());
}

#[test]
fn server_frees_the_resources_of_a_dead_client() {
    let _alone = support::alone();
    let directory = support::own_directory();
    let (server, address) = server(directory.path());
    let ledger = LedgerClient::bind(&address).unwrap();
    let before = support::descriptors(server.id());
    for _ in 0..5 {
        let mut client = Process::start("child", &address, directory.path());
        std::thread::sleep(Duration::from_millis(20));
        client.kill();
    }
    ledger.enter(77, 0).unwrap();
    let begun = Instant::now();
    while support::descriptors(server.id()) > before {
        assert!(begun.elapsed() < LIMIT, "connections of dead clients remain open");
        std::thread::sleep(Duration::from_millis(5));
    }
    let bindings = || peregrine::describe(&address).unwrap().bindings;
    support::until("bindings of dead clients are gone", || bindings() == 1);
}

#[test]
fn calls_to_a_halted_server_end_at_their_deadline() {
    let _alone = support::alone();
    let directory = support::own_directory();
    let (server, address) = server(directory.path());
    let ledger = LedgerClient::bind(&address).unwrap();
    ledger.enter(1, 0).unwrap();
    server.signal(libc::SIGSTOP);
    let hasty = ledger.with_timeout(Duration::from_millis(50));
    let error = hasty.enter(2, 0).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::Maybe), "{error}");
    server.signal(libc::SIGCONT);
    // The client must not take the late reply to call 2 for the reply to call 3.
    assert_eq!(ledger.enter(3, 0).unwrap(), 4);
    // Call 2 did not run, because the server received it together with its cancellation.
    assert_eq!(Book::read(directory.path()), [1, 3]);
}
