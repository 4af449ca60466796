//! Fits text to the terminal: folds lines between words, and shows each row of a wide table as a record.

use std::os::fd::AsFd;

use clap::builder::styling::Style;
use comfy_table::{CellAlignment, Table, presets};
use unicode_width::UnicodeWidthStr as _;

use super::visible;

/// The minimum width in columns. A narrower terminal is treated as if it had this width.
const COLUMNS_MIN: usize = 20;

/// Returns the number of columns of the terminal to which a stream is connected. Returns `None` if the stream
/// is no terminal, or if the terminal reports no size.
pub(crate) fn columns(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0).then(|| usize::from(size.ws_col).max(COLUMNS_MIN))
}

/// Formats a table without a frame. The columns whose indices are in `right` are aligned right. If the table
/// is wider than the terminal, each row becomes a record with one line per column.
pub(crate) fn table(header: &[&str], right: &[usize], rows: Vec<Vec<String>>) -> String {
    fitted(header, right, rows, columns(std::io::stdout()))
}

/// Formats a table. Returns `None` if the table is wider than `columns`.
pub(crate) fn table_within(
    header: &[&str],
    right: &[usize],
    rows: &[Vec<String>],
    columns: Option<usize>,
) -> Option<String> {
    let table = frameless(header, right, &harmless(rows));
    let fits = |line: &str| columns.is_none_or(|columns| width(line) <= columns);
    table.lines().all(fits).then_some(table)
}

/// Formats a table like [`table`], for a terminal with `columns` columns.
pub(crate) fn fitted(
    header: &[&str],
    right: &[usize],
    rows: Vec<Vec<String>>,
    columns: Option<usize>,
) -> String {
    let rows = harmless(&rows);
    let table = frameless(header, right, &rows);
    match columns {
        Some(columns) if table.lines().any(|line| width(line) > columns) => {
            records(header, &rows, columns)
        }
        _ => table,
    }
}

/// Escapes control characters and line breaks in all cells.
fn harmless(rows: &[Vec<String>]) -> Vec<Vec<String>> {
    let cell = |cell: &String| visible(cell).replace('\n', "\\n");
    rows.iter().map(|row| row.iter().map(cell).collect()).collect()
}

