//! Reads what a server discloses about itself: its counters, from shared pages or over a network, and its
//! exports.

use core::ops::ControlFlow;
use core::time::Duration;
use std::os::fd::AsFd as _;
use std::time::Instant;

use super::BindOptions;
use super::select::directory;
use crate::address::Address;
use crate::call::streams::Sink;
use crate::counters::{self, PAGE_BYTES, Stat};
use crate::error::{CallError, Kind, unusable_memory};
use crate::path::bind::{until, violated};
use crate::path::local::counters as counters_of;
use crate::server_info::{
    Exported, ServerInfo as _, ServerInfoClient, ServerWatch as _, ServerWatchClient, WATCH_NAME,
    hide_unused,
};
use crate::sys::Memory;

/// The shortest interval between two readings of [`watch`].
const EVERY_MIN: Duration = Duration::from_millis(10);
/// The interval at which [`watch`] checks whether its receiver has stopped.
const LOOK: Duration = Duration::from_millis(100);

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
    stat_with(address, &BindOptions::default())
}

/// Returns the counters of a server, as [`stat()`] does, by a binding with options: for example, with an
/// identity that the server accepts.
///
/// ```
/// use peregrine::{BindOptions, Kind, stat_with};
///
/// let read = stat_with("no-such-files", &BindOptions::default());
/// assert_eq!(read.unwrap_err().kind(), Kind::NotFound);
/// ```
///
/// # Errors
/// As [`stat()`]. It waits for as long as [`BindOptions::bind_timeout`] says.
pub fn stat_with(address: &str, options: &BindOptions) -> Result<Stat, CallError> {
    let parsed: Address = address.parse()?;
    let stat = match far(&parsed) {
        Some(far) => at(&far, options)?.stat(),
        None => match here(parsed.name(), options) {
            Err(error) if error.kind() == Kind::NotFound => match elsewhere(&parsed, options) {
                Some(far) => at(&far, options)?.stat(),
                None => Err(error),
            },
            found => found,
        },
    };
    let mut stat = stat.map_err(|error| error.at(address))?;
    hide_unused(&mut stat);
    Ok(stat)
}

/// Passes the counters of a server to `readings` again and again, the first time at once, until `readings`
/// takes no more. `address` is as for [`stat()`]. The interval `every` is at least 10 ms.
///
/// A server on another machine sends the counters as a stream. The server may be unable to do so, because it
/// has another version or too many clients watch it. Then this function makes a call for each reading. This
/// function also makes these calls if the stream ends because the server is replaced by another one.
///
/// ```
/// # use peregrine::{interface, Server};
/// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
/// # struct Same;
/// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
/// use std::ops::ControlFlow;
/// use std::time::Duration;
///
/// use peregrine::Sink;
///
/// let running = Server::new().export("watch-example", EchoServer::new(Same))?.spawn()?;
/// let mut seen = 0;
/// let readings = Sink::until(|_stat| {
///     seen += 1;
///     if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
/// });
/// peregrine::watch("watch-example", Duration::from_millis(10), readings)?;
/// assert_eq!(seen, 3);
/// # Ok::<(), peregrine::CallError>(())
/// ```
///
/// # Errors
/// Those of [`stat()`].
pub fn watch(address: &str, every: Duration, readings: Sink<'_, Stat>) -> Result<(), CallError> {
    watch_with(address, every, readings, &BindOptions::default())
}

