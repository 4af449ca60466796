//! What a binding and a server need for TLS: which identity they show, and which peers they accept.
//!
//! Without the feature `secure`, the types of this module have no values. So the rest of the paths has the
//! same code with and without TLS.

#[cfg(not(feature = "secure"))]
mod off;
#[cfg(feature = "secure")]
mod on;

#[cfg(not(feature = "secure"))]
pub(crate) use off::{
    ClientSecurity, Refusals, SecureConnection, SecurityKey, ServerSecurity, explained,
};
#[cfg(feature = "secure")]
pub(crate) use on::{
    ClientSecurity, Refusals, SecureConnection, SecurityKey, ServerSecurity, WANTS_TLS, denied,
    explained, in_words,
};

use crate::call::PathKind;
use crate::error::{CallError, Kind, Phase};

/// Why a secure binding does not use a path.
pub(crate) const NOT_SEALED: &str =
    "the binding is secure, and only tcp, udp and ethernet can be encrypted";

/// Returns whether a secure binding may use a path. On this machine, the kernel vouches for the peer.
pub(crate) const fn may_carry(path: PathKind) -> bool {
    matches!(
        path,
        PathKind::InProcess | PathKind::Local | PathKind::Tcp | PathKind::Udp | PathKind::Ethernet
    )
}

/// Checks that a secure binding may use the path that its address names.
///
/// # Errors
/// If the address names a path that cannot be encrypted.
pub(crate) fn check_asked(path: Option<PathKind>) -> Result<(), CallError> {
    match path {
        Some(path) if !may_carry(path) => {
            let text = format!("the address asks for {path}: {NOT_SEALED}");
            let error = CallError::not_executed(Kind::Denied, Phase::Bind, text);
            Err(error
                .with_advice("write `tcp:`, `udp:` or `eth:` in front of the address, or nothing"))
        }
        _ => Ok(()),
    }
}
