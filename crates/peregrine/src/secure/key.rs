//! Public keys, and their fingerprints.

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

use super::base64::{self, Padding};
use super::error::KeyError;
use crate::digest::sha256;
use crate::limits;

/// The SHA-256 hash of a public key, as `ssh-keygen` writes it: `SHA256:` and 43 characters of base64.
///
/// The hash is that of the key's `SubjectPublicKeyInfo` (RFC 5280) in DER. So `openssl` computes the same:
/// `openssl x509 -in identity.pem -pubkey -noout | openssl pkey -pubin -outform DER | openssl dgst -sha256`.
///
/// ```
/// use peregrine::secure::{Fingerprint, Identity};
///
/// let print = Identity::generate()?.fingerprint();
/// let text = print.to_string();
/// assert!(text.starts_with("SHA256:") && text.len() == 50);
/// assert_eq!(text.parse::<Fingerprint>()?, print);
/// # Ok::<(), peregrine::secure::KeyError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Returns the 32 bytes of the hash.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SHA256:{}", base64::encode(&self.0, Padding::Omitted))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let digits = text.strip_prefix("SHA256:").filter(|digits| digits.len() == 43);
        let bytes = digits.and_then(|digits| base64::decode(digits, Padding::Omitted));
        let bytes = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        bytes.map(Self).ok_or_else(|| {
            let why = "a fingerprint is `SHA256:` and 43 characters of base64, without spaces";
            KeyError::invalid(shown(text), why)
        })
    }
}

/// A public key: Ed25519, ECDSA with the curve P-256 or P-384, or RSA with 2048 to 8192 bits.
///
/// Its text is the base64 of its `SubjectPublicKeyInfo` (RFC 5280) in DER, which is what is between the first
/// and the last line of a PEM file with a public key. A key of Ed25519 has 60 characters.
///
/// ```
/// use peregrine::secure::PublicKey;
///
/// let key: PublicKey = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=".parse()?;
/// assert_eq!(key.algorithm(), "Ed25519");
/// # Ok::<(), peregrine::secure::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PublicKey {
    spki: Arc<[u8]>,
    algorithm: &'static str,
    /// Computed once, because patterns are compared with it at each call.
    fingerprint: Fingerprint,
}

/// The `SubjectPublicKeyInfo` of a key on a curve has one length, and everything before the key is the same.
const CURVES: [(&str, &[u8], usize); 3] = [
    ("Ed25519", b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00", 32),
    (
        "ECDSA P-256",
        b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\
          \x03\x42\x00\x04",
        64,
    ),
    (
        "ECDSA P-384",
        b"\x30\x76\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22\x03\x62\x00\
          \x04",
        96,
    ),
];

/// The algorithm of an RSA key (RFC 3279), within `SubjectPublicKeyInfo`.
const RSA: &[u8] = b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00";
/// The numbers of bits of RSA keys that are accepted.
const RSA_BITS: core::ops::RangeInclusive<usize> = 2048..=8192;

impl PublicKey {
    /// Returns a key from its `SubjectPublicKeyInfo`. The error says why the key is not accepted.
    pub(super) fn of_spki(spki: &[u8]) -> Result<Self, String> {
        for (algorithm, before, len) in CURVES {
            if spki.starts_with(before) && spki.len() == before.len() + len {
                return Ok(Self::new(spki, algorithm));
            }
        }
        match rsa_bits(spki) {
            Some(bits) if RSA_BITS.contains(&bits) => Ok(Self::new(spki, "RSA")),
            Some(bits) => Err(format!("an RSA key of {bits} bits; 2048 to 8192 are accepted")),
            None => Err("the key is none of Ed25519, ECDSA P-256, ECDSA P-384 and RSA".to_owned()),
        }
    }

    fn new(spki: &[u8], algorithm: &'static str) -> Self {
        Self { spki: spki.into(), algorithm, fingerprint: Fingerprint(sha256(spki)) }
    }

    /// Returns the name of the algorithm, such as `Ed25519`.
    pub fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    /// Returns the fingerprint of the key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the `SubjectPublicKeyInfo` in DER.
    pub fn der(&self) -> &[u8] {
        &self.spki
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64::encode(&self.spki, Padding::Filled))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({} {})", self.algorithm, self.fingerprint())
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let invalid = |why: &str| Err(KeyError::invalid(shown(text), why));
        if text.len() > limits::PUBLIC_KEY_TEXT_MAX {
            return invalid("longer than every public key that is accepted");
        }
        let Some(spki) = base64::decode(text, Padding::Filled) else {
            return invalid("not a public key in base64: `peregrine keys show` prints one");
        };
        Self::of_spki(&spki).or_else(|why| invalid(&why))
    }
}

