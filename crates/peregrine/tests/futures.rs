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
        let notes = block_on(NotesAsyncClient::bind(address)).unwrap();
        block_on(is_send(all(&notes)));
        let blocking = NotesClient::from(notes);
        assert_eq!(blocking.add(1, &2).unwrap(), 3);
    }
}

/// Waits for all futures, and polls only those that were woken.
fn join<T>(futures: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    struct Woken {
        queue: std::sync::Mutex<Vec<usize>>,
        thread: Thread,
    }
    struct One(usize, Arc<Woken>);
    impl Wake for One {
        fn wake(self: Arc<Self>) {
            self.1.queue.lock().unwrap().push(self.0);
            self.1.thread.unpark();
        }
    }
    let mut futures: Vec<_> = futures.into_iter().map(|one| Some(Box::pin(one))).collect();
    let queue = std::sync::Mutex::new((0..futures.len()).collect());
    let woken = Arc::new(Woken { queue, thread: thread::current() });
    let wakers: Vec<_> = (0..futures.len())
        .map(|number| Waker::from(Arc::new(One(number, Arc::clone(&woken)))))
        .collect();
    let mut results: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    while results.iter().any(Option::is_none) {
        let numbers = std::mem::take(&mut *woken.queue.lock().unwrap());
        if numbers.is_empty() {
            thread::park();
        }
        for number in numbers {
            let Some(future) = &mut futures[number] else { continue };
            let mut context = Context::from_waker(&wakers[number]);
            if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
                results[number] = Some(result);
                futures[number] = None;
            }
        }
    }
    results.into_iter().flatten().collect()
}

/// Calls that wait until a gate is opened.
#[interface]
trait Waits {
    fn pass(&self, number: u32) -> peregrine::Result<u32>;
    fn waiting(&self) -> peregrine::Result<u32>;
    fn open(&self) -> peregrine::Result<()>;
}

#[derive(Clone, Default)]
struct Gate(Arc<std::sync::Mutex<GateState>>);

#[derive(Default)]
struct GateState {
    open: bool,
    wakers: Vec<Waker>,
    waiting: u32,
}

impl WaitsAsync for Gate {
    async fn pass(&self, number: u32) -> peregrine::Result<u32> {
        let mut first = true;
        std::future::poll_fn(|context| {
            let mut state = self.0.lock().unwrap();
            if state.open {
                return Poll::Ready(());
            }
            state.waiting += u32::from(std::mem::take(&mut first));
            state.wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
        Ok(number * 2)
    }
    async fn waiting(&self) -> peregrine::Result<u32> {
        Ok(self.0.lock().unwrap().waiting)
    }
    async fn open(&self) -> peregrine::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.open = true;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        Ok(())
    }
}

#[test]
fn ten_thousand_calls_are_in_flight_from_one_thread() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let name = format!("gate-{}", std::process::id());
    let server = peregrine::Server::new().export(&name, WaitsAsyncServer::new(Gate::default()));
    let _running = server.unwrap().spawn().unwrap();
    let waits = block_on(WaitsAsyncClient::bind(&name)).unwrap();
    let blocking = WaitsClient::from(waits.clone());
    let opener = thread::spawn(move || {
        while blocking.waiting().unwrap() < 10_000 {
            thread::sleep(std::time::Duration::from_millis(1));
        }
        let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
        blocking.open().unwrap();
        threads
    });
    let waits = &waits;
    let results = join((0..10_000).map(|number| async move { waits.pass(number).await.unwrap() }));
    assert_eq!(results, (0..10_000).map(|number| number * 2).collect::<Vec<_>>());
    let threads = opener.join().unwrap();
    assert!(threads <= 16, "{threads} threads while 10,000 calls are in flight");
}
