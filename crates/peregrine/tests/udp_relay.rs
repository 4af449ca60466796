//! Tests calls over UDP through a network that loses, duplicates, delays, reorders and corrupts packets, and
//! that is interrupted. The network consists of two namespaces with a relay between them. No call may run
//! twice, no loss may go unreported, and every reported outcome must be true.
//!
//! `PEREGRINE_SOAK` raises the number of calls to a million. Each run prints its seed. `PEREGRINE_SEED=n`
//! repeats the relay's decisions of the run with that seed.

#[path = "attack/mod.rs"]
mod attack;
mod support;
mod tally;

use std::path::Path;
use std::time::{Duration, Instant};

use attack::{no_longer_than, seed};
use peregrine::{BindOptions, Out, Server};
use support::impairments::Impairments;
use support::link::{ENDS, Link};
use support::relay::Relay;
use support::{Process, role};
use tally::{Counts, Load, Tally as _, TallyClient, TallyServer, byte};

const SERVER: &str = "127.0.0.1:7000";
/// The port of the relay for many small calls. All relays listen at the end of the link where the server
/// runs.
const STORM: u16 = 7001;
/// The port of the relay for large results.
const RAIN: u16 = 7002;
/// The port of the relay that loses two packets of a large result.
const TWO: u16 = 7003;

/// The numbers of two fragments of a large result. Each of the two is lost once. The fragments between them
/// use more than half of all serial numbers.
const LOST: [u32; 2] = [1000, 41_000];

/// Impairments for small calls.
const STORMY: Impairments = Impairments {
    lost: 100,
    duplicated: 50,
    delayed: 200,
    delayed_us: 4000,
    damaged: 30,
    delay_us: 300,
    cut_ms: (1200, 1900),
};
/// Impairments for large results.
const RAINY: Impairments = Impairments { lost: 20, ..FAIR };
const FAIR: Impairments = Impairments {
    lost: 0,
    duplicated: 0,
    delayed: 0,
    delayed_us: 0,
    damaged: 0,
    delay_us: 0,
    cut_ms: (0, 0),
};

fn soaks() -> bool {
    std::env::var_os("PEREGRINE_SOAK").is_some()
}

fn load() -> Load {
    Load { calls: if soaks() { 1_000_000 } else { 20_000 }, clients: 4, threads: 12 }
}

/// Does the work of a child process that has a role. In the test run itself, this function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    no_longer_than(Duration::from_secs(if soaks() { 7200 } else { 240 }));
    let words: Vec<&str> = role.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    match words[0] {
        "server" => {
            let counts = Counts::of(load().calls);
            let server = Server::new().threads(4).queue(16);
            let server = server.export("tally", TallyServer::new(counts)).unwrap();
            let running = server.listen(&format!("udp:{SERVER}")).unwrap().spawn().unwrap();
            println!("\nready");
            running.wait();
        }
        "relay" => {
            let port = number(1) as u16;
            let (impairments, once) = match port {
                STORM => (STORMY, &[][..]),
                RAIN => (RAINY, &[][..]),
                _ => (FAIR, &LOST[..]),
            };
            let at = format!("{}:{port}", ENDS[0]).parse().unwrap();
            let relay = Relay::new(at, SERVER.parse().unwrap(), impairments, number(2));
            let mut relay = relay.lose_once(once);
            println!("\nready");
            loop {
                relay.step(&mut |_, _| ());
            }
        }
        "client" => {
            let directory = support::directory();
            let address = format!("udp:{}:{STORM}/tally", ENDS[0]);
            let options = BindOptions::default().bind_timeout(Duration::from_secs(30));
            let tally = TallyClient::bind_with(&address, &options).unwrap();
            load().run(&tally, number(1) as u32, &directory);
            println!("\nended");
        }
        "reader" => {
            let (bytes, port) = (number(1) as usize, number(2));
            let tally = TallyClient::bind(&format!("udp:{}:{port}/tally", ENDS[0])).unwrap();
            let mut all = vec![0; bytes];
            let start = Instant::now();
            let mut into = Out::from(&mut all[..]);
            tally.read(bytes as u32, into.by_ref()).unwrap();
            let took = start.elapsed();
            assert_eq!(into.filled(), bytes);
            assert!(all.iter().enumerate().all(|(at, one)| *one == byte(7, at)));
            println!("\nended {} ms", took.as_millis());
        }
        other => panic!("unknown role `{other}`"),
    }
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
    let _two = link.start(0, "child", &format!("relay {TWO} {seed}"), path);
    many_small_calls(&link, path);
    a_large_result(&link, path);
    two_lost_packets(&link, path);
}

fn many_small_calls(link: &Link, path: &Path) {
    let start = Instant::now();
    let client = |client| link.launch(1, "child", &format!("client {client}"), path);
    let mut clients: Vec<Process> = (0..load().clients).map(client).collect();
    clients.iter_mut().for_each(|client| drop(client.until("ended")));
    let took = start.elapsed();
    let [returned, not_executed, maybe] = load().check(path);
    println!("{returned} returned, {not_executed} not executed, {maybe} uncertain; in {took:?}");
    assert!(returned > load().calls / 10 * 8, "too many packets were lost for a meaningful test");
    assert!(maybe > 0, "no call exceeded its deadline");
}

/// Reads `bytes` bytes through the relay at `port`. Returns the time that this took, in milliseconds.
fn read(link: &Link, path: &Path, bytes: usize, port: u16) -> u64 {
    let mut reader = link.launch(1, "child", &format!("reader {bytes} {port}"), path);
    let told = reader.until("ended");
    let ms = told.split_whitespace().find_map(|word| word.parse().ok()).expect("a number");
    println!("received {bytes} bytes in {ms} ms");
    ms
}

fn a_large_result(link: &Link, path: &Path) {
    read(link, path, 64 << 20, RAIN);
}

/// Checks that the second loss is detected as fast as the first one, although serial numbers wrap around
/// between the two losses. If the second loss were not detected, only probes would advance the transfer.
/// Probes are 200 ms apart, so the transfer would take minutes.
fn two_lost_packets(link: &Link, path: &Path) {
    let ms = read(link, path, 64 << 20, TWO);
    assert!(ms < 60_000, "{ms} ms");
}
