//! Compares the tables of the document with those of a new run: which are missing, and which figures have
//! moved.

use super::render;
use super::table::Table;

/// A figure that differs between the document and a new run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Moved {
    /// The table, the row and the column.
    pub(crate) place: String,
    pub(crate) before: f64,
    pub(crate) now: f64,
}

/// A figure has moved if it is larger or smaller by this factor.
const FACTOR: f64 = 1.25;
/// Differences of less than this are never shown, because figures of this size have two digits only.
const LEAST: f64 = 0.02;

/// Returns the section of the document with this heading, or `None` if the document has no such section with
/// a table.
pub(crate) fn section<'a>(document: &'a str, heading: &str) -> Option<&'a str> {
    let line = format!("## {heading}\n");
    let begins = match document.starts_with(&line) {
        true => 0,
        false => document.find(&format!("\n{line}"))? + 1,
    };
    let rest = &document[begins + line.len()..];
    let ends = ["\n## ", "\n# "].iter().filter_map(|next| rest.find(next)).min();
    let section = &rest[..ends.unwrap_or(rest.len())];
    section.contains("\n|---").then_some(section)
}

/// Returns the rows of the tables of a section: the number of the table, and the cells.
fn rows(section: &str) -> Vec<(usize, Vec<&str>)> {
    let (mut rows, mut tables, mut inside) = (Vec::new(), 0, false);
    for line in section.lines() {
        let Some(line) = line.strip_prefix('|') else {
            inside = false;
            continue;
        };
        tables += usize::from(!inside);
        inside = true;
        rows.push((tables, line.trim_end_matches('|').split('|').map(str::trim).collect()));
    }
    rows
}

/// Returns the numbers of a cell.
fn numbers(cell: &str) -> Vec<f64> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let words = cell.split(|c: char| !is_part(c));
    words.filter_map(|word| word.trim_matches('.').parse().ok()).collect()
}

fn has_moved(before: f64, now: f64) -> bool {
    let (less, more) = (before.min(now), before.max(now));
    more > less * FACTOR && more - less > LEAST
}

/// Returns the figures of a table that have moved.
pub(crate) fn moved(section: &str, table: &Table) -> Vec<Moved> {
    let text = render::markdown(table);
    let (old, new) = (rows(section), rows(&text));
    let mut moved = Vec::new();
    let mut header: &[&str] = &[];
    let mut last = 0;
    for (part, cells) in &new {
        if *part != last {
            (header, last) = (cells, *part);
            continue;
        }
        // The number of the part and the first cells identify a row.
        let labels = table.grids.get(part - 1).map_or(1, |grid| {
            let is_label =
                |column: &&super::table::Column| column.origin == super::table::Origin::Label;
            grid.columns.iter().take_while(is_label).count().max(1)
        });
        let same =
            old.iter().find(|(of, row)| of == part && row.get(..labels) == cells.get(..labels));
        let Some((_, before)) = same else { continue };
        for (at, cell) in cells.iter().enumerate().skip(labels) {
            let (was, is) =
                (before.get(at).map_or(Vec::new(), |cell| numbers(cell)), numbers(cell));
            let pairs = was.into_iter().zip(is).filter(|(was, is)| has_moved(*was, *is));
            moved.extend(pairs.map(|(before, now)| Moved {
                place: format!(
                    "{}: {}: {}",
                    table.heading(),
                    cells[..labels].join(", "),
                    header.get(at).copied().unwrap_or_default()
                ),
                before,
                now,
            }));
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::super::table::{Cell, Grid, Paper, exact, label, ours, theirs};
    use super::*;

    fn table(null: f64) -> Table {
        let mut grid = Grid::new("", vec![label("test"), theirs("LRPC", "us"), ours("LRPC", "us")]);
        grid.row(vec!["Null".into(), exact(125.0), Cell::Number(null)]);
        grid.row(vec!["Add".into(), exact(130.0), "12.0 ± 3.00".into()]);
        Table {
            paper: Paper::Lrpc,
            name: "Table IV",
            title: "Four tests".into(),
            grids: vec![grid],
            minimum: None,
            how: String::new(),
            changed: String::new(),
            picture: None,
        }
    }

    #[test]
    fn sections_are_found_by_their_headings() {
        let document =
            format!("# All\n\n{}## LRPC, Table V\n\ntext\n", render::markdown(&table(1.0)));
        assert!(section(&document, "LRPC, Table IV").is_some_and(|text| !text.contains("Table V")));
        // This section has no table.
        assert_eq!(section(&document, "LRPC, Table V"), None);
        assert_eq!(section(&document, "LRPC, Table I"), None);
    }

    #[test]
    fn only_our_figures_that_differ_have_moved() {
        let before = render::markdown(&table(1.0));
        assert_eq!(moved(&before, &table(1.2)), []);
        let place = "LRPC, Table IV: Null: LRPC, us".to_owned();
        assert_eq!(moved(&before, &table(2.0)), [Moved { place, before: 1.0, now: 2.0 }]);
        assert_eq!(moved("no table", &table(2.0)), []);
        assert_eq!(numbers("12.0 ± 3.00, 0.5 %"), [12.0, 3.0, 0.5]);
    }
}
