//! The experiment `tables`: measures today's counterpart of every table of the five papers that Peregrine
//! implements, and writes `docs/TABLES.md`. In this directory, *the paper* is the paper of a table.
//!
//! | file | what |
//! |---|---|
//! | `paper/` | the papers' figures |
//! | `measure/`, `measured` | what is measured, in groups, and the results of a run |
//! | `lrpc`, `peregrine`, `firefly/`, `lampson`, `study`, `courier` | the tables of each paper |
//! | `table`, `render`, `plot` | a table, and how it is shown |
//! | `document`, `compare` | the whole document, and what has moved since it was written |

mod compare;
mod courier;
mod document;
mod firefly;
mod lampson;
mod lrpc;
mod measure;
mod measured;
mod paper;
mod peregrine;
mod plot;
pub(crate) mod render;
mod study;
mod table;

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

pub(crate) use self::measure::marshalled::serve;
use self::measured::{Group, Measured};
pub(crate) use self::table::{Cell, Column, Grid, digits, label, ours, theirs};
use self::table::{Paper, Table, heading};
use crate::row::Format;
use crate::{Progress, Selection, machine};

/// A table: what it needs, and how it is made of the measurements.
struct Entry {
    paper: Paper,
    name: &'static str,
    groups: &'static [Group],
    make: fn(&Measured) -> Table,
}

const fn entry(
    paper: Paper,
    name: &'static str,
    groups: &'static [Group],
    make: fn(&Measured) -> Table,
) -> Entry {
    Entry { paper, name, groups, make }
}

/// All tables, in the order of the document.
const ALL: &[Entry] = {
    use Group::{
        Accounts, Census, Hardware, Local, Marshalling, Network, Peers, Penalty, Processors,
    };
    use Group::{Threads, Versions};
    use Paper::{Courier, Firefly, Lampson, Lrpc, Peregrine, Stubs};
    &[
        entry(Peregrine, "Table 1", &[Penalty], peregrine::table_1),
        entry(Peregrine, "Table 2", &[Penalty], peregrine::table_2),
        entry(Peregrine, "Table 3", &[Network], peregrine::table_3),
        entry(Peregrine, "Table 4", &[Accounts], peregrine::table_4),
        entry(Peregrine, "Table 5", &[Network], peregrine::table_5),
        entry(Peregrine, "Table 6", &[Local], peregrine::table_6),
        entry(Peregrine, "Table 7", &[Peers, Network, Threads], peregrine::table_7),
        entry(Lrpc, "Table I", &[Census], lrpc::table_1),
        entry(Lrpc, "Table II", &[Local], lrpc::table_2),
        entry(Lrpc, "Table III", &[], lrpc::table_3),
        entry(Lrpc, "Table IV", &[Local], lrpc::table_4),
        entry(Lrpc, "Table V", &[Local, Accounts], lrpc::table_5),
        entry(Lrpc, "Figure 1", &[Census], lrpc::figure_1),
        entry(Lrpc, "Figure 2", &[Processors], lrpc::figure_2),
        entry(Firefly, "Table I", &[Threads], firefly::table_1),
        entry(Firefly, "Table II", &[Marshalling], firefly::table_2),
        entry(Firefly, "Table III", &[Marshalling], firefly::table_3),
        entry(Firefly, "Table IV", &[Marshalling], firefly::table_4),
        entry(Firefly, "Table V", &[Marshalling], firefly::table_5),
        entry(Firefly, "Table VI", &[Accounts, Penalty, Network, Local], firefly::table_6),
        entry(Firefly, "Table VII", &[Accounts, Local], firefly::table_7),
        entry(Firefly, "Table VIII", &[Accounts], firefly::table_8),
        entry(Firefly, "Table IX", &[Versions], firefly::table_9),
        entry(Firefly, "Table X", &[Threads], firefly::table_10),
        entry(Firefly, "Table XI", &[Threads], firefly::table_11),
        entry(Firefly, "Table XII", &[Peers, Network, Threads], firefly::table_12),
        entry(Firefly, "Section 4.2", &[Network, Marshalling], firefly::speculations),
        entry(Firefly, "Section 5", &[Marshalling], firefly::exerciser),
        entry(Lampson, "Table 1", &[Hardware, Penalty], lampson::table_1),
        entry(Lampson, "Table 2", &[Local, Penalty], lampson::table_2),
        entry(Lampson, "Table 3", &[Hardware, Network], lampson::table_3),
        entry(Stubs, "Table 1", &[Group::Stubs], study::table_1),
        entry(Stubs, "Table 2", &[Group::Stubs], study::table_2),
        entry(Stubs, "Table 3", &[Group::Stubs], study::table_3),
        entry(Stubs, "Table 4", &[Group::Stubs], study::table_4),
        entry(Stubs, "Table 5", &[Group::Stubs], study::table_5),
        entry(Stubs, "Table 6", &[Group::Stubs], study::table_6),
        entry(Courier, "Table 1", &[Group::Courier], courier::table_1),
        entry(Courier, "Table 2", &[Group::Courier], courier::table_2),
        entry(Courier, "Table 3", &[Group::Courier], courier::table_3),
        entry(Courier, "Table 4", &[Group::Courier], courier::table_4),
        entry(Courier, "Table 5", &[Group::Courier], courier::table_5),
        entry(Courier, "Table 6", &[Group::Courier], courier::table_6),
        entry(Courier, "Table 7", &[Group::Courier], courier::table_7),
        entry(Courier, "Table 8", &[Group::Courier], courier::table_8),
        entry(Courier, "Table 9", &[Group::Courier], courier::table_9),
        entry(Courier, "Table 10", &[Group::Courier], courier::table_10),
        entry(Courier, "Table 11", &[Group::Courier], courier::table_11),
    ]
};

