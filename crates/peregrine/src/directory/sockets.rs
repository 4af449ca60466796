//! The names of the runtime directories: sockets and lock files. A server publishes a name here, and a client
//! on this machine connects to it.
//!
//! Each socket has a lock file. While a server holds the lock, the name is alive. Only the server's user and
//! root can open the lock file. Otherwise another user could hold the lock, and so prevent the server from
//! starting again. A new server replaces the files of a dead server: it binds the new socket under a
//! temporary name, and then renames this socket. So clients never see a socket at which no process listens
//! yet. [`leftovers`](fn@super::leftovers) finds files that no server has replaced.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};

use super::leftovers;
use super::runtime::{export_directory, may_search, search_path, unsafe_directory};
use crate::error::{CallError, Kind, Phase};
use crate::interface::valid_name;
use crate::sys::{Memory, Seqpacket};

/// Checks the name of an export.
///
/// # Errors
/// If the name is invalid.
pub(crate) fn check_name(name: &str, phase: Phase) -> Result<(), CallError> {
    if valid_name(name) {
        return Ok(());
    }
    Err(CallError::not_executed(Kind::BadName, phase, format!("`{name}`")))
}

/// A published name. Dropping this value withdraws the name.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) socket: Seqpacket,
    path: PathBuf,
    /// The lock file of the name. While this process holds the lock, the name is alive.
    lock: File,
    lock_path: PathBuf,
    /// The path of the socket while the server stops.
    draining: PathBuf,
    /// What identifies the file of the socket: its device and its inode.
    file: (u64, u64),
    pid: u32,
    is_named: AtomicBool,
}

impl Published {
    /// Releases the name, and keeps the socket at the path that [`resolve_draining`] finds. Another server
    /// can take the name at once. Does nothing if the name was released before.
    pub(crate) fn begin_to_drain(&self) {
        self.release(|socket| {
            // If an earlier server of this name has not stopped yet, its socket stays. The earlier server
            // also reports that it is about to stop.
            let kept = renameat_with(CWD, socket, CWD, &self.draining, RenameFlags::NOREPLACE);
            if kept.is_err() {
                let _ = fs::remove_file(socket);
            }
        });
    }

    /// Withdraws the name, and removes the socket. Does nothing if the name was withdrawn before.
    pub(crate) fn withdraw(&self) {
        self.release(|socket| {
            let _ = fs::remove_file(socket);
        });
        let is_own = |about: fs::Metadata| (about.dev(), about.ino()) == self.file;
        if self.pid == std::process::id() && fs::symlink_metadata(&self.draining).is_ok_and(is_own)
        {
            let _ = fs::remove_file(&self.draining);
        }
    }

