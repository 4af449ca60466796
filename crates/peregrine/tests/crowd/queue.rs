//! Measures how often callers sleep while they wait for an A-stack (a call frame), and in which order the
//! callers are served.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{RwLock, mpsc};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use crate::mix::{Work as _, WorkClient};
use crate::support::{Process, own_sleeps, until};

/// Makes one null call on each of many threads, which begin together. Returns the number of times that these
/// threads slept in their calls, or `None` if the machine cannot run `callers` threads.
pub(crate) fn null_calls(work: &WorkClient, callers: usize) -> Option<u64> {
    let gate = RwLock::new(());
    let slept = AtomicU64::new(0);
    let started = std::thread::scope(|scope| {
        let _closed = gate.write().expect("no panic");
        (0..callers).all(|_| {
            let thread = std::thread::Builder::new().stack_size(128 << 10);
            let spawned = thread.spawn_scoped(scope, || {
                drop(gate.read().expect("no panic"));
                let before = own_sleeps();
                work.null().expect("a null call");
                slept.fetch_add(own_sleeps() - before, Ordering::Relaxed);
            });
            spawned.is_ok()
        })
    });
    started.then(|| slept.into_inner())
}

/// Makes calls over a binding with one A-stack, while the server is halted. The first call gets the
/// A-stack, and the others begin to wait one after the other. Returns the position in which each call was
/// served.
pub(crate) fn turns(work: &WorkClient, server: &Process, callers: usize) -> Vec<u32> {
    server.signal(libc::SIGSTOP);
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..callers)
            .map(|_| {
                let (tell, told) = mpsc::channel();
                let caller = scope.spawn(move || {
                    tell.send(rustix::thread::gettid()).expect("a test");
                    work.turn()
                });
                until_blocked(told.recv().expect("a caller").as_raw_nonzero().get());
                caller
            })
            .collect();
        server.signal(libc::SIGCONT);
        let turn = |caller: ScopedJoinHandle<'_, peregrine::Result<u32>>| {
            caller.join().expect("no panic").expect("a result")
        };
        callers.into_iter().map(turn).collect()
    })
}

/// Waits until a thread of this process has slept in system calls for a while. On a busy machine, the thread
/// may also sleep because the holder of a lock does not run. Such a sleep is shorter. A waiting caller wakes
/// from time to time to check for released A-stacks, so its sleeps need not be consecutive.
fn until_blocked(thread: i32) {
    /// How often the thread must be found asleep.
    const LOOKS: u32 = 30;
    let path = format!("/proc/self/task/{thread}/syscall");
    let mut seen = 0;
    until("the caller waits", || {
        std::thread::sleep(Duration::from_millis(1));
        // The file begins with "running", the number of the system call, or -1 outside of a system call.
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let number = text.split(' ').next().and_then(|number| number.parse().ok());
        seen += u32::from(number.is_some_and(|number: i64| number >= 0));
        seen == LOOKS
    });
}
