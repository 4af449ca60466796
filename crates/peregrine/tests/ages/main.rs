//! Tests every change in the table of docs/EVOLUTION.md. After each change of an interface, a new client
//! calls an old server, and an old client calls a new server. The tests do this on every path, in both byte
//! orders, with compiled and with interpreted stubs. The outcome may depend on the change, and on whether the
//! client or the server is new. It must not depend on the path, the byte order or the kind of stubs.
//!
//! `PEREGRINE_WRITE=1 cargo test -p peregrine --all-features --test ages` writes the table to the document.
#![cfg(feature = "json")]

mod changes;
mod forbidden;
mod interpreted;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::fmt::Write as _;
use std::path::Path;

use changes::{Change, Expected};
use peregrine::interface::Rule;
use support::link::{Link, at_near_end};
use world::{Way, World};

/// Returns the outcomes of a change that are not as expected.
fn wrong(world: &World, change: &Change) -> Vec<String> {
    let mut wrong = Vec::new();
    for (direction, ours, theirs) in
        [("new client", &change.new, &change.old), ("old client", &change.old, &change.new)]
    {
        for swapped in [false, true] {
            let server = world.serve(theirs, swapped);
            let outcomes = [
                ("compiled", server.bind(ours.interface).map(ours.compiled)),
                (
                    "interpreted",
                    server.bind_interpreted(ours.interface).map(|client| {
                        ours.calls.iter().map(|call| interpreted::call(&client, call)).collect()
                    }),
                ),
            ];
            for (stub, outcome) in outcomes {
                let expected = match (&ours.expected, stub) {
                    (Expected::Refused(rule), _) => Err(*rule),
                    (Expected::Calls { compiled, .. }, "compiled") => Ok(*compiled),
                    (Expected::Calls { interpreted, .. }, _) => Ok(*interpreted),
                };
                let is_right = match (&outcome, expected) {
                    (Ok(said), Ok(expected)) => said == expected,
                    (Err(error), Err(rule)) => error.to_string().contains(rule.text()),
                    _ => false,
                };
                if !is_right {
                    wrong.push(format!(
                        "{}, {direction}, {:?}, swapped: {swapped}, {stub}: {outcome:#?}, not {expected:#?}",
                        change.name,
                        world.way(),
                    ));
                }
            }
        }
    }
    wrong
}

fn check(way: Way) {
    let world = World::new(way);
    let wrong: Vec<String> = changes::all().iter().flat_map(|one| wrong(&world, one)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn changes_have_their_outcomes_in_process() {
    check(Way::InProcess);
}

#[test]
fn changes_have_their_outcomes_on_the_local_path() {
    check(Way::Local);
}

#[test]
fn changes_have_their_outcomes_over_udp() {
    check(Way::Udp);
}

#[test]
fn changes_have_their_outcomes_over_tcp() {
    check(Way::Tcp);
}

#[test]
fn changes_have_their_outcomes_over_raw_ethernet() {
    at_near_end(Link::new(), |_| check(Way::Ethernet));
}

/// Returns the table of all changes, followed by a list of the rules that the table names.
fn table() -> String {
    let mut text = String::from(
        "| what is added or changed | new client, old server | old client, new server |\n\
         |---|---|---|\n",
    );
    let mut rules: Vec<Rule> = Vec::new();
    for change in changes::all() {
        let mut told = |expected: &Expected, what: &str| match expected {
            Expected::Refused(rule) => {
                if !rules.contains(rule) {
                    rules.push(*rule);
                }
                format!("refused: {}", rule.name())
            }
            Expected::Calls { .. } => what.to_owned(),
        };
        let (new, old) = (
            told(&change.new.expected, change.forwards),
            told(&change.old.expected, change.backwards),
        );
        let _ = writeln!(text, "| {} | {new} | {old} |", change.name);
    }
    text.push_str("\nThe rules by which clients are refused:\n\n");
    for rule in rules {
        text.push_str(&wrapped(&format!("* `{}`: {}.", rule.name(), rule.text())));
    }
    text
}

/// Returns an item of a list as lines of at most 100 columns.
fn wrapped(item: &str) -> String {
    let mut lines = vec![String::new()];
    for word in item.split(' ') {
        let line = lines.last_mut().expect("a line");
        if line.chars().count() + word.chars().count() > 98 {
            lines.push(format!("  {word}"));
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn document_has_the_table_of_all_changes() {
    const BEGIN: &str = "<!-- The table of tests/ages begins. -->\n\n";
    const END: &str = "\n<!-- The table of tests/ages ends. -->";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/EVOLUTION.md");
    let written = std::fs::read_to_string(&path).expect("docs/EVOLUTION.md");
    let (before, rest) = written.split_once(BEGIN).expect("the beginning of the table");
    let (old, after) = rest.split_once(END).expect("the end of the table");
    let new = table();
    if std::env::var_os("PEREGRINE_WRITE").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{new}{END}{after}")).expect("a document");
        return;
    }
    assert_eq!(old, new, "PEREGRINE_WRITE=1 writes the table anew");
}
