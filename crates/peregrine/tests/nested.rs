//! Calls that nest: through other processes and back, deeper than threads go, and with a death in
//! the middle.

mod support;

use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use peregrine::{CallError, Executed, Kind, Server, interface};
use support::{Part, part};

#[interface]
trait Node {
    /// Goes on through the nodes named, one letter each, and tells through which processes the
    /// call has come to the last of them.
    fn pass(&self, route: &str) -> peregrine::Result<Vec<u32>>;
    /// Goes on as `pass`; at the last node it takes its time.
    fn linger(&self, route: &str, ms: u32) -> peregrine::Result<()>;
}

/// A server that calls others, each through one client.
#[derive(Default)]
struct Relay {
    clients: [OnceLock<NodeClient>; 3],
}

impl Relay {
    fn client(&self, name: &str) -> Result<&NodeClient, CallError> {
        let place = &self.clients[name.as_bytes()[0] as usize - usize::from(b'a')];
        if let Some(client) = place.get() {
            return Ok(client);
        }
        let client = NodeClient::bind(name)?;
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

/// The parts that children play; in the test itself this does nothing.
#[test]
fn child() {
    let Some(name) = part() else { return };
    // One thread: a call that comes back would wait for itself.
    let server = Server::new().threads(1).export(&name, NodeServer::new(Relay::default()));
    let running = server.unwrap().spawn().unwrap();
    println!("\nready");
    running.wait();
}

fn start(name: &str, directory: &Path) -> Part {
    Part::start("child", name, directory)
}

const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn calls_that_nest_find_a_thread_and_know_their_way() {
    let directory = support::own_directory();
    let mut nodes = ["a", "b", "c"].map(|name| start(name, directory.path()));
    let [a, b, c] = [nodes[0].id(), nodes[1].id(), nodes[2].id()];
    let own = std::process::id();
    let client = NodeClient::bind("a").unwrap().with_timeout(LIMIT);

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
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let way = match client.pass("ba") {
                        Err(error) if error.kind() == Kind::Overloaded => continue,
                        way => way.unwrap(),
                    };
                    assert_eq!(way, [own, a, b]);
                }
            });
        }
    });

    // The one in the middle dies: its caller learns it, and what the last one does is of no use.
    let call = std::thread::spawn({
        let client = client.clone();
        move || client.linger("bc", 1500)
    });
    std::thread::sleep(Duration::from_millis(200));
    let killed = Instant::now();
    nodes[1].kill();
    let error = call.join().unwrap().unwrap_err();
    assert!(killed.elapsed() < Duration::from_millis(1200), "it waited for the last one");
    assert_eq!((error.kind(), error.executed()), (Kind::Relayed, Executed::Maybe), "{error}");
    assert!(error.to_string().contains("ended") || error.to_string().contains("gone"), "{error}");
    // Those that live serve on, the last one once it is done.
    assert_eq!(client.pass("").unwrap(), [own]);
    assert_eq!(client.pass("c").unwrap(), [own, a]);
}
