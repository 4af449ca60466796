//! `doctor`: checks what this machine supports, how that affects calls, and how to improve it.

mod kernel;
mod link;
mod machine;
mod rights;
mod wake;

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::args::{Doctor, Format};
use crate::output::{self, BAD, BOLD, DIM, FAIR, Failure, GOOD};

/// The verdict on one property of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The property is as good as it can be.
    Good,
    /// Calls work, but could be faster.
    Slow,
    /// The machine does not have the property.
    Missing,
}

/// One property of this machine.
#[derive(Debug)]
pub(super) struct Finding {
    /// The name of the property.
    what: &'static str,
    verdict: Verdict,
    /// The value of the property on this machine.
    found: String,
    /// What the value of the property means for calls.
    costs: String,
    /// How to improve the property, if possible as a command. Empty if the verdict is `Good`.
    fix: String,
    /// Measurements, each with a name and a number of nanoseconds.
    measured: Vec<(&'static str, f64)>,
}

impl Finding {
    fn new(what: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        let (found, costs, fix) = (found.into(), String::new(), String::new());
        Self { what, verdict, found, costs, fix, measured: Vec::new() }
    }

    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self::new(what, Verdict::Good, found)
    }

    /// Returns a finding with the verdict `Good` if `is` is true, and with the verdict `Missing` otherwise.
    fn of(what: &'static str, is: bool, found: impl Into<String>) -> Self {
        Self::new(what, if is { Verdict::Good } else { Verdict::Missing }, found)
    }

    fn costs(mut self, costs: impl Into<String>) -> Self {
        self.costs = costs.into();
        self
    }

    /// Sets the advice on how to improve the property, unless the verdict is `Good`.
    fn fix(mut self, fix: impl Into<String>) -> Self {
        if self.verdict != Verdict::Good {
            self.fix = fix.into();
        }
        self
    }

    fn measured(mut self, name: &'static str, ns: f64) -> Self {
        self.measured.push((name, ns));
        self
    }
}

/// Checks all properties, and prints the findings.
pub(crate) fn run(doctor: &Doctor, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut findings = Vec::new();
    let checks: [&dyn Fn() -> Vec<Finding>; 3] = [&rights::look, &kernel::look, &machine::look];
    let measured: [&dyn Fn() -> Vec<Finding>; 2] = [&wake::measure, &|| link::measure(format)];
    let measured = measured.into_iter().filter(|_| !doctor.quick);
    for part in checks.into_iter().chain(measured) {
        for finding in part() {
            match format {
                Format::Human => output::say(finding.to_text())?,
                Format::Ndjson => output::print(finding.to_json())?,
                Format::Json => {}
            }
            findings.push(finding);
        }
    }
    let count = |verdict| findings.iter().filter(|one| one.verdict == verdict).count();
    let [good, slow, missing] = [Verdict::Good, Verdict::Slow, Verdict::Missing].map(count);
    match format {
        Format::Ndjson => Ok(()),
        Format::Json => output::print(json!({
            "findings": findings.iter().map(Finding::to_json).collect::<Vec<_>>(),
            "good": good,
            "slow": slow,
            "missing": missing,
            "quick": doctor.quick,
            "took_ns": output::whole_ns(begun.elapsed()),
        })),
        Format::Human => output::say(format_args!(
            "\n{GOOD}{good} good{GOOD:#}, {FAIR}{slow} slow{FAIR:#}, {BAD}{missing} missing{BAD:#}"
        )),
    }
}

impl Verdict {
    const fn text(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Slow => "slow",
            Self::Missing => "missing",
        }
    }
}

impl Finding {
    fn to_json(&self) -> Value {
        let measured = self.measured.iter().map(|(name, ns)| ((*name).to_owned(), json!(ns)));
        json!({
            "what": self.what,
            "verdict": self.verdict.text(),
            "found": self.found,
            "costs": self.costs,
            "fix": self.fix,
            "measured_ns": measured.collect::<serde_json::Map<_, _>>(),
        })
    }

    fn to_text(&self) -> String {
        let style = match self.verdict {
            Verdict::Good => GOOD,
            Verdict::Slow => FAIR,
            Verdict::Missing => BAD,
        };
        let mut text = format!(
            "{style}{:<8}{style:#}{BOLD}{}{BOLD:#}: {}",
            self.verdict.text(),
            self.what,
            self.found
        );
        if !self.costs.is_empty() {
            text.push_str(&format!("\n        {DIM}{}{DIM:#}", self.costs));
        }
        if !self.fix.is_empty() {
            text.push_str(&format!("\n        {GOOD}help:{GOOD:#} {}", self.fix));
        }
        text
    }
}

/// Reads a file of the kernel, without the newline at its end. Returns `None` if reading fails.
fn read_kernel_file(path: impl AsRef<Path>) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_has_a_cost_and_a_fix() {
        let all: Vec<Finding> =
            [rights::look(), kernel::look(), machine::look()].into_iter().flatten().collect();
        assert!(all.len() >= 15, "{all:?}");
        let mut seen = Vec::new();
        for one in &all {
            assert!(!one.found.is_empty() && !one.costs.is_empty(), "{one:?}");
            assert_eq!(one.fix.is_empty(), one.verdict == Verdict::Good, "{one:?}");
            assert!(!seen.contains(&one.what), "duplicate: {one:?}");
            seen.push(one.what);
        }
    }
}
