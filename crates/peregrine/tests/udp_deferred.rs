//! Tests async servers over UDP and raw Ethernet. Procedures that wait for an event need no threads. They are
//! dropped when their callers do not wait any more. Each call runs at most once.
//!
//! `PEREGRINE_SEED`, set to the seed that a run printed, repeats the decisions of the relay in that run.
#![cfg(feature = "async")]

#[path = "attack/mod.rs"]
mod attack;
mod support;

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use attack::{eventually, no_longer_than, seed};
use peregrine::{
    BindOptions, CallError, Executed, Executor, Insecure, Kind, OnExhausted, Out, Running, Server,
    interface,
};
use support::impairments::Impairments;
use support::link::{ENDS, Link, at_near_end};
use support::relay::Relay;
use support::{KeepGoing, Process, role, until};

/// The time limit of events that take at most 2.5 seconds on an idle machine.
const LIMIT: Duration = Duration::from_secs(30);
const CLIENTS: usize = 0;
const SERVERS: usize = 1;
/// The number of calls that wait at the same time.
const CROWD: u32 = 120;
/// An event that only wakes the procedures that wait for it. It does not end later waits.
const TICK: u32 = 0;

#[interface]
trait Events {
    /// Waits for an event. Fills `into` with `bytes` bytes that depend on `number`, and returns `number` + 1.
    fn wait(
        &self,
        event: u32,
        number: u64,
        bytes: u32,
        #[max_len(2 << 20)] into: Out<'_, u8>,
    ) -> peregrine::Result<u64>;
    /// Waits for an event, and then panics.
    fn panic_after(&self, event: u32) -> peregrine::Result<()>;
    /// Lets an event happen.
    fn happen(&self, event: u32) -> peregrine::Result<()>;
    /// Returns the number of procedures that wait.
    fn waiting(&self) -> peregrine::Result<u32>;
    /// Returns the number of procedures that were dropped while they waited.
    fn dropped(&self) -> peregrine::Result<u32>;
    /// Returns the number of threads of the server's process.
    fn threads(&self) -> peregrine::Result<u32>;
}

/// The events of a server, and the procedures that wait for them.
#[derive(Default)]
struct State {
    happened: Mutex<HashSet<u32>>,
    wakers: Mutex<Vec<Waker>>,
    waiting: AtomicU32,
    dropped: AtomicU32,
    /// The number of times that each call ran.
    ran: Mutex<HashMap<u64, u32>>,
}

/// Counts a procedure as waiting until it is dropped.
struct Wait<'a> {
    state: &'a State,
    has_ended: bool,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.state.dropped.fetch_add(u32::from(!self.has_ended), Ordering::SeqCst);
        self.state.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl State {
    fn happen(&self, event: u32) {
        if event != TICK {
            self.happened.lock().unwrap().insert(event);
        }
        let wakers = std::mem::take(&mut *self.wakers.lock().unwrap());
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits until an event has happened. A wait for [`TICK`] ends when it is woken for the first time.
    async fn wait(&self, event: u32) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut wait = Wait { state: self, has_ended: false };
        let mut polls = 0;
        poll_fn(|context| {
            polls += 1;
            let mut wakers = self.wakers.lock().unwrap();
            if self.happened.lock().unwrap().contains(&event) || (event == TICK && polls > 1) {
                return Poll::Ready(());
            }
            wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
        wait.has_ended = true;
    }

    fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst)
    }

    fn dropped(&self) -> u32 {
        self.dropped.load(Ordering::SeqCst)
    }
}

struct Object(Arc<State>);

