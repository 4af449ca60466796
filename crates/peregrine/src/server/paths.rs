//! The server halves of all paths, and how exports and endpoints are opened on them. The server half of a
//! path accepts clients and calls over that path. No other file of the server names every path.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::address::Endpoint;
use crate::binding::EthernetDevice;
use crate::call::PathKind;
use crate::device::tcp::Listener;
use crate::device::udp::Udp;
use crate::directory::Published;
use crate::error::{CallError, Kind, NO_RAW_ETHERNET, Phase};
use crate::path::ConnectionTerms;
use crate::path::courier::{CourierConnections, CourierDatagrams, courier_connections};
use crate::path::datagram::{Datagrams, Losses};
use crate::path::local::Sessions;
use crate::path::onc::{OncConnections, OncDatagrams, onc_connections};
use crate::path::security::ServerSecurity;
use crate::path::stream::Connections;
use crate::serving::export::Export;
use crate::serving::{ServerCore, ServerPath};

/// The server halves of all paths of one server.
pub(super) struct Paths {
    local: Arc<Sessions>,
    stream: Arc<Connections>,
    datagrams: Arc<Datagrams>,
    onc_connections: Arc<OncConnections>,
    onc_datagrams: Arc<OncDatagrams>,
    courier_datagrams: Arc<CourierDatagrams>,
    courier_connections: Arc<CourierConnections>,
}

impl Paths {
    /// Makes the server halves of all paths.
    ///
    /// # Errors
    /// If a path cannot allocate its memory.
    pub(super) fn new(core: &Arc<ServerCore>, terms: ConnectionTerms) -> Result<Self, CallError> {
        let failed = |error| {
            CallError::system(Phase::Export, "cannot allocate memory for the local path", error)
        };
        let no_random =
            |error| CallError::system(Phase::Export, "cannot obtain random numbers", error);
        Ok(Self {
            local: Sessions::new(core).map_err(failed)?,
            stream: Connections::new(core, terms.clone()),
            datagrams: Datagrams::new(core),
            onc_connections: onc_connections(core, terms.clone()).map_err(no_random)?,
            onc_datagrams: OncDatagrams::new(core),
            courier_datagrams: CourierDatagrams::new(core),
            courier_connections: courier_connections(core, terms),
        })
    }

    /// Returns the server halves of all paths.
    pub(super) fn all(&self) -> Vec<Arc<dyn ServerPath>> {
        vec![
            Arc::clone(&self.local) as Arc<dyn ServerPath>,
            Arc::clone(&self.stream) as _,
            Arc::clone(&self.datagrams) as _,
            Arc::clone(&self.onc_connections) as _,
            Arc::clone(&self.onc_datagrams) as _,
            Arc::clone(&self.courier_datagrams) as _,
            Arc::clone(&self.courier_connections) as _,
        ]
    }

    /// Opens an export for clients of this machine, which connect by the export's name. Clients can bind at
    /// once.
    ///
    /// # Errors
    /// If a path cannot be opened.
    pub(super) fn open_export(
        &self,
        export: &Arc<Export>,
        published: Published,
    ) -> Result<(), CallError> {
        let failed =
            |error| CallError::system(Phase::Export, "cannot watch the socket of an export", error);
        self.local.open(export, published).map_err(failed)
    }

