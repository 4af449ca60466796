//! Tests async clients and servers.
#![cfg(feature = "async")]

mod support;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use peregrine::{Executed, Kind, Lent, Out, Server, interface};
use support::futures::{block_on, join_all, poll_once, yielded};
use support::{alone, own_directory};

#[interface]
trait Notes {
    fn add(&self, a: i32, b: &i64) -> peregrine::Result<i64>;
    fn text(&self, one: &str, more: &[String]) -> peregrine::Result<String>;
    fn turn(&self, values: &mut [u32], name: &mut String) -> peregrine::Result<()>;
    fn fill(&self, from: Lent<'_, u8>, into: Out<'_, u8>) -> peregrine::Result<u64>;
}

struct Blocking;

impl Notes for Blocking {
    fn add(&self, a: i32, b: &i64) -> peregrine::Result<i64> {
        Ok(i64::from(a) + b)
    }
    fn text(&self, one: &str, more: &[String]) -> peregrine::Result<String> {
        Ok(format!("{one}{}", more.concat()))
    }
    fn turn(&self, values: &mut [u32], name: &mut String) -> peregrine::Result<()> {
        values.reverse();
        name.push('!');
        Ok(())
    }
    fn fill(&self, from: Lent<'_, u8>, mut into: Out<'_, u8>) -> peregrine::Result<u64> {
        let mut bytes = vec![0; from.len()];
        from.copy_to(0, &mut bytes).expect("the buffer arrives");
        into.put(&bytes).expect("the buffers have the same size");
        Ok(bytes.len() as u64)
    }
}

/// Yields to the executor before each result.
struct Yielding;

impl NotesAsync for Yielding {
    async fn add(&self, a: i32, b: &i64) -> peregrine::Result<i64> {
        yielded().await;
        Blocking.add(a, b)
    }
    async fn text(&self, one: &str, more: &[String]) -> peregrine::Result<String> {
        yielded().await;
        Blocking.text(one, more)
    }
    async fn turn(&self, values: &mut [u32], name: &mut String) -> peregrine::Result<()> {
        yielded().await;
        Blocking.turn(values, name)
    }
    async fn fill(&self, from: Lent<'_, u8>, into: Out<'_, u8>) -> peregrine::Result<u64> {
        yielded().await;
        Blocking.fill(from, into)
    }
}

async fn all(notes: &NotesAsyncClient) {
    assert_eq!(notes.add(1, &2).await.unwrap(), 3);
    let more = ["b".to_owned(), "c".to_owned()];
    assert_eq!(notes.text("a", &more).await.unwrap(), "abc");
    let (mut values, mut name) = ([1, 2, 3], "name".to_owned());
    notes.turn(&mut values, &mut name).await.unwrap();
    assert_eq!((values, &*name), ([3, 2, 1], "name!"));
    for size in [0, 1, 100, 5000, 300_000] {
        let from: Vec<u8> = (0..size).map(|n| n as u8).collect();
        let mut into = Vec::with_capacity(size as usize);
        let lent = Lent::from(&from[..]);
        assert_eq!(notes.fill(lent, Out::from(&mut into)).await.unwrap(), size);
        assert_eq!(into, from);
    }
}

fn is_send<T: Send>(value: T) -> T {
    value
}

#[test]
fn every_mix_of_blocking_and_async_works_in_process() {
    let _alone = alone();
    block_on(is_send(all(&NotesAsyncClient::in_process(Yielding))));
    block_on(all(&NotesAsyncClient::in_process_to(NotesServer::new(Blocking)).unwrap()));
    let blocking = NotesClient::in_process_to(NotesAsyncServer::new(Yielding)).unwrap();
    assert_eq!(blocking.add(1, &2).unwrap(), 3);
}

/// Returns a blocking and an async server, and the addresses at which each export is found.
fn servers() -> (Vec<peregrine::Running>, Vec<String>) {
    let mut addresses = Vec::new();
    let running = ["blocking", "yielding"].map(|kind| {
        let name = format!("{kind}-{}", std::process::id());
        let server = Server::new();
        let server = match kind {
            "blocking" => server.export(&name, NotesServer::new(Blocking)),
            _ => server.export(&name, NotesAsyncServer::new(Yielding)),
        };
        let server = server.unwrap().listen("udp:127.0.0.1:0").unwrap();
        let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
        addresses.push(name.clone());
        for (path, address) in ["udp", "tcp"].iter().zip(running.addresses()) {
            addresses.push(format!("{path}:{name}@{}", address.place()));
        }
        running
    });
    (running.into(), addresses)
}

#[test]
fn every_mix_of_blocking_and_async_works_between_processes() {
    let _alone = alone();
    let _directory = own_directory();
    let (_running, addresses) = servers();
    for address in &addresses {
        let notes = block_on(NotesAsyncClient::bind(address)).unwrap();
        block_on(is_send(all(&notes)));
        let blocking = NotesClient::from(notes);
        assert_eq!(blocking.add(1, &2).unwrap(), 3);
    }
}

