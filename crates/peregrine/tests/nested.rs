//! Tests nested calls on the local path, over TCP and over UDP. Calls pass through other processes and come
//! back. They nest more deeply than there are threads, and many of them run at once. In one case, a process
//! in the middle of a chain of calls dies.

mod support;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use peregrine::{CallError, Executed, Kind, Server, interface};
use support::{Process, role};

#[interface]
trait Node {
    /// Makes a call through the nodes that `route` names, with one letter for each node. Returns the
    /// processes through which the call came to the last node, beginning with the first caller.
    fn pass(&self, route: &str) -> peregrine::Result<Vec<u32>>;
    /// Makes `times` calls like `pass`, one after the other. Only the first node repeats the call.
    fn bounce(&self, route: &str, times: u32) -> peregrine::Result<Vec<u32>>;
    /// Makes a call like `pass`, but the procedure of the last node runs for `ms` milliseconds.
    fn linger(&self, route: &str, ms: u32) -> peregrine::Result<()>;
}

/// A server that calls other servers, each through its own client.
struct Relay {
    directory: PathBuf,
    clients: [OnceLock<NodeClient>; 3],
}

/// Returns the address of a node. This is the address that the node wrote to a file. If there is no such
/// file, the name of the node is its address.
fn address(directory: &Path, name: &str) -> String {
    let written = std::fs::read_to_string(directory.join(format!("{name}.at")));
    written.unwrap_or_else(|_| name.to_owned())
}

impl Relay {
    fn client(&self, name: &str) -> Result<&NodeClient, CallError> {
        let place = &self.clients[name.as_bytes()[0] as usize - usize::from(b'a')];
        if let Some(client) = place.get() {
            return Ok(client);
        }
        let client = NodeClient::bind(&address(&self.directory, name))?;
        Ok(place.get_or_init(|| client))
    }
}

impl Node for Relay {
    fn pass(&self, route: &str) -> peregrine::Result<Vec<u32>> {
        match route.split_at_checked(1) {
            Some((next, rest)) => self.client(next)?.pass(rest),
            None => Ok(peregrine::caller().map(|caller| caller.chain()).unwrap_or_default()),
        }
    }
    fn bounce(&self, route: &str, times: u32) -> peregrine::Result<Vec<u32>> {
        let (next, rest) = route.split_at(1);
        for _ in 1..times {
            self.client(next)?.pass(rest)?;
        }
        self.client(next)?.pass(rest)
    }
    fn linger(&self, route: &str, ms: u32) -> peregrine::Result<()> {
        match route.split_at_checked(1) {
            Some((next, rest)) => self.client(next)?.linger(rest, ms),
            None => {
                std::thread::sleep(Duration::from_millis(ms.into()));
                Ok(())
            }
        }
    }
}

/// Runs a node as a child process with the role `CARRIER THREADS NAME`. In the test run itself, this function
/// does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let directory = support::directory();
    let mut words = role.split(' ');
    let mut word = || words.next().expect("carrier, threads, name");
    let (carrier, threads, name) = (word(), word().parse().expect("a number"), word());
    let relay = Relay { directory: directory.clone(), clients: Default::default() };
    let mut server = Server::new().threads(threads).export(name, NodeServer::new(relay)).unwrap();
    if carrier != "local" {
        server = server.listen(&format!("{carrier}:127.0.0.1:0")).unwrap();
    }
    let running = server.spawn().unwrap();
    if let Some(endpoint) = running.addresses().first() {
        let file = directory.join(format!("{name}.at"));
        std::fs::write(file, format!("{endpoint}/{name}")).unwrap();
    }
    println!("\nready");
    running.wait();
}

/// The time limit of each nested call. Without this limit, a call would never end if threads waited for each
/// other.
const LIMIT: Duration = Duration::from_secs(20);

