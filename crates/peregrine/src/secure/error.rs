//! Why a key, a certificate or one of their files cannot be used.

use core::fmt;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{CallError, Kind, Phase};

/// Why a key, a certificate, a name or a file with them cannot be used.
///
/// The text says what failed, where, and what to do. It never contains a private key. The error converts to a
/// [`CallError`] that says *not executed*.
///
/// ```
/// use peregrine::secure::{KeyDirectory, KeyError};
///
/// let none = KeyDirectory::at("/nonexistent");
/// let error = none.identity().unwrap_err();
/// assert!(matches!(error, KeyError::Missing { .. }));
/// assert!(error.to_string().contains("peregrine keys new"));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum KeyError {
    /// A file does not exist.
    Missing {
        /// The file.
        path: PathBuf,
        /// What the file would contain, and how to make it.
        what: &'static str,
    },
    /// A file exists and may not be replaced.
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Users other than the owner can read a private key, or can change a list of trusted peers.
    Permissions {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong, and the command that mends it.
        why: String,
    },
    /// The content of a file, or a text, is not valid.
    Invalid {
        /// The file, or what the text is.
        place: String,
        /// The number of the line, or zero if it is not a matter of lines.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// The operating system refused.
    System {
        /// What failed.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// No directory for keys is known: no variable of the environment leads to one.
    NoDirectory,
}

impl KeyError {
    pub(super) fn invalid(place: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Invalid { place: place.into(), line: 0, why: why.into() }
    }

    pub(super) fn system(what: &str, path: &Path, source: io::Error) -> Self {
        Self::System { what: format!("{what} {}", path.display()), source }
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { path, what } => write!(f, "{} does not exist: {what}", path.display()),
            Self::Exists { path } => {
                write!(f, "{} exists, and is not replaced unless it is requested", path.display())
            }
            Self::Permissions { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Invalid { place, line: 0, why } => write!(f, "{place}: {why}"),
            Self::Invalid { place, line, why } => write!(f, "{place}:{line}: {why}"),
            Self::System { what, source } => write!(f, "{what}: {source}"),
            Self::NoDirectory => f.write_str(
                "no directory for keys is known: set PEREGRINE_KEYS, XDG_CONFIG_HOME or HOME",
            ),
        }
    }
}

impl Error for KeyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<KeyError> for CallError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::System { what, source } => Self::system(Phase::Bind, what, source),
            KeyError::Permissions { .. } => {
                Self::not_executed(Kind::Denied, Phase::Bind, error.to_string())
            }
            KeyError::Missing { .. } | KeyError::NoDirectory => {
                Self::not_executed(Kind::NotFound, Phase::Bind, error.to_string()).with_advice(
                    "`peregrine keys new` makes a key; `peregrine keys trust` accepts one",
                )
            }
            KeyError::Exists { .. } | KeyError::Invalid { .. } => {
                Self::not_executed(Kind::BadName, Phase::Bind, error.to_string())
                    .with_advice("mend the file or the text that the message names")
            }
        }
    }
}
