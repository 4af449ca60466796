//! `explain`: which path binding to an address takes, and why none of the others.

use std::time::{Duration, Instant};

use peregrine::{BindOptions, Candidate, Explanation, Verdict};
use serde_json::{Value, json};

use crate::args::Format;
use crate::output::{self, BAD, BOLD, DIM, Failure, GOOD, visible};

/// Explains one address. Where no path works that is told too, and then why the command failed.
pub(crate) fn run(address: &str, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    let (explanation, bound) = peregrine::explain(address, &BindOptions::default());
    let took = begun.elapsed();
    if format.is_json() {
        // One object, which says both.
        let told = to_json(&explanation, took);
        return match bound {
            Ok(()) => output::print(told),
            Err(error) => Err(Failure::from(error).with(told)),
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
