//! Which peers are accepted: by their key, or by the CA that signed their certificate.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::ring;
use rustls_pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::directory::KeyDirectory;
use super::error::KeyError;
use super::files::{self, Guard, Stamp};
use super::identity;
use super::key::{Fingerprint, PublicKey};
use super::name::{Expected, SCHEME, SpiffeId};
use super::peer::{Peer, Proven, Role};
use super::refusal::Refusal;
use super::trusted::{self, TrustedKey};
use crate::limits;
use crate::sync::Mutex;

/// Which peers are accepted: a list of public keys, the certificates of CAs, or both.
///
/// A peer is accepted if its key is in the list, or if one of the CAs has signed its certificate, directly or
/// through other CAs. The certificate of a key in the list is not looked at: neither its dates nor its names
/// count. A certificate that a CA signed must be valid now, for the role of the peer (client or server), and,
/// for a server, for the name that the client expects.
///
/// A clone is the same trust. One that was loaded from files reads them again when they have changed, at the
/// next handshake. [`changes`](Self::changes) and [`still_trusts`](Self::still_trusts) find connections that
/// must end. When a file was changed and a part of it is not valid, that part is ignored, and
/// [`problems`](Self::problems) says what is wrong. A file that cannot be read counts as empty.
///
/// ```
/// use peregrine::secure::{Identity, Trust, TrustedKey};
///
/// let bob = Identity::generate()?;
/// let trust = Trust::of_keys([TrustedKey::new("bob", bob.public_key(), "")?])?;
/// assert_eq!(trust.key_of("bob").unwrap().fingerprint(), bob.fingerprint());
/// let before = trust.changes();
/// trust.set_keys([])?;
/// assert!(trust.changes() > before && trust.key_of("bob").is_none());
/// # Ok::<(), peregrine::secure::KeyError>(())
/// ```
#[derive(Clone)]
pub struct Trust {
    inner: Arc<Inner>,
}

struct Inner {
    /// The list of keys, and the certificates of CAs.
    files: [Option<PathBuf>; 2],
    state: Mutex<State>,
    changes: AtomicU64,
}

struct State {
    stamps: [Option<Stamp>; 2],
    lists: Arc<Lists>,
}

/// The peers that are trusted at some time.
#[derive(Default)]
struct Lists {
    keys: HashMap<Fingerprint, TrustedKey>,
    authorities: Vec<TrustAnchor<'static>>,
    /// Keys that were in the list and are not any more.
    removed: HashSet<Fingerprint>,
    problems: Vec<String>,
}

impl Trust {
    /// Returns the trust in a list of keys.
    ///
    /// # Errors
    /// [`KeyError::Invalid`] if a key is there twice, or if there are too many
    /// ([`limits::TRUSTED_KEYS_MAX`]).
    pub fn of_keys(keys: impl IntoIterator<Item = TrustedKey>) -> Result<Self, KeyError> {
        let trust = Self::of(Lists::default(), [None, None], [None; 2]);
        trust.set_keys(keys)?;
        Ok(trust)
    }

    /// Returns the trust in CAs. The text contains their certificates in the PEM format.
    ///
    /// # Errors
    /// [`KeyError::Invalid`] if a certificate is not valid, if there is none, or if there are too many
    /// ([`limits::AUTHORITIES_MAX`]).
    pub fn of_authorities(pem: &[u8]) -> Result<Self, KeyError> {
        let authorities = anchors(pem, "the certificates of CAs")?;
        Ok(Self::of(Lists { authorities, ..Lists::default() }, [None, None], [None; 2]))
    }

    /// Returns the trust in both: the CAs of a text in the PEM format, and a list of keys.
    ///
    /// # Errors
    /// Those of [`of_keys`](Self::of_keys) and [`of_authorities`](Self::of_authorities).
    pub fn of_both(
        pem: &[u8],
        keys: impl IntoIterator<Item = TrustedKey>,
    ) -> Result<Self, KeyError> {
        let trust = Self::of_authorities(pem)?;
        trust.set_keys(keys)?;
        Ok(trust)
    }

