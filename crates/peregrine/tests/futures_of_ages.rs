//! Tests async calls whose messages the client converts, because the server has an older or a newer
//! interface.
//! Such a call is pending like every other async call: its thread does not wait for the server.
#![cfg(feature = "async")]

#[path = "dropped/polls.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod polls;
mod support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use peregrine::call::Serve;
use peregrine::{
    BindOptions, CallError, Executed, Kind, OnExhausted, Out, Running, Server, Wait, interface,
};
use polls::{Polled, polled};
use support::futures::{block_on, join_all};
use support::swapped::SwappedServer;
use support::{alone, own_directory, until};

mod ages {
    use super::interface;
    use peregrine::{Out, Plain, Result, Value};

    pub(crate) mod old {
        use super::*;

        #[derive(Clone, Debug, Value, PartialEq)]
        pub(crate) struct Item {
            pub(crate) price: u32,
        }

        #[derive(Clone, Copy, Debug, Plain, PartialEq)]
        #[repr(C)]
        pub(crate) struct Point {
            pub(crate) x: u32,
            pub(crate) y: u32,
        }

        #[interface(name = "shop")]
        pub(crate) trait Shop {
            fn put(&self, item: &Item) -> Result<Item>;
            fn turn(&self, item: &Item, points: &mut [Point]) -> Result<()>;
            fn all(&self, item: &Item, into: Out<'_, Point>) -> Result<u64>;
            fn meet(&self, item: &Item, calls: u32) -> Result<()>;
            fn wait(&self, item: &Item, latch: u32) -> Result<()>;
        }
    }

    pub(crate) mod new {
        use super::*;

        #[derive(Clone, Debug, Value, PartialEq)]
        pub(crate) struct Item {
            pub(crate) price: u32,
            #[default(7)]
            pub(crate) unit: u16,
        }

        #[derive(Clone, Copy, Debug, Plain, PartialEq)]
        #[repr(C)]
        pub(crate) struct Point {
            pub(crate) x: u32,
            #[default(1)]
            pub(crate) z: u32,
            pub(crate) y: u32,
        }

