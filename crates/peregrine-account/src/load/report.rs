//! A load as JSON and as a page.

use core::fmt::{self, Write as _};

use serde_json::{Value, json};

use super::plot::{self, count};
use super::{Cause, Level, Load, Times};
use crate::picture::{escaped, time};
use crate::shown;

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "as a queue",
            Self::Faster => "shorter than a queue",
            Self::Saturated => "more calls than it serves",
            Self::Interruptions => "a few interruptions",
            Self::Sleeps => "waits that slept",
            Self::PacketsAgain => "packets sent again",
            Self::CallerLate => "the caller began late",
            Self::LongerCalls => "each call took longer",
            Self::Queue => "waiting behind others",
        })
    }
}

impl Cause {
    /// Returns the word for this cause in JSON.
    const fn key(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Faster => "faster",
            Self::Saturated => "saturated",
            Self::Interruptions => "interruptions",
            Self::Sleeps => "sleeps",
            Self::PacketsAgain => "packets-again",
            Self::CallerLate => "caller-late",
            Self::LongerCalls => "longer-calls",
            Self::Queue => "queue",
        }
    }
}

fn times(times: &Times) -> Value {
    json!({
        "mean_ns": shown(times.mean_ns),
        "p50_ns": times.p50_ns,
        "p90_ns": times.p90_ns,
        "p99_ns": times.p99_ns,
        "p999_ns": times.p999_ns,
        "max_ns": times.max_ns,
    })
}

fn level(level: &Level) -> Value {
    let [client, server] = level.slept_ratio;
    json!({
        "utilization": level.utilization,
        "offered_per_s": shown(level.offered_per_s),
        "calls_per_s": shown(level.calls_per_s),
        "calls": level.calls,
        "response": times(&level.response),
        "call": times(&level.call),
        "late_ns": shown(level.late_ns),
        "in_system": shown(level.in_system),
        "little": shown(level.little()),
        "slept_ratio": { "client": client, "server": server },
        "again_ratio": level.again_ratio,
        "models": {
            "s/(1-u)": { "mean_ns": shown(level.markov_ns) },
            "M/D/1": times(&level.constant),
            "M/G/1": times(&level.general),
        },
        "p99_over_md1": shown(level.response.p99_ns / level.constant.p99_ns),
        "cause": level.cause.key(),
    })
}

/// Returns a load as JSON.
pub(super) fn json(load: &Load) -> Value {
    let closed = load.closed.iter().map(|run| {
        json!({
            "callers": run.callers,
            "think_ns": run.think_ns,
            "calls_per_s": shown(run.calls_per_s),
            "response_ns": shown(run.response_ns),
            "law_ns": shown(run.law_ns()),
        })
    });
    json!({
        "callers": load.callers,
        "capacity_per_s": shown(load.capacity_per_s),
        "service": times(&load.service),
        "service_variation": shown(load.variation),
        "levels": load.levels.iter().map(level).collect::<Vec<_>>(),
        "closed": closed.collect::<Vec<_>>(),
        "fast_path": load.fast_path.map(|path| json!({
            "unit_ns": shown(path.unit_ns),
            "slow": shown(path.slow),
        })),
        "amdahl": load.amdahl.map(|law| json!({
            "serial": shown(law.serial),
            "bound_per_s": law.bound_per_s.is_finite().then(|| shown(law.bound_per_s)),
        })),
    })
}

/// Writes a table. The first row has the titles.
fn table(rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut out = "<table>\n".to_owned();
    for (number, row) in rows.enumerate() {
        let tag = if number == 0 { "th" } else { "td" };
        let cells = row.iter().fold(String::new(), |mut cells, cell| {
            // Writing to a string does not fail.
            let _ = write!(cells, "<{tag}>{}</{tag}>", escaped(cell));
            cells
        });
        let _ = writeln!(out, "<tr>{cells}</tr>");
    }
    out + "</table>\n"
}