    /// Reads a list of keys, and the certificates of CAs. A file that does not exist counts as empty, and is
    /// read when it appears.
    ///
    /// # Errors
    /// [`KeyError::Permissions`] if others than the owner can change a file; [`KeyError::Invalid`] names the
    /// first line that is not valid; [`KeyError::System`].
    pub fn load(trusted: Option<PathBuf>, authorities: Option<PathBuf>) -> Result<Self, KeyError> {
        let files = [trusted, authorities];
        let (lists, stamps, errors) = Lists::read(&files);
        match errors.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(Self::of(lists, files, stamps)),
        }
    }

    /// Reads the trust of a directory.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    pub fn from_directory(directory: &KeyDirectory) -> Result<Self, KeyError> {
        directory.trust()
    }

    fn of(lists: Lists, files: [Option<PathBuf>; 2], stamps: [Option<Stamp>; 2]) -> Self {
        let state = Mutex::new(State { stamps, lists: Arc::new(lists) });
        Self { inner: Arc::new(Inner { files, state, changes: AtomicU64::new(0) }) }
    }

    /// Replaces the list of keys of a trust that was made in memory.
    ///
    /// # Errors
    /// [`KeyError::Invalid`] if a key is there twice, if there are too many, or if the list comes from a
    /// file.
    pub fn set_keys(&self, keys: impl IntoIterator<Item = TrustedKey>) -> Result<(), KeyError> {
        let invalid = |why: String| Err(KeyError::invalid("the list of trusted keys", why));
        if let Some(file) = &self.inner.files[0] {
            return invalid(format!("it is the file {}: change the file", file.display()));
        }
        let mut table = HashMap::new();
        for key in keys {
            if table.len() == limits::TRUSTED_KEYS_MAX {
                return invalid(format!("more than {} keys", limits::TRUSTED_KEYS_MAX));
            }
            let fingerprint = key.fingerprint();
            if table.insert(fingerprint, key).is_some() {
                return invalid(format!("the key {fingerprint} is there twice"));
            }
        }
        let mut state = self.inner.state.lock();
        let authorities = state.lists.authorities.clone();
        let lists = Lists { keys: table, authorities, ..Lists::default() };
        self.replace(&mut state, lists);
        Ok(())
    }

    /// Returns a line of the list by its name. If several lines have the name, it is one of them.
    pub fn key_of(&self, name: &str) -> Option<TrustedKey> {
        self.lists().keys.values().find(|key| key.name() == name).cloned()
    }

    /// Returns how often the files or the list have changed. Connections need to be looked at again, by
    /// [`still_trusts`](Self::still_trusts), only if this number is another one than before.
    ///
    /// It looks at the files, which costs two system calls. A certificate can expire without a change.
    pub fn changes(&self) -> u64 {
        let _ = self.lists();
        self.inner.changes.load(Ordering::Acquire)
    }

    /// Returns whether a peer that was accepted would be accepted now, with the same names.
    pub fn still_trusts(&self, peer: &Peer) -> bool {
        let proven = peer.proven();
        self.judge(&proven.chain, proven.role, None, UnixTime::now()).is_ok_and(|now| now == *peer)
    }

    /// Returns what was wrong with the files when they were last read, at most
    /// [`limits::TRUST_PROBLEMS_MAX`] of it.
    pub fn problems(&self) -> Vec<String> {
        self.lists().problems.clone()
    }

    /// Returns whether the chain of certificates of a peer is accepted. The peer must prove that it has the
    /// private key of the first certificate.
    pub(super) fn judge(
        &self,
        chain: &[CertificateDer<'_>],
        role: Role,
        expected: Option<&Expected>,
        now: UnixTime,
    ) -> Result<Peer, Refusal> {
        self.lists().judge(chain, role, expected, now)
    }

    /// Returns whether this is a clone of the other trust.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    fn lists(&self) -> Arc<Lists> {
        let files = &self.inner.files;
        let mut state = self.inner.state.lock();
        let changed = |at: usize| {
            files[at].as_ref().is_some_and(|file| files::has_changed(state.stamps[at], file))
        };
        if changed(0) || changed(1) {
            let (mut lists, stamps, errors) = Lists::read(files);
            // Without a file for it, a part of the trust was made in memory, and stays.
            if files[0].is_none() {
                lists.keys = state.lists.keys.clone();
            }
            let errors = errors.into_iter().map(|error| error.to_string());
            lists.problems = errors.take(limits::TRUST_PROBLEMS_MAX).collect();
            state.stamps = stamps;
            self.replace(&mut state, lists);
        }
        Arc::clone(&state.lists)
    }

    /// Replaces the lists. The keys that are gone count as removed.
    fn replace(&self, state: &mut State, mut lists: Lists) {
        let before = &state.lists;
        let gone = before.keys.keys().chain(&before.removed).copied();
        let gone = gone.filter(|key| !lists.keys.contains_key(key));
        lists.removed = gone.take(limits::REMOVED_KEYS_MAX).collect();
        let is_same = lists.keys == before.keys
            && lists.authorities == before.authorities
            && lists.removed == before.removed;
        state.lists = Arc::new(lists);
        if !is_same {
            self.inner.changes.fetch_add(1, Ordering::Release);
        }
    }
}