impl EventsAsync for Object {
    async fn wait(
        &self,
        event: u32,
        number: u64,
        bytes: u32,
        mut into: Out<'_, u8>,
    ) -> peregrine::Result<u64> {
        *self.0.ran.lock().unwrap().entry(number).or_default() += 1;
        self.0.wait(event).await;
        into.put(&filling(number, bytes as usize)).expect("enough space");
        Ok(number + 1)
    }
    async fn panic_after(&self, event: u32) -> peregrine::Result<()> {
        self.0.wait(event).await;
        panic!("after event {event}");
    }
    async fn happen(&self, event: u32) -> peregrine::Result<()> {
        self.0.happen(event);
        Ok(())
    }
    async fn waiting(&self) -> peregrine::Result<u32> {
        Ok(self.0.waiting())
    }
    async fn dropped(&self) -> peregrine::Result<u32> {
        Ok(self.0.dropped())
    }
    async fn threads(&self) -> peregrine::Result<u32> {
        let threads = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
        Ok(threads.count() as u32)
    }
}

/// Returns the bytes of a result.
fn filling(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (number as usize ^ (at * 31 / 7)) as u8).collect()
}

/// Makes a call that waits, and checks its result.
fn wait(events: &EventsClient, event: u32, number: u64, bytes: usize) -> Result<(), CallError> {
    let mut result = Vec::with_capacity(bytes);
    let returned = events.wait(event, number, bytes as u32, Out::from(&mut result))?;
    assert_eq!(returned, number + 1, "the result of another call");
    assert!(result == filling(number, bytes), "the result of call {number} is damaged");
    Ok(())
}

fn options(callers: u32) -> BindOptions {
    BindOptions::default().astacks(callers).on_exhausted(OnExhausted::More)
}

/// Does the work of a child process that has a role: `server SCHEME` or `callers ADDRESS COUNT`. In the test
/// run itself, this function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    no_longer_than(Duration::from_secs(120));
    let words: Vec<&str> = role.split(' ').collect();
    if words[0] == "server" {
        let state = Arc::new(State::default());
        let server = EventsAsyncServer::new(Object(state));
        let server = Server::new().threads(2).export("events", server).unwrap();
        let running = if words[1] == "eth" {
            let at = format!("eth:{}:7001", ENDS[SERVERS]);
            server.listen_beyond_this_machine(&at, Insecure::ITrustThisNetwork).unwrap().spawn()
        } else {
            server.listen("udp:127.0.0.1:0").unwrap().spawn()
        };
        let running = running.unwrap();
        println!("\nat {}/events", running.addresses()[0]);
        running.wait();
        return;
    }
    let count = words[2].parse().unwrap();
    let events = EventsClient::bind_with(words[1], &options(count)).unwrap();
    println!("\nready");
    thread::scope(|scope| {
        for number in 0..count {
            let events = events.clone();
            scope.spawn(move || match wait(&events, 1, number.into(), 0) {
                Ok(()) => println!("\ngot {number}"),
                Err(error) => println!("\nfailed {:?} {:?}", error.kind(), error.executed()),
            });
        }
    });
}

/// A server in a child process, a binding to it, and what is needed to start clients.
struct Stage<'a> {
    link: Option<&'a Link>,
    directory: &'a Path,
    address: String,
    events: EventsClient,
    _server: Process,
}

impl<'a> Stage<'a> {
    fn new(mut server: Process, link: Option<&'a Link>, directory: &'a Path) -> Self {
        let address = server.until("at ");
        let events = EventsClient::bind_with(&address, &options(CROWD)).unwrap();
        println!("{}", events.binding().explain().summary());
        Self { link, directory, address, events, _server: server }
    }

    fn start(&self, count: u32) -> Process {
        let role = format!("callers {} {count}", self.address);
        match self.link {
            Some(link) => link.start(CLIENTS, "child", &role, self.directory),
            None => Process::start("child", &role, self.directory),
        }
    }

    #[track_caller]
    fn until_waiting(&self, count: u32) {
        let waits = || self.events.waiting().unwrap() == count;
        assert!(eventually(LIMIT, waits), "{:?} calls wait", self.events.waiting());
    }

    #[track_caller]
    fn until_dropped(&self, count: u32) {
        let dropped = || self.events.dropped().unwrap() == count;
        assert!(eventually(LIMIT, dropped), "{:?} calls were dropped", self.events.dropped());
    }
}

