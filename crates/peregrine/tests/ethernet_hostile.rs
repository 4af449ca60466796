//! Sends hostile Ethernet frames to the endpoint of a server and to the endpoint of a client: random,
//! truncated, damaged, replayed and forged frames. At the end, the test sends as many hostile frames as the
//! link carries. During all this, honest callers get their results, no call runs twice, no honest process
//! uses more resources than before, and frames of other programs arrive as usual.
//!
//! `PEREGRINE_SOAK=600` sends hostile frames for 600 seconds. `PEREGRINE_SEED`, set to the seed that a run
//! printed, repeats the hostile frames of that run.

#[path = "attack/mod.rs"]
mod attack;
mod ledger;
mod support;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use attack::noise::Noise;
use attack::packet::{HEADER_BYTES, SECRET, forge};
use attack::vitals::Vitals;
use attack::{eventually, no_longer_than, seed, soak, stop, stopped};
use ledger::{Book, Ledger as _, LedgerClient, LedgerServer};
use peregrine::{BindOptions, EthernetDevice, Insecure, Server};
use support::bridge::{Bridge, LINK_HEADER_BYTES};
use support::impairments::Impairments;
use support::link::{ENDS, Link};
use support::role;
use support::tap::{PEREGRINE_TYPE, Tap, UNUSED_TYPE};

const LIMIT: Duration = Duration::from_secs(20);
/// How long hostile frames of all kinds are sent.
const HOSTILE: Duration = Duration::from_millis(1500);
/// How long the link is flooded with hostile frames afterwards.
const FLOOD: Duration = Duration::from_millis(700);
const CLIENT: usize = 0;
const SERVER: usize = 1;
const PORT: u16 = 7000;
const THREADS: u64 = 3;
/// The number of sockets of one process that are filled with frames while they are idle.
const IDLE: usize = 12;

const FRAME_MAX: usize = 1514;
fn device(word: &str) -> EthernetDevice {
    if word == "packet" { EthernetDevice::Packet } else { EthernetDevice::Any }
}

/// Runs in child processes with a role: `server DEVICE`, `client DEVICE FIRST`, `accomplice`, `idle`. In the
/// test itself this does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    no_longer_than(2 * soak(HOSTILE) + Duration::from_secs(120));
    let directory = support::directory();
    let words: Vec<&str> = role.split(' ').collect();
    let by = words.get(1).map_or(EthernetDevice::Any, |word| device(word));
    if words[0] == "server" {
        let book = Book::of(&directory);
        let server = Server::new().ethernet_device(by);
        let server = server.export("ledger", LedgerServer::new(book)).unwrap();
        let at = format!("eth:{}:{PORT}", ENDS[SERVER]);
        let _running = server
            .listen_beyond_this_machine(&at, Insecure::ITrustThisNetwork)
            .unwrap()
            .spawn()
            .unwrap();
        println!("\nready");
        std::thread::sleep(Duration::from_secs(7200));
    }
    let options = BindOptions::default().ethernet_device(by).astacks(IDLE as u32);
    let ledger =
        LedgerClient::bind_with(&format!("eth:{}:{PORT}/ledger", ENDS[SERVER]), &options).unwrap();
    match words[0] {
        "client" => client(&ledger, words[2].parse().unwrap(), &directory),
        "accomplice" => {
            println!("\nready");
            let ledger = ledger.with_timeout(Duration::from_millis(50));
            let bytes = vec![0; 50_000];
            while !stopped(&directory) {
                let _ = ledger.swallow(&bytes[..1000]);
                let _ = ledger.swallow(&bytes);
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        _ => idle(&ledger, &directory),
    }
}

/// Makes calls from several threads until the test ends.
fn client(ledger: &LedgerClient, first: u64, directory: &Path) {
    let next = AtomicU64::new(first);
    println!("\nready");
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let bytes = vec![1; 5000];
                while !stopped(directory) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(ledger.enter(number, 0).expect("an honest call"), number + 1);
                    assert_eq!(ledger.swallow(&bytes).expect("an honest call"), 5000);
                }
            });
        }
    });
    println!(
        "\nmade {} by {}",
        next.load(Ordering::Relaxed) - first,
        ledger.binding().explain().summary()
    );
}