impl Lists {
    /// Reads the files. A part that is not valid is left out, and is an error.
    fn read(files: &[Option<PathBuf>; 2]) -> (Self, [Option<Stamp>; 2], Vec<KeyError>) {
        let (mut lists, mut stamps, mut errors) = (Self::default(), [None; 2], Vec::new());
        let most = [limits::TRUSTED_BYTES_MAX, limits::AUTHORITIES_BYTES_MAX];
        for at in 0..2 {
            let Some(file) = &files[at] else { continue };
            // Before the file is read: a change after this is noticed.
            stamps[at] = Stamp::at(file);
            let text = match files::read(file, most[at], Guard::Public, "") {
                Ok((text, stamp)) => {
                    stamps[at] = Some(stamp);
                    text
                }
                Err(KeyError::Missing { .. }) => continue,
                Err(error) => {
                    // The cause may be elsewhere, as in the directory. So the file is read again next time.
                    stamps[at] = None;
                    errors.push(error);
                    continue;
                }
            };
            let place = file.display().to_string();
            if at == 0 {
                errors.extend(lists.read_keys(&text, &place));
            } else if !text.trim_ascii().is_empty() {
                match anchors(&text, &place) {
                    Ok(anchors) => lists.authorities = anchors,
                    Err(error) => errors.push(error),
                }
            }
        }
        (lists, stamps, errors)
    }

    fn read_keys(&mut self, text: &[u8], place: &str) -> Vec<KeyError> {
        let invalid = |(line, why)| KeyError::Invalid { place: place.to_owned(), line, why };
        let parsed = trusted::parse(text);
        let mut errors: Vec<_> = parsed.wrong.into_iter().map(invalid).collect();
        for key in parsed.keys {
            let fingerprint = key.fingerprint();
            if let Some(other) = self.keys.get(&fingerprint)
                && other.name() != key.name()
            {
                let why = format!(
                    "the key {fingerprint} has two names, `{}` and `{}`: remove one line",
                    other.name(),
                    key.name()
                );
                errors.push(KeyError::invalid(place, why));
                continue;
            }
            self.keys.insert(fingerprint, key);
        }
        errors
    }

