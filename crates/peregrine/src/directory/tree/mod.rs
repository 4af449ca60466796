//! [`Tree`]: a directory that consists of files, for machines that share a file system.
//!
//! Below the path of the tree is a directory for each name, with a file for each server of the name:
//!
//! ```text
//! files/4f2a90c1d7e85b36.json
//! files/by-hand.json
//! ```
//!
//! Each line of a file is a JSON object:
//!
//! ```text
//! {"server":"4f2a90c1d7e85b36","addresses":["files@fs1.example.org:7000"],"lease_s":30}
//! ```
//!
//! A server that registers writes one file. Three times within each lease, and every ten seconds, it sets the
//! file's time of modification, or writes the file again if it has gone. A file whose lease is over counts
//! only if the name has no other server: a clock may be wrong, and an attempt to bind costs little. Lines
//! without `lease_s` were written by hand, and never end. Files that do not end in `.json`, and those whose
//! names begin with a dot, are not read.
//!
//! Each registration adds a member `start` with a random number to its line. So a server that withdraws late
//! does not remove the file of its successor, which has the same identity and addresses.
//!
//! A user who may write in the tree may send clients to any server, as with a hosts file.

mod keeping;
mod registered;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use self::keeping::{Duty, Keeping};
use self::registered::{Claims, Registered, remove_dead};
use super::record::Record;
use super::{Directory, Offer, Offers, Standing, Watcher, check_name};
use crate::address::Address;
use crate::error::{CallError, Phase};
use crate::interface::valid_name;
use crate::limits;

/// The lease of a server, if nothing else was chosen.
const LEASE: Duration = Duration::from_secs(30);
/// How often the thread looks for changes of watched names.
const LOOK: Duration = Duration::from_millis(500);
/// The longest time between two renewals. A file that was removed is missing no longer.
const RENEW_MAX: Duration = Duration::from_secs(10);
/// The shortest lease.
const LEASE_MIN: Duration = Duration::from_secs(1);

/// A directory that consists of files below one path, which may be on a shared file system. Servers register
/// in it.
///
/// ```
/// use peregrine::directory::{Directory, Offer, Tree};
///
/// # let dir = tempfile::tempdir().unwrap();
/// let tree = Tree::at(dir.path());
/// let registered = tree.register("files", &Offer::new("fs1", ["files@fs1.example.org:7000"])?)?;
/// assert_eq!(tree.names()?, ["files"]);
/// assert_eq!(tree.look_up("files")?.servers[0].server(), "fs1");
/// drop(registered);
/// assert!(tree.look_up("files")?.servers.is_empty());
/// # Ok::<(), peregrine::CallError>(())
/// ```
///
/// The files are as follows. Below the path is a directory for each name, and in it a file for each server,
/// whose name ends in `.json`. Each line of a file is a JSON object with the members `server` (what
/// distinguishes the server, in the form of a name), `addresses`, and `lease_s`: how many seconds after its
/// last modification the file is valid. Without `lease_s`, the line is always valid.
///
/// The clocks of the machines and of the file system may differ by less than the lease. If all servers of a
/// name seem to be dead, they are still returned.
///
/// A client of NFS keeps the attributes of a file for up to 60 seconds. So machines may see a change one minute
/// late, and a living server may seem to be dead while others live. On NFS, set a [lease](Self::lease) of at
/// least 90 seconds, or mount the file system with `actimeo=5`.
///
/// If two servers register under one name with the same [`Offer::server`], the later one counts. The earlier one
/// learns this from [`Standing::problem`], writes nothing, and is registered again when the later one has ended.
#[derive(Clone, Debug)]
pub struct Tree {
    at: PathBuf,
    lease: Duration,
    /// Renews registrations.
    renewals: Arc<Keeping>,
    /// The files of this tree that this process keeps.
    claims: Arc<Claims>,
    /// Looks for changes of watched names.
    looks: Arc<Keeping>,
}

impl Tree {
    /// Returns the directory at a path. The path must exist when the directory is used.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        let (renewals, looks) = (Keeping::new("peregrine-renew"), Keeping::new("peregrine-look"));
        let claims = Arc::default();
        Self { at: path.into(), lease: LEASE, renewals, claims, looks }
    }

    /// Sets how long clients still find a server that has ended without a withdrawal. The default is 30
    /// seconds, and the least one second. Fractions of a second are not kept.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Duration::from_secs(lease.max(LEASE_MIN).as_secs());
        self
    }

    /// Returns the path of the directory for a name.
    ///
    /// # Errors
    /// If the name is invalid.
    fn place(&self, name: &str, phase: Phase) -> Result<PathBuf, CallError> {
        check_name(name, phase)?;
        Ok(self.at.join(name))
    }

    /// Checks that the path of the tree is a directory. Otherwise a mistake in the path would look like
    /// a tree without names.
    fn check(&self, phase: Phase) -> Result<(), CallError> {
        let listed = fs::read_dir(&self.at);
        listed.map(drop).map_err(|error| failed(phase, "reading", &self.at, error))
    }
}

fn failed(phase: Phase, what: &str, path: &Path, error: io::Error) -> CallError {
    CallError::system(phase, format!("{what} {}", path.display()), error)
}

impl Directory for Tree {
    fn offers(&self, name: &str) -> Result<Vec<Address>, CallError> {
        Ok(self.look_up(name)?.addresses().cloned().collect())
    }

