//! Servers and clients over raw Ethernet as real processes: several beside each other at one interface,
//! beside ordinary traffic, killed while they hold its queue, and on a link that Peregrine's frames do
//! not get through any more.

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
use peregrine::{BindOptions, EthernetDevice, Executed, Kind, PathKind, Rebind, Server};
use support::bridge::Bridge;
use support::link::{ENDS, Link, at_near_end};
use support::weather::Weather;
use support::{GoOn, Part, part};

/// What is waited for that takes no time of its own.
const LIMIT: Duration = Duration::from_secs(20);
/// Which end is whose.
const CLIENTS: usize = 0;
const SERVERS: usize = 1;
const ECHO: u16 = 9000;
const PORT: u16 = 7000;

/// The parts that children play: `server PORT [packet]`, `plain PORT [any]`, `caller ADDRESS NUMBER`,
/// `echo`; in the test itself this does nothing.
#[test]
fn child() {
    let Some(part) = part() else { return };
    no_longer_than(Duration::from_secs(120));
    let directory = support::directory();
    let words: Vec<&str> = part.split(' ').collect();
    match words[0] {
        "server" => {
            let book = Book::of(&directory);
            let mut server = Server::new().export("ledger", LedgerServer::new(book)).unwrap();
            let at = format!("eth:{}:{}", ENDS[SERVERS], words[1]);
            if words.get(2) == Some(&"packet") {
                server = server.ethernet_device(EthernetDevice::Packet);
            }
            let running = server.listen_beyond_this_machine(&at).unwrap().spawn().unwrap();
            println!("\nat {}/ledger", running.addresses()[0]);
            running.wait();
        }
        // Listens without a scheme, with a device if one is named.
        "plain" => {
            let book = Book::of(&directory);
            let mut server = Server::new().export("ledger", LedgerServer::new(book)).unwrap();
            if words.get(2) == Some(&"any") {
                server = server.ethernet_device(EthernetDevice::Any);
            }
            let at = format!("{}:{}", ENDS[SERVERS], words[1]);
            let running = server.listen_beyond_this_machine(&at).unwrap().spawn().unwrap();
            println!("\nat {:?}", running.addresses());
            running.wait();
        }
        // Calls for as long as it may, each with a number of its own, and every one of them returns.
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
        other => panic!("nobody knows how to play `{other}`"),
    }
}

/// Sends back what it gets, over TCP and over UDP.
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

/// What the ordinary datagrams begin with.
const ORDINARY: &str = "an ordinary datagram, which is not for Peregrine and not its own";

/// Whether these bytes stand anywhere in the writable memory of a process.
fn memory_has(pid: u32, wanted: &str) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("a process");
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).expect("its memory");
    let mut chunk = vec![0; 1 << 20];
    maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|may| may.starts_with("rw"))).any(
        |line| {
            let (from, to) =
                line.split(' ').next().and_then(|at| at.split_once('-')).expect("a map");
            let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).expect("an address"));
            // Pieces overlap, so that nothing is missed that lies on the edge of two.
            (from..to).step_by(chunk.len() - wanted.len()).any(|at| {
                let most = chunk.len().min((to - at) as usize);
                let read = memory.read_at(&mut chunk[..most], at).unwrap_or(0);
                // What stands there is text, whatever is around it; and this search is a fast one.
                String::from_utf8_lossy(&chunk[..read]).contains(wanted)
            })
        },
    )
}

/// Echoes while `going`: how many there were. One that does not come back fails.
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
            stream.read_exact(&mut back).expect("what was sent over TCP");
        });
        assert!(back.iter().zip(0..).all(|(one, at): (_, u64)| *one == (at * 7 + made[0]) as u8));
        made[0] += 1;
        let sent = [ORDINARY.as_bytes(), &made[1].to_le_bytes()].concat();
        // Datagrams may be lost, not all of them.
        let came = (0..20).any(|_| {
            let mut back = [0; 128];
            socket.send(&sent).expect("a way there");
            socket.recv(&mut back).is_ok_and(|bytes| back[..bytes] == sent)
        });
        assert!(came, "no datagram comes back");
        made[1] += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    made
}

