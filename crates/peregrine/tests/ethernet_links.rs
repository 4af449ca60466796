//! Tests raw Ethernet on unusual links: on interfaces with several queues, and on networks whose MTU differs
//! from place to place. Also tests servers that run only for a moment.

#[path = "attack/mod.rs"]
mod attack;
mod ledger;
mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use attack::noise::Noise;
use attack::{eventually, no_longer_than, seed, soak};
use ledger::{Book, Ledger as _, LedgerClient, LedgerServer, Outcomes};
use peregrine::{BindOptions, EthernetDevice, Insecure, Out, PathKind, Server, interface};
use support::bridge::Bridge;
use support::impairments::Impairments;
use support::link::{self, ENDS, Link, at_far_end};
use support::{KeepGoing, role};

const PORT: u16 = 7000;
const SERVERS: usize = 1;
/// How long a test waits for an event that should be immediate.
const LIMIT: Duration = Duration::from_secs(20);

#[interface]
trait Bytes {
    fn sum(&self, #[max_len(8 << 20)] bytes: &[u8]) -> peregrine::Result<u64>;
    fn fill(&self, with: u8, #[max_len(8 << 20)] into: Out<'_, u8>) -> peregrine::Result<()>;
}

struct Object;

impl Bytes for Object {
    fn sum(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        Ok(bytes.iter().copied().map(u64::from).sum())
    }
    fn fill(&self, with: u8, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let all = vec![with; into.capacity()];
        into.put(&all).expect("enough space");
        Ok(())
    }
}

/// Runs in child processes with the role `server`; in the test itself this does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    no_longer_than(Duration::from_secs(120));
    assert_eq!(role, "server");
    let directory = PathBuf::from(std::env::var_os("PEREGRINE_DIR").unwrap());
    let book = Book::of(&directory);
    let server = Server::new().export("ledger", LedgerServer::new(book)).unwrap();
    let at = format!("eth:{}:{PORT}", ENDS[SERVERS]);
    let running = server
        .listen_beyond_this_machine(&at, Insecure::ITrustThisNetwork)
        .unwrap()
        .spawn()
        .unwrap();
    println!("\nat {}/ledger", running.addresses()[0]);
    running.wait();
}

/// Runs a case at the near end of a link. Only one case runs at a time.
fn at_near_end(link: Result<Link, String>, case: impl FnOnce(&Link) + Send) {
    let _alone = support::alone();
    link::at_near_end(link, case);
}

/// Runs `check` with a client of a [`Bytes`] server at the far end. The client uses the device `client`, and
/// the server uses the device `server`.
fn bytes_by(
    scheme: &str,
    client: EthernetDevice,
    server: EthernetDevice,
    check: impl Fn(&BytesClient),
) {
    let serves = Server::new().export("bytes", BytesServer::new(Object)).unwrap();
    let serves = serves.ethernet_device(server);
    let at = format!("{scheme}:{}:0", ENDS[SERVERS]);
    let serves = serves.listen_beyond_this_machine(&at, Insecure::ITrustThisNetwork).unwrap();
    let running = at_far_end(move || serves.spawn().unwrap());
    let options = BindOptions::default().ethernet_device(client);
    let address = format!("{}/bytes", running.addresses()[0]);
    check(&BytesClient::bind_with(&address, &options).unwrap());
}

/// Checks calls with few and with many bytes, in both directions.
fn check_calls(client: &BytesClient) {
    assert_eq!(client.sum(&[1; 100]).unwrap(), 100);
    let sent = vec![1; 1 << 20];
    let mut into = vec![0; 1 << 20];
    assert_eq!(client.sum(&sent).unwrap(), 1 << 20);
    client.fill(3, Out::from(&mut into[..])).unwrap();
    assert!(into.iter().all(|byte| *byte == 3));
}

/// A network card with several queues may receive Peregrine's frames on any of these queues. AF_XDP uses only
/// the first queue.
#[test]
fn frames_on_other_queues_arrive() {
    use EthernetDevice::{Any, Packet};
    at_near_end(Link::with_queues(4), |_| {
        let _directory = support::own_directory();
        for (client, server) in [(Packet, Any), (Any, Packet), (Any, Any)] {
            bytes_by("eth", client, server, |bytes| {
                check_calls(bytes);
                let summary = bytes.binding().explain().summary();
                println!("{client:?} to {server:?}: {summary}");
                assert_eq!(bytes.binding().path(), PathKind::Ethernet, "{summary}");
            });
        }
    });
}

/// Checks two kinds of networks. In the first, both ends send jumbo frames that the middle of the network
/// does not forward. In the second, the two ends have different MTUs.
#[test]
fn fragments_fit_the_smallest_mtu_of_the_network() {
    let any = EthernetDevice::Any;
    at_near_end(Link::with_middle(), |link| {
        let _directory = support::own_directory();
        [0, 1].into_iter().for_each(|end| link.widen(end, 9000));
        let bridge = Bridge::new(link, Impairments::default(), 1, |_, _| ());
        bridge.seen.narrow.store(1500, Ordering::SeqCst);
        for device in [any, EthernetDevice::Packet] {
            bytes_by("eth", device, device, |bytes| {
                let begun = Instant::now();
                check_calls(bytes);
                println!("{device:?}, 1500 in the middle: {:?}", begun.elapsed());
                assert_eq!(bytes.binding().path(), PathKind::Ethernet);
            });
            let vanished = bridge.seen.vanished.load(Ordering::SeqCst);
            assert_eq!(vanished, 0, "some fragments were too large for the network");
        }
        bytes_by("udp", any, any, |bytes| {
            let begun = Instant::now();
            check_calls(bytes);
            println!("udp, 1500 in the middle: {:?}", begun.elapsed());
        });
    });
    for mtus in [[1500, 9000], [9000, 1500]] {
        at_near_end(Link::new(), |link| {
            let _directory = support::own_directory();
            [0, 1].into_iter().for_each(|end| link.widen(end, mtus[end]));
            for scheme in ["eth", "udp"] {
                bytes_by(scheme, any, any, |bytes| {
                    let begun = Instant::now();
                    check_calls(bytes);
                    println!("{scheme} from {mtus:?}: {:?}", begun.elapsed());
                });
            }
        });
    }
}

/// Kills each server 20 to 300 ms after it starts. Callers find the next server, and no call waits long for a
/// dead server. `PEREGRINE_SOAK=60` makes this test run for about a minute.
#[test]
fn callers_of_short_lived_servers_find_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut noise = Noise::new(seed());
    at_near_end(Link::new(), move |link| {
        let (next, answered) = (AtomicU64::new(0), AtomicU64::new(0));
        let going = AtomicBool::new(true);
        let slowest = AtomicU64::new(0);
        let address = format!("eth:{}:{PORT}/ledger", ENDS[SERVERS]);
        let begun = Instant::now();
        let mut lives = 0;
        let outcomes: Vec<Outcomes> = std::thread::scope(|scope| {
            let keep_going = KeepGoing::new(&going);
            let callers: Vec<_> = (0..3)
                .map(|_| {
                    let (next, answered, going) = (&next, &answered, &going);
                    let (slowest, address) = (&slowest, &address);
                    scope.spawn(move || {
                        link.enter();
                        call_and_rebind(address, next, answered, going, slowest)
                    })
                })
                .collect();
            let end = Instant::now() + soak(Duration::from_secs(6));
            while Instant::now() < end || lives < 4 {
                let mut server = link.launch(SERVERS, "child", "server", path);
                server.until("at ");
                std::thread::sleep(Duration::from_millis(20 + noise.below(280)));
                server.kill();
                lives += 1;
            }
            // The last server stays, and all callers find it.
            let before = answered.load(Ordering::Relaxed);
            let mut server = link.launch(SERVERS, "child", "server", path);
            server.until("at ");
            let called = || answered.load(Ordering::Relaxed) > before + 100;
            assert!(eventually(LIMIT, called), "callers do not find the last server");
            drop(keep_going);
            callers.into_iter().map(|caller| caller.join().expect("no panic")).collect()
        });
        let [returned, not_executed, maybe] = Outcomes::check(&outcomes, path);
        let slowest = Duration::from_micros(slowest.load(Ordering::Relaxed));
        println!(
            "{returned} returned, {not_executed} not executed, {maybe} unknown, of {lives} servers in {:?}; \
            the slowest call took {slowest:?}",
            begun.elapsed()
        );
        assert!(slowest < Duration::from_secs(6), "a call waited {slowest:?} for a dead server");
    });
}

