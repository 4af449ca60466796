//! TLS by the room `secure`.

use core::hash::{Hash, Hasher};
use core::sync::atomic::{AtomicU64, Ordering};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Instant;

use crate::address::Place;
use crate::call::Identified;
use crate::device::tcp::Stream;
use crate::error::{CallError, Kind, Phase};
use crate::limits;
use crate::protocol::stream::{HEADER_BYTES, Header, MessageKind, Refused, Unreadable};
use crate::secure::stream::Sealed;
use crate::secure::tls::{self, Client, Server, Wire};
use crate::secure::{Expected, Identity, KeyError, Peer, Refusal, Trust};
use crate::sync::Mutex;

/// What a server calls for each client that it refuses.
pub(crate) type OnRefused = dyn Fn(SocketAddr, &Refusal) + Send + Sync;

/// The advice if the two sides do not accept each other.
const NO_TRUST: &str = "compare the keys with `peregrine keys show` on both sides: each side must trust the key \
     of the other, or a CA that signed it";
/// The advice if the server does not speak TLS.
const NO_TLS: &str = "let the server listen with an identity, or bind without `BindOptions::secure` where the \
     network is trusted";
/// The text for a client without TLS at a server that requires it.
pub(crate) const WANTS_TLS: &str =
    "the server accepts only clients with TLS and a key that it trusts";

/// How a client secures its bindings.
#[derive(Clone, Debug)]
pub(crate) struct ClientSecurity {
    identity: Identity,
    trust: Trust,
    expected: Option<Expected>,
    /// The clients of TLS, one for each expected server and wire. They know which handshakes can be resumed.
    clients: Arc<Mutex<Vec<(Expected, Wire, Client)>>>,
}

/// What bindings must have in common to share a connection.
#[derive(Clone, Debug)]
pub(crate) struct SecurityKey {
    identity: Identity,
    trust: Trust,
    expected: Expected,
}

impl PartialEq for SecurityKey {
    fn eq(&self, other: &Self) -> bool {
        self.identity.is(&other.identity)
            && self.trust.is(&other.trust)
            && self.expected == other.expected
    }
}

impl Eq for SecurityKey {}

impl Hash for SecurityKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expected.hash(state);
    }
}

impl ClientSecurity {
    pub(crate) fn new(identity: Identity, trust: Trust) -> Self {
        Self { identity, trust, expected: None, clients: Arc::default() }
    }

    /// Expects this server, at whatever address it is.
    pub(crate) fn expect(&mut self, expected: Expected) {
        self.expected = Some(expected);
    }

    /// Returns the server that is expected at a place: by default, one with the name of the host.
    fn expected(&self, place: &Place) -> Result<Expected, KeyError> {
        match &self.expected {
            Some(expected) => Ok(expected.clone()),
            None => match place.host().parse::<IpAddr>() {
                Ok(address) => Ok(Expected::Ip(address)),
                Err(_) => place.host().parse(),
            },
        }
    }

    /// Returns what bindings to a place must have in common to share a connection.
    pub(crate) fn key(&self, place: &Place) -> SecurityKey {
        // A place without a valid name of a host has no connection: `connect` fails.
        let expected = self.expected(place).unwrap_or(Expected::Dns(String::new()));
        SecurityKey { identity: self.identity.clone(), trust: self.trust.clone(), expected }
    }

    fn client(&self, expected: Expected, wire: Wire) -> Client {
        let known = |clients: &[(Expected, Wire, Client)]| {
            let found = clients.iter().find(|(one, on, _)| *one == expected && *on == wire);
            found.map(|(.., client)| client.clone())
        };
        if let Some(client) = known(&self.clients.lock()) {
            return client;
        }
        // Making a client takes locks of the identity and of the trust.
        let new = tls::client(&self.identity, &self.trust, expected.clone(), wire);
        let mut clients = self.clients.lock();
        if let Some(client) = known(&clients) {
            return client;
        }
        if clients.len() == limits::TLS_SERVERS_MAX {
            clients.remove(0);
        }
        clients.push((expected, wire, new.clone()));
        new
    }

