//! Checks that a server counts its calls in flight by kind, and the bytes that streams have buffered at the
//! server.
#![cfg(feature = "async")]

mod support;

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Poll, Waker};

use futures_util::future::{join_all as join_all_of, select};
use peregrine::call::Serve;
use peregrine::counters::InFlightCounts;
use peregrine::{Callback, Running, Server, Sink, Source, interface, stat};
use support::futures::block_on;
use support::{alone, own_directory, until};

#[interface]
trait Listener {
    fn hear(&self, number: u64) -> peregrine::Result<()>;
}

#[interface]
trait Work {
    /// Waits until the door lets this call pass.
    fn pass(&self) -> peregrine::Result<()>;
    /// Does the same as `pass`, as a one-way call.
    #[oneway]
    fn post(&self) -> peregrine::Result<()>;
    /// Waits until the door lets the call pass, and then takes the numbers. Returns their sum.
    fn sum(&self, numbers: Source<'_, u64>) -> peregrine::Result<u64>;
    /// Sends `count` numbers.
    fn count(&self, count: u64, numbers: Sink<'_, u64>) -> peregrine::Result<()>;
    /// Keeps a callback until `forget` is called.
    fn keep(&self, listener: Callback<'static, dyn Listener>) -> peregrine::Result<()>;
    fn forget(&self) -> peregrine::Result<()>;
}

/// A door that lets as many calls pass as the test says.
#[derive(Default)]
struct Door {
    entered: AtomicU32,
    state: Mutex<DoorState>,
    opened: Condvar,
}

#[derive(Default)]
struct DoorState {
    passes: u32,
    wakers: Vec<Waker>,
}

impl Door {
    fn let_pass(&self, calls: u32) {
        let mut state = self.state.lock().unwrap();
        state.passes += calls;
        self.opened.notify_all();
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn pass(&self) {
        self.entered.fetch_add(1, Ordering::SeqCst);
        let state = self.state.lock().unwrap();
        let mut state = self.opened.wait_while(state, |state| state.passes == 0).unwrap();
        state.passes -= 1;
    }

    async fn pass_async(&self) {
        self.entered.fetch_add(1, Ordering::SeqCst);
        std::future::poll_fn(|context| {
            let mut state = self.state.lock().unwrap();
            if state.passes == 0 {
                state.wakers.push(context.waker().clone());
                return Poll::Pending;
            }
            state.passes -= 1;
            Poll::Ready(())
        })
        .await;
    }

    fn until_entered(&self, calls: u32) {
        until("the calls have begun", || self.entered.load(Ordering::SeqCst) == calls);
    }
}

#[derive(Default)]
struct Object {
    door: Arc<Door>,
    kept: Mutex<Option<Callback<'static, dyn Listener>>>,
}

impl Work for Object {
    fn pass(&self) -> peregrine::Result<()> {
        self.door.pass();
        Ok(())
    }
    fn post(&self) -> peregrine::Result<()> {
        self.pass()
    }
    fn sum(&self, mut numbers: Source<'_, u64>) -> peregrine::Result<u64> {
        self.door.pass();
        let mut sum = 0;
        while let Some(number) = numbers.next()? {
            sum += number;
        }
        Ok(sum)
    }
    fn count(&self, count: u64, mut numbers: Sink<'_, u64>) -> peregrine::Result<()> {
        (0..count).try_for_each(|number| numbers.send(number))
    }
    fn keep(&self, listener: Callback<'static, dyn Listener>) -> peregrine::Result<()> {
        *self.kept.lock().unwrap() = Some(listener);
        Ok(())
    }
    fn forget(&self) -> peregrine::Result<()> {
        *self.kept.lock().unwrap() = None;
        Ok(())
    }
}

/// The async form of the object.
#[derive(Default)]
struct Yielding(Object);

impl WorkAsync for Yielding {
    async fn pass(&self) -> peregrine::Result<()> {
        self.0.door.pass_async().await;
        Ok(())
    }
    async fn post(&self) -> peregrine::Result<()> {
        self.pass().await
    }
    async fn sum(&self, mut numbers: Source<'_, u64>) -> peregrine::Result<u64> {
        self.0.door.pass_async().await;
        let mut sum = 0;
        while let Some(number) = numbers.next_async().await? {
            sum += number;
        }
        Ok(sum)
    }
    async fn count(&self, count: u64, mut numbers: Sink<'_, u64>) -> peregrine::Result<()> {
        for number in 0..count {
            numbers.send_async(number).await?;
        }
        Ok(())
    }
    async fn keep(&self, listener: Callback<'static, dyn Listener>) -> peregrine::Result<()> {
        self.0.keep(listener)
    }
    async fn forget(&self) -> peregrine::Result<()> {
        self.0.forget()
    }
}

struct Deaf;

impl Listener for Deaf {
    fn hear(&self, _: u64) -> peregrine::Result<()> {
        Ok(())
    }
}

/// Returns a server, and the addresses at which it listens.
fn serve(serve: impl Serve + 'static) -> (Running, Vec<String>) {
    let server = Server::new().export("work", serve).unwrap().listen("udp:127.0.0.1:0").unwrap();
    let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let far = running.addresses().iter().map(|address| format!("{address}/work")).collect();
    (running, [vec!["work".to_owned()], far].concat())
}

const NOTHING: InFlightCounts =
    InFlightCounts { blocking: 0, deferred: 0, oneway: 0, streams: 0, stream_bytes: 0 };

fn now() -> InFlightCounts {
    stat("work").unwrap().server.in_flight.expect("a server of this version counts kinds")
}

#[track_caller]
fn until_in_flight(what: &str, counts: InFlightCounts) {
    let mut last = NOTHING;
    for _ in 0..400 {
        last = now();
        if last == counts {
            return;
        }
        std::thread::sleep(core::time::Duration::from_millis(5));
    }
    panic!("{what}: {last:?} instead of {counts:?}");
}

#[test]
fn blocking_calls_and_the_call_that_asks_occupy_threads() {
    let _alone = alone();
    let _directory = own_directory();
    let door = Arc::<Door>::default();
    let object = Object { door: Arc::clone(&door), ..Object::default() };
    let (running, addresses) = serve(WorkServer::new(object));
    for address in addresses {
        let client = &WorkClient::bind(&address).unwrap();
        std::thread::scope(|scope| {
            let calls: Vec<_> = (0..2).map(|_| scope.spawn(|| client.pass().unwrap())).collect();
            until_in_flight(&address, InFlightCounts { blocking: 2, ..NOTHING });
            door.let_pass(2);
            calls.into_iter().for_each(|call| call.join().unwrap());
        });
        until_in_flight(&address, NOTHING);
    }
    for endpoint in running.addresses() {
        let place = endpoint.to_string().replacen(':', ":@", 1);
        let told = stat(&place).unwrap().server.in_flight;
        assert_eq!(told, Some(InFlightCounts { blocking: 1, ..NOTHING }), "{place}");
    }
}

#[test]
fn deferred_calls_are_counted_alone_and_in_batches() {
    let _alone = alone();
    let _directory = own_directory();
    let door = Arc::<Door>::default();
    let object = Object { door: Arc::clone(&door), ..Object::default() };
    let (_running, addresses) = serve(WorkAsyncServer::new(Yielding(object)));
    for address in addresses {
        // The client sends two calls outside of batches. Of 200 calls, most share batches.
        for count in [2, 200] {
            door.entered.store(0, Ordering::SeqCst);
            let client = &block_on(WorkAsyncClient::bind(&address)).unwrap();
            let mut calls = pin!(join_all_of((0..count).map(|_| client.pass())));
            let all_begun = std::future::poll_fn(|context| {
                context.waker().wake_by_ref();
                let begun = door.entered.load(Ordering::SeqCst);
                if begun == count { Poll::Ready(()) } else { Poll::Pending }
            });
            block_on(select(calls.as_mut(), pin!(all_begun)));
            until_in_flight(&address, InFlightCounts { deferred: count.into(), ..NOTHING });
            door.let_pass(count);
            block_on(calls).into_iter().for_each(Result::unwrap);
            until_in_flight(&address, NOTHING);
        }
    }
}

fn oneway_calls_are_counted(server: impl Serve + 'static, door: &Door) {
    let _alone = alone();
    let _directory = own_directory();
    let (_running, addresses) = serve(server);
    for address in addresses {
        door.entered.store(0, Ordering::SeqCst);
        let client = WorkClient::bind(&address).unwrap();
        client.post().unwrap();
        door.until_entered(1);
        until_in_flight(&address, InFlightCounts { oneway: 1, ..NOTHING });
        // These five calls share the next batch. The client sends it when the first call has ended.
        (0..5).for_each(|_| client.post().unwrap());
        door.let_pass(1);
        door.until_entered(2);
        until_in_flight(&address, InFlightCounts { oneway: 5, ..NOTHING });
        door.let_pass(5);
        client.flush().unwrap();
        until_in_flight(&address, NOTHING);
    }
}

#[test]
fn oneway_calls_are_counted_at_blocking_servers() {
    let door = Arc::<Door>::default();
    let object = Object { door: Arc::clone(&door), ..Object::default() };
    oneway_calls_are_counted(WorkServer::new(object), &door);
}

#[test]
fn oneway_calls_are_counted_at_async_servers() {
    let door = Arc::<Door>::default();
    let object = Object { door: Arc::clone(&door), ..Object::default() };
    oneway_calls_are_counted(WorkAsyncServer::new(Yielding(object)), &door);
}

/// Checks how calls with streams are counted. `of_stream` has the counts while one such call runs, except for
/// the counts of its streams.
fn streams_are_counted(server: impl Serve + 'static, door: &Door, of_stream: InFlightCounts) {
    let _alone = alone();
    let _directory = own_directory();
    let (_running, addresses) = serve(server);
    for address in addresses {
        let client = &WorkClient::bind(&address).unwrap();
        // The client has sent the whole stream, and the procedure has taken no number yet.
        std::thread::scope(|scope| {
            let sum = scope.spawn(|| client.sum(Source::new(0..100)).unwrap());
            let streams = InFlightCounts { streams: 1, stream_bytes: 800, ..of_stream };
            until_in_flight(&address, streams);
            door.let_pass(1);
            assert_eq!(sum.join().unwrap(), 4950);
        });
        until_in_flight(&address, NOTHING);
        // The caller is slow, so the server is ahead at some time, and items stay there. They do not stay there
        // all the time: a message may take all items that the server may send ahead.
        let (mut taken, mut was_ahead) = (0, false);
        client
            .count(
                100_000,
                Sink::new(|_| {
                    if !was_ahead && taken % 64 == 0 {
                        was_ahead = now().stream_bytes > 0;
                    }
                    taken += 1;
                }),
            )
            .unwrap();
        assert_eq!((taken, was_ahead), (100_000, true));
        until_in_flight(&address, NOTHING);
        // A callback has two streams.
        client.keep(Callback::new(Arc::new(Deaf))).unwrap();
        until_in_flight(&address, InFlightCounts { streams: 2, ..NOTHING });
        client.forget().unwrap();
        until_in_flight(&address, NOTHING);
    }
}

#[test]
fn streams_of_blocking_calls_are_counted() {
    let door = Arc::<Door>::default();
    let object = Object { door: Arc::clone(&door), ..Object::default() };
    let of_stream = InFlightCounts { blocking: 1, ..NOTHING };
    streams_are_counted(WorkServer::new(object), &door, of_stream);
}

#[test]
fn streams_of_deferred_calls_are_counted() {
    let door = Arc::<Door>::default();
    let object = Object { door: Arc::clone(&door), ..Object::default() };
    let of_stream = InFlightCounts { deferred: 1, ..NOTHING };
    streams_are_counted(WorkAsyncServer::new(Yielding(object)), &door, of_stream);
}
