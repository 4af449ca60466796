//! [`Connect`]: the client half of a path, as binding uses it before the first call. The client half is the
//! part of the path's code that runs in the client.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::options::BindOptions;
use crate::address::{Address, Place};
use crate::call::{CallPath, Frames, PathKind};
use crate::device::tcp::Stream;
use crate::error::{CallError, Kind, NO_CONNECTION, Phase};
use crate::interface::{Description, Digest, InterfaceRef};
use crate::sync::{Mutex, MutexGuard};
use crate::value::ByteOrder;

/// What binding needs from the client half of a path.
pub(crate) trait Connect: Sync {
    /// Returns the kind of this path.
    fn kind(&self) -> PathKind;

    /// Checks whether binding may try this path for an address. Not called for an address that names another
    /// path. Most paths only need a host and port.
    ///
    /// # Errors
    /// If the path does not lead to the address. The error is the reason, which `explain` reports.
    fn leads_to(&self, target: &Address) -> Result<(), Exclusion> {
        if target.place().is_some() { Ok(()) } else { Err(Exclusion::NoPlace) }
    }

    /// Binds to an export.
    ///
    /// # Errors
    /// If this path does not lead to the export, or the server refuses the client.
    fn bind(&self, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<BoundPath, CallError>;

    /// Asks the server to describe an export. Returns the description, or the call that obtains it.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    fn inquire(&self, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<Inquiry, CallError>;
}

/// Why a path does not lead to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exclusion {
    /// The address has no host and port. Binding reports where it searched for them.
    NoPlace,
    /// The address does not suit the path. The text is the reason.
    Unsuited(&'static str),
}

/// How a client obtains the description of an export.
pub(crate) enum Inquiry {
    /// The server has already sent the description.
    Answer(Description),
    /// The client must call `procedure` over `path`, and the result is the description. No procedure of the
    /// export has this number: the server half of the path itself must answer the call. Only the datagram
    /// paths return this variant.
    Call { path: BoundPath, procedure: u32 },
}

/// The address to which a path binds.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) address: &'a Address,
    /// Whether the user's address, or the address that a directory returned, names this path.
    pub(crate) is_asked: bool,
}

impl<'a> Target<'a> {
    /// Returns the host and port of the destination.
    ///
    /// # Errors
    /// If the address has no host and port. [`Connect::leads_to`] excludes such an address.
    pub(crate) fn place(&self) -> Result<&'a Place, CallError> {
        self.address.place().ok_or_else(|| {
            let text = format!("`{}` names no host and port", self.address);
            CallError::not_executed(Kind::BadName, Phase::Bind, text)
        })
    }
}

/// The export and the interface to which a client wants to bind.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a str,
    pub(crate) interface: &'a InterfaceRef,
    /// The digest that the server's interface must have. `None` accepts any interface.
    pub(crate) digest: Option<Digest>,
    pub(crate) options: &'a BindOptions,
    pub(crate) until: Instant,
}

/// A path to an export, the frames of its calls, and the byte order of the server's values.
pub(crate) struct BoundPath {
    pub(crate) path: Box<dyn CallPath>,
    pub(crate) frames: Arc<Frames>,
    pub(crate) order: ByteOrder,
}

/// The delay before a client also tries the next address of a host. If the previous attempt fails earlier,
/// the client tries the next address at once.
pub(crate) const STAGGER: Duration = Duration::from_millis(250);

/// Connects to one of the addresses by TCP: the first at which a server accepts the connection.
///
/// # Errors
/// If no server accepts a connection before `until`, or the connection cannot be prepared.
pub(crate) fn connect(
    addresses: &[SocketAddr],
    congestion: Option<&str>,
    until: Instant,
) -> Result<Stream, CallError> {
    let (address, error) = match Stream::connect(addresses, STAGGER, until) {
        Ok(stream) => {
            let prepared = stream.prepare(congestion);
            let what = match congestion {
                Some(name) => format!("preparing the connection (congestion control `{name}`)"),
                None => "preparing the connection".to_owned(),
            };
            prepared.map_err(|error| CallError::system(Phase::Bind, what, error))?;
            return Ok(stream);
        }
        Err(Some(failure)) => failure,
        Err(None) => {
            return Err(CallError::not_executed(Kind::Unreachable, Phase::Bind, "no address"));
        }
    };
    let kind = match error.kind() {
        io::ErrorKind::TimedOut => Kind::TimedOut,
        _ => Kind::Unreachable,
    };
    let text = format!("connecting to {address}");
    Err(CallError::not_executed(kind, Phase::Bind, text).because(error).with_advice(NO_CONNECTION))
}

