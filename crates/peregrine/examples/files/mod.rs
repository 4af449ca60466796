//! The interface that `files_server` and `files_client` share.

use peregrine::{CallError, Out, Sink, Value, interface};

/// A remote file service.
#[interface]
pub trait Files {
    /// In: `path` is sent only with the call. Returns the size of a file in bytes.
    fn size(&self, path: &str) -> Result<u64, FileError>;
    /// Out: the result fills the caller's buffer. The call carries no bytes of the buffer.
    fn read(&self, path: &str, offset: u64, into: Out<'_, u8>) -> Result<(), FileError>;
    /// Stream: the contents of a file are sent in pieces while the call runs. Returns the size in bytes.
    fn copy(&self, path: &str, pieces: Sink<'_, Vec<u8>>) -> Result<u64, FileError>;
    /// In-out: `values` is sent with the call and with the result.
    fn sort(&self, values: &mut [u64]) -> peregrine::Result<()>;
}

/// What can go wrong: the procedure refuses, or the call fails.
#[derive(Debug, Value)]
pub enum FileError {
    /// Why the file cannot be read.
    No(String),
    /// Why there is no result.
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
