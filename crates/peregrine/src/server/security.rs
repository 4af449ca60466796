//! [`Security`]: what protects the calls at an endpoint, and which clients can make them.

use std::sync::Arc;

use crate::path::security::{Refusals, ServerSecurity};
#[cfg(feature = "secure")]
use crate::secure::{Identity, Trust};

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