/// Runs `case` over UDP, and over raw Ethernet if this machine supports it.
fn on_both_paths(case: impl Fn(&Stage<'_>) + Sync) {
    let directory = support::own_directory();
    let directory = directory.path();
    case(&Stage::new(Process::launch("child", "server udp", directory), None, directory));
    at_near_end(Link::new(), |link| {
        let server = link.launch(SERVERS, "child", "server eth", directory);
        case(&Stage::new(server, Some(link), directory));
    });
}

#[test]
fn many_calls_wait_for_an_event_without_threads() {
    let _alone = support::alone();
    on_both_paths(|stage| {
        let events = &stage.events;
        let before = events.threads().unwrap();
        thread::scope(|scope| {
            let calls: Vec<_> = (0..CROWD)
                .map(|n| {
                    scope.spawn(move || wait(events, 1, n.into(), n as usize % 9 * 997).unwrap())
                })
                .collect();
            stage.until_waiting(CROWD);
            let threads = events.threads().unwrap();
            println!("{before} threads before, {threads} while {CROWD} calls wait");
            assert!(threads <= before + 8, "{threads} threads, {before} before the calls");
            events.happen(1).unwrap();
            calls.into_iter().for_each(|call| call.join().unwrap());
        });
        assert_eq!((events.waiting().unwrap(), events.dropped().unwrap()), (0, 0));
        // The server continues to serve.
        wait(events, 1, 7, 100).unwrap();
    });
}

#[test]
fn deadline_drops_the_procedure() {
    let _alone = support::alone();
    on_both_paths(|stage| {
        let hasty = stage.events.with_timeout(Duration::from_millis(50));
        for call in 1..=3 {
            let error = wait(&hasty, 1, call, 0).unwrap_err();
            assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::Maybe));
            stage.until_dropped(call as u32);
            stage.until_waiting(0);
        }
        stage.events.happen(1).unwrap();
        wait(&hasty, 1, 9, 1000).expect("the event has happened");
    });
}

#[test]
fn procedures_of_a_killed_client_are_dropped() {
    let _alone = support::alone();
    on_both_paths(|stage| {
        let mut dead = stage.start(32);
        stage.until_waiting(32);
        // The server treats a silent client as dead after 2.5 seconds. This pause is longer, but the client
        // answers.
        thread::sleep(Duration::from_secs(4));
        assert_eq!((stage.events.waiting().unwrap(), stage.events.dropped().unwrap()), (32, 0));
        dead.kill();
        stage.until_dropped(32);
        stage.until_waiting(0);
        let mut alive = stage.start(1);
        stage.until_waiting(1);
        stage.events.happen(1).unwrap();
        assert_eq!(alive.until("got "), "0");
    });
}

#[test]
fn stopped_client_gets_an_error_when_it_continues() {
    let _alone = support::alone();
    on_both_paths(|stage| {
        let mut client = stage.start(1);
        stage.until_waiting(1);
        client.signal(libc::SIGSTOP);
        stage.until_dropped(1);
        client.signal(libc::SIGCONT);
        assert_eq!(client.until("failed "), "TimedOut Maybe");
    });
}

/// Starts a server in this process.
fn serve(export: EventsAsyncServer<Object>) -> (Running, String) {
    let server = Server::new().threads(2).export("events", export).unwrap();
    let running = server.listen("udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let address = format!("udp:{}/events", running.addresses()[0].place());
    (running, address)
}

fn server() -> (Arc<State>, Running, String) {
    let state = Arc::new(State::default());
    let (running, address) = serve(EventsAsyncServer::new(Object(Arc::clone(&state))));
    (state, running, address)
}

/// Each round checks a call that needs a new handle while the server begins to stop.
#[test]
fn stopping_server_waits_for_deferred_calls() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    (0..10).for_each(|_| stop_while_calls_wait());
}

