//! [`Security`]: what protects the calls at an endpoint, and endpoints that other machines can reach.

use std::sync::Arc;

use super::{Server, paths};
use crate::address::Endpoint;
use crate::error::CallError;
use crate::path::security::{Refusals, ServerSecurity};
#[cfg(feature = "secure")]
use crate::secure::{Identity, Trust};

impl Server {
    /// Listens as [`Server::listen`] does, but also accepts endpoints that other machines can reach, such as
    /// `tcp:0.0.0.0:7000`.
    ///
    /// `security` says what protects the calls at this endpoint. There is no default:
    ///
    /// * With [`Insecure::ITrustThisNetwork`], **nothing is encrypted or authenticated**. Any host that can
    ///   reach the port can call. Any host between client and server can read and change calls and results.
    /// * With an identity and a trust, `(Identity, Trust)` of the module `secure` (feature `secure`), all calls
    ///   are encrypted by TLS 1.3, and both sides prove who they are. Clients that are not trusted are refused
    ///   in the handshake, and get an error that says why. `Server::on_refused` reports them here. A procedure
    ///   learns by `Caller::identity` who calls. When a key is removed from the trust, the server ends the
    ///   connections of the client that has it, within about a second.
    ///
    /// Calls over TCP, UDP and raw Ethernet can be encrypted. ONC RPC and Courier have no encryption. A
    /// server may have endpoints with different security. To encrypt an endpoint that only this machine can
    /// reach, call this function with `tcp:127.0.0.1:7000`.
    ///
    /// ```
    /// # #[cfg(feature = "secure")] {
    /// # use peregrine::interface;
    /// use peregrine::secure::{Identity, Trust, TrustedKey};
    /// use peregrine::{BindOptions, Server};
    ///
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// # let name = format!("doc-encrypted-{}", std::process::id());
    /// let (own, ada) = (Identity::generate()?, Identity::generate()?);
    /// let trust = Trust::of_keys([TrustedKey::new("ada", ada.public_key(), "")?])?;
    /// let server = Server::new().export(&name, EchoServer::new(Same))?;
    /// let server = server.listen_beyond_this_machine("tcp:127.0.0.1:0", (own.clone(), trust))?;
    /// let running = server.spawn()?;
    ///
    /// let trust = Trust::of_keys([TrustedKey::new("server", own.public_key(), "")?])?;
    /// let address = format!("{}/{name}", running.addresses()[0]);
    /// let echo = EchoClient::bind_with(&address, &BindOptions::default().secure(ada, trust))?;
    /// assert_eq!(echo.echo(7)?, 7);
    /// assert!(EchoClient::bind(&address).is_err());
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// `eth:192.0.2.7:7000` listens at that UDP address, and for raw Ethernet frames at the interface that
    /// has the address. Clients on the same link then make calls without IP. This requires `CAP_NET_RAW`, and
    /// is faster with `CAP_NET_ADMIN` and `CAP_BPF` ([`EthernetDevice`](crate::EthernetDevice)).
    ///
    /// `192.0.2.7:7000` listens over TCP and UDP, and also for Ethernet frames if the process has the
    /// permission and the interface is an Ethernet interface. AF_XDP, which attaches a program to the
    /// interface, is used only if [`Server::ethernet_device`] is set. `0.0.0.0` names no interface, so raw
    /// Ethernet is disabled there.
    ///
    /// # Errors
    /// If the endpoint is invalid or in use, or `security` has an identity and the endpoint cannot be
    /// encrypted.
    pub fn listen_beyond_this_machine(
        self,
        endpoint: &str,
        security: impl Into<Security>,
    ) -> Result<Self, CallError> {
        self.listen_at(endpoint, Some(security.into()))
    }

    /// Listens at an endpoint. With `security`, other machines may be able to reach the endpoint.
    pub(super) fn listen_at(
        mut self,
        endpoint: &str,
        security: Option<Security>,
    ) -> Result<Self, CallError> {
        let parsed: Endpoint = endpoint.parse().map_err(|error: CallError| error.at(endpoint))?;
        let beyond = security.is_some();
        let security = security.and_then(|security| {
            let refusals = self.refusals.get_or_insert_default();
            security.begin(refusals)
        });
        let listeners = paths::listen(&parsed, beyond, security.as_ref());
        self.listeners.extend(listeners.map_err(|error| error.at(endpoint))?);
        Ok(self)
    }
}

/// The decision that calls at an endpoint are neither encrypted nor authenticated.
///
/// ```no_run
/// use peregrine::{Insecure, Server};
///
/// # use peregrine::interface;
/// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
/// # struct Same;
/// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
/// let server = Server::new().export("echo", EchoServer::new(Same))?;
/// server.listen_beyond_this_machine("0.0.0.0:7000", Insecure::ITrustThisNetwork)?.run()?;
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Insecure {
    /// All hosts that can reach the endpoint are trusted, and all hosts between them and this machine.
    ///
    /// Any host that can reach the endpoint can call. Any host between client and server can read and change
    /// calls and results, and can impersonate either side. Clients that require encryption
    /// (`BindOptions::secure`) do not bind. Use this in a network of trusted hosts, or protect the endpoint
    /// by a firewall or an encrypted tunnel.
    ITrustThisNetwork,
}

/// What protects the calls at an endpoint that other machines can reach:
/// [`Server::listen_beyond_this_machine`](crate::Server::listen_beyond_this_machine).
///
/// It is made from one of these:
///
/// * [`Insecure::ITrustThisNetwork`] means that nothing protects them.
/// * With the feature `secure`, a pair `(Identity, Trust)` of the module `secure`: all calls at the endpoint
///   are encrypted. The server proves by the identity who it is, and accepts only clients that the trust
///   accepts.
///
/// ```
/// use peregrine::{Insecure, Security};
///
/// let nothing: Security = Insecure::ITrustThisNetwork.into();
/// # let _ = nothing;
/// ```
#[derive(Clone)]
#[must_use]
pub struct Security(Protection);

#[derive(Clone)]
enum Protection {
    Nothing,
    #[cfg(feature = "secure")]
    Encryption(Box<(Identity, Trust)>),
}

impl Security {
    /// The security of an endpoint that only this machine can reach.
    pub(super) const NOTHING: Self = Self(Protection::Nothing);

    /// Returns what secures an endpoint. `None` if nothing does. `refusals` learns of the clients that are
    /// refused.
    #[cfg_attr(not(feature = "secure"), expect(unused_variables, reason = "none are refused"))]
    pub(super) fn begin(&self, refusals: &Arc<Refusals>) -> Option<ServerSecurity> {
        match &self.0 {
            Protection::Nothing => None,
            #[cfg(feature = "secure")]
            Protection::Encryption(by) => Some(ServerSecurity::new(&by.0, &by.1, refusals)),
        }
    }
}

impl From<Insecure> for Security {
    fn from(Insecure::ITrustThisNetwork: Insecure) -> Self {
        Self::NOTHING
    }
}

#[cfg(feature = "secure")]
#[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
impl From<(Identity, Trust)> for Security {
    fn from(by: (Identity, Trust)) -> Self {
        Self(Protection::Encryption(Box::new(by)))
    }
}

impl core::fmt::Debug for Security {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match &self.0 {
            Protection::Nothing => "Security::Nothing",
            #[cfg(feature = "secure")]
            Protection::Encryption(_) => "Security::Encryption",
        })
    }
}
