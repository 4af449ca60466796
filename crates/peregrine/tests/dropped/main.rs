//! Tests futures that are dropped before their calls end. No frame is lost, and no procedure remains.
#![cfg(feature = "async")]

mod polls;
mod servers;
#[path = "../support/mod.rs"]
mod support;
mod waiting;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use peregrine::{BindOptions, Binding, Lent, OnExhausted, Out, Running, Server, Wait, interface};
use polls::{Polled, block_on, polled, yielded};
use support::{alone, until};

/// Only a failing test reaches this limit.
const LONG: Duration = Duration::from_secs(20);

#[interface]
trait Forms {
    fn values(&self, a: u64, b: &u64) -> peregrine::Result<u64>;
    fn texts(&self, one: &str, more: &[String]) -> peregrine::Result<String>;
    fn in_out(&self, values: &mut [u32], name: &mut String) -> peregrine::Result<()>;
    fn mixed(&self, words: &mut [String], bytes: &[u8]) -> peregrine::Result<u64>;
    fn buffers(&self, from: Lent<'_, u8>, into: Out<'_, u8>) -> peregrine::Result<u64>;
    /// Returns when the server has received `count` calls of this procedure in total.
    fn meet(&self, count: u32) -> peregrine::Result<()>;
    /// Returns after the test has opened the latch. A call with a large `ballast` shares no batch with other
    /// calls.
    fn wait(&self, latch: u32, ballast: &[u8]) -> peregrine::Result<()>;
    /// Makes nested calls of itself, `depth` deep, through the client of the test.
    fn nest(&self, depth: u32) -> peregrine::Result<u32>;
}

/// What a test sees of its server.
#[derive(Default)]
struct Seen {
    /// The number of procedures that have begun, and have neither ended nor been dropped.
    running: AtomicU32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    met: u32,
    open: BTreeSet<u32>,
    /// The latches for which procedures have begun to wait.
    begun: BTreeSet<u32>,
    /// The client through which procedures make calls.
    client: Option<FormsAsyncClient>,
    wakers: Vec<std::task::Waker>,
}

/// A running procedure, which [`Seen::running`] counts until this value is dropped.
struct Runs<'a>(&'a Seen);

