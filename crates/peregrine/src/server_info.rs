//! What every server that listens tells of itself, under a name that nobody can export.

use crate::counters::Stat;
use crate::error::Result;

/// The name under which a server tells of itself, where it [listens](crate::Server::listen): an
/// address without a name, such as `@fs.example.org`, means it.
pub const SERVER_NAME: &str = crate::interface::SERVER_NAME;

/// What a server tells of itself to those who come over a network.
///
/// ```
/// # use peregrine::{interface, Server};
/// use peregrine::server_info::{ServerInfo, ServerInfoClient};
///
/// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
/// # struct Same;
/// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
/// let server = Server::new().export("tells-example", EchoServer::new(Same))?;
/// let running = server.listen("tcp:127.0.0.1:0")?.spawn()?;
/// let server = ServerInfoClient::bind(&running.addresses()[0].to_string().replace("tcp:", "tcp:@"))?;
/// let exports = server.list()?;
/// assert_eq!((exports.len(), &*exports[0].name), (1, "tells-example"));
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[peregrine_macros::interface(name = "Server")]
pub trait ServerInfo {
    /// What it exports, save for what is limited to users and groups of its machine.
    #[idempotent]
    fn list(&self) -> Result<Vec<Exported>>;

    /// What it has counted: of sessions and bindings only how many there are, unless it tells all.
    #[idempotent]
    fn stat(&self) -> Result<Stat>;
}

/// One export of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct Exported {
    /// Its name.
    pub name: String,
    /// Name of its interface.
    pub interface: String,
    /// Version of its interface.
    pub version: u32,
    /// The identity of its interface: bytes of a [`Digest`](crate::digest).
    pub digest: [u8; 16],
    /// The server's process, on its own machine.
    pub process: u32,
    /// How long ago the export began, in milliseconds.
    pub age_ms: u64,
    /// Bindings that stand.
    pub bindings: u32,
    /// Where it can be called over networks.
    pub listens: Vec<String>,
}
