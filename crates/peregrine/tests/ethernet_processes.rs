//! Tests servers and clients over raw Ethernet that are separate processes. The tests run several processes
//! at one interface, together with ordinary traffic. Only one process at a time can have the interface's
//! receive queue (by AF_XDP), and the tests kill this process. One test uses a link that no longer carries
//! Peregrine's frames.

#[path = "attack/mod.rs"]
mod attack;
mod ledger;
mod support;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use attack::noise::Noise;
use attack::{eventually, no_longer_than, seed, stop, stopped};
use ledger::{Book, Ledger as _, LedgerClient, LedgerServer, Outcomes};
use peregrine::{BindOptions, EthernetDevice, Executed, Insecure, Kind, PathKind, Rebind, Server};
use support::bridge::Bridge;
use support::impairments::Impairments;
use support::link::{ENDS, Link, at_near_end};
use support::{KeepGoing, Process, role};

/// How long a test waits for an event that should be immediate.
const LIMIT: Duration = Duration::from_secs(20);
/// The end of the link at which the clients are.
const CLIENTS: usize = 0;
/// The end of the link at which the servers are.
const SERVERS: usize = 1;
/// The port of the echo server.
const ECHO: u16 = 9000;
/// The port of the first server, and of servers that take its place.
const PORT: u16 = 7000;

/// Runs in child processes with a role: `server PORT [packet]`, `plain PORT [any]`, `caller ADDRESS NUMBER`,
/// `echo`. In the test itself this does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    no_longer_than(Duration::from_secs(120));
    let directory = support::directory();
    let words: Vec<&str> = role.split(' ').collect();
    match words[0] {
        "server" => {
            let book = Book::of(&directory);
            let mut server = Server::new().export("ledger", LedgerServer::new(book)).unwrap();
            let at = format!("eth:{}:{}", ENDS[SERVERS], words[1]);
            if words.get(2) == Some(&"packet") {
                server = server.ethernet_device(EthernetDevice::Packet);
            }
            let running = server
                .listen_beyond_this_machine(&at, Insecure::ITrustThisNetwork)
                .unwrap()
                .spawn()
                .unwrap();
            println!("\nat {}/ledger", running.addresses()[0]);
            running.wait();
        }
        // A server that listens at an address without a scheme. It requests a device if the role names one.
        "plain" => {
            let book = Book::of(&directory);
            let mut server = Server::new().export("ledger", LedgerServer::new(book)).unwrap();
            if words.get(2) == Some(&"any") {
                server = server.ethernet_device(EthernetDevice::Any);
            }
            let at = format!("{}:{}", ENDS[SERVERS], words[1]);
            let running = server
                .listen_beyond_this_machine(&at, Insecure::ITrustThisNetwork)
                .unwrap()
                .spawn()
                .unwrap();
            println!("\nat {:?}", running.addresses());
            running.wait();
        }
        // Makes calls until the test ends, each time with a new number. Every call must return.
        "caller" => {
            let ledger = LedgerClient::bind(words[1]).unwrap();
            println!("\nby {}", ledger.binding().explain().summary());
            let first: u64 = words[2].parse().unwrap();
            let bytes = vec![1; 20_000];
            let mut next = first;
            while !stopped(&directory) {
                assert_eq!(ledger.enter(next, 0).unwrap(), next + 1);
                assert_eq!(ledger.swallow(&bytes).unwrap(), 20_000);
                next += 1;
                if next == first + 20 {
                    println!("\ncalls");
                }
            }
            println!("\nmade {} by {}", next - first, ledger.binding().explain().summary());
        }
        "echo" => echo(),
        other => panic!("unknown role `{other}`"),
    }
}

/// Sends back what it receives, over TCP and UDP.
fn echo() {
    let listener = TcpListener::bind((ENDS[SERVERS], ECHO)).unwrap();
    let socket = UdpSocket::bind((ENDS[SERVERS], ECHO)).unwrap();
    std::thread::spawn(move || {
        let mut datagram = [0; 2048];
        while let Ok((bytes, from)) = socket.recv_from(&mut datagram) {
            let _ = socket.send_to(&datagram[..bytes], from);
        }
    });
    println!("\nready");
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 16_384];
            while let Ok(count @ 1..) = stream.read(&mut bytes) {
                stream.write_all(&bytes[..count]).unwrap();
            }
        });
    }
}

/// The beginning of each ordinary datagram.
const ORDINARY: &str = "an ordinary datagram, which is not one of Peregrine's";

