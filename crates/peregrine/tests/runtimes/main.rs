//! Tests async clients and servers under several runtimes.
#![cfg(feature = "tokio")]

mod kinds;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use kinds::{Bare, CurrentThread, Driver, MultiThread, Runtime, Smol};
use peregrine::{
    BindOptions, Binding, CallError, Executed, Kind, OnExhausted, Running, Server, Sink, interface,
};
use support::{alone, until};
use tokio::sync::{Notify, oneshot};

#[interface]
trait Work {
    /// Returns `value` after `ms` milliseconds.
    fn after(&self, ms: u32, value: u64) -> peregrine::Result<u64>;
    /// Returns the sum of `values`, which tasks of the runtime compute.
    fn sum(&self, values: &[u64]) -> peregrine::Result<u64>;
    /// Returns when `count` calls of this procedure run at the same time.
    fn meet(&self, count: u32) -> peregrine::Result<u32>;
    /// Never returns.
    fn never(&self) -> peregrine::Result<()>;
    /// Sends numbers until the caller wants no more.
    fn endless(&self, numbers: Sink<'_, u64>) -> peregrine::Result<()>;
}

/// The number of calls of `never` and `meet` that run.
#[derive(Default)]
struct Present {
    count: AtomicU32,
    changed: Notify,
}

impl Present {
    fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }
}

/// Counts a procedure until it ends or is dropped.
struct Stay(Arc<Present>);

