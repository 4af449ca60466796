//! Tests futures that are dropped after 0, 1, 2 and more polls.

use std::pin::pin;

use futures_lite::future::{block_on, poll_once};
use peregrine::{Sink, Source};

use super::support::{alone, until};
use super::*;

/// Polls a future at most `polls` times. Returns the result of the future, or `None` if the future
/// is dropped.
fn polled<T>(polls: u32, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    for poll in 0..polls {
        if let Some(ended) = block_on(poll_once(future.as_mut())) {
            return Some(ended);
        }
        // The first polls follow each other at once, so that the server makes no progress. Later
        // the server gets time.
        if poll > 20 {
            std::thread::yield_now();
        }
    }
    None
}

/// Calls `attempt` with 0, 1, 2 and more polls, until it returns true because the future has ended. Runs
/// `check` after each attempt.
fn each_number(mut attempt: impl FnMut(u32) -> bool, check: impl Fn()) {
    for polls in 0.. {
        // From 60 polls on, the steps between the numbers grow, because neighbouring numbers test
        // the same.
        let polls = if polls < 60 { polls } else { 60 + (polls - 60) * (polls - 60) };
        let has_ended = attempt(polls);
        check();
        if has_ended {
            return;
        }
        assert!(polls < 100_000_000, "the future does not end");
    }
}

fn everywhere(case: impl Fn(&World, &WeatherAsyncClient)) {
    let _alone = alone();
    for way in Way::ALL {
        println!("{way:?}");
        let world = World::new(way);
        let client = WeatherAsyncClient::from(world.client.clone());
        case(&world, &client);
        until("all procedures end", || world.seen().running.load(Ordering::SeqCst) == 0);
        assert!(!world.seen().is_wrong.load(Ordering::SeqCst), "a wrong item");
    }
}

#[test]
fn dropped_calls_run_at_most_once() {
    everywhere(|world, client| {
        let mut number = 0;
        let attempt = |polls| {
            number += 1;
            // The two calls run one after the other. The future may be dropped during either call.
            let both = async { (client.add(2 * number).await, client.add(2 * number + 1).await) };
            let ended = polled(polls, both);
            let has_ended = ended.is_some();
            if let Some((one, two)) = ended {
                assert_eq!((one.unwrap(), two.unwrap()), (1, 1));
            }
            has_ended
        };
        each_number(attempt, || assert!(world.client.add(0).unwrap() > 0));
        let added = world.seen().added.lock().unwrap();
        assert!(added.iter().all(|(number, times)| *number == 0 || *times == 1), "{added:?}");
    });
}

#[test]
fn dropped_flushes_leave_one_way_calls_in_order() {
    everywhere(|world, client| {
        let (mut made, mut rest) = (Vec::new(), 0);
        let attempt = |polls| {
            let noted = async {
                for _ in 0..3 {
                    rest += 1;
                    made.push(rest);
                    client.note(rest).await.unwrap();
                }
                client.flush().await.unwrap();
            };
            polled(polls, noted).is_some()
        };
        each_number(attempt, || world.client.flush().unwrap());
        let notes = world.seen().notes.lock().unwrap();
        // A call whose future was dropped was either not made, or made once. The other calls were made once.
        assert!(notes.is_sorted() && notes.windows(2).all(|two| two[0] != two[1]), "{notes:?}");
        assert!(made.ends_with(&notes[notes.len() - 3..]), "{notes:?}");
    });
}

#[test]
fn dropped_calls_with_callbacks_leave_the_binding_whole() {
    everywhere(|world, client| {
        let attempt = |polls| {
            let object = callbacks::Counted::default();
            let ended = polled(polls, client.ask(50, 200, Callback::new(&object)));
            ended.map(|ended| assert_eq!((ended.unwrap(), object.ran()), ((), 50))).is_some()
        };
        each_number(attempt, || callbacks::asked(&world.client, 10, 3));
    });
}

#[test]
fn dropped_streams_leave_the_binding_whole() {
    everywhere(|world, client| {
        let check = || {
            let items = (0..10).map(|number| Item::new(number, 3));
            assert_eq!(world.client.check(Source::new(items)).unwrap(), 10);
        };
        let receive = |received: &mut u64, item: &Item| {
            assert_eq!(item.number, *received);
            *received += 1;
        };
        // In this case, the procedure sends items.
        let attempt = |polls| {
            let mut received = 0;
            let sink = Sink::new(|item: Item| receive(&mut received, &item));
            let ended = polled(polls, client.count(300, 200, sink));
            assert!(ended.is_none() || received == 300, "{received}");
            ended.map(|ended| assert_eq!(ended.unwrap(), None)).is_some()
        };
        each_number(attempt, check);
        // In this case, both sides send items.
        let attempt = |polls| {
            let mut received = 0;
            let sink = Sink::new(|item: Item| receive(&mut received, &item));
            let items = (0..300).map(|number| Item::new(number, 200));
            let ended = polled(polls, client.echo(Source::new(items), sink));
            assert!(ended.is_none() || received == 300, "{received}");
            ended.map(|ended| assert_eq!(ended.unwrap(), 300)).is_some()
        };
        each_number(attempt, check);
        // In this case, the caller awaits each item with a separate future.
        let attempt = |polls| {
            let (sink, mut items) = Sink::<Item>::channel(1);
            let taken = async {
                let mut taken = 0;
                while let Some(item) = items.next_async().await {
                    assert_eq!(item.number, taken);
                    taken += 1;
                }
                taken
            };
            let both = futures_lite::future::zip(client.count(20, 10, sink), taken);
            let ended = polled(polls, both);
            ended.map(|(ended, taken)| assert_eq!((ended.unwrap(), taken), (None, 20))).is_some()
        };
        each_number(attempt, check);
    });
}
