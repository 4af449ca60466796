//! Observes the packets of calls over UDP with a relay. The tests count the packets of a call. They also
//! check what happens to packets that are corrupted but have a valid UDP checksum.

mod services;
mod support;

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use peregrine::{BindOptions, Executed, Kind, Out, Rebind, Running, Server, Wait, interface};
use services::{Bytes, BytesClient, BytesServer, Object};

/// An interface with a procedure that runs until the test lets it end.
#[interface]
trait Stay {
    fn null(&self) -> peregrine::Result<()>;
    /// Waits until the test lets the call end. Returns the number of calls that have begun.
    fn stay(&self) -> peregrine::Result<u32>;
}

#[derive(Default)]
struct Guest {
    begun: Arc<AtomicU32>,
    ends: Arc<AtomicBool>,
}

impl Stay for Guest {
    fn null(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn stay(&self) -> peregrine::Result<u32> {
        let begun = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        support::until("the call may end", || self.ends.load(Ordering::SeqCst));
        Ok(begun)
    }
}

/// The kind of a packet that carries a call. Byte 3 of a packet contains its kind.
const CALL: u8 = 1;
/// The kind of a packet that carries a result.
const RESULT: u8 = 2;
/// The size of a packet's header in bytes.
const HEADER: usize = 64;

/// What a relay has counted, and how many corruptions it still has to make.
#[derive(Default)]
struct Seen {
    packets: AtomicU64,
    calls: AtomicU64,
    results: AtomicU64,
    /// How many fragments of calls, and how many fragments of results, are still to be corrupted.
    damage: [AtomicU64; 2],
    stopped: AtomicBool,
}

impl Seen {
    /// Counts a packet, and flips a bit of its payload if a corruption is due.
    fn look(&self, packet: &mut [u8]) {
        self.packets.fetch_add(1, Ordering::SeqCst);
        let (count, damage) = match packet[3] {
            CALL => (&self.calls, &self.damage[0]),
            RESULT => (&self.results, &self.damage[1]),
            _ => return,
        };
        count.fetch_add(1, Ordering::SeqCst);
        let less = |left: u64| left.checked_sub(1);
        let end = packet.len();
        if end > HEADER && damage.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            packet[end - 1] ^= 4;
        }
    }

    fn counted(&self) -> [u64; 3] {
        [&self.packets, &self.calls, &self.results].map(|count| count.load(Ordering::SeqCst))
    }
}

/// A relay that forwards datagrams, with one socket for each sender. The kernel computes new checksums for
/// the forwarded datagrams.
struct Relay {
    seen: Arc<Seen>,
    address: SocketAddr,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

const LOOK: Duration = Duration::from_millis(20);

impl Relay {
    fn to(server: SocketAddr) -> Self {
        let front = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        front.set_read_timeout(Some(LOOK)).unwrap();
        let (address, seen) = (front.local_addr().unwrap(), Arc::<Seen>::default());
        let threads = Arc::<Mutex<Vec<_>>>::default();
        let relay = Self { seen: Arc::clone(&seen), address, threads: Arc::clone(&threads) };
        let behind = Arc::clone(&threads);
        let there = move || {
            let mut senders: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
            let mut packet = vec![0; 65_536];
            while !seen.stopped.load(Ordering::SeqCst) {
                let Ok((bytes, from)) = front.recv_from(&mut packet) else { continue };
                let back = senders.entry(from).or_insert_with(|| {
                    let back = UdpSocket::bind("127.0.0.1:0").unwrap();
                    back.connect(server).unwrap();
                    back.set_read_timeout(Some(LOOK)).unwrap();
                    let back = Arc::new(back);
                    let (socket, front, seen) =
                        (Arc::clone(&back), Arc::clone(&front), Arc::clone(&seen));
                    let back_again = move || {
                        let mut packet = vec![0; 65_536];
                        while !seen.stopped.load(Ordering::SeqCst) {
                            let Ok(bytes) = socket.recv(&mut packet) else { continue };
                            seen.look(&mut packet[..bytes]);
                            let _ = front.send_to(&packet[..bytes], from);
                        }
                    };
                    behind.lock().unwrap().push(std::thread::spawn(back_again));
                    back
                });
                seen.look(&mut packet[..bytes]);
                let _ = back.send(&packet[..bytes]);
            }
        };
        threads.lock().unwrap().push(std::thread::spawn(there));
        relay
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.seen.stopped.store(true, Ordering::SeqCst);
        // The first thread starts the others, so it is joined before them.
        while let Some(thread) = {
            let mut threads = self.threads.lock().unwrap();
            if threads.is_empty() { None } else { Some(threads.remove(0)) }
        } {
            thread.join().unwrap();
        }
    }
}

fn serve(at: &str) -> (Running, SocketAddr) {
    let server = Server::new().export("bytes", BytesServer::new(Object)).unwrap();
    let running = server.listen(at).unwrap().spawn().unwrap();
    let address = running.addresses()[0].to_string();
    (running, address.strip_prefix("udp:").unwrap().parse().unwrap())
}

fn bind(to: SocketAddr, options: &BindOptions) -> BytesClient {
    BytesClient::bind_with(&format!("udp:{to}/bytes"), options).unwrap()
}

/// Checks the numbers of packets that a call takes. `due` has three numbers: all packets, the packets of the
/// call's message, and the packets of its result. On a busy machine, a client sometimes sends a probe. So it
/// is enough if one of several rounds has exactly these numbers. If every call has a superfluous packet,
/// every round fails. An occasional superfluous packet is detected by `tests/steady.rs`, which allows no
/// retransmission at all.
#[track_caller]
fn packets_are(due: [u64; 3], seen: &Seen, mut call: impl FnMut()) {
    const CALLS: u64 = 20;
    const ROUNDS: usize = 200;
    call();
    let mut rounds = Vec::new();
    while !rounds.contains(&due) && rounds.len() < ROUNDS {
        call();
        let before = seen.counted();
        (0..CALLS).for_each(|_| call());
        let after = seen.counted();
        rounds.push([0, 1, 2].map(|n| (after[n] - before[n]).div_ceil(CALLS)));
    }
    assert!(rounds.contains(&due), "expected {due:?}, counted {rounds:?}");
}

#[test]
fn small_call_takes_two_packets() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (_running, server) = serve("udp:127.0.0.1:0");
    let relay = Relay::to(server);
    for options in [BindOptions::default(), BindOptions::default().payload_check(true)] {
        let client = bind(relay.address, &options.wait(Wait::Block));
        let (mut into, seen) = ([0; 1024], &relay.seen);
        let two = [2, 1, 1];
        packets_are(two, seen, || client.null().unwrap());
        packets_are(two, seen, || assert_eq!(client.sum(&[1; 1024]).unwrap(), 1024));
        packets_are(two, seen, || client.fill(3, Out::from(&mut into)).unwrap());
    }
}

