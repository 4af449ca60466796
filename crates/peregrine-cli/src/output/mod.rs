//! Answers: text for people that fits their terminal, or JSON for programs.

mod failure;
mod layout;
mod near;
mod progress;
mod visible;

use core::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Style};
use serde_json::{Value, json};

use crate::args::Format;

pub(crate) use self::failure::{During, Failure};
pub(crate) use self::layout::{fitted as table_fitted, table, table_within};
pub(crate) use self::near::{closest as near, files as near_files};
pub(crate) use self::progress::{Counted, bar, clear_bars};
pub(crate) use self::visible::visible;

/// Emphasis.
pub(crate) const BOLD: Style = Style::new().bold();
/// What matters less.
pub(crate) const DIM: Style = Style::new().dimmed();
/// What is good.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
/// What is slow, or not as it could be.
pub(crate) const FAIR: Style = AnsiColor::Yellow.on_default().bold();
/// What is not.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

/// Writes a line to standard output as it is: JSON, and what is to be read by programs.
pub(crate) fn print(line: impl Display) -> Result<(), Failure> {
    let mut stdout = anstream::stdout();
    let written = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Closed),
        written => written.map_err(unwritten),
    }
}

fn unwritten(error: io::Error) -> Failure {
    Failure::Unwritten { what: "writing to standard output".to_owned(), error }
}

/// Writes bytes to standard output, as they are.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Closed),
        written => written.map_err(unwritten),
    }
}

/// Writes text for people to standard output, folded where the terminal ends.
pub(crate) fn say(text: impl Display) -> Result<(), Failure> {
    print(folded(&text.to_string(), layout::columns(io::stdout())))
}

/// Columns of the terminal that standard output leads to, if it leads to one.
pub(crate) fn columns() -> Option<usize> {
    layout::columns(io::stdout())
}

/// Talks to whoever watches: text for people on standard error. Where nobody listens there is
/// nobody to tell.
pub(crate) fn tell(text: impl Display) {
    let text = folded(&text.to_string(), layout::columns(io::stderr()));
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Text for people, in lines of so many columns; what is in it of others steers no terminal.
pub(crate) fn folded(text: &str, columns: Option<usize>) -> String {
    let text = visible::guarded(text);
    match columns {
        Some(columns) => layout::fold(&text, columns),
        None => text,
    }
}

/// Many results of one kind: in one object under `name`, with the other members of `whole`; or
/// each in a line of its own.
pub(crate) fn print_all(
    format: Format,
    name: &str,
    all: Vec<Value>,
    mut whole: Value,
) -> Result<(), Failure> {
    if format == Format::Ndjson {
        return all.into_iter().try_for_each(print);
    }
    whole[name] = json!(all);
    print(whole)
}

/// A time as a JSON number of nanoseconds.
pub(crate) fn whole_ns(time: Duration) -> Value {
    json!(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
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
