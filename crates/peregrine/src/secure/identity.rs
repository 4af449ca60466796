//! The identity of this program: a private key, and a certificate for it.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, date_time_ymd,
};
use rustls::sign::CertifiedKey;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use webpki::EndEntityCert;
use zeroize::{Zeroize as _, Zeroizing};

use super::base64::{self, Padding};
use super::directory::KeyDirectory;
use super::error::KeyError;
use super::files::{self, Guard, Overwrite, Stamp};
use super::key::{Fingerprint, PublicKey};
use super::key_log::KeyLogFile;
use super::name::{SCHEME, SpiffeId};
use super::signing::{NoKey, Secret};
use crate::limits;
use crate::sync::Mutex;

/// The identity of this program: a private key, and a certificate for its public key.
///
/// A clone is the same identity. One that was loaded from files reads them again when they have changed: the
/// next connection uses the new certificate. If the new files cannot be used, the earlier ones stay in use,
/// and [`problem`](Self::problem) says why.
///
/// The private key is in no text that this type writes. Its bytes are overwritten when it is dropped, as far
/// as they are in the memory of this library. Core dumps leave out a key of Ed25519 or ECDSA.
///
/// ```
/// use peregrine::secure::{Identity, KeyError, Overwrite};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let (cert, key) = (dir.path().join("identity.pem"), dir.path().join("identity.key"));
/// let identity = Identity::generate()?;
/// identity.save(&cert, &key, Overwrite::No)?;
/// assert_eq!(Identity::load(&cert, &key)?.fingerprint(), identity.fingerprint());
/// // A key is never overwritten by accident.
/// let error = identity.save(&cert, &key, Overwrite::No).unwrap_err();
/// assert!(matches!(error, KeyError::Exists { .. }));
/// # Ok::<(), KeyError>(())
/// ```
#[derive(Clone)]
pub struct Identity {
    inner: Arc<Inner>,
}

struct Inner {
    /// The files of the certificate and of the key.
    files: Option<[PathBuf; 2]>,
    state: Mutex<State>,
    changes: AtomicU64,
    /// Where the keys of connections are written.
    key_log: Mutex<Option<Arc<KeyLogFile>>>,
}

struct State {
    stamps: [Option<Stamp>; 2],
    current: Arc<Current>,
    problem: Option<String>,
}

/// A certificate and its key, at some time.
struct Current {
    certified: Arc<CertifiedKey>,
    public: PublicKey,
    secret: Secret,
}

const CERTIFICATE: &str = "`peregrine keys new` makes a certificate";
const KEY: &str = "`peregrine keys new` makes a private key";

