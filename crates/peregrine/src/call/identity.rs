//! [`CallerIdentity`]: who makes a call, as far as it is proven.

use core::fmt;

use super::caller::CallerInfo;
#[cfg(feature = "secure")]
use crate::secure::Peer;

/// Who makes a call, as far as it is proven: [`Caller::identity`](crate::Caller::identity).
///
/// Displayed, it is `uid:` and the number of the user, or the name of the peer.
///
/// ```
/// # use peregrine::interface;
/// #[interface]
/// trait Who { fn am_i(&self) -> peregrine::Result<String>; }
///
/// struct Answer;
/// impl Who for Answer {
///     fn am_i(&self) -> peregrine::Result<String> {
///         let identity = peregrine::caller().and_then(|caller| caller.identity());
///         Ok(identity.map_or("a stranger".to_owned(), |identity| identity.to_string()))
///     }
/// }
/// assert!(WhoClient::in_process(Answer).am_i()?.starts_with("uid:"));
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallerIdentity {
    /// A process of this machine, as the kernel reports it. Displayed as `uid:USER`.
    #[non_exhaustive]
    Local {
        /// The effective user number.
        user: u32,
        /// The effective group number.
        group: u32,
        /// The number of the process.
        process: u32,
    },
    /// The client of an encrypted connection, which has proven that it has a key.
    #[cfg(feature = "secure")]
    #[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
    Peer(Peer),
}

impl CallerIdentity {
    /// Returns the identity of a caller. `None` if nothing proves it, as on networks without encryption.
    pub(crate) fn of(info: &CallerInfo) -> Option<Self> {
        #[cfg(feature = "secure")]
        if let Some(peer) = &info.identity {
            return Some(Self::Peer(peer.clone()));
        }
        let CallerInfo { user, group, process, .. } = *info;
        (user != CallerInfo::NOBODY).then_some(Self::Local { user, group, process })
    }

    /// Returns the client of an encrypted connection. `None` for a process of this machine.
    #[cfg(feature = "secure")]
    #[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
    pub const fn peer(&self) -> Option<&Peer> {
        match self {
            Self::Peer(peer) => Some(peer),
            Self::Local { .. } => None,
        }
    }
}

impl fmt::Display for CallerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { user, .. } => write!(f, "uid:{user}"),
            #[cfg(feature = "secure")]
            Self::Peer(peer) => peer.fmt(f),
        }
    }
}