    /// Opens an endpoint for clients that connect by a host and a port. Returns the endpoint with its actual
    /// port.
    ///
    /// # Errors
    /// If a path cannot be opened.
    pub(super) fn open_endpoint(
        &self,
        listening: Listening,
        ethernet: Option<EthernetDevice>,
    ) -> Result<Endpoint, CallError> {
        let failed = |scheme: &str, to: SocketAddr| {
            let what = format!("cannot listen on `{scheme}:{to}`");
            move |error| CallError::system(Phase::Export, what, error).denied_means(NO_LOW_PORT)
        };
        let no_port = |error| CallError::system(Phase::Export, "cannot read the port", error);
        let Listening { socket, security } = listening;
        let udp = |to| {
            let opened = self.datagrams.open(to, security.clone()).map_err(failed("udp", to))?;
            Ok(Endpoint::Udp(opened.into()))
        };
        let link = |to, is_asked| {
            let by = EthernetDevice::by(ethernet, is_asked);
            let opened = self.datagrams.open_link(to, by, security.clone());
            let opened = opened.map_err(failed("eth", to));
            let opened = opened.map_err(|error| error.denied_means(NO_RAW_ETHERNET));
            Ok(Endpoint::Ethernet(opened?.into()))
        };
        match socket {
            Socket::Tcp(listener) => {
                let address = listener.address().map_err(no_port)?;
                self.stream.open(listener, security.clone()).map_err(failed("tcp", address))?;
                Ok(Endpoint::Tcp(address.into()))
            }
            Socket::OncTcp(listener) => {
                let address = listener.address().map_err(no_port)?;
                self.onc_connections.open(listener).map_err(failed("onc+tcp", address))?;
                Ok(Endpoint::Foreign(PathKind::OncTcp, address.into()))
            }
            Socket::OncUdp(to) => {
                let opened = self.onc_datagrams.open(to).map_err(failed("onc+udp", to))?;
                Ok(Endpoint::Foreign(PathKind::OncUdp, opened.into()))
            }
            Socket::CourierUdp(to) => {
                let opened = self.courier_datagrams.open(to).map_err(failed("courier+udp", to))?;
                Ok(Endpoint::Foreign(PathKind::CourierUdp, opened.into()))
            }
            Socket::CourierTcp(listener) => {
                let address = listener.address().map_err(no_port)?;
                self.courier_connections.open(listener).map_err(failed("courier+tcp", address))?;
                Ok(Endpoint::Foreign(PathKind::CourierTcp, address.into()))
            }
            Socket::Udp(to) => udp(to),
            Socket::Datagrams(to) if to.ip().is_loopback() || to.ip().is_unspecified() => udp(to),
            // Raw Ethernet fails if the interface is not Ethernet, or this process lacks the permission. Then
            // the server listens over UDP only.
            Socket::Datagrams(to) => link(to, false).or_else(|_: CallError| udp(to)),
            Socket::Ethernet(to) => link(to, true),
        }
    }

    /// Returns the numbers of datagrams that were lost.
    pub(super) fn losses(&self) -> Losses {
        let mut losses = self.datagrams.losses();
        for [overflowed, rejected, unsent] in
            [self.onc_datagrams.losses(), self.courier_datagrams.losses()]
        {
            losses.overflowed += overflowed;
            losses.rejected += rejected;
            losses.unsent += unsent;
        }
        losses
    }
}

/// An endpoint at which the server will serve.
pub(super) struct Listening {
    socket: Socket,
    /// What encrypts the calls. `None`: nothing.
    security: Option<ServerSecurity>,
}

/// A socket that listens, or an address at which the server will open a socket.
enum Socket {
    Tcp(Listener),
    /// An address for UDP. The socket is opened when the server starts. Datagrams that arrive at an open
    /// socket may be calls, and no thread would serve these calls before the server starts.
    Udp(SocketAddr),
    /// A socket for ONC RPC over TCP.
    OncTcp(Listener),
    /// An address for ONC RPC over UDP. The socket is opened when the server starts.
    OncUdp(SocketAddr),
    /// An address for packet Courier. The socket is opened when the server starts.
    CourierUdp(SocketAddr),
    /// A socket for Courier over TCP.
    CourierTcp(Listener),
    /// An address for UDP and raw Ethernet.
    Ethernet(SocketAddr),
    /// An address for UDP, and for raw Ethernet if that works there.
    Datagrams(SocketAddr),
}

/// Checks that calls at an endpoint can be encrypted.
///
/// # Errors
/// If they cannot.
fn check_sealed(endpoint: &Endpoint) -> Result<(), CallError> {
    let what = match endpoint {
        Endpoint::Foreign(PathKind::OncTcp | PathKind::OncUdp, _) => "ONC RPC",
        Endpoint::Foreign(..) => "Courier",
        _ => return Ok(()),
    };
    let text = format!("`{endpoint}` shall be encrypted, and calls over {what} cannot be");
    Err(CallError::not_executed(Kind::Denied, Phase::Export, text).with_advice(NEVER_SEALED))
}

