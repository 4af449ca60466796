//! What came of a call, for people.

use std::time::Duration;

use serde_json::Value;

use super::Back;
use crate::output::{self, BOLD, DIM, Failure, nanoseconds};

/// Bytes that are shown of a buffer.
const SHOWN_BYTES: usize = 4096;
/// Bytes in a line of them.
const LINE_BYTES: usize = 16;

/// Shows the result and what came back; what is alone has no name. `alone` is already where somebody
/// else reads it.
pub(super) fn people(result: &Value, back: &[Back<'_>], alone: bool) -> Result<(), Failure> {
    if alone {
        return Ok(());
    }
    let has_result = !result.is_null() || back.is_empty();
    if has_result && back.is_empty() {
        return output::say(text_of(result));
    }
    if has_result {
        output::say(format_args!("{BOLD}result{BOLD:#}: {}", text_of(result)))?;
    }
    for one in back {
        if !has_result && back.len() == 1 && one.raw.is_some() {
            return output::say(buffer(one));
        }
        let text = buffer(one);
        let gap = if text.contains('\n') { "\n" } else { " " };
        let size = one.raw.map(|raw| format!(" {DIM}({} bytes){DIM:#}", raw.len()));
        output::say(format_args!(
            "{BOLD}{}{BOLD:#}{}:{gap}{text}",
            one.name,
            size.unwrap_or_default()
        ))?;
    }
    Ok(())
}

/// How it went.
pub(super) fn how(path: &str, took: Duration) -> String {
    format!("{DIM}path {path}, {}{DIM:#}", nanoseconds(took.as_nanos() as f64))
}

/// JSON as one reads it: text as it is, the rest in lines of its own if it is long.
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

/// What a server says does nothing to a terminal.
fn harmless(text: &str) -> String {
    let letter = |c: char| if c.is_control() && !matches!(c, '\n' | '\t') { '\u{fffd}' } else { c };
    text.strip_suffix('\n').unwrap_or(text).chars().map(letter).collect()
}

/// A buffer: text, values, or bytes in lines.
fn buffer(one: &Back<'_>) -> String {
    match (one.raw, &one.json) {
        (Some(raw), Value::Object(hex)) if hex.contains_key("hex") => lines(raw),
        (_, json) => text_of(json),
    }
}

/// Bytes in lines: where they are, their digits, and as letters.
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
        lines.push(format!("{DIM}and {more} bytes more: `--out NAME=FILE` keeps them all{DIM:#}"));
    }
    lines.join("\n")
}
