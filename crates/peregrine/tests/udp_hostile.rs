//! Sends a flood of random, forged, truncated, corrupted and repeated datagrams while honest clients make
//! calls. The honest clients must get their results, and no call may run twice. Afterwards, the server must
//! use no more resources than before.
//!
//! `PEREGRINE_SOAK=600` sets the duration in seconds. Each run prints its seed. `PEREGRINE_SEED=n` repeats
//! the datagrams of the run with that seed.

#[path = "attack/mod.rs"]
mod attack;
mod ledger;
mod support;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use attack::noise::Noise;
use attack::packet::{HEADER_BYTES, forge, make_next_call};
use attack::vitals::Vitals;
use attack::{eventually, no_longer_than, seed, soak};
use ledger::{Book, Ledger as _, LedgerClient, LedgerServer};
use peregrine::{BindOptions, Server};
use support::impairments::Impairments;
use support::relay::Relay;
use support::{KeepGoing, Process, role};

const LIMIT: Duration = Duration::from_secs(30);
const FLOOD: Duration = Duration::from_secs(3);
/// The number of the first honest call. Forged calls have smaller numbers.
const FIRST: u64 = 1 << 40;

/// A datagram and its sender.
type Sent = (SocketAddr, Vec<u8>);

/// The most recent datagrams that the relay has seen on their way to the server.
#[derive(Default)]
struct Seen(Mutex<(Vec<Sent>, usize)>);

impl Seen {
    const MOST: usize = 1024;

    fn note(&self, from: SocketAddr, datagram: &[u8]) {
        let mut seen = self.0.lock().unwrap();
        let (all, next) = &mut *seen;
        if all.len() < Self::MOST {
            all.push((from, datagram.to_vec()));
        } else {
            all[*next] = (from, datagram.to_vec());
            *next = (*next + 1) % Self::MOST;
        }
    }

    fn pick(&self, noise: &mut Noise) -> Option<Sent> {
        let all = &self.0.lock().unwrap().0;
        all.get(noise.below(all.len() as u64) as usize).cloned()
    }

    fn one(&self, noise: &mut Noise) -> Vec<u8> {
        self.pick(noise).map(|(_, datagram)| datagram).unwrap_or_default()
    }
}

/// Does the work of a child process with the role `server` or `flood SEED ADDRESS`. In the test run itself,
/// this function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    no_longer_than(soak(FLOOD) + Duration::from_secs(120));
    let directory = support::directory();
    let words: Vec<&str> = role.split(' ').collect();
    if words[0] == "server" {
        let book = Book::of(&directory);
        let server = Server::new().export("ledger", LedgerServer::new(book)).unwrap();
        let running = server.listen("udp:127.0.0.1:0").unwrap().spawn().unwrap();
        println!("\nat {}/ledger", running.addresses()[0]);
        running.wait();
    } else {
        flood(words[1].parse().unwrap(), words[2]);
    }
}

fn relay(server: SocketAddr, seed: u64) -> Relay {
    Relay::new("127.0.0.1:0".parse().unwrap(), server, Impairments::default(), seed)
}