    /// Releases the name, unless it was released before. `remove` removes the socket from its path.
    fn release(&self, remove: impl FnOnce(&Path)) {
        // In a forked child, nothing is released, because the name belongs to the parent.
        if self.pid == std::process::id() && self.is_named.swap(false, Ordering::AcqRel) {
            // The name is removed before the lock is released, so a process that then gets the lock finds no
            // name. Another process may have opened the lock file earlier. When that process finds that the
            // file was removed, it creates a new lock file. If another server already has a new lock file,
            // the name belongs to that server and is not removed here.
            if leftovers::is_named(&self.lock, &self.lock_path) {
                remove(&self.path);
                let _ = fs::remove_file(&self.lock_path);
            }
            let _ = flock(&self.lock, FlockOperation::Unlock);
        }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// Which users may connect to an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Audience {
    /// The user of the server, and root.
    #[default]
    Private,
    /// All users of the machine.
    Public,
}

/// Publishes a name. The socket listens before the name appears in the directory.
pub(crate) fn publish(name: &str, audience: Audience) -> Result<Published, CallError> {
    check_name(name, Phase::Export)?;
    let published = export_directory().and_then(|dir| publish_in(&dir, name, audience));
    published.map_err(|error| error.at(name))
}

pub(super) fn publish_in(
    dir: &Path,
    name: &str,
    audience: Audience,
) -> Result<Published, CallError> {
    let failed = |what: &str, path: &Path, error| {
        CallError::system(Phase::Export, format!("{what} {}", path.display()), error)
    };
    let mode = if audience == Audience::Public { 0o755 } else { 0o700 };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(dir)
        .map_err(|error| failed("creating", dir, error))?;
    if audience == Audience::Public {
        open_to_others(dir)?;
    }
    let [path, aside, lock_path] = leftovers::paths(dir, name);
    let lock = leftovers::take(&lock_path).map_err(|error| failed("locking", &lock_path, error))?;
    let Some(lock) = lock else {
        let holder = fs::symlink_metadata(&lock_path).map(|about| about.uid()).ok();
        let own = rustix::process::geteuid().as_raw();
        let whose = holder.filter(|holder| *holder != own);
        let whose = whose.map_or(String::new(), |user| format!(" of user {user}"));
        let text = format!("a live process{whose} holds the lock {}", lock_path.display());
        return Err(CallError::not_executed(Kind::NameTaken, Phase::Export, text));
    };
    // Only the process that holds the lock binds at this path. So if a file exists here, a dead server left
    // it.
    let _ = fs::remove_file(&aside);
    let socket = Seqpacket::listen(&aside).map_err(|error| failed("binding", &aside, error))?;
    let mode = if audience == Audience::Public { 0o666 } else { 0o600 };
    fs::set_permissions(&aside, fs::Permissions::from_mode(mode))
        .map_err(|error| failed("opening up", &aside, error))?;
    let about =
        fs::symlink_metadata(&aside).map_err(|error| failed("looking at", &aside, error))?;
    leftovers::remove_dead_draining(dir, name);
    fs::rename(&aside, &path).map_err(|error| failed("naming", &path, error))?;
    Ok(Published {
        socket,
        path,
        lock,
        lock_path,
        draining: leftovers::draining_path(dir, name),
        file: (about.dev(), about.ino()),
        pid: std::process::id(),
        is_named: AtomicBool::new(true),
    })
}

/// Gives other users access to a runtime directory that was created for private exports, so that they can
/// reach a public export. Does the same for the parent directories that were created together with it.
///
/// # Errors
/// Fails if a directory is closed to other users and must stay closed. This is the case if the directory
/// belongs to another user, or contains files that are not from Peregrine and may be private.
fn open_to_others(dir: &Path) -> Result<(), CallError> {
    let whole = fs::canonicalize(dir).map_err(|error| {
        CallError::system(Phase::Export, format!("looking at {}", dir.display()), error)
    })?;
    open_one_to_others(&whole, 0o755, &leftovers::is_ours)?;
    let mut below = &*whole;
    while let Some(above) = below.parent() {
        // With this mode, other users may pass through the directory, but cannot list its files.
        open_one_to_others(above, 0o711, &|file| file.path() == below)?;
        below = above;
    }
    Ok(())
}

/// Sets the mode of a directory to `open` if the directory is closed to all other users. `is_known` returns
/// whether a file in the directory may become accessible to other users.
fn open_one_to_others(
    dir: &Path,
    open: u32,
    is_known: &dyn Fn(&fs::DirEntry) -> bool,
) -> Result<(), CallError> {
    const OTHERS: u32 = 0o077;
    const ADVICE: &str = "open the directory that the text names, or set PEREGRINE_DIR to another \
                          one for the server and its clients";
    let failed = |error| {
        let what = format!("looking at {}", dir.display());
        CallError::system(Phase::Export, what, error)
    };
    let about = fs::metadata(dir).map_err(failed)?;
    let mode = about.mode() & 0o7777;
    // If the directory is already open to its group or to others, its mode was chosen on purpose, and is
    // kept.
    if mode & OTHERS != 0 {
        return Ok(());
    }
    let refused = |why: &str| {
        let dir = dir.display();
        let text = format!(
            "other users cannot reach a public export: the directory {dir} has mode {mode:o}, and \
             {why}; run `chmod {open:o} {dir}`, or set PEREGRINE_DIR to another directory"
        );
        let error = CallError::not_executed(Kind::Denied, Phase::Export, text);
        Err(error.with_advice(ADVICE))
    };
    if about.uid() != rustix::process::geteuid().as_raw() {
        return refused("it belongs to another user");
    }
    for file in fs::read_dir(dir).map_err(failed)? {
        if !is_known(&file.map_err(failed)?) {
            return refused("it holds files that are not Peregrine's");
        }
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(open)).map_err(|error| {
        let what = format!("opening {} to other users", dir.display());
        CallError::system(Phase::Export, what, error)
    })
}

/// Returns memory in the file `.processors`, which all servers of the runtime directory share.
///
/// Only a process that runs as the user of these servers, or as root, can write to the file. Such a process
/// could also kill the servers.
pub(crate) fn shared_words(bytes: usize) -> io::Result<Memory> {
    let dir = export_directory().map_err(io::Error::other)?;
    let path = dir.join(".processors");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    Memory::of_file(&file, bytes)
}

/// Takes the lock of a name. Tries several times, because a process that lists names also holds the lock for
/// a moment.
pub(super) fn hold(lock: &File) -> bool {
    (0..10).any(|attempt| {
        if attempt > 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok()
    })
}

/// Connects to the server that exports a name. Gives up at the time `until`.
pub(crate) fn resolve(name: &str, until: Instant) -> Result<Seqpacket, CallError> {
    check_name(name, Phase::Resolve)?;
    let mut why = Vec::new();
    for dir in search_path() {
        if !may_search(&dir) {
            why.push(format!("nothing in {}", dir.display()));
            continue;
        }
        match connect(&dir.join(name), until) {
            Ok(socket) => return Ok(socket),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => {
                    why.push(format!("nothing in {}", dir.display()));
                }
                Some(libc::ECONNREFUSED) => {
                    why.push(format!("the server that exported it in {} is dead", dir.display()));
                }
                _ => {
                    let what = format!("connecting in {}", dir.display());
                    return Err(CallError::system(Phase::Resolve, what, error));
                }
            },
        }
    }
    why.extend(unsafe_directory());
    let text = why.join(", ");
    Err(CallError::not_executed(Kind::NotFound, Phase::Resolve, text))
}

