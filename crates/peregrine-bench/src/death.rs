//! The experiment `death`: how fast a caller learns that its server is gone under its call: that its
//! process was killed, or that the link to its machine was cut.
//!
//! No deadline is set: what the caller waits for is the news.

use std::time::{Duration, Instant};

use peregrine::Executed;

use crate::Progress;
use crate::cases::{Size, Waiting, export_name};
use crate::interfaces::{Small, SmallClient};
use crate::network::gone::{self, Going};
use crate::peer::Peer;
use crate::row::Row;
use crate::statistics::percentile;
use crate::subject::Failure;

/// What rows are called, of servers that are killed and of links that are cut.
pub(crate) const DEATHS: [&str; 2] = ["death-p50", "death-p99"];
pub(crate) const CUTS: [&str; 2] = ["cut-p50", "cut-p99"];

/// How long a procedure runs that will not end.
const LONG_MS: u32 = 60_000;
/// From the call to the kill, at least: by then the procedure runs and its caller sleeps.
const RUNS: Duration = Duration::from_millis(5);

/// A call across a network goes on for so long at most until its server goes: all that its timers do at
/// first falls into that.
const RUNS_MAX: Duration = Duration::from_millis(1500);

/// Kills so many servers of this machine, and has so many others go.
pub(crate) fn measure(
    rounds: usize,
    far_rounds: usize,
    progress: &Progress,
) -> Result<Vec<Row>, Failure> {
    let mut waited = Vec::with_capacity(rounds);
    for round in 0..rounds {
        progress.say(&format!("killing server {} of {rounds}", round + 1));
        // At another moment of every timer's period each time.
        let extra = Duration::from_micros(round as u64 * 367 % 5000);
        waited.push(once(RUNS + extra)?.as_nanos() as f64);
    }
    let mut rows = rows(DEATHS, "local", "memory", &waited);
    for what in gone::ALL {
        let (going, path, link) = what;
        if let Some(why) = link.missing() {
            progress.say("");
            eprintln!("skipped: {} across {}: {why}", path.name(), link.name());
            continue;
        }
        let mut waited = Vec::with_capacity(far_rounds);
        for round in 0..far_rounds {
            let (path, link) = (path.name(), link.name());
            progress.say(&format!("{going:?} over {path}, {link}: {} of {far_rounds}", round + 1));
            // Spread over all of it, in no order that a timer has.
            let part = (round as f64 * 0.618).fract();
            let runs = RUNS + (RUNS_MAX - RUNS).mul_f64(part);
            let took = gone::once(what, Waiting::Adaptive, runs, LONG_MS)?;
            waited.push(took.as_nanos() as f64);
        }
        let names = if going == Going::Cut { CUTS } else { DEATHS };
        rows.extend(self::rows(names, path.name(), link.name(), &waited));
    }
    Ok(rows)
}

/// The middle and the end of what was waited for.
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

/// Kills a server while a call to it runs: the time until the call fails.
fn once(runs: Duration) -> Result<Duration, Failure> {
    let mut peer = Peer::start(None)?;
    let client = SmallClient::bind(&export_name(Waiting::Adaptive, Size::Small))?;
    client.null()?;
    let (killed, (outcome, told)) = std::thread::scope(|scope| {
        let caller = scope.spawn(|| (client.sleep(LONG_MS), Instant::now()));
        std::thread::sleep(runs);
        let killed = Instant::now();
        let kill = peer.kill();
        let caller = caller.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        kill.map(|()| (killed, caller))
    })?;
    match outcome {
        Err(error) if error.executed() == Executed::Maybe && told > killed => Ok(told - killed),
        Err(error) => Err(error.into()),
        Ok(()) => Err("a procedure of a minute returned at once".into()),
    }
}