    fn is_ordered(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        format!("files below {}", self.at.display())
    }

    fn look_up(&self, name: &str) -> Result<Offers, CallError> {
        let place = self.place(name, Phase::Resolve)?;
        match read(&place, SystemTime::now()) {
            Err(error) if is_nothing(&error) => {
                self.check(Phase::Resolve)?;
                Ok(Offers::default())
            }
            offers => offers.map_err(|error| failed(Phase::Resolve, "reading", &place, error)),
        }
    }

    fn names(&self) -> Result<Vec<String>, CallError> {
        let failed = |error| failed(Phase::Resolve, "reading", &self.at, error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.at).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().into_string().ok().filter(|name| valid_name(name));
            names.extend(name.filter(|_| entry.path().is_dir()));
        }
        names.sort();
        Ok(names)
    }

    fn register(&self, name: &str, offer: &Offer) -> Result<Standing, CallError> {
        let place = self.place(name, Phase::Export)?;
        self.check(Phase::Export)?;
        let record = Record { offer: offer.clone(), lease: Some(self.lease) };
        let file = Registered::new(&place, &record, &self.claims);
        let mut file = file.map_err(|error| failed(Phase::Export, "writing", &place, error))?;
        if let Err(error) = file.write() {
            let failed = failed(Phase::Export, "writing", file.path(), error);
            file.end();
            return Err(failed);
        }
        remove_dead(&place, file.path());
        let no_thread = |error| CallError::system(Phase::Export, NO_THREAD, error);
        self.renewals.add(file, every(self.lease)).map_err(no_thread)
    }

    fn watch(&self, name: &str, mut watcher: Watcher) -> Result<Standing, CallError> {
        let known = self.look_up(name)?;
        watcher(known.clone());
        let look = Look { tree: self.clone(), name: name.to_owned(), watcher, known };
        let no_thread = |error| CallError::system(Phase::Resolve, NO_THREAD, error);
        self.looks.add(look, LOOK).map_err(no_thread)
    }
}

/// A watched name.
struct Look {
    tree: Tree,
    name: String,
    watcher: Watcher,
    /// What `watcher` knows.
    known: Offers,
}

impl Duty for Look {
    fn fulfil(&mut self) -> Result<(), String> {
        let now = self.tree.look_up(&self.name).map_err(|error| error.to_string())?;
        if now != self.known {
            // If the watcher panics, the next look calls it again.
            (self.watcher)(now.clone());
            self.known = now;
        }
        Ok(())
    }

    fn end(&mut self) {}
}

/// Returns the time between two renewals of a lease.
fn every(lease: Duration) -> Duration {
    (lease / 3).min(RENEW_MAX)
}

const NO_THREAD: &str =
    "cannot start the thread that renews registrations (check RLIMIT_NPROC and pids.max)";

/// Returns whether an error means that there is no directory for the name.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Returns whether a file of this name has the records of servers.
fn is_record(name: &str) -> bool {
    name.ends_with(".json") && !name.starts_with('.')
}

/// Reads the servers of the name to which the directory `place` belongs.
fn read(place: &Path, now: SystemTime) -> io::Result<Offers> {
    let mut found = Offers::default();
    let (files, is_cut) = files_of(place)?;
    if is_cut {
        let most = limits::SERVERS_MAX;
        found.remark(&format!("{}: only {most} files are read", place.display()));
    }
    let (mut servers, mut late) = (Vec::new(), Vec::new());
    for file in files {
        let path = place.join(file);
        let (text, modified) = match text_of(&path) {
            Ok(read) => read,
            // The server has withdrawn the file a moment ago.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                found.remark(&format!("{}: {error}", path.display()));
                continue;
            }
        };
        let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        for (number, line) in lines {
            let record = match Record::read(line) {
                Ok(record) => record,
                Err(why) => {
                    found.remark(&format!("{}:{number}: {why}", path.display()));
                    continue;
                }
            };
            let is_over = |lease| now.duration_since(modified).is_ok_and(|age| age > lease);
            let all = if record.lease.is_some_and(is_over) { &mut late } else { &mut servers };
            all.push(record.offer);
        }
    }
    let distinct = Offers::distinct(if servers.is_empty() { late } else { servers });
    distinct.remarks.iter().for_each(|remark| found.remark(remark));
    found.servers = distinct.servers;
    Ok(found)
}

/// Returns the first files of a directory that have records, in order, and whether there are more. Keeps no
/// more names than these.
fn files_of(place: &Path) -> io::Result<(BTreeSet<String>, bool)> {
    let (mut files, mut is_cut) = (BTreeSet::new(), false);
    for entry in fs::read_dir(place)? {
        let name = entry?.file_name();
        files.extend(name.to_str().filter(|name| is_record(name)).map(str::to_owned));
        if files.len() > limits::SERVERS_MAX {
            files.pop_last();
            is_cut = true;
        }
    }
    Ok((files, is_cut))
}

/// Returns the text of a file, and when it was modified.
fn text_of(path: &Path) -> io::Result<(String, SystemTime)> {
    let file = registered::opened(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let most = limits::RECORD_BYTES_MAX as u64;
    let mut text = String::new();
    if file.take(most + 1).read_to_string(&mut text)? as u64 > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok((text, about.modified()?))
}

#[cfg(test)]
mod tests;
