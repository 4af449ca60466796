//! Defines a table of a paper, with the paper's figures and ours. Texts of numbers, and ratios.

/// One of the five papers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paper {
    Peregrine,
    Lrpc,
    Firefly,
    Lampson,
    Stubs,
    Courier,
}

impl Paper {
    /// All papers, in the order of the document. Lampson's handout and the paper about Firefly RPC are one
    /// text.
    pub(crate) const ALL: [Self; 6] =
        [Self::Peregrine, Self::Lrpc, Self::Firefly, Self::Lampson, Self::Stubs, Self::Courier];

    /// Returns the name of the paper in headings.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Peregrine => "Peregrine",
            Self::Lrpc => "LRPC",
            Self::Firefly => "Firefly",
            Self::Lampson => "Lampson",
            Self::Stubs => "Stub study",
            Self::Courier => "Courier",
        }
    }
}

/// Where the numbers of a column come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A column that says what a row is.
    Label,
    /// Figures of the paper.
    Paper,
    /// Figures of this machine.
    Ours,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) origin: Origin,
    /// The unit of its numbers; empty if the name says it, or if they have none.
    pub(crate) unit: &'static str,
}

/// Returns a column that says what a row is.
pub(crate) fn label(name: &str) -> Column {
    Column { name: name.to_owned(), origin: Origin::Label, unit: "" }
}

/// Returns a column of the paper's figures.
pub(crate) fn theirs(name: &str, unit: &'static str) -> Column {
    Column { name: format!("P: {name}"), origin: Origin::Paper, unit }
}

/// Returns a column of our figures.
pub(crate) fn ours(name: &str, unit: &'static str) -> Column {
    Column { name: name.to_owned(), origin: Origin::Ours, unit }
}

impl Column {
    /// Returns the name with the unit.
    pub(crate) fn header(&self) -> String {
        match self.unit {
            "" => self.name.clone(),
            unit => format!("{}, {unit}", self.name),
        }
    }
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Text(String),
    /// A number that was measured or computed. It is shown with three digits.
    Number(f64),
    /// A number of the paper. It is shown with all its digits.
    Exact(f64),
    Missing,
}

impl Cell {
    /// Returns the text of the cell in a table for people.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => digits(*number),
            Self::Exact(number) => format!("{number}"),
            Self::Missing => "-".to_owned(),
        }
    }

    /// Returns whether the cell has a value that was measured.
    pub(crate) fn is_measured(&self) -> bool {
        match self {
            Self::Text(text) => text.contains(|c: char| c.is_ascii_digit()),
            Self::Number(number) => number.is_finite(),
            Self::Exact(_) | Self::Missing => false,
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Option<f64>> for Cell {
    fn from(number: Option<f64>) -> Self {
        number.filter(|number| number.is_finite()).map_or(Self::Missing, Self::Number)
    }
}

/// Returns the cell of a number of the paper.
pub(crate) const fn exact(number: f64) -> Cell {
    Cell::Exact(number)
}

/// Returns the cell of a number of the paper, or a missing cell.
pub(crate) fn exact_or_missing(number: Option<f64>) -> Cell {
    number.map_or(Cell::Missing, Cell::Exact)
}

/// Returns a number with about three digits.
pub(crate) fn digits(number: f64) -> String {
    let size = number.abs();
    match () {
        () if !number.is_finite() => "-".to_owned(),
        () if size >= 99.95 || size == 0.0 => format!("{number:.0}"),
        () if size >= 9.995 => format!("{number:.1}"),
        () if size >= 0.01 => format!("{number:.2}"),
        () => format!("{number:.4}"),
    }
}

/// Returns a ratio as text, or a missing cell.
pub(crate) fn ratio(over: Option<f64>, under: Option<f64>) -> Cell {
    over.zip(under).filter(|(_, under)| *under > 0.0).map(|(over, under)| over / under).into()
}

/// Returns how many times as large one value is as another, as a part of a sentence.
pub(crate) fn times(over: Option<f64>, under: Option<f64>) -> String {
    match ratio(over, under) {
        Cell::Number(ratio) => digits(ratio),
        _ => UNKNOWN.to_owned(),
    }
}

/// Returns a value with a number of decimal places, as a part of a sentence.
pub(crate) fn said(value: Option<f64>, places: usize) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| format!("{value:.places$}"))
}

