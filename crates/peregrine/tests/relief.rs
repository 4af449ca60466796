//! Tests calls that share a batch at a server with blocking procedures, and that wait for each other. A
//! thread of the server runs the calls of a batch one after the other. So while a call waits, another thread
//! must run the later calls of the batch.
#![cfg(feature = "async")]

mod support;

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use peregrine::{BindOptions, Server, Wait, caller, interface};
use support::futures::{block_on, poll_once};
use support::{alone, own_directory, until};

#[interface]
trait Gates {
    /// Returns when the gate is open.
    fn wait(&self, gate: u32) -> peregrine::Result<()>;
    fn open(&self, gate: u32) -> peregrine::Result<()>;
    /// Returns when the gate is open, or the caller has given up the call.
    fn wait_unless_cancelled(&self, gate: u32) -> peregrine::Result<()>;
}

#[derive(Default)]
struct Object {
    open: Mutex<BTreeSet<u32>>,
    opened: Condvar,
    waiting: AtomicU32,
    cancelled: AtomicU32,
    runs: AtomicU32,
}

struct Shared(Arc<Object>);

impl Gates for Shared {
    fn wait(&self, gate: u32) -> peregrine::Result<()> {
        let Self(object) = self;
        object.runs.fetch_add(1, Ordering::SeqCst);
        let open = object.open.lock().unwrap();
        object.waiting.fetch_add(1, Ordering::SeqCst);
        drop(object.opened.wait_while(open, |open| !open.contains(&gate)).unwrap());
        object.waiting.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    fn open(&self, gate: u32) -> peregrine::Result<()> {
        self.0.runs.fetch_add(1, Ordering::SeqCst);
        self.0.open.lock().unwrap().insert(gate);
        self.0.opened.notify_all();
        Ok(())
    }

    fn wait_unless_cancelled(&self, gate: u32) -> peregrine::Result<()> {
        let Self(object) = self;
        object.waiting.fetch_add(1, Ordering::SeqCst);
        let mut open = object.open.lock().unwrap();
        while !open.contains(&gate) {
            if caller().is_some_and(|caller| caller.is_cancelled()) {
                object.cancelled.fetch_add(1, Ordering::SeqCst);
                break;
            }
            open = object.opened.wait_timeout(open, Duration::from_millis(1)).unwrap().0;
        }
        object.waiting.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

/// Runs a test on each path that has batches, with each way to wait.
fn each(test: impl Fn(&Object, &GatesAsyncClient)) {
    let _alone = alone();
    let _directory = own_directory();
    let object = Arc::new(Object::default());
    let server = Server::new().export("gates", GatesServer::new(Shared(Arc::clone(&object))));
    let server = server.unwrap().listen("udp:127.0.0.1:0").unwrap();
    let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let far = running.addresses().iter().map(|address| format!("{address}/gates"));
    let addresses: Vec<_> = std::iter::once("gates".to_owned()).chain(far).collect();
    for address in &addresses {
        for wait in [Wait::Adaptive, Wait::Spin, Wait::Block] {
            println!("{address}, {wait:?}");
            object.open.lock().unwrap().clear();
            let options = BindOptions::default().wait(wait);
            let client = block_on(GatesAsyncClient::bind_with(address, &options)).unwrap();
            // The client puts calls into batches only after it has observed that their procedures are fast.
            object.open.lock().unwrap().insert(0);
            for _ in 0..8 {
                // The client sends the first of several calls outside of a batch.
                let calls = [
                    boxed(client.open(0)),
                    boxed(client.wait(0)),
                    boxed(client.open(0)),
                    boxed(client.wait_unless_cancelled(0)),
                ];
                block_on(join_all(calls));
            }
            test(&object, &client);
        }
    }
}

/// Calls that were polled once.
type Begun<'a> = Vec<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>;

/// The gate at which two calls wait in two batches. Until it is open, the client sends no further calls.
const FULL: u32 = 100;

/// Begins calls while two other batches are outstanding, so that the client later sends these calls in one
/// batch.
fn in_one_batch<'a>(object: &Object, client: &'a GatesAsyncClient, calls: Begun<'a>) -> Begun<'a> {
    let mut begun: Begun<'a> = Vec::new();
    for count in [1, 2] {
        let mut call = boxed(client.wait_unless_cancelled(FULL));
        until("the call waits", || {
            assert!(poll_once(call.as_mut()).is_none());
            object.waiting.load(Ordering::SeqCst) == count
        });
        begun.push(call);
    }
    for mut call in calls {
        assert!(poll_once(call.as_mut()).is_none());
        begun.push(call);
    }
    object.open.lock().unwrap().insert(FULL);
    object.opened.notify_all();
    begun
}

fn boxed<'a>(
    call: impl Future<Output = peregrine::Result<()>> + Send + 'a,
) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
    Box::pin(call.map(Result::unwrap))
}

#[test]
fn call_waits_for_a_later_call_of_its_batch() {
    each(|object, client| {
        let calls = vec![boxed(client.wait(1)), boxed(client.open(1))];
        block_on(join_all(in_one_batch(object, client, calls)));
    });
}

/// The results of calls that have ended must arrive while a later call of their batch still waits.
#[test]
fn call_waits_for_what_the_client_does_after_an_earlier_one() {
    each(|object, client| {
        let opens = async {
            client.open(1).await?;
            client.open(2).await
        };
        let calls = vec![boxed(opens), boxed(client.wait(2))];
        block_on(join_all(in_one_batch(object, client, calls)));
    });
}

/// Each call waits for the gate that a later call opens. Each call runs once.
#[test]
fn chain_of_calls_that_wait_for_each_other_ends() {
    const CALLS: u32 = 6;
    each(|object, client| {
        let before = object.runs.load(Ordering::SeqCst);
        let waits = (1..=CALLS).map(|gate| {
            boxed(async move {
                client.wait(gate + 1).await?;
                client.open(gate).await
            })
        });
        let last = boxed(client.open(CALLS + 1));
        let calls = waits.chain([last]).collect();
        block_on(join_all(in_one_batch(object, client, calls)));
        let runs = object.runs.load(Ordering::SeqCst) - before;
        assert_eq!((runs, object.waiting.load(Ordering::SeqCst)), (2 * CALLS + 1, 0));
    });
}

/// A blocking procedure learns that the future of its call was dropped, although the call is in a batch.
#[test]
fn procedure_learns_that_its_caller_has_given_up() {
    each(|object, client| {
        let before = object.cancelled.load(Ordering::SeqCst);
        let calls = vec![boxed(client.wait_unless_cancelled(1)), boxed(client.wait(2))];
        let mut begun = in_one_batch(object, client, calls);
        let mut other = begun.pop().unwrap();
        let mut dropped = begun.pop().unwrap();
        block_on(join_all(begun));
        // A call that is given up before its procedure has begun does not run at all.
        until("both procedures wait", || {
            assert!(poll_once(dropped.as_mut()).is_none() && poll_once(other.as_mut()).is_none());
            object.waiting.load(Ordering::SeqCst) == 2
        });
        drop(dropped);
        until("the procedure has ended", || object.cancelled.load(Ordering::SeqCst) == before + 1);
        block_on(client.open(2)).unwrap();
        block_on(other);
        until("no procedure waits", || object.waiting.load(Ordering::SeqCst) == 0);
    });
}
