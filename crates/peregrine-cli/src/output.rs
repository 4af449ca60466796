//! Answers and failures: text for people or JSON for programs, and the exit code.

use core::fmt::Display;
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::builder::styling::{AnsiColor, Style};
use comfy_table::{CellAlignment, Table, presets};
use peregrine::{Address, CallError, Executed, Kind};
use serde_json::{Value, json};

use crate::args::Format;

/// Emphasis.
pub(crate) const BOLD: Style = Style::new().bold();
/// What matters less.
pub(crate) const DIM: Style = Style::new().dimmed();
/// What is good.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
/// What is not.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

/// Why the command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A call, a bind or an export failed.
    Call(CallError),
    /// The procedure ran and said no.
    Said(String),
    /// Something on this side failed; nothing was called.
    Local {
        /// What was attempted.
        what: String,
        /// Why it failed.
        causes: Vec<String>,
        /// What to do about it.
        advice: &'static str,
    },
    /// Binding failed, and what became of each path is told beside it.
    Explained {
        /// What became of them.
        explanation: Value,
        /// Why binding failed.
        error: CallError,
    },
    /// Nobody reads standard output any more: no failure at all.
    Closed,
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl Failure {
    /// A failure of this side.
    pub(crate) fn local(what: impl Into<String>, advice: &'static str) -> Self {
        Self::Local { what: what.into(), causes: Vec::new(), advice }
    }

    /// Tells the user, and says with which code to exit.
    pub(crate) fn report(self, format: Format) -> ExitCode {
        let mut told = match &self {
            Self::Explained { explanation, .. } => explanation.clone(),
            _ => json!({}),
        };
        let (code, error) = self.explain();
        let Some(error) = error else { return code };
        match format {
            Format::Json => {
                told["error"] = error.to_json();
                drop(print(told));
            }
            Format::Human => error.print(),
        }
        code
    }

    fn explain(self) -> (ExitCode, Option<Explained>) {
        match self {
            Self::Closed => (ExitCode::SUCCESS, None),
            Self::Said(what) => {
                let error = Explained {
                    executed: "yes",
                    advice: "the procedure ran and refused: change what it was asked for".into(),
                    ..Explained::local("Refused", what)
                };
                (ExitCode::from(1), Some(error))
            }
            Self::Local { what, causes, advice } => {
                let advice = advice.to_owned();
                let error = Explained { causes, advice, ..Explained::local("Local", what) };
                (ExitCode::from(3), Some(error))
            }
            Self::Call(error) | Self::Explained { error, .. } => {
                let code = match error.executed() {
                    Executed::No => 3,
                    Executed::Maybe => 4,
                };
                (ExitCode::from(code), Some(Explained::of(&error)))
            }
        }
    }
}

/// A result of the operating system together with what was attempted.
pub(crate) trait During<T> {
    /// Says what was attempted.
    fn during(self, what: impl Display) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, what: impl Display) -> Result<T, Failure> {
        self.map_err(|error| {
            let error: io::Error = error.into();
            Failure::Local {
                what: what.to_string(),
                causes: vec![error.to_string()],
                advice: "see the cause; nothing was executed",
            }
        })
    }
}

/// A failure with everything that is told about it.
struct Explained {
    kind: String,
    what: String,
    executed: &'static str,
    address: String,
    phase: String,
    causes: Vec<String>,
    advice: String,
    suggestions: Vec<String>,
}

impl Explained {
    fn local(kind: &str, what: String) -> Self {
        Self {
            kind: kind.to_owned(),
            what,
            executed: "no",
            address: String::new(),
            phase: String::new(),
            causes: Vec::new(),
            advice: String::new(),
            suggestions: Vec::new(),
        }
    }

    fn of(error: &CallError) -> Self {
        let mut what = error.phase().to_string();
        for (before, name) in [("", error.procedure()), ("at ", error.address())] {
            if !name.is_empty() {
                what = format!("{what} {before}`{name}`");
            }
        }
        what = format!("{what}: {}", error.kind().text());
        let detail = [error.detail().to_owned()];
        let mut causes: Vec<String> = detail.into_iter().filter(|text| !text.is_empty()).collect();
        let mut cause = error.source();
        while let Some(error) = cause {
            causes.push(error.to_string());
            cause = error.source();
        }
        let unknown = error.kind() == Kind::NotFound;
        Self {
            kind: format!("{:?}", error.kind()),
            what,
            executed: match error.executed() {
                Executed::No => "no",
                Executed::Maybe => "maybe",
            },
            address: error.address().to_owned(),
            phase: error.phase().to_string(),
            causes,
            advice: error.advice().to_owned(),
            suggestions: if unknown { near(error.address()) } else { Vec::new() },
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "kind": self.kind,
            "what": self.what,
            "executed": self.executed,
            "address": self.address,
            "phase": self.phase,
            "causes": self.causes,
            "advice": self.advice,
            "suggestions": self.suggestions,
        })
    }

    fn print(&self) {
        let executed = match self.executed {
            "no" => "not executed",
            "maybe" => "may have been executed",
            _ => "executed",
        };
        let mut text = format!("{BAD}error:{BAD:#} {} {DIM}({executed}){DIM:#}\n", self.what);
        for cause in &self.causes {
            text.push_str(&format!("  {DIM}cause:{DIM:#} {cause}\n"));
        }
        for name in &self.suggestions {
            text.push_str(&format!("{GOOD}help:{GOOD:#} did you mean `{name}`?\n"));
        }
        if !self.advice.is_empty() {
            text.push_str(&format!("{GOOD}help:{GOOD:#} {}\n", self.advice));
        }
        // Where nobody listens there is nobody to tell.
        let _ = anstream::stderr().write_all(text.as_bytes());
    }
}

/// Writes a line to standard output.
pub(crate) fn print(line: impl Display) -> Result<(), Failure> {
    let mut stdout = anstream::stdout();
    let written = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Closed),
        written => written.during("writing to standard output"),
    }
}

/// Talks to whoever watches: a line on standard error.
pub(crate) fn tell(line: impl Display) {
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// A table without frame; the columns of `right` hold numbers.
pub(crate) fn table(header: &[&str], right: &[usize], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec()).add_rows(rows);
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if right.contains(&i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<_> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// A time with three digits and its unit.
pub(crate) fn nanoseconds(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => return format!("{ns:.0} ns"),
        ns if ns < 1e6 => (ns / 1e3, "us"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    match value {
        value if value < 10.0 => format!("{value:.2} {unit}"),
        value if value < 100.0 => format!("{value:.1} {unit}"),
        value => format!("{value:.0} {unit}"),
    }
}

/// How long ago, coarsely.
pub(crate) fn age(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// Live names that one may have meant with an address.
fn near(address: &str) -> Vec<String> {
    let Ok(address) = address.parse::<Address>() else { return Vec::new() };
    // What other machines have is not known here.
    let name = if address.place().is_none() { address.name() } else { return Vec::new() };
    let within = (name.chars().count() / 3).max(2);
    let mut names: Vec<(usize, String)> = peregrine::directory::list()
        .into_iter()
        .filter(|entry| entry.alive && entry.name != name)
        .map(|entry| (distance(name, &entry.name), entry.name))
        .filter(|(distance, _)| *distance <= within)
        .collect();
    names.sort();
    names.dedup();
    names.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Letters to insert, leave out or exchange to get from one word to the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let exchanged = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_a_distance() {
        for (a, b, steps) in [("", "abc", 3), ("files", "files", 0), ("fiels", "files", 2)] {
            assert_eq!(distance(a, b), steps);
            assert_eq!(distance(b, a), steps);
        }
    }
}
