//! Callers that wait for an A-stack: how long all of them take, and in which order they are served.

use std::sync::{RwLock, mpsc};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use crate::mix::{Work as _, WorkClient};
use crate::support::{Part, until};

/// Makes one null call in each of many threads, all at the same time. Returns how long that took, or
/// `None` if this machine does not give us as many threads.
pub(crate) fn null_calls(work: &WorkClient, callers: usize) -> Option<Duration> {
    let gate = RwLock::new(());
    let mut begun = Instant::now();
    let started = std::thread::scope(|scope| {
        let closed = gate.write().expect("no panic");
        let started = (0..callers).all(|_| {
            let thread = std::thread::Builder::new().stack_size(128 << 10);
            let spawned = thread.spawn_scoped(scope, || {
                drop(gate.read().expect("no panic"));
                work.null().expect("a null call");
            });
            spawned.is_ok()
        });
        begun = Instant::now();
        drop(closed);
        started
    });
    started.then(|| begun.elapsed())
}

/// Calls of a binding with one A-stack, while the server is halted. The first call has the A-stack, and
/// each of the others begins to wait after the one before. Returns which turn each call was.
pub(crate) fn turns(work: &WorkClient, server: &Part, callers: usize) -> Vec<u32> {
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

/// Waits until a thread of this process sleeps in a system call and stays there. A lock that is held
/// for a moment may make it sleep, too.
fn until_blocked(thread: i32) {
    /// How often in a row it must be seen there.
    const LOOKS: u32 = 3;
    let path = format!("/proc/self/task/{thread}/syscall");
    let mut seen = 0;
    until("the caller waits", || {
        std::thread::sleep(Duration::from_millis(1));
        // "running", or the number of the system call, or -1 outside of one.
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let number = text.split(' ').next().and_then(|number| number.parse().ok());
        seen = if number.is_some_and(|number: i64| number >= 0) { seen + 1 } else { 0 };
        seen == LOOKS
    });
}