/// Passes the counters of a server to `readings` again and again, as [`watch()`] does, by a binding with
/// options: for example, with an identity that the server accepts.
///
/// ```
/// use core::time::Duration;
/// use peregrine::{BindOptions, Kind, Sink, watch_with};
///
/// let (every, options) = (Duration::from_secs(1), BindOptions::default());
/// let watched = watch_with("no-such-files", every, Sink::new(|_stat| {}), &options);
/// assert_eq!(watched.unwrap_err().kind(), Kind::NotFound);
/// ```
///
/// # Errors
/// As [`watch()`].
pub fn watch_with(
    address: &str,
    every: Duration,
    mut readings: Sink<'_, Stat>,
    options: &BindOptions,
) -> Result<(), CallError> {
    let parsed: Address = address.parse()?;
    let every = every.max(EVERY_MIN);
    let far = far(&parsed).or_else(|| match here(parsed.name(), options) {
        Err(error) if error.kind() == Kind::NotFound => elsewhere(&parsed, options),
        _ => None,
    });
    // If the server is on this machine, its counters are read from shared memory, because that costs the
    // server nothing.
    let again = || stat_with(address, options);
    let Some(far) = far else { return repeat(every, &mut readings, again) };
    if let Ok(client) = ServerWatchClient::bind_with(&far.named(WATCH_NAME).to_string(), options) {
        let forward = Sink::until(|stat| match readings.send(stat) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        });
        let every = u32::try_from(every.as_millis()).unwrap_or(u32::MAX);
        if client.watch(every, forward).is_ok() {
            return Ok(());
        }
    }
    // The server may have been replaced. If it is gone, the next call returns the error.
    repeat(every, &mut readings, again)
}

/// Passes counters to `readings` again and again.
fn repeat(
    every: Duration,
    readings: &mut Sink<'_, Stat>,
    stat: impl Fn() -> Result<Stat, CallError>,
) -> Result<(), CallError> {
    let mut due = Instant::now();
    while !readings.is_stopped() {
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            std::thread::sleep(left.min(LOOK));
            continue;
        }
        match readings.send(stat()?) {
            Err(error) if error.kind() == Kind::Stopped => break,
            sent => sent?,
        }
        // If the receiver is slow, the missed readings are skipped.
        due = (due + every).max(Instant::now());
    }
    Ok(())
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
    exports_with(address, &BindOptions::default())
}

/// Returns what the server at a place exports to networks, as [`exports`](fn@exports) does, by a binding with
/// options: for example, with an identity that the server accepts.
///
/// ```
/// use peregrine::{BindOptions, exports_with};
///
/// let error = exports_with("@no-such-host.invalid", &BindOptions::default()).unwrap_err();
/// assert_eq!(error.kind(), peregrine::Kind::Unreachable);
/// ```
///
/// # Errors
/// As [`exports`](fn@exports). It waits for as long as [`BindOptions::bind_timeout`] says.
pub fn exports_with(address: &str, options: &BindOptions) -> Result<Vec<Exported>, CallError> {
    let parsed: Address = address.parse()?;
    let far = far(&parsed).or_else(|| elsewhere(&parsed, options)).ok_or_else(|| {
        let text = "the address has no place such as `@HOST`, and no hosts file gives it one";
        CallError::not_executed(Kind::NotFound, crate::error::Phase::Resolve, text).at(address)
    })?;
    at(&far, options)?.list().map_err(|error| error.at(address))
}

/// Returns the address of the server at the place (host and port) in an address. `None`: the address has no
/// place.
fn far(address: &Address) -> Option<Address> {
    address.place().is_some().then(|| address.of_server())
}

/// Returns the address of the server at the first place that a directory, such as a hosts file, lists for a
/// name.
pub(super) fn elsewhere(address: &Address, options: &BindOptions) -> Option<Address> {
    if address.is_on_this_machine() {
        return None;
    }
    let mut offers = directory(options).ok()?.offers(address.name()).ok()?;
    offers.retain(|offer| offer.place().is_some());
    offers.first().map(Address::of_server)
}

/// Binds to the export through which a server describes itself.
fn at(address: &Address, options: &BindOptions) -> Result<ServerInfoClient, CallError> {
    let options = options.clone().timeout(options.bind_limit);
    ServerInfoClient::bind_with(&address.to_string(), &options)
}

/// Returns the counters of the server that exports a name on this machine.
fn here(name: &str, options: &BindOptions) -> Result<Stat, CallError> {
    let until = until(options.bind_limit);
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