/// What a sentence says in place of a number that was not measured.
const UNKNOWN: &str = "(not measured)";

/// Rows and columns. A table has one or more of them.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    /// What this part of the table shows; empty if the table has only one part.
    pub(crate) caption: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

impl Grid {
    /// Creates a part without rows.
    pub(crate) fn new(caption: &str, columns: Vec<Column>) -> Self {
        Self { caption: caption.to_owned(), columns, rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If the row does not have one cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.columns.len(), "{}: {cells:?}", self.caption);
        self.rows.push(cells);
    }

    /// Returns whether any of our figures was measured.
    pub(crate) fn is_measured(&self) -> bool {
        let ours = |row: &Vec<Cell>| {
            let cells = self.columns.iter().zip(row);
            cells.filter(|(column, _)| column.origin == Origin::Ours).any(|(_, c)| c.is_measured())
        };
        self.rows.iter().any(ours)
    }
}

/// A picture of a table.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    /// The name of the file, next to the document.
    pub(crate) file: &'static str,
    /// What the picture shows.
    pub(crate) title: String,
    pub(crate) svg: String,
}

/// A table of a paper.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) paper: Paper,
    /// The name in the paper, such as `Table IV`.
    pub(crate) name: &'static str,
    pub(crate) title: String,
    pub(crate) grids: Vec<Grid>,
    /// What the physical minimum is, for the paper and for us.
    pub(crate) minimum: Option<String>,
    /// How our figures are measured, and what corresponds to what.
    pub(crate) how: String,
    /// What has changed.
    pub(crate) changed: String,
    pub(crate) picture: Option<Picture>,
}

impl Table {
    /// Returns a table with one grid without rows, and without texts.
    pub(crate) fn new(paper: Paper, name: &'static str, title: &str, columns: Vec<Column>) -> Self {
        Self {
            paper,
            name,
            title: title.to_owned(),
            grids: vec![Grid::new("", columns)],
            minimum: None,
            how: String::new(),
            changed: String::new(),
            picture: None,
        }
    }

    /// Returns the heading of the table in the document.
    pub(crate) fn heading(&self) -> String {
        heading(self.paper, self.name)
    }

    /// Returns whether any of our figures was measured.
    pub(crate) fn is_measured(&self) -> bool {
        self.grids.iter().any(Grid::is_measured)
    }
}

/// Returns the heading of a table, without the number signs.
pub(crate) fn heading(paper: Paper, name: &str) -> String {
    format!("{}, {name}", paper.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let all = [0.0, 0.001_26, 0.25, 9.99, 10.0, 99.9, 1234.6].map(digits);
        assert_eq!(all, ["0", "0.0013", "0.25", "9.99", "10.0", "99.9", "1235"]);
        assert_eq!(digits(f64::NAN), "-");
        assert_eq!(exact(26.61).text(), "26.61");
        assert_eq!(exact_or_missing(None).text(), "-");
        assert_eq!(ratio(Some(3.0), Some(2.0)), Cell::Number(1.5));
        assert_eq!(ratio(Some(3.0), None), Cell::Missing);
    }

    #[test]
    fn table_is_measured_if_one_of_our_cells_has_a_number() {
        let mut grid = Grid::new("", vec![label("test"), theirs("Null", "us"), ours("Null", "us")]);
        grid.row(vec!["Null".into(), exact(125.0), Cell::Missing]);
        assert!(!grid.is_measured());
        grid.row(vec!["Add".into(), exact(130.0), Cell::Number(0.2)]);
        assert!(grid.is_measured());
        assert_eq!(grid.columns[1].header(), "P: Null, us");
    }
}
