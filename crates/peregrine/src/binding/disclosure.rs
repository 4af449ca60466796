//! Reads what a server discloses about itself: its counters, from shared pages or over a network, and its
//! exports.

use std::os::fd::AsFd as _;
use std::time::Instant;

use super::BindOptions;
use crate::address::Address;
use crate::counters::{self, PAGE_BYTES, Stat};
use crate::directory::{Directory as _, Hosts};
use crate::error::{CallError, Kind, unusable_memory};
use crate::path::bind::violated;
use crate::path::local::counters as counters_of;
use crate::server_info::{Exported, ServerInfo as _, ServerInfoClient};
use crate::sys::Memory;

/// Returns the counters of a server.
///
/// The address is the name of an export on this machine, or contains a place (a host, possibly with a port),
/// such as `@fs.example.org`. A server on this machine must belong to this user, unless the user is root. A
/// server on another machine may disclose less.
///
/// A server on this machine passes its pages of counters to this process once. This process maps the pages,
/// and then reads them at no cost to the server. See [`Stat`] for an example.
///
/// # Errors
/// If there is no such server, or if the server refuses this user or does not answer within 5 seconds.
pub fn stat(address: &str) -> Result<Stat, CallError> {
    let parsed: Address = address.parse()?;
    let stat = match far(&parsed) {
        Some(far) => at(&far)?.stat(),
        None => match here(parsed.name()) {
            Err(error) if error.kind() == Kind::NotFound => match elsewhere(&parsed) {
                Some(far) => at(&far)?.stat(),
                None => Err(error),
            },
            found => found,
        },
    };
    stat.map_err(|error| error.at(address))
}

/// Returns what the server at a place (a host, possibly with a port), such as `@fs.example.org`, exports to
/// networks.
///
/// ```
/// use peregrine::exports;
///
/// let error = exports("@no-such-host.invalid").unwrap_err();
/// assert_eq!(error.kind(), peregrine::Kind::Unreachable);
/// ```
///
/// # Errors
/// If neither the address nor a hosts file names a place, or if there is no server at the place. Also if the
/// server discloses nothing or does not answer within 5 seconds.
pub fn exports(address: &str) -> Result<Vec<Exported>, CallError> {
    let parsed: Address = address.parse()?;
    let far = far(&parsed).or_else(|| elsewhere(&parsed)).ok_or_else(|| {
        let text = "the address has no place, such as `@HOST`, and no hosts file has one for it";
        CallError::not_executed(Kind::NotFound, crate::error::Phase::Resolve, text).at(address)
    })?;
    at(&far)?.list().map_err(|error| error.at(address))
}

/// Returns the address of the server at the place (host and port) in an address. `None`: the address has no
/// place.
fn far(address: &Address) -> Option<Address> {
    address.place().is_some().then(|| address.of_server())
}

/// Returns the address of the server at the first place that a hosts file lists for a name.
fn elsewhere(address: &Address) -> Option<Address> {
    if address.is_on_this_machine() {
        return None;
    }
    let mut offers = Hosts::of_environment().offers(address.name()).ok()?;
    offers.retain(|offer| offer.place().is_some());
    offers.first().map(Address::of_server)
}

/// Binds to the export through which a server describes itself.
fn at(address: &Address) -> Result<ServerInfoClient, CallError> {
    let options = BindOptions::default();
    let limit = options.bind_limit;
    ServerInfoClient::bind_with(&address.to_string(), &options.timeout(limit))
}

/// Returns the counters of the server that exports a name on this machine.
fn here(name: &str) -> Result<Stat, CallError> {
    let until = Instant::now() + BindOptions::default().bind_limit;
    let (bytes, file) = counters_of(name, until)?;
    if bytes != PAGE_BYTES as u64 {
        return Err(violated(format!(
            "the server's counters have {bytes} bytes instead of {PAGE_BYTES}"
        )));
    }
    let memory = Memory::seen(file.as_fd(), PAGE_BYTES)
        .map_err(|error| unusable_memory("the server's counters", error))?;
    counters::read(&memory).map_err(|unreadable| violated(unreadable.to_string()))
}
