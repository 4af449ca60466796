//! Tests crowds on each path: there are more callers than A-stacks (call frames), and the procedures take
//! about as long as the callers' time limits. A watchdog fails the test if a call exceeds its limit by a
//! second. It also prints the stacks of all threads of the client's and the server's process.
//!
//! In the tests that call `storm.rs`, the server is killed and restarted while the callers call.
//!
//! `PEREGRINE_SOAK=600 cargo test --release -p peregrine --test crowd` runs each path for 600
//! seconds. Each test prints a line `PEREGRINE_SEED=n`. If this variable is set to `n`, the test
//! repeats the durations of the procedures.

#[path = "../ledger/mod.rs"]
mod ledger;
mod mix;
mod queue;
mod storm;
#[path = "../support/mod.rs"]
mod support;
mod watch;

use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::time::Instant;

use ledger::Book;
use mix::{Service, WorkClient, WorkServer, mix};
use peregrine::{BindOptions, Endpoint, Insecure, Kind, PathKind, Server};
use queue::{null_calls, turns};
use support::link::{ENDS, Link, at_near_end};
use support::{Process, alone, own_directory, role};

/// Runs the server in a child process. The role of the process is `ENDPOINT`, or `ledger ENDPOINT` to record
/// the calls that run. In a process without a role, this does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let (service, endpoint) = match role.strip_prefix("ledger ") {
        Some(endpoint) => (Service::with(Book::of(&support::directory())), endpoint),
        None => (Service::default(), &role[..]),
    };
    let mut server = Server::new().export("work", WorkServer::new(service)).unwrap();
    if endpoint.starts_with("eth:") {
        server = server.listen_beyond_this_machine(endpoint, Insecure::ITrustThisNetwork).unwrap();
    } else if endpoint != "local" {
        server = server.listen(endpoint).unwrap();
    }
    let running = server.spawn().unwrap();
    let address = running.addresses().first().map(Endpoint::to_string);
    println!("\nready {}", address.map_or("work".to_owned(), |at| format!("{at}/work")));
    running.wait();
}

/// Starts a server process. Returns the process and the address of its export.
fn serve(directory: &Path, endpoint: &str) -> (Process, String) {
    let mut server = Process::launch("child", endpoint, directory);
    let address = server.until("ready ");
    (server, address)
}

/// Starts a server process at the far end of a link, over raw Ethernet. Returns the process and the address
/// of its export.
fn serve_at(link: &Link, directory: &Path) -> (Process, String) {
    let mut server = link.launch(1, "child", &format!("eth:{}:0", ENDS[1]), directory);
    let address = server.until("ready ");
    (server, address)
}

/// Calls `what` with a server on each path.
fn on_every_path(what: impl Fn(&Process, &str) + Sync) {
    let directory = own_directory();
    for endpoint in ["local", "tcp:127.0.0.1:0", "udp:127.0.0.1:0"] {
        let (server, address) = serve(directory.path(), endpoint);
        what(&server, &address);
    }
    at_near_end(Link::new(), |link| {
        let (server, address) = serve_at(link, directory.path());
        what(&server, &address);
    });
}

/// Runs the mix (threads that call with short and long time limits, see `mix.rs`) with the server at
/// `address`. This address must lead to the path `path`.
fn mix_to(server: &Process, address: &str, path: PathKind) {
    mix(&[std::process::id(), server.id()], &|options| {
        let work = WorkClient::bind_with(address, options).expect("a binding");
        assert_eq!(work.binding().path(), path);
        work
    });
}

#[test]
fn mix_in_process() {
    let _alone = alone();
    mix(&[std::process::id()], &|_| WorkClient::in_process(Service::default()));
}

#[test]
fn mix_local() {
    let _alone = alone();
    let directory = own_directory();
    let (server, address) = serve(directory.path(), "local");
    mix_to(&server, &address, PathKind::Local);
}

#[test]
fn mix_over_tcp() {
    let _alone = alone();
    let directory = own_directory();
    let (server, address) = serve(directory.path(), "tcp:127.0.0.1:0");
    mix_to(&server, &address, PathKind::Tcp);
}

#[test]
fn mix_over_udp() {
    let _alone = alone();
    let directory = own_directory();
    let (server, address) = serve(directory.path(), "udp:127.0.0.1:0");
    mix_to(&server, &address, PathKind::Udp);
}

