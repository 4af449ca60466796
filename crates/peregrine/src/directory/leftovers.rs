//! Finds the files that dead servers left in the runtime directories. Removes the files of a name if its
//! server is certainly dead.
//!
//! The server of a name is dead if the name's lock is free and no process listens at the name's socket. A
//! process that removes the files of a name holds the lock meanwhile, as a server does while it starts. The
//! process removes the lock file last.
//!
//! A server may open the lock file before another process removes this file. When the server then gets the
//! lock, it finds that the file was removed, and begins again ([`take`]). So removing leftovers never harms a
//! server that starts.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, DirEntry, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::runtime::may_search;
use super::search_path;
use super::sockets::{hold, lock_is_free};
use crate::interface::valid_name;
use crate::sys::Seqpacket;

/// A name whose server is dead, and the files that this server left.
///
/// ```
/// for leftover in peregrine::directory::leftovers() {
///     println!("{}: {} files", leftover.name(), leftover.files().len());
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    name: String,
    directory: PathBuf,
    files: Vec<PathBuf>,
}

impl Leftover {
    /// Returns the name that the server exported.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the runtime directory that contains the files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the files that [`remove`](Self::remove) would remove. This is at least one of the following
    /// files: the socket, a socket that was not renamed yet, and the lock file.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Removes the files of the name, if the server of the name is still dead. Returns the removed files.
    ///
    /// ```no_run
    /// for leftover in peregrine::directory::leftovers() {
    ///     match leftover.remove() {
    ///         Ok(files) => println!("{} files of {} are gone", files.len(), leftover.name()),
    ///         Err(why) => println!("{} is kept: {why}", leftover.name()),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// Fails if a server has taken the name meanwhile ([`io::ErrorKind::WouldBlock`]), or a process without
    /// the lock listens at the socket ([`io::ErrorKind::AddrInUse`]). Also fails if this process has no
    /// permission to remove the files.
    pub fn remove(&self) -> io::Result<Vec<PathBuf>> {
        let [socket, aside, lock_path] = paths(&self.directory, &self.name);
        let lock = take(&lock_path)?;
        let taken = || io::Error::new(io::ErrorKind::WouldBlock, "a live server has the name");
        let lock = lock.ok_or_else(taken)?;
        if !is_deserted(&socket)? {
            let text = "a process listens there without holding the name's lock";
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        let mut removed = Vec::new();
        // The lock file is removed last. Until it is removed, no other process can take the name.
        let is_socket =
            |path: &Path| path.symlink_metadata().is_ok_and(|about| about.file_type().is_socket());
        let draining = dead_draining(&self.directory, &self.name);
        for path in [socket, aside].into_iter().chain(draining).chain([lock_path.clone()]) {
            if path != lock_path && !is_socket(&path) {
                continue;
            }
            match fs::remove_file(&path) {
                Ok(()) => removed.push(path),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        drop(lock);
        Ok(removed)
    }
}

/// Returns what dead servers left in all [runtime directories](super::search_path), ordered by directory and
/// name. If this user cannot examine a name, the name is left out, because its server may be alive.
///
/// ```
/// let dead = peregrine::directory::leftovers();
/// let listed = peregrine::directory::list();
/// println!("{} names, and what is left of {}", listed.len(), dead.len());
/// ```
pub fn leftovers() -> Vec<Leftover> {
    let mut directories = search_path();
    let mut seen = HashSet::new();
    directories.retain(|directory| seen.insert(directory.clone()) && may_search(directory));
    directories.iter().flat_map(|directory| leftovers_in(directory)).collect()
}

fn leftovers_in(directory: &Path) -> Vec<Leftover> {
    let Ok(found) = fs::read_dir(directory) else { return Vec::new() };
    let mut names: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in found.filter_map(Result::ok) {
        let Ok(kind) = file.file_type() else { continue };
        let Ok(file_name) = file.file_name().into_string() else { continue };
        let hidden = file_name.strip_prefix('.');
        let lock = hidden.and_then(|name| name.strip_suffix(".lock"));
        let aside = hidden.and_then(|name| name.strip_suffix(".new"));
        let aside = aside.or_else(|| hidden.and_then(|name| name.strip_suffix(".draining")));
        let name = match (lock, aside) {
            (Some(name), _) if kind.is_file() => name,
            (_, Some(name)) if kind.is_socket() => name,
            (None, None) if kind.is_socket() => &*file_name,
            _ => continue,
        };
        if valid_name(name) {
            names.entry(name.to_owned()).or_default().push(file.path());
        }
    }
    let leftover = |(name, _): (String, _)| {
        let paths = paths(directory, &name);
        let [socket, _, lock] = &paths;
        // If this user cannot examine the name, its server may be alive.
        let dead = lock_is_free(lock).unwrap_or(false) && is_deserted(socket).unwrap_or(false);
        // The files are searched again here, because a server that started meanwhile may have renamed one of
        // them.
        let files: Vec<_> = paths
            .into_iter()
            .filter(|path| path.symlink_metadata().is_ok())
            .chain(dead_draining(directory, &name))
            .collect();
        let directory = directory.to_owned();
        (dead && !files.is_empty()).then_some(Leftover { name, directory, files })
    };
    names.into_iter().filter_map(leftover).collect()
}

/// Returns the paths of a name's files: the socket, the socket before it is renamed, and the lock file.
pub(super) fn paths(directory: &Path, name: &str) -> [PathBuf; 3] {
    let hidden = |what: &str| directory.join(format!(".{name}.{what}"));
    [directory.join(name), hidden("new"), hidden("lock")]
}

/// Returns the path of the socket of a name while its server stops. The name itself is free then.
pub(super) fn draining_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!(".{name}.draining"))
}

/// Returns the path of the socket that a server left which was killed while it stopped.
fn dead_draining(directory: &Path, name: &str) -> Option<PathBuf> {
    let path = draining_path(directory, name);
    let is_left = path.symlink_metadata().is_ok() && is_deserted(&path).unwrap_or(false);
    is_left.then_some(path)
}

/// Removes the socket that a server of this name left which was killed while it stopped.
pub(super) fn remove_dead_draining(directory: &Path, name: &str) {
    if let Some(path) = dead_draining(directory, name) {
        let _ = fs::remove_file(path);
    }
}

/// Returns whether Peregrine could have created this file of a runtime directory.
pub(super) fn is_ours(file: &DirEntry) -> bool {
    let (Ok(kind), Ok(name)) = (file.file_type(), file.file_name().into_string()) else {
        return false;
    };
    let Some(hidden) = name.strip_prefix('.') else { return kind.is_socket() && valid_name(&name) };
    let lock = hidden.strip_suffix(".lock").filter(|_| kind.is_file());
    let aside = hidden.strip_suffix(".new").or_else(|| hidden.strip_suffix(".draining"));
    let aside = aside.filter(|_| kind.is_socket());
    hidden == "processors" && kind.is_file() || lock.or(aside).is_some_and(valid_name)
}

/// Returns whether no process listens at a socket: the socket does not exist, or it refuses connections.
pub(super) fn is_deserted(socket: &Path) -> io::Result<bool> {
    match socket.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
        // A file of another type at this path does not come from a server, so it is no leftover.
        Ok(about) if !about.file_type().is_socket() => return Ok(false),
        Ok(_) => {}
    }
    match Seqpacket::connect(socket) {
        Ok(_) => Ok(false),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ECONNREFUSED) => Ok(true),
            // Either the queue of the socket is full, or the socket is of another type. In both cases it is
            // not a leftover of Peregrine.
            Some(libc::EAGAIN | libc::EPROTOTYPE) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Returns whether the path still leads to this lock file. A lock file that was removed from its path is not
/// valid.
pub(super) fn is_named(lock: &File, path: &Path) -> bool {
    let (Ok(own), Ok(named)) = (lock.metadata(), fs::symlink_metadata(path)) else { return false };
    (named.dev(), named.ino()) == (own.dev(), own.ino())
}

/// Takes the lock of a name. Creates the lock file if it does not exist. Returns `None` if a live process
/// holds the lock.
///
/// The lock is valid only while the file is at its path. Another process that removes leftovers may remove
/// the file after this function has opened it. The lock is also not valid if the file belongs to another
/// user, or if other users may open it. Such a user could hold the lock, and so prevent the next server from
/// starting. So the function replaces such a file by a new one.
pub(super) fn take(path: &Path) -> io::Result<Option<File>> {
    /// The maximum number of attempts. An attempt fails if another process removes the file at the same
    /// moment, or if the file is not valid.
    const ATTEMPTS: usize = 100;
    for _ in 0..ATTEMPTS {
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)?;
        if !hold(&lock) {
            return Ok(None);
        }
        if !is_named(&lock, path) {
            continue;
        }
        let about = lock.metadata()?;
        if about.uid() == rustix::process::geteuid().as_raw() && about.mode() & 0o077 == 0 {
            return Ok(Some(lock));
        }
        fs::remove_file(path)?;
    }
    Err(io::Error::other(format!("{} vanishes again and again", path.display())))
}

