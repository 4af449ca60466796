//! Tests `#[at_most(N)]`: how many calls of a procedure run at once at an export.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use peregrine::{CallError, Executed, Insecure, Kind, Running, Server, Sink, Source, interface};
use support::futures::{block_on, join_all};
use support::link::{ENDS, Link, at_far_end, at_near_end};
use support::until;

const LIMIT: Duration = Duration::from_secs(20);

#[interface]
trait Studio {
    /// Returns `number` when the gate is open.
    #[at_most(2)]
    fn resize(&self, number: u32) -> peregrine::Result<u32>;
    fn count(&self) -> peregrine::Result<u32>;
    #[at_most(1)]
    fn fails(&self) -> peregrine::Result<u32>;
    #[at_most(1)]
    fn panics(&self) -> peregrine::Result<u32>;
    /// Sends an item, and returns when the gate is open.
    #[at_most(1)]
    fn list(&self, items: Sink<'_, u32>) -> peregrine::Result<u32>;
    /// Returns the sum of the items.
    #[at_most(1)]
    fn sum(&self, items: Source<'_, u32>) -> peregrine::Result<u32>;
    #[oneway]
    #[at_most(1)]
    fn note(&self, number: u32) -> peregrine::Result<()>;
    /// Calls itself. Returns the number of the kind of error.
    #[at_most(1)]
    fn recurse(&self, address: &str) -> peregrine::Result<u32>;
}

/// A gate at which procedures wait until the gate is open.
#[derive(Default)]
struct Gate {
    open: AtomicBool,
    inside: AtomicU32,
    most: AtomicU32,
    waits: Mutex<Vec<Waker>>,
}

struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Gate {
    fn enter(&self) -> Inside<'_> {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        Inside(self)
    }

    fn pass(&self) {
        let _inside = self.enter();
        until("the gate is open", || self.open.load(Ordering::SeqCst));
    }

    async fn pass_async(&self) {
        let _inside = self.enter();
        std::future::poll_fn(|context| {
            let mut waits = self.waits.lock().unwrap();
            if self.open.load(Ordering::SeqCst) {
                return Poll::Ready(());
            }
            waits.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
        self.waits.lock().unwrap().drain(..).for_each(Waker::wake);
    }

    fn close(&self) {
        self.open.store(false, Ordering::SeqCst);
    }

    #[track_caller]
    fn await_inside(&self, calls: u32) {
        until("the calls are inside", || self.inside.load(Ordering::SeqCst) == calls);
    }
}

#[derive(Clone, Default)]
struct Images(Arc<Gate>);

fn refusal() -> CallError {
    CallError::new(Kind::TooLarge, Executed::Maybe, "the image is too large")
}

impl Studio for Images {
    fn resize(&self, number: u32) -> peregrine::Result<u32> {
        self.0.pass();
        Ok(number)
    }
    fn count(&self) -> peregrine::Result<u32> {
        Ok(7)
    }
    fn fails(&self) -> peregrine::Result<u32> {
        Err(refusal())
    }
    fn panics(&self) -> peregrine::Result<u32> {
        panic!("the image is broken")
    }
    fn list(&self, mut items: Sink<'_, u32>) -> peregrine::Result<u32> {
        items.send(7)?;
        self.0.pass();
        Ok(1)
    }
    fn sum(&self, mut items: Source<'_, u32>) -> peregrine::Result<u32> {
        let mut sum = 0;
        while let Some(item) = items.next()? {
            sum += item;
        }
        Ok(sum)
    }
    fn note(&self, _: u32) -> peregrine::Result<()> {
        self.0.pass();
        Ok(())
    }
    fn recurse(&self, address: &str) -> peregrine::Result<u32> {
        StudioClient::bind(address)?.recurse(address).or_else(|error| Ok(error.kind().number()))
    }
}

impl StudioAsync for Images {
    async fn resize(&self, number: u32) -> peregrine::Result<u32> {
        self.0.pass_async().await;
        Ok(number)
    }
    async fn count(&self) -> peregrine::Result<u32> {
        Ok(7)
    }
    async fn fails(&self) -> peregrine::Result<u32> {
        Err(refusal())
    }
    async fn panics(&self) -> peregrine::Result<u32> {
        panic!("the image is broken")
    }
    async fn list(&self, mut items: Sink<'_, u32>) -> peregrine::Result<u32> {
        items.send_async(7).await?;
        self.0.pass_async().await;
        Ok(1)
    }
    async fn sum(&self, mut items: Source<'_, u32>) -> peregrine::Result<u32> {
        let mut sum = 0;
        while let Some(item) = items.next_async().await? {
            sum += item;
        }
        Ok(sum)
    }
    async fn note(&self, _: u32) -> peregrine::Result<()> {
        self.0.pass_async().await;
        Ok(())
    }
    async fn recurse(&self, address: &str) -> peregrine::Result<u32> {
        let studio = StudioAsyncClient::bind(address).await?;
        studio.recurse(address).await.or_else(|error| Ok(error.kind().number()))
    }
}

fn server(images: &Images, is_async: bool) -> Server {
    match is_async {
        false => Server::new().export("studio", StudioServer::new(images.clone())),
        true => Server::new().export("studio", StudioAsyncServer::new(images.clone())),
    }
    .unwrap()
}

#[track_caller]
fn is_refused<T: core::fmt::Debug>(outcome: Result<T, CallError>, text: &str) {
    let error = outcome.expect_err("the call is refused");
    assert_eq!((error.kind(), error.executed()), (Kind::Overloaded, Executed::No), "{error}");
    assert_eq!(error.detail(), text);
}

/// Checks all procedures of a server at `address`.
fn check(address: &str, images: &Images) {
    let gate = &*images.0;
    gate.close();
    let studio = StudioClient::bind(address).unwrap();
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..2)
            .map(|number| {
                let studio = studio.clone();
                scope.spawn(move || studio.resize(number))
            })
            .collect();
        gate.await_inside(2);
        for _ in 0..3 {
            is_refused(studio.resize(5), "at most 2 calls of `resize` run at once");
        }
        // Other procedures, and other clients of the same procedure.
        assert_eq!(studio.count().unwrap(), 7);
        let other = StudioClient::bind(address).unwrap();
        is_refused(other.resize(5), "at most 2 calls of `resize` run at once");
        gate.open();
        for (number, call) in (0..).zip(calls) {
            assert_eq!(call.join().unwrap().unwrap(), number);
        }
    });
    assert_eq!(gate.most.swap(0, Ordering::SeqCst), 2);
    // When the caller has the result, the place is free.
    for number in 0..200 {
        assert_eq!(studio.sum(Source::new([number, 1])).unwrap(), number + 1);
        assert_ne!(studio.fails().unwrap_err().kind(), Kind::Overloaded);
    }
    for _ in 0..3 {
        assert_eq!(studio.panics().unwrap_err().kind(), Kind::Panicked);
    }
    streams_and_one_way_calls(address, gate);
    // A server does not reach its own namespace over raw Ethernet.
    for _ in 0..if address.starts_with("eth:") { 0 } else { 2 } {
        assert_eq!(studio.recurse(address).unwrap(), Kind::Overloaded.number());
    }
}

