//! The cases of async clients: many calls on one thread, calls that other threads poll, and calls whose
//! futures are dropped.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use peregrine::{Executed, Kind, Out};

use super::{
    Colour, Contract as _, ContractAsync as _, ContractAsyncClient, Fault, LONG, Make, Object,
    Person, Point,
};
use crate::support::futures::{join_all, poll_once};
use crate::support::until;

/// The number of kinds of calls that [`one_of_many`] makes.
const KINDS: u32 = 12;
/// The number of kinds of calls of [`one_of_many`] that have the same results through a bridge (a
/// generic server that forwards calls). These are the first kinds.
const BRIDGED_KINDS: u32 = 6;

/// Makes 200 calls at the same time on one thread.
pub(super) fn many_futures(make: Make<'_>) {
    let client = make(Object::default()).to_async();
    join_all((0..200).map(|number| one_of_many(client.clone(), number, KINDS)));
}

/// Does what [`many_futures`] does, but makes only calls that have the same results through a bridge.
pub(super) fn many_bridged_futures(make: Make<'_>) {
    let client = make(Object::default()).to_async();
    join_all((0..200).map(|number| one_of_many(client.clone(), number, BRIDGED_KINDS)));
}

/// Makes a call of one of `kinds` kinds, and checks its result. Calls with different numbers differ in all
/// their values.
async fn one_of_many(client: ContractAsyncClient, number: u32, kinds: u32) {
    match number % kinds {
        0 => {
            let text = format!("call {number}").repeat(number as usize);
            assert_eq!(client.shout(&text).await.unwrap(), text.to_uppercase());
        }
        1 => {
            let mut values: Vec<u64> = (0..number.into()).map(|i| (i * 7 + 3) % 31).collect();
            let mut sorted = values.clone();
            sorted.sort_unstable();
            client.sort(&mut values).await.unwrap();
            assert_eq!(values, sorted);
        }
        2 => {
            let mut into = vec![u32::MAX; 2 * number as usize];
            let mut out = Out::from(&mut into[..]);
            assert_eq!(client.fill(number, out.by_ref()).await.unwrap(), number);
            assert_eq!(out.filled(), number as usize);
            assert!(into[..number as usize].iter().copied().eq(0..number));
        }
        3 => {
            let (mut value, text) = (number, format!("why {number}"));
            let mut into = vec![0; text.len()];
            let out = Out::from(&mut into[..]);
            let failed = client.fails(true, &text, out, &mut value, &mut [], &mut []).await;
            match failed {
                Err(Fault::Refused { code: 404, why }) => assert_eq!((why, value), (text, number)),
                other => panic!("{other:?}"),
            }
        }
        4 => {
            let sent = vec![Point { x: 1.0, y: 2.0 }; number as usize];
            let bytes = vec![number as u8; 100 * number as usize];
            let counted = client.count_bytes((&bytes[..]).into(), (&sent[..]).into()).await;
            assert_eq!(counted.unwrap(), u64::from(116 * number));
        }
        5 => {
            let mut value = number;
            client.double(&mut value).await.unwrap();
            assert_eq!(value, 2 * number);
        }
        6 => {
            let (left, cancelled) = client.with_timeout(LONG).left().await.unwrap();
            let most = LONG.as_millis() as u64;
            assert!(left.is_some_and(|left| left > most / 2 && left <= most), "{left:?}");
            assert!(!cancelled);
        }
        7 => assert_eq!(client.left().await.unwrap(), (None, false)),
        8 => {
            let refused = client.with_timeout(Duration::ZERO).left().await.unwrap_err();
            assert_eq!((refused.kind(), refused.executed()), (Kind::TimedOut, Executed::No));
        }
        9 => {
            let mut values = vec![number; number as usize];
            let error = client.panics(&mut values).await.unwrap_err();
            assert_eq!((error.kind(), error.executed()), (Kind::Panicked, Executed::Maybe));
            assert!(error.to_string().contains(&format!("own words: {number} (")), "{error}");
            assert_eq!(values, vec![number; number as usize]);
        }
        10 => {
            let mut people = vec![Person { age: number as u8 / 2, ..Person::default() }; 3];
            client.birthday(&mut people, 1).await.unwrap();
            assert!(people.iter().all(|one| u32::from(one.age) == number / 2 + 1));
            let mut bits = vec![false; number as usize];
            let mut colours = [Colour::Red; 2];
            client.invert(&mut bits, &mut colours).await.unwrap();
            assert!(bits.iter().all(|&bit| bit) && colours == [Colour::Green; 2]);
        }
        _ => {
            let (mut letters, mut colours) = (['_'; 6], Vec::with_capacity(number as usize));
            client.colours(Out::from(&mut colours), Out::from(&mut letters)).await.unwrap();
            assert_eq!(colours, [Colour::Blue, Colour::Green]);
            assert_eq!(letters, ['a', 'ß', '水', '🦅', '_', '_']);
        }
    }
}

