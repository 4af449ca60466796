//! Tests network paths that change while a client makes calls over UDP. The client's address changes, or a
//! NAT forgets a flow. A load balancer hides several servers behind one address, or some addresses of a
//! server do not answer.

mod ledger;
mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ledger::{Book, Ledger as _, LedgerClient, LedgerServer, Outcomes};
use peregrine::directory::Hosts;
use peregrine::{BindOptions, Executed, Insecure, Kind, Out, PathKind, Server, Verdict, interface};
use support::bridge::Bridge;
use support::impairments::Impairments;
use support::link::{ENDS, Link};
use support::nat::Nat;
use support::{Process, alone, role, until};

/// A call that takes longer than this is considered hung.
const LONG: Duration = Duration::from_secs(20);

/// Does the work of a child process with one of three roles: `ENDPOINT...` (serves at these endpoints),
/// `binds`, or `fetches ADDRESS`. In the test run itself there is no role, and this function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    if role == "binds" {
        return binds_by_several_addresses();
    }
    if let Some(address) = role.strip_prefix("fetches ") {
        return fetches(address);
    }
    let directory = support::directory();
    let server = Server::new().export("ledger", LedgerServer::new(Book::of(&directory))).unwrap();
    let mut server = server.export("wide", WideServer::new(Bytes)).unwrap();
    for endpoint in role.split(' ') {
        server = server.listen_beyond_this_machine(endpoint, Insecure::ITrustThisNetwork).unwrap();
    }
    let running = server.spawn().unwrap();
    println!("\nat {}", running.addresses()[0].place());
    println!("ready");
    running.wait();
}