/// A failed call starts no thread, and its future does not wait.
#[test]
fn future_of_a_refused_call_ends_at_its_first_poll() {
    let notes = NotesAsyncClient::in_process(Yielding);
    let long = "x".repeat(32 << 20);
    for _ in 0..100 {
        let refused = poll_once(pin!(notes.text(&long, &[]))).expect("the end of the future");
        assert_eq!(refused.unwrap_err().kind(), Kind::TooLarge);
    }
}

/// Two versions of an interface. Calls of `meet` are the same in both, and calls of `put` are converted.
mod versions {
    pub(crate) mod old {
        use peregrine::{Value, interface};

        #[derive(Debug, PartialEq, Value)]
        pub(crate) struct Item {
            pub(crate) price: u32,
        }

        #[interface(name = "shop")]
        pub(crate) trait Shop {
            fn meet(&self, callers: u32) -> peregrine::Result<()>;
            fn put(&self, item: &Item, counts: &mut [u32]) -> peregrine::Result<Item>;
        }
    }

    pub(crate) mod new {
        use peregrine::{Value, interface};

        #[derive(Clone, Debug, Value)]
        pub(crate) struct Item {
            pub(crate) price: u32,
            #[default(7)]
            pub(crate) unit: u32,
        }

        #[interface(name = "shop")]
        pub(crate) trait Shop {
            fn meet(&self, callers: u32) -> peregrine::Result<()>;
            fn put(&self, item: &Item, counts: &mut [u32]) -> peregrine::Result<Item>;
        }
    }
}

#[derive(Default)]
struct Shop(AtomicU32);

impl versions::new::Shop for Shop {
    fn meet(&self, callers: u32) -> peregrine::Result<()> {
        self.0.fetch_add(1, Ordering::SeqCst);
        support::until("all callers are inside", || self.0.load(Ordering::SeqCst) == callers);
        Ok(())
    }
    fn put(
        &self,
        item: &versions::new::Item,
        counts: &mut [u32],
    ) -> peregrine::Result<versions::new::Item> {
        counts.reverse();
        Ok(versions::new::Item { price: item.price + item.unit, ..*item })
    }
}

#[test]
fn calls_to_a_newer_server_overlap_and_are_converted() {
    use versions::{new::ShopServer, old::Item, old::ShopAsync as _, old::ShopAsyncClient};
    let _alone = alone();
    let _directory = own_directory();
    let server = Server::new().export("shop", ShopServer::new(Shop::default()));
    let _running = server.unwrap().spawn().unwrap();
    let shop = block_on(ShopAsyncClient::bind("shop")).unwrap();
    let mut counts = [1, 2, 3];
    let put = block_on(shop.put(&Item { price: 4 }, &mut counts)).unwrap();
    assert_eq!((put, counts), (Item { price: 11 }, [3, 2, 1]));
    // Each call ends only if both run at the same time. If the first call blocked this thread, the second
    // would not begin.
    join_all([shop.meet(2), shop.meet(2)]).into_iter().for_each(|met| met.unwrap());
}

/// A call waits for an A-stack at most until its deadline.
#[test]
fn deadline_ends_the_wait_for_an_a_stack() {
    use versions::{new::ShopAsync as _, new::ShopAsyncClient, new::ShopServer};
    let _alone = alone();
    let _directory = own_directory();
    let server = Server::new().export("shop", ShopServer::new(Shop::default()));
    let _running = server.unwrap().spawn().unwrap();
    let options = peregrine::BindOptions::default().astacks(1);
    let shop = block_on(ShopAsyncClient::bind_with("shop", &options)).unwrap();
    let hasty = shop.with_timeout(Duration::from_millis(50));
    let mut first = Box::pin(shop.meet(2));
    assert!(poll_once(first.as_mut()).is_none());
    let error = block_on(hasty.meet(2)).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No), "{error}");
    // The first call waits for a second call of `meet`, which this other client makes.
    let other = block_on(ShopAsyncClient::bind("shop")).unwrap();
    join_all([first, Box::pin(other.meet(2))]).into_iter().for_each(|met| met.unwrap());
    block_on(shop.meet(3)).unwrap();
}

/// Calls that wait until a gate is opened.
#[interface]
trait Waits {
    fn pass(&self, number: u32) -> peregrine::Result<u32>;
    fn waiting(&self) -> peregrine::Result<u32>;
    fn open(&self) -> peregrine::Result<()>;
}

#[derive(Clone, Default)]
struct Gate(Arc<std::sync::Mutex<GateState>>);

#[derive(Default)]
struct GateState {
    open: bool,
    wakers: Vec<Waker>,
    waiting: u32,
}

