//! Runs *the mix*: many threads make calls with short and long time limits, and each outcome is checked.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use peregrine::{BindOptions, Executed, interface};

use crate::is_expected;
use crate::ledger::Book;
use crate::watch::Watch;

#[interface]
pub(crate) trait Work {
    fn null(&self) -> peregrine::Result<()>;
    /// Returns how often this procedure was called before.
    fn turn(&self) -> peregrine::Result<u32>;
    /// Sleeps for `us` microseconds, then returns `number` and the number of bytes.
    fn work(&self, number: u64, us: u32, bytes: &[u8]) -> peregrine::Result<(u64, u64)>;
}

#[derive(Default)]
pub(crate) struct Service {
    turns: AtomicU32,
    /// The file in which `work` records the numbers of its calls.
    book: Option<Book>,
}

impl Service {
    pub(crate) fn with(book: Book) -> Self {
        Self { turns: AtomicU32::new(0), book: Some(book) }
    }
}

impl Work for Service {
    fn null(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn turn(&self) -> peregrine::Result<u32> {
        Ok(self.turns.fetch_add(1, Ordering::Relaxed))
    }
    fn work(&self, number: u64, us: u32, bytes: &[u8]) -> peregrine::Result<(u64, u64)> {
        if let Some(book) = &self.book {
            book.write(number);
        }
        std::thread::sleep(Duration::from_micros(us.into()));
        Ok((number, bytes.len() as u64))
    }
}

/// The parameters of a run of the mix.
pub(crate) struct Shape {
    pub(crate) callers: usize,
    pub(crate) astacks: u32,
    /// The time limit of most calls.
    pub(crate) limit: Duration,
    /// The duration of the longest procedure.
    pub(crate) longest: Duration,
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) const SHAPES: &[Shape] = &[
    Shape { callers: 16, astacks: 8, limit: ms(4), longest: ms(8) },
    Shape { callers: 12, astacks: 8, limit: ms(200), longest: ms(400) },
    // Over datagrams, some of these callers share a socket.
    Shape { callers: 40, astacks: 24, limit: ms(4), longest: ms(8) },
];

/// A time limit that a call exceeds only if the call was lost.
pub(crate) const PATIENT: Duration = Duration::from_secs(10);

/// The number of bytes of a large call. Such a call needs several packets, and may be cancelled in the
/// middle.
pub(crate) const MANY_BYTES: usize = 20_000;

/// The number of calls with each outcome.
#[derive(Default)]
struct Outcomes {
    returned: AtomicU64,
    not_executed: AtomicU64,
    maybe: AtomicU64,
}

/// A pseudo-random sequence, which is equal for equal seeds.
pub(crate) struct Noise(u64);

impl Noise {
    /// Returns the sequence for one of several threads.
    pub(crate) const fn of(seed: u64, number: usize) -> Self {
        Self(seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Chooses the seed of a test, and prints it: `PEREGRINE_SEED`, or the time if that variable is not set.
pub(crate) fn seed() -> u64 {
    let seed = from_environment("PEREGRINE_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_nanos() as u64)
    });
    println!("PEREGRINE_SEED={seed}");
    seed
}

/// Returns the time for which each shape runs: an equal part of `PEREGRINE_SOAK` seconds, or `unless_set` if
/// that variable is not set.
pub(crate) fn length_of_each(unless_set: Duration) -> Duration {
    let soak = from_environment("PEREGRINE_SOAK").map(Duration::from_secs);
    soak.map_or(unless_set, |all| all / SHAPES.len() as u32)
}

/// Runs each shape with the bindings that `bind` makes. If a call hangs, the stacks of `processes` are
/// printed.
pub(crate) fn mix(processes: &[u32], bind: &dyn Fn(&BindOptions) -> WorkClient) {
    let (seed, each) = (seed(), length_of_each(ms(700)));
    for shape in SHAPES {
        run(shape, each, seed, processes, bind);
    }
}

fn run(
    shape: &Shape,
    length: Duration,
    seed: u64,
    processes: &[u32],
    bind: &dyn Fn(&BindOptions) -> WorkClient,
) {
    let options = BindOptions::default().astacks(shape.astacks);
    // The two bindings share one set of A-stacks (call frames).
    let works = [bind(&options), bind(&options)];
    let watch = Arc::new(Watch::new(shape.callers));
    let (outcomes, going) = (Arc::<Outcomes>::default(), Arc::new(AtomicBool::new(true)));
    let callers: Vec<_> = (0..shape.callers)
        .map(|number| {
            let work = works[number % works.len()].clone();
            let (watch, outcomes) = (Arc::clone(&watch), Arc::clone(&outcomes));
            let (going, limit, longest) = (Arc::clone(&going), shape.limit, shape.longest);
            let noise = Noise::of(seed, number);
            // This is not a scoped thread, because a thread that hangs must not keep the test from failing.
            std::thread::spawn(move || {
                call(&work, &Caller { number, limit, longest }, &watch, &outcomes, &going, noise);
            })
        })
        .collect();
    let until = Instant::now() + length;
    while Instant::now() < until {
        watch.look(processes);
    }
    going.store(false, Ordering::Relaxed);
    while callers.iter().any(|caller| !caller.is_finished()) {
        watch.look(processes);
    }
    callers.into_iter().for_each(|caller| caller.join().expect("a caller without a panic"));
    let Outcomes { returned, not_executed, maybe } = &*outcomes;
    let [returned, not_executed, maybe] =
        [returned, not_executed, maybe].map(|count| count.load(Ordering::Relaxed));
    let Shape { callers, astacks, limit, .. } = shape;
    println!(
        "{callers} callers, {astacks} A-stacks, {limit:?}: {returned} calls returned, \
         {not_executed} were not executed, {maybe} may have been"
    );
    assert!(returned > 0, "no call returned");
    all_are_free(shape, &works, processes);
}

struct Caller {
    number: usize,
    limit: Duration,
    longest: Duration,
}

/// Makes the calls of one thread.
fn call(
    work: &WorkClient,
    caller: &Caller,
    watch: &Watch,
    outcomes: &Outcomes,
    going: &AtomicBool,
    mut noise: Noise,
) {
    let bytes = vec![7; MANY_BYTES];
    let mut number = caller.number as u64;
    while going.load(Ordering::Relaxed) {
        number += 1000;
        let patient = noise.below(8) == 0;
        let limit = if patient { PATIENT } else { caller.limit };
        let bytes = if noise.below(16) == 0 { &bytes[..] } else { &bytes[..8] };
        let us = noise.below(caller.longest.as_micros() as u64) as u32;
        let limited = work.with_timeout(limit);
        match watch.during(caller.number, limit, || limited.work(number, us, bytes)) {
            Ok(result) => {
                assert_eq!(result, (number, bytes.len() as u64), "another call's result");
                outcomes.returned.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                assert!(is_expected(error.kind()), "{error}");
                assert!(!patient, "the call did not return within {PATIENT:?}: {error}");
                let count = match error.executed() {
                    Executed::No => &outcomes.not_executed,
                    Executed::Maybe => &outcomes.maybe,
                };
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Checks that no A-stack was lost: makes one call for each A-stack at the same time, and each call must
/// succeed.
pub(crate) fn all_are_free(shape: &Shape, works: &[WorkClient; 2], processes: &[u32]) {
    let count = shape.astacks as usize;
    let watch = Arc::new(Watch::new(count));
    let together = Arc::new(Barrier::new(count));
    let callers: Vec<_> = (0..count)
        .map(|number| {
            let (watch, together) = (Arc::clone(&watch), Arc::clone(&together));
            let work = works[number % works.len()].with_timeout(PATIENT);
            std::thread::spawn(move || {
                together.wait();
                let (number, us) = (number as u64, 20_000);
                let result = watch.during(number as usize, PATIENT, || work.work(number, us, &[]));
                assert_eq!(result.expect("an A-stack"), (number, 0));
            })
        })
        .collect();
    while callers.iter().any(|caller| !caller.is_finished()) {
        watch.look(processes);
    }
    callers.into_iter().for_each(|caller| caller.join().expect("a caller without a panic"));
}
