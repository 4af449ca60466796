//! `--check`: compares a file with what a command would write to it.

use std::path::Path;
use std::time::Instant;

use serde_json::json;

use crate::args::Format;
use crate::output::{self, Failure};

/// Reports whether a file has the text `wanted`. White space at the end of either text is ignored.
///
/// # Errors
/// Fails with exit code 1 if the file has another text, and with exit code 3 if it cannot be read.
pub(crate) fn compare(
    path: &Path,
    wanted: &str,
    begun: Instant,
    format: Format,
) -> Result<(), Failure> {
    let what = format!("cannot check {}", path.display());
    let bytes = output::read_or_suggest(path, what, |path| std::fs::read(path))?;
    let text = String::from_utf8_lossy(&bytes);
    let difference = difference(text.trim_end(), wanted.trim_end());
    if format.is_json() {
        output::print(json!({
            "checked": path.to_string_lossy(),
            "is_same": difference.is_none(),
            "line": difference.as_ref().map(|one| one.line),
            "took_ns": output::whole_ns(begun.elapsed()),
        }))?;
    } else {
        output::print(match &difference {
            None => format!("{} is up to date", path.display()),
            Some(one) => format!(
                "{} is not up to date: line {} is different\n- {}\n+ {}",
                path.display(),
                one.line,
                one.present,
                one.wanted
            ),
        })?;
    }
    difference.map_or(Ok(()), |_| Err(Failure::Differs))
}

/// The first difference of two texts.
#[derive(Debug, PartialEq, Eq)]
struct Difference<'t> {
    /// The number of the line. The first line is 1.
    line: usize,
    present: &'t str,
    wanted: &'t str,
}

fn difference<'t>(present: &'t str, wanted: &'t str) -> Option<Difference<'t>> {
    let (mut lines, mut others) = (present.lines(), wanted.lines());
    (1..).find_map(|line| match (lines.next(), others.next()) {
        (None, None) => Some(None),
        (present, wanted) if present == wanted => None,
        (present, wanted) => Some(Some(Difference {
            line,
            present: present.unwrap_or_default(),
            wanted: wanted.unwrap_or_default(),
        })),
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_different_line_is_found() {
        assert_eq!(difference("a\nb", "a\nb"), None);
        assert_eq!(difference("", ""), None);
        let found = |line, present, wanted| Some(Difference { line, present, wanted });
        assert_eq!(difference("a\nb\nc", "a\nx\nc"), found(2, "b", "x"));
        assert_eq!(difference("a", "a\nb"), found(2, "", "b"));
        assert_eq!(difference("a\nb", "a"), found(2, "b", ""));
    }
}
