//! Counts exactly how often calls allocate for whose procedures the server keeps something.

mod support;

use std::task::Poll;

use peregrine::{BindOptions, Server, interface};
use support::futures::block_on;
use support::heap::{Counting, allocations};

#[global_allocator]
static COUNTING: Counting = Counting;

#[interface]
trait Counted {
    fn plain(&self, number: u32) -> peregrine::Result<u32>;
    #[at_most(8)]
    #[within(1000s)]
    fn limited(&self, number: u32) -> peregrine::Result<u32>;
}

struct Object;

impl Counted for Object {
    fn plain(&self, number: u32) -> peregrine::Result<u32> {
        Ok(number)
    }
    fn limited(&self, number: u32) -> peregrine::Result<u32> {
        Ok(number)
    }
}

/// Ends at the second poll, so that the call is deferred.
async fn later() {
    let mut polled = false;
    std::future::poll_fn(|context| {
        if core::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl CountedAsync for Object {
    async fn plain(&self, number: u32) -> peregrine::Result<u32> {
        later().await;
        Ok(number)
    }
    async fn limited(&self, number: u32) -> peregrine::Result<u32> {
        later().await;
        Ok(number)
    }
}

/// Returns how often each call allocates. Unrelated threads also allocate, but far less often than once in two
/// calls, so the result is rounded.
fn allocations_of(mut call: impl FnMut()) -> u64 {
    const CALLS: u64 = 200;
    let mut count = |calls| {
        let before = allocations();
        (0..calls).for_each(|_| call());
        allocations() - before
    };
    // The first calls of a thread may allocate what later calls use again.
    count(50);
    (count(2 * CALLS).saturating_sub(count(CALLS)) + CALLS / 2) / CALLS
}

/// Checks that calls of `limited` allocate as often as calls of `plain`, and returns how often this is.
#[track_caller]
fn allocate_the_same(mut plain: impl FnMut(), mut limited: impl FnMut()) -> u64 {
    let mut tries = Vec::new();
    for _ in 0..10 {
        let both = (allocations_of(&mut plain), allocations_of(&mut limited));
        if both.0 == both.1 {
            return both.0;
        }
        tries.push(both);
    }
    panic!("without and with a descriptor: {tries:?}");
}

fn start(server: Server) -> (peregrine::Running, Vec<String>) {
    let server = server.listen("tcp:127.0.0.1:0").unwrap().listen("udp:127.0.0.1:0").unwrap();
    let running = server.spawn().unwrap();
    let far = running.addresses().iter().map(|address| format!("{address}/counted"));
    let addresses = far.chain(["counted".to_owned()]).collect();
    (running, addresses)
}

#[test]
fn calls_with_descriptors_allocate_nothing() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let server = Server::new().census().export("counted", CountedServer::new(Object)).unwrap();
    let (_running, addresses) = start(server);
    for address in addresses {
        let client = CountedClient::bind(&address).unwrap();
        let [plain, limited] = [0, 1].map(|one| {
            let client = &client;
            move || match one {
                0 => assert_eq!(client.plain(7).unwrap(), 7),
                _ => assert_eq!(client.limited(7).unwrap(), 7),
            }
        });
        assert_eq!(allocate_the_same(plain, limited), 0, "{address}");
    }
}

#[test]
fn deferred_calls_with_descriptors_allocate_what_others_allocate() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let server = Server::new().census().export("counted", CountedAsyncServer::new(Object)).unwrap();
    let (_running, addresses) = start(server);
    for address in addresses {
        let options = BindOptions::default();
        let client = block_on(CountedAsyncClient::bind_with(&address, &options)).unwrap();
        let [plain, limited] = [0, 1].map(|one| {
            let client = &client;
            move || match one {
                0 => assert_eq!(block_on(client.plain(7)).unwrap(), 7),
                _ => assert_eq!(block_on(client.limited(7)).unwrap(), 7),
            }
        });
        assert!(allocate_the_same(plain, limited) > 0, "{address}");
    }
}