impl Identity {
    /// Makes a new key (Ed25519), with a certificate that the key itself has signed. Such a certificate has
    /// no name: peers that trust the key give it one.
    ///
    /// # Errors
    /// [`KeyError::System`] if the operating system gives no random numbers.
    pub fn generate() -> Result<Self, KeyError> {
        let failed = |error: rcgen::Error| KeyError::System {
            what: "cannot generate a key".to_owned(),
            source: std::io::Error::other(error.to_string()),
        };
        let mut pair = KeyPair::generate_for(&PKCS_ED25519).map_err(failed)?;
        let secret = Secret::pkcs8(&version_1(&Zeroizing::new(pair.serialize_der())));
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, "Peregrine");
        // Removing the key from the lists of its peers ends its use, not a date (RFC 5280, 4.1.2.5).
        parameters.not_before = date_time_ymd(2020, 1, 1);
        parameters.not_after = date_time_ymd(9999, 12, 31);
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let signed = parameters.self_signed(&pair);
        pair.zeroize();
        let chain = vec![signed.map_err(failed)?.der().clone()];
        let places = ["the new certificate", "the new key"];
        let secret = secret.map_err(|why| why.at(places[1], &[]))?;
        Ok(Self::of(Current::of(chain, secret, places)?, None, [None; 2]))
    }

    /// Reads a certificate and its private key from files in the PEM format. After the certificate may come
    /// those of CAs that lead to a root. The key is in PKCS #8, PKCS #1 or SEC1, and not encrypted.
    ///
    /// # Errors
    /// [`KeyError::Missing`]; [`KeyError::Permissions`] if others than the owner can read the key or change a
    /// file; [`KeyError::Invalid`], also if the key is not that of the certificate; [`KeyError::System`].
    pub fn load(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, KeyError> {
        let files = [cert.into(), key.into()];
        let (current, stamps) = Current::read(&files)?;
        Ok(Self::of(current, Some(files), stamps))
    }

    /// Reads a certificate and its private key from texts in the PEM format, as [`load`](Self::load) does.
    ///
    /// # Errors
    /// [`KeyError::Invalid`], also if the certificates have more than
    /// [`limits::CHAIN_BYTES_MAX`] bytes together.
    pub fn from_pem(cert: &[u8], key: &[u8]) -> Result<Self, KeyError> {
        let current = Current::of_pem(cert, key, ["the certificate", "the private key"])?;
        Ok(Self::of(current, None, [None; 2]))
    }

    /// Reads the identity of a directory.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    pub fn from_directory(directory: &KeyDirectory) -> Result<Self, KeyError> {
        directory.identity()
    }

    fn of(current: Current, files: Option<[PathBuf; 2]>, stamps: [Option<Stamp>; 2]) -> Self {
        let state = State { stamps, current: Arc::new(current), problem: None };
        let (state, changes) = (Mutex::new(state), AtomicU64::new(0));
        let key_log = Mutex::new(None);
        Self { inner: Arc::new(Inner { files, state, changes, key_log }) }
    }

    /// Writes the certificate and the private key to files. Only the owner can read the file of the key.
    ///
    /// # Errors
    /// [`KeyError::Exists`] if one of the files exists and must not be replaced, and then neither is changed;
    /// [`KeyError::System`].
    pub fn save(
        &self,
        cert: impl AsRef<Path>,
        key: impl AsRef<Path>,
        overwrite: Overwrite,
    ) -> Result<(), KeyError> {
        let (cert, key, current) = (cert.as_ref(), key.as_ref(), self.current());
        if overwrite == Overwrite::No && cert.symlink_metadata().is_ok() {
            return Err(KeyError::Exists { path: cert.to_owned() });
        }
        // The key first: a certificate without its key could not be used, and its key not be found.
        files::write(key, current.secret_pem().as_bytes(), Guard::Secret, overwrite)?;
        files::write(cert, current.certificate_pem().as_bytes(), Guard::Public, overwrite)
    }

    /// Returns the public key.
    pub fn public_key(&self) -> PublicKey {
        self.current().public.clone()
    }

    /// Returns the fingerprint of the public key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.current().public.fingerprint()
    }

    /// Returns the certificate, and those of CAs that were loaded with it, in the PEM format.
    pub fn certificate_pem(&self) -> String {
        self.current().certificate_pem()
    }

    /// Returns the SPIFFE ID that the certificate contains. A peer believes it if it trusts the CA that
    /// signed the certificate.
    pub fn spiffe(&self) -> Option<SpiffeId> {
        let current = self.current();
        let cert = EndEntityCert::try_from(current.certified.cert.first()?).ok()?;
        cert.valid_uri_names().find(|name| name.starts_with(SCHEME))?.parse().ok()
    }

    /// Returns the DNS names that the certificate contains.
    pub fn dns_names(&self) -> Vec<String> {
        let current = self.current();
        let cert = current.certified.cert.first().and_then(|der| EndEntityCert::try_from(der).ok());
        cert.iter().flat_map(|cert| cert.valid_dns_names()).map(str::to_owned).collect()
    }

    /// Writes the keys of all further connections of this identity to a file, so that Wireshark can decrypt
    /// captures of their calls. **Anyone with this file can read these calls**, and can forge calls of
    /// connections that still exist. It is for debugging. Without this function, no key is written to a file.
    ///
    /// The file has the NSS key log format. It is made if it does not exist, readable only by its owner, and
    /// lines are appended. It grows by four lines of about 150 bytes with each handshake, without a bound. The
    /// private key is not in it. Another call replaces the file for further connections, also of clones. One of
    /// the two sides of a connection suffices to decrypt it.
    ///
    /// If the file cannot be written later, for example because the disk is full, calls go on without it, and
    /// [`problem`](Self::problem) says why.
    ///
    /// # Errors
    /// [`KeyError::Permissions`] if others than the owner can read the file or replace it;
    /// [`KeyError::Invalid`] if it is no regular file; [`KeyError::System`] if it cannot be opened.
    ///
    /// ```
    /// use peregrine::secure::Identity;
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("keys.log");
    /// let identity = Identity::generate()?;
    /// identity.log_keys_to(&path)?;
    /// // There was no connection yet.
    /// assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    /// # Ok::<(), peregrine::secure::KeyError>(())
    /// ```
    pub fn log_keys_to(&self, path: impl AsRef<Path>) -> Result<(), KeyError> {
        let file = Arc::new(KeyLogFile::open(path.as_ref())?);
        *self.inner.key_log.lock() = Some(file);
        Ok(())
    }

    /// Returns where the keys of connections are written, if they are.
    pub(super) fn key_log(&self) -> Option<Arc<KeyLogFile>> {
        self.inner.key_log.lock().clone()
    }

    /// Returns why the files have changed but are not used, or why keys are not written to a file any more
    /// ([`log_keys_to`](Self::log_keys_to)), if so.
    pub fn problem(&self) -> Option<String> {
        self.refresh();
        let problem = self.inner.state.lock().problem.clone();
        problem.or_else(|| self.key_log()?.problem().map(str::to_owned))
    }

    /// Returns the certificate and the key for a handshake.
    pub(super) fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.current().certified)
    }

    /// Returns whether this is a clone of the other identity.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Returns how often the identity has changed.
    pub(super) fn changes(&self) -> u64 {
        self.refresh();
        self.inner.changes.load(Ordering::Acquire)
    }

    fn current(&self) -> Arc<Current> {
        self.refresh();
        Arc::clone(&self.inner.state.lock().current)
    }

    /// Reads the files again if they have changed.
    fn refresh(&self) {
        let Some(files) = &self.inner.files else { return };
        let mut state = self.inner.state.lock();
        let changed = |at: usize| files::has_changed(state.stamps[at], &files[at]);
        if !changed(0) && !changed(1) {
            return;
        }
        match Current::read(files) {
            Ok((current, stamps)) => {
                state.stamps = stamps;
                state.problem = None;
                if current.certified.cert != state.current.certified.cert {
                    state.current = Arc::new(current);
                    self.inner.changes.fetch_add(1, Ordering::Release);
                }
            }
            // The stamps stay as they are, so the files are read again: perhaps only one of them was
            // replaced.
            Err(error) => state.problem = Some(error.to_string()),
        }
    }
}

