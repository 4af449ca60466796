//! Calls over UDP through a network that loses, doubles, delays, reorders, damages and is cut: two
//! namespaces joined by a relay. Nothing runs twice, nothing is lost in silence, and every outcome
//! is as it was said.
//!
//! `PEREGRINE_SOAK` makes it a million calls; `PEREGRINE_SEED=n`, which is printed, repeats the relay's
//! decisions.

#[path = "attack/mod.rs"]
mod attack;
mod support;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use attack::{no_longer_than, seed};
use peregrine::{BindOptions, CallError, Executed, Kind, Out, Server, interface};
use support::link::{ENDS, Link};
use support::relay::{Relay, Weather};
use support::{Part, part};

const SERVER: &str = "127.0.0.1:7000";
/// Where the relays listen, beside the server: one for many small calls, one for large results.
const STORM: u16 = 7001;
const RAIN: u16 = 7002;

const CLIENTS: u32 = 4;
const THREADS: u32 = 12;

/// Weather for small calls.
const STORMY: Weather = Weather {
    lost: 100,
    doubled: 50,
    late: 200,
    late_us: 4000,
    damaged: 30,
    delay_us: 300,
    cut_ms: (1200, 1900),
};
/// Weather for large ones.
const RAINY: Weather =
    Weather { lost: 20, doubled: 0, late: 0, late_us: 0, damaged: 0, delay_us: 0, cut_ms: (0, 0) };

fn soaks() -> bool {
    std::env::var_os("PEREGRINE_SOAK").is_some()
}

/// Calls of all clients together.
fn calls() -> u32 {
    if soaks() { 1_000_000 } else { 20_000 }
}

