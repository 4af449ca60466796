//! Clients and servers of Peregrine together. They use calls in parts: each packet carries a part of a
//! message.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use peregrine::{BindOptions, Executed, Kind, Wait};

use crate::foreign::{World, own_address};
use crate::support::impairments::Impairments;
use crate::support::relay::Relay;
use crate::support::until;
use crate::world::{Counter as _, CounterClient, Fault, NET};

fn pattern(words: usize) -> Vec<u16> {
    (0..words).map(|at| (at * 7 + at / 251) as u16).collect()
}

#[test]
fn calls_of_all_lengths_return() {
    let world = World::new("lengths");
    for wait in [Wait::Block, Wait::Spin, Wait::Adaptive] {
        let options = BindOptions::default().wait(wait);
        let client = CounterClient::bind_with(&world.address(), &options).unwrap();
        for count in [0, 1, 600, 680, 681, 5000, 65_000] {
            assert_eq!(client.echo(pattern(count)).unwrap(), pattern(count), "{count}");
        }
        // 16 sequences of 30,000 words are nearly 1 MiB.
        assert_eq!(client.words(16).unwrap(), vec![vec![7; 30_000]; 16]);
        assert_eq!(client.path().unwrap(), "courier+udp");
        client.binding().ping().unwrap();
    }
    let client = world.bind();
    let summary = client.binding().explain().summary();
    assert!(summary.contains("in parts"), "{summary}");
    // The results have more than 1 MiB.
    let error = client.words(20).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::Relayed, Executed::Maybe), "{error}");
}

#[test]
fn outcomes_are_those_of_the_procedures() {
    let world = World::new("outcomes");
    let client = world.bind();
    assert_eq!(client.count("x").unwrap(), 1);
    assert!(client.fail(0).is_ok());
    assert!(matches!(client.fail(3), Err(Fault::Counted { count: 3 })));
    let error = client.panics().unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::Relayed, Executed::Maybe), "{error}");
    assert!(world.server.withdraw(&crate::foreign::name_of("outcomes")));
    let error = client.count("x").unwrap_err();
    assert_eq!(error.executed(), Executed::No, "{error}");
}

#[test]
fn many_threads_share_a_binding() {
    let world = World::new("threads");
    for wait in [Wait::Block, Wait::Adaptive] {
        let options = BindOptions::default().wait(wait);
        let client = CounterClient::bind_with(&world.address(), &options).unwrap();
        thread::scope(|scope| {
            for thread in 0..8 {
                let client = &client;
                scope.spawn(move || {
                    for count in 0..100 {
                        let words = pattern(1 + thread * 100 + count * 10);
                        assert_eq!(client.echo(words.clone()).unwrap(), words);
                    }
                });
            }
        });
    }
}

#[test]
fn long_procedure_is_no_silence() {
    let world = World::new("long");
    let relay = Relayed::new(world.place(), Impairments::default(), 1);
    let client = CounterClient::bind(&relay.address()).unwrap();
    thread::scope(|scope| {
        let caller = scope.spawn(|| client.wait());
        world.begun.recv().unwrap();
        // The client sends more packets only to ask whether the procedure runs.
        let before = relay.sent();
        until("the client asks three times", || relay.sent() >= before + 3);
        world.go_on.send(()).unwrap();
        assert_eq!(caller.join().unwrap().unwrap(), 1);
    });
}

#[test]
fn call_at_a_restarted_server_does_not_run_and_the_next_one_does() {
    let world = World::new("restart");
    let place = world.place();
    let client = world.bind();
    assert_eq!(client.count("x").unwrap(), 1);
    drop(world);
    let world = World::at("restart", place);
    // If the client still uses the old cookie, the call fails without running, and the client cannot know
    // that it did not run. If the client first asks for a new cookie, the call runs.
    let error = client.count("x").err();
    if let Some(error) = &error {
        assert_eq!(error.kind(), Kind::ServerGone, "{error}");
        assert_eq!(world.runs(), 0);
    }
    assert_eq!(client.count("x").unwrap(), 1 + u32::from(error.is_none()));
}

/// A relay in a thread of its own. The relay ends when this value is dropped.
struct Relayed {
    address: SocketAddr,
    /// The number of datagrams that clients have sent.
    sent: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Relayed {
    fn new(server: SocketAddr, impairments: Impairments, seed: u64) -> Self {
        let mut relay = Relay::new((own_address(NET), 0).into(), server, impairments, seed);
        let (address, sent, ends) = (relay.address(), Arc::default(), Arc::default());
        let (count, has_ended): (Arc<AtomicU64>, Arc<AtomicBool>) =
            (Arc::clone(&sent), Arc::clone(&ends));
        let thread = thread::spawn(move || {
            while !has_ended.load(Ordering::Relaxed) {
                relay.step(&mut |_, _| _ = count.fetch_add(1, Ordering::Relaxed));
            }
        });
        Self { address, sent, ends, thread: Some(thread) }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    fn address(&self) -> String {
        format!("courier+udp:{}", self.address)
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

const STORMY: Impairments = Impairments {
    lost: 60,
    duplicated: 80,
    delayed: 100,
    delayed_us: 5000,
    // UDP drops damaged datagrams, because their checksums are wrong. So damage would be no more than loss.
    damaged: 0,
    delay_us: 100,
    cut_ms: (0, 0),
};

#[test]
fn lost_duplicated_and_delayed_packets_run_each_call_once() {
    let world = World::new("storm");
    let relay = Relayed::new(world.place(), STORMY, 1);
    let client = CounterClient::bind(&relay.address()).unwrap();
    let answered = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..6 {
            let (client, answered) = (&client, &answered);
            scope.spawn(move || {
                for count in 0..25 {
                    let words = pattern(thread * 500 + count * 40);
                    assert!(client.echo(words.clone()).unwrap() == words);
                    client.count("x").unwrap();
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(u64::from(world.runs()), answered.load(Ordering::Relaxed));
}

#[test]
fn network_that_loses_everything_is_a_failure() {
    let world = World::new("dark");
    let relay = Relayed::new(world.place(), Impairments { lost: 1000, ..STORMY }, 2);
    let options = BindOptions::default().bind_timeout(Duration::from_millis(300));
    let error = CounterClient::bind_with(&relay.address(), &options).err().unwrap();
    assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No), "{error}");
    assert_eq!(world.runs(), 0);
}

#[cfg(feature = "async")]
#[test]
fn futures_are_answered_through_a_bad_network() {
    use futures_lite::future::block_on;
    use futures_util::future::join_all;

    use crate::world::{CounterAsync as _, CounterAsyncClient};

    let world = World::new("futures");
    let relay = Relayed::new(world.place(), STORMY, 3);
    let client = block_on(CounterAsyncClient::bind(&relay.address())).unwrap();
    let echo = |count: usize| {
        let client = &client;
        async move { assert_eq!(client.echo(pattern(count)).await.unwrap(), pattern(count)) }
    };
    block_on(join_all((0..40).map(|count| echo(count * 100))));
    for count in 1..=20 {
        assert_eq!(block_on(client.count("x")).unwrap(), count);
    }
}
