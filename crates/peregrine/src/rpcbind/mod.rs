//! A small rpcbind for machines without one. Servers register the ports of their programs there, and clients
//! of ONC RPC ask for these ports (RFC 1833, versions 2, 3 and 4).
//!
//! It is an ordinary object of a [`Server`] with three interfaces ([`interface`]), one for each version.
//! [`table`] decides which callers may change a registration. `docs/PROTOCOL.md`, part 10, lists these rules.

mod asker;
mod interface;
mod serving;
mod table;

use std::sync::Arc;

use self::interface::{PortmapServer, RpcbindV3Server, RpcbindV4Server};
use self::table::Table;
use crate::address::Endpoint;
use crate::error::{CallError, Kind, Phase};
use crate::path::onc::{RegisteredProgram, name_programs};
use crate::server::{ExportOptions, Running, Server};

/// The size in bytes of the largest message: a list of all registrations.
const MESSAGE_BYTES_MAX: usize = 256 << 10;

const NOT_LISTENING: &str = "call Server::listen with onc+udp:HOST:111 and onc+tcp:HOST:111";

/// A small rpcbind: the program of ONC RPC through which clients find the ports of other programs. It is for
/// machines without rpcbind, such as containers and test machines. Clients and servers in any language can
/// use it, and so can [`Server::register_programs`] and addresses such as `onc+udp:HOST`.
///
/// Only callers over the loopback interface of its own machine can register programs. What a caller registers
/// from a port below 1024 belongs to the superuser, and only callers from such ports can remove it. Other
/// callers on the machine can remove each other's registrations. An identity that a caller claims (AUTH_SYS)
/// has no effect.
///
/// It makes no calls on behalf of its clients (CALLIT, BCAST and INDIRECT). Over UDP, it sends no lists to
/// other machines. Otherwise attackers could use it to send many packets to a victim.
///
/// ```no_run
/// use peregrine::{Rpcbind, Server};
///
/// let server = Server::new().listen("onc+udp:127.0.0.1:111")?.listen("onc+tcp:127.0.0.1:111")?;
/// let rpcbind = Rpcbind::new();
/// let running = rpcbind.spawn(server)?;
/// for one in rpcbind.registered() {
///     println!("{}.{} {} {}", one.program, one.version, one.network, one.address);
/// }
/// running.wait();
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rpcbind(Arc<Table>);

impl Rpcbind {
    /// Returns an rpcbind without registrations.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a server that exports rpcbind as `rpcbind.2`, `rpcbind.3` and `rpcbind.4`, and registers
    /// rpcbind itself at the addresses at which the server listens for clients of ONC RPC. The server may
    /// have further exports. Registrations are lost when this value and the server are dropped.
    ///
    /// # Errors
    /// Those of [`Server::export`] and [`Server::spawn`]. [`Kind::BadName`] if the server listens at no
    /// `onc+udp:` or `onc+tcp:`.
    pub fn spawn(&self, server: Server) -> Result<Running, CallError> {
        let options = || ExportOptions::default().message_bytes_max(MESSAGE_BYTES_MAX);
        let table = || Arc::clone(&self.0);
        let server = server
            .export_with("rpcbind.2", PortmapServer::new(table()), options())?
            .export_with("rpcbind.3", RpcbindV3Server::new(table()), options())?
            .export_with("rpcbind.4", RpcbindV4Server::new(table()), options())?;
        let running = server.spawn()?;
        let mut is_reached = false;
        for endpoint in running.addresses() {
            let Endpoint::Foreign(kind, place) = endpoint else { continue };
            for at in place.resolve()? {
                self.0.add_itself(*kind, at);
                is_reached = true;
            }
        }
        if !is_reached {
            let text = "rpcbind listens at no address for ONC RPC";
            let error = CallError::not_executed(Kind::BadName, Phase::Export, text);
            return Err(error.with_advice(NOT_LISTENING));
        }
        Ok(running)
    }

    /// Returns the registered programs, in the order in which they were registered. rpcbind itself is among
    /// them.
    #[must_use]
    pub fn registered(&self) -> Vec<RegisteredProgram> {
        let mut all = self.0.all();
        name_programs(&mut all);
        all
    }
}
