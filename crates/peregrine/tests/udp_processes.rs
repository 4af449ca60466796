//! Runs servers and clients over UDP in separate processes, and kills, restarts and closes them.

#[path = "attack/mod.rs"]
mod attack;
mod ledger;
mod support;

use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use attack::noise::Noise;
use attack::vitals::Vitals;
use attack::{eventually, no_longer_than, seed, soak};
use ledger::{Book, Ledger as _, LedgerClient, LedgerServer, Outcomes};
use peregrine::{Executed, Kind, Server};
use support::{KeepGoing, Process, role};

/// How long a test waits for an event that should happen at once.
const LIMIT: Duration = Duration::from_secs(30);
const LARGE: usize = 64 << 20;

/// Does the work of a child process with the role `server PORT`, `blaster ADDRESS` or `caller ADDRESS`. In
/// the test run itself there is no role, and this function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    no_longer_than(soak(Duration::from_secs(60)) + Duration::from_secs(120));
    let (what, of) = role.split_once(' ').expect("a role and its argument");
    match what {
        "server" => {
            let directory = support::directory();
            let book = Book::of(&directory);
            let server = Server::new().export("ledger", LedgerServer::new(book)).unwrap();
            let running = server.listen(&format!("udp:127.0.0.1:{of}")).unwrap().spawn().unwrap();
            println!("\nat {}/ledger", running.addresses()[0]);
            running.wait();
        }
        "blaster" => {
            let ledger = LedgerClient::bind(of).unwrap();
            let bytes = vec![7; LARGE];
            println!("\nready");
            loop {
                let _ = ledger.swallow(&bytes);
            }
        }
        "caller" => {
            let ledger = LedgerClient::bind(of).unwrap();
            println!("\nready");
            for number in 1 << 40.. {
                ledger.enter(number, 0).unwrap();
            }
        }
        other => panic!("unknown role `{other}`"),
    }
}

/// Starts a server at a port, or at any free port if `port` is 0. Returns the process and the address of its
/// export.
fn server(port: u16, directory: &Path) -> (Process, String) {
    let mut process = Process::launch("child", &format!("server {port}"), directory);
    let address = process.until("at ");
    (process, address)
}

/// Returns a free port that is outside the range from which the kernel picks the ports of clients.
fn free_port() -> u16 {
    let first = 20_000 + (std::process::id() % 10_000) as u16;
    let is_free = |port: &u16| UdpSocket::bind(("127.0.0.1", *port)).is_ok();
    (first..first + 1000).find(is_free).expect("a free port")
}

#[test]
fn calls_running_when_the_server_dies_are_uncertain() {
    let directory = tempfile::tempdir().unwrap();
    let (mut server, address) = server(0, directory.path());
    let ledger = LedgerClient::bind(&address).unwrap();
    let callers: Vec<_> = (0..4)
        .map(|number| {
            let ledger = ledger.clone();
            std::thread::spawn(move || ledger.enter(number, 60_000))
        })
        .collect();
    assert!(eventually(LIMIT, || Book::read(directory.path()).len() == 4), "all calls run");
    let killed = Instant::now();
    server.kill();
    for caller in callers {
        let error = caller.join().unwrap().unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::ServerGone, Executed::Maybe));
        assert!(error.to_string().contains(&address), "{error}");
    }
    println!("noticed after {:?}", killed.elapsed());
    assert!(killed.elapsed() < LIMIT, "{:?}", killed.elapsed());
    let error = ledger.enter(9, 0).unwrap_err();
    assert!([Kind::ServerGone, Kind::Unreachable].contains(&error.kind()), "{error}");
    // If the call used a call frame that no earlier call had used, the client sent the call to a closed port.
    // The call may then count as possibly executed.
    let sent = error.kind() == Kind::ServerGone;
    assert!(sent || error.executed() == Executed::No, "{error}");
}

#[test]
fn outcomes_are_true_when_servers_restart_at_the_same_port() {
    let directory = tempfile::tempdir().unwrap();
    let mut noise = Noise::new(seed());
    let (next, going) = (AtomicU64::new(0), AtomicBool::new(true));
    let answered = AtomicU64::new(0);
    let port = free_port();
    let address = format!("udp:127.0.0.1:{port}/ledger");
    let until = Instant::now() + soak(Duration::from_secs(3));
    let mut kills = 0;
    let outcomes: Vec<Outcomes> = std::thread::scope(|scope| {
        let keep_going = KeepGoing::new(&going);
        let one = || ledger::caller(&address, &next, &answered, &going);
        let callers: Vec<_> = (0..3).map(|_| scope.spawn(one)).collect();
        // On a slow machine, it takes longer until enough calls have run. Then the test goes on.
        let is_weak = || answered.load(Ordering::Relaxed) <= 100 && Instant::now() < until + LIMIT;
        while kills < 12 || Instant::now() < until || is_weak() {
            let (mut server, _) = server(port, directory.path());
            // About one server in six lives for 500 ms. The others are killed earlier.
            let ms = if noise.once_in(6) { 500 } else { noise.below(200) };
            std::thread::sleep(Duration::from_millis(ms));
            server.kill();
            kills += 1;
            if noise.once_in(3) {
                std::thread::sleep(Duration::from_millis(noise.below(300)));
            }
        }
        drop(keep_going);
        callers.into_iter().map(|caller| caller.join().expect("no panic")).collect()
    });
    let [returned, not_executed, maybe] = Outcomes::check(&outcomes, directory.path());
    println!("{kills} kills: {returned} returned, {not_executed} not executed, {maybe} uncertain");
    assert!(returned > 100 && maybe + not_executed > 0, "the kills were too frequent or too rare");
}