#[test]
fn mix_over_raw_ethernet() {
    let _alone = alone();
    let directory = own_directory();
    let link = match Link::new() {
        Ok(link) => link,
        Err(why) => return println!("skipped: {why}"),
    };
    let (server, address) = serve_at(&link, directory.path());
    // The threads that the mix starts are at the near end, too, because they inherit this thread's network
    // namespace.
    let at_near_end = std::thread::spawn(move || {
        link.enter();
        mix_to(&server, &address, PathKind::Ethernet);
        drop((server, link));
    });
    at_near_end.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Returns a free port below the ports that the kernel assigns to clients.
fn free_port() -> u16 {
    let first = 20_000 + (std::process::id() % 10_000) as u16;
    let is_free = |port: &u16| {
        TcpListener::bind(("127.0.0.1", *port)).is_ok()
            && UdpSocket::bind(("127.0.0.1", *port)).is_ok()
    };
    (first..first + 1000).find(is_free).expect("a free port")
}

/// Runs the mix on this machine while servers at an endpoint are killed.
fn mix_while_servers_are_killed_at(endpoint: &str, path: PathKind) {
    let _alone = alone();
    let directory = own_directory();
    storm::mix_while_servers_are_killed(directory.path(), path, &|| {
        serve(directory.path(), &format!("ledger {endpoint}"))
    });
}

#[test]
fn mix_while_servers_are_killed_locally() {
    mix_while_servers_are_killed_at("local", PathKind::Local);
}

#[test]
fn mix_while_servers_are_killed_over_tcp() {
    mix_while_servers_are_killed_at(&format!("tcp:127.0.0.1:{}", free_port()), PathKind::Tcp);
}

#[test]
fn mix_while_servers_are_killed_over_udp() {
    mix_while_servers_are_killed_at(&format!("udp:127.0.0.1:{}", free_port()), PathKind::Udp);
}

#[test]
fn mix_while_servers_are_killed_over_raw_ethernet() {
    let _alone = alone();
    let directory = own_directory();
    at_near_end(Link::new(), |link| {
        let endpoint = format!("ledger eth:{}:7000", ENDS[1]);
        storm::mix_while_servers_are_killed(directory.path(), PathKind::Ethernet, &|| {
            let mut server = link.launch(1, "child", &endpoint, directory.path());
            let address = server.until("ready ");
            (server, address)
        });
    });
}

/// Each of many threads waits for an A-stack once. Each A-stack that becomes free wakes one thread. Each
/// thread would sleep thousands of times in two cases: if every free A-stack woke all threads, or if the
/// threads sent the same message again and again while the server has no memory for it.
#[test]
fn ten_thousand_callers_sleep_a_few_times_each() {
    const CALLERS: usize = 10_000;
    const SLEEPS_EACH: u64 = 500;
    let _alone = alone();
    on_every_path(|_, address| {
        // With 256 A-stacks, the socket of the local path may hold 256 unread rings (messages that wake the
        // server). Over UDP and raw Ethernet, hundreds of threads bind their sockets at once.
        let most = BindOptions::default().astacks(256);
        for options in [BindOptions::default(), most] {
            let work = WorkClient::bind_with(address, &options).expect("a binding");
            let begun = Instant::now();
            let Some(slept) = null_calls(&work, CALLERS) else {
                return println!("skipped: this machine cannot run {CALLERS} threads");
            };
            println!("{address}: {CALLERS} callers slept {slept} times in {:?}", begun.elapsed());
            assert!(slept < SLEEPS_EACH * CALLERS as u64, "{slept} over {address}");
        }
    });
}

/// An A-stack that becomes free goes to the caller that has waited longest.
#[test]
fn callers_are_served_in_the_order_of_arrival() {
    const CALLERS: usize = 12;
    let _alone = alone();
    on_every_path(|server, address| {
        let options = BindOptions::default().astacks(1);
        let work = WorkClient::bind_with(address, &options).expect("a binding");
        let turns = turns(&work, server, CALLERS);
        assert!(turns.iter().copied().eq(0..CALLERS as u32), "{turns:?} over {address}");
    });
}

/// Returns whether a call in a crowd may fail with an error of this kind.
fn is_expected(kind: Kind) -> bool {
    matches!(kind, Kind::TimedOut)
}
