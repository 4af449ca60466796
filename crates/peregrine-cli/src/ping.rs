//! `ping`: measures calls of the empty procedure that every export has.

use std::time::{Duration, Instant};

use peregrine::Binding;
use serde_json::{Value, json};

use crate::args::{Format, Ping};
use crate::interrupt::{Interrupt, InterruptOptions};
use crate::output::{self, BOLD, Failure, nanoseconds, whole_ns};
use crate::security::bind_options;

/// Time limit of a call.
const LIMIT: Duration = Duration::from_secs(5);
/// The interval at which `--format ndjson` prints intermediate results.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long the current call may still run after a signal interrupted the command.
const GRACE: Duration = Duration::from_millis(200);

/// Pings one export.
pub(crate) fn run(ping: &Ping, format: Format) -> Result<(), Failure> {
    let options = bind_options().wait(ping.wait.into()).timeout(LIMIT);
    let signals = InterruptOptions { format, grace: GRACE, executed: "maybe" };
    let interrupt = Interrupt::handle(signals, || {}, || "a call had no reply yet".to_owned())?;
    let begun = Instant::now();
    let binding = Binding::bind_any(&ping.name, &options)?;
    let bind = begun.elapsed();
    let mut times = Vec::with_capacity(ping.count as usize);
    let begun = Instant::now();
    let mut interval = Interval { since: begun, first: 0, printing: Duration::ZERO };
    let mut ended = Ok(());
    for _ in 0..ping.count {
        let begun = Instant::now();
        if let Err(error) = binding.ping() {
            ended = Err(Failure::from(error));
            break;
        }
        let after = Instant::now();
        times.push(u64::try_from((after - begun).as_nanos()).unwrap_or(u64::MAX));
        if format == Format::Ndjson && after - interval.since >= INTERVAL {
            interval.print(&times, after)?;
        }
        if interrupt.signal().is_some() {
            break;
        }
    }
    let took = begun.elapsed() - interval.printing;
    let path = binding.path().to_string();
    let explain = binding.explain().summary();
    // If a call fails, the measurements of the earlier calls are still valid, and are reported.
    let times = Times::of(&times, took);
    let ended = ended.and_then(|()| interrupt.check(|| times.stopped(ping.count)));
    interrupt.leave();
    if format.is_json() {
        let mut members = times.to_json();
        members["name"] = json!(ping.name);
        members["path"] = json!(path);
        members["explain"] = json!(explain);
        members["wait"] = json!(ping.wait.text());
        members["bind_ns"] = whole_ns(bind);
        if format == Format::Ndjson {
            members["row"] = json!("all");
        }
        return match ended {
            Ok(()) => output::print(members),
            Err(failure) => Err(failure.with(members)),
        };
    }
    let bind = nanoseconds(bind.as_nanos() as f64);
    output::say(format_args!(
        "{BOLD}{}{BOLD:#}: path {explain}\nwait {}, bound in {bind}",
        ping.name,
        ping.wait.text(),
    ))?;
    output::say(times.to_text())?;
    ended
}

/// The calls since the last intermediate result.
struct Interval {
    since: Instant,
    /// The index of the first call in the interval.
    first: usize,
    /// The total time in which results were printed. No calls were made during this time.
    printing: Duration,
}

impl Interval {
    fn print(&mut self, times: &[u64], now: Instant) -> Result<(), Failure> {
        let mut members = Times::of(&times[self.first..], now - self.since).to_json();
        members["row"] = json!("interval");
        output::print(members)?;
        self.printing += now.elapsed();
        (self.since, self.first) = (Instant::now(), times.len());
        Ok(())
    }
}

/// The durations of calls.
struct Times {
    calls: usize,
    /// `None` if no call was completed.
    quantiles: Option<Quantiles>,
    took: Duration,
}

/// Quantiles of the durations of calls, in nanoseconds.
struct Quantiles {
    min: u64,
    median: u64,
    p90: u64,
    p99: u64,
    max: u64,
}

impl Times {
    fn of(times: &[u64], took: Duration) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let quantiles = sorted.len().checked_sub(1).map(|last| {
            let [min, median, p90, p99, max] =
                [0, 50, 90, 99, 100].map(|percent| sorted[last * percent / 100]);
            Quantiles { min, median, p90, p99, max }
        });
        Self { calls: times.len(), quantiles, took }
    }

    fn per_s(&self) -> f64 {
        self.calls as f64 / self.took.as_secs_f64().max(1e-9)
    }

    fn stopped(&self, wanted: u32) -> String {
        format!("{} of {wanted} calls were made", self.calls)
    }

    /// Returns the results as a JSON object. Values that were not measured are null.
    fn to_json(&self) -> Value {
        let quantile = |of: fn(&Quantiles) -> u64| self.quantiles.as_ref().map(of);
        json!({
            "calls": self.calls,
            "min_ns": quantile(|one| one.min),
            "median_ns": quantile(|one| one.median),
            "p90_ns": quantile(|one| one.p90),
            "p99_ns": quantile(|one| one.p99),
            "max_ns": quantile(|one| one.max),
            "per_s": self.quantiles.as_ref().map(|_| self.per_s()),
            "took_ns": whole_ns(self.took),
        })
    }

    fn to_text(&self) -> String {
        let Some(Quantiles { min, median, p99, max, .. }) = self.quantiles else {
            return "no call was completed: no times".to_owned();
        };
        let text = |ns: u64| nanoseconds(ns as f64);
        let calls = if self.calls == 1 { "call" } else { "calls" };
        format!(
            "{} {calls}: min {}  median {BOLD}{}{BOLD:#}  p99 {}  max {}  ({:.0} per s)",
            self.calls,
            text(min),
            text(median),
            text(p99),
            text(max),
            self.per_s(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_completed_call_gives_no_times() {
        let none = Times::of(&[], Duration::from_secs(1));
        assert!(!none.to_text().contains("ns"), "{}", none.to_text());
        let members = none.to_json();
        for key in ["min_ns", "median_ns", "p90_ns", "p99_ns", "max_ns", "per_s"] {
            assert!(members[key].is_null(), "{members}");
        }
        let one = Times::of(&[7], Duration::from_secs(1));
        assert!(one.to_text().starts_with("1 call: min 7 ns"), "{}", one.to_text());
        assert_eq!(one.to_json()["max_ns"], 7);
    }
}
