//! The identity of a program, and the peers that it trusts, on paths that leave this machine.
//!
//! An [`Identity`] is a private key and a certificate. A [`Trust`] says which peers are accepted: those whose
//! public key is in a list, and those whose certificate a certificate authority (CA) has signed. Both are
//! files in one directory ([`KeyDirectory`]), which `peregrine keys` writes:
//!
//! | file | content |
//! |---|---|
//! | `identity.pem` | the certificate of this user or program, with the certificates of CAs below the root |
//! | `identity.key` | its private key; only its owner may read it |
//! | `trusted` | public keys that are accepted, one in each line: `NAME KEY COMMENT` |
//! | `authorities.pem` | certificates of CAs; a peer is accepted if one of them has signed its certificate |
//!
//! The files are read again when they have changed, without a restart. A peer whose key was removed from
//! `trusted` cannot connect any more, also not by resuming an earlier connection.
//!
//! ```
//! use peregrine::secure::{Identity, Trust, TrustedKey};
//!
//! let ada = Identity::generate()?;
//! let bob = Identity::generate()?;
//! // What Bob hands over to Ada, and what it means to her.
//! let line = format!("bob {} laptop", bob.public_key());
//! let key: TrustedKey = line.parse()?;
//! assert_eq!(key.name(), "bob");
//! assert_eq!(key.fingerprint(), bob.fingerprint());
//! let trust = Trust::of_keys([key])?;
//! assert!(trust.key_of("bob").is_some() && trust.key_of("ada").is_none());
//! assert_ne!(ada.fingerprint(), bob.fingerprint());
//! # Ok::<(), peregrine::secure::KeyError>(())
//! ```

mod base64;
mod directory;
mod error;
mod files;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod identity;
mod key;
mod key_log;
mod name;
pub(crate) mod packets;
mod pattern;
mod peer;
mod refusal;
mod sessions;
mod signing;
pub(crate) mod stream;
#[cfg(test)]
mod tests;
pub(crate) mod tls;
mod trust;
mod trusted;

pub use directory::KeyDirectory;
pub use error::KeyError;
pub use files::Overwrite;
pub use identity::Identity;
pub use key::{Fingerprint, PublicKey};
pub use name::{Expected, SpiffeId};
pub use packets::{Unsealed, Unsealer};
pub use pattern::IdentityPattern;
pub use peer::Peer;
pub use refusal::{PeerReason, Refusal};
pub use trust::Trust;
pub use trusted::TrustedKey;