    /// Returns the client of TLS for the server that is expected at a place.
    ///
    /// # Errors
    /// If no server can be expected there, because the host has no valid name.
    pub(crate) fn client_at(&self, place: &Place, wire: Wire) -> Result<Client, CallError> {
        let expected = self.expected(place).map_err(|error| {
            let text = format!("no server can be expected at `{}`", place.host());
            CallError::not_executed(Kind::BadName, Phase::Bind, text).because(error)
        })?;
        Ok(self.client(expected, wire))
    }

    /// Returns a server that this client has accepted.
    pub(crate) fn accepted(&self, server: &Peer) -> AcceptedServer {
        let (trust, peer) = (self.trust.clone(), server.clone());
        AcceptedServer { trust, peer, seen: AtomicU64::new(u64::MAX) }
    }

    /// Makes the handshake on a new connection. Returns the encrypted stream, and the server.
    ///
    /// # Errors
    /// If one side refuses the other, or the server does not use TLS.
    pub(crate) fn connect(
        &self,
        mut stream: Stream,
        place: &Place,
        until: Instant,
    ) -> Result<(Stream, AcceptedServer), CallError> {
        let client = self.client_at(place, Wire::Stream)?;
        let shaking = "the handshake of TLS";
        let failed = |error| explained(shaking, error);
        let address = stream.peer().map_err(failed)?.ip();
        let sealed = Sealed::client(&client, address, plain_server);
        let sealed = Arc::new(sealed.map_err(|refusal| denied(shaking, refusal))?);
        loop {
            let what = match sealed.shake_hands(stream.as_fd()) {
                Ok(None) => break,
                Ok(Some(what)) => what,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if is_end(&error) => {
                    let why = "it ended the connection when TLS began: it does not use TLS, or admits no \
                               further connection";
                    return Err(denied(shaking, Refusal::OtherProtocol { why: why.to_owned() }));
                }
                Err(error) => return Err(failed(error)),
            };
            let ready = stream.wait(what, Some(until)).map_err(failed)?;
            if !ready.readable && !ready.writable {
                let text = "the server does not answer: the handshake of TLS took too long";
                let error = CallError::not_executed(Kind::TimedOut, Phase::Bind, text);
                return Err(error.with_advice(NO_TLS));
            }
        }
        let server = self.accepted(sealed.peer().expect("the handshake has ended"));
        stream.set_seal(sealed);
        Ok((stream, server))
    }
}

/// A server that a client has accepted.
#[derive(Debug)]
pub(crate) struct AcceptedServer {
    trust: Trust,
    peer: Peer,
    /// The number of changes of the trust at the last look.
    seen: AtomicU64,
}

impl AcceptedServer {
    /// Says how calls are encrypted, and who the server is.
    pub(crate) fn in_words(&self) -> String {
        let key = self.peer.fingerprint().to_string();
        let name = Some(self.peer.to_string()).filter(|name| *name != key);
        let name = name.map(|name| format!(" of `{name}`")).unwrap_or_default();
        format!("encrypted by TLS 1.3 with the key {key}{name}")
    }

    /// Returns whether the client would still accept the server. It judges the server only after a change,
    /// and at the first look: the trust may have changed after the handshake.
    pub(crate) fn is_still_trusted(&self) -> bool {
        // The changes are counted before the server is judged, so no change is missed.
        let changes = self.trust.changes();
        self.seen.swap(changes, Ordering::Relaxed) == changes || self.trust.still_trusts(&self.peer)
    }
}

/// Returns whether an error means that the peer has ended the connection.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error.kind(), Kind::UnexpectedEof | Kind::ConnectionReset | Kind::BrokenPipe)
}

