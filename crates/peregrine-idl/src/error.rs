//! The error for a text that is not an interface. It contains the position at which parsing failed.

use core::fmt::{self, Display};

use proc_macro2::Span;

/// An error in a text that should contain the trait of an interface.
///
/// ```
/// let text = "trait Shapes {\n    fn draw(&self, shape: &shape) -> peregrine::Result<()>;\n}\n\
///             struct Shape { sides: u32 }";
/// let error = peregrine_idl::parse_trait(text).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "line 2, column 28: there is no type `shape`; there is a type `Shape`"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    line: usize,
    column: usize,
    reason: String,
}

impl ParseError {
    pub(crate) const fn new(line: usize, column: usize, reason: String) -> Self {
        Self { line, column, reason }
    }

    /// Returns an error whose position is the start of a span.
    pub(crate) fn at(span: Span, reason: String) -> Self {
        let start = span.start();
        Self::new(start.line.max(1), start.column + 1, reason)
    }

    /// Converts an error of `syn`. If the span is empty, the error is at the end of the text, where there is
    /// no token.
    pub(crate) fn of_syn(text: &str, error: &syn::Error) -> Self {
        let span = error.span();
        if span.start() != span.end() {
            return Self::at(span, error.to_string());
        }
        let last = text.rsplit('\n').next().unwrap_or_default();
        let line = text.matches('\n').count() + 1;
        Self::new(line, last.chars().count() + 1, error.to_string())
    }

    /// Returns what is wrong, without the position.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the line of the text in which the error is. The first line is 1.
    ///
    /// ```
    /// let error = peregrine_idl::parse_trait("trait A {}\ntrait B {}").unwrap_err();
    /// assert_eq!(error.line(), 2);
    /// ```
    pub const fn line(&self) -> usize {
        self.line
    }

    /// Returns the column of the error, counted in characters. The first column is 1.
    ///
    /// ```
    /// let error = peregrine_idl::parse_trait("trait A {}\ntrait B {}").unwrap_err();
    /// assert_eq!(error.column(), 7);
    /// ```
    pub const fn column(&self) -> usize {
        self.column
    }
}

impl Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.reason)
    }
}

impl core::error::Error for ParseError {}
