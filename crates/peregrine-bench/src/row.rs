//! Defines the row of results that all experiments use. Rows are shown as a table for people, or as JSON for
//! programs.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};

use crate::machine;
use crate::marks::{self, Mark};
use crate::statistics::{median, quartiles};

/// The format of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table
    #[default]
    Human,
    /// One JSON object
    Json,
}

/// The result of measurements under one set of conditions. Times are medians, in nanoseconds per call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    /// The kind of call.
    pub(crate) case: &'static str,
    /// The path: in-process, memory, local, ethernet, ethernet-packet, udp, tcp, onc-udp, onc-tcp.
    pub(crate) path: Option<&'static str>,
    /// The link: memory, loopback, veth.
    pub(crate) link: Option<&'static str>,
    /// How both sides wait.
    pub(crate) wait: Option<&'static str>,
    /// The placement: on which processors both sides run.
    pub(crate) placement: Option<&'static str>,
    /// The number of threads or processes that call concurrently.
    pub(crate) callers: u32,
    /// The number of bindings that the callers use.
    pub(crate) bindings: u32,
    /// The time of Peregrine's round trip.
    pub(crate) ours_ns: Option<f64>,
    /// The processor time of both sides for Peregrine's round trip.
    pub(crate) cpu_ns: Option<f64>,
    /// The limit with which Peregrine is compared.
    pub(crate) limit: Option<&'static str>,
    /// The time of the limit's round trip.
    pub(crate) limit_ns: Option<f64>,
    /// Peregrine's time divided by the limit's time: the median of the ratios of all rounds.
    pub(crate) ratio: Option<f64>,
    /// The lower quartile of the ratios.
    pub(crate) ratio_low: Option<f64>,
    /// The upper quartile of the ratios.
    pub(crate) ratio_high: Option<f64>,
}

impl Row {
    /// Creates a row that has one caller and no results yet.
    pub(crate) fn new(case: &'static str) -> Self {
        Self { case, link: Some("memory"), callers: 1, ..Self::default() }
    }

    /// Sets Peregrine's results of all rounds.
    pub(crate) fn ours(mut self, ours: &[f64], cpu: &[f64]) -> Self {
        self.ours_ns = Some(median(ours));
        self.cpu_ns = (!cpu.is_empty()).then(|| median(cpu));
        self
    }

    /// Sets the name of a limit, and the results of this limit in all rounds.
    pub(crate) fn limit(mut self, name: &'static str, limit: &[f64]) -> Self {
        self.limit = Some(name);
        self.limit_ns = Some(median(limit));
        self
    }

    /// Computes the ratio of each round. A disturbance by the machine affects Peregrine and the limit in the
    /// same round, so it hardly changes their ratio.
    pub(crate) fn ratio(mut self, ours: &[f64], limit: &[f64]) -> Self {
        let pairs = ours.iter().zip(limit);
        let ratios: Vec<f64> = pairs.map(|(ours, limit)| ours / limit).collect();
        let [low, middle, high] = quartiles(&ratios);
        (self.ratio_low, self.ratio, self.ratio_high) = (Some(low), Some(middle), Some(high));
        self
    }

    fn per_s(&self) -> Option<f64> {
        self.ours_ns.filter(|ns| *ns > 0.0).map(|ns| 1e9 / ns)
    }

    fn json(&self) -> Value {
        let to = |value: Option<f64>, steps: f64| value.map(|v| (v * steps).round() / steps);
        json!({
            "case": self.case,
            "path": self.path,
            "link": self.link,
            "wait": self.wait,
            "placement": self.placement,
            "callers": self.callers,
            "bindings": self.bindings,
            "ours_ns": to(self.ours_ns, 10.0),
            "cpu_ns": to(self.cpu_ns, 10.0),
            "per_s": to(self.per_s(), 1.0),
            "limit": self.limit,
            "limit_ns": to(self.limit_ns, 10.0),
            "ratio": to(self.ratio, 1000.0),
            "ratio_low": to(self.ratio_low, 1000.0),
            "ratio_high": to(self.ratio_high, 1000.0),
        })
    }

