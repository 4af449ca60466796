//! The experiment `death`: measures how soon a caller learns that its server has failed during a call. Either
//! the server process is killed, or the link to its machine is cut.
//!
//! The calls have no deadline, so they end only when the failure is detected.

use std::time::{Duration, Instant};

use peregrine::Executed;

use crate::Progress;
use crate::cases::{Size, Waiting, export_name};
use crate::interfaces::{Small, SmallClient};
use crate::network::gone::{self, ServerFailure};
use crate::peer::Peer;
use crate::row::Row;
use crate::statistics::percentile;
use crate::subject::Failure;

/// The cases in which the server process is killed.
pub(crate) const DEATHS: [&str; 2] = ["death-p50", "death-p99"];
/// The cases in which the link is cut.
pub(crate) const CUTS: [&str; 2] = ["cut-p50", "cut-p99"];

/// The duration, in milliseconds, of the procedure during which the server fails.
const LONG_MS: u32 = 60_000;
/// The shortest time from the call to the failure of its server. After this time, the procedure runs and the
/// caller sleeps.
const RUNS: Duration = Duration::from_millis(5);

/// The longest time from a call across a network to the failure of its server. Within this time, every timer
/// of a call expires at least once.
const RUNS_MAX: Duration = Duration::from_millis(1500);

/// Measures how soon the failure of a server is noticed, for servers on this machine and on other machines.
pub(crate) fn measure(
    rounds: usize,
    far_rounds: usize,
    progress: &Progress,
) -> Result<Vec<Row>, Failure> {
    let mut waited = Vec::with_capacity(rounds);
    for round in 0..rounds {
        progress.show(&format!("killing server {} of {rounds}", round + 1));
        // The time differs in each round, so that the kills do not coincide with any periodic timer.
        let extra = Duration::from_micros(round as u64 * 367 % 5000);
        waited.push(once(RUNS + extra)?.as_nanos() as f64);
    }
    let mut rows = rows(DEATHS, "local", "memory", &waited);
    for what in gone::ALL {
        let (failure, path, link) = what;
        if let Some(why) = link.missing() {
            progress.show("");
            eprintln!("skipped: {} across {}: {why}", path.name(), link.name());
            continue;
        }
        let mut waited = Vec::with_capacity(far_rounds);
        for round in 0..far_rounds {
            let (path, link) = (path.name(), link.name());
            progress
                .show(&format!("{failure:?} over {path}, {link}: {} of {far_rounds}", round + 1));
            // The moments of failure are spread over the whole time from `RUNS` to `RUNS_MAX`. Their sequence
            // has no period, so it does not coincide with any timer.
            let part = (round as f64 * 0.618).fract();
            let runs = RUNS + (RUNS_MAX - RUNS).mul_f64(part);
            let took = gone::once(what, Waiting::Adaptive, runs, LONG_MS)?;
            waited.push(took.as_nanos() as f64);
        }
        let names = if failure == ServerFailure::Cut { CUTS } else { DEATHS };
        rows.extend(self::rows(names, path.name(), link.name(), &waited));
    }
    Ok(rows)
}

/// Returns a row for the median of the times, and a row for the 99th percentile.
fn rows(
    names: [&'static str; 2],
    path: &'static str,
    link: &'static str,
    waited: &[f64],
) -> Vec<Row> {
    let row = |(case, fraction)| Row {
        path: Some(path),
        link: Some(link),
        wait: Some(Waiting::Adaptive.name()),
        placement: Some("free"),
        bindings: 1,
        ..Row::new(case).ours(&[percentile(waited, fraction)], &[])
    };
    names.into_iter().zip([0.50, 0.99]).map(row).collect()
}

/// Kills a server while it executes a call. Returns the time from the kill until the call fails.
fn once(runs: Duration) -> Result<Duration, Failure> {
    let mut peer = Peer::start(None)?;
    let client = SmallClient::bind(&export_name(Waiting::Adaptive, Size::Small))?;
    client.null()?;
    let (killed, (outcome, noticed)) = std::thread::scope(|scope| {
        let caller = scope.spawn(|| (client.sleep(LONG_MS), Instant::now()));
        std::thread::sleep(runs);
        let killed = Instant::now();
        let kill = peer.kill();
        let caller = caller.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        kill.map(|()| (killed, caller))
    })?;
    match outcome {
        Err(error) if error.executed() == Executed::Maybe && noticed > killed => {
            Ok(noticed - killed)
        }
        Err(error) => Err(error.into()),
        Ok(()) => Err("a procedure that sleeps for a minute returned early".into()),
    }
}