        #[interface(name = "shop")]
        pub(crate) trait Shop {
            fn put(&self, item: &Item) -> Result<Item>;
            fn turn(&self, item: &Item, points: &mut [Point]) -> Result<()>;
            fn all(&self, item: &Item, into: Out<'_, Point>) -> Result<u64>;
            fn meet(&self, item: &Item, calls: u32) -> Result<()>;
            fn wait(&self, item: &Item, latch: u32) -> Result<()>;
        }
    }
}

/// The state that the procedures of a server share, and for which they wait.
#[derive(Default)]
struct Seen {
    state: Mutex<State>,
    /// The number of procedures that wait.
    waiting: AtomicU32,
}

#[derive(Default)]
struct State {
    met: u32,
    open: BTreeSet<u32>,
    wakers: Vec<Waker>,
}

impl Seen {
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap();
        change(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    async fn until(&self, ends: impl Fn(&State) -> bool) {
        struct Waits<'a>(&'a AtomicU32);
        impl Drop for Waits<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waits = Waits(&self.waiting);
        std::future::poll_fn(|context| {
            let mut state = self.state.lock().unwrap();
            if ends(&state) {
                return Poll::Ready(());
            }
            state.wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

#[derive(Clone, Default)]
struct Object(Arc<Seen>);

macro_rules! object {
    ($age:ident, $point:expr) => {
        impl ages::$age::ShopAsync for Object {
            async fn put(&self, item: &ages::$age::Item) -> peregrine::Result<ages::$age::Item> {
                let mut more = item.clone();
                more.price += 1;
                Ok(more)
            }
            async fn turn(
                &self,
                _: &ages::$age::Item,
                points: &mut [ages::$age::Point],
            ) -> peregrine::Result<()> {
                polls::yielded(2).await;
                points.reverse();
                Ok(())
            }
            async fn all(
                &self,
                item: &ages::$age::Item,
                mut into: Out<'_, ages::$age::Point>,
            ) -> peregrine::Result<u64> {
                polls::yielded(2).await;
                into.put(&vec![$point; item.price as usize]).expect("enough space");
                Ok(item.price.into())
            }
            async fn meet(&self, _: &ages::$age::Item, calls: u32) -> peregrine::Result<()> {
                self.0.change(|state| state.met += 1);
                self.0.until(|state| state.met >= calls).await;
                Ok(())
            }
            async fn wait(&self, _: &ages::$age::Item, latch: u32) -> peregrine::Result<()> {
                self.0.until(|state| state.open.contains(&latch)).await;
                Ok(())
            }
        }
    };
}

object!(old, ages::old::Point { x: 1, y: 3 });
object!(new, ages::new::Point { x: 1, z: 2, y: 3 });

/// The number of frames of each binding.
const FRAMES: u32 = 2;

/// Only a failing test reaches this limit.
const LONG: Duration = Duration::from_secs(20);

/// Returns a server, and the addresses at which it listens.
fn serve(serve: impl Serve + 'static) -> (Running, Vec<String>) {
    let server = Server::new().export("shop", serve).unwrap().listen("udp:127.0.0.1:0").unwrap();
    let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let far = running.addresses().iter().map(|address| format!("{address}/shop")).collect();
    (running, [vec!["shop".to_owned()], far].concat())
}

/// Runs `$test` with a client of the age `$ours` and a server of the age `$theirs`: on each path,
/// in both byte orders, and for each way to wait.
macro_rules! each_client {
    ($ours:ident, $theirs:ident, $test:expr) => {
        for swapped in [false, true] {
            let object = Object::default();
            let seen = Arc::clone(&object.0);
            let stub = ages::$theirs::ShopAsyncServer::new(object);
            let (_running, addresses) = match swapped {
                false => serve(stub),
                true => serve(SwappedServer::new(stub)),
            };
            for address in addresses {
                for wait in [Wait::Adaptive, Wait::Block] {
                    println!("{address}, {wait:?}, swapped: {swapped}");
                    let options = BindOptions::default().wait(wait).astacks(FRAMES);
                    let options = options.on_exhausted(OnExhausted::Wait);
                    let client = ages::$ours::ShopAsyncClient::bind_with(&address, &options);
                    let test = $test;
                    test(block_on(client).unwrap().with_timeout(LONG), &*seen, swapped);
                }
            }
        }
    };
}

/// Makes as many calls at a time as the client has frames. A server that swaps bytes is left out,
/// because each procedure that waits would block a thread there.
macro_rules! check_frames {
    ($item:expr, $client:expr, $seen:expr, $swapped:expr) => {
        if !$swapped {
            let met = $seen.state.lock().unwrap().met + FRAMES;
            join_all((0..FRAMES).map(|_| $client.meet(&$item, met)))
                .into_iter()
                .for_each(|met| met.expect("a frame was lost"));
        }
    };
}

const OLD: ages::old::Item = ages::old::Item { price: 300 };
const NEW: ages::new::Item = ages::new::Item { price: 300, unit: 9 };

#[test]
fn results_of_async_calls_are_converted() {
    let _alone = alone();
    let _directory = own_directory();
    each_client!(old, new, |client: ages::old::ShopAsyncClient, _: &Seen, _| {
        use ages::old::{Point, ShopAsync as _};
        let put = block_on(client.put(&OLD)).unwrap();
        assert_eq!(put.price, 301);
        for count in [0, 1, 5, 20_000] {
            let points: Vec<_> = (0..count).map(|n| Point { x: n, y: 2 * n }).collect();
            let mut turned = points.clone();
            block_on(client.turn(&OLD, &mut turned)).unwrap();
            turned.reverse();
            assert_eq!(turned, points);
            let mut into = Vec::with_capacity(count as usize);
            let item = ages::old::Item { price: count };
            assert_eq!(
                block_on(client.all(&item, Out::from(&mut into))).unwrap(),
                u64::from(count)
            );
            assert_eq!(into, vec![Point { x: 1, y: 3 }; count as usize]);
        }
    });
    each_client!(new, old, |client: ages::new::ShopAsyncClient, _: &Seen, _| {
        use ages::new::{Point, ShopAsync as _};
        let put = block_on(client.put(&NEW)).unwrap();
        assert_eq!((put.price, put.unit), (301, 7));
        let mut points = [Point { x: 1, z: 5, y: 2 }, Point { x: 3, z: 5, y: 4 }];
        block_on(client.turn(&NEW, &mut points)).unwrap();
        assert_eq!(points, [Point { x: 3, z: 1, y: 4 }, Point { x: 1, z: 1, y: 2 }]);
        let mut into = Vec::with_capacity(300);
        assert_eq!(block_on(client.all(&NEW, Out::from(&mut into))).unwrap(), 300);
        assert_eq!(into, [Point { x: 1, z: 1, y: 3 }; 300]);
    });
}

/// If a call blocked its thread, the later calls of that thread would not begin.
#[test]
fn converted_calls_of_one_thread_overlap() {
    let _alone = alone();
    let _directory = own_directory();
    let object = Object::default();
    let seen = Arc::clone(&object.0);
    let (_running, addresses) = serve(ages::new::ShopAsyncServer::new(object));
    for address in addresses {
        use ages::old::ShopAsync as _;
        println!("{address}");
        let calls = 200;
        let client = block_on(ages::old::ShopAsyncClient::bind(&address)).unwrap();
        let met = seen.state.lock().unwrap().met + calls;
        let client = client.with_timeout(LONG);
        let all = join_all((0..calls).map(|_| client.meet(&OLD, met)));
        all.into_iter().for_each(|met| met.unwrap());
    }
}

/// More calls than frames are in flight: the futures wait for frames, and no thread does.
#[test]
fn converted_calls_of_one_thread_wait_for_frames() {
    let _alone = alone();
    let _directory = own_directory();
    each_client!(old, new, |client: ages::old::ShopAsyncClient, seen: &Seen, swapped: bool| {
        use ages::old::ShopAsync as _;
        let results = join_all((0..100).map(|price| {
            let client = &client;
            async move { client.put(&ages::old::Item { price }).await.unwrap().price }
        }));
        assert_eq!(results, (1..=100).collect::<Vec<_>>());
        check_frames!(OLD, client, seen, swapped);
    });
}

#[test]
fn frames_of_dropped_converted_calls_are_used_again() {
    let _alone = alone();
    let _directory = own_directory();
    each_client!(old, new, |client: ages::old::ShopAsyncClient, seen: &Seen, swapped: bool| {
        use ages::old::{Point, ShopAsync as _};
        let mut dropped = 0;
        for size in [2, 2, 2, 5000] {
            let before: Vec<_> = (0..size).map(|n| Point { x: n, y: 0 }).collect();
            for polls in 0.. {
                let mut points = before.clone();
                match polled(polls, client.turn(&OLD, &mut points)) {
                    Polled::Dropped => {
                        dropped += 1;
                        assert_eq!(points, before, "a dropped call changed its argument");
                    }
                    Polled::Ended(result) => {
                        result.unwrap();
                        points.reverse();
                        assert_eq!(points, before);
                        break;
                    }
                }
            }
            for polls in 0.. {
                let mut into = Vec::with_capacity(300);
                match polled(polls, client.all(&OLD, Out::from(&mut into))) {
                    Polled::Dropped => assert!(into.is_empty()),
                    Polled::Ended(result) => {
                        assert_eq!((result.unwrap(), into.len()), (300, 300));
                        break;
                    }
                }
            }
        }
        println!("{dropped} calls were dropped");
        check_frames!(OLD, client, seen, swapped);
    });
}

#[test]
fn converted_call_is_given_up_at_its_deadline() {
    let _alone = alone();
    let _directory = own_directory();
    each_client!(old, new, |client: ages::old::ShopAsyncClient, seen: &Seen, swapped: bool| {
        use ages::old::ShopAsync as _;
        let hasty = client.with_timeout(Duration::from_millis(30));
        let error: CallError = block_on(hasty.wait(&OLD, 1)).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::Maybe), "{error}");
        until("the procedure is dropped", || seen.waiting.load(Ordering::SeqCst) == 0);
        check_frames!(OLD, client, seen, swapped);
    });
}

/// A call that cannot be converted fails as a blocking call does. Its frame is free afterwards.
#[test]
fn unconvertible_call_is_not_executed() {
    mod wide {
        #[peregrine::interface(name = "numbers")]
        pub(crate) trait Numbers {
            fn half(&self, #[widens] number: u64) -> peregrine::Result<u64>;
        }
    }
    mod narrow {
        #[peregrine::interface(name = "numbers")]
        pub(crate) trait Numbers {
            fn half(&self, #[widens] number: u32) -> peregrine::Result<u64>;
        }
    }
    use wide::NumbersAsync as _;
    struct Halves;
    impl narrow::NumbersAsync for Halves {
        async fn half(&self, number: u32) -> peregrine::Result<u64> {
            Ok(u64::from(number / 2))
        }
    }
    let _alone = alone();
    let _directory = own_directory();
    let server = Server::new().export("numbers", narrow::NumbersAsyncServer::new(Halves));
    let _running = server.unwrap().spawn().unwrap();
    let client = block_on(wide::NumbersAsyncClient::bind("numbers")).unwrap();
    let blocking = wide::NumbersClient::from(client.clone());
    for _ in 0..100 {
        let error = block_on(client.half(1 << 40)).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::BadArguments, Executed::No), "{error}");
        let same = wide::Numbers::half(&blocking, 1 << 40).unwrap_err();
        assert_eq!(same.to_string(), error.to_string());
        assert_eq!(block_on(client.half(8)).unwrap(), 4);
    }
}
