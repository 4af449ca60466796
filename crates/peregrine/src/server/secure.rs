//! [`Server::secure`]: a server whose connections are encrypted, and that knows its clients.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use super::paths::Listening;
use super::{Running, Server};
use crate::error::{CallError, Kind, Phase};
use crate::path::ConnectionTerms;
use crate::path::security::{OnRefused, ServerSecurity};
use crate::secure::{Identity, Refusal, Trust};

/// How a server will be secured when it starts.
pub(super) struct Secure {
    by: Option<(Identity, Trust)>,
    on_refused: Option<Arc<OnRefused>>,
    refused: Option<Arc<AtomicU64>>,
}

impl Secure {
    pub(super) const fn new() -> Self {
        Self { by: None, on_refused: None, refused: None }
    }

    /// Sets the security of connections.
    ///
    /// # Errors
    /// If the server is secure, and listens by a path that cannot be encrypted.
    pub(super) fn begin(
        &mut self,
        listeners: &[Listening],
        terms: &mut ConnectionTerms,
    ) -> Result<(), CallError> {
        let Some((identity, trust)) = self.by.clone() else { return Ok(()) };
        if let Some(other) = listeners.iter().find_map(Listening::unsealed) {
            let text = format!("the server is secure, and calls over {other} cannot be encrypted");
            let error = CallError::not_executed(Kind::Denied, Phase::Export, text);
            return Err(error.with_advice("listen by `tcp:`, `udp:` or `eth:` only"));
        }
        let refused = self.refused();
        terms.security =
            Some(ServerSecurity::new(&identity, &trust, self.on_refused.take(), refused));
        Ok(())
    }

    /// Returns the count of the clients that were refused.
    pub(super) fn refused(&mut self) -> Arc<AtomicU64> {
        Arc::clone(self.refused.get_or_insert_default())
    }
}

impl Server {
    /// Encrypts all calls over networks, proves to clients who the server is, and accepts only clients that
    /// are trusted. A procedure learns by [`Caller::identity`](crate::Caller::identity) who calls.
    ///
    /// The server then uses TLS 1.3 at every endpoint of TCP, UDP and raw Ethernet. It does not start if it also
    /// listens by a protocol of another system, such as `onc+tcp:`: those cannot be encrypted. On this machine,
    /// clients still use the local path, where the kernel says who they are.
    ///
    /// A client that is not trusted is refused in the handshake, and gets an error that says why.
    /// [`on_refused`](Self::on_refused) reports such clients here. When a key is removed from the trust, the
    /// server ends the connections of the client that has it, within about a second.
    ///
    /// ```
    /// # use peregrine::interface;
    /// use peregrine::Server;
    /// use peregrine::secure::{Identity, Trust, TrustedKey};
    ///
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// # let name = format!("doc-secure-server-{}", std::process::id());
    /// let (own, ada) = (Identity::generate()?, Identity::generate()?);
    /// let trust = Trust::of_keys([TrustedKey::new("ada", ada.public_key(), "")?])?;
    /// let server = Server::new().export(&name, EchoServer::new(Same))?.secure(own, trust);
    /// let running = server.listen("tcp:127.0.0.1:0")?.spawn()?;
    /// assert_eq!(running.refused_clients(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
    pub fn secure(mut self, identity: Identity, trust: Trust) -> Self {
        self.secure.by = Some((identity, trust));
        self
    }

    /// Calls `hook` for each client that a [secure](Self::secure) server refuses, with its address and the
    /// reason. The reason is [`Refusal::RefusedByPeer`] if the client refused the server. The hook runs on a
    /// thread that serves calls: it should record the refusal and return.
    ///
    /// Anybody who can reach the port can cause refusals, so a log of them must be bounded.
    ///
    /// ```no_run
    /// # use peregrine::Server;
    /// let server = Server::new().on_refused(|from, refusal| eprintln!("{from}: {refusal}"));
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
    pub fn on_refused(
        mut self,
        hook: impl Fn(SocketAddr, &Refusal) + Send + Sync + 'static,
    ) -> Self {
        self.secure.on_refused = Some(Arc::new(hook));
        self
    }
}

impl Running {
    /// Returns how many clients a [secure](Server::secure) server has refused, or was refused by.
    #[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
    pub fn refused_clients(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}