/// Connects to a server that exported a name until it began to stop, and that has not ended yet. Returns
/// `None` if there is no such server.
pub(crate) fn resolve_draining(name: &str, until: Instant) -> Option<Seqpacket> {
    let path = |dir: PathBuf| leftovers::draining_path(&dir, name);
    let directories = search_path().into_iter().filter(|dir| may_search(dir));
    directories.map(path).find_map(|path| connect(&path, until).ok())
}

fn connect(path: &Path, until: Instant) -> io::Result<Seqpacket> {
    loop {
        match Seqpacket::connect(path) {
            // The queue of the socket is full, because many clients connect at the same time.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

/// A name in a runtime directory, with its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// The path of the name's socket.
    pub socket: PathBuf,
    /// Whether a server holds the name now. If it is false, a dead server left the name. If it is `None`,
    /// this user cannot find out, because the export is private to another user.
    pub alive: Option<bool>,
}

/// Returns all names in the runtime directories, ordered first by the directories and then by name. If a name
/// occurs twice, clients use the first occurrence.
///
/// ```
/// for entry in peregrine::directory::list() {
///     let state = match entry.alive {
///         Some(true) => "is alive",
///         Some(false) => "is a leftover",
///         None => "is private to another user",
///     };
///     println!("{} {state}", entry.name);
/// }
/// ```
pub fn list() -> Vec<Entry> {
    let mut all: Vec<Entry> = Vec::new();
    for dir in search_path().into_iter().filter(|dir| may_search(dir)) {
        let Ok(files) = fs::read_dir(&dir) else { continue };
        let mut here: Vec<Entry> = files
            .filter_map(Result::ok)
            .filter(|file| file.file_type().is_ok_and(|kind| kind.is_socket()))
            .filter_map(|file| {
                let name = file.file_name().into_string().ok().filter(|name| valid_name(name))?;
                let alive = is_alive(&dir, &name);
                Some(Entry { name, socket: file.path(), alive })
            })
            .collect();
        here.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in here {
            if all.iter().all(|known| known.socket != entry.socket) {
                all.push(entry);
            }
        }
    }
    all
}

/// Returns whether a server holds a name. Returns `None` if this user cannot find out.
fn is_alive(dir: &Path, name: &str) -> Option<bool> {
    let [socket, _, lock] = leftovers::paths(dir, name);
    let deserted = match lock_is_free(&lock) {
        Ok(free) => Ok(free),
        // The lock belongs to another user. But all users may connect to a public export, and the kernel then
        // reports whether a process listens at its socket.
        Err(_) => leftovers::is_deserted(&socket),
    };
    deserted.ok().map(|deserted| !deserted)
}

/// Returns whether no process holds the lock of a name. If the lock file does not exist, the lock is free.
pub(super) fn lock_is_free(path: &Path) -> io::Result<bool> {
    // Another file may be at this path, such as a pipe or a symbolic link. Opening it must not follow the
    // link, and must not block.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let lock = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        lock => lock?,
    };
    // A shared lock is taken, for a moment only. Two processes that list names at the same time can both take
    // it. With an exclusive lock, one of them would mistake the other for a server.
    match flock(&lock, FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        free => Ok(free.map(|()| true)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_name_is_not_taken_and_a_leftover_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let first = publish_in(dir.path(), "files", Audience::Private).unwrap();
        let error = publish_in(dir.path(), "files", Audience::Private).unwrap_err();
        assert_eq!(error.kind(), Kind::NameTaken);
        let path = dir.path().join("files");
        assert_eq!(is_alive(dir.path(), "files"), Some(true));
        Seqpacket::connect(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);

        // After the next three lines, the directory has a socket at which no process listens, as after the
        // death of a server.
        fs::rename(&path, dir.path().join("kept")).unwrap();
        drop(first);
        fs::rename(dir.path().join("kept"), &path).unwrap();
        assert_eq!(is_alive(dir.path(), "files"), Some(false));
        let error = Seqpacket::connect(&path).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
        fs::write(dir.path().join(".files.new"), "").unwrap();
        let second = publish_in(dir.path(), "files", Audience::Public).unwrap();
        Seqpacket::connect(&path).unwrap();
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn public_export_opens_a_directory_made_for_private_ones() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let run = dir.path().join("run");
        let _private = publish_in(&run, "private", Audience::Private).unwrap();
        assert_eq!(mode(&run), 0o700);
        let _public = publish_in(&run, "public", Audience::Public).unwrap();
        assert_eq!(mode(&run), 0o755);
        for name in ["private", "public"] {
            assert_eq!(mode(&run.join(format!(".{name}.lock"))), 0o600);
        }
        // A directory that also contains files of other programs stays closed.
        let home = dir.path().join("home");
        fs::DirBuilder::new().mode(0o700).create(&home).unwrap();
        fs::write(home.join("diary"), "private").unwrap();
        let _private = publish_in(&home, "private", Audience::Private).unwrap();
        let error = publish_in(&home, "public", Audience::Public).unwrap_err();
        assert_eq!(error.kind(), Kind::Denied);
        assert!(error.to_string().contains("not Peregrine's"), "{error}");
        assert_eq!(mode(&home), 0o700);
        assert!(!home.join("public").exists() && !home.join(".public.lock").exists());
        // A directory that is already open to its group keeps its mode.
        fs::set_permissions(&home, fs::Permissions::from_mode(0o750)).unwrap();
        let _public = publish_in(&home, "public", Audience::Public).unwrap();
        assert_eq!(mode(&home), 0o750);
    }

    #[test]
    fn public_export_opens_the_directories_that_were_made_with_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (app, run) = (dir.path().join("app"), dir.path().join("app/run"));
        let _private = publish_in(&run, "private", Audience::Private).unwrap();
        assert_eq!((mode(&app), mode(&run)), (0o700, 0o700));
        let _public = publish_in(&run, "public", Audience::Public).unwrap();
        assert_eq!((mode(&app), mode(&run)), (0o711, 0o755));
        // A directory that also contains files of other programs stays closed, and the export fails.
        let (home, run) = (dir.path().join("home"), dir.path().join("home/run"));
        let _private = publish_in(&run, "private", Audience::Private).unwrap();
        fs::write(home.join("diary"), "private").unwrap();
        let error = publish_in(&run, "public", Audience::Public).unwrap_err();
        assert_eq!((error.kind(), mode(&home)), (Kind::Denied, 0o700));
        let advised = format!("run `chmod 711 {}`", home.display());
        assert!(error.to_string().contains(&advised), "{error}");
        assert!(!error.to_string().contains("run as the server's user"), "{error}");
        assert!(!run.join("public").exists());
        // Here the test changes the mode as the error message advises.
        fs::set_permissions(&home, fs::Permissions::from_mode(0o711)).unwrap();
        let _public = publish_in(&run, "public", Audience::Public).unwrap();
    }

    #[test]
    fn names_are_checked_before_they_are_paths() {
        for name in ["", "../x", "a/b", ".hidden"] {
            let error = publish(name, Audience::Private).unwrap_err();
            assert_eq!(error.kind(), Kind::BadName);
            let error = resolve(name, Instant::now()).unwrap_err();
            assert_eq!(error.kind(), Kind::BadName);
        }
    }
}
