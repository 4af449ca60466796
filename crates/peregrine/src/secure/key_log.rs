//! A file with the keys of connections, for programs that decrypt captures: the NSS key log format, which
//! Wireshark reads. Anyone with the file can read the calls.

use core::fmt::{self, Write as _};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustls::KeyLog;
use zeroize::Zeroizing;

use super::error::KeyError;
use super::files;
use super::identity::Identity;

/// The secrets by which a capture is decrypted: those of the client and of the server, during the handshake
/// and after it. The other secrets of TLS are not written.
pub(super) const LABELS: [&str; 4] =
    ["CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_HANDSHAKE_TRAFFIC_SECRET", CLIENT, SERVER];
/// The secret of what the client sends after the handshake.
pub(super) const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
/// The secret of what the server sends after the handshake.
pub(super) const SERVER: &str = "SERVER_TRAFFIC_SECRET_0";

/// The length in bytes of the longest secret. Those of TLS 1.3 have 32 or 48 bytes.
pub(super) const SECRET_BYTES_MAX: usize = 64;
/// The length in bytes of the random number of a client, which names its connection.
pub(super) const RANDOM_BYTES: usize = 32;

/// A file to which secrets are appended.
pub(super) struct KeyLogFile {
    path: PathBuf,
    file: File,
    /// Why nothing is written any more.
    problem: OnceLock<String>,
}

impl KeyLogFile {
    /// Opens the file, and makes it if it does not exist.
    pub(super) fn open(path: &Path) -> Result<Self, KeyError> {
        let file = files::append(path)?;
        Ok(Self { path: path.to_owned(), file, problem: OnceLock::new() })
    }

    /// Returns why nothing is written any more, if so.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.get().map(String::as_str)
    }

    /// Appends a line. After the first failure, nothing is written any more.
    fn write(&self, label: &str, random: &[u8], secret: &[u8]) {
        if self.problem.get().is_some() || secret.len() > SECRET_BYTES_MAX {
            return;
        }
        // All memory is there before the first digit, because a text that grows leaves copies.
        let room = label.len() + 2 * (random.len() + secret.len()) + 3;
        let mut line = Zeroizing::new(String::with_capacity(room));
        line.push_str(label);
        for part in [random, secret] {
            line.push(' ');
            for byte in part {
                let _ = write!(line, "{byte:02x}");
            }
        }
        line.push('\n');
        // One call: the lines of several threads and processes are not mixed.
        if let Err(error) = (&self.file).write_all(line.as_bytes()) {
            let problem = format!("cannot write to the key log {}: {error}", self.path.display());
            let _ = self.problem.set(problem);
        }
    }
}

impl fmt::Debug for KeyLogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyLogFile({})", self.path.display())
    }
}

/// Passes the secrets of handshakes to the key log of an identity, if it has one.
#[derive(Debug)]
pub(super) struct Logged(pub(super) Identity);

impl KeyLog for Logged {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if let Some(file) = self.0.key_log() {
            file.write(label, client_random, secret);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        LABELS.contains(&label) && self.0.key_log().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_to_write_is_noted_once() {
        let full = File::options().append(true).open("/dev/full").unwrap();
        let log = KeyLogFile { path: "full".into(), file: full, problem: OnceLock::new() };
        assert_eq!(log.problem(), None);
        log.write(CLIENT, &[1; RANDOM_BYTES], &[2; 32]);
        let problem = log.problem().unwrap().to_owned();
        assert!(problem.starts_with("cannot write to the key log full: "), "{problem}");
        assert!(!problem.contains("0202"));
        log.write(SERVER, &[1; RANDOM_BYTES], &[2; 32]);
        assert_eq!(log.problem(), Some(&*problem));
    }
}
