//! What a server reports of the clients that it refused in a handshake.

use core::net::SocketAddr;
use std::sync::Arc;

use super::{Running, Server};
use crate::secure::Refusal;

impl Server {
    /// Calls `hook` for each client that an encrypted endpoint refuses, with its address and the reason. The
    /// reason is [`Refusal::RefusedByPeer`] if the client refused the server. The hook runs on a thread that
    /// serves calls: it should record the refusal and return. A second hook replaces the first one.
    ///
    /// Every host that can reach the port can cause refusals, so a log of them must be bounded.
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
        self.refusals.get_or_insert_default().set_hook(Arc::new(hook));
        self
    }
}

impl Running {
    /// Returns how many clients the encrypted endpoints of this server have refused, or were refused by.
    #[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
    pub fn refused_clients(&self) -> u64 {
        self.refusals.as_ref().map_or(0, |refusals| refusals.count())
    }
}
