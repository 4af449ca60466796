//! Tests calls of all kinds through networks that lose, duplicate, delay and reorder packets.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_lite::future::{block_on, poll_once};
use peregrine::{EthernetDevice, Insecure, Server, Sink, Source};

use super::support::bridge::Bridge;
use super::support::impairments::Impairments;
use super::support::link::{ENDS, Link, at_near_end};
use super::support::relay::Relay;
use super::support::{Process, alone, own_directory, role, until};
use super::*;

/// Impairments of the packets in both directions. A tenth of the packets are lost.
pub(crate) const STORMY: Impairments = Impairments {
    lost: 100,
    duplicated: 80,
    delayed: 200,
    delayed_us: 4000,
    damaged: 0,
    delay_us: 200,
    cut_ms: (300, 500),
};

/// Impairments of the frames in both directions over raw Ethernet.
const UNSETTLED: Impairments = Impairments { lost: 10, damaged: 10, ..STORMY };

/// A generator of random numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// Calls `run` with the seed `PEREGRINE_SEED` if this variable is set. Otherwise calls it with
/// `PEREGRINE_SEEDS` seeds, or with `default` seeds if this variable is not set either.
pub(crate) fn seeds(default: u64, run: impl Fn(u64)) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    if let Some(seed) = number("PEREGRINE_SEED") {
        return run(seed);
    }
    let begin = u64::from(std::process::id()) << 16;
    for seed in begin..begin + number("PEREGRINE_SEEDS").unwrap_or(default) {
        println!("PEREGRINE_SEED={seed}");
        run(seed);
    }
}

/// The number of the last call, the numbers of the calls that have ended, and those of the calls that were
/// given up.
#[derive(Default)]
struct Numbers {
    next: u64,
    ended: Vec<u64>,
    given_up: Vec<u64>,
}

