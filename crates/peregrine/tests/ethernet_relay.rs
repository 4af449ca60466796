//! Calls over raw Ethernet through a bridge that loses, doubles, delays, reorders, damages and cuts
//! short Peregrine's frames: by both devices. Nothing runs twice, nothing is lost in silence, every
//! outcome is as it was said, and messages come whole.
//!
//! `PEREGRINE_SOAK` makes it a hundred thousand calls; `PEREGRINE_SEED=n`, which is printed, repeats
//! the bridge's decisions.

#[path = "attack/mod.rs"]
mod attack;
mod support;
mod tally;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use attack::{no_longer_than, seed};
use peregrine::{BindOptions, EthernetDevice, Out, Server};
use support::bridge::Bridge;
use support::link::{ENDS, Link};
use support::weather::Weather;
use support::{Part, part};
use tally::{Counts, Load, Tally as _, TallyClient, TallyServer, byte};

const PORT: u16 = 7000;

/// Weather for small calls.
const STORMY: Weather = Weather {
    lost: 80,
    doubled: 60,
    late: 200,
    late_us: 4000,
    damaged: 60,
    delay_us: 0,
    cut_ms: (0, 0),
};
/// Weather for large messages.
const RAINY: Weather = Weather { lost: 20, doubled: 10, late: 20, late_us: 2000, ..FAIR };
const FAIR: Weather =
    Weather { lost: 0, doubled: 0, late: 0, late_us: 0, damaged: 5, delay_us: 0, cut_ms: (0, 0) };

fn soaks() -> bool {
    std::env::var_os("PEREGRINE_SOAK").is_some()
}

fn load() -> Load {
    Load { calls: if soaks() { 100_000 } else { 3000 }, clients: 2, threads: 8 }
}

fn device(word: &str) -> EthernetDevice {
    if word == "packet" { EthernetDevice::Packet } else { EthernetDevice::Any }
}

/// What a binding says of the device that is meant.
fn said_by(device: &str) -> &str {
    if device == "packet" { "ethernet: AF_PACKET" } else { "ethernet: AF_XDP" }
}

/// The parts that children play: `server DEVICE`, `client DEVICE NUMBER`, `reader DEVICE BYTES`; in
/// the test itself this does nothing.
#[test]
fn child() {
    let Some(part) = part() else { return };
    no_longer_than(Duration::from_secs(if soaks() { 3600 } else { 120 }));
    let words: Vec<&str> = part.split(' ').collect();
    let by = device(words[1]);
    if words[0] == "server" {
        let server = Server::new().threads(4).queue(16).ethernet_device(by);
        let server = server.export("tally", TallyServer::new(Counts::of(load().calls))).unwrap();
        let at = format!("eth:{}:{PORT}", ENDS[1]);
        let running = server.listen_beyond_this_machine(&at).unwrap().spawn().unwrap();
        println!("\nready");
        running.wait();
        return;
    }
    let options = BindOptions::default().bind_timeout(Duration::from_secs(30)).ethernet_device(by);
    let address = format!("eth:{}:{PORT}/tally", ENDS[1]);
    let tally = TallyClient::bind_with(&address, &options).unwrap();
    println!("\nby {}", tally.binding().explain().summary());
    let number = words[2].parse::<u32>().expect("a number");
    if words[0] == "client" {
        let directory = support::directory();
        load().make(&tally, number, &directory);
    } else {
        let mut all = vec![0; number as usize];
        let mut into = Out::from(&mut all[..]);
        tally.read(number, into.by_ref()).unwrap();
        assert_eq!(into.filled(), number as usize);
        assert!(all.iter().enumerate().all(|(at, one)| *one == byte(7, at)));
    }
    println!("\nended {}", tally.binding().explain().summary());
}

/// Whether the ends can be joined here; says why not.
fn link() -> Option<Link> {
    Link::with_middle().map_err(|why| println!("skipped: no namespaces: {why}")).ok()
}

/// Both devices at the client's end beside each other, and one at the server's.
fn calls_survive(server: &str) {
    let directory = support::own_directory();
    let (path, Some(link)) = (directory.path(), link()) else { return };
    let bridge = Bridge::new(&link, STORMY, seed(), |_, _| ());
    let _server = link.start(1, "child", &format!("server {server}"), path);
    let start = Instant::now();
    let devices = ["any", "packet"];
    let client = |number: usize| {
        let part = format!("client {} {number}", devices[number]);
        link.launch(0, "child", &part, path)
    };
    let mut clients: Vec<Part> = (0..2).map(client).collect();
    for (client, device) in clients.iter_mut().zip(devices) {
        let by = client.until("by ");
        assert!(by.starts_with(said_by(device)), "{by}");
    }
    for client in &mut clients {
        println!("{}", client.until("ended"));
    }
    let took = start.elapsed();
    let [returned, not_executed, maybe] = load().hold(path);
    let [frames, calls, results] = bridge.counted();
    println!("{returned} returned, {not_executed} not executed, {maybe} open; in {took:?}");
    println!("{frames} frames, {calls} of calls, {results} of results");
    assert!(returned > load().calls / 10 * 8, "the weather was too bad to see anything");
    assert!(maybe > 0, "nobody was in a hurry");
    assert!(calls > u64::from(returned) && results > u64::from(returned), "they went elsewhere");
    assert!(bridge.seen.others.load(Ordering::SeqCst) > 0, "who binds asks over UDP first");
}

#[test]
fn calls_survive_a_bad_link_to_a_server_by_af_xdp() {
    let _alone = support::alone();
    calls_survive("any");
}

#[test]
fn calls_survive_a_bad_link_to_a_server_by_af_packet() {
    let _alone = support::alone();
    calls_survive("packet");
}

#[test]
fn large_results_come_whole_in_rain() {
    let _alone = support::alone();
    let directory = support::own_directory();
    let (path, Some(link)) = (directory.path(), link()) else { return };
    let _bridge = Bridge::new(&link, RAINY, seed(), |_, _| ());
    for server in ["any", "packet"] {
        let _server = link.start(1, "child", &format!("server {server}"), path);
        for device in ["any", "packet"] {
            let part = format!("reader {device} {}", 2 << 20);
            let begun = Instant::now();
            let mut reader = link.launch(0, "child", &part, path);
            let by = reader.until("by ");
            assert!(by.starts_with(said_by(device)), "{by}");
            println!("2 MiB in {:?} by {}", begun.elapsed(), reader.until("ended"));
        }
    }
}