/// A server at the far end, with a book of its own, and where it is.
fn server(link: &Link, port: u16, directory: &Path) -> (Part, String) {
    std::fs::create_dir_all(directory).unwrap();
    let mut part = link.launch(SERVERS, "child", &format!("server {port}"), directory);
    let address = part.until("at ");
    (part, address)
}

/// A process at the near end that calls; it has begun to. What it says of its device.
fn caller(link: &Link, address: &str, first: u64, directory: &Path) -> (Part, String) {
    let part = format!("caller {address} {first}");
    let mut part = link.launch(CLIENTS, "child", &part, directory);
    let by = part.until("by ");
    part.until("calls");
    (part, by)
}

/// Whether a process holds the program, and so the queue, of an interface.
fn holds(part: &Part) -> bool {
    let files = std::fs::read_dir(format!("/proc/{}/fdinfo", part.id())).expect("a process");
    files.flatten().any(|file| {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        text.contains("link_type:\txdp")
    })
}

/// Whether the interface at an end has a program.
fn has_program(link: &Link, end: usize) -> bool {
    let words = ["-n", link.ends()[end], "-d", "link", "show", link.interface(end)];
    let said = Command::new("ip").args(words).output().expect("ip");
    assert!(said.status.success());
    String::from_utf8_lossy(&said.stdout).contains("xdp")
}

#[test]
fn processes_at_one_interface_do_not_disturb_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    at_near_end(Link::new(), |link| {
        let going = AtomicBool::new(true);
        let _echo = link.start(SERVERS, "child", "echo", path);
        std::thread::scope(|scope| {
            let go_on = GoOn::with(&going);
            // It begins before there is a program, and goes on while there is one.
            let ordinary = scope.spawn(|| ordinary_traffic(&going));
            let (one, at_one) = server(link, PORT, &path.join("one"));
            let (other, at_other) = server(link, PORT + 1, &path.join("other"));
            assert!(holds(&one) && !holds(&other), "one has the queue at the servers' end");
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
            // Its own frames are there, so whatever the kernel put there would be found.
            assert!(
                memory_has(one.id(), &"\u{1}".repeat(1000)),
                "an argument that came in a frame"
            );
            assert!(!memory_has(one.id(), ORDINARY), "a frame of others");
            stop(path);
            let made: Vec<u64> = callers
                .iter_mut()
                .map(|(part, _)| {
                    let said = part.until("made ");
                    let (count, by) = said.split_once(" by ").expect("both");
                    assert!(by.starts_with("ethernet:"), "{by}");
                    count.parse().unwrap()
                })
                .collect();
            drop(go_on);
            println!("{made:?} calls beside {:?} echoes", ordinary.join().unwrap());
            let expected = |of: &[usize]| -> Vec<u64> {
                let of = of.iter().map(|n| ((*n as u64) << 32, made[*n]));
                of.flat_map(|(first, count)| first..first + count).collect()
            };
            for (name, of) in [("one", &[0, 2][..]), ("other", &[1])] {
                let mut entered = Book::read(&path.join(name));
                entered.sort_unstable();
                assert!(entered == expected(of), "each call once, at the server that was called");
            }
        });
    });
}