impl WaitsAsync for Gate {
    async fn pass(&self, number: u32) -> peregrine::Result<u32> {
        let mut first = true;
        std::future::poll_fn(|context| {
            let mut state = self.0.lock().unwrap();
            if state.open {
                return Poll::Ready(());
            }
            state.waiting += u32::from(std::mem::take(&mut first));
            state.wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
        Ok(number * 2)
    }
    async fn waiting(&self) -> peregrine::Result<u32> {
        Ok(self.0.lock().unwrap().waiting)
    }
    async fn open(&self) -> peregrine::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.open = true;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        Ok(())
    }
}

/// A gate whose `pass` blocks the polling thread for 1 ms at its first poll.
struct SlowGate(Gate);

impl WaitsAsync for SlowGate {
    async fn pass(&self, number: u32) -> peregrine::Result<u32> {
        thread::sleep(Duration::from_millis(1));
        self.0.pass(number).await
    }
    async fn waiting(&self) -> peregrine::Result<u32> {
        self.0.waiting().await
    }
    async fn open(&self) -> peregrine::Result<()> {
        self.0.open().await
    }
}

/// More calls are in flight than the binding has frames, even if the server begins these calls
/// slowly.
#[test]
fn slow_calls_to_an_async_server_share_batches() {
    let _alone = alone();
    let _directory = own_directory();
    let gate = Gate::default();
    let server = WaitsAsyncServer::new(SlowGate(gate.clone()));
    let server = Server::new().export("slow-gate", server);
    let _running = server.unwrap().spawn().unwrap();
    let options = peregrine::BindOptions::default().astacks(8);
    let options = options.on_exhausted(peregrine::OnExhausted::Wait);
    let waits = block_on(WaitsAsyncClient::bind_with("slow-gate", &options)).unwrap();
    let opener = thread::spawn(move || {
        support::until("all calls wait", || gate.0.lock().unwrap().waiting == 100);
        block_on(gate.open()).unwrap();
    });
    let waits = &waits.with_timeout(Duration::from_secs(20));
    let results = join_all((0..100).map(|number| async move { waits.pass(number).await.unwrap() }));
    assert_eq!(results, (0..100).map(|number| number * 2).collect::<Vec<_>>());
    opener.join().unwrap();
}

#[test]
fn ten_thousand_calls_are_in_flight_from_one_thread() {
    let _alone = alone();
    let _directory = own_directory();
    let name = format!("gate-{}", std::process::id());
    let server = Server::new().export(&name, WaitsAsyncServer::new(Gate::default()));
    let _running = server.unwrap().spawn().unwrap();
    let waits = block_on(WaitsAsyncClient::bind(&name)).unwrap();
    let blocking = WaitsClient::from(waits.clone());
    let opener = thread::spawn(move || {
        while blocking.waiting().unwrap() < 10_000 {
            thread::sleep(Duration::from_millis(1));
        }
        let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
        blocking.open().unwrap();
        threads
    });
    let waits = &waits;
    let results =
        join_all((0..10_000).map(|number| async move { waits.pass(number).await.unwrap() }));
    assert_eq!(results, (0..10_000).map(|number| number * 2).collect::<Vec<_>>());
    let threads = opener.join().unwrap();
    assert!(threads <= 16, "{threads} threads while 10,000 calls are in flight");
}

#[interface]
trait Meeting {
    /// Waits until `callers` calls are in this procedure.
    fn meet(&self, callers: u32) -> peregrine::Result<()>;
    /// Waits until `callers` calls are in this procedure, as `meet` does for its own calls.
    fn meet_elsewhere(&self, callers: u32) -> peregrine::Result<()>;
}

#[derive(Default)]
struct Places([(std::sync::Mutex<u32>, std::sync::Condvar); 2]);

impl Places {
    fn enter(&self, place: usize, callers: u32) {
        let (count, changed) = &self.0[place];
        let mut count = count.lock().unwrap();
        *count += 1;
        changed.notify_all();
        let waits = |count: &mut u32| *count < callers;
        drop(changed.wait_while(count, waits).unwrap());
    }
}

impl Meeting for Places {
    fn meet(&self, callers: u32) -> peregrine::Result<()> {
        self.enter(0, callers);
        Ok(())
    }
    fn meet_elsewhere(&self, callers: u32) -> peregrine::Result<()> {
        self.enter(1, callers);
        Ok(())
    }
}

/// A blocking server runs the calls of a batch one after the other. So a call must not wait for a batch whose
/// procedures wait for that call.
#[test]
fn calls_that_wait_for_each_other_end() {
    let _alone = alone();
    let _directory = own_directory();
    let server = MeetingServer::new(Places::default());
    let _running = Server::new().export("meeting", server).unwrap().spawn().unwrap();
    let meeting = block_on(MeetingAsyncClient::bind("meeting")).unwrap();
    const CALLERS: u32 = 12;
    let calls = (0..CALLERS).map(async |_| {
        meeting.meet(CALLERS).await.unwrap();
        meeting.meet_elsewhere(CALLERS).await.unwrap();
    });
    join_all(calls);
}