fn streams_and_one_way_calls(address: &str, gate: &Gate) {
    let [one, two] = [(); 2].map(|()| StudioClient::bind(address).unwrap());
    let list = |studio: &StudioClient| {
        let mut items = Vec::new();
        let listed = studio.list(Sink::from(&mut items));
        listed.map(|_| items)
    };
    gate.close();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| list(&one));
        gate.await_inside(1);
        is_refused(list(&two), "at most 1 call of `list` runs at once");
        gate.open();
        assert_eq!(first.join().unwrap().unwrap(), [7]);
    });
    assert_eq!(list(&two).unwrap(), [7]);
    gate.close();
    one.note(1).unwrap();
    gate.await_inside(1);
    two.note(2).unwrap();
    let error = two.flush().unwrap_err();
    assert_eq!((error.kind(), error.oneway_not_run()), (Kind::OneWay, 1), "{error}");
    assert!(error.to_string().contains("at most 1 call of `note` runs at once"), "{error}");
    gate.open();
    one.flush().unwrap();
    two.note(3).unwrap();
    two.flush().unwrap();
}

fn on_each_path(is_async: bool) {
    let images = Images::default();
    support::paths::on_each_path(
        "studio",
        || (server(&images, is_async), ()),
        |address, ()| check(address, &images),
    );
}

fn over_ethernet(is_async: bool) {
    at_near_end(Link::new(), |_| {
        let images = Images::default();
        let server = server(&images, is_async);
        let at = format!("eth:{}:0", ENDS[1]);
        let trusts = Insecure::ITrustThisNetwork;
        let server = server.listen_beyond_this_machine(&at, trusts).unwrap();
        let running: Running = at_far_end(|| server.spawn().unwrap());
        check(&format!("{}/studio", running.addresses()[0]), &images);
    });
}

#[test]
fn calls_beyond_the_limit_are_refused_and_not_executed() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    on_each_path(false);
    over_ethernet(false);
}

