//! Runs servers and clients in separate processes. The tests check what the other processes observe when one
//! process is killed.

mod support;

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use peregrine::{BindOptions, Executed, Kind, Rebind, Server, interface};
use support::{Process, role};

/// The interface of a server that writes the number of every call that it runs to a file. The test can read
/// the file after the server's death.
#[interface]
trait Ledger {
    /// Records the number.
    fn enter(&self, number: u64) -> peregrine::Result<u64>;
    /// Records the number, then runs for `ms` milliseconds.
    fn linger(&self, number: u64, ms: u32) -> peregrine::Result<u64>;
}

struct Book(PathBuf);

impl Book {
    fn write(&self, number: u64) {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.0).unwrap();
        file.write_all(&number.to_le_bytes()).unwrap();
    }

    fn read(path: &Path) -> Vec<u64> {
        let mut bytes = Vec::new();
        if let Ok(mut file) = std::fs::File::open(path) {
            file.read_to_end(&mut bytes).unwrap();
        }
        bytes.as_chunks().0.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect()
    }
}

impl Ledger for Book {
    fn enter(&self, number: u64) -> peregrine::Result<u64> {
        self.write(number);
        Ok(number + 1)
    }
    fn linger(&self, number: u64, ms: u32) -> peregrine::Result<u64> {
        self.write(number);
        std::thread::sleep(Duration::from_millis(ms.into()));
        Ok(number + 1)
    }
}

/// An object whose procedure `linger` forks a child without `exec`. The child keeps every socket of the
/// server open.
struct Forking(Book);

impl Ledger for Forking {
    fn enter(&self, number: u64) -> peregrine::Result<u64> {
        self.0.enter(number)
    }
    fn linger(&self, number: u64, ms: u32) -> peregrine::Result<u64> {
        // SAFETY: the child only sleeps and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            std::thread::sleep(LINGERS);
            // SAFETY: `_exit` ends the child at once, and runs no exit handlers or destructors.
            unsafe { libc::_exit(0) };
        }
        self.0.linger(number, ms)
    }
}

const LIMIT: Duration = Duration::from_secs(10);
/// How long a forked child outlives its parent.
const LINGERS: Duration = Duration::from_secs(8);

/// Does the work of a child process, which has a role. In the test run itself there is no role, and this
/// function does nothing.
#[test]
fn child() {
    let directory = support::directory;
    match role().as_deref() {
        Some("server") => {
            let book = Book(directory().join("book.bin"));
            let server = Server::new().export("ledger", LedgerServer::new(book)).unwrap();
            let running = server.spawn().unwrap();
            println!("\nready");
            running.wait();
        }
        Some("server that forks") => {
            let book = Forking(Book(directory().join("book.bin")));
            let server = Server::new().export("ledger", LedgerServer::new(book)).unwrap();
            let running = server.spawn().unwrap();
            println!("\nready");
            running.wait();
        }
        Some("client") => {
            let ledger = LedgerClient::bind("ledger").unwrap();
            println!("\nready");
            for number in 0.. {
                if ledger.enter(number).is_err() {
                    return;
                }
            }
        }
        _ => {}
    }
}

/// Lets only one test of this file run at a time, because the tests change environment variables.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn server(directory: &Path) -> Process {
    Process::start("child", "server", directory)
}

#[test]
fn call_is_not_executed_if_the_server_dies_before_taking_it() {
    let _alone = alone();
    let directory = support::own_directory();
    let mut server = server(directory.path());
    let ledger = LedgerClient::bind("ledger").unwrap();
    assert_eq!(ledger.enter(1).unwrap(), 2);

    // The halted server cannot take the call. It is killed after the client has posted the call.
    server.signal(libc::SIGSTOP);
    let caller = std::thread::spawn(move || (ledger.enter(2), ledger));
    std::thread::sleep(Duration::from_millis(50));
    let killed = Instant::now();
    server.kill();
    let (result, ledger) = caller.join().unwrap();
    let error = result.unwrap_err();
    assert!(killed.elapsed() < LIMIT);
    assert_eq!((error.kind(), error.executed()), (Kind::ServerGone, Executed::No), "{error}");
    assert_eq!(error.address(), "ledger");
    assert_eq!(error.procedure(), "enter");
    assert_eq!(Book::read(&directory.path().join("book.bin")), [1]);

    // Every later call fails at once, on every A-stack.
    for _ in 0..20 {
        let error = ledger.enter(3).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::ServerGone, Executed::No), "{error}");
    }
    assert!(!ledger.is_alive());
}

#[test]
fn call_may_be_executed_if_the_server_dies_while_running_it() {
    let _alone = alone();
    let directory = support::own_directory();
    let mut server = server(directory.path());
    let ledger = LedgerClient::bind("ledger").unwrap();
    let caller = std::thread::spawn(move || ledger.linger(7, 60_000));
    let book = directory.path().join("book.bin");
    let until = Instant::now() + LIMIT;
    while Book::read(&book) != [7] {
        assert!(Instant::now() < until, "the call never ran");
        std::thread::sleep(Duration::from_millis(1));
    }
    server.kill();
    let error = caller.join().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::ServerGone, Executed::Maybe), "{error}");
}