fn frameless(header: &[&str], right: &[usize], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec()).add_rows(rows.to_vec());
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if right.contains(&i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<_> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Formats each row as a record. The first cell is the title, and each other cell is on a separate line.
fn records(header: &[&str], rows: &[Vec<String>], columns: usize) -> String {
    const BOLD: Style = Style::new().bold();
    let names = header.iter().map(|name| name.to_lowercase()).collect::<Vec<_>>();
    // A column without a name only indents the table, so records omit it.
    let shown: Vec<usize> = (0..names.len()).filter(|i| !names[*i].is_empty()).collect();
    let Some((title, rest)) = shown.split_first() else { return String::new() };
    let longest = rest.iter().map(|i| width(&names[*i])).max().unwrap_or(0);
    let cell = |row: &Vec<String>, i: usize| row.get(i).cloned().unwrap_or_default();
    let record = |row: &Vec<String>| {
        let mut lines = vec![fold(&format!("{BOLD}{}{BOLD:#}", cell(row, *title)), columns)];
        for i in rest {
            let name = &names[*i];
            let pad = longest - width(name);
            let line = format!("  {name}{:pad$}  {}", "", cell(row, *i));
            lines.push(fold_line(line.trim_end(), columns, longest + 4));
        }
        lines.join("\n")
    };
    rows.iter().map(record).collect::<Vec<_>>().join("\n")
}

/// Folds lines that are wider than `columns`. A continuation line is aligned with the text after the last gap
/// in the left half of the terminal. A gap consists of at least two spaces. Without a gap, the continuation
/// line is indented by two more columns than the folded line.
pub(crate) fn fold(text: &str, columns: usize) -> String {
    let one = |line: &str| {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let words = line.char_indices().filter(|(at, letter)| *at > indent && *letter != ' ');
        let starts = words.filter(|(at, _)| line[..*at].ends_with("  "));
        let starts = starts.map(|(at, _)| width(&line[..at]));
        let last = starts.take_while(|column| *column <= columns / 2).last();
        fold_line(line, columns, last.unwrap_or(indent + 2))
    };
    text.split('\n').map(one).collect::<Vec<_>>().join("\n")
}

/// Folds one line. Continuation lines are indented by `hang` columns.
fn fold_line(line: &str, columns: usize, hang: usize) -> String {
    if width(line) <= columns {
        return line.to_owned();
    }
    let text = line.trim_start_matches(' ');
    // The indentation takes at most half of the terminal, so that the other half has space for text.
    let [indent, hang] = [line.len() - text.len(), hang].map(|deep| deep.min(columns / 2));
    let mut lines = vec![" ".repeat(indent)];
    let (mut used, mut is_fresh, mut gap) = (indent, true, 0);
    for word in text.split(' ') {
        // An empty word means that two spaces are adjacent: the gap grows.
        if word.is_empty() {
            gap += 1;
            continue;
        }
        // A word that is wider than a line must be cut. Such a word can start on the current line.
        let wide = width(word);
        let is_cut = hang + wide > columns && used + gap < columns * 2 / 3;
        if !is_fresh && used + gap + wide > columns && !is_cut {
            lines.push(" ".repeat(hang));
            (used, is_fresh) = (hang, true);
        }
        let mut rest = word;
        if let Some(line) = lines.last_mut().filter(|_| !is_fresh) {
            line.push_str(&" ".repeat(gap));
            used += gap;
        }
        while used + width(rest) > columns {
            let (now, later) = rest.split_at(cut(rest, columns - used));
            lines.last_mut().expect("at least one line").push_str(now);
            lines.push(" ".repeat(hang));
            (used, rest) = (hang, later);
        }
        lines.last_mut().expect("at least one line").push_str(rest);
        used += width(rest);
        (is_fresh, gap) = (false, 1);
    }
    lines.join("\n")
}

/// Returns the index at which to cut a word that is wider than `columns`: after a slash, or at the last
/// column. Escape sequences have no width and are never cut.
fn cut(word: &str, columns: usize) -> usize {
    let (mut used, mut end, mut slash) = (0, 0, 0);
    let mut rest = word;
    while !rest.is_empty() {
        let escape = escape_bytes(rest);
        if escape > 0 {
            rest = &rest[escape..];
            continue;
        }
        let letter = rest.chars().next().map_or(1, char::len_utf8);
        used += rest[..letter].width();
        // Each line gets at least one character, so that folding terminates.
        if used > columns && end > 0 {
            break;
        }
        rest = &rest[letter..];
        end = word.len() - rest.len();
        if word[..end].ends_with('/') {
            slash = end;
        }
    }
    if slash > 0 { slash } else { end }
}

/// Returns the width of a text in columns.
pub(crate) fn width(text: &str) -> usize {
    let (mut columns, mut rest) = (0, text);
    while let Some(at) = rest.find('\u{1b}') {
        columns += rest[..at].width();
        rest = &rest[at..];
        rest = &rest[escape_bytes(rest).max(1)..];
    }
    columns + rest.width()
}

/// Returns the length in bytes of the escape sequence `ESC [ ... letter` at the start of a text. Returns 0 if
/// the text does not start with an escape sequence.
fn escape_bytes(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\u{1b}[") else { return 0 };
    rest.find(|c: char| c.is_ascii_alphabetic()).map_or(text.len(), |at| at + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<String>> {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        vec![row(["files", "alive", "/run/user/1000/peregrine/files"]), row(["x", "dead", ""])]
    }

    #[test]
    fn wide_table_becomes_records() {
        let header = ["NAME", "STATE", "SOCKET"];
        let wide = fitted(&header, &[], rows(), Some(80));
        assert_eq!(wide.lines().count(), 3);
        assert_eq!(wide, fitted(&header, &[], rows(), None));
        let narrow = fitted(&header, &[], rows(), Some(24));
        let bold = |text: &str| format!("\u{1b}[1m{text}\u{1b}[0m");
        let lines: Vec<&str> = narrow.lines().collect();
        assert_eq!(lines[0], bold("files"));
        assert_eq!(lines[1..4], ["  state   alive", "  socket  /run/user/", "          1000/"]);
        assert!(lines.iter().all(|line| width(line) <= 24), "{narrow}");
        assert_eq!(lines.last(), Some(&"  socket"));
    }

    #[test]
    fn cell_is_one_line() {
        let row = ["files\nfaked  alive", "\u{1b}[2J"].map(str::to_owned).to_vec();
        let table = fitted(&["NAME", "INTERFACE"], &[], vec![row], None);
        assert_eq!(table.lines().last(), Some("files\\nfaked  alive  \\u{1b}[2J"));
        assert_eq!(table.lines().count(), 2);
    }

    #[test]
    fn lines_are_folded_between_words() {
        assert_eq!(fold("short", 20), "short");
        assert_eq!(fold("one two three four five", 20), "one two three four\n  five");
        assert_eq!(fold("    one two three four", 20), "    one two three\n      four");
        assert_eq!(fold("a  b\n\nc", 20), "a  b\n\nc");
        assert_eq!(fold("one  two three four   five", 20), "one  two three four\n     five");
        assert_eq!(fold("  a   bc   one two three", 20), "  a   bc   one two\n      three");
    }

    #[test]
    fn escape_sequences_have_no_width_and_are_not_cut() {
        let green = "\u{1b}[32mone two three four\u{1b}[0m";
        assert_eq!(width(green), 18);
        assert_eq!(fold(green, 20), green);
        let long = format!("\u{1b}[1m{}\u{1b}[0m", "x".repeat(50));
        let folded = fold(&long, 20);
        assert!(folded.lines().all(|line| width(line) <= 20), "{folded:?}");
        assert_eq!(folded.matches('x').count(), 50);
        assert_eq!(folded.matches('\u{1b}').count(), 2);
        assert!(folded.ends_with("\u{1b}[0m"));
    }

    #[test]
    fn folding_loses_no_character() {
        let texts = [
            "",
            " ",
            "            deep",
            "日本語 日本語 日本語 日本語",
            "a/b/c/d/e/f/g/h/i/j/k/l/m",
            "\u{1b}",
        ];
        for text in texts {
            for columns in [7, 11, 20] {
                let folded = fold(text, columns);
                let letters = |text: &str| text.replace([' ', '\n'], "");
                assert_eq!(letters(&folded), letters(text));
                assert!(folded.lines().all(|line| width(line) <= columns), "{folded:?} {columns}");
            }
        }
    }
}