    fn cells(&self) -> [String; 15] {
        let text = |text: Option<&'static str>| text.unwrap_or("-").to_owned();
        let spread = match (self.ratio_low, self.ratio_high) {
            (Some(low), Some(high)) => format!("{low:.2}-{high:.2}"),
            _ => "-".into(),
        };
        let [must, reach] = self.marked();
        [
            self.case.to_owned(),
            text(self.path),
            text(self.link),
            text(self.wait),
            text(self.placement),
            self.callers.to_string(),
            self.bindings.to_string(),
            time(self.ours_ns),
            time(self.cpu_ns),
            self.per_s().map_or_else(|| "-".into(), |n| format!("{n:.0}")),
            match (self.limit, self.limit_ns) {
                (Some(name), Some(_)) => format!("{name} {}", time(self.limit_ns)),
                _ => "-".into(),
            },
            self.ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
            spread,
            must,
            reach,
        ]
    }

    /// Returns the cells of the columns `must` and `reach`.
    fn marked(&self) -> [String; 2] {
        let word = |met: bool| if met { "met" } else { "missed" };
        match (marks::of(self), self.ratio, self.ours_ns) {
            (Some(Mark::Ratio(must, reach)), Some(ratio), _) => {
                [must, reach].map(|mark| format!("{mark:.2} {}", word(ratio <= mark)))
            }
            (Some(Mark::More(ns)), _, Some(ours)) => {
                let more = ours - self.limit_ns.unwrap_or(0.0);
                [format!("+{} {}", time(Some(ns)), word(more <= ns)), String::new()]
            }
            (Some(Mark::Within(ns)), _, Some(ours)) => {
                let must = format!("{} {}", time(Some(ns)), word(ours <= ns));
                [must, String::new()]
            }
            _ => Default::default(),
        }
    }
}

/// Returns a time in nanoseconds as text, with a unit that fits its size.
pub(crate) fn time(ns: Option<f64>) -> String {
    match ns {
        None => "-".into(),
        Some(ns) if ns < 100.0 => format!("{ns:.1} ns"),
        Some(ns) if ns < 1e3 => format!("{ns:.0} ns"),
        Some(ns) if ns < 1e5 => format!("{:.2} us", ns / 1e3),
        Some(ns) if ns < 1e6 => format!("{:.0} us", ns / 1e3),
        Some(ns) => format!("{:.2} ms", ns / 1e6),
    }
}

const HEADER: [&str; 15] = [
    "case",
    "path",
    "link",
    "wait",
    "placement",
    "callers",
    "bindings",
    "ours",
    "cpu",
    "per s",
    "limit",
    "ratio",
    "quartiles",
    "must",
    "reach",
];

/// Writes the rows to standard output. Writes nothing else there.
pub(crate) fn show(experiment: &str, rows: &[Row], format: Format) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match format {
        Format::Json => {
            let rows: Vec<Value> = rows.iter().map(Row::json).collect();
            let machine = machine::description();
            let all = json!({ "experiment": experiment, "machine": machine, "rows": rows });
            writeln!(out, "{all:#}")
        }
        Format::Human => {
            let colour = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
            writeln!(out, "{}", table(rows, colour))
        }
    }
}

fn table(rows: &[Row], colour: bool) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(HEADER);
    for row in rows {
        table.add_row(row.cells());
    }
    for number in [5, 6, 7, 8, 9, 11] {
        if let Some(column) = table.column_mut(number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.trim_fmt();
    match text.split_once('\n') {
        Some((header, body)) if colour => format!("\x1b[36m{header}\x1b[0m\n{body}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_computed_round_by_round() {
        // In one round the machine was six times slower for both sides.
        let (ours, limit) = ([120.0, 720.0, 130.0], [100.0, 600.0, 100.0]);
        let row = Row::new("null").ours(&ours, &[]).limit("lines", &limit);
        let row = row.ratio(&ours, &limit);
        assert_eq!(row.ratio, Some(1.2));
        assert_eq!(row.json()["ours_ns"], 130.0);
        assert_eq!(row.json()["cpu_ns"], Value::Null);
    }

    #[test]
    fn json_of_a_row_has_all_fields() {
        let row = Row::new("null").json();
        let mut keys: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let mut expected = [
            "case",
            "path",
            "link",
            "wait",
            "placement",
            "callers",
            "bindings",
            "ours_ns",
            "cpu_ns",
            "per_s",
            "limit",
            "limit_ns",
            "ratio",
            "ratio_low",
            "ratio_high",
        ];
        expected.sort_unstable();
        assert_eq!(keys, expected);
    }
}