/// Returns whether the writable memory of a process contains these bytes.
fn memory_has(pid: u32, wanted: &str) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("a process");
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).expect("its memory");
    let mut chunk = vec![0; 1 << 20];
    maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|may| may.starts_with("rw"))).any(
        |line| {
            let (from, to) =
                line.split(' ').next().and_then(|at| at.split_once('-')).expect("a map");
            let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).expect("an address"));
            // Chunks overlap, so that a match at the boundary of two chunks is not missed.
            (from..to).step_by(chunk.len() - wanted.len()).any(|at| {
                let most = chunk.len().min((to - at) as usize);
                let read = memory.read_at(&mut chunk[..most], at).unwrap_or(0);
                // The conversion to text makes the search fast. It replaces invalid bytes around the wanted
                // text, so it does not prevent a match.
                String::from_utf8_lossy(&chunk[..read]).contains(wanted)
            })
        },
    )
}

/// Exchanges echoes over TCP and UDP while `going` is set. Returns the number of echoes over TCP and the
/// number over UDP. A lost TCP echo fails the test.
fn ordinary_traffic(going: &AtomicBool) -> [u64; 2] {
    let mut stream = TcpStream::connect((ENDS[SERVERS], ECHO)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let socket = UdpSocket::bind((ENDS[CLIENTS], 0)).unwrap();
    socket.connect((ENDS[SERVERS], ECHO)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut made = [0; 2];
    while going.load(Ordering::Relaxed) || made[0] == 0 {
        let sent: Vec<u8> = (0..40_000).map(|at: u64| (at * 7 + made[0]) as u8).collect();
        let mut back = vec![0; sent.len()];
        std::thread::scope(|scope| {
            let mut out = stream.try_clone().unwrap();
            scope.spawn(move || out.write_all(&sent).unwrap());
            stream.read_exact(&mut back).expect("the bytes that were sent over TCP");
        });
        assert!(back.iter().zip(0..).all(|(one, at): (_, u64)| *one == (at * 7 + made[0]) as u8));
        made[0] += 1;
        let sent = [ORDINARY.as_bytes(), &made[1].to_le_bytes()].concat();
        // Some datagrams may be lost, but not all.
        let arrived = (0..20).any(|_| {
            let mut back = [0; 128];
            socket.send(&sent).expect("the datagram is sent");
            socket.recv(&mut back).is_ok_and(|bytes| back[..bytes] == sent)
        });
        assert!(arrived, "no datagram comes back");
        made[1] += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    made
}

/// Starts a server at the far end, with its own record of calls. Returns the server's process and address.
fn server(link: &Link, port: u16, directory: &Path) -> (Process, String) {
    std::fs::create_dir_all(directory).unwrap();
    let mut process = link.launch(SERVERS, "child", &format!("server {port}"), directory);
    let address = process.until("at ");
    (process, address)
}

/// Starts a process at the near end that makes calls. Returns after the first calls of the process. The
/// returned text describes the device that the process uses.
fn caller(link: &Link, address: &str, first: u64, directory: &Path) -> (Process, String) {
    let role = format!("caller {address} {first}");
    let mut process = link.launch(CLIENTS, "child", &role, directory);
    let by = process.until("by ");
    process.until("calls");
    (process, by)
}

/// Returns whether the interface at an end has an XDP program.
fn has_program(link: &Link, end: usize) -> bool {
    let words = ["-n", link.ends()[end], "-d", "link", "show", link.interface(end)];
    let output = Command::new("ip").args(words).output().expect("ip");
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stdout).contains("xdp")
}

#[test]
fn processes_at_one_interface_do_not_interfere() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    at_near_end(Link::new(), |link| {
        let going = AtomicBool::new(true);
        let _echo = link.start(SERVERS, "child", "echo", path);
        std::thread::scope(|scope| {
            let keep_going = KeepGoing::new(&going);
            // The ordinary traffic begins before an XDP program is attached, and continues afterwards.
            let ordinary = scope.spawn(|| ordinary_traffic(&going));
            let (one, at_one) = server(link, PORT, &path.join("one"));
            let (other, at_other) = server(link, PORT + 1, &path.join("other"));
            assert!(
                one.holds_xdp_program() && !other.holds_xdp_program(),
                "only the first server should have the queue"
            );
            assert!(has_program(link, SERVERS) && !has_program(link, CLIENTS));
            let addresses = [&at_one, &at_other, &at_one];
            let mut callers: Vec<_> =
                (0..3).map(|n: usize| caller(link, addresses[n], (n as u64) << 32, path)).collect();
            assert!(callers[0].1.starts_with("ethernet: AF_XDP"), "{}", callers[0].1);
            let holder = format!("is process {}", callers[0].0.id());
            for (_, by) in &callers[1..] {
                assert!(
                    by.starts_with("ethernet: AF_PACKET (queue 0") && by.contains(&holder),
                    "{by}"
                );
            }
            assert!(has_program(link, CLIENTS));
            // The first search proves that searching works: it finds arguments of Peregrine's calls. The
            // second search must find no frame of another program.
            assert!(
                memory_has(one.id(), &"\u{1}".repeat(1000)),
                "the server's memory has no argument of a call"
            );
            assert!(!memory_has(one.id(), ORDINARY), "the server has a frame of another program");
            stop(path);
            let made: Vec<u64> = callers
                .iter_mut()
                .map(|(process, _)| {
                    let line = process.until("made ");
                    let (count, by) = line.split_once(" by ").expect("both");
                    assert!(by.starts_with("ethernet:"), "{by}");
                    count.parse().unwrap()
                })
                .collect();
            drop(keep_going);
            println!("{made:?} calls during {:?} echoes", ordinary.join().unwrap());
            let expected = |of: &[usize]| -> Vec<u64> {
                let of = of.iter().map(|n| ((*n as u64) << 32, made[*n]));
                of.flat_map(|(first, count)| first..first + count).collect()
            };
            for (name, of) in [("one", &[0, 2][..]), ("other", &[1])] {
                let mut entered = Book::read(&path.join(name));
                entered.sort_unstable();
                assert!(
                    entered == expected(of),
                    "each call ran once, at the server that was called"
                );
            }
        });
    });
}

/// Attaching an XDP program resets many network cards. After that, all frames that other programs receive
/// pass through the XDP program.
#[test]
fn xdp_program_is_attached_only_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    at_near_end(Link::new(), |link| {
        let at = |port: u16| format!("ledger@{}:{port}", ENDS[SERVERS]);
        let mut plain = link.launch(SERVERS, "child", &format!("plain {PORT}"), path);
        let listens = plain.until("at ");
        assert!(listens.contains("Ethernet"), "{listens}");
        assert!(
            !plain.holds_xdp_program() && !has_program(link, SERVERS),
            "XDP is used, but was not requested"
        );
        let options = BindOptions::default();
        let ledger = LedgerClient::bind_with(&at(PORT), &options).unwrap();
        let summary = ledger.binding().explain().summary();
        assert!(summary.starts_with("ethernet: AF_PACKET (the default;"), "{summary}");
        assert_eq!(ledger.enter(1, 0).unwrap(), 2);
        assert!(!has_program(link, CLIENTS), "XDP is used, but was not requested");
        // The server's operator and the binding client can each request AF_XDP.
        let (name, device) = (format!("plain {} any", PORT + 1), EthernetDevice::Any);
        let own = path.join("asked");
        std::fs::create_dir(&own).unwrap();
        let mut asked = link.launch(SERVERS, "child", &name, &own);
        asked.until("at ");
        assert!(asked.holds_xdp_program() && has_program(link, SERVERS));
        for (address, options) in [
            (at(PORT + 1), options.clone().ethernet_device(device)),
            (format!("eth:{}", at(PORT + 1)), options),
        ] {
            let asking = LedgerClient::bind_with(&address, &options).unwrap();
            let summary = asking.binding().explain().summary();
            assert!(summary.starts_with("ethernet: AF_XDP, "), "{summary}");
            assert!(summary.contains("with a copy"), "{summary}");
            assert_eq!(asking.enter(2, 0).unwrap(), 3);
            assert!(has_program(link, CLIENTS));
            // This process now has the interface's receive queue, so its other bindings also use the queue.
            let second = LedgerClient::bind(&at(PORT + 1)).unwrap();
            let summary = second.binding().explain().summary();
            assert!(summary.starts_with("ethernet: AF_XDP, "), "{summary}");
        }
        let gone = || !has_program(link, CLIENTS);
        assert!(eventually(LIMIT, gone), "the program is still attached");
    });
}