/// Calls to a stopped server wait for their full time limits. If calls that were given up used up the
/// resources that later calls need, the later calls would fail at once.
#[test]
fn callers_of_a_stopped_server_wait_for_their_limits() {
    const THREADS: u64 = 4;
    const MOMENT: Duration = Duration::from_millis(50);
    const WHILE: Duration = Duration::from_secs(4);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    at_near_end(Link::new(), |link| {
        for scheme in ["eth", "udp"] {
            let mut server = link.launch(SERVERS, "child", "server", path);
            server.until("at ");
            let address = format!("{scheme}:{}:{PORT}/ledger", ENDS[SERVERS]);
            let ledger = LedgerClient::bind_with(&address, &BindOptions::default()).unwrap();
            assert_eq!(ledger.swallow(&[1; 10]).unwrap(), 10);
            let impatient = ledger.with_timeout(MOMENT);
            server.signal(libc::SIGSTOP);
            let seen = Mutex::new(BTreeMap::<String, u64>::new());
            std::thread::scope(|scope| {
                let end = Instant::now() + WHILE;
                for _ in 0..THREADS {
                    let (seen, impatient) = (&seen, &impatient);
                    scope.spawn(move || {
                        while Instant::now() < end {
                            let error =
                                impatient.swallow(&[1; 10]).expect_err("the server is stopped");
                            let kind = format!("{:?} {:?}", error.kind(), error.executed());
                            *seen.lock().unwrap().entry(kind).or_default() += 1;
                        }
                    });
                }
            });
            let seen = seen.into_inner().unwrap();
            println!("{scheme}: {seen:?}");
            let all: u64 = seen.values().sum();
            let most = THREADS * (WHILE.as_millis() / MOMENT.as_millis()) as u64;
            assert!(all <= 2 * most, "{all} calls failed, most of them at once: {seen:?}");
            server.signal(libc::SIGCONT);
            assert!(eventually(LIMIT, || ledger.swallow(&[1; 10]).is_ok()), "the server continues");
        }
    });
}

/// Makes calls through one binding while `going` is set. The binding finds the next server by itself.
/// `slowest` gets the longest duration of a call in microseconds.
fn call_and_rebind(
    address: &str,
    next: &AtomicU64,
    answered: &AtomicU64,
    going: &AtomicBool,
    slowest: &AtomicU64,
) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let ledger = loop {
        match LedgerClient::bind(address) {
            Ok(ledger) => break ledger,
            Err(_) if going.load(Ordering::Relaxed) => std::thread::sleep(Duration::from_millis(1)),
            Err(_) => return outcomes,
        }
    };
    while going.load(Ordering::Relaxed) {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let begun = Instant::now();
        let result = ledger.enter(number, 0);
        slowest.fetch_max(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
        match result {
            Ok(_) => {
                outcomes.returned.push(number);
                answered.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                if begun.elapsed() > Duration::from_secs(2) {
                    println!("{:?}: {error}", begun.elapsed());
                }
                outcomes.failed(number, &error);
                // Without a server, calls fail at once. The pause limits the number of failed calls.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    outcomes
}
