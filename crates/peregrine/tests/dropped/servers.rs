//! Tests what becomes of waiting async procedures when the server ends, the export is withdrawn, or the
//! binding is dropped.

use futures_util::future::join_all;
use peregrine::{Executed, Kind};

use super::*;

const CALLS: u32 = 8;

/// Makes calls of `wait` as futures and from threads, and runs `then` while the procedures run. Returns the
/// results of the calls.
fn waiting(
    pair: &mut Pair,
    latch: u32,
    then: impl FnOnce(&mut Pair),
) -> Vec<peregrine::Result<()>> {
    let client = &pair.client.clone();
    thread::scope(|scope| {
        let futures =
            scope.spawn(move || block_on(join_all((0..CALLS).map(|_| client.wait(latch, ALONE)))));
        let threads: Vec<_> = (0..CALLS)
            .map(|_| scope.spawn(move || FormsClient::from(client.clone()).wait(latch, ALONE)))
            .collect();
        pair.runs(2 * CALLS);
        then(pair);
        let mut results = futures.join().unwrap();
        results.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
        results
    })
}

fn pair() -> Pair {
    Pair::new("local", true, &Pair::options(2 * CALLS))
}

#[test]
fn server_that_stops_drops_deferred_procedures() {
    let _alone = alone();
    let _directory = support::own_directory();
    let mut pair = pair();
    let results = waiting(&mut pair, 1, |pair| {
        let running = pair.running.take().expect("a server");
        assert!(!running.drain(Duration::from_millis(30)), "the drain should time out");
        pair.runs(0);
    });
    for result in results {
        let error = result.expect_err("the server has ended");
        assert_eq!((error.kind(), error.executed()), (Kind::Withdrawn, Executed::Maybe), "{error}");
    }
    let late = block_on(pair.client.wait(1, ALONE)).expect_err("the server has ended");
    assert_eq!(late.executed(), Executed::No, "{late}");
}

#[test]
fn server_that_drains_waits_for_deferred_procedures() {
    let _alone = alone();
    let _directory = support::own_directory();
    let mut pair = pair();
    let results = waiting(&mut pair, 1, |pair| {
        let (running, seen) = (pair.running.take().expect("a server"), Arc::clone(&pair.seen));
        let opens = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            seen.open(1);
        });
        assert!(running.drain(LONG), "the procedures end");
        opens.join().unwrap();
        pair.runs(0);
    });
    results.into_iter().for_each(|result| result.expect("the procedure has ended"));
}

#[test]
fn deferred_procedures_of_a_withdrawn_export_end() {
    let _alone = alone();
    let _directory = support::own_directory();
    let mut pair = pair();
    let results = waiting(&mut pair, 1, |pair| {
        let running = pair.running.as_ref().expect("a server");
        assert!(running.withdraw(&running.names()[0]));
        pair.seen.open(1);
    });
    results.into_iter().for_each(|result| result.expect("the procedure has ended"));
    let late = block_on(pair.client.wait(1, ALONE)).expect_err("the export was withdrawn");
    assert_eq!(late.executed(), Executed::No);
}

#[test]
fn procedures_of_a_dropped_binding_are_dropped() {
    let _alone = alone();
    let _directory = support::own_directory();
    for path in ["in process", "local"] {
        let Pair { client, seen, running } = Pair::new(path, true, &Pair::options(CALLS));
        let calls: Vec<_> = (0..CALLS)
            .map(|_| {
                let client = client.clone();
                let call = async move { client.wait(1, ALONE).await };
                match polled(3, call) {
                    Polled::Ended(_) => unreachable!("the latch is closed"),
                    Polled::Dropped => {}
                }
            })
            .collect();
        drop((client, calls));
        until("the procedures are dropped", || seen.running() == 0);
        drop(running);
        until("the object is dropped", || Arc::strong_count(&seen) == 1);
    }
}