/// Returns the error for a connection that failed while its client bound.
pub(crate) fn explained(what: &str, error: io::Error) -> CallError {
    match error.downcast::<Refusal>() {
        Ok(refusal) => denied(what, refusal),
        Err(error) => CallError::system(Phase::Bind, what.to_owned(), error),
    }
}

pub(crate) fn denied(what: &str, refusal: Refusal) -> CallError {
    let (kind, advice) = match refusal {
        Refusal::OtherProtocol { .. } => (Kind::ProtocolMismatch, NO_TLS),
        Refusal::Broken { .. } => (Kind::ProtocolMismatch, NO_TRUST),
        _ => (Kind::Denied, NO_TRUST),
    };
    CallError::not_executed(kind, Phase::Bind, what).because(refusal).with_advice(advice)
}

/// Returns the header of a message of Peregrine, if the first bytes of a connection are one.
fn plain_header(bytes: &[u8]) -> Option<Header> {
    match Header::from_bytes(bytes.first_chunk::<HEADER_BYTES>()?) {
        Ok(header) => Some(header),
        Err(Unreadable::Version(_) | Unreadable::Kind(_)) => {
            Some(Header::new(MessageKind::Bind, 0))
        }
        Err(Unreadable::Foreign) => None,
    }
}

/// Recognizes a client that does not use TLS.
fn plain_client(bytes: &[u8]) -> Option<String> {
    plain_header(bytes).map(|_| "the client does not use TLS".to_owned())
}

/// Recognizes a server that answers without TLS. What it says is not proven.
fn plain_server(bytes: &[u8]) -> Option<String> {
    let header = plain_header(bytes)?;
    let end = HEADER_BYTES + (header.body as usize).min(limits::HANDSHAKE_BYTES_MAX);
    let body = bytes.get(HEADER_BYTES..end.min(bytes.len()))?;
    let said = Refused::from_bytes(body).filter(|_| header.kind == MessageKind::Refused);
    Some(match said {
        Some(said) => format!("it answers without TLS, `{}`", said.text.escape_debug()),
        None => "it answers without TLS".to_owned(),
    })
}

/// Counts and reports the clients that a server refuses.
#[derive(Default)]
pub(crate) struct Refusals {
    count: AtomicU64,
    hook: Mutex<Option<Arc<OnRefused>>>,
}

impl Refusals {
    /// Sets what is called for each client that is refused.
    pub(crate) fn set_hook(&self, hook: Arc<OnRefused>) {
        *self.hook.lock() = Some(hook);
    }

    /// Returns how many clients were refused.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn report(&self, from: SocketAddr, refusal: &Refusal) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let hook = self.hook.lock().clone();
        if let Some(hook) = hook {
            hook(from, refusal);
        }
    }
}

/// How a server secures the connections of one endpoint.
#[derive(Clone)]
pub(crate) struct ServerSecurity(Arc<Inner>);

struct Inner {
    server: Server,
    packets: Server,
    trust: Trust,
    refusals: Arc<Refusals>,
}

/// TLS on one connection of a server.
pub(crate) struct SecureConnection {
    sealed: Arc<Sealed>,
    security: Arc<Inner>,
}

impl ServerSecurity {
    /// Returns the security of an endpoint. `refusals` learns of the clients that are refused.
    pub(crate) fn new(identity: &Identity, trust: &Trust, refusals: &Arc<Refusals>) -> Self {
        let server = tls::server(identity, trust, Wire::Stream);
        let packets = tls::server(identity, trust, Wire::Exchange);
        let (trust, refusals) = (trust.clone(), Arc::clone(refusals));
        Self(Arc::new(Inner { server, packets, trust, refusals }))
    }