impl Current {
    fn read(files: &[PathBuf; 2]) -> Result<(Self, [Option<Stamp>; 2]), KeyError> {
        let most = limits::IDENTITY_BYTES_MAX;
        let (cert, cert_stamp) = files::read(&files[0], most, Guard::Public, CERTIFICATE)?;
        let (key, key_stamp) = files::read(&files[1], most, Guard::Secret, KEY)?;
        let shown = [0, 1].map(|at| files[at].display().to_string());
        let current = Self::of_pem(&cert, &key, [&shown[0], &shown[1]])?;
        Ok((current, [Some(cert_stamp), Some(key_stamp)]))
    }

    fn of_pem(cert: &[u8], key: &[u8], places: [&str; 2]) -> Result<Self, KeyError> {
        let chain = certificates(cert, places[0], limits::CERTIFICATES_MAX)?;
        let bytes: usize = chain.iter().map(|cert| cert.len()).sum();
        if bytes > limits::CHAIN_BYTES_MAX {
            let most = limits::CHAIN_BYTES_MAX;
            let why = format!(
                "the certificates have {bytes} bytes, and a handshake has room for {most}: leave out the \
                 root and names that are not needed"
            );
            return Err(KeyError::invalid(places[0], why));
        }
        let secret = Secret::of_pem(key).map_err(|why| why.at(places[1], key))?;
        let current = Self::of(chain, secret, places)?;
        match current.certified.keys_match() {
            Ok(()) => Ok(current),
            Err(_) => {
                let why = format!("the certificate in {} is for another key", places[0]);
                Err(KeyError::invalid(places[1], why))
            }
        }
    }

