//! `describe`: shows an interface as a Rust trait, as JSON, or as a C header.

use core::fmt::Write as _;
use std::time::Instant;

use peregrine::Description;
use peregrine::interface::Described;
use serde_json::{Value, json};

use crate::args::{Describe, FormatOption};
use crate::call::via;
use crate::header;
use crate::output::{self, BOLD, DIM, Failure, visible};
use crate::saved;
use crate::security::bind_options;
use crate::servers::{self, Server};

/// Shows the description of one export, or a saved description.
pub(crate) fn run(describe: &Describe, format: FormatOption) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut servers = Vec::new();
    let (described, server) = match (&describe.address, &describe.interface) {
        (Some(name), None) if let Some(via) = &describe.via => {
            (via::describe(&via::bind(via)?, name)?, None)
        }
        (_, Some(path)) => (saved::read(path)?, None),
        (Some(address), None) => {
            let description = match servers::several(address) {
                None => peregrine::describe_with(address, &bind_options())?,
                Some(several) => {
                    let ask = |address: &str| peregrine::describe_with(address, &bind_options());
                    servers = several.ask(true, ask);
                    let first = servers.iter().find_map(|one| one.answer.as_ref().ok().cloned());
                    let Some(first) = first else {
                        let rows: Vec<Value> = servers.iter().map(server_to_json).collect();
                        let results = json!({ "name": address, "servers": rows });
                        return Err(servers::first_failure(servers).with(results));
                    };
                    first
                }
            };
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
                if !servers.is_empty() {
                    whole["servers"] = servers.iter().map(server_to_json).collect();
                }
                whole["took_ns"] = output::whole_ns(begun.elapsed());
            }
            output::print(whole)
        }
        FormatOption::Human => {
            let mut text = String::new();
            // The facts about the server become a comment, so that the output is valid Rust.
            for one in &servers {
                let _ = writeln!(text, "{DIM}// {}{DIM:#}", visible(&server_text(one)));
            }
            if let Some((address, description)) = server.filter(|_| servers.is_empty()) {
                let (age, bindings) = (output::age(description.age_ms), description.bindings);
                let process = description.process;
                let _ = writeln!(
                    text,
                    "{DIM}// {address}: process {process}, for {age}, bindings: {bindings}{DIM:#}"
                );
            }
            let others = servers.iter().filter(|one| has_other_interface(one, &described));
            for one in others {
                let server = visible(one.offer.server());
                let _ = writeln!(text, "{DIM}// server {server} has another interface{DIM:#}");
            }
            let _ = writeln!(text, "{DIM}// digest {}{DIM:#}\n", described.digest());
            text.push_str(&painted(&peregrine_idl::to_trait(&described)));
            output::say(text.trim_end())
        }
        FormatOption::C => output::print(header::of(&described).trim_end()),
    }
}

/// Describes one of several servers in one line.
fn server_text(server: &Server<Description>) -> String {
    let name = server.offer.server();
    let path = server.path.map_or_else(String::new, |path| format!(" ({path})"));
    match (&server.answer, &server.address) {
        (Ok(description), Some(address)) => format!(
            "server {name} at {address}{path}: process {}, for {}, bindings: {}",
            description.process,
            output::age(description.age_ms),
            description.bindings
        ),
        _ => format!("server {name} fails: {}", server.reason.replace('\n', " ")),
    }
}

/// Returns whether a server has another interface than the one that is shown.
fn has_other_interface(server: &Server<Description>, shown: &Described) -> bool {
    server.answer.as_ref().is_ok_and(|description| description.digest != shown.digest())
}

fn server_to_json(server: &Server<Description>) -> Value {
    let mut one = server.to_json();
    if let Ok(description) = &server.answer {
        one["process"] = json!(description.process);
        one["age_ms"] = json!(description.age_ms);
        one["bindings"] = json!(description.bindings);
        one["digest"] = json!(description.digest.to_string());
    }
    one
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
