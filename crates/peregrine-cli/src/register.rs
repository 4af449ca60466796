//! `register`: registers a server that does not know directories, until a signal ends the command.

use std::time::{Duration, Instant};

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use peregrine::directory::{Offer, Standing};
use peregrine::{Address, limits};
use serde_json::json;

use crate::args::Format;
use crate::interrupt::{Interrupt, InterruptOptions};
use crate::output::{self, BOLD, DIM, Failure};
use crate::{completions, directory};

/// How long the withdrawal may take after a signal.
const GRACE: Duration = Duration::from_secs(6);
/// The interval at which the command looks for signals, and whether the directory answers.
const LOOK: Duration = Duration::from_millis(50);

/// Options of `register`.
#[derive(Args, Debug)]
pub(crate) struct Register {
    /// Where clients reach the server: [eth:|udp:|tcp:]NAME@HOST:PORT, or @HOST:PORT if the server exports
    /// the same name; can be repeated
    #[arg(required = true, num_args = 1.., value_name = "ADDRESS", add = ArgValueCompleter::new(completions::addresses))]
    pub(crate) addresses: Vec<String>,
    /// The name to register
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// What distinguishes the server from the other servers of the name [default: host and port of the
    /// first address]
    #[arg(long, value_name = "ID")]
    pub(crate) server: Option<String>,
}

/// Registers a server in the directory, and withdraws it after a signal.
pub(crate) fn run(register: &Register, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    // Signals are handled before the registration, so that a signal at any time withdraws it.
    let options = InterruptOptions { format, grace: GRACE, executed: "maybe" };
    let left = "the directory did not answer: the registration ends with its lease";
    let interrupt = Interrupt::handle(options, || {}, || left.to_owned())?;
    let name = &register.name;
    let addresses = register.addresses.iter().map(|text| named(text, name));
    let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
    let own = || server_at(&addresses[0]);
    let server = register.server.clone().unwrap_or_else(own);
    let offer = Offer::new(&server, addresses.iter().map(ToString::to_string))?;
    let directory = directory::chosen()?;
    let standing = directory.register(name, &offer)?;
    let place = directory.describe();
    if format.is_json() {
        let addresses = offer.addresses().iter().map(ToString::to_string);
        output::print(json!({
            "registered": true,
            "name": name,
            "server": server,
            "addresses": addresses.collect::<Vec<_>>(),
            "directory": place,
        }))?;
    } else {
        output::note(format_args!(
            "registered {BOLD}{name}{BOLD:#} at {BOLD}{}{BOLD:#} as server {server} in {place} \
             {DIM}(Ctrl-C withdraws it){DIM:#}",
            crate::servers::joined(offer.addresses())
        ));
    }
    let mut problem = None;
    while interrupt.signal().is_none() {
        report(name, problem_of(&standing), &mut problem, format)?;
        std::thread::sleep(LOOK);
    }
    drop(standing);
    interrupt.leave();
    if format.is_json() {
        let took = output::whole_ns(begun.elapsed());
        return output::print(json!({ "registered": false, "name": name, "took_ns": took }));
    }
    let time = output::age(begun.elapsed().as_millis() as u64);
    output::note(format_args!("`{name}` was registered for {time}; it is withdrawn"));
    Ok(())
}

fn problem_of(standing: &Standing) -> Vec<String> {
    standing.problem().into_iter().collect()
}

/// Reports a change of the problems of registrations: the directory does not answer, or answers again.
/// `known` is what was reported last.
pub(crate) fn report(
    name: &str,
    problems: Vec<String>,
    known: &mut Option<String>,
    format: Format,
) -> Result<(), Failure> {
    let now = (!problems.is_empty()).then(|| problems.join("; "));
    // The text may change with each attempt. Only the first one is reported.
    if now.is_some() == known.is_some() {
        return Ok(());
    }
    *known = now;
    if format.is_json() {
        return output::print(json!({ "name": name, "problem": known }));
    }
    match known {
        Some(problem) => output::note(format_args!(
            "`{name}` is not registered now; trying again until it is: {problem}"
        )),
        None => output::note(format_args!("`{name}` is registered again")),
    }
    Ok(())
}

/// Reads an address. An address without a name gets the name that is registered.
fn named(text: &str, name: &str) -> Result<Address, Failure> {
    let at = match text.split_once('@') {
        Some((before, place)) if before.is_empty() || before.ends_with(':') => {
            format!("{before}{name}@{place}")
        }
        _ => text.to_owned(),
    };
    Ok(at.parse()?)
}

/// Returns the text that distinguishes a server by its host and port.
fn server_at(address: &Address) -> String {
    let place = address.place().map_or_else(String::new, ToString::to_string);
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let text = place.chars().map(|c| if allowed(c) { c } else { '-' });
    let text: String = text.take(limits::NAME_BYTES_MAX).collect();
    // A name does not begin with a dot or a dash.
    let text = text.trim_start_matches(['-', '.']);
    if text.is_empty() { "server".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_named_by_its_place() {
        for (address, server) in [
            ("files@fs1.example.org:7000", "fs1.example.org-7000"),
            ("tcp:files@[2001:db8::1]:7000", "2001-db8--1--7000"),
        ] {
            assert_eq!(server_at(&address.parse().unwrap()), server);
            assert!(Offer::new(server, [address]).is_ok());
        }
    }

    #[test]
    fn address_without_a_name_gets_the_registered_name() {
        for (text, whole) in [
            ("@fs1:7000", "files@fs1:7000"),
            ("tcp:@fs1:7000", "tcp:files@fs1:7000"),
            ("udp:disk@fs1:7000", "udp:disk@fs1:7000"),
        ] {
            assert_eq!(named(text, "files").unwrap().to_string(), whole);
        }
    }
}
