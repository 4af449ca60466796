//! Tests exports that end while calls run. Either one export is withdrawn while the others continue, or the
//! whole server drains (stops after the running calls).

mod support;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use peregrine::{
    BindOptions, CallError, Executed, Insecure, Kind, PathKind, Rebind, Running, Server, interface,
};
use support::link::{ENDS, Link, at_near_end};
use support::wire::{self, Line, word};
use support::{KeepGoing, Process, alone, at_rest, role, until};

#[interface]
trait Gate {
    /// Returns at once.
    fn pass(&self, x: u32) -> peregrine::Result<u32>;
    /// Reports `x` to the test, and waits until the test opens the gate.
    fn wait(&self, x: u32) -> peregrine::Result<u32>;
}

/// A gate that the test opens. `_alive` lives as long as the object, so the test can notice that the object
/// was dropped.
struct Guarded {
    came: Mutex<Sender<u32>>,
    open: Mutex<Receiver<()>>,
    _alive: Arc<()>,
}

impl Gate for Guarded {
    fn pass(&self, x: u32) -> peregrine::Result<u32> {
        Ok(x)
    }
    fn wait(&self, x: u32) -> peregrine::Result<u32> {
        self.came.lock().unwrap().send(x).unwrap();
        let _ = self.open.lock().unwrap().recv_timeout(LIMIT);
        Ok(x)
    }
}

const LIMIT: Duration = Duration::from_secs(40);
/// How long a test waits for an event that should happen at once.
const SOON: Duration = Duration::from_secs(10);

/// The test's side of a gate.
struct Keeper {
    came: Receiver<u32>,
    open: Sender<()>,
    alive: Arc<()>,
}

fn guarded() -> (GateServer<Guarded>, Keeper) {
    let ((came_to, came), (open, open_from)) = (channel(), channel());
    let alive = Arc::new(());
    let (came_to, open_from) = (Mutex::new(came_to), Mutex::new(open_from));
    let guarded = Guarded { came: came_to, open: open_from, _alive: Arc::clone(&alive) };
    (GateServer::new(guarded), Keeper { came, open, alive })
}

/// Starts a server that exports two gates, `gate` and `other`.
fn start(threads: usize) -> (Running, Keeper, Keeper) {
    let ((first, first_keeper), (second, second_keeper)) = (guarded(), guarded());
    let server = Server::new().threads(threads).export("gate", first).unwrap();
    let running = server.export("other", second).unwrap().spawn().unwrap();
    (running, first_keeper, second_keeper)
}

#[track_caller]
fn refused<T>(result: Result<T, CallError>) {
    let error = result.err().expect("a call that is refused");
    let outcome = (error.kind(), error.executed());
    assert_eq!(outcome, (Kind::Withdrawn, Executed::No), "{error}");
}

/// Checks that the server refuses an open, unbound connection that asks for a binding now.
#[track_caller]
fn refused_guest(guest: &Line) {
    let start = Instant::now();
    let (answer, _) = guest.ask(&wire::bind(8, 4096, &[]));
    let said = (word(&answer, 0), word(&answer, 4));
    assert!(answer.is_empty() || said == (wire::REFUSED, Kind::Withdrawn as u32), "{said:?}");
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

/// Runs a client in a separate process. The client makes calls until one fails, and prints the error.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let (gate, other) = (GateClient::bind("gate").unwrap(), GateClient::bind("other").unwrap());
    gate.pass(1).unwrap();
    println!("\nready");
    let outcome = |result: Result<u32, CallError>| match result {
        Ok(x) => println!("{x}"),
        Err(error) => println!("{:?} {:?}", error.kind(), error.executed()),
    };
    if role == "inside" {
        outcome(gate.wait(7));
    }
    let failed = std::iter::repeat_with(|| gate.pass(2)).find(Result::is_err);
    outcome(failed.unwrap_or(Ok(0)));
    until("the client notices the end before its next call", || !gate.is_alive());
    println!("{}", if other.is_alive() { "the other lives" } else { "the other is dead" });
    if other.is_alive() {
        outcome(other.pass(3));
    }
}

