//! The files of an import: their texts, the comments in them, and their diagnostics.

use std::rc::Rc;

use super::ast::{Name, Place};
use crate::diagnostic::{Diagnostic, Diagnostics, Severity};

/// A file that was read.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) text: Rc<str>,
}

/// The files of an import, and the diagnostics so far.
#[derive(Default)]
pub(crate) struct Sources {
    pub(super) files: Vec<Source>,
    found: Vec<(Place, Severity, String)>,
}

impl Sources {
    /// Returns the sources of an import that has one file.
    pub(crate) fn of(name: &str, text: &str) -> Self {
        let file = Source { name: name.to_owned(), text: text.into() };
        Self { files: vec![file], found: Vec::new() }
    }

    /// Returns the text at a place.
    pub(super) fn text(&self, place: Place) -> &str {
        let file = self.files.get(place.file as usize);
        file.and_then(|file| file.text.get(place.start as usize..place.end as usize))
            .unwrap_or_default()
    }

    /// Returns the name at a place.
    pub(super) fn name(&self, place: Place) -> Name {
        Name { text: self.text(place).to_owned(), place }
    }

    /// Adds an error. A second error at the same place is usually a consequence of the first one, and is not
    /// added. An error at the place of a warning is added.
    pub(crate) fn error(&mut self, place: Place, message: impl Into<String>) {
        self.add(place, Severity::Error, message.into());
    }

    /// Adds a warning.
    pub(crate) fn warn(&mut self, place: Place, message: impl Into<String>) {
        self.add(place, Severity::Warning, message.into());
    }

    fn add(&mut self, place: Place, severity: Severity, message: String) {
        let key = |place: Place| (place.file, place.start);
        let is_again = self.found.last().is_some_and(|(last, known, _)| {
            let is_worse = *known == Severity::Warning && severity == Severity::Error;
            place.end > 0 && key(*last) == key(place) && !is_worse
        });
        if !is_again {
            self.found.push((place, severity, message));
        }
    }

    /// Returns all diagnostics, in the order of the files.
    pub(super) fn diagnostics(mut self) -> Diagnostics {
        self.found.sort_by_key(|(place, ..)| (place.file, place.start));
        let mut all = Diagnostics::default();
        for (place, severity, message) in self.found {
            all.add(severity, || {
                let file = self.files.get(place.file as usize);
                let (name, text) = file.map_or(("", ""), |file| (&*file.name, &*file.text));
                let end = text.len();
                let bounds = ((place.start as usize).min(end), (place.end as usize).min(end));
                Diagnostic::new(severity, message, name, text, bounds)
            });
        }
        all
    }

    /// Returns the text of the comments at a place, without delimiters and without the `*` at the start of
    /// each line.
    pub(super) fn comment(&self, place: Place) -> String {
        let mut lines = Vec::new();
        let mut rest = self.text(place);
        while let Some(start) = rest.find('/') {
            let inner = &rest[start..];
            let (text, after) = match inner.strip_prefix("/*") {
                Some(block) => block.split_once("*/").unwrap_or((block, "")),
                None => {
                    let line = inner.trim_start_matches('/');
                    line.split_once('\n').unwrap_or((line, ""))
                }
            };
            lines.extend(text.lines().map(cleaned));
            rest = after;
        }
        let is_text = |line: &str| !line.is_empty();
        let first = lines.iter().position(|line| is_text(line)).unwrap_or(lines.len());
        let last = lines.iter().rposition(|line| is_text(line)).map_or(first, |last| last + 1);
        // The text of a line comment may contain `*/`. An export writes this text in a block comment, which
        // must not end there.
        lines[first..last].join("\n").replace("*/", "* /")
    }
}

/// Returns a line of a comment without spaces and `*` at its start and its end. So a ruler such as
/// `/****...****/` becomes empty.
fn cleaned(line: &str) -> &str {
    line.trim_matches(|c: char| c == '*' || c.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_is_added_at_the_place_of_a_diagnostic() {
        let mut sources = Sources::of("a.x", "struct a;");
        let place = Place { file: 0, start: 7, end: 8 };
        for text in ["first warning", "second warning"] {
            sources.warn(place, text);
        }
        for text in ["first error", "second error"] {
            sources.error(place, text);
        }
        sources.warn(place, "third warning");
        let all = sources.diagnostics();
        let texts: Vec<&str> = all.iter().map(Diagnostic::message).collect();
        assert_eq!(texts, ["first warning", "first error"]);
    }
}
