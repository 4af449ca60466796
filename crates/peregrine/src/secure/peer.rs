//! The identity of the other side of a connection, as far as it is proven.

use core::fmt;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;

use super::key::{Fingerprint, PublicKey};
use super::name::SpiffeId;

/// The identity of the other side of a connection.
///
/// A name is there only if it is proven. Names in a certificate are proven by a trusted CA that signed it.
/// The name in the list of trusted keys is given by this side. A peer has at least one of them.
///
/// Displayed, it is the name in the list, the SPIFFE ID, the first DNS name, or the fingerprint: the first of
/// these that it has.
#[derive(Clone)]
pub struct Peer {
    proven: Arc<Proven>,
}

pub(super) struct Proven {
    pub(super) key: PublicKey,
    /// The name in the list of trusted keys.
    pub(super) name: Option<String>,
    /// Whether a trusted CA has signed the certificate.
    pub(super) is_certified: bool,
    pub(super) spiffe: Option<SpiffeId>,
    pub(super) dns: Vec<String>,
    /// The chain that the peer sent, its own certificate first.
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) role: Role,
}

/// What a peer does in a connection: which purpose a certificate must permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Server,
}

impl Peer {
    pub(super) fn of(proven: Proven) -> Self {
        Self { proven: Arc::new(proven) }
    }

    pub(super) fn proven(&self) -> &Proven {
        &self.proven
    }

    /// Returns the fingerprint of the peer's key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.proven.key.fingerprint()
    }

    /// Returns the peer's key.
    pub fn public_key(&self) -> &PublicKey {
        &self.proven.key
    }

    /// Returns the name of the key in the list of trusted keys.
    pub fn name(&self) -> Option<&str> {
        self.proven.name.as_deref()
    }

    /// Returns the SPIFFE ID, if a trusted CA signed a certificate that contains one.
    pub fn spiffe(&self) -> Option<&SpiffeId> {
        self.proven.spiffe.as_ref()
    }

    /// Returns the DNS names, if a trusted CA signed a certificate that contains some.
    pub fn dns_names(&self) -> &[String] {
        &self.proven.dns
    }

    /// Returns whether a trusted CA signed the peer's certificate.
    pub fn is_certified(&self) -> bool {
        self.proven.is_certified
    }

    /// Returns all names that are proven, without the fingerprint.
    pub(super) fn names(&self) -> Vec<String> {
        let proven = &self.proven;
        let name = proven.name.iter().map(|name| format!("key:{name}"));
        name.chain(proven.spiffe.iter().map(ToString::to_string))
            .chain(proven.dns.iter().cloned())
            .collect()
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let proven = &self.proven;
        if let Some(name) = &proven.name {
            return f.write_str(name);
        }
        if let Some(id) = &proven.spiffe {
            return id.fmt(f);
        }
        match proven.dns.first() {
            Some(name) => f.write_str(name),
            None => self.fingerprint().fmt(f),
        }
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("key", &self.proven.key)
            .field("name", &self.proven.name)
            .field("spiffe", &self.proven.spiffe)
            .field("dns", &self.proven.dns)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Peer {
    /// Compares the keys and the names.
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (&self.proven, &other.proven);
        (&one.key, &one.name, &one.spiffe, &one.dns)
            == (&other.key, &other.name, &other.spiffe, &other.dns)
    }
}

impl Eq for Peer {}
