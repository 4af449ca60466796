//! Directories: who knows where names are served. None is a daemon.
//!
//! [`Directory`] is the contract; [`Hosts`] is the static one. On one machine a name is a socket in a
//! runtime directory:
//!
//! | directory | when |
//! |---|---|
//! | `$PEREGRINE_DIR` | if set |
//! | `$XDG_RUNTIME_DIR/peregrine` | if `$XDG_RUNTIME_DIR` is set |
//! | `/tmp/peregrine-UID` | for users other than root, if it is theirs and nobody else may write there |
//! | `/run/peregrine` | always; only root may export there |
//!
//! A server exports in the first of them, a client searches all in that order. A program that runs
//! with more rights than its user (set-user-id, file capabilities) ignores both variables: its user
//! must not choose which server it talks to.
//!
//! Each socket has a lock file; while a server holds its lock the name is alive. Only the server's
//! user, and root, may open a lock file: another user who held the lock would keep the server from
//! starting again. A dead server's leftovers are replaced: the new socket is bound under another
//! name and then renamed, so clients never see a socket that does not listen yet.
//! [`leftovers`] finds leftovers that no server has replaced, and removes them.

mod hosts;
mod leftovers;
mod runtime;

pub use hosts::Hosts;
pub use leftovers::{Leftover, leftovers};
pub use runtime::search_path;

use core::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use self::runtime::{export_directory, unsafe_directory};

use crate::address::Address;
use crate::error::{CallError, Kind, Phase};
use crate::interface::valid_name;
use crate::sys::{Memory, Seqpacket};

/// Somebody who knows on which machines names are served.
///
/// ```
/// use peregrine::directory::Directory;
/// use peregrine::{Address, CallError};
///
/// /// Everything is served by one machine.
/// #[derive(Debug)]
/// struct Central(&'static str);
///
/// impl Directory for Central {
///     fn offers(&self, name: &str) -> Result<Vec<Address>, CallError> {
///         Ok(vec![format!("{name}@{}", self.0).parse()?])
///     }
///
///     fn describe(&self) -> String {
///         format!("central machine {}", self.0)
///     }
/// }
///
/// let offers = Central("fs.example.org").offers("files")?;
/// assert_eq!(offers[0].name(), "files");
/// # Ok::<(), CallError>(())
/// ```
pub trait Directory: fmt::Debug + Send + Sync {
    /// Where a name is served: addresses that name a machine. None if it is not known here.
    ///
    /// # Errors
    /// If the directory cannot be asked, or what it says makes no sense.
    fn offers(&self, name: &str) -> Result<Vec<Address>, CallError>;

    /// Which directory it is, for people.
    fn describe(&self) -> String;
}

fn check_name(name: &str, phase: Phase) -> Result<(), CallError> {
    if valid_name(name) {
        return Ok(());
    }
    Err(CallError::not_executed(Kind::BadName, phase, format!("`{name}`")))
}

/// A name that is published for as long as this lives.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) socket: Seqpacket,
    path: PathBuf,
    /// Its lock says that the name is alive.
    lock: File,
    lock_path: PathBuf,
    pid: u32,
    withdrawn: AtomicBool,
}