/// Makes calls from many threads at the same time, so that each thread opens a socket. Then makes calls
/// that use one of these sockets.
fn idle(ledger: &LedgerClient, directory: &Path) {
    let (all, end) = (Barrier::new(IDLE), Barrier::new(IDLE + 1));
    std::thread::scope(|scope| {
        for number in 0..IDLE as u64 {
            let (all, end) = (&all, &end);
            scope.spawn(move || {
                all.wait();
                // This call lasts until all threads have begun their calls, so that each thread needs its own
                // socket.
                ledger.enter(number, 200).unwrap();
                end.wait();
            });
        }
        println!("\nhas sockets");
        end.wait();
    });
    println!("\nready");
    while !stopped(directory) {
        std::thread::sleep(Duration::from_millis(5));
    }
    for number in 100..200 {
        assert_eq!(ledger.enter(number, 0).expect("an honest call"), number + 1);
    }
    println!("\nmade 100 by {}", ledger.binding().explain().summary());
}

/// The most recent frames that passed the bridge. Each array is indexed by the end that receives the frames.
#[derive(Default)]
struct Seen {
    /// Frames to and from honest clients.
    honest: [Mutex<Newest>; 2],
    /// Frames to and from the accomplice, a client that the attacker controls.
    own: [Mutex<Newest>; 2],
    /// The tag of the accomplice's process plus 1, or 0 if the tag is not known yet. A frame's endpoints
    /// contain the tags of the two processes.
    accomplice: AtomicU64,
}

#[derive(Default)]
struct Newest(Vec<Vec<u8>>, usize);

impl Newest {
    const MOST: usize = 1024;

    fn note(&mut self, frame: &[u8]) {
        if self.0.len() < Self::MOST {
            self.0.push(frame.to_vec());
        } else {
            self.0[self.1] = frame.to_vec();
            self.1 = (self.1 + 1) % Self::MOST;
        }
    }

    fn pick(&self, noise: &mut Noise) -> Vec<u8> {
        self.0.get(noise.below(self.0.len() as u64) as usize).cloned().unwrap_or_default()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

/// Returns the tag of the client's process in a frame to the end `to`. A tag is the byte of an endpoint that
/// identifies a process.
fn tag(to: usize, frame: &[u8]) -> Option<u8> {
    frame.get(if to == SERVER { 16 } else { 14 }).copied()
}

impl Seen {
    fn note(&self, to: usize, frame: &[u8]) {
        let accomplice = self.accomplice.load(Ordering::SeqCst);
        let is_own = tag(to, frame).is_some_and(|tag| u64::from(tag) + 1 == accomplice);
        locked(if is_own { &self.own[to] } else { &self.honest[to] }).note(frame);
    }
}

/// The two ends of a link, the frames that pass between them, and the sockets by which the attacker sends
/// frames to either end.
struct Scene {
    link: Link,
    bridge: Bridge,
    seen: Arc<Seen>,
    /// The sockets that send hostile frames, indexed by the end that receives these frames.
    taps: [Tap; 2],
}

impl Scene {
    fn new() -> Option<Self> {
        let link = Link::with_middle().map_err(|why| println!("skipped: {why}")).ok()?;
        let seen = Arc::<Seen>::default();
        let note = Arc::clone(&seen);
        let bridge =
            Bridge::new(&link, Impairments::default(), 1, move |to, frame| note.note(to, frame));
        // The taps only send frames. They need a type to receive, and other programs send no frames of
        // `UNUSED_TYPE`.
        let names = link.middle();
        let taps =
            link.at(2, || names.map(|name| Tap::at(name, UNUSED_TYPE).expect("a raw socket")));
        Some(Self { link, bridge, seen, taps })
    }

    fn honest(&self, to: usize, noise: &mut Noise) -> Vec<u8> {
        locked(&self.seen.honest[to]).pick(noise)
    }

    /// Sends a frame. Returns whether the interface accepted the frame.
    fn send(&self, to: usize, frame: &[u8]) -> bool {
        frame.len() >= 14 && self.taps[to].send(&frame[..frame.len().min(FRAME_MAX)]).is_ok()
    }

    /// Makes a hostile frame for the end `to`: a copy of an earlier frame, in most cases changed.
    fn hostile(&self, to: usize, noise: &mut Noise) -> Vec<u8> {
        let mut frame = self.honest(to, noise);
        if frame.len() < LINK_HEADER_BYTES + HEADER_BYTES {
            return frame;
        }
        match noise.below(10) {
            // A replay from the same sender.
            0 | 1 => {}
            // A frame that has only headers, which may be truncated.
            2 => {
                let bytes = noise.one_of(&[14, 15, 16, 17, 18, 18, 18, 19, 30, 59, 60]);
                frame.truncate(bytes);
            }
            // A frame that is shorter or longer than its header says.
            3 => {
                let bytes = 14 + noise.below(FRAME_MAX as u64 - 14) as usize;
                frame.resize(bytes, 0x5a);
            }
            // A frame with flipped bits.
            4 => {
                for _ in 0..1 + noise.below(4) {
                    let at =
                        14 + noise.below((LINK_HEADER_BYTES - 14 + HEADER_BYTES) as u64) as usize;
                    frame[at] ^= 1 << noise.below(8);
                }
            }
            // A replay from another machine.
            5 => {
                let hardware = noise.bytes(6);
                frame[6..12].copy_from_slice(&hardware);
                frame[6] &= 0xfe;
            }
            // A replay from another endpoint.
            6 => {
                let endpoint = noise.bytes(2);
                frame[16..18].copy_from_slice(&endpoint);
            }
            // A forged frame of an unknown client, with a correct checksum.
            7 => {
                let secret = noise.bytes(SECRET.len());
                frame[LINK_HEADER_BYTES..][SECRET].copy_from_slice(&secret);
                forge(noise, &mut frame[LINK_HEADER_BYTES..]);
            }
            // A forged frame of the accomplice, which is a known client.
            8 => {
                frame = locked(&self.seen.own[to]).pick(noise);
                forge(noise, &mut frame[LINK_HEADER_BYTES..]);
            }
            // A frame with Peregrine's type and random contents.
            _ => {
                let bytes = LINK_HEADER_BYTES + noise.below(1400) as usize;
                frame.truncate(LINK_HEADER_BYTES);
                let noise = noise.bytes(bytes - LINK_HEADER_BYTES);
                frame.extend_from_slice(&noise);
            }
        }
        frame
    }
}

/// Makes a frame of a type that no program uses, or a frame of Peregrine's type for an endpoint that no
/// process has. `number` is the value of each byte after the type.
fn foreign_frame(ether_type: u16, number: u8) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 9]);
    frame.extend(ether_type.to_be_bytes());
    frame.extend([number; 100]);
    frame
}