fn stop_while_calls_wait() {
    let (state, running, address) = server();
    let events = EventsClient::bind_with(&address, &options(8)).unwrap();
    thread::scope(|scope| {
        let calls: Vec<_> = (0..8)
            .map(|n| {
                scope.spawn({
                    let events = &events;
                    move || wait(events, 1, n, 5000)
                })
            })
            .collect();
        until("all calls wait", || state.waiting() == 8);
        let draining = scope.spawn(|| running.drain(LIMIT));
        let mut refused = None;
        until("the server stops", || {
            refused = events.waiting().err();
            refused.is_some()
        });
        let refused = refused.unwrap();
        let outcome = (refused.kind(), refused.executed());
        assert_eq!(outcome, (Kind::Withdrawn, Executed::No), "{refused}");
        assert!(!draining.is_finished() && state.waiting() == 8);
        state.happen(1);
        calls.into_iter().for_each(|call| call.join().unwrap().unwrap());
        assert!(draining.join().unwrap(), "calls still ran at the end of the drain");
    });
    assert_eq!(state.dropped(), 0);
}

#[test]
fn deferred_calls_are_dropped_after_the_drain() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (state, running, address) = server();
    let events = EventsClient::bind_with(&address, &options(8)).unwrap();
    thread::scope(|scope| {
        let calls: Vec<_> = (0..8)
            .map(|n| {
                scope.spawn({
                    let events = &events;
                    move || wait(events, 1, n, 5000)
                })
            })
            .collect();
        until("all calls wait", || state.waiting() == 8);
        assert!(!running.drain(Duration::from_millis(100)), "calls still wait");
        assert_eq!((state.waiting(), state.dropped()), (0, 8), "they were dropped");
        for call in calls {
            let error = call.join().unwrap().unwrap_err();
            let outcome = (error.kind(), error.executed());
            assert_eq!(outcome, (Kind::Withdrawn, Executed::Maybe), "{error}");
        }
    });
    drop(events);
    // The test keeps the wakers. So this check also shows that no waker keeps a procedure.
    until("the server keeps no procedure and no object", || Arc::strong_count(&state) == 1);
}

#[test]
fn panic_in_a_later_poll_is_reported() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (state, _running, address) = server();
    let events = EventsClient::bind(&address).unwrap();
    thread::scope(|scope| {
        let call = scope.spawn(|| events.panic_after(1).unwrap_err());
        until("the call waits", || state.waiting() == 1);
        state.happen(1);
        let error = call.join().unwrap();
        assert_eq!((error.kind(), error.executed()), (Kind::Panicked, Executed::Maybe));
        assert!(error.to_string().contains("after event 1"), "{error}");
    });
    wait(&events, 1, 3, 10).unwrap();
}

/// When an executor drops the futures that the server gives it.
#[derive(Clone, Copy)]
enum Drops {
    AtOnce,
    Later,
    InAPanic,
}

impl Executor for Drops {
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        match self {
            Self::AtOnce => drop(future),
            Self::Later => {
                thread::spawn(move || {
                    thread::sleep(Duration::from_millis(20));
                    drop(future);
                });
            }
            Self::InAPanic => panic!("the executor has ended"),
        }
    }
}

#[test]
fn call_fails_if_its_executor_drops_the_future() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for how in [Drops::AtOnce, Drops::Later, Drops::InAPanic] {
        let state = Arc::new(State::default());
        let export = EventsAsyncServer::new(Object(Arc::clone(&state))).with_executor(how);
        let (_running, address) = serve(export);
        let events = EventsClient::bind(&address).unwrap();
        thread::scope(|scope| {
            let call = scope.spawn(|| wait(&events, 1, 5, 100).unwrap_err());
            until("the call fails", || {
                // A wake-up makes the server pass the procedure to the executor, unless the executor has it
                // already.
                state.happen(2);
                call.is_finished()
            });
            let error = call.join().unwrap();
            assert_eq!((error.kind(), error.executed()), (Kind::Withdrawn, Executed::Maybe));
        });
        assert_eq!((state.waiting(), state.dropped()), (0, 1));
        // The server continues to serve calls that end at once.
        state.happen(1);
        wait(&events, 1, 6, 100).unwrap();
    }
}

