//! Tests of async clients.

use super::*;
use futures_lite::future::block_on;
use futures_util::future::join_all;

async fn bind_async(framing: Framing, address: &str) -> StoreAsyncClient {
    StoreAsyncClient::bind_with(address, &options(framing)).await.unwrap()
}

#[test]
fn futures_share_a_binding() {
    for framing in BOTH {
        let address = serve(framing, usual);
        let store = block_on(bind_async(framing, &address));
        for round in 0..20 {
            let calls = (0..50).map(|number| {
                let store = &store;
                async move {
                    assert_eq!(store.double(round + number).await.unwrap(), 2 * (round + number))
                }
            });
            block_on(join_all(calls));
        }
        let numbers: Vec<u16> = (0..60_000).collect();
        let reversed = block_on(store.reverse(numbers.clone())).unwrap();
        assert!(reversed.iter().rev().eq(&numbers));
        block_on(store.check()).unwrap();
    }
}

#[test]
fn dropped_futures_leave_the_replies_in_order() {
    for framing in BOTH {
        let address = serve(framing, usual);
        block_on(async {
            let store = bind_async(framing, &address).await;
            for number in 0..200 {
                {
                    let mut dropped = std::pin::pin!(store.double(9));
                    let _ = futures_lite::future::poll_once(&mut dropped).await;
                }
                assert_eq!(store.double(number).await.unwrap(), 2 * number);
            }
        });
    }
}

#[test]
fn futures_send_more_than_the_connection_accepts_at_once() {
    for framing in BOTH {
        let (go, goes) = channel();
        let address = serve_first(framing, move |mut connection| {
            goes.recv().unwrap();
            while let Some(call) = connection.call() {
                usual(&call).iter().for_each(|message| connection.send(message));
            }
        });
        block_on(async {
            let store = bind_async(framing, &address).await;
            let calls = (0..100_u16).map(|number| {
                let store = &store;
                async move { store.reverse(vec![number; 60_000]).await.unwrap()[0] }
            });
            let mut calls = std::pin::pin!(join_all(calls));
            assert!(futures_lite::future::poll_once(&mut calls).await.is_none());
            go.send(()).unwrap();
            assert!(calls.await.into_iter().eq(0..100));
        });
    }
}

#[test]
fn future_learns_that_the_connection_was_lost() {
    for framing in BOTH {
        let address = serve_first(framing, |mut connection| drop(connection.call()));
        block_on(async {
            let store = bind_async(framing, &address).await;
            let error = store.double(1).await.unwrap_err();
            assert_eq!(kind(&error), (Kind::ServerGone, Executed::Maybe), "{error}");
            assert_eq!(store.double(5).await.unwrap(), 10);
        });
    }
}

#[test]
fn future_with_a_deadline_gives_up() {
    for framing in BOTH {
        let (go, goes) = channel();
        let address = serve_first(framing, move |mut connection| {
            let late = connection.call().unwrap();
            goes.recv().unwrap();
            usual(&late).iter().for_each(|message| connection.send(message));
            while let Some(call) = connection.call() {
                usual(&call).iter().for_each(|message| connection.send(message));
            }
        });
        block_on(async {
            let store = bind_async(framing, &address).await;
            let error = store.with_timeout(Duration::from_millis(30)).double(1).await.unwrap_err();
            assert_eq!(kind(&error), (Kind::TimedOut, Executed::Maybe), "{error}");
            go.send(()).unwrap();
            assert_eq!(store.reverse(vec![1, 2]).await.unwrap(), [2, 1]);
        });
    }
}

#[test]
fn threads_and_futures_share_a_binding() {
    for framing in BOTH {
        let store = bind(framing, &serve(framing, usual));
        let future = StoreAsyncClient::from(store.clone());
        thread::scope(|scope| {
            for thread in 0..4 {
                let (store, future) = (&store, &future);
                scope.spawn(move || {
                    for number in 0..200 {
                        let doubled = match thread % 2 {
                            0 => store.double(number),
                            _ => block_on(future.double(number)),
                        };
                        assert_eq!(doubled.unwrap(), 2 * number);
                    }
                });
            }
        });
    }
}

#[test]
fn futures_call_in_coopers_form() {
    let address = serve_cooper("Store", |call| match call.procedure {
        7 => words(&[1, 2 * word(&call.arguments, 0)]),
        _ => Vec::new(),
    });
    block_on(async {
        let options = BindOptions::default().courier_form(CourierForm::Cooper);
        let store = StoreAsyncClient::bind_with(&address, &options).await.unwrap();
        let calls = (0..50).map(|number| {
            let store = &store;
            async move {
                store.check().await.unwrap();
                assert_eq!(store.double(number).await.unwrap(), 2 * number);
            }
        });
        join_all(calls).await;
    });
}
