//! Descriptors that run out, on either side: an error that names the limit, nobody else is harmed,
//! and when there are some again all is as before.

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
use support::{Part, alone, at_rest, descriptors, part, until};

const LIMIT: Duration = Duration::from_secs(10);
/// What a session costs a client: its connection, and a handle to the server.
const SESSION: usize = 2;
/// Descriptors that a process may have beyond those that it has.
const ROOM: usize = 40;

/// The parts that children play; in the test itself this does nothing.
#[test]
fn child() {
    let Some(part) = part() else { return };
    no_longer_than(Duration::from_secs(60));
    match part.as_str() {
        "server" => serve(),
        "client" => client(),
        other => panic!("nobody knows how to play `{other}`"),
    }
}

/// The limit below which a process has room for so many descriptors more.
fn room_for(pid: u32, more: usize) -> Option<u64> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a process of ours").flatten();
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let taken: HashSet<u64> = numbers.collect();
    (0..).filter(|number| !taken.contains(number)).nth(more)
}

/// It says who has no descriptor, and what limits them.
#[track_caller]
fn is_clear(text: &str, whose: u32) {
    assert!(text.contains("RLIMIT_NOFILE"), "{text}");
    assert!(text.contains(&format!("process {whose} ")), "{text}");
}

#[test]
fn a_server_without_descriptors_says_so_and_serves_those_it_has() {
    let _alone = alone();
    let directory = support::own_directory();
    let server = Part::start("child", "server", directory.path());
    let vault = VaultClient::bind("vault").unwrap();
    let mut canary = Session::new(directory.path(), "vault", 2).expect("a session");
    // But for the connection of whoever asks.
    let before = at_rest(directory.path(), "vault", [server.id()])[0] - 1;
    until("the server is at rest", || descriptors(server.id()) == before);
    let process = Pid::from_raw(server.id().cast_signed());
    let room = room_for(server.id(), ROOM);
    prlimit(process, Resource::Nofile, Rlimit { current: room, maximum: room }).unwrap();
    let connect = || Line::connect(directory.path(), "vault").unwrap();
    // A session takes three while it begins: connection, handle to the process, region.
    for spare in 0..4 {
        let mut guests = Vec::new();
        let refused = loop {
            let guest = connect();
            let (answer, _) = guest.ask(&wire::describe());
            if word(&answer, 0) != wire::DESCRIPTION {
                break answer;
            }
            guests.push(guest);
            assert!(guests.len() <= ROOM, "the limit is none");
        };
        let said = (word(&refused, 0), word(&refused, 4));
        assert_eq!(said, (wire::REFUSED, Kind::Exhausted as u32));
        until("there is none", || descriptors(server.id()) == before + ROOM);
        guests.truncate(guests.len() - spare);
        until("there are some", || descriptors(server.id()) == before + ROOM - spare);

        match bind_once_more(directory.path()) {
            Ok(()) => assert!(spare >= 3, "bound with {spare} descriptors"),
            Err(text) => {
                assert!(spare < 3, "{spare} descriptors are enough: {text}");
                is_clear(&text, server.id());
            }
        }
        // Those who are bound notice nothing.
        (0..20).for_each(|n| check(&vault, n).expect("an honest call"));
        assert_eq!(canary.ping(0, LIMIT), Some(0));
        drop(guests);
        until("all guests are gone", || descriptors(server.id()) == before);
    }
    drop(vault);
    let vault = VaultClient::bind("vault").expect("there are descriptors again");
    check(&vault, 0).unwrap();
}

/// Binds by hand, for this process has a session already; the text of the refusal.
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

/// All descriptors that this process may still have, but for `left`.
fn all_but(left: usize) -> Vec<File> {
    let mut held: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    held.truncate(held.len().checked_sub(left).expect("so many at least"));
    held
}

/// Tries with ever more descriptors, until there are enough; how many that took.
#[track_caller]
fn needed<T>(mut attempt: impl FnMut() -> Result<T, CallError>) -> (usize, T) {
    for left in 0..ROOM {
        let held = all_but(left);
        match attempt() {
            Ok(done) => return (left, done),
            Err(error) => {
                let outcome = (error.kind(), error.executed());
                assert_eq!(outcome, (Kind::Exhausted, Executed::No), "{error}");
                is_clear(&error.to_string(), std::process::id());
            }
        }
        // Nothing is left of an attempt that failed.
        assert_eq!(all_but(0).len(), left, "{left} descriptors before it");
        drop(held);
    }
    panic!("it needs more than {ROOM}");
}

fn client() {
    let all = getrlimit(Resource::Nofile);
    let room = room_for(std::process::id(), ROOM);
    setrlimit(Resource::Nofile, Rlimit { current: room, ..all }).unwrap();
    println!("\nready");
    // With the first bind begins what a process has once.
    let (first, vault) = needed(|| VaultClient::bind("vault"));
    (0..20).for_each(|n| check(&vault, n).unwrap());
    // Who is bound needs no more, whatever it calls.
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
    let mine = VaultClient::bind("mine").expect("there are enough");
    check(&mine, 3).unwrap();
    drop(mine);
    running.stop();
    println!("\ndone");
}

#[test]
fn a_client_without_descriptors_is_told_so_and_can_try_again() {
    let _alone = alone();
    let directory = support::own_directory();
    let server = Part::start("child", "server", directory.path());
    let before = descriptors(server.id());
    let mut client = Part::start("child", "client", directory.path());
    let numbers = loop {
        let line = client.line();
        if !line.is_empty() {
            break line;
        }
    };
    // What a first bind needs; one more in the same session: a connection, for a moment.
    println!("descriptors needed: {numbers}");
    assert_eq!(numbers.split(' ').nth(1), Some("1"));
    while client.line() != "done" {}
    let gone = || descriptors(server.id()) == before;
    assert!(eventually(LIMIT, gone), "{} of {before}", descriptors(server.id()));
    assert!(Vault::add(&VaultClient::bind("vault").unwrap(), 1, 2).is_ok());
}
