//! Writes tables in Markdown, as JSON, and for a terminal.

use comfy_table::CellAlignment;
use serde_json::{Value, json};

use super::table::{Cell, Column, Grid, Origin, Table};

/// The largest number of columns of a line of the document.
pub(crate) const COLUMNS: usize = 100;

/// Returns a text in lines of at most [`COLUMNS`] columns.
pub(crate) fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > COLUMNS {
            lines.push('\n');
            column = 0;
        } else if column > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
    }
    lines
}

/// Returns the table as a section of the document.
pub(crate) fn markdown(table: &Table) -> String {
    let mut text = format!("## {}\n\n{}\n\n", table.heading(), wrapped(&table.title));
    for grid in &table.grids {
        text += &part(grid);
    }
    if let Some(picture) = &table.picture {
        text += &format!("![{}]({})\n\n", picture.title, picture.file);
    }
    let minimum = table.minimum.iter().map(|minimum| format!("*The minimum*: {minimum}"));
    let paragraphs = minimum.chain([table.how.clone(), table.changed.clone()]);
    for paragraph in paragraphs.filter(|paragraph| !paragraph.is_empty()) {
        text += &format!("{}\n\n", wrapped(&paragraph));
    }
    text
}

/// Returns a part of a table, and an empty line.
pub(crate) fn part(grid: &Grid) -> String {
    let mut text = String::new();
    if !grid.caption.is_empty() {
        text += &format!("{}:\n\n", wrapped(&grid.caption));
    }
    let header: Vec<_> = grid.columns.iter().map(Column::header).collect();
    text += &format!("| {} |\n{}|\n", header.join(" | "), "|---".repeat(header.len()));
    for row in &grid.rows {
        let cells: Vec<_> = row.iter().map(Cell::text).collect();
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text.push('\n');
    text
}

/// Returns the table for a terminal.
pub(crate) fn human(table: &Table) -> String {
    let mut text = format!("{}: {}\n\n", table.heading(), table.title);
    for grid in &table.grids {
        if !grid.caption.is_empty() {
            text += &format!("{}:\n", grid.caption);
        }
        let mut shown = comfy_table::Table::new();
        shown.load_style(comfy_table::presets::NOTHING);
        shown.set_header(grid.columns.iter().map(Column::header));
        for row in &grid.rows {
            shown.add_row(row.iter().map(Cell::text));
        }
        let numbers =
            grid.columns.iter().enumerate().filter(|(_, one)| one.origin != Origin::Label);
        for (number, _) in numbers {
            if let Some(column) = shown.column_mut(number) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        text += &format!("{}\n\n", shown.trim_fmt());
    }
    text
}

/// Returns the table as JSON. Each row has one entry for each column.
pub(crate) fn json(table: &Table) -> Value {
    let cell = |cell: &Cell| match cell {
        Cell::Text(text) => json!(text),
        Cell::Number(number) | Cell::Exact(number) => json!(number),
        Cell::Missing => Value::Null,
    };
    let grid = |grid: &Grid| {
        let columns = grid.columns.iter().map(|column| {
            let origin = match column.origin {
                Origin::Label => "label",
                Origin::Paper => "paper",
                Origin::Ours => "ours",
            };
            json!({ "name": column.name, "origin": origin, "unit": column.unit })
        });
        let rows = grid.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>());
        json!({
            "caption": grid.caption,
            "columns": columns.collect::<Vec<_>>(),
            "rows": rows.collect::<Vec<_>>(),
        })
    };
    json!({
        "paper": table.paper.name(),
        "name": table.name,
        "title": table.title,
        "parts": table.grids.iter().map(grid).collect::<Vec<_>>(),
        "minimum": table.minimum,
        "how": table.how,
        "changed": table.changed,
        "picture": table.picture.as_ref().map(|picture| picture.file),
    })
}

#[cfg(test)]
mod tests {
    use super::super::table::{Paper, exact, label, ours, theirs};
    use super::*;

    fn table() -> Table {
        let mut grid = Grid::new("", vec![label("test"), theirs("Null", "us"), ours("Null", "us")]);
        grid.row(vec!["Null".into(), exact(125.0), Cell::Number(0.1371)]);
        grid.row(vec!["Add".into(), exact(130.0), Cell::Missing]);
        Table {
            paper: Paper::Lrpc,
            name: "Table IV",
            title: "Four tests".into(),
            grids: vec![grid],
            minimum: Some("a call".into()),
            how: String::new(),
            changed: "much ".repeat(40),
            picture: None,
        }
    }

    #[test]
    fn section_has_the_table_and_its_paragraphs_in_short_lines() {
        let text = markdown(&table());
        assert!(text.starts_with("## LRPC, Table IV\n\nFour tests\n\n| test | P: Null, us |"));
        assert!(
            text.contains("\n| Null | 125 | 0.14 |\n| Add | 130 | - |\n\n*The minimum*: a call")
        );
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    }

    #[test]
    fn json_has_numbers_and_their_origin() {
        let value = json(&table());
        assert_eq!(value["parts"][0]["rows"][0], json!(["Null", 125.0, 0.1371]));
        assert_eq!(value["parts"][0]["columns"][1]["origin"], "paper");
        assert_eq!(value["parts"][0]["rows"][1][2], Value::Null);
    }

    #[test]
    fn terminal_shows_every_cell() {
        let text = human(&table());
        assert!(["LRPC, Table IV", "125", "0.14", "130", "-"].iter().all(|one| text.contains(one)));
    }
}
