//! TLS 1.3 for the paths that leave this machine, by rustls: both sides show a certificate, and refuse each
//! other with a reason.
//!
//! In TLS 1.3 the client has completed the handshake before the server has seen its certificate. So a client
//! knows that it is accepted only when the first bytes of the server's protocol arrive. If it is refused, the
//! alert arrives instead, and [`Client::refusal`] explains it.

use core::cell::RefCell;
use core::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, CommonState, DigitallySignedStruct,
    DistinguishedName, Error, OtherError, PeerIncompatible, ServerConfig, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::identity::Identity;
use super::key_log::Logged;
use super::name::Expected;
use super::peer::{Peer, Role};
use super::refusal::{PeerReason, Refusal};
use super::sessions::{ClientSessions, ServerSessions};
use super::trust::Trust;

/// What TLS protects. A handshake for one of them is refused by the other (ALPN, RFC 7301), so that a
/// host on the way cannot pass messages of one on to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Messages on a TCP connection.
    Stream,
    /// The packet exchange, over UDP or raw Ethernet: `rustls::quic`.
    Exchange,
}

impl Wire {
    /// Returns the name of the protocol in ALPN.
    pub(crate) const fn protocol(self) -> &'static [u8] {
        match self {
            Self::Stream => b"peregrine/1",
            Self::Exchange => b"peregrine-exchange/1",
        }
    }
}

/// The client's side of TLS, for connections to one expected server. Handshakes are resumed only among
/// connections with the same value or a clone of it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// For `rustls::ClientConnection::new` or `rustls::quic::ClientConnection::new`.
    pub(crate) config: Arc<ClientConfig>,
    wire: Wire,
    trust: Trust,
    expected: Arc<Expected>,
    sessions: Arc<ClientSessions>,
}

/// The server's side of TLS.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// For `rustls::ServerConnection::new` or `rustls::quic::ServerConnection::new`.
    pub(crate) config: Arc<ServerConfig>,
    wire: Wire,
    trust: Trust,
    sessions: Arc<ServerSessions>,
}

/// Returns the client's side of TLS.
pub(crate) fn client(identity: &Identity, trust: &Trust, expected: Expected, wire: Wire) -> Client {
    let provider = Arc::new(ring::default_provider());
    let expected = Arc::new(expected);
    let verifier = Arc::new(Verifier {
        trust: trust.clone(),
        expected: Some(Arc::clone(&expected)),
        algorithms: provider.signature_verification_algorithms,
    });
    let sessions = ClientSessions::new(trust, identity);
    let builder = ClientConfig::builder_with_provider(provider);
    let mut config = builder
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has suites of TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(Resolver(identity.clone())));
    config.alpn_protocols = vec![wire.protocol().to_vec()];
    config.resumption = Resumption::store(Arc::<ClientSessions>::clone(&sessions));
    config.key_log = Arc::new(Logged(identity.clone()));
    Client { config: Arc::new(config), wire, trust: trust.clone(), expected, sessions }
}

/// Returns the server's side of TLS.
pub(crate) fn server(identity: &Identity, trust: &Trust, wire: Wire) -> Server {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(Verifier {
        trust: trust.clone(),
        expected: None,
        algorithms: provider.signature_verification_algorithms,
    });
    let sessions = ServerSessions::new(trust, identity);
    let builder = ServerConfig::builder_with_provider(provider);
    let mut config = builder
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has suites of TLS 1.3")
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(Resolver(identity.clone())));
    config.alpn_protocols = vec![wire.protocol().to_vec()];
    config.session_storage = Arc::<ServerSessions>::clone(&sessions);
    config.send_tls13_tickets = 2;
    config.key_log = Arc::new(Logged(identity.clone()));
    Server { config: Arc::new(config), wire, trust: trust.clone(), sessions }
}