/// The environment variable that makes a child process run `narrow`. The child has a separate network
/// namespace, where a packet has at most 1,500 bytes, as on Ethernet.
const NARROW: &str = "PEREGRINE_PACKETS_NARROW";

#[test]
fn narrow() {
    if std::env::var_os(NARROW).is_none() {
        return;
    }
    let _directory = support::own_directory();
    let (_running, server) = serve("udp:127.0.0.1:0");
    let relay = Relay::to(server);
    let client = bind(relay.address, &BindOptions::default());
    let (mut into, seen) = ([0; 3000], &relay.seen);
    packets_are([2, 1, 1], seen, || client.null().unwrap());
    packets_are([2, 1, 1], seen, || assert_eq!(client.sum(&[1; 1024]).unwrap(), 1024));
    // A fragment has at most 1408 bytes. Several fragments are sent as one batch, without an acknowledgement
    // between them.
    packets_are([3, 2, 1], seen, || assert_eq!(client.sum(&[1; 2500]).unwrap(), 2500));
    packets_are([4, 3, 1], seen, || assert_eq!(client.sum(&[1; 3000]).unwrap(), 3000));
    packets_are([4, 1, 3], seen, || client.fill(3, Out::from(&mut into)).unwrap());
    println!("counted");
}

#[test]
fn large_call_takes_no_superfluous_packet() {
    support::link::run_in_a_network_like_ethernet("narrow", NARROW, "counted");
}