#[test]
fn killed_queue_holder_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    at_near_end(Link::new(), |link| {
        let going = AtomicBool::new(true);
        let _echo = link.start(SERVERS, "child", "echo", path);
        std::thread::scope(|scope| {
            let keep_going = KeepGoing::new(&going);
            let ordinary = scope.spawn(|| ordinary_traffic(&going));
            let (mut first, _) = server(link, PORT, &path.join("first"));
            let (other, at_other) = server(link, PORT + 1, &path.join("other"));
            assert!(first.holds_xdp_program() && !other.holds_xdp_program());
            let (mut holder, by) = caller(link, &at_other, 0, path);
            assert!(by.starts_with("ethernet: AF_XDP"), "{by}");
            let (mut witness, by) = caller(link, &at_other, 1 << 32, path);
            assert!(by.contains(&format!("process {}", holder.id())), "{by}");
            // Kill a client during its calls.
            holder.kill();
            assert!(
                eventually(LIMIT, || !has_program(link, CLIENTS)),
                "the program is still attached"
            );
            let (next, by) = caller(link, &at_other, 2 << 32, path);
            assert!(by.starts_with("ethernet: AF_XDP"), "{by}");
            assert!(next.holds_xdp_program() && has_program(link, CLIENTS));
            // Kill a server while another one serves all clients.
            first.kill();
            assert!(
                eventually(LIMIT, || !has_program(link, SERVERS)),
                "the program is still attached"
            );
            let (again, at_again) = server(link, PORT, &path.join("again"));
            assert!(again.holds_xdp_program() && has_program(link, SERVERS));
            let (mut last, by) = caller(link, &at_again, 3 << 32, path);
            assert!(by.contains(&format!("process {}", next.id())), "{by}");
            stop(path);
            let mut next = next;
            let made = [&mut witness, &mut next, &mut last].map(|process| process.until("made "));
            assert!(made.iter().all(|made| made.contains("by ethernet:")), "{made:?}");
            drop(keep_going);
            println!("{made:?} during {:?} echoes", ordinary.join().unwrap());
        });
    });
}

