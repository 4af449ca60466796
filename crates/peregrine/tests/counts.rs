//! Exact counts of a bound call, both sides together: allocations and copies.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use peregrine::{Lent, Out, Server, interface, stats};

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as our own caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as our own caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as our own caller promises.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[interface]
trait Counted {
    fn null(&self) -> peregrine::Result<()>;
    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32>;
    fn text(&self, text: &str) -> peregrine::Result<u64>;
    fn take(&self, bytes: &[u8]) -> peregrine::Result<()>;
    fn both(&self, bytes: &mut [u64]) -> peregrine::Result<()>;
    fn give(&self, into: Out<'_, u8>) -> peregrine::Result<()>;
    fn lend(&self, bytes: Lent<'_, u8>) -> peregrine::Result<u8>;
    fn owned(&self, text: String) -> peregrine::Result<String>;
}

struct Object;

impl Counted for Object {
    fn null(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32> {
        Ok(a + b)
    }
    fn text(&self, text: &str) -> peregrine::Result<u64> {
        Ok(text.len() as u64)
    }
    fn take(&self, _: &[u8]) -> peregrine::Result<()> {
        Ok(())
    }
    fn both(&self, bytes: &mut [u64]) -> peregrine::Result<()> {
        bytes.reverse();
        Ok(())
    }
    fn give(&self, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        into.put(&[7; 100]).expect("room");
        Ok(())
    }
    fn lend(&self, bytes: Lent<'_, u8>) -> peregrine::Result<u8> {
        let mut last = [0];
        bytes.copy_to(bytes.len() - 1, &mut last).expect("a last byte");
        Ok(last[0])
    }
    fn owned(&self, text: String) -> peregrine::Result<String> {
        Ok(text)
    }
}

/// The allocator counts for the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Allocations per call of `call`, exactly: those of 2 n calls less those of n. Threads that
/// belong to no call (the test runner's) allocate now and then, so the middle of a few is taken.
fn allocations_per_call(mut call: impl FnMut()) -> u64 {
    const CALLS: u64 = 200;
    let mut count = |calls| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (0..calls).for_each(|_| call());
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    // The first calls may make an E-stack grow.
    count(10);
    let mut all = [(); 5].map(|()| count(2 * CALLS).saturating_sub(count(CALLS)) / CALLS);
    all.sort_unstable();
    all[2]
}

#[test]
fn a_call_allocates_what_its_owned_types_need_and_nothing_else() {
    let _alone = ALONE.lock().unwrap();
    let _directory = support::own_directory();
    let server = Server::new().export("counted", CountedServer::new(Object)).unwrap();
    let _running = server.spawn().unwrap();
    let local = CountedClient::bind("counted").unwrap();
    let in_process = CountedClient::in_process(Object);
    for client in [&local, &in_process] {
        let mut buffer = [0u8; 200];
        let mut words = [1u64; 100];
        assert_eq!(allocations_per_call(|| client.null().unwrap()), 0);
        assert_eq!(allocations_per_call(|| assert_eq!(client.add(1, 2).unwrap(), 3)), 0);
        assert_eq!(allocations_per_call(|| assert_eq!(client.text("falcon").unwrap(), 6)), 0);
        assert_eq!(allocations_per_call(|| client.take(&[1; 1440]).unwrap()), 0);
        assert_eq!(allocations_per_call(|| client.both(&mut words).unwrap()), 0);
        assert_eq!(allocations_per_call(|| client.give(Out::from(&mut buffer)).unwrap()), 0);
        assert_eq!(allocations_per_call(|| drop(client.lend(Lent::from(&[1u8; 64])))), 0);
        let limited = client.with_timeout(std::time::Duration::from_secs(10));
        assert_eq!(allocations_per_call(|| limited.null().unwrap()), 0);
        // One for the argument that the caller makes here, one for it on the server (which it
        // gives back as the result), one for the result.
        assert_eq!(allocations_per_call(|| drop(client.owned("falcon".to_owned()))), 3);
    }
}

/// LRPC's Table III, in bytes: by value A and E, lent A alone, results F alone.
#[test]
fn every_byte_is_copied_as_often_as_in_lrpc() {
    let _alone = ALONE.lock().unwrap();
    let Some(_) = stats::copied() else {
        println!("skipped: release builds do not count copies");
        return;
    };
    let _directory = support::own_directory();
    let server = Server::new().export("counted", CountedServer::new(Object)).unwrap();
    let _running = server.spawn().unwrap();
    let client = CountedClient::bind("counted").unwrap();
    let copies = |call: &mut dyn FnMut()| {
        let before = stats::copied().unwrap();
        call();
        let after = stats::copied().unwrap();
        [after[0] - before[0], after[1] - before[1], after[2] - before[2]]
    };
    let mut buffer = [0u8; 200];
    assert_eq!(copies(&mut || client.null().unwrap()), [0, 0, 0]);
    assert_eq!(copies(&mut || client.take(&[1; 1440]).unwrap()), [1440, 1440, 0]);
    assert_eq!(copies(&mut || drop(client.lend(Lent::from(&[1u8; 1000])))), [1000, 0, 0]);
    assert_eq!(copies(&mut || client.give(Out::from(&mut buffer)).unwrap()), [0, 0, 100]);
    assert_eq!(copies(&mut || client.both(&mut [1; 100]).unwrap()), [800, 800, 800]);
}
