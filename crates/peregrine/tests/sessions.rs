//! One session for each pair of processes, however many bindings: descriptors on both sides, which
//! interfaces get one of their own, and what is left when bindings go.

mod support;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use peregrine::{BindOptions, Kind, Server, interface};
use support::wire::{self, Line, Region, Session};
use support::{Part, alone, at_rest, part, until};

/// What a session may cost either side; it is a socket and a handle to the other process.
const SESSION: usize = 2;

#[interface]
trait Which {
    /// Which object this is, and the number that came.
    fn ask(&self, x: u32) -> peregrine::Result<(u32, u32)>;
}

struct Number(u32);

impl Which for Number {
    fn ask(&self, x: u32) -> peregrine::Result<(u32, u32)> {
        Ok((self.0, x))
    }
}

#[interface]
trait Large {
    /// More than the A-stacks hold by default.
    fn take(&self, #[max_len(18 << 20)] bytes: &[u8]) -> peregrine::Result<u64>;
}

struct Length;

impl Large for Length {
    fn take(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        Ok(bytes.len() as u64)
    }
}

fn server_of(first: &str, second: &str) -> Server {
    let server = Server::new().export(first, WhichServer::new(Number(1))).unwrap();
    server.export(second, WhichServer::new(Number(2))).unwrap()
}

/// The parts that children play; in the test itself this does nothing.
#[test]
fn child() {
    match part().as_deref() {
        Some("server") => {
            let server = server_of("one", "two").export("large", LargeServer::new(Length));
            let running = server.unwrap().spawn().unwrap();
            println!("\nready");
            running.wait();
        }
        Some("two servers") => {
            let first = server_of("one", "two").spawn().unwrap();
            let second = server_of("three", "four").spawn().unwrap();
            println!("\nready");
            first.wait();
            second.wait();
        }
        _ => {}
    }
}

/// What this process and a server's have open, as far as sessions are concerned.
struct Open {
    processes: [u32; 2],
    directory: PathBuf,
    before: [usize; 2],
}

impl Open {
    /// Counts from here, where nothing is bound; what a process needs once is there.
    fn begin(server: u32, directory: &Path) -> Self {
        drop(WhichClient::bind("one").unwrap());
        let processes = [std::process::id(), server];
        let mut open = Self { processes, directory: directory.to_owned(), before: [0; 2] };
        open.before = open.now();
        open
    }

    fn now(&self) -> [usize; 2] {
        at_rest(&self.directory, "one", self.processes)
    }

    /// Both sides have exactly so many sessions.
    #[track_caller]
    fn sessions(&self, count: usize) {
        let sides = if self.processes[0] == self.processes[1] { 2 } else { 1 };
        let expected = self.before.map(|before| before + count * sides * SESSION);
        // A client that has much to say at once is listened to now and then.
        let limit = Instant::now() + Duration::from_secs(20);
        let mut now = self.now();
        while now != expected && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(20));
            now = self.now();
        }
        assert_eq!(now, expected, "descriptors of {count} sessions");
    }
}

fn start(part: &str, directory: &Path) -> Part {
    Part::start("child", part, directory)
}

#[test]
fn a_hundred_bindings_are_one_session() {
    let _alone = alone();
    let directory = support::own_directory();
    let server = start("server", directory.path());
    let open = Open::begin(server.id(), directory.path());
    for round in 0..3 {
        let first = WhichClient::bind("one").unwrap();
        open.sessions(1);
        let more: Vec<_> = (0..100)
            .map(|x| WhichClient::bind(if x % 2 == 0 { "one" } else { "two" }).unwrap())
            .collect();
        for (x, client) in (0..).zip(&more) {
            assert_eq!(client.ask(x).unwrap(), (1 + x % 2, x));
        }
        open.sessions(1);
        assert_eq!(peregrine::describe("one").unwrap().bindings, 51);
        assert_eq!(peregrine::describe("two").unwrap().bindings, 50);

        // Those that go are forgotten, those that stay are served, in whatever order.
        drop(first);
        let (kept, gone): (Vec<_>, Vec<_>) = (0u32..).zip(more).partition(|(x, _)| x % 5 == round);
        drop(gone);
        for (x, client) in &kept {
            assert_eq!(client.ask(*x).unwrap(), (1 + x % 2, *x));
        }
        for name in ["one", "two"] {
            let forgotten = || peregrine::describe(name).unwrap().bindings == 10;
            until("bindings that went are forgotten", forgotten);
        }
        open.sessions(1);
        drop(kept);
        open.sessions(0);
        assert_eq!(peregrine::describe("two").unwrap().bindings, 0);
    }
}