#[test]
fn call_may_have_executed_when_server_dies_during_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    at_near_end(Link::new(), |link| {
        let (mut server_part, address) = server(link, PORT, path);
        let options = BindOptions::default().rebind(Rebind::Never);
        let ledger = LedgerClient::bind_with(&address, &options).unwrap();
        let killed = std::thread::scope(|scope| {
            let calls = [1, 2, 3, 4].map(|number| {
                let ledger = &ledger;
                scope.spawn(move || ledger.enter(number, 60_000))
            });
            assert!(eventually(LIMIT, || Book::read(path).len() == 4), "all calls run");
            server_part.kill();
            let killed = Instant::now();
            for call in calls {
                let error = call.join().unwrap().unwrap_err();
                let outcome = (error.kind(), error.executed());
                assert_eq!(outcome, (Kind::ServerGone, Executed::Maybe), "{error}");
                assert!(error.to_string().contains(&address), "{error}");
            }
            killed
        });
        println!("noticed after {:?}", killed.elapsed());
        // No server listens: the next call is not executed, and its error says why.
        let error = ledger.enter(9, 0).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::Unreachable, Executed::No), "{error}");
        assert!(error.to_string().contains("no server listens"), "{error}");
        // A new server does not know the binding, and refuses the next call as not executed.
        let (_server, again) = server(link, PORT, path);
        assert_eq!(again, address);
        let error = ledger.enter(9, 0).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::ServerGone, Executed::No), "{error}");
        assert!(error.to_string().contains("was restarted"), "{error}");
        let new_binding = LedgerClient::bind(&address).unwrap();
        assert_eq!(new_binding.enter(10, 0).unwrap(), 11);
        assert_eq!(new_binding.binding().path(), PathKind::Ethernet);
        let mut entered = Book::read(path);
        entered.sort_unstable();
        assert_eq!(entered, [1, 2, 3, 4, 10]);
    });
}

