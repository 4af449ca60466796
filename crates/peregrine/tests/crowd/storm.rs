//! Runs the mix (the threads of `mix.rs` with short and long time limits) while the server is killed and
//! restarted. Calls whose server has gone may fail, and their outcomes are checked.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use peregrine::{BindOptions, Kind, PathKind};

use crate::ledger::{Book, Outcomes};
use crate::mix::{
    MANY_BYTES, Noise, PATIENT, SHAPES, Shape, Work as _, WorkClient, all_are_free, length_of_each,
    ms, seed,
};
use crate::support::{Process, until};
use crate::watch::Watch;

/// The time limit of binding.
const BINDING: Duration = Duration::from_secs(2);
/// The longest time from the start of a server until a call returns.
const RECOVERY: Duration = Duration::from_secs(20);
/// The smallest number of servers that are killed while the mix runs in one shape (`Shape`).
const KILLS_MIN: u32 = 4;

/// What all callers share.
struct Storm {
    address: String,
    options: BindOptions,
    limit: Duration,
    longest: Duration,
    watch: Watch,
    next: AtomicU64,
    returned: AtomicU64,
    /// The number of calls that failed because their server had gone.
    gone: AtomicU64,
    going: AtomicBool,
    outcomes: Mutex<Vec<Outcomes>>,
}

/// Runs the mix in each shape (`Shape`) while servers are killed and restarted. `serve` starts a server,
/// always at the same address. The server records in `directory` which calls run.
pub(crate) fn mix_while_servers_are_killed(
    directory: &Path,
    path: PathKind,
    serve: &dyn Fn() -> (Process, String),
) {
    let (seed, each) = (seed(), length_of_each(ms(1500)));
    let mut server = serve();
    for shape in SHAPES {
        server = run(shape, each, seed, directory, path, server, serve);
    }
}

fn run(
    shape: &Shape,
    length: Duration,
    seed: u64,
    directory: &Path,
    path: PathKind,
    (mut server, address): (Process, String),
    serve: &dyn Fn() -> (Process, String),
) -> (Process, String) {
    let _ = std::fs::remove_file(Book::of(directory).0);
    let options = BindOptions::default().astacks(shape.astacks).bind_timeout(BINDING);
    // The two bindings share one set of A-stacks (call frames).
    let works = [(); 2].map(|()| WorkClient::bind_with(&address, &options).expect("a binding"));
    assert_eq!(works[0].binding().path(), path);
    let storm = Arc::new(Storm {
        address,
        options,
        limit: shape.limit,
        longest: shape.longest,
        watch: Watch::new(shape.callers),
        next: AtomicU64::new(0),
        returned: AtomicU64::new(0),
        gone: AtomicU64::new(0),
        going: AtomicBool::new(true),
        outcomes: Mutex::default(),
    });
    let callers: Vec<_> = (0..shape.callers)
        .map(|number| {
            let (storm, work) = (Arc::clone(&storm), works[number % works.len()].clone());
            // This is not a scoped thread, because a thread that hangs must not keep the test from failing.
            std::thread::spawn(move || storm.call(work, number, Noise::of(seed, number)))
        })
        .collect();
    let look = |server: &Process| storm.watch.look(&[std::process::id(), server.id()]);
    let mut noise = Noise::of(seed, shape.callers);
    let (until_then, mut kills) = (Instant::now() + length, 0);
    while kills < KILLS_MIN || Instant::now() < until_then {
        let (begun, before) = (Instant::now(), storm.returned.load(Ordering::Relaxed));
        let life = ms(noise.below(300));
        // Some servers are killed before a client has found them.
        let is_found = noise.below(3) != 0;
        let waits = || is_found && storm.returned.load(Ordering::Relaxed) == before;
        while begun.elapsed() < life || waits() {
            look(&server);
            assert!(begun.elapsed() < RECOVERY, "the server has started, but no call returns");
        }
        server.kill();
        kills += 1;
        let silence = ms(if noise.below(3) == 0 { noise.below(300) } else { 0 });
        let begun = Instant::now();
        while begun.elapsed() < silence {
            look(&server);
        }
        server = serve().0;
    }
    storm.going.store(false, Ordering::Relaxed);
    while callers.iter().any(|caller| !caller.is_finished()) {
        look(&server);
    }
    callers.into_iter().for_each(|caller| caller.join().expect("a caller without a panic"));
    // Procedures of calls that were given up may still run. The kill ends them, so that the record of calls
    // does not change during the check.
    server.kill();
    let [returned, not_executed, maybe] =
        Outcomes::check(&storm.outcomes.lock().expect("no panic"), directory);
    let gone = storm.gone.load(Ordering::Relaxed);
    let Shape { callers, astacks, limit, .. } = shape;
    println!(
        "{callers} callers, {astacks} A-stacks, {limit:?}, {kills} kills: {returned} calls \
         returned, {not_executed} were not executed, {maybe} may have been; {gone} lost their server"
    );
    assert!(returned > 0 && gone > 0, "no call returned, or no call lost its server");
    server = serve().0;
    for work in &works {
        until("the server is found", || work.null().is_ok());
    }
    all_are_free(shape, &works, &[std::process::id(), server.id()]);
    (server, storm.address.clone())
}

impl Storm {
    /// Makes the calls of one thread. After some of the failures, the thread makes a new binding.
    fn call(&self, mut work: WorkClient, caller: usize, mut noise: Noise) {
        let bytes = vec![7; MANY_BYTES];
        let mut outcomes = Outcomes::default();
        while self.going.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let limit = if noise.below(8) == 0 { PATIENT } else { self.limit };
            let bytes = if noise.below(16) == 0 { &bytes[..] } else { &bytes[..8] };
            let us = noise.below(self.longest.as_micros() as u64) as u32;
            let limited = work.with_timeout(limit);
            match self.watch.during(caller, limit, || limited.work(number, us, bytes)) {
                Ok(result) => {
                    assert_eq!(result, (number, bytes.len() as u64), "another call's result");
                    outcomes.returned.push(number);
                    self.returned.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    outcomes.failed(number, &error);
                    if error.kind() == Kind::TimedOut {
                        continue;
                    }
                    self.gone.fetch_add(1, Ordering::Relaxed);
                    // Without a server, calls fail at once. The pause prevents a busy loop.
                    std::thread::sleep(ms(1));
                    if noise.below(16) == 0 {
                        let bind = || WorkClient::bind_with(&self.address, &self.options);
                        work = self.watch.during(caller, BINDING, bind).unwrap_or(work);
                    }
                }
            }
        }
        self.outcomes.lock().expect("no panic").push(outcomes);
    }
}