#[test]
fn deferred_calls_count_until_they_end() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    on_each_path(true);
    over_ethernet(true);
}

/// Many calls of an async client arrive together, in batches.
#[test]
fn calls_in_batches_count() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let images = Images::default();
    let start = || (server(&images, true), ());
    support::paths::on_each_path("studio", start, |address, ()| {
        images.0.close();
        let studio = block_on(StudioAsyncClient::bind(address)).unwrap().with_timeout(LIMIT);
        let refused = AtomicU32::new(0);
        let calls = (0..200).map(|number| {
            let (studio, images, refused) = (studio.clone(), &images, &refused);
            async move {
                let outcome = studio.resize(number).await;
                if outcome.is_err() && refused.fetch_add(1, Ordering::SeqCst) == 197 {
                    images.0.open();
                }
                outcome
            }
        });
        let (ran, refused): (Vec<_>, Vec<_>) = join_all(calls).into_iter().partition(Result::is_ok);
        assert_eq!((ran.len(), refused.len()), (2, 198));
        for outcome in refused {
            is_refused(outcome, "at most 2 calls of `resize` run at once");
        }
        let stat = peregrine::stat("studio").unwrap();
        assert_eq!(stat.export("studio").unwrap().counts.refused, 198);
    });
}

#[test]
fn call_that_its_caller_gave_up_counts_while_it_runs() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for is_async in [false, true] {
        let images = Images::default();
        let start = || (server(&images, is_async), ());
        support::paths::on_each_path("studio", start, |address, ()| {
            images.0.close();
            let studio = StudioClient::bind(address).unwrap();
            let hasty = studio.with_timeout(Duration::from_millis(50));
            for _ in 0..2 {
                assert_eq!(hasty.resize(1).unwrap_err().kind(), Kind::TimedOut);
            }
            if !is_async {
                // The procedures do not know that they were given up.
                is_refused(studio.resize(2), "at most 2 calls of `resize` run at once");
                images.0.open();
            }
            images.0.await_inside(0);
            images.0.open();
            until("a place is free", || studio.with_timeout(LIMIT).resize(3).is_ok());
        });
    }
}

mod limited {
    use peregrine::interface;

    #[interface]
    pub(crate) trait Till {
        #[at_most(4)]
        fn take(&self, count: u32) -> peregrine::Result<u32>;
    }
}

mod plain {
    use peregrine::interface;

    #[interface]
    pub(crate) trait Till {
        fn take(&self, count: u32) -> peregrine::Result<u32>;
    }
}

#[test]
fn limit_is_no_part_of_the_interface() {
    let [plain, limited] = [plain::TillClient::INTERFACE, limited::TillClient::INTERFACE];
    assert_eq!(plain.canonical_text(), limited.canonical_text());
    assert_eq!(plain.digest(), limited.digest());
}

#[interface(onc(program = 0x2000_0b7c, version = 1))]
trait Press {
    #[onc(1)]
    #[at_most(1)]
    fn print(&self) -> peregrine::Result<u32>;
    #[onc(2)]
    fn pages(&self) -> peregrine::Result<u32>;
}

impl Press for Images {
    fn print(&self) -> peregrine::Result<u32> {
        self.0.pass();
        Ok(1)
    }
    fn pages(&self) -> peregrine::Result<u32> {
        Ok(2)
    }
}

#[test]
fn limit_holds_for_clients_of_other_systems() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for scheme in ["onc+tcp", "onc+udp"] {
        let images = Images::default();
        let server = Server::new().export("press", PressServer::new(images.clone())).unwrap();
        let running = server.listen(&format!("{scheme}:127.0.0.1:0")).unwrap().spawn().unwrap();
        let address = running.addresses()[0].to_string();
        let press = PressClient::bind(&address).unwrap();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| press.print());
            images.0.await_inside(1);
            let second = PressClient::bind(&address).unwrap();
            // Over TCP, ONC RPC cannot say that a call was not executed. Over UDP, the server does not answer,
            // so the client repeats the call until there is a place.
            let hasty = second.with_timeout(Duration::from_millis(300));
            let kind = if scheme == "onc+udp" { Kind::TimedOut } else { Kind::Relayed };
            assert_eq!(hasty.print().unwrap_err().kind(), kind, "{scheme}");
            assert_eq!(second.pages().unwrap(), 2);
            images.0.open();
            assert_eq!(first.join().unwrap().unwrap(), 1);
        });
        assert_eq!((press.print().unwrap(), images.0.most.load(Ordering::SeqCst)), (1, 1));
    }
}