/// A program at an interface resets many a network card, and every frame of others passes it.
#[test]
fn program_is_attached_only_where_it_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    at_near_end(Link::new(), |link| {
        let at = |port: u16| format!("ledger@{}:{port}", ENDS[SERVERS]);
        let mut plain = link.launch(SERVERS, "child", &format!("plain {PORT}"), path);
        let listens = plain.until("at ");
        assert!(listens.contains("Ethernet"), "{listens}");
        assert!(!holds(&plain) && !has_program(link, SERVERS), "nobody asked for it");
        let options = BindOptions::default();
        let ledger = LedgerClient::bind_with(&at(PORT), &options).unwrap();
        let said = ledger.binding().explain().summary();
        assert!(said.starts_with("ethernet: AF_PACKET (AF_XDP only where"), "{said}");
        assert_eq!(ledger.enter(1, 0).unwrap(), 2);
        assert!(!has_program(link, CLIENTS), "nobody asked for it");
        // The owner of the server, and the one who binds, may each ask for it.
        let (name, device) = (format!("plain {} any", PORT + 1), EthernetDevice::Any);
        let own = path.join("asked");
        std::fs::create_dir(&own).unwrap();
        let mut asked = link.launch(SERVERS, "child", &name, &own);
        asked.until("at ");
        assert!(holds(&asked) && has_program(link, SERVERS));
        for (address, options) in [
            (at(PORT + 1), options.clone().ethernet_device(device)),
            (format!("eth:{}", at(PORT + 1)), options),
        ] {
            let asking = LedgerClient::bind_with(&address, &options).unwrap();
            let said = asking.binding().explain().summary();
            assert!(said.starts_with("ethernet: AF_XDP, "), "{said}");
            assert!(said.contains("with a copy"), "{said}");
            assert_eq!(asking.enter(2, 0).unwrap(), 3);
            assert!(has_program(link, CLIENTS));
            // The process has the queue now, so everything of it goes by that.
            let beside = LedgerClient::bind(&at(PORT + 1)).unwrap();
            let said = beside.binding().explain().summary();
            assert!(said.starts_with("ethernet: AF_XDP, "), "{said}");
        }
        let gone = || !has_program(link, CLIENTS);
        assert!(eventually(LIMIT, gone), "its last binding is gone, and so is the program");
    });
}

#[test]
fn who_holds_the_queue_may_be_killed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    at_near_end(Link::new(), |link| {
        let going = AtomicBool::new(true);
        let _echo = link.start(SERVERS, "child", "echo", path);
        std::thread::scope(|scope| {
            let go_on = GoOn::with(&going);
            let ordinary = scope.spawn(|| ordinary_traffic(&going));
            let (mut first, _) = server(link, PORT, &path.join("first"));
            let (other, at_other) = server(link, PORT + 1, &path.join("other"));
            assert!(holds(&first) && !holds(&other));
            let (mut holder, by) = caller(link, &at_other, 0, path);
            assert!(by.starts_with("ethernet: AF_XDP"), "{by}");
            let (mut witness, by) = caller(link, &at_other, 1 << 32, path);
            assert!(by.contains(&format!("process {}", holder.id())), "{by}");
            // A client, in the middle of its calls.
            holder.kill();
            assert!(eventually(LIMIT, || !has_program(link, CLIENTS)), "its program is gone");
            let (next, by) = caller(link, &at_other, 2 << 32, path);
            assert!(by.starts_with("ethernet: AF_XDP"), "{by}");
            assert!(holds(&next) && has_program(link, CLIENTS));
            // A server, beside one that serves all of them.
            first.kill();
            assert!(eventually(LIMIT, || !has_program(link, SERVERS)), "its program is gone");
            let (again, at_again) = server(link, PORT, &path.join("again"));
            assert!(holds(&again) && has_program(link, SERVERS));
            let (mut last, by) = caller(link, &at_again, 3 << 32, path);
            assert!(by.contains(&format!("process {}", next.id())), "{by}");
            stop(path);
            let mut next = next;
            let made = [&mut witness, &mut next, &mut last].map(|part| part.until("made "));
            assert!(made.iter().all(|made| made.contains("by ethernet:")), "{made:?}");
            drop(go_on);
            println!("{made:?} beside {:?} echoes", ordinary.join().unwrap());
        });
    });
}

