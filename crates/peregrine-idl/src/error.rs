//! Why a text is not an interface, and where.

use core::fmt::{self, Display};

use proc_macro2::Span;

/// Why a text is not a trait that describes an interface.
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

    /// An error where a span begins.
    pub(crate) fn at(span: Span, reason: String) -> Self {
        let start = span.start();
        Self::new(start.line.max(1), start.column + 1, reason)
    }

    /// An error of the parser. What fails where the text ends has no token, so its span is empty.
    pub(crate) fn of_syn(text: &str, error: &syn::Error) -> Self {
        let span = error.span();
        if span.start() != span.end() {
            return Self::at(span, error.to_string());
        }
        let last = text.rsplit('\n').next().unwrap_or_default();
        let line = text.matches('\n').count() + 1;
        Self::new(line, last.chars().count() + 1, error.to_string())
    }

    /// The line of the text, the first being 1.
    ///
    /// ```
    /// let error = peregrine_idl::parse_trait("trait A {}\ntrait B {}").unwrap_err();
    /// assert_eq!(error.line(), 2);
    /// ```
    pub const fn line(&self) -> usize {
        self.line
    }

    /// The column in that line, in characters, the first being 1.
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