/// Calls `bind` with the addresses of a host, one after the other, until it succeeds. Passes to `bind` an
/// address and the time at which `bind` must give up.
///
/// # Errors
/// If there is no address, or if `bind` fails at all addresses. In that case, the error is that of the first
/// address.
pub(crate) fn at_any_address<T>(
    addresses: &[SocketAddr],
    until: Instant,
    mut bind: impl FnMut(SocketAddr, Instant) -> Result<T, CallError>,
) -> Result<T, CallError> {
    let mut failure = None;
    for (i, address) in addresses.iter().enumerate() {
        // Each address gets the same share of the time that is left.
        let now = Instant::now();
        let share = until.saturating_duration_since(now) / (addresses.len() - i) as u32;
        match bind(*address, now + share) {
            Ok(bound) => return Ok(bound),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    Err(failure.unwrap_or_else(no_address))
}

/// Returns the error for a host without addresses.
#[cold]
pub(crate) fn no_address() -> CallError {
    CallError::not_executed(Kind::Unreachable, Phase::Bind, "the host has no address")
}

/// Takes a lock that a thread holds while it binds to a server. Waits for the lock until `until`.
///
/// # Errors
/// If another thread still holds the lock at `until`, because it binds to the same server.
pub(crate) fn hold<T>(lock: &Mutex<T>, until: Instant) -> Result<MutexGuard<'_, T>, CallError> {
    loop {
        if let Some(guard) = lock.try_lock() {
            return Ok(guard);
        }
        if Instant::now() >= until {
            let text = "another thread is still binding to this server, which does not answer";
            return Err(CallError::not_executed(Kind::TimedOut, Phase::Bind, text));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Returns the error for a refusal by the server.
pub(crate) fn refused(kind: u32, text: String) -> CallError {
    let kind = Kind::from_number(kind).unwrap_or(Kind::ProtocolMismatch);
    CallError::not_executed(kind, Phase::Bind, text)
}

/// The advice for a client of a network that the server refuses.
pub(crate) const NO_RIGHT: &str = "show a key that the server trusts (`BindOptions::secure`, `--identity`), or \
     have the server offer the export";

/// Returns the error for a server that violates the protocol.
#[cold]
pub(crate) fn violated(text: impl Into<String>) -> CallError {
    CallError::not_executed(Kind::ProtocolMismatch, Phase::Bind, text)
}

/// Returns a function that turns a system error into an error of binding.
pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> CallError {
    move |error| CallError::system(Phase::Bind, what.to_owned(), error)
}

/// Returns the byte order that a server reports by the number `representation`.
///
/// # Errors
/// If no byte order has the number `representation`.
pub(crate) fn byte_order(representation: u32) -> Result<ByteOrder, CallError> {
    ByteOrder::from_number(representation).ok_or_else(|| {
        violated(format!("the server reports the unknown byte order {representation}"))
    })
}

/// Returns the time at which a limit ends. If the clock cannot represent this time, returns the time a year
/// from now.
pub(crate) fn until(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit).unwrap_or(now + Duration::from_secs(365 * 86400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_address_is_tried_after_a_failure() {
        let addresses = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let failed = |at: SocketAddr| violated(format!("port {}", at.port()));
        let bind = |good: u16, tried: &mut Vec<u16>| {
            at_any_address(&addresses, until(Duration::from_secs(20)), |at, _| {
                tried.push(at.port());
                if at.port() == good { Ok(good) } else { Err(failed(at)) }
            })
        };
        let mut tried = Vec::new();
        assert_eq!(bind(2, &mut tried).expect("the second address"), 2);
        assert_eq!(tried, [1, 2]);
        let error = bind(9, &mut tried).expect_err("no address is good");
        assert_eq!((error.detail(), &tried[2..]), ("port 1", &[1, 2, 3][..]));
        let none = at_any_address(&[], Instant::now(), |_, _| Ok(()));
        assert_eq!(none.expect_err("no address").kind(), Kind::Unreachable);
    }
}