/// The titles of the table of levels, and its rows.
fn levels(load: &Load) -> impl Iterator<Item = Vec<String>> + '_ {
    let titles = [
        "load",
        "calls/s",
        "mean",
        "p50",
        "p99",
        "p99.9",
        "s/(1-u)",
        "M/D/1 mean",
        "M/D/1 p99",
        "in system",
        "r x",
        "slept",
        "cause",
    ];
    let row = |level: &Level| {
        vec![
            format!("{:.0} %", 100.0 * level.utilization),
            format!("{:.0}", level.calls_per_s),
            time(level.response.mean_ns),
            time(level.response.p50_ns),
            time(level.response.p99_ns),
            time(level.response.p999_ns),
            time(level.markov_ns),
            time(level.constant.mean_ns),
            time(level.constant.p99_ns),
            format!("{:.2}", level.in_system),
            format!("{:.2}", level.little()),
            format!("{:.1} %", 100.0 * level.slept()),
            level.cause.to_string(),
        ]
    };
    core::iter::once(titles.map(str::to_owned).to_vec()).chain(load.levels.iter().map(row))
}

/// The titles of the table of closed runs, and its rows.
fn closed(load: &Load) -> impl Iterator<Item = Vec<String>> + '_ {
    let titles = ["callers", "pause", "calls/s", "time of a call", "N/x - z"];
    let rows = load.closed.iter().map(|run| {
        vec![
            run.callers.to_string(),
            time(run.think_ns),
            format!("{:.0}", run.calls_per_s),
            time(run.response_ns),
            time(run.law_ns()),
        ]
    });
    core::iter::once(titles.map(str::to_owned).to_vec()).chain(rows)
}

/// What follows from the figures, a sentence each.
pub(super) fn findings(load: &Load) -> Vec<String> {
    let mut all = vec![format!(
        "A call takes {} if nothing waits before it, so {} can make {} calls per second.",
        time(load.service.mean_ns),
        if load.callers == 1 {
            "one caller".to_owned()
        } else {
            format!("{} callers", load.callers)
        },
        count(load.capacity_per_s),
    )];
    if let Some(path) = load.fast_path {
        all.push(format!(
            "A call whose waits do not sleep takes {}; one that waits for a sleeping thread takes {:.1} times \
             as much more (t = 1 + m s).",
            time(path.unit_ns),
            path.slow,
        ));
    }
    if let Some(law) = load.amdahl {
        let bound = match law.bound_per_s.is_finite() {
            true => format!(
                "so no number of callers makes more than {} calls per second",
                count(law.bound_per_s)
            ),
            false => "so the throughput grows with the number of callers".to_owned(),
        };
        all.push(format!(
            "{:.0} % of a call are in a part that only one caller can be in, {bound} (Amdahl's law).",
            100.0 * law.serial,
        ));
    }
    let worst =
        load.levels.iter().find(|level| !matches!(level.cause, Cause::None | Cause::Faster));
    all.push(match worst {
        None => "At no level do calls take longer than in a queue with the same times.".to_owned(),
        Some(level) => format!(
            "From {:.0} % of the capacity on, calls take longer than in a queue with the same times: {}.",
            100.0 * level.utilization,
            level.cause,
        ),
    });
    all
}

/// Returns a load as a page.
pub(super) fn html(load: &Load, title: &str) -> String {
    let findings: String =
        findings(load).iter().map(|text| format!("<p>{}</p>\n", escaped(text))).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<style>\n\
         body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; \
         padding: 0 1rem; color: #1a202c; }}\n\
         svg {{ width: 100%; height: auto; border: 1px solid #e2e8f0; border-radius: 6px; }}\n\
         table {{ border-collapse: collapse; margin: 1rem 0 2rem; width: 100%; font-size: 13px; }}\n\
         td, th {{ padding: .3rem .5rem; border-bottom: 1px solid #e2e8f0; text-align: right; \
         font-variant-numeric: tabular-nums; }}\n\
         h2 {{ font-size: 17px; margin-top: 2rem; }}\n\
         </style>\n</head>\n<body>\n{svg}\n{findings}\
         <h2>Calls that are due at random moments</h2>\n{levels}\
         <h2>Callers that make one call after the other</h2>\n{closed}\
         <p>The response time of a call counts from the moment at which it was due. The queues get the same \
         moments: in M/D/1, each call takes the mean service time. In system: the calls that a call finds \
         when it is due; by Little's law, as many as response time times throughput (r x).</p>\n\
         </body>\n</html>\n",
        title = escaped(title),
        svg = plot::svg(load, title),
        levels = table(levels(load)),
        closed = table(closed(load)),
    )
}
