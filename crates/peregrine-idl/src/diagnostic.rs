//! What is wrong with a file: a message with the line, the column and the source line.

use core::fmt::{self, Display, Write as _};

/// The maximum number of diagnostics for one import. Further ones are only counted.
///
/// ```
/// let wrong = "x;".repeat(2 * peregrine_idl::DIAGNOSTICS_MAX);
/// let found = peregrine_idl::import_onc(&wrong, "wrong.x").unwrap_err();
/// assert_eq!(found.iter().count(), peregrine_idl::DIAGNOSTICS_MAX);
/// assert!(found.to_string().contains("and 100 more"));
/// ```
pub const DIAGNOSTICS_MAX: usize = 100;

/// The maximum number of characters of a source line that a diagnostic shows.
const SHOWN: usize = 100;

/// How serious a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The file cannot be imported.
    Error,
    /// The file can be imported, but the result may need a change by hand.
    Warning,
}

impl Severity {
    /// Returns the word that introduces a diagnostic: `error` or `warning`.
    ///
    /// ```
    /// assert_eq!(peregrine_idl::Severity::Warning.name(), "warning");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// An error or a warning, with its place in a file. It is displayed with the source line.
///
/// ```
/// let found = peregrine_idl::import_onc("const A = 1;\nstruct b { int; };\n", "b.x").unwrap_err();
/// let first = found.iter().next().unwrap();
/// assert_eq!((first.line(), first.column()), (2, 15));
/// assert_eq!(
///     first.to_string(),
///     "error: expected a name, found `;`\n \
///       --> b.x:2:15\n  \
///        |\n\
///      2 | struct b { int; };\n  \
///        |               ^"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    severity: Severity,
    file: String,
    line: usize,
    column: usize,
    message: String,
    /// The part of the source line that is shown.
    shown: String,
    /// The number of characters in `shown` before the marked part, and the number of characters in this part.
    marked: (usize, usize),
}

impl Diagnostic {
    /// Creates a diagnostic for the bytes `start..end` of a text. `start` and `end` must be at the boundaries
    /// of characters.
    pub(crate) fn new(
        severity: Severity,
        message: String,
        file: &str,
        text: &str,
        (start, end): (usize, usize),
    ) -> Self {
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let column = text[line_start..start].chars().count();
        // Only a part of a long line is shown. A carriage return at the end of the line is not shown.
        let skipped = column.saturating_sub(SHOWN / 2);
        let shown = text[line_start..line_end].trim_end().chars().skip(skipped).take(SHOWN);
        let visible = |letter: char| match letter {
            '\t' => ' ',
            letter if letter.is_control() => char::REPLACEMENT_CHARACTER,
            letter => letter,
        };
        let length = text[start..end.clamp(start, line_end.max(start))].chars().count();
        let left = (skipped + SHOWN).saturating_sub(column);
        Self {
            severity,
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: column + 1,
            message,
            shown: shown.map(visible).collect(),
            marked: (column - skipped, length.clamp(1, left.max(1))),
        }
    }

    /// Creates an error without a place in a file.
    pub(crate) fn whole(message: String, file: &str) -> Self {
        Self::new(Severity::Error, message, file, "", (0, 0))
    }

    /// Returns how serious the diagnostic is.
    ///
    /// ```
    /// let found = peregrine_idl::import_onc("?", "x").unwrap_err();
    /// assert_eq!(found.iter().next().unwrap().severity(), peregrine_idl::Severity::Error);
    /// ```
    pub const fn severity(&self) -> Severity {
        self.severity
    }

    /// Returns the name of the file.
    ///
    /// ```
    /// let found = peregrine_idl::import_onc("?", "mount.x").unwrap_err();
    /// assert_eq!(found.iter().next().unwrap().file(), "mount.x");
    /// ```
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the line. The first line is 1.
    ///
    /// ```
    /// let found = peregrine_idl::import_onc("\n?", "mount.x").unwrap_err();
    /// assert_eq!(found.iter().next().unwrap().line(), 2);
    /// ```
    pub const fn line(&self) -> usize {
        self.line
    }

    /// Returns the column, counted in characters. The first column is 1.
    ///
    /// ```
    /// let found = peregrine_idl::import_onc("  ?", "mount.x").unwrap_err();
    /// assert_eq!(found.iter().next().unwrap().column(), 3);
    /// ```
    pub const fn column(&self) -> usize {
        self.column
    }

    /// Returns what is wrong, without the place.
    ///
    /// ```
    /// let found = peregrine_idl::import_onc("struct a { b c; };", "a.x").unwrap();
    /// let warning = found.warnings.iter().next().unwrap();
    /// assert_eq!(warning.message(), "type `b` is declared nowhere; the Rust text needs a type `B`");
    /// ```
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, message, shown, .. } = self;
        let (before, length) = self.marked;
        let margin = line.to_string().len();
        writeln!(f, "{}: {message}", self.severity.name())?;
        writeln!(f, "{:margin$}--> {file}:{line}:{column}", "")?;
        writeln!(f, "{:margin$} |", "")?;
        let mut source = format!("{line} |");
        if !shown.is_empty() {
            let _ = write!(source, " {shown}");
        }
        writeln!(f, "{source}")?;
        write!(f, "{:margin$} | {:before$}{}", "", "", "^".repeat(length))
    }
}

/// All diagnostics of an import, in the order of the file. At most [`DIAGNOSTICS_MAX`] are kept.
///
/// ```
/// let text = "struct a { int; };\nconst B = ;\nconst C = 1;\n";
/// let found = peregrine_idl::import_onc(text, "x").unwrap_err();
/// assert_eq!(found.iter().map(|one| one.line()).collect::<Vec<_>>(), [1, 2]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    all: Vec<Diagnostic>,
    /// The number of diagnostics that are not in `all`.
    omitted: usize,
    has_error: bool,
}

impl Diagnostics {
    /// Adds the diagnostic that `make` creates, or only counts it if there are already [`DIAGNOSTICS_MAX`].
    pub(crate) fn add(&mut self, severity: Severity, make: impl FnOnce() -> Diagnostic) {
        self.has_error |= severity == Severity::Error;
        match self.all.len() < DIAGNOSTICS_MAX {
            true => self.all.push(make()),
            false => self.omitted += 1,
        }
    }

    /// Returns whether any of the diagnostics is an error.
    pub(crate) const fn has_error(&self) -> bool {
        self.has_error
    }

    /// Returns whether there is no diagnostic.
    ///
    /// ```
    /// assert!(peregrine_idl::import_onc("const A = 1;", "a.x").unwrap().warnings.is_empty());
    /// ```
    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the diagnostics.
    ///
    /// ```
    /// let found = peregrine_idl::import_onc("?", "mount.x").unwrap_err();
    /// assert_eq!(found.iter().count(), 1);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.all.iter()
    }

    /// Returns the number of diagnostics that were found but not kept.
    ///
    /// ```
    /// assert_eq!(peregrine_idl::import_onc("?", "mount.x").unwrap_err().omitted(), 0);
    /// ```
    pub const fn omitted(&self) -> usize {
        self.omitted
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(one: Diagnostic) -> Self {
        let has_error = one.severity == Severity::Error;
        Self { all: vec![one], omitted: 0, has_error }
    }
}

impl Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, one) in self.all.iter().enumerate() {
            write!(f, "{}{one}", if number == 0 { "" } else { "\n\n" })?;
        }
        match self.omitted {
            0 => Ok(()),
            more => write!(f, "\n\nand {more} more"),
        }
    }
}

impl core::error::Error for Diagnostics {}
