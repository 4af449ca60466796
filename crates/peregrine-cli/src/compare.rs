//! `compare`: shows which changes between two interfaces break which clients.

use core::fmt::Write as _;
use std::path::Path;

use peregrine::interface::{Comparison, Described, Difference, Sides, compare};
use serde_json::{Value, json};

use crate::args::{Compare, Format};
use crate::output::{self, BAD, BOLD, DIM, Failure, GOOD, visible};
use crate::saved;

/// A client and a server of different ages.
struct Pair {
    client: &'static str,
    server: &'static str,
    comparison: Comparison,
}

/// Compares two interfaces. The exit code is 0 if all clients fit all servers, and 1 otherwise.
pub(crate) fn run(arguments: &Compare, format: Format) -> Result<(), Failure> {
    let Compare { old, new } = arguments;
    // The kinds of types that one file leaves open are those of the other interface.
    let (old_described, new_described) = match (is_file(old), is_file(new)) {
        (true, false) => {
            let new = read(new, None)?;
            (read(old, Some(&new))?, new)
        }
        (_, _) => {
            let old = read(old, None)?;
            let new = read(new, Some(&old))?;
            (old, new)
        }
    };
    let (old_name, new_name) = ("the old", "the new");
    let pairs = [
        Pair {
            client: "old",
            server: "new",
            comparison: compare(
                &old_described,
                &new_described,
                Sides { ours: old_name, theirs: new_name },
            ),
        },
        Pair {
            client: "new",
            server: "old",
            comparison: compare(
                &new_described,
                &old_described,
                Sides { ours: new_name, theirs: old_name },
            ),
        },
    ];
    let fits = pairs.iter().all(|pair| pair.comparison.fits());
    if format.is_json() {
        output::print(json!({
            "old": old,
            "new": new,
            "equal": old_described.digest() == new_described.digest(),
            "fits": fits,
            "pairs": pairs.iter().map(to_json).collect::<Vec<_>>(),
        }))?;
    } else {
        let equal = old_described.digest() == new_described.digest();
        output::say(to_text(old, new, equal, &pairs).trim_end())?;
    }
    if fits { Ok(()) } else { Err(Failure::Breaks) }
}

/// Returns whether an argument names a file: whether it ends in `.rs` or `.json`.
fn is_file(argument: &str) -> bool {
    let extension = Path::new(argument).extension().and_then(|one| one.to_str());
    matches!(extension, Some("rs" | "json"))
}

/// Reads a file, or asks a server.
fn read(argument: &str, like: Option<&Described>) -> Result<Described, Failure> {
    if is_file(argument) {
        return saved::read_like(Path::new(argument), like);
    }
    let description = peregrine::describe(argument)?;
    description.parsed().map_err(|error| Failure::Local {
        what: format!("cannot read the interface of {argument}"),
        causes: vec![error.to_string()],
        advice: "the server may use another version of Peregrine",
        suggestions: Vec::new(),
    })
}

fn to_json(pair: &Pair) -> Value {
    let differences = pair.comparison.differences.iter().map(|one| {
        json!({
            "fits": one.rule.fits(),
            "rule": one.rule.name(),
            "place": one.place,
            "inside": one.inside,
            "text": one.text,
            "rule_text": one.rule.text(),
        })
    });
    json!({
        "client": pair.client,
        "server": pair.server,
        "fits": pair.comparison.fits(),
        "differences": differences.collect::<Vec<_>>(),
    })
}

fn to_text(old: &str, new: &str, equal: bool, pairs: &[Pair]) -> String {
    let mut text = String::new();
    let (old, new) = (visible(old), visible(new));
    let _ = writeln!(text, "{BOLD}{old}{BOLD:#} (old) and {BOLD}{new}{BOLD:#} (new)");
    if equal {
        let _ = writeln!(text, "{GOOD}equal{GOOD:#}: the interfaces have the same digest");
        return text;
    }
    for Pair { client, server, comparison } in pairs {
        let differences = once(comparison);
        let _ = match comparison.fits() {
            true => writeln!(text, "\n{GOOD}fits{GOOD:#}    {client} clients, {server} servers"),
            false => writeln!(text, "\n{BAD}breaks{BAD:#}  {client} clients, {server} servers"),
        };
        for one in differences {
            let style = if one.rule.fits() { DIM } else { BAD };
            let mark = if one.rule.fits() { "ok" } else { "no" };
            let _ = writeln!(text, "  {style}{mark}{style:#}  {}", visible(&one.to_string()));
            let _ = writeln!(text, "      {DIM}{}{DIM:#}", one.rule.text());
        }
        if comparison.differences.is_empty() {
            let _ = writeln!(text, "  {DIM}the order of variants or other numbers differ{DIM:#}");
        }
    }
    text
}

/// Returns each difference once, even if several procedures use its type. Those that break come first.
fn once(comparison: &Comparison) -> Vec<&Difference> {
    let mut all: Vec<&Difference> = Vec::new();
    for one in &comparison.differences {
        let is_known = !one.inside.is_empty()
            && all.iter().any(|known| known.inside == one.inside && known.text == one.text);
        if !is_known {
            all.push(one);
        }
    }
    all.sort_by_key(|one| one.rule.fits());
    all
}
