//! Tests callbacks on every path, with blocking and async clients and servers.

#[path = "../support/mod.rs"]
mod support;

mod failures;
mod kept;

use core::future::poll_fn;
use core::task::Poll;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_lite::future::{block_on, poll_once};
use peregrine::{CallError, Callback, Executed, Kind, Out, Server, Sink, Value, interface};
use support::paths::on_each_path;
use support::{alone, own_directory, until};

/// Why an object does not answer.
#[derive(Debug, Value)]
pub(crate) enum Refusal {
    /// The object does not want this number.
    Unwanted(u64),
    /// The call failed.
    Failed(CallError),
}

impl From<CallError> for Refusal {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

/// An object of the caller.
#[interface]
pub(crate) trait Listener {
    /// Returns twice the number. Refuses 13.
    fn double(&self, number: u64) -> Result<u64, Refusal>;
    /// Fills the buffer with the bytes in reverse order.
    fn reverse(&self, bytes: &[u8], into: Out<'_, u8>) -> peregrine::Result<()>;
    /// Adds one to each number.
    fn increment(&self, numbers: &mut [u64]) -> peregrine::Result<()>;
    /// Panics.
    fn panic(&self) -> peregrine::Result<()>;
    /// Calls the server that has called this object, so that there are `depth` calls in each direction.
    fn again(&self, depth: u32) -> peregrine::Result<u32>;
    /// Sends the numbers from 0 to `end`.
    fn count(&self, end: u64, numbers: Sink<'_, u64>) -> peregrine::Result<()>;
    /// Calls `other`, an object that the caller of this procedure passes.
    fn through(&self, number: u64, other: Callback<'_, dyn Listener>) -> peregrine::Result<u64>;
    /// Runs until the call is cancelled.
    fn cancelled(&self) -> peregrine::Result<()>;
    /// Notes a number.
    #[oneway]
    fn note(&self, number: u64) -> peregrine::Result<()>;
}

/// A service that calls objects of its callers.
#[interface]
pub(crate) trait Service {
    /// Returns the doubles of the numbers, as the listener computes them.
    fn doubles(
        &self,
        numbers: &[u64],
        listener: Callback<'_, dyn Listener>,
    ) -> Result<Vec<u64>, Refusal>;
    /// Lets the listener reverse and increment `size` values, and checks the results.
    fn exchange(&self, size: u32, listener: Callback<'_, dyn Listener>) -> peregrine::Result<()>;
    /// Calls `panic`, and returns the error as a text.
    fn panics(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<String>;
    /// Calls `again`.
    fn nest(&self, depth: u32, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u32>;
    /// Calls `count`, and returns the sum of the numbers.
    fn sum(&self, end: u64, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u64>;
    /// Calls `through` of the listener with another listener, which was kept earlier.
    fn through(&self, number: u64, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u64>;
    /// Calls `cancelled` with a limit of 50 ms, and returns the error's kind as a text.
    fn hurry(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<String>;
    /// Sends `count` notes.
    fn notes(&self, count: u64, listener: Callback<'_, dyn Listener>) -> peregrine::Result<()>;
    /// Calls the listener from several threads at the same time. Returns the sum of the results.
    fn many(&self, threads: u64, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u64>;
    /// Keeps the listener under the number `number`.
    fn keep(&self, number: u64, listener: Callback<'static, dyn Listener>)
    -> peregrine::Result<()>;
    /// Calls `double` of a listener that was kept.
    fn call(&self, number: u64, value: u64) -> peregrine::Result<u64>;
    /// Drops the listener with the number `number`.
    fn release(&self, number: u64) -> peregrine::Result<()>;
    /// Calls the listener until a call fails.
    fn hold(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<()>;
    /// Calls an object that kills the server.
    fn kill(&self, killer: Callback<'_, dyn Double>) -> peregrine::Result<()>;
}

#[derive(Default)]
pub(crate) struct Object {
    /// The number of calls of `hold` that have begun, plus the number of those that have ended.
    pub(crate) held: AtomicU64,
    kept: Mutex<std::collections::HashMap<u64, Arc<Callback<'static, dyn Listener>>>>,
}

impl Object {
    pub(crate) fn listener(&self, number: u64) -> Arc<Callback<'static, dyn Listener>> {
        Arc::clone(&self.kept.lock().unwrap()[&number])
    }
}

fn failed(refusal: Refusal) -> CallError {
    match refusal {
        Refusal::Failed(error) => error,
        Refusal::Unwanted(number) => panic!("{number} is not wanted"),
    }
}

impl Service for Object {
    fn doubles(
        &self,
        numbers: &[u64],
        listener: Callback<'_, dyn Listener>,
    ) -> Result<Vec<u64>, Refusal> {
        numbers.iter().map(|number| listener.double(*number)).collect()
    }
    fn exchange(&self, size: u32, listener: Callback<'_, dyn Listener>) -> peregrine::Result<()> {
        let bytes: Vec<u8> = (0..size).map(|byte| byte as u8).collect();
        let mut reversed = vec![0; size as usize];
        listener.reverse(&bytes, Out::from(&mut reversed))?;
        assert!(reversed.iter().rev().eq(&bytes));
        let mut numbers: Vec<u64> = (0..u64::from(size) / 8).collect();
        listener.increment(&mut numbers)?;
        assert!(numbers.into_iter().eq(1..=u64::from(size) / 8));
        Ok(())
    }
    fn panics(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<String> {
        let error = listener.panic().unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::Panicked, Executed::Maybe));
        Ok(error.to_string())
    }
    fn nest(&self, depth: u32, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u32> {
        if depth == 0 { Ok(0) } else { Ok(listener.again(depth - 1)? + 1) }
    }
    fn sum(&self, end: u64, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u64> {
        let mut sum = 0;
        listener.count(end, Sink::new(|number| sum += number))?;
        Ok(sum)
    }
    fn through(&self, number: u64, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u64> {
        listener.through(4, Callback::new(self.listener(number).client().unwrap().clone()))
    }
    fn hurry(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<String> {
        let hasty = listener.client().unwrap().with_timeout(Duration::from_millis(50));
        Ok(format!("{:?}", hasty.cancelled().unwrap_err().kind()))
    }
    fn notes(&self, count: u64, listener: Callback<'_, dyn Listener>) -> peregrine::Result<()> {
        (0..count).try_for_each(|number| listener.note(number))?;
        listener.client().unwrap().flush()
    }
    fn many(&self, threads: u64, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u64> {
        let client = listener.client().unwrap();
        std::thread::scope(|scope| {
            let calls = (20..20 + threads).map(|number| {
                let client = client.clone();
                scope.spawn(move || client.double(number).map_err(failed))
            });
            let calls: Vec<_> = calls.collect();
            calls.into_iter().map(|call| call.join().unwrap()).sum()
        })
    }
    fn keep(
        &self,
        number: u64,
        listener: Callback<'static, dyn Listener>,
    ) -> peregrine::Result<()> {
        self.kept.lock().unwrap().insert(number, Arc::new(listener));
        Ok(())
    }
    fn call(&self, number: u64, value: u64) -> peregrine::Result<u64> {
        self.listener(number).double(value).map_err(failed)
    }
    fn release(&self, number: u64) -> peregrine::Result<()> {
        self.kept.lock().unwrap().remove(&number);
        Ok(())
    }
    fn hold(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<()> {
        self.held.fetch_add(1, Ordering::SeqCst);
        while listener.double(1).is_ok() {}
        self.held.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    fn kill(&self, killer: Callback<'_, dyn Double>) -> peregrine::Result<()> {
        killer.double(1).map(drop)
    }
}

/// The async form of [`Object`].
pub(crate) struct Yielding(pub(crate) Arc<Object>);

impl ServiceAsync for Yielding {
    async fn doubles(
        &self,
        numbers: &[u64],
        listener: Callback<'_, dyn Listener>,
    ) -> Result<Vec<u64>, Refusal> {
        let listener = listener.async_client()?;
        let mut doubles = Vec::new();
        for number in numbers {
            doubles.push(listener.double(*number).await?);
        }
        Ok(doubles)
    }
    async fn exchange(
        &self,
        size: u32,
        listener: Callback<'_, dyn Listener>,
    ) -> peregrine::Result<()> {
        let listener = listener.async_client()?;
        let bytes: Vec<u8> = (0..size).map(|byte| byte as u8).collect();
        let mut reversed = vec![0; size as usize];
        listener.reverse(&bytes, Out::from(&mut reversed)).await?;
        assert!(reversed.iter().rev().eq(&bytes));
        let mut numbers: Vec<u64> = (0..u64::from(size) / 8).collect();
        listener.increment(&mut numbers).await?;
        assert!(numbers.into_iter().eq(1..=u64::from(size) / 8));
        Ok(())
    }
    async fn panics(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<String> {
        Ok(listener.async_client()?.panic().await.unwrap_err().to_string())
    }
    async fn nest(
        &self,
        depth: u32,
        listener: Callback<'_, dyn Listener>,
    ) -> peregrine::Result<u32> {
        if depth == 0 { Ok(0) } else { Ok(listener.async_client()?.again(depth - 1).await? + 1) }
    }
    async fn sum(&self, end: u64, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u64> {
        let mut sum = 0;
        listener.async_client()?.count(end, Sink::new(|number| sum += number)).await?;
        Ok(sum)
    }
    async fn through(
        &self,
        number: u64,
        listener: Callback<'_, dyn Listener>,
    ) -> peregrine::Result<u64> {
        let kept = self.0.listener(number).client().unwrap().clone();
        listener.async_client()?.through(4, Callback::new(kept)).await
    }
    async fn hurry(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<String> {
        let hasty = listener.async_client()?.with_timeout(Duration::from_millis(50));
        Ok(format!("{:?}", hasty.cancelled().await.unwrap_err().kind()))
    }
    async fn notes(
        &self,
        count: u64,
        listener: Callback<'_, dyn Listener>,
    ) -> peregrine::Result<()> {
        let listener = listener.async_client()?;
        for number in 0..count {
            listener.note(number).await?;
        }
        listener.flush().await
    }
    async fn many(
        &self,
        threads: u64,
        listener: Callback<'_, dyn Listener>,
    ) -> peregrine::Result<u64> {
        let listener = listener.async_client()?;
        let mut calls: Vec<_> =
            (20..20 + threads).map(|number| Box::pin(listener.double(number))).collect();
        let mut sum = 0;
        poll_fn(|context| {
            calls.retain_mut(|call| match call.as_mut().poll(context) {
                Poll::Ready(double) => {
                    sum += double.unwrap();
                    false
                }
                Poll::Pending => true,
            });
            if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        Ok(sum)
    }
    async fn keep(
        &self,
        number: u64,
        listener: Callback<'static, dyn Listener>,
    ) -> peregrine::Result<()> {
        Service::keep(&*self.0, number, listener)
    }
    async fn call(&self, number: u64, value: u64) -> peregrine::Result<u64> {
        let listener = self.0.listener(number);
        listener.async_client()?.double(value).await.map_err(failed)
    }
    async fn release(&self, number: u64) -> peregrine::Result<()> {
        Service::release(&*self.0, number)
    }
    async fn hold(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<()> {
        let listener = listener.async_client()?;
        while listener.double(1).await.is_ok() {}
        Ok(())
    }
    async fn kill(&self, killer: Callback<'_, dyn Double>) -> peregrine::Result<()> {
        killer.async_client()?.double(1).await.map(drop)
    }
}

/// The object of a caller.
pub(crate) struct Doubler {
    /// The client whose server the object calls in `again`.
    pub(crate) client: Option<ServiceClient>,
    pub(crate) notes: Mutex<Vec<u64>>,
    pub(crate) calls: AtomicU64,
    pub(crate) cancelled: AtomicBool,
}

impl Doubler {
    pub(crate) fn new(client: Option<&ServiceClient>) -> Self {
        let client = client.cloned();
        let (notes, calls) = (Mutex::default(), AtomicU64::new(0));
        Self { client, notes, calls, cancelled: AtomicBool::new(false) }
    }
}

impl Listener for Doubler {
    fn double(&self, number: u64) -> Result<u64, Refusal> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if number == 13 { Err(Refusal::Unwanted(13)) } else { Ok(2 * number) }
    }
    fn reverse(&self, bytes: &[u8], mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let reversed: Vec<u8> = bytes.iter().rev().copied().collect();
        into.put(&reversed).unwrap();
        Ok(())
    }
    fn increment(&self, numbers: &mut [u64]) -> peregrine::Result<()> {
        numbers.iter_mut().for_each(|number| *number += 1);
        Ok(())
    }
    fn panic(&self) -> peregrine::Result<()> {
        panic!("on purpose")
    }
    fn again(&self, depth: u32) -> peregrine::Result<u32> {
        let client = self.client.as_ref().unwrap();
        client.nest(depth, Callback::new(self))
    }
    fn count(&self, end: u64, mut numbers: Sink<'_, u64>) -> peregrine::Result<()> {
        (0..end).try_for_each(|number| numbers.send(number))
    }
    fn through(&self, number: u64, other: Callback<'_, dyn Listener>) -> peregrine::Result<u64> {
        other.double(number).map_err(failed)
    }
    fn cancelled(&self) -> peregrine::Result<()> {
        let caller = peregrine::caller().unwrap();
        until("the call is cancelled", || caller.is_cancelled());
        self.cancelled.store(true, Ordering::SeqCst);
        Ok(())
    }
    fn note(&self, number: u64) -> peregrine::Result<()> {
        self.notes.lock().unwrap().push(number);
        Ok(())
    }
}

/// Calls `test` with a client of each kind of server on each path, and with the object that the
/// server exports.
pub(crate) fn each(threads: usize, test: impl Fn(&ServiceClient, &Arc<Object>)) {
    let _alone = alone();
    let _directory = own_directory();
    for is_async in [false, true] {
        println!("async server: {is_async}");
        let object = Arc::new(Object::default());
        let client = match is_async {
            false => ServiceClient::in_process(Arc::clone(&object)),
            true => ServiceAsyncClient::in_process(Yielding(Arc::clone(&object))).into(),
        };
        test(&client, &object);
        let start = || {
            let object = Arc::new(Object::default());
            let server = Server::new().threads(threads);
            let server = match is_async {
                false => server.export("service", ServiceServer::new(Arc::clone(&object))),
                true => {
                    server.export("service", ServiceAsyncServer::new(Yielding(Arc::clone(&object))))
                }
            };
            (server.unwrap(), object)
        };
        on_each_path("service", start, |address, object| {
            test(&ServiceClient::bind(address).unwrap(), object);
        });
    }
}

#[test]
fn procedure_calls_the_object_of_its_caller() {
    each(2, |client, _| {
        for count in [0, 1, 2, 1000] {
            let doubler = Doubler::new(None);
            let numbers: Vec<u64> = (100..100 + count).collect();
            let doubles = client.doubles(&numbers, Callback::new(&doubler)).unwrap();
            assert!(doubles.into_iter().eq(numbers.iter().map(|number| 2 * number)));
            assert_eq!(doubler.calls.load(Ordering::SeqCst), count);
        }
        let refused = client.doubles(&[1, 13, 2], Callback::new(Doubler::new(None)));
        assert!(matches!(refused, Err(Refusal::Unwanted(13))), "{refused:?}");
    });
}

#[test]
fn callback_has_all_kinds_of_parameters() {
    each(2, |client, _| {
        for size in [0, 8, 1000, 60_000] {
            client.exchange(size, Callback::new(Doubler::new(None))).unwrap();
        }
        assert_eq!(client.sum(10_000, Callback::new(Doubler::new(None))).unwrap(), 49_995_000);
    });
}

#[test]
fn message_that_does_not_fit_is_refused() {
    each(2, |client, _| {
        let error = client.exchange(1 << 20, Callback::new(Doubler::new(None))).unwrap_err();
        assert_eq!(error.kind(), Kind::Relayed, "{error}");
        assert!(error.to_string().contains("the client sends at most"), "{error}");
    });
}

#[test]
fn panic_of_the_object_is_an_error_of_the_procedure() {
    each(2, |client, _| {
        let text = client.panics(Callback::new(Doubler::new(None))).unwrap();
        assert!(text.contains("on purpose"), "{text}");
    });
}

/// Some of the servers have one thread, which the outer procedure occupies. The nested calls must
/// run nevertheless.
#[test]
fn object_calls_the_server_that_calls_it() {
    each(1, |client, _| {
        for depth in [1, 2, 5] {
            let doubler = Doubler::new(Some(client));
            assert_eq!(client.nest(depth, Callback::new(&doubler)).unwrap(), depth);
        }
    });
}

#[test]
fn callbacks_are_passed_on() {
    each(2, |client, _| {
        let (first, second) = (Doubler::new(None), Arc::new(Doubler::new(None)));
        client.keep(1, Callback::new(Arc::clone(&second))).unwrap();
        assert_eq!(client.through(1, Callback::new(&first)).unwrap(), 8);
        let calls = |doubler: &Doubler| doubler.calls.load(Ordering::SeqCst);
        assert_eq!((calls(&first), calls(&second)), (0, 1));
    });
}

#[test]
fn call_of_a_callback_has_its_own_deadline() {
    each(2, |client, _| {
        let doubler = Doubler::new(None);
        // The deadline may pass before the object is called. The test then repeats the call.
        until("the object's method is cancelled", || {
            assert_eq!(client.hurry(Callback::new(&doubler)).unwrap(), "TimedOut");
            doubler.cancelled.load(Ordering::SeqCst)
        });
    });
}

#[test]
fn one_way_calls_of_a_callback_run_in_order() {
    each(2, |client, _| {
        let doubler = Doubler::new(None);
        client.notes(1000, Callback::new(&doubler)).unwrap();
        assert!(doubler.notes.into_inner().unwrap().into_iter().eq(0..1000));
    });
}

#[test]
fn threads_of_a_procedure_share_a_callback() {
    each(2, |client, _| {
        let doubler = Doubler::new(None);
        let sum = client.many(100, Callback::new(&doubler)).unwrap();
        assert_eq!(sum, 2 * (20..120).sum::<u64>());
    });
}

#[test]
fn future_runs_the_calls_of_callbacks() {
    each(2, |client, _| {
        let client = ServiceAsyncClient::from(client.clone());
        let doubler = Doubler::new(None);
        let doubles = block_on(client.doubles(&[1, 2, 3], Callback::new(&doubler)));
        assert_eq!(doubles.unwrap(), [2, 4, 6]);
        // The future may be dropped after any number of polls. Later calls must still succeed.
        for polls in 0..30 {
            let mut call = Box::pin(client.doubles(&[1, 2, 3], Callback::new(&doubler)));
            for _ in 0..polls {
                if block_on(poll_once(call.as_mut())).is_some() {
                    break;
                }
            }
        }
        let doubles = block_on(client.doubles(&[4], Callback::new(&doubler)));
        assert_eq!(doubles.unwrap(), [8]);
    });
}

/// An async object of a caller.
struct AsyncDoubler;

impl DoubleAsync for AsyncDoubler {
    async fn double(&self, number: u64) -> peregrine::Result<u64> {
        for _ in 0..number {
            futures_lite::future::yield_now().await;
        }
        Ok(2 * number)
    }
}

/// An interface whose object may be async.
#[interface]
pub(crate) trait Double {
    /// Returns twice the number.
    fn double(&self, number: u64) -> peregrine::Result<u64>;
}

/// A service that calls an object with async methods.
#[interface]
trait Doubles {
    /// Returns the doubles of the numbers.
    fn doubles(
        &self,
        numbers: &[u64],
        object: Callback<'_, dyn Double>,
    ) -> peregrine::Result<Vec<u64>>;
}

struct Serial;

impl Doubles for Serial {
    fn doubles(
        &self,
        numbers: &[u64],
        object: Callback<'_, dyn Double>,
    ) -> peregrine::Result<Vec<u64>> {
        numbers.iter().map(|number| object.double(*number)).collect()
    }
}

#[test]
fn methods_of_the_object_may_be_async() {
    let client = DoublesClient::in_process(Serial);
    let object = Callback::<dyn Double>::served(DoubleAsyncServer::new(AsyncDoubler)).unwrap();
    assert_eq!(object.double(7).unwrap(), 14);
    assert_eq!(client.doubles(&[0, 1, 9], object).unwrap(), [0, 2, 18]);
    let error = Callback::<dyn Double>::served(ServiceServer::new(Object::default())).unwrap_err();
    assert_eq!(error.kind(), Kind::InterfaceMismatch, "{error}");
}

#[test]
fn object_can_be_called_without_a_client() {
    let doubler = Doubler::new(None);
    let doubles = Object::default().doubles(&[3], Callback::new(&doubler));
    assert_eq!(doubles.unwrap(), [6]);
    let callback: Callback<'_, dyn Listener> = Callback::new(&doubler);
    assert!(callback.client().is_none());
}
