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
    AcceptedServer, ClientSecurity, Refusals, SecureConnection, SecurityKey, ServerSecurity,
    explained,
};
#[cfg(feature = "secure")]
pub(crate) use on::{
    AcceptedServer, ClientSecurity, Refusals, SecureConnection, SecurityKey, ServerSecurity,
    WANTS_TLS, denied, explained,
};

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::call::PathKind;
use crate::error::{CallError, Kind, Phase};
use crate::keeper::{Keeper, Next, Watch};

/// How often a client looks whether it still trusts a server.
const TRUST: Duration = Duration::from_secs(1);

/// Lets the keeper look from time to time whether a server is still trusted. If not, it passes `what`, which
/// uses the server, to `end`.
///
/// # Errors
/// If the keeper cannot watch the timer.
pub(crate) fn watch_trust<T: Send + Sync + 'static>(
    keeper: &Arc<Keeper>,
    server: Arc<AcceptedServer>,
    what: Weak<T>,
    end: fn(&T),
) -> io::Result<Watch> {
    let watch = keeper.watch_timer(move || {
        let Some(what) = what.upgrade() else { return Next::Forget };
        if server.is_still_trusted() {
            return Next::SleepAndTick(TRUST);
        }
        end(&what);
        Next::Forget
    })?;
    watch.remind(TRUST);
    Ok(watch)
}

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