#[test]
fn a_server_that_dies_in_the_middle_leaves_the_call_uncertain() {
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
                let said = (error.kind(), error.executed());
                assert_eq!(said, (Kind::ServerGone, Executed::Maybe), "{error}");
                assert!(error.to_string().contains(&address), "{error}");
            }
            killed
        });
        println!("noticed after {:?}", killed.elapsed());
        // Nobody is there: what follows has not run, and it is said why.
        let error = ledger.enter(9, 0).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::Unreachable, Executed::No), "{error}");
        assert!(error.to_string().contains("nobody listens"), "{error}");
        // Another one is there: neither has this, nor does that one know of the first.
        let (_server, again) = server(link, PORT, path);
        assert_eq!(again, address);
        let error = ledger.enter(9, 0).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::ServerGone, Executed::No), "{error}");
        assert!(error.to_string().contains("started again"), "{error}");
        let anew = LedgerClient::bind(&address).unwrap();
        assert_eq!(anew.enter(10, 0).unwrap(), 11);
        assert_eq!(anew.binding().path(), PathKind::Ethernet);
        let mut entered = Book::read(path);
        entered.sort_unstable();
        assert_eq!(entered, [1, 2, 3, 4, 10]);
    });
}

#[test]
fn servers_killed_and_started_again_at_the_same_place_tell_no_lie() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut noise = Noise::new(seed());
    at_near_end(Link::new(), move |link| {
        let (next, answered) = (AtomicU64::new(0), AtomicU64::new(0));
        let going = AtomicBool::new(true);
        let address = format!("eth:{}:{PORT}/ledger", ENDS[SERVERS]);
        let outcomes: Vec<Outcomes> = std::thread::scope(|scope| {
            let go_on = GoOn::with(&going);
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
                assert!(holds(&server), "the one before has left the queue");
                let called = || answered.load(Ordering::Relaxed) > before + 100;
                assert!(eventually(LIMIT, called), "nobody calls");
                std::thread::sleep(Duration::from_millis(noise.below(100)));
                server.kill();
            }
            drop(go_on);
            callers.into_iter().map(|caller| caller.join().expect("no panic")).collect()
        });
        let [returned, not_executed, maybe] = Outcomes::hold(&outcomes, path);
        println!("{returned} returned, {not_executed} not executed, {maybe} open");
        assert!(returned > 200 && maybe > 0, "the storm was too strong or weak");
    });
}

/// A client takes a silent server for dead so long after it last heard of it.
const DEAD_AFTER: Duration = Duration::from_millis(2500);
/// Binding over a link that loses nothing: the client asks again after 500 ms of silence, and waits twice
/// as long then.
const BOUND_AFTER: Duration = Duration::from_millis(1500);
/// What a busy machine may add.
const BUSY: Duration = Duration::from_secs(1);

/// Servers of which each lives for a moment, and what their callers saw.
#[derive(Default)]
struct Moments {
    /// Calls that returned while their server lived.
    returned: u64,
    /// How long after a server was up the last of all callers had a result from it. One server in five
    /// lives until then.
    all_served: Duration,
    longest: Duration,
    /// How long after the death of the last server the last call ended.
    ended: Duration,
}

/// A call may meet a server that has just started, one that dies, and none at all.
fn calls_to_servers_that_live_for_a_moment(link: &Link, servers: usize) -> Moments {
    const CALLERS: usize = 4;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut noise = Noise::new(seed());
    let (next, answered) = (AtomicU64::new(0), [const { AtomicU64::new(0) }; CALLERS]);
    let answers = || answered.each_ref().map(|answered| answered.load(Ordering::Relaxed));
    let going = AtomicBool::new(true);
    let address = format!("eth:{}:{PORT}/ledger", ENDS[SERVERS]);
    let mut moments = Moments::default();
    let outcomes: Vec<Outcomes> = std::thread::scope(|scope| {
        let go_on = GoOn::with(&going);
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
                moments.all_served = moments.all_served.max(up.elapsed());
            } else {
                std::thread::sleep(Duration::from_millis(20 + noise.below(280)));
            }
            server.kill();
            moments.returned += answers().iter().sum::<u64>() - before.iter().sum::<u64>();
        }
        drop(go_on);
        let killed = Instant::now();
        let outcomes = callers.map(|caller| caller.join().expect("no panic"));
        moments.ended = killed.elapsed();
        outcomes.into()
    });
    moments.longest = outcomes.iter().map(|one| one.longest).max().expect("a caller");
    let [returned, not_executed, maybe] = Outcomes::hold(&outcomes, path);
    println!(
        "{returned} returned, {not_executed} not executed, {maybe} open; the longest call took {:?}, \
         all were served after {:?}, the last ended after {:?}",
        moments.longest, moments.all_served, moments.ended
    );
    assert!(not_executed + maybe > 0, "the servers lived too long");
    moments
}