/// Checks that raw sockets at an end receive frames of another type, and frames for endpoints that no
/// process has.
fn check_other_sockets_receive(scene: &Scene, to: usize, taken: &[u8]) {
    let name = scene.link.interface(to);
    let listen = |of| scene.link.at(to, || Tap::at(name, of).expect("a raw socket"));
    let (others, ours) = (listen(UNUSED_TYPE), listen(PEREGRINE_TYPE));
    let number = (0..=u8::MAX).find(|tag| !taken.contains(tag)).expect("a tag that is free");
    for (listener, of) in [(others, UNUSED_TYPE), (ours, PEREGRINE_TYPE)] {
        let sent = foreign_frame(of, number);
        let mut received = [0; 2048];
        let arrived = eventually(LIMIT, || {
            assert!(scene.send(to, &sent));
            let mut receives_it =
                || listener.receive(&mut received).is_some_and(|n| received[..n] == sent);
            (0..4096).any(|_| receives_it())
        });
        assert!(arrived, "a raw socket for type {of:x} did not receive a frame");
    }
}

fn honest_callers_keep_their_results(by: &str) {
    let directory = tempfile::tempdir().unwrap();
    let (path, Some(scene)) = (directory.path(), Scene::new()) else { return };
    let link = &scene.link;
    let server = link.start(SERVER, "child", &format!("server {by}"), path);
    let accomplice = link.start(CLIENT, "child", "accomplice packet", path);
    // Only the accomplice has sent frames so far, so the first frame has its tag.
    let own = || locked(&scene.seen.honest[SERVER]).0.first().and_then(|frame| tag(SERVER, frame));
    assert!(eventually(LIMIT, || own().is_some()), "the accomplice calls");
    let own = own().expect("a tag");
    scene.seen.accomplice.store(u64::from(own) + 1, Ordering::SeqCst);
    for to in [CLIENT, SERVER] {
        *locked(&scene.seen.honest[to]) = Newest::default();
    }
    let mut client = link.start(CLIENT, "child", &format!("client {by} 1000"), path);
    assert_eq!([server.holds_xdp_program(), client.holds_xdp_program()], [by == "any"; 2]);
    let called = |calls: usize| {
        let before = Book::read(path).len();
        assert!(eventually(LIMIT, || Book::read(path).len() >= before + calls), "calls continue");
    };
    called(100);
    let before = [&server, &client].map(|process| Vitals::of(process.id()));
    let (mut noise, mut sent) = (Noise::new(seed()), [0u64; 2]);
    let until = Instant::now() + soak(HOSTILE);
    while Instant::now() < until {
        for to in [CLIENT, SERVER] {
            for _ in 0..32 {
                let frame = scene.hostile(to, &mut noise);
                sent[0] += u64::from(scene.send(to, &frame));
            }
        }
        // The pause leaves processor time to the honest processes.
        std::thread::sleep(Duration::from_micros(500));
    }
    called(20);
    let until = Instant::now() + FLOOD;
    while Instant::now() < until {
        for to in [CLIENT, SERVER] {
            let frame = scene.hostile(to, &mut noise);
            (0..128).for_each(|_| sent[1] += u64::from(scene.send(to, &frame)));
        }
    }
    called(20);
    // `before` was measured while the honest processes called and served, as they still do now.
    let mut after = before;
    let back = eventually(LIMIT, || {
        after = [&server, &client].map(|process| Vitals::of(process.id()));
        after.iter().zip(before).all(|(after, before)| after.is_back_to(before, 8, 48 << 10))
    });
    assert!(back, "{before:?} became {after:?}");
    let tags = [CLIENT, SERVER].map(|to| {
        let all = locked(&scene.seen.honest[to]);
        all.0.iter().filter_map(|frame| frame.get(14).copied()).collect::<Vec<u8>>()
    });
    for to in [CLIENT, SERVER] {
        check_other_sockets_receive(&scene, to, &[&tags[to][..], &[own]].concat());
    }
    stop(path);
    let made_by = client.until("made ");
    let (made, made_by) = made_by.split_once(" by ").expect("count and device");
    let made: u64 = made.parse().unwrap();
    println!("{made} honest calls with {sent:?} hostile frames, {made_by}");
    assert!(made_by.starts_with("ethernet: "), "{made_by}");
    let mut entered = Book::read(path);
    entered.retain(|number| *number >= 1000);
    entered.sort_unstable();
    assert!(entered.iter().copied().eq(1000..1000 + made), "each honest call ran once");
    drop((accomplice, scene.bridge));
}

