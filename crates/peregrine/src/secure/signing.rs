//! The private key of an identity: as it was read, and as rustls signs with it. Both are in pages that core
//! dumps leave out.

use core::fmt;
use std::sync::Arc;

use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _,
};
use rustls::sign::{Signer, SigningKey, public_key_to_spki};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};
use rustls_pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer, alg_id};
use zeroize::Zeroizing;

use super::base64::{self, Padding};
use crate::sys::Hidden;

/// The largest private key in bytes. A key of RSA with 8,192 bits has 4,700.
const SECRET_BYTES_MAX: usize = 8 << 10;

/// A private key as it was read: its form, and the bytes of this form (DER).
pub(super) struct Secret(Hidden<Der>);

struct Der {
    form: Form,
    length: usize,
    bytes: [u8; SECRET_BYTES_MAX],
}

/// The form of a private key in a file, by the label of its text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Pkcs8,
    Pkcs1,
    Sec1,
}

impl Form {
    const ALL: [Self; 3] = [Self::Pkcs8, Self::Pkcs1, Self::Sec1];

    const fn label(self) -> &'static str {
        match self {
            Self::Pkcs8 => "PRIVATE KEY",
            Self::Pkcs1 => "RSA PRIVATE KEY",
            Self::Sec1 => "EC PRIVATE KEY",
        }
    }
}

/// Why a text in the PEM format contains no private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoKey {
    /// There is no private key.
    Missing,
    /// The text of the key is not valid.
    Invalid,
    /// There is no memory.
    NoMemory,
}

impl Secret {
    /// Takes a private key in PKCS #8.
    pub(super) fn pkcs8(bytes: &[u8]) -> Result<Self, NoKey> {
        Self::of(Form::Pkcs8, bytes)
    }

    fn of(form: Form, bytes: &[u8]) -> Result<Self, NoKey> {
        let hidden = Hidden::new(|| {
            let mut der = Der { form, length: bytes.len(), bytes: [0; _] };
            der.bytes.get_mut(..bytes.len()).ok_or(NoKey::Invalid)?.copy_from_slice(bytes);
            Ok(der)
        });
        hidden.map_err(|_| NoKey::NoMemory)?.map(Self)
    }

    /// Reads the first private key of a text in the PEM format (RFC 7468). No copy of the key is left in
    /// memory.
    pub(super) fn of_pem(text: &[u8]) -> Result<Self, NoKey> {
        let begins = |form: Form| {
            let begin = format!("-----BEGIN {}-----", form.label());
            let at = text.windows(begin.len()).position(|part| part == begin.as_bytes())?;
            Some((at, at + begin.len(), form))
        };
        let first = Form::ALL.into_iter().filter_map(begins).min_by_key(|(at, ..)| *at);
        let (_, from, form) = first.ok_or(NoKey::Missing)?;
        let end = format!("-----END {}-----", form.label());
        let rest = &text[from..];
        let length = rest.windows(end.len()).position(|part| part == end.as_bytes());
        let rest = &rest[..length.ok_or(NoKey::Invalid)?];
        let mut digits = Zeroizing::new(String::with_capacity(rest.len()));
        for byte in rest.iter().filter(|byte| !byte.is_ascii_whitespace()) {
            // A byte that is no ASCII would take more memory than was reserved.
            match byte.is_ascii() {
                true => digits.push(char::from(*byte)),
                false => return Err(NoKey::Invalid),
            }
        }
        let bytes = base64::decode(&digits, Padding::Filled).map(Zeroizing::new);
        Self::of(form, &bytes.ok_or(NoKey::Invalid)?)
    }

    fn bytes(&self) -> &[u8] {
        &self.0.bytes[..self.0.length]
    }

    /// Returns the text in the PEM format.
    pub(super) fn to_pem(&self) -> Zeroizing<String> {
        super::identity::pem(self.0.form.label(), self.bytes())
    }

    /// Returns the key by which rustls signs. `None`: the key is damaged, or of a kind that is not supported.
    pub(super) fn signing_key(&self) -> Option<Arc<dyn SigningKey>> {
        if self.0.form == Form::Pkcs8
            && let Some(key) = HiddenKey::of_pkcs8(self.bytes())
        {
            return Some(Arc::new(key));
        }
        let der = match self.0.form {
            Form::Pkcs8 => PrivateKeyDer::Pkcs8(self.bytes().into()),
            Form::Pkcs1 => PrivateKeyDer::Pkcs1(self.bytes().into()),
            Form::Sec1 => PrivateKeyDer::Sec1(self.bytes().into()),
        };
        rustls::crypto::ring::sign::any_supported_type(&der).ok()
    }
}

/// A key of Ed25519 or ECDSA. It contains its numbers itself, so they can be hidden. Those of an RSA key are
/// in other memory of ring.
enum Pair {
    Ed25519(Ed25519KeyPair),
    Ecdsa(EcdsaKeyPair, SignatureScheme),
}

struct HiddenKey(Arc<Hidden<Pair>>);

impl HiddenKey {
    fn of_pkcs8(der: &[u8]) -> Option<Self> {
        let hidden = Hidden::new(|| {
            if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
                return Ok(Pair::Ed25519(pair));
            }
            let random = SystemRandom::new();
            let kinds = [
                (&ECDSA_P256_SHA256_ASN1_SIGNING, SignatureScheme::ECDSA_NISTP256_SHA256),
                (&ECDSA_P384_SHA384_ASN1_SIGNING, SignatureScheme::ECDSA_NISTP384_SHA384),
            ];
            for (kind, scheme) in kinds {
                if let Ok(pair) = EcdsaKeyPair::from_pkcs8(kind, der, &random) {
                    return Ok(Pair::Ecdsa(pair, scheme));
                }
            }
            Err(())
        });
        Some(Self(Arc::new(hidden.ok()?.ok()?)))
    }

    fn scheme(&self) -> SignatureScheme {
        match &**self.0 {
            Pair::Ed25519(_) => SignatureScheme::ED25519,
            Pair::Ecdsa(_, scheme) => *scheme,
        }
    }
}

impl SigningKey for HiddenKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let is_offered = offered.contains(&self.scheme());
        is_offered.then(|| Box::new(Self(Arc::clone(&self.0))) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(match &**self.0 {
            Pair::Ed25519(pair) => public_key_to_spki(&alg_id::ED25519, pair.public_key()),
            Pair::Ecdsa(pair, SignatureScheme::ECDSA_NISTP384_SHA384) => {
                public_key_to_spki(&alg_id::ECDSA_P384, pair.public_key())
            }
            Pair::Ecdsa(pair, _) => public_key_to_spki(&alg_id::ECDSA_P256, pair.public_key()),
        })
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match &**self.0 {
            Pair::Ed25519(_) => SignatureAlgorithm::ED25519,
            Pair::Ecdsa(..) => SignatureAlgorithm::ECDSA,
        }
    }
}

impl Signer for HiddenKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        match &**self.0 {
            Pair::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
            Pair::Ecdsa(pair, _) => match pair.sign(&SystemRandom::new(), message) {
                Ok(signature) => Ok(signature.as_ref().to_vec()),
                Err(_) => Err(Error::General("cannot sign: no random numbers".to_owned())),
            },
        }
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme()
    }
}

impl fmt::Debug for HiddenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HiddenKey({:?})", self.scheme())
    }
}
