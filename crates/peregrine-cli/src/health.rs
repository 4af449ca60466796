//! `health`: asks a server for its health, and exits with a code for supervisors.

use std::time::Instant;

use peregrine::{Health as Report, health_with};
use serde_json::{Value, json};

use crate::args::{Format, Health};
use crate::output::{self, BAD, BOLD, Failure, GOOD};
use crate::security::bind_options;
use crate::servers::{self, Server, Several};

/// The exit code for a server that is about to stop.
const DRAINING: u8 = 5;
/// The exit code for a server that accepts no more work at once.
const OVERLOADED: u8 = 6;
/// The exit code for a report that this version does not know.
const UNKNOWN: u8 = 7;

/// Asks for the health of one server.
pub(crate) fn run(health: &Health, format: Format) -> Result<(), Failure> {
    if let Some(several) = servers::several(&health.address) {
        return of_several(health, &several, format);
    }
    let begun = Instant::now();
    let report = health_with(&health.address, &bind_options().bind_timeout(health.timeout))?;
    if format.is_json() {
        output::print(json!({
            "address": health.address,
            "health": report.text(),
            "took_ns": output::whole_ns(begun.elapsed()),
        }))?;
    } else {
        let style = if report == Report::Serving { GOOD } else { BAD };
        let why = why(report).map_or_else(String::new, |why| format!(": {why}"));
        output::say(format_args!(
            "{BOLD}{}{BOLD:#}: {style}{report}{style:#}{why}",
            health.address
        ))?;
    }
    outcome(report)
}

/// Says why a server does not serve.
const fn why(report: Report) -> Option<&'static str> {
    match report {
        Report::Draining => Some("it is about to stop, and refuses new calls"),
        Report::Overloaded => Some("it accepts no more work at once"),
        _ => None,
    }
}

/// Returns the result of the command for a report.
const fn outcome(report: Report) -> Result<(), Failure> {
    match report {
        Report::Serving => Ok(()),
        Report::Draining => Err(Failure::NotServing(DRAINING)),
        Report::Overloaded => Err(Failure::NotServing(OVERLOADED)),
        _ => Err(Failure::NotServing(UNKNOWN)),
    }
}

/// Returns the report of the healthiest server. `None`: no server has answered.
fn healthiest(reports: impl Iterator<Item = Report>) -> Option<Report> {
    reports.min_by_key(|report| match report {
        Report::Serving => 0,
        Report::Overloaded => 1,
        Report::Draining => 2,
        _ => 3,
    })
}

/// Asks for the health of all servers of a name. The result is that of the healthiest one, because clients
/// can use the name as long as one server serves.
fn of_several(health: &Health, several: &Several, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    let options = bind_options().bind_timeout(health.timeout);
    let servers = several.ask(true, |address| health_with(address, &options));
    let reports = || servers.iter().filter_map(|one| one.answer.as_ref().ok());
    let best = healthiest(reports().copied());
    let serving = reports().filter(|report| **report == Report::Serving).count();
    if format.is_json() {
        let rows: Vec<Value> = servers.iter().map(to_json).collect();
        let whole = json!({
            "address": health.address,
            "health": best.map(|report| report.text()),
            "servers": rows,
            "took_ns": output::whole_ns(begun.elapsed()),
        });
        let Some(best) = best else { return Err(servers::first_failure(servers).with(whole)) };
        output::print(whole)?;
        return outcome(best);
    }
    several.note_remarks();
    let style = if serving > 0 { GOOD } else { BAD };
    let all = servers.len();
    let rows = servers.iter().map(|server| {
        let mut row = server.row("fails");
        if let Ok(report) = &server.answer {
            row.standing = report.text().to_owned();
            row.reason = why(*report).map_or(row.reason, str::to_owned);
        }
        row
    });
    output::say(format_args!(
        "{BOLD}{}{BOLD:#}: {style}{serving} of {all} servers serve{style:#}\n{}",
        health.address,
        servers::table("HEALTH", rows.collect())
    ))?;
    best.map_or_else(|| Err(servers::first_failure(servers)), outcome)
}

fn to_json(server: &Server<Report>) -> Value {
    let mut one = server.to_json();
    one["health"] = json!(server.answer.as_ref().ok().map(|report| report.text()));
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_as_healthy_as_its_healthiest_server() {
        use Report::{Draining, Overloaded, Serving};
        for (reports, code) in [
            (&[Draining, Overloaded, Serving][..], 0),
            (&[Draining, Overloaded], OVERLOADED),
            (&[Draining, Draining], DRAINING),
        ] {
            let best = healthiest(reports.iter().copied()).unwrap();
            assert_eq!(outcome(best).map_or_else(|failure| failure.code(), |()| 0), code);
        }
        assert_eq!(healthiest(core::iter::empty()), None);
    }
}
