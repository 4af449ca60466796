//! Shows a comparison as a table and as JSON.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};

use super::decision::{Decision, SLOWER, spread};
use super::program::{Key, OPTIONS, Sample};
use super::{Comparison, Pairs};
use crate::row::{Format, time};
use crate::statistics::median;

/// The fields of a row that identify the measurement.
const FIELDS: [&str; 7] = ["case", "path", "link", "wait", "placement", "callers", "bindings"];

const HEADER: [&str; 7] = ["before", "after", "ratio", "interval", "limits", "turns", "mark"];

/// Returns the median of Peregrine's times over all turns.
fn middle(samples: &[Sample]) -> f64 {
    median(&samples.iter().map(|sample| sample.ours_ns).collect::<Vec<_>>())
}

impl Pairs {
    /// Returns the median times of the older and of the newer build, and the median ratio of the limits.
    fn medians(&self) -> (f64, f64, Option<f64>) {
        let limits = self.limit_ratios();
        let limits = (!limits.is_empty()).then(|| median(&limits));
        (middle(&self.before), middle(&self.after), limits)
    }

    fn mark(&self) -> Option<&'static str> {
        match self.decision() {
            Decision::NotSlower => None,
            Decision::Undecided => Some("undecided"),
            Decision::Slower => Some("slower"),
        }
    }

    fn json(&self, key: &Key, run: &str) -> Value {
        let round = |value: f64, steps: f64| (value * steps).round() / steps;
        let ((before, after, limits), all) = (self.medians(), spread(&self.ratios()));
        let mut row = fields(key, run);
        for (name, value) in [
            ("before_ns", Some(round(before, 10.0))),
            ("after_ns", Some(round(after, 10.0))),
            ("ratio", Some(round(all.median, 1000.0))),
            ("ratio_low", Some(round(all.low, 1000.0))),
            ("ratio_high", Some(round(all.high, 1000.0))),
            ("limit_ratio", limits.map(|ratio| round(ratio, 1000.0))),
        ] {
            row[name] = value.into();
        }
        row["turns"] = self.before.len().into();
        row["mark"] = self.mark().into();
        row
    }
}

/// Returns the fields of a row as JSON. Numbers become JSON numbers.
fn fields(key: &Key, run: &str) -> Value {
    let mut row = json!({ "run": run });
    for name in FIELDS {
        let value = key.field(name);
        row[name] = match value.and_then(|value| value.parse::<u64>().ok()) {
            Some(number) => number.into(),
            None => value.into(),
        };
    }
    row
}

/// Writes the comparison to standard output.
pub(crate) fn show(
    all: &Comparison,
    runs: &[String],
    [before, after]: &[String; 2],
    machine: &Value,
    format: Format,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if format == Format::Json {
        let only = |keys: &std::collections::BTreeSet<Key>| -> Vec<Value> {
            keys.iter().map(|key| fields(key, &runs[key.run])).collect()
        };
        let rows = all.rows.iter().map(|(key, pairs)| pairs.json(key, &runs[key.run]));
        let text = json!({
            "experiment": "compare",
            "machine": machine,
            "before": before,
            "after": after,
            "rows": rows.collect::<Vec<_>>(),
            "before_only": only(&all.before_only),
            "after_only": only(&all.after_only),
        });
        return writeln!(out, "{text:#}");
    }
    for (number, run) in runs.iter().enumerate() {
        let rows = || all.rows.iter().filter(|(key, _)| key.run == number);
        if rows().next().is_some() {
            writeln!(out, "{run}\n{}\n{}\n", table(rows()), summary(rows().map(|row| row.1)))?;
        }
    }
    for (what, keys) in [("before", &all.before_only), ("after", &all.after_only)] {
        for key in keys {
            let fields = OPTIONS.iter().filter_map(|name| key.field(name));
            writeln!(out, "only {what}: {}", fields.collect::<Vec<_>>().join(" "))?;
        }
    }
    Ok(())
}

fn table<'a>(rows: impl Iterator<Item = (&'a Key, &'a Pairs)>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(FIELDS.iter().chain(&HEADER));
    for (key, pairs) in rows {
        let fields = FIELDS.map(|name| key.field(name).unwrap_or("-").to_owned());
        let ((before, after, limits), all) = (pairs.medians(), spread(&pairs.ratios()));
        table.add_row(fields.into_iter().chain([
            time(Some(before)),
            time(Some(after)),
            format!("{:.3}", all.median),
            format!("{:.2}-{:.2}", all.low, all.high),
            limits.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
            pairs.before.len().to_string(),
            pairs.mark().unwrap_or_default().to_owned(),
        ]));
    }
    for number in [5, 6, 7, 8, 9, 11, 12] {
        if let Some(column) = table.column_mut(number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// Returns one line that summarizes all rows of an experiment.
fn summary<'a>(rows: impl Iterator<Item = &'a Pairs>) -> String {
    let (mut ratios, mut slower, mut undecided) = (Vec::new(), 0, 0);
    for pairs in rows {
        ratios.push(median(&pairs.ratios()));
        match pairs.decision() {
            Decision::NotSlower => {}
            Decision::Undecided => undecided += 1,
            Decision::Slower => slower += 1,
        }
    }
    let [count, middle] = [ratios.len() as f64, median(&ratios)];
    let percent = (SLOWER - 1.0) * 100.0;
    format!(
        "{count} rows, the median of their ratios {middle:.3}: {slower} more than {percent:.0} % \
         slower, {undecided} undecided"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slower_row_is_marked_and_equal_row_is_not() {
        let sample = |ours_ns| Sample { ours_ns, limit_ns: Some(5.0) };
        let pairs = |after| Pairs { before: vec![sample(100.0); 8], after: vec![sample(after); 8] };
        assert_eq!(pairs(100.0).mark(), None);
        assert_eq!(pairs(104.0).mark(), Some("slower"));
        let all = [pairs(100.0), pairs(104.0)];
        let text = summary(all.iter());
        assert_eq!(
            text,
            "2 rows, the median of their ratios 1.020: 1 more than 3 % slower, 0 undecided"
        );
        assert_eq!(all[1].medians(), (100.0, 104.0, Some(1.0)));
    }
}
