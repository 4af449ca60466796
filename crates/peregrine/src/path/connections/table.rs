//! [`ConnectionTable`]: the open connections of a server, in total and of each host.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::error::Kind;

/// The limits and options of connections, as the program that runs the server has set them.
#[derive(Clone)]
pub(crate) struct ConnectionTerms {
    pub(crate) congestion: Option<String>,
    /// The largest number of connections from all hosts.
    pub(crate) connections: usize,
    /// The largest number of connections from one host.
    pub(crate) connections_per_host: usize,
}

/// The open connections of a server.
pub(in crate::path) struct ConnectionTable<C> {
    open: HashMap<u64, Arc<C>>,
    /// The number of connections from each host.
    hosts: HashMap<IpAddr, usize>,
    closed: bool,
}

impl<C> Default for ConnectionTable<C> {
    fn default() -> Self {
        Self { open: HashMap::new(), hosts: HashMap::new(), closed: false }
    }
}

impl<C> ConnectionTable<C> {
    /// Returns why a further connection from `host` is refused, or `None` if it is admitted.
    pub(in crate::path) fn refusal(
        &self,
        host: IpAddr,
        terms: &ConnectionTerms,
    ) -> Option<(Kind, String)> {
        let theirs = self.hosts.get(&host).copied().unwrap_or(0);
        if self.closed {
            Some((Kind::Withdrawn, "the server is stopping".to_owned()))
        } else if self.open.len() >= terms.connections {
            let all = self.open.len();
            let text =
                format!("the server has {all} connections: allow more with `Server::connections`");
            Some((Kind::Exhausted, text))
        } else if theirs >= terms.connections_per_host {
            let text = format!(
                "the server has {theirs} connections from {host}: allow more with \
                 `Server::connections_per_host`"
            );
            Some((Kind::Exhausted, text))
        } else {
            None
        }
    }

    /// Adds a connection under a number that no other connection has.
    pub(in crate::path) fn insert(&mut self, key: u64, host: IpAddr, connection: Arc<C>) {
        *self.hosts.entry(host).or_default() += 1;
        self.open.insert(key, connection);
    }

    /// Returns the connection with this number.
    pub(in crate::path) fn get(&self, key: u64) -> Option<&Arc<C>> {
        self.open.get(&key)
    }

    /// Removes and returns a connection, if it is still there.
    pub(in crate::path) fn remove(&mut self, key: u64, host: IpAddr) -> Option<Arc<C>> {
        let removed = self.open.remove(&key)?;
        if let Some(count) = self.hosts.get_mut(&host) {
            *count -= 1;
            if *count == 0 {
                self.hosts.remove(&host);
            }
        }
        Some(removed)
    }

    /// Returns all connections.
    pub(in crate::path) fn all(&self) -> Vec<Arc<C>> {
        self.open.values().map(Arc::clone).collect()
    }

    /// Removes all connections, and refuses further ones.
    pub(in crate::path) fn close(&mut self) -> Vec<Arc<C>> {
        self.closed = true;
        self.hosts.clear();
        self.open.drain().map(|(_, connection)| connection).collect()
    }
}