impl Published {
    /// Takes the name away; nothing more when it is dropped.
    pub(crate) fn withdraw(&self) {
        // A forked child owns nothing of it, nor does whoever took it away before.
        if self.pid == std::process::id() && !self.withdrawn.swap(true, Ordering::AcqRel) {
            // First the name, then the lock: whoever gets the lock finds no name of ours. Who has
            // opened the lock's file already makes another one when it has no name any more.
            // Where the lock's file is another's by now, the name is, too.
            if leftovers::is_named(&self.lock, &self.lock_path) {
                let _ = fs::remove_file(&self.path);
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

/// Who may connect to an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Audience {
    /// The server's own user, and root.
    #[default]
    Private,
    /// Every user of the machine.
    Public,
}

/// Publishes a name: the socket listens, then the name appears.
pub(crate) fn publish(name: &str, audience: Audience) -> Result<Published, CallError> {
    check_name(name, Phase::Export)?;
    let published = export_directory().and_then(|dir| publish_in(&dir, name, audience));
    published.map_err(|error| error.at(name))
}

fn publish_in(dir: &Path, name: &str, audience: Audience) -> Result<Published, CallError> {
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
    // Only the holder of the lock binds here, so what lies aside is a dead server's.
    let _ = fs::remove_file(&aside);
    let socket = Seqpacket::listen(&aside).map_err(|error| failed("binding", &aside, error))?;
    let mode = if audience == Audience::Public { 0o666 } else { 0o600 };
    fs::set_permissions(&aside, fs::Permissions::from_mode(mode))
        .map_err(|error| failed("opening up", &aside, error))?;
    fs::rename(&aside, &path).map_err(|error| failed("naming", &path, error))?;
    let (pid, withdrawn) = (std::process::id(), AtomicBool::new(false));
    Ok(Published { socket, path, lock, lock_path, pid, withdrawn })
}

/// Opens a runtime directory that was made for private exports, so that other users can reach a public
/// export. Also opens the directories above it that were made at the same time.
///
/// # Errors
/// If a directory is closed to other users and this process must not change that: it belongs to
/// another user, or holds files that are not Peregrine's and may be private.
fn open_to_others(dir: &Path) -> Result<(), CallError> {
    let whole = fs::canonicalize(dir).map_err(|error| {
        CallError::system(Phase::Export, format!("looking at {}", dir.display()), error)
    })?;
    open_one_to_others(&whole, 0o755, &leftovers::is_ours)?;
    let mut below = &*whole;
    while let Some(above) = below.parent() {
        // Other users may pass through it, and need not see what it holds.
        open_one_to_others(above, 0o711, &|file| file.path() == below)?;
        below = above;
    }
    Ok(())
}

/// Sets the mode of a directory to `open` if it is closed to all other users. `is_known` returns whether
/// other users may reach a file in it.
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
    // A directory that is open to a group was opened by somebody who knows who is to come in.
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

/// Words that the servers of the runtime directory share, in the file `.processors`.
///
/// Who may write there may as well end these servers: it is their own user, or root.
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

/// Takes the lock of a name. A listing holds it for a moment when it looks whether the name is
/// alive, so this tries again before it gives up.
fn hold(lock: &File) -> bool {
    (0..10).any(|attempt| {
        if attempt > 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok()
    })
}

/// Connects to the export of a name, before `until`.
pub(crate) fn resolve(name: &str, until: Instant) -> Result<Seqpacket, CallError> {
    check_name(name, Phase::Resolve)?;
    let mut why = Vec::new();
    for dir in search_path() {
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

fn connect(path: &Path, until: Instant) -> io::Result<Seqpacket> {
    loop {
        match Seqpacket::connect(path) {
            // Many clients came at once: the server has not let all of them in yet.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

/// A name as it is found in a runtime directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// The socket that stands for it.
    pub socket: PathBuf,
    /// Whether a server holds the name now; otherwise it is the leftover of a dead server. `None`
    /// if this user may not find out: the export is private to another user.
    pub alive: Option<bool>,
}

/// All names in the runtime directories, in the order of searching, then by name. Of names that
/// occur twice the first is the one that clients find.
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
    for dir in search_path() {
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

/// Whether a server holds a name; `None` if this user may not find out.
fn is_alive(dir: &Path, name: &str) -> Option<bool> {
    let [socket, _, lock] = leftovers::paths(dir, name);
    let deserted = match lock_is_free(&lock) {
        Ok(free) => Ok(free),
        // The lock is another user's. Everybody may connect to a public export, and the kernel tells
        // whether a process listens there.
        Err(_) => leftovers::is_deserted(&socket),
    };
    deserted.ok().map(|deserted| !deserted)
}

/// Whether nobody holds the lock of a name; it is free if there is no file of it.
fn lock_is_free(path: &Path) -> io::Result<bool> {
    // What is no file, or leads to one elsewhere, is nobody's lock, and must not halt us.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let lock = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        lock => lock?,
    };
    // A shared lock, and only for a moment: two listings do not take each other for servers.
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

        // What a killed server leaves: the socket, a stale one aside, and a lock nobody holds.
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
        // A directory with other files in it stays closed.
        let home = dir.path().join("home");
        fs::DirBuilder::new().mode(0o700).create(&home).unwrap();
        fs::write(home.join("diary"), "private").unwrap();
        let _private = publish_in(&home, "private", Audience::Private).unwrap();
        let error = publish_in(&home, "public", Audience::Public).unwrap_err();
        assert_eq!(error.kind(), Kind::Denied);
        assert!(error.to_string().contains("not Peregrine's"), "{error}");
        assert_eq!(mode(&home), 0o700);
        assert!(!home.join("public").exists() && !home.join(".public.lock").exists());
        // One that is open to a group is left as it is.
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
        // A directory with other files in it stays closed, and the export fails.
        let (home, run) = (dir.path().join("home"), dir.path().join("home/run"));
        let _private = publish_in(&run, "private", Audience::Private).unwrap();
        fs::write(home.join("diary"), "private").unwrap();
        let error = publish_in(&run, "public", Audience::Public).unwrap_err();
        assert_eq!((error.kind(), mode(&home)), (Kind::Denied, 0o700));
        let advised = format!("run `chmod 711 {}`", home.display());
        assert!(error.to_string().contains(&advised), "{error}");
        assert!(!error.to_string().contains("run as the server's user"), "{error}");
        assert!(!run.join("public").exists());
        // As the text advises.
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