impl<'a> Runs<'a> {
    fn begin(seen: &'a Seen) -> Self {
        seen.running.fetch_add(1, Ordering::SeqCst);
        Self(seen)
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Seen {
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap();
        change(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.changed.notify_all();
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// Blocks this thread until `ends` returns true.
    fn block(&self, ends: impl Fn(&State) -> bool) {
        let state = self.state.lock().unwrap();
        let waited = self.changed.wait_timeout_while(state, LONG, |state| !ends(state)).unwrap();
        assert!(!waited.1.timed_out(), "nothing ended the wait");
    }

    async fn until(&self, ends: impl Fn(&State) -> bool) {
        std::future::poll_fn(|context| {
            let mut state = self.state.lock().unwrap();
            if ends(&state) {
                return std::task::Poll::Ready(());
            }
            state.wakers.push(context.waker().clone());
            std::task::Poll::Pending
        })
        .await;
    }

    fn running(&self) -> u32 {
        self.running.load(Ordering::SeqCst)
    }

    fn open(&self, latch: u32) {
        self.change(|state| {
            let _ = state.open.insert(latch);
        });
    }

    fn client(&self) -> FormsAsyncClient {
        self.state.lock().unwrap().client.clone().expect("the client of the test")
    }
}

#[derive(Clone)]
struct Blocking(Arc<Seen>);

impl Forms for Blocking {
    fn values(&self, a: u64, b: &u64) -> peregrine::Result<u64> {
        Ok(a + b)
    }
    fn texts(&self, one: &str, more: &[String]) -> peregrine::Result<String> {
        Ok(format!("{one}{}", more.concat()))
    }
    fn in_out(&self, values: &mut [u32], name: &mut String) -> peregrine::Result<()> {
        values.reverse();
        name.push('!');
        Ok(())
    }
    fn mixed(&self, words: &mut [String], bytes: &[u8]) -> peregrine::Result<u64> {
        words.reverse();
        Ok(bytes.iter().map(|byte| u64::from(*byte)).sum())
    }
    fn buffers(&self, from: Lent<'_, u8>, mut into: Out<'_, u8>) -> peregrine::Result<u64> {
        let mut bytes = vec![0; from.len()];
        from.copy_to(0, &mut bytes).expect("the buffer arrives");
        into.put(&bytes).expect("the buffers have the same size");
        Ok(bytes.len() as u64)
    }
    fn meet(&self, count: u32) -> peregrine::Result<()> {
        self.0.change(|state| state.met += 1);
        self.0.block(|state| state.met >= count);
        Ok(())
    }
    fn wait(&self, latch: u32, _ballast: &[u8]) -> peregrine::Result<()> {
        self.0.change(|state| {
            let _ = state.begun.insert(latch);
        });
        let _runs = Runs::begin(&self.0);
        self.0.block(|state| state.open.contains(&latch));
        Ok(())
    }
    fn nest(&self, depth: u32) -> peregrine::Result<u32> {
        let client = self.0.client();
        if depth == 0 { Ok(0) } else { Ok(FormsClient::from(client).nest(depth - 1)? + 1) }
    }
}

/// Yields to the executor several times before each result.
struct Yielding(Blocking);

impl FormsAsync for Yielding {
    async fn values(&self, a: u64, b: &u64) -> peregrine::Result<u64> {
        let _runs = Runs::begin(&self.0.0);
        yielded(3).await;
        self.0.values(a, b)
    }
    async fn texts(&self, one: &str, more: &[String]) -> peregrine::Result<String> {
        let _runs = Runs::begin(&self.0.0);
        yielded(2).await;
        self.0.texts(one, more)
    }
    async fn in_out(&self, values: &mut [u32], name: &mut String) -> peregrine::Result<()> {
        let _runs = Runs::begin(&self.0.0);
        self.0.in_out(values, name)?;
        yielded(3).await;
        Ok(())
    }
    async fn mixed(&self, words: &mut [String], bytes: &[u8]) -> peregrine::Result<u64> {
        let _runs = Runs::begin(&self.0.0);
        yielded(1).await;
        self.0.mixed(words, bytes)
    }
    async fn buffers(&self, from: Lent<'_, u8>, into: Out<'_, u8>) -> peregrine::Result<u64> {
        let _runs = Runs::begin(&self.0.0);
        yielded(3).await;
        self.0.buffers(from, into)
    }
    async fn meet(&self, count: u32) -> peregrine::Result<()> {
        self.0.0.change(|state| state.met += 1);
        self.0.0.until(|state| state.met >= count).await;
        Ok(())
    }
    async fn wait(&self, latch: u32, _ballast: &[u8]) -> peregrine::Result<()> {
        self.0.0.change(|state| {
            let _ = state.begun.insert(latch);
        });
        let _runs = Runs::begin(&self.0.0);
        self.0.0.until(|state| state.open.contains(&latch)).await;
        Ok(())
    }
    async fn nest(&self, depth: u32) -> peregrine::Result<u32> {
        yielded(1).await;
        let client = self.0.0.client();
        if depth == 0 { Ok(0) } else { Ok(client.nest(depth - 1).await? + 1) }
    }
}

/// A server, and an async client of it.
struct Pair {
    client: FormsAsyncClient,
    seen: Arc<Seen>,
    running: Option<Running>,
}

/// Returns a name that no other export has.
fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("forms-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The number of frames of each binding.
const FRAMES: u32 = 2;

/// A ballast for [`Forms::wait`] that keeps the call out of batches.
const ALONE: &[u8] = &[0; 4000];

impl Pair {
    fn new(path: &str, is_async: bool, options: &BindOptions) -> Self {
        let seen = Arc::<Seen>::default();
        let blocking = Blocking(Arc::clone(&seen));
        let (mut server, mut binding, name) = (Server::new(), None, name());
        match (path, is_async) {
            ("local", true) => {
                let serve = FormsAsyncServer::new(Yielding(blocking));
                server = server.export(&name, serve).unwrap();
            }
            ("local", false) => server = server.export(&name, FormsServer::new(blocking)).unwrap(),
            (_, true) => {
                let serve = Arc::new(FormsAsyncServer::new(Yielding(blocking)));
                binding = Some(Binding::in_process_as(FormsClient::INTERFACE, serve, options));
            }
            (_, false) => {
                let serve = Arc::new(FormsServer::new(blocking));
                binding = Some(Binding::in_process_as(FormsClient::INTERFACE, serve, options));
            }
        }
        let (client, running) = match binding {
            Some(binding) => (FormsAsyncClient { binding: binding.unwrap() }, None),
            None => {
                let running = server.spawn().unwrap();
                let client = block_on(FormsAsyncClient::bind_with(&name, options)).unwrap();
                (client, Some(running))
            }
        };
        Self { client, seen, running }
    }

    /// Returns options of a binding with `frames` frames.
    fn options(frames: u32) -> BindOptions {
        BindOptions::default().astacks(frames).on_exhausted(OnExhausted::Wait)
    }

    /// Runs a test as [`each`](Self::each) does. Over the local path, the test then runs once more while
    /// another call is pending, so that the test's calls share batches.
    fn each_in_company(test: impl Fn(&mut Self, bool)) {
        Self::each(|pair, is_async| {
            test(pair, is_async);
            pair.check();
            if pair.running.is_none() {
                return;
            }
            println!("in batches");
            let options = Self::options(FRAMES + 1).wait(Wait::Block);
            let mut pair = Self::new("local", is_async, &options);
            let company = pair.client.clone();
            let mut company = waiting::Pending::new(&company, 0, ALONE);
            test(&mut pair, is_async);
            pair.seen.open(0);
            company.poll_to_end();
            pair.check();
        });
    }

    /// Runs a test with each path, kind of server, and way to wait.
    fn each(test: impl Fn(&mut Self, bool)) {
        let _alone = alone();
        let _directory = support::own_directory();
        for path in ["in process", "local"] {
            for is_async in [false, true] {
                for wait in [Wait::Adaptive, Wait::Block] {
                    println!("{path}, async: {is_async}, {wait:?}");
                    let options = Self::options(FRAMES).wait(wait);
                    test(&mut Self::new(path, is_async, &options), is_async);
                }
            }
        }
    }

    fn runs(&self, count: u32) {
        let what = format!("{count} procedures run");
        until(&what, || self.seen.running() == count);
    }

    /// Checks that no procedure of an earlier call still runs, and that no frame was lost: all [`FRAMES`]
    /// frames can carry calls at the same time.
    fn check(&self) {
        self.runs(0);
        let met = self.seen.state.lock().unwrap().met + FRAMES;
        let client = self.client.with_timeout(LONG);
        // Each call needs a separate thread, because a blocking server within the process runs the procedure
        // on the caller's thread.
        thread::scope(|scope| {
            for _ in 0..FRAMES {
                scope.spawn(|| block_on(client.meet(met)).expect("a frame was lost"));
            }
        });
    }
}

/// Makes the same call again and again. Drops the first future without a poll, the next after 1 poll, then
/// after 2, and so on, until a call completes.
macro_rules! drop_after_each_poll {
    ($pair:expr, $rounds:expr, $make:expr) => {{
        let mut dropped = 0;
        for _ in 0..$rounds {
            for polls in 0.. {
                match polled(polls, $make(&$pair.client)) {
                    Polled::Ended(result) => {
                        result.expect("a call that is not dropped succeeds");
                        break;
                    }
                    Polled::Dropped => dropped += 1,
                }
            }
        }
        println!("{dropped} calls were dropped");
    }};
}

const ROUNDS: u32 = 30;

#[test]
fn binding_works_after_calls_with_values_were_dropped() {
    Pair::each_in_company(|pair, _| {
        drop_after_each_poll!(pair, ROUNDS, |client: &FormsAsyncClient| {
            let client = client.clone();
            async move { client.values(1, &2).await.map(|sum| assert_eq!(sum, 3)) }
        });
    });
}

#[test]
fn binding_works_after_calls_with_texts_were_dropped() {
    let more = ["b".repeat(3000), "c".to_owned()];
    let all = format!("a{}", more.concat());
    Pair::each_in_company(|pair, _| {
        drop_after_each_poll!(pair, ROUNDS, |client: &FormsAsyncClient| {
            let (client, more, all) = (client.clone(), &more, &all);
            async move { client.texts("a", more).await.map(|text| assert_eq!(text, *all)) }
        });
    });
}

#[test]
fn arguments_of_a_dropped_call_are_unchanged() {
    Pair::each_in_company(|pair, _| {
        let words = || ["one".to_owned(), "two".to_owned()];
        for round in 0..ROUNDS {
            for polls in 0.. {
                let (mut values, mut name) = ([1, 2, 3], "name".to_owned());
                let call = pair.client.in_out(&mut values, &mut name);
                match polled(polls, call) {
                    Polled::Dropped => assert_eq!((values, &*name), ([1, 2, 3], "name")),
                    Polled::Ended(result) => {
                        result.unwrap();
                        assert_eq!((values, &*name), ([3, 2, 1], "name!"));
                        break;
                    }
                }
            }
            for polls in 0.. {
                let (mut mixed, bytes) = (words(), vec![1; 10_000 * round as usize]);
                let call = pair.client.mixed(&mut mixed, &bytes);
                match polled(polls, call) {
                    Polled::Dropped => assert_eq!(mixed, words()),
                    Polled::Ended(result) => {
                        assert_eq!(result.unwrap(), bytes.len() as u64);
                        assert_eq!(mixed, ["two".to_owned(), "one".to_owned()]);
                        break;
                    }
                }
            }
        }
    });
}

#[test]
fn buffers_of_a_dropped_call_are_unchanged() {
    Pair::each_in_company(|pair, _| {
        for size in [0, 1, 5000, 300_000] {
            let from: Vec<u8> = (0..size).map(|n| n as u8).collect();
            for _ in 0..ROUNDS / 3 {
                for polls in 0.. {
                    let mut into = Vec::with_capacity(size as usize);
                    let lent = Lent::from(&from[..]);
                    let call = pair.client.buffers(lent, Out::from(&mut into));
                    match polled(polls, call) {
                        Polled::Dropped => assert!(into.is_empty()),
                        Polled::Ended(result) => {
                            assert_eq!(result.unwrap(), size);
                            assert_eq!(into, from);
                            break;
                        }
                    }
                }
            }
        }
    });
}
