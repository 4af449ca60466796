//! The experiment `death`: how fast a caller learns that its server was killed under its call.
//!
//! No deadline is set: what the caller waits for is the news.

use std::time::{Duration, Instant};

use peregrine::Executed;

use crate::Progress;
use crate::cases::{Size, Waiting, export_name};
use crate::interfaces::{Small, SmallClient};
use crate::peer::Peer;
use crate::row::Row;
use crate::statistics::percentile;
use crate::subject::Failure;

/// How long a procedure runs that will not end.
const LONG_MS: u32 = 60_000;
/// From the call to the kill, at least: by then the procedure runs and its caller sleeps.
const RUNS: Duration = Duration::from_millis(5);

/// Kills so many servers.
pub(crate) fn measure(rounds: usize, progress: &Progress) -> Result<Vec<Row>, Failure> {
    let mut waited = Vec::with_capacity(rounds);
    for round in 0..rounds {
        progress.say(&format!("killing server {} of {rounds}", round + 1));
        // At another moment of every timer's period each time.
        let extra = Duration::from_micros(round as u64 * 367 % 5000);
        waited.push(once(RUNS + extra)?.as_nanos() as f64);
    }
    let row = |case, fraction| Row {
        path: Some("local"),
        wait: Some(Waiting::Adaptive.name()),
        placement: Some("free"),
        bindings: 1,
        ..Row::new(case).ours(&[percentile(&waited, fraction)], &[])
    };
    Ok(vec![row("death-p50", 0.50), row("death-p99", 0.99)])
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
