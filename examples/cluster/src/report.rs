//! The result of a run with faults, as text, Markdown or JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use crate::Format;
use crate::load::Verified;
use crate::measured::{Tally, milliseconds};

/// What was measured in some time.
#[derive(Debug, Serialize)]
pub(crate) struct Window {
    /// `before`, `during` or `after`.
    pub(crate) name: &'static str,
    pub(crate) seconds: f64,
    pub(crate) store: Row,
    pub(crate) pool: Row,
}

/// The calls of one kind within a window.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    calls: u64,
    failed: u64,
    failures: BTreeMap<String, u64>,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
    /// The longest time in which no call succeeded.
    gap_us: u64,
}

impl From<&Tally> for Row {
    fn from(tally: &Tally) -> Self {
        Self {
            calls: tally.calls,
            failed: tally.failed(),
            failures: tally.failures.clone(),
            p50_us: tally.latency.quantile(0.5),
            p99_us: tally.latency.quantile(0.99),
            gap_us: tally.gap_us,
        }
    }
}

/// What one fault did.
#[derive(Debug, Serialize)]
pub(crate) struct Ended {
    pub(crate) fault: &'static str,
    pub(crate) windows: Vec<Window>,
    /// Values that were lost or damaged.
    pub(crate) violations: u64,
    /// The seconds from the repair until the cluster served as before. `None`: it did not within the limit.
    pub(crate) recovered_s: Option<f64>,
}

/// The result of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) servers: usize,
    pub(crate) members: usize,
    /// Calls per second of the store, and as many of the pool.
    pub(crate) rate: u32,
    pub(crate) keys: u32,
    pub(crate) faults: Vec<Ended>,
    /// The paths over which the pool reached its servers.
    pub(crate) paths: BTreeSet<String>,
    /// For each server that started under load: the time from the begin of its registration until the pool
    /// knew it, in microseconds.
    pub(crate) known_us: Vec<u64>,
    /// The same until the pool used it.
    pub(crate) joined_us: Vec<u64>,
    pub(crate) verified: Verified,
}

impl Report {
    /// Returns what went wrong. Empty: nothing was lost, and the cluster served after each fault.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let Verified { lost, unreadable, violations, examples, .. } = &self.verified;
        if lost + unreadable + violations > 0 {
            problems.push(format!(
                "{violations} values were lost or damaged under load; at the end, {lost} were lost and \
                 {unreadable} could not be read"
            ));
            problems.extend(examples.iter().cloned());
        }
        for ended in &self.faults {
            if ended.recovered_s.is_none() {
                let fault = ended.fault;
                problems.push(format!(
                    "after the fault `{fault}`, the cluster did not serve as before"
                ));
            }
        }
        problems
    }

    pub(crate) fn text(&self, format: Format) -> String {
        match format {
            Format::Json => serde_json::to_string_pretty(self).unwrap_or_default() + "\n",
            Format::Markdown => self.table(true),
            Format::Text => self.table(false),
        }
    }

    fn table(&self, is_markdown: bool) -> String {
        let mut rows: Vec<[String; 9]> = vec![
            [
                "fault",
                "window",
                "client",
                "calls",
                "failed",
                "p50 ms",
                "p99 ms",
                "longest gap ms",
                "failures by kind",
            ]
            .map(str::to_owned),
        ];
        for ended in &self.faults {
            for window in &ended.windows {
                for (client, row) in [("store", &window.store), ("pool", &window.pool)] {
                    let time = |time: Option<u64>| time.map_or_else(|| "-".into(), milliseconds);
                    let each = row.failures.iter().map(|(kind, count)| format!("{count} {kind}"));
                    rows.push([
                        ended.fault.to_owned(),
                        format!("{} ({:.0} s)", window.name, window.seconds),
                        client.to_owned(),
                        row.calls.to_string(),
                        row.failed.to_string(),
                        time(row.p50_us),
                        time(row.p99_us),
                        milliseconds(row.gap_us),
                        each.collect::<Vec<_>>().join(", "),
                    ]);
                }
            }
        }
        let mut text = if is_markdown { markdown(&rows) } else { aligned(&rows) };
        text.push('\n');
        for ended in &self.faults {
            let _ = match ended.recovered_s {
                Some(seconds) => writeln!(
                    text,
                    "* {}: {seconds:.1} s after the repair, all was as before; {} values were lost.",
                    ended.fault, ended.violations
                ),
                None => writeln!(text, "* {}: the cluster did NOT serve as before.", ended.fault),
            };
        }
        for (what, times) in [("knew", &self.known_us), ("used", &self.joined_us)] {
            let mut times = times.clone();
            times.sort_unstable();
            if let (Some(middle), Some(last)) = (times.get(times.len() / 2), times.last()) {
                let _ = writeln!(
                    text,
                    "* From a registration until the pool {what} the server: median {} ms, longest {} ms ({} times).",
                    milliseconds(*middle),
                    milliseconds(*last),
                    times.len()
                );
            }
        }
        let paths: Vec<_> = self.paths.iter().map(String::as_str).collect();
        let _ = writeln!(text, "* The pool reached its servers over {}.", paths.join(" and "));
        let Verified { keys, lost, unreadable, .. } = self.verified;
        let _ = writeln!(
            text,
            "* At the end, {keys} keys were read again: {lost} were lost, and {unreadable} could not be read."
        );
        text
    }
}

/// Returns rows as a table of Markdown. The first one is the head.
fn markdown<const N: usize>(rows: &[[String; N]]) -> String {
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let _ = writeln!(text, "| {} |", row.join(" | "));
        if at == 0 {
            text += &"|---".repeat(N);
            text += "|\n";
        }
    }
    text
}

/// Returns rows with columns of equal width.
fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut tally = Tally::default();
        tally.record(1500, None);
        tally.succeeded(7000);
        tally.record(900_000, Some("TimedOut (may have executed)".to_owned()));
        let window =
            Window { name: "during", seconds: 5.0, store: (&tally).into(), pool: (&tally).into() };
        let ended = Ended {
            fault: "kill a server",
            windows: vec![window],
            violations: 0,
            recovered_s: Some(1.0),
        };
        Report {
            servers: 5,
            members: 3,
            rate: 1,
            keys: 1,
            faults: vec![ended],
            paths: ["udp".to_owned()].into(),
            known_us: vec![1000],
            joined_us: vec![2000],
            verified: Verified { keys: 1, ..Verified::default() },
        }
    }

    #[test]
    fn result_has_each_row_in_each_format() {
        let report = report();
        let markdown = report.text(Format::Markdown);
        assert!(markdown.contains(
            "| kill a server | during (5 s) | pool | 2 | 1 | 1.53 | 918 | 7.00 | 1 TimedOut (may have executed) |"
        ), "{markdown}");
        assert!(markdown.contains("used the server: median 2.00 ms"), "{markdown}");
        assert!(report.text(Format::Text).contains("kill a server  during (5 s)  store"));
        let json: serde_json::Value = serde_json::from_str(&report.text(Format::Json)).unwrap();
        assert_eq!(json["faults"][0]["windows"][0]["store"]["failed"], 1);
        assert!(report.problems().is_empty());
    }

    #[test]
    fn lost_values_and_faults_that_last_are_problems() {
        let mut bad = report();
        bad.verified.lost = 1;
        bad.faults[0].recovered_s = None;
        assert_eq!(bad.problems().len(), 2);
        bad.verified = Verified { violations: 1, ..Verified::default() };
        assert_eq!(bad.problems().len(), 2);
    }
}