#[interface]
trait Wide {
    fn send(&self, #[max_len(8 << 20)] bytes: &[u8]) -> peregrine::Result<u64>;
    fn fetch(&self, bytes: u32, #[max_len(8 << 20)] into: Out<'_, u8>) -> peregrine::Result<()>;
}

struct Bytes;

fn byte(at: usize) -> u8 {
    (at * 31 / 7) as u8
}

impl Wide for Bytes {
    fn send(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        Ok(bytes.iter().enumerate().filter(|(at, one)| **one == byte(*at)).count() as u64)
    }
    fn fetch(&self, bytes: u32, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let all: Vec<u8> = (0..bytes as usize).map(byte).collect();
        into.put(&all).expect("enough space");
        Ok(())
    }
}

/// Sends `bytes` bytes to the server, and then fetches `bytes` bytes from the server.
fn to_and_fro(wide: &WideClient, bytes: usize) {
    let all: Vec<u8> = (0..bytes).map(byte).collect();
    let begun = Instant::now();
    assert_eq!(wide.send(&all).unwrap(), bytes as u64);
    let sent = begun.elapsed();
    let mut back = vec![0; bytes];
    wide.fetch(bytes as u32, Out::from(&mut back[..])).unwrap();
    assert!(back == all);
    println!("sent {bytes} bytes in {sent:?} and received them in {:?}", begun.elapsed() - sent);
    within(LONG, begun);
}

fn fetches(address: &str) {
    let wide = WideClient::bind(address).unwrap();
    let mut back = vec![0; 1 << 20];
    let begun = Instant::now();
    wide.fetch(1 << 20, Out::from(&mut back[..])).unwrap();
    assert!(back.iter().enumerate().all(|(at, one)| *one == byte(at)));
    within(LONG, begun);
    println!("\nended {:?}", begun.elapsed());
}

/// Returns the number of IP fragments that a network namespace has sent or reassembled.
fn fragments(link: &Link, which: usize) -> u64 {
    let table = link.at(which, || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
    let mut lines = table.lines().filter(|line| line.starts_with("Ip:"));
    let (names, numbers) = (lines.next().expect("names"), lines.next().expect("numbers"));
    let counted = |(name, _): &(&str, &str)| ["FragCreates", "ReasmReqds"].contains(name);
    let all = names.split(' ').zip(numbers.split(' ')).filter(counted);
    let all: Vec<u64> = all.map(|(_, number)| number.parse().expect("a number")).collect();
    assert_eq!(all.len(), 2, "{names}");
    all.iter().sum()
}

#[test]
fn large_messages_pass_a_router_with_a_narrow_link() {
    let _alone = alone();
    let link = match Link::routed(1400) {
        Ok(link) => link,
        Err(why) => return println!("skipped: {why}"),
    };
    let home = tempfile::tempdir().unwrap();
    let _server = link.start(1, "child", &format!("udp:{}:7013", ENDS[1]), home.path());
    let address = format!("udp:wide@{}:7013", ENDS[1]);
    at_near_end(&link, || {
        let wide = WideClient::bind(&address).unwrap();
        to_and_fro(&wide, 1 << 20);
        to_and_fro(&wide, 8 << 20);
    });
    for which in 0..3 {
        assert_eq!(fragments(&link, which), 0, "fragments at {which}");
    }
    // In this second case, the first large message has the opposite direction: it is the result of a small
    // call.
    let link = Link::routed(1400).unwrap();
    let home = tempfile::tempdir().unwrap();
    let _server = link.start(1, "child", &format!("udp:{}:7014", ENDS[1]), home.path());
    let address = format!("udp:wide@{}:7014", ENDS[1]);
    // The client is a new process, which has no information about the path yet.
    let mut client = link.launch(0, "child", &format!("fetches {address}"), home.path());
    println!("received a result of 1 MiB in {}", client.until("ended"));
    for which in 0..3 {
        assert_eq!(fragments(&link, which), 0, "fragments at {which}");
    }
}

/// Over IPv6, only the sender may fragment packets. Large messages must still pass a router with a narrow
/// link.
#[test]
fn large_messages_pass_a_router_with_a_narrow_link_over_ipv6() {
    let _alone = alone();
    let link = match Link::routed(1400) {
        Ok(link) => link,
        Err(why) => return println!("skipped: {why}"),
    };
    let ends = match link.route_six(1280) {
        Ok(ends) => ends,
        Err(why) => return println!("skipped: {why}"),
    };
    let home = tempfile::tempdir().unwrap();
    let endpoint = format!("udp:[{}]:7016", ends[1]);
    let _server = link.start(1, "child", &endpoint, home.path());
    let address = format!("udp:wide@[{}]:7016", ends[1]);
    // The result is large, and the client is a new process, which has no information about the path yet.
    let mut client = link.launch(0, "child", &format!("fetches {address}"), home.path());
    println!("received a result of 1 MiB in {}", client.until("ended"));
    at_near_end(&link, || {
        let wide = WideClient::bind(&address).unwrap();
        to_and_fro(&wide, 1 << 20);
    });
}

/// The MTU of the server's own interface becomes smaller than the agreed size of fragments. When the server
/// sends the first packet that is too large, its kernel reports an error. The server then informs the client,
/// so no packet is lost.
#[test]
fn results_fit_an_interface_that_became_narrower() {
    let _alone = alone();
    let link = match Link::new() {
        Ok(link) => link,
        Err(why) => return println!("skipped: {why}"),
    };
    let home = tempfile::tempdir().unwrap();
    let _server = link.start(1, "child", &format!("udp:{}:7017", ENDS[1]), home.path());
    let address = format!("udp:wide@{}:7017", ENDS[1]);
    at_near_end(&link, || {
        // The patient client sends its first probe only after 10 s without a packet. This is the longest time
        // that `ask_after` accepts.
        let silence = Duration::from_secs(10);
        let options = BindOptions::default().ask_after(silence);
        let patient = WideClient::bind_with(&address, &options).unwrap();
        let wide = WideClient::bind(&address).unwrap();
        for wide in [&patient, &wide] {
            wide.send(&[0; 100]).unwrap();
        }
        link.set_mtu(1, 1280);
        let fetch = |wide: &WideClient, bytes: usize| {
            let mut back = vec![0; bytes];
            let begun = Instant::now();
            wide.fetch(bytes as u32, Out::from(&mut back[..])).unwrap();
            assert!(back.iter().enumerate().all(|(at, one)| *one == byte(at)));
            let took = begun.elapsed();
            println!("received {bytes} bytes in {took:?}");
            took
        };
        // The result fits one packet of the agreed size, but needs two packets of the new size. The server
        // must send these two packets without being asked by a probe.
        let took = fetch(&patient, 1250);
        assert!(took < silence, "{took:?}");
        fetch(&wide, 1 << 20);
    });
}

/// One server listens on one port over both IPv4 and IPv6.
#[test]
fn server_listens_at_any_address_over_ipv4_and_ipv6() {
    let _alone = alone();
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        return println!("skipped: this machine has no IPv6");
    }
    for [first, then] in [["0.0.0.0", "[::]"], ["[::]", "0.0.0.0"]] {
        let free = std::net::UdpSocket::bind("[::]:0").expect("a free port");
        let port = free.local_addr().expect("a socket that is bound").port();
        drop(free);
        let home = tempfile::tempdir().unwrap();
        let role = format!("udp:{first}:{port} udp:{then}:{port}");
        let mut server = Process::launch("child", &role, home.path());
        server.until("ready");
        for host in ["127.0.0.1", "[::1]"] {
            let ledger = LedgerClient::bind(&format!("udp:ledger@{host}:{port}")).unwrap();
            assert_eq!(ledger.swallow(&[1, 2, 3]).unwrap(), 3, "{host}");
        }
    }
}

/// Large messages pass a link that drops packets that are too large and sends no ICMP messages. The client
/// keeps the packet size that it has found for the host, and later bindings use this size.
#[test]
fn large_messages_pass_a_link_that_drops_large_packets() {
    let _alone = alone();
    let link = match Link::with_middle() {
        Ok(link) => link,
        Err(why) => return println!("skipped: {why}"),
    };
    let bridge = Bridge::new(&link, Impairments::default(), 1, |_, _| {});
    let home = tempfile::tempdir().unwrap();
    let _server = link.start(1, "child", &format!("udp:{}:7015", ENDS[1]), home.path());
    let address = format!("udp:wide@{}:7015", ENDS[1]);
    at_near_end(&link, || {
        let wide = WideClient::bind(&address).unwrap();
        // This limit is smaller than that of other tests, because the process remembers the packet size that
        // these tests have found for the host.
        bridge.seen.narrow.store(1200, Ordering::SeqCst);
        to_and_fro(&wide, 1 << 20);
        let vanished = bridge.seen.vanished.load(Ordering::SeqCst);
        assert!(vanished > 0, "no packet was too large");
        let another = WideClient::bind(&address).unwrap();
        drop(wide);
        to_and_fro(&another, 1 << 20);
        assert_eq!(
            bridge.seen.vanished.load(Ordering::SeqCst),
            vanished,
            "the new client should know the packet size"
        );
    });
    for which in 0..2 {
        assert_eq!(fragments(&link, which), 0, "fragments at {which}");
    }
}

/// A server on loopback with a separate runtime directory and a separate record of its calls.
struct Served {
    process: Process,
    home: tempfile::TempDir,
    at: SocketAddr,
}

impl Served {
    fn start(endpoint: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut process = Process::launch("child", endpoint, home.path());
        let at = process.until("at ").parse().unwrap();
        process.until("ready");
        Self { process, home, at }
    }
}

fn within(limit: Duration, begun: Instant) {
    assert!(begun.elapsed() < limit, "it took {:?}", begun.elapsed());
}

/// Runs `what` on a thread at the near end of a link.
fn at_near_end(link: &Link, what: impl FnOnce() + Send) {
    link.at(0, what);
}

#[test]
fn calls_succeed_after_the_client_address_changed() {
    let _alone = alone();
    let link = match Link::new() {
        Ok(link) => link,
        Err(why) => return println!("skipped: {why}"),
    };
    let home = tempfile::tempdir().unwrap();
    let port = 7011;
    let _server = link.start(1, "child", &format!("udp:{}:{port}", ENDS[1]), home.path());
    let change = |from: &str, to: &str| link.change_address(0, from, to);
    at_near_end(&link, || {
        let address = format!("udp:ledger@{}:{port}", ENDS[1]);
        let ledger = LedgerClient::bind(&address).unwrap();
        assert_eq!(ledger.enter(1, 0).unwrap(), 2);

        // The address changes between two calls. The next call must succeed without an error.
        change(ENDS[0], "10.213.77.5");
        let begun = Instant::now();
        assert_eq!(ledger.enter(2, 0).unwrap(), 3);
        within(LONG, begun);

        // The address changes during a call. The result of this call cannot arrive, but the next call must
        // succeed.
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| ledger.enter(3, 5_000));
            until("the call runs", || Book::read(home.path()).contains(&3));
            change("10.213.77.5", "10.213.77.6");
            let error = caller.join().unwrap().unwrap_err();
            assert_eq!((error.kind(), error.executed()), (Kind::ServerGone, Executed::Maybe));
        });
        let begun = Instant::now();
        assert_eq!(ledger.enter(4, 0).unwrap(), 5);
        within(LONG, begun);

        // Calls with short time limits also notice that the network path is lost.
        let hasty = ledger.with_timeout(Duration::from_millis(300));
        assert_eq!(hasty.enter(5, 0).unwrap(), 6);
        change("10.213.77.6", "10.213.77.7");
        assert_eq!(hasty.enter(6, 0).unwrap(), 7);

        // A binding that is made after the change must use a new flow.
        change("10.213.77.7", "10.213.77.8");
        let begun = Instant::now();
        let another = LedgerClient::bind(&address).unwrap();
        assert_eq!(another.enter(7, 0).unwrap(), 8);
        assert_eq!(ledger.enter(8, 0).unwrap(), 9);
        within(LONG, begun);
    });
    let mut entered = Book::read(home.path());
    entered.sort_unstable();
    assert_eq!(entered, [1, 2, 3, 4, 5, 6, 7, 8], "each call ran once");
}

