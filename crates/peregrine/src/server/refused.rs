//! What a server reports of clients and calls that it refused because of who they are.

#[cfg(feature = "secure")]
use core::net::SocketAddr;
use std::sync::Arc;

use super::{Running, Server};
#[cfg(feature = "secure")]
use crate::secure::Refusal;
use crate::serving::access::Denied;

impl Server {
    /// Calls `hook` for each call, and for each request to bind, that is refused because of who makes it:
    /// [`identities`](crate::ExportOptions::identities), [`allow`](crate::ExportOptions::allow),
    /// [`users`](crate::ExportOptions::users) and [`groups`](crate::ExportOptions::groups). A second hook replaces the first one.
    ///
    /// The hook runs on a thread that serves calls: it should record the refusal and return. Every host that can
    /// reach the server can cause refusals, so a log of them must be bounded.
    ///
    /// ```no_run
    /// # use peregrine::Server;
    /// let server = Server::new().on_denied(|denied| eprintln!("{denied}"));
    /// ```
    pub fn on_denied(mut self, hook: impl Fn(&Denied<'_>) + Send + Sync + 'static) -> Self {
        self.denials.get_or_insert_default().set_hook(Arc::new(hook));
        self
    }

    /// Calls `hook` for each client that an encrypted endpoint refuses, with its address and the reason. The
    /// reason is [`Refusal::RefusedByPeer`] if the client refused the server. The hook runs on a thread that
    /// serves calls: it should record the refusal and return. A second hook replaces the first one.
    ///
    /// Anybody who can reach the port can cause refusals, so a log of them must be bounded.
    ///
    /// ```no_run
    /// # use peregrine::Server;
    /// let server = Server::new().on_refused(|from, refusal| eprintln!("{from}: {refusal}"));
    /// ```
    #[cfg(feature = "secure")]
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
    /// Returns how many calls and requests to bind were refused because of who made them:
    /// [`Server::on_denied`].
    ///
    /// ```
    /// # use peregrine::Server;
    /// let running = Server::new().spawn()?;
    /// assert_eq!(running.denied(), 0);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn denied(&self) -> u64 {
        self.core.denials.count()
    }

    /// Returns how many clients the encrypted endpoints of this server have refused, or were refused by.
    #[cfg(feature = "secure")]
    #[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
    pub fn refused_clients(&self) -> u64 {
        self.refusals.as_ref().map_or(0, |refusals| refusals.count())
    }
}