#[test]
fn calls_to_servers_that_live_for_a_moment_end_soon() {
    at_near_end(Link::new(), |link| {
        const LIVES: usize = 20;
        let moments = calls_to_servers_that_live_for_a_moment(link, LIVES);
        // An idle machine makes hundreds in each life.
        assert!(moments.returned >= 10 * LIVES as u64, "{} calls returned", moments.returned);
        // Each caller gives up the server before, binds, and is served.
        let bound = DEAD_AFTER + BOUND_AFTER + BUSY;
        assert!(moments.all_served < bound, "all were served after {:?}", moments.all_served);
        // Without a server binding takes no longer.
        assert!(moments.ended < bound, "the last call ended after {:?}", moments.ended);
        // A call may meet two servers that die, and bind in between.
        let bound = bound + DEAD_AFTER;
        assert!(moments.longest < bound, "a call took {:?}", moments.longest);
    });
}

#[test]
fn calls_to_servers_that_live_for_a_moment_end_soon_where_packets_are_lost() {
    /// Binding takes 5 seconds at most.
    const BINDING_MAX: Duration = Duration::from_secs(5);
    let lossy = Weather { lost: 300, ..Weather::default() };
    at_near_end(Link::with_middle(), move |link| {
        let bridge = Bridge::new(link, lossy, seed(), |_, _| ());
        let moments = calls_to_servers_that_live_for_a_moment(link, 20);
        let bound = 2 * DEAD_AFTER + BINDING_MAX + 2 * BUSY;
        assert!(moments.longest < bound, "a call took {:?}", moments.longest);
        drop(bridge);
    });
}

#[test]
fn a_link_that_falls_silent_is_given_up_for_udp() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    at_near_end(Link::with_middle(), |link| {
        let bridge = Bridge::new(link, Weather::default(), 1, |_, _| ());
        let (mut server_part, address) = server(link, PORT, path);
        let ledger = LedgerClient::bind(&address).unwrap();
        assert_eq!(ledger.enter(0, 0).unwrap(), 1);
        assert_eq!(ledger.binding().path(), PathKind::Ethernet);
        let (next, returned, going) =
            (AtomicU64::new(10), AtomicU64::new(0), AtomicBool::new(true));
        let outcomes: Vec<Outcomes> = std::thread::scope(|scope| {
            let go_on = GoOn::with(&going);
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
            let more = |most: u64| {
                let before = returned.load(Ordering::Relaxed);
                let more = || returned.load(Ordering::Relaxed) >= before + most;
                assert!(eventually(LIMIT, more), "calls end");
            };
            assert!(eventually(LIMIT, || Book::read(path).contains(&1)), "it runs");
            more(50);
            bridge.seen.cut.store(true, Ordering::SeqCst);
            let cut = Instant::now();
            let error = long.join().unwrap().unwrap_err();
            let said = (error.kind(), error.executed());
            assert_eq!(said, (Kind::ServerGone, Executed::Maybe), "{error}");
            println!("noticed after {:?}", cut.elapsed());
            more(100);
            drop(go_on);
            callers.into_iter().map(|caller| caller.join().expect("no panic")).collect()
        });
        let last = next.fetch_add(1, Ordering::Relaxed);
        assert_eq!(ledger.enter(last, 0).unwrap(), last + 1);
        assert_eq!(ledger.swallow(&[1; 100_000]).unwrap(), 100_000);
        let said = ledger.binding().explain().to_string();
        assert_eq!(ledger.binding().path(), PathKind::Udp, "{said}");
        assert!(said.contains("given up after") && said.contains("AF_XDP"), "{said}");
        assert!(ledger.binding().is_alive());
        let known = Outcomes { returned: vec![0, last], maybe: 1, ..Outcomes::default() };
        let all: Vec<Outcomes> = outcomes.into_iter().chain([known]).collect();
        let [returned, not_executed, maybe] = Outcomes::hold(&all, path);
        println!("{returned} returned, {not_executed} not executed, {maybe} open; then {said}");
        // Each of the callers may have had one under way, the long one did.
        assert!((1..=4).contains(&maybe), "{maybe} are open");
        // A binding that is made now finds the server, and no frame gets there.
        let hasty = BindOptions::default().bind_timeout(Duration::from_millis(500));
        let error = LedgerClient::bind_with(&address, &hasty).map(drop).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No), "{error}");
        // Now the server goes, too.
        server_part.kill();
        let error = ledger.enter(5, 0).unwrap_err();
        assert!([Kind::ServerGone, Kind::Unreachable].contains(&error.kind()), "{error}");
        let error = LedgerClient::bind(&address).map(drop).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::Unreachable, Executed::No), "{error}");
        assert!(!Book::read(path).contains(&5));
    });
}

