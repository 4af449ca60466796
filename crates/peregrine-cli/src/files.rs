//! `Files`: the interface of an exported directory, and its implementation.

use core::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use peregrine::{CallError, Lent, Out, Value, interface};
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};

use crate::output::Failure;

/// Maximum number of bytes that one call reads or writes.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

/// The files of a directory. Paths are relative to the directory and cannot leave it.
#[interface]
pub(crate) trait Files {
    /// Returns the size of a file in bytes.
    #[idempotent]
    fn size(&self, path: &str) -> Result<u64, FileError>;

    /// Reads from byte `offset` of a file, up to the end of the file or of the buffer.
    #[idempotent]
    fn read(
        &self,
        path: &str,
        offset: u64,
        #[max_len(CHUNK_BYTES as u32)] into: Out<'_, u8>,
    ) -> Result<(), FileError>;

    /// Writes at byte `offset` of a file, and creates the file if it does not exist.
    #[idempotent]
    fn write(
        &self,
        path: &str,
        offset: u64,
        #[max_len(CHUNK_BYTES as u32)] bytes: Lent<'_, u8>,
    ) -> Result<(), FileError>;
}

/// Why a procedure of `Files` failed.
#[derive(Debug, Value)]
pub(crate) enum FileError {
    /// The server refused the operation.
    Refused {
        /// The path of the file.
        path: String,
        /// The reason, usually of the operating system.
        why: String,
    },
    /// The call failed.
    Call(CallError),
}

impl FileError {
    fn refused(path: &str, why: impl fmt::Display) -> Self {
        Self::Refused { path: path.to_owned(), why: why.to_string() }
    }
}

impl From<CallError> for FileError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { path, why } => write!(f, "`{path}`: {why}"),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Call(error) => Self::Call(error),
            refused => Self::Refused(refused.to_string()),
        }
    }
}

/// A directory whose files a server exports.
#[derive(Debug)]
pub(crate) struct Directory {
    root: OwnedFd,
    writable: bool,
}

impl Directory {
    /// Opens a directory. Callers can change files in it only if `writable` is true.
    pub(crate) fn open(path: &Path, writable: bool) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { root: open(path, flags, Mode::empty())?, writable })
    }

    /// Opens a file below the root. The kernel refuses a path that leaves the root (`..`, an absolute path, a
    /// symbolic link). The kernel checks this while it resolves the path, so a concurrent rename cannot
    /// bypass the check.
    fn file(&self, path: &str, flags: OFlags) -> Result<File, FileError> {
        // Without `NONBLOCK`, opening a pipe would block.
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mode =
            if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o600) } else { Mode::empty() };
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let file = openat2(&self.root, path, flags, mode, inside).map_err(|error| match error {
            rustix::io::Errno::XDEV => FileError::refused(path, "path leaves the directory"),
            error => FileError::refused(path, io::Error::from(error)),
        })?;
        let file = File::from(file);
        match file.metadata() {
            Ok(about) if about.is_file() => Ok(file),
            Ok(_) => Err(FileError::refused(path, "not a regular file")),
            Err(error) => Err(FileError::refused(path, error)),
        }
    }
}

impl Files for Directory {
    fn size(&self, path: &str) -> Result<u64, FileError> {
        let about = self.file(path, OFlags::RDONLY)?.metadata();
        Ok(about.map_err(|error| FileError::refused(path, error))?.len())
    }

    fn read(&self, path: &str, offset: u64, mut into: Out<'_, u8>) -> Result<(), FileError> {
        let file = self.file(path, OFlags::RDONLY)?;
        let read = into.fill_from_file(&file, offset);
        read.map(drop).map_err(|error| FileError::refused(path, error))
    }

    fn write(&self, path: &str, offset: u64, bytes: Lent<'_, u8>) -> Result<(), FileError> {
        if !self.writable {
            return Err(FileError::refused(path, "the directory is served read-only"));
        }
        let file = self.file(path, OFlags::WRONLY | OFlags::CREATE)?;
        let written = bytes.write_to_file(&file, offset);
        written.map_err(|error| FileError::refused(path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn paths_cannot_leave_the_directory() {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("root");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(outside.path().join("secret"), "secret").unwrap();
        std::fs::write(root.join("sub/open"), "open").unwrap();
        symlink(outside.path().join("secret"), root.join("absolute")).unwrap();
        symlink("../secret", root.join("relative")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("sub/open", root.join("inside")).unwrap();
        let files = FilesClient::in_process(Directory::open(&root, true).unwrap());
        let secret = outside.path().join("secret");
        let secret = secret.to_str().unwrap();
        for path in ["../secret", "sub/../../secret", "absolute", "relative", "up/secret", secret] {
            let mut buffer = [0; 16];
            for result in [
                files.size(path).map(drop),
                files.read(path, 0, Out::from(&mut buffer)),
                files.write(path, 0, Lent::from(b"gone")),
                files.write("../new", 0, Lent::from(b"new")),
            ] {
                let text = result.unwrap_err().to_string();
                assert!(text.contains("leaves the directory"), "{path}: {text}");
            }
        }
        assert_eq!(std::fs::read(secret).unwrap(), b"secret");
        assert!(!outside.path().join("new").exists());
        assert_eq!(files.size("inside").unwrap(), 4);
        assert!(files.size("sub").unwrap_err().to_string().contains("not a regular file"));
        assert!(files.size("a\0b").is_err());
        assert!(files.size("").is_err());
    }

    #[test]
    fn read_only_directory_refuses_writes() {
        let root = tempfile::tempdir().unwrap();
        let of =
            |writable| FilesClient::in_process(Directory::open(root.path(), writable).unwrap());
        let refused = of(false).write("note", 0, Lent::from(b"falcon")).unwrap_err();
        assert!(refused.to_string().contains("read-only"));
        of(true).write("note", 0, Lent::from(b"falcon")).unwrap();
        let mut buffer = [0; 16];
        let mut out = Out::from(&mut buffer);
        of(false).read("note", 2, out.by_ref()).unwrap();
        assert_eq!(out.filled(), 4);
        assert_eq!(buffer[..4], *b"lcon");
    }
}
