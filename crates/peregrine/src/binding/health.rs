//! Asks a server whether it serves, is overloaded, or is about to stop.

use core::error::Error as _;
use core::time::Duration;
use std::time::Instant;

use super::BindOptions;
use super::disclosure::elsewhere;
use crate::address::Address;
use crate::error::{CallError, Kind, Phase};
use crate::path::bind::until;
use crate::path::local::health as health_of;
use crate::server_info::{HEALTH_NAME, Health, ServerHealth as _, ServerHealthClient};

/// Asks the server of an export for its health. Waits at most 5 seconds.
///
/// The address is the name of an export on this machine, or contains a place (a host, possibly with a port),
/// such as `files@fs.example.org`. With `@fs.example.org`, asks the server at this place, whatever it
/// exports.
///
/// A server answers also while all of its threads are busy, and while it stops. It answers for all of its
/// paths: a server that runs too many calls over TCP is overloaded, also if the question comes over another
/// path. If another server has taken the name of a server that stops, this other server answers.
///
/// ```
/// # use peregrine::{interface, Server};
/// use peregrine::{Health, Kind, health};
///
/// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
/// # struct Same;
/// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
/// let running = Server::new().export("health-example", EchoServer::new(Same))?.spawn()?;
/// assert_eq!(health("health-example")?, Health::Serving);
/// running.stop();
/// assert_eq!(health("health-example").unwrap_err().kind(), Kind::NotFound);
/// # Ok::<(), peregrine::CallError>(())
/// ```
///
/// # Errors
/// * [`Kind::NotFound`]: there is no server, or the server at the place has no such export for networks.
/// * [`Kind::Unreachable`]: no server answers at the place.
/// * [`Kind::TimedOut`]: the server does not answer in time.
/// * [`Kind::ProtocolMismatch`]: the server's version does not report its health.
/// * [`Kind::BadName`]: the address is invalid, or that of a server of ONC RPC or Courier, which cannot
///   report its health.
/// * [`Kind::Denied`]: the export is private to another user.
pub fn health(address: &str) -> Result<Health, CallError> {
    health_within(address, BindOptions::default().bind_limit)
}

/// Asks the server of an export for its health, as [`health`](fn@health) does. Waits at most for the time
/// `limit`.
///
/// ```
/// use core::time::Duration;
///
/// let limit = Duration::from_millis(200);
/// match peregrine::health_within("files", limit) {
///     Ok(health) => println!("{health}"),
///     Err(error) => println!("gone: {error}"),
/// }
/// ```
///
/// # Errors
/// Those of [`health`](fn@health).
pub fn health_within(address: &str, limit: Duration) -> Result<Health, CallError> {
    health_with(address, &BindOptions::default().bind_timeout(limit))
}

/// Asks the server of an export for its health, as [`health`](fn@health) does, by a binding with options: for
/// example, with an identity that the server accepts. Waits for as long as [`BindOptions::bind_timeout`]
/// says.
///
/// ```
/// use peregrine::{BindOptions, Kind, health_with};
///
/// let asked = health_with("no-such-files", &BindOptions::default());
/// assert_eq!(asked.unwrap_err().kind(), Kind::NotFound);
/// ```
///
/// # Errors
/// Those of [`health`](fn@health).
pub fn health_with(address: &str, options: &BindOptions) -> Result<Health, CallError> {
    let parsed: Address = address.parse()?;
    let until = until(options.bind_limit);
    let health = if parsed.path().is_some_and(|path| path.system().is_some()) {
        let text = "servers of ONC RPC and Courier cannot report their health";
        Err(CallError::not_executed(Kind::BadName, Phase::Bind, text)
            .with_advice("ask a Peregrine server by another of its addresses"))
    } else if parsed.place().is_some() {
        far(&parsed, options, until)
    } else {
        match health_of(parsed.name(), until) {
            Err(error) if error.kind() == Kind::NotFound => match elsewhere(&parsed, options) {
                Some(place) => far(&place.named(parsed.name()), options, until),
                None => Err(error),
            },
            Err(error) if error.kind() == Kind::ProtocolMismatch => Err(too_old(&error)),
            found => found,
        }
    };
    health.map_err(|error| error.at(address))
}

/// Asks the server at the place in an address.
fn far(address: &Address, options: &BindOptions, until: Instant) -> Result<Health, CallError> {
    let left = || until.saturating_duration_since(Instant::now());
    let options = options.clone().bind_timeout(left());
    let at = address.named(HEALTH_NAME).to_string();
    let client = match ServerHealthClient::bind_with(&at, &options) {
        Ok(client) => client,
        // The server has as many clients as it may have. An error of this process has a source.
        Err(error)
            if error.kind() == Kind::Overloaded
                || error.kind() == Kind::Exhausted && error.source().is_none() =>
        {
            return Ok(Health::Overloaded);
        }
        Err(error) if error.kind() == Kind::NotFound => return Err(too_old(&error)),
        // A server that stops answers questions until its last call has ended. After that, it refuses them.
        Err(error) if error.kind() == Kind::Withdrawn => return Ok(Health::Draining),
        Err(error) => return Err(error.nowhere()),
    };
    let checked = client.with_timeout(left()).check(address.name());
    let checked = checked.map_err(|error| error.nowhere().not_executed_after_all(Phase::Call))?;
    checked.ok_or_else(|| {
        let text = format!("the server offers no `{}` to networks", address.name());
        CallError::not_executed(Kind::NotFound, Phase::Bind, text)
    })
}

/// Returns the error for a server that does not know the question.
fn too_old(error: &CallError) -> CallError {
    let text = format!("the server's version does not report its health ({})", error.detail());
    CallError::not_executed(Kind::ProtocolMismatch, Phase::Bind, text)
        .with_advice("use a newer release of Peregrine for the server, or `peregrine ping`")
}