#[test]
fn calls_succeed_after_the_nat_forgot_the_flow() {
    let _alone = alone();
    let served = Served::start("udp:127.0.0.1:0");
    let nat = Nat::start(vec![served.at]);
    let address = format!("udp:ledger@{}", nat.address());
    let ledger = LedgerClient::bind(&address).unwrap();
    assert_eq!(ledger.enter(1, 0).unwrap(), 2);
    nat.forget();
    let begun = Instant::now();
    let error = ledger.enter(2, 0).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::ServerGone, Executed::Maybe), "{error}");
    assert!(nat.dropped() > 0);
    assert_eq!(ledger.enter(3, 0).unwrap(), 4);
    within(LONG, begun);

    // A binding that is made after the NAT forgot the flow must use a new flow.
    nat.forget();
    let begun = Instant::now();
    let another = LedgerClient::bind(&address).unwrap();
    assert_eq!(another.enter(4, 0).unwrap(), 5);
    within(LONG, begun);

    // The time limit of these calls is shorter than the time after which a client gives up a silent server.
    // Even so, they find a new flow.
    nat.forget();
    let hasty = ledger.with_timeout(Duration::from_millis(200));
    let mut number = 10;
    until("a new flow is found", || {
        number += 1;
        hasty.enter(number, 0).is_ok()
    });
    let mut entered = Book::read(served.home.path());
    entered.sort_unstable();
    assert!(entered.windows(2).all(|pair| pair[0] != pair[1]), "a call ran twice");
    assert!(!entered.contains(&2));
}