#[test]
fn outcomes_are_correct_when_servers_are_killed_and_restarted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut noise = Noise::new(seed());
    at_near_end(Link::new(), move |link| {
        let (next, answered) = (AtomicU64::new(0), AtomicU64::new(0));
        let going = AtomicBool::new(true);
        let address = format!("eth:{}:{PORT}/ledger", ENDS[SERVERS]);
        let outcomes: Vec<Outcomes> = std::thread::scope(|scope| {
            let keep_going = KeepGoing::new(&going);
            let callers: Vec<_> = (0..3)
                .map(|_| {
                    let (next, answered, going, address) = (&next, &answered, &going, &address);
                    scope.spawn(move || {
                        link.enter();
                        ledger::caller(address, next, answered, going)
                    })
                })
                .collect();
            for _ in 0..4 {
                let before = answered.load(Ordering::Relaxed);
                let (mut server, _) = server(link, PORT, path);
                assert!(server.holds_xdp_program(), "the server should get the queue");
                let called = || answered.load(Ordering::Relaxed) > before + 100;
                assert!(eventually(LIMIT, called), "no call returns");
                std::thread::sleep(Duration::from_millis(noise.below(100)));
                server.kill();
            }
            drop(keep_going);
            callers.into_iter().map(|caller| caller.join().expect("no panic")).collect()
        });
        let [returned, not_executed, maybe] = Outcomes::check(&outcomes, path);
        println!("{returned} returned, {not_executed} not executed, {maybe} unknown");
        assert!(returned > 200 && maybe > 0, "servers were killed too early or too late");
    });
}

/// The time after which a client treats a silent server as dead.
const DEAD_AFTER: Duration = Duration::from_millis(2500);
/// The longest time that binding may take. No packet is lost, but the server may not listen yet: then the client
/// asks again after 500 ms, and a second later.
const BOUND_AFTER: Duration = Duration::from_millis(1500);
/// The delay that a busy machine may add.
const BUSY: Duration = Duration::from_secs(1);

/// Observations about servers that each live for a moment.
#[derive(Default)]
struct ShortLives {
    /// The number of calls that returned while their server lived.
    returned: u64,
    /// The longest time from a server's start until every caller had a result from that server. One server in
    /// five lives long enough for this.
    all_served: Duration,
    /// The duration of the longest call.
    longest: Duration,
    /// The time from the death of the last server to the end of the last call.
    ended: Duration,
}

/// Starts and kills servers. A call may meet a new server, a dying one, or none.
fn call_short_lived_servers(link: &Link, servers: usize) -> ShortLives {
    const CALLERS: usize = 4;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut noise = Noise::new(seed());
    let (next, answered) = (AtomicU64::new(0), [const { AtomicU64::new(0) }; CALLERS]);
    let answers = || answered.each_ref().map(|answered| answered.load(Ordering::Relaxed));
    let going = AtomicBool::new(true);
    let address = format!("eth:{}:{PORT}/ledger", ENDS[SERVERS]);
    let mut lives = ShortLives::default();
    let outcomes: Vec<Outcomes> = std::thread::scope(|scope| {
        let keep_going = KeepGoing::new(&going);
        let call = |answered| {
            link.enter();
            ledger::caller(&address, &next, answered, &going)
        };
        let callers = answered.each_ref().map(|answered| scope.spawn(move || call(answered)));
        for life in 1..=servers {
            let before = answers();
            let (mut server, _) = server(link, PORT, path);
            let up = Instant::now();
            if life % 5 == 0 {
                let all = || answers().iter().zip(before).all(|(now, before)| *now > before);
                assert!(eventually(2 * LIMIT, all), "{before:?} answers became {:?}", answers());
                lives.all_served = lives.all_served.max(up.elapsed());
            } else {
                std::thread::sleep(Duration::from_millis(20 + noise.below(280)));
            }
            server.kill();
            lives.returned += answers().iter().sum::<u64>() - before.iter().sum::<u64>();
        }
        drop(keep_going);
        let killed = Instant::now();
        let outcomes = callers.map(|caller| caller.join().expect("no panic"));
        lives.ended = killed.elapsed();
        outcomes.into()
    });
    lives.longest = outcomes.iter().map(|one| one.longest).max().expect("a caller");
    let [returned, not_executed, maybe] = Outcomes::check(&outcomes, path);
    println!(
        "{returned} returned, {not_executed} not executed, {maybe} unknown; the longest call took {:?}, \
         all were served after {:?}, the last ended after {:?}",
        lives.longest, lives.all_served, lives.ended
    );
    assert!(not_executed + maybe > 0, "the servers lived too long");
    lives
}