impl Entry {
    fn heading(&self) -> String {
        heading(self.paper, self.name)
    }
}

/// The arguments of the experiment.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Fewer and shorter rounds
    #[arg(long)]
    quick: bool,
    /// Compare with the document: print what has moved, and fail if a table is missing
    #[arg(long)]
    check: bool,
    /// Write the document, and its pictures next to it
    #[arg(long, conflicts_with = "check")]
    write: bool,
    /// Only tables whose heading contains this text (may be repeated)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// How the result is shown
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Rounds per measurement
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// The document
    #[arg(long, value_name = "FILE", default_value = "docs/TABLES.md")]
    document: PathBuf,
}

impl Options {
    fn selection(&self) -> Selection {
        Selection {
            quick: self.quick,
            format: self.format,
            cases: Vec::new(),
            placements: Vec::new(),
            rounds: self.rounds,
        }
    }

    fn has(&self, entry: &Entry) -> bool {
        let heading = entry.heading();
        self.only.is_empty() || self.only.iter().any(|name| heading.contains(name))
    }
}

/// Measures the selected tables, and shows, writes or compares them.
///
/// # Errors
/// If no table is selected, or the document cannot be read or written. With `--check`, if a table is missing
/// in the document, or could not be measured although it can be measured here.
pub(crate) fn run(
    options: &Options,
    progress: &Progress,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let selected: Vec<_> = ALL.iter().filter(|entry| options.has(entry)).collect();
    if selected.is_empty() {
        return Err("no table has this name".into());
    }
    let old = match fs::read_to_string(&options.document) {
        Ok(text) => text,
        Err(error) if options.check => {
            let place = options.document.display();
            return Err(format!("cannot read {place}: {error}; start in the repository").into());
        }
        Err(_) => String::new(),
    };
    let groups: BTreeSet<Group> = selected.iter().flat_map(|entry| entry.groups).copied().collect();
    let groups: Vec<Group> = groups.into_iter().collect();
    let measured = Measured::measure(&groups, &options.selection(), progress);
    progress.show("");
    let tables: Vec<_> = selected.iter().map(|entry| (*entry, (entry.make)(&measured))).collect();
    for (group, why) in &measured.failed {
        eprintln!("{group:?}: failed: {why}");
    }
    for (entry, table) in &tables {
        if let Some(why) = measured.why_missing(entry.groups) {
            eprintln!("{}: not measured here: {why}", table.heading());
        }
    }
    let unmeasured = unmeasured(&tables, &measured);
    if options.check {
        return check(&old, &tables, &unmeasured);
    }
    if options.write {
        write(options, &old, &tables, &measured)?;
    } else {
        show(options.format, &tables, &measured)?;
    }
    if unmeasured.is_empty() { Ok(()) } else { Err(failure(&unmeasured).into()) }
}

