//! Tests a child process that was forked without `exec`. The child shares no session with its parent. Nothing
//! that the child does with inherited bindings affects the parent.

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures_lite::future::{block_on, poll_once};
use peregrine::{Executed, Kind, Server, interface};
use support::{KeepGoing, Process, alone, at_rest, in_a_child, role, until};

#[interface]
trait Who {
    /// Returns the number of the calling process, as the server sees it.
    fn calls(&self) -> peregrine::Result<u32>;
    /// Returns true after the next call of `release`, or returns false as soon as this call is cancelled.
    fn hold(&self) -> peregrine::Result<bool>;
    fn release(&self) -> peregrine::Result<()>;
    /// Returns the number of calls of `hold` that wait.
    fn held(&self) -> peregrine::Result<u32>;
}

#[derive(Default)]
struct Object {
    held: AtomicU32,
    released: AtomicU32,
}

impl Who for Object {
    fn calls(&self) -> peregrine::Result<u32> {
        Ok(peregrine::caller().map_or(0, |caller| caller.process()))
    }
    fn hold(&self) -> peregrine::Result<bool> {
        let (before, caller) = (self.released.load(Ordering::SeqCst), peregrine::caller());
        self.held.fetch_add(1, Ordering::SeqCst);
        let is_cancelled = || caller.as_ref().is_some_and(|caller| caller.is_cancelled());
        while self.released.load(Ordering::SeqCst) == before && !is_cancelled() {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.held.fetch_sub(1, Ordering::SeqCst);
        Ok(!is_cancelled())
    }
    fn release(&self) -> peregrine::Result<()> {
        self.released.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    fn held(&self) -> peregrine::Result<u32> {
        Ok(self.held.load(Ordering::SeqCst))
    }
}

/// Runs the server as a child process; in the test itself this does nothing.
#[test]
fn child() {
    if role().is_some() {
        let server = Server::new().export("one", WhoServer::new(Object::default())).unwrap();
        let running =
            server.export("two", WhoServer::new(Object::default())).unwrap().spawn().unwrap();
        println!("\nready");
        running.wait();
    }
}

/// Returns the number of descriptors that the server has open.
fn open(directory: &Path, server: &Process) -> usize {
    let [open] = at_rest(directory, "one", [server.id()]);
    open
}

fn bindings() -> [u32; 2] {
    ["one", "two"].map(|name| peregrine::describe(name).unwrap().bindings)
}

/// Returns the number of pages of this process's address space.
fn pages() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

#[test]
fn child_that_drops_inherited_bindings_does_not_affect_its_parent() {
    let _alone = alone();
    let directory = support::own_directory();
    let server = Process::start("child", "server", directory.path());
    let own = std::process::id();
    let mut one: Vec<_> = (0..4).map(|_| WhoClient::bind("one").unwrap()).collect();
    let two = WhoClient::bind("two").unwrap();
    assert_eq!((one[0].calls().unwrap(), two.calls().unwrap()), (own, own));
    let open = open(directory.path(), &server);
    let refused = |client: &WhoClient| {
        client
            .calls()
            .is_err_and(|error| (error.kind(), error.executed()) == (Kind::Forked, Executed::No))
    };
    assert!(
        in_a_child(|| {
            let worked = one.iter().chain([&two]).all(refused);
            // Drop some bindings of a session, then all.
            one.truncate(2);
            one.clear();
            drop(two.clone());
            worked && refused(&two)
        }),
        "a call through an inherited binding was not refused as forked"
    );
    for client in one.iter().chain([&two]) {
        assert_eq!(client.calls().expect("the parent's binding still works"), own);
    }
    assert_eq!(bindings(), [4, 1]);
    assert_eq!(self::open(directory.path(), &server), open);
    // The parent can still release its bindings one by one.
    one.truncate(1);
    until("the server releases the parent's bindings", || bindings() == [1, 1]);
    assert_eq!(one[0].calls().unwrap(), own);
}

#[test]
fn child_that_binds_has_a_new_session() {
    let _alone = alone();
    let directory = support::own_directory();
    let server = Process::start("child", "server", directory.path());
    let own = std::process::id();
    let one = WhoClient::bind("one").unwrap();
    let two = WhoClient::bind("two").unwrap();
    let open = open(directory.path(), &server);
    // The parent makes calls while the child binds.
    let going = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let _keep_going = KeepGoing::new(&going);
        scope.spawn(|| {
            while going.load(Ordering::Relaxed) {
                assert_eq!(one.calls().expect("the parent's call"), own);
            }
        });
        let worked = in_a_child(|| {
            let pid = std::process::id();
            let new: Vec<_> = ["one", "two", "one"]
                .iter()
                .filter_map(|name| WhoClient::bind(name).ok())
                .collect();
            let called = new.iter().filter(|client| client.calls().is_ok_and(|who| who == pid));
            // The child's session takes two descriptors.
            let opened = self::open(directory.path(), &server);
            called.count() == 3 && bindings() == [3, 2] && opened == open + 2
        });
        assert!(worked, "the child has no new session");
    });
    until("the child's session ends with the child", || bindings() == [1, 1]);
    until("the session's descriptors are closed", || self::open(directory.path(), &server) == open);
    assert_eq!((one.calls().unwrap(), two.calls().unwrap()), (own, own));
}

