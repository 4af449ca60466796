//! Async clients and servers.
#![cfg(feature = "async")]

mod support;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use peregrine::{Lent, Out, interface};

#[interface]
trait Notes {
    fn add(&self, a: i32, b: &i64) -> peregrine::Result<i64>;
    fn text(&self, one: &str, more: &[String]) -> peregrine::Result<String>;
    fn turn(&self, values: &mut [u32], name: &mut String) -> peregrine::Result<()>;
    fn fill(&self, from: Lent<'_, u8>, into: Out<'_, u8>) -> peregrine::Result<u64>;
}

struct Blocking;

impl Notes for Blocking {
    fn add(&self, a: i32, b: &i64) -> peregrine::Result<i64> {
        Ok(i64::from(a) + b)
    }
    fn text(&self, one: &str, more: &[String]) -> peregrine::Result<String> {
        Ok(format!("{one}{}", more.concat()))
    }
    fn turn(&self, values: &mut [u32], name: &mut String) -> peregrine::Result<()> {
        values.reverse();
        name.push('!');
        Ok(())
    }
    fn fill(&self, from: Lent<'_, u8>, mut into: Out<'_, u8>) -> peregrine::Result<u64> {
        let mut bytes = vec![0; from.len()];
        from.copy_to(0, &mut bytes).expect("the buffer arrives");
        into.put(&bytes).expect("the buffers have the same size");
        Ok(bytes.len() as u64)
    }
}

/// Yields to the executor before each result.
struct Yielding;

async fn yielded() {
    let mut first = true;
    std::future::poll_fn(move |context| {
        if std::mem::take(&mut first) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

impl NotesAsync for Yielding {
    async fn add(&self, a: i32, b: &i64) -> peregrine::Result<i64> {
        yielded().await;
        Blocking.add(a, b)
    }
    async fn text(&self, one: &str, more: &[String]) -> peregrine::Result<String> {
        yielded().await;
        Blocking.text(one, more)
    }
    async fn turn(&self, values: &mut [u32], name: &mut String) -> peregrine::Result<()> {
        yielded().await;
        Blocking.turn(values, name)
    }
    async fn fill(&self, from: Lent<'_, u8>, into: Out<'_, u8>) -> peregrine::Result<u64> {
        yielded().await;
        Blocking.fill(from, into)
    }
}

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unparks(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

async fn all(notes: &NotesAsyncClient) {
    assert_eq!(notes.add(1, &2).await.unwrap(), 3);
    let more = ["b".to_owned(), "c".to_owned()];
    assert_eq!(notes.text("a", &more).await.unwrap(), "abc");
    let (mut values, mut name) = ([1, 2, 3], "name".to_owned());
    notes.turn(&mut values, &mut name).await.unwrap();
    assert_eq!((values, &*name), ([3, 2, 1], "name!"));
    for size in [0, 1, 100, 5000, 300_000] {
        let from: Vec<u8> = (0..size).map(|n| n as u8).collect();
        let mut into = Vec::with_capacity(size as usize);
        let lent = Lent::from(&from[..]);
        assert_eq!(notes.fill(lent, Out::from(&mut into)).await.unwrap(), size);
        assert_eq!(into, from);
    }
}

fn is_send<T: Send>(value: T) -> T {
    value
}

#[test]
fn every_mix_of_blocking_and_async_works_in_process() {
    let _alone = support::alone();
    block_on(is_send(all(&NotesAsyncClient::in_process(Yielding))));
    block_on(all(&NotesAsyncClient::in_process_to(NotesServer::new(Blocking)).unwrap()));
    let blocking = NotesClient::in_process_to(NotesAsyncServer::new(Yielding)).unwrap();
    assert_eq!(blocking.add(1, &2).unwrap(), 3);
}

/// Returns a blocking and an async server, and the addresses at which each export is found.
fn servers() -> (Vec<peregrine::Running>, Vec<String>) {
    let mut addresses = Vec::new();
    let running = ["blocking", "yielding"].map(|kind| {
        let name = format!("{kind}-{}", std::process::id());
        let server = peregrine::Server::new();
        let server = match kind {
            "blocking" => server.export(&name, NotesServer::new(Blocking)),
            _ => server.export(&name, NotesAsyncServer::new(Yielding)),
        };
        let server = server.unwrap().listen("udp:127.0.0.1:0").unwrap();
        let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
        addresses.push(name.clone());
        for (path, address) in ["udp", "tcp"].iter().zip(running.addresses()) {
            addresses.push(format!("{path}:{name}@{}", address.place()));
        }
        running
    });
    (running.into(), addresses)
}

#[test]
fn every_mix_of_blocking_and_async_works_between_processes() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (_running, addresses) = servers();
    for address in &addresses {
        eprintln!("{address}");
        let notes = block_on(NotesAsyncClient::bind(address)).unwrap();
        block_on(is_send(all(&notes)));
        let blocking = NotesClient::from(notes);
        assert_eq!(blocking.add(1, &2).unwrap(), 3);
    }
}
