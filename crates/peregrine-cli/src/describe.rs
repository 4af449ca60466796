//! `describe`: the interface of an export, as it tells it itself.

use core::fmt::Write;
use std::time::{Duration, Instant};

use peregrine::Description;
use serde_json::{Value, json};

use crate::args::Written;
use crate::header;
use crate::output::{self, BOLD, DIM, Failure};

/// Describes one export.
pub(crate) fn run(name: &str, format: Written) -> Result<(), Failure> {
    let begun = Instant::now();
    let said = peregrine::describe(name)?;
    let took = begun.elapsed();
    let parts = Parts::of(&said);
    match format {
        Written::Json | Written::Ndjson => output::print(to_json(name, &said, &parts, took)),
        Written::Human => output::say(to_text(name, &said, &parts)),
        Written::C => match header::of(&said) {
            Ok(header) => output::print(header.trim_end()),
            Err(error) => Err(Failure::Local {
                what: format!("reading what {name} says of its interface"),
                causes: vec![error.to_string()],
                advice: "the server may be of another version of Peregrine",
                suggestions: Vec::new(),
            }),
        },
    }
}

/// The lines of a canonical text by what they say.
struct Parts<'a> {
    /// Signatures, each with its documentation.
    procedures: Vec<(&'a str, &'a str)>,
    /// Named types.
    types: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(said: &'a Description) -> Self {
        // `Name#0 = ...` is a type; every procedure has its parentheses before any equals sign.
        let is_type = |line: &&str| {
            line.split_once(" = ")
                .is_some_and(|(name, _)| name.contains('#') && !name.contains('('))
        };
        let (types, procedures): (Vec<&str>, Vec<&str>) =
            said.text.lines().skip(1).partition(is_type);
        let docs = said.docs.iter().skip(1).map(String::as_str);
        let docs = docs.chain(core::iter::repeat(""));
        Self { procedures: procedures.into_iter().zip(docs).collect(), types }
    }
}

fn signature(line: &str) -> (bool, &str) {
    line.strip_prefix("idempotent ").map_or((false, line), |rest| (true, rest))
}

fn to_json(name: &str, said: &Description, parts: &Parts<'_>, took: Duration) -> Value {
    let procedures: Vec<Value> = parts
        .procedures
        .iter()
        .map(|(line, docs)| {
            let (idempotent, signature) = signature(line);
            let name = signature.split('(').next().unwrap_or(signature);
            json!({ "name": name, "signature": signature, "idempotent": idempotent, "docs": docs })
        })
        .collect();
    json!({
        "name": name,
        "interface": said.interface,
        "version": said.version,
        "digest": said.digest.to_string(),
        "docs": said.docs.first(),
        "procedures": procedures,
        "types": parts.types,
        "canonical": said.text,
        "process": said.process,
        "age_ms": said.age_ms,
        "bindings": said.bindings,
        "took_ns": output::whole_ns(took),
    })
}

fn to_text(name: &str, said: &Description, parts: &Parts<'_>) -> String {
    let mut text = String::new();
    let _ =
        writeln!(text, "{BOLD}{name}{BOLD:#} exports {} version {}", said.interface, said.version);
    let (age, bindings) = (output::age(said.age_ms), said.bindings);
    let _ = writeln!(text, "process {}, for {age}, bindings: {bindings}", said.process);
    let _ = writeln!(text, "digest {}\n", said.digest);
    let comment = |text: &mut String, indent: &str, docs: &str| {
        for line in docs.lines() {
            let _ = writeln!(text, "{indent}{DIM}/// {line}{DIM:#}");
        }
    };
    comment(&mut text, "", said.docs.first().map_or("", String::as_str));
    let _ = writeln!(text, "{BOLD}interface {}{BOLD:#}", said.interface);
    for (line, docs) in &parts.procedures {
        comment(&mut text, "    ", docs);
        let (idempotent, signature) = signature(line);
        let (name, rest) = signature.split_at(signature.find('(').unwrap_or(signature.len()));
        let mark = if idempotent { "idempotent " } else { "" };
        let _ = writeln!(text, "    {mark}{BOLD}{name}{BOLD:#}{rest}");
    }
    if !parts.types.is_empty() {
        let _ = writeln!(text, "\n{BOLD}types{BOLD:#}");
    }
    for line in &parts.types {
        let _ = writeln!(text, "    {line}");
    }
    text.truncate(text.trim_end().len());
    text
}