#[interface]
trait Tally {
    /// Counts the call, and answers with a number of it and of what came with it; fills `into` with
    /// bytes of its own.
    fn enter(&self, id: u32, load: &[u8], back: u32, into: Out<'_, u8>) -> peregrine::Result<u64>;
    /// How often each call ran.
    fn counts(&self, #[max_len(1 << 20)] into: Out<'_, u8>) -> peregrine::Result<u64>;
    fn read(&self, bytes: u32, #[max_len(64 << 20)] into: Out<'_, u8>) -> peregrine::Result<()>;
}

struct Counts {
    each: Vec<AtomicU8>,
    all: AtomicU64,
}

fn byte(id: u32, at: usize) -> u8 {
    (id as usize ^ (at * 31 / 7)) as u8
}

fn answer(id: u32, load: &[u8]) -> u64 {
    let sum = load.iter().zip(1u64..).map(|(byte, at)| at * u64::from(*byte)).sum::<u64>();
    u64::from(id) << 32 ^ sum
}

impl Tally for Counts {
    fn enter(
        &self,
        id: u32,
        load: &[u8],
        back: u32,
        mut into: Out<'_, u8>,
    ) -> peregrine::Result<u64> {
        self.each[id as usize].fetch_add(1, Ordering::SeqCst);
        self.all.fetch_add(1, Ordering::SeqCst);
        if id.is_multiple_of(64) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let bytes: Vec<u8> = (0..back as usize).map(|at| byte(id, at)).collect();
        into.put(&bytes).expect("room");
        Ok(answer(id, load))
    }
    fn counts(&self, mut into: Out<'_, u8>) -> peregrine::Result<u64> {
        let each: Vec<u8> = self.each.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        into.put(&each).expect("room");
        Ok(self.all.load(Ordering::SeqCst))
    }
    fn read(&self, bytes: u32, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let bytes: Vec<u8> = (0..bytes as usize).map(|at| byte(7, at)).collect();
        into.put(&bytes).expect("room");
        Ok(())
    }
}

/// The parts that children play; in the test itself this does nothing.
#[test]
fn child() {
    let Some(part) = part() else { return };
    no_longer_than(Duration::from_secs(if soaks() { 7200 } else { 240 }));
    let words: Vec<&str> = part.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    match words[0] {
        "server" => {
            let each = (0..calls()).map(|_| AtomicU8::new(0)).collect();
            let counts = Counts { each, all: AtomicU64::new(0) };
            let server = Server::new().threads(4).queue(16);
            let server = server.export("tally", TallyServer::new(counts)).unwrap();
            let running = server.listen(&format!("udp:{SERVER}")).unwrap().spawn().unwrap();
            println!("\nready");
            running.wait();
        }
        "relay" => {
            let port = number(1);
            let weather = if port == u64::from(STORM) { STORMY } else { RAINY };
            let at = format!("{}:{port}", ENDS[0]).parse().unwrap();
            let mut relay = Relay::new(at, SERVER.parse().unwrap(), weather, number(2));
            println!("\nready");
            loop {
                relay.step(&mut |_| ());
            }
        }
        "client" => {
            let outcomes = client(number(1) as u32);
            let directory = PathBuf::from(std::env::var_os("PEREGRINE_DIR").unwrap());
            std::fs::write(directory.join(format!("outcomes{}", words[1])), outcomes).unwrap();
            println!("\nended");
        }
        "reader" => {
            let bytes = number(1) as usize;
            let tally = TallyClient::bind(&format!("udp:{}:{RAIN}/tally", ENDS[0])).unwrap();
            let mut all = vec![0; bytes];
            let start = Instant::now();
            let mut into = Out::from(&mut all[..]);
            tally.read(bytes as u32, into.by_ref()).unwrap();
            let took = start.elapsed();
            assert_eq!(into.filled(), bytes);
            assert!(all.iter().enumerate().all(|(at, one)| *one == byte(7, at)));
            println!("\nended {took:?}");
        }
        other => panic!("nobody knows how to play `{other}`"),
    }
}

const RETURNED: u8 = b'r';
const NOT_EXECUTED: u8 = b'n';
const MAYBE: u8 = b'm';

/// Makes a client's share of the calls; what became of each, in the order of their numbers.
fn client(number: u32) -> Vec<u8> {
    let address = format!("udp:{}:{STORM}/tally", ENDS[0]);
    let options = BindOptions::default().bind_timeout(Duration::from_secs(30));
    let tally = TallyClient::bind_with(&address, &options).unwrap();
    let share = calls() / CLIENTS;
    let each = share.div_ceil(THREADS);
    let thread = |thread: u32| {
        let tally = tally.with_timeout(Duration::from_secs(60));
        let (first, last) = (thread * each, ((thread + 1) * each).min(share));
        (first..last).map(move |at| call(&tally, number * share + at)).collect::<Vec<u8>>()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|one| scope.spawn(move || thread(one))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn call(tally: &TallyClient, id: u32) -> u8 {
    // Some are of several packets, one way or both; some are in a hurry.
    let load = if id.is_multiple_of(8) { id % 4099 } else { id % 64 };
    let back = if (id / 8).is_multiple_of(8) { id % 6007 } else { id % 64 };
    let load: Vec<u8> = (0..load as usize).map(|at| byte(!id, at)).collect();
    let mut bytes = [0; 6007];
    let mut into = Out::from(&mut bytes[..]);
    let called = if id.is_multiple_of(16) {
        let hasty = tally.with_timeout(Duration::from_micros(u64::from(id % 7000)));
        hasty.enter(id, &load, back, into.by_ref())
    } else {
        tally.enter(id, &load, back, into.by_ref())
    };
    match called {
        Ok(said) => {
            assert_eq!(said, answer(id, &load), "a crossed result");
            assert_eq!(into.filled(), back as usize);
            assert!(bytes[..back as usize].iter().zip(0..).all(|(one, at)| *one == byte(id, at)));
            RETURNED
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &CallError) -> u8 {
    let known = [Kind::TimedOut, Kind::Overloaded, Kind::ServerGone, Kind::Exhausted];
    assert!(known.contains(&error.kind()), "{error}");
    match error.executed() {
        Executed::No => NOT_EXECUTED,
        Executed::Maybe => MAYBE,
    }
}

/// How often each call ran, asked on the machine's own path.
fn counts() -> Vec<u8> {
    let mut counts = vec![0; calls() as usize];
    let mut into = Out::from(&mut counts[..]);
    let tally = TallyClient::bind("tally").unwrap();
    tally.counts(into.by_ref()).unwrap();
    assert_eq!(into.filled(), calls() as usize);
    counts
}

#[test]
fn calls_survive_a_bad_network() {
    let directory = support::own_directory();
    let link = match Link::new() {
        Ok(link) => link,
        Err(why) => return println!("skipped: no namespaces: {why}"),
    };
    let (path, seed) = (directory.path(), seed());
    let _server = link.start(0, "child", "server", path);
    let _storm = link.start(0, "child", &format!("relay {STORM} {seed}"), path);
    let _rain = link.start(0, "child", &format!("relay {RAIN} {seed}"), path);
    many_small_calls(&link, path);
    a_large_result(&link, path);
}

fn many_small_calls(link: &Link, path: &Path) {
    let start = Instant::now();
    let client = |client| link.launch(1, "child", &format!("client {client}"), path);
    let mut clients: Vec<Part> = (0..CLIENTS).map(client).collect();
    clients.iter_mut().for_each(|client| drop(client.until("ended")));
    let took = start.elapsed();
    let outcomes: Vec<u8> = (0..CLIENTS)
        .flat_map(|client| std::fs::read(path.join(format!("outcomes{client}"))).unwrap())
        .collect();
    assert_eq!(outcomes.len(), calls() as usize, "every call has an outcome");
    // A call that was given up may run as long as it is not let go: what counts is the end.
    std::thread::sleep(Duration::from_millis(200));
    let counts = counts();
    let mut of = [0u32; 3];
    for (id, (outcome, count)) in outcomes.iter().zip(&counts).enumerate() {
        match *outcome {
            RETURNED => assert_eq!(*count, 1, "{id} returned"),
            NOT_EXECUTED => assert_eq!(*count, 0, "{id} was said not to have run"),
            _ => assert!(*count <= 1, "{id} ran {count} times"),
        }
        of[[RETURNED, NOT_EXECUTED, MAYBE].iter().position(|one| one == outcome).unwrap()] += 1;
    }
    let [returned, not_executed, maybe] = of;
    println!("{returned} returned, {not_executed} not executed, {maybe} open; in {took:?}");
    assert!(returned > calls() / 10 * 8, "the weather was too bad to see anything");
    assert!(maybe > 0, "nobody was in a hurry");
}

fn a_large_result(link: &Link, path: &Path) {
    let mut reader = link.launch(1, "child", &format!("reader {}", 64 << 20), path);
    println!("64 MiB came in {}", reader.until("ended"));
}
