//! The limits `rustls-pingpong` and `rustls-handshake`: the smallest programs that encrypt a TCP connection
//! by `rustls`. Each side trusts exactly one certificate, that of the other side.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ServerSessionMemoryCache;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName,
    Error, HandshakeKind, ServerConfig, ServerConnection, SignatureScheme, StreamOwned,
};

use super::keys::{Keys, Side};
use super::{HANDSHAKE, PINGPONG};
use crate::network::far::{Far, Order};
use crate::network::{Subject, per_call, wire};
use crate::subject::{Failure, Sample};

/// The size in bytes of messages and answers.
const BYTES: usize = 64;
/// The number of sessions that the server keeps.
const SESSIONS: usize = 256;

/// What the far side does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Answers this number of messages on one connection.
    Pingpong(u32),
    /// Accepts this number of connections, one after the other, and answers one message on each.
    Handshakes(u32),
}

/// Trusts one certificate. The peer must prove that it has the key.
#[derive(Debug)]
struct One {
    trusted: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl One {
    fn new(trusted: CertificateDer<'static>) -> Arc<Self> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        Arc::new(Self { trusted, algorithms })
    }

    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        match *shown == self.trusted {
            true => Ok(()),
            false => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn signed(
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
    Err(Error::General("only TLS 1.3 is permitted".to_owned()))
}

impl ServerCertVerifier for One {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
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
        self.signed(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for One {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
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
        self.signed(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn client_config(keys: &Keys, resumed: bool) -> Result<Arc<ClientConfig>, Failure> {
    let (chain, key) = keys.own()?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(One::new(keys.other()?))
        .with_client_auth_cert(chain, key)?;
    if !resumed {
        config.resumption = Resumption::disabled();
    }
    Ok(Arc::new(config))
}

/// Returns the configuration of the server, which keeps sessions as Peregrine's server does.
fn server_config(keys: &Keys) -> Result<Arc<ServerConfig>, Failure> {
    let (chain, key) = keys.own()?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(One::new(keys.other()?))
        .with_single_cert(chain, key)?;
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    config.send_tls13_tickets = 2;
    Ok(Arc::new(config))
}

type ClientStream = StreamOwned<ClientConnection, TcpStream>;

/// Connects, makes a handshake, and exchanges one message. When the answer has arrived, the server has
/// accepted the client's certificate.
fn connect(to: SocketAddr, config: &Arc<ClientConfig>) -> Result<ClientStream, Failure> {
    let socket = TcpStream::connect(to)?;
    wire::prepared(&socket, false)?;
    let name = ServerName::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::clone(config), name)?, socket);
    trip(&mut stream)?;
    Ok(stream)
}

/// Sends a message, and receives its answer.
fn trip(stream: &mut ClientStream) -> io::Result<()> {
    stream.write_all(&[0xa5; BYTES])?;
    stream.read_exact(&mut [0; BYTES])
}

fn accept(listener: &TcpListener, config: &Arc<ServerConfig>, trips: u32) -> Result<(), Failure> {
    let (socket, _) = listener.accept()?;
    wire::prepared(&socket, false)?;
    let connection = ServerConnection::new(Arc::clone(config))?;
    let mut stream = StreamOwned::new(connection, socket);
    for _ in 0..trips {
        stream.read_exact(&mut [0; BYTES])?;
        stream.write_all(&[0x5a; BYTES])?;
    }
    Ok(())
}

/// Runs the far side. The keys are those of the server.
pub(crate) fn follow(listener: &TcpListener, work: Work) -> Result<(), Failure> {
    follow_with(&Keys::load(Side::Server)?, listener, work)
}

fn follow_with(keys: &Keys, listener: &TcpListener, work: Work) -> Result<(), Failure> {
    let config = server_config(keys)?;
    match work {
        Work::Pingpong(trips) => accept(listener, &config, trips),
        Work::Handshakes(count) => (0..count).try_for_each(|_| accept(listener, &config, 1)),
    }
}

/// Runs the near side of `rustls-pingpong`. The handshake includes the first message.
fn exchange(keys: &Keys, to: SocketAddr, warm: u32, calls: u32) -> Result<Duration, Failure> {
    let mut stream = connect(to, &client_config(keys, false)?)?;
    for _ in 1..warm {
        trip(&mut stream)?;
    }
    let start = Instant::now();
    for _ in 0..calls {
        trip(&mut stream)?;
    }
    Ok(start.elapsed())
}

/// Runs the near side of `rustls-handshake`. The first of at least two handshakes is never resumed, and not
/// measured.
fn shake_hands(
    keys: &Keys,
    to: SocketAddr,
    resumed: bool,
    warm: u32,
    calls: u32,
) -> Result<Duration, Failure> {
    let config = client_config(keys, resumed)?;
    for _ in 0..warm {
        connect(to, &config)?;
    }
    let start = Instant::now();
    for _ in 0..calls {
        let stream = connect(to, &config)?;
        let kind = stream.conn.handshake_kind();
        if (kind == Some(HandshakeKind::Resumed)) != resumed {
            return Err("a handshake was resumed, or was not, against expectation".into());
        }
    }
    Ok(start.elapsed())
}

/// The limit `rustls-pingpong`.
pub(super) struct Pingpong {
    pub(super) keys: Keys,
}

impl Subject for Pingpong {
    fn name(&self) -> &'static str {
        PINGPONG
    }

    fn run(&mut self, far: &mut Far, warm: u32, calls: u32) -> Result<Sample, Failure> {
        let warm = warm.max(1);
        let at = far.order(Order::Tls(Work::Pingpong(warm + calls)))?;
        Ok(per_call(exchange(&self.keys, at[0], warm, calls)?, calls))
    }
}

/// The limit `rustls-handshake`.
pub(super) struct Handshakes {
    /// Whether handshakes resume the session of an earlier one.
    pub(super) resumed: bool,
    pub(super) keys: Keys,
}

impl Subject for Handshakes {
    fn name(&self) -> &'static str {
        HANDSHAKE
    }

    fn run(&mut self, far: &mut Far, warm: u32, calls: u32) -> Result<Sample, Failure> {
        let warm = warm.max(1);
        let at = far.order(Order::Tls(Work::Handshakes(warm + calls)))?;
        Ok(per_call(shake_hands(&self.keys, at[0], self.resumed, warm, calls)?, calls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the far side on a thread, and `near` on this one.
    fn both(work: Work, near: impl FnOnce(&Keys, SocketAddr)) {
        let [client, server] = Keys::pair();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| follow_with(&server, &listener, work).unwrap());
            near(&client, to);
        });
    }

    #[test]
    fn messages_are_exchanged() {
        both(Work::Pingpong(5), |keys, to| {
            exchange(keys, to, 2, 3).unwrap();
        });
    }

    #[test]
    fn handshakes_are_resumed_if_and_only_if_they_should_be() {
        for resumed in [false, true] {
            both(Work::Handshakes(4), |keys, to| {
                shake_hands(keys, to, resumed, 1, 3).unwrap();
            });
        }
    }

    #[test]
    fn another_certificate_is_refused() {
        let ([client, _], [_, server]) = (Keys::pair(), Keys::pair());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            let far = scope.spawn(|| follow_with(&server, &listener, Work::Handshakes(1)).is_err());
            assert!(shake_hands(&client, to, false, 0, 1).is_err());
            assert!(far.join().unwrap());
        });
    }
}