/// A call is cancelled while the client probes the server. The call keeps its handle until the server has
/// answered, and the next call then uses the same handle.
#[test]
fn call_cancelled_while_probing_keeps_its_handle() {
    let _alone = alone();
    let served = Served::start("udp:127.0.0.1:0");
    let nat = Nat::start(vec![served.at]);
    let address = format!("udp:ledger@{}", nat.address());
    let options = BindOptions::default().astacks(1);
    let ledger = LedgerClient::bind_with(&address, &options).unwrap();
    assert_eq!(ledger.enter(1, 0).unwrap(), 2);
    let binds = nat.binds();
    assert!(binds > 0);
    for number in 2..7 {
        // After a pause of this length, a client probes the server before it sends the next call.
        std::thread::sleep(Duration::from_millis(100));
        nat.forget();
        let hasty = ledger.with_timeout(Duration::from_millis(20));
        let error = hasty.enter(100, 0).unwrap_err();
        assert_eq!(error.kind(), Kind::TimedOut, "{error}");
        nat.remember();
        let begun = Instant::now();
        assert_eq!(ledger.enter(number, 0).unwrap(), number + 1);
        within(LONG, begun);
    }
    assert_eq!(nat.binds(), binds, "a handle was bound again");
    assert_eq!(Book::read(served.home.path()), [1, 2, 3, 4, 5, 6]);
}

