//! `explain`: shows which path a binding uses, and why it does not use the others.

use std::time::{Duration, Instant};

use peregrine::{Candidate, Explanation, Verdict};
use serde_json::{Value, json};

use crate::args::Format;
use crate::output::{self, BAD, BOLD, DIM, Failure, GOOD, visible};
use crate::security::bind_options;

/// Explains which path a binding to an address uses. If no path works, shows the explanation and then fails.
pub(crate) fn run(address: &str, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    let (explanation, bound) = peregrine::explain(address, &bind_options());
    let took = begun.elapsed();
    if format.is_json() {
        // The output is a single object that contains both the explanation and the error.
        let members = to_json(&explanation, took);
        return match bound {
            Ok(()) => output::print(members),
            Err(error) => Err(Failure::from(error).with(members)),
        };
    }
    output::say(to_text(&explanation))?;
    Ok(bound?)
}

fn to_json(explanation: &Explanation, took: Duration) -> Value {
    let rungs = explanation.candidates().iter().map(|Candidate { path, verdict, reason }| {
        json!({ "path": path.to_string(), "verdict": verdict.to_string(), "reason": reason })
    });
    json!({
        "address": explanation.address(),
        "path": explanation.chosen().map(|path| path.to_string()),
        "paths": rungs.collect::<Vec<_>>(),
        "took_ns": output::whole_ns(took),
    })
}

fn to_text(explanation: &Explanation) -> String {
    let rows = explanation.candidates().iter().map(|Candidate { path, verdict, reason }| {
        let style = match verdict {
            Verdict::Chosen => GOOD,
            Verdict::Failed => BAD,
            _ => DIM,
        };
        format!("  {BOLD}{path:<9}{BOLD:#} {style}{verdict:<10}{style:#}  {}", visible(reason))
    });
    let rows: Vec<_> = rows.map(|row| row.trim_end().to_owned()).collect();
    format!("{BOLD}{}{BOLD:#}\n{}", explanation.address(), rows.join("\n"))
}