impl Client {
    /// Returns the name for a connection to a server at an address. It is also by which name sessions are
    /// found.
    pub(crate) fn name(&self, address: IpAddr) -> ServerName<'static> {
        self.expected.server_name(address)
    }

    /// Returns the server after a handshake. If the handshake was resumed, the server's certificates are
    /// those of the first handshake, and they are checked again. A refused server's connection must be
    /// closed.
    pub(crate) fn peer(&self, state: &CommonState) -> Result<Peer, Refusal> {
        let expected = Some(&*self.expected);
        let peer = peer(state, self.wire, &self.trust, Role::Server, expected);
        peer.inspect_err(|_| self.sessions.forget())
    }

    /// Explains an error of a connection.
    pub(crate) fn refusal(&self, error: &Error) -> Refusal {
        refusal(error)
    }
}

impl Server {
    /// Returns the client after a handshake. If the handshake was resumed, the client's certificates are
    /// those of the first handshake, and they are checked again. A refused client's connection must be
    /// closed.
    pub(crate) fn peer(&self, state: &CommonState) -> Result<Peer, Refusal> {
        let peer = peer(state, self.wire, &self.trust, Role::Client, None);
        peer.inspect_err(|_| self.sessions.forget())
    }

    /// Explains an error of a connection.
    pub(crate) fn refusal(&self, error: &Error) -> Refusal {
        refusal(error)
    }
}

fn peer(
    state: &CommonState,
    wire: Wire,
    trust: &Trust,
    role: Role,
    expected: Option<&Expected>,
) -> Result<Peer, Refusal> {
    // A peer without ALPN is not refused by rustls.
    if state.alpn_protocol() != Some(wire.protocol()) {
        let why = match state.alpn_protocol() {
            None => "it names no protocol (ALPN)".to_owned(),
            Some(other) => format!("`{}`", other.escape_ascii()),
        };
        return Err(Refusal::OtherProtocol { why });
    }
    trust.judge(state.peer_certificates().unwrap_or_default(), role, expected, UnixTime::now())
}

thread_local! {
    /// Why the verifier refused a peer most recently on this thread. Errors of rustls have no place for it.
    static REFUSED: RefCell<Option<Refusal>> = const { RefCell::new(None) };
}

/// Explains an error of a connection. It must be called on the thread that the error was returned to.
fn refusal(error: &Error) -> Refusal {
    match error {
        Error::InvalidCertificate(refused) => {
            let said = REFUSED.take();
            // A reason that has another alert belongs to another connection, whose error was not explained.
            let said =
                said.filter(|said| AlertDescription::from(verdict(said)) == refused.clone().into());
            said.unwrap_or_else(|| match refused {
                CertificateError::BadSignature => {
                    Refusal::Broken { why: "the peer does not have the private key".to_owned() }
                }
                other => Refusal::Unsupported { why: other.to_string() },
            })
        }
        Error::NoCertificatesPresented => Refusal::NoCertificate,
        Error::AlertReceived(alert) => refused_by_peer(*alert),
        Error::NoApplicationProtocol => Refusal::OtherProtocol {
            why: "it names no protocol that is known here (ALPN)".to_owned(),
        },
        Error::PeerIncompatible(PeerIncompatible::NoSignatureSchemesInCommon) => {
            Refusal::Unsupported {
                why: "the key is of a kind that the peer cannot check".to_owned(),
            }
        }
        Error::PeerIncompatible(_) | Error::InvalidMessage(_) => {
            Refusal::OtherProtocol { why: error.to_string() }
        }
        other => Refusal::Broken { why: other.to_string() },
    }
}

/// Explains an alert of the peer. [`rustls::quic`] leaves it to its user to send alerts, so it does not
/// report them as errors.
pub(crate) fn refused_by_peer(alert: AlertDescription) -> Refusal {
    use AlertDescription as Alert;
    Refusal::RefusedByPeer(match alert {
        Alert::BadCertificate => PeerReason::WrongName,
        Alert::UnsupportedCertificate => PeerReason::Unsupported,
        Alert::CertificateRevoked => PeerReason::Removed,
        Alert::CertificateExpired => PeerReason::Expired,
        Alert::CertificateUnknown => PeerReason::NotYetValid,
        Alert::UnknownCA => PeerReason::WrongAuthority,
        Alert::AccessDenied => PeerReason::UnknownKey,
        Alert::CertificateRequired => PeerReason::NoCertificate,
        Alert::HandshakeFailure | Alert::ProtocolVersion | Alert::NoApplicationProtocol => {
            PeerReason::OtherProtocol
        }
        other => PeerReason::Alert(other.into()),
    })
}

