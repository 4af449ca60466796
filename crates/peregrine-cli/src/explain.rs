//! `explain`: shows which path a binding uses, and why it does not use the others. For a name with several
//! servers, also shows which of them a pool uses.

use std::time::{Duration, Instant};

use peregrine::directory::Offer;
use peregrine::{
    Binding, Candidate, Explanation, PoolServer, PoolStanding, Verdict, describe_with,
};
use serde_json::{Value, json};

use crate::args::Format;
use crate::output::{self, BAD, BOLD, DIM, Failure, GOOD, visible};
use crate::security::bind_options;
use crate::servers::{self, Row, Several};

/// How long the command waits for the servers to which a pool still binds.
const BINDING_LIMIT: Duration = Duration::from_secs(5);
/// The interval at which the command looks whether a pool still binds.
const LOOK: Duration = Duration::from_millis(10);

/// Explains which path a binding to an address uses. If no path works, shows the explanation and then fails.
pub(crate) fn run(address: &str, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    let (explanation, bound) = peregrine::explain(address, &bind_options());
    let several = servers::several(address);
    let servers = several.as_ref().map(|several| servers_of(address, several));
    let took = begun.elapsed();
    if format.is_json() {
        // The output is a single object that contains both the explanation and the error.
        let mut members = to_json(&explanation, took);
        if let Some(servers) = &servers {
            members["servers"] = servers.iter().map(server_to_json).collect();
        }
        return match bound {
            Ok(()) => output::print(members),
            Err(error) => Err(Failure::from(error).with(members)),
        };
    }
    output::say(to_text(&explanation))?;
    if let (Some(several), Some(servers)) = (several, servers) {
        several.note_remarks();
        let rows = servers.into_iter().map(|(row, _)| row).collect();
        let head = format!("{BOLD}servers, as a pool uses them{BOLD:#}");
        output::say(format_args!("\n{head}\n{}", servers::table("STANDING", rows)))?;
    }
    Ok(bound?)
}

/// A server, and its addresses.
type Explained = (Row, Vec<String>);

/// Explains how a pool uses the servers of a name. If it can use none, explains why.
fn servers_of(address: &str, several: &Several) -> Vec<Explained> {
    // A pool needs an interface. All servers of a name have the same one, or one that fits it.
    let described = several.ask(false, |address| describe_with(address, &bind_options()));
    let first = described.into_iter().find_map(|server| server.answer.ok());
    let described = first.and_then(|description| description.parsed().ok());
    match described.map(|described| Binding::pool(address, described, &bind_options())) {
        Some(Ok(pool)) => settled(&pool).iter().map(of_pool).collect(),
        _ => several.offers.servers.iter().map(|offer| unused(several, offer)).collect(),
    }
}

/// Returns the servers of a pool when it has tried all of them.
fn settled(pool: &Binding) -> Vec<PoolServer> {
    let end = Instant::now() + BINDING_LIMIT;
    loop {
        let servers = pool.servers();
        let is_binding = |one: &PoolServer| one.standing == PoolStanding::Binding;
        if Instant::now() >= end || !servers.iter().any(is_binding) {
            return servers;
        }
        std::thread::sleep(LOOK);
    }
}

fn of_pool(server: &PoolServer) -> Explained {
    let addresses = server.addresses.iter().map(ToString::to_string).collect();
    let row = Row {
        server: server.server.clone(),
        standing: server.standing.to_string(),
        path: server.path,
        at: servers::joined(&server.addresses),
        reason: server.reason.clone(),
    };
    (row, addresses)
}

/// Explains why a server cannot be used.
fn unused(several: &Several, offer: &Offer) -> Explained {
    let reasons = several.addresses(offer).into_iter().filter_map(|address| {
        let (_, bound) = peregrine::explain(&address, &bind_options());
        bound.err().map(|error| servers::why(&error))
    });
    let row = Row {
        server: offer.server().to_owned(),
        standing: PoolStanding::LeftOut.to_string(),
        path: None,
        at: servers::joined(offer.addresses()),
        reason: reasons.collect::<Vec<_>>().join("; "),
    };
    (row, offer.addresses().iter().map(ToString::to_string).collect())
}

fn server_to_json((row, addresses): &Explained) -> Value {
    json!({
        "server": row.server,
        "addresses": addresses,
        "standing": row.standing,
        "path": row.path.map(|path| path.to_string()),
        "reason": row.reason,
    })
}

fn to_json(explanation: &Explanation, took: Duration) -> Value {
    let rungs = explanation.candidates().iter().map(|Candidate { path, verdict, reason }| {
        json!({ "path": path.to_string(), "verdict": verdict.to_string(), "reason": reason })
    });
    json!({
        "address": explanation.address(),
        "path": explanation.chosen().map(|path| path.to_string()),
        "paths": rungs.collect::<Vec<_>>(),
        "took_ns": output::whole_ns(took),
    })
}

fn to_text(explanation: &Explanation) -> String {
    let rows = explanation.candidates().iter().map(|Candidate { path, verdict, reason }| {
        let style = match verdict {
            Verdict::Chosen => GOOD,
            Verdict::Failed => BAD,
            _ => DIM,
        };
        format!("  {BOLD}{path:<9}{BOLD:#} {style}{verdict:<10}{style:#}  {}", visible(reason))
    });
    let rows: Vec<_> = rows.map(|row| row.trim_end().to_owned()).collect();
    format!("{BOLD}{}{BOLD:#}\n{}", explanation.address(), rows.join("\n"))
}
