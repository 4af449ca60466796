//! The problems of all programs of one import.

use super::ast::Span;
use crate::diagnostic::{Diagnostic, Diagnostics, Severity};

/// The texts of the programs, and the problems that were found in these texts so far.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    /// The file name and the text of each program.
    texts: Vec<(String, String)>,
    /// The index in `texts` of the program that is being read or checked.
    current: usize,
    pub(crate) errors: Diagnostics,
    /// A warning for each part of a program that the trait lacks, although the program is correct.
    pub(crate) warnings: Diagnostics,
}

impl Problems {
    /// Adds the next program. Later problems belong to it.
    pub(crate) fn enter_next(&mut self, file: String, text: String) {
        self.current = self.texts.len();
        self.texts.push((file, text));
    }

    /// Selects a program that was added. Later problems belong to it.
    pub(crate) fn enter(&mut self, program: usize) {
        self.current = program;
    }

    pub(crate) fn report(&mut self, span: &Span, message: impl Into<String>) {
        let (file, text) = &self.texts[self.current];
        let (severity, place) = (Severity::Error, (span.start, span.end));
        self.errors.add(severity, || Diagnostic::new(severity, message.into(), file, text, place));
    }

    pub(crate) fn warn(&mut self, span: &Span, message: impl Into<String>) {
        let (file, text) = &self.texts[self.current];
        let (severity, place) = (Severity::Warning, (span.start, span.end));
        self.warnings
            .add(severity, || Diagnostic::new(severity, message.into(), file, text, place));
    }
}
