//! The file of a server that has registered.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};

use super::keeping::Duty;
use super::{is_record, text_of};
use crate::directory::record::Record;
use crate::sync::Mutex;
use crate::sys;

/// How long after the end of its lease the file of another server is removed.
const DEAD_FOR: Duration = Duration::from_secs(600);
/// How often the directory of a name is made again, if another server removes it at the same moment.
const TRIES: usize = 5;

/// How the name of a file ends that is written, and not renamed yet.
const NEW: &str = ".new";

/// The registrations of this process that keep a file.
#[derive(Debug)]
struct Claim {
    count: usize,
    /// What distinguishes their line from those of other processes.
    start: u64,
}

/// The files that registrations of this process keep.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<BTreeMap<PathBuf, Claim>>);

/// The file of a registration.
pub(super) struct Registered {
    /// The directory of the name.
    place: PathBuf,
    path: PathBuf,
    line: String,
    claims: Arc<Claims>,
}

impl Registered {
    /// Prepares the file of a registration.
    ///
    /// # Errors
    /// If the system gives no random number.
    pub(super) fn new(place: &Path, record: &Record, claims: &Arc<Claims>) -> io::Result<Self> {
        let path = place.join(format!("{}.json", record.offer.server()));
        let start = u64::from_ne_bytes(sys::random::<8>()?);
        let start = {
            let mut all = claims.0.lock();
            let claim = all.entry(path.clone()).or_insert(Claim { count: 0, start });
            claim.count += 1;
            claim.start
        };
        let line = record.to_line_of(start);
        Ok(Self { path, place: place.to_owned(), line, claims: Arc::clone(claims) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file, and makes the directory of the name if it does not exist.
    pub(super) fn write(&self) -> io::Result<()> {
        let mut tried = 0;
        loop {
            match fs::create_dir(&self.place) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            tried += 1;
            match self.write_in_place() {
                // Another server that withdraws removes the directory as long as it is empty.
                Err(error) if error.kind() == io::ErrorKind::NotFound && tried < TRIES => {}
                written => return written,
            }
        }
    }

    /// Writes another file, and renames it, so that no reader sees a part. Its name is random: another machine
    /// has processes with the same numbers.
    fn write_in_place(&self) -> io::Result<()> {
        let random = u64::from_ne_bytes(sys::random::<8>()?);
        let aside = self.place.join(format!(".{random:016x}{NEW}"));
        let mut file = File::create_new(&aside)?;
        let written = writeln!(file, "{}", self.line).and_then(|()| fs::rename(&aside, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&aside);
        }
        written
    }

    /// Extends the lease. If the file has gone or was damaged, writes it again. A file that another living
    /// server has written stays: two servers that overwrite each other would both be found only at times.
    fn renew(&self) -> io::Result<()> {
        match text_of(&self.path) {
            Ok((text, modified)) if is_of_another(&text, modified, &self.line) => {
                Err(io::Error::other("another server has registered under the same identity"))
            }
            Ok((text, _)) if text.trim_end() == self.line => {
                // The time is that of the file system, whose clock is the same for all machines.
                let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
                let times = Timestamps { last_access: now, last_modification: now };
                Ok(utimensat(CWD, &self.path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
            }
            _ => self.write(),
        }
    }
}

impl Duty for Registered {
    fn fulfil(&mut self) -> Result<(), String> {
        let path = self.path.display();
        self.renew().map_err(|error| format!("cannot renew {path}: {error}"))
    }

    fn end(&mut self) {
        let is_claimed = {
            let mut claims = self.claims.0.lock();
            let left = claims.get_mut(&self.path).map_or(0, |claim| {
                claim.count -= 1;
                claim.count
            });
            if left == 0 {
                claims.remove(&self.path);
            }
            left > 0
        };
        let is_own = text_of(&self.path).is_ok_and(|(text, _)| text.trim_end() == self.line);
        if !is_own || is_claimed {
            return;
        }
        let _ = fs::remove_file(&self.path);
        // Fails if the name has other servers.
        let _ = fs::remove_dir(&self.place);
    }
}

/// Returns whether a file is that of a server that lives, and has another line.
fn is_of_another(text: &str, modified: SystemTime, line: &str) -> bool {
    let Ok(record) = Record::read(text.trim_end()) else { return false };
    let is_over = |lease| SystemTime::now().duration_since(modified).is_ok_and(|age| age > lease);
    text.trim_end() != line && !record.lease.is_some_and(is_over)
}

/// Removes the files of servers whose leases have been over for long, and files that were written long ago and
/// not renamed, because their process was killed. `written` is a file that was written a moment ago: its time
/// is that of the file system. The clock of this machine may be wrong, and must not remove living servers.
pub(super) fn remove_dead(place: &Path, written: &Path) {
    let Ok(now) = fs::metadata(written).and_then(|about| about.modified()) else { return };
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if name.starts_with('.') && name.ends_with(NEW) {
            let modified = entry.metadata().and_then(|about| about.modified());
            let age = modified.ok().and_then(|modified| now.duration_since(modified).ok());
            if age.is_some_and(|age| age > DEAD_FOR) {
                let _ = fs::remove_file(entry.path());
            }
        }
        if !is_record(name) {
            continue;
        }
        let Ok((text, modified)) = text_of(&entry.path()) else { continue };
        // A file with other lines was written by hand.
        let leases = text.lines().map(|line| Record::read(line).ok()?.lease);
        let lease = leases.collect::<Option<Vec<_>>>().and_then(|leases| leases.into_iter().max());
        let is_dead = |lease: Duration| {
            now.duration_since(modified).is_ok_and(|age| age > lease.saturating_add(DEAD_FOR))
        };
        if lease.is_some_and(is_dead) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Opens a file to read it. A pipe at its path must not block.
pub(super) fn opened(path: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}
