//! `health`: asks a server for its health, and exits with a code for supervisors.

use std::time::Instant;

use peregrine::{Health as Report, health_with};
use serde_json::json;

use crate::args::{Format, Health};
use crate::output::{self, BAD, BOLD, Failure, GOOD};
use crate::security::bind_options;

/// The exit code for a server that is about to stop.
const DRAINING: u8 = 5;
/// The exit code for a server that accepts no more work at once.
const OVERLOADED: u8 = 6;
/// The exit code for a report that this version does not know.
const UNKNOWN: u8 = 7;

/// Asks for the health of one server.
pub(crate) fn run(health: &Health, format: Format) -> Result<(), Failure> {
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
        let why = match report {
            Report::Draining => ": it is about to stop, and refuses new calls",
            Report::Overloaded => ": it accepts no more work at once",
            _ => "",
        };
        output::say(format_args!(
            "{BOLD}{}{BOLD:#}: {style}{report}{style:#}{why}",
            health.address
        ))?;
    }
    match report {
        Report::Serving => Ok(()),
        Report::Draining => Err(Failure::NotServing(DRAINING)),
        Report::Overloaded => Err(Failure::NotServing(OVERLOADED)),
        _ => Err(Failure::NotServing(UNKNOWN)),
    }
}