/// However many ask who has the queue, and however little the one who has it does meanwhile.
#[test]
fn who_asks_for_the_queue_waits_for_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    at_near_end(Link::new(), |link| {
        // So many may ask before they are listened to, in this namespace.
        let most = Command::new("ip")
            .args(["netns", "exec", link.ends()[CLIENTS]])
            .args(["sh", "-c", "echo 2 > /proc/sys/net/core/somaxconn"])
            .status();
        assert!(most.is_ok_and(|status| status.success()));
        let (_server, address) = server(link, PORT, path);
        let (holder, by) = caller(link, &address, 0, path);
        assert!(by.starts_with("ethernet: AF_XDP"), "{by}");
        holder.signal(libc::SIGSTOP);
        let (tell, told) = std::sync::mpsc::channel();
        // On a thread of its own, in this namespace: whoever waits here does so for ever.
        std::thread::spawn(move || {
            for number in 1 << 32..(1 << 32) + 8 {
                let ledger = LedgerClient::bind(&address).unwrap();
                assert_eq!(ledger.enter(number, 0).unwrap(), number + 1);
                tell.send(ledger.binding().explain().summary()).unwrap();
            }
        });
        let said: Vec<String> =
            (0..8).map(|_| told.recv_timeout(LIMIT).expect("a binding")).collect();
        let by_packet = |said: &String| said.starts_with("ethernet: AF_PACKET (queue 0");
        assert!(said.iter().all(by_packet), "{said:?}");
        println!("{said:?}");
    });
}

/// Threads that bind and let go at the same time leave the queue to each other.
#[test]
fn who_binds_again_gets_the_queue_again() {
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
                        let said = ledger.binding().explain().summary();
                        assert!(said.starts_with("ethernet: AF_XDP"), "{said}");
                    }
                });
            }
        });
    });
}

/// A cable that is pulled for longer than a silent server is waited for, and put in again.
#[test]
fn an_interface_that_goes_down_and_comes_back_is_used_again() {
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
        let said = ledger.binding().explain().summary();
        println!("{outcomes:?}, {said}");
        assert!(outcomes.returned.contains(&11), "{outcomes:?}, {said}");
        Outcomes::hold(&[outcomes], path);
        let anew = LedgerClient::bind(&address).unwrap();
        assert_eq!(anew.enter(20, 0).unwrap(), 21);
        assert!(anew.binding().explain().summary().starts_with("ethernet: AF_XDP"));
    });
}
