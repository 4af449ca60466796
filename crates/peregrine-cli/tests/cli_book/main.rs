//! The book of the command line, `docs/CLI.md`: every verb on every path, as a person sees it in a
//! terminal and as a program reads it from a pipe; what it shows is what ran here.
//!
//! `PEREGRINE_WRITE=1 cargo test -p peregrine-cli --test cli_book` writes the document anew.

mod cases;
mod document;
#[path = "../place/mod.rs"]
mod place;
#[path = "../terminal/mod.rs"]
mod terminal;
mod world;

use std::collections::BTreeSet;
use std::path::Path;

use cases::{CASES, Case, Form, Step};
use document::{Block, Part};
use world::World;

/// Runs a step in all its forms, on all paths if it has an address; what is shown of it.
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
fn the_book_shows_what_runs() {
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
        // Figures of a build that is not optimized say nothing.
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
            "line {} of docs/CLI.md is not what ran now; PEREGRINE_WRITE=1 writes it anew",
            number + 1
        );
    }
    assert_eq!(before.lines().count(), now.lines().count(), "docs/CLI.md; PEREGRINE_WRITE=1");
}

#[test]
fn every_verb_is_in_the_book() {
    let place = place::Place::new();
    let (_, said) = place.json(&["man", "--dir", "pages"]);
    let pages = said["files"].as_array().unwrap().iter().map(|one| one.as_str().unwrap());
    let verbs: BTreeSet<&str> = pages
        .filter_map(|page| page.strip_prefix("pages/peregrine-")?.strip_suffix(".1"))
        .collect();
    let shown = CASES.iter().flat_map(|case| case.steps);
    let shown: BTreeSet<&str> = shown.filter_map(|step| step.line.split(' ').next()).collect();
    assert!(verbs.len() > 8, "{verbs:?}");
    let missing: Vec<_> = verbs.difference(&shown).collect();
    assert!(missing.is_empty(), "tests/cli_book/cases.rs shows nothing of {missing:?}");
}
