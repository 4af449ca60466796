//! The document `docs/CLI.md` shows every command on every path, in a terminal and in a pipe. This test runs
//! all command lines of the document, and compares their output with the document.
//!
//! `PEREGRINE_WRITE=1 cargo test -p peregrine-cli --test cli_book` generates the document.

mod cases;
mod document;
#[path = "../sandbox/mod.rs"]
mod sandbox;
#[path = "../terminal/mod.rs"]
mod terminal;
mod world;

use std::collections::BTreeSet;
use std::path::Path;

use cases::{CASES, Case, Form, Step};
use document::{Block, Part};
use world::World;

/// Runs a step in all of its formats. If the step contains an address, runs it on all paths. Returns the
/// transcripts that the document shows.
fn run(world: &World, step: &'static Step) -> Vec<Block> {
    let mut shown = Vec::new();
    for (path, address) in world.addresses(step) {
        let line = step.line.replace("ADDRESS", &address);
        for form in step.forms {
            (step.before)(world);
            let transcript = match form {
                Form::Human => world.in_terminal(step, &line),
                form => world.through_pipe(step, &line, *form, path),
            };
            if step.shows(*form, path) {
                shown.push(Block::new(step, transcript));
            }
        }
    }
    shown
}

#[test]
fn book_shows_actual_output() {
    let world = World::new();
    let parts: Vec<Part> = CASES
        .iter()
        .map(|case: &'static Case| {
            let blocks = case.steps.iter().flat_map(|step| run(&world, step)).collect();
            Part { case, blocks }
        })
        .collect();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/CLI.md");
    let before = std::fs::read_to_string(&file).unwrap_or_default();
    if std::env::var_os("PEREGRINE_WRITE").is_some() {
        // Only an optimized build measures useful times. Other builds keep the times of the existing
        // document.
        let well = !cfg!(debug_assertions);
        std::fs::write(&file, document::whole(&parts, &before, well)).unwrap();
        return;
    }
    let now = document::whole(&parts, &before, false);
    let lines = before.lines().zip(now.lines()).enumerate();
    for (number, (before, now)) in lines {
        assert_eq!(
            before,
            now,
            "line {} of docs/CLI.md differs from the output; PEREGRINE_WRITE=1 generates the file",
            number + 1
        );
    }
    assert_eq!(before.lines().count(), now.lines().count(), "docs/CLI.md; PEREGRINE_WRITE=1");
}

#[test]
fn every_command_is_in_the_book() {
    let sandbox = sandbox::Sandbox::new();
    let (_, report) = sandbox.json(&["man", "--dir", "pages"]);
    let pages = report["files"].as_array().unwrap().iter().map(|one| one.as_str().unwrap());
    let commands: BTreeSet<&str> = pages
        .filter_map(|page| page.strip_prefix("pages/peregrine-")?.strip_suffix(".1"))
        .collect();
    let shown = CASES.iter().flat_map(|case| case.steps);
    // The page of the command `keys new` is `peregrine-keys-new.1`.
    let begins = |line: &str, command: &str| {
        let mut words = line.split(' ');
        command.split('-').all(|part| words.next() == Some(part))
    };
    let shown: Vec<&str> = shown.map(|step| step.line).collect();
    assert!(commands.len() > 8, "{commands:?}");
    let is_missing = |command: &&&str| !shown.iter().any(|line| begins(line, command));
    let missing: Vec<_> = commands.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "tests/cli_book/cases.rs does not show {missing:?}");
}
