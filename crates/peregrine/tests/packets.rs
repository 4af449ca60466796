//! Packets of calls over UDP, seen by a relay on their way: how many there are, and what becomes of
//! those that are damaged behind a checksum that is right.

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

/// Calls that stay for as long as the test likes.
#[interface]
trait Stay {
    fn null(&self) -> peregrine::Result<()>;
    /// Ends when it may, and says how many have begun.
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
        support::until("it may end", || self.ends.load(Ordering::SeqCst));
        Ok(begun)
    }
}

/// Kinds of packets, at byte 3, and the bytes of their header.
const CALL: u8 = 1;
const RESULT: u8 = 2;
const HEADER: usize = 64;

/// What a relay sees and does.
#[derive(Default)]
struct Seen {
    packets: AtomicU64,
    calls: AtomicU64,
    results: AtomicU64,
    /// Pieces of calls, and of results, that are still to be damaged.
    damage: [AtomicU64; 2],
    stopped: AtomicBool,
}

impl Seen {
    /// Looks at a packet, and flips a bit of its payload if that is wanted.
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

/// Takes datagrams on, each by a socket that stands for its sender. The kernel makes their checksums
/// anew.
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
        // The first one starts the others, and is joined before they are looked for.
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

/// Holds that a call is so many packets: all, of the call, of the result. A machine that is busy makes a
/// client ask now and then, and nothing of that in one of some rounds shows what is due; one more that
/// a call really takes is there in each of them. One that a call takes now and then is not seen here but
/// in `tests/steady.rs`, where no packet at all may be sent again.
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
    assert!(rounds.contains(&due), "{due:?} are due, and there were {rounds:?}");
}

#[test]
fn a_call_that_fits_one_packet_is_two_packets() {
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

/// The same on Ethernet's terms, as a child in a network of its own.
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
    // Pieces of 1408 bytes; what goes in one train needs no answer in between.
    packets_are([3, 2, 1], seen, || assert_eq!(client.sum(&[1; 2500]).unwrap(), 2500));
    packets_are([4, 3, 1], seen, || assert_eq!(client.sum(&[1; 3000]).unwrap(), 3000));
    packets_are([4, 1, 3], seen, || client.fill(3, Out::from(&mut into)).unwrap());
    println!("counted");
}

#[test]
fn a_call_of_several_packets_is_those_and_nothing_else() {
    support::link::run_in_a_network_like_ethernet("narrow", NARROW, "counted");
}

#[test]
fn damage_that_no_checksum_sees_is_seen_with_payload_checks() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (_running, server) = serve("udp:127.0.0.1:0");
    let relay = Relay::to(server);
    let damage = |call, result| {
        relay.seen.damage[0].store(call, Ordering::SeqCst);
        relay.seen.damage[1].store(result, Ordering::SeqCst);
    };
    // Bound before anything is damaged; the first call of each is whole.
    let plain = bind(relay.address, &BindOptions::default());
    let checked = bind(relay.address, &BindOptions::default().payload_check(true));
    for client in [&plain, &checked] {
        assert_eq!(client.sum(&[1; 1000]).unwrap(), 1000);
    }
    // Without checks it comes through: what follows would see it. Where the machine was late, it may hit
    // what was sent twice, and nobody waits for any more.
    support::until("damaged arguments come through", || {
        damage(1, 0);
        let sum = plain.sum(&[0; 1000]).unwrap();
        assert!([0, 4].contains(&sum), "{sum}");
        sum == 4
    });
    support::until("a damaged result comes through", || {
        let mut into = [0; 1000];
        damage(0, 1);
        plain.fill(0, Out::from(&mut into)).unwrap();
        let sum = into.iter().copied().map(u32::from).sum::<u32>();
        assert!([0, 4].contains(&sum), "{sum}");
        sum == 4
    });
    // Small and large ones, both ways: what is damaged is sent again.
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
            assert!(now - calls >= whole + times, "{} packets, {times} damaged", now - calls);
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

/// A call that waits for a thread, and is given up meanwhile, is not run when its turn comes.
#[test]
fn a_call_that_was_given_up_while_it_waited_is_not_run() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let object = Guest::default();
    let (begun, ends) = (Arc::clone(&object.begun), Arc::clone(&object.ends));
    let server = Server::new().threads(1).export("stay", StayServer::new(object)).unwrap();
    let running = server.listen("udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let address = format!("{}/stay", running.addresses()[0]);
    let client = StayClient::bind(&address).unwrap();
    // With a single frame, which comes back when the server has let go of the call.
    let other = StayClient::bind_with(&address, &BindOptions::default().astacks(1)).unwrap();
    let patient = StayClient::bind(&address);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| client.stay().unwrap());
        support::until("the first one runs", || begun.load(Ordering::SeqCst) == 1);
        let hasty = other.with_timeout(Duration::from_millis(50));
        let error = hasty.stay().unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::Maybe), "{error}");
        support::until("the server has heard that it is given up", || {
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

/// Another server at the same address is no stand-in for the one that was bound.
#[test]
fn a_server_that_was_started_again_is_told_from_the_one_before() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (running, server) = serve("udp:127.0.0.1:0");
    let client = bind(server, &BindOptions::default().rebind(Rebind::Never));
    client.null().unwrap();
    running.stop();
    // A thread that is about to end may have the socket for a moment more.
    support::until("the address is free", || UdpSocket::bind(server).is_ok());
    let (_running, again) = serve(&format!("udp:{server}"));
    assert_eq!(again, server);
    // Once it has been there for longer than a call takes, on a machine that is late, too, it can say
    // that it never had this one.
    std::thread::sleep(Duration::from_secs(2));
    for _ in 0..3 {
        let error = client.null().unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::ServerGone, Executed::No), "{error}");
        assert!(error.to_string().contains("started again"), "{error}");
    }
    bind(server, &BindOptions::default()).null().unwrap();
}

#[test]
fn what_a_server_does_not_understand_is_counted() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (running, to) = serve("udp:127.0.0.1:0");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..7 {
        socket.send_to(b"what is this?", to).unwrap();
    }
    bind(to, &BindOptions::default()).null().unwrap();
    // Any thread takes any packet, and may have it still.
    support::until("all are counted", || running.losses().rejected >= 7);
    let losses = running.losses();
    assert_eq!((losses.rejected, losses.overflowed), (7, 0));
}
