//! Files with keys: their permissions, and how they are read, replaced, and watched.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;
use std::time::{Duration, SystemTime};

use zeroize::Zeroizing;

use super::error::KeyError;
use crate::sys;

/// Whether a file that exists may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// Fail if the file exists.
    No,
    /// Replace it.
    Yes,
}

/// The users that may read or change a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// Only the owner may read the file.
    Secret,
    /// The same, for a file with the keys of connections.
    Log,
    /// Everybody may read the file, and only the owner may change it.
    Public,
}

impl Guard {
    /// The permissions of a file that is made.
    const fn mode(self) -> u32 {
        match self {
            Self::Secret | Self::Log => 0o600,
            Self::Public => 0o644,
        }
    }
}

/// What changes when a file is changed or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds of the last change of the content, and of the inode.
    times: [i64; 4],
    /// Whether the file was changed so shortly before it was read that a further change may have the same
    /// times. Such a stamp is like no other one.
    is_recent: bool,
}

/// File systems note times in steps of up to two seconds.
const RECENT: Duration = Duration::from_secs(3);

impl Stamp {
    fn of(file: &Metadata) -> Self {
        let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
        let now = SystemTime::now();
        let changed = u64::try_from(file.ctime()).unwrap_or_default();
        let changed = Duration::new(changed, u32::try_from(file.ctime_nsec()).unwrap_or_default());
        let is_recent = SystemTime::UNIX_EPOCH + changed + RECENT > now;
        Self { device: file.dev(), inode: file.ino(), bytes: file.size(), times, is_recent }
    }

    /// Returns the stamp of a file, or `None` if there is no file that can be looked at.
    pub(super) fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|file| Self::of(&file))
    }
}

/// Returns whether a file must be read again. `before` is its stamp when it was last read.
pub(super) fn has_changed(before: Option<Stamp>, path: &Path) -> bool {
    match (before, Stamp::at(path)) {
        (None, None) => false,
        (Some(before), Some(now)) => {
            before.is_recent || Stamp { is_recent: false, ..now } != before
        }
        (None, Some(_)) | (Some(_), None) => true,
    }
}

/// Reads a file of at most `most` bytes. `what` says what it would contain, if it does not exist.
///
/// # Errors
/// [`KeyError::Permissions`] if others than the owner may do more than `guard` says, or may replace the file.
pub(super) fn read(
    path: &Path,
    most: usize,
    guard: Guard,
    what: &'static str,
) -> Result<(Zeroizing<Vec<u8>>, Stamp), KeyError> {
    // Without `O_NONBLOCK`, opening a named pipe would wait for a writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            KeyError::Missing { path: path.to_owned(), what }
        }
        _ => KeyError::system("cannot open", path, error),
    })?;
    let found = file.metadata().map_err(|error| KeyError::system("cannot look at", path, error))?;
    if !found.is_file() {
        return Err(KeyError::invalid(path.display().to_string(), "it is no regular file"));
    }
    check(path, &found, guard)?;
    let invalid = |why: String| KeyError::invalid(path.display().to_string(), why);
    if found.size() > most as u64 {
        return Err(invalid(format!("it has more than {most} bytes")));
    }
    // All memory is there before the first byte is read, because a vector that grows leaves copies behind.
    let mut content = Zeroizing::new(vec![0; found.size() as usize + 1]);
    let mut len = 0;
    loop {
        match (&file).read(&mut content[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(KeyError::system("cannot read", path, error)),
        }
    }
    if len > found.size() as usize {
        return Err(invalid("it grew while it was read".to_owned()));
    }
    content.truncate(len);
    Ok((content, Stamp::of(&found)))
}

/// Opens a file with the keys of connections for appending. Makes it if it does not exist.
///
/// # Errors
/// [`KeyError::Permissions`] if others than the owner may read the file or replace it.
pub(super) fn append(path: &Path) -> Result<File, KeyError> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(Guard::Log.mode());
    // Without `O_NONBLOCK`, opening a named pipe would wait for a reader.
    let file = options.custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(|error| KeyError::system("cannot open the key log", path, error))?;
    let found = file.metadata().map_err(|error| KeyError::system("cannot look at", path, error))?;
    if !found.is_file() {
        return Err(KeyError::invalid(path.display().to_string(), "it is no regular file"));
    }
    check(path, &found, Guard::Log)?;
    Ok(file)
}

