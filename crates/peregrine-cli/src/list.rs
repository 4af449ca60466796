//! `list`: lists the exports of this machine, or of a server on another one, with their descriptions.

use std::time::Instant;

use peregrine::directory::{self, Entry};
use peregrine::foreign::System;
use peregrine::interface::Digest;
use peregrine::server_info::Exported;
use peregrine::{
    Address, CallError, Description, PathKind, RegisteredProgram, describe, describe_with,
};
use serde_json::{Value, json};

use crate::args::Format;
use crate::output::{self, Failure};
use crate::security::bind_options;
use crate::servers::{self, Server, Several};

/// Why the state of a name is unknown.
const UNKNOWN: &str =
    "the export is private to another user, and only that user can see whether it is alive";

/// The description of an export, or the error of the request for it. `None` if no request was made, because
/// clients would not find this export.
type Described = Option<Result<Description, CallError>>;

/// Lists all exported names of this machine, or the exports of one server.
pub(crate) fn run(address: Option<&str>, format: Format) -> Result<(), Failure> {
    let is_onc = |address: &str| {
        let parsed = address.parse::<Address>().ok();
        parsed.and_then(|address| address.path()?.system()) == Some(System::Onc)
    };
    match address {
        Some(address) if is_onc(address) => of_rpcbind(address, format),
        Some(address) => of_server(address, format),
        None => of_machine(format),
    }
}

/// Lists what the server at an address exports.
fn of_server(address: &str, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    if let Some(several) = servers::several(address) {
        return of_several(address, &several, format);
    }
    let exports = match local(address)? {
        Some(exports) => exports,
        None => peregrine::exports_with(address, &bind_options())?,
    };
    let took = begun.elapsed();
    if format.is_json() {
        let exports = exports.iter().map(exported_to_json).collect();
        let whole = json!({ "address": address, "took_ns": output::whole_ns(took) });
        return output::print_all(format, "exports", exports, whole);
    }
    if exports.is_empty() {
        output::note(format_args!("{address} exports nothing over networks"));
        return Ok(());
    }
    let header =
        ["NAME", "INTERFACE", "VERSION", "DIGEST", "PROCESS", "AGE", "BINDINGS", "LISTENS"];
    let rows = exports.iter().map(exported_to_row).collect();
    output::say(output::table(&header, &[2, 4, 5, 6], rows))
}

/// Lists what each server of a name exports.
fn of_several(address: &str, several: &Several, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    let servers = several.ask(true, |address| peregrine::exports_with(address, &bind_options()));
    let took = begun.elapsed();
    let is_answered = servers.iter().any(|one| one.answer.is_ok());
    let exports = || {
        servers.iter().flat_map(|server| {
            let exports = server.answer.as_ref().map_or(&[][..], Vec::as_slice);
            exports.iter().map(|one| (server.offer.server(), one))
        })
    };
    if format.is_json() {
        let rows: Vec<Value> = servers.iter().map(Server::to_json).collect();
        let exports = exports().map(|(server, one)| {
            let mut export = exported_to_json(one);
            export["server"] = json!(server);
            export
        });
        let whole = json!({
            "address": address,
            "servers": rows,
            "took_ns": output::whole_ns(took),
        });
        if !is_answered {
            return Err(servers::first_failure(servers).with(whole));
        }
        return output::print_all(format, "exports", exports.collect(), whole);
    }
    several.note_remarks();
    let header = [
        "SERVER",
        "NAME",
        "INTERFACE",
        "VERSION",
        "DIGEST",
        "PROCESS",
        "AGE",
        "BINDINGS",
        "LISTENS",
    ];
    let rows: Vec<_> = exports()
        .map(|(server, one)| [vec![server.to_owned()], exported_to_row(one)].concat())
        .collect();
    let standings = servers.iter().map(|one| one.row(one.standing())).collect();
    output::say(servers::table("STANDING", standings))?;
    if !rows.is_empty() {
        output::say(format_args!("\n{}", output::table(&header, &[3, 5, 6, 7], rows)))?;
    }
    if is_answered { Ok(()) } else { Err(servers::first_failure(servers)) }
}

/// Lists the programs of ONC RPC that the rpcbind of a machine knows.
fn of_rpcbind(address: &str, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    let programs = peregrine::registered_programs(address)?;
    let took = begun.elapsed();
    if format.is_json() {
        let programs = programs.iter().map(program_to_json).collect();
        let whole = json!({ "address": address, "took_ns": output::whole_ns(took) });
        return output::print_all(format, "programs", programs, whole);
    }
    if programs.is_empty() {
        output::note(format_args!("rpcbind at {address} knows no program"));
        return Ok(());
    }
    show_programs(&programs)
}

/// Prints a table of programs of ONC RPC.
pub(crate) fn show_programs(programs: &[RegisteredProgram]) -> Result<(), Failure> {
    let header = ["PROGRAM", "VERSION", "NETWORK", "ADDRESS", "OWNER", "NAME"];
    let rows = programs.iter().map(program_to_row).collect();
    output::say(output::table(&header, &[0, 1], rows))
}

fn program_to_row(one: &RegisteredProgram) -> Vec<String> {
    // Control characters are replaced, because text from a server must not control the terminal.
    let printable = |text: &str| text.replace(char::is_control, "?");
    vec![
        one.program.to_string(),
        one.version.to_string(),
        printable(&one.network),
        printable(&one.address),
        printable(&one.owner),
        printable(one.name.as_deref().unwrap_or("-")),
    ]
}

fn program_to_json(one: &RegisteredProgram) -> Value {
    json!({
        "program": one.program,
        "version": one.version,
        "network": one.network,
        "address": one.address,
        "owner": one.owner,
        "name": one.name,
    })
}

