//! The cases of async clients: many calls on one thread, calls that other threads poll, and calls whose futures
//! are dropped. With a blocking client, these cases check nothing.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use peregrine::Out;

use super::{
    Client, Contract as _, ContractAsync as _, ContractAsyncClient, Fault, Make, Object, Point,
};
use crate::support::futures::{join_all, poll_once};
use crate::support::until;

/// Makes 200 calls at the same time on one thread.
pub(super) fn many_futures(make: Make<'_>) {
    if let Client::Async(client) = &make(Object::default()) {
        join_all((0..200).map(|number| one_of_many(client.clone(), number)));
    }
}

/// Makes a call, and checks its result. Calls with different numbers differ in all values.
async fn one_of_many(client: ContractAsyncClient, number: u32) {
    match number % 6 {
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
        _ => {
            let mut value = number;
            client.double(&mut value).await.unwrap();
            assert_eq!(value, 2 * number);
        }
    }
}

/// Polls calls once on this thread, and then to their ends on other threads.
pub(super) fn futures_of_other_threads(make: Make<'_>) {
    let client = make(Object::default());
    let Client::Async(client) = &client else { return };
    let mut begun: Vec<_> =
        (0..60).map(|number| Box::pin(one_of_many(client.clone(), number))).collect();
    begun.retain_mut(|future| poll_once(future.as_mut()).is_none());
    std::thread::scope(|scope| {
        while !begun.is_empty() {
            let part = begun.split_off(begun.len().saturating_sub(20));
            scope.spawn(|| join_all(part));
        }
    });
}

/// Drops the futures of calls whose procedures run. The procedures must learn this.
pub(super) fn dropped_future_cancels_its_call(make: Make<'_>) {
    let object = Object::default();
    let entered = Arc::clone(&object.entered);
    let client = make(object);
    let Client::Async(awaited) = &client else { return };
    // There are more rounds than A-stacks. So the A-stack of a dropped call is used again.
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
    join_all((0..50).map(|number| one_of_many(awaited.clone(), number)));
}