/// Returns the code of the alert that says a reason to the peer.
pub(super) fn alert(refusal: &Refusal) -> u8 {
    match refusal {
        Refusal::NoCertificate => AlertDescription::CertificateRequired,
        Refusal::OtherProtocol { .. } => AlertDescription::NoApplicationProtocol,
        Refusal::Broken { .. } | Refusal::RefusedByPeer(_) => AlertDescription::HandshakeFailure,
        other => verdict(other).into(),
    }
    .into()
}

/// Returns the error by which rustls sends the alert of a reason.
fn verdict(refusal: &Refusal) -> CertificateError {
    match refusal {
        Refusal::UnknownKey { .. } => CertificateError::ApplicationVerificationFailure,
        Refusal::WrongAuthority { .. } => CertificateError::UnknownIssuer,
        Refusal::Expired { .. } => CertificateError::Expired,
        Refusal::Removed { .. } => CertificateError::Revoked,
        Refusal::WrongName { .. } => CertificateError::NotValidForName,
        Refusal::NotYetValid { .. } => {
            CertificateError::Other(OtherError(Arc::new(refusal.clone())))
        }
        _ => CertificateError::InvalidPurpose,
    }
}

/// Decides by a [`Trust`] whether a peer's certificate is accepted.
struct Verifier {
    trust: Trust,
    /// For a client: which server it expects.
    expected: Option<Arc<Expected>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn verify(
        &self,
        first: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        role: Role,
        now: UnixTime,
    ) -> Result<(), Error> {
        let chain: Vec<_> = core::iter::once(first)
            .chain(others)
            .map(|cert| CertificateDer::from(&**cert))
            .collect();
        match self.trust.judge(&chain, role, self.expected.as_deref(), now) {
            Ok(_) => Ok(()),
            Err(refusal) => {
                let verdict = verdict(&refusal);
                REFUSED.set(Some(refusal));
                Err(Error::InvalidCertificate(verdict))
            }
        }
    }

    fn verify_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.algorithms)
    }
}

/// The error for TLS 1.2, which no configuration permits.
fn only_tls13<T>() -> Result<T, Error> {
    Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(end_entity, intermediates, Role::Server, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        only_tls13()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Without a hint, the client always shows its certificate.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify(end_entity, intermediates, Role::Client, now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        only_tls13()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verifier({:?}, {:?})", self.trust, self.expected)
    }
}

/// Shows the certificate that the identity has now.
#[derive(Debug)]
struct Resolver(Identity);

impl ResolvesClientCert for Resolver {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.certified())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.certified())
    }
}

/// Ends that do what honest ones do not.
#[cfg(test)]
mod dishonest {
    use super::*;

    /// Shows one certificate, whatever the identity is.
    #[derive(Debug)]
    struct Shown(Option<Arc<CertifiedKey>>);

    impl ResolvesClientCert for Shown {
        fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
            self.0.clone()
        }

        fn has_certs(&self) -> bool {
            self.0.is_some()
        }
    }

    impl ResolvesServerCert for Shown {
        fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            self.0.clone()
        }
    }

    impl Client {
        pub(in crate::secure) fn show(&mut self, cert: Arc<CertifiedKey>) {
            Arc::make_mut(&mut self.config).client_auth_cert_resolver = Arc::new(Shown(Some(cert)));
        }

        pub(in crate::secure) fn show_nothing(&mut self) {
            Arc::make_mut(&mut self.config).client_auth_cert_resolver = Arc::new(Shown(None));
        }

        pub(in crate::secure) fn without_protocol(&mut self) {
            Arc::make_mut(&mut self.config).alpn_protocols.clear();
        }

        pub(in crate::secure) fn forget(&self) {
            self.sessions.forget();
        }
    }

    impl Server {
        pub(in crate::secure) fn show(&mut self, cert: Arc<CertifiedKey>) {
            Arc::make_mut(&mut self.config).cert_resolver = Arc::new(Shown(Some(cert)));
        }
    }
}
