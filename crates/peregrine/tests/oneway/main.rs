//! Tests one-way calls on every path, with blocking and async clients and servers.

#[path = "../contract/mod.rs"]
mod contract;
// The macro for both forms (blocking and async) defines more items than these tests use.
#[allow(dead_code)]
mod journal;
mod messages;
mod processes;
#[path = "../support/mod.rs"]
mod support;

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use contract::{Form, Forms};
use journal::{Client, Journal as _, JournalAsync as _, Way, World, until};
use peregrine::{CallError, Executed, Kind, limits};
use support::futures::{block_on, poll_once};

/// Runs a case with a fresh server and client, over each path and in all forms.
fn everywhere(case: impl Fn(&mut World, &Client, Way, Forms)) {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for way in Way::ALL {
        for forms in Forms::ALL {
            println!("{way:?}, {forms:?}");
            let mut world = World::new(way, forms.server);
            let client = world.client(forms.client);
            case(&mut world, &client, way, forms);
        }
    }
}

/// Checks the numbers in an error of one-way calls: how many calls have failed, and how many of the failed
/// calls may not have run. `flush` reports `Executed::Maybe` if all of the failed calls ran, and otherwise
/// `Executed::No`. Any other call reports `Executed::No`, because that call itself was not executed.
fn tells(error: &CallError, failed: u64, not_run: u64, first: &str) {
    assert_eq!(error.kind(), Kind::OneWay, "{error}");
    let is_flush = error.procedure() == "flush";
    let expected = if is_flush && not_run == 0 { Executed::Maybe } else { Executed::No };
    assert_eq!(error.executed(), expected, "{error}");
    assert_eq!((error.oneway_failed(), error.oneway_not_run()), (failed, not_run), "{error}");
    assert!(error.to_string().contains(first), "{error}");
}

fn numbered(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

#[test]
fn calls_run_in_the_order_in_which_they_were_made() {
    everywhere(|world, client, _, _| {
        for number in 0..400u32 {
            if number % 37 == 5 {
                assert_eq!(client.line(&number.to_string()).unwrap(), number + 1);
            } else if number % 101 == 7 {
                client.bulk(vec![7; number as usize]).unwrap();
            } else {
                client.note(&number.to_string()).unwrap();
            }
        }
        client.flush().unwrap();
        assert_eq!(world.object.seen(), numbered(0..400));
        client.flush().unwrap();
    });
}

#[test]
fn failures_are_told_once_and_the_binding_works_on() {
    everywhere(|world, client, _, _| {
        client.note("0").unwrap();
        client.flush().unwrap();
        // A later call may report earlier failures. So `flush` follows each call that fails.
        client.fail(0).unwrap();
        let error = client.flush().unwrap_err();
        tells(&error, 1, 0, "1 earlier one-way call failed");
        tells(&error, 1, 0, "`fail` returned an error");
        tells(&error, 1, 0, "the disk is full");
        client.flush().unwrap();
        client.fail(1).unwrap();
        tells(&client.line("not made").unwrap_err(), 1, 0, "a fault on purpose");
        client.refuse(3).unwrap();
        tells(&client.lines().unwrap_err(), 1, 0, "`refuse` returned an error");
        client.fail(1).unwrap();
        let told = loop {
            if let Err(error) = client.note("made") {
                break error;
            }
        };
        tells(&told, 1, 0, "a fault on purpose");
        client.flush().unwrap();
        let lines = client.lines().unwrap();
        assert_eq!(lines, world.object.seen());
        assert_eq!(lines[..5], ["0", "failed", "failed", "refused", "failed"]);
        assert!(lines[5..].iter().all(|line| line == "made"), "{lines:?}");
    });
}

#[test]
fn large_calls_keep_their_order() {
    everywhere(|world, client, _, _| {
        let sizes = [0, 100, 5000, 70_000, 130_000, 300_000, 1_000_000];
        let mut expected = Vec::new();
        for size in sizes {
            client.note("before").unwrap();
            client.bulk(vec![7; size]).unwrap();
            client.note("after").unwrap();
            expected.extend(["before".to_owned(), size.to_string(), "after".to_owned()]);
        }
        assert_eq!(client.lines().unwrap(), expected);
        assert_eq!(world.object.seen(), expected);
        let error = client.bulk(vec![7; limits::MESSAGE_BYTES + 1]).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TooLarge, Executed::No), "{error}");
        client.flush().unwrap();
    });
}

#[test]
fn full_window_holds_callers_until_their_deadline() {
    everywhere(|world, client, way, _| {
        // On the in-process path, the procedure `wait` would run on the thread of this test, and block it.
        if way == Way::InProcess {
            return;
        }
        client.wait().unwrap();
        let hurried = client.with_timeout(Duration::from_millis(20));
        // In a batch, 32 bytes precede the message of each call, and the text in the message begins at a
        // multiple of 16.
        let made = limits::ONEWAY_BYTES / (32 + 16 + 10_000);
        let line = "x".repeat(10_000);
        (0..made).for_each(|_| client.note(&line).unwrap());
        let error = hurried.note(&line).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No), "{error}");
        let error = hurried.flush().unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No), "{error}");
        let error = hurried.lines().unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No), "{error}");
        world.object.open();
        client.flush().unwrap();
        assert_eq!(world.object.seen().len(), made);
    });
}