#[test]
fn honest_callers_keep_their_results_over_af_xdp() {
    let _alone = support::alone();
    honest_callers_keep_their_results("any");
}

#[test]
fn honest_callers_keep_their_results_over_af_packet() {
    let _alone = support::alone();
    honest_callers_keep_their_results("packet");
}

/// Frames for idle sockets do not use up the memory for frames of sockets in use.
#[test]
fn filled_idle_sockets_do_not_keep_others_from_calling() {
    let _alone = support::alone();
    let directory = tempfile::tempdir().unwrap();
    let (path, Some(scene)) = (directory.path(), Scene::new()) else { return };
    let link = &scene.link;
    let _server = link.start(SERVER, "child", "server any", path);
    let mut client = link.launch(CLIENT, "child", "idle any", path);
    client.until("has sockets");
    client.until("ready");
    assert!(client.holds_xdp_program());
    let frames = locked(&scene.seen.honest[CLIENT]).0.clone();
    let mut endpoints: Vec<Vec<u8>> = Vec::new();
    for frame in &frames {
        if !endpoints.iter().any(|known| known[14..16] == frame[14..16]) {
            endpoints.push(frame.clone());
        }
    }
    assert!(endpoints.len() >= IDLE, "only {} sockets have received frames", endpoints.len());
    for frame in &endpoints {
        (0..2048).for_each(|_| assert!(scene.send(CLIENT, frame)));
    }
    stop(path);
    let made_by = client.until("made ");
    println!("{} sockets were filled; {made_by}", endpoints.len());
    assert!(made_by.contains("by ethernet:"), "{made_by}");
}
