//! Calls that nest: through other processes and back, deeper than threads go, many at once, and with
//! a death in the middle; on the local path, over TCP and over UDP.

mod support;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use peregrine::{CallError, Executed, Kind, Server, interface};
use support::{Part, part};

#[interface]
trait Node {
    /// Goes on through the nodes named, one letter each, and tells through which processes the
    /// call has come to the last of them.
    fn pass(&self, route: &str) -> peregrine::Result<Vec<u32>>;
    /// Goes on as `pass`, so many times one after the other, from the first node only.
    fn bounce(&self, route: &str, times: u32) -> peregrine::Result<Vec<u32>>;
    /// Goes on as `pass`; at the last node it takes its time.
    fn linger(&self, route: &str, ms: u32) -> peregrine::Result<()>;
}

/// A server that calls others, each through one client.
struct Relay {
    directory: PathBuf,
    clients: [OnceLock<NodeClient>; 3],
}

/// Where a node is: at the address that it wrote down, or else under its name.
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

/// The parts that children play, `CARRIER THREADS NAME`; in the test itself this does nothing.
#[test]
fn child() {
    let Some(part) = part() else { return };
    let directory = support::directory();
    let mut words = part.split(' ');
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

/// What is waited for a call that nests; if threads waited for each other, it would be for ever.
const LIMIT: Duration = Duration::from_secs(20);

fn calls_that_nest_find_a_thread_and_know_their_way(carrier: &str) {
    let _alone = support::alone();
    let directory = support::own_directory();
    // One thread: a call that comes back would wait for itself.
    let start = |name| Part::start("child", &format!("{carrier} 1 {name}"), directory.path());
    let mut nodes = ["a", "b", "c"].map(start);
    let [a, b, c] = [nodes[0].id(), nodes[1].id(), nodes[2].id()];
    // Over datagrams nobody knows which process calls first.
    let own = if carrier == "udp" { 0 } else { std::process::id() };
    let client = NodeClient::bind(&address(directory.path(), "a")).unwrap().with_timeout(LIMIT);

    assert_eq!(client.pass("").unwrap(), [own]);
    assert_eq!(client.pass("b").unwrap(), [own, a]);
    assert_eq!(client.pass("bc").unwrap(), [own, a, b]);
    // Back into a process whose only thread waits for this very call.
    assert_eq!(client.pass("ba").unwrap(), [own, a, b]);
    assert_eq!(client.pass("bab").unwrap(), [own, a, b, a]);
    assert_eq!(client.pass("bcaab").unwrap(), [own, a, b, c, a, a]);
    // Then the bound holds again: the way is the same once more.
    for _ in 0..50 {
        assert_eq!(client.pass("ba").unwrap(), [own, a, b]);
    }

    // A circle ends, with an error that says so.
    let error = client.pass(&"ba".repeat(40)).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::Relayed, Executed::Maybe), "{error}");
    assert!(error.to_string().contains("nest"), "{error}");
    assert_eq!(client.pass("ba").unwrap(), [own, a, b]);

    // Several at once, each through every node and back.
    at_once(400, || client.pass("ba"), &[own, a, b]);
    // Each comes back while the thread that ran the one before may not have noticed its end.
    at_once(20, || client.bounce("ba", 25), &[own, a, b]);

    // The one in the middle dies: its caller learns it, and what the last one does is of no use.
    // Over datagrams, an unanswered question has to say so.
    let (ms, soon) = if carrier == "udp" { (7000, 6300) } else { (4000, 3600) };
    let call = std::thread::spawn({
        let client = client.clone();
        move || client.linger("bc", ms)
    });
    std::thread::sleep(Duration::from_millis(200));
    let killed = Instant::now();
    nodes[1].kill();
    let error = call.join().unwrap().unwrap_err();
    assert!(killed.elapsed() < Duration::from_millis(soon), "it waited for the last one");
    assert_eq!((error.kind(), error.executed()), (Kind::Relayed, Executed::Maybe), "{error}");
    let text = error.to_string();
    assert!(
        ["ended", "gone", "nobody listens", "not answer"].iter().any(|word| text.contains(word)),
        "{error}"
    );
    // Those that live serve on, the last one once it is done.
    assert_eq!(client.pass("").unwrap(), [own]);
    assert_eq!(client.pass("c").unwrap(), [own, a]);
}

/// Four threads call so many times each, all of them at once.
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

/// Each takes a thread of either process for each of its levels: more than the bound, and more than
/// those that wait for calls beside it.
fn calls_that_nest_deeply_find_threads(carrier: &str) {
    let _alone = support::alone();
    let directory = support::own_directory();
    let start = |name| Part::start("child", &format!("{carrier} 4 {name}"), directory.path());
    let nodes = ["a", "b"].map(start);
    let [a, b] = [nodes[0].id(), nodes[1].id()];
    let own = if carrier == "udp" { 0 } else { std::process::id() };
    let client = NodeClient::bind(&address(directory.path(), "a")).unwrap().with_timeout(LIMIT);
    let deep: Vec<u32> = std::iter::once(own).chain([a, b].into_iter().cycle().take(30)).collect();
    at_once(15, || client.pass(&"ba".repeat(15)), &deep);
    at_once(20, || client.bounce("bab", 25), &[own, a, b, a]);
}

#[test]
fn calls_that_nest_on_the_local_path() {
    calls_that_nest_find_a_thread_and_know_their_way("local");
}

#[test]
fn calls_that_nest_over_tcp() {
    calls_that_nest_find_a_thread_and_know_their_way("tcp");
}

#[test]
fn calls_that_nest_over_udp() {
    calls_that_nest_find_a_thread_and_know_their_way("udp");
}

#[test]
fn calls_that_nest_deeply_on_the_local_path() {
    calls_that_nest_deeply_find_threads("local");
}

#[test]
fn calls_that_nest_deeply_over_tcp() {
    calls_that_nest_deeply_find_threads("tcp");
}

#[test]
fn calls_that_nest_deeply_over_udp() {
    calls_that_nest_deeply_find_threads("udp");
}
