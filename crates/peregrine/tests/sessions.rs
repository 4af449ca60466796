//! Tests sessions: each pair of processes shares one session, however many bindings it has. The tests count
//! the descriptors on both sides. They also check which interfaces need a separate session, and what remains
//! after bindings are dropped.

mod support;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use peregrine::{BindOptions, Kind, Server, interface};
use support::wire::{self, Line, Region, Session};
use support::{Process, alone, at_rest, role, until};

/// The number of descriptors that each side has for a session: a socket, and a pidfd of the other process.
const SESSION: usize = 2;

#[interface]
trait Which {
    /// Returns the number of this object, and `x`.
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
    /// Takes an argument that may be larger than an A-stack holds by default.
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

/// Does the work of a child process that has a role. In the test run itself, this function does nothing.
#[test]
fn child() {
    match role().as_deref() {
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

/// Counts the descriptors that this process and a server's process hold for sessions.
struct Open {
    processes: [u32; 2],
    directory: PathBuf,
    before: [usize; 2],
}

impl Open {
    /// Counts the descriptors while nothing is bound. Before it counts, it makes and drops a binding: the
    /// first binding of a process opens descriptors that stay open.
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

    /// Checks that both sides have exactly the descriptors of `count` sessions.
    #[track_caller]
    fn sessions(&self, count: usize) {
        let sides = if self.processes[0] == self.processes[1] { 2 } else { 1 };
        let expected = self.before.map(|before| before + count * sides * SESSION);
        // If a client sends many requests at once, the server pauses reading from it. So this check may have
        // to wait.
        let limit = Instant::now() + Duration::from_secs(20);
        let mut now = self.now();
        while now != expected && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(20));
            now = self.now();
        }
        assert_eq!(now, expected, "descriptors of {count} sessions");
    }
}

fn start(role: &str, directory: &Path) -> Process {
    Process::start("child", role, directory)
}

#[test]
fn a_hundred_bindings_share_one_session() {
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

        // Bindings may be dropped in any order. The server releases dropped bindings, and still serves the
        // remaining ones.
        drop(first);
        let (kept, gone): (Vec<_>, Vec<_>) = (0u32..).zip(more).partition(|(x, _)| x % 5 == round);
        drop(gone);
        for (x, client) in &kept {
            assert_eq!(client.ask(*x).unwrap(), (1 + x % 2, *x));
        }
        for name in ["one", "two"] {
            let forgotten = || peregrine::describe(name).unwrap().bindings == 10;
            until("dropped bindings are released", forgotten);
        }
        open.sessions(1);
        drop(kept);
        open.sessions(0);
        assert_eq!(peregrine::describe("two").unwrap().bindings, 0);
    }
}

#[test]
fn threads_that_bind_concurrently_share_one_session() {
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

/// Threads bind and drop concurrently, so that one thread often drops the last binding of a session while
/// another thread binds.
#[test]
fn threads_that_bind_and_drop_concurrently_leave_no_binding() {
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
        until("the server knows exactly three bindings", three);
        assert!(last.iter().all(|client| client.ask(7).unwrap() == (1, 7)));
        drop(last);
        open.sessions(0);
    }
}

#[test]
fn interface_with_larger_messages_gets_a_separate_session() {
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
    // Later bindings fit into one of the two sessions.
    let more = (WhichClient::bind("two").unwrap(), LargeClient::bind("large").unwrap());
    open.sessions(2);
    assert_eq!(more.0.ask(2).unwrap(), (2, 2));
    assert_eq!(more.1.take(&bytes[1..]).unwrap(), (18 << 20) - 1);
    drop((small, more.0));
    drop((large, more.1));
    open.sessions(0);

    // If the client binds to `large` first, one session has enough space for both bindings.
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
fn two_servers_of_one_process_have_separate_sessions() {
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
fn process_that_calls_itself_has_one_session() {
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

/// A client stops waiting for a bind while the server is halted. The server must not keep the binding of that
/// request.
#[test]
fn binding_whose_client_stopped_waiting_is_released() {
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
    // When an answer of the server arrives too late, the client releases the binding that the answer granted.
    let bindings = || ["one", "two"].map(|name| peregrine::describe(name).unwrap().bindings);
    until("bindings whose client stopped waiting are released", || bindings() == [1, 0]);
    assert_eq!(client.ask(2).unwrap(), (1, 2));
}

/// Returns how many bytes of memory a region occupies.
fn occupied(region: &OwnedFd) -> i64 {
    rustix::fs::fstat(region).expect("a region").st_blocks * 512
}

/// Reading an A-stack allocates memory for it. So at the end of a session, neither side may read A-stacks
/// that were never used.
#[test]
fn closing_a_session_allocates_no_memory() {
    const USED: i64 = 64 << 10;
    let _alone = alone();
    let directory = support::own_directory();
    // In this first case, the client (this process) ends the session. It keeps a descriptor of the region, to
    // measure the region's memory afterwards.
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

    // In this second case, the server ends the session.
    let listener = wire::listen(directory.path(), "gone");
    let bound = std::thread::scope(|scope| {
        let bound = scope.spawn(|| WhichClient::bind("gone").unwrap());
        let mut line = None;
        until("a client connects", || {
            line = listener.accept().ok();
            line.is_some()
        });
        let (_, region) = Region::new(64, 1 << 20);
        let line = line.unwrap();
        line.answer();
        line.send_with(&wire::bound([7; 16], 1, 64, 1 << 20), &[region.as_fd()]).unwrap();
        let bound = bound.join().unwrap();
        (bound, region)
    });
    let (client, region) = bound;
    until("the end is noticed", || !client.is_alive());
    // The client is notified of the end more than once. After this pause, the client has processed all
    // notifications.
    std::thread::sleep(Duration::from_millis(50));
    assert!(occupied(&region) <= USED, "{} bytes", occupied(&region));
}
