//! Output of commands: text that fits the terminal, or JSON.

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

pub(crate) use self::failure::{Failure, OrFail};
pub(crate) use self::layout::{fitted as table_fitted, table, table_within};
pub(crate) use self::near::{closest as near, files as near_files, read_or_suggest};
pub(crate) use self::progress::{Counted, bar, clear_bars};
pub(crate) use self::visible::visible;

/// The style of important text.
pub(crate) const BOLD: Style = Style::new().bold();
/// The style of less important text.
pub(crate) const DIM: Style = Style::new().dimmed();
/// The style of a good state.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
/// The style of a state that works but is slow.
pub(crate) const FAIR: Style = AnsiColor::Yellow.on_default().bold();
/// The style of a failure.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

/// Writes a line to standard output without folding. It is used for JSON, and for text that programs read.
pub(crate) fn print(line: impl Display) -> Result<(), Failure> {
    let mut stdout = anstream::stdout();
    let written = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Closed),
        written => written.map_err(unwritten),
    }
}

fn unwritten(error: io::Error) -> Failure {
    Failure::Unwritten { what: "cannot write to standard output".to_owned(), error }
}

/// Writes bytes to standard output.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Closed),
        written => written.map_err(unwritten),
    }
}

/// Writes text to standard output, folded to the width of the terminal.
pub(crate) fn say(text: impl Display) -> Result<(), Failure> {
    print(folded(&text.to_string(), layout::columns(io::stdout())))
}

/// Returns the number of columns of the terminal, or `None` if standard output is no terminal.
pub(crate) fn columns() -> Option<usize> {
    layout::columns(io::stdout())
}

/// Writes text to standard error, folded to the width of the terminal. Errors of writing are ignored.
pub(crate) fn note(text: impl Display) {
    let text = folded(&text.to_string(), layout::columns(io::stderr()));
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Folds text to `columns`, and escapes control characters. Escape sequences for styles stay.
pub(crate) fn folded(text: &str, columns: Option<usize>) -> String {
    let text = visible::guarded(text);
    match columns {
        Some(columns) => layout::fold(&text, columns),
        None => text,
    }
}

/// Prints several results. As NDJSON, each result is one line. As JSON, the output is the object `whole`,
/// with the results as its member `name`.
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

/// Returns a duration as a JSON number of nanoseconds.
pub(crate) fn whole_ns(time: Duration) -> Value {
    json!(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Formats a duration with three digits and a unit.
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

/// Formats an age, given in milliseconds, with one unit.
pub(crate) fn age(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}
