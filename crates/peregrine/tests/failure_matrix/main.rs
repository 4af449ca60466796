//! The failure matrix: everything that can go wrong with a call, on every path, with real processes, and
//! networks of namespaces. What is seen is what `docs/FAILURES.md` says, word for word.
//!
//! `PEREGRINE_WRITE=1 cargo test --test failure_matrix` writes the document anew.

mod cases;
mod document;
mod subject;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::path::{Path, PathBuf};

use cases::CASES;
use document::{Cell, Row};
use support::{Part, part};
use world::{Way, World};

/// The part that children play: a server of [`subject`]; in the test itself this does nothing.
#[test]
fn child() {
    if let Some(part) = part() {
        subject::serve(&part);
    }
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FAILURES.md")
}

#[test]
fn every_failure_is_what_the_document_says() {
    let _directory = support::own_directory();
    let mut rows: Vec<Row> = CASES.iter().map(Row::of).collect();
    let mut skipped = None;
    for way in Way::ALL {
        match World::new(way) {
            Ok(world) => world.inside(|world| {
                for (case, row) in CASES.iter().zip(&mut rows) {
                    row.cells.push(case.run(world));
                }
            }),
            Err(why) => {
                println!("skipped: {way}: {why}");
                skipped = Some(why);
                rows.iter_mut().for_each(|row| row.cells.push(Cell::Skipped));
            }
        }
    }
    let wrong: Vec<String> = rows.iter().flat_map(Row::wrong).collect();
    assert!(wrong.is_empty(), "not as it must be:\n{}", wrong.join("\n"));
    let path = document();
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    if std::env::var_os("PEREGRINE_WRITE").is_some() && skipped.is_none() {
        std::fs::write(&path, document::whole(&rows)).unwrap();
        return;
    }
    let anew = "PEREGRINE_WRITE=1 writes it anew";
    if skipped.is_none() {
        assert!(written == document::whole(&rows), "{} differs: {anew}", path.display());
    }
    // What this machine can show stands under its own heading.
    for row in &rows {
        let part = written.split(&row.heading()).nth(1).and_then(|rest| rest.split("\n## ").next());
        let part = part.unwrap_or_default();
        for line in row.lines() {
            assert!(part.contains(&line), "{} does not say\n{line}\n{anew}", path.display());
        }
    }
}
