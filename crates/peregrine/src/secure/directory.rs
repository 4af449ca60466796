//! The directory of keys: its files, and how lines are added to the list of trusted keys and removed.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::error::KeyError;
use super::files::{self, Guard, Overwrite};
use super::identity::Identity;
use super::key::Fingerprint;
use super::trust::Trust;
use super::trusted::{self, TrustedKey};
use crate::{limits, sys};

/// A directory with an identity and with the peers that are trusted. [The module](super) lists its files.
///
/// ```
/// use peregrine::secure::{Identity, KeyDirectory, Overwrite, TrustedKey};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("keys");
/// let keys = KeyDirectory::at(path);
/// keys.save(&Identity::generate()?, Overwrite::No)?;
/// let bob = Identity::generate()?;
/// keys.add(&TrustedKey::new("bob", bob.public_key(), "laptop")?)?;
/// assert!(keys.trust()?.key_of("bob").is_some());
/// assert_eq!(keys.remove("bob")?.len(), 1);
/// # Ok::<(), peregrine::secure::KeyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDirectory {
    path: PathBuf,
}

const NO_IDENTITY: &str = "`peregrine keys new` makes a key";

impl KeyDirectory {
    /// Returns the directory at a path. It need not exist.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the directory that the environment selects: `$PEREGRINE_KEYS`,
    /// `$XDG_CONFIG_HOME/peregrine/keys` or `~/.config/peregrine/keys`, the first of these whose variable is
    /// set.
    ///
    /// # Errors
    /// [`KeyError::NoDirectory`] if none of the variables is set, or if the program has more rights than its
    /// user (set-user-id, file capabilities), which must not choose the peers that it trusts.
    pub fn of_environment() -> Result<Self, KeyError> {
        let set = sys::trusted_variable;
        if let Some(path) = set("PEREGRINE_KEYS") {
            return Ok(Self::at(path));
        }
        let home = || set("HOME").map(|home| PathBuf::from(home).join(".config"));
        let config = set("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
        config.map(|config| Self::at(config.join("peregrine/keys"))).ok_or(KeyError::NoDirectory)
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the certificate.
    pub fn identity_file(&self) -> PathBuf {
        self.path.join("identity.pem")
    }

    /// Returns the path of the private key.
    pub fn key_file(&self) -> PathBuf {
        self.path.join("identity.key")
    }

    /// Returns the path of the list of trusted keys.
    pub fn trusted_file(&self) -> PathBuf {
        self.path.join("trusted")
    }

    /// Returns the path of the certificates of CAs.
    pub fn authorities_file(&self) -> PathBuf {
        self.path.join("authorities.pem")
    }

    /// Reads the identity. It is read again when its files have changed.
    ///
    /// # Errors
    /// Those of [`Identity::load`].
    pub fn identity(&self) -> Result<Identity, KeyError> {
        Identity::load(self.identity_file(), self.key_file())
    }

    /// Reads which peers are trusted. A file that does not exist counts as empty, and is read later.
    ///
    /// # Errors
    /// Those of [`Trust::load`].
    pub fn trust(&self) -> Result<Trust, KeyError> {
        Trust::load(Some(self.trusted_file()), Some(self.authorities_file()))
    }

    /// Writes an identity, and makes the directory if necessary.
    ///
    /// # Errors
    /// [`KeyError::Exists`] if one of the files exists and must not be replaced; [`KeyError::System`].
    pub fn save(&self, identity: &Identity, overwrite: Overwrite) -> Result<(), KeyError> {
        files::make_directory(&self.path)?;
        identity.save(self.identity_file(), self.key_file(), overwrite)
    }

    /// Returns the lines of the list of trusted keys. If there is no list, it is empty.
    ///
    /// # Errors
    /// [`KeyError::Invalid`] names the first line that is not valid; those of reading the file.
    pub fn trusted(&self) -> Result<Vec<TrustedKey>, KeyError> {
        let path = self.trusted_file();
        let parsed = trusted::parse(&self.text()?);
        match parsed.wrong.into_iter().next() {
            None => Ok(parsed.keys),
            Some((line, why)) => {
                Err(KeyError::Invalid { place: path.display().to_string(), line, why })
            }
        }
    }

    /// Adds a line to the list of trusted keys, and makes the list and the directory if necessary. Returns
    /// whether it was added: a key that the list contains is not added again.
    ///
    /// # Errors
    /// Those of [`trusted`](Self::trusted); [`KeyError::System`] if the file cannot be written.
    pub fn add(&self, key: &TrustedKey) -> Result<bool, KeyError> {
        files::make_directory(&self.path)?;
        let _lock = self.lock()?;
        let listed = self.trusted()?;
        if listed.iter().any(|one| one.key() == key.key()) {
            return Ok(false);
        }
        if listed.len() >= limits::TRUSTED_KEYS_MAX {
            let why = format!("a list has at most {} keys", limits::TRUSTED_KEYS_MAX);
            return Err(KeyError::invalid(self.trusted_file().display().to_string(), why));
        }
        let mut text = self.text()?;
        if text.last().is_some_and(|last| *last != b'\n') {
            text.push(b'\n');
        }
        text.extend_from_slice(format!("{key}\n").as_bytes());
        if text.len() > limits::TRUSTED_BYTES_MAX {
            let why = format!("the list would have more than {} bytes", limits::TRUSTED_BYTES_MAX);
            return Err(KeyError::invalid(self.trusted_file().display().to_string(), why));
        }
        files::write(&self.trusted_file(), &text, Guard::Public, Overwrite::Yes)?;
        Ok(true)
    }

    /// Removes the lines with a name, a fingerprint or a key from the list of trusted keys. Returns them.
    /// Other lines stay as they are.
    ///
    /// # Errors
    /// Those of reading and writing the file.
    pub fn remove(&self, which: &str) -> Result<Vec<TrustedKey>, KeyError> {
        if !self.trusted_file().exists() {
            return Ok(Vec::new());
        }
        let _lock = self.lock()?;
        let fingerprint = which.parse::<Fingerprint>().ok();
        let is_meant = |key: &TrustedKey| {
            key.name() == which
                || Some(key.fingerprint()) == fingerprint
                || key.key().to_string() == which
        };
        let (text, mut removed) = (self.text()?, Vec::new());
        let stays = |line: &&[u8]| {
            let key = str::from_utf8(line).ok().and_then(|line| line.trim_end().parse().ok());
            let Some(key) = key.filter(is_meant) else { return true };
            removed.push(key);
            false
        };
        let rest: Vec<u8> =
            text.split_inclusive(|byte| *byte == b'\n').filter(stays).flatten().copied().collect();
        if !removed.is_empty() {
            files::write(&self.trusted_file(), &rest, Guard::Public, Overwrite::Yes)?;
        }
        Ok(removed)
    }

    fn text(&self) -> Result<Vec<u8>, KeyError> {
        let most = limits::TRUSTED_BYTES_MAX;
        match files::read(&self.trusted_file(), most, Guard::Public, NO_IDENTITY) {
            Ok((text, _)) => Ok(text.to_vec()),
            Err(KeyError::Missing { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Keeps other processes from changing the list until the file is dropped.
    fn lock(&self) -> Result<File, KeyError> {
        let directory = File::open(&self.path).and_then(|file| file.lock().map(|()| file));
        directory.map_err(|error| KeyError::system("cannot lock", &self.path, error))
    }
}
