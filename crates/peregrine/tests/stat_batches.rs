//! Checks that a server counts calls that arrive in batches in the same way as calls outside of batches, and
//! that it does not count the batches themselves.
#![cfg(feature = "async")]

mod support;

use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Poll, Waker};

use futures_util::future::{join_all as join_all_of, select};
use peregrine::call::Serve;
use peregrine::counters::Counts;
use peregrine::{BindOptions, CallError, Out, Running, Server, interface, stat};
use support::futures::{block_on, join_all, yielded};
use support::{alone, own_directory, until};

#[interface]
trait Work {
    fn null(&self) -> peregrine::Result<()>;
    fn size(&self, text: &str) -> Result<u64, Refused>;
    fn fill(&self, bytes: u32, into: Out<'_, u8>) -> peregrine::Result<()>;
    /// Returns when `calls` calls of this procedure wait.
    fn meet(&self, calls: u32) -> peregrine::Result<()>;
}

/// The error that the procedure `size` returns.
#[derive(Debug, peregrine::Value)]
enum Refused {
    Empty,
    Failed(String),
}

impl From<CallError> for Refused {
    fn from(error: CallError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The number of calls of `meet` that have begun at async servers.
static MET: AtomicU32 = AtomicU32::new(0);

/// An object whose procedures, except `meet`, return without waiting.
#[derive(Default)]
struct Object {
    met: Mutex<(u32, Vec<Waker>)>,
}

impl Work for Object {
    fn null(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn size(&self, text: &str) -> Result<u64, Refused> {
        if text.is_empty() { Err(Refused::Empty) } else { Ok(text.len() as u64) }
    }
    fn fill(&self, bytes: u32, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        into.put(&vec![7; bytes as usize]).expect("enough space");
        Ok(())
    }
    fn meet(&self, _: u32) -> peregrine::Result<()> {
        Ok(())
    }
}

/// An object whose async procedures end at their second poll or later.
#[derive(Default)]
struct Yielding(Object);

impl WorkAsync for Yielding {
    async fn null(&self) -> peregrine::Result<()> {
        yielded().await;
        self.0.null()
    }
    async fn size(&self, text: &str) -> Result<u64, Refused> {
        yielded().await;
        self.0.size(text)
    }
    async fn fill(&self, bytes: u32, into: Out<'_, u8>) -> peregrine::Result<()> {
        yielded().await;
        self.0.fill(bytes, into)
    }
    async fn meet(&self, calls: u32) -> peregrine::Result<()> {
        let mut is_new = true;
        std::future::poll_fn(|context| {
            let mut met = self.0.met.lock().unwrap();
            if std::mem::take(&mut is_new) {
                met.0 += 1;
                MET.fetch_add(1, Ordering::SeqCst);
            }
            if met.0 < calls {
                met.1.push(context.waker().clone());
                return Poll::Pending;
            }
            let wakers = std::mem::take(&mut met.1);
            drop(met);
            wakers.into_iter().for_each(Waker::wake);
            Poll::Ready(())
        })
        .await;
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

/// Returns the counts of the export since `before`, after all calls have ended.
fn counted(before: &Counts) -> Counts {
    let mut now = Counts::default();
    until("no call is in flight", || {
        now = stat("work").unwrap().export("work").unwrap().counts;
        now.in_flight == 0
    });
    Counts {
        calls: now.calls - before.calls,
        in_flight: 0,
        refused: now.refused - before.refused,
        failed: now.failed - before.failed,
        bytes_in: now.bytes_in - before.bytes_in,
        bytes_out: now.bytes_out - before.bytes_out,
    }
}

/// Waits until [`CALLS`] calls are counted, and returns the counts as [`counted`] does. A server counts a
/// deferred call only after it has sent the result.
fn all_counted(before: &Counts) -> Counts {
    let mut counts = Counts::default();
    until("all calls are counted", || {
        counts = counted(before);
        counts.calls >= CALLS.into()
    });
    counts
}

fn now() -> Counts {
    counted(&Counts::default())
}

const CALLS: u32 = 1000;

/// Makes call number `number`.
async fn call(client: &WorkAsyncClient, number: u32) {
    match number % 4 {
        0 => client.null().await.unwrap(),
        1 => assert_eq!(client.size("peregrine").await.unwrap(), 9),
        2 => assert!(matches!(client.size("").await, Err(Refused::Empty))),
        _ => {
            let mut into = Vec::with_capacity(200);
            client.fill(100, Out::from(&mut into)).await.unwrap();
            assert_eq!(into, [7; 100]);
        }
    }
}

fn counts_agree(server: impl Serve + 'static) {
    let _alone = alone();
    let _directory = own_directory();
    let (_running, addresses) = serve(server);
    for address in addresses {
        // With few frames, almost all calls share batches.
        let options = BindOptions::default().astacks(2);
        let client = &block_on(WorkAsyncClient::bind_with(&address, &options)).unwrap();
        let before = now();
        for number in 0..CALLS {
            block_on(call(client, number));
        }
        let alone = all_counted(&before);
        assert_eq!((alone.calls, alone.failed), (CALLS.into(), u64::from(CALLS) / 4), "{address}");
        let before = now();
        drop(join_all((0..CALLS).map(|number| call(client, number))));
        let mut together = all_counted(&before);
        if !address.starts_with("work") {
            // Over networks, a result is sent without the unfilled part of a buffer. So the two values
            // of `bytes_out` may differ.
            together.bytes_out = alone.bytes_out;
        }
        assert_eq!(together, alone, "{address}");
    }
    let latency = stat("work").unwrap().export("work").unwrap().latency.percentile(0.5);
    assert!(latency.is_some(), "calls were timed");
}

#[test]
fn calls_in_batches_are_counted_as_calls_made_alone() {
    counts_agree(WorkServer::new(Object::default()));
}

#[test]
fn deferred_calls_in_batches_are_counted_as_calls_made_alone() {
    counts_agree(WorkAsyncServer::new(Yielding::default()));
}

/// The server must not count a batch that waits for results, nor an empty batch, as a call.
#[test]
fn batches_that_wait_are_not_counted() {
    let _alone = alone();
    let _directory = own_directory();
    let (_running, addresses) = serve(WorkAsyncServer::new(Yielding::default()));
    let mut met = 0;
    for address in addresses {
        let client = &block_on(WorkAsyncClient::bind(&address)).unwrap();
        let before = now();
        met += CALLS;
        for result in join_all((0..CALLS).map(|_| client.meet(met))) {
            result.unwrap();
        }
        let counts = all_counted(&before);
        assert_eq!(
            (counts.calls, counts.failed, counts.refused),
            (CALLS.into(), 0, 0),
            "{address}"
        );
    }
}

/// The server drops the procedures of calls whose futures were dropped.
#[test]
fn dropped_calls_are_counted_as_failed() {
    let _alone = alone();
    let _directory = own_directory();
    let (_running, addresses) = serve(WorkAsyncServer::new(Yielding::default()));
    let client = &block_on(WorkAsyncClient::bind(&addresses[0])).unwrap();
    let before = now();
    let begun = MET.load(Ordering::SeqCst);
    let calls = join_all_of((0..100).map(|_| client.meet(u32::MAX)));
    let all_begun = std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        if MET.load(Ordering::SeqCst) == begun + 100 { Poll::Ready(()) } else { Poll::Pending }
    });
    // The calls are dropped as soon as all of them have begun.
    block_on(select(pin!(calls), pin!(all_begun)));
    let mut counts = Counts::default();
    until("the server has dropped the procedures", || {
        counts = counted(&before);
        counts.calls == 100
    });
    assert_eq!((counts.failed, counts.refused), (100, 0));
}