fn calls_that_nest_find_a_thread_and_know_their_way(carrier: &str) {
    let _alone = support::alone();
    let directory = support::own_directory();
    // Each server has one thread. A call may come back to a process that already waits in the same chain of
    // calls. If the server did not start another thread, that call would wait for itself.
    let start = |name| Process::start("child", &format!("{carrier} 1 {name}"), directory.path());
    let mut nodes = ["a", "b", "c"].map(start);
    let [a, b, c] = [nodes[0].id(), nodes[1].id(), nodes[2].id()];
    // Over datagrams, the server cannot verify the process of the first caller, and reports 0.
    let own = if carrier == "udp" { 0 } else { std::process::id() };
    let client = NodeClient::bind(&address(directory.path(), "a")).unwrap().with_timeout(LIMIT);

    assert_eq!(client.pass("").unwrap(), [own]);
    assert_eq!(client.pass("b").unwrap(), [own, a]);
    assert_eq!(client.pass("bc").unwrap(), [own, a, b]);
    // `b` calls back into `a`, whose only thread waits for `b`.
    assert_eq!(client.pass("ba").unwrap(), [own, a, b]);
    assert_eq!(client.pass("bab").unwrap(), [own, a, b, a]);
    assert_eq!(client.pass("bcaab").unwrap(), [own, a, b, c, a, a]);
    // Each of these calls needs an extra thread of `a` again, and must get one.
    for _ in 0..50 {
        assert_eq!(client.pass("ba").unwrap(), [own, a, b]);
    }

    // A circular call ends with an error that names the reason.
    let error = client.pass(&"ba".repeat(40)).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::Relayed, Executed::Maybe), "{error}");
    assert!(error.to_string().contains("nest"), "{error}");
    assert_eq!(client.pass("ba").unwrap(), [own, a, b]);

    // Several calls at once. Each passes through `a` and `b`, and comes back to `a`.
    at_once(400, || client.pass("ba"), &[own, a, b]);
    // `b` may call back into `a` before the thread of the previous callback is idle again. The new callback
    // must still get a thread.
    at_once(20, || client.bounce("ba", 25), &[own, a, b]);

    // The process in the middle of the chain is killed. The process that called it gets an error, and the
    // result of the last node is discarded. Over datagrams, the caller learns of the death only because the
    // dead process answers no probes.
    let (ms, soon) = if carrier == "udp" { (7000, 6300) } else { (4000, 3600) };
    let call = std::thread::spawn({
        let client = client.clone();
        move || client.linger("bc", ms)
    });
    std::thread::sleep(Duration::from_millis(200));
    let killed = Instant::now();
    nodes[1].kill();
    let error = call.join().unwrap().unwrap_err();
    assert!(killed.elapsed() < Duration::from_millis(soon), "the call waited for the last node");
    assert_eq!((error.kind(), error.executed()), (Kind::Relayed, Executed::Maybe), "{error}");
    let text = error.to_string();
    assert!(
        ["ended", "gone", "no server listens", "not answer"].iter().any(|word| text.contains(word)),
        "{error}"
    );
    // The other processes continue. The last node serves calls again when its procedure has ended.
    assert_eq!(client.pass("").unwrap(), [own]);
    assert_eq!(client.pass("c").unwrap(), [own, a]);
}

/// Makes `times` calls on each of four threads, at the same time. Each call must return `expected`, or must
/// be refused because the server is overloaded.
fn at_once(times: u32, call: impl Fn() -> Result<Vec<u32>, CallError> + Sync, expected: &[u32]) {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..times {
                    match call() {
                        Err(error) if error.kind() == Kind::Overloaded => {}
                        way => assert_eq!(way.unwrap(), expected),
                    }
                }
            });
        }
    });
}

/// Makes calls that go back and forth between two processes. Each level of nesting needs a thread. Together,
/// the calls need more threads than are idle, and more than the servers may start. No call may wait forever.
fn deeply_nested_calls_find_threads(carrier: &str) {
    let _alone = support::alone();
    let directory = support::own_directory();
    let start = |name| Process::start("child", &format!("{carrier} 4 {name}"), directory.path());
    let nodes = ["a", "b"].map(start);
    let [a, b] = [nodes[0].id(), nodes[1].id()];
    let own = if carrier == "udp" { 0 } else { std::process::id() };
    let client = NodeClient::bind(&address(directory.path(), "a")).unwrap().with_timeout(LIMIT);
    let deep: Vec<u32> = std::iter::once(own).chain([a, b].into_iter().cycle().take(30)).collect();
    at_once(15, || client.pass(&"ba".repeat(15)), &deep);
    at_once(20, || client.bounce("bab", 25), &[own, a, b, a]);
}

#[test]
fn nested_calls_on_the_local_path() {
    calls_that_nest_find_a_thread_and_know_their_way("local");
}

#[test]
fn nested_calls_over_tcp() {
    calls_that_nest_find_a_thread_and_know_their_way("tcp");
}

#[test]
fn nested_calls_over_udp() {
    calls_that_nest_find_a_thread_and_know_their_way("udp");
}

#[test]
fn deeply_nested_calls_on_the_local_path() {
    deeply_nested_calls_find_threads("local");
}

#[test]
fn deeply_nested_calls_over_tcp() {
    deeply_nested_calls_find_threads("tcp");
}

#[test]
fn deeply_nested_calls_over_udp() {
    deeply_nested_calls_find_threads("udp");
}
