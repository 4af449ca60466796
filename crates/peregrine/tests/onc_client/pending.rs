//! Tests async clients of ONC RPC.

use super::*;
use futures_lite::future::block_on;
use futures_util::future::join_all;

#[test]
fn futures_share_a_binding() {
    for over in BOTH {
        let address = serve(over, usual);
        let store = block_on(StoreAsyncClient::bind(&address)).unwrap();
        for round in 0..20 {
            let calls = (0..50).map(|number| {
                let store = &store;
                async move {
                    assert_eq!(store.double(round + number).await.unwrap(), 2 * (round + number))
                }
            });
            block_on(join_all(calls));
        }
        block_on(async {
            let bytes: Vec<u8> = (0..60_000).map(|at| at as u8).collect();
            let reversed = store.reverse(bytes.clone()).await.unwrap();
            assert!(reversed.iter().rev().eq(&bytes));
        });
    }
}

#[test]
fn replies_that_arrive_together_wake_all_futures() {
    const CALLS: u32 = 300;
    let options = BindOptions::default().astacks(CALLS).wait(Wait::Block);
    let address = serve_together(CALLS as usize);
    let (ended, ends) = std::sync::mpsc::channel();
    thread::spawn(move || {
        block_on(async {
            let store = StoreAsyncClient::bind_with(&address, &options).await.unwrap();
            // `join_all` polls a future again only if the future was woken. So it ends only if all
            // futures are woken.
            let calls = (0..CALLS).map(|number| store.double(number));
            ended.send(join_all(calls).await)
        })
    });
    let results = ends.recv_timeout(LONG).expect("all futures are woken");
    for (number, doubled) in (0..).zip(results) {
        assert_eq!(doubled.unwrap(), 2 * number);
    }
}

#[test]
fn future_sends_a_lost_call_again() {
    let seen = Arc::new(AtomicU32::new(0));
    let address = serve(Over::Udp, move |call| match seen.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => Vec::new(),
        _ => usual(call),
    });
    let store = block_on(StoreAsyncClient::bind(&address)).unwrap();
    assert_eq!(block_on(store.double(9)).unwrap(), 18);
}

#[test]
fn futures_send_more_than_the_connection_accepts_at_once() {
    let (address, go) = serve_slowly();
    block_on(async {
        let store = StoreAsyncClient::bind(&address).await.unwrap();
        let calls = (0..16).map(|byte| {
            let store = &store;
            async move { store.reverse(vec![byte; 4_000_000]).await.unwrap()[0] }
        });
        let mut calls = std::pin::pin!(join_all(calls));
        assert!(futures_lite::future::poll_once(&mut calls).await.is_none());
        go.send(()).unwrap();
        assert!(calls.await.into_iter().eq(0..16));
    });
}

#[test]
fn future_of_an_early_refusal_waits_until_its_message_was_sent() {
    let options = BindOptions::default().message_bytes(40 << 20);
    block_on(async {
        let store = StoreAsyncClient::bind_with(&serve_early(), &options).await.unwrap();
        for _ in 0..3 {
            let error = store.reverse(vec![1; 30 << 20]).await.unwrap_err();
            assert_eq!(kind(&error), (Kind::Denied, Executed::No), "{error}");
            assert_eq!(store.double(1).await.unwrap(), 0);
        }
    });
}

#[test]
fn future_learns_that_the_connection_was_lost() {
    block_on(async {
        let store = StoreAsyncClient::bind(&serve_badly_once(Vec::new())).await.unwrap();
        let error = store.double(1).await.unwrap_err();
        assert_eq!(kind(&error), (Kind::ServerGone, Executed::Maybe), "{error}");
        assert_eq!(store.double(5).await.unwrap(), 10);
    });
}

#[test]
fn future_with_a_deadline_gives_up() {
    for over in BOTH {
        let address = serve(over, |call| match call.procedure {
            7 => Vec::new(),
            _ => usual(call),
        });
        let options = BindOptions::default().timeout(Duration::from_millis(30));
        block_on(async {
            let store = StoreAsyncClient::bind_with(&address, &options).await.unwrap();
            let error = store.double(1).await.unwrap_err();
            assert_eq!(kind(&error), (Kind::TimedOut, Executed::Maybe), "{over:?}: {error}");
            assert_eq!(store.reverse(vec![1, 2]).await.unwrap(), [2, 1], "{over:?}");
        });
    }
}

#[test]
fn threads_and_futures_share_a_binding() {
    for over in BOTH {
        let address = serve(over, usual);
        let store = bind(&address);
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
