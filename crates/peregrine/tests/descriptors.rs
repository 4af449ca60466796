//! Tests a server or a client that has no free file descriptors. The error names the limit, other processes
//! are not affected, and everything works again once descriptors are available.

mod attack;
mod support;

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use attack::vault::{Honest, Vault, VaultClient, VaultServer, check, serve};
use attack::wire::{self, Line, Session, word};
use attack::{eventually, no_longer_than};
use peregrine::{CallError, Executed, Kind, Server};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use support::{Process, alone, at_rest, descriptors, role, until};

const LIMIT: Duration = Duration::from_secs(10);
/// The number of descriptors that a session costs a client: one for the connection, and one that refers to
/// the server process (a pidfd).
const SESSION: usize = 2;
/// The number of descriptors that a process may open in addition to those that it has open.
const ROOM: usize = 40;

/// Runs in child processes with a role; in the test itself this does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    no_longer_than(Duration::from_secs(60));
    match role.as_str() {
        "server" => serve(),
        "client" => client(),
        other => panic!("unknown role `{other}`"),
    }
}

/// Returns the limit (RLIMIT_NOFILE) under which the process `pid` can open exactly `more` further
/// descriptors.
fn room_for(pid: u32, more: usize) -> Option<u64> {
    let open =
        std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a process of this user").flatten();
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let taken: HashSet<u64> = numbers.collect();
    (0..).filter(|number| !taken.contains(number)).nth(more)
}

/// Checks that an error names the limit and the process that has reached it.
#[track_caller]
fn names_the_limit(text: &str, process: u32) {
    assert!(text.contains("RLIMIT_NOFILE"), "{text}");
    assert!(text.contains(&format!("process {process} ")), "{text}");
}

#[test]
fn server_without_descriptors_reports_it_and_serves_its_clients() {
    let _alone = alone();
    let directory = support::own_directory();
    let server = Process::start("child", "server", directory.path());
    let vault = VaultClient::bind("vault").unwrap();
    let mut canary = Session::new(directory.path(), "vault", 2).expect("a session");
    // `at_rest` counts its own connection, which is subtracted here.
    let before = at_rest(directory.path(), "vault", [server.id()])[0] - 1;
    until("the server is at rest", || descriptors(server.id()) == before);
    let process = Pid::from_raw(server.id().cast_signed());
    let room = room_for(server.id(), ROOM);
    prlimit(process, Resource::Nofile, Rlimit { current: room, maximum: room }).unwrap();
    let connect = || Line::connect(directory.path(), "vault").unwrap();
    // A new session takes three descriptors while it begins: the connection, a pidfd of the client process,
    // and the region (the shared memory).
    for spare in 0..4 {
        let mut connections = Vec::new();
        let refused = loop {
            let connection = connect();
            let (answer, _) = connection.ask(&wire::describe());
            if word(&answer, 0) != wire::DESCRIPTION {
                break answer;
            }
            connections.push(connection);
            assert!(connections.len() <= ROOM, "the limit has no effect");
        };
        let outcome = (word(&refused, 0), word(&refused, 4));
        assert_eq!(outcome, (wire::REFUSED, Kind::Exhausted as u32));
        until("no descriptor is left", || descriptors(server.id()) == before + ROOM);
        connections.truncate(connections.len() - spare);
        until("some descriptors are free", || descriptors(server.id()) == before + ROOM - spare);

        match bind_once_more(directory.path()) {
            Ok(()) => assert!(spare >= 3, "binding succeeded with only {spare} descriptors"),
            Err(text) => {
                assert!(spare < 3, "binding failed with {spare} descriptors: {text}");
                names_the_limit(&text, server.id());
            }
        }
        // Bound clients are not affected.
        (0..20).for_each(|n| check(&vault, n).expect("an honest call"));
        assert_eq!(canary.ping(0, LIMIT), Some(0));
        drop(connections);
        until("all connections are closed", || descriptors(server.id()) == before);
    }
    drop(vault);
    let vault = VaultClient::bind("vault").expect("descriptors are available again");
    check(&vault, 0).unwrap();
}