/// A thread has a flow to the server through one binding. The NAT forgets that flow before the thread makes
/// its first call through another binding. So the thread has to bind again. The time limit of the call is
/// shorter than the time after which a client gives up a silent server.
#[test]
fn short_limits_find_a_new_flow_when_only_the_bind_fails() {
    let _alone = alone();
    let served = Served::start("udp:127.0.0.1:0");
    let nat = Nat::start(vec![served.at]);
    let address = format!("udp:ledger@{}", nat.address());
    let [first, second] = [(); 2].map(|()| LedgerClient::bind(&address).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(first.enter(1, 0).unwrap(), 2);
            nat.forget();
            let hasty = second.with_timeout(Duration::from_millis(200));
            let mut number = 10;
            until("a new flow is found", || {
                number += 1;
                hasty.enter(number, 0).is_ok()
            });
        });
    });
    let mut entered = Book::read(served.home.path());
    entered.sort_unstable();
    assert!(entered.windows(2).all(|pair| pair[0] != pair[1]), "a call ran twice");
}

/// A name has several addresses, and most of them do not answer. Each path must find the address that
/// answers.
#[test]
fn dead_addresses_of_a_name_do_not_hide_the_live_one() {
    let _alone = alone();
    let link = match Link::new() {
        Ok(link) => link,
        Err(why) => return println!("skipped: {why}"),
    };
    let home = tempfile::tempdir().unwrap();
    let hosts = format!(
        "127.0.0.1 localhost\nfd00:213::9 several\n10.213.77.98 several\n10.213.77.99 several\n\
         {} several\n",
        ENDS[1]
    );
    std::fs::write(home.path().join("hosts"), hosts).unwrap();
    let _server =
        link.start(1, "child", &format!("udp:{0}:7012 tcp:{0}:7012", ENDS[1]), home.path());
    let mut client = link.with_hosts(0, "child", "binds", &home.path().join("hosts"), home.path());
    client.until("ended");
    // This address makes `fd00:213::9` of the hosts file routable, although no host has that address.
    link.add_address(0, "fd00:213::1/64");
    let mut client = link.with_hosts(0, "child", "binds", &home.path().join("hosts"), home.path());
    client.until("ended");
}