#[test]
fn calls_to_short_lived_servers_end_soon() {
    at_near_end(Link::new(), |link| {
        const LIVES: usize = 20;
        let lives = call_short_lived_servers(link, LIVES);
        // On an idle machine, hundreds of calls return while a server lives.
        assert!(lives.returned >= 10 * LIVES as u64, "{} calls returned", lives.returned);
        // Each caller detects that the previous server is dead, binds, and gets a result.
        let bound = DEAD_AFTER + BOUND_AFTER + BUSY;
        assert!(lives.all_served < bound, "all were served after {:?}", lives.all_served);
        // When the last server has died, each caller detects this, and its next bind fails. All calls must
        // have ended within the same bound.
        assert!(lives.ended < bound, "the last call ended after {:?}", lives.ended);
        // Two servers may die during one call. The client binds to the second server in between.
        let bound = bound + DEAD_AFTER;
        assert!(lives.longest < bound, "a call took {:?}", lives.longest);
    });
}

#[test]
fn calls_to_short_lived_servers_end_soon_when_packets_are_lost() {
    /// The longest time that binding takes.
    const BINDING_MAX: Duration = Duration::from_secs(5);
    let lossy = Impairments { lost: 300, ..Impairments::default() };
    at_near_end(Link::with_middle(), move |link| {
        let bridge = Bridge::new(link, lossy, seed(), |_, _| ());
        let lives = call_short_lived_servers(link, 20);
        let bound = 2 * DEAD_AFTER + BINDING_MAX + 2 * BUSY;
        assert!(lives.longest < bound, "a call took {:?}", lives.longest);
        drop(bridge);
    });
}

#[test]
fn silent_link_is_replaced_by_udp() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    at_near_end(Link::with_middle(), |link| {
        let bridge = Bridge::new(link, Impairments::default(), 1, |_, _| ());
        let (mut server_part, address) = server(link, PORT, path);
        let ledger = LedgerClient::bind(&address).unwrap();
        assert_eq!(ledger.enter(0, 0).unwrap(), 1);
        assert_eq!(ledger.binding().path(), PathKind::Ethernet);
        let (next, returned, going) =
            (AtomicU64::new(10), AtomicU64::new(0), AtomicBool::new(true));
        let outcomes: Vec<Outcomes> = std::thread::scope(|scope| {
            let keep_going = KeepGoing::new(&going);
            let long = scope.spawn(|| ledger.enter(1, 60_000));
            let callers: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let mut outcomes = Outcomes::default();
                        while going.load(Ordering::Relaxed) {
                            let number = next.fetch_add(1, Ordering::Relaxed);
                            match ledger.enter(number, 0) {
                                Ok(_) => outcomes.returned.push(number),
                                Err(error) => outcomes.failed(number, &error),
                            }
                            returned.fetch_add(1, Ordering::Relaxed);
                        }
                        outcomes
                    })
                })
                .collect();
            let more = |count: u64| {
                let before = returned.load(Ordering::Relaxed);
                let more = || returned.load(Ordering::Relaxed) >= before + count;
                assert!(eventually(LIMIT, more), "calls end");
            };
            assert!(eventually(LIMIT, || Book::read(path).contains(&1)), "the long call runs");
            more(50);
            bridge.seen.cut.store(true, Ordering::SeqCst);
            let cut = Instant::now();
            let error = long.join().unwrap().unwrap_err();
            let outcome = (error.kind(), error.executed());
            assert_eq!(outcome, (Kind::ServerGone, Executed::Maybe), "{error}");
            println!("noticed after {:?}", cut.elapsed());
            more(100);
            drop(keep_going);
            callers.into_iter().map(|caller| caller.join().expect("no panic")).collect()
        });
        let last = next.fetch_add(1, Ordering::Relaxed);
        assert_eq!(ledger.enter(last, 0).unwrap(), last + 1);
        assert_eq!(ledger.swallow(&[1; 100_000]).unwrap(), 100_000);
        let explanation = ledger.binding().explain().to_string();
        assert_eq!(ledger.binding().path(), PathKind::Udp, "{explanation}");
        assert!(
            explanation.contains("replaced by UDP after") && explanation.contains("AF_XDP"),
            "{explanation}"
        );
        assert!(ledger.binding().is_alive());
        let known = Outcomes { returned: vec![0, last], maybe: 1, ..Outcomes::default() };
        let all: Vec<Outcomes> = outcomes.into_iter().chain([known]).collect();
        let [returned, not_executed, maybe] = Outcomes::check(&all, path);
        println!(
            "{returned} returned, {not_executed} not executed, {maybe} unknown; then {explanation}"
        );
        // Only calls in progress at the cut have unknown outcomes: the long call, and at most one call of
        // each of the three callers.
        assert!((1..=4).contains(&maybe), "{maybe} calls have unknown outcomes");
        // A new binding finds the server over UDP, but no Ethernet frame reaches the server.
        let impatient = BindOptions::default().bind_timeout(Duration::from_millis(500));
        let error = LedgerClient::bind_with(&address, &impatient).map(drop).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No), "{error}");
        // Kill the server.
        server_part.kill();
        let error = ledger.enter(5, 0).unwrap_err();
        assert!([Kind::ServerGone, Kind::Unreachable].contains(&error.kind()), "{error}");
        let error = LedgerClient::bind(&address).map(drop).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::Unreachable, Executed::No), "{error}");
        assert!(!Book::read(path).contains(&5));
    });
}

