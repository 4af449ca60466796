//! Courier over Peregrine's own packet exchange.

use std::thread;
use std::time::Duration;

use peregrine::server_info::{ServerInfo as _, ServerInfoClient};
use peregrine::{
    Argument, BindOptions, Binding, Dynamic, Executed, GenericClient, Kind, PathKind, Server, Wait,
};

use crate::foreign::{World, name_of};
use crate::world::{Counter as _, CounterClient, Fault, Newer as _, NewerClient, PROGRAM};

/// Starts a server that listens for Peregrine's own clients (`udp:`). Returns the server, and its address for
/// Courier over the packet exchange.
fn world(name: &str) -> (World, String) {
    let listens = |server: Server| server.listen("udp:127.0.0.1:0");
    let world = World::spawned(name, listens).unwrap();
    let address = world.address().replace("udp:", "courier+exchange:");
    (world, address)
}

#[test]
fn calls_run_as_over_other_paths_of_courier() {
    let (world, address) = world("exchange");
    for wait in [Wait::Block, Wait::Spin, Wait::Adaptive] {
        let options = BindOptions::default().wait(wait);
        let client = CounterClient::bind_with(&address, &options).unwrap();
        for words in [0, 1, 700, 60_000] {
            assert!(client.echo(vec![words; words.into()]).unwrap() == vec![words; words.into()]);
        }
        assert!(client.words(34).unwrap() == vec![vec![7; 30_000]; 34], "2 MB");
        assert!(matches!(client.fail(3), Err(Fault::Counted { count: 3 })));
        assert!(client.fail(0).is_ok());
        client.binding().ping().unwrap();
        // To the server, the call is an ordinary call of Peregrine.
        assert_eq!(client.path().unwrap(), "udp");
        assert_eq!(client.binding().path(), PathKind::CourierExchange);
        let summary = client.binding().explain().summary();
        assert!(summary.contains("version 2 of program 1572869"), "{summary}");
    }
    assert_eq!(NewerClient::bind(&address).unwrap().nothing().ok(), Some(()));
    assert_eq!(world.runs(), 0);
}

#[test]
fn failures_are_those_of_the_exchange() {
    let (world, address) = world("exchange-failures");
    let client = CounterClient::bind(&address).unwrap();
    let error = client.panics().unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::Panicked, Executed::Maybe), "{error}");
    assert_eq!(client.count("x").unwrap(), 1);
    thread::scope(|scope| {
        let caller = scope.spawn(|| client.with_timeout(Duration::from_millis(30)).wait());
        let error = caller.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), Kind::TimedOut, "{error}");
        world.begun.recv().unwrap();
        world.go_on.send(()).unwrap();
    });
    assert!(world.server.withdraw(&name_of("exchange-failures")));
    let error = client.count("x").unwrap_err();
    assert_eq!(error.executed(), Executed::No, "{error}");
    let error = CounterClient::bind(&address).err().unwrap();
    assert!(error.detail().contains("no version 2 of program 1572869"), "{error}");
    // The export of the other version still exists.
    assert_eq!(NewerClient::bind(&address).unwrap().nothing().ok(), Some(()));
}

#[test]
fn counters_and_descriptions_are_those_of_the_export() {
    let (_world, address) = world("exchange-counters");
    let client = CounterClient::bind(&address).unwrap();
    for _ in 0..5 {
        client.count("x").unwrap();
    }
    let description = peregrine::describe(&format!("{address}/{PROGRAM}.2")).unwrap();
    assert_eq!(description.interface, "Counter");
    let server = address.replace("courier+exchange:", "udp:@");
    let exports = ServerInfoClient::bind(&server).unwrap();
    let listed = exports.list().unwrap();
    assert_eq!(listed.len(), 2, "{listed:?}");
    let own = listed.iter().find(|one| one.name == name_of("exchange-counters")).unwrap();
    assert_eq!(own.bindings, 1);
    let stat = exports.stat().unwrap();
    let row = stat.exports.iter().find(|one| one.name == own.name).unwrap();
    assert_eq!(row.counts.calls, 5);
}

#[test]
fn address_without_an_interface_needs_a_program() {
    let (_world, address) = world("exchange-any");
    let options = BindOptions::default();
    let error = Binding::bind_any(&address, &options).unwrap_err();
    assert_eq!(error.kind(), Kind::BadName, "{error}");
    Binding::bind_any(&format!("{address}/{PROGRAM}.2"), &options).unwrap().ping().unwrap();
    let error = Binding::bind_any(&format!("{address}/7.1"), &options).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
}

#[test]
fn generic_client_needs_no_interface() {
    let (_world, address) = world("exchange-generic");
    let client = GenericClient::bind(&format!("{address}/{PROGRAM}.2")).unwrap();
    let label = Dynamic::from("x");
    let counted = client.call("count", &mut [Argument::In(&label)]).unwrap();
    assert_eq!(counted, Ok(Dynamic::U32(1)));
}

#[cfg(feature = "async")]
#[test]
fn futures_call_over_the_exchange() {
    use futures_lite::future::block_on;
    use futures_util::future::join_all;

    use crate::world::{CounterAsync as _, CounterAsyncClient};

    let (world, address) = world("exchange-futures");
    let client = block_on(CounterAsyncClient::bind(&address)).unwrap();
    let echo = |count: u16| {
        let client = &client;
        async move {
            let words = vec![count; usize::from(count) * 50];
            assert!(client.echo(words.clone()).await.unwrap() == words);
            client.count("x").await.unwrap();
        }
    };
    block_on(join_all((0..40).map(echo)));
    assert_eq!(world.runs(), 40);
}
