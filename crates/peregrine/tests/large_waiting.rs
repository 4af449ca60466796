//! Makes large calls of one client to a server in another process, on every path. Together, the calls have
//! more bytes than the server keeps for one client at a time. So some calls wait for others, and all of them
//! succeed.

mod contract;
mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use contract::{Form, Forms, pressure};
use peregrine::{BindOptions, Endpoint, Insecure, PathKind, Server, interface};
use support::link::{ENDS, Link, at_near_end};
use support::{Process, alone, own_directory, role};

#[interface]
trait Slow {
    /// Sleeps for 100 ms, and returns the number of bytes that it received.
    fn put(&self, #[max_len(4 << 20)] bytes: &[u8]) -> peregrine::Result<u64>;
}

struct Sleeper;

impl Slow for Sleeper {
    fn put(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        std::thread::sleep(Duration::from_millis(100));
        Ok(bytes.len() as u64)
    }
}

/// Runs the server as a child process with the role `THREADS ENDPOINT`. If `THREADS` is 0, the server has the
/// default number of threads. In the test run itself, this function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let (threads, endpoint) = role.split_once(' ').expect("threads and endpoint");
    let mut server = Server::new();
    if threads != "0" {
        server = server.threads(threads.parse().unwrap());
    }
    for form in [Form::Blocking, Form::Async] {
        let object = pressure::Store::default();
        server = server.export(&format!("pressure-{form:?}"), object.server(form)).unwrap();
    }
    let mut server = server.export("slow", SlowServer::new(Sleeper)).unwrap();
    if endpoint != "local" {
        server = server.listen_beyond_this_machine(endpoint, Insecure::ITrustThisNetwork).unwrap();
    }
    let running = server.spawn().unwrap();
    let address = running.addresses().first().map(Endpoint::to_string);
    println!("\nready {}", address.map_or(String::new(), |at| format!("{at}/")));
    running.wait();
}

/// A case. Its first argument is the path of the calls. Its second argument is a function that returns the
/// address of an export from the export's name.
type Case = fn(PathKind, &dyn Fn(&str) -> String);

fn run(case: Case, path: PathKind, mut server: Process) {
    let place = server.until("ready");
    case(path, &|name| format!("{place}{name}"));
}

/// Runs a case with a server of `threads` threads on this machine.
fn on_this_machine(case: Case, path: PathKind, threads: usize, endpoint: &str) {
    let _alone = alone();
    let directory = own_directory();
    let role = format!("{threads} {endpoint}");
    run(case, path, Process::launch("child", &role, directory.path()));
}

/// Runs a case with a server of `threads` threads at the far end of a link.
fn over_raw_ethernet(case: Case, threads: usize) {
    let _alone = alone();
    let directory = own_directory();
    let role = format!("{threads} eth:{}:0", ENDS[1]);
    let path: &Path = directory.path();
    at_near_end(Link::new(), |link| {
        run(case, PathKind::Ethernet, link.launch(1, "child", &role, path));
    });
}

/// Sends the largest messages that the interface allows, from ten threads at once.
fn calls_within_their_bounds(path: PathKind, at: &dyn Fn(&str) -> String) {
    let options = BindOptions::default();
    for forms in Forms::ALL {
        println!("{forms:?}");
        let address = at(&format!("pressure-{:?}", forms.server));
        let client = pressure::Client::bind(forms.client, &address, &options).expect("a binding");
        assert_eq!(client.binding().path(), path);
        pressure::calls_wait_for_each_other(&client);
    }
}

/// Sends more bytes at once than a server with one thread accepts from one host. Some calls wait for longer
/// than a client waits for a silent server, and must still succeed.
fn calls_of_slow_procedures(path: PathKind, at: &dyn Fn(&str) -> String) {
    const CALLERS: usize = 30;
    let options = BindOptions::default().astacks(CALLERS as u32);
    let client = SlowClient::bind_with(&at("slow"), &options).expect("a binding");
    assert_eq!(client.binding().path(), path);
    let bytes = &vec![7; 4 << 20];
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| assert_eq!(client.put(bytes).unwrap(), bytes.len() as u64));
        }
    });
    println!("{CALLERS} calls in {:?}", begun.elapsed());
}

#[test]
fn calls_within_their_bounds_wait_for_each_other_locally() {
    on_this_machine(calls_within_their_bounds, PathKind::Local, 0, "local");
}

#[test]
fn calls_within_their_bounds_wait_for_each_other_over_tcp() {
    on_this_machine(calls_within_their_bounds, PathKind::Tcp, 0, "tcp:127.0.0.1:0");
}

#[test]
fn calls_within_their_bounds_wait_for_each_other_over_udp() {
    on_this_machine(calls_within_their_bounds, PathKind::Udp, 0, "udp:127.0.0.1:0");
}

#[test]
fn calls_within_their_bounds_wait_for_each_other_over_raw_ethernet() {
    over_raw_ethernet(calls_within_their_bounds, 0);
}

#[test]
fn large_calls_of_slow_procedures_wait_for_each_other_locally() {
    on_this_machine(calls_of_slow_procedures, PathKind::Local, 1, "local");
}

#[test]
fn large_calls_of_slow_procedures_wait_for_each_other_over_udp() {
    on_this_machine(calls_of_slow_procedures, PathKind::Udp, 1, "udp:127.0.0.1:0");
}

#[test]
fn large_calls_of_slow_procedures_wait_for_each_other_over_raw_ethernet() {
    over_raw_ethernet(calls_of_slow_procedures, 1);
}