/// The process that has the interface's receive queue is its holder. Clients ask the holder for its process
/// number. If the holder does not answer, they must not wait for it, however many clients ask.
#[test]
fn asking_for_the_queue_holder_does_not_block() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    at_near_end(Link::new(), |link| {
        // This limits the backlog of listening sockets in this namespace.
        let backlog = Command::new("ip")
            .args(["netns", "exec", link.ends()[CLIENTS]])
            .args(["sh", "-c", "echo 2 > /proc/sys/net/core/somaxconn"])
            .status();
        assert!(backlog.is_ok_and(|status| status.success()));
        let (_server, address) = server(link, PORT, path);
        let (holder, by) = caller(link, &address, 0, path);
        assert!(by.starts_with("ethernet: AF_XDP"), "{by}");
        holder.signal(libc::SIGSTOP);
        let (sender, summaries) = std::sync::mpsc::channel();
        // The clients run on another thread in this namespace. If a bind blocks, it never returns, but this
        // thread stops waiting after LIMIT and the test fails.
        std::thread::spawn(move || {
            for number in 1 << 32..(1 << 32) + 8 {
                let ledger = LedgerClient::bind(&address).unwrap();
                assert_eq!(ledger.enter(number, 0).unwrap(), number + 1);
                sender.send(ledger.binding().explain().summary()).unwrap();
            }
        });
        let summaries: Vec<String> =
            (0..8).map(|_| summaries.recv_timeout(LIMIT).expect("a binding")).collect();
        let by_packet = |one: &String| one.starts_with("ethernet: AF_PACKET (queue 0");
        assert!(summaries.iter().all(by_packet), "{summaries:?}");
        println!("{summaries:?}");
    });
}

/// Two threads of one process bind and release bindings concurrently. Every binding must get the interface's
/// receive queue.
#[test]
fn rebinding_gets_the_queue_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    at_near_end(Link::new(), |link| {
        let (_server, address) = server(link, PORT, path);
        std::thread::scope(|scope| {
            for first in [0, 1 << 32] {
                let address = &address;
                scope.spawn(move || {
                    link.enter();
                    for number in first..first + 12 {
                        let ledger = LedgerClient::bind(address).unwrap();
                        assert_eq!(ledger.enter(number, 0).unwrap(), number + 1);
                        let summary = ledger.binding().explain().summary();
                        assert!(summary.starts_with("ethernet: AF_XDP"), "{summary}");
                    }
                });
            }
        });
    });
}

/// The link is down for longer than a client waits for a silent server. Then the link is up again.
#[test]
fn interface_that_goes_down_and_up_is_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    at_near_end(Link::new(), |link| {
        let (_server, address) = server(link, PORT, path);
        let ledger = LedgerClient::bind(&address).unwrap();
        let mut outcomes = Outcomes::default();
        let mut call = |number| match ledger.enter(number, 0) {
            Ok(_) => outcomes.returned.push(number),
            Err(error) => match error.executed() {
                Executed::No => outcomes.not_executed.push(number),
                Executed::Maybe => outcomes.maybe += 1,
            },
        };
        call(0);
        link.set("down");
        (1..4).for_each(&mut call);
        link.set("up");
        (4..12).for_each(&mut call);
        let summary = ledger.binding().explain().summary();
        println!("{outcomes:?}, {summary}");
        assert!(outcomes.returned.contains(&11), "{outcomes:?}, {summary}");
        Outcomes::check(&[outcomes], path);
        let new_binding = LedgerClient::bind(&address).unwrap();
        assert_eq!(new_binding.enter(20, 0).unwrap(), 21);
        assert!(new_binding.binding().explain().summary().starts_with("ethernet: AF_XDP"));
    });
}