/// The advice for an endpoint of an RPC system without encryption.
const NEVER_SEALED: &str = "pass `Insecure::ITrustThisNetwork` if all hosts of the network are trusted, and \
     clients of that system must reach the server";

/// The advice for an endpoint that other machines can reach.
const BEYOND: &str = "listen at an address of this machine alone, such as 127.0.0.1, or call \
     Server::listen_beyond_this_machine";

/// The advice for a port that this process may not use.
const NO_LOW_PORT: &str = "ports below 1024 need root or CAP_NET_BIND_SERVICE: listen at a higher port, or \
     give the program this capability";

/// Returns the listeners for all addresses of an endpoint's host. TCP sockets listen at once.
/// `beyond` allows addresses that other machines can reach.
///
/// # Errors
/// If an address may not be used or is in use, or `security` is not `None` and the endpoint cannot be
/// encrypted.
pub(super) fn listen(
    endpoint: &Endpoint,
    beyond: bool,
    security: Option<&ServerSecurity>,
) -> Result<Vec<Listening>, CallError> {
    if security.is_some() {
        check_sealed(endpoint)?;
    }
    let failed = |error: io::Error| {
        let what = format!("cannot listen on `{endpoint}`");
        CallError::system(Phase::Export, what, error).denied_means(NO_LOW_PORT)
    };
    let addresses = endpoint.place().resolve()?;
    if let Some(wide) = addresses.iter().find(|address| !address.ip().is_loopback())
        && !beyond
    {
        let text = format!(
            "`{endpoint}` can be reached from other machines ({wide}), and calls are not encrypted"
        );
        let error = CallError::not_executed(Kind::Denied, Phase::Export, text);
        return Err(error.with_advice(BEYOND));
    }
    let mut all = Vec::new();
    for address in addresses {
        match endpoint {
            Endpoint::Tcp(_) => {
                all.push(Socket::Tcp(Listener::listen(&address).map_err(failed)?));
            }
            Endpoint::Udp(_) => all.push(Socket::Udp(address)),
            Endpoint::Ethernet(_) => all.push(Socket::Ethernet(address)),
            Endpoint::Foreign(PathKind::OncTcp, _) => {
                all.push(Socket::OncTcp(Listener::listen(&address).map_err(failed)?));
            }
            Endpoint::Foreign(PathKind::OncUdp, _) => all.push(Socket::OncUdp(address)),
            Endpoint::Foreign(PathKind::CourierUdp, _) => all.push(Socket::CourierUdp(address)),
            // The messages of Courier arrive in ordinary calls of Peregrine over UDP.
            Endpoint::Foreign(PathKind::CourierExchange, _) => all.push(Socket::Udp(address)),
            Endpoint::Foreign(PathKind::CourierTcp, _) => {
                all.push(Socket::CourierTcp(Listener::listen(&address).map_err(failed)?));
            }
            Endpoint::Foreign(path, _) => {
                let text = format!("no server half of the path {path}");
                return Err(CallError::not_executed(Kind::BadName, Phase::Export, text));
            }
            Endpoint::All(_) => {
                let (listener, address) = listen_at_both(address).map_err(failed)?;
                all.extend([Socket::Tcp(listener), Socket::Datagrams(address)]);
            }
        }
    }
    let secured = |socket| Listening { socket, security: security.cloned() };
    Ok(all.into_iter().map(secured).collect())
}

/// Listens over TCP at a port that is also free for UDP. If the system chooses the port, the system checks
/// only TCP, so this function tries several ports.
fn listen_at_both(address: SocketAddr) -> io::Result<(Listener, SocketAddr)> {
    const TRIES: usize = 16;
    let mut tried = 0;
    loop {
        let listener = Listener::listen(&address)?;
        let at = listener.address()?;
        // An explicit port is not replaced. If UDP cannot use this port, opening the UDP socket later reports
        // the error.
        let Err(error) = Udp::bound(at) else { return Ok((listener, at)) };
        if address.port() != 0 {
            return Ok((listener, at));
        }
        tried += 1;
        if tried == TRIES || error.kind() != io::ErrorKind::AddrInUse {
            return Err(error);
        }
    }
}