/// Polls each call once on this thread. Then other threads poll the calls until they end.
pub(super) fn futures_of_other_threads(make: Make<'_>) {
    let client = make(Object::default()).to_async();
    let one = |number| Box::pin(one_of_many(client.clone(), number, KINDS));
    let mut begun: Vec<_> = (0..60).map(one).collect();
    begun.retain_mut(|future| poll_once(future.as_mut()).is_none());
    std::thread::scope(|scope| {
        while !begun.is_empty() {
            let part = begun.split_off(begun.len().saturating_sub(20));
            scope.spawn(|| join_all(part));
        }
    });
}

/// Makes many calls at the same time. Each procedure runs until its call is cancelled, and each call must end
/// at its deadline. A call may also end before its procedure begins.
pub(super) fn deadlines_of_many_futures(make: Make<'_>) {
    let client = make(Object::default());
    let awaited = client.to_async();
    let mut values = [5; 20];
    for round in 0..2 {
        let limited = awaited.with_timeout(Duration::from_millis(100 + 20 * round));
        let begun = Instant::now();
        let ended = join_all(values.iter_mut().map(|value| limited.outlive(value)));
        println!("{:?}", begun.elapsed());
        assert!(begun.elapsed() < LONG / 2, "a call did not end at its deadline");
        for error in ended.into_iter().map(|ended| ended.unwrap_err()) {
            assert_eq!(error.kind(), Kind::TimedOut, "{error}");
        }
        assert_eq!(values, [5; 20], "nothing is assigned by a call that failed");
        client.nothing().unwrap();
    }
}

/// Drops the futures of calls whose procedures run. Each procedure must learn that its call is cancelled.
pub(super) fn dropped_future_cancels_its_call(make: Make<'_>) {
    let object = Object::default();
    let entered = Arc::clone(&object.entered);
    let client = make(object);
    let awaited = client.to_async();
    // There are more rounds than A-stacks, so later rounds use the A-stacks of dropped calls.
    for round in 1..=10 {
        let mut value = 5;
        {
            let mut call = pin!(awaited.outlive(&mut value));
            until("the procedure begins", || {
                assert!(poll_once(call.as_mut()).is_none());
                entered.load(Ordering::SeqCst) == round
            });
        }
        assert_eq!(value, 5, "nothing is assigned by a call that failed");
        until("the procedure learns that it is cancelled", || client.ran().unwrap() == round);
    }
    // Many calls are dropped at once. Some of them have no A-stack yet.
    let mut values = [1; 30];
    let mut calls: Vec<_> =
        values.iter_mut().map(|value| Box::pin(awaited.outlive(value))).collect();
    for _ in 0..5 {
        calls.iter_mut().for_each(|call| assert!(poll_once(call.as_mut()).is_none()));
    }
    drop(calls);
    assert_eq!(values, [1; 30]);
    join_all((0..50).map(|number| one_of_many(awaited.clone(), number, KINDS)));
}