    fn judge(
        &self,
        chain: &[CertificateDer<'_>],
        role: Role,
        expected: Option<&Expected>,
        now: UnixTime,
    ) -> Result<Peer, Refusal> {
        let unsupported = |why: String| Refusal::Unsupported { why };
        let Some((first, others)) = chain.split_first() else { return Err(Refusal::NoCertificate) };
        if chain.len() > limits::CERTIFICATES_MAX {
            return Err(unsupported(format!(
                "more than {} certificates",
                limits::CERTIFICATES_MAX
            )));
        }
        let cert = EndEntityCert::try_from(first);
        let cert = cert.map_err(|error| unsupported(error.to_string()))?;
        let key = PublicKey::of_spki(&cert.subject_public_key_info()).map_err(unsupported)?;
        let fingerprint = key.fingerprint();
        let listed = self.keys.get(&fingerprint);
        let certified = match self.authorities.is_empty() {
            true => Err(webpki::Error::UnknownIssuer),
            false => self.certify(&cert, others, role, now),
        };
        if let (None, Err(error)) = (listed, &certified) {
            if self.removed.contains(&fingerprint) {
                return Err(Refusal::Removed { key });
            }
            let is_self_issued = cert.issuer() == cert.subject();
            let by_key = self.authorities.is_empty() || (is_self_issued && !self.keys.is_empty());
            return Err(refusal(error, key, by_key));
        }
        let mut proven = Proven {
            key,
            name: listed.map(|key| key.name().to_owned()),
            is_certified: certified.is_ok(),
            spiffe: None,
            dns: Vec::new(),
            chain: chain.iter().map(|cert| cert.clone().into_owned()).collect(),
            role,
        };
        // Anybody can write any name into a certificate that no CA has signed.
        if proven.is_certified {
            proven.spiffe = spiffe_of(&cert).map_err(unsupported)?;
            proven.dns = cert.valid_dns_names().map(str::to_owned).collect();
        }
        let peer = Peer::of(proven);
        match expected {
            Some(expected) if !is_expected(&peer, &cert, expected) => {
                Err(Refusal::WrongName { expected: expected.clone(), presented: peer.names() })
            }
            _ => Ok(peer),
        }
    }

    /// Checks that a trusted CA has signed a certificate, perhaps through others, for the role, and now.
    fn certify(
        &self,
        cert: &EndEntityCert<'_>,
        others: &[CertificateDer<'_>],
        role: Role,
        now: UnixTime,
    ) -> Result<(), webpki::Error> {
        let usage = match role {
            Role::Client => KeyUsage::client_auth(),
            Role::Server => KeyUsage::server_auth(),
        };
        let algorithms = ring::default_provider().signature_verification_algorithms.all;
        let path =
            cert.verify_for_usage(algorithms, &self.authorities, others, now, usage, None, None);
        path.map(drop)
    }
}

/// Reads the certificates of CAs.
fn anchors(pem: &[u8], place: &str) -> Result<Vec<TrustAnchor<'static>>, KeyError> {
    let certificates = identity::certificates(pem, place, limits::AUTHORITIES_MAX)?;
    let anchors = (1..).zip(&certificates).map(|(number, cert)| {
        let anchor = anchor_from_trusted_cert(cert).map(|anchor| anchor.to_owned());
        anchor.map_err(|error| KeyError::invalid(place, format!("certificate {number}: {error}")))
    });
    anchors.collect()
}

/// Returns the SPIFFE ID of a certificate. One with several URIs, or with one that is not valid, is refused
/// (X.509-SVID, 2 and 5.2).
fn spiffe_of(cert: &EndEntityCert<'_>) -> Result<Option<SpiffeId>, String> {
    let mut names = cert.valid_uri_names();
    let is_spiffe = |name: &str| {
        name.get(..SCHEME.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(SCHEME))
    };
    if !cert.valid_uri_names().any(is_spiffe) {
        return Ok(None);
    }
    match (names.next(), names.next()) {
        (Some(name), None) => name.parse().map(Some).map_err(|error: KeyError| error.to_string()),
        _ => Err("a certificate with a SPIFFE ID contains several URIs".to_owned()),
    }
}

/// Returns whether a peer that is accepted is the expected one.
fn is_expected(peer: &Peer, cert: &EndEntityCert<'_>, expected: &Expected) -> bool {
    let is_listed = peer.name().is_some();
    let is_named = |name: ServerName<'_>| {
        peer.is_certified() && cert.verify_is_valid_for_subject_name(&name).is_ok()
    };
    match expected {
        Expected::Key(fingerprint) => peer.fingerprint() == *fingerprint,
        Expected::Listed(name) => peer.name() == Some(name),
        Expected::Spiffe(id) => is_listed || peer.spiffe() == Some(id),
        Expected::Ip(address) => is_listed || is_named((*address).into()),
        Expected::Dns(name) => is_listed || ServerName::try_from(name.as_str()).is_ok_and(is_named),
    }
}

/// Explains why no trusted CA vouches for a certificate.
fn refusal(error: &webpki::Error, key: PublicKey, by_key: bool) -> Refusal {
    use webpki::Error;
    let moment = |time: UnixTime| {
        let since = Duration::from_secs(time.as_secs());
        SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
    };
    match error {
        Error::CertExpired { not_after, .. } => Refusal::Expired { until: moment(*not_after) },
        Error::CertNotValidYet { not_before, .. } => {
            Refusal::NotYetValid { from: moment(*not_before) }
        }
        // A chain whose signatures do not fit is like one of another CA with the same name.
        Error::UnknownIssuer | Error::InvalidSignatureForPublicKey => match by_key {
            true => Refusal::UnknownKey { key },
            false => Refusal::WrongAuthority { key },
        },
        other => Refusal::Unsupported { why: other.to_string() },
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = Arc::clone(&self.inner.state.lock().lists);
        let (keys, authorities) = (lists.keys.len(), lists.authorities.len());
        write!(f, "Trust({keys} keys, {authorities} CAs)")
    }
}
