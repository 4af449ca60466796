//! Counts exactly how often async calls allocate memory after the client has bound. Each count includes
//! client and server, and excludes the futures of the calls.
#![cfg(feature = "async")]

mod support;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use peregrine::{BindOptions, Lent, Out, Server, Wait, interface};
use support::heap::{Counting, allocations};
use support::{alone, own_directory};

#[global_allocator]
static COUNTING: Counting = Counting;

#[interface]
trait Counted {
    fn null(&self) -> peregrine::Result<()>;
    fn add(&self, a: i32, b: &i32) -> peregrine::Result<i32>;
    fn text(&self, text: &str) -> peregrine::Result<u64>;
    fn both(&self, bytes: &mut [u64]) -> peregrine::Result<()>;
    fn give(&self, from: Lent<'_, u8>, into: Out<'_, u8>) -> peregrine::Result<()>;
}

struct Object;

impl Counted for Object {
    fn null(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn add(&self, a: i32, b: &i32) -> peregrine::Result<i32> {
        Ok(a + b)
    }
    fn text(&self, text: &str) -> peregrine::Result<u64> {
        Ok(text.len() as u64)
    }
    fn both(&self, bytes: &mut [u64]) -> peregrine::Result<()> {
        bytes.reverse();
        Ok(())
    }
    fn give(&self, from: Lent<'_, u8>, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let mut first = [0; 8];
        from.copy_to(0, &mut first).expect("the buffer is long enough");
        into.put(&first).expect("enough space");
        Ok(())
    }
}

/// Wakes a thread, and notes that a future was woken.
struct Wakes {
    thread: Thread,
    is_woken: AtomicBool,
    /// Whether the future has ended.
    has_ended: AtomicBool,
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Polls futures on one thread. Allocates its memory only once.
struct Polls(Vec<(Arc<Wakes>, Waker)>);

impl Polls {
    fn new(futures: usize) -> Self {
        let one = |_| {
            let (thread, is_woken) = (thread::current(), AtomicBool::default());
            let wakes = Arc::new(Wakes { thread, is_woken, has_ended: AtomicBool::default() });
            (Arc::clone(&wakes), Waker::from(wakes))
        };
        Self((0..futures).map(one).collect())
    }

    /// Runs one future to its end.
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let (mut future, (wakes, waker)) = (pin!(future), &self.0[0]);
        wakes.is_woken.store(true, Ordering::Relaxed);
        loop {
            while !wakes.is_woken.swap(false, Ordering::Acquire) {
                thread::park();
            }
            if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(waker)) {
                return result;
            }
        }
    }

    /// Runs futures to their ends. Polls only those that were woken.
    fn join<F: Future<Output = ()>>(&self, futures: &mut [Pin<Box<F>>]) {
        for (wakes, _) in &self.0 {
            wakes.is_woken.store(true, Ordering::Relaxed);
            wakes.has_ended.store(false, Ordering::Relaxed);
        }
        let mut left = futures.len();
        while left > 0 {
            let mut polled = false;
            for (future, (wakes, waker)) in futures.iter_mut().zip(&self.0) {
                if !wakes.is_woken.swap(false, Ordering::Acquire)
                    || wakes.has_ended.load(Ordering::Relaxed)
                {
                    continue;
                }
                polled = true;
                if future.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
                    wakes.has_ended.store(true, Ordering::Relaxed);
                    left -= 1;
                }
            }
            if !polled {
                thread::park();
            }
        }
    }
}

/// The largest number of attempts. An attempt fails if an unrelated thread allocates, or if the server starts
/// a thread. On a busy machine, the server starts a thread when a call has to wait.
const TRIES: usize = 300;

/// Checks that the calls of `run` allocate nothing, in at least one of several attempts. `run` makes as many
/// calls as its argument says. `run` returns how many allocations the test itself has made. These are not
/// counted.
#[track_caller]
fn allocates_nothing(calls: u64, mut run: impl FnMut(u64) -> u64) {
    // The first calls enlarge buffers, which later calls use again.
    run(10 * calls);
    let mut tries = Vec::new();
    while tries.last() != Some(&0) {
        assert!(tries.len() < TRIES, "{tries:?} allocations per {calls} calls instead of none");
        let before = allocations();
        let own = run(calls);
        tries.push(allocations() - before - own);
    }
}

#[test]
fn async_call_with_borrowed_arguments_does_not_allocate() {
    let _alone = alone();
    let _directory = own_directory();
    let server = Server::new().export("counted", CountedServer::new(Object)).unwrap();
    let _running = server.spawn().unwrap();
    for wait in [Wait::Adaptive, Wait::Block] {
        let polls = Polls::new(1);
        let options = BindOptions::default().wait(wait);
        let client = CountedClient::bind_with("counted", &options).unwrap();
        let client = CountedAsyncClient::from(client);
        let limited = client.with_timeout(std::time::Duration::from_secs(60));
        let (mut words, from, mut into) = ([1; 100], [7; 2000], [0; 100]);
        const CALLS: u64 = 1000;
        allocates_nothing(CALLS, |calls| {
            for _ in 0..calls {
                polls.block_on(client.null()).unwrap();
            }
            0
        });
        allocates_nothing(CALLS, |calls| {
            for _ in 0..calls {
                assert_eq!(polls.block_on(client.add(1, &2)).unwrap(), 3);
                assert_eq!(polls.block_on(client.text("falcon")).unwrap(), 6);
                polls.block_on(client.both(&mut words)).unwrap();
                let (from, into) = (Lent::from(&from[..]), Out::from(&mut into[..]));
                polls.block_on(client.give(from, into)).unwrap();
            }
            0
        });
        allocates_nothing(CALLS, |calls| {
            for _ in 0..calls {
                polls.block_on(limited.null()).unwrap();
            }
            0
        });
    }
}

/// The number of futures that make calls.
const FUTURES: usize = 1000;

/// One thread polls all futures. Each future makes its calls one after the other.
#[test]
fn thousand_async_calls_in_flight_do_not_allocate() {
    let _alone = alone();
    let _directory = own_directory();
    let server = Server::new().export("counted", CountedServer::new(Object)).unwrap();
    let _running = server.spawn().unwrap();
    let client = CountedClient::bind("counted").unwrap();
    let client = &CountedAsyncClient::from(client);
    let polls = Polls::new(FUTURES);
    allocates_nothing(10 * FUTURES as u64, |calls| {
        let one = |_| {
            Box::pin(async move {
                for _ in 0..calls / FUTURES as u64 {
                    assert_eq!(client.text("falcon").await.unwrap(), 6);
                }
            })
        };
        let mut futures: Vec<_> = (0..FUTURES).map(one).collect();
        polls.join(&mut futures);
        // There is one allocation for each future, and one for their list.
        FUTURES as u64 + 1
    });
}