#[test]
fn calls_whose_deadline_passes_before_they_begin_do_not_run() {
    everywhere(|world, client, way, _| {
        if way == Way::InProcess {
            return;
        }
        client.wait().unwrap();
        let hurried = client.with_timeout(Duration::from_millis(5));
        hurried.note("late").unwrap();
        hurried.note("late").unwrap();
        client.note("in time").unwrap();
        until(|| world.object.0.waiting.load(Ordering::SeqCst) == 1);
        std::thread::sleep(Duration::from_millis(10));
        world.object.open();
        tells(&client.flush().unwrap_err(), 2, 2, "deadline passed");
        assert_eq!(world.object.seen(), ["in time"]);
    });
}

#[test]
fn drop_of_the_last_handle_sends_what_is_queued() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for way in Way::ALL {
        for forms in Forms::ALL {
            let mut world = World::new(way, forms.server);
            let client = world.client(forms.client);
            for number in 0..500 {
                client.clone().note(&number.to_string()).unwrap();
            }
            drop(client);
            assert_eq!(world.object.seen(), numbered(0..500), "{way:?}, {forms:?}");
        }
    }
}

#[test]
fn calls_of_a_withdrawn_export_are_told_as_not_run() {
    everywhere(|world, client, way, _| {
        let Some(running) = &world.running else { return };
        client.note("0").unwrap();
        client.flush().unwrap();
        assert!(running.withdraw(&world.name), "{way:?}");
        let mut made = 0;
        let error = loop {
            match client.note("1") {
                Ok(()) => made += 1,
                Err(error) => break error,
            }
            if let Err(error) = client.flush() {
                break error;
            }
        };
        assert_eq!(made, 1);
        tells(&error, 1, 1, "");
        assert_eq!(world.object.seen(), ["0"]);
    });
}

/// At most `ONEWAY_BYTES` of one-way calls may be in flight. While a call waits for space or for earlier
/// calls, its future can be dropped at any poll. The dropped call is not made, and later calls are made.
#[test]
fn dropped_futures_leave_the_calls_after_them_in_order() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for way in [Way::Local, Way::Udp, Way::Tcp] {
        for server in [Form::Blocking, Form::Async] {
            for polls in 0..4 {
                let mut world = World::new(way, server);
                let Client::Async(client) = world.client(Form::Async) else { continue };
                block_on(client.wait()).unwrap();
                let large = || vec![7; limits::ONEWAY_BYTES];
                let mut waits = [0; 2].map(|_| Box::pin(client.bulk(large())));
                let mut ended = pin!(client.flush());
                for _ in 0..polls {
                    waits.iter_mut().for_each(|one| assert!(poll_once(one.as_mut()).is_none()));
                    assert!(poll_once(ended.as_mut()).is_none());
                }
                drop(waits);
                block_on(client.note("after")).unwrap();
                world.object.open();
                block_on(client.flush()).unwrap();
                assert_eq!(world.object.seen(), ["after"], "{way:?}, {server:?}, {polls} polls");
            }
        }
    }
}

/// A stopping server begins no further call of a batch. The client learns how many calls may not have run.
#[test]
fn calls_of_a_batch_that_did_not_begin_do_not_run_when_the_server_stops() {
    everywhere(|world, client, _, forms| {
        let Some(running) = world.running.take() else { return };
        client.note("0").unwrap();
        client.flush().unwrap();
        client.wait().unwrap();
        let waiting = &world.object.0.waiting;
        until(|| waiting.load(Ordering::SeqCst) == 1);
        // These calls share the second batch. The server runs the batch when the gate opens below.
        client.wait().unwrap();
        (0..10).for_each(|_| client.note("never").unwrap());
        std::thread::scope(|scope| {
            let flushed = scope.spawn(|| client.flush());
            world.object.open();
            until(|| waiting.load(Ordering::SeqCst) == 2);
            // All calls of the second batch may end before the server stops. Then `flush` succeeds.
            running.stop();
            let error = flushed.join().unwrap();
            let ran = world.object.seen().len() as u64 - 1;
            match error {
                Ok(()) => assert_eq!(ran, 10, "{forms:?}"),
                Err(error) => {
                    assert_eq!(error.kind(), Kind::OneWay, "{error}");
                    assert!(ran + error.oneway_not_run() >= 10, "{ran} ran, {forms:?}: {error}");
                    assert!(ran + error.oneway_failed() <= 12, "{ran} ran, {forms:?}: {error}");
                }
            }
        });
    });
}