/// Returns the headings of the tables that were not measured although they can be measured here.
fn unmeasured(tables: &[(&Entry, Table)], measured: &Measured) -> Vec<String> {
    let is_wrong = |(entry, table): &&(&Entry, Table)| {
        !table.is_measured() && measured.why_missing(entry.groups).is_none()
    };
    tables.iter().filter(is_wrong).map(|(_, table)| table.heading()).collect()
}

fn failure(unmeasured: &[String]) -> String {
    format!("{} tables were not measured: {}", unmeasured.len(), unmeasured.join("; "))
}

/// Compares the tables with the document.
fn check(
    document: &str,
    tables: &[(&Entry, Table)],
    unmeasured: &[String],
) -> Result<(), Box<dyn Error + Send + Sync>> {
    // All tables must be in the document, also those that were not selected.
    let missing: Vec<_> = ALL
        .iter()
        .map(Entry::heading)
        .filter(|heading| compare::section(document, heading).is_none())
        .collect();
    let mut count = 0;
    for (_, table) in tables {
        let Some(section) = compare::section(document, &table.heading()) else { continue };
        for moved in compare::moved(section, table) {
            let (before, now) = (digits(moved.before), digits(moved.now));
            println!("{}: {before} in the document, {now} now", moved.place);
            count += 1;
        }
    }
    println!("{} tables, {count} figures differ by more than a quarter", tables.len());
    match (missing.is_empty(), unmeasured.is_empty()) {
        (true, true) => Ok(()),
        (false, _) => Err(format!("missing in the document: {}", missing.join("; ")).into()),
        (_, false) => Err(failure(unmeasured).into()),
    }
}

/// Writes the document. Tables that were not measured keep their sections.
fn write(
    options: &Options,
    old: &str,
    tables: &[(&Entry, Table)],
    measured: &Measured,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let new = |entry: &Entry| {
        let found = tables.iter().find(|(one, _)| one.heading() == entry.heading());
        found.map(|(_, table)| table)
    };
    let sections = ALL.iter().map(|entry| {
        let before = compare::section(old, &entry.heading());
        let whole = measured.why_missing(entry.groups).is_none();
        let table = new(entry).filter(|table| (whole && table.is_measured()) || before.is_none());
        let section = match (table, before) {
            (Some(table), _) => render::markdown(table),
            (None, Some(before)) => format!("## {}\n{}\n", entry.heading(), before.trim_end()),
            (None, None) => render::markdown(&(entry.make)(measured)),
        };
        (entry.paper, section)
    });
    let text =
        document::whole(&machine::description(), options.quick, &sections.collect::<Vec<_>>());
    let place = |path: &std::path::Path, error| format!("cannot write {}: {error}", path.display());
    fs::write(&options.document, text).map_err(|error| place(&options.document, error))?;
    for picture in tables.iter().filter_map(|(_, table)| table.picture.as_ref()) {
        let path = options.document.with_file_name(picture.file);
        fs::write(&path, &picture.svg).map_err(|error| place(&path, error))?;
    }
    Ok(())
}

