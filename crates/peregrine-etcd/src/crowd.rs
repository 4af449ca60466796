//! What etcd gets from a large cluster, and when: 10,000 servers, and 100,000 processes that follow them. The
//! processes are simulated by the pauses that `follow.rs` and `lease.rs` make, without a network. The tests
//! print the figures that docs/DECISIONS.md repeats, and check their bounds.

use std::time::{Duration, Instant};

use peregrine::directory::Offer;
use serde_json::{Value, json};

use crate::follow::{FIRST_PAUSE, LONGEST_PAUSE, PAGE, next_pause};
use crate::gateway::encoded;
use crate::known::Known;
use crate::lease::until_renewal;
use crate::pause::Pause;
use crate::place::Place;

const SERVERS: usize = 10_000;
const CLIENTS: usize = 100_000;
/// The servers of one name.
const EACH: usize = 100;

/// How many events happen in each part of a second.
struct Rate {
    parts: Vec<usize>,
}

impl Rate {
    const PARTS: u32 = 10;

    fn new() -> Self {
        Self { parts: Vec::new() }
    }

    fn add(&mut self, at: Duration) {
        let part = (at.as_secs_f64() * f64::from(Self::PARTS)) as usize;
        self.parts.resize(self.parts.len().max(part + 1), 0);
        self.parts[part] += 1;
    }

    fn sum(&self) -> usize {
        self.parts.iter().sum()
    }

    /// Returns the largest number of events in a second.
    fn peak(&self) -> usize {
        let second = Self::PARTS as usize;
        let ends = 1..=self.parts.len();
        ends.map(|end| self.parts[end.saturating_sub(second)..end].iter().sum()).max().unwrap_or(0)
    }

    /// Returns when the last event happens.
    fn end(&self) -> Duration {
        Duration::from_secs(1).mul_f64(self.parts.len() as f64 / f64::from(Self::PARTS))
    }
}

/// Returns when these processes come back that lose their watches at the same time, and the attempts that
/// that fail, while no member runs for this time.
fn come_back(processes: usize, away: Duration) -> [Rate; 2] {
    let [mut back, mut in_vain] = [Rate::new(), Rate::new()];
    for _ in 0..processes {
        let mut pause = Pause::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut at = Duration::ZERO;
        loop {
            at += next_pause(&mut pause, false);
            if at >= away {
                break;
            }
            in_vain.add(at);
        }
        back.add(at - away);
    }
    [back, in_vain]
}

#[test]
fn processes_come_back_over_seconds_after_an_outage() {
    // One of three members has ended, so each third process looks for another one.
    let [back, in_vain] = come_back(CLIENTS / 3, Duration::ZERO);
    println!("a member ends: {} come back, {} per s at most", back.sum(), back.peak());
    assert_eq!((back.sum(), in_vain.sum()), (CLIENTS / 3, 0));
    assert!(back.end() <= FIRST_PAUSE);

    let [back, in_vain] = come_back(CLIENTS, Duration::from_secs(30));
    let each = in_vain.sum() as f64 / CLIENTS as f64;
    println!(
        "all members end for 30 s: {each:.1} failed attempts each, {} per s at most after the first \
         pause; {} come back within {:?}, {} per s at most",
        Rate { parts: in_vain.parts[20..].to_vec() }.peak(),
        back.sum(),
        back.end(),
        back.peak()
    );
    assert_eq!(back.sum(), CLIENTS);
    assert!(back.end() <= LONGEST_PAUSE);
    // Pauses are between a half and the whole of the longest one. If they were all the same, all processes
    // would come back in one moment.
    assert!(back.peak() < CLIENTS / 2, "{}", back.peak());
    assert!(each <= 30.0 / (LONGEST_PAUSE / 2).as_secs_f64() + 2.0, "{each}");
}

#[test]
fn renewals_are_spread_evenly() {
    let place = Place::read("//a/p").unwrap().0;
    let mut rate = Rate::new();
    let end = Duration::from_secs(60);
    for _ in 0..SERVERS {
        // All servers begin at the same moment.
        let mut at = until_renewal(place.lease);
        while at < end {
            rate.add(at);
            at += until_renewal(place.lease);
        }
    }
    let later = Rate { parts: rate.parts[300..].to_vec() };
    let each = later.sum() as f64 / 30.0;
    println!("renewals: {each:.0} per s, {} at most", later.peak());
    assert!(each < 1.2 * SERVERS as f64 / (place.lease / 3).as_secs_f64());
    assert!((later.peak() as f64) < 1.5 * each, "{}", later.peak());
}

fn pair(number: usize) -> Value {
    let (name, server) = (format!("service-{:03}", number / EACH), format!("{number:016x}"));
    let host = format!("host-{number:05}.example.org");
    let offer = Offer::new(&server, [format!("{name}@{host}:7000")]).unwrap();
    json!({
        "key": encoded(format!("/p/{name}/{server}")),
        "create_revision": (number + 2).to_string(),
        "mod_revision": (number + 2).to_string(),
        "version": "1",
        "value": encoded(offer.to_json()),
        "lease": "7587860184243241478",
    })
}

fn header(revision: usize) -> Value {
    json!({
        "cluster_id": "14841639068965178418",
        "member_id": "10276657743932975437",
        "revision": revision.to_string(),
        "raft_term": "2",
    })
}

#[test]
fn reading_of_all_servers_is_bounded() {
    let place = Place::read("//a/p").unwrap().0;
    let mut known = Known::nothing(place.clone());
    let (mut read, mut answers, mut bytes) = (Known::nothing(place), 0, 0);
    let pairs: Vec<_> = (0..SERVERS).map(pair).collect();
    for page in pairs.chunks(PAGE) {
        let answer = json!({ "header": header(SERVERS + 1), "kvs": page, "count": "10000" });
        (answers, bytes) = (answers + 1, bytes + answer.to_string().len());
        assert!(read.read(&answer));
    }
    let changed = known.replace(read, Instant::now());
    assert_eq!((changed.len(), known.names().len()), (SERVERS / EACH, SERVERS / EACH));
    let (name, change) = ("service-042", pair(4242));
    assert_eq!(known.offers(name).servers.len(), EACH);
    // A server withdraws, and another one registers.
    let event = |kind: &str| json!({ "header": header(SERVERS + 2), "events": [{ "type": kind, "kv": change }] });
    let [gone, new] = [event("DELETE"), event("PUT")];
    let size = gone.to_string().len().max(new.to_string().len());
    for (event, left) in [(gone, EACH - 1), (new, EACH)] {
        assert_eq!(known.change(&event).into_iter().collect::<Vec<_>>(), [name]);
        assert_eq!(known.offers(name).servers.len(), left);
    }
    println!(
        "a process reads {SERVERS} servers once: {answers} answers, {:.1} MB; a change: {size} bytes",
        bytes as f64 / 1e6
    );
    assert_eq!(answers, SERVERS.div_ceil(PAGE));
    assert!(bytes < 1000 * SERVERS && size < 1000);
}