/// Binds with hand-written messages, because `VaultClient::bind` would join the session that this process
/// already has. If the server refuses, returns the text of the refusal.
fn bind_once_more(directory: &Path) -> Result<(), String> {
    let line = Line::connect(directory, "vault").unwrap();
    let (answer, _) = line.ask(&wire::bind(1, 4096, &[]));
    match word(&answer, 0) {
        wire::BOUND => Ok(()),
        wire::REFUSED => {
            assert_eq!(word(&answer, 4), Kind::Exhausted as u32);
            Err(String::from_utf8_lossy(&answer[12..]).into_owned())
        }
        other => panic!("answered with {other}"),
    }
}

/// Opens all descriptors that this process may still open, except `left` of them.
fn all_but(left: usize) -> Vec<File> {
    let mut held: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    held.truncate(held.len().checked_sub(left).expect("at least `left` are free"));
    held
}

/// Repeats `attempt` with more and more free descriptors until it succeeds. Returns the number of free
/// descriptors that the successful attempt needed, and the result of the attempt.
#[track_caller]
fn needed<T>(mut attempt: impl FnMut() -> Result<T, CallError>) -> (usize, T) {
    for left in 0..ROOM {
        let held = all_but(left);
        match attempt() {
            Ok(done) => return (left, done),
            Err(error) => {
                let outcome = (error.kind(), error.executed());
                assert_eq!(outcome, (Kind::Exhausted, Executed::No), "{error}");
                names_the_limit(&error.to_string(), std::process::id());
            }
        }
        // A failed attempt leaks no descriptor.
        assert_eq!(all_but(0).len(), left, "a failed attempt leaks some of {left} descriptors");
        drop(held);
    }
    panic!("the attempt needs more than {ROOM} descriptors");
}

fn client() {
    let all = getrlimit(Resource::Nofile);
    let room = room_for(std::process::id(), ROOM);
    setrlimit(Resource::Nofile, Rlimit { current: room, ..all }).unwrap();
    println!("\nready");
    // The first bind also opens the descriptors that a process needs only once.
    let (first, vault) = needed(|| VaultClient::bind("vault"));
    (0..20).for_each(|n| check(&vault, n).unwrap());
    // A bound client can call without further descriptors.
    let held = all_but(0);
    (0..20).for_each(|n| check(&vault, n).unwrap());
    drop(held);
    let (more, again) = needed(|| VaultClient::bind("vault"));
    check(&again, 1).unwrap();
    let bound = descriptors(std::process::id());
    drop((vault, again));
    until("the session is closed", || descriptors(std::process::id()) == bound - SESSION);
    let (next, vault) = needed(|| VaultClient::bind("vault"));
    check(&vault, 2).unwrap();
    println!("\n{first} {more} {next}");
    drop(vault);
    until("the session is closed", || descriptors(std::process::id()) == bound - SESSION);

    let export = || Server::new().export("mine", VaultServer::new(Honest))?.spawn();
    let (_, running) = needed(export);
    let mine = VaultClient::bind("mine").expect("enough descriptors");
    check(&mine, 3).unwrap();
    drop(mine);
    running.stop();
    println!("\ndone");
}

#[test]
fn client_without_descriptors_gets_an_error_and_can_retry() {
    let _alone = alone();
    let directory = support::own_directory();
    let server = Process::start("child", "server", directory.path());
    let before = descriptors(server.id());
    let mut client = Process::start("child", "client", directory.path());
    let numbers = loop {
        let line = client.line();
        if !line.is_empty() {
            break line;
        }
    };
    // The line contains the number of descriptors that each of three binds needed: a first bind, a bind in
    // the same session, and a bind after the session was closed. The second bind needs one connection for a
    // moment.
    println!("descriptors needed: {numbers}");
    assert_eq!(numbers.split(' ').nth(1), Some("1"));
    while client.line() != "done" {}
    let gone = || descriptors(server.id()) == before;
    assert!(eventually(LIMIT, gone), "{} of {before}", descriptors(server.id()));
    assert!(Vault::add(&VaultClient::bind("vault").unwrap(), 1, 2).is_ok());
}