    /// Encrypts a connection that was accepted. The thread that receives from it makes the handshake.
    pub(crate) fn accept(&self, stream: &mut Stream) -> io::Result<SecureConnection> {
        let body = Refused { kind: Kind::Denied as u32, text: WANTS_TLS.to_owned() };
        let body = body.to_bytes();
        let header = Header::new(MessageKind::Refused, 0);
        let header = Header { body: body.len() as u32, ..header };
        let mut answer = header.to_bytes().to_vec();
        answer.extend_from_slice(&body);
        answer.resize(HEADER_BYTES + header.rest(), 0);
        let sealed = Sealed::server(&self.0.server, plain_client, answer.into());
        let sealed = Arc::new(sealed.map_err(io::Error::other)?);
        stream.set_seal(Arc::<Sealed>::clone(&sealed));
        Ok(SecureConnection { sealed, security: Arc::clone(&self.0) })
    }

    /// Counts and reports a client that was refused, or that has refused the server.
    pub(crate) fn note_refused(&self, from: SocketAddr, refusal: &Refusal) {
        self.0.refusals.report(from, refusal);
    }

    /// Returns the server's side of TLS for handshakes over packets.
    pub(crate) fn packets(&self) -> &Server {
        &self.0.packets
    }

    /// Returns whether a client would still be accepted.
    pub(crate) fn still_trusts_peer(&self, peer: &Peer) -> bool {
        self.0.trust.still_trusts(peer)
    }

    /// Returns how often the trusted peers have changed.
    pub(crate) fn changes(&self) -> u64 {
        self.0.trust.changes()
    }
}

impl SecureConnection {
    /// Returns the client. `None` until the handshake has ended.
    pub(crate) fn peer(&self) -> Option<Identified> {
        self.sealed.peer().cloned()
    }

    /// Counts and reports the client at `from`, if the connection has ended because it was refused.
    pub(crate) fn ended(&self, from: SocketAddr) {
        if let Some(refusal) = self.sealed.refusal() {
            self.security.refusals.report(from, &refusal);
        }
    }

    /// Returns whether the client would still be accepted, or has not been judged yet.
    pub(crate) fn is_trusted(&self) -> bool {
        self.sealed.peer().is_none_or(|peer| self.security.trust.still_trusts(peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_share_connections_only_with_the_same_security() {
        let [one, other] = [(); 2].map(|()| Identity::generate().unwrap());
        let trust = Trust::of_keys([]).unwrap();
        let place: Place = "localhost:7000".parse().unwrap();
        let key = |identity: &Identity, trust: &Trust| {
            ClientSecurity::new(identity.clone(), trust.clone()).key(&place)
        };
        assert_eq!(key(&one, &trust), key(&one, &trust));
        assert_ne!(key(&one, &trust), key(&other, &trust));
        assert_ne!(key(&one, &trust), key(&one, &Trust::of_keys([]).unwrap()));
        let mut expects = ClientSecurity::new(one.clone(), trust.clone());
        expects.expect("key:bob".parse().unwrap());
        assert_ne!(expects.key(&place), key(&one, &trust));
    }

    #[test]
    fn hello_of_tls_is_not_mistaken_for_a_message() {
        let hello = [22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3, 7];
        let mut bytes = [9; HEADER_BYTES];
        bytes[..hello.len()].copy_from_slice(&hello);
        assert_eq!((plain_client(&bytes), plain_client(&hello)), (None, None));
        let bind = Header::new(MessageKind::Bind, 1).to_bytes();
        assert!(plain_client(&bind).is_some() && plain_client(&bind[..31]).is_none());
        let body = Refused { kind: Kind::Exhausted as u32, text: "no room".to_owned() }.to_bytes();
        let header = Header::new(MessageKind::Refused, 0);
        let header = Header { body: body.len() as u32, ..header };
        let answer = [&header.to_bytes()[..], &body].concat();
        assert_eq!(plain_server(&answer).as_deref(), Some("it answers without TLS, `no room`"));
        assert_eq!(plain_server(&bind).as_deref(), Some("it answers without TLS"));
    }
}
