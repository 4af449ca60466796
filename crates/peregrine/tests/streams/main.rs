//! Tests streams as parameters, on every path, with blocking and async clients and servers.

#[path = "../support/mod.rs"]
mod support;

mod crossed;
mod early;
mod failures;

use core::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_lite::future::{block_on, poll_once};
use peregrine::{BindOptions, Executed, Kind, Server, Sink, Source, interface};
use support::paths::on_each_path;
use support::{alone, own_directory, until};

/// Streams in both directions.
#[interface]
pub(crate) trait Streams {
    /// Sends the numbers from `begin` to `end`. Returns their count.
    fn count(&self, begin: u64, end: u64, numbers: Sink<'_, u64>) -> peregrine::Result<u64>;
    /// Returns the sum of the numbers.
    fn sum(&self, numbers: Source<'_, u64>) -> peregrine::Result<u64>;
    /// Sends back each text, and returns the number of texts.
    fn echo(&self, texts: Source<'_, String>, back: Sink<'_, String>) -> peregrine::Result<u32>;
    /// Sends `size` bytes `count` times.
    fn fill(&self, size: u32, count: u32, bytes: Sink<'_, Vec<u8>>) -> peregrine::Result<()>;
    /// Takes `count` numbers, and returns the last one.
    fn first(&self, count: u32, numbers: Source<'_, u64>) -> peregrine::Result<Option<u64>>;
    /// Sends the number 1, and panics.
    fn panic(&self, numbers: Sink<'_, u64>) -> peregrine::Result<()>;
    /// Sends numbers until its caller wants no more. Returns how many were sent.
    fn endless(&self, numbers: Sink<'_, u64>) -> peregrine::Result<u64>;
    /// Sends the number 7, and waits until the test says that the number has arrived.
    fn wait(&self, numbers: Sink<'_, u64>) -> peregrine::Result<()>;
    /// Sends the number 7, and waits until its caller wants no more.
    fn idle(&self, numbers: Sink<'_, u64>) -> peregrine::Result<()>;
}

#[derive(Default)]
struct Object {
    /// How many numbers `endless` has sent.
    sent: AtomicU64,
    /// Whether the number that the procedure `wait` sends has arrived at the caller.
    arrived: AtomicBool,
    /// How many calls of `endless` have ended.
    ended: AtomicU64,
}

impl Streams for Object {
    fn count(&self, begin: u64, end: u64, mut numbers: Sink<'_, u64>) -> peregrine::Result<u64> {
        (begin..end).try_for_each(|number| numbers.send(number))?;
        Ok(end - begin)
    }
    fn sum(&self, mut numbers: Source<'_, u64>) -> peregrine::Result<u64> {
        let mut sum = 0;
        while let Some(number) = numbers.next()? {
            sum += number;
        }
        Ok(sum)
    }
    fn echo(
        &self,
        mut texts: Source<'_, String>,
        mut back: Sink<'_, String>,
    ) -> peregrine::Result<u32> {
        let mut count = 0;
        while let Some(text) = texts.next()? {
            back.send(text)?;
            count += 1;
        }
        Ok(count)
    }
    fn fill(&self, size: u32, count: u32, mut bytes: Sink<'_, Vec<u8>>) -> peregrine::Result<()> {
        (0..count).try_for_each(|number| bytes.send(vec![number as u8; size as usize]))
    }
    fn first(&self, count: u32, mut numbers: Source<'_, u64>) -> peregrine::Result<Option<u64>> {
        let mut last = None;
        for _ in 0..count {
            last = numbers.next()?;
        }
        Ok(last)
    }
    fn panic(&self, mut numbers: Sink<'_, u64>) -> peregrine::Result<()> {
        numbers.send(1)?;
        panic!("on purpose");
    }
    fn endless(&self, mut numbers: Sink<'_, u64>) -> peregrine::Result<u64> {
        for number in 0.. {
            if let Err(error) = numbers.send(number) {
                assert_eq!(error.kind(), Kind::Stopped, "{error}");
                self.ended.fetch_add(1, Ordering::SeqCst);
                return Ok(number);
            }
            self.sent.store(number + 1, Ordering::SeqCst);
        }
        unreachable!()
    }
    fn wait(&self, mut numbers: Sink<'_, u64>) -> peregrine::Result<()> {
        numbers.send(7)?;
        until("the number arrives", || self.arrived.load(Ordering::SeqCst));
        Ok(())
    }
    fn idle(&self, mut numbers: Sink<'_, u64>) -> peregrine::Result<()> {
        numbers.send(7)?;
        until("the reader has gone", || numbers.is_stopped());
        self.ended.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// Counts the end of a procedure, even if the future of the procedure is dropped.
struct Ends<'a>(&'a Object);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

/// The async form of the object.
struct Yielding(Arc<Object>);

impl StreamsAsync for Yielding {
    async fn count(
        &self,
        begin: u64,
        end: u64,
        mut numbers: Sink<'_, u64>,
    ) -> peregrine::Result<u64> {
        for number in begin..end {
            numbers.send_async(number).await?;
        }
        Ok(end - begin)
    }
    async fn sum(&self, mut numbers: Source<'_, u64>) -> peregrine::Result<u64> {
        let mut sum = 0;
        while let Some(number) = numbers.next_async().await? {
            sum += number;
        }
        Ok(sum)
    }
    async fn echo(
        &self,
        mut texts: Source<'_, String>,
        mut back: Sink<'_, String>,
    ) -> peregrine::Result<u32> {
        let mut count = 0;
        while let Some(text) = texts.next_async().await? {
            back.send_async(text).await?;
            count += 1;
        }
        Ok(count)
    }
    async fn fill(
        &self,
        size: u32,
        count: u32,
        mut bytes: Sink<'_, Vec<u8>>,
    ) -> peregrine::Result<()> {
        for number in 0..count {
            bytes.send_async(vec![number as u8; size as usize]).await?;
        }
        Ok(())
    }
    async fn first(
        &self,
        count: u32,
        mut numbers: Source<'_, u64>,
    ) -> peregrine::Result<Option<u64>> {
        let mut last = None;
        for _ in 0..count {
            last = numbers.next_async().await?;
        }
        Ok(last)
    }
    async fn panic(&self, mut numbers: Sink<'_, u64>) -> peregrine::Result<()> {
        numbers.send_async(1).await?;
        panic!("on purpose");
    }
    async fn endless(&self, mut numbers: Sink<'_, u64>) -> peregrine::Result<u64> {
        let _ends = Ends(&self.0);
        for number in 0.. {
            if let Err(error) = numbers.send_async(number).await {
                assert_eq!(error.kind(), Kind::Stopped, "{error}");
                return Ok(number);
            }
            self.0.sent.store(number + 1, Ordering::SeqCst);
        }
        unreachable!()
    }
    async fn wait(&self, mut numbers: Sink<'_, u64>) -> peregrine::Result<()> {
        numbers.send_async(7).await?;
        while !self.0.arrived.load(Ordering::SeqCst) {
            futures_lite::future::yield_now().await;
        }
        Ok(())
    }
    async fn idle(&self, mut numbers: Sink<'_, u64>) -> peregrine::Result<()> {
        numbers.send_async(7).await?;
        let _ends = Ends(&self.0);
        numbers.stopped().await;
        assert!(numbers.is_stopped());
        Ok(())
    }
}

/// Calls `test` with a client of each kind of server on each path.
fn each(threads: usize, test: impl Fn(&StreamsClient, &Object)) {
    let _alone = alone();
    let _directory = own_directory();
    for is_async in [false, true] {
        println!("async server: {is_async}");
        let object = Arc::new(Object::default());
        let client = match is_async {
            false => StreamsClient::in_process(Arc::clone(&object)),
            true => StreamsAsyncClient::in_process(Yielding(Arc::clone(&object))).into(),
        };
        test(&client, &object);
        let start = || {
            let object = Arc::new(Object::default());
            let server = Server::new().threads(threads);
            let server = match is_async {
                false => server.export("streams", StreamsServer::new(Arc::clone(&object))),
                true => {
                    server.export("streams", StreamsAsyncServer::new(Yielding(Arc::clone(&object))))
                }
            };
            (server.unwrap(), object)
        };
        on_each_path("streams", start, |address, object| {
            test(&StreamsClient::bind(address).unwrap(), object);
        });
    }
}

#[test]
fn items_arrive_in_order_in_both_directions() {
    each(2, |client, _| {
        for end in [0, 1, 100, 100_000] {
            let mut next = 0;
            let receive = |number| {
                assert_eq!(number, next);
                next += 1;
            };
            assert_eq!(client.count(0, end, Sink::new(receive)).unwrap(), end);
            assert_eq!(next, end);
            assert_eq!(client.sum(Source::new(0..end)).unwrap(), (0..end).sum::<u64>());
        }
    });
}

#[test]
fn items_of_all_sizes_arrive() {
    each(2, |client, _| {
        for size in [0, 1, 100, 5000, 16 << 10, 40_000] {
            let mut received = Vec::new();
            client.fill(size, 40, Sink::from(&mut received)).unwrap();
            assert_eq!(received.len(), 40);
            for (number, bytes) in received.into_iter().enumerate() {
                assert_eq!(bytes, vec![number as u8; size as usize]);
            }
        }
        let error = client.fill(2 << 20, 1, Sink::new(drop)).unwrap_err();
        assert_eq!(error.kind(), Kind::Relayed, "{error}");
        let large = Source::new([0; 2].map(|_| "a".repeat(2 << 20)));
        let error = client.echo(large, Sink::new(drop)).unwrap_err();
        assert_eq!(error.kind(), Kind::TooLarge, "{error}");
    });
}

#[test]
fn streams_of_both_directions_move_at_the_same_time() {
    each(2, |client, _| {
        let text = |number: usize| format!("{number} ").repeat(number % 50);
        for count in [0, 1, 20_000] {
            let mut back = Vec::new();
            let sent = Source::new((0..count).map(text));
            assert_eq!(client.echo(sent, Sink::from(&mut back)).unwrap(), count as u32);
            assert!(back.into_iter().eq((0..count).map(text)));
        }
    });
}

#[test]
fn caller_may_want_no_more_items() {
    each(2, |client, object| {
        let mut count = 0;
        let receive = |number| {
            assert_eq!(number, count);
            count += 1;
            if count == 1000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let sent = client.endless(Sink::until(receive)).unwrap();
        assert!(sent >= count, "{sent}");
        assert_eq!((count, object.ended.load(Ordering::SeqCst)), (1000, 1));
    });
}

#[test]
fn procedure_learns_without_sending_that_its_reader_has_gone() {
    each(2, |client, object| {
        let ended = |count| {
            until("the procedure ends", || object.ended.load(Ordering::SeqCst) == count);
        };
        client.idle(Sink::until(|_| ControlFlow::Break(()))).unwrap();
        ended(1);
        let (sink, mut numbers) = Sink::channel(1);
        std::thread::scope(|scope| {
            let call = scope.spawn(move || client.idle(sink));
            assert_eq!(numbers.next(), Some(7));
            drop(numbers);
            call.join().unwrap().unwrap();
        });
        ended(2);
        // In this case, the future of the call is dropped.
        let (sink, mut numbers) = Sink::channel(1);
        let client = StreamsAsyncClient::from(client.clone());
        let mut call = Box::pin(client.idle(sink));
        let item = async { (numbers.next_async().await, numbers) };
        let (item, _numbers) =
            block_on(futures_lite::future::or(item, async { panic!("{:?}", call.as_mut().await) }));
        assert_eq!(item, Some(7));
        drop(call);
        ended(3);
    });
}

#[test]
fn procedure_may_end_before_it_has_all_items() {
    each(2, |client, _| {
        assert_eq!(client.first(3, Source::new(10..)).unwrap(), Some(12));
        assert_eq!(client.first(0, Source::new(10..)).unwrap(), None);
        assert_eq!(client.first(10, Source::new(0..2)).unwrap(), None);
    });
}

#[test]
fn items_before_a_panic_arrive() {
    each(2, |client, _| {
        let mut received = Vec::new();
        let error = client.panic(Sink::from(&mut received)).unwrap_err();
        assert_eq!((error.kind(), received), (Kind::Panicked, vec![1]), "{error}");
    });
}

/// Some of the servers have one thread, which the procedure occupies. The item must arrive
/// nevertheless.
#[test]
fn item_arrives_while_its_procedure_goes_on() {
    each(1, |client, object| {
        let receive = |number| {
            assert_eq!(number, 7);
            object.arrived.store(true, Ordering::SeqCst);
        };
        client.wait(Sink::new(receive)).unwrap();
    });
}

/// Waits until a number does not change any more. Returns it.
fn settled(number: &AtomicU64) -> u64 {
    let mut before = (number.load(Ordering::SeqCst), Instant::now());
    until("a number settles", || {
        let now = number.load(Ordering::SeqCst);
        if now != before.0 {
            before = (now, Instant::now());
        }
        now > 0 && before.1.elapsed() > Duration::from_millis(100)
    });
    before.0
}

#[test]
fn slow_reader_stops_its_writer_and_nobody_else() {
    each(2, |client, object| {
        let (sink, mut numbers) = Sink::channel(1);
        std::thread::scope(|scope| {
            let call = scope.spawn(move || client.endless(sink));
            let sent = settled(&object.sent);
            assert!(sent < peregrine::limits::STREAM_WINDOW as u64 / 16 + 5000, "{sent}");
            // Meanwhile, another stream of the same binding must not stall.
            assert_eq!(client.sum(Source::new(0..10_000)).unwrap(), 49_995_000);
            assert!(numbers.by_ref().take(3 * sent as usize).eq(0..3 * sent));
            drop(numbers);
            assert!(call.join().unwrap().unwrap() >= 3 * sent);
        });
    });
}

#[test]
fn procedure_of_a_dropped_future_ends() {
    each(2, |client, object| {
        let client = StreamsAsyncClient::from(client.clone());
        for polls in 0..30 {
            let before = object.ended.load(Ordering::SeqCst);
            object.sent.store(0, Ordering::SeqCst);
            let mut received = 0;
            let receive = |_| received += 1;
            let mut call = Box::pin(client.endless(Sink::new(receive)));
            for _ in 0..polls {
                assert!(block_on(poll_once(call.as_mut())).is_none());
            }
            if polls > 10 {
                until("the procedure runs", || {
                    assert!(block_on(poll_once(call.as_mut())).is_none());
                    object.sent.load(Ordering::SeqCst) > 0
                });
            }
            drop(call);
            if object.sent.load(Ordering::SeqCst) > 0 {
                until("the procedure ends", || object.ended.load(Ordering::SeqCst) > before);
            }
        }
        assert_eq!(block_on(client.sum(Source::new(0..100))).unwrap(), 4950);
    });
}
