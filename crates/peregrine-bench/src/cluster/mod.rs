//! The experiment `cluster`: what a pool of servers costs a call, and what it gains.
//!
//! | case | limit | what is measured |
//! |---|---|---|
//! | `pool-null` | `binding` | null calls to two servers, one thread, on the local path |
//! | `pool-throughput` | `binding` | null calls by a pool of one server, two threads |
//! | `least-loaded-p99` | `random-p99` | calls to five servers, each of which runs one call at a time |
//!
//! The two servers of `pool-null` are two endpoints of one process, so that no second process takes processor
//! time from the first one. The calls of the limit go to the same two servers at random, by a binding to each. So
//! the ratio shows what the choice costs, and not what it costs that a processor serves two sessions in turn.

mod queueing;
mod servers;

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use peregrine::directory::{Directory, Offer, Offers};
use peregrine::{Address, BindOptions, CallError, PoolStanding};

use self::servers::{EXPORT, Servers};
pub(crate) use self::servers::{Options, run};
use crate::cases::{Placement, Waiting};
use crate::concurrent::near_row;
use crate::interfaces::{Small, SmallClient, SmallPool};
use crate::local::in_turn;
use crate::row::Row;
use crate::subject::{Failure, Sample};
use crate::window::{Counted, Window, now_ns, sample};
use crate::{Progress, Selection, machine};

/// The names of all measurements.
pub(crate) const CASES: [&str; 3] = ["pool-null", "pool-throughput", LEAST_LOADED];
/// The name of the limit that makes the same calls by a plain binding.
pub(crate) const BINDING: &str = "binding";
const LEAST_LOADED: &str = "least-loaded-p99";
/// The name of the limit that takes servers at random.
pub(crate) const RANDOM: &str = "random-p99";

/// The number of threads that call at the same time in `pool-throughput`.
const THREADS: u32 = 2;

/// A directory that always knows the same servers.
#[derive(Debug)]
struct Fixed(Vec<Offer>);

impl Directory for Fixed {
    fn offers(&self, _: &str) -> Result<Vec<Address>, CallError> {
        Ok(self.0.iter().flat_map(|one| one.addresses().to_vec()).collect())
    }

    fn describe(&self) -> String {
        "the servers of the measurement".to_owned()
    }

    fn look_up(&self, _: &str) -> Result<Offers, CallError> {
        Ok(Offers::of(self.0.clone()))
    }
}

/// Returns options for clients of these servers. Addresses have the form HOST:PORT.
fn options(addresses: &[String]) -> Result<BindOptions, Failure> {
    let offers = (1..).zip(addresses).map(|(number, address)| {
        Offer::new(&format!("server{number}"), [format!("{EXPORT}@{address}")])
    });
    let fixed = Fixed(offers.collect::<Result<_, _>>()?);
    Ok(BindOptions::default().directory(Arc::new(fixed)))
}