/// Binds to a name with several addresses, once by each scheme. Then binds to a name for which a directory
/// service offers many addresses. Most of the addresses do not answer.
fn binds_by_several_addresses() {
    for scheme in ["udp:", "tcp:", ""] {
        let begun = Instant::now();
        let ledger = LedgerClient::bind(&format!("{scheme}ledger@several:7012"))
            .unwrap_or_else(|error| panic!("{scheme} {error}"));
        ledger.swallow(&[1, 2]).unwrap();
        println!("{scheme} after {:?}", begun.elapsed());
        let another = LedgerClient::bind(&format!("{scheme}ledger@several:7012")).unwrap();
        another.swallow(&[1, 2]).unwrap();
    }
    let hosts = std::env::temp_dir().join(format!("peregrine-offers-{}", std::process::id()));
    let dead = (80..86).map(|host| format!("udp:ledger@10.213.77.{host}:7012 "));
    let line = format!("many {} udp:ledger@{}:7012\n", dead.collect::<String>(), ENDS[1]);
    std::fs::write(&hosts, line).unwrap();
    let options = BindOptions::default().directory(Hosts::of([hosts.clone()]));
    let many = LedgerClient::bind_with("udp:many", &options);
    std::fs::remove_file(hosts).unwrap();
    many.unwrap().swallow(&[1, 2]).unwrap();
    println!("\nended");
}

/// Makes calls with short time limits to a halted server. These calls end at their time limits, or report
/// that the server is gone. No call may report an exhausted resource. After the server continues, calls must
/// return again.
#[test]
fn calls_to_a_halted_server_report_no_exhausted_resource() {
    let _alone = alone();
    let served = Served::start("udp:127.0.0.1:0");
    let ledger = LedgerClient::bind(&format!("udp:ledger@{}", served.at)).unwrap();
    assert_eq!(ledger.enter(0, 0).unwrap(), 1);
    served.process.signal(libc::SIGSTOP);
    let (next, until) = (AtomicU64::new(1), Instant::now() + Duration::from_secs(3));
    std::thread::scope(|scope| {
        for _ in 0..12 {
            let hasty = ledger.with_timeout(Duration::from_millis(5));
            let next = &next;
            scope.spawn(move || {
                while Instant::now() < until {
                    let error = hasty.enter(next.fetch_add(1, Ordering::Relaxed), 0).unwrap_err();
                    let known = [Kind::TimedOut, Kind::ServerGone, Kind::Unreachable];
                    assert!(known.contains(&error.kind()), "{error}");
                }
            });
        }
    });
    let calls = next.load(Ordering::Relaxed);
    println!("{calls} calls in 3 s");
    assert!(calls < 100_000, "{calls} calls failed without waiting for anything");
    served.process.signal(libc::SIGCONT);
    support::until("calls return again", || ledger.enter(calls + 1, 0).is_ok());
    let mut entered = Book::read(served.home.path());
    entered.retain(|number| *number <= calls);
    entered.sort_unstable();
    assert!(entered.windows(2).all(|pair| pair[0] != pair[1]), "a call ran twice");
}

/// Compares the calls that returned with the records of the servers. The number of each such call must be in
/// exactly one record, and the records must contain no other numbers. Returns how many numbers each record
/// contains.
fn hold_books(outcomes: &[Outcomes], homes: &[&Path]) -> Vec<usize> {
    let mut returned: Vec<u64> = outcomes.iter().flat_map(|one| one.returned.clone()).collect();
    returned.sort_unstable();
    let books: Vec<Vec<u64>> = homes.iter().map(|home| Book::read(home)).collect();
    let mut entered = books.concat();
    entered.sort_unstable();
    assert_eq!(entered, returned, "each call ran once");
    books.iter().map(Vec::len).collect()
}

