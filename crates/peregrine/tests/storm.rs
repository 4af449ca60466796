//! Kills hundreds of clients and servers at random moments. Other processes may observe only that the killed
//! processes are gone. No resources of the killed processes may remain.
//!
//! `PEREGRINE_SOAK=600` sets the duration of each test in seconds. Each test prints its seed.
//! `PEREGRINE_SEED=n` repeats the random moments of the run with that seed.

mod attack;
mod support;

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use attack::noise::Noise;
use attack::vitals::Vitals;
use attack::{eventually, no_longer_than, seed, soak};
use peregrine::{BindOptions, CallError, Executed, Kind, Server, interface};
use support::{KeepGoing, Process, alone, role};

const LIMIT: Duration = Duration::from_secs(20);
/// The default duration of each test.
const STORM: Duration = Duration::from_secs(4);
/// The minimum number of kills in each test, however long the test takes.
const KILLS_MIN: u64 = 200;

/// The interface of a server that writes the number of every call of `enter` to a file. The test can read the
/// file after the server's death.
#[interface]
trait Ledger {
    /// Records the number.
    fn enter(&self, number: u64) -> peregrine::Result<u64>;
    /// Records nothing and runs for `us` microseconds.
    fn linger(&self, text: &str, us: u32) -> peregrine::Result<String>;
}

struct Book(PathBuf);

impl Book {
    fn read(path: &Path) -> Vec<u64> {
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes.as_chunks().0.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect()
    }
}

impl Ledger for Book {
    fn enter(&self, number: u64) -> peregrine::Result<u64> {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.0).unwrap();
        file.write_all(&number.to_le_bytes()).unwrap();
        Ok(number + 1)
    }
    fn linger(&self, text: &str, us: u32) -> peregrine::Result<String> {
        std::thread::sleep(Duration::from_micros(us.into()));
        Ok(text.to_uppercase())
    }
}

/// Does the work of a child process that has a role. In the test run itself, this function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    no_longer_than(soak(STORM) + Duration::from_secs(60));
    let directory = support::directory();
    match role.as_str() {
        "server" => {
            let book = Book(directory.join("book.bin"));
            let server = Server::new().export("ledger", LedgerServer::new(book)).unwrap();
            let running = server.spawn().unwrap();
            println!("\nready");
            running.wait();
        }
        "client" => {
            // Several threads share few A-stacks. Some calls time out, and keep their A-stacks until the
            // server releases them.
            let ledger = LedgerClient::bind_with("ledger", &BindOptions::default().astacks(3));
            let ledger = ledger.unwrap();
            println!("\nready");
            std::thread::scope(|scope| {
                for thread in 0..4u32 {
                    let hasty = ledger.with_timeout(Duration::from_micros(300));
                    let ledger = &ledger;
                    scope.spawn(move || {
                        loop {
                            assert_eq!(ledger.linger("some text", thread).unwrap(), "SOME TEXT");
                            let _ = hasty.linger("late", 400 * thread);
                            drop(LedgerClient::bind("ledger").unwrap());
                        }
                    });
                }
            });
        }
        other => panic!("unknown role `{other}`"),
    }
}

/// Returns the names of the files in a directory. Leaves out `book.bin` and `.processors`, which all servers
/// share.
fn files(directory: &Path) -> HashSet<String> {
    let names = std::fs::read_dir(directory).expect("a directory").flatten();
    let names = names.map(|file| file.file_name().into_string().expect("a name in UTF-8"));
    names.filter(|name| name != "book.bin" && name != ".processors").collect()
}

