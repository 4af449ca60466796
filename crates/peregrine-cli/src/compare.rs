//! `compare`: shows which changes between two interfaces break which clients.

use core::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::builder::styling::Style;
use peregrine::interface::{Comparison, Described, Difference, Rule, Sides, compare};
use serde_json::{Value, json};

use crate::args::{Compare, Format};
use crate::output::{self, BAD, BOLD, DIM, Failure, GOOD, visible};
use crate::saved;
use crate::security::bind_options;

/// The name of the old interface in the texts that describe differences.
const OLD: &str = "the old one";
/// The name of the new interface in the texts that describe differences.
const NEW: &str = "the new one";

/// The comparison in one direction: the clients have one of the two interfaces, and the servers have the
/// other.
struct Pair {
    client: &'static str,
    server: &'static str,
    comparison: Comparison,
}

/// An old and a new interface, compared in both directions.
struct Ages {
    old: Described,
    new: Described,
    /// The comparison of old clients with new servers, and the comparison of new clients with old servers.
    pairs: [Pair; 2],
}

/// In which order the programs of a service can be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Equal,
    AnyOrder,
    ServersFirst,
    ClientsFirst,
    BothExports,
}

impl Verdict {
    /// Returns the word for the verdict in the JSON output.
    const fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::AnyOrder => "any-order",
            Self::ServersFirst => "servers-first",
            Self::ClientsFirst => "clients-first",
            Self::BothExports => "both-exports",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Equal => "the interfaces have the same digest",
            Self::AnyOrder => "replace servers and clients in any order",
            Self::ServersFirst => "replace servers first: new clients cannot call old servers",
            Self::ClientsFirst => "replace clients first: old clients cannot call new servers",
            Self::BothExports => {
                "export both interfaces: clients cannot call servers with the other interface"
            }
        }
    }
}

/// Compares two interfaces. The exit code is 0 if all clients fit all servers, and 1 otherwise.
pub(crate) fn run(arguments: &Compare, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    let Compare { old, new } = arguments;
    // If a file does not state whether a type is plain, the type is treated like the type of the same name in
    // the other interface.
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
    let ages = Ages::new(old_described, new_described);
    if format.is_json() {
        output::print(ages.to_json(old, new, begun.elapsed()))?;
    } else {
        output::say(ages.to_text(old, new).trim_end())?;
    }
    match ages.verdict() {
        Verdict::Equal | Verdict::AnyOrder => Ok(()),
        _ => Err(Failure::Differs),
    }
}

/// Returns whether an argument names a file. A name of a file ends in `.rs` or `.json`.
fn is_file(argument: &str) -> bool {
    let extension = Path::new(argument).extension().and_then(|one| one.to_str());
    matches!(extension, Some("rs" | "json"))
}

/// Reads an interface from a file, or asks a server for its interface.
fn read(argument: &str, like: Option<&Described>) -> Result<Described, Failure> {
    if is_file(argument) {
        return saved::read_like(Path::new(argument), like);
    }
    let description = peregrine::describe_with(argument, &bind_options())?;
    description.parsed().map_err(|error| Failure::Local {
        what: format!("cannot read the interface of {argument}"),
        causes: vec![error.to_string()],
        advice: "the server may use another version of Peregrine",
        suggestions: Vec::new(),
    })
}

impl Ages {
    fn new(old: Described, new: Described) -> Self {
        let forth = compare(&old, &new, Sides { ours: OLD, theirs: NEW });
        let back = compare(&new, &old, Sides { ours: NEW, theirs: OLD });
        let pairs = [
            Pair { client: "old", server: "new", comparison: forth },
            Pair { client: "new", server: "old", comparison: back },
        ];
        Self { old, new, pairs }
    }

    fn verdict(&self) -> Verdict {
        if self.old.digest() == self.new.digest() {
            return Verdict::Equal;
        }
        match self.pairs.each_ref().map(|pair| pair.comparison.fits()) {
            [true, true] => Verdict::AnyOrder,
            [true, false] => Verdict::ServersFirst,
            [false, true] => Verdict::ClientsFirst,
            [false, false] => Verdict::BothExports,
        }
    }

    fn to_json(&self, old: &str, new: &str, took: Duration) -> Value {
        let verdict = self.verdict();
        json!({
            "old": old,
            "new": new,
            "verdict": verdict.name(),
            "equal": verdict == Verdict::Equal,
            "fits": matches!(verdict, Verdict::Equal | Verdict::AnyOrder),
            "pairs": self.pairs.each_ref().map(Pair::to_json),
            "took_ns": output::whole_ns(took),
        })
    }

    fn to_text(&self, old: &str, new: &str) -> String {
        let verdict = self.verdict();
        let (style, word) = match verdict {
            Verdict::Equal => (GOOD, "equal"),
            Verdict::AnyOrder => (GOOD, "fits"),
            _ => (BAD, "breaks"),
        };
        let mut text = format!("{style}{word}:{style:#} {}\n", verdict.text());
        let (old, new) = (visible(old), visible(new));
        let _ = writeln!(text, "{DIM}old:{DIM:#}  {old}\n{DIM}new:{DIM:#}  {new}");
        if verdict == Verdict::Equal {
            return text;
        }
        let [forth, back] = &self.pairs;
        forth.write(&self.old.name, &mut text);
        let rules = |pair: &Pair| {
            let mut rules: Vec<_> =
                pair.comparison.differences.iter().map(|one| one.rule).collect();
            rules.sort_by_key(|rule| rule.name());
            rules
        };
        if verdict == Verdict::AnyOrder && rules(forth) == rules(back) {
            back.write_head(&mut text);
            let _ = writeln!(text, "      {DIM}the same changes in the other direction{DIM:#}");
        } else {
            back.write(&self.new.name, &mut text);
        }
        text
    }
}

