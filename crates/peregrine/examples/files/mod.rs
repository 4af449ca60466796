//! The interface that `files_server` and `files_client` share.

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

/// The procedure said no, or the call itself failed.
#[derive(Debug, Value)]
pub enum FileError {
    /// Why there is no such file.
    No(String),
    /// Why there is no answer.
    Call(CallError),
}

impl From<CallError> for FileError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<std::io::Error> for FileError {
    fn from(error: std::io::Error) -> Self {
        Self::No(error.to_string())
    }
}