#[test]
fn withdrawing_one_export_does_not_affect_the_other() {
    let _alone = alone();
    let directory = support::own_directory();
    let (running, keeper, other_keeper) = start(4);
    // The client binds to the export `gate` first. So the session is made through the export that is
    // withdrawn later.
    let never = BindOptions::default().rebind(Rebind::Never);
    let gate = GateClient::bind_with("gate", &never).unwrap();
    let other = GateClient::bind("other").unwrap();
    assert_eq!((gate.pass(1).unwrap(), other.pass(2).unwrap()), (1, 2));
    let mut elsewhere = Process::start("child", "outside", directory.path());
    let going = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let _keep_going = KeepGoing::new(&going);
        let inside = scope.spawn(|| gate.wait(3));
        assert_eq!(keeper.came.recv_timeout(LIMIT), Ok(3));
        let inside_other = scope.spawn(|| other.wait(4));
        assert_eq!(other_keeper.came.recv_timeout(LIMIT), Ok(4));
        // A client thread keeps the server busy with calls to both exports.
        scope.spawn(|| {
            let mut both = true;
            while going.load(Ordering::Relaxed) {
                both &= gate.pass(5).is_ok();
                assert_eq!(other.pass(6).unwrap(), 6);
            }
            assert!(!both, "calls of the withdrawn export succeeded to the end");
        });
        std::thread::sleep(Duration::from_millis(10));

        assert!(running.withdraw("gate") && !running.withdraw("gate"));
        assert_eq!(running.names(), ["other"]);
        for x in 0..100 {
            refused(gate.pass(x));
            assert_eq!(other.pass(x).unwrap(), x);
        }
        until("the client notices the end before its next call", || !gate.is_alive());
        assert!(other.is_alive());
        assert_eq!(GateClient::bind("gate").unwrap_err().kind(), Kind::NotFound);
        assert_eq!(elsewhere.line(), "Withdrawn No");
        assert_eq!(elsewhere.line(), "the other lives");
        assert_eq!(elsewhere.line(), "3");

        // Another server takes the name of the export while a call to the first server still runs.
        let (second, second_keeper) = guarded();
        let second = Server::new().export("gate", second).unwrap().spawn().unwrap();
        let new = GateClient::bind("gate").unwrap();
        assert_eq!(new.pass(7).unwrap(), 7);
        refused(gate.pass(8));
        drop(second_keeper);

        assert!(Arc::strong_count(&keeper.alive) > 1, "the object of a running call is gone");
        keeper.open.send(()).unwrap();
        assert_eq!(inside.join().unwrap().expect("a running call finishes"), 3);
        other_keeper.open.send(()).unwrap();
        assert_eq!(inside_other.join().unwrap().unwrap(), 4);
        // The object is dropped although a client is still bound to it, and although the server's threads
        // continue.
        until("the object is dropped", || Arc::strong_count(&keeper.alive) == 1);
        drop(second);
    });
    drop(gate);
    assert_eq!(peregrine::describe("other").unwrap().bindings, 1);
    running.stop();
}

#[test]
fn withdrawn_export_leaves_no_descriptor() {
    let _alone = alone();
    let directory = support::own_directory();
    let (running, _keeper, _other_keeper) = start(2);
    let gate = GateClient::bind("gate").unwrap();
    let other = GateClient::bind("other").unwrap();
    assert_eq!((gate.pass(1).unwrap(), other.pass(2).unwrap()), (1, 2));
    let own = || at_rest(directory.path(), "other", [std::process::id()]);
    let [before] = own();
    assert!(running.withdraw("gate"));
    // The server closes the listening socket and the lock of the withdrawn export, although the session was
    // made through this export.
    until("socket and lock are closed", || own() == [before - 2]);
    assert_eq!(other.pass(3).unwrap(), 3);
}

/// A client binds while an export is being withdrawn. Either the bind is refused, or the client's later calls
/// are refused.
#[test]
fn binding_during_withdrawal_yields_no_working_client() {
    let _alone = alone();
    let directory = support::own_directory();
    let (running, _keeper, other_keeper) = start(2);
    let other = GateClient::bind("other").unwrap();
    for _ in 0..30 {
        let (server, _keeper) = guarded();
        let (server, second) = (server, guarded().0);
        let both = Server::new().export("early", server).unwrap().export("late", second).unwrap();
        let both = both.spawn().unwrap();
        // This client connects before the withdrawal, but sends its bind request afterwards.
        let guest = Line::connect(directory.path(), "early").unwrap();
        let _late = GateClient::bind("late").unwrap();
        let going = AtomicBool::new(true);
        let bound = std::thread::scope(|scope| {
            let binds = scope.spawn(|| {
                let mut bound = Vec::new();
                while going.load(Ordering::Relaxed) {
                    bound.extend(GateClient::bind("early").ok());
                }
                bound
            });
            std::thread::sleep(Duration::from_micros(700));
            let keep_going = KeepGoing::new(&going);
            assert!(both.withdraw("early"));
            drop(keep_going);
            binds.join().unwrap()
        });
        bound.iter().for_each(|client| refused(client.pass(1)));
        until("all clients notice the withdrawal", || {
            bound.iter().all(|client| !client.is_alive())
        });
        refused_guest(&guest);
        both.stop();
    }
    assert_eq!(other.pass(1).unwrap(), 1);
    drop(other_keeper);
    running.stop();
}