impl Stay {
    fn begin(present: &Arc<Present>) -> Self {
        present.count.fetch_add(1, Ordering::SeqCst);
        present.changed.notify_waiters();
        Self(Arc::clone(present))
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Object<R> {
    runtime: R,
    present: Arc<Present>,
    /// The largest number of calls of `meet` that ran at the same time.
    met: AtomicU32,
}

impl<R: Runtime> WorkAsync for Object<R> {
    async fn after(&self, ms: u32, value: u64) -> peregrine::Result<u64> {
        // The second timer is made at a later poll. That poll, too, must be in the context of the runtime.
        for part in [ms / 2, ms - ms / 2] {
            self.runtime.sleep(Duration::from_millis(part.into())).await;
        }
        Ok(value)
    }
    async fn sum(&self, values: &[u64]) -> peregrine::Result<u64> {
        let parts = values.chunks(2).map(|part| {
            let (sum, result) = oneshot::channel();
            let (part, runtime) = (part.to_vec(), self.runtime.clone());
            let task = self.runtime.spawn(async move {
                runtime.sleep(Duration::from_millis(1)).await;
                let _ = sum.send(part.iter().sum::<u64>());
            });
            async {
                task.await;
                result.await.expect("the task ends")
            }
        });
        Ok(join_all(parts).await.iter().sum())
    }
    async fn meet(&self, count: u32) -> peregrine::Result<u32> {
        let _stay = Stay::begin(&self.present);
        loop {
            let changed = self.present.changed.notified();
            self.met.fetch_max(self.present.count(), Ordering::SeqCst);
            if self.met.load(Ordering::SeqCst) >= count {
                self.present.changed.notify_waiters();
                return Ok(count);
            }
            changed.await;
        }
    }
    async fn never(&self) -> peregrine::Result<()> {
        let _stay = Stay::begin(&self.present);
        std::future::pending().await
    }
    async fn endless(&self, mut numbers: Sink<'_, u64>) -> peregrine::Result<()> {
        let _stay = Stay::begin(&self.present);
        for number in 0.. {
            numbers.send_async(number).await?;
        }
        Ok(())
    }
}

/// A client and a server, each with a separate runtime. `runtime` and `driver` are those of the client.
struct Pair<R> {
    client: WorkAsyncClient,
    runtime: R,
    present: Arc<Present>,
    driver: Option<Driver>,
    server_driver: Option<Driver>,
    _running: Option<Running>,
}

const PATHS: [&str; 2] = ["in process", "local"];

impl<R: Runtime> Pair<R> {
    fn new(path: &str, options: &BindOptions) -> Self {
        let ((runtime, driver), (server, server_driver)) = (R::start(), R::start());
        let present = Arc::<Present>::default();
        let executor = server.executor();
        let object =
            Object { runtime: server, present: Arc::clone(&present), met: AtomicU32::new(0) };
        let server = WorkAsyncServer::new(object);
        let server = match executor {
            Some(executor) => server.with_executor(executor),
            None => server,
        };
        let (client, running) = if path == "local" {
            let name = format!("work-{}", std::process::id());
            let running = Server::new().export(&name, server).unwrap().spawn().unwrap();
            let client = WorkAsyncClient::bind_with(&name, options);
            (runtime.block_on(client).unwrap(), Some(running))
        } else {
            let binding =
                Binding::in_process_as(WorkClient::INTERFACE, Arc::new(server), options).unwrap();
            (WorkAsyncClient { binding }, None)
        };
        let (driver, server_driver) = (Some(driver), Some(server_driver));
        Self { client, runtime, present, driver, server_driver, _running: running }
    }

    fn each(options: &BindOptions, test: impl Fn(Self)) {
        for path in PATHS {
            println!("{path}, {}", std::any::type_name::<R>());
            test(Self::new(path, options));
        }
    }

    fn is_present(&self, count: u32) {
        until("the procedures run, or have ended", || self.present.count() == count);
    }
}

/// Runs a test with each runtime.
macro_rules! with_each_runtime {
    ($test:ident) => {{
        let _alone = alone();
        let _directory = support::own_directory();
        $test::<Bare>();
        $test::<CurrentThread>();
        $test::<MultiThread>();
        $test::<Smol>();
    }};
}

#[test]
fn procedures_use_timers_tasks_and_channels_of_their_runtime() {
    fn test<R: Runtime>() {
        Pair::<R>::each(&BindOptions::default(), |Pair { client, runtime, .. }| {
            runtime.block_on(async {
                assert_eq!(client.after(6, 7).await.unwrap(), 7);
                assert_eq!(client.sum(&[1, 2, 3, 4, 5]).await.unwrap(), 15);
            });
        });
    }
    with_each_runtime!(test);
}

/// Returns options with which `count` calls may be in flight.
fn in_flight(count: u32) -> BindOptions {
    BindOptions::default().astacks(count).on_exhausted(OnExhausted::Wait)
}

#[test]
fn thousand_calls_of_one_task_run_at_the_same_time() {
    const CALLS: u32 = 1000;
    fn test<R: Runtime>() {
        Pair::<R>::each(&in_flight(CALLS), |Pair { client, runtime, .. }| {
            let all = join_all((0..CALLS).map(|_| client.meet(CALLS)));
            let met = runtime.block_on(all);
            assert!(met.iter().all(|met| matches!(met, Ok(CALLS))), "{met:?}");
        });
    }
    with_each_runtime!(test);
}

#[test]
fn thousand_calls_of_one_task_share_few_frames() {
    fn test<R: Runtime>() {
        for options in [BindOptions::default(), in_flight(3)] {
            Pair::<R>::each(&options, |Pair { client, runtime, .. }| {
                runtime.block_on(async {
                    let calls = (0..1000).map(|value| client.after((value % 2) as u32, value));
                    let mut calls: FuturesUnordered<_> = calls.collect();
                    let mut sum = 0;
                    while let Some(value) = calls.next().await {
                        sum += value.unwrap();
                    }
                    assert_eq!(sum, (0..1000).sum::<u64>());
                });
            });
        }
    }
    with_each_runtime!(test);
}

#[test]
fn calls_that_lose_a_race_are_given_up() {
    fn test<R: Runtime>() {
        Pair::<R>::each(&in_flight(4), |pair| {
            let Pair { client, runtime, .. } = &pair;
            runtime.block_on(async {
                // Later rounds use the frames of the dropped calls again.
                for round in 0..20 {
                    let value = tokio::select! {
                        value = client.after(1, round) => value.unwrap(),
                        _ = client.never() => unreachable!(),
                    };
                    assert_eq!(value, round);
                    tokio::select! {
                        _ = client.never() => unreachable!(),
                        () = runtime.sleep(Duration::from_millis(1)) => {}
                    }
                }
            });
            pair.is_present(0);
        });
    }
    with_each_runtime!(test);
}

#[test]
fn timeouts_of_tokio_give_up_calls() {
    let _alone = alone();
    let _directory = support::own_directory();
    Pair::<CurrentThread>::each(&in_flight(2), |pair| {
        pair.runtime.block_on(async {
            let limit = Duration::from_millis(5);
            let late = || tokio::time::timeout(limit, pair.client.never());
            assert!(late().await.is_err() && late().await.is_err());
            let in_time = tokio::time::timeout(Duration::from_secs(20), pair.client.after(0, 3));
            assert_eq!(in_time.await.expect("in time").unwrap(), 3);
        });
        pair.is_present(0);
    });
}

/// Returns how a call failed.
fn outcome<T: std::fmt::Debug>(result: peregrine::Result<T>) -> (Kind, Executed) {
    let error: CallError = result.expect_err("the call fails");
    (error.kind(), error.executed())
}

#[test]
fn calls_fail_when_the_runtime_of_the_server_is_shut_down() {
    const CALLS: u32 = 20;
    fn test<R: Runtime>() {
        Pair::<R>::each(&in_flight(2 * CALLS), |mut pair| {
            let (client, runtime) = (pair.client.clone(), pair.runtime.clone());
            let blocking = WorkClient::from(client.clone());
            thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..CALLS).map(|_| scope.spawn(|| outcome(blocking.never()))).collect();
                let tasks = scope.spawn(|| {
                    let calls = (0..CALLS).map(|call| {
                        let client = &client;
                        async move {
                            match call % 2 {
                                0 => client.never().await,
                                _ => client.endless(Sink::new(drop)).await,
                            }
                        }
                    });
                    let all = runtime.block_on(join_all(calls));
                    all.into_iter().map(outcome).collect::<Vec<_>>()
                });
                pair.is_present(2 * CALLS);
                drop(pair.server_driver.take());
                let threads = threads.into_iter().map(|thread| thread.join().unwrap());
                for (kind, executed) in threads.chain(tasks.join().unwrap()) {
                    assert_eq!((kind, executed), (Kind::Withdrawn, Executed::Maybe));
                }
            });
            // Later calls fail without waiting. The client must report that they may have been executed.
            for _ in 0..2 * CALLS {
                assert_eq!(outcome(blocking.never()).1, Executed::Maybe);
                assert_eq!(outcome(runtime.block_on(client.never())).1, Executed::Maybe);
            }
            pair.is_present(0);
        });
    }
    let _alone = alone();
    let _directory = support::own_directory();
    test::<CurrentThread>();
    test::<MultiThread>();
    test::<Smol>();
}

