//! Sends several messages of many packets over UDP at the same time. A packet may be received directly into
//! the memory of one call although it belongs to another call. Each message must still arrive intact.

mod support;

use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};

use peregrine::{BindOptions, Server, Wait, interface};

#[interface]
trait Bytes {
    /// Returns a digest of all bytes in their order.
    fn digest(&self, bytes: &[u8]) -> peregrine::Result<u64>;
    /// Combines each byte with its index.
    fn mark(&self, #[max_len(400_000)] bytes: &mut [u8]) -> peregrine::Result<()>;
    fn add(&self, a: u32, b: u32) -> peregrine::Result<u32>;
}

struct Object;

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn marked(at: usize, byte: u8) -> u8 {
    byte ^ (at % 251) as u8
}

impl Bytes for Object {
    fn digest(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        Ok(digest(bytes))
    }
    fn mark(&self, bytes: &mut [u8]) -> peregrine::Result<()> {
        bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = marked(at, *byte));
        Ok(())
    }
    fn add(&self, a: u32, b: u32) -> peregrine::Result<u32> {
        Ok(a + b)
    }
}

/// Returns the next pseudo-random number.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn bytes_of(state: &mut u64, most: usize) -> Vec<u8> {
    let (length, seed) = (next(state) as usize % most, next(state));
    (0..length).map(|at| (seed.wrapping_mul(at as u64 | 1) >> 24) as u8).collect()
}

/// Runs several clients with large messages and several clients with small messages at the same time.
fn all_at_once(wait: Wait, checked: bool) {
    const CALLERS: u64 = 4;
    const CALLS: u64 = 25;
    let server = Server::new().wait(wait).export("bytes", BytesServer::new(Object)).unwrap();
    let running = server.listen("udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let address = format!("{}/bytes", running.addresses()[0]);
    let options = BindOptions::default().wait(wait).payload_check(checked);
    let client = BytesClient::bind_with(&address, &options).unwrap();
    let (client, going) = (&client, &AtomicBool::new(true));
    std::thread::scope(|scope| {
        let little = scope.spawn(move || {
            let mut calls = 0;
            while going.load(Ordering::Relaxed) {
                assert_eq!(client.add(calls, 7).unwrap(), calls + 7);
                calls += 1;
            }
            calls
        });
        let much = (1..=CALLERS).map(|number| {
            scope.spawn(move || {
                let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number);
                for _ in 0..CALLS {
                    let bytes = bytes_of(&mut state, 600_000);
                    assert_eq!(client.digest(&bytes).unwrap(), digest(&bytes));
                    let mut bytes = bytes_of(&mut state, 400_000);
                    let was = bytes.clone();
                    client.mark(&mut bytes).unwrap();
                    let is_marked = |(at, byte): (usize, &u8)| *byte == marked(at, was[at]);
                    assert!(bytes.iter().enumerate().all(is_marked), "not marked: {}", was.len());
                }
            })
        });
        much.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        going.store(false, Ordering::Relaxed);
        assert!(little.join().unwrap() > 0);
    });
}

fn in_every_mode() {
    let _directory = support::own_directory();
    for (wait, checked) in [(Wait::Block, false), (Wait::Adaptive, false), (Wait::Adaptive, true)] {
        all_at_once(wait, checked);
    }
}

#[test]
fn messages_of_large_packets_arrive_whole() {
    let _alone = support::alone();
    in_every_mode();
}

/// The environment variable that makes a child process run `narrow`. The child has a separate network
/// namespace, where a packet has at most 1,500 bytes, as on Ethernet.
const NARROW: &str = "PEREGRINE_TRAINS_NARROW";

#[test]
fn narrow() {
    if std::env::var_os(NARROW).is_some() {
        in_every_mode();
        println!("all came");
    }
}

#[test]
fn messages_of_many_packets_arrive_whole() {
    let _alone = support::alone();
    support::link::run_in_a_network_like_ethernet("narrow", NARROW, "all came");
}