#[test]
fn child_that_binds_repeatedly_leaks_no_memory() {
    const BINDINGS: u32 = 2000;
    let _alone = alone();
    let directory = support::own_directory();
    let _server = Process::start("child", "server", directory.path());
    let _one = WhoClient::bind("one").unwrap();
    // The first allocation of a thread takes pages once, but this may happen in a late round. A leak would
    // take pages in every round, so the round with the smallest growth decides.
    let grown = || {
        let _kept = WhoClient::bind("two").ok();
        let mut least = u64::MAX;
        for _ in 0..5 {
            let before = pages();
            if !(0..BINDINGS).all(|_| WhoClient::bind("two").is_ok()) {
                return u64::MAX;
            }
            least = least.min(pages().saturating_sub(before));
            if least < 200 {
                break;
            }
        }
        least
    };
    let pages = grown();
    assert!(pages < 200, "{pages} pages");
    assert!(in_a_child(|| grown() < 200), "a child leaks memory with each binding");
}

/// Returns the names of the threads of this process.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    let names = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("comm")));
    names.flatten().map(|name| name.trim().to_owned()).collect()
}

/// Returns whether this process has the threads for pending calls and for async procedures.
fn has_threads() -> bool {
    let threads = threads();
    // The kernel keeps only 15 bytes of a thread's name.
    ["peregrine-bells", "peregrine-timer", "peregrine-async"]
        .iter()
        .all(|name| threads.iter().any(|thread| thread == name))
}

/// An async procedure that yields, and then waits for a while.
struct Yielding;

impl WhoAsync for Yielding {
    async fn calls(&self) -> peregrine::Result<u32> {
        futures_lite::future::yield_now().await;
        Ok(std::process::id())
    }
    async fn hold(&self) -> peregrine::Result<bool> {
        std::future::pending().await
    }
    async fn release(&self) -> peregrine::Result<()> {
        Ok(())
    }
    async fn held(&self) -> peregrine::Result<u32> {
        Ok(0)
    }
}

#[test]
fn child_does_not_use_inherited_async_clients_and_can_bind_its_own() {
    let _alone = alone();
    let directory = support::own_directory();
    let _server = Process::start("child", "server", directory.path());
    let own = std::process::id();
    let client = block_on(WhoAsyncClient::bind("one")).unwrap();
    let in_process = WhoAsyncClient::in_process(Yielding);
    assert_eq!(block_on(in_process.calls()).unwrap(), own);
    // The parent has pending calls, and the threads for them.
    let mut pending: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            Box::pin(async move { client.hold().await })
        })
        .collect();
    let mut held = |count| {
        until("the procedures wait", || {
            for call in &mut pending {
                assert!(block_on(poll_once(call)).is_none(), "the call ended too early");
            }
            block_on(client.held()).unwrap() == count
        });
    };
    held(4);
    let ends_late = |client: &WhoAsyncClient| {
        let held = block_on(client.with_timeout(Duration::from_millis(10)).hold());
        // The procedure may notice the deadline before the client does. Then the procedure returns
        // false.
        held.map_or_else(|error| error.kind() == Kind::TimedOut, |waited| !waited)
    };
    assert!(ends_late(&client) && ends_late(&in_process));
    assert!(has_threads());
    let worked = in_a_child(|| {
        let is_forked = |error: &peregrine::CallError, executed| {
            (error.kind(), error.executed()) == (Kind::Forked, executed)
        };
        let refused = |client: &WhoAsyncClient| {
            block_on(client.calls()).is_err_and(|error| is_forked(&error, Executed::No))
        };
        if !refused(&client) || !refused(&in_process) || threads().len() != 1 {
            return false;
        }
        // Two of the calls of the parent are polled, and the others are only dropped.
        let polled = pending.drain(..2).map(block_on);
        if !polled.map(Result::unwrap_err).all(|error| is_forked(&error, Executed::Maybe)) {
            return false;
        }
        pending.clear();
        let pid = std::process::id();
        let Ok(new) = block_on(WhoAsyncClient::bind("one")) else { return false };
        let calls = (0..100).map(|_| new.calls());
        let called = block_on(futures_util::future::join_all(calls));
        if !called.into_iter().all(|who| who.is_ok_and(|who| who == pid)) {
            return false;
        }
        let in_process = WhoAsyncClient::in_process(Yielding);
        let worked = ends_late(&new) && ends_late(&in_process);
        let yielded = block_on(in_process.calls()).is_ok_and(|who| who == pid);
        let own = has_threads();
        worked && yielded && own
    });
    assert!(worked, "the child used what it inherited, or has no bells, timers or executor");
    // The child has given up none of the calls of its parent.
    assert_eq!(block_on(client.held()).unwrap(), 4);
    block_on(client.release()).unwrap();
    for call in pending {
        assert!(block_on(call).expect("the call ends"), "the child has given up the call");
    }
    assert_eq!(block_on(in_process.calls()).unwrap(), own);
}
