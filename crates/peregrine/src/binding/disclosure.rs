//! Asking a server for what it tells of itself: its counters, in shared pages or over a network, and
//! its exports.

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

/// What a server has counted: the one that exports a name of this machine, which must be of this user
/// (root may ask any), or one at a place, such as `@fs.example.org`, which may tell less.
///
/// On one machine the server's pages are mapped and read: it is asked for them, and then does
/// nothing. See [`Stat`] for an example.
///
/// # Errors
/// If there is no such server, it does not tell this user, or does not answer within 5 seconds.
pub fn stat(address: &str) -> Result<Stat, CallError> {
    let parsed: Address = address.parse()?;
    let told = match far(&parsed) {
        Some(far) => at(&far)?.stat(),
        None => match here(parsed.name()) {
            Err(error) if error.kind() == Kind::NotFound => match elsewhere(&parsed) {
                Some(far) => at(&far)?.stat(),
                None => Err(error),
            },
            told => told,
        },
    };
    told.map_err(|error| error.at(address))
}

/// What the server at a place exports to networks, such as `@fs.example.org`.
///
/// ```
/// use peregrine::exports;
///
/// let error = exports("@no-such-host.invalid").unwrap_err();
/// assert_eq!(error.kind(), peregrine::Kind::Unreachable);
/// ```
///
/// # Errors
/// If there is none, it tells nothing or does not answer within 5 seconds, or the address names no place,
/// here or in a hosts file.
pub fn exports(address: &str) -> Result<Vec<Exported>, CallError> {
    let parsed: Address = address.parse()?;
    let far = far(&parsed).or_else(|| elsewhere(&parsed)).ok_or_else(|| {
        let text = "no place is named, such as `@HOST`, and no hosts file has one";
        CallError::not_executed(Kind::NotFound, crate::error::Phase::Resolve, text).at(address)
    })?;
    at(&far)?.list().map_err(|error| error.at(address))
}

/// The server at the place of an address.
fn far(address: &Address) -> Option<Address> {
    address.place().is_some().then(|| address.of_server())
}

/// The server at the first place that a hosts file has for a name.
fn elsewhere(address: &Address) -> Option<Address> {
    if address.path() == Some(crate::call::PathKind::Local) {
        return None;
    }
    let mut offers = Hosts::of_environment().offers(address.name()).ok()?;
    offers.retain(|offer| offer.place().is_some());
    offers.first().map(Address::of_server)
}

fn at(address: &Address) -> Result<ServerInfoClient, CallError> {
    let options = BindOptions::default();
    let limit = options.bind_limit;
    ServerInfoClient::bind_with(&address.to_string(), &options.timeout(limit))
}

/// What the server of a name of this machine has counted.
fn here(name: &str) -> Result<Stat, CallError> {
    let until = Instant::now() + BindOptions::default().bind_limit;
    let (bytes, file) = counters_of(name, until)?;
    if bytes != PAGE_BYTES as u64 {
        return Err(violated(format!(
            "the server's counters have {bytes} bytes, not {PAGE_BYTES}"
        )));
    }
    let memory = Memory::seen(file.as_fd(), PAGE_BYTES)
        .map_err(|error| unusable_memory("the server's counters", error))?;
    counters::read(&memory).map_err(|unreadable| violated(unreadable.to_string()))
}
