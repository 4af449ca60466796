//! A child that was forked without `exec`: it shares no session with its parent, and what it does
//! with what it inherited harms nobody.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use peregrine::{Executed, Kind, Server, interface};
use support::{GoOn, Part, alone, at_rest, part, until};

#[interface]
trait Who {
    /// The process that calls, as the server knows it.
    fn calls(&self) -> peregrine::Result<u32>;
}

struct Asked;

impl Who for Asked {
    fn calls(&self) -> peregrine::Result<u32> {
        Ok(peregrine::caller().map_or(0, |caller| caller.process()))
    }
}

/// The server; in the test itself this does nothing.
#[test]
fn child() {
    if part().is_some() {
        let server = Server::new().export("one", WhoServer::new(Asked)).unwrap();
        let running = server.export("two", WhoServer::new(Asked)).unwrap().spawn().unwrap();
        println!("\nready");
        running.wait();
    }
}

/// Runs something in a forked child; whether it was as it should be. The child touches nothing that
/// another thread of its parent may have locked.
fn in_a_child(run: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs what the test says, and ends without going back.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let worked = catch_unwind(AssertUnwindSafe(run)).unwrap_or(false);
        // SAFETY: ends the child without running anything of its parent's.
        unsafe { libc::_exit(if worked { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: our own child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}

/// Descriptors that the server has.
fn open(directory: &Path, server: &Part) -> usize {
    let [open] = at_rest(directory, "one", [server.id()]);
    open
}

fn bindings() -> [u32; 2] {
    ["one", "two"].map(|name| peregrine::describe(name).unwrap().bindings)
}

/// Pages of address space that this process has.
fn pages() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

#[test]
fn a_child_that_drops_what_it_inherited_takes_nothing_from_its_parent() {
    let _alone = alone();
    let directory = support::own_directory();
    let server = Part::start("child", "server", directory.path());
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
            // Some of the bindings of a session, then all.
            one.truncate(2);
            one.clear();
            drop(two.clone());
            worked && refused(&two)
        }),
        "a call through an inherited binding was not refused as forked"
    );
    for client in one.iter().chain([&two]) {
        assert_eq!(client.calls().expect("the parent's binding stands"), own);
    }
    assert_eq!(bindings(), [4, 1]);
    assert_eq!(self::open(directory.path(), &server), open);
    // Those that stand can still go one by one.
    one.truncate(1);
    until("the parent's unbinding is heard", || bindings() == [1, 1]);
    assert_eq!(one[0].calls().unwrap(), own);
}

#[test]
fn a_child_that_binds_has_a_session_of_its_own() {
    let _alone = alone();
    let directory = support::own_directory();
    let server = Part::start("child", "server", directory.path());
    let own = std::process::id();
    let one = WhoClient::bind("one").unwrap();
    let two = WhoClient::bind("two").unwrap();
    let open = open(directory.path(), &server);
    // The parent calls all the while.
    let going = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let _go_on = GoOn::with(&going);
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
            // Two descriptors for its session.
            let opened = self::open(directory.path(), &server);
            called.count() == 3 && bindings() == [3, 2] && opened == open + 2
        });
        assert!(worked, "the child has no session of its own");
    });
    until("the child's session goes with it", || bindings() == [1, 1]);
    until("its descriptors go with it", || self::open(directory.path(), &server) == open);
    assert_eq!((one.calls().unwrap(), two.calls().unwrap()), (own, own));
}

#[test]
fn a_child_that_binds_again_and_again_grows_no_more_than_its_parent() {
    const BINDINGS: u32 = 2000;
    let _alone = alone();
    let directory = support::own_directory();
    let _server = Part::start("child", "server", directory.path());
    let _one = WhoClient::bind("one").unwrap();
    // What a thread takes when it allocates for the first time comes once, and perhaps late; what
    // bindings leave behind they leave each time.
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
    assert!(in_a_child(|| grown() < 200), "a child keeps something of each binding that it had");
}