#[test]
fn drain_finishes_running_calls_and_refuses_new_ones() {
    let _alone = alone();
    let directory = support::own_directory();
    let (running, keeper, _other_keeper) = start(2);
    let gate = GateClient::bind("gate").unwrap();
    let mut inside = Process::start("child", "inside", directory.path());
    assert_eq!(keeper.came.recv_timeout(LIMIT), Ok(7));
    let guest = Line::connect(directory.path(), "gate").unwrap();
    let refusals = AtomicU32::new(0);
    let drained = std::thread::scope(|scope| {
        let draining = scope.spawn(|| running.drain(LIMIT));
        until("calls are refused", || gate.pass(1).is_err());
        for x in 0..50 {
            refused(gate.pass(x));
        }
        let threads = [(); 4].map(|()| {
            scope.spawn(|| {
                for x in 0..50 {
                    refused(gate.pass(x));
                    refusals.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(refusals.load(Ordering::Relaxed), 200);

        // The next server can use the names at once, and no client waits for the old server.
        let asked = Instant::now();
        for name in ["gate", "other"] {
            assert_eq!(GateClient::bind(name).unwrap_err().kind(), Kind::NotFound);
        }
        refused_guest(&guest);
        assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
        let successor = Server::new().export("gate", guarded().0).unwrap().spawn().unwrap();
        assert_eq!(GateClient::bind("gate").unwrap().pass(9).unwrap(), 9);
        drop(successor);

        assert!(!draining.is_finished(), "the drain did not wait for the running call");
        keeper.open.send(()).unwrap();
        draining.join().unwrap()
    });
    assert!(drained, "calls still ran at the end of the drain");
    assert_eq!(inside.line(), "7");
    assert_eq!(inside.line(), "Withdrawn No");
    assert_eq!(inside.line(), "the other is dead");
    until("the close message arrives", || !gate.is_alive());
    until("the object is dropped", || Arc::strong_count(&keeper.alive) == 1);
}

#[test]
fn drain_waits_no_longer_than_its_limit() {
    let _alone = alone();
    let directory = support::own_directory();
    let (running, keeper, other_keeper) = start(1);
    let (gate, other) = (GateClient::bind("gate").unwrap(), GateClient::bind("other").unwrap());
    let mut inside = Process::start("child", "inside", directory.path());
    assert_eq!(keeper.came.recv_timeout(LIMIT), Ok(7));
    std::thread::scope(|scope| {
        // The only thread runs a call of another process. Two further calls wait for this thread.
        let waiting = [&gate, &other].map(|client| scope.spawn(|| client.pass(1)));
        std::thread::sleep(Duration::from_millis(20));
        let start = Instant::now();
        assert!(!running.drain(Duration::from_millis(100)), "the drain should time out");
        let took = start.elapsed();
        assert!((Duration::from_millis(100)..SOON).contains(&took), "{took:?}");
        waiting.into_iter().for_each(|call| refused(call.join().unwrap()));
    });
    assert_eq!(inside.line(), "ServerGone Maybe");
    assert_eq!(inside.line(), "ServerGone No");
    assert_eq!(inside.line(), "the other is dead");
    // The running procedure continues to its end, but the server serves no other call.
    keeper.open.send(()).unwrap();
    until("the object is dropped", || Arc::strong_count(&keeper.alive) == 1);
    drop(other_keeper);
    refused(gate.pass(2));
}

/// Runs a server in a separate process. On request, the server drains and prints the result. The role of the
/// process is the endpoint at which the server listens.
#[test]
fn drainer() {
    let Some(endpoint) = role() else { return };
    let (gate, keeper) = guarded();
    let server = Server::new().stop_on_signals().export("gate", gate).unwrap();
    let running = server
        .listen_beyond_this_machine(&endpoint, Insecure::ITrustThisNetwork)
        .unwrap()
        .spawn()
        .unwrap();
    println!("\nready");
    let addresses: Vec<_> = running.addresses().iter().map(ToString::to_string).collect();
    println!("{}", addresses.join(" "));
    let Keeper { came, open: _open, alive: _alive } = keeper;
    std::thread::spawn(move || came.iter().for_each(|_| println!("came")));
    std::io::stdin().read_line(&mut String::new()).unwrap();
    println!("draining");
    println!("{}", running.drain(LIMIT));
    // This thread waits until the test kills the process. If `_open` were dropped earlier, the procedures
    // would return.
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// Returns whether a signal was sent to a process and the process has not handled it yet.
fn is_pending(process: u32, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let pending = status.lines().filter_map(|line| line.split_once("Pnd:"));
    let mut masks = pending.map(|(_, mask)| u64::from_str_radix(mask.trim(), 16).unwrap());
    masks.any(|mask| mask & 1 << (signal - 1) != 0)
}

/// Checks that a second signal ends a drain that still waits for calls. If `is_here` is true, one of these
/// calls is on the local path.
fn second_signal_ends_the_drain_of(mut server: Process, is_here: bool, paths: &[PathKind]) {
    let addresses = server.line();
    let networks = addresses.split(' ').map(|address| format!("{address}/gate"));
    let gates: Vec<_> = is_here
        .then(|| "gate".to_owned())
        .into_iter()
        .chain(networks)
        .map(|address| GateClient::bind(&address).unwrap())
        .collect();
    let by: Vec<_> = gates.iter().map(|gate| gate.binding().path()).collect();
    assert!(by.len() == paths.len() && paths.iter().all(|path| by.contains(path)), "{by:?}");
    std::thread::scope(|scope| {
        for gate in &gates {
            // This call ends only when the server's process ends.
            scope.spawn(|| gate.wait(1).unwrap_err());
            server.until("came");
        }
        let begun = Instant::now();
        server.write_line("drain");
        assert_eq!(server.line(), "draining");
        until("calls are refused", || gates.iter().all(|gate| gate.pass(1).is_err()));
        // The first signal requests a drain, but a drain is already in progress.
        server.signal(libc::SIGTERM);
        // If a second signal of the same kind arrives before the first is handled, the second is lost.
        until("the signal is taken", || !is_pending(server.id(), libc::SIGTERM));
        server.signal(libc::SIGTERM);
        assert_eq!(server.line(), "false", "procedures still run");
        assert!(begun.elapsed() < LIMIT / 2, "{:?}", begun.elapsed());
        server.kill();
    });
}

#[test]
fn second_signal_ends_the_drain() {
    let _alone = alone();
    let directory = support::own_directory();
    let server = Process::start("drainer", "127.0.0.1:0", directory.path());
    let paths = [PathKind::Local, PathKind::Tcp, PathKind::Udp];
    second_signal_ends_the_drain_of(server, true, &paths);
}

#[test]
fn second_signal_ends_the_drain_over_raw_ethernet() {
    let _alone = alone();
    let directory = support::own_directory();
    at_near_end(Link::new(), |link| {
        let endpoint = format!("eth:{}:0", ENDS[1]);
        let server = link.start(1, "drainer", &endpoint, directory.path());
        second_signal_ends_the_drain_of(server, false, &[PathKind::Ethernet]);
    });
}

#[test]
fn draining_without_a_call_takes_no_time() {
    let _alone = alone();
    let _directory = support::own_directory();
    let (running, _keeper, _other_keeper) = start(2);
    let gate = GateClient::bind("gate").unwrap();
    assert_eq!(gate.pass(1).unwrap(), 1);
    let start = Instant::now();
    assert!(running.drain(Duration::MAX));
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    refused(gate.pass(2));
}

/// A server that stops says which calls it has not executed, also to clients that go on with calls until the
/// connection ends.
#[test]
fn server_that_stops_among_calls_leaves_no_outcome_in_doubt() {
    #[interface]
    trait Count {
        fn count(&self) -> peregrine::Result<u32>;
    }
    struct Counter(Arc<AtomicU32>);
    impl Count for Counter {
        fn count(&self) -> peregrine::Result<u32> {
            Ok(self.0.fetch_add(1, Ordering::Relaxed))
        }
    }
    const CALLERS: usize = 4;
    let _alone = alone();
    let _directory = support::own_directory();
    for round in 0..300 {
        let executed = Arc::new(AtomicU32::new(0));
        let serve = CountServer::new(Counter(Arc::clone(&executed)));
        let server = Server::new().threads(3).export("count", serve).unwrap();
        let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
        let address = format!("{}/count", running.addresses()[0]);
        let options = BindOptions::default().rebind(Rebind::Never);
        let client = CountClient::bind_with(&address, &options).unwrap();
        let (answered, going) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let _keep_going = KeepGoing::new(&going);
            for _ in 0..CALLERS {
                scope.spawn(|| {
                    while going.load(Ordering::Relaxed) {
                        match client.count() {
                            Ok(_) => drop(answered.fetch_add(1, Ordering::Relaxed)),
                            Err(error) => {
                                assert_eq!(error.executed(), Executed::No, "{round}: {error}");
                            }
                        }
                    }
                });
            }
            until("calls are made", || answered.load(Ordering::Relaxed) > 50);
            assert!(running.drain(LIMIT));
        });
        let counts = [&answered, &executed].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts[0], counts[1], "round {round}: results, and executions");
    }
}