/// Kills servers at random moments under load. The file of the servers must contain the numbers of all calls
/// that returned, and no number of a call that was reported as not executed.
#[test]
fn outcomes_are_true_when_servers_are_killed_under_load() {
    let _alone = alone();
    const ROUNDS: u64 = 12;
    const THREADS: u64 = 4;
    let directory = support::own_directory();
    let book = directory.path().join("book.bin");
    let (mut not_executed, mut maybe) = (Vec::new(), 0);
    let next = AtomicU64::new(0);
    let mut returned = Vec::new();
    for round in 0..ROUNDS {
        let mut server = server(directory.path());
        let ledger = LedgerClient::bind("ledger").expect("a binding after a restart");
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        let mut done = Vec::new();
                        loop {
                            let number = next.fetch_add(1, Ordering::Relaxed);
                            match ledger.enter(number) {
                                Ok(answer) => {
                                    assert_eq!(answer, number + 1, "the result of another call");
                                    done.push(number);
                                }
                                Err(error) => return (done, number, error),
                            }
                        }
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_micros(500 + 1777 * round));
            server.kill();
            callers.into_iter().map(|caller| caller.join().unwrap()).collect()
        });
        for (done, number, error) in outcomes {
            assert_eq!(error.kind(), Kind::ServerGone, "{error}");
            returned.extend(done);
            match error.executed() {
                Executed::No => not_executed.push(number),
                Executed::Maybe => maybe += 1,
            }
        }
    }
    let mut entered = Book::read(&book);
    entered.sort_unstable();
    assert!(entered.windows(2).all(|pair| pair[0] != pair[1]), "a call ran twice");
    for number in &returned {
        assert!(entered.binary_search(number).is_ok(), "call {number} returned but did not run");
    }
    for number in &not_executed {
        assert!(
            entered.binary_search(number).is_err(),
            "call {number} ran but was reported as not executed"
        );
    }
    assert_eq!(not_executed.len() + maybe, (ROUNDS * THREADS) as usize);
}

#[test]
fn killed_clients_do_not_affect_others() {
    let _alone = alone();
    let directory = support::own_directory();
    let _server = server(directory.path());
    let ledger = LedgerClient::bind("ledger").unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let honest = scope.spawn(|| {
            let mut calls = 0u64;
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(ledger.enter(calls).expect("an honest call"), calls + 1);
                calls += 1;
            }
            calls
        });
        for round in 0..8u64 {
            let mut clients: Vec<Process> =
                (0..2).map(|_| Process::start("child", "client", directory.path())).collect();
            std::thread::sleep(Duration::from_millis(3 * round));
            clients.iter_mut().for_each(Process::kill);
        }
        stop.store(true, Ordering::Relaxed);
        assert!(honest.join().expect("no panic") > 0);
    });
    // The server closes the sessions of killed clients. Only the session of this process remains.
    let until = Instant::now() + LIMIT;
    while peregrine::describe("ledger").unwrap().bindings != 1 {
        assert!(Instant::now() < until, "sessions of dead clients remain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn name_is_free_only_after_its_server_is_killed() {
    let _alone = alone();
    let directory = support::own_directory();
    let mut first = server(directory.path());
    let taken = Server::new().export("ledger", LedgerServer::new(Book(PathBuf::new())));
    assert_eq!(taken.unwrap_err().kind(), Kind::NameTaken);
    let options = BindOptions::default().rebind(Rebind::Never);
    let old = LedgerClient::bind_with("ledger", &options).unwrap();
    old.enter(1).unwrap();
    first.kill();
    let error = LedgerClient::bind("ledger").unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::NotFound, Executed::No), "{error}");
    assert!(error.to_string().contains("dead"), "{error}");
    let _second = server(directory.path());
    assert_eq!(old.enter(2).unwrap_err().kind(), Kind::ServerGone);
    let new = LedgerClient::bind("ledger").unwrap();
    assert_eq!(new.enter(3).unwrap(), 4);
}

#[test]
fn server_death_is_noticed_although_its_child_keeps_the_sockets() {
    let _alone = alone();
    let directory = support::own_directory();
    let mut server = Process::start("child", "server that forks", directory.path());
    let ledger = LedgerClient::bind("ledger").unwrap();
    let caller = std::thread::spawn(move || ledger.linger(1, 60_000));
    let until = Instant::now() + LIMIT;
    while Book::read(&directory.path().join("book.bin")) != [1] {
        assert!(Instant::now() < until, "the call never ran");
        std::thread::sleep(Duration::from_millis(1));
    }
    let killed = Instant::now();
    server.kill();
    let error = caller.join().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::ServerGone, Executed::Maybe), "{error}");
    // The forked child keeps the socket open. The client must not wait until the socket is closed.
    assert!(killed.elapsed() < LINGERS / 2, "{:?}", killed.elapsed());
}