#[test]
fn payload_checks_detect_corruption_that_udp_checksums_miss() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (_running, server) = serve("udp:127.0.0.1:0");
    let relay = Relay::to(server);
    let damage = |call, result| {
        relay.seen.damage[0].store(call, Ordering::SeqCst);
        relay.seen.damage[1].store(result, Ordering::SeqCst);
    };
    // The clients bind and make their first calls before the relay corrupts any packet.
    let plain = bind(relay.address, &BindOptions::default());
    let checked = bind(relay.address, &BindOptions::default().payload_check(true));
    for client in [&plain, &checked] {
        assert_eq!(client.sum(&[1; 1000]).unwrap(), 1000);
    }
    // Without payload checks, the server receives a corrupted payload. This shows that the relay corrupts
    // packets. On a busy machine, the relay may corrupt a retransmission that the receiver ignores. Then the
    // payload is correct, so try again.
    support::until("corrupted arguments arrive", || {
        damage(1, 0);
        let sum = plain.sum(&[0; 1000]).unwrap();
        assert!([0, 4].contains(&sum), "{sum}");
        sum == 4
    });
    support::until("a corrupted result arrives", || {
        let mut into = [0; 1000];
        damage(0, 1);
        plain.fill(0, Out::from(&mut into)).unwrap();
        let sum = into.iter().copied().map(u32::from).sum::<u32>();
        assert!([0, 4].contains(&sum), "{sum}");
        sum == 4
    });
    // With payload checks, each packet that arrives corrupted is sent again: for small and for large
    // messages, in both directions.
    for bytes in [1000, 200_000] {
        let sent: Vec<u8> = (0..bytes).map(|at| (at * 7) as u8).collect();
        let sum: u64 = sent.iter().copied().map(u64::from).sum();
        let mut into = vec![0; bytes];
        for times in [1, 3] {
            let [_, calls, _] = relay.seen.counted();
            damage(times, 0);
            assert_eq!(checked.sum(&sent).unwrap(), sum);
            let whole = bytes.div_ceil(65_440) as u64;
            let [_, now, _] = relay.seen.counted();
            assert!(now - calls >= whole + times, "{} packets, {times} corrupted", now - calls);
            let [_, _, results] = relay.seen.counted();
            damage(0, times);
            checked.fill(9, Out::from(&mut into[..])).unwrap();
            assert!(into.iter().all(|byte| *byte == 9));
            let [_, _, now] = relay.seen.counted();
            assert!(now - results >= whole + times, "{} packets", now - results);
            into.fill(0);
        }
    }
    assert_eq!(relay.seen.damage[0].load(Ordering::SeqCst), 0);
    assert_eq!(relay.seen.damage[1].load(Ordering::SeqCst), 0);
}

/// If a call is cancelled while it waits for a thread, the server does not run it.
#[test]
fn call_cancelled_while_queued_is_not_run() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let object = Guest::default();
    let (begun, ends) = (Arc::clone(&object.begun), Arc::clone(&object.ends));
    let server = Server::new().threads(1).export("stay", StayServer::new(object)).unwrap();
    let running = server.listen("udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let address = format!("{}/stay", running.addresses()[0]);
    let client = StayClient::bind(&address).unwrap();
    // This client has only one call frame. The frame is free again when the server has released the cancelled
    // call.
    let other = StayClient::bind_with(&address, &BindOptions::default().astacks(1)).unwrap();
    let patient = StayClient::bind(&address);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| client.stay().unwrap());
        support::until("the first call runs", || begun.load(Ordering::SeqCst) == 1);
        let hasty = other.with_timeout(Duration::from_millis(50));
        let error = hasty.stay().unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::Maybe), "{error}");
        support::until("the server has received the cancellation", || {
            let error = hasty.null().expect_err("the only thread is taken");
            assert_eq!(error.kind(), Kind::TimedOut, "{error}");
            error.executed() == Executed::Maybe
        });
        ends.store(true, Ordering::SeqCst);
        assert_eq!(first.join().unwrap(), 1);
        assert_eq!(patient.unwrap().stay().unwrap(), 2);
        assert_eq!(other.stay().unwrap(), 3);
    });
}

/// A binding notices when the server to which it was bound has been replaced by another server at the same
/// address.
#[test]
fn restarted_server_is_distinguished_from_its_predecessor() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (running, server) = serve("udp:127.0.0.1:0");
    let client = bind(server, &BindOptions::default().rebind(Rebind::Never));
    client.null().unwrap();
    running.stop();
    // A thread of the stopped server may keep the socket open for a moment.
    support::until("the address is free", || UdpSocket::bind(server).is_ok());
    let (_running, again) = serve(&format!("udp:{server}"));
    assert_eq!(again, server);
    // A handle identifies a client at the server that granted it. Once a server has run for longer than a
    // packet can be in flight, it reports that an unknown handle was granted by another server. So the test
    // waits.
    std::thread::sleep(Duration::from_secs(2));
    for _ in 0..3 {
        let error = client.null().unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::ServerGone, Executed::No), "{error}");
        assert!(error.to_string().contains("was restarted"), "{error}");
    }
    bind(server, &BindOptions::default()).null().unwrap();
}

#[test]
fn invalid_packets_are_counted() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (running, to) = serve("udp:127.0.0.1:0");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..7 {
        socket.send_to(b"what is this?", to).unwrap();
    }
    bind(to, &BindOptions::default()).null().unwrap();
    // The thread that has received the last packet may not have counted it yet.
    support::until("all packets are counted", || running.losses().rejected >= 7);
    let losses = running.losses();
    assert_eq!((losses.rejected, losses.overflowed), (7, 0));
}