/// Returns a sink that takes `most` items. The items must have the numbers from 0 on.
pub(crate) fn receive(received: &mut u64, most: u64) -> Sink<'_, Item> {
    Sink::until(move |item: Item| {
        assert!(item.number == *received && item.is_intact(), "{} after {received}", item.number);
        *received += 1;
        if *received == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// Makes calls of all kinds. Checks what the server has seen.
fn mixed(object: &Object, client: &WeatherClient, seed: u64) {
    let mut random = Random::of(seed);
    let both = WeatherAsyncClient::from(client.clone());
    let (mut numbers, mut notes) = (Numbers::default(), 0);
    for _ in 0..30 {
        let size = random.below(300) as u32;
        let end = random.below(400);
        match random.below(8) {
            0 => {
                for _ in 0..random.below(200) {
                    client.note(notes).unwrap();
                    notes += 1;
                }
            }
            1 => client.flush().unwrap(),
            2 => some_futures(&both, &mut random, &mut numbers),
            3 => {
                let mut received = 0;
                assert_eq!(client.count(end, size, receive(&mut received, 0)).unwrap(), None);
                assert_eq!(received, end);
            }
            4 => {
                let (most, mut received) = (1 + random.below(300), 0);
                let sink = receive(&mut received, most);
                let taken = client.count(1_000_000, size, sink).unwrap().expect("an error");
                assert!(received == most && taken <= received, "{taken} of {received}");
            }
            5 => {
                let items = (0..end).map(|number| Item::new(number, size));
                assert_eq!(client.check(Source::new(items)).unwrap(), end);
            }
            6 => {
                callbacks::asked(client, end / 8, size);
                callbacks::given_up(&both, random.below(100), size);
            }
            _ => {
                let items = (0..end).map(|number| Item::new(number, size));
                let mut received = 0;
                let back = receive(&mut received, 0);
                assert_eq!(client.echo(Source::new(items), back).unwrap(), end);
                assert_eq!(received, end);
                given_up(&both, &mut random, size);
            }
        }
    }
    client.flush().unwrap();
    let seen = &object.0;
    assert!(seen.notes.lock().unwrap().iter().copied().eq(0..notes), "one-way calls");
    let added = seen.added.lock().unwrap();
    for number in &numbers.ended {
        assert_eq!(added.get(number), Some(&1), "call {number}");
    }
    for number in &numbers.given_up {
        assert!(added.get(number).is_none_or(|times| *times == 1), "call {number}");
    }
    drop(added);
    assert!(!seen.is_wrong.load(Ordering::SeqCst), "a procedure has received wrong items");
    until("all procedures end", || seen.running.load(Ordering::SeqCst) == 0);
}

/// Makes many async calls at a time. Drops some of them after a random number of polls.
fn some_futures(client: &WeatherAsyncClient, random: &mut Random, numbers: &mut Numbers) {
    let calls = (0..random.below(60)).map(|_| {
        numbers.next += 1;
        let number = numbers.next;
        let patience = if random.below(4) == 0 { Some(random.below(20)) } else { None };
        (number, patience, Box::pin(client.add(number)))
    });
    let mut calls = calls.collect::<Vec<_>>();
    for (number, patience, call) in &mut calls {
        for _ in 0..patience.unwrap_or(0) {
            if let Some(ended) = block_on(poll_once(call.as_mut())) {
                assert_eq!(ended.unwrap(), 1);
                numbers.ended.push(*number);
                *patience = Some(u64::MAX);
                break;
            }
        }
    }
    for (number, patience, call) in calls {
        match patience {
            None => {
                assert_eq!(block_on(call).unwrap(), 1, "call {number}");
                numbers.ended.push(number);
            }
            Some(u64::MAX) => {}
            Some(_) => numbers.given_up.push(number),
        }
    }
}

/// Drops a call with streams after a random number of polls.
fn given_up(client: &WeatherAsyncClient, random: &mut Random, size: u32) {
    let mut received = 0;
    let items = (0..).map(|number| Item::new(number, size));
    let mut call: Pin<Box<dyn Future<Output = _>>> =
        Box::pin(client.echo(Source::new(items), receive(&mut received, 0)));
    for _ in 0..random.below(200) {
        if let Some(ended) = block_on(poll_once(call.as_mut())) {
            panic!("an endless call has ended: {ended:?}");
        }
    }
}

#[test]
fn calls_of_all_kinds_survive_a_stormy_network() {
    let _alone = alone();
    let _directory = own_directory();
    seeds(3, |seed| {
        let object = Object::default();
        let running = serve(&object, "udp:127.0.0.1:0");
        let server = format!("127.0.0.1:{}", port(&running)).parse().unwrap();
        let mut relay = Relay::new("127.0.0.1:0".parse().unwrap(), server, STORMY, seed);
        let (at, ends) = (relay.address(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let relays = scope.spawn(|| {
                while !ends.load(Ordering::SeqCst) {
                    relay.step(&mut |_, _| ());
                }
            });
            let mixed = scope.spawn(|| mixed(&object, &behind(at), seed)).join();
            ends.store(true, Ordering::SeqCst);
            relays.join().unwrap();
            mixed.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        running.stop();
    });
}

/// Runs in a separate process, in which no earlier test has started the timer thread.
#[test]
fn calls_of_all_kinds_survive_damaged_frames() {
    let _alone = alone();
    let directory = own_directory();
    Process::launch("storm::frames", "frames", directory.path()).until("ended");
}

#[test]
fn frames() {
    if role().is_none() {
        return;
    }
    at_near_end(Link::with_middle(), |link| {
        // The timer thread of this process may prepare call frames. The thread has the network namespace of
        // the thread that starts it. So it must be started here, at the near end, where the client is.
        let world = World::new(Way::Local);
        (0..1000).for_each(|number| world.client.note(number).unwrap());
        world.client.flush().unwrap();
        drop(world);
        seeds(1, |seed| {
            let _bridge = Bridge::new(link, UNSETTLED, seed, |_, _| {});
            let object = Object::default();
            let device = EthernetDevice::Packet;
            let running = link.at(1, || {
                let server = Server::new().ethernet_device(device);
                let server = server.export("weather", WeatherServer::new(object.clone())).unwrap();
                let at = format!("eth:{}:7000", ENDS[1]);
                server
                    .listen_beyond_this_machine(&at, Insecure::ITrustThisNetwork)
                    .unwrap()
                    .spawn()
                    .unwrap()
            });
            let options = for_bad_weather().ethernet_device(device);
            let address = format!("eth:{}:7000/weather", ENDS[1]);
            let client = WeatherClient::bind_with(&address, &options).unwrap();
            mixed(&object, &client, seed);
            drop(client);
            running.stop();
        });
    });
    println!("\nended");
}