fn named(names: &[&str]) -> HashSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn clients_killed_at_any_moment_leave_no_resources() {
    let _alone = alone();
    let directory = support::own_directory();
    let server = Process::start("child", "server", directory.path());
    let ledger = LedgerClient::bind("ledger").unwrap();
    assert_eq!(ledger.enter(0).unwrap(), 1);
    let mut noise = Noise::new(seed());
    let (until, going) = (Instant::now() + soak(STORM), AtomicBool::new(true));
    let (mut kills, mut before) = (0, None);
    std::thread::scope(|scope| {
        let keep_going = KeepGoing::new(&going);
        let honest = scope.spawn(|| {
            let mut calls = 1u64;
            while going.load(Ordering::Relaxed) {
                assert_eq!(ledger.enter(calls).expect("an honest call"), calls + 1);
                calls += 1;
                // The server records each call in a file. The pause limits the number of calls.
                std::thread::sleep(Duration::from_micros(200));
            }
            calls
        });
        let mut clients: Vec<Process> = Vec::new();
        while kills < KILLS_MIN || Instant::now() < until {
            if clients.len() < 4 {
                clients.push(Process::launch("child", "client", directory.path()));
            }
            std::thread::sleep(Duration::from_micros(noise.below(6000)));
            if clients.len() == 4 || noise.once_in(3) {
                let at = noise.below(clients.len() as u64) as usize;
                clients.swap_remove(at).kill();
                kills += 1;
            }
            if kills == KILLS_MIN / 4 && before.is_none() {
                // By now, the server has started its threads and touched its memory. So later growth is a
                // leak.
                clients.iter_mut().for_each(Process::kill);
                clients.clear();
                before = Some(settled(server.id()));
            }
        }
        clients.iter_mut().for_each(Process::kill);
        drop(keep_going);
        println!("{kills} clients were killed during {} calls", honest.join().expect("no panic"));
    });
    assert!(eventually(LIMIT, || peregrine::describe("ledger").unwrap().bindings == 1));
    let before = before.expect("a quarter of the clients were killed");
    let mut after = before;
    // Idle threads end only after five seconds.
    let back = eventually(LIMIT, || {
        after = Vitals::of(server.id());
        after.is_back_to(before, 2, 8 << 10)
    });
    assert!(back, "{before:?} became {after:?}");
    let mut entered = Book::read(&directory.path().join("book.bin"));
    entered.sort_unstable();
    assert!((0..).zip(&entered).all(|(n, entered)| n == *entered), "each honest call ran once");
    assert_eq!(files(directory.path()), named(&["ledger", ".ledger.lock"]));
}

/// Waits until the server has closed the sessions of dead clients. Then returns the server's resources.
fn settled(pid: u32) -> Vitals {
    // Only the region that the server shares with this process remains.
    assert!(eventually(LIMIT, || Vitals::of(pid).regions <= 1), "{:?}", Vitals::of(pid));
    let quiet = || {
        let first = Vitals::of(pid);
        std::thread::sleep(Duration::from_millis(20));
        first == Vitals::of(pid)
    };
    eventually(Duration::from_secs(1), quiet);
    Vitals::of(pid)
}

/// The outcomes of the calls of one thread.
#[derive(Default)]
struct Outcomes {
    returned: Vec<u64>,
    not_executed: Vec<u64>,
    maybe: u64,
    binds: u64,
}

/// How many binds, and how many calls, of all threads have succeeded so far.
#[derive(Default)]
struct Seen {
    binds: AtomicU64,
    returned: AtomicU64,
}

impl Seen {
    fn is_enough(&self) -> bool {
        let [binds, returned] =
            [&self.binds, &self.returned].map(|count| count.load(Ordering::Relaxed));
        binds > KILLS_MIN / 4 && returned > 100
    }
}

/// Binds, makes calls until the server is gone, and binds again. Repeats this until `going` is false.
fn caller(next: &AtomicU64, seen: &Seen, going: &AtomicBool) -> Outcomes {
    let mut outcomes = Outcomes::default();
    while going.load(Ordering::Relaxed) {
        let ledger = match LedgerClient::bind("ledger") {
            Ok(ledger) => ledger,
            Err(error) => {
                assert_eq!(error.executed(), Executed::No, "{error}");
                assert_ne!(error.kind(), Kind::BadResult, "{error}");
                std::thread::sleep(Duration::from_micros(300));
                continue;
            }
        };
        outcomes.binds += 1;
        seen.binds.fetch_add(1, Ordering::Relaxed);
        while going.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            match ledger.enter(number) {
                Ok(answer) => {
                    assert_eq!(answer, number + 1, "the result of another call");
                    outcomes.returned.push(number);
                    seen.returned.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    outcomes.failed(number, &error);
                    break;
                }
            }
        }
    }
    outcomes
}