/// Waits until a pool uses this number of servers.
fn wait_until_used(
    servers: impl Fn() -> Vec<peregrine::PoolServer>,
    count: usize,
) -> Result<(), Failure> {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let known = servers();
        let used = known.iter().filter(|one| one.standing == PoolStanding::Used).count();
        if used == count {
            return Ok(());
        }
        if Instant::now() > end {
            let known: Vec<_> = known.iter().map(ToString::to_string).collect();
            return Err(
                format!("the pool does not use {count} servers: {}", known.join("; ")).into()
            );
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Measures everything that was selected.
pub(crate) fn measure(selection: &Selection, progress: &Progress) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let placement = Placement::TwoCores;
    if selection.has_placement(Placement::Free) {
        if selection.has_case(CASES[1]) {
            progress.show(CASES[1]);
            rows.push(throughput(selection)?);
        }
        if selection.has_case(LEAST_LOADED) {
            rows.push(queueing::measure(selection, progress)?);
        }
    }
    // Last, because it pins this thread to a processor.
    if selection.has_placement(placement) && selection.has_case(CASES[0]) {
        progress.show(CASES[0]);
        match placement.processors(&machine::processors()) {
            Some([Some(here), Some(there)]) => rows.push(null(selection, here, there)?),
            _ => eprintln!("{}: skipped: only one processor may be used", CASES[0]),
        }
    }
    Ok(rows)
}

/// Returns the time of a null call, by a pool of two servers and by a binding.
fn null(selection: &Selection, here: u32, there: u32) -> Result<Row, Failure> {
    let wait = Waiting::Spin;
    let servers = Servers::start(1, 2, wait, Some(there))?;
    let addresses = servers.addresses();
    let options = options(addresses)?.wait(wait.wait());
    let pool = SmallPool::bind_with(EXPORT, &options)?;
    wait_until_used(|| pool.servers(), 2)?;
    let bind = |address| SmallClient::bind_with(&format!("{EXPORT}@{address}"), &options);
    let (one, other) = (bind(&addresses[0])?, bind(&addresses[1])?);
    let random = Cell::new(1_u32);
    let at_random = || {
        // The constants are those of Numerical Recipes (Press et al., 1992).
        random.set(random.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        if random.get() >> 31 == 0 { one.null() } else { other.null() }
    };
    peregrine::sys::pin_to(here)?;
    let samples = in_turn(selection.rounds(), 2, |subject| {
        let calls = |count| match subject {
            0 => timed(count, || pool.null()),
            _ => timed(count, at_random),
        };
        let guess = calls(500)? / 500.0;
        let count = (selection.slice().as_nanos() as f64 / guess).clamp(8.0, 4e6) as u32;
        Ok(Sample { ns: calls(count)? / f64::from(count), cpu_ns: None })
    })?;
    Ok(row(CASES[0], wait, Placement::TwoCores, 1, BINDING, &samples))
}

/// Returns how long calls take, in nanoseconds.
fn timed(calls: u32, call: impl Fn() -> peregrine::Result<()>) -> Result<f64, Failure> {
    let begun = Instant::now();
    (0..calls).try_for_each(|_| call())?;
    Ok(begun.elapsed().as_nanos() as f64)
}

/// Returns the time for each null call of two threads, by a pool of one server and by a binding.
fn throughput(selection: &Selection) -> Result<Row, Failure> {
    let wait = Waiting::Adaptive;
    let servers = Servers::start(1, 1, wait, None)?;
    let options = options(servers.addresses())?.wait(wait.wait());
    let pool = SmallPool::bind_with(EXPORT, &options)?;
    wait_until_used(|| pool.servers(), 1)?;
    let binding =
        SmallClient::bind_with(&format!("{EXPORT}@{}", servers.addresses()[0]), &options)?;
    let samples = in_turn(selection.few_rounds(), 2, |subject| {
        sample(selection.window(), |window| match subject {
            0 => crowd(window, || pool.null()),
            _ => crowd(window, || binding.null()),
        })
    })?;
    Ok(row(CASES[1], wait, Placement::Free, THREADS, BINDING, &samples))
}

/// Lets threads make calls in a window.
fn crowd(
    window: &dyn Fn(u64) -> Window,
    call: impl Fn() -> peregrine::Result<()> + Sync,
) -> Result<(Vec<Counted>, Option<Duration>), Failure> {
    let window = window(now_ns());
    let counted = std::thread::scope(|scope| {
        let run = || scope.spawn(|| window.count(now_ns, &call));
        let threads: Vec<_> = (0..THREADS).map(|_| run()).collect();
        let counts = threads.into_iter().map(|thread| thread.join().expect("a thread that calls"));
        counts.collect::<Result<Vec<_>, _>>()
    })?;
    Ok((counted, None))
}

/// Returns the row of a case. `samples` has the samples of Peregrine, and those of the limit.
fn row(
    case: &'static str,
    wait: Waiting,
    placement: Placement,
    callers: u32,
    limit: &'static str,
    samples: &[Vec<Sample>],
) -> Row {
    Row { callers, ..near_row(case, wait, placement, limit, samples) }
}
