//! The interface through which a server describes itself over networks, under a reserved name.

use crate::call::streams::Sink;
use crate::counters::Stat;
use crate::error::Result;
pub use crate::serving::health::Health;

/// The reserved name of the export through which a server describes itself where it
/// [listens](crate::Server::listen). An address without a name, such as `@fs.example.org`, leads to this
/// export.
pub const SERVER_NAME: &str = crate::interface::SERVER_NAME;

/// The interface through which clients on a network read a server's exports and counters.
///
/// ```
/// # use peregrine::{interface, Server};
/// use peregrine::server_info::{ServerInfo, ServerInfoClient};
///
/// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
/// # struct Same;
/// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
/// let server = Server::new().export("server-info-example", EchoServer::new(Same))?;
/// let running = server.listen("tcp:127.0.0.1:0")?.spawn()?;
/// let server = ServerInfoClient::bind(&running.addresses()[0].to_string().replace("tcp:", "tcp:@"))?;
/// let exports = server.list()?;
/// assert_eq!((exports.len(), &*exports[0].name), (1, "server-info-example"));
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[peregrine_macros::interface(name = "Server")]
pub trait ServerInfo {
    /// Returns the exports of the server, without those that are limited to users or groups of its machine.
    #[idempotent]
    fn list(&self) -> Result<Vec<Exported>>;

    /// Returns the counters of the server. Single sessions and bindings are included only if the server
    /// discloses all of its counters.
    #[idempotent]
    fn stat(&self) -> Result<Stat>;
}

/// The reserved name of the export through which a server sends its counters again and again.
pub const WATCH_NAME: &str = crate::interface::WATCH_NAME;

/// The interface through which clients on a network watch a server's counters.
///
/// The items of a stream are not converted between versions of an interface. So this procedure has an
/// interface of its own, separate from [`ServerInfo`]. If a later version adds counters, clients and servers
/// of different versions cannot use this interface. In that case, [`watch`](crate::watch) makes a call for
/// each reading.
#[peregrine_macros::interface(name = "ServerWatch")]
pub trait ServerWatch {
    /// Sends the counters of the server every `every_ms` milliseconds, as [`ServerInfo::stat`] returns them.
    /// The first reading is sent at once. Ends when the caller wants no more readings, or the server stops.
    /// The interval is at least 10 ms.
    fn watch(&self, every_ms: u32, readings: Sink<'_, Stat>) -> Result<()>;
}

/// Removes the exports through which clients watch the server, or ask for its health, from `stat`, if no
/// client has called them.
pub(crate) fn hide_unused(stat: &mut Stat) {
    let is_own = |name: &str| [WATCH_NAME, HEALTH_NAME].contains(&name);
    stat.exports.retain(|export| !is_own(&export.name) || export.counts.calls > 0);
}

/// The reserved name of the export through which a server reports its health where it
/// [listens](crate::Server::listen).
pub const HEALTH_NAME: &str = crate::interface::HEALTH_NAME;

/// The interface through which clients on a network ask for a server's health. [`health`](fn@crate::health)
/// does so.
///
/// A server runs calls of this interface also while all of its threads are busy, and while it stops.
///
/// ```
/// # use peregrine::{interface, Server};
/// use peregrine::Health;
/// use peregrine::server_info::{ServerHealth, ServerHealthClient};
///
/// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
/// # struct Same;
/// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
/// let server = Server::new().export("server-health-example", EchoServer::new(Same))?;
/// let running = server.listen("tcp:127.0.0.1:0")?.spawn()?;
/// let address = running.addresses()[0].to_string().replace("tcp:", "tcp:.health@");
/// let server = ServerHealthClient::bind(&address)?;
/// assert_eq!(server.check("server-health-example")?, Some(Health::Serving));
/// assert_eq!(server.check("another")?, None);
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[peregrine_macros::interface(name = "ServerHealth")]
pub trait ServerHealth {
    /// Returns the health of the server that exports this name. Returns `None` if networks cannot call an
    /// export with this name. With the name `.server`, returns the health of the server, whatever it exports.
    #[idempotent]
    fn check(&self, export: &str) -> Result<Option<Health>>;
}

/// One export of a server, as the server describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct Exported {
    /// The name of the export.
    pub name: String,
    /// The name of the export's interface.
    pub interface: String,
    /// The version of the export's interface.
    pub version: u32,
    /// The identity of the export's interface: the bytes of a [`Digest`](crate::digest).
    pub digest: [u8; 16],
    /// The process ID of the server, on the server's machine.
    pub process: u32,
    /// How long ago the export began, in milliseconds.
    pub age_ms: u64,
    /// The number of bindings to the export.
    pub bindings: u32,
    /// The addresses at which the export can be called over networks.
    pub listens: Vec<String>,
}