#[test]
fn threads_that_bind_at_once_make_one_session() {
    let _alone = alone();
    let directory = support::own_directory();
    let server = start("server", directory.path());
    let open = Open::begin(server.id(), directory.path());
    for _ in 0..10 {
        let start = Barrier::new(8);
        let clients: Vec<_> = std::thread::scope(|scope| {
            let bind = |x: u32| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let client = WhichClient::bind("one").unwrap();
                    assert_eq!(client.ask(x).unwrap(), (1, x));
                    client
                })
            };
            let threads: Vec<_> = (0..8).map(bind).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        open.sessions(1);
        assert_eq!(peregrine::describe("one").unwrap().bindings, 8);
        drop(clients);
        open.sessions(0);
    }
}

/// Threads bind and drop as they like, so that one often drops the last binding of a session while
/// another one binds.
#[test]
fn no_binding_is_left_by_threads_that_come_and_go() {
    const ROUNDS: u32 = 150;
    let _alone = alone();
    let directory = support::own_directory();
    let server = start("server", directory.path());
    let open = Open::begin(server.id(), directory.path());
    for _ in 0..ROUNDS {
        let stop = AtomicBool::new(false);
        let last: Vec<_> = std::thread::scope(|scope| {
            let come_and_go = || {
                loop {
                    let client = WhichClient::bind("one").unwrap();
                    if stop.load(Ordering::Relaxed) {
                        return client;
                    }
                }
            };
            let threads = [(); 3].map(|()| scope.spawn(come_and_go));
            std::thread::sleep(Duration::from_millis(2));
            stop.store(true, Ordering::Relaxed);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        open.sessions(1);
        let three = || peregrine::describe("one").unwrap().bindings == 3;
        until("the server knows the three bindings that there are", three);
        assert!(last.iter().all(|client| client.ask(7).unwrap() == (1, 7)));
        drop(last);
        open.sessions(0);
    }
}

#[test]
fn an_interface_that_needs_more_gets_a_session_of_its_own() {
    let _alone = alone();
    let directory = support::own_directory();
    let server = start("server", directory.path());
    let open = Open::begin(server.id(), directory.path());
    let bytes = vec![1; 18 << 20];
    let small = WhichClient::bind("one").unwrap();
    open.sessions(1);
    let large = LargeClient::bind("large").unwrap();
    open.sessions(2);
    assert_eq!(large.take(&bytes).unwrap(), 18 << 20);
    assert_eq!(small.ask(1).unwrap(), (1, 1));
    // Who comes later finds room in one of the two.
    let more = (WhichClient::bind("two").unwrap(), LargeClient::bind("large").unwrap());
    open.sessions(2);
    assert_eq!(more.0.ask(2).unwrap(), (2, 2));
    assert_eq!(more.1.take(&bytes[1..]).unwrap(), (18 << 20) - 1);
    drop((small, more.0));
    drop((large, more.1));
    open.sessions(0);

    // The other way round, the large one has room for all.
    let large = LargeClient::bind("large").unwrap();
    let small = WhichClient::bind("one").unwrap();
    open.sessions(1);
    assert_eq!((large.take(&bytes).unwrap(), small.ask(3).unwrap()), (18 << 20, (1, 3)));
    drop(large);
    assert_eq!(small.ask(4).unwrap(), (1, 4));
    open.sessions(1);
    drop(small);
    open.sessions(0);
}

#[test]
fn two_servers_of_one_process_have_a_session_each() {
    let _alone = alone();
    let directory = support::own_directory();
    let server = start("two servers", directory.path());
    let open = Open::begin(server.id(), directory.path());
    let names = ["one", "three", "two", "four"];
    let clients: Vec<_> = names
        .iter()
        .zip([1, 2, 2, 2])
        .map(|(name, sessions)| {
            let client = WhichClient::bind(name).unwrap();
            open.sessions(sessions);
            client
        })
        .collect();
    for (client, which) in clients.iter().zip([1, 1, 2, 2]) {
        assert_eq!(client.ask(which).unwrap(), (which, which));
    }
    let mut clients = clients.into_iter();
    drop((clients.next(), clients.nth(1)));
    open.sessions(1);
    assert!(clients.all(|client| client.ask(1).unwrap() == (2, 1)));
    drop(clients);
    open.sessions(0);
}

#[test]
fn a_process_that_calls_itself_has_one_session_with_itself() {
    let _alone = alone();
    let directory = support::own_directory();
    let running = server_of("one", "two").spawn().unwrap();
    let open = Open::begin(std::process::id(), directory.path());
    let clients: Vec<_> = (0..100)
        .map(|x| WhichClient::bind(if x % 2 == 0 { "one" } else { "two" }).unwrap())
        .collect();
    for (x, client) in (0..).zip(&clients) {
        assert_eq!(client.ask(x).unwrap(), (1 + x % 2, x));
    }
    open.sessions(1);
    drop(clients);
    open.sessions(0);
    running.stop();
}

/// A server that is halted while it is asked makes the binding nobody's: it must not keep it.
#[test]
fn a_binding_that_nobody_waited_for_is_forgotten() {
    let _alone = alone();
    let directory = support::own_directory();
    let server = start("server", directory.path());
    let open = Open::begin(server.id(), directory.path());
    let client = WhichClient::bind("one").unwrap();
    assert_eq!(client.ask(1).unwrap(), (1, 1));
    server.signal(libc::SIGSTOP);
    let hasty = BindOptions::default().bind_timeout(Duration::from_millis(50));
    for name in ["one", "two"] {
        let error = WhichClient::bind_with(name, &hasty).unwrap_err();
        assert_eq!(error.kind(), Kind::TimedOut, "{error}");
    }
    server.signal(libc::SIGCONT);
    open.sessions(1);
    // It is told so when its answer came too late.
    let bindings = || ["one", "two"].map(|name| peregrine::describe(name).unwrap().bindings);
    until("bindings that nobody waited for are forgotten", || bindings() == [1, 0]);
    assert_eq!(client.ask(2).unwrap(), (1, 2));
}

/// Bytes of a region for which there is memory.
fn occupied(region: &OwnedFd) -> i64 {
    rustix::fs::fstat(region).expect("a region").st_blocks * 512
}

/// Who looks at an A-stack gives it memory: at the end of a session neither side looks at those that
/// were never used.
#[test]
fn the_end_of_a_session_takes_no_memory() {
    const USED: i64 = 64 << 10;
    let _alone = alone();
    let directory = support::own_directory();
    // The client goes; the region is ours for a moment longer.
    let server = start("server", directory.path());
    let [before] = at_rest(directory.path(), "one", [server.id()]);
    let line = Line::connect(directory.path(), "one").unwrap();
    let (answer, files) = line.ask(&wire::bind(1024, 4096, &[]));
    let mut session = Session::of_answer(line, &answer, &files).expect("a session");
    assert_eq!(session.region.count, 1024);
    assert_eq!(session.ping(0, Duration::from_secs(10)), Some(0));
    drop(session);
    let gone = || at_rest(directory.path(), "one", [server.id()]) == [before];
    until("the session has ended", gone);
    assert!(occupied(&files[0]) <= USED, "{} bytes", occupied(&files[0]));

    // The server goes.
    let listener = wire::listen(directory.path(), "gone");
    let bound = std::thread::scope(|scope| {
        let bound = scope.spawn(|| WhichClient::bind("gone").unwrap());
        let mut line = None;
        until("somebody comes", || {
            line = listener.accept().ok();
            line.is_some()
        });
        let (_, region) = Region::new(64, 1 << 20);
        let line = line.unwrap();
        line.answer();
        line.say_with(&wire::bound([7; 16], 1, 64, 1 << 20), &[region.as_fd()]).unwrap();
        let bound = bound.join().unwrap();
        (bound, region)
    });
    let (client, region) = bound;
    until("the end is noticed", || !client.is_alive());
    // It is told more than once.
    std::thread::sleep(Duration::from_millis(50));
    assert!(occupied(&region) <= USED, "{} bytes", occupied(&region));
}