/// Makes calls through a balancer from many threads over two bindings. Checks that each call succeeds, and
/// that it runs once, at one of the servers. Returns the bindings, and the number of calls that ran at each
/// server.
fn calls_succeed(address: &str, nat: &Nat, servers: &[&Served]) -> (Vec<LedgerClient>, Vec<usize>) {
    const CALLS: u64 = 10_000;
    // There are more threads than sockets, so some threads share a socket.
    const THREADS: u64 = 24;
    let next = AtomicU64::new(0);
    let options = BindOptions::default().astacks(32);
    let bindings: Vec<LedgerClient> =
        (0..2).map(|_| LedgerClient::bind_with(address, &options).unwrap()).collect();
    let outcomes: Vec<Outcomes> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (ledger, next) = (&bindings[thread as usize % 2], &next);
                scope.spawn(move || {
                    let mut outcomes = Outcomes::default();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= CALLS {
                            return outcomes;
                        }
                        match ledger.enter(number, 0) {
                            Ok(_) => outcomes.returned.push(number),
                            Err(error) => panic!("call {number}: {error}"),
                        }
                    }
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    let homes: Vec<&Path> = servers.iter().map(|served| served.home.path()).collect();
    let shares = hold_books(&outcomes, &homes);
    println!("{CALLS} calls on {} flows: {shares:?}", nat.flows());
    (bindings, shares)
}

#[test]
fn calls_behind_a_balancer_all_succeed() {
    let _alone = alone();
    let served = [(); 2].map(|()| Served::start("udp:127.0.0.1:0"));
    let nat = Nat::start(served.iter().map(|served| served.at).collect());
    let address = format!("udp:ledger@{}", nat.address());
    let (bindings, _) = calls_succeed(&address, &nat, &served.each_ref());
    assert!(nat.flows() > 2, "the balancer saw too few flows");
    for ledger in &bindings {
        assert_eq!(ledger.binding().path(), PathKind::Udp);
    }
}

/// Returns a binding's verdict about a path, and the reason for the verdict.
fn said_of(ledger: &LedgerClient, path: PathKind) -> (Verdict, String) {
    let explanation = ledger.binding().explain();
    let rung = explanation.candidates().iter().find(|rung| rung.path == path).expect("every path");
    (rung.verdict, rung.reason.clone())
}

/// A client binds by a name without a scheme. A server answers over TCP at the balancer's address. Even so,
/// the client must use UDP through the balancer, and must report that TCP was not needed.
#[test]
fn calls_by_a_plain_name_behind_a_balancer_all_succeed() {
    let _alone = alone();
    let _directory = support::own_directory();
    let served = [(); 2].map(|()| Served::start("udp:127.0.0.1:0"));
    let nat = Nat::start(served.iter().map(|served| served.at).collect());
    let beside = Served::start(&format!("tcp:{}", nat.address()));
    let servers = [&served[0], &served[1], &beside];
    let address = format!("ledger@{}", nat.address());
    let (bindings, shares) = calls_succeed(&address, &nat, &servers);
    for ledger in &bindings {
        println!("{}", ledger.binding().explain());
        assert_eq!(ledger.binding().path(), PathKind::Udp);
        assert_eq!(said_of(ledger, PathKind::Tcp).0, Verdict::NotNeeded);
    }
    assert_eq!(shares[2], 0, "calls used TCP");
    assert!(nat.flows() > 2, "the balancer saw too few flows");
}

/// The balancer forwards nothing over UDP. So calls must use TCP, and the binding must report why.
#[test]
fn calls_by_a_plain_name_behind_a_balancer_without_servers_take_tcp() {
    let _alone = alone();
    let _directory = support::own_directory();
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nat = Nat::start(vec![closed]);
    let served = Served::start(&format!("tcp:{}", nat.address()));
    let (bindings, _) = calls_succeed(&format!("ledger@{}", nat.address()), &nat, &[&served]);
    assert!(nat.flows() > 0, "UDP was not tried");
    for ledger in &bindings {
        println!("{}", ledger.binding().explain());
        assert_eq!(ledger.binding().path(), PathKind::Tcp);
        let (verdict, reason) = said_of(ledger, PathKind::Udp);
        assert_eq!(verdict, Verdict::Failed);
        assert!(reason.contains("does not answer"), "{reason}");
    }
}
