//! Tests of handshakes, certificates and files. This file makes the CAs and certificates for them.

mod certificates;
mod files;
mod handshakes;
mod resumption;
mod streams;

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SanType, SignatureAlgorithm, date_time_ymd,
};
use rustls_pki_types::CertificateDer;

use super::tls::{self, Client, Server, Wire};
use super::{Expected, Identity, KeyError, Trust, TrustedKey};

/// A CA.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    cert: CertificateDer<'static>,
}

/// Returns parameters of a certificate that is valid now, for the names.
pub(super) fn parameters(names: &[&str]) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, "test");
    parameters.subject_alt_names = names
        .iter()
        .map(|name| match name.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) if name.contains("://") => SanType::URI((*name).try_into().unwrap()),
            Err(_) => SanType::DnsName((*name).try_into().unwrap()),
        })
        .collect();
    parameters.not_before = date_time_ymd(2020, 1, 1);
    parameters.not_after = date_time_ymd(2990, 1, 1);
    parameters
}

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let parameters = Self::parameters(name);
        let cert = parameters.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(parameters, key), cert }
    }

    fn parameters(name: &str) -> CertificateParams {
        let mut parameters = parameters(&[]);
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        parameters
    }

    /// Returns a CA below this one.
    pub(super) fn below(&self, name: &str) -> Self {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let parameters = Self::parameters(name);
        let cert = parameters.signed_by(&key, &self.issuer).unwrap().der().clone();
        Self { issuer: Issuer::new(parameters, key), cert }
    }

    pub(super) fn pem(&self) -> String {
        super::identity::pem("CERTIFICATE", &self.cert).to_string()
    }

    pub(super) fn trust(&self) -> Trust {
        Trust::of_authorities(self.pem().as_bytes()).unwrap()
    }

    /// Returns an identity with a certificate of this CA.
    pub(super) fn issue(&self, parameters: &CertificateParams) -> Identity {
        self.issue_through(parameters, &[])
    }

    /// Returns an identity that shows further certificates after its own.
    pub(super) fn issue_through(
        &self,
        parameters: &CertificateParams,
        others: &[&Self],
    ) -> Identity {
        self.try_issue(parameters, others).unwrap()
    }

    /// As [`issue_through`](Self::issue_through), for certificates that may be refused.
    pub(super) fn try_issue(
        &self,
        parameters: &CertificateParams,
        others: &[&Self],
    ) -> Result<Identity, KeyError> {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let cert = parameters.signed_by(&key, &self.issuer).unwrap();
        let mut chain = super::identity::pem("CERTIFICATE", cert.der()).to_string();
        others.iter().for_each(|other| chain.push_str(&other.pem()));
        Identity::from_pem(chain.as_bytes(), key.serialize_pem_text().as_bytes())
    }

    /// Returns a certificate for a key of which only the public half exists.
    pub(super) fn certify(&self, key: &RawKey) -> CertificateDer<'static> {
        parameters(&["weak.example"]).signed_by(key, &self.issuer).unwrap().der().clone()
    }
}

/// The public half of a key.
pub(super) struct RawKey(pub(super) Vec<u8>, pub(super) &'static SignatureAlgorithm);

impl PublicKeyData for RawKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.1
    }
}

trait PemText {
    fn serialize_pem_text(&self) -> String;
}

impl PemText for KeyPair {
    fn serialize_pem_text(&self) -> String {
        super::identity::pem("PRIVATE KEY", self.serialized_der()).to_string()
    }
}

/// Returns parameters of a certificate with this number of names of 64 bytes, and with an address.
pub(super) fn with_many_names(count: usize) -> CertificateParams {
    let names: Vec<String> = (0..count).map(|at| format!("{at:056}.example")).collect();
    let mut names: Vec<&str> = names.iter().map(|name| &**name).collect();
    names.push("192.0.2.7");
    parameters(&names)
}

/// Returns the trust in the keys of identities, which get the names `a`, `b`, and so on.
pub(super) fn keys(of: &[&Identity]) -> Trust {
    Trust::of_keys(lines(of)).unwrap()
}

pub(super) fn lines(of: &[&Identity]) -> Vec<TrustedKey> {
    let names = 'a'..='z';
    let line = |(name, one): (char, &&Identity)| {
        TrustedKey::new(&name.to_string(), one.public_key(), "").unwrap()
    };
    names.zip(of).map(line).collect()
}

pub(super) fn expected(text: &str) -> Expected {
    text.parse().unwrap()
}

/// Returns both sides of TLS for peers that trust each other's keys.
pub(super) fn pair(wire: Wire) -> (Client, Server, [Trust; 2]) {
    let (ada, bob) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let (of_ada, of_bob) = (keys(&[&bob]), keys(&[&ada]));
    let client = tls::client(&ada, &of_ada, expected("192.0.2.7"), wire);
    (client, tls::server(&bob, &of_bob, wire), [of_ada, of_bob])
}

/// Returns the certificate that an identity shows.
pub(super) fn shown(identity: &Identity) -> Vec<CertificateDer<'static>> {
    Arc::unwrap_or_clone(identity.certified()).cert
}