#[test]
fn procedures_are_dropped_when_the_runtime_of_the_client_is_shut_down() {
    const CALLS: u32 = 20;
    fn test<R: Runtime>() {
        Pair::<R>::each(&in_flight(CALLS), |mut pair| {
            let tasks: Vec<_> = (0..CALLS)
                .map(|call| {
                    let client = pair.client.clone();
                    pair.runtime.spawn(async move {
                        match call % 2 {
                            0 => drop(client.never().await),
                            _ => drop(client.endless(Sink::new(drop)).await),
                        }
                    })
                })
                .collect();
            pair.is_present(CALLS);
            drop((pair.driver.take(), tasks));
            pair.is_present(0);
            // The frames of the dropped calls are free again.
            let blocking = WorkClient::from(pair.client.clone());
            for value in 0..2 * u64::from(CALLS) {
                assert_eq!(blocking.after(0, value).unwrap(), value);
            }
        });
    }
    let _alone = alone();
    let _directory = support::own_directory();
    test::<CurrentThread>();
    test::<MultiThread>();
    test::<Smol>();
}

#[test]
fn blocking_and_async_clients_share_a_binding() {
    fn test<R: Runtime>() {
        Pair::<R>::each(&in_flight(3), |Pair { client, runtime, .. }| {
            let blocking = WorkClient::from(client.clone());
            thread::scope(|scope| {
                for _ in 0..6 {
                    scope.spawn(|| {
                        for value in 0..100 {
                            assert_eq!(blocking.after((value % 3) as u32, value).unwrap(), value);
                        }
                    });
                }
                runtime.block_on(async {
                    let all =
                        join_all((0..300).map(|value| client.after((value % 3) as u32, value)));
                    assert!(all.await.into_iter().map(Result::unwrap).eq(0..300));
                });
            });
        });
    }
    with_each_runtime!(test);
}

#[test]
fn blocking_threads_of_tokio_make_blocking_calls() {
    let _alone = alone();
    let _directory = support::own_directory();
    Pair::<MultiThread>::each(&in_flight(3), |Pair { client, runtime, .. }| {
        let blocking = WorkClient::from(client.clone());
        runtime.block_on(async {
            let threads = (0..50).map(|value| {
                let blocking = blocking.clone();
                tokio::task::spawn_blocking(move || blocking.after(1, value))
            });
            let all = join_all(threads.zip(0..50).map(|(thread, value)| {
                let client = &client;
                async move {
                    let both = tokio::join!(thread, client.after(1, value));
                    (both.0.expect("the thread ends").unwrap(), both.1.unwrap())
                }
            }));
            for (value, both) in (0..).zip(all.await) {
                assert_eq!(both, (value, value));
            }
        });
    });
}