#[test]
fn server_frees_the_resources_of_clients_killed_while_sending() {
    let directory = tempfile::tempdir().unwrap();
    let mut noise = Noise::new(seed());
    let (server, address) = server(0, directory.path());
    let ledger = LedgerClient::bind(&address).unwrap();
    let honest = vec![3; 1 << 20];
    assert_eq!(ledger.swallow(&honest).unwrap(), 1 << 20);
    let before = Vitals::of(server.id());
    // Together, these clients send more bytes than the server keeps for unfinished messages at one time.
    let mut largest = 0;
    for _ in 0..12 {
        let mut client = Process::start("child", &format!("blaster {address}"), directory.path());
        std::thread::sleep(Duration::from_micros(noise.below(50_000)));
        client.kill();
        largest = largest.max(Vitals::of(server.id()).resident_kib);
    }
    println!("{} KiB became {largest}", before.resident_kib);
    let bound = peregrine::limits::PARTIAL_BYTES_MAX as u64 / 1024;
    assert!(largest < before.resident_kib + bound + (96 << 10), "{largest} KiB");
    // Small calls succeed meanwhile. When the server evicts the state of dead clients, it frees memory for
    // other clients.
    assert_eq!(ledger.enter(1, 0).unwrap(), 2);
    let begun = Instant::now();
    let mut room = Vec::new();
    let served = eventually(LIMIT, || {
        std::thread::sleep(Duration::from_millis(50));
        room = (0..4)
            .map(|_| {
                let (ledger, bytes) = (ledger.clone(), vec![1; LARGE]);
                std::thread::spawn(move || ledger.swallow(&bytes))
            })
            .map(|thread| thread.join().expect("no panic"))
            .collect();
        room.iter().all(Result::is_ok)
    });
    assert!(served, "state of dead clients is not evicted: {room:?}");
    println!("large calls succeed again after {:?}", begun.elapsed());
    let mut after = before;
    let back = eventually(LIMIT, || {
        // Each packet that arrives makes the server check the unfinished messages of other clients. So this
        // test keeps sending.
        assert_eq!(ledger.swallow(&honest).unwrap(), 1 << 20);
        std::thread::sleep(Duration::from_millis(50));
        after = Vitals::of(server.id());
        after.is_back_to(before, 8, 96 << 10)
    });
    assert!(back, "{before:?} became {after:?}");
}

#[test]
fn a_thousand_clients_leave_no_resources() {
    let directory = tempfile::tempdir().unwrap();
    let (server, address) = server(0, directory.path());
    let ledger = LedgerClient::bind(&address).unwrap();
    assert_eq!(ledger.enter(0, 0).unwrap(), 1);
    let come_and_go = |first: u64, count: u64| {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let address = &address;
                scope.spawn(move || {
                    for number in 0..count / 4 {
                        let number = first + thread * count / 4 + number;
                        let ledger = LedgerClient::bind(address).unwrap();
                        assert_eq!(ledger.enter(number, 0).unwrap(), number + 1);
                    }
                });
            }
        });
    };
    come_and_go(1, 400);
    let before = Vitals::of(server.id());
    come_and_go(401, 1000);
    // Some clients end without sending a close message.
    for _ in 0..6 {
        let mut client = Process::start("child", &format!("caller {address}"), directory.path());
        std::thread::sleep(Duration::from_millis(5));
        client.kill();
    }
    let mut after = before;
    let back = eventually(LIMIT, || {
        after = Vitals::of(server.id());
        after.is_back_to(before, 4, 8 << 10)
    });
    assert!(back, "{before:?} became {after:?}");
    let mut entered = Book::read(directory.path());
    entered.retain(|number| *number < 1 << 40);
    entered.sort_unstable();
    assert!(entered.iter().copied().eq(0..1401), "each call ran once");
    // Some bindings remain: the one of this process, the one of `describe`, and those of clients that sent no
    // close message. A client also leaves a binding if it asked for handles twice because the answer was
    // late.
    let mut bindings = 0;
    let gone = eventually(LIMIT, || {
        bindings = peregrine::describe(&address).unwrap().bindings;
        bindings <= 100
    });
    assert!(gone, "{bindings} bindings of a thousand remain");
    assert_eq!(ledger.enter(5000, 0).unwrap(), 5001);
}
