//! `ping`: calls the procedure that every export has, and says how long it takes.

use std::time::{Duration, Instant};

use peregrine::{BindOptions, Binding};
use serde_json::json;

use crate::args::{Format, Ping};
use crate::output::{self, BOLD, Failure, nanoseconds};

/// A call that takes longer than this has no server that works.
const LIMIT: Duration = Duration::from_secs(5);

/// Pings one export.
pub(crate) fn run(ping: &Ping, format: Format) -> Result<(), Failure> {
    let options = BindOptions::default().wait(ping.wait.into()).timeout(LIMIT);
    let begun = Instant::now();
    let binding = Binding::bind_any(&ping.name, &options)?;
    let bind = begun.elapsed();
    let mut times = Vec::with_capacity(ping.count as usize);
    let begun = Instant::now();
    for _ in 0..ping.count {
        let begun = Instant::now();
        binding.ping()?;
        times.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    let per_s = f64::from(ping.count) / begun.elapsed().as_secs_f64();
    times.sort_unstable();
    let percentile = |percent: usize| times[(times.len() - 1) * percent / 100];
    let (min, median, p99, max) = (percentile(0), percentile(50), percentile(99), percentile(100));
    match format {
        Format::Json => output::print(json!({
            "name": ping.name,
            "path": binding.path().to_string(),
            "explain": binding.explain().summary(),
            "wait": ping.wait.text(),
            "calls": ping.count,
            "bind_ns": u64::try_from(bind.as_nanos()).unwrap_or(u64::MAX),
            "min_ns": min,
            "median_ns": median,
            "p99_ns": p99,
            "max_ns": max,
            "per_s": per_s,
        })),
        Format::Human => {
            let path = binding.explain().summary();
            let text = |ns: u64| nanoseconds(ns as f64);
            let bind = nanoseconds(bind.as_nanos() as f64);
            let calls = if ping.count == 1 { "call" } else { "calls" };
            output::print(format_args!(
                "{BOLD}{}{BOLD:#}: path {path}, wait {}, bound in {bind}\n\
                 {} {calls}: min {}  median {BOLD}{}{BOLD:#}  p99 {}  max {}  ({per_s:.0} per s)",
                ping.name,
                ping.wait.text(),
                ping.count,
                text(min),
                text(median),
                text(p99),
                text(max),
            ))
        }
    }
}