impl Outcomes {
    fn failed(&mut self, number: u64, error: &CallError) {
        assert_eq!(error.kind(), Kind::ServerGone, "{error}");
        match error.executed() {
            Executed::No => self.not_executed.push(number),
            Executed::Maybe => self.maybe += 1,
        }
    }
}

#[test]
fn outcomes_are_true_when_servers_are_killed_at_any_moment() {
    let _alone = alone();
    let directory = support::own_directory();
    let book = directory.path().join("book.bin");
    let mut noise = Noise::new(seed());
    let (next, going) = (AtomicU64::new(0), AtomicBool::new(true));
    // Some resources of the first binding stay in this process after the binding is dropped. So the test
    // makes and drops one binding before it measures the resources.
    let mut first = Process::start("child", "server", directory.path());
    assert_eq!(LedgerClient::bind("ledger").unwrap().enter(u64::MAX - 1).unwrap(), u64::MAX);
    first.kill();
    let before = Vitals::of(std::process::id());
    assert_eq!(before.regions, 0);

    let until = Instant::now() + soak(STORM);
    let mut kills = 0;
    let seen = Seen::default();
    let outcomes: Vec<Outcomes> = std::thread::scope(|scope| {
        let keep_going = KeepGoing::new(&going);
        let callers: Vec<_> =
            (0..3).map(|_| scope.spawn(|| caller(&next, &seen, &going))).collect();
        // On a slow machine, too few calls may run in the planned time. Then the test goes on, and lets the
        // servers live longer.
        let is_weak = || !seen.is_enough() && Instant::now() < until + LIMIT;
        while kills < KILLS_MIN || Instant::now() < until || is_weak() {
            let mut server = Process::launch("child", "server", directory.path());
            // The server is killed at a random moment. This may be before the server has started, or long
            // after all clients have bound again.
            let longest = if kills >= KILLS_MIN && is_weak() { 250_000 } else { 25_000 };
            std::thread::sleep(Duration::from_micros(noise.below(longest)));
            server.kill();
            kills += 1;
            let allowed = named(&["ledger", ".ledger.lock", ".ledger.new"]);
            assert!(files(directory.path()).is_subset(&allowed), "{:?}", files(directory.path()));
        }
        drop(keep_going);
        callers.into_iter().map(|caller| caller.join().expect("no panic")).collect()
    });

    let mut entered = Book::read(&book);
    entered.sort_unstable();
    assert!(entered.windows(2).all(|pair| pair[0] != pair[1]), "a call ran twice");
    let (mut maybe, mut binds, mut returned, mut not_executed) = (0, 0, 0, 0);
    for one in &outcomes {
        (maybe, binds) = (maybe + one.maybe, binds + one.binds);
        returned += one.returned.len();
        not_executed += one.not_executed.len();
        for number in &one.returned {
            assert!(
                entered.binary_search(number).is_ok(),
                "call {number} returned but did not run"
            );
        }
        for number in &one.not_executed {
            assert!(
                entered.binary_search(number).is_err(),
                "call {number} ran but was reported as not executed"
            );
        }
    }
    println!(
        "{kills} servers were killed: {binds} binds, {returned} calls returned, {not_executed} not \
         executed, {maybe} open"
    );
    assert!(seen.is_enough(), "too few binds and calls for a meaningful test");

    // Millions of records of calls would count as memory growth, so they are dropped first.
    drop((outcomes, entered));

    // The next export and the next bind remove the files that dead servers left.
    let running = Server::new().export("ledger", LedgerServer::new(Book(book))).unwrap();
    let running = running.spawn().unwrap();
    assert_eq!(files(directory.path()), named(&["ledger", ".ledger.lock"]));
    let listed = peregrine::directory::list();
    assert!(listed.iter().any(|entry| entry.name == "ledger" && entry.alive == Some(true)));
    drop(LedgerClient::bind("ledger").unwrap());
    running.stop();
    assert_eq!(files(directory.path()), named(&[]));
    let mut after = before;
    let back = eventually(LIMIT, || {
        after = Vitals::of(std::process::id());
        after.is_back_to(before, 0, 8 << 10)
    });
    assert!(back, "{before:?} became {after:?}");
}
