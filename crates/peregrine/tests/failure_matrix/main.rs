//! Tests the failure matrix: causes every kind of failure of a call, on every path, with real processes and
//! with networks between namespaces. The observed outcomes must equal those in `docs/FAILURES.md`, word for
//! word. Each case runs three times: with blocking calls, with async calls, and with calls that are encrypted.
//! All must have the same outcome. The texts of errors may differ if the calls are encrypted.
//!
//! `PEREGRINE_WRITE=1 cargo test --test failure_matrix` rewrites the document.

mod callbacks;
mod cases;
mod client;
mod document;
mod elsewhere;
mod kinds;
mod subject;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::path::{Path, PathBuf};

use client::Form;
use document::{Cell, Row};
use peregrine::secure::{Identity, KeyDirectory, Overwrite, TrustedKey};
use support::{Process, role};
use world::{Way, World};

/// Runs the role of a child process: all cases on a path, a client, or a server of [`subject`]. In a process
/// without a role, this does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    match role.split_once(' ') {
        Some(("way", part)) => elsewhere::run_cases(part),
        Some(("client", part)) => elsewhere::call(part),
        _ => subject::serve(&role),
    }
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FAILURES.md")
}

/// Makes the key that clients and servers show to each other. Processes that are started later use it.
fn make_keys(directory: &Path) {
    let keys = KeyDirectory::at(directory.join("keys"));
    let identity = Identity::generate().expect("a key");
    keys.save(&identity, Overwrite::No).expect("the files of the key");
    let own = TrustedKey::new("own", identity.public_key(), "").expect("a line");
    assert!(keys.add(&own).expect("the list"));
    support::use_keys(keys.path());
}

#[test]
fn every_outcome_matches_the_document() {
    let _alone = support::alone();
    let directory = support::own_directory();
    make_keys(directory.path());
    let outcomes: Vec<Vec<Vec<Cell>>> = std::thread::scope(|scope| {
        let directory = directory.path();
        let run = |form| {
            let of_way =
                move |way| scope.spawn(move || elsewhere::outcomes_of(way, form, directory));
            Way::ALL.map(of_way)
        };
        let forms = Form::ALL.map(run);
        let joined = forms
            .map(|ways| ways.into_iter().map(|way| way.join().expect("the outcomes")).collect());
        joined.into()
    });
    let is_skipped = outcomes.iter().flatten().flatten().any(|cell| matches!(cell, Cell::Skipped));
    let rows_of = |ways: &Vec<Vec<Cell>>| -> Vec<Row> {
        let of_case = |at: usize| ways.iter().map(|cells| cells[at].clone()).collect();
        cases::all().enumerate().map(|(at, case)| Row::of(case, of_case(at))).collect()
    };
    let rows = rows_of(&outcomes[0]);
    let mut wrong: Vec<String> = rows.iter().flat_map(Row::wrong).collect();
    for (form, outcomes) in Form::ALL.into_iter().zip(&outcomes).skip(1) {
        let others = rows_of(outcomes);
        let differ = rows.iter().zip(&others).flat_map(|(row, other)| row.differences(other, form));
        wrong.extend(others.iter().flat_map(Row::wrong).map(|one| format!("{form}: {one}")));
        wrong.extend(differ);
    }
    assert!(wrong.is_empty(), "outcomes differ from the required ones:\n{}", wrong.join("\n"));
    let path = document();
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    if std::env::var_os("PEREGRINE_WRITE").is_some() && !is_skipped {
        std::fs::write(&path, document::whole(&rows)).unwrap();
        return;
    }
    let anew = "PEREGRINE_WRITE=1 writes it anew";
    if !is_skipped {
        assert!(written == document::whole(&rows), "{} differs: {anew}", path.display());
    }
    // If some outcomes were skipped, the document must still contain the others, each in the section of its
    // case.
    for row in &rows {
        let part = written.split(&row.heading()).nth(1).and_then(|rest| rest.split("\n## ").next());
        let part = part.unwrap_or_default();
        for line in row.lines() {
            assert!(part.contains(&line), "{} does not say\n{line}\n{anew}", path.display());
        }
    }
}

/// A server over datagrams keeps the result for a minute after the server has presumed the caller dead.
#[test]
fn client_paused_beyond_result_retention_gets_correct_outcome() {
    let _alone = support::alone();
    if std::env::var_os("PEREGRINE_SOAK").is_none() {
        return println!("skipped: it takes over a minute; PEREGRINE_SOAK=1 runs it");
    }
    let directory = support::own_directory();
    make_keys(directory.path());
    std::thread::scope(|scope| {
        for (way, form) in Way::ALL.into_iter().flat_map(|way| Form::ALL.map(|form| (way, form))) {
            scope.spawn(move || match World::new(way, form) {
                Ok(world) => world.inside(cases::paused_for_long),
                Err(why) => println!("skipped: {way}: {why}"),
            });
        }
    });
}
