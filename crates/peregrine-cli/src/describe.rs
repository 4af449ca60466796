//! `describe`: shows an interface as a Rust trait, as JSON, or as a C header.

use core::fmt::Write as _;
use std::time::Instant;

use peregrine::interface::Described;
use serde_json::{Value, json};

use crate::args::{Describe, FormatOption};
use crate::header;
use crate::output::{self, BOLD, DIM, Failure};
use crate::saved;
use crate::security::bind_options;

/// Shows the description of one export, or a saved description.
pub(crate) fn run(describe: &Describe, format: FormatOption) -> Result<(), Failure> {
    let begun = Instant::now();
    let (described, server) = match (&describe.address, &describe.interface) {
        (_, Some(path)) => (saved::read(path)?, None),
        (Some(address), None) => {
            let description = peregrine::describe_with(address, &bind_options())?;
            let described = description.parsed().map_err(|error| unreadable(address, &error))?;
            (described, Some((address.as_str(), description)))
        }
        (None, None) => {
            return Err(Failure::local("missing address", "write the address of an export"));
        }
    };
    if let Some(path) = &describe.save {
        saved::write(path, &described)?;
    }
    match format {
        FormatOption::Json | FormatOption::Ndjson => {
            let mut whole = to_json(&described);
            if let Some((address, description)) = server {
                whole["name"] = json!(address);
                whole["process"] = json!(description.process);
                whole["age_ms"] = json!(description.age_ms);
                whole["bindings"] = json!(description.bindings);
                whole["took_ns"] = output::whole_ns(begun.elapsed());
            }
            output::print(whole)
        }
        FormatOption::Human => {
            let mut text = String::new();
            // The facts about the server become a comment, so that the output is valid Rust.
            if let Some((address, description)) = server {
                let (age, bindings) = (output::age(description.age_ms), description.bindings);
                let process = description.process;
                let _ = writeln!(
                    text,
                    "{DIM}// {address}: process {process}, for {age}, bindings: {bindings}{DIM:#}"
                );
            }
            let _ = writeln!(text, "{DIM}// digest {}{DIM:#}\n", described.digest());
            text.push_str(&painted(&peregrine_idl::to_trait(&described)));
            output::say(text.trim_end())
        }
        FormatOption::C => output::print(header::of(&described).trim_end()),
    }
}

fn unreadable(name: &str, error: &dyn core::fmt::Display) -> Failure {
    Failure::Local {
        what: format!("cannot read the interface of {name}"),
        causes: vec![error.to_string()],
        advice: "the server may use another version of Peregrine",
        suggestions: Vec::new(),
    }
}

/// Returns the description as JSON, with signatures and texts for display. `--interface` accepts this JSON.
fn to_json(described: &Described) -> Value {
    let mut whole = described.to_json();
    if let Some(procedures) = whole["procedures"].as_array_mut() {
        for (json, procedure) in procedures.iter_mut().zip(&described.procedures) {
            let signature = described.procedure_text(procedure);
            let marks = [(procedure.idempotent, "idempotent "), (procedure.oneway, "oneway ")];
            let marks = marks.iter().filter(|(marked, _)| *marked).map(|(_, mark)| mark.len());
            json["signature"] = json!(signature[marks.sum()..]);
        }
    }
    whole["canonical"] = json!(described.to_string());
    whole["trait"] = json!(peregrine_idl::to_trait(described));
    whole
}

/// Adds styles to Rust source text: comments are dim, names are bold.
fn painted(text: &str) -> String {
    let line = |line: &str| {
        let trimmed = line.trim_start();
        if trimmed.starts_with("///") || trimmed.starts_with("#[") {
            return format!("{DIM}{line}{DIM:#}");
        }
        for word in ["fn ", "pub trait ", "pub struct ", "pub enum "] {
            let Some(rest) = trimmed.strip_prefix(word) else { continue };
            let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
            let (name, rest) = rest.split_at(end);
            let indent = &line[..line.len() - trimmed.len()];
            return format!("{indent}{word}{BOLD}{name}{BOLD:#}{rest}");
        }
        line.to_owned()
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