impl Pair {
    fn to_json(&self) -> Value {
        let differences = self.comparison.differences.iter().map(|one| {
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
            "client": self.client,
            "server": self.server,
            "fits": self.comparison.fits(),
            "differences": differences.collect::<Vec<_>>(),
        })
    }

    /// Writes whether the clients of this pair fit the servers.
    fn write_head(&self, text: &mut String) {
        let Self { client, server, comparison } = self;
        let _ = write!(text, "\n{BOLD}{client} clients, {server} servers:{BOLD:#} ");
        let _ = match comparison.fits() {
            true => writeln!(text, "{GOOD}fit{GOOD:#}"),
            false => writeln!(text, "{BAD}cannot bind{BAD:#}"),
        };
    }

    /// Writes whether the clients fit the servers. Then writes the differences, grouped by their rules, with
    /// broken rules first. `name` is the name of the clients' interface.
    fn write(&self, name: &str, text: &mut String) {
        self.write_head(text);
        // The text of every difference begins with this prefix.
        let common = format!("interface `{name}`, ");
        let differences = &self.comparison.differences;
        if differences.is_empty() {
            let _ = writeln!(
                text,
                "      {DIM}only attributes, names of types, or the order of procedures or variants \
                 differ{DIM:#}"
            );
        }
        let mut rules: Vec<Rule> = Vec::new();
        for one in differences {
            if !rules.contains(&one.rule) {
                rules.push(one.rule);
            }
        }
        rules.sort_by_key(|rule| rule.fits());
        for rule in rules {
            let (style, mark) = mark(rule);
            let _ = writeln!(text, "  {style}{mark}{style:#}  {DIM}{}{DIM:#}", rule.text());
            for (one, more) in once(differences.iter().filter(|one| one.rule == rule)) {
                let line = one.to_string();
                let line = visible(line.strip_prefix(&common).unwrap_or(&line));
                let more = match more {
                    0 => String::new(),
                    1 => " (and in 1 other place)".to_owned(),
                    more => format!(" (and in {more} other places)"),
                };
                let _ = writeln!(text, "      {line}{DIM}{more}{DIM:#}");
            }
        }
    }
}

const fn mark(rule: Rule) -> (Style, &'static str) {
    if rule.fits() { (GOOD, "ok") } else { (BAD, "no") }
}

/// Returns each difference in a type once, with the number of further places in which this type is used.
fn once<'a>(differences: impl Iterator<Item = &'a Difference>) -> Vec<(&'a Difference, usize)> {
    let mut all: Vec<(&Difference, usize)> = Vec::new();
    for one in differences {
        let is_same = |known: &Difference| {
            !one.inside.is_empty() && known.inside == one.inside && known.text == one.text
        };
        match all.iter_mut().find(|(known, _)| is_same(known)) {
            Some((_, more)) => *more += 1,
            None => all.push((one, 0)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ages(old: &str, new: &str) -> Ages {
        let parse = |lines: &str| {
            Described::parse(&format!("interface I version 1\n{lines}")).expect("a description")
        };
        Ages::new(parse(old), parse(new))
    }

    #[test]
    fn verdict_names_the_order() {
        let f = |parameters: &str| format!("f({parameters}) -> unit or text\n");
        for (old, new, verdict) in [
            (f("in a: u8"), f("in a: u8"), Verdict::Equal),
            (f("in a: u8"), f("in a: u8, in b: option<u8>"), Verdict::AnyOrder),
            (f("in a: [u8] max 4"), f("in a: [u8] max 8"), Verdict::ServersFirst),
            (f("in a: [u8] max 8"), f("in a: [u8] max 4"), Verdict::ClientsFirst),
            (f("in a: u8"), f("in a: i8"), Verdict::BothExports),
        ] {
            assert_eq!(ages(&old, &new).verdict(), verdict, "{old}{new}");
        }
    }

    #[test]
    fn change_of_a_type_is_shown_once_and_broken_rules_come_first() {
        let text = |body: &str| {
            format!(
                "f(in a: T#0) -> unit or text\ng(in a: T#0) -> T#0 or text\nT#0 = struct {{{body}}}\n"
            )
        };
        let ages = ages(&text("x: u8, z: u8"), &text("x: u8, y: option<u8>, z: i8"));
        let plain = anstream::adapter::strip_str(&ages.to_text("a.rs", "b.rs")).to_string();
        let shown = "breaks: export both interfaces: clients cannot call servers with the other \
                     interface\n\
                     old:  a.rs\n\
                     new:  b.rs\n\
                     \n\
                     old clients, new servers: cannot bind\n  \
                       no  a type must not change\n      \
                           procedure `f`, parameter `a`, in type `T`, field `z`: the old one is `u8`, \
                           the new one is `i8` (and in 2 other places)\n  \
                       ok  fields and parameters with a default may be added and removed\n      \
                           procedure `f`, parameter `a`, in type `T`, field `y`: the old one has no such \
                           field (and in 2 other places)\n";
        assert!(plain.starts_with(shown), "{plain}");
    }
}