/// Returns all exports of a server on this machine. Returns `None` if the address does not lead to such a
/// server.
fn local(address: &str) -> Result<Option<Vec<Exported>>, Failure> {
    let Ok(parsed) = address.parse::<Address>() else { return Ok(None) };
    let is_alive = |entry: &Entry| entry.alive == Some(true);
    let entries: Vec<Entry> = directory::list().into_iter().filter(is_alive).collect();
    let here = parsed.place().is_none() && parsed.path().is_none_or(PathKind::is_on_this_machine);
    if !here || entries.iter().all(|entry| entry.name != parsed.name()) {
        return Ok(None);
    }
    let process = describe_with(address, &bind_options())?.process;
    let described = entries.iter().zip(ask(&entries));
    let exports = described.filter_map(|(entry, described)| {
        let described = described?.ok().filter(|described| described.process == process)?;
        Some(Exported {
            name: entry.name.clone(),
            interface: described.interface,
            version: described.version,
            digest: described.digest.0,
            process: described.process,
            age_ms: described.age_ms,
            bindings: described.bindings,
            listens: described.listens,
        })
    });
    Ok(Some(exports.collect()))
}

fn exported_to_row(one: &Exported) -> Vec<String> {
    // Control characters are replaced, because text from a server must not control the terminal.
    let printable = |text: &str| text.replace(char::is_control, "?");
    vec![
        printable(&one.name),
        printable(&one.interface),
        one.version.to_string(),
        Digest(one.digest).to_string(),
        one.process.to_string(),
        output::age(one.age_ms),
        one.bindings.to_string(),
        printable(&one.listens.join(" ")),
    ]
}

fn exported_to_json(one: &Exported) -> Value {
    json!({
        "name": one.name,
        "interface": one.interface,
        "version": one.version,
        "digest": Digest(one.digest).to_string(),
        "process": one.process,
        "age_ms": one.age_ms,
        "bindings": one.bindings,
        "listens": one.listens,
    })
}

/// Lists all exported names in the runtime directories of this machine.
fn of_machine(format: Format) -> Result<(), Failure> {
    let entries = directory::list();
    let begun = Instant::now();
    let described = ask(&entries);
    let took = begun.elapsed();
    let all = entries.iter().zip(&described);
    match format {
        Format::Json | Format::Ndjson => {
            let exports = all.map(|(entry, described)| to_json(entry, described)).collect();
            let whole = json!({ "took_ns": output::whole_ns(took) });
            output::print_all(format, "exports", exports, whole)
        }
        Format::Human if entries.is_empty() => {
            let path: Vec<_> =
                directory::search_path().iter().map(|dir| dir.display().to_string()).collect();
            output::note(format_args!("nothing is exported in {}", path.join(", ")));
            Ok(())
        }
        Format::Human => {
            let header =
                ["NAME", "STATE", "INTERFACE", "VERSION", "PROCESS", "AGE", "BINDINGS", "SOCKET"];
            let rows = all.map(|(entry, described)| to_row(entry, described)).collect();
            output::say(output::table(&header, &[3, 4, 5, 6], rows))?;
            if entries.iter().any(|entry| entry.alive.is_none()) {
                output::note(
                    "unknown: private to another user, and only that user can see whether it is alive",
                );
            }
            Ok(())
        }
    }
}

/// Sends requests to all servers concurrently, so that several hung servers delay the list no longer than
/// one.
fn ask(entries: &[Entry]) -> Vec<Described> {
    let first = |i: usize| {
        // Only the first live entry of a name is asked, because clients bind to it. The private exports of
        // other users do not count as live: this user cannot connect to them.
        let same = |entry: &Entry| entry.alive == Some(true) && entry.name == entries[i].name;
        entries.iter().position(same) == Some(i)
    };
    std::thread::scope(|scope| {
        let asked: Vec<_> = entries
            .iter()
            .enumerate()
            .map(|(i, entry)| first(i).then(|| scope.spawn(|| describe(&entry.name))))
            .collect();
        asked.into_iter().map(|thread| thread.and_then(|thread| thread.join().ok())).collect()
    })
}

fn state(entry: &Entry, described: &Described) -> &'static str {
    match (entry.alive, described) {
        (Some(false), _) => "dead",
        (None, _) => "unknown",
        (_, Some(Ok(_))) => "alive",
        (_, Some(Err(_))) => "silent",
        (_, None) => "hidden",
    }
}

fn to_row(entry: &Entry, described: &Described) -> Vec<String> {
    let mut row = vec![entry.name.clone(), state(entry, described).to_owned()];
    match described {
        Some(Ok(one)) => row.extend([
            one.interface.clone(),
            one.version.to_string(),
            one.process.to_string(),
            output::age(one.age_ms),
            one.bindings.to_string(),
        ]),
        _ => row.extend(["-"; 5].map(str::to_owned)),
    }
    row.push(entry.socket.display().to_string());
    row
}

fn to_json(entry: &Entry, described: &Described) -> Value {
    let mut one = json!({
        "name": entry.name,
        "alive": entry.alive,
        "state": state(entry, described),
        "socket": entry.socket.display().to_string(),
    });
    match described {
        Some(Ok(described)) => {
            one["interface"] = json!(described.interface);
            one["version"] = json!(described.version);
            one["digest"] = json!(described.digest.to_string());
            one["process"] = json!(described.process);
            one["age_ms"] = json!(described.age_ms);
            one["bindings"] = json!(described.bindings);
            one["listens"] = json!(described.listens);
        }
        Some(Err(error)) => one["error"] = json!(error.chain()),
        None if entry.alive.is_none() => one["error"] = json!([UNKNOWN]),
        None => {}
    }
    one
}