/// Relays the datagrams of honest clients and of an accomplice (a hostile client with valid handles). Sends
/// hostile datagrams that are derived from both. Also repeats datagrams of honest clients from the clients'
/// own addresses, as an attacker inside the network could.
fn flood(seed: u64, server: &str) {
    let server: SocketAddr = server.parse().unwrap();
    let (honest, own) = (Seen::default(), Seen::default());
    let (mut before_server, mut beside) = (relay(server, seed), relay(server, seed));
    let accomplice = format!("udp:{}/ledger", beside.address());
    println!("\nat udp:{}/ledger", before_server.address());
    let (going, sent) = (AtomicBool::new(true), AtomicU64::new(0));
    let repeated = AtomicU64::new(0);
    let goes = || going.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let _keep_going = KeepGoing::new(&going);
        // This relay runs until the process is killed.
        scope.spawn(|| {
            let mut noise = Noise::new(!seed);
            loop {
                let mut arrived = 0;
                before_server.step(&mut |from, datagram| {
                    honest.note(from, datagram);
                    arrived += 1;
                });
                for _ in 0..arrived {
                    if let Some((from, datagram)) = honest.pick(&mut noise) {
                        before_server.send_as(from, &datagram);
                        repeated.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        scope.spawn(|| {
            while goes() {
                beside.step(&mut |from, datagram| own.note(from, datagram));
            }
        });
        scope.spawn(|| {
            let Ok(ledger) = LedgerClient::bind(&accomplice) else { return };
            let ledger = ledger.with_timeout(Duration::from_millis(50));
            let bytes = vec![0; 150_000];
            while goes() {
                let _ = ledger.swallow(&bytes[..1000]);
                let _ = ledger.swallow(&bytes);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut noise = Noise::new(seed);
        // The different loopback addresses stand for different machines.
        let sockets: Vec<_> = (1..9)
            .map(|host| UdpSocket::bind(("127.0.0.".to_owned() + &host.to_string(), 0)).unwrap())
            .collect();
        let until = Instant::now() + soak(FLOOD);
        while Instant::now() < until {
            for _ in 0..32 {
                let datagram = hostile(&mut noise, &honest, &own);
                let socket = &sockets[noise.below(sockets.len() as u64) as usize];
                sent.fetch_add(
                    u64::from(socket.send_to(&datagram, server).is_ok()),
                    Ordering::Relaxed,
                );
            }
            // This pause leaves processor time for the honest clients.
            std::thread::sleep(Duration::from_micros(500));
        }
        let repeated = repeated.load(Ordering::Relaxed);
        assert!(repeated > 0, "no datagram was repeated with the address of its sender");
        println!("\nsent {}, and repeated {repeated}", sent.load(Ordering::Relaxed));
        std::thread::sleep(LIMIT);
    });
}

/// Returns a hostile datagram: a copy of an earlier datagram, perhaps changed, or random bytes. `honest` has
/// earlier datagrams of honest clients. `own` has those of the attacker's own client, the accomplice.
fn hostile(noise: &mut Noise, honest: &Seen, own: &Seen) -> Vec<u8> {
    match noise.below(8) {
        // A datagram of an honest client, repeated from another address.
        0 | 1 => honest.one(noise),
        // A datagram of an honest client that is truncated, or that is longer than its header says.
        2 => {
            let mut datagram = honest.one(noise);
            let bytes = noise.below(datagram.len() as u64 + 32) as usize;
            datagram.resize(bytes, 0x5a);
            datagram
        }
        // A datagram of an honest client with flipped bits in its header.
        3 => {
            let mut datagram = honest.one(noise);
            for _ in 0..1 + noise.below(4) {
                let at = noise.below(datagram.len().min(HEADER_BYTES) as u64) as usize;
                if let Some(byte) = datagram.get_mut(at) {
                    *byte ^= 1 << noise.below(8);
                }
            }
            datagram
        }
        // A datagram with a secret that the server does not know, and with a valid checksum.
        4 => {
            let mut datagram = honest.one(noise);
            if let Some(secret) = datagram.get_mut(12..24) {
                secret.copy_from_slice(&noise.bytes(12));
            }
            forge(noise, &mut datagram);
            datagram
        }
        // A datagram of the accomplice with false fields. The server knows the accomplice's handle.
        5 | 6 => {
            let mut datagram = own.one(noise);
            forge(noise, &mut datagram);
            datagram
        }
        _ => {
            let bytes = noise.below(2000) as usize;
            noise.bytes(bytes)
        }
    }
}

#[test]
fn honest_callers_keep_their_results_in_a_flood() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Process::launch("child", "server", directory.path());
    let address = server.until("at ");
    let place = address.trim_start_matches("udp:").trim_end_matches("/ledger");
    let warm = LedgerClient::bind(&address).unwrap();
    assert_eq!(warm.swallow(&[1; 150_000]).unwrap(), 150_000);
    let before = Vitals::of(server.id());
    let mut flood =
        Process::launch("child", &format!("flood {} {place}", seed()), directory.path());
    let through = flood.until("at ");
    let (next, going) = (AtomicU64::new(FIRST), AtomicBool::new(true));
    let sent = std::thread::scope(|scope| {
        let keep_going = KeepGoing::new(&going);
        for _ in 0..3 {
            scope.spawn(|| {
                let ledger = LedgerClient::bind(&through).unwrap().with_timeout(LIMIT);
                while going.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(ledger.enter(number, 0).expect("an honest call"), number + 1);
                }
            });
        }
        let sent = flood.until("sent ");
        drop(keep_going);
        sent
    });
    let calls = next.load(Ordering::Relaxed) - FIRST;
    println!("{calls} honest calls; hostile datagrams: sent {sent}");
    assert!(calls > 2, "only {calls} honest calls");
    flood.kill();
    let mut entered = Book::read(directory.path());
    entered.retain(|number| *number >= FIRST);
    entered.sort_unstable();
    assert!(entered.iter().copied().eq(FIRST..FIRST + calls), "each honest call runs once");
    let mut after = before;
    let back = eventually(LIMIT, || {
        after = Vitals::of(server.id());
        after.is_back_to(before, 8, 48 << 10)
    });
    assert!(back, "{before:?} became {after:?}");
    // An existing client and a new client are both served.
    assert_eq!(warm.enter(1, 0).unwrap(), 2);
    assert_eq!(LedgerClient::bind(&address).unwrap().swallow(&[1; 150_000]).unwrap(), 150_000);
}

#[test]
fn who_repeats_an_old_call_gets_no_result() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Process::launch("child", "server", directory.path());
    let address = server.until("at ");
    let place = address.trim_start_matches("udp:").trim_end_matches("/ledger");
    let place: SocketAddr = place.parse().unwrap();
    let (seen, going) = (Seen::default(), AtomicBool::new(true));
    let mut relay = relay(place, 1);
    let through = format!("udp:{}/ledger", relay.address());
    std::thread::scope(|scope| {
        let _keep_going = KeepGoing::new(&going);
        scope.spawn(|| {
            while going.load(Ordering::Relaxed) {
                relay.step(&mut |from, datagram| seen.note(from, datagram));
            }
        });
        // With one frame, the short call and the long call use the same handle.
        let options = BindOptions::default().astacks(1);
        let ledger = LedgerClient::bind_with(&through, &options).unwrap();
        assert_eq!(ledger.enter(1, 0).unwrap(), 2);
        let is_call = |seen: &&Sent| seen.1[3] == 1;
        let (_, old) = seen.0.lock().unwrap().0.iter().rfind(is_call).cloned().expect("a call");
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.set_nonblocking(true).unwrap();
        let long = scope.spawn(move || ledger.enter(2, 500));
        assert!(eventually(LIMIT, || Book::read(directory.path()) == [1, 2]), "the long call runs");
        // The client sends probes now and then. Each probe shows the server the client's true address again.
        while !long.is_finished() {
            stranger.send_to(&old, place).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(long.join().unwrap().unwrap(), 3);
        // If the client is silent for long on a busy machine, the server asks at the last address whether the
        // client still exists. Such a question has only a header.
        const RESULT: u8 = 2;
        let mut packet = [0; 2048];
        while let Ok(bytes) = stranger.recv(&mut packet) {
            let is_question = bytes == HEADER_BYTES && packet[3] != RESULT;
            assert!(is_question, "a stranger received {bytes} bytes of kind {}", packet[3]);
        }
    });
    assert_eq!(Book::read(directory.path()), [1, 2]);
}

/// A host that reads packets knows the handles in them. From the host's own address, they are not valid.
#[test]
fn handle_is_not_valid_from_another_address() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Process::launch("child", "server", directory.path());
    let address = server.until("at ");
    let place = address.trim_start_matches("udp:").trim_end_matches("/ledger");
    let place: SocketAddr = place.parse().unwrap();
    let (seen, going) = (Seen::default(), AtomicBool::new(true));
    let mut relay = relay(place, 1);
    let through = format!("udp:{}/ledger", relay.address());
    std::thread::scope(|scope| {
        let _keep_going = KeepGoing::new(&going);
        scope.spawn(|| {
            while going.load(Ordering::Relaxed) {
                relay.step(&mut |from, datagram| seen.note(from, datagram));
            }
        });
        let options = BindOptions::default().astacks(1);
        let ledger = LedgerClient::bind_with(&through, &options).unwrap();
        assert_eq!(ledger.enter(7, 0).unwrap(), 8);
        let is_call = |seen: &&Sent| seen.1[3] == 1;
        let (_, call) = seen.0.lock().unwrap().0.iter().rfind(is_call).cloned().expect("a call");
        let mut next = call;
        make_next_call(&mut next);
        let answer = |from: &str| {
            let socket = UdpSocket::bind((from, 0)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            let mut packet = [0; 2048];
            let mut kind = None;
            assert!(eventually(LIMIT, || {
                socket.send_to(&next, place).unwrap();
                kind = socket.recv(&mut packet).ok().map(|_| packet[3]);
                kind.is_some()
            }));
            kind
        };
        const RESULT: u8 = 2;
        const REFUSED: u8 = 8;
        assert_eq!(answer("127.0.0.2"), Some(REFUSED));
        assert_eq!(Book::read(directory.path()), [7], "a stranger's call ran");
        // The relay sends from this address, so the same packet is a valid call.
        assert_eq!(answer("127.0.0.1"), Some(RESULT));
        assert_eq!(Book::read(directory.path()), [7, 7]);
        drop(ledger);
    });
}