/// Checks which users may read, change and replace a file.
fn check(path: &Path, found: &Metadata, guard: Guard) -> Result<(), KeyError> {
    let own = rustix::process::geteuid().as_raw();
    let denied = |path: &Path, why: String| KeyError::Permissions { path: path.to_owned(), why };
    let (mode, shown) = (found.mode() & 0o7777, path.display());
    let is_open = mode & 0o077 != 0;
    let what = match guard {
        Guard::Secret if is_open => Some("others can use this private key"),
        Guard::Log if is_open => Some("others can read the keys in this file"),
        _ => None,
    };
    if let Some(what) = what {
        let why = format!("{what} (mode {mode:04o}), so it is not used: run `chmod 600 {shown}`");
        return Err(denied(path, why));
    }
    if mode & 0o022 != 0 {
        let why = format!(
            "others can change this file (mode {mode:04o}), so it is not used: run `chmod go-w {shown}`"
        );
        return Err(denied(path, why));
    }
    let others = |owner: u32| owner != own && owner != 0;
    if others(found.uid()) {
        let why = format!("it belongs to user {}, and this is user {own}", found.uid());
        return Err(denied(path, why));
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let inside = fs::metadata(parent);
    let inside = inside.map_err(|error| KeyError::system("cannot look at", parent, error))?;
    // In a directory with the sticky bit, only its owner and that of a file may replace the file.
    let is_open = inside.mode() & 0o022 != 0 && inside.mode() & 0o1000 == 0;
    if is_open || others(inside.uid()) {
        let (mode, shown) = (inside.mode() & 0o7777, parent.display());
        let why = format!(
            "others can replace files in this directory (mode {mode:04o}, user {}): run `chmod go-w {shown}`",
            inside.uid()
        );
        return Err(denied(parent, why));
    }
    Ok(())
}

/// Makes a directory in which only its owner may read and write, with those above it.
pub(super) fn make_directory(path: &Path) -> Result<(), KeyError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| KeyError::system("cannot create", path, error))
}

/// Writes a file as a whole: a reader sees all of it, or the earlier one.
pub(super) fn write(
    path: &Path,
    content: &[u8],
    guard: Guard,
    overwrite: Overwrite,
) -> Result<(), KeyError> {
    let failed = |what| move |error| KeyError::system(what, path, error);
    let name = path.file_name().ok_or_else(|| {
        KeyError::invalid(path.display().to_string(), "the path does not end in the name of a file")
    })?;
    let number = sys::random().map_err(failed("cannot make a name for a file beside"))?;
    let mut draft = std::ffi::OsString::from(".");
    draft.push(name);
    draft.push(format!(".{:016x}", u64::from_ne_bytes(number)));
    let draft = path.with_file_name(draft);
    let written = (|| {
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(guard.mode()).open(&draft)?;
        // Whatever the process' mask of permissions is.
        file.set_permissions(fs::Permissions::from_mode(guard.mode()))?;
        file.write_all(content)?;
        file.sync_all()
    })();
    let placed = written.and_then(|()| match overwrite {
        Overwrite::Yes => fs::rename(&draft, path),
        // Unlike `rename`, this fails if the file exists.
        Overwrite::No => fs::hard_link(&draft, path),
    });
    let is_left = placed.is_err() || overwrite == Overwrite::No;
    if is_left {
        let _ = fs::remove_file(&draft);
    }
    placed.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => KeyError::Exists { path: path.to_owned() },
        _ => failed("cannot write")(error),
    })?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // The names of files are on the disk after this. File systems without it are not an error.
    let _ = File::open(parent.unwrap_or(Path::new("."))).and_then(|directory| directory.sync_all());
    Ok(())
}
