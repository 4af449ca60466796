//! Tests that the memory, the descriptors and the threads of a server stay within bounds while 100,000 calls
//! wait.
#![cfg(feature = "async")]

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use futures_util::future::join_all;
use peregrine::{Server, interface};
use support::futures::block_on;
use support::{Process, alone, descriptors, own_directory, role, until};

/// The number of calls of each client process. A server has at most 131,072 deferred calls. A process may
/// have at most a quarter of the number that is left when the process makes its calls.
const CALLS: [u32; 7] = [26_000, 20_500, 16_500, 13_000, 10_500, 8000, 5500];
/// The number of bytes of the server's memory that a waiting call may occupy.
const BYTES_A_CALL: u64 = 1024;

#[interface]
trait Waits {
    /// Waits until `open` is called. Returns twice the number.
    fn wait(&self, number: u32) -> peregrine::Result<u32>;
    fn waiting(&self) -> peregrine::Result<u32>;
    fn open(&self) -> peregrine::Result<()>;
}

#[derive(Default)]
struct Object {
    waiting: AtomicU32,
    /// The wakers of the calls that wait. `None` after `open` was called.
    wakers: Mutex<Option<Vec<Waker>>>,
}

impl WaitsAsync for Arc<Object> {
    async fn wait(&self, number: u32) -> peregrine::Result<u32> {
        let mut is_new = true;
        std::future::poll_fn(|context| {
            let mut wakers = self.wakers.lock().unwrap();
            let Some(wakers) = &mut *wakers else { return Poll::Ready(()) };
            if std::mem::take(&mut is_new) {
                self.waiting.fetch_add(1, Ordering::SeqCst);
            }
            wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
        Ok(2 * number)
    }
    async fn waiting(&self) -> peregrine::Result<u32> {
        Ok(self.waiting.load(Ordering::SeqCst))
    }
    async fn open(&self) -> peregrine::Result<()> {
        let wakers = self.wakers.lock().unwrap().take();
        wakers.into_iter().flatten().for_each(Waker::wake);
        Ok(())
    }
}

/// Returns the number of bytes of a process that are in memory and belong to no file.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn threads(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count()
}

#[test]
fn child() {
    let Some(role) = role() else { return };
    if role == "server" {
        let object = Arc::new(Object { wakers: Mutex::new(Some(Vec::new())), ..Object::default() });
        let server = Server::new().export("waits", WaitsAsyncServer::new(object)).unwrap();
        let _running = server.spawn().unwrap();
        println!("\nready");
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let count: u32 = role.parse().unwrap();
    let waits = &block_on(WaitsAsyncClient::bind("waits")).unwrap();
    println!("\nready");
    let call = |number| async move { assert_eq!(waits.wait(number).await.unwrap(), 2 * number) };
    block_on(join_all((0..count).map(call)));
    println!("\nthreads {}", threads(std::process::id()));
}

#[test]
fn hundred_thousand_calls_wait_at_one_server() {
    let _alone = alone();
    let directory = own_directory();
    let server = Process::start("child", "server", directory.path());
    let waits = WaitsClient::bind("waits").unwrap();
    assert_eq!(waits.waiting().unwrap(), 0);
    let before = (memory(server.id()), descriptors(server.id()), threads(server.id()));
    let mut clients = Vec::new();
    let mut total = 0;
    for count in CALLS {
        clients.push(Process::start("child", &count.to_string(), directory.path()));
        total += count;
        until("all calls wait", || waits.waiting().unwrap() == total);
    }
    assert_eq!(total, 100_000);
    let now = (memory(server.id()), descriptors(server.id()), threads(server.id()));
    println!("{before:?} bytes, descriptors and threads before, {now:?} with {total} calls");
    assert!(now.0 - before.0 < u64::from(total) * BYTES_A_CALL);
    // For the session with each client process, the server has a few descriptors: a socket, a pidfd of the
    // process, and the shared memory.
    assert!(now.1 <= before.1 + 4 * CALLS.len(), "{} descriptors", now.1);
    assert!(now.2 <= before.2 + 4, "{} threads", now.2);
    waits.open().unwrap();
    for mut client in clients {
        let threads: usize = client.until("threads ").parse().unwrap();
        assert!(threads <= 12, "{threads} threads of a client");
    }
}