/// The server keeps at most 64 MiB of results for one host. The results of these calls exceed this
/// limit.
#[test]
fn results_wait_for_memory() {
    const CALLS: u32 = 100;
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (state, _running, address) = server();
    let events = EventsClient::bind_with(&address, &options(CALLS)).unwrap();
    thread::scope(|scope| {
        let calls: Vec<_> = (0..CALLS)
            .map(|n| {
                let bytes = if n % 4 == 0 { n as usize } else { 900_000 + n as usize * 5000 };
                scope.spawn({
                    let events = &events;
                    move || wait(events, 1, n.into(), bytes)
                })
            })
            .collect();
        until("all calls wait", || state.waiting() == CALLS);
        state.happen(1);
        calls.into_iter().for_each(|call| call.join().unwrap().unwrap());
    });
}

/// The environment variable of the run in a network with small packets.
const LOSSY: &str = "PEREGRINE_TEST_LOSSY";

#[test]
fn small_packets() {
    if std::env::var_os(LOSSY).is_some() {
        calls_through_a_lossy_relay();
        println!("all calls were compared");
    }
}

#[test]
fn no_call_runs_twice_on_a_lossy_network() {
    let _alone = support::alone();
    support::link::run_in_a_network_like_ethernet(
        "small_packets",
        LOSSY,
        "all calls were compared",
    );
}

fn calls_through_a_lossy_relay() {
    const THREADS: u64 = 12;
    const EACH: u64 = 30;
    let _directory = support::own_directory();
    let (state, running, _) = server();
    // With a loss of 30 %, a client would sometimes presume the server dead.
    let impairments = Impairments {
        lost: 150,
        duplicated: 50,
        delayed: 100,
        delayed_us: 3000,
        ..Impairments::default()
    };
    let place = running.addresses()[0].place().to_string().parse().unwrap();
    let mut relay = Relay::new("127.0.0.1:0".parse().unwrap(), place, impairments, seed());
    let address = format!("udp:{}/events", relay.address());
    let going = AtomicBool::new(true);
    let outcomes: Vec<Vec<(u64, Result<(), CallError>)>> = thread::scope(|scope| {
        let keep_going = KeepGoing::new(&going);
        scope.spawn(|| {
            while going.load(Ordering::Relaxed) {
                relay.step(&mut |_, _| ());
            }
        });
        scope.spawn(|| {
            while going.load(Ordering::Relaxed) {
                state.happen(TICK);
                thread::sleep(Duration::from_millis(3));
            }
        });
        let options = options(THREADS as u32).bind_timeout(LIMIT);
        let events = EventsClient::bind_with(&address, &options).unwrap();
        let callers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let events = events.clone();
                scope.spawn(move || {
                    let calls = thread * EACH..(thread + 1) * EACH;
                    let patient = events.with_timeout(Duration::from_secs(60));
                    let hasty = events.with_timeout(Duration::from_millis(20));
                    let call = |number| {
                        let events = if number % 7 == 0 { &hasty } else { &patient };
                        let bytes = if number % 3 == 0 { 40_000 + number * 211 } else { number };
                        (number, wait(events, TICK, number, bytes as usize))
                    };
                    calls.map(call).collect()
                })
            })
            .collect();
        let outcomes = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
        drop(keep_going);
        outcomes
    });
    let ran = state.ran.lock().unwrap();
    let count = |number| ran.get(number).copied().unwrap_or(0);
    let [mut returned, mut not_executed, mut maybe] = [0; 3];
    for (number, outcome) in outcomes.iter().flatten() {
        match outcome {
            Ok(()) => {
                returned += 1;
                assert_eq!(count(number), 1, "{number} returned");
            }
            Err(error) if error.executed() == Executed::No => {
                not_executed += 1;
                assert_eq!(count(number), 0, "{number} was reported as not executed: {error}");
            }
            Err(error) => {
                maybe += 1;
                assert_eq!(error.kind(), Kind::TimedOut, "{error}");
                assert!(count(number) <= 1, "{number} ran {} times", count(number));
            }
        }
    }
    println!("{returned} returned, {not_executed} not executed, {maybe} uncertain");
    assert!(returned > THREADS * EACH / 2, "too few calls returned for a useful test");
    drop(ran);
    until("no procedure waits", || state.waiting() == 0);
}