/// Returns a text that came from outside as an error shows it: short, and without control characters.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    if text.chars().count() > 40 {
        shown.push_str("...");
    }
    format!("`{shown}`")
}

/// Returns the number of bits of the modulus of an RSA key, or `None` if this is not exactly one RSA key.
fn rsa_bits(spki: &[u8]) -> Option<usize> {
    let (all, rest) = element(spki, 0x30)?;
    let string = all.strip_prefix(RSA)?;
    let (string, after) = element(string, 0x03)?;
    let (numbers, last) = element(string.strip_prefix(b"\0")?, 0x30)?;
    let (modulus, exponent) = element(numbers, 0x02)?;
    let (exponent, end) = element(exponent, 0x02)?;
    if exponent.is_empty() || [rest, after, last, end].iter().any(|rest| !rest.is_empty()) {
        return None;
    }
    // A zero byte is before a number whose first bit is set, because numbers have signs.
    let modulus = match modulus {
        [0, rest @ ..] if rest.first().is_some_and(|first| *first >= 0x80) => rest,
        [first, ..] if (1..0x80).contains(first) => modulus,
        _ => return None,
    };
    Some(modulus.len() * 8 - modulus.first()?.leading_zeros() as usize)
}

/// Divides bytes into the content of the first element of DER, which has this tag, and what is after it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (len, content) = match bytes.strip_prefix(&[tag])? {
        [len, rest @ ..] if *len < 0x80 => (usize::from(*len), rest),
        [0x81, len, rest @ ..] if *len >= 0x80 => (usize::from(*len), rest),
        [0x82, high, low, rest @ ..] if *high > 0 => {
            (usize::from(u16::from_be_bytes([*high, *low])), rest)
        }
        _ => return None,
    };
    content.split_at_checked(len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rsa(bits: usize) -> Vec<u8> {
        let der = |tag: u8, content: &[u8]| {
            let len = content.len();
            let head = match len {
                0..0x80 => vec![tag, len as u8],
                0x80..0x100 => vec![tag, 0x81, len as u8],
                _ => vec![tag, 0x82, (len >> 8) as u8, len as u8],
            };
            [head, content.to_vec()].concat()
        };
        let mut modulus = vec![0xff; bits.div_ceil(8)];
        match bits % 8 {
            0 => modulus.insert(0, 0),
            more => modulus[0] = (1 << more) - 1,
        }
        let numbers = [der(2, &modulus), der(2, &[1, 0, 1])].concat();
        let string = der(3, &[vec![0], der(0x30, &numbers)].concat());
        der(0x30, &[RSA.to_vec(), string].concat())
    }

    #[test]
    fn keys_of_rsa_have_2048_to_8192_bits() {
        for bits in [2048, 3072, 4095, 4096, 8192] {
            assert_eq!(PublicKey::of_spki(&rsa(bits)).unwrap().algorithm(), "RSA", "{bits}");
        }
        for bits in [512, 1024, 2047, 8193, 16384] {
            let why = PublicKey::of_spki(&rsa(bits)).unwrap_err();
            assert!(why.contains(&format!("{bits} bits")), "{why}");
        }
        let mut longer = rsa(2048);
        longer.push(0);
        assert!(PublicKey::of_spki(&longer).unwrap_err().contains("none of"));
    }

    #[test]
    fn keys_on_curves_have_one_form() {
        for (algorithm, before, len) in CURVES {
            let spki = [before.to_vec(), vec![7; len]].concat();
            let key = PublicKey::of_spki(&spki).unwrap();
            assert_eq!((key.algorithm(), key.der()), (algorithm, &*spki));
            assert_eq!(key.to_string().parse::<PublicKey>().unwrap(), key);
            assert!(PublicKey::of_spki(&spki[..spki.len() - 1]).is_err());
            assert!(PublicKey::of_spki(&[spki, vec![0]].concat()).is_err());
        }
    }

    #[test]
    fn errors_show_little_of_a_hostile_text() {
        let error = "\u{1b}[2J".repeat(1000).parse::<PublicKey>().unwrap_err().to_string();
        assert!(error.len() < 400 && !error.contains('\u{1b}'), "{error}");
        let error = "SHA256:short".parse::<Fingerprint>().unwrap_err().to_string();
        assert!(error.contains("43 characters"), "{error}");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = PublicKey::of_spki(&bytes);
            let _ = PublicKey::of_spki(&[&rsa(2048)[..40], &bytes].concat());
        }

        #[test]
        fn a_changed_rsa_key_is_not_misread(at in 0usize..60, to in any::<u8>()) {
            let mut spki = rsa(2048);
            spki[at] = to;
            if let Ok(key) = PublicKey::of_spki(&spki) {
                prop_assert_eq!(key.der(), &*spki);
            }
        }
    }
}
