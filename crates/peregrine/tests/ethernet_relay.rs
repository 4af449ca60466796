//! Tests calls over raw Ethernet with each of the two devices (AF_XDP and AF_PACKET). A bridge between client
//! and server loses, duplicates, delays, reorders, damages and truncates Peregrine's frames. No call runs
//! twice, every call has a correct outcome, and messages arrive intact.
//!
//! With `PEREGRINE_SOAK`, the clients together make a hundred thousand calls. `PEREGRINE_SEED`, set to the
//! seed that a run printed, repeats the bridge's decisions in that run.

#[path = "attack/mod.rs"]
mod attack;
mod support;
mod tally;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use attack::{no_longer_than, seed};
use peregrine::{BindOptions, EthernetDevice, Insecure, Out, Server};
use support::bridge::Bridge;
use support::impairments::Impairments;
use support::link::{ENDS, Link};
use support::{Process, role};
use tally::{Counts, Load, Tally as _, TallyClient, TallyServer, byte};

const PORT: u16 = 7000;

/// Impairments for small calls.
const SEVERE: Impairments = Impairments {
    lost: 80,
    duplicated: 60,
    delayed: 200,
    delayed_us: 4000,
    damaged: 60,
    delay_us: 0,
    cut_ms: (0, 0),
};
/// Impairments for large messages.
const MILD: Impairments =
    Impairments { lost: 20, duplicated: 10, delayed: 20, delayed_us: 2000, ..DAMAGE_ONLY };
const DAMAGE_ONLY: Impairments = Impairments {
    lost: 0,
    duplicated: 0,
    delayed: 0,
    delayed_us: 0,
    damaged: 5,
    delay_us: 0,
    cut_ms: (0, 0),
};

fn soaks() -> bool {
    std::env::var_os("PEREGRINE_SOAK").is_some()
}

fn load() -> Load {
    Load { calls: if soaks() { 100_000 } else { 3000 }, clients: 2, threads: 8 }
}

fn device(word: &str) -> EthernetDevice {
    if word == "packet" { EthernetDevice::Packet } else { EthernetDevice::Any }
}

/// Returns how a binding describes the device.
fn description_of(device: &str) -> &str {
    if device == "packet" { "ethernet: AF_PACKET" } else { "ethernet: AF_XDP" }
}

/// Runs in child processes with a role: `server DEVICE`, `client DEVICE NUMBER`, `reader DEVICE BYTES`. In
/// the test itself this does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    no_longer_than(Duration::from_secs(if soaks() { 3600 } else { 120 }));
    let words: Vec<&str> = role.split(' ').collect();
    let by = device(words[1]);
    if words[0] == "server" {
        let server = Server::new().threads(4).queue(16).ethernet_device(by);
        let server = server.export("tally", TallyServer::new(Counts::of(load().calls))).unwrap();
        let at = format!("eth:{}:{PORT}", ENDS[1]);
        let running = server
            .listen_beyond_this_machine(&at, Insecure::ITrustThisNetwork)
            .unwrap()
            .spawn()
            .unwrap();
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
        load().run(&tally, number, &directory);
    } else {
        let mut all = vec![0; number as usize];
        let mut into = Out::from(&mut all[..]);
        tally.read(number, into.by_ref()).unwrap();
        assert_eq!(into.filled(), number as usize);
        assert!(all.iter().enumerate().all(|(at, one)| *one == byte(7, at)));
    }
    println!("\nended {}", tally.binding().explain().summary());
}

/// Makes a link, or prints why no link can be made.
fn link() -> Option<Link> {
    Link::with_middle().map_err(|why| println!("skipped: no namespaces: {why}")).ok()
}

/// Checks the calls of two clients that run at the same time, one with each device. The server uses the
/// device `server`.
fn check_calls_survive(server: &str) {
    let directory = support::own_directory();
    let (path, Some(link)) = (directory.path(), link()) else { return };
    let bridge = Bridge::new(&link, SEVERE, seed(), |_, _| ());
    let _server = link.start(1, "child", &format!("server {server}"), path);
    let start = Instant::now();
    let devices = ["any", "packet"];
    let client = |number: usize| {
        let role = format!("client {} {number}", devices[number]);
        link.launch(0, "child", &role, path)
    };
    let mut clients: Vec<Process> = (0..2).map(client).collect();
    for (client, device) in clients.iter_mut().zip(devices) {
        let by = client.until("by ");
        assert!(by.starts_with(description_of(device)), "{by}");
    }
    for client in &mut clients {
        println!("{}", client.until("ended"));
    }
    let took = start.elapsed();
    let [returned, not_executed, maybe] = load().check(path);
    let [frames, calls, results] = bridge.counted();
    println!("{returned} returned, {not_executed} not executed, {maybe} unknown; in {took:?}");
    println!("{frames} frames, {calls} of calls, {results} of results");
    assert!(returned > load().calls / 10 * 8, "too few calls returned for a useful check");
    assert!(maybe > 0, "no call with a short timeout has timed out");
    assert!(calls > u64::from(returned) && results > u64::from(returned), "a call went over UDP");
    assert!(bridge.seen.others.load(Ordering::SeqCst) > 0, "no UDP frame was sent to bind");
}

#[test]
fn calls_survive_lossy_link_to_server_over_af_xdp() {
    let _alone = support::alone();
    check_calls_survive("any");
}

#[test]
fn calls_survive_lossy_link_to_server_over_af_packet() {
    let _alone = support::alone();
    check_calls_survive("packet");
}

#[test]
fn large_results_arrive_intact_over_lossy_link() {
    let _alone = support::alone();
    let directory = support::own_directory();
    let (path, Some(link)) = (directory.path(), link()) else { return };
    let _bridge = Bridge::new(&link, MILD, seed(), |_, _| ());
    for server in ["any", "packet"] {
        let _server = link.start(1, "child", &format!("server {server}"), path);
        for device in ["any", "packet"] {
            let role = format!("reader {device} {}", 2 << 20);
            let begun = Instant::now();
            let mut reader = link.launch(0, "child", &role, path);
            let by = reader.until("by ");
            assert!(by.starts_with(description_of(device)), "{by}");
            println!("2 MiB in {:?} by {}", begun.elapsed(), reader.until("ended"));
        }
    }
}
