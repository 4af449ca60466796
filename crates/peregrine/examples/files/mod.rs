//! The interface that `files_server` and `files_client` share.

use core::fmt;
use std::{error, io};

use peregrine::{CallError, Out, Value, interface};

/// A remote file service.
#[interface]
pub trait Files {
    /// in: travels with the call only
    fn size(&self, path: &str) -> Result<u64, FileError>;
    /// out: the caller's own buffer, filled by the result; nothing of it travels on the call
    fn read(&self, path: &str, offset: u64, into: Out<'_, u8>) -> Result<(), FileError>;
    /// in-out: travels both ways
    fn sort(&self, values: &mut [u64]) -> peregrine::Result<()>;
}

/// Why there is no file: the procedure said no, or the call itself failed.
#[derive(Debug, Value)]
pub enum FileError {
    /// The procedure ran and said no.
    Refused(String),
    /// The call failed.
    Call(CallError),
}

impl From<CallError> for FileError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        Self::Refused(error.to_string())
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => f.write_str(why),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl error::Error for FileError {}