#[cfg(test)]
mod tests {
    use super::super::Audience;
    use super::super::sockets::publish_in;
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    /// Creates the files that a killed server would leave.
    fn kill(directory: &Path, name: &str) {
        let [socket, aside, lock] = paths(directory, name);
        let published = publish_in(directory, name, Audience::Private).unwrap();
        fs::rename(&socket, directory.join("kept")).unwrap();
        drop(published);
        fs::rename(directory.join("kept"), &socket).unwrap();
        fs::write(lock, "").unwrap();
        drop(std::os::unix::net::UnixListener::bind(&aside).unwrap());
    }

    #[test]
    fn what_no_server_made_stays() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["notes", ".notes.lock", ".notes.new"] {
            fs::write(dir.path().join(name), "mine").unwrap();
        }
        fs::create_dir(dir.path().join("folder")).unwrap();
        fs::write(dir.path().join(".folder.lock"), "").unwrap();
        assert!(leftovers_in(dir.path()).is_empty());
        let directory = dir.path().to_owned();
        let leftover = Leftover { name: "notes".into(), directory, files: Vec::new() };
        assert_eq!(leftover.remove().unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read(dir.path().join("notes")).unwrap(), b"mine");
    }

    #[test]
    fn who_lost_the_lock_takes_nothing_away() {
        let dir = tempfile::tempdir().unwrap();
        let [socket, _, lock] = paths(dir.path(), "name");
        let first = publish_in(dir.path(), "name", Audience::Private).unwrap();
        // Here, another process removes the files of the name, and another server takes the name.
        fs::remove_file(&lock).unwrap();
        fs::remove_file(&socket).unwrap();
        let _second = publish_in(dir.path(), "name", Audience::Private).unwrap();
        drop(first);
        assert!(socket.exists() && lock.exists());
    }

    #[test]
    fn what_is_dead_goes_and_what_lives_stays() {
        let dir = tempfile::tempdir().unwrap();
        kill(dir.path(), "dead");
        let alive = publish_in(dir.path(), "alive", Audience::Private).unwrap();
        drop(publish_in(dir.path(), "withdrawn", Audience::Private).unwrap());
        fs::write(paths(dir.path(), "old")[2].clone(), "").unwrap();
        fs::write(dir.path().join("notes"), "no socket").unwrap();
        fs::write(dir.path().join(".processors"), "").unwrap();
        let found = leftovers_in(dir.path());
        let names: Vec<_> = found.iter().map(|one| (one.name(), one.files().len())).collect();
        assert_eq!(names, [("dead", 3), ("old", 1)]);
        for one in &found {
            assert_eq!(one.remove().unwrap(), one.files());
            // This second removal finds only the lock file that it has created itself. It removes this file,
            // too.
            assert_eq!(one.remove().unwrap().len(), 1);
        }
        assert!(leftovers_in(dir.path()).is_empty());
        Seqpacket::connect(&dir.path().join("alive")).unwrap();
        drop(alive);
        assert!(dir.path().join("notes").exists() && dir.path().join(".processors").exists());
    }

    #[test]
    fn socket_of_a_server_that_was_killed_while_it_stopped_is_a_leftover() {
        let dir = tempfile::tempdir().unwrap();
        let draining = draining_path(dir.path(), "files");
        let server = publish_in(dir.path(), "files", Audience::Private).unwrap();
        server.begin_to_drain();
        assert!(draining.exists() && !dir.path().join("files").exists());
        assert!(leftovers_in(dir.path()).is_empty(), "the server is still there");
        // After the next lines, the directory is as after the death of the server.
        fs::rename(&draining, dir.path().join("kept")).unwrap();
        drop(server);
        fs::rename(dir.path().join("kept"), &draining).unwrap();
        let found = leftovers_in(dir.path());
        let files: Vec<_> = found.iter().flat_map(|one| one.files().to_vec()).collect();
        assert_eq!(files, std::slice::from_ref(&draining));
        assert!(found[0].remove().unwrap().contains(&draining));
        assert!(leftovers_in(dir.path()).is_empty() && !draining.exists());
    }

    #[test]
    fn a_name_that_is_taken_meanwhile_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        kill(dir.path(), "files");
        let found = leftovers_in(dir.path());
        let server = publish_in(dir.path(), "files", Audience::Private).unwrap();
        let error = found[0].remove().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        Seqpacket::connect(&dir.path().join("files")).unwrap();
        drop(server);
    }

    #[test]
    fn who_listens_without_a_lock_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let listener = Seqpacket::listen(&dir.path().join("files")).unwrap();
        assert!(leftovers_in(dir.path()).is_empty());
        let (name, directory) = ("files".to_owned(), dir.path().to_owned());
        let one = Leftover { name, directory, files: Vec::new() };
        assert_eq!(one.remove().unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert_eq!(leftovers_in(dir.path()).len(), 1);
        // Peregrine does not create stream sockets, so this socket is no leftover.
        let other = std::os::unix::net::UnixListener::bind(dir.path().join("other")).unwrap();
        assert_eq!(leftovers_in(dir.path()).len(), 1);
        drop(other);
    }

    #[test]
    fn a_lock_file_is_no_way_to_other_files() {
        let dir = tempfile::tempdir().unwrap();
        let precious = dir.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        let [socket, _, lock] = paths(dir.path(), "files");
        std::os::unix::fs::symlink(&precious, &lock).unwrap();
        drop(Seqpacket::listen(&socket).unwrap());
        assert!(take(&lock).is_err() && leftovers_in(dir.path()).is_empty());
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
        // If a pipe replaces the lock file, the search must not block.
        fs::remove_file(&lock).unwrap();
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &lock, kind, 0o600.into(), 0).unwrap();
        assert!(take(&lock).is_err());
        lock_is_free(&lock).unwrap();
        let (name, directory) = ("files".to_owned(), dir.path().to_owned());
        let one = Leftover { name, directory, files: Vec::new() };
        assert!(one.remove().is_err() && lock.exists());
    }

    /// Servers start and stop while other threads remove leftovers. While a server holds a name, no other
    /// server gets the name, and no other thread removes the files of the name.
    #[test]
    fn servers_that_start_lose_nothing_to_those_who_clean() {
        let dir = tempfile::tempdir().unwrap();
        const PATIENCE: Duration = Duration::from_secs(20);
        let begun = Instant::now();
        let (over, holders, started) =
            (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    // With this limit, the loops end even if a server panics.
                    while !over.load(Ordering::Relaxed) && begun.elapsed() < PATIENCE {
                        for one in leftovers_in(dir.path()) {
                            let _ = one.remove();
                        }
                    }
                });
            }
            for _ in 0..3 {
                scope.spawn(|| {
                    while started.load(Ordering::Relaxed) < 1000 {
                        let published = publish_in(dir.path(), "files", Audience::Private);
                        let Ok(published) = published else { continue };
                        assert_eq!(
                            holders.fetch_add(1, Ordering::SeqCst),
                            0,
                            "two servers have the name"
                        );
                        std::thread::sleep(Duration::from_micros(200));
                        Seqpacket::connect(&dir.path().join("files")).expect("a live export");
                        started.fetch_add(1, Ordering::Relaxed);
                        holders.fetch_sub(1, Ordering::SeqCst);
                        drop(published);
                    }
                    over.store(true, Ordering::Relaxed);
                });
            }
        });
    }
}