fn show(
    format: Format,
    tables: &[(&Entry, Table)],
    measured: &Measured,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    match format {
        Format::Human => {
            for (_, table) in tables {
                write!(out, "{}", render::human(table))?;
            }
        }
        Format::Json => {
            let all: Vec<_> = tables.iter().map(|(_, table)| render::json(table)).collect();
            let accounts = measured.accounts.iter();
            let accounts = accounts.map(|(name, account)| ((*name).to_owned(), account.to_json()));
            let whole = json!({
                "experiment": "tables",
                "machine": machine::description(),
                "tables": all,
                "values": measured.values(),
                "accounts": accounts.collect::<serde_json::Map<_, _>>(),
            });
            writeln!(out, "{whole:#}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the document of the repository.
    fn document() -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/TABLES.md");
        fs::read_to_string(path).expect("the document")
    }

    /// The number of tables of each paper, and the form of their names.
    const NAMES: [(Paper, usize, bool); 6] = [
        (Paper::Peregrine, 7, false),
        (Paper::Lrpc, 5, true),
        (Paper::Firefly, 12, true),
        (Paper::Lampson, 3, false),
        (Paper::Stubs, 6, false),
        (Paper::Courier, 11, false),
    ];

    fn roman(number: usize) -> &'static str {
        const ROMAN: [&str; 12] =
            ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];
        ROMAN[number - 1]
    }

    fn expected() -> Vec<String> {
        let of_paper = |(paper, count, is_roman): (Paper, usize, bool)| {
            (1..=count).map(move |number| {
                let number = if is_roman { roman(number).to_owned() } else { number.to_string() };
                heading(paper, &format!("Table {number}"))
            })
        };
        let more =
            ["LRPC, Figure 1", "LRPC, Figure 2", "Firefly, Section 4.2", "Firefly, Section 5"];
        NAMES.into_iter().flat_map(of_paper).chain(more.map(str::to_owned)).collect()
    }

    #[test]
    fn every_table_of_the_papers_is_listed_once() {
        let listed: Vec<_> = ALL.iter().map(Entry::heading).collect();
        for heading in expected() {
            let count = listed.iter().filter(|one| **one == heading).count();
            assert_eq!(count, 1, "{heading}");
        }
        assert_eq!(listed.len(), expected().len());
    }

    #[test]
    fn every_table_is_in_the_document() {
        let document = document();
        for entry in ALL {
            assert!(compare::section(&document, &entry.heading()).is_some(), "{}", entry.heading());
        }
    }

    #[test]
    fn tables_have_our_figures_and_short_lines() {
        let measured = Measured::synthetic();
        let mut long = Vec::new();
        for entry in ALL {
            let table = (entry.make)(&measured);
            assert_eq!(table.heading(), entry.heading());
            // The study of stubs has no invented figures.
            assert!(table.is_measured() || entry.paper == Paper::Stubs, "{}", entry.heading());
            let text = render::markdown(&table);
            for line in text.lines() {
                if line.chars().count() > render::COLUMNS {
                    long.push(format!("{}: {} {line}", entry.heading(), line.chars().count()));
                }
            }
            let picture = table.picture.map_or(String::new(), |picture| picture.svg);
            assert!(!picture.contains("NaN"), "{}", entry.heading());
        }
        assert!(long.is_empty(), "{}", long.join("\n"));
    }

    #[test]
    fn tables_without_measurements_have_dashes() {
        let measured = Measured::default();
        for entry in ALL {
            let text = render::markdown(&(entry.make)(&measured));
            assert!(!text.contains("NaN") && !text.contains("inf"), "{}\n{text}", entry.heading());
        }
    }

    #[test]
    fn new_figures_are_found_in_a_document_with_old_ones() {
        let measured = Measured::synthetic();
        let table = |entry: &Entry| render::markdown(&(entry.make)(&measured));
        let sections: Vec<_> = ALL.iter().map(|entry| (entry.paper, table(entry))).collect();
        let text = document::whole(&json!({}), true, &sections);
        for entry in ALL {
            let section = compare::section(&text, &entry.heading()).expect("a section");
            assert_eq!(compare::moved(section, &(entry.make)(&measured)), []);
        }
    }
}
