//! Which earlier handshakes may be resumed: few, for a short time, and only while trust and identity stay the
//! same.
//!
//! A resumed handshake shows no certificates, so no verifier sees it. Therefore every change of the trust or
//! of the own identity ends all sessions. The next handshake is a full one, and refuses a peer that is not
//! trusted any more with the alert that says why.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::NamedGroup;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};
use rustls_pki_types::ServerName;

use super::identity::Identity;
use super::trust::Trust;
use crate::limits;
use crate::sync::Mutex;

/// What must be the same as when a session began.
struct Terms {
    trust: Trust,
    identity: Identity,
    /// How often all sessions were forgotten.
    forgotten: AtomicU64,
}

type Tag = [u64; 3];

impl Terms {
    fn of(trust: &Trust, identity: &Identity) -> Self {
        let (trust, identity) = (trust.clone(), identity.clone());
        Self { trust, identity, forgotten: AtomicU64::new(0) }
    }

    fn tag(&self) -> Tag {
        let forgotten = self.forgotten.load(Ordering::Acquire);
        [self.trust.changes(), self.identity.changes(), forgotten]
    }

    fn forget(&self) {
        self.forgotten.fetch_add(1, Ordering::AcqRel);
    }
}

/// The sessions of a server. Each is used once.
pub(super) struct ServerSessions {
    terms: Terms,
    cache: Arc<ServerSessionMemoryCache>,
}

/// The tag, and the second in which the session began, are before the bytes of a session.
const HEAD: usize = 32;

impl ServerSessions {
    pub(super) fn new(trust: &Trust, identity: &Identity) -> Arc<Self> {
        let cache = ServerSessionMemoryCache::new(limits::TLS_SESSIONS_MAX);
        Arc::new(Self { terms: Terms::of(trust, identity), cache })
    }

    /// Ends all sessions.
    pub(super) fn forget(&self) {
        self.terms.forget();
    }

    /// Makes a session older, as if it had begun these seconds ago.
    #[cfg(test)]
    pub(super) fn age(&self, key: Vec<u8>, seconds: u64) {
        let mut stored = self.cache.get(&key).expect("a session");
        stored[24..HEAD].copy_from_slice(&(now() - seconds).to_ne_bytes());
        self.cache.put(key, stored);
    }

    /// Returns the bytes of a session, if it may be resumed now.
    fn current(&self, stored: &[u8]) -> Option<Vec<u8>> {
        let (head, session) = stored.split_at_checked(HEAD)?;
        let word =
            |at: usize| head[8 * at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
        let age = now().checked_sub(word(3))?;
        let is_current = self.terms.tag() == [word(0), word(1), word(2)];
        (is_current && age < limits::TLS_SESSION_TIME.as_secs()).then(|| session.to_vec())
    }
}

/// Returns the time in seconds. A clock that is set back ends sessions.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl StoresServerSessions for ServerSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        if value.len() > limits::TLS_SESSION_BYTES_MAX {
            return false;
        }
        let [trust, identity, forgotten] = self.terms.tag();
        let head = [trust, identity, forgotten, now()].map(u64::to_ne_bytes);
        self.cache.put(key, [head.as_flattened(), &value].concat())
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.cache.get(key).and_then(|stored| self.current(&stored))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.cache.take(key).and_then(|stored| self.current(&stored))
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl fmt::Debug for ServerSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerSessions")
    }
}

/// The sessions of a client.
pub(super) struct ClientSessions {
    terms: Terms,
    current: Mutex<(Tag, Arc<ClientSessionMemoryCache>)>,
}

impl ClientSessions {
    pub(super) fn new(trust: &Trust, identity: &Identity) -> Arc<Self> {
        let terms = Terms::of(trust, identity);
        let current = Mutex::new((terms.tag(), Self::empty()));
        Arc::new(Self { terms, current })
    }

    fn empty() -> Arc<ClientSessionMemoryCache> {
        Arc::new(ClientSessionMemoryCache::new(limits::TLS_SERVERS_MAX))
    }

    /// Ends all sessions.
    pub(super) fn forget(&self) {
        self.terms.forget();
    }

    /// Returns the sessions that may be resumed now.
    fn cache(&self) -> Arc<ClientSessionMemoryCache> {
        let tag = self.terms.tag();
        let mut current = self.current.lock();
        if current.0 != tag {
            *current = (tag, Self::empty());
        }
        Arc::clone(&current.1)
    }
}

impl ClientSessionStore for ClientSessions {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        self.cache().set_kx_hint(server_name, group);
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        self.cache().kx_hint(server_name)
    }

    // Only TLS 1.3 is used.
    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(
        &self,
        server_name: ServerName<'static>,
        value: Tls13ClientSessionValue,
    ) {
        self.cache().insert_tls13_ticket(server_name, value);
    }

    fn take_tls13_ticket(
        &self,
        server_name: &ServerName<'static>,
    ) -> Option<Tls13ClientSessionValue> {
        self.cache().take_tls13_ticket(server_name)
    }
}

impl fmt::Debug for ClientSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSessions")
    }
}
