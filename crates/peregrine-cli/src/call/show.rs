//! Formats the result of a call as text.

use std::time::Duration;

use serde_json::Value;

use super::Returned;
use crate::output::{BOLD, DIM, Failure, nanoseconds};

/// The maximum number of bytes that are shown of a buffer.
const SHOWN_BYTES: usize = 4096;
/// The number of bytes that are shown per line.
const LINE_BYTES: usize = 16;

/// Shows the result and the returned parameters. If there is only one value, its name is not shown. Calls
/// `say` with each part. Shows nothing if a buffer was `piped` to standard output.
pub(super) fn text(
    result: &Value,
    back: &[Returned<'_>],
    piped: bool,
    say: impl Fn(String) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if piped {
        return Ok(());
    }
    let has_result = !result.is_null() || back.is_empty();
    if has_result && back.is_empty() {
        return say(text_of(result));
    }
    if has_result {
        say(format!("{BOLD}result{BOLD:#}: {}", text_of(result)))?;
    }
    for one in back {
        if !has_result && back.len() == 1 && one.raw.is_some() {
            return say(buffer(one));
        }
        let text = buffer(one);
        let gap = if text.contains('\n') { "\n" } else { " " };
        let size = one.raw.map(|raw| format!(" {DIM}({} bytes){DIM:#}", raw.len()));
        say(format!("{BOLD}{}{BOLD:#}{}:{gap}{text}", one.name, size.unwrap_or_default()))?;
    }
    Ok(())
}

/// Formats the path and the duration of the call.
pub(super) fn how(path: &str, took: Duration) -> String {
    format!("{DIM}path {path}, {}{DIM:#}", nanoseconds(took.as_nanos() as f64))
}

/// Formats JSON for readers: a string without quotes, and a long value on several lines.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => harmless(text),
        Value::Null => "nothing".to_owned(),
        value => {
            let short = value.to_string();
            let text = match short.chars().count() {
                0..=76 => short,
                _ => serde_json::to_string_pretty(value).unwrap_or(short),
            };
            harmless(&text)
        }
    }
}

/// Replaces control characters in text from a server, so that the text cannot control the terminal.
fn harmless(text: &str) -> String {
    let letter = |c: char| if c.is_control() && !matches!(c, '\n' | '\t') { '\u{fffd}' } else { c };
    text.strip_suffix('\n').unwrap_or(text).chars().map(letter).collect()
}

/// Formats a buffer as text, values, or lines of bytes.
fn buffer(one: &Returned<'_>) -> String {
    match (one.raw, &one.json) {
        (Some(raw), Value::Object(hex)) if hex.contains_key("hex") => lines(raw),
        (_, json) => text_of(json),
    }
}

/// Formats bytes as lines, each with an offset, hexadecimal digits and ASCII characters.
fn lines(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let mut lines: Vec<String> = shown
        .chunks(LINE_BYTES)
        .enumerate()
        .map(|(i, line)| {
            let digits: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            let letters: String = line
                .iter()
                .map(|byte| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' })
                .collect();
            let at = i * LINE_BYTES;
            format!("{DIM}{at:06x}{DIM:#}  {:<47}  {letters}", digits.join(" "))
        })
        .collect();
    if shown.len() < bytes.len() {
        let more = bytes.len() - shown.len();
        lines.push(format!(
            "{DIM}and {more} more bytes: `--out NAME=FILE` writes all of them{DIM:#}"
        ));
    }
    lines.join("\n")
}
