//! One-way calls: their callers do not wait for the replies, and they run in order.

use std::time::Duration;

use peregrine::{Kind, Server};

use crate::foreign::World;
use crate::world::{Counter as _, CounterClient};

/// Calls `test` with a world and the address of its server, over UDP and over the packet exchange.
fn over_both(name: &str, test: impl Fn(&World, &str)) {
    let world = World::new(&format!("{name}-udp"));
    test(&world, &world.address());
    let listens = |server: Server| server.listen("udp:127.0.0.1:0");
    let world = World::spawned(&format!("{name}-exchange"), listens).unwrap();
    test(&world, &world.address().replace("udp:", "courier+exchange:"));
}

#[test]
fn caller_does_not_wait_and_the_calls_run_in_order() {
    over_both("oneway", |world, address| {
        let client = CounterClient::bind(address).unwrap();
        client.note("wait").unwrap();
        // The procedure runs, and its caller goes on.
        world.begun.recv().unwrap();
        world.go_on.send(()).unwrap();
        let texts: Vec<_> = (0..100).map(|number| number.to_string()).collect();
        for text in &texts {
            client.note(text).unwrap();
        }
        client.flush().unwrap();
        let notes = client.notes().unwrap();
        assert_eq!(notes[0], "wait");
        assert_eq!(notes[1..], texts);
        // A call with a result runs after the one-way calls before it.
        client.note("last").unwrap();
        assert_eq!(client.notes().unwrap().last().unwrap(), "last");
    });
}

#[test]
fn failure_is_reported_by_the_next_call() {
    over_both("oneway-fails", |_, address| {
        let client = CounterClient::bind(address).unwrap();
        client.note("panic").unwrap();
        let error = client.flush().unwrap_err();
        assert_eq!(error.kind(), Kind::OneWay, "{error}");
        client.note("good").unwrap();
        assert_eq!(client.notes().unwrap(), ["good"]);
    });
}

#[test]
fn deadline_ends_a_call_that_nobody_waits_for() {
    let world = World::new("oneway-late");
    let client = world.bind();
    client.with_timeout(Duration::from_millis(50)).note("wait").unwrap();
    let error = client.notes().unwrap_err();
    assert_eq!(error.kind(), Kind::OneWay, "{error}");
    world.begun.recv().unwrap();
    world.go_on.send(()).unwrap();
}

#[cfg(feature = "async")]
#[test]
fn futures_do_not_wait_either() {
    use futures_lite::future::block_on;

    use crate::world::{CounterAsync as _, CounterAsyncClient};

    over_both("oneway-async", |world, address| {
        let client = block_on(CounterAsyncClient::bind(address)).unwrap();
        block_on(async {
            client.note("wait").await.unwrap();
            world.begun.recv().unwrap();
            world.go_on.send(()).unwrap();
            for text in ["a", "b", "c"] {
                client.note(text).await.unwrap();
            }
            assert_eq!(client.notes().await.unwrap(), ["wait", "a", "b", "c"]);
        });
    });
}