    fn of(
        chain: Vec<CertificateDer<'static>>,
        secret: Secret,
        [place, key_place]: [&str; 2],
    ) -> Result<Self, KeyError> {
        let first = chain.first().ok_or_else(|| KeyError::invalid(place, "no certificate"))?;
        let cert = EndEntityCert::try_from(first);
        let cert =
            cert.map_err(|error| KeyError::invalid(place, format!("no certificate: {error}")))?;
        let public = PublicKey::of_spki(&cert.subject_public_key_info());
        let public = public.map_err(|why| KeyError::invalid(place, why))?;
        let key = secret.signing_key().ok_or_else(|| {
            let why = "the private key is damaged, or of a kind that is not supported";
            KeyError::invalid(key_place, why)
        })?;
        let certified = Arc::new(CertifiedKey::new(chain, key));
        Ok(Self { certified, public, secret })
    }

    fn certificate_pem(&self) -> String {
        let all = self.certified.cert.iter().map(|cert| pem("CERTIFICATE", cert));
        all.map(|text| text.to_string()).collect()
    }

    fn secret_pem(&self) -> Zeroizing<String> {
        self.secret.to_pem()
    }
}

impl NoKey {
    /// Returns the error for a text without a usable key.
    fn at(self, place: &str, text: &[u8]) -> KeyError {
        let why = match self {
            Self::Missing if is_encrypted(text) => {
                "the key is encrypted: write it without a passphrase, with permissions 0600"
            }
            Self::Missing => "it contains no private key in PEM",
            Self::Invalid => "it is not valid PEM",
            Self::NoMemory => "there is no memory for the private key",
        };
        KeyError::invalid(place, why)
    }
}

/// What is before the 32 bytes of a key of Ed25519 in version 1 of PKCS #8 (RFC 8410).
const ED25519: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// Returns a new key in version 1 of PKCS #8. ring makes version 2 (RFC 5958), which also contains the public
/// key, and which OpenSSL 3.0 cannot read.
fn version_1(key: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut plain = Vec::with_capacity(key.len().max(ED25519.len() + 32));
    // Both versions differ in the length and the number of the version, which are before the rest.
    match key.get(5..48) {
        Some(rest) if rest[..11] == ED25519[5..] => {
            plain.extend_from_slice(&ED25519[..5]);
            plain.extend_from_slice(rest);
        }
        _ => plain.extend_from_slice(key),
    }
    Zeroizing::new(plain)
}

/// Reads the certificates of a text in the PEM format. There is at least one, and at most `most`.
pub(super) fn certificates(
    text: &[u8],
    place: &str,
    most: usize,
) -> Result<Vec<CertificateDer<'static>>, KeyError> {
    let mut all = Vec::new();
    for cert in CertificateDer::pem_slice_iter(text) {
        let cert = cert.map_err(|_| KeyError::invalid(place, "it is not valid PEM"))?;
        if all.len() == most {
            return Err(KeyError::invalid(place, format!("more than {most} certificates")));
        }
        all.push(cert);
    }
    match all.is_empty() {
        true => Err(KeyError::invalid(place, "it contains no certificate in PEM")),
        false => Ok(all),
    }
}

fn is_encrypted(text: &[u8]) -> bool {
    text.windows(9).any(|part| part == b"ENCRYPTED")
}

/// Returns bytes in the PEM format (RFC 7468). The text takes its memory at once, so that it leaves no copy.
pub(super) fn pem(label: &str, der: &[u8]) -> Zeroizing<String> {
    let digits = base64::encoded_len(der.len());
    let mut text = String::with_capacity(digits + digits / 64 + 2 * label.len() + 40);
    for part in ["-----BEGIN ", label, "-----\n"] {
        text.push_str(part);
    }
    for line in der.chunks(48) {
        base64::encode_into(line, Padding::Filled, &mut text);
        text.push('\n');
    }
    for part in ["-----END ", label, "-----\n"] {
        text.push_str(part);
    }
    Zeroizing::new(text)
}

impl fmt::Debug for Identity {
    /// Writes the fingerprint, and never the private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.inner.state.lock();
        write!(f, "Identity({})", state.current.public.fingerprint())
    }
}
