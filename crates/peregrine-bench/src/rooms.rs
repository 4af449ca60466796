//! The private runtime directory of a run: what is exported for measuring is seen by nobody else.

use std::error::Error;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::process::{Signal, set_parent_process_death_signal};

/// Tells the process that measures that its directory has been made, and by whom.
const INSIDE: &str = "PEREGRINE_BENCH_INSIDE";

/// A directory that is removed when this is dropped.
pub(crate) struct Room(PathBuf);

impl Room {
    /// Makes the directory, for this user alone.
    pub(crate) fn make() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("peregrine-bench-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        remove_shared(&self.0);
    }
}

/// What names of shared memory begin with that a run's peers make.
#[cfg(feature = "peers")]
pub(crate) fn shared_names(room: &Path) -> String {
    let run = room.file_name().unwrap_or_default();
    format!("{}_", run.to_string_lossy())
}

/// Removes what peers leave for the next process that uses them, and what they leave if killed.
#[cfg(feature = "peers")]
fn remove_shared(room: &Path) {
    let names = shared_names(room);
    let Ok(files) = fs::read_dir("/dev/shm") else { return };
    for file in files.flatten() {
        if file.file_name().to_string_lossy().starts_with(&names) {
            let _ = fs::remove_file(file.path());
        }
    }
}

#[cfg(not(feature = "peers"))]
const fn remove_shared(_: &Path) {}

/// Whether `$PEREGRINE_DIR` is a directory of our own already.
pub(crate) fn inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Lets this process be killed when the thread ends that started it, whatever is being done then.
pub(crate) fn end_with_parent() {
    // Of no use where it fails, and no harm either.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}

/// Lets this process be killed when the one that made its directory ends: nobody would wait for its
/// result, and its children end with it.
pub(crate) fn end_with_the_outside() {
    end_with_parent();
    let outside = std::env::var(INSIDE).ok().and_then(|pid| pid.parse().ok());
    if outside.is_some_and(|pid: u32| pid != std::os::unix::process::parent_id()) {
        std::process::exit(1);
    }
}

/// Runs this program again, in a network namespace of its own if it may, its `$PEREGRINE_DIR` a fresh directory, which is removed afterwards
/// however that run ends.
pub(crate) fn enter() -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    let room = Room::make()?;
    let status = crate::network::link::enter()?
        .args(std::env::args_os().skip(1))
        .env("PEREGRINE_DIR", &room.0)
        .env(INSIDE, std::process::id().to_string())
        .status()?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}
